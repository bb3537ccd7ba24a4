package daemon

import "sync"

// order lets one at a time look at a room and show the index what it saw: of several that
// follow changes of one room, an older look must not come last. The zero order is ready.
type order struct {
	mu    sync.Mutex
	turns map[roomName]*turn // of rooms that somebody looks at
}

type roomName struct{ origin, id string }

type turn struct {
	sync.Mutex
	users int // who has it, and who waits; guarded by order.mu
}

// take waits for the turn of a room. Nothing is done in it but to look and to show.
func (o *order) take(origin, roomID string) (leave func()) {
	name := roomName{origin, roomID}
	o.mu.Lock()
	t := o.turns[name]
	if t == nil {
		if o.turns == nil {
			o.turns = map[roomName]*turn{}
		}
		t = &turn{}
		o.turns[name] = t
	}
	t.users++
	o.mu.Unlock()
	t.Lock()
	return func() {
		t.Unlock()
		o.mu.Lock()
		defer o.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(o.turns, name)
		}
	}
}
