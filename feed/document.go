package feed

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/internal/web"
)

// list is what a feed shows: one page of the index.
type list struct {
	origin  string
	self    string // URL of the feed with its query
	id      string // of the feed: the URL of its first page
	next    string // of the next page; ""
	title   string
	updated int64 // Unix ms, the last activity of any
	rooms   []index.Room
}

// format renders a list.
type format struct {
	path, media string
	render      func(*list) ([]byte, error)
}

const (
	feedRooms = 50
	feedMost  = 100
)

// document answers a feed in a format: the rooms of GET /v1/index/rooms with its filters,
// at most feedMost of them. An answer has an ETag, and as Last-Modified the time at
// which it was first seen to be this one. The tag is a weak one: the link to the next page
// differs from one time to the next although nothing has changed.
func (f *Feed) document(as format) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := web.ParseQuery(r)
		if err != nil {
			return err
		}
		n, err := web.Limit(q, feedRooms, feedMost)
		if err != nil {
			return err
		}
		q.Set("limit", strconv.Itoa(n))
		q.Del("facets")
		out, err := f.o.Rooms(r.Context(), q)
		if err != nil {
			return err
		}
		l := list{origin: f.o.Origin, self: f.address(as.path, q), title: "Rooms known to " + authority(f.o.Origin)}
		first := url.Values{}
		for name, v := range q {
			if name != "cursor" {
				first[name] = v
			}
		}
		l.id = f.address(as.path, first)
		if out.Next != nil {
			l.next = f.address(as.path, out.Next)
		}
		for _, rm := range out.Rooms {
			if !rm.Hidden { // there is nothing to say of it
				rm.SyncedAt = 0 // it changes all the time, and makes no other feed
				l.rooms = append(l.rooms, rm)
				l.updated = max(l.updated, rm.LastActivity)
			}
		}
		if out.Note != "" {
			w.Header().Set(index.NoteHeader, out.Note)
		}
		body, err := as.render(&l)
		if err != nil {
			return err
		}
		l.next = ""
		same, err := as.render(&l)
		if err != nil {
			return err
		}
		if out.Next != nil {
			same = append(same, '+')
		}
		tag := "W/" + web.Tag(same)
		at := f.seen.at(l.self, tag, time.UnixMilli(f.o.Now()))
		h := w.Header()
		h.Set("Last-Modified", at.UTC().Format(http.TimeFormat))
		if since, err := http.ParseTime(r.Header.Get("If-Modified-Since")); err == nil && r.Header.Get("If-None-Match") == "" && !at.After(since) {
			h.Set("ETag", tag)
			h.Set("Cache-Control", web.CacheAsk)
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		if web.NotModified(w, r, tag, web.CacheAsk) {
			return nil
		}
		h.Set("Content-Type", as.media)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body) // the length is declared: a cut answer is seen to be cut
		return nil
	}
}

// address is the URL of a feed. The limit that it has anyway stays out.
func (f *Feed) address(path string, q url.Values) string {
	clean := url.Values{}
	for name, v := range q {
		if name != "limit" || v[0] != strconv.Itoa(feedRooms) {
			clean[name] = v
		}
	}
	if len(clean) == 0 {
		return f.o.Origin + path
	}
	return f.o.Origin + path + "?" + clean.Encode()
}

func authority(origin string) string { _, a, _ := strings.Cut(origin, "://"); return a }

// page is where a person reads the room: the page of this daemon, or, of a room whose
// metadata is all that is known here, the room at its host.
func (l *list) page(r *index.Room) string {
	if r.Genesis == "" {
		return r.URL
	}
	return l.origin + "/rooms/" + url.PathEscape(authority(r.Origin)) + "/" + url.PathEscape(r.RoomID)
}

// about is what the contract says of the room, in plain text.
func about(r *index.Room) string {
	text := strings.TrimSpace(r.Agenda)
	if g := strings.TrimSpace(r.Guidance); g != "" {
		text = strings.TrimSpace(text + "\n\n" + g)
	}
	if runes := []rune(text); len(runes) > 800 {
		text = string(runes[:799]) + "…"
	}
	return text
}

// standing is one line on how the room does, in our own words.
func standing(r *index.Room) string {
	line := r.Status + ", " + count(r.Members, "member") + ", " + count(r.Records, "record") + ", " + r.Verdict
	if r.Attested != "unattested" {
		line += ", " + r.Attested
	}
	return line
}

func count(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.FormatInt(n, 10) + " " + what
}

// stamp is a time by RFC 3339. Hosts say what they like; years have four digits there.
func stamp(ms int64) string {
	const last = 253402300799999 // 9999-12-31T23:59:59.999Z
	return time.UnixMilli(min(max(ms, 0), last)).UTC().Format("2006-01-02T15:04:05.000Z")
}

// languageTag is a language as it may stand in an attribute, "" when it is none.
func languageTag(s string) string {
	if len(s) > 35 {
		return ""
	}
	for part := range strings.SplitSeq(s, "-") {
		if part == "" || len(part) > 8 || strings.Trim(strings.ToLower(part), "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return ""
		}
	}
	if first, _, _ := strings.Cut(s, "-"); strings.Trim(strings.ToLower(first), "abcdefghijklmnopqrstuvwxyz") != "" {
		return ""
	}
	return s
}

// versions remembers when each feed became what it is, of the feeds that were asked for
// last.
type versions struct {
	mu   sync.Mutex
	of   map[string]version
	turn int64
}

type version struct {
	tag  string
	at   time.Time // whole seconds
	used int64
}

const maxVersions = 512

// at is when a feed was first seen with this tag. Two versions never have the same
// time, since clients ask by it.
func (v *versions) at(feed, tag string, now time.Time) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.turn++
	old, known := v.of[feed]
	if known && old.tag == tag {
		old.used = v.turn
		v.of[feed] = old
		return old.at
	}
	at := now.Truncate(time.Second)
	if known && !at.After(old.at) {
		at = old.at.Add(time.Second)
	}
	if v.of == nil {
		v.of = map[string]version{}
	}
	if !known && len(v.of) >= maxVersions {
		oldest := ""
		for name, k := range v.of {
			if oldest == "" || k.used < v.of[oldest].used {
				oldest = name
			}
		}
		delete(v.of, oldest)
	}
	v.of[feed] = version{tag, at, v.turn}
	return at
}
