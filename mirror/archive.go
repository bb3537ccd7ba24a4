package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

const (
	maxManifest = 16 << 20
	// How many looks a host gets to offer an archive of a room that is over: one
	// that knows no archives at all needs fewer.
	looksForArchive   = 4
	looksWithoutRoute = 2

	clockSkew = 60_000 // ms by which the clock of a host may be before ours without a word
)

// complete adopts the archive of a room that the host says is over, or makes it.
// All that the host lists is held.
func (h *host) complete(ctx context.Context, v *roomView, r *replica.Replica) error {
	now := h.m.o.Now()
	var status, soon room.Status
	if err := r.View(ctx, func(s *room.State) { status, soon = s.StatusAt(now), s.StatusAt(now+clockSkew) }); err != nil {
		return local(err)
	}
	switch status {
	case room.Cancelled: // no archive is made of it (ADP §19)
		return h.done(r, false)
	case room.Ended:
	default: // by the records it goes on, at least by our clock
		if soon == status {
			return fmt.Errorf("the host lists the room as over, and by its records, as of seq %d, it is %s", r.Row().Seq, status)
		}
		h.later(v)
		return nil
	}
	switch row := r.Row(); {
	case row.Archived:
		return h.done(r, true)
	case row.Dropped > 0: // it cannot be recomputed any more
		return h.done(r, false)
	}
	claim, err := h.manifest(ctx, v)
	if err != nil {
		return err
	}
	switch {
	case claim == nil && !h.lastLook(v):
		h.later(v)
		return nil
	case claim != nil && claim.BundleCID != "":
		if err = r.AdoptArchive(ctx, claim); errors.Is(err, replica.ErrMismatch) {
			return h.mismatch(r, claim.JSON(), err)
		}
	default:
		if claim != nil {
			sum, err := r.Summary(ctx)
			if err != nil {
				return local(err)
			}
			if err := claim.Check(sum); err != nil {
				return h.mismatch(r, claim.JSON(), fmt.Errorf("%w: %w", replica.ErrMismatch, err))
			}
		}
		return h.makeArchive(ctx, v, r, now)
	}
	if err != nil {
		return local(err)
	}
	return h.done(r, true)
}

// completeAlone makes the archive of a room whose host cannot be asked for its own,
// when its keys say that what is held is all of it: by a statement about the archive,
// or by a head at the record that closed the room. It changes nothing of other rooms.
func (h *host) completeAlone(ctx context.Context, v *roomView) error {
	r := h.replicaOf(v)
	if r == nil {
		return nil
	}
	row := r.Row()
	if row.State == replica.Complete || row.Verdict != "" || row.Dropped > 0 {
		return nil
	}
	var over, closed bool
	now := h.m.o.Now()
	if err := r.View(ctx, func(s *room.State) { over, closed = s.StatusAt(now) == room.Ended, s.Closed }); err != nil {
		return local(err)
	}
	if !over {
		return nil
	}
	k, held := replica.Key{Origin: h.origin, RoomID: v.id, Genesis: r.Genesis}, position{row.Seq, row.Hash}
	seq, hash, ok := h.m.o.Stated(k)
	if whole := ok && (position{seq, hash}) == held || closed && h.m.signedFor(k) == held; !whole {
		return nil
	}
	return h.makeArchive(ctx, v, r, now)
}

// makeArchive makes the archive of a room that is over and of which the host offers none,
// at a time that all mirrors agree on, so that their archives do.
func (h *host) makeArchive(ctx context.Context, v *roomView, r *replica.Replica, now int64) error {
	_, err := r.MakeArchive(ctx, h.api()+"/rooms/"+v.id, now, r.Row().At)
	switch {
	case errors.Is(err, replica.ErrWithheld): // none can be made that would fit what was said
		return h.done(r, false)
	case err != nil:
		return local(err)
	}
	return h.done(r, true)
}

// later looks at a room again in a while.
func (h *host) later(v *roomView) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v.next = h.m.o.Now() + h.m.o.PollMin.Milliseconds()
}

// lastLook counts the looks for an archive.
func (h *host) lastLook(v *roomView) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return v.archive >= looksForArchive
}

// manifest reads what the host offers as the archive: nil when it offers nothing
// that can be read.
func (h *host) manifest(ctx context.Context, v *roomView) (*adp.Claim, error) {
	resp, err := h.get(ctx, h.api()+"/rooms/"+v.id+"/archive", maxManifest, apiType)
	var s *statusError
	look := 1
	switch {
	case errors.As(err, &s):
		if s.status == http.StatusNotFound || s.status == http.StatusNotImplemented || s.status == http.StatusMethodNotAllowed || s.status == http.StatusGone {
			look = looksForArchive / looksWithoutRoute
		}
	case err != nil:
		if !h.unreadable(v, err) {
			return nil, err
		}
	default:
		claim, err := adp.ParseClaim(resp.Body)
		if err == nil {
			return claim, nil
		}
		h.m.log.Debug("an archive cannot be read", "origin", h.origin, "room", v.id, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v.archive += look
	return nil, nil
}

// slowArchive is after how many failures in a row an archive that does not come counts as
// one that is not offered: some minutes.
const slowArchive = 8

// unreadable tells whether a host that answers is not to be waited for: what it offers as an
// archive can be of no use, or does not come in time again and again. The room is held
// whole, and its archive can be made here.
func (h *host) unreadable(v *roomView, err error) bool {
	switch fetch.KindOf(err) {
	case fetch.TooLarge, fetch.BadContentType, fetch.BadRedirect:
		return true
	case fetch.Slow, fetch.Broken, fetch.Timeout:
		h.mu.Lock()
		defer h.mu.Unlock()
		return v.failures >= slowArchive
	}
	return false
}

// mismatch stops a room whose archive does not fit its records.
func (h *host) mismatch(r *replica.Replica, theirs []byte, cause error) error {
	row := r.Row()
	reason := fmt.Sprintf("seq %d: %v", row.Seq, cause)
	if row.Verdict == replica.ArchiveMismatch && row.Reason == reason {
		return stuck(reason)
	}
	if err := h.m.observe(KindArchiveMismatch, r, row.Seq, reason, rawSide(theirs)); err != nil {
		return err
	}
	err := h.m.save(r, nil, func(row *replica.Row) bool {
		if row.Verdict != replica.Forked && row.Verdict != replica.Equivocated {
			row.Verdict, row.Reason = replica.ArchiveMismatch, reason
		}
		return true
	})
	if err != nil {
		return err
	}
	return stuck(reason)
}

// grown stops a room to which its host added after the archive was made: what
// was archived, and perhaps attested, stays.
func (h *host) grown(r *replica.Replica, bad *badRecord) error {
	return h.mismatch(r, bad.raw, errors.New("the host added a record after the archive was made"))
}

func rawSide(raw []byte) []json.RawMessage {
	if len(raw) > sideBytes || !json.Valid(raw) {
		short, _ := json.Marshal(string(raw[:min(len(raw), sideBytes)]))
		raw = short
	}
	return []json.RawMessage{raw}
}

// done marks a room as complete and tells the others.
func (h *host) done(r *replica.Replica, archived bool) error {
	err := h.m.save(r, nil, func(row *replica.Row) bool {
		if row.State == replica.Complete {
			return false
		}
		row.State = replica.Complete
		if row.Verdict == replica.ArchiveMismatch {
			row.Verdict = ""
		}
		if row.Verdict == "" {
			row.Reason = ""
		}
		return true
	})
	if err != nil {
		return err
	}
	r.Wake() // live streams of a room that is over end
	if archived {
		h.m.o.Completed(r)
	}
	return nil
}
