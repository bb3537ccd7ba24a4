package webhook

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// Changes, faults and restarts in any order: every mention comes at least once, in the
// order of its room, at the receiver that is well and at the one that is not.
func TestAtLeastOnce(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.RetryFirst = time.Microsecond })
	w.run()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	roll := func(n int) int { return locked(&mu, func() int { return rng.IntN(n) }) }
	good, flaky := w.receiver(), w.receiver()
	good.register([]string{RoomDiscovered, Mention}, Filters{})
	hf := flaky.register([]string{RoomDiscovered, Mention}, Filters{})
	flaky.behave(func(rw http.ResponseWriter, _ *http.Request, _ got) {
		switch roll(6) {
		case 0:
			rw.WriteHeader(500)
		case 1:
			panic(http.ErrAbortHandler)
		}
	})
	want := map[string][]int64{}
	var rooms []*talk
	for range 600 {
		switch n := roll(40); {
		case n == 0 || len(rooms) == 0:
			k := w.create([]string{own, other}[roll(2)], nil)
			rooms = append(rooms, k)
			want[k.r.RoomID] = nil
		case n == 1:
			w.open() // as after a crash: whatever was under way may or may not have been stored
			w.run()
			for i := range rooms {
				rooms[i].r, _ = w.set.Get(rooms[i].r.Origin, rooms[i].r.RoomID)
			}
		case n == 2:
			w.stop()
		case n < 8:
			rooms[roll(len(rooms))].add(alice, room.Message, say("nobody"))
		default:
			k := rooms[roll(len(rooms))]
			want[k.r.RoomID] = append(want[k.r.RoomID], k.add(alice, room.Message, say("you"), idOf(bob)))
		}
	}
	w.open()
	w.run()
	for _, r := range []*receiver{good, flaky} {
		w.until("an empty queue", func() bool {
			for _, h := range w.w.List("") {
				if h.State == Paused && h.ID == hf.ID { // five faults in a row
					if _, err := w.w.Resume(h.ID, ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := map[string]int{}
			for _, g := range r.events() {
				if g.Event == Mention {
					got[g.Room.RoomID]++
				}
			}
			for id, seqs := range want {
				if got[id] < len(seqs) {
					return false
				}
			}
			return true
		})
		got := map[string][]int64{}
		discovered := map[string]bool{}
		for _, g := range r.events() {
			if g.Event == RoomDiscovered {
				if discovered[g.Room.RoomID] {
					t.Errorf("room %s was found twice", g.Room.RoomID)
				}
				discovered[g.Room.RoomID] = true
				continue
			}
			if !discovered[g.Room.RoomID] {
				t.Errorf("a mention before its room %s", g.Room.RoomID)
			}
			v, err := adp.ScanDepth(g.Record, adp.RecordDepth)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := v.Get("seq").Int()
			got[g.Room.RoomID] = append(got[g.Room.RoomID], n)
		}
		for id, seqs := range want {
			if !slices.Equal(got[id], seqs) {
				t.Errorf("room %s: got %v\nwant %v", id, got[id], seqs)
			}
		}
		// a try again is of the event before, never of an older one
		place := map[string]int{}
		last := -1
		ids, _ := r.posts()
		for _, id := range ids {
			i, again := place[id]
			if !again {
				i = len(place)
				place[id] = i
			}
			if i < last {
				t.Errorf("event %d came again after event %d", i, last)
			}
			last = i
		}
	}
}
