package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// told is what was told of a room: the events up to here are in the queues.
type told struct {
	Genesis  string      `json:"genesis"`
	Private  bool        `json:"private,omitempty"` // nothing is ever told of it
	Status   room.Status `json:"status"`            // "": the room was found, and neither its start nor its end was looked at
	Seq      int64       `json:"seq"`               // records that were looked at
	Since    int64       `json:"since,omitempty"`   // what happened before the room was found, and before this, is history; Unix ms
	Next     int64       `json:"next,omitempty"`    // when time changes the status, Unix ms
	Ending   int64       `json:"ending,omitempty"`
	EndedAt  int64       `json:"ended_at,omitempty"` // received_at of the record at Ending
	Verdict  string      `json:"verdict,omitempty"`
	Attested []string    `json:"attested,omitempty"` // attestations, see short
}

// short is enough of a hash to tell the attestations of one room apart.
func short(hash string) string { return hash[:min(16, len(hash))] }

// roomState is what is needed of the state of a room.
type roomState struct {
	contract *room.Contract
	creator  adp.AgentID
	status   room.Status
	next     int64 // transition
	last     int64 // seq
	closed   bool
}

func (w *Webhooks) stateOf(ctx context.Context, r *replica.Replica) (out roomState, err error) {
	now := w.o.Now()
	err = r.View(ctx, func(s *room.State) {
		out = roomState{s.Contract, s.Creator, s.StatusAt(now), s.NextTransition(now), s.Last.Seq, s.Closed}
	})
	return out, err
}

// How much of a room is read in one look.
const (
	lookRecords = 4096
	pageRecords = 512
	pageBytes   = 1 << 20
)

// finding is what a look at a room found.
type finding struct {
	events  []Event
	told    told
	changed bool // told has to be stored, with the events
	gone    bool // the room was forgotten
	more    bool // there is more to read
}

// look finds the events of a room since it was told of.
func (w *Webhooks) look(ctx context.Context, id uint64, size int) (out finding, err error) {
	r, ok := w.o.Replicas.ByID(id)
	if !ok {
		return finding{gone: true}, nil
	}
	if served, ok := w.o.Replicas.Get(r.Origin, r.RoomID); !ok || served != r || r.Row().Seq == 0 || w.o.Hidden(r) {
		return out, nil
	}
	prev, known, err := w.toldOf(r)
	if err != nil {
		return out, err
	}
	attestations, err := w.attestations(r)
	if err != nil {
		return out, err
	}
	attestations = slices.DeleteFunc(attestations, func(e *adp.Envelope) bool { return slices.Contains(prev.Attested, short(e.Hash)) })
	if row := r.Row(); known && (prev.Private || prev.Seq == row.Seq && prev.Verdict == row.EffectiveVerdict() &&
		(prev.Next == 0 || w.o.Now() < prev.Next) && len(attestations) == 0) {
		w.due.at(id, prev.Next)
		return out, nil
	}
	s, err := w.stateOf(ctx, r)
	if err != nil {
		return out, err
	}
	next := prev
	next.Genesis, out.changed = r.Genesis, true
	if next.Private = s.contract.Visibility != room.Public; next.Private {
		out.told = next
		return out, nil
	}
	about := w.describe(r, &s)
	event := func(e Event) {
		e.Room, e.Replica = about, r.ID
		out.events = append(out.events, e)
	}
	if !known {
		if r.Origin != w.o.Origin {
			next.Since = w.o.Now() - w.o.History.Milliseconds()
		}
		event(Event{Type: RoomDiscovered, Seq: 1})
	}
	mentions, err := w.read(r, &next, s.last, size)
	if err != nil {
		return finding{}, err
	}
	out.more = next.Seq < s.last // what does not stand in records comes behind them
	if !out.more && started(&next, &s, w.o.Now()) {
		seq, err := contractSeq(r, s.last)
		if err != nil {
			return finding{}, err
		}
		event(Event{Type: RoomStarted, Seq: seq})
	}
	for _, m := range mentions {
		event(m)
	}
	if out.more {
		out.told = next
		return out, nil
	}
	if ended(&next, &s) {
		seq := next.Ending
		if seq == 0 {
			if seq, err = contractSeq(r, s.last); err != nil {
				return finding{}, err
			}
		}
		event(Event{Type: RoomEnded, Seq: seq})
	}
	next.Status, next.Next = s.status, s.next
	row := r.Row()
	if v := row.EffectiveVerdict(); v != next.Verdict {
		if next.Verdict = v; v == replica.Forked || v == replica.Equivocated {
			event(Event{Type: RoomForked, Verdict: v, Reason: row.Reason})
		}
	}
	for _, e := range attestations {
		next.Attested = append(slices.Clip(next.Attested), short(e.Hash))
		n, state := w.o.Attested(r.Origin, r.RoomID)
		event(Event{Type: ArchiveAttested, Attests: e.Hash, Witnesses: n, Attested: state})
	}
	w.due.at(id, next.Next)
	out.told = next
	return out, nil
}

func over(s room.Status) bool { return s == room.Ended || s == room.Cancelled }

// started tells whether the start of the room is news: it was told of as scheduled, or
// was found a moment ago. One that was closed before its time has not started.
func started(t *told, s *roomState, now int64) bool {
	switch {
	case s.status == room.Scheduled || s.status == room.Cancelled,
		t.Status == "" && s.contract.StartTime < t.Since,
		t.Status != "" && t.Status != room.Scheduled:
		return false
	}
	if s.closed && t.EndedAt > 0 {
		now = t.EndedAt
	}
	return now >= s.contract.StartTime
}

// ended tells whether the end of the room is news, in the same way.
func ended(t *told, s *roomState) bool {
	if t.Status != "" || !over(s.status) {
		return over(s.status) && !over(t.Status)
	}
	at := s.contract.EndTime
	if t.Ending > 0 {
		at = t.EndedAt
	}
	return at >= t.Since
}

// toldOf reads what was told of a room.
func (w *Webhooks) toldOf(r *replica.Replica) (t told, known bool, err error) {
	raw, ok, err := w.o.Store.Get(store.WatchedRoom(r.ID))
	if err != nil || !ok {
		return t, false, err
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, false, fmt.Errorf("webhook: what was told of replica %d: %w", r.ID, err)
	}
	if t.Genesis != r.Genesis { // a number that was used before
		return told{}, false, nil
	}
	return t, true, nil
}

// attestations are those that speak of the archive of this replica.
func (w *Webhooks) attestations(r *replica.Replica) ([]*adp.Envelope, error) {
	if !r.Row().Archived {
		return nil, nil
	}
	list, err := w.o.Attestations(r.Origin, r.RoomID)
	return slices.DeleteFunc(list, func(e *adp.Envelope) bool { return !e.Payload.Get("genesis").Is(r.Genesis) }), err
}

// A record that can matter has one of these, since it is canonical: the quotes of a
// text are escaped in it.
var (
	hasMentions = []byte(`"mentions":["`)
	isClose     = []byte(`"type":"` + room.Close + `"`)
	isCancel    = []byte(`"type":"` + room.Cancel + `"`)
	isUpdate    = []byte(`"type":"` + room.Update + `"`)
)

// read looks at the records behind next.Seq, moves it, and gives the mentions among
// them, each of which takes size bytes of the queues.
func (w *Webhooks) read(r *replica.Replica, next *told, last int64, size int) (mentions []Event, err error) {
	most := 1 + batchBytes/size
	for n := 0; next.Seq < last && n < lookRecords && len(mentions) < most; {
		next.Seq = max(next.Seq, min(r.Row().Dropped, last)) // what was let go cannot be told of
		if next.Seq == last {
			break
		}
		recs, err := r.Read(next.Seq, min(pageRecords, int(last-next.Seq)), pageBytes)
		if err != nil {
			return nil, err
		}
		if len(recs) == 0 {
			return nil, fmt.Errorf("webhook: replica %d ends at seq %d of %d", r.ID, next.Seq, last)
		}
		for _, raw := range recs {
			if len(mentions) == most {
				break
			}
			next.Seq++
			n++
			if !bytes.Contains(raw, hasMentions) && !bytes.Contains(raw, isClose) && !bytes.Contains(raw, isCancel) {
				continue
			}
			rec, err := parse(raw)
			if err != nil {
				return nil, err
			}
			if t := rec.Envelope.Type; t == room.Close || t == room.Cancel {
				next.Ending, next.EndedAt = rec.Seq, rec.ReceivedAt
			}
			if rec.ReceivedAt < next.Since {
				continue
			}
			var who []string
			for v := range rec.Envelope.Mentions.Elements() {
				who = append(who, v.Text())
			}
			if len(who) > 0 {
				mentions = append(mentions, Event{Type: Mention, Seq: rec.Seq, Mentions: who})
			}
		}
	}
	return mentions, nil
}

func parse(raw []byte) (*adp.Record, error) {
	v, err := adp.ScanDepth(raw, adp.RecordDepth)
	if err != nil {
		return nil, err
	}
	return adp.ParseServed(v)
}

// contractSeq finds the record that set the times in force; 0 when it was let go.
func contractSeq(r *replica.Replica, last int64) (at int64, err error) {
	at = 1
	if dropped := r.Row().Dropped; dropped > 0 {
		at = 0
	}
	err = r.Scan(r.Row().Dropped, last, func(seq int64, raw []byte) error {
		if !bytes.Contains(raw, isUpdate) {
			return nil
		}
		rec, err := parse(raw)
		if err != nil {
			return err
		}
		if p := rec.Envelope.Payload; rec.Envelope.Type == room.Update && (p.Get("start_time").Exists() || p.Get("end_time").Exists()) {
			at = seq
		}
		return nil
	})
	if replica.IsGone(err) { // it was let go this moment
		return 0, nil
	}
	return at, err
}

// lookHosts finds hosts that are in another state.
func (w *Webhooks) lookHosts(f *filling) error {
	before := map[string]string{}
	var bad error
	err := w.o.Store.View(func(rd store.Reader) error {
		from, to := store.WatchedHostRange()
		return rd.Scan(from, to, func(key, value []byte) bool {
			var origin string
			origin, bad = store.ParseWatchedHost(key)
			before[origin] = string(value)
			return bad == nil
		})
	})
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	for _, h := range w.o.Hosts() {
		old, known := before[h.Origin]
		delete(before, h.Origin)
		if known && old == h.State {
			continue
		}
		if err := f.add(&Event{Type: HostState, Host: &HostNews{h.Origin, old, h.State, h.Reason, h.Since}}); err != nil {
			return err
		}
		f.b.Put(store.WatchedHost(h.Origin), []byte(h.State))
	}
	for origin, old := range before {
		if err := f.add(&Event{Type: HostState, Host: &HostNews{Origin: origin, From: old, State: "removed"}}); err != nil {
			return err
		}
		f.b.Delete(store.WatchedHost(origin))
	}
	return nil
}

// watchRetry is the pause after the store did not take what was found.
const watchRetry = 5 * time.Second

// roomRetry is the pause after a room that could not be read.
const roomRetry = time.Minute

// watch looks at what has changed until ctx ends.
func (w *Webhooks) watch(ctx context.Context) {
	for {
		ids, hosts := w.takeDirty()
		if len(ids) > 0 || hosts {
			if err := w.lookAll(ctx, ids, hosts); err != nil && ctx.Err() == nil {
				w.log.Error("events for webhooks could not be queued; they are looked for again", "error", err)
				w.putBack(ids, hosts)
				pause(ctx, watchRetry)
			}
			if ctx.Err() != nil {
				return
			}
			continue
		}
		timer := time.NewTimer(w.untilDue())
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lookAll looks at replicas and hosts and commits what was found.
func (w *Webhooks) lookAll(ctx context.Context, ids []uint64, hosts bool) error {
	w.turn.Lock()
	defer w.turn.Unlock()
	if !w.base.On {
		return nil
	}
	f := w.newFilling()
	defer f.drop()
	if hosts {
		if err := w.lookHosts(f); err != nil {
			return err
		}
	}
	for _, id := range ids {
		found, err := w.look(ctx, id, 1+len(f.hooks)*entryBytes)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // one bad room never stops another
			w.log.Error("the events of a room cannot be told; it is tried again", "replica", id, "retry_in", roomRetry, "error", err)
			w.due.at(id, w.o.Now()+roomRetry.Milliseconds())
			continue
		case found.gone:
			f.b.Delete(store.WatchedRoom(id))
			continue
		}
		for i := range found.events {
			if err := f.add(&found.events[i]); err != nil {
				return err
			}
		}
		if found.changed {
			if err := f.tell(id, found.told); err != nil {
				return err
			}
		}
		if found.more {
			w.putBack([]uint64{id}, false)
		}
		if f.b.Size() >= batchBytes {
			if err := f.commit(); err != nil {
				return err
			}
		}
	}
	return f.commit()
}

// lookBatch is how many replicas are looked at under one commit.
const lookBatch = 256

func (w *Webhooks) takeDirty() (ids []uint64, hosts bool) {
	now := w.o.Now()
	w.dirtyMu.Lock()
	defer w.dirtyMu.Unlock()
	for id := range w.dirty {
		if len(ids) == lookBatch {
			poke(w.wake)
			break
		}
		ids = append(ids, id)
		delete(w.dirty, id)
	}
	ids = append(ids, w.due.take(now, lookBatch)...)
	hosts, w.dirtyHosts = w.dirtyHosts, false
	slices.Sort(ids)
	return slices.Compact(ids), hosts
}

func (w *Webhooks) putBack(ids []uint64, hosts bool) {
	w.dirtyMu.Lock()
	defer w.dirtyMu.Unlock()
	for _, id := range ids {
		w.dirty[id] = true
	}
	w.dirtyHosts = w.dirtyHosts || hosts
	poke(w.wake)
}

// untilDue is how long time alone changes no room. It is bounded, since clocks are set.
func (w *Webhooks) untilDue() time.Duration {
	const most = time.Minute
	at, ok := w.due.first()
	if !ok {
		return most
	}
	return min(max(time.Duration(at-w.o.Now())*time.Millisecond, time.Millisecond), most)
}
