package page

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/web"
)

// Bounds of the panels beside a transcript.
const (
	maxMembers  = 200
	maxVouchers = 20
)

// roomView is what the page of a room shows.
type roomView struct {
	*Room
	Path        string
	Entries     []*entry
	First, Last int64 // seqs of this page; Last < First when there is none
	Pager       pager
	More        int // members that are not shown
	Types       []typeView
	Alarms      []alarm
	Statements  []voucher
	Attestings  []voucher
	Live        bool   // the page goes on by itself
	Moves       string // URL that answers when there are more records
	Gone        bool   // the beginning is not kept any more
	From        int64  // after what the page begins
}

// pager leads through the pages. Each is a link, or "".
type pager struct {
	First, Before, After, Last string
	Below                      bool // it is the one below the records
}

// Again is the same pager for the other end of the records.
func (p pager) Again() pager { p.Below = true; return p }

// alarm is a fault that must not be overlooked.
type alarm struct{ Verdict, Title, Text, Reason, Evidence string }

// voucher is a statement or an attestation about the room.
type voucher struct {
	Agent, Hash, Root string
	At                int64
	Complete          bool
	Records           int64
	Differs           bool // its root is not that of the archive here
}

type typeView struct {
	Type, Kind, Title, About, Instructions, Status string
	Roles                                          []string
}

// serveRoom answers GET /rooms/{authority}/{room_id}.
//
// after is the seq behind which the page begins; seq leads to the page of one
// record. With fragment=1 only what is new behind after is answered, for the
// script: records, and what was folded into records from from on.
func (s *Site) serveRoom(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	rm, err := s.src.Room(r.Context(), r.PathValue("authority"), r.PathValue("room_id"))
	if err != nil {
		return err
	}
	after, err := web.Int64(q, "after", 0, adp.MaxInt, -1)
	if err != nil {
		return err
	}
	if fragment, err := web.String(q, "fragment"); err != nil {
		return err
	} else if fragment != "" {
		return s.serveFragment(w, r, rm, q, max(after, 0))
	}
	seq, err := web.Int64(q, "seq", 1, adp.MaxInt, 0)
	if err != nil {
		return err
	}
	v := &roomView{Room: rm, Path: roomPath(rm.Authority, rm.ID)}
	if rm.Readable {
		switch {
		case seq > rm.Seq:
			return adp.Errorf(adp.NotFound, "the room has no record %d: there are %d", seq, rm.Seq)
		case seq > 0:
			if after, err = s.pageOf(rm, seq); err != nil {
				return err
			}
		case after < 0:
			after = rm.Dropped
		}
		if err := s.fill(v, after); err != nil {
			return err
		}
		if err := s.vouch(r, v); err != nil {
			return err
		}
	}
	v.panels()
	v.alarm()
	scripts := []string{"page.js"}
	if rm.Readable {
		scripts = append(scripts, "verify.js")
	}
	return s.serve(w, r, "room", Frame{Title: clip(visible(oneLine(rm.Contract.Topic)), 80), Section: "rooms", Scripts: scripts, Page: v})
}

// pageOf finds the page on which a record stands: of those that the pager leads
// to, unless the records before it fill that one.
func (s *Site) pageOf(rm *Room, seq int64) (after int64, err error) {
	after = max((seq-1)/pageRecords*pageRecords, rm.Dropped)
	if seq <= rm.Dropped {
		return seq - 1, nil // the reason why it is not there comes with the answer
	}
	recs, err := rm.Records.Read(after, pageRecords, pageBytes)
	if err == nil && after+int64(len(recs)) < seq {
		after = seq - 1
	}
	return after, err
}

// fill reads the records of a page.
func (s *Site) fill(v *roomView, after int64) (err error) {
	tr := s.transcript(v.Room)
	if v.Entries, err = tr.read(after, pageRecords, 0); err != nil {
		return err
	}
	v.From, v.First, v.Last, v.Gone = after, tr.first, tr.last, v.Dropped > 0 && after == v.Dropped
	link := func(to int64) string { return v.Path + "?after=" + strconv.FormatInt(to, 10) }
	if after > v.Dropped {
		v.Pager.First, v.Pager.Before = v.Path, link(max(after-pageRecords, v.Dropped))
	}
	if v.Last < v.Seq && v.Last >= v.First {
		v.Pager.After, v.Pager.Last = link(v.Last), link(max((v.Seq-1)/pageRecords*pageRecords, v.Last))
	} else if goesOn(v.Room) {
		v.Live, v.Moves = true, apiPath(v.API)+"/events"
	}
	return nil
}

// goesOn tells whether more records may come.
func goesOn(rm *Room) bool {
	switch rm.State {
	case "complete", "paused", "gone", "quarantined":
		return false
	}
	return rm.Status == "active" || rm.Status == "scheduled"
}

// serveFragment answers what is new, in pieces that the script puts in place.
func (s *Site) serveFragment(w http.ResponseWriter, r *http.Request, rm *Room, q url.Values, seen int64) error {
	from, err := web.Int64(q, "from", 0, adp.MaxInt, seen)
	if err != nil {
		return err
	}
	if !rm.Readable {
		return adp.Errorf(adp.RoomNotFound, "the records of this room are for its members")
	}
	v := &roomView{Room: rm, Path: roomPath(rm.Authority, rm.ID), From: from, Live: goesOn(rm)}
	tr := s.transcript(rm)
	entries, err := tr.read(min(from, seen), liveMost, seen)
	if err != nil {
		return err
	}
	v.First, v.Last = tr.first, tr.last
	out := fragment{View: v}
	for _, en := range entries {
		switch {
		case en.Seq > seen:
			out.New = append(out.New, en)
		case en.touched:
			out.Touched = append(out.Touched, en)
		}
	}
	out.Full = v.Last < rm.Seq
	v.alarm()
	body, err := s.render("room", "fragment", out)
	if err != nil {
		return err
	}
	return s.send(w, r, bytes.TrimSpace(body))
}

// fragment is what a page that is open gets.
type fragment struct {
	View    *roomView
	New     []*entry
	Touched []*entry // that have new reactions or votes
	Full    bool     // the page has grown enough: the rest is on the next one
}

// panels makes what stands beside the transcript.
func (v *roomView) panels() {
	if v.More = len(v.Members) - maxMembers; v.More > 0 {
		v.Members = v.Members[:maxMembers]
	}
	for _, d := range v.Room.Types {
		x := typeView{Type: d.Type, Kind: string(d.Kind), Status: string(d.Status)}
		if def, err := adp.Scan(d.JSON()); err == nil {
			x.Title, x.About, x.Instructions = def.Get("title").Text(), def.Get("description").Text(), def.Get("instructions").Text()
		}
		for _, role := range []types.Role{types.Moderator, types.Speaker, types.Observer} {
			if d.MayRole(role) {
				x.Roles = append(x.Roles, string(role))
			}
		}
		v.Types = append(v.Types, x)
	}
}

// alarm says what is wrong, in words that nobody can take for something else.
func (v *roomView) alarm() {
	if !v.Readable {
		return
	}
	switch v.Verdict {
	case "equivocated", "forked", "broken", "archive-mismatch":
		v.Alarms = append(v.Alarms, alarm{Verdict: v.Verdict, Title: t("alarm." + v.Verdict), Text: t("alarm." + v.Verdict + ".text"), Reason: v.Reason,
			Evidence: "/witness?" + url.Values{"list": {"evidence"}, "origin": {v.Origin}, "room_id": {v.ID}}.Encode()})
	case "violations":
		v.Alarms = append(v.Alarms, alarm{Verdict: v.Verdict, Title: count("alarm.violations", v.Violations), Text: t("alarm.violations.text"), Reason: v.Reason})
	}
	if v.State == "behind" {
		v.Alarms = append(v.Alarms, alarm{Verdict: "behind", Title: t("alarm.behind"), Text: t("alarm.behind.text"), Reason: v.Reason})
	}
}

// vouch collects who signed what about the room.
func (s *Site) vouch(r *http.Request, v *roomView) error {
	for kind, to := range map[string]*[]voucher{"statements": &v.Statements, "attestations": &v.Attestings} {
		items, _, err := s.src.Signed(r.Context(), kind, url.Values{"origin": {v.Origin}, "room_id": {v.ID}, "limit": {strconv.Itoa(maxVouchers)}})
		if err != nil {
			return err
		}
		for _, item := range items {
			e, err := adp.Scan(item)
			if err != nil {
				return err
			}
			p := e.Get("event").Get("payload")
			if !p.Get("genesis").Is(v.Genesis) {
				continue
			}
			x := voucher{Agent: e.Get("event").Get("actor").Text(), Hash: e.Get("hash").Text(), Root: p.Get("archive_root").Text(), Complete: true}
			x.Records, _ = p.Get("last_seq").Int()
			if kind == "attestations" {
				x.At, _ = p.Get("verified_at").Int()
				x.Complete, _ = p.Get("complete").Bool()
			} else {
				x.At, _ = p.Get("generated_at").Int()
			}
			x.Differs = v.Archive != nil && x.Complete && x.Root != v.Archive.Root
			*to = append(*to, x)
		}
	}
	return nil
}
