package mirror

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// Rooms of a host that want work stand in line for its slots. Whoever has shown
// records goes first; rooms that were never asked get a share; those that fail get
// what is left, the more often they failed the later. So a host that lists half a
// million rooms which cannot be read does not delay the few that can.
const (
	turnKnown   = iota // it has shown records, and nothing is wrong with it
	turnNew            // it was never asked, or it is not urgent
	turnFailed         // the first of failedTurns, by failures in a row
	failedTurns = 8
	turnKinds   = turnFailed + failedTurns

	newEvery    = 4  // of so many turns one is of a new room, if there is one
	failedEvery = 16 // and one of a room that failed
)

// rareRetry is how long a room waits at most that fails and of which nothing was ever
// seen, since there may be many and nothing is lost meanwhile, or whose answers are too
// large, since each of them costs us.
const rareRetry = 24 * time.Hour

// task is what a room stands in line for.
type task int

const (
	noTask task = iota
	syncTask
	mendTask
	lookUpTask
)

// line is guarded by host.mu.
type line struct {
	of    [turnKinds][]*roomView
	n     int
	turns int
}

func (l *line) push(v *roomView, kind int) {
	l.of[kind] = append(l.of[kind], v)
	l.n++
}

// next takes out the room whose turn it is: of those that are known alone, when no
// other may be taken. nil: there is none.
func (l *line) next(knownOnly bool) *roomView {
	if knownOnly {
		return l.pop(turnKnown)
	}
	l.turns++
	if l.turns%failedEvery == 0 {
		first := l.turns / failedEvery % failedTurns
		for i := range failedTurns {
			if v := l.pop(turnFailed + (first+i)%failedTurns); v != nil {
				return v
			}
		}
	}
	if l.turns%newEvery == 0 {
		if v := l.pop(turnNew); v != nil {
			return v
		}
	}
	for kind := range turnKinds {
		if v := l.pop(kind); v != nil {
			return v
		}
	}
	return nil
}

func (l *line) pop(kind int) *roomView {
	of := l.of[kind]
	if len(of) == 0 {
		return nil
	}
	v := of[0]
	of[0] = nil
	if l.of[kind] = of[1:]; len(of) == 1 {
		l.of[kind] = nil
	}
	l.n--
	return v
}

// drop takes rooms out, wherever they stand.
func (l *line) drop(these map[*roomView]bool) {
	for kind, of := range l.of {
		l.of[kind] = slices.DeleteFunc(of, func(v *roomView) bool { return these[v] })
		l.n -= len(of) - len(l.of[kind])
	}
}

func (l *line) clear() {
	for kind, of := range l.of {
		for _, v := range of {
			v.task = noTask
		}
		l.of[kind] = nil
	}
	l.n = 0
}

// turn is where a room stands in line. host.mu is held.
func (v *roomView) turn(t task) int {
	switch {
	case v.problem != "":
		return turnFailed + min(max(v.failures, 1), failedTurns) - 1
	case t == syncTask && (v.r != nil || v.signed):
		return turnKnown
	}
	return turnNew
}

// standInLine lets a room wait for its turn, or changes for what it waits. It tells
// whether it did not wait before. host.mu is held.
func (h *host) standInLine(ctx context.Context, v *roomView, t task, l listedRoom) (first bool) {
	first = v.task == noTask
	v.task, v.as = t, l
	if !first {
		return false
	}
	h.line.push(v, v.turn(t))
	if !h.serving {
		h.serving = true
		h.jobs.Go(func() { h.serve(ctx) })
	}
	poke(h.turned)
	return true
}

// inLine tells whether rooms wait for their turn.
func (h *host) inLine() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.line.n > 0
}

// disperse sends away who stands in line; the next look that finds a reason calls
// them again.
func (h *host) disperse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line.clear()
}

// serve gives the rooms in line their turns, as long as there are any. Rooms of which
// it is not known whether they answer leave one slot to the others.
func (h *host) serve(ctx context.Context) {
	most := max(1, cap(h.slots)-1)
	for {
		h.mu.Lock()
		wait := h.unsure >= most && len(h.line.of[turnKnown]) == 0
		if h.line.n == 0 || ctx.Err() != nil {
			h.serving = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		if wait {
			select {
			case <-h.turned:
			case <-ctx.Done():
			}
			continue
		}
		release, err := h.slot(ctx)
		if err != nil {
			continue // ctx has ended
		}
		if h.isDown() { // what is asked for now fails; the next look says when to go on
			h.disperse()
		}
		h.mu.Lock()
		knownOnly := h.unsure >= most
		v := h.line.next(knownOnly)
		var t task
		var l listedRoom
		if v != nil {
			t, l, v.task = v.task, v.as, noTask
		}
		if v == nil || v.busy || h.row.Paused {
			h.mu.Unlock()
			release()
			continue
		}
		v.busy = true
		unsure := v.r == nil || v.problem != ""
		if unsure {
			h.unsure++
		}
		h.mu.Unlock()
		h.jobs.Go(func() {
			l, err := h.do(ctx, v, t, l)
			if ctx.Err() != nil {
				err = nil
			}
			release()
			h.finish(v, l, err)
			if unsure {
				h.mu.Lock()
				h.unsure--
				h.mu.Unlock()
				poke(h.turned)
			}
		})
	}
}

// do does for a room what it stood in line for.
func (h *host) do(ctx context.Context, v *roomView, t task, l listedRoom) (listedRoom, error) {
	switch t {
	case mendTask:
		return l, h.mend(ctx, v)
	case lookUpTask:
		return h.lookUp(ctx, v)
	default:
		return l, h.sync(ctx, v, l)
	}
}

// retry forgets every wait of the room. What is in work forgets them again when it ends.
// host.mu is held.
func (v *roomView) retry() {
	v.next, v.look, v.retryAt, v.askAt, v.failures, v.stuck, v.tried, v.mendAt = 0, 0, 0, 0, 0, false, "", 1
	v.again = v.busy
}

// job runs fn on a room in one of the host's slots, and keeps what came of it.
func (h *host) job(ctx context.Context, v *roomView, fn func(context.Context) (listedRoom, error)) {
	release, err := h.slot(ctx)
	if err != nil {
		return
	}
	h.jobs.Go(func() {
		defer release()
		l, err := fn(ctx)
		if ctx.Err() != nil {
			err = nil
		}
		h.finish(v, l, err)
	})
}

// finish ends a turn on a room and says when it may have another one. Waits grow with
// each failure; only progress ends that.
func (h *host) finish(v *roomView, l listedRoom, err error) {
	now := h.m.o.Now()
	var concluded stuckError
	h.mu.Lock()
	again := v.again
	h.release(v)
	if l.id != "" {
		v.tried = l.sig()
	}
	was := v.problem
	v.stuck, v.problem = false, ""
	seq := int64(0)
	if v.r != nil {
		seq = v.r.Row().Seq
	}
	if seq > v.reached || err == nil && now-v.failedAt > h.m.roomRetry.Milliseconds() {
		v.failures = 0 // not at once when it agrees again: it may go back and forth
	}
	v.reached = seq
	if err != nil {
		v.failures++
		v.failedAt = now
		v.problem = err.Error()
		wait := h.roomWait(v, err)
		v.next = now + jitter(wait).Milliseconds()
		if v.stuck = errors.As(err, &concluded); v.stuck {
			v.retryAt = now + max(h.m.roomRetry, wait).Milliseconds()
		}
	}
	r, failures, stuck := v.r, v.failures, v.stuck
	if again { // what was just found is older than the wish
		v.retry()
	}
	h.mu.Unlock()
	if again {
		poke(h.wake)
	}
	switch {
	case err == nil, isLocal(err):
		if err != nil {
			h.m.log.Error("a room was not stored", "origin", h.origin, "room", v.id, "error", err)
		}
	case was == "" && !(stuck && r != nil): // its change of state was logged
		h.complain(v.id, r != nil, err)
	}
	if r != nil && err != nil && failures == 3 && !stuck && !isLocal(err) { // not for a hiccup
		saved := h.m.save(r, nil, func(row *replica.Row) bool {
			if row.Verdict != "" || row.State != replica.Following || row.Reason == err.Error() {
				return false
			}
			row.Reason = err.Error()
			return true
		})
		if saved != nil {
			h.m.log.Error("the reason of a room was not stored", "origin", h.origin, "room", v.id, "error", saved)
		}
	}
}

// roomWait is how long a room waits after its failures. host.mu is held.
func (h *host) roomWait(v *roomView, err error) time.Duration {
	most := h.m.roomRetry
	if v.r == nil || fetch.KindOf(err) == fetch.TooLarge {
		most = max(most, min(rareRetry, h.m.o.BackoffMax))
	}
	most = max(most, h.m.o.PollMin)
	if wait := h.m.o.PollMin << min(v.failures-1, 20); wait > 0 && wait < most {
		return wait
	}
	return most
}

// complain logs once that a room cannot be followed. A host may list any number of
// rooms that do not exist: of those that showed nothing only some are named.
func (h *host) complain(id string, held bool, err error) {
	if !held && !h.complaints.Allow() {
		h.mu.Lock()
		h.untold++
		h.mu.Unlock()
		return
	}
	h.mu.Lock()
	untold := h.untold
	h.untold = 0
	h.mu.Unlock()
	h.m.log.Info("a room cannot be followed now", "origin", h.origin, "room", id, "reason", err, "others_not_logged", untold)
}
