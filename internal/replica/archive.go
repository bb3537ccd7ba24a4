package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/store"
)

// The parts of an archive in the store.
const (
	partManifest = "manifest"
	partLine1    = "line1"
)

// Summary recomputes from the stored records what the room amounts to. Every
// hash is checked again on the way. Summary.Withheld counts the records whose
// original is not held here.
func (r *Replica) Summary(ctx context.Context) (adp.Summary, error) {
	var d adp.Digest
	err := r.ScanHeld(0, r.Row().Seq, func(_ int64, raw []byte) error {
		rec, err := parseStored(append([]byte(nil), raw...))
		if err == nil {
			d.Add(rec)
			err = ctx.Err()
		}
		return err
	})
	return d.Summary(), err
}

// ErrNotEnded: a room that may still grow has no archive.
var ErrNotEnded = errors.New("the room has not ended")

// ErrMismatch: a host's manifest does not fit the records.
var ErrMismatch = errors.New("the archive does not fit the records")

// MakeArchive makes and stores the archive of an ended room, once; a second
// call gives the same one. url is the canonical room URL, at is generated_at.
func (r *Replica) MakeArchive(ctx context.Context, url string, now, at int64) (manifest []byte, err error) {
	r.archiving.Lock()
	defer r.archiving.Unlock()
	if m, ok, err := r.Manifest(); ok || err != nil {
		return m, err
	}
	sum, err := r.Summary(ctx)
	if err != nil {
		return nil, err
	}
	if sum.Withheld > 0 { // its digests would be over something else than was said
		return nil, fmt.Errorf("no archive can be made: %w", ErrWithheld)
	}
	m := adp.Manifest{Host: authority(r.Origin), URL: url, GeneratedAt: at, Summary: sum, Extra: map[string]json.RawMessage{}}
	var ended bool
	var external []types.PackRef
	err = r.View(ctx, func(s *room.State) {
		ended = s.StatusAt(now) == room.Ended && s.Last.Seq == sum.Count
		m.Room = s.Resource(url, now)
		for _, id := range s.Registered {
			if p, ok := types.RegisteredPack(id); ok {
				m.Packs = append(m.Packs, p.Document())
			}
		}
		external = s.External
	})
	if err != nil {
		return nil, err
	}
	if !ended {
		return nil, ErrNotEnded
	}
	// a document in JSON cannot prove its digest, which is over raw bytes
	var sources []map[string]string
	for _, ref := range external {
		p, ok := r.set.Pack(ref.Digest)
		raw, ok2 := r.set.PackSource(ref.Digest)
		if ok && ok2 {
			m.Packs = append(m.Packs, p.Document())
			sources = append(sources, map[string]string{"pack": ref.URI, "digest": ref.Digest, "raw": adp.Encode(raw)})
		}
	}
	if sources != nil {
		if m.Extra["pack_sources"], err = json.Marshal(sources); err != nil {
			return nil, err
		}
	}
	line1, err := m.Line1()
	if err != nil {
		return nil, err
	}
	bundle, err := r.bundle(ctx, line1, sum.Count)
	if err != nil {
		return nil, err
	}
	if manifest, err = m.JSON(bundle); err != nil {
		return nil, err
	}
	return manifest, r.keepArchive(manifest, line1, sum.Count)
}

// AdoptArchive keeps the archive as the origin made it, after recomputing all
// that its manifest says; ErrMismatch tells what differs. An archive is adopted
// or made once: the same one again is no error, another is ErrExists. Where
// envelopes are withheld, what covers them is believed.
func (r *Replica) AdoptArchive(ctx context.Context, c *adp.Claim) error {
	r.archiving.Lock()
	defer r.archiving.Unlock()
	if m, ok, err := r.Manifest(); err != nil {
		return err
	} else if ok {
		if bytes.Equal(m, c.JSON()) {
			return nil
		}
		return fmt.Errorf("%w: it has another archive", ErrExists)
	}
	line1, err := r.fits(ctx, c)
	if err != nil {
		return err
	}
	return r.keepArchive(c.JSON(), line1, c.Count)
}

func (r *Replica) bundle(ctx context.Context, line1 []byte, count int64) (*adp.Bundle, error) {
	b := adp.NewBundle(line1)
	err := r.ScanHeld(0, count, func(_ int64, raw []byte) error {
		b.Add(raw)
		return ctx.Err()
	})
	return b, err
}

// keepArchive stores an archive of so many records. What is signed about it says where
// the room ends, so that nothing may have come behind them, nor come later.
func (r *Replica) keepArchive(manifest, line1 []byte, count int64) error {
	var b store.Batch
	b.Expect(store.Archive(r.ID, partManifest), nil) // made once
	b.Put(store.Archive(r.ID, partManifest), manifest)
	b.Put(store.Archive(r.ID, partLine1), line1)
	if err := r.indexContent(&b, manifest); err != nil {
		return err
	}
	done := make(chan error, 1)
	err := r.Take(func(t *Turn) error {
		if seq := t.Row().Seq; seq != count {
			return fmt.Errorf("replica %d: the archive has %d records, and seq %d has been written: %w", r.ID, count, seq, ErrNotEnded)
		}
		if err := r.eraseAfterArchive(t, &b); err != nil {
			return err
		}
		t.Row().Archived = true
		r.stayEnded()
		return t.Save(&b, func(err error) { done <- err })
	})
	if err != nil {
		return err
	}
	return <-done
}

// stayEnded lets the time of an archived room never be before its end, although our
// clock is set back. r.turn is held.
func (r *Replica) stayEnded() {
	if r.row.Archived && r.state.Contract != nil {
		r.state.Clock = max(r.state.Clock, r.state.Contract.EndTime)
	}
}

// Manifest is the stored manifest, if the archive has been made.
func (r *Replica) Manifest() ([]byte, bool, error) {
	return r.set.st.Get(store.Archive(r.ID, partManifest))
}

// WriteBundle streams archive.jsonl: line 1, then one record a line, as many as
// line 1 says: what a host has added to a closed room is not in its archive.
func (r *Replica) WriteBundle(w io.Writer) error {
	line1, ok, err := r.set.st.Get(store.Archive(r.ID, partLine1))
	if err != nil {
		return err
	}
	if !ok {
		return ErrNotEnded
	}
	c, err := adp.ParseClaim(line1)
	if err != nil {
		return fmt.Errorf("replica %d: line 1 of the archive: %w", r.ID, err)
	}
	if _, err := w.Write(append(line1, '\n')); err != nil {
		return err
	}
	// page by page: no snapshot of the store is held while a slow reader reads
	for after := int64(0); after < c.Count; {
		recs, err := r.Read(after, int(min(1000, c.Count-after)), 1<<20)
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return fmt.Errorf("replica %d: the log ends at seq %d, its archive has %d records", r.ID, after, c.Count)
		}
		buf := make([]byte, 0, 1<<20)
		for _, rec := range recs {
			buf = append(append(buf, rec...), '\n')
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		after += int64(len(recs))
	}
	return nil
}

func authority(origin string) string {
	for i := 0; i+3 <= len(origin); i++ {
		if origin[i:i+3] == "://" {
			return origin[i+3:]
		}
	}
	return origin
}
