package mirror

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// Of a room that is restricted, or that is not copied because it, its host or the
// operator wants so, what the list of its host says is all that is kept, and so it is of
// a public room that waits to be copied longer than from one look at the list to the
// next. It is kept in the store, so that such a room is still listed here when its host
// is away at a start.

// Listed is what a host says about a room that it lists and that is not copied. Nothing
// of it is verified.
type Listed struct {
	RoomID     string          `json:"id"`
	Visibility string          `json:"visibility"` // restricted, or public
	Status     string          `json:"status,omitempty"`
	Topic      string          `json:"topic,omitempty"`
	Agenda     string          `json:"agenda,omitempty"`
	Guidance   string          `json:"guidance,omitempty"`
	Language   string          `json:"language,omitempty"`
	Creator    string          `json:"creator,omitempty"`
	Tags       []string        `json:"tags,omitempty"`
	Policy     json.RawMessage `json:"policy,omitempty"`
	StartTime  int64           `json:"start_time,omitempty"`
	EndTime    int64           `json:"end_time,omitempty"`
	CreatedAt  int64           `json:"created_at,omitempty"`
	Seq        int64           `json:"seq,omitempty"`
	ReceivedAt int64           `json:"received_at,omitempty"`
	Reason     string          `json:"reason,omitempty"` // why it is not to be copied although it is public; of one that waits, ""

	SeenAt  int64 `json:"-"` // when the host listed it last, Unix ms
	FoundAt int64 `json:"-"` // when it first said what it says now
}

// Bounds of what is kept of one room; hosts choose how much they say.
const (
	maxListedRow  = 8 << 10
	maxListedText = 2 << 10
	maxListedTags = 32
	maxListedTag  = 128
)

// listedRow is a Listed in the store, as keepListed writes it. at is when the host first said it.
type listedRow struct {
	At   int64           `json:"at"`
	Room json.RawMessage `json:"room"`
}

// seen is what is remembered of a room that is only listed.
type seen struct {
	sum [sha256.Size]byte // of listedRow.Room
	at  int64             // when it was listed last, Unix ms
}

// metadataOnly tells whether what the list says of a room is kept, and the reason when
// the room is public and will not be copied. host.mu is held.
func (h *host) metadataOnly(l listedRoom) (reason string, yes bool) {
	v := h.rooms[l.id]
	if v != nil && v.r != nil || h.m.dismissed(h.origin, l.id) {
		return "", false
	}
	whole := h.m.keepings.get(h.origin, "")
	switch {
	case l.visibility == room.Restricted:
		return "", true
	case l.visibility != room.Public:
		return "", false
	case whole.OptOut != "":
		return whole.OptOut, true
	case l.optOut:
		return roomOptsOut, true
	}
	if h.m.verified(h.origin, l.id) != nil {
		return "", false // says more
	}
	if reason, yes = h.m.stopped(h.origin, l.id); yes {
		return reason, true
	}
	_, told := h.listed[l.id]
	return "", told || v != nil && !v.busy // most rooms are copied before the second look
}

// encodeListed writes what is kept of a resource. What is cut to these lengths may still be six
// times as long in JSON; then the longest go, until it is within maxListedRow.
func encodeListed(l listedRoom, v adp.Value, reason string) (text json.RawMessage, err error) {
	words := func(name string) string { return shorten(v.Get(name).Text(), maxListedText) }
	num := func(name string) int64 { n, _ := v.Get(name).Int(); return n }
	out := Listed{RoomID: l.id, Visibility: l.visibility, Status: l.status, Topic: words("topic"), Agenda: words("agenda"), Guidance: words("guidance"),
		Language: shorten(v.Get("language").Text(), maxListedTag), Creator: shorten(v.Get("creator").Text(), maxListedTag),
		StartTime: num("start_time"), EndTime: num("end_time"), CreatedAt: num("created_at"), Seq: num("seq"), ReceivedAt: num("received_at"), Reason: reason}
	if p := v.Get("policy"); p.Kind() == adp.Object && len(p.Raw()) <= maxListedText { // cut it would say something else
		out.Policy = p.Raw()
	}
	for tag := range v.Get("tags").Elements() {
		if len(out.Tags) == maxListedTags {
			break
		}
		out.Tags = append(out.Tags, shorten(tag.Text(), maxListedTag))
	}
	for _, drop := range []func(){func() {}, func() { out.Guidance = "" }, func() { out.Tags = nil }, func() { out.Agenda = "" }, func() { out.Policy = nil }, func() { out.Topic = "" }} {
		drop()
		if text, err = adp.EncodeJSON(out); err != nil || len(text) <= maxListedRow {
			break
		}
	}
	return text, err
}

// shorten cuts a text to at most n bytes, between two characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// fresh is what a look at the list found of rooms that are only listed, and that is not
// in the store yet.
type fresh struct {
	rows []freshRow
	news int // rows of rooms that were not listed before
	size int
}

type freshRow struct {
	id   string
	sum  [sha256.Size]byte
	room json.RawMessage
}

// maxFresh bounds one write: only lists that are very long, or new, take more than one.
const (
	maxFresh     = 1 << 20
	maxFreshRows = 4096
)

// noteListed takes down what a list says about a room when only that is kept, and it is
// new.
func (h *host) noteListed(f *fresh, l listedRoom, v adp.Value, began int64) error {
	h.mu.Lock()
	reason, yes := h.metadataOnly(l)
	was, known := h.listed[l.id]
	full := !known && len(h.listed)+f.news >= h.m.o.RoomsPerHost // those that are listed no more go first, see settleListed
	h.mu.Unlock()
	if !yes || full {
		return nil
	}
	text, err := encodeListed(l, v, reason)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if known && was.sum == sum {
		return nil
	}
	if !known {
		f.news++
	}
	f.rows = append(f.rows, freshRow{l.id, sum, text})
	if f.size += len(text); f.size < maxFresh && len(f.rows) < maxFreshRows {
		return nil
	}
	h.meta.Lock()
	defer h.meta.Unlock()
	return h.keepListed(f, nil, began)
}

// settleListed brings what is kept of rooms that are only listed to what a look at the list,
// which began at began, has shown: that of rooms which are not listed so any more goes.
func (h *host) settleListed(l listing, began int64) error {
	h.meta.Lock()
	defer h.meta.Unlock()
	read := l.whole || l.crowded
	var gone []string
	h.mu.Lock()
	for id, was := range h.listed {
		now, shown := l.rooms[id]
		if !shown {
			if read {
				gone = append(gone, id)
			}
			continue
		}
		if _, yes := h.metadataOnly(now); !yes {
			gone = append(gone, id)
			continue
		}
		was.at = began
		h.listed[id] = was
	}
	h.mu.Unlock()
	if err := h.keepListed(&l.fresh, gone, began); err != nil {
		return err
	}
	h.mu.Lock()
	due := read && len(h.listed) > 0 && began-h.row.ListedAt >= rowEvery.Milliseconds()
	h.mu.Unlock()
	if !due {
		return nil
	}
	if err := h.update(func(row *hostRow) { row.ListedAt = began }); err != nil {
		return local(err)
	}
	return nil
}

// keepListed stores what is new, and lets go of what is gone, then tells of both.
// host.meta is held.
func (h *host) keepListed(f *fresh, gone []string, at int64) error {
	rows := slices.DeleteFunc(f.rows, func(r freshRow) bool { return h.m.dismissed(h.origin, r.id) }) // the operator may have spoken since
	*f = fresh{}
	for len(rows)+len(gone) > 0 {
		var b store.Batch
		put := rows[:min(len(rows), maxFreshRows)]
		for _, r := range put {
			b.Put(store.Listed(h.origin, r.id), fmt.Appendf(nil, `{"at":%d,"room":%s}`, at, r.room)) // to the byte: sum is of it
		}
		del := gone[:min(len(gone), maxFreshRows)]
		for _, id := range del {
			b.Delete(store.Listed(h.origin, id))
		}
		if err := h.m.o.Store.Commit(&b); err != nil {
			return local(fmt.Errorf("mirror: keep what %s lists: %w", h.origin, err))
		}
		h.mu.Lock()
		for _, r := range put {
			h.listed[r.id] = seen{r.sum, at}
		}
		for _, id := range del {
			delete(h.listed, id)
		}
		h.mu.Unlock()
		for _, r := range put {
			if err := h.tellListed(r.room, at, at); err != nil {
				return err
			}
		}
		for _, id := range del {
			h.m.unlist(h.origin, id)
		}
		rows, gone = rows[len(put):], gone[len(del):]
	}
	return nil
}

// tellListed passes on what is stored of a room: what is told at once and what is told
// after a start are the same. What was verified meanwhile is told of after it.
func (h *host) tellListed(text json.RawMessage, foundAt, seenAt int64) error {
	l := Listed{FoundAt: foundAt, SeenAt: seenAt}
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("mirror: what %s lists: %w", h.origin, err)
	}
	h.m.o.Listed(h.origin, l)
	if r := h.m.verified(h.origin, l.RoomID); r != nil {
		h.m.o.Changed(r)
	}
	return nil
}

// verified is the replica that is shown of a room; nil when there is none with records.
func (m *Mirror) verified(origin, roomID string) *replica.Replica {
	if r, ok := m.o.Replicas.Get(origin, roomID); ok && r.Row().Seq > 0 {
		return r
	}
	return nil
}

// unlist tells that nothing is listed of a room any more save what is held of it.
func (m *Mirror) unlist(origin, roomID string) {
	if r := m.verified(origin, roomID); r != nil {
		m.o.Changed(r)
	} else {
		m.o.Unlisted(origin, roomID)
	}
}

// delist lets go of what is kept of a room that is only listed, of all when id is "". It
// is kept again when the list is read and nothing is against it.
func (h *host) delist(id string) error {
	h.meta.Lock()
	defer h.meta.Unlock()
	return h.keepListed(&fresh{}, h.onlyListed(id), 0)
}

// onlyListed names the rooms that delist lets go of.
func (h *host) onlyListed(id string) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for one := range h.listed {
		if id == "" || id == one {
			ids = append(ids, one)
		}
	}
	return ids
}

// eachListed reads what is stored of the rooms that a host, or all for "", lists.
func (m *Mirror) eachListed(of string, fn func(origin, roomID string, row listedRow) error) error {
	return m.o.Store.View(func(r store.Reader) error {
		from, to := store.ListedRange(of)
		var bad error
		err := r.Scan(from, to, func(key, value []byte) bool {
			var row listedRow
			origin, roomID, err := store.ParseListed(key)
			if bad = errors.Join(err, json.Unmarshal(value, &row)); bad == nil {
				bad = fn(origin, roomID, row)
			}
			if bad != nil {
				bad = fmt.Errorf("listed room %q: %w", key, bad)
			}
			return bad == nil
		})
		return errors.Join(err, bad)
	})
}

// loadListed tells of the rooms that hosts listed before the start. What a crash left
// behind is let go of.
func (m *Mirror) loadListed() error {
	var left [][2]string
	err := m.eachListed("", func(origin, roomID string, row listedRow) error {
		h := m.hosts[origin]
		if h == nil || h.rooms[roomID] != nil || m.verified(origin, roomID) != nil || m.dismissed(origin, roomID) {
			left = append(left, [2]string{origin, roomID})
			return nil
		}
		at := max(row.At, h.row.ListedAt) // what was not in that list had gone before it was stored
		h.listed[roomID] = seen{sha256.Sum256(row.Room), at}
		return h.tellListed(row.Room, row.At, at)
	})
	for some := range slices.Chunk(left, maxFreshRows) {
		var b store.Batch
		for _, name := range some {
			b.Delete(store.Listed(name[0], name[1]))
		}
		if err := m.o.Store.Commit(&b); err != nil { // a daemon starts on a full disk, too
			m.log.Warn("what is listed no more was not deleted; the next start tries again", "rooms", len(some), "error", err)
			break
		}
	}
	return err
}

// Relist tells Listed again of every room that is only listed.
func (m *Mirror) Relist() error {
	for _, h := range m.followed() {
		if err := h.relist(); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) relist() error {
	h.meta.Lock()
	defer h.meta.Unlock()
	return h.m.eachListed(h.origin, func(_, roomID string, row listedRow) error {
		h.mu.Lock()
		was, ok := h.listed[roomID]
		h.mu.Unlock()
		if !ok {
			return nil
		}
		return h.tellListed(row.Room, row.At, was.at)
	})
}

// SeenAt is when a room that is only listed was listed by its host last, Unix ms. 0: no
// such room is known.
func (m *Mirror) SeenAt(origin, roomID string) int64 {
	h := m.host(origin)
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listed[roomID].at
}
