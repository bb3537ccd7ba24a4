package messages

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/index/text"
)

func newWorld(t testing.TB, most int64) *world {
	w := &world{t: t, rooms: map[uint64]*held{}}
	w.open(filepath.Join(t.TempDir(), "messages"), most)
	t.Cleanup(func() { w.store.Close() })
	return w
}

func (w *world) flush() {
	w.t.Helper()
	if err := w.x.Flush(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) compact() {
	w.t.Helper()
	if err := w.store.Compact(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// find lists "room/seq" of all pages.
func (w *world) find(query string) string {
	w.t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for pages := 0; q != nil; pages++ {
		out, err := w.x.Search(context.Background(), q)
		if err != nil {
			w.t.Fatalf("%s: %v", query, err)
		}
		if pages > 2000 {
			w.t.Fatalf("%s: pages without end", query)
		}
		for _, e := range out.Events {
			names = append(names, fmt.Sprintf("%s/%d", e.RoomID, e.Seq))
		}
		q = out.Next
	}
	return strings.Join(names, " ")
}

func say(s string) any { return map[string]any{"content_type": "text/plain", "content": s} }

func TestWhatIsSearched(t *testing.T) {
	w := newWorld(t, 1000)
	a, b := w.room(1, "https://a.example"), w.room(2, "https://b.example")
	hash := adp.Encode(make([]byte, 32))
	w.say(a, 1, 1000, "message.create", say("Quorum of owls"))
	w.say(a, 2, 2000, "message.create", map[string]any{"content_type": "application/json", "content": map[string]any{"a": "deep", "b": []any{"owls", 1}}})
	w.say(a, 1, 3000, "proposal.create", map[string]any{"proposal_id": "p1", "title": "Feed the owls", "body": hash})
	w.say(a, 1, 4000, "room.close", map[string]any{"reason": "owls"}) // of the room, not of an agent
	w.say(b, 2, 2500, "message.create", say("联邦镜像的讨论，关于 owls"))
	w.flush()
	for query, want := range map[string]string{
		"q=owls": "room1/3 room2/1 room1/2 room1/1", "q=OWLS&limit=1": "room1/3 room2/1 room1/2 room1/1", "q=owl": "", "q=deep": "room1/2", "q=p1": "room1/3",
		"q=" + hash: "", "q=" + url.QueryEscape("镜像 讨论"): "room2/1", "q=" + url.QueryEscape("镜讨"): "", "q=quorum+owls": "room1/1", "q=quorum+feed": "",
		"q=owls&room=" + url.QueryEscape(b.URL): "room2/1", "q=owls&host=https://b.example": "room2/1", "q=owls&origin=https://c.example": "",
		"q=owls&author=" + agentOf(2): "room2/1 room1/2", "q=owls&author=" + agentOf(3): "", "q=owls&since=2000": "room1/3 room2/1", "q=owls&until=2500": "room1/2 room1/1",
		"q=owls&since=1999&until=2001": "room1/2", "q=owls&unknown=1": "room1/3 room2/1 room1/2 room1/1",
	} {
		if got := w.find(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, 1000)
	for query, parameter := range map[string]string{"": "q", "q=": "q", "q=...": "q", "q=a&q=b": "q", "q=" + strings.Repeat("a", maxQuery+1): "q", "q=" + strings.Repeat("a+", maxWords+1): "q",
		"q=a&host=x+y": "host", "q=a&host=a&origin=a": "origin", "q=a&author=me": "author", "q=a&since=x": "since", "q=a&until=1.5": "until", "q=a&limit=0": "limit",
		"q=a&cursor=AAAA": "cursor", "q=a&host=": "host"} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.x.Search(t.Context(), q)
		if e, ok := err.(*adp.Error); !ok || e.Code != adp.InvalidRequest || e.Data["parameter"] != parameter {
			t.Errorf("%s: %v", query, err)
		}
	}
	q := url.Values{"q": {"a"}, "room": {"https://nowhere.example/v1/rooms/x"}}
	if _, err := w.x.Search(t.Context(), q); adp.CodeOf(err) != adp.RoomNotFound {
		t.Errorf("a room that is not there: %v", err)
	}
}

func TestReleaseAndRestart(t *testing.T) {
	w := newWorld(t, 1000)
	r, gone := w.room(1, "https://a.example"), w.room(2, "https://a.example")
	w.say(r, 1, 1000, "message.create", say("an owl"))
	w.say(gone, 1, 1000, "message.create", say("an owl"))
	r.withheld[1] = true
	w.flush()
	if got := w.find("q=owl"); got != "room2/1" {
		t.Fatal(got)
	}
	delete(r.withheld, 1)
	w.x.Changed(1)
	w.flush()
	if got := w.find("q=owl"); got != "room2/1 room1/1" {
		t.Fatal(got)
	}
	delete(w.rooms, 2) // while nobody looked
	if err := w.x.Load(); err != nil {
		t.Fatal(err)
	}
	w.flush()
	if n, err := w.store.Len(); n != 1 || err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
	if n, err := w.x.Rebuild(t.Context(), []uint64{1}); n != 1 || err != nil || w.find("q=owl") != "room1/1" {
		t.Errorf("%d, %v, %s", n, err, w.find("q=owl"))
	}
}

// Above the bound, the oldest are not searched, and do not come back.
func TestBound(t *testing.T) {
	w := newWorld(t, 10)
	r := w.room(1, "https://a.example")
	for i := range 25 {
		w.say(r, 1, int64(1+i)*day/4, "message.create", say("an owl"))
	}
	w.flush()
	want := func(from, to int) (s string) {
		for seq := to; seq >= from; seq-- {
			s += fmt.Sprintf("room1/%d ", seq)
		}
		return strings.TrimSpace(s)
	}
	if got := w.find("q=owl"); got != want(16, 25) {
		t.Fatal(got)
	}
	w.say(r, 1, 100*day, "message.create", say("an owl"))
	r.withheld[20] = true // reads all anew
	w.x.Changed(1)
	w.flush()
	if got, n := w.find("q=owl"), len(strings.Fields(w.find("q=owl"))); n > 10 || strings.Contains(got, "room1/15") || !strings.Contains(got, "room1/26") {
		t.Error(got)
	}
}

// A word that more messages have than are looked up at once is answered day by day and
// hour by hour, and all of it by paging.
func TestCommonWord(t *testing.T) {
	w := newWorld(t, 1_000_000)
	const n = maxCandidates + 3000
	var put []text.Document
	r := w.room(1, "https://a.example")
	for i := range n {
		if i%1000 == 0 { // one in a thousand is there to be read; the others went since
			at := int64(i) * hour / 200
			w.say(r, 1, at, "message.create", say("an owl"))
			continue
		}
		k := key{int64(i) * hour / 200, 2, int64(i)}
		put = append(put, text.Document{ID: k.String(), Terms: []string{"owl", roomTerm(2), dayTerm(k.at), hourTerm(k.at)}})
	}
	for batch := range slices.Chunk(put, 5000) {
		if err := w.store.Apply(text.Change{Put: batch}); err != nil {
			t.Fatal(err)
		}
	}
	w.flush()
	got := strings.Fields(w.find("q=owl&limit=3"))
	if len(got) != n/1000 || got[0] != fmt.Sprintf("room1/%d", n/1000) || !slices.IsSortedFunc(got, func(a, b string) int {
		x, _ := strconv.Atoi(a[6:])
		y, _ := strconv.Atoi(b[6:])
		return cmp.Compare(y, x)
	}) {
		t.Errorf("%d: %v", len(got), got)
	}
	out, err := w.x.Search(t.Context(), url.Values{"q": {"owl"}})
	if err != nil || out.Note == "" || out.Next == nil {
		t.Errorf("a page that found little says nothing: %+v, %v", out, err)
	}
}

// common puts so many messages with some words into the first day that the words are
// common; the messages are gone since.
func (w *world) common(words ...string) {
	w.t.Helper()
	var put []text.Document
	for i := range int64(maxCandidates + 1) {
		k := key{i, 100, i}
		put = append(put, text.Document{ID: k.String(), Terms: append([]string{roomTerm(k.room), dayTerm(k.at), hourTerm(k.at)}, words...)})
	}
	for batch := range slices.Chunk(put, 5000) {
		if err := w.store.Apply(text.Change{Put: batch}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A page that is full with the last message of a day goes on in the day before.
func TestPageEndsWithADay(t *testing.T) {
	w := newWorld(t, 1_000_000)
	w.common("owl")
	r := w.room(1, "https://a.example")
	for i := range int64(6) { // two in each of three days
		w.say(r, 1, (10+i/2)*day+i, "message.create", say("an owl"))
	}
	w.flush()
	if got, want := w.find("q=owl&limit=2"), "room1/6 room1/5 room1/4 room1/3 room1/2 room1/1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A page that has looked through many days and found nothing leads to those before.
func TestPageOfEmptyDays(t *testing.T) {
	w := newWorld(t, 1_000_000)
	w.common("owl", "fox")
	r := w.room(1, "https://a.example")
	w.say(r, 1, 2*day, "message.create", say("an owl and a fox"))
	for i := range int64(maxDays + 50) {
		w.say(r, 1, (10+i)*day, "message.create", say("an owl"))
	}
	w.flush()
	if got := w.find("q=owl+fox"); got != "room1/1" {
		t.Errorf("found %q", got)
	}
}

// Whatever happens to rooms, a search finds what looking at every record that readers
// get would.
func TestAnySearchIsANaiveScan(t *testing.T) {
	dir, runs := t.TempDir(), 0
	words := []string{"owl", "Quorum", "联邦镜像", "straße", "x"}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		w := &world{t: t, rooms: map[uint64]*held{}}
		w.open(filepath.Join(dir, fmt.Sprint(runs)), 1_000_000)
		defer func() { w.store.Close() }()
		said := map[string]string{} // room/seq → text
		at := int64(1000)
		pick := func(t *rapid.T) *held {
			id := uint64(rapid.IntRange(1, 3).Draw(t, "room"))
			if r, ok := w.rooms[id]; ok {
				return r
			}
			return w.room(id, "https://a.example")
		}
		t.Repeat(map[string]func(*rapid.T){
			"say": func(t *rapid.T) {
				r := pick(t)
				s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 3).Draw(t, "words"), " ")
				at += rapid.Int64Range(1, day/2).Draw(t, "ms")
				w.say(r, 1, at, "message.create", say(s))
				said[fmt.Sprintf("%s/%d", r.RoomID, len(r.recs))] = s
			},
			"withhold or show": func(t *rapid.T) {
				r := pick(t)
				if len(r.recs) == 0 {
					t.Skip()
				}
				seq := int64(rapid.IntRange(1, len(r.recs)).Draw(t, "seq"))
				if r.withheld[seq] {
					delete(r.withheld, seq)
				} else {
					r.withheld[seq] = true
				}
				w.x.Changed(r.ID)
			},
			"hide or show": func(t *rapid.T) {
				r := pick(t)
				r.Shown = !r.Shown
				w.x.Changed(r.ID)
			},
			"drop": func(t *rapid.T) {
				r := pick(t)
				r.Dropped = rapid.Int64Range(r.Dropped, int64(len(r.recs))).Draw(t, "up to")
				w.x.Changed(r.ID)
			},
			"": func(t *rapid.T) {
				w.flush()
				asked := rapid.SliceOfN(rapid.SampledFrom([]string{"owl", "quorum", "镜像", "strasse", "absent"}), 1, 2).Draw(t, "q")
				var want []string
				for _, r := range w.rooms {
					for i := range r.recs {
						name, fits := fmt.Sprintf("%s/%d", r.RoomID, i+1), r.Shown && int64(i+1) > r.Dropped && !r.withheld[int64(i+1)]
						for _, a := range asked {
							fits = fits && strings.Contains(text.Fold(said[name]), a)
						}
						if fits {
							want = append(want, name)
						}
					}
				}
				got := strings.Fields(w.find("limit=2&q=" + url.QueryEscape(strings.Join(asked, " "))))
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Fatalf("%v: %v, want %v", asked, got, want)
				}
			},
		})
	})
}

func FuzzSearch(f *testing.F) {
	w := newWorld(f, 1000)
	r := w.room(1, "https://a.example")
	for i := range 30 {
		w.say(r, 1, int64(1+i)*hour, "message.create", say("an owl 联邦"))
	}
	w.flush()
	out, err := w.x.Search(f.Context(), url.Values{"q": {"owl"}})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"q=owl", out.Next.Encode(), "q=%zz", "q=owl&room=x", "q=a&since=-1&until=5", "q=" + url.QueryEscape("联"), "q=owl&author=" + agentOf(1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest("GET", "/v1/index/events", nil)
		req.URL.RawQuery = query
		err := w.x.ServeEvents(rec, req)
		if code := adp.CodeOf(err); err != nil && code != adp.InvalidRequest && code != adp.RoomNotFound {
			t.Fatalf("%q: %v", query, err)
		}
	})
}

// What one page may cost is bounded in bytes, too: long messages that have the parts of a
// word, and not the word, are read and found out.
func TestLongMessagesEndAPage(t *testing.T) {
	w := newWorld(t, 10_000)
	r := w.room(1, "https://a.example")
	long := []any{"镜像 像讨"} // and what is read, and is no word
	for range 4000 {
		long = append(long, adp.Encode(make([]byte, 32)))
	}
	w.say(r, 1, 1000, "message.create", say("镜像讨"))
	for i := range int64(60) {
		w.say(r, 1, 2000+i, "message.create", map[string]any{"content_type": "application/json", "content": long})
	}
	w.flush()
	q := url.Values{"q": {"镜像讨"}}
	out, err := w.x.Search(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Events) != 0 || out.Next == nil || out.Note == "" {
		t.Errorf("%d found, next %v, note %q: the whole index was read for one page", len(out.Events), out.Next, out.Note)
	}
	if got := w.find("q=" + url.QueryEscape("镜像讨")); got != "room1/1" {
		t.Errorf("over all pages: %q", got)
	}
}
