package host_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// ended counts what a host was told of ended rooms.
type ended struct {
	sync.Mutex
	n map[string]int
}

func (e *ended) tell(r *replica.Replica) {
	e.Lock()
	defer e.Unlock()
	if e.n == nil {
		e.n = map[string]int{}
	}
	e.n[r.RoomID]++
}

func (e *ended) of(id string) int {
	e.Lock()
	defer e.Unlock()
	return e.n[id]
}

// inBubble runs a test on the fake clock, with a store of its own. Its rooms last
// for minutes: the store's engine ticks all the time.
func inBubble(t *testing.T, test func(t *testing.T, w *world, e *ended)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &ended{}
		w := newWorld(t, func(o *host.Options) {
			o.Now, o.Ended, o.Limits.RoomMinMS = func() int64 { return time.Now().UnixMilli() }, e.tell, 1
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.h.Run(ctx) }()
		test(t, w, e)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) status(id string, a *agent) string {
	w.t.Helper()
	return w.resource(id, a).Get("status").Text()
}

func (w *world) statusWant(id, want string) {
	w.t.Helper()
	if got := w.status(id, nil); got != want {
		w.t.Fatalf("the room is %s, want %s", got, want)
	}
}

func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

// The clock starts and ends a room without a record.
func TestSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, e *ended) {
		now := time.Now().UnixMilli()
		a, id := w.open(obj{"start_time": now + minute, "end_time": now + 2*minute})
		after(time.Minute - time.Millisecond)
		w.statusWant(id, "scheduled")
		w.act(a, id, room.Message, say("early")).refused(409, adp.RoomNotActive)
		after(time.Millisecond)
		w.statusWant(id, "active")
		w.act(a, id, room.Message, say("begun")).ok(200)
		w.act(a, id, room.Cancel, obj{}).refused(409, adp.RoomNotActive)
		w.act(a, id, room.Update, obj{"end_time": time.Now().UnixMilli() - 1}).refused(400, adp.InvalidEvent)
		after(time.Minute - time.Millisecond)
		w.act(a, id, room.Message, say("in time")).ok(200)
		if w.replica(id).Row().Archived || e.of(id) != 0 {
			t.Error("the room was finished before its end")
		}
		after(time.Millisecond)
		w.statusWant(id, "ended")
		w.act(a, id, room.Message, say("late")).refused(409, adp.RoomEnded)
		if !w.replica(id).Row().Archived || e.of(id) != 1 {
			t.Errorf("archived %v, told %d times", w.replica(id).Row().Archived, e.of(id))
		}
		m := w.get("/v1/rooms/"+id+"/archive", nil).ok(200)
		var d adp.Digest
		for _, r := range w.records(id, nil) {
			d.Add(r)
		}
		if c, err := adp.ParseClaim(m.Raw()); err != nil || c.Check(d.Summary()) != nil || num(m.Get("event_count")) != 3 {
			t.Errorf("%v: %s", err, m.Raw())
		}
		after(20 * time.Minute)
		if e.of(id) != 1 {
			t.Errorf("told %d times", e.of(id))
		}
	})
}

func TestEndMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, e *ended) {
		now := time.Now().UnixMilli()
		a, later := w.open(nil)
		w.act(a, later, room.Update, obj{"end_time": now + 5*minute}).ok(200)
		b, sooner := w.open(obj{"end_time": now + 10*minute})
		w.act(b, sooner, room.Update, obj{"end_time": now + 2*minute}).ok(200)
		c, start := w.open(obj{"start_time": now + 3*minute, "end_time": now + 8*minute})
		w.act(c, start, room.Update, obj{"start_time": now + minute, "end_time": now + 4*minute}).ok(200)
		after(time.Minute)
		w.statusWant(later, "active")
		w.statusWant(start, "active")
		after(time.Minute)
		w.statusWant(sooner, "ended")
		if e.of(later) != 0 || e.of(sooner) != 1 {
			t.Errorf("told %v", e.n)
		}
		after(2 * time.Minute)
		if e.of(later) != 0 || e.of(start) != 1 {
			t.Errorf("told %v", e.n)
		}
		w.act(a, later, room.Message, say("still on")).ok(200)
		after(time.Minute)
		w.statusWant(later, "ended")
		after(6 * time.Minute)
		for _, id := range []string{later, sooner, start} {
			if !w.replica(id).Row().Archived || e.of(id) != 1 {
				t.Errorf("archived %v, told %d times", w.replica(id).Row().Archived, e.of(id))
			}
		}
	})
}

func TestCloseAndCancel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, e *ended) {
		a, closed := w.open(nil)
		w.put("/v1/rooms/"+closed+"/agent-status", a, obj{"state": "idle"}).ok(200)
		w.act(a, closed, room.Close, obj{}).ok(200)
		synctest.Wait() // the scheduler does it at once
		if n := w.statuses(closed, nil); n != 0 {
			t.Errorf("%d statuses outlived the room", n)
		}
		if !w.replica(closed).Row().Archived || e.of(closed) != 1 {
			t.Errorf("archived %v, told %d times", w.replica(closed).Row().Archived, e.of(closed))
		}
		now := time.Now().UnixMilli()
		b, cancelled := w.open(obj{"start_time": now + minute, "end_time": now + 2*minute})
		w.act(b, cancelled, room.Cancel, obj{}).ok(200)
		after(3 * time.Minute)
		if w.replica(cancelled).Row().Archived || e.of(cancelled) != 0 || e.of(closed) != 1 {
			t.Errorf("a cancelled room: archived %v, told %v", w.replica(cancelled).Row().Archived, e.n)
		}
		w.statusWant(cancelled, "cancelled")
		w.get("/v1/rooms/"+cancelled+"/events", nil).ok(200) // its records stay
	})
}

// The scheduler may come to a room twice, when a last write is answered while it
// is there.
func TestEndedOnce(t *testing.T) {
	e := &ended{}
	w := newWorld(t, func(o *host.Options) { o.Ended = e.tell })
	a, id := w.open(nil)
	w.act(a, id, room.Close, obj{}).ok(200)
	parallel(5, func(int) (none struct{}) { w.h.Transition(t.Context(), w.replica(id)); return none })
	if e.of(id) != 1 {
		t.Errorf("told %d times", e.of(id))
	}
}

// Somebody may ask for the archive before the scheduler comes to it.
func TestArchiveAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &ended{}
		w := newWorld(t, func(o *host.Options) { o.Ended = e.tell })
		a, id := w.open(nil)
		w.act(a, id, room.Close, obj{}).ok(200)
		all := parallel(10, func(int) answer { return w.get("/v1/rooms/"+id+"/archive", nil) })
		for _, x := range all {
			if x.ok(200); string(x.body) != string(all[0].body) {
				t.Error("two archives of one room")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.h.Run(ctx) }()
		synctest.Wait()
		if e.of(id) != 1 {
			t.Errorf("told %d times", e.of(id))
		}
		cancel()
		<-done
	})
}

// A daemon that slept through starts and ends finishes the rooms when it wakes.
func TestSleptThrough(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var ends, closes, starts string
	t.Run("before", func(t *testing.T) {
		w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), nil)
		_, ends = w.open(nil)
		_, starts = w.open(obj{"start_time": t0 + hour, "end_time": t0 + 24*hour})
		a, id := w.open(nil)
		w.act(a, id, room.Close, obj{}).ok(200) // nobody keeps time: the daemon dies before the archive
		closes = id
	})
	for _, round := range []struct {
		name string
		told int
	}{{"woken", 1}, {"woken again", 0}} {
		t.Run(round.name, func(t *testing.T) {
			told := make(chan string, 10)
			w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), func(o *host.Options) { o.Ended = func(r *replica.Replica) { told <- r.RoomID } })
			w.clock.Store(t0 + 10*hour)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.h.Run(ctx) }()
			got := map[string]int{}
			for range 2 * round.told {
				got[<-told]++
			}
			if got[ends] != round.told || got[closes] != round.told {
				t.Errorf("told %v", got)
			}
			for _, id := range []string{ends, closes} {
				if !w.replica(id).Row().Archived {
					t.Errorf("%s has no archive", id)
				}
				w.get("/v1/rooms/"+id+"/archive", nil).ok(200)
			}
			w.statusWant(starts, "active")
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			select {
			case id := <-told:
				t.Errorf("told of %s once more", id)
			default:
			}
		})
	}
}

// The host trusts its clock, not its timers: a jump is noticed within a minute.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &ended{}
		var offset atomic.Int64
		w := newWorld(t, func(o *host.Options) {
			o.Now, o.Ended, o.Limits.RoomMinMS = func() int64 { return time.Now().UnixMilli() + offset.Load() }, e.tell, 1
		})
		now := w.now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.h.Run(ctx) }()
		_, forward := w.open(obj{"end_time": now + 30*minute})
		_, back := w.open(obj{"end_time": now + 5*minute})
		synctest.Wait()
		offset.Store(-3 * minute) // back: nothing ends early
		after(5 * time.Minute)
		w.statusWant(back, "active")
		if e.of(back) != 0 {
			t.Error("the room ended by the timer")
		}
		after(3 * time.Minute)
		w.statusWant(back, "ended")
		if e.of(back) != 1 || e.of(forward) != 0 {
			t.Errorf("told %v", e.n)
		}
		offset.Store(100 * minute) // forward
		after(time.Minute)
		w.statusWant(forward, "ended")
		if e.of(forward) != 1 {
			t.Errorf("told %v", e.n)
		}
		cancel()
		<-done
	})
}

// An archived room stays as it was archived, also when the clock turns out to have been wrong: what is
// signed about the archive says where the room ends, and a record behind that would convict this host.
func TestClockGoesBackBehindAnArchive(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	w.clock.Add(2 * hour)
	archive := w.get("/v1/rooms/"+id+"/archive", nil).ok(200)
	w.clock.Store(t0 + minute)
	w.act(a, id, room.Message, say("one more")).refused(409, adp.RoomEnded)
	w.act(a, id, room.Leave, obj{}).refused(409, adp.RoomEnded)
	w.statusWant(id, "ended")
	if n, _ := archive.Get("event_count").Int(); w.replica(id).Row().Seq != n {
		t.Errorf("the room has %d records, its archive %d", w.replica(id).Row().Seq, n)
	}
	w.get("/v1/rooms/"+id+"/archive", nil).ok(200)
	again := over(t, w.st, nil) // and after a restart
	again.clock.Store(t0 + minute)
	again.act(a, id, room.Message, say("and one")).refused(409, adp.RoomEnded)
	again.statusWant(id, "ended")
}

// A clock that is set back makes received_at stand still, and nobody wait longer than a minute for a quota.
func TestClockGoesBackUnderAQuota(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits.MessagePerMinute = 2 })
	a, id := w.open(nil)
	speak := func() answer { t.Helper(); return w.act(a, id, room.Message, say("x")) }
	speak().ok(200)
	speak().ok(200)
	last := w.resource(id, a).Get("received_at")
	w.clock.Add(-4 * minute)
	wait := speak().refused(429, adp.RateLimited).data().Get("retry_after")
	if n := num(wait); n < 1 || n > 60 {
		t.Errorf("retry_after %s", wait.Raw())
	}
	w.clock.Add(minute + 1)
	speak().ok(200)
	speak().ok(200)
	speak().refused(429, adp.RateLimited)
	w.clock.Add(minute + 1)
	if r := speak().ok(200); num(r.Get("received_at")) != num(last) {
		t.Errorf("received_at %s after %s", r.Get("received_at").Raw(), last.Raw())
	}
	w.records(id, nil)
}
