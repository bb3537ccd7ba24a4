package mirror

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// What a small machine has to offer (issue: a mirror that survives the real world).
const (
	maxHeap = 300 << 20
	// beside one goroutine a host: the store's, the server's of this test, and the
	// idle connections, of which the client keeps 128, three goroutines each
	maxGoroutines = 500
)

// size of the simulation; WITAN_SCALE=full is what the project promises.
type size struct{ hosts, rooms, records, hugeRooms, hugeRecords int }

func scale() size {
	if os.Getenv("WITAN_SCALE") == "full" {
		return size{1000, 20, 5, 2000, 50}
	}
	return size{150, 6, 3, 500, 20} // the huge one has four times what all others have
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one finalises
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// sampled gives the greatest value seen so far of something that goes up and down.
type sampled struct{ goroutines, heap atomic.Int64 }

func (s *sampled) take() {
	raise := func(a *atomic.Int64, n int64) {
		for old := a.Load(); n > old && !a.CompareAndSwap(old, n); old = a.Load() {
		}
	}
	raise(&s.goroutines, int64(runtime.NumGoroutine()))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	raise(&s.heap, int64(m.HeapAlloc))
}

func (s *sampled) during(fn func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.take()
			case <-stop:
				return
			}
		}
	}()
	fn()
	close(stop)
	<-done
}

// Many hosts, followed by one mirror: in bounded memory, with a goroutine a host and
// none a room, and no host waits for a huge one.
func TestScale(t *testing.T) {
	z := scale()
	f := newFleet(t)
	const kinds = 64 // of rooms, which hosts share
	var stories []*story
	for i := range kinds {
		stories = append(stories, talk(t, fmt.Sprintf("room-%d", i), z.records))
	}
	var hosts []*fleetHost
	for i := range z.hosts {
		var of []*story
		for k := range z.rooms {
			of = append(of, stories[(i*7+k)%kinds])
		}
		hosts = append(hosts, f.add(i, of...))
	}
	var big []*story
	for k := range z.hugeRooms {
		big = append(big, talk(t, fmt.Sprintf("huge-%d", k), z.hugeRecords))
	}
	huge := f.add(z.hosts, big...)
	big = nil
	fixture, before := heap(), runtime.NumGoroutine()

	st, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	// No room is read before the list of every host: that of the huge one is longer, but
	// it must not be done because others came later.
	all, looked := make(chan struct{}), sync.Map{}
	var left atomic.Int64
	left.Store(int64(z.hosts + 1))
	f.before = func(h *fleetHost, r *http.Request) {
		if r.URL.Path != listPath {
			if strings.HasSuffix(r.URL.Path, "/events") {
				select {
				case <-all:
				case <-r.Context().Done():
				}
			}
		} else if _, again := looked.LoadOrStore(h.name, true); !again && left.Add(-1) == 0 {
			close(all)
		}
	}
	var mu sync.Mutex
	told := map[uint64]int64{}
	var records, hugeRecords, hugeAt atomic.Int64
	want, hugeWant := int64(z.hosts*z.rooms*z.records), int64(z.hugeRooms*z.hugeRecords)
	change := func(o *Options) {
		o.PollMin, o.PollMax = time.Second, time.Hour
		o.Changed = func(r *replica.Replica) { // a room may be told of again, and with some of its records
			mu.Lock()
			n := max(0, r.Row().Seq-told[r.ID])
			told[r.ID] += n
			mu.Unlock()
			if r.Origin == huge.origin() {
				hugeRecords.Add(n)
			} else if records.Add(n) == want && n > 0 {
				hugeAt.Store(hugeRecords.Load())
			}
		}
	}
	began := time.Now()
	var g *rig
	var peak sampled
	var others time.Duration
	peak.during(func() {
		g = startOn(t, st, change, func(m *Mirror) {
			for _, h := range append([]*fleetHost{huge}, hosts...) {
				if err := m.Add(h.origin(), "flag"); err != nil {
					t.Fatal(err)
				}
			}
		})
		untilWithin(t, 5*time.Minute, "all hosts are mirrored", func() bool { return records.Load() == want })
		others = time.Since(began)
		untilWithin(t, 5*time.Minute, "the huge host is mirrored", func() bool { return hugeRecords.Load() == hugeWant })
	})
	took := time.Since(began)
	if n := hugeAt.Load(); n == hugeWant {
		t.Errorf("the huge host was done before the others were")
	}
	until(t, "nothing is asked for any more", func() bool { return f.present.Load() == 0 && runtime.NumGoroutine() <= before+z.hosts+maxGoroutines })
	idle := runtime.NumGoroutine()
	if idle > before+z.hosts+maxGoroutines {
		t.Errorf("%d goroutines while idle", idle)
	}
	held := heap()
	t.Logf("%d hosts × %d rooms × %d records and one with %d × %d: %.1f s for the small ones, %.1f s for all, the huge one then at %d of %d records",
		z.hosts, z.rooms, z.records, z.hugeRooms, z.hugeRecords, others.Seconds(), took.Seconds(), hugeAt.Load(), hugeWant)
	t.Logf("heap %d MiB (%d of it the test's own), at most %d; goroutines %d idle, at most %d; requests at a time at most %d", held>>20, fixture>>20, peak.heap.Load()>>20, idle, peak.goroutines.Load(), f.peak.Load())
	if held > maxHeap {
		t.Errorf("%d MiB of heap are in use, %d are allowed", held>>20, maxHeap>>20)
	}
	for _, s := range g.m.Hosts() {
		if s.State != Following || len(s.Problems) > 0 {
			t.Fatalf("%+v", s)
		}
	}
	runtime.KeepAlive(hosts)
}

func untilWithin(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(d)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

// What the operator allows a host holds for each: rooms in work, requests a second,
// rooms, records of a room, bytes.
func TestHostLimits(t *testing.T) {
	const rooms, records = 60, 6
	var stories []*story
	size := int64(0)
	for i := range rooms {
		s := talk(t, fmt.Sprintf("room-%02d", i), records)
		for _, r := range s.recs {
			size += int64(len(r.JSON()))
		}
		stories = append(stories, s)
	}
	held := func(g *rig, h *fleetHost) (rooms int, records, bytes int64) {
		for _, r := range g.set.Of(h.origin()) {
			row := r.Row()
			rooms, records, bytes = rooms+1, records+row.Seq, bytes+row.Bytes
		}
		return rooms, records, bytes
	}
	for name, c := range map[string]struct {
		change func(*Options)
		rooms  int
		least  int64 // records
		check  func(t *testing.T, h *fleetHost, records, bytes int64, began time.Time)
	}{
		"rooms in work": {func(o *Options) { o.ConcurrencyPerHost = 2 }, rooms, rooms * records, func(t *testing.T, h *fleetHost, _, _ int64, _ time.Time) {
			if _, most := h.requests(); most > 2+1 { // and the look at the list
				t.Errorf("%d requests at a time", most)
			}
		}},
		"requests a second": {func(o *Options) { o.RequestsPerSecond = 40 }, rooms, rooms * records, func(t *testing.T, h *fleetHost, _, _ int64, began time.Time) {
			n, _ := h.requests()
			took := time.Since(began)
			if least := time.Duration(n-40-1) * time.Second / 40; took < least {
				t.Errorf("%d requests in %v", n, took)
			}
		}},
		"rooms": {func(o *Options) { o.RoomsPerHost = 7 }, 7, 7 * records, func(*testing.T, *fleetHost, int64, int64, time.Time) {}},
		"records of a room": {func(o *Options) { o.RecordsPerRoom = 3 }, rooms, rooms * 3, func(t *testing.T, _ *fleetHost, records, _ int64, _ time.Time) {
			if records != rooms*3 {
				t.Errorf("%d records", records)
			}
		}},
		"bytes": {func(o *Options) { o.BytesPerHost, o.ConcurrencyPerHost = size/2, 1 }, rooms, rooms * records / 3, func(t *testing.T, _ *fleetHost, _, bytes int64, _ time.Time) {
			// a first record is always kept, so that it can be told what stands in the way
			if bytes < size/3 || bytes > size/2+size/records {
				t.Errorf("%d bytes of %d, half are allowed", bytes, size)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			limited, other := f.add(0, stories...), f.add(1, stories[:3]...)
			began := time.Now()
			g := start(t, memory(t), func(o *Options) { o.PollMin = time.Second; c.change(o) })
			for _, h := range []*fleetHost{limited, other} {
				if err := g.m.Add(h.origin(), "flag"); err != nil {
					t.Fatal(err)
				}
			}
			settled, since := int64(-1), time.Now()
			until(t, "no more comes", func() bool {
				n, records, _ := held(g, limited)
				if records != settled {
					settled, since = records, time.Now()
				}
				return n >= c.rooms && records >= c.least && time.Since(since) > 300*time.Millisecond
			})
			n, records, bytes := held(g, limited)
			if n != c.rooms {
				t.Errorf("%d rooms, not %d", n, c.rooms)
			}
			c.check(t, limited, records, bytes, began)
			until(t, "the other host is not held up", func() bool { n, _, _ := held(g, other); return n == 3 })
		})
	}
}

// Hosts that let us wait do not take the slots from those that do not.
func TestSlowHostsWaitForEachOther(t *testing.T) {
	const slow, rooms = 12, 24
	f := newFleet(t)
	var stories []*story
	for i := range rooms {
		stories = append(stories, talk(t, fmt.Sprintf("room-%02d", i), 3))
	}
	var stalled atomic.Int64
	var hosts []*fleetHost
	for i := range slow {
		h := f.add(i, stories...)
		h.stall = func(done <-chan struct{}) { // whoever comes in turns with them comes never
			stalled.Add(1)
			<-done
		}
		hosts = append(hosts, h)
	}
	good := f.add(slow, stories...)
	g := startOn(t, memory(t), nil, func(m *Mirror) {
		m.work, m.slow, m.slowAfter = newPool(4), newPool(2), patience
		for _, h := range hosts {
			if err := m.Add(h.origin(), "flag"); err != nil {
				t.Fatal(err)
			}
			m.host(h.origin()).timed(patience) // it has shown before that it is slow
		}
	})
	until(t, "slow hosts have all the slots that are theirs", func() bool { return stalled.Load() >= 2 })
	if err := g.m.Add(good.origin(), "flag"); err != nil {
		t.Fatal(err)
	}
	until(t, "the good host is mirrored", func() bool {
		n := int64(0)
		for _, r := range g.set.Of(good.origin()) {
			n += r.Row().Seq
		}
		return n == rooms*3
	})
}

// How long a host lets us wait tells whether it is a slow one.
func TestExchangesAreTimed(t *testing.T) {
	for _, after := range []time.Duration{0, patience} {
		h := newFakeHost(t)
		s := talk(t, "room", 3)
		h.put(s)
		g := startOn(t, memory(t), nil, func(m *Mirror) { m.slowAfter = after }).follow(h)
		g.holds(h, s)
		if x := g.m.host(h.origin()); (x.work() == g.m.slow) != (after == 0) {
			t.Errorf("slow from %v on: until %v", after, time.Unix(0, x.slowTill.Load()))
		}
	}
}
