package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// told is what the functions Listed, Unlisted and Changed leave behind, as an index has it.
type told struct {
	mu sync.Mutex
	of map[string]Listed
}

func (x *told) options(o *Options) {
	x.of = map[string]Listed{}
	o.Listed = func(_ string, l Listed) { x.mu.Lock(); defer x.mu.Unlock(); x.of[l.RoomID] = l }
	o.Unlisted = func(_, id string) { x.mu.Lock(); defer x.mu.Unlock(); delete(x.of, id) }
	o.Changed = func(r *replica.Replica) {
		if r.Row().Seq > 0 { // what is held is shown in place of what was listed
			o.Unlisted(r.Origin, r.RoomID)
		}
	}
}

func (x *told) get(id string) (Listed, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l, ok := x.of[id]
	return l, ok
}

func (x *told) has(ids ...string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if _, ok := x.of[id]; !ok {
			return false
		}
	}
	return len(x.of) == len(ids)
}

// stored counts the bytes that are kept of each listed room.
func stored(t *testing.T, st *store.Store) map[string]int {
	t.Helper()
	out := map[string]int{}
	from, to := store.ListedRange("")
	err := st.View(func(r store.Reader) error {
		return r.Scan(from, to, func(key, value []byte) bool {
			_, id, err := store.ParseListed(key)
			if err != nil {
				t.Error(err)
			}
			out[id] = len(value)
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// listing makes a host list the given entries and nothing else. dead lets it answer nothing.
func (h *fakeHost) listing(entries ...string) (dead func()) {
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != listPath {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "[%s]", strings.Join(entries, ","))
		return true
	})
	return func() {
		h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true })
	}
}

const (
	restrictedEntry = `{"id":"circle","visibility":"restricted","status":"active","topic":"A <closed> circle","agenda":"a","guidance":"g","language":"en","creator":"did:x","tags":["birds","owls"],"policy":{"max_speakers": 3},"start_time":1,"end_time":2,"created_at":3,"seq":4,"hash":"h","received_at":5}`
	optOutEntry     = `{"id":"shy","visibility":"public","status":"active","topic":"A shy room","policy":{"extra":{"mirror":false}}}`
	privateEntry    = `{"id":"secret","visibility":"private","status":"active","topic":"A secret"}`
)

// What a host lists and is not copied is told again after a restart while the host is
// away, as it was, and with the time when it was last seen; nothing is ever kept of a
// private room.
func TestListedRoomsOutliveTheirHost(t *testing.T) {
	h, st, x := newFakeHost(t), memory(t), &told{}
	var clock atomic.Int64
	clock.Store(1_700_000_000_000)
	options := func(o *Options) { x.options(o); o.Now = clock.Load }
	dead := h.listing(restrictedEntry, optOutEntry, privateEntry)
	g := start(t, st, options).follow(h)
	until(t, "both are told of", func() bool { return x.has("circle", "shy") })
	first, _ := x.get("circle")
	if first.Topic != "A <closed> circle" || len(first.Tags) != 2 || first.EndTime != 2 || first.Seq != 4 || first.ReceivedAt != 5 || string(first.Policy) != `{"max_speakers":3}` || first.Reason != "" {
		t.Errorf("%+v", first)
	}
	if shy, _ := x.get("shy"); shy.Reason != roomOptsOut {
		t.Errorf("%+v", shy)
	}
	found := clock.Load()
	clock.Add(10 * 60_000)
	g.looks(h, 3)
	until(t, "it was seen again", func() bool { return g.m.SeenAt(h.origin(), "circle") == clock.Load() })
	until(t, "the store knows", func() bool {
		f := g.followed(h)
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.row.ListedAt == clock.Load()
	})
	lastSeen := clock.Load()
	dead()
	g.stop()
	before := stored(t, st)
	if len(before) != 2 {
		t.Errorf("stored: %v", before)
	}

	clock.Add(24 * 3600_000)
	x = &told{}
	g = start(t, st, options)
	if !x.has("circle", "shy") { // New tells of them: the index is filled before anything else
		t.Fatalf("after a restart: %v", x.of)
	}
	again, _ := x.get("circle")
	if again.SeenAt != lastSeen || again.FoundAt != found {
		t.Errorf("seen at %d, found at %d; want %d and %d", again.SeenAt, again.FoundAt, lastSeen, found)
	}
	again.SeenAt, first.SeenAt = 0, 0
	if a, b := fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", first); a != b {
		t.Errorf("after a restart\n%s\nbefore\n%s", a, b)
	}
	until(t, "the host is away", func() bool { return g.m.Hosts()[0].State == BackingOff })
	if at := g.m.SeenAt(h.origin(), "circle"); at != lastSeen || !x.has("circle", "shy") {
		t.Errorf("seen at %d, want %d", at, lastSeen)
	}
	x.mu.Lock()
	clear(x.of)
	x.mu.Unlock()
	if err := g.m.Relist(); err != nil || !x.has("circle", "shy") {
		t.Errorf("%v; told again: %v", err, x.of)
	}

	// what did not change is not written again, what did is
	h.listing(restrictedEntry, strings.Replace(optOutEntry, "A shy room", "A very shy room", 1))
	until(t, "the change is told", func() bool { l, _ := x.get("shy"); return l.Topic == "A very shy room" })
	if l, _ := x.get("circle"); l.FoundAt != found {
		t.Errorf("what did not change is told as new: %+v", l)
	}
}

// What is stored of a listed room goes when the host lists it no more, or as private,
// when the operator forgets it or its host, keeps it in quarantine, or removes the host.
func TestListedRoomsAreLetGo(t *testing.T) {
	for what, do := range map[string]func(*testing.T, *rig, *fakeHost, string){
		"listed no more": func(_ *testing.T, _ *rig, h *fakeHost, _ string) { h.listing(optOutEntry) },
		"private now": func(_ *testing.T, _ *rig, h *fakeHost, _ string) {
			h.listing(optOutEntry, strings.Replace(restrictedEntry, "restricted", "private", 1))
		},
		"forgotten":          func(t *testing.T, g *rig, _ *fakeHost, url string) { forget(t, g, url) },
		"in quarantine":      func(_ *testing.T, g *rig, _ *fakeHost, url string) { g.must(g.m.Quarantine(url, "a complaint")) },
		"forgotten host":     func(t *testing.T, g *rig, h *fakeHost, _ string) { forget(t, g, h.origin()) },
		"host in quarantine": func(_ *testing.T, g *rig, h *fakeHost, _ string) { g.must(g.m.Quarantine(h.origin(), "a complaint")) },
		"removed host":       func(_ *testing.T, g *rig, h *fakeHost, _ string) { g.must(g.m.Remove(h.origin())) },
	} {
		t.Run(what, func(t *testing.T) {
			h, st, x := newFakeHost(t), memory(t), &told{}
			h.listing(restrictedEntry, optOutEntry)
			g := start(t, st, x.options).follow(h)
			until(t, "both are told of", func() bool { return x.has("circle", "shy") })
			do(t, g, h, h.origin()+"/v1/rooms/circle")
			rest := []string{"shy"}
			if strings.Contains(what, "host") {
				rest = nil
			}
			until(t, "it is not listed", func() bool { return x.has(rest...) })
			if what != "removed host" {
				g.looks(h, 3)
			}
			if kept := stored(t, st); len(kept) != len(rest) || !x.has(rest...) {
				t.Errorf("stored: %v; listed: %v", kept, x.of)
			}
			g.stop()
			x = &told{}
			start(t, st, x.options)
			if kept := stored(t, st); len(kept) != len(rest) || !x.has(rest...) {
				t.Errorf("after a restart: stored: %v; listed: %v", kept, x.of)
			}
		})
	}
}

func forget(t *testing.T, g *rig, name string) {
	t.Helper()
	want := int64(1)
	if !strings.Contains(name, "/v1/rooms/") { // a host
		want = 2
	}
	for _, do := range []bool{false, true} {
		if f, err := g.m.Forget(name, do); err != nil || f.Listed != want || f.Done != do || f.Rooms != 0 {
			t.Errorf("%+v, %v; want %d listed", f, err, want)
		}
	}
}

// A room that was only listed and is copied now is told of as a copy, and what the list
// said goes; the public rooms of a host that asks not to be mirrored are only listed.
func TestListedRoomIsCopied(t *testing.T) {
	h, st, x := newFakeHost(t), memory(t), &told{}
	s := talk(t, "room", 3)
	h.put(s)
	h.set(func() { h.rooms["room"].visibility = "restricted" })
	g := start(t, st, x.options).follow(h)
	until(t, "it is listed", func() bool { return x.has("room") })
	h.set(func() { h.rooms["room"].visibility = "public" })
	g.holds(h, s)
	until(t, "what was listed is gone", func() bool { return x.has() && len(stored(t, st)) == 0 && g.m.SeenAt(h.origin(), "room") == 0 })
	g.stop()

	st, x = memory(t), &told{}
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/.well-known/agent-discourse" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"protocol":"agent-discourse/1.0","mirror":false}`)
		return true
	})
	g = start(t, st, x.options).follow(h)
	until(t, "it is listed", func() bool { return x.has("room") })
	if l, _ := x.get("room"); l.Reason != hostOptsOut || l.Visibility != "public" {
		t.Errorf("%+v", l)
	}
	if _, held := g.set.Get(h.origin(), "room"); held {
		t.Error("it was copied")
	}
	h.takeOver(nil)
	g.must(g.m.Retry(h.origin())) // reads the discovery document again
	g.holds(h, s)
	until(t, "it is a copy and no more", func() bool { return x.has() && len(stored(t, st)) == 0 })
}

// However much a host lists, what is stored has a bound for each room, and of all of them.
func TestHostileListIsBounded(t *testing.T) {
	h, st, x := newFakeHost(t), memory(t), &told{}
	var entries []string
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	long, escaped := quoted(strings.Repeat("语", 3_000)), quoted(strings.Repeat("\x01", 3_000))
	for i := range 60 {
		text, tag := []string{long, escaped}[i%2], quoted(strings.Repeat("\x01", 200))
		entries = append(entries, fmt.Sprintf(`{"id":"x%d","visibility":"restricted","status":%[2]s,"topic":%[2]s,"agenda":%[2]s,"guidance":%[2]s,"language":%[2]s,"creator":%[2]s,"tags":[%[3]s],"policy":{"x":%[2]s}}`,
			i, text, strings.TrimSuffix(strings.Repeat(tag+",", 50), ",")))
	}
	h.listing(entries...)
	g := start(t, st, func(o *Options) { x.options(o); o.RoomsPerHost = 40 }).follow(h)
	until(t, "they are told of", func() bool { x.mu.Lock(); defer x.mu.Unlock(); return len(x.of) == 40 })
	g.looks(h, 3)
	kept := stored(t, st)
	if len(kept) != 40 || len(kept) != len(x.of) {
		t.Errorf("%d rooms are stored, %d told of", len(kept), len(x.of))
	}
	for id, n := range kept {
		if n > maxListedRow+100 {
			t.Errorf("%s takes %d bytes", id, n)
		}
	}
	if l, _ := x.get("x0"); len(l.Topic) == 0 || len(l.Topic) > maxListedText || !strings.HasPrefix(l.Topic, "语语") || strings.ContainsRune(l.Topic, '\uFFFD') {
		t.Errorf("a long topic became %d bytes", len(l.Topic))
	}
	// what is not listed any more goes after a restart, too
	g.stop()
	x = &told{}
	h.listing()
	start(t, st, func(o *Options) { x.options(o); o.RoomsPerHost = 40 })
	until(t, "all are gone", func() bool { return x.has() && len(stored(t, st)) == 0 })
}

// What is stored of rooms that nobody may be told of any more is not told at a start.
func TestListedLeftovers(t *testing.T) {
	h, st, x := newFakeHost(t), memory(t), &told{}
	s := talk(t, "held", 3)
	h.put(s)
	g := start(t, st, x.options).follow(h)
	g.holds(h, s)
	g.stop()
	text := []byte(`{"at":1,"room":{"id":"held","visibility":"restricted","topic":"old"}}`)
	var b store.Batch
	b.Put(store.Listed(h.origin(), "held"), bytes.Clone(text))
	b.Put(store.Listed("https://removed.example", "r"), bytes.Clone(text))
	g.must(st.Commit(&b))
	x = &told{}
	g = start(t, st, x.options)
	if kept := stored(t, st); len(kept) != 0 || !x.has() {
		t.Errorf("stored: %v; told of: %v", kept, x.of)
	}
	if row := g.row(h, "held"); row.EffectiveVerdict() != replica.Verified {
		t.Errorf("%+v", row)
	}
}

// A public room is listed, as one of which nothing is verified, while it cannot be read
// or the operator does not want it copied, over restarts too; what is verified of it then
// takes the place of that.
func TestWaitingRoomsAreListed(t *testing.T) {
	h, st, x := newFakeHost(t), memory(t), &told{}
	good, late, unwanted := talk(t, "good", 3), talk(t, "late", 3), talk(t, "unwanted", 3)
	for _, s := range []*story{good, late, unwanted} {
		h.put(s)
	}
	var readable atomic.Bool
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		if readable.Load() || r.URL.Path == listPath || !strings.HasPrefix(r.URL.Path, "/v1/rooms/") || strings.HasPrefix(r.URL.Path, "/v1/rooms/good") {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	g := start(t, st, x.options).follow(h)
	g.holds(h, good)
	until(t, "those that wait are listed", func() bool { return x.has("late", "unwanted") })
	if l, _ := x.get("late"); l.Reason != "" || l.Visibility != "public" || l.Seq != int64(len(late.recs)) {
		t.Errorf("%+v", l)
	}
	g.must(g.m.Pause(h.origin() + "/v1/rooms/unwanted"))
	until(t, "the operator's word is told", func() bool { l, _ := x.get("unwanted"); return strings.Contains(l.Reason, "operator") })
	g.stop()
	if kept := stored(t, st); len(kept) != 2 {
		t.Errorf("stored: %v", kept)
	}

	x = &told{}
	g = start(t, st, x.options)
	if !x.has("late", "unwanted") {
		t.Fatalf("after a restart: %v", x.of)
	}
	g.looks(h, 3)
	if !x.has("late", "unwanted") {
		t.Errorf("after some looks: %v", x.of)
	}
	readable.Store(true)
	g.must(g.m.Retry(h.origin()))
	g.holds(h, late)
	until(t, "what was listed is gone", func() bool { return x.has("unwanted") && len(stored(t, st)) == 1 })
	if _, held := g.set.Get(h.origin(), "unwanted"); held {
		t.Error("a room was copied that the operator paused")
	}
	g.must(g.m.Resume(h.origin() + "/v1/rooms/unwanted"))
	g.holds(h, unwanted)
	until(t, "nothing is merely listed", func() bool { return x.has() && len(stored(t, st)) == 0 })
}
