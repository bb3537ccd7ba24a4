package daemon

import (
	"sync"
	"sync/atomic"

	"github.com/witan-adp/witan/internal/replica"
)

// order lets one at a time look at a room and show the index what it saw: of several that
// follow changes of one room, an older look must not come last. The zero order is ready.
type order struct {
	mu    sync.Mutex
	turns map[roomName]*turn // of rooms that somebody looks at
}

type roomName struct{ origin, id string }

// turn is held by who looks.
type turn struct {
	sync.Mutex
	users  int          // who holds it, and who waits; guarded by order.mu
	wanted atomic.Int64 // looks at the whole room that were asked for
	shown  int64        // as many as the last one was for, and of what
	of     *replica.Replica
}

// take waits for the turn of a room. Nothing is done in it but to look and to show.
func (o *order) take(origin, roomID string) (leave func()) {
	t, leave := o.enter(origin, roomID, nil)
	t.of = nil // who waits to look at the whole may find something else then
	return leave
}

// takeWhole is take for a look at a whole replica. It is done already when such a look began
// after the call: one is enough for all who wait.
func (o *order) takeWhole(r *replica.Replica) (done bool, shown, leave func()) {
	var mine int64
	t, leave := o.enter(r.Origin, r.RoomID, func(t *turn) { mine = t.wanted.Add(1) })
	if t.of == r && t.shown >= mine {
		return true, nil, leave
	}
	now := t.wanted.Load()
	return false, func() { t.shown, t.of = now, r }, leave
}

func (o *order) enter(origin, roomID string, before func(*turn)) (t *turn, leave func()) {
	name := roomName{origin, roomID}
	o.mu.Lock()
	if t = o.turns[name]; t == nil {
		if o.turns == nil {
			o.turns = map[roomName]*turn{}
		}
		t = &turn{}
		o.turns[name] = t
	}
	t.users++
	o.mu.Unlock()
	if before != nil {
		before(t)
	}
	t.Lock()
	return t, func() {
		t.Unlock()
		o.mu.Lock()
		defer o.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(o.turns, name)
		}
	}
}
