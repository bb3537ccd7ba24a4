package index

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/index/text"
)

func withText(t testing.TB, ms int64) (*Index, *text.Store, *clock) {
	t.Helper()
	store, _, err := text.Open(filepath.Join(t.TempDir(), "text"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &clock{ms}
	x := New(Options{Cursors: testCursors, Own: ownOrigin, Now: c.now, Text: store})
	if err := x.Load(); err != nil {
		t.Fatal(err)
	}
	x.Loaded()
	return x, store, c
}

func ask(t testing.TB, x *Index, query string) *Result {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x.Rooms(context.Background(), q)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// all reads a list to its end, and tells the notes on the way.
func all(t testing.TB, x *Index, query string) (ids, notes []string) {
	t.Helper()
	for pages := 0; ; pages++ {
		out := ask(t, x, query)
		for _, r := range out.Rooms {
			ids = append(ids, r.RoomID)
		}
		if out.Note != "" {
			notes = append(notes, out.Note)
		}
		if out.Next == nil {
			return ids, notes
		}
		if pages > 10_000 {
			t.Fatalf("%s: pages without end", query)
		}
		query = out.Next.Encode()
	}
}

// Words that many rooms have: pages come in the order of the list and miss nothing; what
// is not found quickly comes in pages with a note; and relevance says that it looked at
// the most active rooms only.
func TestCommonWords(t *testing.T) {
	x, _, _ := withText(t, start)
	const n = 2*max(maxLook, maxCandidates) + 5000
	var half, both []string
	for i := range n {
		d := doc(fmt.Sprintf("r%06d", i), func(d *Doc) {
			d.Topic, d.LastActivity, d.EndTime = "Everything", start-int64(i), start+100
			if i%2 == 0 {
				d.Agenda = "halfway"
			}
			if i%2 == 1 || i == n-2 || i == 4 {
				d.Guidance = "otherwise"
			}
		})
		x.Put(d)
		if i%2 == 0 {
			half = append(half, d.RoomID)
		}
		if i == n-2 || i == 4 {
			both = append(both, d.RoomID)
		}
	}
	if err := x.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, notes := all(t, x, "q=halfway&limit=200"); !slices.Equal(got, half) || len(notes) > 0 {
		t.Errorf("%d rooms, %d wanted, %v", len(got), len(half), notes)
	}
	got, notes := all(t, x, "q=halfway+otherwise")
	if !slices.Equal(got, both) || len(notes) == 0 {
		t.Errorf("%v, want %v; %v", got, both, notes)
	}
	if got, notes := all(t, x, "keyword=alfwa&limit=200"); !slices.Equal(got, half) || len(notes) > 0 {
		t.Errorf("keyword: %d rooms, %v", len(got), notes)
	}
	if got, notes := all(t, x, "keyword=nowhere"); len(got) > 0 || len(notes) == 0 {
		t.Errorf("a keyword that no room has: %v %v", got, notes)
	}
	out := ask(t, x, "q=halfway&sort=relevance&facets=host")
	if !strings.Contains(out.Note, "most active") || len(out.Rooms) != 20 || out.Rooms[0].RoomID != "r000004" && out.Rooms[0].Agenda != "halfway" {
		t.Errorf("%q, %d rooms", out.Note, len(out.Rooms))
	}
	if c := out.Facets["host"]; len(c) != 1 || c[0].Count != maxLook/2 || !strings.Contains(out.Note, "counts") {
		t.Errorf("%v %q", c, out.Note)
	}
	if out := ask(t, x, "facets=host"); out.Facets["host"][0].Count != n || out.Note != "" {
		t.Errorf("%v %q", out.Facets, out.Note)
	}
}

func TestRelevance(t *testing.T) {
	x, _, _ := withText(t, start+1)
	for id, with := range map[string]func(*Doc){
		"phrase":   func(d *Doc) { d.Topic = "The red owl" },
		"topic":    func(d *Doc) { d.Topic = "Owl, painted red" },
		"tags":     func(d *Doc) { d.Tags = []string{"red", "owl"} },
		"agenda":   func(d *Doc) { d.Agenda = "red owl" },
		"guidance": func(d *Doc) { d.Guidance = "red owl" },
		"type":     func(d *Doc) { d.Types, d.Titles = []string{"a.b"}, []string{"Red owl"} },
		"late":     func(d *Doc) { d.Agenda, d.LastActivity = "red owl", start+1 },
		"one":      func(d *Doc) { d.Topic = "red" },
	} {
		x.Put(doc(id, with))
	}
	for _, written := range []bool{false, true} {
		if written {
			if err := x.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ids, notes := all(t, x, "q=red+owl&sort=relevance&limit=3")
		if got := strings.Join(ids, " "); got != "phrase topic tags type late agenda guidance" || len(notes) > 0 {
			t.Errorf("written %v: %s %v", written, got, notes)
		}
	}
}

// Nothing in a query or a room is an instruction to the text index.
func TestNoQueryLanguage(t *testing.T) {
	x, _, _ := withText(t, start)
	x.Put(doc("a", func(d *Doc) {
		d.Topic = "quorum +mirror -witness \"exact phrase\" fuzzy~2 wild* field:value r:1 /regex.*/"
	}))
	x.Put(doc("b", func(d *Doc) { d.Topic = "witness" }))
	if err := x.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{"witness": "a b", "-witness": "a b", "quorum -witness": "a", "qu*": "", "quorun~": "", "wild*": "a", "topic:witness": "", "field:value": "a",
		"\"phrase exact\"": "a", "/quo.*/": "", "quorum OR witness": "", "*": "refused", "(": "refused"} {
		q := url.Values{"q": {query}}
		out, err := x.Rooms(t.Context(), q)
		if want == "refused" {
			refused(t, query, "q", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range out.Rooms {
			ids = append(ids, r.RoomID)
		}
		if slices.Sort(ids); strings.Join(ids, " ") != want {
			t.Errorf("%q: %v, want %q", query, ids, want)
		}
	}
}

// 1,000 rooms, each of which may change, end or move to the front while they are paged,
// are listed once each; rooms that are new meanwhile are not.
func TestPagingListsChangedRoomsOnce(t *testing.T) {
	for _, query := range []string{"limit=20", "limit=20&sort=start", "limit=20&q=topic", "limit=20&q=topic&sort=relevance"} {
		x, _, clock := withText(t, start)
		const n = 1000
		for i := range n {
			x.Put(doc(fmt.Sprintf("r%04d", i), func(d *Doc) { d.LastActivity = start - int64(i%7) }))
		}
		seen, page := map[string]int{}, 0
		for query := query; query != ""; page++ {
			out := ask(t, x, query)
			for _, r := range out.Rooms {
				seen[r.RoomID]++
			}
			query = out.Next.Encode()
			clock.ms += 7
			for i := range n / 10 {
				i = (i*10 + page) % n
				x.Put(doc(fmt.Sprintf("r%04d", i), func(d *Doc) {
					d.LastActivity, d.Closed, d.StartTime = clock.ms+int64(page), (i+page)%3 == 0, start+int64(i*page%11)
				}))
			}
			x.Put(doc(fmt.Sprintf("new%04d", page), func(d *Doc) { d.LastActivity = clock.ms }))
		}
		for i := range n {
			if id := fmt.Sprintf("r%04d", i); seen[id] != 1 {
				t.Fatalf("%s: %s was listed %d times", query, id, seen[id])
			}
		}
		if len(seen) != n || page < n/20 {
			t.Errorf("%s: %d rooms on %d pages", query, len(seen), page)
		}
	}
}

// Few snapshots are held, and not for long; a list goes on without its own.
func TestSnapshotsAreBounded(t *testing.T) {
	x, clock := newIndex(start)
	for i := range 100 {
		x.Put(doc(fmt.Sprintf("r%03d", i), nil))
	}
	first := ask(t, x, "limit=10")
	for i := range 3 * maxSnapshots {
		x.Put(doc("r000", func(d *Doc) { d.Records = int64(i) }))
		ask(t, x, "limit=10")
	}
	if n := len(x.held.list); n != maxSnapshots {
		t.Errorf("%d snapshots are held", n)
	}
	seen := map[string]int{}
	for _, r := range first.Rooms {
		seen[r.RoomID]++
	}
	ids, _ := all(t, x, first.Next.Encode())
	for _, id := range ids {
		seen[id]++
	}
	for i := 1; i < 100; i++ {
		if id := fmt.Sprintf("r%03d", i); seen[id] != 1 {
			t.Errorf("%s did not change and was listed %d times", id, seen[id])
		}
	}
	clock.ms += snapshotAge + 1
	ask(t, x, "limit=100")
	x.held.drop(clock.ms)
	if n := len(x.held.list); n != 0 {
		t.Errorf("%d snapshots are held for ever", n)
	}
}

// What a page of an old snapshot shows is what rooms are now, or nothing.
func TestOldPageShowsNothingOld(t *testing.T) {
	x, _ := newIndex(start)
	for i := range 30 {
		x.Put(doc(fmt.Sprintf("r%02d", i), func(d *Doc) { d.Topic = "secret" }))
	}
	first := ask(t, x, "limit=10&verdict=verified")
	x.Put(doc("r15", func(d *Doc) { d.Topic = "secret"; d.Hidden = true }))
	x.Put(doc("r16", func(d *Doc) { d.Topic, d.Verdict = "secret", "forked" }))
	x.Put(doc("r17", func(d *Doc) { d.Topic = "other" }))
	x.Remove("https://other.example", "r18")
	rest := map[string]Room{}
	for next := first.Next; next != nil; {
		out := ask(t, x, next.Encode())
		for _, r := range out.Rooms {
			rest[r.RoomID] = r
		}
		next = out.Next
	}
	_, forked := rest["r16"]
	_, gone := rest["r18"]
	if r := rest["r15"]; len(rest) != 18 || r.Topic != "" || !r.Hidden || forked || gone || rest["r17"].Topic != "other" {
		t.Errorf("%d rooms: %+v %+v", len(rest), r, rest["r17"])
	}
}

func TestETag(t *testing.T) {
	x, clock := newIndex(start, doc("a", nil), doc("b", nil))
	get := func(query, tag string) (int, string, string) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/index/rooms", nil)
		r.URL.RawQuery = query
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		if err := x.ServeRooms(w, r); err != nil {
			t.Fatal(err)
		}
		return w.Code, w.Header().Get("ETag"), w.Body.String()
	}
	for _, query := range []string{"", "limit=1", "facets=status"} {
		_, tag, _ := get(query, "")
		clock.ms++
		x.Put(doc("b", func(d *Doc) { d.SyncedAt = clock.ms })) // nothing new
		if code, again, body := get(query, tag); code != 304 || again != tag || body != "" {
			t.Errorf("%q: %d %q %q", query, code, again, body)
		}
		x.Put(doc("a", func(d *Doc) { d.Records++; d.Closed = query == "facets=status" }))
		if code, other, body := get(query, tag); code != 200 || other == tag || body == "" {
			t.Errorf("%q after a change: %d", query, code)
		}
		x.Put(doc("a", nil))
	}
}

// A text index that cannot be written or asked does not change what a list without words
// answers, and says so to the operator; with words, the query fails and does not pretend.
func TestTextIndexFails(t *testing.T) {
	store, _, err := text.Open(filepath.Join(t.TempDir(), "text"), nil)
	if err != nil {
		t.Fatal(err)
	}
	x := New(Options{Cursors: testCursors, Own: ownOrigin, Now: func() int64 { return start }, Text: store})
	x.Put(doc("a", nil))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Flush(t.Context()); err == nil {
		t.Error("nothing was written, and nobody was told")
	}
	if got := roomIDs(t, x, ""); got != "a" {
		t.Error(got)
	}
	if _, err := x.Rooms(t.Context(), url.Values{"q": {"topic"}}); err == nil {
		t.Error("a search without its index pretends to know")
	}
	if len(x.search.pending) != 1 {
		t.Errorf("what could not be written waits no more: %v", x.search.pending)
	}
}

// The words of a room that went just before the end are let go of at the next start, without
// another change that has to come first.
func TestGoneBeforeTheStart(t *testing.T) {
	x, store, c := withText(t, start)
	x.Put(doc("stays", nil))
	x.Put(doc("goes", nil))
	if err := x.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	x = New(Options{Cursors: testCursors, Own: ownOrigin, Now: c.now, Text: store})
	if err := x.Load(); err != nil {
		t.Fatal(err)
	}
	x.Put(doc("stays", nil))
	x.Loaded()
	select {
	case <-x.search.wake: // what Run waits for
	default:
		t.Error("nobody is told that something is to be let go of")
	}
	if err := x.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Len(); n != 1 || err != nil {
		t.Errorf("the store has %d rooms, %v", n, err)
	}
}
