package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
)

// A host may show again what it withheld when we copied it. Nothing in its room list
// says so, so that rooms with such records are looked at once in a while. The hash is
// known: what the host shows is the original, or it is another record.

const (
	mendEvery = 24 * time.Hour // between looks for originals in one room
	mendAsks  = 32             // records in a row that are still withheld, until a look ends
	mendBytes = 4 << 20        // of originals that are put in place at once
	mendPace  = 1              // ms to wait for each record of the room, all of which are judged anew
)

// mends tells whether it is time to look for originals in a room that is held. The first
// time after a start is some time within an hour. host.mu is held.
func (h *host) mends(v *roomView, now int64) bool {
	if v.r.Row().Withheld == 0 || v.busy || now < v.next {
		return false
	}
	if v.mendAt == 0 {
		v.mendAt = now + rand.N(h.m.mendEvery/24).Milliseconds()
	}
	return now >= v.mendAt
}

// mend looks for the originals of records that the host withheld, a share of them at a
// time, and puts those in place that it shows.
func (h *host) mend(ctx context.Context, v *roomView) error {
	h.mu.Lock()
	r, from := v.r, v.mendFrom
	v.mendAt = h.m.o.Now() + jitter(h.m.mendEvery).Milliseconds()
	h.mu.Unlock()
	if r == nil { // forgotten by the operator meanwhile
		return nil
	}
	seqs, err := r.KeptBack(from, replica.MaxRestore)
	if err != nil {
		return local(err)
	}
	var whole []*adp.Record
	misses, size, at := 0, 0, from
	for _, seq := range seqs {
		if misses == mendAsks || size >= mendBytes {
			break
		}
		now, err := h.showsNow(ctx, v.id, seq)
		if err != nil {
			return err
		}
		if now.err == nil && !now.rec.Redacted {
			ours, err := hashAt(r, seq)
			switch {
			case err != nil:
				return err
			case ours != now.rec.Hash:
				return h.fork(ctx, v, r, seq)
			}
			whole, size, misses = append(whole, now.rec), size+len(now.rec.JSON()), 0
		} else {
			misses++
		}
		at = seq
	}
	h.mu.Lock()
	if v.mendFrom = at; at == from || len(seqs) < replica.MaxRestore && at == seqs[len(seqs)-1] {
		v.mendFrom = 0 // all have been asked for: from the first one again
	}
	if len(whole) > 0 { // there may be more
		v.mendAt = h.m.o.Now() + jitter(h.m.o.PollMax).Milliseconds() + r.Row().Seq*mendPace
	}
	h.mu.Unlock()
	if len(whole) == 0 {
		return nil
	}
	before := r.Row().Withheld
	err = r.Restore(whole, countInto)
	if adp.CodeOf(err) != "" { // one that cannot be judged any more, or that the operator withholds since
		for _, rec := range whole {
			if err = r.Restore([]*adp.Record{rec}, countInto); adp.CodeOf(err) != "" {
				h.m.log.Warn("an original is not taken", "origin", h.origin, "room", v.id, "reason", err)
				err = nil
			}
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return local(err)
	}
	n := before - r.Row().Withheld
	h.m.log.Info("a host shows again what it withheld", "origin", h.origin, "room", v.id, "records", n, "withheld", r.Row().Withheld)
	h.m.metrics.records.WithLabelValues("restored").Add(float64(n))
	h.m.o.Changed(r)
	return h.mended(ctx, r)
}

// mended sees to the archive of a room whose originals came late.
func (h *host) mended(ctx context.Context, r *replica.Replica) error {
	row := r.Row()
	switch {
	case row.State != replica.Complete || row.Withheld > 0:
		return nil
	case !row.Archived: // it can be recomputed now
		return h.m.save(r, nil, func(row *replica.Row) bool { row.State = replica.Following; return true })
	}
	if err := r.CheckArchive(ctx); errors.Is(err, replica.ErrMismatch) {
		raw, _, err2 := r.Manifest()
		if err2 != nil {
			return local(err2)
		}
		return h.mismatch(r, raw, fmt.Errorf("now that all of it is at hand: %w", err))
	} else if err != nil {
		return local(err)
	}
	h.m.o.Completed(r)
	return nil
}
