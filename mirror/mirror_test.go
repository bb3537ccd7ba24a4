package mirror

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

const ownOrigin = "http://127.0.0.1:1"

// rig is a mirror under test, with what it told.
type rig struct {
	t    *testing.T
	st   *store.Store
	set  *replica.Set
	m    *Mirror
	face *httptest.Server
	stop func()

	mu           sync.Mutex
	contradicted [][2]*adp.Envelope
	observed     []Observation
	completed    []string
	listed       map[string]string
}

func (g *rig) seen() []Observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.observed)
}

func memory(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// start runs a mirror over a store. change may alter the options, which are
// those of an impatient operator.
func start(t *testing.T, st *store.Store, change func(*Options)) *rig {
	t.Helper()
	return startOn(t, st, change, nil)
}

// startOn also lets a test connect the mirror to a network before it runs.
func startOn(t *testing.T, st *store.Store, change func(*Options), connect func(*Mirror)) *rig {
	t.Helper()
	g := &rig{t: t, st: st, listed: map[string]string{}}
	var err error
	if g.set, err = replica.Open(st); err != nil {
		t.Fatal(err)
	}
	bindings, err := keys.NewBindings(st, ownOrigin, keys.FromSeed([32]byte{9}, 1))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Own: ownOrigin, Replicas: g.set, Store: st, Bindings: bindings, AllowPrivate: true,
		Fetch:   fetch.New(fetch.Options{AllowPrivate: true}),
		PollMin: 5 * time.Millisecond, PollMax: 20 * time.Millisecond, BackoffMin: 20 * time.Millisecond, BackoffMax: 40 * time.Millisecond,
		RequestsPerSecond: 1e6,
		Listed: func(origin string, l Listed) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.listed[l.RoomID] = origin
		},
		Unlisted: func(_, id string) {
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.listed, id)
		},
		Changed: func(r *replica.Replica) { // what is held is shown in place of what was listed
			g.mu.Lock()
			defer g.mu.Unlock()
			if r.Row().Seq > 0 {
				delete(g.listed, r.RoomID)
			}
		},
		Completed: func(r *replica.Replica) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.completed = append(g.completed, r.RoomID)
		},
		Contradiction: func(a, b *adp.Envelope) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.contradicted = append(g.contradicted, [2]*adp.Envelope{a, b})
		},
		Observed: func(o Observation) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.observed = append(g.observed, o)
		},
	}
	if change != nil {
		change(&o)
	}
	if g.m, err = New(o); err != nil {
		t.Fatal(err)
	}
	if connect != nil {
		connect(g.m)
	}
	mux := web.NewMux()
	g.m.Routes(mux)
	g.face = httptest.NewServer(mux)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.m.Run(ctx) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		g.face.Close()
		o.Fetch.CloseIdle()
	})
	t.Cleanup(g.stop)
	return g
}

func (g *rig) follow(h *fakeHost) *rig {
	g.t.Helper()
	if err := g.m.Add(h.origin(), "flag"); err != nil {
		g.t.Fatal(err)
	}
	return g
}

// patience is how long a test waits for what must come: longer than the most overloaded
// machine takes.
const patience = 3 * time.Minute

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

func (g *rig) row(h *fakeHost, id string) replica.Row {
	if r, ok := g.set.Get(h.origin(), id); ok {
		return r.Row()
	}
	return replica.Row{}
}

// holds waits until a room is as long as a story, and in agreement with the host.
func (g *rig) holds(h *fakeHost, s *story) {
	g.t.Helper()
	last := s.recs[len(s.recs)-1]
	until(g.t, fmt.Sprintf("%s holds %d records", s.id, last.Seq), func() bool {
		row := g.row(h, s.id)
		return row.Seq == last.Seq && row.Hash == last.Hash
	})
	r, _ := g.set.Get(h.origin(), s.id)
	var got [][]byte
	if err := r.Scan(0, last.Seq, func(_ int64, raw []byte) error { got = append(got, bytes.Clone(raw)); return nil }); err != nil {
		g.t.Fatal(err)
	}
	if !slices.EqualFunc(got, s.texts(), bytes.Equal) {
		g.t.Errorf("%s: the stored records are not those of the host", s.id)
	}
}

func (g *rig) becomes(h *fakeHost, id, verdict string) replica.Row {
	g.t.Helper()
	until(g.t, id+" is "+verdict, func() bool { return g.row(h, id).EffectiveVerdict() == verdict })
	return g.row(h, id)
}

// looks waits until the host was asked for its rooms n times more.
func (g *rig) looks(h *fakeHost, n int) {
	g.t.Helper()
	from := h.count("/v1/rooms/public")
	until(g.t, "more looks", func() bool { return h.count("/v1/rooms/public") >= from+n })
}

// tries is how often a room that fails is tried within a time at most: each wait is twice
// the one before.
func (g *rig) tries(within time.Duration) (n int) {
	for n = 1; g.m.o.PollMin*(1<<n-1)*4/5-time.Duration(n)*time.Millisecond <= within; n++ { // waits are cut to milliseconds
	}
	return n
}

func (g *rig) get(h *fakeHost, path string) (*http.Response, string) {
	g.t.Helper()
	resp, err := http.Get(g.face.URL + "/m/" + h.authority() + path)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp, string(body)
}

func TestBackfillThenFollow(t *testing.T) {
	h := newFakeHost(t)
	h.pageSize, h.listSize = 100, 2
	long, others := talk(t, "long", 350), []*story{}
	h.put(long)
	for i := range 5 {
		s := talk(t, fmt.Sprintf("r%d", i), 3)
		others = append(others, s)
		h.put(s)
	}
	h.set(func() { h.rooms["hidden"] = &fakeRoom{visibility: "restricted", status: "active"} })
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, long)
	for _, s := range others {
		g.holds(h, s)
	}
	if row := g.row(h, "long"); row.EffectiveVerdict() != replica.Verified || row.State != replica.Following || row.Unverifiable != 0 {
		t.Errorf("row: %+v", row)
	}
	long.say(member, "live")
	h.put(long)
	g.holds(h, long)
	until(t, "the restricted room is listed", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.listed["hidden"] == h.origin() })
	if _, ok := g.set.Get(h.origin(), "hidden"); ok || h.count("/v1/rooms/hidden/events") > 0 {
		t.Error("the records of a restricted room were asked for")
	}
	h.set(func() { delete(h.rooms, "hidden") })
	until(t, "it is unlisted", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.listed) == 0 })
	until(t, "all is counted", func() bool { s := g.m.Hosts()[0]; return s.State == Following && s.Rooms == 6 && s.Records == 351+15 })
	if s := g.m.Hosts()[0]; s.Source != "flag" {
		t.Errorf("host: %+v", s)
	}
}

func TestResumeFromTheOwnCursor(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	s := talk(t, "room", 30)
	h.put(s)
	g := start(t, st, nil).follow(h)
	g.holds(h, s)
	g.stop()
	s.say(member, "while we were away")
	h.put(s)
	before := h.count("/v1/rooms/room/events?after_seq=0&limit=1000")
	g = start(t, st, nil)
	g.holds(h, s)
	if n := h.count("/v1/rooms/room/events?after_seq=0&limit=1000"); n != before {
		t.Error("the room was read from its start again")
	}
	if h.count("/v1/rooms/room/events?after_seq=30&limit=1000") == 0 {
		t.Error("the room was not read from the cursor")
	}
}

// tamper gives a copy of the texts with one replaced.
func tamper(texts [][]byte, at int, old, now string) [][]byte {
	out := slices.Clone(texts)
	out[at] = bytes.Replace(out[at], []byte(old), []byte(now), 1)
	return out
}

func TestLieStopsItsRoomAlone(t *testing.T) {
	bad := func(s *story, id string) map[string][][]byte {
		texts := s.texts()
		gap := slices.Clone(texts)
		gap = slices.Delete(gap, 2, 3)
		return map[string][][]byte{
			"payload":   tamper(texts, 2, "message 2", "never said"),
			"seq":       tamper(texts, 2, `"seq":3`, `"seq":4`),
			"signature": tamper(texts, 2, s.recs[2].Envelope.Signature, s.recs[3].Envelope.Signature),
			"syntax":    tamper(texts, 2, `"seq":3`, `"seq":03`),
			"duplicate": tamper(texts, 2, `"seq":3`, `"seq":3,"seq":3`),
			"cut":       tamper(texts, 2, `"seq":3}`, ``),
			"not one":   append(slices.Clone(texts[:2]), []byte(`7`)),
			"gap":       gap,
		}
	}
	for name := range bad(talk(t, "x", 5), "x") {
		t.Run(name, func(t *testing.T) {
			h := newFakeHost(t)
			good, s := talk(t, "good", 5), talk(t, "bad", 5)
			h.put(good, s)
			h.set(func() { h.rooms["bad"].texts = bad(s, "bad")[name] })
			g := start(t, memory(t), nil).follow(h)
			g.holds(h, good)
			row := g.becomes(h, "bad", replica.Broken)
			if row.Seq != 2 || !strings.HasPrefix(row.Reason, "seq 3: ") || len(row.BadBytes) == 0 {
				t.Errorf("seq %d, reason %q, %d bad bytes", row.Seq, row.Reason, len(row.BadBytes))
			}
			asked := h.count("/v1/rooms/bad/events")
			g.looks(h, 3)
			if n := h.count("/v1/rooms/bad/events"); n != asked {
				t.Errorf("nothing changed and the events were asked for %d times more", n-asked)
			}
			if _, body := g.get(h, "/v1/rooms/bad/events"); strings.Contains(body, "never said") || !strings.Contains(body, s.recs[1].Hash) {
				t.Errorf("served: %.300s", body)
			}
			if len(g.seen()) != 0 {
				t.Errorf("a lie is no second story: %+v", g.seen())
			}
			// the host mends its ways, and shows so
			s.say(member, "more")
			h.put(s)
			g.holds(h, s)
			if row := g.becomes(h, "bad", replica.Verified); row.Reason != "" || row.BadBytes != nil {
				t.Errorf("after recovery: %+v", row)
			}
		})
	}
}

func TestLieInTheFirstRecord(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "bad", 3)
	h.put(s)
	h.set(func() { h.rooms["bad"].texts = tamper(s.texts(), 0, "Room bad", "Room mad") })
	g := start(t, memory(t), nil).follow(h)
	until(t, "the problem is told", func() bool {
		p := g.m.Hosts()[0].Problems
		return len(p) == 1 && p[0].RoomID == "bad" && strings.HasPrefix(p[0].Reason, "seq 1: ")
	})
	if _, ok := g.set.Get(h.origin(), "bad"); ok {
		t.Error("a room without a good record is kept")
	}
}

func TestFork(t *testing.T) {
	for _, grown := range []bool{true, false} { // the other story is longer, or as long as ours
		h, st := newFakeHost(t), memory(t)
		s := talk(t, "room", 40)
		h.put(s)
		g := start(t, st, nil).follow(h)
		g.holds(h, s)
		other := s.cut(12)
		for len(other.recs) < 40 || grown && len(other.recs) < 41 {
			other.say(member, "another story")
		}
		h.put(other)
		row := g.becomes(h, "room", replica.Forked)
		if !strings.HasPrefix(row.Reason, "seq 13: ") || row.Seq != 40 {
			t.Errorf("seq %d, reason %q", row.Seq, row.Reason)
		}
		g.holds(h, s)
		seen := g.seen()
		if len(seen) != 1 || seen[0].Kind != KindFork || seen[0].Seq != 13 || !bytes.Equal(seen[0].Ours[0], s.recs[12].JSON()) || !bytes.Equal(seen[0].Theirs[0], other.recs[12].JSON()) {
			t.Fatalf("observed: %+v", seen)
		}
		r, _ := g.set.Get(h.origin(), "room")
		branch, err := r.Branch(1000)
		if err != nil || !slices.EqualFunc(branch, other.texts()[12:], bytes.Equal) {
			t.Errorf("the branch has %d records: %v", len(branch), err)
		}
		// it stays so, is observed once, and the other story is never served
		other.say(member, "and more")
		h.put(other)
		g.looks(h, 4)
		g.holds(h, s)
		if n := len(g.seen()); n != 1 {
			t.Errorf("observed %d times", n)
		}
		g.stop()
		g = start(t, st, nil)
		g.looks(h, 3)
		if row := g.row(h, "room"); row.EffectiveVerdict() != replica.Forked || row.Seq != 40 || len(g.seen()) != 0 {
			t.Errorf("after a restart: %+v, observed %d", row, len(g.seen()))
		}
		g.stop()
	}
}

func TestGarbageIsNoFork(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 20)
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	// authentic records that nobody could have put there: they do not link
	alien := talk(t, "room", 25)
	h.putAs(alien, append(s.texts()[:9], alien.texts()[9:]...))
	row := g.becomes(h, "room", replica.Broken)
	if !strings.HasPrefix(row.Reason, "seq 10: ") || row.Seq != 20 || len(g.seen()) != 0 {
		t.Errorf("%+v, observed %d", row, len(g.seen()))
	}
	h.put(s)
	g.becomes(h, "room", replica.Verified)
}

func TestBehindAndBack(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 20)
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	h.put(s.cut(15))
	until(t, "it is behind", func() bool { return g.row(h, "room").State == replica.Behind })
	if row := g.row(h, "room"); row.Seq != 20 || !strings.HasPrefix(row.Reason, "seq 16: ") || row.EffectiveVerdict() != replica.Verified {
		t.Errorf("%+v", row)
	}
	if seen := g.seen(); len(seen) != 1 || seen[0].Kind != KindStaleHead || seen[0].Seq != 16 {
		t.Errorf("observed: %+v", seen)
	}
	h.put(s)
	until(t, "it follows again", func() bool { row := g.row(h, "room"); return row.State == replica.Following && row.Reason == "" })
}

func TestAnotherGenesis(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	first, second := talk(t, "room", 6), talk(t, "room", 9)
	h.put(first)
	g := start(t, st, nil).follow(h)
	g.holds(h, first)
	h.put(second)
	find := func() (*replica.Replica, bool) {
		return g.set.GetKey(replica.Key{Origin: h.origin(), RoomID: "room", Genesis: second.recs[0].Hash})
	}
	until(t, "the second room is held", func() bool { r, ok := find(); return ok && r.Row().Seq == 9 })
	g.holds(h, first) // still what is served
	if row := g.row(h, "room"); row.State != replica.Gone || !strings.HasPrefix(row.Reason, "seq 1: ") {
		t.Errorf("the first: %+v", row)
	}
	if seen := g.seen(); len(seen) != 1 || seen[0].Kind != KindGenesis || !bytes.Equal(seen[0].Theirs[0], second.recs[0].JSON()) {
		t.Errorf("observed: %+v", seen)
	}
	g.stop()
	second.say(member, "on")
	h.put(second)
	g = start(t, st, nil)
	until(t, "the second room goes on", func() bool { r, ok := find(); return ok && r.Row().Seq == 10 })
}
