package replica

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/web"
)

// Bounds of one page of events.
const (
	defaultPage = 100
	maxPage     = 1000
	maxPageSize = 8 << 20
	maxWait     = 25
)

// ServeEvents answers GET …/events (ADP §16): records behind after_seq in
// order, with a Link to the next page. base is the absolute URL of this very
// path. wait allows the long poll, which is for public rooms.
func (r *Replica) ServeEvents(w http.ResponseWriter, req *http.Request, base string, wait bool) error {
	q, err := web.ParseQuery(req)
	if err != nil {
		return err
	}
	after, err := web.Int64(q, "after_seq", 0, adp.MaxInt, 0)
	if err != nil {
		return err
	}
	limit, err := web.Limit(q, defaultPage, maxPage)
	if err != nil {
		return err
	}
	seconds, err := web.Int64(q, "wait", 0, adp.MaxInt, 0)
	if err != nil {
		return err
	}
	if q.Has("cursor") {
		return adp.Errorf(adp.InvalidRequest, "this cursor was not made here: pages of events follow after_seq, see the Link header")
	}
	if seconds > 0 {
		if !wait {
			return adp.Errorf(adp.InvalidRequest, "wait is for public rooms; members of other rooms use the live stream")
		}
		r.await(req.Context(), after, time.Duration(min(seconds, maxWait))*time.Second)
	}
	recs, err := r.Read(after, limit, maxPageSize)
	if err != nil {
		return err
	}
	if last, _, _ := r.Moved(); len(recs) > 0 && after+int64(len(recs)) < last {
		web.NextLink(w, fmt.Sprintf("%s?after_seq=%d&limit=%d", base, after+int64(len(recs)), limit))
	}
	web.WriteArray(w, recs)
	return nil
}

// await returns once there is a record behind a seq, or the time is over.
func (r *Replica) await(ctx context.Context, after int64, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		seq, _, signal := r.Moved()
		if seq > after {
			return
		}
		select {
		case <-signal:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Follower is one reader of a live stream.
type Follower struct {
	Send      func(recs [][]byte) error
	Heartbeat func() error
	// Check is asked before anything is sent, and whenever something happened that
	// may have ended this reader's right to read. False ends the stream: what
	// ended it is sent, nothing behind it.
	Check func() bool
	// Other, when not nil, is watched beside the records: a channel that is
	// closed when there is something, and what to do then.
	Other func() (<-chan struct{}, error)
}

const heartbeat = 15 * time.Second

// Follow sends records as they are committed, from those behind a seq on, until
// the reader goes, cannot keep up, or may read no more. The cursor is the
// reader's own: nothing is queued for it.
//
// Seq and epoch are read together, so that a Check after them speaks for every
// record up to that seq.
func (r *Replica) Follow(ctx context.Context, after int64, f Follower) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	known := int64(-1)
	for {
		seq, epoch, signal := r.Moved()
		first, over := known < 0, false
		if epoch != known {
			if over = !f.Check(); over && first {
				return nil
			}
			known = epoch
		}
		for after < seq {
			recs, err := r.Read(after, int(min(maxPage, seq-after)), 256<<10)
			if err != nil {
				return err
			}
			if len(recs) == 0 {
				return fmt.Errorf("replica %d: no record at seq %d", r.ID, after+1)
			}
			last := false
			if over {
				if recs, last, err = untilEnd(recs); err != nil {
					return err
				}
			}
			if err := f.Send(recs); err != nil {
				return err
			}
			after += int64(len(recs))
			if last {
				return nil
			}
		}
		if over {
			return nil
		}
		var other <-chan struct{}
		if f.Other != nil {
			var err error
			if other, err = f.Other(); err != nil {
				return err
			}
		}
		select {
		case <-signal:
		case <-other:
		case <-beat.C:
			if err := f.Heartbeat(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// untilEnd cuts behind the first record that may have ended a reader's right
// to read.
func untilEnd(recs [][]byte) (cut [][]byte, found bool, err error) {
	for i, raw := range recs {
		rec, err := parseStored(raw)
		if err != nil {
			return nil, false, err
		}
		switch rec.Envelope.Type {
		case room.Close, room.Cancel, room.Update, room.Leave, room.Remove:
			return recs[:i+1], true, nil
		}
	}
	return recs, false, nil
}

// ServeManifest answers GET …/archive.
func (r *Replica) ServeManifest(w http.ResponseWriter) error {
	m, ok, err := r.Manifest()
	if err != nil {
		return err
	}
	if !ok {
		return adp.Errorf(adp.RoomNotActive, "the room has not ended: there is no archive yet")
	}
	web.WriteRaw(w, http.StatusOK, m)
	return nil
}

// ServeBundle answers GET …/archive.jsonl.
func (r *Replica) ServeBundle(w http.ResponseWriter) error {
	if _, ok, err := r.Manifest(); err != nil {
		return err
	} else if !ok {
		return adp.Errorf(adp.RoomNotActive, "the room has not ended: there is no archive yet")
	}
	if row := r.Row(); row.Dropped > 0 {
		return gone(row)
	}
	w.Header().Set("Content-Type", "application/jsonl; charset=utf-8")
	if n := r.Row().Withheld; n > 0 { // these are not the bytes of bundle_cid
		w.Header().Set("Witan-Withheld", strconv.FormatInt(n, 10))
	}
	return cutShort(r.WriteBundle(w))
}

// ServeMarkdown answers GET …/archive.md.
func (r *Replica) ServeMarkdown(w http.ResponseWriter, req *http.Request, url string, now int64) error {
	if _, ok, err := r.Manifest(); err != nil {
		return err
	} else if !ok {
		return adp.Errorf(adp.RoomNotActive, "the room has not ended: there is no archive yet")
	}
	if row := r.Row(); row.Dropped > 0 {
		return gone(row)
	}
	w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	return cutShort(r.WriteMarkdown(req.Context(), w, url, now))
}

// cutShort ends an answer that has begun so that the reader sees it is not
// whole: a clean end would pass for a complete file.
func cutShort(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
