package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// Fate is what becomes of the original of a record that is withheld.
type Fate string

// The fates.
const (
	Seal              Fate = "seal"                // kept where no reader gets at it
	Erase             Fate = "erase"               // deleted
	EraseAfterArchive Fate = "erase-after-archive" // sealed until the archive, whose digests cover it, is made
	NeverHeld         Fate = "never-held"          // the origin withheld it when it was copied, and so does the operator
)

// Withholding says why a record is not shown.
type Withholding struct {
	Seq    int64  `json:"seq"`
	Type   string `json:"type"`
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at,omitempty"` // Unix ms
	Fate   Fate   `json:"fate"`
}

// ErrWithheld: what was asked for needs records whose envelope is withheld and
// not held here.
var ErrWithheld = errors.New("records are withheld whose originals are not held here")

// Withhold takes a record from the view of every reader: they get its hash and
// type in place of its envelope, from the moment this returns. Chain, Merkle root
// and state stay as they are. Only what agents said can be withheld (see
// room.CanBeWithheld); errors carry a code.
func (r *Replica) Withhold(seq int64, reason string, now int64, fate Fate) (Withholding, error) {
	r.archiving.Lock() // an archive that is being made needs the original
	defer r.archiving.Unlock()
	w := Withholding{Seq: seq, Reason: reason, At: now, Fate: fate}
	err := r.change(func(t *Turn, b *store.Batch) error {
		rec, err := r.stored(seq)
		if err != nil {
			return err
		}
		switch w.Type = rec.Envelope.Type; {
		case rec.Redacted:
			return r.withholdKeptBack(b, &w)
		case !room.CanBeWithheld(w.Type):
			return adp.Errorf(adp.InvalidRequest, "seq %d is a %s, on which the state of the room rests; only messages and events of types that the room declared can be withheld", seq, w.Type)
		}
		if w.Fate == EraseAfterArchive && t.Row().Archived {
			w.Fate = Erase
		}
		cut, err := rec.Redact()
		if err != nil {
			return err
		}
		note, err := json.Marshal(w)
		if err != nil {
			return err
		}
		if b.Put(store.Withheld(r.ID, seq), note); w.Fate == Erase {
			t.Row().Bytes -= int64(len(rec.JSON()) - len(cut.JSON()))
			mark(b, metaExpunge)
		} else {
			b.Put(store.Sealed(r.ID, seq), rec.JSON())
		}
		b.Expect(store.Record(r.ID, seq), rec.JSON()) // of two at once, one
		b.Put(store.Record(r.ID, seq), cut.JSON())
		t.Row().Withheld++
		return nil
	})
	return w, err
}

// withholdKeptBack takes note that the operator withholds a record that came without its
// envelope: it stays so when the origin shows it again.
func (r *Replica) withholdKeptBack(b *store.Batch, w *Withholding) error {
	old, before, err := r.withholding(w.Seq)
	if err != nil {
		return err
	}
	if old.Fate != KeptBack {
		return adp.Errorf(adp.InvalidRequest, "seq %d is withheld already", w.Seq)
	}
	w.Fate = NeverHeld
	note, err := json.Marshal(w)
	b.Expect(store.Withheld(r.ID, w.Seq), before)
	b.Put(store.Withheld(r.ID, w.Seq), note)
	return err
}

// withholding reads why a record is withheld, and the bytes of that in the store. Its
// fate is "" when there is nothing.
func (r *Replica) withholding(seq int64) (w Withholding, note []byte, err error) {
	note, ok, err := r.set.st.Get(store.Withheld(r.ID, seq))
	if err != nil || !ok {
		return w, nil, err
	}
	return w, note, json.Unmarshal(note, &w)
}

// Release shows a record again whose original was sealed. One whose original was never
// held is shown when its origin shows it.
func (r *Replica) Release(seq int64) error {
	r.archiving.Lock()
	defer r.archiving.Unlock()
	return r.change(func(t *Turn, b *store.Batch) error {
		rec, err := r.stored(seq)
		if err != nil {
			return err
		}
		if !rec.Redacted {
			return adp.Errorf(adp.InvalidRequest, "seq %d is not withheld", seq)
		}
		original, ok, err := r.set.st.Get(store.Sealed(r.ID, seq))
		if err != nil {
			return err
		}
		if !ok {
			return r.releaseKeptBack(b, rec)
		}
		b.Expect(store.Record(r.ID, seq), rec.JSON())
		b.Put(store.Record(r.ID, seq), original)
		b.Delete(store.Sealed(r.ID, seq))
		b.Delete(store.Withheld(r.ID, seq))
		t.Row().Withheld--
		return nil
	})
}

// releaseKeptBack leaves it to the origin again whether a record is shown.
func (r *Replica) releaseKeptBack(b *store.Batch, rec *adp.Record) error {
	w, note, err := r.withholding(rec.Seq)
	if err != nil {
		return err
	}
	if w.Fate != NeverHeld {
		return adp.Errorf(adp.InvalidRequest, "the original of seq %d is not held here: it was erased, or %s itself withholds it", rec.Seq, r.Origin)
	}
	b.Expect(store.Withheld(r.ID, rec.Seq), note)
	return r.noteKeptBack(b, rec)
}

// Withholdings lists what was withheld here, by seq. What the origin itself
// withholds is not among it; Row.Withheld counts both.
func (r *Replica) Withholdings() (list []Withholding, err error) {
	var bad error
	err = r.set.st.View(func(rd store.Reader) error {
		from, to := store.WithheldRange(r.ID)
		return rd.Scan(from, to, func(_, value []byte) bool {
			var w Withholding
			if bad = json.Unmarshal(value, &w); bad == nil && w.Fate != KeptBack {
				list = append(list, w)
			}
			return bad == nil
		})
	})
	return list, errors.Join(err, bad)
}

// ScanHeld is Scan over the records as they were accepted, with the sealed
// originals in their places: for digests and proofs, never for readers.
func (r *Replica) ScanHeld(after, last int64, fn func(seq int64, raw []byte) error) error {
	if r.Row().Withheld == 0 {
		return r.Scan(after, last, fn)
	}
	list, err := r.Withholdings()
	if err != nil {
		return err
	}
	sealed := map[int64]bool{}
	for _, w := range list {
		sealed[w.Seq] = w.Fate == Seal || w.Fate == EraseAfterArchive
	}
	return r.Scan(after, last, func(seq int64, raw []byte) error {
		if sealed[seq] {
			original, ok, err := r.set.st.Get(store.Sealed(r.ID, seq))
			if err != nil {
				return err
			}
			if ok { // it may have been released since
				raw = original
			}
		}
		return fn(seq, raw)
	})
}

// IsRedacted tells whether the text of a stored record lacks its envelope.
func IsRedacted(raw []byte) bool { return bytes.HasPrefix(raw, []byte(`{"envelope":{"hash":`)) }

// eraseAfterArchive puts the end of what was sealed for the archive's sake into
// the commit of the archive.
func (r *Replica) eraseAfterArchive(t *Turn, b *store.Batch) error {
	if t.Row().Withheld == 0 {
		return nil
	}
	list, err := r.Withholdings()
	if err != nil {
		return err
	}
	for _, w := range list {
		if w.Fate != EraseAfterArchive {
			continue
		}
		w.Fate = Erase
		note, err := json.Marshal(w)
		if err != nil {
			return err
		}
		original, ok, err := r.set.st.Get(store.Sealed(r.ID, w.Seq))
		if err != nil {
			return err
		}
		cut, err := r.stored(w.Seq)
		if err != nil {
			return err
		}
		if ok {
			t.Row().Bytes -= int64(len(original) - len(cut.JSON()))
		}
		b.Put(store.Withheld(r.ID, w.Seq), note)
		b.Delete(store.Sealed(r.ID, w.Seq))
		mark(b, metaExpunge)
	}
	return nil
}

// change commits what fn puts into a batch, together with the row, and empties
// the ring, so that no reader gets from memory what the store no longer says.
func (r *Replica) change(fn func(*Turn, *store.Batch) error) error {
	done := make(chan error, 1)
	err := r.Take(func(t *Turn) error {
		var b store.Batch
		before := r.row
		if err := fn(t, &b); err != nil {
			r.row = before
			return err
		}
		// what lands from here on is behind everything that is changed
		r.moved.Lock()
		r.emptyRing()
		r.moved.Unlock()
		return t.Save(&b, func(err error) { done <- err })
	})
	if err != nil {
		return err
	}
	return <-done
}

// stored is one committed record, as readers get it.
func (r *Replica) stored(seq int64) (*adp.Record, error) {
	row := r.Row()
	if seq < 1 || seq > row.Seq {
		return nil, adp.Errorf(adp.InvalidRequest, "there is no seq %d: the room has the records 1 to %d", seq, row.Seq)
	}
	if seq <= row.Dropped {
		return nil, gone(row)
	}
	raw, ok, err := r.set.st.Get(store.Record(r.ID, seq))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("replica %d: no record at seq %d", r.ID, seq)
	}
	return parseStored(raw)
}
