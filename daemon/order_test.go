package daemon

import (
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/replica"
)

// Whoever was answered finds in the index what was written, also when others write to the
// same room: no older look at it comes last.
func TestIndexKeepsPaceWithWriters(t *testing.T) {
	d := start(t, setup{change: func(c *config.Config) {
		alone(c)
		c.Limits.ControlPerMinute, c.Limits.RequestsPerSecond = 1_000_000, 1e6
	}})
	const writers, rounds = 8, 25
	id := d.create(newAgent(t), nil)
	head := d.room(id)
	for round := range rounds {
		var all sync.WaitGroup
		for range writers {
			join := newAgent(t).event(t, "room.join", obj{"role": "observer"}, head)
			all.Go(func() {
				if status, _, raw := d.call("POST", "/v1/rooms/"+id, join, nil); status != 200 {
					t.Errorf("%d %s", status, raw)
				}
			})
		}
		all.Wait()
		var found []obj
		d.call("GET", "/v1/index/rooms?host="+url.QueryEscape(d.origin), nil, &found)
		if want := float64(1 + writers*(round+1)); len(found) != 1 || found[0]["records"] != want {
			t.Fatalf("round %d: want %v records: %v", round, want, found)
		}
	}
}

// One look at a room is enough for all who waited when it began; who came later needs another.
func TestOneLookForAllWhoWait(t *testing.T) {
	var o order
	var looks atomic.Int64
	var all sync.WaitGroup
	r := &replica.Replica{Key: replica.Key{Origin: "https://h.example", RoomID: "r"}}
	come := func(n int, meanwhile func()) {
		for range n {
			all.Go(func() {
				done, shown, leave := o.takeWhole(r)
				defer leave()
				if done {
					return
				}
				looks.Add(1)
				meanwhile()
				shown()
			})
		}
	}
	waiting := func(n int64) {
		until(t, "all to wait", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			at := o.turns[roomName{r.Origin, r.RoomID}]
			return at != nil && at.wanted.Load() == n
		})
	}
	leave := o.take(r.Origin, r.RoomID)
	come(5, func() {
		come(3, func() {})
		waiting(8)
	})
	waiting(5)
	leave()
	all.Wait()
	if n := looks.Load(); n != 2 || len(o.turns) != 0 {
		t.Errorf("%d looks for five and three, %d turns are left", n, len(o.turns))
	}
}
