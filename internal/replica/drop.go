package replica

import (
	"fmt"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// A replica may let go of its oldest records. Their hashes stay, so that proofs go on
// to answer, and so do roots, archive manifest and state: a snapshot takes the place
// of the log that it replayed from.

// Drop lets go of the records up to a seq and tells how many bytes they had. It is
// for good. Dropping what is dropped already deletes what a crash left of it.
func (r *Replica) Drop(upTo int64) (freed int64, err error) {
	r.archiving.Lock() // an archive that is being made needs them
	defer r.archiving.Unlock()
	row := r.Row()
	if upTo > row.Seq {
		return 0, fmt.Errorf("replica %d: there is no seq %d to drop: the log ends at %d", r.ID, upTo, row.Seq)
	}
	if upTo > row.Dropped {
		err := r.scan(row.Dropped, upTo, func(_ int64, raw []byte) error {
			freed += int64(len(raw))
			return nil
		})
		if err == nil {
			err = r.change(func(t *Turn, b *store.Batch) error { return r.letGo(t, b, upTo, freed) })
		}
		if err != nil {
			return 0, err
		}
		row = r.Row()
	}
	if row.Dropped == 0 {
		return 0, nil
	}
	return freed, r.set.sweepDropped(r.ID, row.Dropped)
}

// sweepDropped deletes the records that a replica lets go of.
func (s *Set) sweepDropped(id uint64, upTo int64) error {
	for _, keys := range []func(id uint64, from, to int64) ([]byte, []byte){store.RecordRange, sealedRange} {
		from, to := keys(id, 1, upTo+1)
		if err := deleteRange(s.st, from, to); err != nil {
			return err
		}
	}
	var b store.Batch
	b.Delete(unfinished(metaDrop, id))
	return s.st.Commit(&b)
}

func sealedRange(id uint64, from, to int64) ([]byte, []byte) {
	return store.Sealed(id, from), store.Sealed(id, to)
}

// letGo makes the replica stand without its first records.
func (r *Replica) letGo(t *Turn, b *store.Batch, upTo, freed int64) error {
	snap, err := r.state.Snapshot()
	if err != nil {
		return err
	}
	if len(snap) > maxSnapshot {
		return fmt.Errorf("replica %d: its state has %d bytes and cannot take the place of the log; the most is %d", r.ID, len(snap), maxSnapshot)
	}
	b.Put(unfinished(metaDrop, r.ID), nil)
	mark(b, metaReclaim)
	b.Put(store.Snapshot(r.ID), snap)
	if len(r.tail) > 0 { // hashes that so far only the records hold
		b.Put(store.TreeTile(r.ID, uint64(r.row.Seq/tileSize)), joinHashes(r.tail))
	}
	row := t.Row()
	row.Snapshot, row.Dropped = row.Seq, upTo
	row.Bytes -= freed
	return nil
}

// loadDropped reads what stands in the place of dropped records: st must be there,
// and the tail's first hashes. It answers behind which seq records are to be read.
func (r *Replica) loadDropped(row Row, st *room.State, tileStart int64) (from int64, err error) {
	if st.Last.Seq < row.Dropped {
		return 0, fmt.Errorf("the records up to seq %d are dropped, and the snapshot that stands for them is missing", row.Dropped)
	}
	if n := row.Dropped - tileStart; n > 0 {
		raw, ok, err := r.set.st.Get(store.TreeTile(r.ID, uint64(tileStart/tileSize)))
		if err != nil {
			return 0, err
		}
		if !ok || int64(len(raw)) < n*32 {
			return 0, fmt.Errorf("the records up to seq %d are dropped, and the last of their hashes are missing", row.Dropped)
		}
		for i := range n {
			r.tail = append(r.tail, adp.Encode(raw[i*32:i*32+32]))
		}
	}
	return max(row.Dropped, min(tileStart, st.Last.Seq)), nil
}

// gone is the answer for records that were dropped.
func gone(row Row) error {
	return adp.Errorf(adp.Gone, "the records up to seq %d are not kept here any more; their hashes and proofs are. Read on from after_seq=%[1]d, or ask the host of the room", row.Dropped).
		With("first_seq", row.Dropped+1)
}

// IsGone tells whether records could not be read because they were dropped.
func IsGone(err error) bool { return adp.CodeOf(err) == adp.Gone }

// storedHash is the hash of a committed record, also of one that was dropped.
func (r *Replica) storedHash(seq int64) (string, bool, error) {
	raw, ok, err := r.set.st.Get(store.TreeTile(r.ID, uint64((seq-1)/tileSize)))
	if err != nil {
		return "", false, err
	}
	if at := (seq - 1) % tileSize * 32; ok && int64(len(raw)) >= at+32 {
		return adp.Encode(raw[at : at+32]), true, nil
	}
	return r.recordHash(seq)
}
