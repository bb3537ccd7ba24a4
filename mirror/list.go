package mirror

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

const (
	maxListPage  = 16 << 20
	listPageSize = 100
	roomDepth    = adp.MaxDepth + 16 // a room resource holds schemas that were signed
)

// listedRoom is what a host says about one of its rooms.
type listedRoom struct {
	id, visibility, status string
	seq                    int64 // 0 when it does not say
	optOut                 bool  // it asks not to be mirrored, as the host says
	hash                   string
}

// sig is what changes when a room has news.
func (l listedRoom) sig() string { return fmt.Sprintf("%d %s %s", l.seq, l.hash, l.status) }

func (l listedRoom) over() bool {
	return l.status == string(room.Ended) || l.status == string(room.Cancelled)
}

func readListed(v adp.Value) (l listedRoom, ok bool) {
	l = listedRoom{id: v.Get("id").Text(), visibility: v.Get("visibility").Text(), status: v.Get("status").Text()}
	if seq, isInt := v.Get("seq").Int(); isInt && seq > 0 && adp.IsHash(v.Get("hash").Text()) {
		l.seq, l.hash = seq, v.Get("hash").Text()
	}
	l.optOut = l.visibility == room.Public && optsOut(v.Get("policy"))
	return l, adp.IsRoomID(l.id)
}

// list reads the room list, all pages. whole is false when it was not read to
// its end, so that a room that is missing may still be listed.
func (h *host) list(ctx context.Context) (rooms map[string]listedRoom, whole bool, err error) {
	rooms = map[string]listedRoom{}
	next := fmt.Sprintf("%s/rooms/public?limit=%d", h.api(), listPageSize)
	seen := map[string]bool{}
	note := ""
	for barren := 0; next != ""; {
		if seen[next] {
			note = "the room list leads back to a page that was read before"
			break
		}
		if barren == 3 {
			note = "the room list goes on without naming another room"
			break
		}
		seen[next] = true
		resp, err := h.get(ctx, next, maxListPage, apiType)
		var items []element
		if err == nil {
			items, err = split(resp.Body)
		}
		switch {
		case err == nil:
		case len(seen) == 1 || ctx.Err() != nil:
			return nil, false, fmt.Errorf("the room list: %w", err)
		default: // what the pages before it list is followed all the same
			h.remark(fmt.Sprintf("page %d of the room list: %v", len(seen), err))
			return rooms, false, nil
		}
		barren++
		for _, item := range items {
			v, err := adp.ScanDepth(item.raw, roomDepth)
			if err = cmp.Or(item.err, err); err != nil {
				note = fmt.Sprintf("the room list holds an entry that cannot be read: %v", err)
				continue
			}
			l, ok := readListed(v)
			if _, dup := rooms[l.id]; !ok || dup {
				continue
			}
			if len(rooms) >= h.m.o.RoomsPerHost {
				h.remark(fmt.Sprintf("the host lists more than %d rooms (mirror.rooms_per_host); the others are not followed", h.m.o.RoomsPerHost))
				return rooms, false, nil
			}
			rooms[l.id], barren = l, 0
			if l.visibility == room.Restricted || l.optOut {
				h.restrict(l.id, v)
			}
		}
		if next, err = nextPage(resp.URL, resp.Header, h.origin); err != nil {
			note = fmt.Sprintf("the room list: %v", err)
			break
		}
	}
	h.remark(note)
	return rooms, note == "", nil
}

// remark keeps what is odd about a host, and logs it once.
func (h *host) remark(note string) {
	h.mu.Lock()
	old := h.note
	h.note = note
	h.mu.Unlock()
	if note != "" && note != old {
		h.m.log.Warn("something is odd about a host", "origin", h.origin, "reason", note)
	}
}

// restrict passes on the metadata of a restricted room when it is new.
func (h *host) restrict(id string, v adp.Value) {
	if h.m.quarantined(h.origin, id) {
		return
	}
	sum := sha256.Sum256(v.Raw())
	h.mu.Lock()
	view, held := h.rooms[id]
	same := h.restricted[id] == string(sum[:])
	if held = held && view.r != nil; !held {
		h.restricted[id] = string(sum[:])
	}
	h.mu.Unlock()
	if !held && !same {
		h.m.o.Listed(h.origin, v)
	}
}

// unrestrict takes the metadata of restricted rooms back, of all when id is "". They
// are passed on again when the list is read and nothing is against it.
func (h *host) unrestrict(id string) {
	var ids []string
	h.mu.Lock()
	for one := range h.restricted {
		if id == "" || id == one {
			ids = append(ids, one)
			delete(h.restricted, one)
		}
	}
	h.mu.Unlock()
	for _, one := range ids {
		h.m.o.Unlisted(h.origin, one)
	}
}

// nextPage is the URL of the next page (RFC 8288), "" at the end. Another origin
// is an error: what it said could not be attributed to this one.
func nextPage(at string, header http.Header, origin string) (string, error) {
	for _, field := range header.Values("Link") {
		for link := range strings.SplitSeq(field, ",") {
			target, params, ok := strings.Cut(strings.TrimSpace(link), ">")
			if !ok || !strings.HasPrefix(target, "<") || !relNext(params) {
				continue
			}
			base, err := url.Parse(at)
			if err != nil {
				return "", err
			}
			u, err := base.Parse(target[1:])
			if err != nil {
				return "", errors.New("its Link header is not a URL")
			}
			if u.Scheme+"://"+u.Host != origin {
				return "", fmt.Errorf("its Link header leads to another origin, %.100s://%.100s", u.Scheme, u.Host)
			}
			u.Fragment = ""
			return u.String(), nil
		}
	}
	return "", nil
}

func relNext(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(strings.TrimSpace(name), "rel") {
			return slices.Contains(strings.Fields(strings.ToLower(strings.Trim(strings.TrimSpace(value), `"`))), "next")
		}
	}
	return false
}

// element is one element of an answer, or the rest of it from where it is no JSON
// any more. raw is a copy: one that is kept does not keep the page.
type element struct {
	raw []byte
	err error
}

// split takes a JSON array apart. One element that cannot be read does not spoil
// those before it: each is scanned strictly by itself afterwards.
func split(body []byte) (items []element, err error) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
		return nil, errors.New("the answer is not a JSON array")
	}
	v, bad := adp.ScanDepth(body, roomDepth+1)
	if bad == nil {
		for e := range v.Elements() {
			items = append(items, element{raw: bytes.Clone(e.Raw())})
		}
		return items, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		var raw json.RawMessage
		at := d.InputOffset()
		if err := d.Decode(&raw); err != nil {
			return append(items, element{bytes.Clone(bytes.TrimLeft(body[at:], ", \t\r\n")), bad}), nil
		}
		items = append(items, element{raw: raw})
	}
	if _, err := d.Token(); err != nil || len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
		items = append(items, element{bytes.Clone(body[d.InputOffset():]), bad})
	}
	return items, nil
}

// roomView is what we know of a public room of a host beside its replica. It is
// guarded by host.mu; a job owns the room while busy.
type roomView struct {
	id       string
	r        *replica.Replica // the one that the host tells now; nil before the first record
	busy     bool
	tried    string // sig of the last look
	stuck    bool   // it ended with a conclusion
	problem  string
	unsigned string // what others show of it and nobody has signed for, see hearsay.go
	failures int
	next     int64 // not before, Unix ms
	look     int64 // while it is not listed: not looked up before
	retryAt  int64 // when a stuck room is looked at again though nothing changed
	limit    int   // records a page
	archive  int   // looks for an archive that was not there
	listed   int64 // seq as listed last
	heeded   bool  // its contract was looked at for a wish about mirrors
	recheck  bool  // it may have taken that wish back
	mendAt   int64 // not before is asked for originals that the host withheld, see mend.go; 0: not decided
	mendFrom int64 // seq behind which it is

	// The relay, see feed.go and waiting.go.
	feed      []*news   // news that nobody has looked at yet, in order
	feedRecs  int       // records in it
	feedBytes int64     // of them
	queued    bool      // it is in host.feeding
	fedAt     int64     // when the relay last brought records, Unix ms
	held      []checked // records behind what is stored that nobody signed for
	heldBytes int64
	toKeep    []byte // a signed head that is newer than the stored one
	odd       string // hash of a signed head that is not of our chain, and was told
	askAt     int64  // nobody else is asked before, Unix ms

	// The live stream, see observer.go.
	streaming   bool
	streamFails int           // in a row
	streamAt    int64         // no stream before, Unix ms
	freed       chan struct{} // closed when the room is no longer busy; nil when nobody waits
}

// trouble says why the room cannot be followed now; what others show of it matters only
// while the host cannot be asked. host.mu is held.
func (v *roomView) trouble(h *host) string {
	if v.problem == "" && h.down.Load() {
		return v.unsigned
	}
	return v.problem
}

// compare sets work going on every room that is not as the host lists it, in a list
// that was asked for at began.
func (h *host) compare(ctx context.Context, rooms map[string]listedRoom, whole bool, began int64) (news bool, err error) {
	now := h.m.o.Now()
	synced := whole
	var work []func()
	h.mu.Lock()
	for id, l := range rooms {
		if l.visibility != room.Public {
			continue
		}
		v := h.rooms[id]
		if _, stopped := h.m.stopped(h.origin, id); stopped || l.optOut && (v == nil || v.r == nil) {
			if !h.mayReturn(v, l) || v.busy {
				continue
			}
			v.recheck = true
		} else if v != nil && !v.busy { // a job owns a busy room
			v.recheck = false
		}
		if v == nil {
			v = &roomView{id: id, limit: pageRecords}
			h.rooms[id] = v
		}
		v.listed = l.seq
		need, fresh, same := v.needs(l, now, began)
		synced = synced && same
		if need {
			v.busy = true
			work = append(work, func() { h.job(ctx, v, func(ctx context.Context) (listedRoom, error) { return l, h.sync(ctx, v, l) }) })
		} else if same && v.r != nil && v.mends(v.r.Row(), now) {
			v.busy = true
			work = append(work, func() { h.job(ctx, v, func(ctx context.Context) (listedRoom, error) { return l, h.mend(ctx, v) }) })
		}
		news = news || fresh
		if same && !v.busy && h.wantsStream(v, l, now) {
			work = append(work, func() { h.observe(v) })
		}
	}
	if whole {
		for id, v := range h.rooms {
			if l, ok := rooms[id]; ok && l.visibility == room.Public || v.busy || len(v.feed) > 0 {
				continue
			}
			if _, stopped := h.m.stopped(h.origin, id); stopped {
				continue
			}
			if v.r == nil {
				delete(h.rooms, id)
				continue
			}
			if now >= max(v.next, v.look) && v.r.Row().State != replica.Complete {
				v.busy = true
				work = append(work, func() { h.job(ctx, v, func(ctx context.Context) (listedRoom, error) { return h.lookUp(ctx, v) }) })
			}
		}
		for id := range h.restricted {
			if l, ok := rooms[id]; !ok || l.visibility != room.Restricted && !l.optOut {
				delete(h.restricted, id)
				work = append(work, func() { h.m.o.Unlisted(h.origin, id) })
			}
		}
	}
	lastSync := h.row.SyncedAt
	h.mu.Unlock()
	for _, do := range work {
		do()
	}
	if synced && now-lastSync >= time.Minute.Milliseconds() {
		if err := h.update(func(row *hostRow) { row.SyncedAt = now }); err != nil {
			return news, local(err)
		}
	}
	return news, nil
}

// needs tells whether a room wants work, whether the host shows something new,
// and whether the host and we agree. host.mu is held.
func (v *roomView) needs(l listedRoom, now, began int64) (need, fresh, same bool) {
	changed := l.sig() != v.tried
	waits := v.busy || now < v.next || v.stuck && !changed && now < v.retryAt
	if v.r == nil {
		return !waits, !waits && changed, false
	}
	row := v.r.Row()
	if row.Seq > l.seq && l.seq > 0 && v.fedAt >= began { // the relay was faster than the list
		return false, false, true
	}
	if row.Seq == 0 || row.Seq != l.seq || row.Hash != l.hash {
		return !waits, !waits && changed, false
	}
	if row.Verdict != replica.Forked {
		v.r.SyncedAt.Store(now)
	}
	dirty := row.Verdict == replica.Broken || row.State != replica.Following && row.State != replica.Complete || row.Verdict == "" && row.Reason != ""
	pending := l.over() && row.State != replica.Complete
	return !waits && (dirty || pending), !waits && pending, true
}

// job runs fn on a room in one of the host's slots, and keeps what came of it.
func (h *host) job(ctx context.Context, v *roomView, fn func(context.Context) (listedRoom, error)) {
	release, err := h.slot(ctx)
	if err != nil {
		return
	}
	h.jobs.Go(func() {
		defer release()
		l, err := fn(ctx)
		if ctx.Err() != nil {
			err = nil
		}
		h.finish(v, l, err)
	})
}

func (h *host) finish(v *roomView, l listedRoom, err error) {
	now := h.m.o.Now()
	var concluded stuckError
	h.mu.Lock()
	h.release(v)
	if l.id != "" {
		v.tried = l.sig()
	}
	was := v.problem
	v.stuck, v.problem = false, ""
	switch {
	case err == nil:
		v.failures = 0
	case errors.As(err, &concluded):
		v.stuck, v.problem, v.failures = true, err.Error(), 0
		v.retryAt = now + h.m.roomRetry.Milliseconds()
	default:
		v.failures++
		wait := h.m.o.PollMin << min(v.failures-1, 20)
		if wait <= 0 || wait > max(h.m.roomRetry, h.m.o.PollMin) {
			wait = max(h.m.roomRetry, h.m.o.PollMin)
		}
		v.problem = err.Error()
		v.next = now + jitter(wait).Milliseconds()
	}
	r, failures := v.r, v.failures
	h.mu.Unlock()
	switch {
	case err == nil, isLocal(err):
		if err != nil {
			h.m.log.Error("a room was not stored", "origin", h.origin, "room", v.id, "error", err)
		}
	case was == "":
		h.m.log.Info("a room cannot be followed now", "origin", h.origin, "room", v.id, "reason", err)
	}
	if r != nil && failures == 3 && !isLocal(err) { // not for a hiccup
		saved := h.m.save(r, nil, func(row *replica.Row) bool {
			if row.Verdict != "" || row.State != replica.Following || row.Reason == err.Error() {
				return false
			}
			row.Reason = err.Error()
			return true
		})
		if saved != nil {
			h.m.log.Error("the reason of a room was not stored", "origin", h.origin, "room", v.id, "error", saved)
		}
	}
}
