package mirror

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

const (
	soakHosts = 20
	soakRooms = 3 // honest ones of each host; a fourth will be lied about

	perRecord = 2900 // bytes of heap that a record of a story takes in this test
)

// The moods of a host.
const (
	moodFine    = iota
	moodDead    // connections are cut
	moodStall   // answers come late, or never
	moodHalf    // answers are cut in the middle
	moodBroken  // 500
	moodBusy    // 429, and not to be asked for a second
	moodGarbage // 200, and no ADP
	moodTamper  // pages of events with a word changed
	moodBackup  // the host has lost the newest records of its rooms, for now
	moods
)

// The lies that a host does not take back, and what becomes of the room.
const (
	lieFork    = iota // another story from the middle on
	lieGenesis        // another room under the same ID
	lieTamper         // a new record whose signature is not right
	lieBehind         // fewer records than shown before, for good
	lieKinds
)

// soakHost is a fake host with moods.
type soakHost struct {
	*fakeHost
	mood   atomic.Int64
	honest []*story
	liar   *story
	lie    int // -1 before it lies
	other  *story
}

func newSoakHost(t *testing.T, n int) *soakHost {
	h := &soakHost{fakeHost: &fakeHost{t: t, rooms: map[string]*fakeRoom{}, asked: map[string]int{}, pageSize: 50, listSize: 3}, lie: -1}
	for i := range soakRooms {
		s := talk(t, fmt.Sprintf("honest-%d-%d", n, i), 3)
		h.honest = append(h.honest, s)
	}
	h.liar = talk(t, fmt.Sprintf("liar-%d", n), 12)
	h.put(append([]*story{h.liar}, h.honest...)...)
	h.srv = httptest.NewServer(h)
	return h
}

// cut ends a connection without an answer.
func cut(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func (h *soakHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch mood := h.mood.Load(); mood {
	case moodDead:
		cut(w)
	case moodStall:
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for h.mood.Load() == moodStall {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		h.fakeHost.ServeHTTP(w, r)
	case moodBroken:
		refuse(w, 500, "internal")
	case moodBusy:
		w.Header().Set("Retry-After", "1")
		refuse(w, 429, "rate_limited")
	case moodGarbage:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"id":7},{"envelope":{},"seq":9007199254740993},`)
	case moodHalf, moodTamper, moodBackup:
		rec := httptest.NewRecorder()
		h.fakeHost.ServeHTTP(rec, r)
		body := rec.Body.String()
		events := strings.HasSuffix(r.URL.Path, "/events") && strings.Contains(r.URL.Path, "/honest-")
		switch {
		case mood == moodTamper && events:
			body = strings.ReplaceAll(body, "message", "massage")
		case mood == moodBackup && events:
			body = "[]"
		}
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		if w.WriteHeader(rec.Code); mood == moodHalf {
			_, _ = w.Write([]byte(body[:len(body)/2]))
			_ = http.NewResponseController(w).Flush()
			cut(w)
			return
		}
		fmt.Fprint(w, body)
	default:
		h.fakeHost.ServeHTTP(w, r)
	}
}

// tell makes the host lie about its last room for good.
func (h *soakHost) tell(lie int) {
	s := h.liar
	h.lie = lie
	switch lie {
	case lieFork:
		h.other = s.cut(5)
		for len(h.other.recs) <= len(s.recs) {
			h.other.say(member, "another story")
		}
		h.put(h.other)
	case lieGenesis:
		h.other = talk(h.t, s.id, 9)
		h.put(h.other)
	case lieTamper:
		h.other = s.cut(len(s.recs))
		h.other.say(member, "what was said")
		h.putAs(h.other, tamper(h.other.texts(), len(s.recs), "what was said", "what was not"))
	case lieBehind:
		h.put(s.cut(len(s.recs) - 4))
	}
}

// named tells whether the lie is, and the room as it was is still held.
func (h *soakHost) named(g *rig) (ok bool, what string) {
	r, held := g.set.Get(h.origin(), h.liar.id)
	if !held {
		return false, "not held"
	}
	row, n := r.Row(), int64(len(h.liar.recs))
	ok = row.Seq == n && row.Hash == h.liar.recs[n-1].Hash && strings.HasPrefix(row.Reason, "seq ")
	switch h.lie {
	case lieFork:
		ok = ok && row.EffectiveVerdict() == replica.Forked
	case lieGenesis:
		_, second := g.set.GetKey(replica.Key{Origin: h.origin(), RoomID: h.liar.id, Genesis: h.other.recs[0].Hash})
		ok = ok && row.State == replica.Gone && second
	case lieTamper:
		ok = ok && row.EffectiveVerdict() == replica.Broken
	case lieBehind:
		ok = ok && row.State == replica.Behind
	}
	return ok, fmt.Sprintf("seq %d of %d, %s, %s, %q", row.Seq, n, row.EffectiveVerdict(), row.State, row.Reason)
}

// files counts the open file descriptors of this process.
func files(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the open files of a process are not to be seen here")
	}
	return len(list)
}

// Hosts that die, stall, lie and come back at random, and a mirror that is restarted
// now and then. SOAK is for how long (10 s), SOAK_SEED plays the same events again.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes its time")
	}
	length := 10 * time.Second
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SOAK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SOAK_SEED: %v", err)
		}
	}
	t.Logf("SOAK_SEED=%d SOAK=%s", seed, length)
	goroutines, open := runtime.NumGoroutine(), files(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	st, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	impatient := func(m *Mirror) { m.roomRetry = 500 * time.Millisecond }
	g := startOn(t, st, soakOptions, impatient)
	var hosts []*soakHost
	for i := range soakHosts {
		h := newSoakHost(t, i)
		hosts = append(hosts, h)
		g.follow(h.fakeHost)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	said, restarts, met := 0, 0, map[int]int{}
	var middle uint64
	began := time.Now()
	for time.Since(began) < length {
		<-tick.C
		// drawn whatever comes of it, so that a seed means the same course of events
		h, dice, which, more := hosts[rng.IntN(len(hosts))], rng.IntN(100), rng.Int(), 1+rng.IntN(5)
		switch {
		case dice < 55:
			s := h.honest[which%soakRooms]
			for range more {
				s.say(member, fmt.Sprintf("message %d", said))
				said++
			}
			h.put(s)
		case dice < 80:
			h.mood.Store(int64(which % moods))
			met[which%moods]++
		case dice < 95:
			h.mood.Store(moodFine)
		case dice < 99:
			// what was never shown can be denied: a lie is one only against what is held
			if h.lie < 0 && g.row(h.fakeHost, h.liar.id).Seq == int64(len(h.liar.recs)) {
				h.tell(which % lieKinds)
			}
		case which%4 == 0:
			g.stop()
			restarts++
			g = startOn(t, st, soakOptions, impatient)
		}
		if middle == 0 && time.Since(began) > length/2 {
			middle = heap() - uint64(said*perRecord)
		}
	}

	// all come to rest; what did not lie yet does now
	for _, h := range hosts {
		h.mood.Store(moodFine)
	}
	for _, h := range hosts {
		if h.lie < 0 {
			until(t, h.liar.id+" is held", func() bool { return g.row(h.fakeHost, h.liar.id).Seq == int64(len(h.liar.recs)) })
			h.tell(rng.IntN(lieKinds))
		}
	}
	lied := map[int]int{}
	for _, h := range hosts {
		for _, s := range h.honest {
			last := s.recs[len(s.recs)-1]
			until(t, fmt.Sprintf("%s holds all %d records and nothing is wrong with it", s.id, last.Seq), func() bool {
				row := g.row(h.fakeHost, s.id)
				return row.Seq == last.Seq && row.Hash == last.Hash && row.EffectiveVerdict() == replica.Verified && row.State == replica.Following && row.Reason == ""
			})
			g.holds(h.fakeHost, s) // every byte
		}
		lied[h.lie]++
		var what string
		ok := false
		limit := time.Now().Add(patience)
		for !ok && time.Now().Before(limit) {
			<-tick.C
			ok, what = h.named(g)
		}
		if !ok {
			t.Errorf("lie %d about %s is not named: %s", h.lie, h.liar.id, what)
		}
	}
	until(t, "all hosts are followed", func() bool {
		return !slices.ContainsFunc(g.m.Hosts(), func(s HostStatus) bool { return s.State != Following })
	})
	end := heap() - uint64(said*perRecord)
	t.Logf("%d records said, %d restarts, moods %v, lies by kind %v; heap %d MiB in the middle, %d MiB at the end, without what the hosts hold", said, restarts, met, lied, middle>>20, end>>20)
	if end > maxHeap || end > middle+48<<20 {
		t.Errorf("the heap grew from %d to %d MiB", middle>>20, end>>20)
	}

	// nothing is left behind
	g.stop()
	for _, h := range hosts {
		h.srv.Close()
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	limit := time.Now().Add(patience)
	for runtime.NumGoroutine() > goroutines || files(t) > open {
		if time.Now().After(limit) {
			var all strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
			t.Fatalf("%d goroutines and %d open files are left, %d and %d were there before:\n%s", runtime.NumGoroutine(), files(t), goroutines, open, all.String())
		}
		<-tick.C
	}
}

func soakOptions(o *Options) {
	o.PollMin, o.PollMax, o.BackoffMin, o.BackoffMax = 20*time.Millisecond, 200*time.Millisecond, 50*time.Millisecond, time.Second
}
