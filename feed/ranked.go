package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/internal/web"
)

// Bounds of what is ranked for one request.
const (
	pageRooms  = 200 // of one query of the index, its most
	mostPages  = 10  // of the rooms that were active last
	mostTags   = 16  // capabilities that are asked for as tags, a page each
	spare      = 50  // rooms beyond the limit that are asked whether they take the caller
	atOnce     = 2   // requests
	patience   = 10 * time.Second
	limitRooms = 100 // of an answer
	rooms      = 20  // when it does not say
)

// narrow are the filters of the index that the feed hands on.
var narrow = []string{"host", "origin", "tag", "status", "language", "q", "keyword", "creator", "attested", "types", "starts_after", "ends_before"}

// wish is a request for ranked rooms.
type wish struct {
	who       adp.AgentID
	in        Interests
	base      url.Values // for the index
	minScore  float64
	min       map[string]int64
	limit     int
	since     int64
	ownTag    bool // the query asks for one tag
	interests bool // there are any
}

// serveRanked answers GET /v1/feed: {"rooms": [{…the room of the index…, "match"}], "next", "note"}.
//
// capabilities and lang are lists with commas; without them, and with a request token,
// they are the interests that the caller has left. min_score, min_members, min_speakers,
// min_records and min_attestations leave out what has less. The filters of the index do
// what they do there; since is about when something new came here, Unix ms, and "next" is
// what to give there the next time: so what a host tells late is not missed.
func (f *Feed) serveRanked(w http.ResponseWriter, r *http.Request) error {
	wish, err := f.wish(r)
	if err != nil {
		return err
	}
	if err := f.take(r.Context()); err != nil {
		return err
	}
	defer func() { <-f.busy }()
	before := f.o.Now() - 1 // what comes in this very moment comes again the next time
	found, note, err := f.candidates(r.Context(), wish)
	if err != nil {
		return err
	}
	next := wish.since
	var list []ranked
	for _, rm := range found {
		next = max(next, min(rm.NoticedAt, before))
		if m := match(&wish.in, rm); takes(&wish.in, rm) && m.Score >= wish.minScore && wish.enough(rm) {
			list = append(list, ranked{*rm, m})
		}
	}
	slices.SortFunc(list, compare)
	all := len(list)
	list = f.open(r.Context(), wish, list)
	if more := all - len(list); wish.since > 0 && more > 0 && len(list) == wish.limit {
		note = strings.TrimPrefix(note+"; up to "+strconv.Itoa(more)+" rooms more have something new, and next is behind them: give a higher limit, or a narrower query, to see them", "; ")
	}
	body, err := wish.answer(list, next, note)
	if err != nil {
		return err
	}
	for i := range list {
		list[i].room.SyncedAt = 0 // it changes all the time, and makes no other feed
	}
	same, err := wish.answer(list, next, note)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Authorization")
	cache := web.CacheAsk
	if wish.who != "" {
		cache = web.CacheNever
	}
	if !web.NotModified(w, r, "W/"+web.Tag(same), cache) {
		web.WriteRaw(w, http.StatusOK, body)
	}
	return nil
}

// answer is the body of the answer to a wish.
func (wish *wish) answer(list []ranked, next int64, note string) ([]byte, error) {
	items := make([]json.RawMessage, len(list))
	for i, k := range list {
		var err error
		if items[i], err = k.encode(wish.interests); err != nil {
			return nil, err
		}
	}
	return adp.EncodeJSON(struct {
		Rooms []json.RawMessage `json:"rooms"`
		Next  int64             `json:"next"`
		Note  string            `json:"note,omitempty"`
	}{items, next, note})
}

// take waits until there are not too many requests at work: each one passes over many
// rooms.
func (f *Feed) take(ctx context.Context) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case f.busy <- struct{}{}:
		return nil
	case <-timer.C:
		return adp.Errorf(adp.RateLimited, "too many ask for their feed at once; try again in a while").With("retry_after", 30)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// encode adds the match to the JSON of a room.
func (k ranked) encode(matched bool) (json.RawMessage, error) {
	room, err := adp.EncodeJSON(k.room)
	if err != nil || !matched {
		return room, err
	}
	m, err := adp.EncodeJSON(k.match)
	if err != nil {
		return nil, err
	}
	return slices.Concat(room[:len(room)-1], []byte(`,"match":`), m, []byte("}")), nil
}

func (f *Feed) wish(r *http.Request) (*wish, error) {
	q, err := web.ParseQuery(r)
	if err != nil {
		return nil, err
	}
	out := &wish{base: url.Values{}, min: map[string]int64{}}
	if out.who, err = web.Caller(r, f.o.Origin, f.o.Now()/1000); err != nil {
		return nil, err
	}
	if out.who != "" {
		if out.in, _, err = f.interestsOf(out.who); err != nil {
			return nil, err
		}
	}
	for name, to := range map[string]*[]string{"capabilities": &out.in.Capabilities, "lang": &out.in.Languages} {
		s, err := web.String(q, name)
		if err != nil {
			return nil, err
		}
		if q.Has(name) {
			*to = slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return strings.TrimSpace(s) == "" })
		}
	}
	if out.in, err = out.in.check(); err != nil {
		return nil, err
	}
	out.interests = len(out.in.Capabilities)+len(out.in.Languages) > 0
	for _, name := range []string{"min_members", "min_speakers", "min_records", "min_attestations"} {
		if out.min[name], err = web.Int64(q, name, 0, adp.MaxInt, 0); err != nil {
			return nil, err
		}
	}
	s, err := web.String(q, "min_score")
	if err != nil {
		return nil, err
	}
	if s != "" {
		if out.minScore, err = strconv.ParseFloat(s, 64); err != nil || !(out.minScore >= 0 && out.minScore <= 1) {
			return nil, adp.Errorf(adp.InvalidRequest, "min_score is %.20q; give a number from 0 to 1", s).With("parameter", "min_score")
		}
	}
	if out.limit, err = web.Limit(q, rooms, limitRooms); err != nil {
		return nil, err
	}
	if out.since, err = web.Int64(q, "since", 0, adp.MaxInt, 0); err != nil {
		return nil, err
	}
	if q.Has("since") {
		out.base.Set("noticed_since", strconv.FormatInt(out.since, 10))
	}
	for _, name := range narrow {
		if v, ok := q[name]; ok {
			out.base[name] = v
		}
	}
	out.ownTag = out.base.Has("tag")
	out.base.Set("joinable", "true")
	out.base.Set("limit", strconv.Itoa(pageRooms))
	return out, nil
}

func (k *wish) enough(r *index.Room) bool {
	return r.Members >= k.min["min_members"] && r.Speakers >= k.min["min_speakers"] && r.Records >= k.min["min_records"] && r.Attestations >= k.min["min_attestations"]
}

// candidates are the rooms that were active last, and those whose tags are asked for;
// note says in words when there are more.
func (f *Feed) candidates(ctx context.Context, k *wish) (list map[string]*index.Room, note string, err error) {
	list = map[string]*index.Room{}
	take := func(q url.Values) (url.Values, error) {
		out, err := f.o.Rooms(ctx, q)
		if err != nil {
			return nil, err
		}
		note = cmp.Or(note, out.Note)
		for i := range out.Rooms {
			list[out.Rooms[i].URL] = &out.Rooms[i]
		}
		return out.Next, nil
	}
	q := k.base
	for n := 0; q != nil && n < mostPages; n++ {
		if q, err = take(q); err != nil {
			return nil, "", err
		}
	}
	if q == nil {
		return list, note, nil
	}
	note = fmt.Sprintf("there are more rooms than are ranked: these are from the %d that were active last, and from those whose tags are capabilities; narrow the query to see others", mostPages*pageRooms)
	if k.ownTag {
		return list, note, nil
	}
	for _, c := range k.in.Capabilities[:min(mostTags, len(k.in.Capabilities))] {
		q := url.Values{"tag": {c}}
		for name, v := range k.base {
			q[name] = v
		}
		if _, err := take(q); err != nil {
			return nil, "", err
		}
	}
	return list, note, nil
}

// open keeps, of a ranked list, the first rooms that take the caller.
func (f *Feed) open(ctx context.Context, k *wish, list []ranked) []ranked {
	if k.who == "" {
		return list[:min(k.limit, len(list))]
	}
	var out []ranked
	for i, r := range list {
		if len(out) == k.limit || i == k.limit+spare {
			break
		}
		if f.o.Open(ctx, r.room.Origin, r.room.RoomID, k.who) {
			out = append(out, r)
		}
	}
	return out
}
