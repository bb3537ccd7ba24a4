package host

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// schedule wakes the host when time alone changes a room (ADP §8). Status is
// derived from the times in force wherever it is asked for; what needs a timer
// is only what follows from a change: streams end, archives are made.
type schedule struct {
	sync.Mutex
	queue alarms
	due   map[*replica.Replica]int64 // the time in force; other alarms are stale
	kick  chan struct{}
}

type alarm struct {
	at int64
	r  *replica.Replica
}

type alarms []alarm

func (q alarms) Len() int           { return len(q) }
func (q alarms) Less(i, j int) bool { return q[i].at < q[j].at }
func (q alarms) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *alarms) Push(x any)        { *q = append(*q, x.(alarm)) }
func (q *alarms) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func (s *schedule) init() {
	s.due = map[*replica.Replica]int64{}
	s.kick = make(chan struct{}, 1)
}

// set plans the next look at a room; at 0 means none.
func (s *schedule) set(r *replica.Replica, at int64) {
	s.Lock()
	defer s.Unlock()
	if at == 0 {
		delete(s.due, r)
		return
	}
	if s.due[r] == at {
		return
	}
	s.due[r] = at
	heap.Push(&s.queue, alarm{at, r})
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// next takes what is due, or says how long to wait.
func (s *schedule) next(now int64) (due []*replica.Replica, wait time.Duration) {
	s.Lock()
	defer s.Unlock()
	for len(s.queue) > 0 {
		a := s.queue[0]
		if s.due[a.r] != a.at { // replanned since
			heap.Pop(&s.queue)
			continue
		}
		if a.at > now {
			return due, time.Duration(a.at-now) * time.Millisecond
		}
		heap.Pop(&s.queue)
		delete(s.due, a.r)
		due = append(due, a.r)
	}
	return due, time.Hour
}

// longestSleep bounds the trust in timers: a clock that was set, or a machine
// that slept, is noticed within a minute.
const longestSleep = time.Minute

func (s *schedule) run(ctx context.Context, now func() int64, do func(*replica.Replica)) error {
	for {
		due, wait := s.next(now())
		for _, r := range due {
			do(r)
		}
		if len(due) > 0 {
			continue
		}
		timer := time.NewTimer(min(wait, longestSleep))
		select {
		case <-timer.C:
		case <-s.kick:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// reschedule looks at a room's status and plans what comes next. It plans inside of the
// turn: of two that are at it at once, the one that saw more of the room plans last.
func (h *Host) reschedule(ctx context.Context, r *replica.Replica) error {
	return r.View(ctx, func(s *room.State) {
		now := h.now()
		next := s.NextTransition(now)
		if status := s.StatusAt(now); status == room.Ended || status == room.Cancelled {
			next = now // at once, by the scheduler: a writer does not wait for an archive
			if r.Row().Archived {
				next = 0
			}
		}
		h.schedule.set(r, next)
	})
}

// transition follows a change that time, or a closing record, made.
func (h *Host) transition(ctx context.Context, r *replica.Replica) {
	now := h.now()
	var status room.Status
	if err := r.View(ctx, func(s *room.State) { status = s.StatusAt(now) }); err != nil {
		h.retry(ctx, r, err)
		return
	}
	r.Wake()
	h.changed(r)
	switch status {
	case room.Ended:
		h.statuses.clearRoom(r.ID)
		h.asks.rooms.Delete(r.ID)
		if _, err := h.archive(ctx, r); err != nil {
			h.retry(ctx, r, err)
			return
		}
		if _, told := h.ended.LoadOrStore(r.ID, true); !told && h.opt.Ended != nil {
			h.opt.Ended(r)
		}
	case room.Cancelled: // no archive (ADP §19); the records stay
		h.statuses.clearRoom(r.ID)
	default:
		if err := h.reschedule(ctx, r); err != nil {
			h.retry(ctx, r, err)
		}
	}
}

// retry looks again in a while at a room that could not be finished.
func (h *Host) retry(ctx context.Context, r *replica.Replica, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	h.opt.Log.Error("a room could not be finished; trying again in 30 s", "room", r.RoomID, "error", err)
	h.schedule.set(r, h.now()+30_000)
}

// archive makes the archive of an ended room; the replica makes it once.
func (h *Host) archive(ctx context.Context, r *replica.Replica) ([]byte, error) {
	now := h.now()
	return r.MakeArchive(ctx, h.roomURL(r.RoomID), now, now)
}

// Sweep drops what is no longer needed; called once a minute.
func (h *Host) Sweep() error {
	now := h.now()
	h.rates.sweep(now)
	h.statuses.sweep(now)
	return h.sweepRequests(now)
}
