package page

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/witan-adp/witan/internal/web"
)

// searchFields are the parameters of the search, which are those of
// GET /v1/index/rooms.
var searchFields = []string{"q", "status", "host", "language", "tag", "types", "verdict", "attested", "joinable", "since", "sort", "creator", "cursor"}

// faceted are the fields whose values are counted beside a search.
const faceted = "status,host,language,tag"

// saidShown is how many messages a search shows beside the rooms.
const saidShown = "5"

// spans are how far back "since" can reach, by what stands for them in an address. It
// takes a time in Unix ms, too, as the index does.
var spans = map[string]time.Duration{"1h": time.Hour, "1d": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour}

// sinceWord says in words what "since" is.
func sinceWord(value string) string {
	if _, ok := spans[value]; ok {
		return t("since." + value)
	}
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil || ms < 0 || ms > lastTime {
		return value
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04 UTC")
}

// roomsView is what the page of a search shows.
type roomsView struct {
	*RoomList
	Q        map[string]string
	Active   []chip
	Facets   []facetView
	NextPage string
	Filtered bool
	Paged    bool // not the first page
	Said     []Said
}

// chip is a filter that is set, and the search without it.
type chip struct{ Name, Value, Without string }

type facetView struct {
	Name   string
	Values []facetValue
}

type facetValue struct {
	Value  string
	Count  int64
	Chosen bool
	Href   string // the search with it, or without it when it is chosen
}

// serveRooms answers GET /rooms. A form sends its empty fields too; they ask for
// nothing.
func (s *Site) serveRooms(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	asked := url.Values{}
	v := roomsView{Q: map[string]string{}}
	for _, name := range searchFields {
		value, err := web.String(q, name)
		if err != nil {
			return err
		}
		if value = strings.TrimSpace(value); value != "" {
			asked.Set(name, value)
			v.Q[name] = value
		}
	}
	search := clone(asked)
	if back, ok := spans[v.Q["since"]]; ok {
		asked.Set("since", strconv.FormatInt(s.now()-back.Milliseconds(), 10))
	}
	asked.Set("limit", "25")
	asked.Set("facets", faceted)
	if v.RoomList, err = s.src.Rooms(r.Context(), asked); err != nil {
		return err
	}
	v.Paged, v.Filtered = search.Has("cursor"), v.Q["q"] != ""
	if v.Q["q"] != "" && !v.Paged {
		said := url.Values{"q": {v.Q["q"]}, "limit": {saidShown}}
		if host := v.Q["host"]; host != "" {
			said.Set("host", host)
		}
		if v.Said, err = s.src.Said(r.Context(), said); err != nil {
			return err
		}
	}
	search.Del("cursor")
	if v.Next != "" {
		further := clone(search)
		if since := asked.Get("since"); since != "" {
			further.Set("since", since) // the pages of a list have one beginning
		}
		v.NextPage = with(further, "cursor", v.Next)
	}
	for _, name := range searchFields {
		if value := search.Get(name); value != "" && name != "q" {
			v.Active = append(v.Active, chip{Name: name, Value: chosenWord(name, value), Without: with(search, name, "")})
			v.Filtered = v.Filtered || name != "sort"
		}
	}
	for _, f := range v.RoomList.Facets {
		x := facetView{Name: f.Name}
		for _, value := range f.Values {
			chosen := search.Get(f.Name) == value.Value
			to := value.Value
			if chosen {
				to = ""
			}
			x.Values = append(x.Values, facetValue{Value: value.Value, Count: value.Count, Chosen: chosen, Href: with(search, f.Name, to)})
		}
		if len(x.Values) > 0 {
			v.Facets = append(v.Facets, x)
		}
	}
	return s.serve(w, r, "rooms", Frame{Title: t("rooms.title"), Section: "rooms", Page: v})
}

// chosenWord is a value as the form names it.
func chosenWord(field, value string) string {
	switch {
	case field == "joinable" && value == "true":
		return t("yes")
	case field == "joinable" && value == "false":
		return t("no")
	case field == "sort":
		return t("sort." + value)
	case field == "since":
		return sinceWord(value)
	case slices.Contains(words(field), value):
		return t("word." + value)
	}
	return value
}

func clone(q url.Values) url.Values {
	out := url.Values{}
	for name, values := range q {
		out[name] = slices.Clone(values)
	}
	return out
}

// with is a search with another value of one field, none for "".
func with(q url.Values, name, value string) string {
	out := clone(q)
	if out.Set(name, value); value == "" {
		out.Del(name)
	}
	if len(out) == 0 {
		return "/rooms"
	}
	return "/rooms?" + out.Encode()
}
