package messages

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/index/text"
	"github.com/witan-adp/witan/internal/web"
)

// Bounds of what one page may cost, whatever is asked for.
const (
	maxQuery      = 1024   // bytes of q
	maxWords      = 16     //
	maxCandidates = 20_000 // messages that are looked up at once; of more, days and hours are taken one by one
	maxRead       = 2000   // messages that are read
	maxReadBytes  = 8 << 20
	maxDays       = 400 // days that are looked through for words that many messages have
)

// Event is a message that was found. All text in it is what strangers wrote.
type Event struct {
	Room       string   `json:"room"` // URL at its host
	Origin     string   `json:"origin"`
	RoomID     string   `json:"room_id"`
	Seq        int64    `json:"seq"`
	Hash       string   `json:"hash"` // of the record
	Type       string   `json:"type"`
	Author     string   `json:"author"`
	ReceivedAt int64    `json:"received_at"` // Unix ms
	Snippet    string   `json:"snippet"`     // plain text
	Matches    [][2]int `json:"matches"`     // from, to: Unicode code points of the snippet
	Record     string   `json:"record"`      // where this daemon serves the record
	Proof      string   `json:"proof"`       // that it is in the room
}

// Result is one page.
type Result struct {
	Events []Event
	Next   url.Values // the query of the next page; nil on the last
	Note   string     // how the answer is less than was asked for
}

// query is what is asked for.
type query struct {
	words  []text.Word
	terms  []string
	host   []string // origins; more than one is an authority of any scheme
	author string
	room   uint64 // 0: any
	since  int64  // received later
	until  int64  // received earlier
	limit  int
	from   *key // behind which the page begins
	list   string
	kept   url.Values
}

func (x *Index) parse(q url.Values) (*query, error) {
	out := &query{kept: url.Values{}}
	refuse := func(name, format string, args ...any) error {
		return adp.Errorf(adp.InvalidRequest, "Query parameter %q "+format, append([]any{name}, args...)...).With("parameter", name)
	}
	given := map[string]string{}
	for _, name := range []string{"q", "room", "host", "origin", "author", "since", "until"} {
		if !q.Has(name) {
			continue
		}
		s, err := web.String(q, name)
		if err != nil {
			return nil, err
		}
		if s == "" {
			return nil, refuse(name, "is empty; give a value or leave it out.")
		}
		given[name] = s
		out.kept.Set(name, s)
	}
	words := given["q"]
	if words == "" {
		return nil, refuse("q", "is missing: give the words to search for.")
	}
	switch out.words = text.Words(words); {
	case len(words) > maxQuery || len(out.words) > maxWords:
		return nil, refuse("q", "asks for too much; give up to %d words in %d bytes.", maxWords, maxQuery)
	case len(out.words) == 0:
		return nil, refuse("q", "has no word to search for.")
	}
	for _, w := range out.words {
		out.terms = append(out.terms, w.Terms()...)
	}
	if s := given["room"]; s != "" {
		id, err := x.o.Find(s)
		if err != nil {
			return nil, err
		}
		out.room = id
		out.terms = append(out.terms, roomTerm(id))
	}
	if given["host"] != "" && given["origin"] != "" {
		return nil, refuse("origin", "means the same as \"host\"; give one of them.")
	}
	for _, name := range []string{"host", "origin"} {
		if s := given[name]; s != "" {
			if out.host = x.o.Origins(s); out.host == nil {
				return nil, refuse(name, "is neither an origin like https://example.org nor an authority like example.org:8443.")
			}
			if len(out.host) == 1 {
				out.terms = append(out.terms, hostTerm(out.host[0]))
			}
		}
	}
	if s := given["author"]; s != "" {
		if !adp.IsAgentID(s) {
			return nil, refuse("author", "is no Agent ID; give did:agent: and 43 base64url characters.")
		}
		out.author = s
		out.terms = append(out.terms, authorTerm(s))
	}
	var err error
	if out.since, err = web.Int64(q, "since", -adp.MaxInt, adp.MaxInt, math.MinInt64); err != nil {
		return nil, err
	}
	if out.until, err = web.Int64(q, "until", -adp.MaxInt, adp.MaxInt, math.MaxInt64); err != nil {
		return nil, err
	}
	out.list = "index/events?" + out.kept.Encode()
	if out.limit, err = web.Limit(q, 20, 100); err != nil {
		return nil, err
	}
	if q.Has("limit") {
		out.kept.Set("limit", strconv.Itoa(out.limit))
	}
	if q.Has("cursor") {
		s, err := web.String(q, "cursor")
		if err != nil {
			return nil, err
		}
		raw, err := x.o.Cursors.Open(out.list, s)
		if err != nil {
			return nil, err
		}
		k, ok := parseKey(string(raw))
		if !ok {
			return nil, refuse("cursor", "is of another version of this server; start again without it.")
		}
		out.from = &k
	}
	return out, nil
}

// Search answers a query for messages, the newest first: q (all words; required), room
// (the URL of one), host or origin, author, since and until (received_at, Unix ms,
// exclusive), limit (20, and 100 at most) and cursor. What it does not understand is
// invalid_request; other parameters are ignored.
func (x *Index) Search(ctx context.Context, values url.Values) (*Result, error) {
	q, err := x.parse(values)
	if err != nil {
		return nil, err
	}
	s := &search{x: x, q: q, ctx: ctx, rooms: map[uint64]*Room{}, out: &Result{Events: []Event{}}}
	names, common, err := x.o.Store.Find(ctx, q.terms, maxCandidates)
	switch {
	case err != nil:
		return nil, err
	case common:
		err = s.byTime()
	default:
		_, err = s.read(names)
	}
	if err != nil {
		return nil, err
	}
	if s.stopped != nil {
		s.out.Next = q.kept
		s.out.Next.Set("cursor", x.o.Cursors.Seal(q.list, []byte(s.stopped.String())))
	}
	return s.out, nil
}

// search is one query at work.
type search struct {
	x       *Index
	q       *query
	ctx     context.Context
	rooms   map[uint64]*Room // nil: not shown
	out     *Result
	looked  int
	bytes   int  // of the records that were looked at
	stopped *key // where the next page goes on
}

// read looks at messages that may match, the newest first, until the page is full.
func (s *search) read(names []string) (full bool, err error) {
	slices.SortFunc(names, func(a, b string) int { return bytes.Compare([]byte(b), []byte(a)) })
	last := s.q.from // of those before, on the day after this one
	for _, name := range names {
		k, ok := parseKey(name)
		if !ok || k.at <= s.q.since || k.at >= s.q.until || s.q.from != nil && name >= s.q.from.String() {
			continue
		}
		if len(s.out.Events) == s.q.limit { // there may be another one
			s.stopped = last
			return true, nil
		}
		if s.looked == maxRead || s.bytes >= maxReadBytes {
			s.out.Note = "not found quickly: this page has what was found so far; follow the link to the next page for more"
			s.stopped = last
			return true, nil
		}
		s.looked++
		if err := s.ctx.Err(); err != nil {
			return false, err
		}
		e, ok, err := s.event(k)
		if err != nil {
			return false, err
		}
		if ok {
			s.out.Events = append(s.out.Events, e)
		}
		last = &k
	}
	s.q.from = last // for the days that follow
	return false, nil
}

// byTime looks through one day after the other, and where a day has too many, through
// its hours.
func (s *search) byTime() error {
	days, err := s.x.o.Store.Terms("d:", "d;")
	if err != nil {
		return err
	}
	newest := s.q.until
	if s.q.from != nil {
		newest = min(newest, s.q.from.at)
	}
	n := 0
	for _, d := range slices.Backward(days) {
		if newest != math.MaxInt64 && d.Term > dayTerm(newest) || s.q.since != math.MinInt64 && d.Term < dayTerm(s.q.since) {
			continue
		}
		number, err := strconv.ParseInt(d.Term[2:], 10, 64)
		if err != nil {
			return fmt.Errorf("the term %q: %w", d.Term, err)
		}
		if n++; n > maxDays {
			s.out.Note = fmt.Sprintf("common words: answered from %d days; follow the link to the next page for older messages", maxDays)
			s.stopped = &key{(number+1)*day - 1, math.MaxUint64, math.MaxInt64} // before all of this day
			return nil
		}
		names, common, err := s.x.o.Store.Find(s.ctx, append(slices.Clone(s.q.terms), d.Term), maxCandidates)
		if err != nil {
			return err
		}
		if !common {
			if full, err := s.read(names); full || err != nil {
				return err
			}
			continue
		}
		for h := int64(day/hour - 1); h >= 0; h-- {
			// an hour is taken whole: it is bounded by how fast a disk takes messages
			names, _, err := s.x.o.Store.Find(s.ctx, append(slices.Clone(s.q.terms), hourTerm(number*day+h*hour)), math.MaxInt)
			if err != nil {
				return err
			}
			if full, err := s.read(names); full || err != nil {
				return err
			}
		}
	}
	return nil
}

// event reads a message as it is now, and judges it.
func (s *search) event(k key) (e Event, ok bool, err error) {
	r, known := s.rooms[k.room]
	if !known {
		look, held, err := s.x.o.Look(s.ctx, k.room)
		if err != nil {
			return e, false, err
		}
		if held && look.Shown {
			r = &look
		}
		s.rooms[k.room] = r
	}
	if r == nil || s.q.host != nil && !slices.Contains(s.q.host, r.Origin) {
		return e, false, nil
	}
	raw, held, err := s.x.o.Record(k.room, k.seq)
	if err != nil || !held {
		return e, false, err
	}
	s.bytes += len(raw)
	m, says, err := read(k.room, raw)
	if err != nil || !says || m.key != k || s.q.author != "" && m.author != s.q.author {
		return e, false, err
	}
	folded := text.Fold(m.text)
	for _, w := range s.q.words {
		if !w.In(folded) {
			return e, false, nil
		}
	}
	e = Event{Room: r.URL, Origin: r.Origin, RoomID: r.RoomID, Seq: m.seq, Hash: m.hash, Type: m.typ, Author: m.author, ReceivedAt: m.at,
		Record: fmt.Sprintf("%s/events?after_seq=%d&limit=1", r.Base, m.seq-1), Proof: fmt.Sprintf("%s/proof?seq=%d", r.Base, m.seq)}
	e.Snippet, e.Matches = text.Snippet(m.text, s.q.words)
	return e, true, nil
}

// NoteHeader is the header of an answer that has a note.
const NoteHeader = "Witan-Note"

// ServeEvents answers GET /v1/index/events, see Search: a bare array. Link names the
// next page.
func (x *Index) ServeEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	out, err := x.Search(r.Context(), q)
	if err != nil {
		return err
	}
	if out.Next != nil {
		web.NextLink(w, x.o.Own+"/v1/index/events?"+out.Next.Encode())
	}
	if out.Note != "" {
		w.Header().Set(NoteHeader, out.Note)
	}
	body, err := adp.EncodeJSON(out.Events)
	if err != nil {
		return err
	}
	web.WriteTagged(w, r, web.CacheAsk, body)
	return nil
}
