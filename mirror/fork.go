package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// Bounds of the other story of a fork.
const (
	branchRecords = 1000
	branchBytes   = 8 << 20
)

const maxRoom = 4 << 20

func hashAt(r *replica.Replica, seq int64) (hash string, err error) {
	err = r.Take(func(t *replica.Turn) error {
		h, ok := t.HashAt(seq)
		if !ok {
			return fmt.Errorf("seq %d is not in the store", seq)
		}
		hash = h
		return nil
	})
	if err != nil {
		return "", local(err)
	}
	return hash, nil
}

// showsNow reads what the host shows at a seq now. An error of the element itself
// is in it; nothing there is one too.
func (h *host) showsNow(ctx context.Context, id string, seq int64) (checked, error) {
	page, err := h.events(ctx, id, seq-1, 1)
	if err != nil {
		return checked{}, err
	}
	if len(page) == 0 {
		return checked{err: errors.New("the host shows no record here any more")}, nil
	}
	c := checkServed(page[0])
	if c.err == nil && (c.rec.Seq != seq || c.rec.RoomID != id) {
		c.err = fmt.Errorf("the host shows seq %d of room %s here", c.rec.Seq, c.rec.RoomID)
	}
	return c, nil
}

// border finds out why a record does not stand behind what we hold: it is bad in
// itself, or the host now tells another story (federation.md, Mirroring a host, 6).
func (h *host) border(ctx context.Context, v *roomView, r *replica.Replica, bad *badRecord) error {
	if r == nil {
		return stuck(fmt.Sprintf("seq %d: %v", bad.seq, bad.err))
	}
	row := r.Row()
	seq := min(bad.seq, row.Seq)
	now, err := h.showsNow(ctx, v.id, seq)
	if err != nil {
		return err
	}
	ours, err := hashAt(r, seq)
	switch {
	case err != nil:
		return err
	case now.err != nil:
		return h.m.broken(r, bad.seq, bad.err, bad.raw)
	case now.rec.Hash != ours:
		return h.fork(ctx, v, r, seq)
	case bad.seq <= row.Seq:
		return fmt.Errorf("the host showed another record at seq %d and does so no more", bad.seq)
	}
	return h.m.broken(r, bad.seq, bad.err, bad.raw)
}

// compareHeld looks at a room of which the host lists no more than we hold.
func (h *host) compareHeld(ctx context.Context, v *roomView, r *replica.Replica, l listedRoom) error {
	ours, err := hashAt(r, l.seq)
	if err != nil {
		return err
	}
	if ours == l.hash {
		if l.seq == r.Row().Seq {
			return h.settle(ctx, v, r, l)
		}
		return h.behind(ctx, v, r)
	}
	// the list may be older, or wrong: the records decide
	now, err := h.showsNow(ctx, v.id, l.seq)
	switch {
	case err != nil:
		return err
	case now.err != nil:
		return h.m.broken(r, l.seq, now.err, now.raw)
	case now.rec.Hash == ours:
		return fmt.Errorf("the host lists another hash at seq %d than it serves", l.seq)
	}
	return h.fork(ctx, v, r, l.seq)
}

// behind makes sure that the host shows less than it has shown.
func (h *host) behind(ctx context.Context, v *roomView, r *replica.Replica) error {
	l, raw, err := h.resource(ctx, v.id)
	if err != nil {
		return err
	}
	row := r.Row()
	if l.seq == 0 || l.seq >= row.Seq {
		return nil // the list was older
	}
	ours, err := hashAt(r, l.seq)
	if err != nil {
		return err
	}
	if ours != l.hash {
		return h.compareHeld(ctx, v, r, l)
	}
	reason := fmt.Sprintf("seq %d: the host shows nothing behind seq %d any more", l.seq+1, l.seq)
	if row.State != replica.Behind {
		if err := h.m.observe(KindStaleHead, r, l.seq+1, reason, rawSide(raw)); err != nil {
			return err
		}
	}
	return h.halt(r, replica.Behind, reason)
}

// fork finds the first seq at which the host tells another story than before.
// At hi it does.
func (h *host) fork(ctx context.Context, v *roomView, r *replica.Replica, hi int64) error {
	for lo := int64(0); hi-lo > 1; {
		mid := lo + (hi-lo)/2
		now, err := h.showsNow(ctx, v.id, mid)
		if err != nil {
			return err
		}
		ours, err := hashAt(r, mid)
		switch {
		case err != nil:
			return err
		case now.err != nil: // a story with a hole in it is none
			return h.m.broken(r, mid, now.err, now.raw)
		case now.rec.Hash == ours:
			lo = mid
		default:
			hi = mid
		}
	}
	other, bad, err := h.otherStory(ctx, v, r, hi)
	switch {
	case err != nil:
		return err
	case len(other) == 0:
		return h.m.broken(r, hi, bad.err, bad.raw)
	case hi == 1:
		return h.otherGenesis(v, r, other[0])
	}
	ours, err := hashAt(r, hi)
	if err != nil {
		return err
	}
	if ours == other[0].Hash {
		return fmt.Errorf("the host showed another record at seq %d and does so no more", hi)
	}
	reason := fmt.Sprintf("seq %d: the host tells another story from here on: it shows %s, and showed %s before", hi, other[0].Hash, ours)
	theirs, branch := side(other), other
	if len(other[0].JSON()) > maxRecord {
		theirs, branch = rawSide(other[0].JSON()), nil
	}
	if row := r.Row(); row.Verdict != replica.Forked {
		if err := h.m.observe(KindFork, r, hi, reason, theirs); err != nil {
			return err
		}
	}
	var b store.Batch
	r.PutBranch(&b, branch)
	err = h.m.save(r, &b, func(row *replica.Row) bool {
		if row.Verdict == replica.Forked { // the first other story stays
			return false
		}
		if row.Verdict != replica.Equivocated {
			row.Verdict = replica.Forked
		}
		if row.Reason, row.BadBytes = reason, nil; row.State != replica.Complete {
			row.State = replica.Following
		}
		return true
	})
	if err != nil {
		return err
	}
	return stuck(reason)
}

// otherStory reads what the host shows from a seq on, as far as it is authentic
// and linked, first to what we hold and then to itself.
func (h *host) otherStory(ctx context.Context, v *roomView, r *replica.Replica, from int64) (recs []*adp.Record, bad *badRecord, err error) {
	seq, hash := from-1, ""
	if seq > 0 {
		if hash, err = hashAt(r, seq); err != nil {
			return nil, nil, err
		}
	}
	for total := 0; len(recs) < branchRecords && total < branchBytes; {
		page, err := h.events(ctx, v.id, seq, min(branchRecords, pageRecords))
		if err != nil {
			return nil, nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, c := range h.m.check(page) {
			if c.err == nil {
				c.err = c.rec.Follows(v.id, seq, hash)
			}
			if c.err != nil {
				return recs, &badRecord{seq + 1, c.raw, c.err}, nil
			}
			if total += len(c.rec.JSON()); len(recs) > 0 && total > branchBytes || len(recs) == branchRecords {
				return recs, nil, nil
			}
			recs = append(recs, c.rec)
			seq, hash = c.rec.Seq, c.rec.Hash
		}
	}
	if len(recs) == 0 {
		bad = &badRecord{from, nil, errors.New("the host shows no record here any more")}
	}
	return recs, bad, nil
}

// otherGenesis turns to another room under the same ID: a replica of its own. The
// first stays as it is and stays what is served.
func (h *host) otherGenesis(v *roomView, r *replica.Replica, first *adp.Record) error {
	next, _ := h.m.o.Replicas.GetKey(replica.Key{Origin: h.origin, RoomID: v.id, Genesis: first.Hash})
	reason := fmt.Sprintf("seq 1: the host now shows another room under this ID, with the first record %s", first.Hash)
	err := h.m.save(r, nil, func(row *replica.Row) bool {
		if row.State == replica.Gone || row.State == replica.Complete {
			return false
		}
		row.State = replica.Gone
		if row.Verdict == "" {
			row.Reason = reason
		}
		return true
	})
	if err != nil {
		return err
	}
	h.switchTo(v, next)
	poke(h.stir)
	return errors.New(reason) // it is read after a pause, which grows when the host goes back and forth
}

// resource reads the Room resource.
func (h *host) resource(ctx context.Context, id string) (l listedRoom, raw []byte, err error) {
	resp, err := h.get(ctx, h.api()+"/rooms/"+id, maxRoom, apiType)
	if err != nil {
		return l, nil, err
	}
	v, err := adp.ScanDepth(resp.Body, roomDepth)
	if err != nil {
		return l, nil, fmt.Errorf("the room resource: %w", err)
	}
	l, ok := readListed(v)
	if !ok || l.id != id {
		return l, nil, fmt.Errorf("the room resource is of another room")
	}
	return l, v.Raw(), nil
}

// lookUp finds out what became of a room that is no longer listed.
func (h *host) lookUp(ctx context.Context, v *roomView) (listedRoom, error) {
	l, _, err := h.resource(ctx, v.id)
	var s *statusError
	reason := ""
	switch {
	case errors.As(err, &s):
		switch s.status {
		case http.StatusNotFound, http.StatusGone, http.StatusUnauthorized, http.StatusForbidden:
			reason = fmt.Sprintf("the host no longer lists the room: %v", err)
		default:
			return listedRoom{}, err
		}
	case err != nil:
		return listedRoom{}, err
	case l.visibility != room.Public:
		reason = fmt.Sprintf("the host no longer lists the room as public: it is %.20q", l.visibility)
	}
	wait := h.m.o.PollMax
	h.mu.Lock()
	if reason != "" || h.crowd {
		wait = max(wait, h.m.roomRetry)
	}
	v.look = h.m.o.Now() + wait.Milliseconds()
	h.mu.Unlock()
	if reason == "" {
		return l, h.sync(ctx, v, l)
	}
	r := h.replicaOf(v)
	if r == nil { // forgotten by the operator meanwhile
		return listedRoom{}, nil
	}
	return listedRoom{}, h.m.save(r, nil, func(row *replica.Row) bool {
		if row.State == replica.Gone {
			return false
		}
		row.State = replica.Gone
		if row.Verdict == "" {
			row.Reason = reason
		}
		return true
	})
}
