package daemon

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/page"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/web"
	"github.com/witan-adp/witan/mirror"
)

// pages is the page.Source: it gives the pages what the API gives a stranger, and
// nothing else.
type pages struct {
	d       *daemon
	started int64
	rooms   atomic.Int64 // at the last pass

	mu      sync.Mutex
	counted page.Self // what a pass over all rooms found
	at      int64     // when, Unix ms
	samples []page.Sample

	unsized, unstored bool // as of the last sample; only run looks at them

	reporting sync.Mutex
	reports   map[string]report // by origin, "" for all; see maxReports
}

// report is what the mirror said of its hosts, and when.
type report struct {
	hosts []mirror.HostReport
	at    int64 // Unix ms
}

// maxReports bounds the reports that are remembered.
const maxReports = 256

// countEvery bounds how often all rooms are passed over for the numbers on the
// pages, in ms.
const countEvery = 5_000

// fewRooms are so quickly passed over that it is done ten times as often.
const fewRooms = 10_000

// Bounds of what one page shows.
const (
	maxAlarms     = 20
	maxOtherStory = 20
	maxTroubled   = 100
)

// Self implements page.Source.
func (p *pages) Self(ctx context.Context) (page.Self, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due(p.at) {
		p.count(ctx)
		p.at = p.d.edges.Now()
	}
	self := p.counted
	if p.d.node != nil {
		self.Peers = len(p.d.node.Peers())
	}
	return self, nil
}

// due tells whether what was found at a time is to be found again.
func (p *pages) due(at int64) bool {
	every := int64(countEvery)
	if p.rooms.Load() < fewRooms {
		every = countEvery / 10
	}
	now := p.d.edges.Now()
	return at == 0 || now-at >= every || now < at
}

// report is mirror.Report, which passes over all rooms: however many ask, it is
// made once in a while.
func (p *pages) report(origin string) []mirror.HostReport {
	p.reporting.Lock()
	defer p.reporting.Unlock()
	if r, ok := p.reports[origin]; ok && !p.due(r.at) {
		return r.hosts
	}
	if p.reports == nil || len(p.reports) >= maxReports {
		p.reports = map[string]report{}
	}
	hosts := p.d.mirror.Report(origin)
	p.reports[origin] = report{hosts, p.d.edges.Now()}
	return hosts
}

// count passes over all rooms. p.mu is held.
func (p *pages) count(ctx context.Context) {
	d := p.d
	self := page.Self{Origin: d.origin, Authority: authority(d.origin), AgentID: d.ring.AgentID(), Version: d.edges.Version, Hosts: d.host != nil, Started: p.started}
	for _, h := range d.mirror.Hosts() {
		if d.witness.HostEquivocated(h.Origin) {
			self.Alarms = append(self.Alarms, page.Alarm{Origin: h.Origin, Authority: authority(h.Origin), Verdict: replica.Equivocated})
		}
	}
	for _, r := range d.set.All() {
		row := r.Row()
		if row.Seq == 0 {
			continue
		}
		self.Records += row.Seq
		if r.Origin == d.origin {
			self.Own++
		} else {
			self.Mirrored++
		}
		switch row.Verdict {
		case replica.Equivocated, replica.Forked, replica.Broken, replica.ArchiveMismatch:
			if len(self.Alarms) < maxAlarms && p.listed(ctx, r) {
				self.Alarms = append(self.Alarms, page.Alarm{Origin: r.Origin, Authority: authority(r.Origin), RoomID: r.RoomID, Topic: p.topic(ctx, r), Verdict: row.Verdict, Reason: row.Reason})
			}
		}
	}
	slices.SortFunc(self.Alarms, func(a, b page.Alarm) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.RoomID, b.RoomID))
	})
	p.counted = self
	p.rooms.Store(self.Own + self.Mirrored)
}

// listed tells whether a stranger may know of the room.
func (p *pages) listed(ctx context.Context, r *replica.Replica) bool {
	if served, ok := p.d.set.Get(r.Origin, r.RoomID); !ok || served != r {
		return false
	}
	if r.Origin != p.d.origin {
		_, hidden := p.d.mirror.Hidden(r)
		return !hidden
	}
	visible := false
	err := r.View(ctx, func(s *room.State) { visible = s.Contract.Visibility != room.Private })
	return err == nil && visible
}

func (p *pages) topic(ctx context.Context, r *replica.Replica) (topic string) {
	if err := r.View(ctx, func(s *room.State) { topic = s.Contract.Topic }); err != nil {
		p.d.log.Error("a room cannot be read", "origin", r.Origin, "room", r.RoomID, "error", err)
	}
	return topic
}

// find gives the room of a page, by the read rules of the API: a private room of
// ours is not found, nor is a mirrored one that is held and not shown.
func (p *pages) find(ctx context.Context, auth, id string) (*replica.Replica, error) {
	d := p.d
	if auth == authority(d.origin) {
		r, ok := d.set.Get(d.origin, id)
		if d.host == nil || !ok || r.Row().Seq == 0 || !p.listed(ctx, r) {
			return nil, adp.Errorf(adp.RoomNotFound, "there is no such room here, or you may not read it")
		}
		return r, nil
	}
	origin, ok := d.mirror.OriginOf(auth)
	if !ok {
		return nil, noHost(auth)
	}
	r, ok := d.set.Get(origin, id)
	if !ok || r.Row().Seq == 0 {
		return nil, adp.Errorf(adp.RoomNotFound, "this mirror of %s has no such room", origin)
	}
	if reason, hidden := d.mirror.Hidden(r); hidden {
		return nil, adp.Errorf(adp.RoomNotFound, "this mirror holds the room and does not show it: %s", reason).With("reason", "hidden")
	}
	return r, nil
}

func noHost(auth string) error {
	return adp.Errorf(adp.NotFound, "this daemon mirrors no host %.100q; /federation/v1/hosts lists those that it does", auth)
}

// Room implements page.Source.
func (p *pages) Room(ctx context.Context, auth, id string) (*page.Room, error) {
	r, err := p.find(ctx, auth, id)
	if err != nil {
		return nil, err
	}
	d, row, own := p.d, r.Row(), r.Origin == p.d.origin
	out := &page.Room{Own: own, Origin: r.Origin, Authority: auth, ID: id, Genesis: r.Genesis, URL: r.Origin + "/v1/rooms/" + id, API: d.origin + "/v1/rooms/" + id,
		Records: r, Seq: row.Seq, Hash: row.Hash, LastActivity: row.At, SyncedAt: r.SyncedAt.Load(), Dropped: row.Dropped, Verdict: row.EffectiveVerdict(),
		State: row.State, Reason: row.Reason, Violations: row.Violations, Unverifiable: row.Unverifiable, Withheld: row.Withheld}
	if !own {
		out.URL, out.API = d.mirror.RoomURL(r.Origin, id), d.origin+"/m/"+url.PathEscape(auth)+"/v1/rooms/"+id
		out.State, out.Reason = d.mirror.Standing(r)
	}
	for _, rule := range slices.Sorted(maps.Keys(row.Rules)) {
		out.Rules = append(out.Rules, page.Count{Name: string(rule), N: row.Rules[rule]})
	}
	err = r.View(ctx, func(s *room.State) {
		out.Contract, out.Creator, out.CreatedAt, out.Status = s.Contract, s.Creator, s.CreatedAt, s.StatusAt(d.edges.Now())
		out.Readable = s.Contract.Visibility == room.Public
		out.Types = s.Registry.All()
		for a, m := range s.Members {
			out.Members = append(out.Members, page.Member{Agent: a, Role: m.Role, Perspective: m.Perspective})
		}
	})
	if err != nil {
		return nil, err
	}
	ranks := map[string]int{"moderator": 0, "speaker": 1, "observer": 2}
	slices.SortFunc(out.Members, func(a, b page.Member) int {
		return cmp.Or(cmp.Compare(ranks[string(a.Role)], ranks[string(b.Role)]), cmp.Compare(a.Agent, b.Agent))
	})
	if !out.Readable { // the Room resource of ADP §16 is all that strangers get
		out.Records, out.Members = nil, nil
		return out, nil
	}
	out.Checkpoint = own && d.witness.MaySign() == nil
	out.Attestations, out.Attested = d.attested(r.Origin, id)
	if row.Verdict == replica.Forked || row.Verdict == replica.Equivocated {
		if out.Branch, err = p.branch(r); err != nil {
			return nil, err
		}
	}
	if m, ok, err := r.Manifest(); err != nil {
		return nil, err
	} else if ok {
		c, err := adp.ParseClaim(m)
		if err != nil {
			return nil, err
		}
		out.Archive = &page.Archive{Root: c.ArchiveRoot, EventsCID: c.EventsCID, BundleCID: c.BundleCID, Digest: c.EventsDigest, Bytes: c.BundleBytes,
			GeneratedAt: c.GeneratedAt, Count: c.Count}
	}
	return out, nil
}

// branch gives the beginning of the other story of a fork.
func (p *pages) branch(r *replica.Replica) (out []page.OtherRecord, err error) {
	raws, err := r.Branch(maxOtherStory)
	for _, raw := range raws {
		v, err := adp.ScanDepth(raw, adp.RecordDepth)
		if err != nil {
			return nil, err
		}
		seq, _ := v.Get("seq").Int()
		out = append(out, page.OtherRecord{Seq: seq, Hash: v.Get("hash").Text(), JSON: raw})
	}
	return out, err
}

// Hosts implements page.Source.
func (p *pages) Hosts(ctx context.Context) ([]page.Host, error) {
	self, err := p.Self(ctx)
	if err != nil {
		return nil, err
	}
	var out []page.Host
	if self.Hosts {
		out = append(out, p.ownHost(self))
	}
	for _, r := range p.report("") {
		out = append(out, p.hostOf(r))
	}
	return out, nil
}

func (p *pages) ownHost(self page.Self) page.Host {
	h := page.Host{Origin: p.d.origin, Authority: self.Authority, Own: true, State: page.OwnHost, Since: self.Started, Rooms: self.Own}
	for _, r := range p.d.set.Of(p.d.origin) {
		row := r.Row()
		h.Records, h.Bytes = h.Records+row.Seq, h.Bytes+row.Bytes
	}
	return h
}

func (p *pages) hostOf(r mirror.HostReport) page.Host {
	h := page.Host{Origin: r.Origin, Authority: authority(r.Origin), State: r.State, Reason: r.Reason, Source: r.Source, Since: r.Since, NextTry: r.NextTry,
		Rooms: r.Rooms, Records: r.Records, Bytes: r.Bytes, Behind: r.Behind, Equivocated: p.d.witness.HostEquivocated(r.Origin)}
	for _, v := range slices.Sorted(maps.Keys(r.Verdicts)) {
		h.Verdicts = append(h.Verdicts, page.Count{Name: v, N: r.Verdicts[v]})
	}
	return h
}

// Host implements page.Source.
func (p *pages) Host(ctx context.Context, auth string) (*page.Host, error) {
	if auth == authority(p.d.origin) {
		self, err := p.Self(ctx)
		if err != nil {
			return nil, err
		}
		if !self.Hosts {
			return nil, noHost(auth)
		}
		h := p.ownHost(self)
		return &h, nil
	}
	origin, ok := p.d.mirror.OriginOf(auth)
	if !ok {
		return nil, noHost(auth)
	}
	reports := p.report(origin)
	if len(reports) == 0 {
		return nil, noHost(auth)
	}
	h := p.hostOf(reports[0])
	for _, s := range reports[0].RoomList {
		if s.Verdict == replica.Verified && s.Reason == "" || s.Hidden || len(h.Problems) == maxTroubled {
			continue
		}
		if r, ok := p.d.set.Get(origin, s.RoomID); ok && !p.listed(ctx, r) { // hidden since
			continue
		}
		t := page.HostRoom{ID: s.RoomID, State: s.State, Verdict: s.Verdict, Reason: s.Reason, Records: s.Seq, Behind: s.Behind, LastActivity: s.At}
		if r, err := p.find(ctx, auth, s.RoomID); err == nil {
			t.Shown, t.Topic = true, p.topic(ctx, r)
		}
		h.Problems = append(h.Problems, t)
	}
	for _, k := range p.d.bindings.History(origin) {
		h.Keys = append(h.Keys, page.HostKey{Purpose: string(k.Purpose), Key: k.Key, FirstSeen: k.FirstSeen, LastSeen: k.LastSeen, Retired: k.Retired, Waiting: k.Waiting})
	}
	return &h, nil
}

// Signed implements page.Source.
func (p *pages) Signed(_ context.Context, kind string, q url.Values) ([][]byte, string, error) {
	return p.d.witness.Signed(kind, q)
}

// Log implements page.Source.
func (p *pages) Log() (page.Log, error) {
	status, err := p.d.witness.Log()
	if err != nil {
		return page.Log{}, err
	}
	return page.Log{Origin: status.Origin, Root: status.Root, Size: status.Size, Key: status.VerifierKey, Signs: status.Signs, Refused: status.Reason}, nil
}

// routesOfPages adds the pages.
func (d *daemon) routesOfPages(mux *web.Mux) {
	d.site.Routes(mux)
	mux.Handle("GET", "/", func(w http.ResponseWriter, r *http.Request) error {
		if page.Wanted(r) {
			return d.site.ServeFront(w, r)
		}
		w.Header().Set("Vary", "Accept") // a page says so itself
		return d.serveFront(w, r)
	})
}

var _ page.Source = (*pages)(nil)
