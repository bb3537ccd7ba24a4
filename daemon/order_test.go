package daemon

import (
	"net/url"
	"sync"
	"testing"

	"github.com/witan-adp/witan/config"
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
