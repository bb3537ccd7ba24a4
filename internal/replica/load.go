package replica

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// load makes the state present and current. r.turn is held.
func (r *Replica) load() error {
	r.used.Store(time.Now().Unix())
	r.touched.Store(true)
	r.unread = nil
	for r.failed.Load() && r.pending.Load() > 0 { // what was built on the failure fails too, soon
		r.turn.Unlock()
		r.drain()
		r.turn.Lock() // another may have reloaded, and written, meanwhile
	}
	if r.failed.Load() {
		r.state = nil
		r.moved.Lock()
		r.failed.Store(false)
		r.broadcast() // to those in drain
		r.moved.Unlock()
	}
	if r.state != nil {
		return nil
	}
	if err := r.reload(); err != nil {
		return err
	}
	r.set.resident(r)
	return nil
}

// sound refuses to build on what is lost, or on an answer that the store could
// not give. r.turn is held.
func (r *Replica) sound() error {
	if r.unread != nil {
		r.failed.Store(true)
		return fmt.Errorf("replica %d: a look-up failed, so that nothing can be judged: %w", r.ID, r.unread)
	}
	if r.failed.Load() {
		return ErrLost
	}
	return nil
}

// drain waits until nothing is in flight, or another turn has seen to it.
func (r *Replica) drain() {
	for {
		r.moved.Lock()
		over, signal := r.pending.Load() == 0 || !r.failed.Load(), r.signal
		r.moved.Unlock()
		if over {
			return
		}
		<-signal // the store answers every submission
	}
}

// reload reads row, snapshot and the records behind it.
func (r *Replica) reload() error {
	raw, ok, err := r.set.st.Get(store.ReplicaRow(r.ID))
	if err != nil {
		return err
	}
	if !ok {
		return ErrLost
	}
	var row Row
	if err := json.Unmarshal(raw, &row); err != nil {
		return fmt.Errorf("replica %d: %w", r.ID, err)
	}
	st := room.New(r.RoomID)
	if row.Snapshot > 0 {
		snap, ok, err := r.set.st.Get(store.Snapshot(r.ID))
		if err != nil {
			return err
		}
		if ok {
			if st, err = room.Restore(snap); err != nil {
				st = room.New(r.RoomID) // derived data: the log is the truth
			}
		}
	}
	tree, err := adp.TreeFromFrontier(uint64(row.Seq), row.Frontier)
	if err != nil {
		return fmt.Errorf("replica %d: %w", r.ID, err)
	}
	r.row, r.rowJSON, r.tree, r.state = row, raw, tree, st
	r.tail, r.fresh, r.cached, r.flying, r.later, r.snapped = nil, nil, tile{}, nil, 0, snapped{}
	tileStart := row.Seq / tileSize * tileSize
	from := min(tileStart, st.Last.Seq)
	if row.Dropped > 0 {
		if from, err = r.loadDropped(row, st, tileStart); err != nil {
			r.state = nil
			return fmt.Errorf("replica %d of %s: %w", r.ID, r.Origin, err)
		}
	}
	err = r.scan(from, row.Seq, func(seq int64, raw []byte) error {
		rec, err := parseStored(raw)
		if err != nil {
			return err
		}
		if seq > tileStart {
			r.tail = append(r.tail, rec.Hash)
		}
		if seq <= st.Last.Seq {
			return nil
		}
		packs, _ := r.set.PacksFor(room.PacksNeeded(rec.Envelope))
		_, ch, err := st.Judge(rec, room.Context{Chain: storedChain{r, seq}, Packs: packs})
		if err != nil {
			return err
		}
		return st.Advance(rec, ch)
	})
	if err == nil {
		err = r.unread
	}
	if err == nil && st.Last.Seq != row.Seq {
		err = fmt.Errorf("the log ends at seq %d, the row says %d", st.Last.Seq, row.Seq)
	}
	if err != nil {
		r.state = nil
		return fmt.Errorf("replica %d of %s: %w", r.ID, r.Origin, err)
	}
	r.stayEnded()
	return nil
}

// Unload drops the state and the ring of a replica that nobody has used since
// a time (Unix seconds), and tells whether it did.
func (r *Replica) Unload(before int64) bool {
	if r.used.Load() >= before || !r.turn.TryLock() {
		return false
	}
	defer r.turn.Unlock()
	if r.pending.Load() > 0 || r.state == nil {
		return false
	}
	r.shed()
	return true
}
