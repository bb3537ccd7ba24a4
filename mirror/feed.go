package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// feedWorkers bounds the rooms of one host whose news are followed at a time.
const feedWorkers = 4

// KindHead is the observation that a host signed another head than it serves.
const KindHead = "signed-head"

// errNotNow: nothing was tried, so that nothing is known anew.
var errNotNow = errors.New("not now")

// hear takes over news of one of the host's rooms. It waits for nothing.
func (h *host) hear(n *news) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live == nil || h.row.Paused {
		return
	}
	h.heard = h.m.o.Now()
	v := h.rooms[n.head.RoomID]
	if v == nil {
		if len(h.rooms) >= h.m.o.RoomsPerHost {
			return
		}
		v = &roomView{id: n.head.RoomID, limit: pageRecords}
		h.rooms[v.id] = v
	}
	v.queue(h.m, n)
	if !v.busy {
		h.enqueue(v)
	}
}

// enqueue sets work going on the news of a room that nobody works on. h.mu is
// held.
func (h *host) enqueue(v *roomView) {
	if v.queued || h.live == nil {
		return
	}
	v.queued = true
	h.feeding = append(h.feeding, v)
	if h.feeders < feedWorkers {
		h.feeders++
		ctx := h.live
		h.jobs.Go(func() { h.feed(ctx) })
	}
}

// release ends a turn on a room. h.mu is held.
func (h *host) release(v *roomView) {
	v.busy, v.again = false, false
	if n := len(v.held); n > 0 && v.r != nil && v.held[n-1].rec.Seq <= v.r.Row().Seq { // it came another way
		v.unhold(h.m)
	}
	if v.freed != nil {
		close(v.freed)
		v.freed = nil
	}
	if len(v.feed) > 0 {
		h.enqueue(v)
	}
}

// giveBack ends a turn on a room that led to nothing. h.mu is held.
func (h *host) giveBack(v *roomView) {
	again := v.again
	h.release(v)
	if again { // the look that the operator asked for found it busy
		v.retry()
		poke(h.wake)
	}
}

// feed follows news until there are none.
func (h *host) feed(ctx context.Context) {
	for {
		h.mu.Lock()
		if len(h.feeding) == 0 || ctx.Err() != nil {
			h.feeders--
			h.mu.Unlock()
			return
		}
		v := h.feeding[0]
		h.feeding = append(h.feeding[:0], h.feeding[1:]...)
		v.queued = false
		if v.busy { // release queues it again
			h.mu.Unlock()
			continue
		}
		v.busy = true
		list := v.unqueue(h.m)
		h.mu.Unlock()
		err := h.follow(ctx, v, list)
		if errors.Is(err, errNotNow) {
			h.mu.Lock()
			h.giveBack(v)
			h.mu.Unlock()
			continue
		}
		if ctx.Err() != nil {
			err = nil
		}
		h.finish(v, listedRoom{}, err)
	}
}

// follow stores what came with heads, and asks for what did not.
func (h *host) follow(ctx context.Context, v *roomView, list []*news) error {
	var newest *news
	for _, n := range list {
		if newest == nil || n.head.Seq > newest.head.Seq {
			newest = n
		}
	}
	if newest == nil {
		return errNotNow
	}
	added := false
	for _, n := range list {
		ok, err := h.store(ctx, v, n.head.Genesis, n.recs)
		if added = added || ok; err != nil {
			return err
		}
	}
	r := h.replicaOf(v)
	if r == nil || r.Genesis != newest.head.Genesis {
		return h.unknown(ctx, v, newest)
	}
	target := position{newest.head.Seq, newest.head.Hash}
	if row := r.Row(); row.Seq < target.seq {
		ok, err := h.store(ctx, v, r.Genesis, h.covered(v, position{row.Seq, row.Hash}, target))
		if added = added || ok; err != nil {
			return err
		}
	}
	if r.Row().Seq < target.seq {
		return h.pull(ctx, v, r, newest)
	}
	return h.agree(v, r, newest.head, added)
}

// store appends verified records that a signed head covers, as far as they stand
// behind what we hold, by the same way as those that were polled.
func (h *host) store(ctx context.Context, v *roomView, genesis string, recs []checked) (added bool, err error) {
	if len(recs) == 0 {
		return false, nil
	}
	if r := h.replicaOf(v); r != nil {
		row := r.Row()
		if r.Genesis != genesis || recs[0].rec.Seq > row.Seq+1 {
			return false, nil
		}
		if recs = recs[min(row.Seq+1-recs[0].rec.Seq, int64(len(recs))):]; len(recs) == 0 {
			return false, nil
		}
		if recs[0].rec.PreHash != row.Hash {
			return false, nil // another story: what the host serves decides
		}
	} else if recs[0].rec.Hash != genesis {
		return false, nil
	}
	h.mu.Lock()
	v.fedAt = h.m.o.Now()
	h.mu.Unlock()
	n, bad, err := h.take(ctx, v, recs)
	if r := h.replicaOf(v); n > 0 && r != nil { // nil: forgotten by the operator meanwhile
		h.m.o.Changed(r)
	}
	switch {
	case err != nil:
		return n > 0, err
	case bad != nil:
		h.m.metrics.records.WithLabelValues("refused").Inc()
		return n > 0, h.border(ctx, v, h.replicaOf(v), bad)
	}
	return n > 0, nil
}

// agree holds a head against what we hold at its seq.
func (h *host) agree(v *roomView, r *replica.Replica, head signedHead, added bool) error {
	ours, err := hashAt(r, head.Seq)
	if err != nil {
		return err
	}
	if ours != head.Hash {
		return h.differs(v, r, head, ours)
	}
	row := r.Row()
	if row.Seq == head.Seq && row.Verdict != replica.Forked {
		r.SyncedAt.Store(h.m.o.Now())
	}
	if head.raw != nil {
		h.mu.Lock()
		v.toKeep = head.raw
		h.mu.Unlock()
	}
	if !added {
		return errNotNow // another path was faster
	}
	h.m.metrics.relay.WithLabelValues("followed").Inc()
	status := room.Active
	if err := r.View(context.Background(), func(s *room.State) { status = s.StatusAt(h.m.o.Now()) }); err != nil {
		return local(err)
	}
	if status == room.Ended || status == room.Cancelled { // there may be an archive
		poke(h.look)
	}
	return nil
}

// differs keeps a head that is not of the chain that we hold. What the host serves
// decides what becomes of the room.
func (h *host) differs(v *roomView, r *replica.Replica, head signedHead, ours string) error {
	h.mu.Lock()
	known := v.odd == head.Hash
	v.odd = head.Hash
	h.mu.Unlock()
	if known {
		return errNotNow
	}
	if head.raw == nil { // of a stream: nobody signed it, and the next look compares
		poke(h.look)
		return errNotNow
	}
	reason := fmt.Sprintf("seq %d: the host signed the head %s, and showed %s before", head.Seq, head.Hash, ours)
	if err := h.m.observe(KindHead, r, head.Seq, reason, rawSide(head.raw)); err != nil {
		return err
	}
	poke(h.look)
	return errNotNow
}

// unknown looks for a room that a head names and that we do not have.
func (h *host) unknown(ctx context.Context, v *roomView, n *news) error {
	if h.isDown() {
		err := h.fromElsewhere(ctx, v, n.head.Genesis, n.from)
		if errors.Is(err, errNobody) {
			err = errNotNow
		}
		return err
	}
	h.mu.Lock()
	v.signed = n.head.raw != nil
	h.mu.Unlock()
	poke(h.look)
	return errNotNow
}

// pull closes the gap before a head: from the host, or from elsewhere when that
// fails.
func (h *host) pull(ctx context.Context, v *roomView, r *replica.Replica, n *news) error {
	h.m.metrics.relay.WithLabelValues("pulled").Inc()
	now := h.m.o.Now()
	h.mu.Lock()
	concluded, waits := v.stuck && now < v.retryAt, now < v.next
	h.mu.Unlock()
	if concluded { // the next poll shows what changed; heads must not make us ask hotly
		return errNotNow
	}
	err := errNotNow
	if !waits && !h.isDown() {
		if err = h.inSlot(ctx, func() error {
			return h.sync(ctx, v, listedRoom{id: v.id, visibility: room.Public, status: string(room.Active), seq: n.head.Seq, hash: n.head.Hash})
		}); err == nil {
			return h.agree(v, r, n.head, true)
		}
		var s stuckError
		if ctx.Err() != nil || isLocal(err) || errors.As(err, &s) {
			return err
		}
	}
	if elsewhere := h.fromElsewhere(ctx, v, r.Genesis, n.from); elsewhere == nil {
		return nil
	}
	return err
}

// inSlot runs fn in one of the host's slots.
func (h *host) inSlot(ctx context.Context, fn func() error) error {
	release, err := h.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	return fn()
}

// isDown tells whether the last look at the host failed, or it asked to be left
// alone.
func (h *host) isDown() bool { return h.down.Load() || h.heldFor() > 0 }

// keepHeads stores the newest heads, so that they outlive a restart.
func (h *host) keepHeads() error {
	var b store.Batch
	var of []*roomView
	h.mu.Lock()
	for _, v := range h.rooms {
		if v.toKeep == nil || v.r == nil {
			continue
		}
		b.Put(headKey(v.r.Key), v.toKeep)
		v.toKeep = nil
		if of = append(of, v); len(of) == 1000 {
			break
		}
	}
	h.mu.Unlock()
	if len(of) == 0 {
		return nil
	}
	if err := h.m.o.Store.Commit(&b); err != nil {
		return fmt.Errorf("keep the signed heads of %s: %w", h.origin, err)
	}
	return nil
}
