package index

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/web"
)

// Room is one room of an answer (federation: Answers of these endpoints). It has
// the contract under the names of the Room resource. Times are Unix ms.
//
// All text in it is what strangers wrote.
type Room struct {
	URL          string          `json:"url"`
	Origin       string          `json:"origin"`
	RoomID       string          `json:"room_id"`
	Genesis      string          `json:"genesis"`
	Topic        string          `json:"topic"`
	Agenda       string          `json:"agenda,omitempty"`
	Guidance     string          `json:"guidance,omitempty"`
	Visibility   string          `json:"visibility"`
	StartTime    int64           `json:"start_time"`
	EndTime      int64           `json:"end_time"`
	Tags         []string        `json:"tags,omitempty"`
	Language     string          `json:"language,omitempty"`
	Policy       json.RawMessage `json:"policy,omitempty"`
	Creator      string          `json:"creator"`
	CreatedAt    int64           `json:"created_at"`
	Status       string          `json:"status"`
	Members      int64           `json:"members"`
	Speakers     int64           `json:"speakers"`
	Records      int64           `json:"records"`
	LastActivity int64           `json:"last_activity"`
	Verdict      string          `json:"verdict"`
	State        string          `json:"state"`
	Reason       string          `json:"reason,omitempty"`
	Unverifiable int64           `json:"unverifiable"`
	Withheld     int64           `json:"withheld"`
	Attested     string          `json:"attested"`
	Attestations int64           `json:"attestations"`
	SyncedAt     int64           `json:"synced_at,omitempty"`
	Types        []string        `json:"types,omitempty"`
	Packs        []string        `json:"packs,omitempty"`

	Own       bool  `json:"-"` // hosted here
	Hidden    bool  `json:"-"` // held and not shown: JSON has only names, verdict, state and reason
	NoticedAt int64 `json:"-"` // when the newest of it came here
}

// MarshalJSON writes no more of a hidden room than what it is called and why it is
// not shown.
func (r Room) MarshalJSON() ([]byte, error) {
	if r.Hidden {
		return json.Marshal(struct {
			URL      string `json:"url"`
			Origin   string `json:"origin"`
			RoomID   string `json:"room_id"`
			Verdict  string `json:"verdict"`
			State    string `json:"state"`
			Reason   string `json:"reason,omitempty"`
			Attested string `json:"attested"`
			Hidden   bool   `json:"hidden"`
		}{r.URL, r.Origin, r.RoomID, r.Verdict, r.State, r.Reason, r.Attested, true})
	}
	type plain Room
	return adp.EncodeJSON(plain(r))
}

// Count is how many of the matching rooms have a value.
type Count struct {
	Value string `json:"value"`
	Count int64  `json:"count"`
}

// Result is one page of a list of rooms.
type Result struct {
	Rooms []Room
	// Facets are counts over all rooms that match, not only those of the page, by the
	// names that "facets" asked for; the most frequent values first, at most MaxFacet.
	Facets map[string][]Count
	// Next is the query of the next page, with its cursor; nil on the last page. A page
	// that has a next one may be shorter than the limit, or empty.
	Next url.Values
	// Note says in words how the answer is less than the query asked for; "" when it is
	// not.
	Note string
	// ETag is a weak entity tag of all the above: of Next, of the place that it leads to, and
	// of the rooms, of all but SyncedAt, which changes all the time while nothing is new.
	ETag string

	items [][]byte // the rooms as JSON
}

// Rooms answers a query for rooms. It is what GET /v1/index/rooms, pages, feeds and
// tools ask. What it does not understand is invalid_request with data.parameter;
// parameters that it does not know are ignored.
//
// Filters, each once and none empty: host or origin (an origin, or an
// authority), tag, status, language ("en" is also en-GB), q (all words in
// topic, agenda, guidance, tags or titles of types), keyword (ADP §18), creator,
// visibility, verdict, state, attested, joinable (true or false: public, not over
// and not full), types (a type, or a pack by ID or URI, of the registry), starts_after,
// ends_before, since and noticed_since (Unix ms, exclusive; since is about the last
// activity, noticed_since about when that came here).
//
// sort is activity (active, scheduled, ended, cancelled; in each the latest
// activity first), start (the earliest first) or relevance (with q). facets is a
// list of status, host, language and tag. limit is 20, and 200 at most. cursor is
// that of Next.
func (x *Index) Rooms(ctx context.Context, q url.Values) (*Result, error) {
	f, err := parseRooms(q, x.opts.Cursors)
	if err != nil {
		return nil, err
	}
	return x.answer(ctx, f)
}

// Own is Rooms for GET /v1/rooms/public (ADP §18): our own public and restricted
// rooms. It reads the filters that are named there, limit (20, and 100 at most)
// and cursor. The order is that of sort=activity.
func (x *Index) Own(ctx context.Context, q url.Values) (*Result, error) {
	f, err := parsePublic(q, x.opts.Cursors)
	if err != nil {
		return nil, err
	}
	return x.answer(ctx, f)
}

func (x *Index) answer(ctx context.Context, f *filter) (*Result, error) {
	now := x.opts.Now()
	s := x.finder(ctx, f, now)
	page, next, note, err := s.page()
	if err != nil {
		return nil, err
	}
	out := &Result{Rooms: make([]Room, 0, len(page)), items: make([][]byte, 0, len(page)), Note: note}
	for _, r := range x.current(s, page) {
		shown := x.shown(r, now)
		item, err := adp.EncodeJSON(shown)
		if err != nil {
			return nil, fmt.Errorf("index: encode room %s of %s: %w", shown.RoomID, shown.Origin, err)
		}
		out.Rooms, out.items = append(out.Rooms, shown), append(out.items, item)
	}
	if len(f.facets) > 0 {
		if out.Facets, note, err = s.facets(); err != nil {
			return nil, err
		}
		if note != "" && out.Note != "" {
			note = "; " + note
		}
		out.Note += note
	}
	if next != nil {
		x.held.hold(s.view, now)
		c := &cursor{at: s.at, view: s.view.version, place: *next}
		out.Next = maps.Clone(f.kept)
		out.Next.Set("cursor", c.seal(x.opts.Cursors, f.list))
	}
	lasting := *out
	lasting.items = make([][]byte, len(out.Rooms))
	for i, r := range out.Rooms {
		r.SyncedAt = 0
		if lasting.items[i], err = adp.EncodeJSON(r); err != nil {
			return nil, fmt.Errorf("index: encode room %s of %s: %w", r.RoomID, r.Origin, err)
		}
	}
	body, err := lasting.body()
	if err != nil {
		return nil, err
	}
	if next != nil { // not the cursor, which differs from one time to the next although nothing has changed
		body = append(body, (&cursor{place: *next}).bytes()...)
	}
	out.ETag = "W/" + web.Tag(body)
	return out, nil
}

// current is what the rooms of a page are now. On the snapshot of an earlier time, some
// may have gone, or not match any more.
func (x *Index) current(s *finder, page []found) []*row {
	rows := make([]*row, 0, len(page))
	var m *matcher
	var v *view
	for _, f := range page {
		r := f.row
		if s.old {
			if r = x.rows.get(r.id); r == nil {
				continue
			}
		}
		if r != f.row {
			if m == nil {
				m, v = x.rows.prepare(s.m.filter, s.m.now)
			}
			slots := x.rows.find([]id{r.id})
			if len(slots) == 0 {
				continue
			}
			c, i := v.at(slots[0])
			if c == nil || c.row[i] == nil || c.row[i].id != r.id || !m.columns(c, i) {
				continue
			}
			if r = c.row[i]; m.textual() && !m.texts(r.search(&s.buf), r.keywords) {
				continue
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// body is the answer as an object.
func (r *Result) body() ([]byte, error) {
	rooms := make([]json.RawMessage, len(r.items))
	for i, item := range r.items {
		rooms[i] = item
	}
	return adp.EncodeJSON(struct {
		Rooms  []json.RawMessage  `json:"rooms"`
		Facets map[string][]Count `json:"facets,omitempty"`
		Note   string             `json:"note,omitempty"`
	}{rooms, r.Facets, r.Note})
}

// NoteHeader is the header of an answer that has a note.
const NoteHeader = "Witan-Note"

// ServeRooms answers GET /v1/index/rooms, see Rooms: a bare array, or with facets an
// object of rooms, facets and note. Link names the next page; the note stands in a
// header, too.
func (x *Index) ServeRooms(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	out, err := x.Rooms(r.Context(), q)
	if err != nil {
		return err
	}
	if out.Next != nil {
		web.NextLink(w, x.opts.Own+"/v1/index/rooms?"+out.Next.Encode())
	}
	if out.Note != "" {
		w.Header().Set(NoteHeader, out.Note)
	}
	if web.NotModified(w, r, out.ETag, web.CacheAsk) {
		return nil
	}
	if out.Facets == nil {
		web.WriteArray(w, out.items)
		return nil
	}
	body, err := out.body()
	if err != nil {
		return err
	}
	web.WriteRaw(w, http.StatusOK, body)
	return nil
}

// Public is Own for a host that only needs the IDs, in order, and the cursor of the
// next page, "" when this is the last.
func (x *Index) Public(q url.Values) (ids []string, next string, err error) {
	out, err := x.Own(context.Background(), q)
	if err != nil {
		return nil, "", err
	}
	ids = make([]string, len(out.Rooms))
	for i, r := range out.Rooms {
		ids[i] = r.RoomID
	}
	return ids, out.Next.Get("cursor"), nil
}
