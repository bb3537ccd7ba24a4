package mirror

import (
	"context"
	"sync/atomic"
	"time"
)

// Rooms of all hosts share what one machine has: a room is worked on in a slot of
// its host and in one of the mirror. Who waits for the latter waits in the order of
// asking, and a host asks for one at a time, so that each host gets its share
// however many rooms another one has. Hosts that let us wait have slots of their
// own: they wait for each other, and nobody else for them.
const (
	maxWork      = 192 // rooms in work at a time
	maxSlowWork  = 64  // of hosts that are slow
	slowAfter    = 10 * time.Second
	slowFor      = 10 * time.Minute
	recordsInAll = 16_000    // records that all rooms in work may ask for at a time
	bytesInAll   = 256 << 20 // bytes that they may get, as far as each may get minPage
	minPage      = 1 << 20
	minRecords   = 100

	pagesPerTurn = 20 // of one room before others get their turn
	turnTime     = 15 * time.Second
)

// slot waits for the host's turn to work on one more room.
func (h *host) slot(ctx context.Context) (release func(), err error) {
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	work := h.work()
	work.waiting.Add(1)
	defer work.waiting.Add(-1)
	select {
	case work.slots <- struct{}{}:
	case <-ctx.Done():
		<-h.slots
		return nil, ctx.Err()
	}
	return func() { <-work.slots; <-h.slots }, nil
}

// pool is a number of rooms that may be in work, and of hosts that wait for one.
type pool struct {
	slots   chan struct{}
	waiting atomic.Int64
}

func newPool(n int) *pool { return &pool{slots: make(chan struct{}, n)} }

// work is the pool that the host belongs to now.
func (h *host) work() *pool {
	if time.Now().UnixNano() < h.slowTill.Load() {
		return h.m.slow
	}
	return h.m.work
}

// timed keeps in mind that an exchange with the host took long.
func (h *host) timed(took time.Duration) {
	if took >= h.m.slowAfter {
		h.slowTill.Store(time.Now().Add(slowFor).UnixNano())
	}
}

// goesOn tells whether a room keeps its slots for another page.
func (h *host) goesOn(pages int, began time.Time) bool {
	return h.waiting.Load() == 0 && h.work().waiting.Load() == 0 || pages < pagesPerTurn && time.Since(began) < turnTime
}

// working counts the rooms in work.
func (m *Mirror) working() int { return len(m.work.slots) + len(m.slow.slots) }

// share is what a room may ask for in one page now: the more rooms are in work, the
// less each.
func (m *Mirror) share() (records int, bytes int64) {
	n := max(1, m.working())
	return min(pageRecords, max(minRecords, recordsInAll/n)), min(m.pageBytes, max(minPage, int64(bytesInAll/n)))
}
