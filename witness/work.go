package witness

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/witan-adp/witan/internal/replica"
)

// Retries of a job that failed for a reason that may pass.
const (
	retryMin = time.Second
	retryMax = 5 * time.Minute
)

// job is one room to be looked at. There is one at most for each replica, which
// bounds the queue.
type job struct {
	key   replica.Key
	since time.Time // when waiting for the host's statement began
	due   time.Time
	tries int
	place int // in jobs.order
}

type jobs struct {
	mu      sync.Mutex
	waiting map[replica.Key]*job
	order   byDue
	wake    chan struct{}
}

// byDue is a heap of jobs, the next one in front: after a start there is a job for each
// room that has ended.
type byDue []*job

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due.Before(b[j].due) }
func (b byDue) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].place, b[j].place = i, j
}

// Push implements heap.Interface.
func (b *byDue) Push(x any) {
	j := x.(*job)
	j.place = len(*b)
	*b = append(*b, j)
}

// Pop implements heap.Interface.
func (b *byDue) Pop() any {
	last := len(*b) - 1
	j := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return j
}

// Ended takes note that a public room of our own has ended and that its archive is
// made: the statement is made once and published. It does not wait.
func (w *Witness) Ended(r *replica.Replica) { w.enqueue(r.Key) }

// Completed takes note that a mirrored public room is complete, with its archive:
// it is recomputed and attested. It does not wait.
func (w *Witness) Completed(r *replica.Replica) { w.enqueue(r.Key) }

func (w *Witness) enqueue(key replica.Key) {
	now := time.Now()
	w.later(&job{key: key, since: now, due: now})
}

// later queues a job; of two for one room the earlier time counts.
func (w *Witness) later(j *job) {
	w.jobs.mu.Lock()
	if old := w.jobs.waiting[j.key]; old != nil {
		if old.due.After(j.due) {
			old.due = j.due
			heap.Fix(&w.jobs.order, old.place)
		}
		if old.since.After(j.since) {
			old.since = j.since
		}
	} else {
		w.jobs.waiting[j.key] = j
		heap.Push(&w.jobs.order, j)
	}
	w.jobs.mu.Unlock()
	select {
	case w.jobs.wake <- struct{}{}:
	default:
	}
}

func (w *Witness) waits(key replica.Key) bool {
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	return w.jobs.waiting[key] != nil
}

// next takes a job that is due, or tells how long until one is; -1 for never.
func (w *Witness) next(now time.Time) (*job, time.Duration) {
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	if len(w.jobs.order) == 0 {
		return nil, -1
	}
	first := w.jobs.order[0]
	if d := first.due.Sub(now); d > 0 {
		return nil, d
	}
	heap.Pop(&w.jobs.order)
	delete(w.jobs.waiting, first.key)
	return first, 0
}

// Run works until ctx ends. It begins with what a crash left undone: rooms whose
// archive stands without our signature.
func (w *Witness) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.intake(ctx) })
	g.Go(func() error { return w.publisher.run(ctx, w) })
	g.Go(func() error { return w.remember(ctx) })
	g.Go(func() error {
		w.resume()
		return w.work(ctx)
	})
	return g.Wait()
}

func (w *Witness) resume() {
	w.meet()
	for _, r := range w.o.Replicas.All() {
		if row := r.Row(); row.Archived && (r.Origin == w.o.Origin || row.State == replica.Complete) {
			w.enqueue(r.Key)
		}
	}
	w.mu.RLock()
	rooms := make([][2]string, 0, len(w.book.rooms))
	for room := range w.book.rooms {
		rooms = append(rooms, room)
	}
	w.mu.RUnlock()
	for _, room := range rooms {
		w.tell(room[0], room[1])
	}
	w.tellAllProven()
}

func (w *Witness) work(ctx context.Context) error {
	for ctx.Err() == nil {
		j, wait := w.next(time.Now())
		if j != nil {
			w.do(ctx, j)
			continue
		}
		var due <-chan time.Time
		if wait >= 0 {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-w.jobs.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// errNotYet: there is reason to wait for the host's statement.
var errNotYet = errors.New("witness: the host's statement may still come")

func (w *Witness) do(ctx context.Context, j *job) {
	r, ok := w.o.Replicas.GetKey(j.key)
	if !ok {
		return
	}
	w.remind(Subject(r.Key))
	var err error
	if r.Origin == w.o.Origin {
		err = w.announce(ctx, r)
	} else {
		err = w.attest(ctx, r, time.Since(j.since) >= w.o.StatementWait)
	}
	now := time.Now()
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, errTold):
		return
	case errors.Is(err, errNotYet):
		j.due = j.since.Add(w.o.StatementWait)
	case errors.Is(err, errAsking):
		j.due = now.Add(retryMin)
	case errors.Is(err, errUnsound):
		w.log.Error("ALARM: nothing is signed about a room whose stored records do not hold", "origin", r.Origin, "room", r.RoomID, "err", err)
		return
	default:
		d := min(retryMin<<min(j.tries, 20), retryMax)
		if j.tries++; j.tries == 1 {
			w.log.Warn("witness will try again", "origin", r.Origin, "room", r.RoomID, "err", err)
		}
		j.due = now.Add(d)
	}
	w.later(j)
	if errors.Is(err, errNotYet) && len(w.statements(Subject(r.Key))) > 0 { // it came meanwhile
		w.enqueue(r.Key)
	}
}
