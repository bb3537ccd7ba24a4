package mirror

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// However many rooms stand in line that are new or that fail, those that are known wait
// for few of them, new ones for a bounded number, and nobody waits for ever.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l line
		left := map[*roomView]int{}
		for kind := range turnKinds {
			for range rapid.IntRange(0, 60).Draw(t, "rooms") {
				v := &roomView{}
				l.push(v, kind)
				left[v] = kind
			}
		}
		of := func(yes func(kind int) bool) (n int) {
			for _, kind := range left {
				if yes(kind) {
					n++
				}
			}
			return n
		}
		known := func(kind int) bool { return kind == turnKnown }
		others, sinceNew, sinceFailed := 0, 0, 0
		for len(left) > 0 {
			knownOnly := rapid.Float64().Draw(t, "others have no slot") < 0.1
			some := of(known) > 0
			v := l.next(knownOnly)
			if v == nil {
				if !knownOnly || some {
					t.Fatalf("nobody came, %d stand in line", len(left))
				}
				continue
			}
			kind, ok := left[v]
			if !ok {
				t.Fatal("a room had two turns")
			}
			if knownOnly && kind != turnKnown {
				t.Fatalf("kind %d came, and known rooms alone may", kind)
			}
			if some && kind != turnKnown {
				if others++; others > 2 {
					t.Fatal("a known room waits for more than two others in a row")
				}
			} else {
				others = 0
			}
			if !knownOnly {
				sinceNew, sinceFailed = sinceNew+1, sinceFailed+1
			}
			if kind == turnNew || of(func(k int) bool { return k == turnNew }) == 0 {
				sinceNew = 0
			}
			if kind >= turnFailed || of(func(k int) bool { return k >= turnFailed }) == 0 {
				sinceFailed = 0
			}
			if sinceNew > 2*newEvery || sinceFailed > 2*failedEvery {
				t.Fatalf("a new room waits for %d turns, one that failed for %d", sinceNew, sinceFailed)
			}
			if delete(left, v); l.n != len(left) {
				t.Fatalf("%d in line, %d left", l.n, len(left))
			}
		}
	})
}

// crowd is a host that lists its own rooms, and more that cannot be read.
type crowd struct {
	*fakeHost
	read func(w http.ResponseWriter, r *http.Request) // who reads one of them

	mu     sync.Mutex
	lost   func(look int) []string
	looked int
	asked  map[string]int
}

const lostRoom = "lost-"

// answerTime is how long a host may take for an answer before it is given up.
const answerTime = 30 * time.Second

func newCrowd(t *testing.T, read func(w http.ResponseWriter, r *http.Request)) *crowd {
	c := &crowd{fakeHost: newFakeHost(t), read: read, asked: map[string]int{}, lost: func(int) []string { return nil }}
	c.srv.Config.Handler = c
	return c
}

// many are n lost rooms, the same at each look.
func many(n int) func(int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%d", lostRoom, i))
	}
	return func(int) []string { return ids }
}

func (c *crowd) list(lost func(int) []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = lost
}

func (c *crowd) times() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for id, n := range c.asked {
		out[id] = n
	}
	return out
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/rooms/"), "/")
	switch {
	case strings.HasPrefix(id, lostRoom):
		c.mu.Lock()
		c.asked[id]++
		c.mu.Unlock()
		c.read(w, r)
	case r.URL.Path == listPath:
		c.mu.Lock()
		ids := c.lost(c.looked)
		c.looked++
		c.mu.Unlock()
		w.Header().Set("Content-Type", apiType)
		var b strings.Builder
		for _, id := range ids {
			fmt.Fprintf(&b, `{"id":%q,"visibility":"public","status":"active","topic":"t","seq":9007199254740991,"hash":%q},`, id, strings.Repeat("A", 43))
		}
		c.fakeHost.mu.Lock()
		defer c.fakeHost.mu.Unlock()
		c.fakeHost.asked[r.RequestURI]++
		var own []string
		for id, room := range c.rooms {
			own = append(own, string(c.resource(id, room)))
		}
		fmt.Fprintf(w, "[%s%s]", b.String(), strings.Join(own, ","))
	default:
		c.fakeHost.ServeHTTP(w, r)
	}
}

// Rooms that let us wait never take the last slot of their host: the one that can be
// read goes on while none of the others has answered.
func TestRoomsThatHangLeaveASlot(t *testing.T) {
	over := make(chan struct{})
	h := newCrowd(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	good := talk(t, "good", 5)
	h.put(good)
	g := start(t, memory(t), nil).follow(h.fakeHost)
	t.Cleanup(func() { close(over) })
	g.holds(h.fakeHost, good)
	began := time.Now()
	h.list(many(5000))
	until(t, "others are asked", func() bool { return len(h.times()) >= g.m.o.ConcurrencyPerHost-1 })
	for range 5 {
		good.say(member, "on")
		h.put(good)
		g.holds(h.fakeHost, good)
	}
	asked := len(h.times())
	most := (g.m.o.ConcurrencyPerHost - 1) * (1 + int(time.Since(began)/answerTime)) // after that time another room has its turn
	if asked > most {
		t.Errorf("%d rooms that do not answer were asked, want at most %d", asked, most)
	}
}

// Half a million rooms that cannot be read, made small: what is claimed does not count as
// what is to come, each room waits longer with each failure, and the good one goes on.
func TestRoomsThatAreMerelyListed(t *testing.T) {
	const lost = 3000
	h := newCrowd(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "room_not_found") })
	good := talk(t, "good", 5)
	h.put(good)
	h.list(many(lost))
	began := time.Now()
	g := start(t, memory(t), nil).follow(h.fakeHost)
	g.holds(h.fakeHost, good)
	until(t, "all were asked", func() bool { return len(h.times()) == lost })
	for range 3 {
		good.say(member, "on")
		h.put(good)
		g.holds(h.fakeHost, good)
	}
	until(t, "nothing is to come, and the rest is merely claimed", func() bool {
		r := g.m.Report(h.origin())[0]
		return r.Behind == 0 && r.Claimed == lost*g.m.o.RecordsPerRoom && r.State == Following && len(r.Problems) == maxProblems && len(r.RoomList) == 1+maxUnread
	})
	asked := h.times()
	elapsed := time.Since(began)
	for id, n := range asked {
		if n > g.tries(elapsed) {
			t.Fatalf("%s was asked %d times within %v", id, n, elapsed)
		}
	}
}

// A host that lists other rooms at each look fills neither the memory nor the line, and
// the rooms that are held are followed though they stand behind all others.
func TestOtherRoomsAtEachLook(t *testing.T) {
	const most = 300
	over := make(chan struct{})
	h := newCrowd(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	good := talk(t, "good", 5)
	h.put(good)
	g := start(t, memory(t), func(o *Options) { o.RoomsPerHost = most }).follow(h.fakeHost)
	t.Cleanup(func() { close(over) })
	g.holds(h.fakeHost, good)
	h.list(func(look int) (ids []string) {
		for i := range 1000 {
			ids = append(ids, fmt.Sprintf("%s%d-%d", lostRoom, look, i))
		}
		return ids
	})
	followed := g.m.host(h.origin())
	for range 10 {
		good.say(member, "on")
		h.put(good)
		g.holds(h.fakeHost, good)
		g.looks(h.fakeHost, 1)
		followed.mu.Lock()
		rooms, inLine := len(followed.rooms), followed.line.n
		followed.mu.Unlock()
		if rooms > most || inLine > most {
			t.Fatalf("%d rooms are known, %d in line", rooms, inLine)
		}
	}
	if s := g.m.Hosts()[0]; !strings.Contains(s.Reason, "more than 300 rooms") {
		t.Errorf("%+v", s)
	}
}

// A room that is stuck and goes on at its host is not asked at each of its records.
func TestStuckRoomThatMovesOn(t *testing.T) {
	h := newFakeHost(t)
	s, good := talk(t, "bad", 6), talk(t, "good", 5)
	h.put(s, good)
	h.set(func() { h.rooms["bad"].texts = tamper(s.texts(), 2, "message 2", "never said") })
	h.takeOver(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == listPath {
			h.rooms["bad"].seq++
		}
		return false
	})
	g := start(t, memory(t), nil).follow(h)
	g.becomes(h, "bad", replica.Broken)
	for range 300 { // a look for each
		good.say(member, "on")
		h.put(good)
		g.holds(h, good)
	}
	if n := h.count(badEvents); n > 75 { // two for each try, some twenty tries within hours
		t.Errorf("the bad room was asked for %d times in %d looks", n, h.count(listPath))
	}
	h.takeOver(nil)
	s.add(creator, room.Close, map[string]any{})
	h.put(s)
	g.must(g.m.Retry(h.origin()))
	g.becomes(h, "bad", replica.Verified)
}

// A room that its host shows now so, now so, is not followed back and forth at each look.
func TestRoomThatGoesBackAndForth(t *testing.T) {
	one := talk(t, "bad", 6)
	for name, other := range map[string]*story{"shorter": one.cut(5), "another genesis": talk(t, "bad", 6)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, good := newFakeHost(t), talk(t, "good", 5)
			h.put(one, good)
			log := &transitions{seen: map[string]int{}}
			g := start(t, memory(t), func(o *Options) { o.Log = slog.New(log) }).follow(h)
			g.holds(h, one)
			told := func() (n int) {
				for _, to := range []string{"behind", "following", "gone"} {
					n += log.count("a room changed its state: " + to + " verified")
				}
				return n
			}
			h.put(other)
			until(t, "the other story is found", func() bool { return told() > 0 })
			for i := range 200 { // a look for each
				h.put([]*story{one, other}[i%2])
				good.say(member, "on")
				h.put(good)
				g.holds(h, good)
			}
			if n := told(); n > 60 {
				t.Errorf("%d changes of state in %d looks", n, h.count(listPath))
			}
			h.put(one)
			g.must(g.m.Retry(h.origin()))
			until(t, "it is followed again", func() bool {
				row := g.row(h, "bad")
				return row.State == replica.Following && row.Hash == one.recs[5].Hash
			})
		})
	}
}
