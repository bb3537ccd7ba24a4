package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rs/xid"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// Bounds of one commit: it is written when it has so many bytes. An event is entryBytes
// in a queue, about.
const (
	batchBytes = 1 << 20
	entryBytes = 1 << 10
)

// filling is what goes into the queues in one commit. It holds turn, and the webhooks
// that it touched, until it is committed or dropped.
type filling struct {
	w       *Webhooks
	b       *store.Batch
	touched map[*hook]*filled
	hooks   []*hook
	events  map[string]int // by type, for the metrics
}

// filled is a webhook as it will be.
type filled struct {
	now  standing
	next uint64
	full bool // it is paused by this commit
}

func (w *Webhooks) newFilling() *filling {
	return &filling{w: w, b: &store.Batch{}, touched: map[*hook]*filled{}, hooks: w.all(), events: map[string]int{}}
}

// add queues an event for each webhook that wants it.
func (f *filling) add(e *Event) error {
	e.ID, e.At = xid.New().String(), f.w.o.Now()
	f.events[e.Type]++
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	for _, h := range f.hooks {
		if !h.wants(e) {
			continue
		}
		to := f.touch(h)
		room := f.w.o.Queue - int(to.next-h.first)
		if to.now.Missed > 0 && room >= 2 { // the receiver learns of the gap where it is
			gap, err := json.Marshal(Event{ID: xid.New().String(), Type: Gap, At: e.At, Missed: to.now.Missed})
			if err != nil {
				return err
			}
			f.b.Put(store.WebhookQueue(h.ID, to.next), gap)
			to.next++
			to.now.Missed = 0
			room--
		}
		if room <= 0 || to.now.Missed > 0 {
			// one that was resumed has until it is through with what waits
			if to.now.Missed++; to.now.Missed == 1 && to.now.State == Active {
				to.now.State, to.full = Paused, true
				to.now.Reason = fmt.Sprintf("%d events wait for the receiver, which is as many as are kept; later ones are dropped until it is resumed", f.w.o.Queue)
			}
			continue
		}
		f.b.Put(store.WebhookQueue(h.ID, to.next), value)
		to.next++
	}
	return nil
}

// touch locks a webhook until the end of the commit.
func (f *filling) touch(h *hook) *filled {
	if to := f.touched[h]; to != nil {
		return to
	}
	h.mu.Lock()
	to := &filled{now: h.now, next: h.next}
	f.touched[h] = to
	return to
}

// tell keeps what was told of a room.
func (f *filling) tell(id uint64, t told) error {
	value, err := json.Marshal(t)
	f.b.Put(store.WatchedRoom(id), value)
	return err
}

// commit writes all of it; afterwards the filling is empty and can be used again.
func (f *filling) commit() error {
	if f.b.Size() == 0 {
		return nil
	}
	for h, to := range f.touched {
		if to.now == h.now {
			continue
		}
		value, err := h.encode(to.now, h.first)
		if err != nil {
			return err
		}
		f.b.Put(store.Webhook(h.ID), value)
	}
	if err := f.w.o.Store.Commit(f.b); err != nil {
		return err
	}
	for typ, n := range f.events {
		f.w.metrics.events.WithLabelValues(typ).Add(float64(n))
	}
	for h, to := range f.touched {
		h.now, h.next = to.now, to.next
		if to.full {
			f.w.metrics.paused.WithLabelValues("full").Inc()
			f.w.log.Warn("webhook paused: too many events wait for its receiver", "webhook", h.ID, "waiting", h.next-h.first)
		}
		poke(h.wake)
	}
	f.drop()
	return nil
}

// drop lets the webhooks go.
func (f *filling) drop() {
	for h := range f.touched {
		h.mu.Unlock()
	}
	f.b, f.touched, f.events = &store.Batch{}, map[*hook]*filled{}, map[string]int{}
}

// base says whether rooms are watched: while there are webhooks.
type base struct {
	On bool `json:"on"`
}

const baseName = "webhook.watch"

func (w *Webhooks) loadBase() error {
	raw, ok, err := w.o.Store.Get(store.Meta(baseName))
	if err != nil || !ok {
		return err
	}
	if err := json.Unmarshal(raw, &w.base); err != nil {
		return fmt.Errorf("webhook: %s: %w", baseName, err)
	}
	return nil
}

// lookAgain marks everything, also what is no more, as to be looked at.
func (w *Webhooks) lookAgain() error {
	var bad error
	var ids []uint64
	err := w.o.Store.View(func(rd store.Reader) error {
		from, to := store.WatchedRoomRange()
		return rd.Keys(from, to, func(key []byte) bool {
			var id uint64
			id, bad = store.ParseWatchedRoom(key)
			ids = append(ids, id)
			return bad == nil
		})
	})
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	w.putBack(ids, false)
	w.lookAtAll()
	return nil
}

// lookAtAll marks all that there is as to be looked at.
func (w *Webhooks) lookAtAll() {
	var ids []uint64
	for _, r := range w.o.Replicas.All() {
		ids = append(ids, r.ID)
	}
	w.putBack(ids, true)
}

// begin notes how everything stands, so that the first webhook is told of what happens
// from now on. It holds turn; what makes it count is in the batch of the caller.
func (w *Webhooks) begin(ctx context.Context, last *store.Batch) error {
	if w.base.On {
		return nil
	}
	if err := w.end(); err != nil { // what a crash left
		return err
	}
	b := &store.Batch{}
	flush := func(least int) error {
		if b.Size() <= least {
			return nil
		}
		err := w.o.Store.Commit(b)
		b = &store.Batch{}
		return err
	}
	for _, r := range w.o.Replicas.All() {
		row := r.Row()
		if served, ok := w.o.Replicas.Get(r.Origin, r.RoomID); !ok || served != r || row.Seq == 0 || w.o.Hidden(r) {
			continue
		}
		t := told{Genesis: r.Genesis, Status: room.Ended, Seq: row.Seq, Verdict: row.EffectiveVerdict()}
		if !row.Archived { // what is archived has ended, and need not be read
			s, err := w.stateOf(ctx, r)
			if err != nil {
				return err
			}
			t.Status, t.Next, t.Seq, t.Private = s.status, s.next, s.last, s.contract.Visibility != room.Public
		}
		list, err := w.attestations(r)
		if err != nil {
			return err
		}
		for _, e := range list {
			t.Attested = append(t.Attested, short(e.Hash))
		}
		value, err := json.Marshal(t)
		if err != nil {
			return err
		}
		b.Put(store.WatchedRoom(r.ID), value)
		if err := flush(batchBytes); err != nil {
			return err
		}
	}
	for _, h := range w.o.Hosts() {
		b.Put(store.WatchedHost(h.Origin), []byte(h.State))
	}
	if err := flush(0); err != nil {
		return err
	}
	value, err := json.Marshal(base{On: true})
	last.Put(store.Meta(baseName), value)
	return err
}

// end forgets how everything stood. It holds turn.
func (w *Webhooks) end() error {
	w.watching.Store(false)
	w.base.On = false
	w.due.clear()
	w.dirtyMu.Lock()
	clear(w.dirty)
	w.dirtyHosts = false
	w.dirtyMu.Unlock()
	for _, span := range []func() (from, to []byte){store.WatchedRoomRange, store.WatchedHostRange} {
		from, to := span()
		for {
			b, n := &store.Batch{}, 0
			err := w.o.Store.View(func(rd store.Reader) error {
				return rd.Keys(from, to, func(key []byte) bool {
					b.Delete(append([]byte(nil), key...))
					n++
					return n < 5000
				})
			})
			if err == nil && n > 0 {
				err = w.o.Store.Commit(b)
			}
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}
