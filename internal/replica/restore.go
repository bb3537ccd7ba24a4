package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// A record may have been copied while its origin withheld it: its hash is known and its
// envelope is not. When the origin shows the envelope again, the hash tells whether it
// is the one, and the record takes its place.

// KeptBack is the fate of an original that its origin withheld when the record was copied.
const KeptBack Fate = "kept-back"

// MaxRestore is how many records Restore takes at once.
const MaxRestore = 1000

// noteKeptBack remembers that a record came without its envelope.
func (r *Replica) noteKeptBack(b *store.Batch, rec *adp.Record) error {
	note, err := json.Marshal(Withholding{Seq: rec.Seq, Type: rec.Envelope.Type, Fate: KeptBack})
	b.Put(store.Withheld(r.ID, rec.Seq), note)
	return err
}

// KeptBack lists the seqs behind a place, at most limit, whose originals the origin
// withheld when they were copied. Those that the operator withholds here too are not
// among them.
func (r *Replica) KeptBack(after int64, limit int) (seqs []int64, err error) {
	var bad error
	err = r.set.st.View(func(rd store.Reader) error {
		from := store.Withheld(r.ID, max(after, r.Row().Dropped)+1)
		_, to := store.WithheldRange(r.ID)
		return rd.Scan(from, to, func(_, value []byte) bool {
			var w Withholding
			if bad = json.Unmarshal(value, &w); bad == nil && w.Fate == KeptBack {
				seqs = append(seqs, w.Seq)
			}
			return bad == nil && len(seqs) < limit
		})
	})
	return seqs, errors.Join(err, bad)
}

// errNotKeptBack: there is nothing to restore at a place.
var errNotKeptBack = adp.Errorf(adp.InvalidRequest, "the record is not one whose original its origin withheld")

// Restore puts originals in the places of records that were copied without their
// envelope. The records must be verified; each is held against the hash of the record
// that stands there. What they do to the room is judged anew, from its first record on,
// and count puts each verdict into the row, whose counts begin at nothing; of a room
// whose first records are not kept, they are counted as unverifiable.
func (r *Replica) Restore(recs []*adp.Record, count func(*Row, room.Verdict)) error {
	if len(recs) > MaxRestore {
		return fmt.Errorf("replica %d: %d records to restore at once; the most is %d", r.ID, len(recs), MaxRestore)
	}
	r.archiving.Lock()
	defer r.archiving.Unlock()
	return r.change(func(t *Turn, b *store.Batch) error {
		if t.Row().Seq != r.Row().Seq {
			return fmt.Errorf("replica %d: records of it are being written", r.ID)
		}
		whole := map[int64]*adp.Record{}
		row := t.Row()
		for _, rec := range recs {
			cut, err := r.stored(rec.Seq)
			if err != nil {
				return err
			}
			w, _, err := r.withholding(rec.Seq)
			if err != nil {
				return err
			}
			switch {
			case !cut.Redacted || w.Fate != KeptBack || whole[rec.Seq] != nil:
				return fmt.Errorf("seq %d: %w", rec.Seq, errNotKeptBack)
			case rec.Redacted || rec.Hash != cut.Hash || rec.Envelope.Hash != cut.Envelope.Hash || rec.RoomID != r.RoomID:
				return adp.Errorf(adp.InvalidRequest, "seq %d: this is not the record that stands there", rec.Seq)
			case row.Dropped > 0 && rec.Envelope.Type != cut.Envelope.Type:
				return adp.Errorf(adp.InvalidRequest, "seq %d: it is a %s, its origin said it is a %s, and what follows from that cannot be judged any more: the first records are not kept", rec.Seq, rec.Envelope.Type, cut.Envelope.Type)
			}
			whole[rec.Seq] = rec
			b.Expect(store.Record(r.ID, rec.Seq), cut.JSON())
			b.Put(store.Record(r.ID, rec.Seq), rec.JSON())
			b.Delete(store.Withheld(r.ID, rec.Seq))
			row.Withheld--
			row.Bytes += int64(len(rec.JSON()) - len(cut.JSON()))
		}
		if row.Dropped > 0 {
			for range recs {
				count(row, room.Verdict{Outcome: room.Unverifiable})
			}
			return nil
		}
		return r.rejudge(t, b, whole, count)
	})
}

// rejudge replays the whole log, with some records in the place of those that stand
// there, and makes what comes out the state of the room.
func (r *Replica) rejudge(t *Turn, b *store.Batch, whole map[int64]*adp.Record, count func(*Row, room.Verdict)) error {
	row, st := t.Row(), room.New(r.RoomID)
	row.Violations, row.Unverifiable, row.Rules = 0, 0, nil
	r.unread = nil
	err := r.ScanHeld(0, row.Seq, func(seq int64, raw []byte) error {
		rec := whole[seq]
		if rec == nil {
			var err error
			if rec, err = parseStored(append([]byte(nil), raw...)); err != nil {
				return err
			}
		}
		packs, _ := r.set.PacksFor(room.PacksNeeded(rec.Envelope))
		verdict, ch, err := st.Judge(rec, room.Context{Chain: storedChain{r, seq}, Packs: packs})
		if err != nil {
			return err
		}
		count(row, verdict)
		return st.Advance(rec, ch)
	})
	if err == nil {
		err = r.unread
	}
	if err != nil {
		return fmt.Errorf("replica %d: judge it anew: %w", r.ID, err)
	}
	snap, err := st.Snapshot()
	if err != nil {
		return err
	}
	if row.Snapshot = row.Seq; len(snap) <= maxSnapshot {
		b.Put(store.Snapshot(r.ID), snap)
	} else {
		row.Snapshot = 0
		b.Delete(store.Snapshot(r.ID))
	}
	r.state, t.State = st, st
	r.stayEnded()
	return nil
}

// CheckArchive recomputes from the records what the archive that is kept says of them.
// ErrMismatch tells what differs; where envelopes are withheld, what covers them is
// believed.
func (r *Replica) CheckArchive(ctx context.Context) error {
	r.archiving.Lock()
	defer r.archiving.Unlock()
	m, ok, err := r.Manifest()
	if err != nil {
		return err
	}
	if !ok {
		return ErrNotEnded
	}
	c, err := adp.ParseClaim(m)
	if err != nil {
		return fmt.Errorf("replica %d: the manifest: %w", r.ID, err)
	}
	_, err = r.fits(ctx, c)
	return err
}

// fits recomputes all that a manifest says, and gives line 1 of its bundle.
func (r *Replica) fits(ctx context.Context, c *adp.Claim) (line1 []byte, err error) {
	sum, err := r.Summary(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Check(sum); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if c.Room.Kind() == adp.Object && r.Row().Violations == 0 { // after a violation it is open what the host made of it
		var wrong []string
		if err := r.View(ctx, func(s *room.State) { wrong = s.Contradicts(c.Room) }); err != nil {
			return nil, err
		}
		if wrong != nil {
			return nil, fmt.Errorf("%w: the room in the manifest differs from the records in %s", ErrMismatch, strings.Join(wrong, ", "))
		}
	}
	if line1, err = c.Line1(); err != nil {
		return nil, err
	}
	if codec, _, err := adp.ParseCID(c.BundleCID); err != nil || codec != adp.CodecRaw {
		return nil, fmt.Errorf("%w: bundle_cid is not the CID of a file", ErrMismatch)
	}
	bundle, err := r.bundle(ctx, line1, sum.Count)
	if err != nil {
		return nil, err
	}
	if sum.Withheld == 0 && (bundle.CID() != c.BundleCID || bundle.Bytes != c.BundleBytes) {
		return nil, fmt.Errorf("%w: bundle_cid or bundle_bytes is not that of archive.jsonl", ErrMismatch)
	}
	return line1, nil
}
