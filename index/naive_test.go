package index

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/index/text"
)

// naive is the list of rooms by the words of the documentation: every room is looked at,
// with nothing that the index has.
type naive map[string]Doc

func (n naive) status(d Doc, now int64) string {
	t := max(now, d.LastActivity)
	switch {
	case d.Hidden:
		return ""
	case d.Cancelled:
		return "cancelled"
	case d.Closed || t >= d.EndTime && t >= d.StartTime:
		return "ended"
	case t < d.StartTime:
		return "scheduled"
	}
	return "active"
}

func (n naive) fits(d Doc, q url.Values, now int64) bool {
	searched := []string{d.Topic, d.Agenda}
	searched = append(searched, d.Tags...)
	is := func(name, value string) bool { return !q.Has(name) || q.Get(name) == value }
	number := func(name string) int64 {
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	status := n.status(d, now)
	joinable := d.Visibility == "public" && (status == "active" || status == "scheduled") && (string(d.Policy) != noMore || d.Speakers < 2)
	language := strings.ToLower(d.Language)
	first, _, _ := strings.Cut(language, "-")
	switch {
	case !is("status", status), !is("verdict", d.Verdict), !is("state", d.State), !is("attested", cmp.Or(d.Attested, "unattested")), !is("visibility", d.Visibility),
		!is("host", d.Origin), !is("creator", d.Creator), !is("joinable", fmt.Sprint(joinable)),
		q.Has("tag") && !slices.Contains(d.Tags, q.Get("tag")),
		q.Has("types") && !slices.Contains(d.Types, q.Get("types")) && !slices.Contains(d.Packs, q.Get("types")),
		q.Has("language") && language != q.Get("language") && first != q.Get("language"),
		q.Has("starts_after") && d.StartTime <= number("starts_after"), q.Has("ends_before") && d.EndTime >= number("ends_before"),
		q.Has("since") && d.LastActivity <= number("since"),
		q.Has("keyword") && !slices.ContainsFunc(searched, func(s string) bool { return strings.Contains(text.Fold(s), text.Fold(q.Get("keyword"))) }):
		return false
	}
	if q.Has("q") {
		searched = append(append(searched, d.Guidance), d.Titles...)
		for _, w := range text.Words(q.Get("q")) {
			if !slices.ContainsFunc(searched, func(s string) bool { return w.In(text.Fold(s)) }) {
				return false
			}
		}
	}
	return true
}

// find lists the names of the rooms in order; of relevance it knows no order.
func (n naive) find(q url.Values, now int64) (names []string) {
	var list []Doc
	for _, d := range n {
		if n.fits(d, q, now) {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b Doc) int {
		if q.Get("sort") == "start" {
			return cmp.Or(cmp.Compare(a.StartTime, b.StartTime), cmp.Compare(a.URL, b.URL))
		}
		ranks := []string{"active", "scheduled", "ended", "cancelled", ""}
		return cmp.Or(cmp.Compare(slices.Index(ranks, n.status(a, now)), slices.Index(ranks, n.status(b, now))), cmp.Compare(b.LastActivity, a.LastActivity), cmp.Compare(a.URL, b.URL))
	})
	for _, d := range list {
		names = append(names, d.URL)
	}
	return names
}

func (n naive) facet(name string, q url.Values, now int64) map[string]int64 {
	out := map[string]int64{}
	for _, d := range n {
		if !n.fits(d, q, now) || d.Hidden && name != facetHost {
			continue
		}
		switch name {
		case facetStatus:
			out[n.status(d, now)]++
		case facetHost:
			out[d.Origin]++
		case facetLanguage:
			if l, _, _ := strings.Cut(strings.ToLower(d.Language), "-"); l != "" {
				out[l]++
			}
		case facetTag:
			for _, tag := range d.Tags {
				out[tag]++
			}
		}
	}
	return out
}

var (
	drawWord   = rapid.SampledFrom([]string{"quorum", "Quorum", "mirrors", "STRASSE", "straße", "联邦", "镜像", "联邦镜像的讨论", "v2", "サーバー", "a", "go-lang", "é"})
	drawOrigin = rapid.SampledFrom([]string{ownOrigin, "https://a.example", "https://b.example:8443"})
	drawTag    = rapid.SampledFrom([]string{"one", "two", "three", "four", "five", "six", "Two"})
	drawType   = rapid.SampledFrom([]string{"poll.create", "poll.vote", "x.y"})
	drawLang   = rapid.SampledFrom([]string{"", "en", "en-GB", "EN-us", "zh", "de"})
	drawPack   = rapid.SampledFrom([]string{"adp:deliberation/1.0", "https://packs.example/p.json"})
)

// noMore is a policy of a room in which two may speak, and nobody may watch.
const noMore = `{"max_speakers":2,"observer_allowed":false}`

func drawDoc(t *rapid.T) Doc {
	words := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(drawWord, 0, 4).Draw(t, "words"), " ") })
	d := Doc{Origin: drawOrigin.Draw(t, "origin"), RoomID: fmt.Sprintf("r%02d", rapid.IntRange(0, 30).Draw(t, "id")), Genesis: "g",
		Topic: words.Draw(t, "topic"), Agenda: words.Draw(t, "agenda"), Guidance: words.Draw(t, "guidance"),
		Visibility: rapid.SampledFrom([]string{"public", "public", "restricted", "private"}).Draw(t, "visibility"), Language: drawLang.Draw(t, "language"),
		Creator: agent(rapid.IntRange(1, 3).Draw(t, "creator")), Tags: rapid.SliceOfNDistinct(drawTag, 0, 6, rapid.ID[string]).Draw(t, "tags"),
		StartTime: start + rapid.Int64Range(-10, 20).Draw(t, "start"), LastActivity: start + rapid.Int64Range(-5, 5).Draw(t, "activity"),
		Closed: rapid.IntRange(0, 4).Draw(t, "closed") == 0, Cancelled: rapid.IntRange(0, 9).Draw(t, "cancelled") == 0, Hidden: rapid.IntRange(0, 9).Draw(t, "hidden") == 0,
		Verdict: rapid.SampledFrom([]string{"verified", "forked"}).Draw(t, "verdict"), State: rapid.SampledFrom(states).Draw(t, "state"),
		Attested: rapid.SampledFrom(append(attesteds, "")).Draw(t, "attested"), Packs: rapid.SliceOfNDistinct(drawPack, 0, 2, rapid.ID[string]).Draw(t, "packs")}
	d.Speakers, d.Policy = rapid.Int64Range(0, 3).Draw(t, "speakers"), json.RawMessage(rapid.SampledFrom([]string{"", noMore, `{"max_speakers":2}`, `{"observer_allowed":false}`}).Draw(t, "policy"))
	d.EndTime = d.StartTime + rapid.Int64Range(1, 20).Draw(t, "length")
	d.URL, d.Own = d.Origin+"/v1/rooms/"+d.RoomID, d.Origin == ownOrigin
	for _, typ := range rapid.SliceOfNDistinct(drawType, 0, 3, rapid.ID[string]).Draw(t, "types") {
		d.Types, d.Titles = append(d.Types, typ), append(d.Titles, drawWord.Draw(t, "title"))
	}
	return d
}

func drawQuery(t *rapid.T) url.Values {
	q := url.Values{}
	maybe := func(name string, g *rapid.Generator[string]) {
		if rapid.IntRange(0, 6).Draw(t, name+"?") == 0 {
			if s := g.Draw(t, name); s != "" {
				q.Set(name, s)
			}
		}
	}
	number := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(start + rapid.Int64Range(-10, 30).Draw(t, "n")) })
	filters := map[string]*rapid.Generator[string]{"status": rapid.SampledFrom(statuses), "verdict": rapid.SampledFrom(verdicts), "state": rapid.SampledFrom(states),
		"attested": rapid.SampledFrom(attesteds), "visibility": rapid.SampledFrom(visibilities), "host": drawOrigin, "joinable": rapid.SampledFrom([]string{"true", "false"}),
		"creator": rapid.Map(rapid.IntRange(1, 4), agent), "tag": drawTag, "types": rapid.OneOf(drawType, drawPack), "language": rapid.Map(drawLang, strings.ToLower),
		"starts_after": number, "ends_before": number, "since": number, "keyword": rapid.OneOf(drawWord, rapid.SampledFrom([]string{"uor", "邦", "ss"})), "sort": rapid.SampledFrom([]string{"activity", "start"})}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		maybe(name, filters[name])
	}
	if rapid.IntRange(0, 2).Draw(t, "words?") == 0 {
		q.Set("q", strings.Join(rapid.SliceOfN(rapid.OneOf(drawWord, rapid.SampledFrom([]string{"absent", "邦", "像的"})), 1, 3).Draw(t, "q"), " "))
		if rapid.Bool().Draw(t, "relevance") {
			q.Set("sort", "relevance")
		}
	}
	return q
}

// list reads a list to its end.
func list(t *rapid.T, x *Index, q url.Values) (names []string) {
	for pages := 0; q != nil; pages++ {
		if pages > 200 {
			t.Fatalf("pages without end: %v", q)
		}
		page, err := x.Rooms(context.Background(), q)
		if err != nil {
			t.Fatalf("%v: %v", q, err)
		}
		if page.Note != "" {
			t.Fatalf("%v: %s", q, page.Note)
		}
		for _, r := range page.Rooms {
			names = append(names, r.URL)
		}
		q = page.Next
	}
	return names
}

// Whatever happens to rooms, and whether their words are written to the text index yet
// or not, any query answers as looking at all rooms would; and so does the index after
// it was rebuilt, or built anew over the same store.
func TestAnyQueryIsANaiveScan(t *testing.T) {
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		path := filepath.Join(dir, fmt.Sprint(runs))
		store, _, err := text.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { store.Close() }()
		c := &clock{start}
		build := func() *Index {
			return New(Options{Cursors: testCursors, Own: ownOrigin, Now: c.now, Text: store})
		}
		x, all := build(), naive{}
		load := func(x *Index, docs map[string]Doc) {
			if err := x.Load(); err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				x.Put(d)
			}
			x.Loaded()
		}
		load(x, nil)
		ask := func() {
			q := drawQuery(t)
			q.Set("limit", fmt.Sprint(rapid.IntRange(1, 30).Draw(t, "limit")))
			want, got := all.find(q, c.ms), list(t, x, q)
			if q.Get("sort") == "relevance" {
				slices.Sort(want)
				slices.Sort(got)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%v at %d\n got %v\nwant %v", q, c.ms, got, want)
			}
			q.Set("facets", strings.Join(facetNames, ","))
			page, err := x.Rooms(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range facetNames {
				counts, want := page.Facets[name], all.facet(name, q, c.ms)
				for _, n := range counts {
					if want[n.Value] != n.Count {
						t.Fatalf("%v: facet %s: %v, want %v", q, name, counts, want)
					}
				}
				if len(counts) != len(want) {
					t.Fatalf("%v: facet %s: %v, want %v", q, name, counts, want)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "rooms") {
					d := drawDoc(t)
					x.Put(d)
					if delete(all, d.URL); d.Visibility != "private" {
						if all[d.URL] = d; d.Hidden {
							all[d.URL] = Doc{Origin: d.Origin, RoomID: d.RoomID, URL: d.URL, Visibility: d.Visibility, Verdict: d.Verdict, State: d.State, Attested: d.Attested, Hidden: true}
						}
					}
				}
			},
			"remove": func(t *rapid.T) {
				d := drawDoc(t)
				x.Remove(d.Origin, d.RoomID)
				delete(all, d.URL)
			},
			"attest": func(t *rapid.T) {
				d, state := drawDoc(t), rapid.SampledFrom(attesteds).Draw(t, "state")
				x.SetAttested(d.Origin, d.RoomID, 1, state)
				if held, ok := all[d.URL]; ok {
					held.Attested = state
					all[d.URL] = held
				}
			},
			"time passes": func(t *rapid.T) { c.ms += rapid.Int64Range(0, 15).Draw(t, "ms") },
			"write": func(t *rapid.T) {
				if err := x.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
			},
			"rebuild": func(t *rapid.T) {
				if _, err := x.Rebuild(context.Background()); err != nil {
					t.Fatal(err)
				}
			},
			"restart": func(t *rapid.T) {
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				if store, _, err = text.Open(path, nil); err != nil {
					t.Fatal(err)
				}
				x = build()
				load(x, all)
			},
			"": func(t *rapid.T) { ask() },
		})
	})
}
