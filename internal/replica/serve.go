package replica

import (
	"context"
	"crypto/sha256"
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
// path. Those of public rooms may be cached, and allow the long poll.
func (r *Replica) ServeEvents(w http.ResponseWriter, req *http.Request, base string, public bool) error {
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
		if !public {
			return adp.Errorf(adp.InvalidRequest, "wait is for public rooms; members of other rooms use the live stream")
		}
		r.await(req.Context(), after, time.Duration(min(seconds, maxWait))*time.Second)
	}
	over := r.over() // before the records are read: then nothing comes behind them
	recs, err := r.Read(after, limit, maxPageSize)
	if err != nil {
		return err
	}
	if last, _, _ := r.Moved(); len(recs) > 0 && after+int64(len(recs)) < last {
		web.NextLink(w, fmt.Sprintf("%s?after_seq=%d&limit=%d", base, after+int64(len(recs)), limit))
	}
	cache := cacheRule(public, len(recs) == limit || over && len(recs) > 0)
	if tag := pageTag(after, recs); tag == "" {
		w.Header().Set("Cache-Control", cache)
	} else if web.NotModified(w, req, tag, cache) {
		return nil
	}
	web.WriteArray(w, recs)
	return nil
}

// over tells whether no more records come.
func (r *Replica) over() bool {
	row := r.Row()
	return row.Archived || row.State == Complete
}

// cacheRule is what caches may do with an answer about a room.
func cacheRule(public, final bool) string {
	switch {
	case !public:
		return web.CacheNever
	case final:
		return web.CacheFinal
	}
	return web.CacheAsk
}

// pageTag is the entity tag of a page of records: the place, the hash of the last
// record, which covers those before it, and which of them are withheld. It is "" for
// a page that has none: it may be empty for several reasons.
func pageTag(after int64, recs [][]byte) string {
	if len(recs) == 0 {
		return ""
	}
	last, err := parseStored(recs[len(recs)-1])
	if err != nil {
		return ""
	}
	tag := fmt.Appendf(nil, `"%d-%d-%s`, after, len(recs), last.Hash)
	for i, raw := range recs {
		if IsRedacted(raw) {
			tag = fmt.Appendf(tag, ".%d", i)
		}
	}
	if len(tag) > maxTag {
		sum := sha256.Sum256(tag)
		tag = append([]byte{'"'}, adp.Encode(sum[:])...)
	}
	return string(append(tag, '"'))
}

// maxTag bounds an entity tag, in bytes.
const maxTag = 256

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
func (r *Replica) ServeManifest(w http.ResponseWriter, req *http.Request, public bool) error {
	m, ok, err := r.Manifest()
	if err != nil {
		return err
	}
	if !ok {
		return adp.Errorf(adp.RoomNotActive, "the room has not ended: there is no archive yet")
	}
	web.WriteTagged(w, req, cacheRule(public, true), m)
	return nil
}

// ServeBundle answers GET …/archive.jsonl, or a range of its bytes. Its entity tag is
// bundle_cid. Where records are withheld it is not these bytes, and comes only as a
// whole.
func (r *Replica) ServeBundle(w http.ResponseWriter, req *http.Request, public bool) error {
	m, ok, err := r.Manifest()
	if err != nil {
		return err
	}
	if !ok {
		return adp.Errorf(adp.RoomNotActive, "the room has not ended: there is no archive yet")
	}
	if row := r.Row(); row.Dropped > 0 {
		return gone(row)
	}
	h := w.Header()
	h.Set("Content-Type", "application/jsonl; charset=utf-8")
	if n := r.Row().Withheld; n > 0 {
		h.Set("Witan-Withheld", strconv.FormatInt(n, 10))
		h.Set("Cache-Control", cacheRule(public, false))
		return cutShort(r.WriteBundle(w))
	}
	claim, err := adp.ParseClaim(m)
	if err != nil {
		return fmt.Errorf("replica %d: the manifest: %w", r.ID, err)
	}
	tag, cache := `"`+claim.BundleCID+`"`, cacheRule(public, true)
	if web.Ranged(req) {
		c, err := r.content(claim.BundleCID, adp.CodecRaw)
		if err != nil {
			return err
		}
		h.Set("ETag", tag)
		h.Set("Cache-Control", cache)
		// the length is declared: an answer that a failing disk cuts is seen to be cut
		http.ServeContent(w, req, "", time.Time{}, &seeker{ctx: req.Context(), c: c})
		return nil
	}
	h.Set("Accept-Ranges", "bytes")
	if web.NotModified(w, req, tag, cache) {
		return nil
	}
	h.Set("Content-Length", strconv.FormatInt(claim.BundleBytes, 10))
	if req.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return cutShort(r.WriteBundle(w))
}

// ServeMarkdown answers GET …/archive.md.
func (r *Replica) ServeMarkdown(w http.ResponseWriter, req *http.Request, url string, now int64, public bool) error {
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
	w.Header().Set("Cache-Control", cacheRule(public, false)) // a later version may write it in another way
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
