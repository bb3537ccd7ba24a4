package replica

import (
	"fmt"

	"github.com/witan-adp/witan/internal/store"
)

// forgetKeys bounds the keys that one commit deletes.
const forgetKeys = 4000

// metaNext is the number of the next replica: a number is never used twice.
const metaNext = "next-replica"

// Forget drops a replica with all that is kept under it: records, tree, archive,
// the other side of a fork. What others keep about the room, such as statements and
// evidence, stays. It is done in steps, and a start after a crash goes on with it.
func (s *Set) Forget(r *Replica) error {
	manifest, archived, err := r.Manifest()
	var cids []string
	if err == nil && archived {
		cids, err = r.cids(manifest)
	}
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	err = r.Take(func(t *Turn) error {
		var b store.Batch
		b.Delete(store.ReplicaByName(r.Origin, r.RoomID, r.Genesis))
		b.Put(unfinished(metaForget, r.ID), nil)
		s.mu.Lock()
		b.Put(store.Meta(metaNext), fmt.Append(nil, s.nextID))
		s.mu.Unlock()
		for _, cid := range cids {
			b.Delete(store.Content(cid, r.ID))
		}
		key := store.ReplicaRow(r.ID)
		b.Expect(key, r.rowJSON)
		b.Delete(key)
		// whoever had it in hand finds it gone
		r.failed.Store(true)
		r.pending.Add(1)
		s.st.Submit(&b, func(err error) {
			if err == nil {
				r.losses.Add(1) // what a View saw will never be found committed
			}
			r.landed(nil, Row{}, true, err)
			done <- err
		})
		return nil
	})
	if err == nil {
		err = <-done
	}
	if err != nil {
		return err
	}
	s.drop(r)
	r.moved.Lock()
	r.emptyRing()
	r.moved.Unlock()
	if s.Forgotten != nil {
		s.Forgotten(r)
	}
	return s.sweep(r.ID)
}

// sweep deletes what is kept under the number of a replica that is forgotten.
func (s *Set) sweep(id uint64) error {
	for _, keys := range []func(uint64) (from, to []byte){store.RecordsOf, store.EnvelopeSeqRange, store.TreeTileRange, store.TreeNodeRange,
		store.ArchiveRange, store.BranchesOf, store.WithheldRange, store.SealedRange, store.JoinRequestRange} {
		from, to := keys(id)
		if err := deleteRange(s.st, from, to); err != nil {
			return err
		}
	}
	var b store.Batch
	b.Delete(store.Snapshot(id))
	b.Delete(store.RoomCheckpoint(id))
	b.Delete(unfinished(metaForget, id))
	mark(&b, metaExpunge)
	return s.st.Commit(&b)
}

// deleteRange deletes all keys of a range, some in each commit.
func deleteRange(st *store.Store, from, to []byte) error {
	for {
		var b store.Batch
		n := 0
		err := st.View(func(rd store.Reader) error {
			return rd.Keys(from, to, func(key []byte) bool {
				b.Delete(append([]byte(nil), key...))
				n++
				return n < forgetKeys
			})
		})
		if err != nil || n == 0 {
			return err
		}
		if err := st.Commit(&b); err != nil {
			return err
		}
	}
}
