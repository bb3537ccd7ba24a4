package mirror

import (
	"context"
	"time"
)

// Rooms of all hosts share what one machine has: a room is worked on in a slot of
// its host and in one of the mirror. Who waits for the latter waits in the order of
// asking, and a host asks for one at a time, so that each host gets its share
// however many rooms another one has.
const (
	maxWork      = 256       // rooms in work at a time
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
	h.m.waiting.Add(1)
	defer h.m.waiting.Add(-1)
	select {
	case h.m.work <- struct{}{}:
	case <-ctx.Done():
		<-h.slots
		return nil, ctx.Err()
	}
	return func() { <-h.m.work; <-h.slots }, nil
}

// goesOn tells whether a room keeps its slots for another page.
func (h *host) goesOn(pages int, began time.Time) bool {
	return h.waiting.Load() == 0 && h.m.waiting.Load() == 0 || pages < pagesPerTurn && time.Since(began) < turnTime
}

// share is what a room may ask for in one page now: the more rooms are in work, the
// less each.
func (m *Mirror) share() (records int, bytes int64) {
	n := max(1, len(m.work))
	return min(pageRecords, max(minRecords, recordsInAll/n)), min(m.pageBytes, max(minPage, int64(bytesInAll/n)))
}
