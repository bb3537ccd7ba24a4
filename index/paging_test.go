package index

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func sorted(words string) string {
	list := strings.Fields(words)
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestOrder(t *testing.T) {
	at := func(origin, id string, activity int64, with func(*Doc)) Doc {
		return doc(id, func(d *Doc) {
			d.Origin, d.LastActivity, d.Own = origin, activity, true
			if with != nil {
				with(d)
			}
		})
	}
	scheduled := func(d *Doc) { d.StartTime, d.EndTime = start+800, start+900 }
	x, clock := newIndex(start+500,
		at("https://b.example", "n1", start+9, func(d *Doc) { d.Cancelled = true }),
		at("https://b.example", "e1", start+400, func(d *Doc) { d.Closed = true }),
		at("https://b.example", "e2", start+100, func(d *Doc) { d.EndTime = start + 500 }), // the end is not part of it
		at("https://b.example", "s1", start+300, scheduled),
		at("https://b.example", "s2", start+301, scheduled),
		at("https://b.example", "a1", start+200, nil),
		at("https://b.example", "a3", start+200, nil),
		at("https://a.example", "a2", start+200, nil),
		at("https://b.example", "a0", start+10, func(d *Doc) { d.StartTime = start + 500 }), // the start is
	)
	// by URL, a2 of a.example comes before a1 of b.example; by ID it does not
	if got := roomIDs(t, x, ""); got != "a2 a1 a3 a0 s2 s1 e1 e2 n1" {
		t.Errorf("index: %s", got)
	}
	if got := publicIDs(t, x, ""); got != "a1 a2 a3 a0 s2 s1 e1 e2 n1" {
		t.Errorf("public: %s", got)
	}
	if got := roomIDs(t, x, "sort=start"); got != "a2 a1 a3 e1 e2 n1 a0 s1 s2" {
		t.Errorf("by start: %s", got)
	}
	clock.ms = start + 850 // s1 and s2 have begun
	if got := roomIDs(t, x, ""); got != "s2 s1 a2 a1 a3 a0 e1 e2 n1" {
		t.Errorf("later: %s", got)
	}
	clock.ms = start + 950 // and are over
	if got := roomIDs(t, x, "status=active"); got != "a2 a1 a3 a0" {
		t.Errorf("later still: %s", got)
	}
}

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		now  int64
		with func(*Doc)
		want string
	}{
		{start - 1, func(d *Doc) { d.LastActivity = 0 }, "scheduled"},
		{start - 1, nil, "active"}, // a record of start: time does not run back behind it
		{start, nil, "active"},
		{start + 999, nil, "active"},
		{start + 1000, nil, "ended"},
		{start, func(d *Doc) { d.Closed = true }, "ended"},
		{start, func(d *Doc) { d.Cancelled = true }, "cancelled"},
		{start + 5000, func(d *Doc) { d.Cancelled = true }, "cancelled"},
	} {
		x, _ := newIndex(tt.now, doc("a", tt.with))
		list, _, err := rooms(t, x, "status="+tt.want)
		if err != nil || len(list) != 1 || list[0]["status"] != tt.want {
			t.Errorf("at %d: %v %v, want %s", tt.now, list, err, tt.want)
		}
	}
}

func TestLimits(t *testing.T) {
	x, _ := newIndex(start)
	for i := range 300 {
		x.Put(doc(fmt.Sprintf("%03d", i), func(d *Doc) { d.Own = true }))
	}
	for query, want := range map[string]int{"": 20, "limit=1": 1, "limit=200": 200, "limit=201": 200, "limit=9999999": 200} {
		list, next, err := rooms(t, x, query)
		if err != nil || len(list) != want || next == "" {
			t.Errorf("%q: %d rooms, %v", query, len(list), err)
		}
	}
	for limit, want := range map[string]int{"1": 1, "100": 100, "101": 100} {
		ids, next, err := x.Public(url.Values{"limit": {limit}})
		if err != nil || len(ids) != want || next == "" {
			t.Errorf("public %q: %d rooms, %v", limit, len(ids), err)
		}
	}
	_, next, _ := rooms(t, x, "limit=200")
	if list, next, err := rooms(t, x, next); len(list) != 100 || next != "" || err != nil {
		t.Errorf("the last page: %d %q %v", len(list), next, err)
	}
}

// A host can give its rooms any URL; pages must work all the same.
func TestCursorOfHostileURLs(t *testing.T) {
	x, _ := newIndex(start)
	for i := range 5 {
		d := doc(fmt.Sprint("r", i), nil)
		d.URL = d.Origin + "/" + strings.Repeat("u", 50_000) + fmt.Sprint(i/2) // some equal as a whole
		x.Put(d)
	}
	seen := map[string]int{}
	query := "limit=1"
	for range 5 {
		if len(query) > 1500 {
			t.Fatalf("the query of a page has %d bytes", len(query))
		}
		list, next, err := rooms(t, x, query)
		if err != nil {
			t.Fatal(err)
		}
		seen[list[0]["room_id"].(string)]++
		query = next
	}
	if len(seen) != 5 || query != "" {
		t.Errorf("%v, and then %q", seen, query)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was listed %d times", id, n)
		}
	}
}

// Whatever happens to other rooms, and while time passes, each unchanged room
// is listed exactly once.
func TestPagingWithChurn(t *testing.T) {
	const n = 200
	rapid.Check(t, func(t *rapid.T) {
		draw := func(t *rapid.T, i int) Doc {
			return doc(fmt.Sprintf("r%03d", i), func(d *Doc) {
				d.Origin = rapid.SampledFrom([]string{"https://a.example", "https://b.example"}).Draw(t, "origin")
				d.StartTime = start + rapid.Int64Range(0, 20).Draw(t, "start")
				d.EndTime = d.StartTime + rapid.Int64Range(1, 20).Draw(t, "length")
				d.LastActivity = start + rapid.Int64Range(-3, 3).Draw(t, "activity")
				d.Closed = rapid.IntRange(0, 5).Draw(t, "closed") == 0
				d.Cancelled = rapid.IntRange(0, 9).Draw(t, "cancelled") == 0
				d.Own = true
			})
		}
		x, clock := newIndex(start + 5)
		docs := make([]Doc, n)
		unchanged := map[string]bool{}
		for i := range docs {
			docs[i] = draw(t, i)
			x.Put(docs[i])
			unchanged[docs[i].RoomID] = true
		}
		seen := map[string]int{}
		note := func(ids []string) {
			for _, id := range ids {
				seen[id]++
			}
		}
		list := rapid.SampledFrom([]string{"", "sort=start", "public"}).Draw(t, "list")
		limit := fmt.Sprint(rapid.IntRange(1, 60).Draw(t, "limit"))
		query, cursor := list+"&limit="+limit, ""
		for page := 0; ; page++ {
			if page > 2*n {
				t.Fatal("pages without end")
			}
			if list == "public" {
				q := url.Values{"limit": {limit}}
				if cursor != "" {
					q.Set("cursor", cursor)
				}
				ids, next, err := x.Public(q)
				if err != nil {
					t.Fatal(err)
				}
				note(ids)
				cursor = next
			} else {
				w, next, err := rooms(t, x, query)
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range w {
					note([]string{item["room_id"].(string)})
				}
				query, cursor = next, next
			}
			if cursor == "" {
				break
			}
			clock.ms += rapid.Int64Range(0, 3).Draw(t, "time")
			for range rapid.IntRange(0, 5).Draw(t, "changes") {
				i := rapid.IntRange(0, n-1).Draw(t, "room")
				delete(unchanged, docs[i].RoomID)
				x.Remove(docs[i].Origin, docs[i].RoomID)
				if rapid.Bool().Draw(t, "stays") {
					docs[i] = draw(t, i)
					x.Put(docs[i])
				}
			}
		}
		for id := range unchanged {
			if seen[id] != 1 {
				t.Fatalf("%s did not change and was listed %d times", id, seen[id])
			}
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	const n = 2000
	x, _ := newIndex(start)
	for i := range n {
		x.Put(doc(fmt.Sprintf("r%04d", i), func(d *Doc) { d.Own, d.Topic = true, "even" }))
	}
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 2 {
		writers.Go(func() {
			for i := w; i < n; i += 2 {
				id := fmt.Sprintf("r%04d", i)
				switch i % 3 {
				case 0:
					x.Put(doc(id, func(d *Doc) { d.Own, d.Topic = true, "odd" }))
					if got := roomIDs(t, x, "limit=1&q=odd"); got == "" {
						t.Error("a query that started after Put does not see it")
					}
				case 1:
					x.Remove("https://other.example", id)
					x.Put(doc(id, func(d *Doc) { d.Own, d.Topic = true, "even" }))
				case 2:
					x.SetAttested("https://other.example", id, int64(i), "partial")
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				list, _, err := rooms(t, x, "limit=200&keyword=even")
				seen := map[any]bool{}
				for _, item := range list {
					if seen[item["room_id"]] || item["topic"] != "even" {
						t.Errorf("a torn answer: %v", item)
					}
					seen[item["room_id"]] = true
				}
				if err != nil || len(list) != 200 {
					t.Errorf("%d rooms, %v", len(list), err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	if x.Len() != n {
		t.Errorf("%d rooms", x.Len())
	}
	if n := len(x.rows.chunks) * chunkLen; n > 2*2048 {
		t.Errorf("places for %d rooms", n)
	}
}

// A snapshot that a query holds does not change under it.
func TestSnapshotStays(t *testing.T) {
	x, _ := newIndex(start)
	for i := range 3 * chunkLen {
		x.Put(doc(fmt.Sprint("r", i), nil))
	}
	held := x.rows.snapshot().chunks
	bits, rows := held[1].bits, held[1].row
	for i := range 5 * chunkLen {
		x.Put(doc(fmt.Sprint("r", i), func(d *Doc) { d.Verdict = "forked" }))
	}
	for i := range 100 {
		x.Remove("https://other.example", fmt.Sprint("r", chunkLen+i))
	}
	if len(held) != 3 || held[1].bits != bits || held[1].row != rows {
		t.Error("the snapshot changed")
	}
	if x.Len() != 5*chunkLen-100 {
		t.Error(x.Len())
	}
}
