package witness

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/replica"
)

// Jobs come when they are due, the earliest first, one for each room.
func TestJobsComeInOrder(t *testing.T) {
	w := newWorld().node(t, hostA).w
	rng := rand.New(rand.NewPCG(3, 4))
	start := time.Now()
	due := map[replica.Key]time.Time{}
	earliest := func() (at time.Time) {
		for _, d := range due {
			if at.IsZero() || d.Before(at) {
				at = d
			}
		}
		return at
	}
	for i := range 3000 {
		if rng.IntN(5) > 1 {
			key := replica.Key{RoomID: fmt.Sprint(rng.IntN(200))}
			at := start.Add(time.Duration(rng.IntN(1000)) * time.Second)
			w.later(&job{key: key, since: at, due: at})
			if old, ok := due[key]; !ok || at.Before(old) {
				due[key] = at
			}
			continue
		}
		now := start.Add(time.Duration(rng.IntN(1000)) * time.Second)
		j, wait := w.next(now)
		switch at := earliest(); {
		case len(due) == 0:
			if j != nil || wait != -1 {
				t.Fatalf("%d: %+v, %v, and none waits", i, j, wait)
			}
		case at.After(now):
			if j != nil || wait != at.Sub(now) {
				t.Fatalf("%d: %+v, %v, and the next is due in %v", i, j, wait, at.Sub(now))
			}
		default:
			if j == nil || !j.due.Equal(at) || !due[j.key].Equal(at) || w.waits(j.key) {
				t.Fatalf("%d: %+v, and one is due at %v", i, j, at)
			}
			delete(due, j.key)
		}
	}
	for j, _ := w.next(start.Add(time.Hour)); j != nil; j, _ = w.next(start.Add(time.Hour)) {
		if !due[j.key].Equal(earliest()) {
			t.Fatal("out of order at the end")
		}
		delete(due, j.key)
	}
	if len(due) != 0 || len(w.jobs.waiting) != 0 {
		t.Errorf("%d are left", len(due))
	}
}
