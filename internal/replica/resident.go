package replica

import (
	"sync"

	"github.com/witan-adp/witan/adp"
)

// Bounds of what all replicas of a set together keep in memory: rooms whose state
// is loaded, bytes of these states, and bytes of recent records. What is over them goes, the one unused
// for longest first; the next use reads it again.
const (
	maxResident      = 2048
	maxResidentBytes = 32 << 20
	maxStateBytes    = 256 << 20
)

// residents are the replicas that are loaded, in the order in which they were
// looked at last. Its lock is taken after a turn and holds nothing else.
type residents struct {
	mu     sync.Mutex
	queue  []*Replica
	bytes  int64 // of all rings
	states int64 // bytes of all states, as they were weighed last

	most                  int
	mostBytes, mostStates int64
}

// resident counts a replica that has been loaded, or has grown, and lets others go
// when there are too many. r.turn is held.
func (s *Set) resident(r *Replica) {
	l := &s.residents
	// one room alone must not push all others out
	weight := min(int64(r.state.Weight()), l.mostStates/4)
	l.mu.Lock()
	l.states, r.weight = l.states+weight-r.weight, weight
	if !r.counted {
		r.counted = true
		l.queue = append(l.queue, r)
	}
	// each load makes way for one; the bound on tries is for the case that all are busy
	tries := 8
	for ; tries > 0 && (len(l.queue) > l.most || l.bytes > l.mostBytes || l.states > l.mostStates) && len(l.queue) > 1; tries-- {
		old := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.mu.Unlock()
		busy := old == r || old.touched.Swap(false) || !old.evict()
		l.mu.Lock()
		if busy {
			l.queue = append(l.queue, old)
		} else {
			old.counted = false
		}
	}
	l.mu.Unlock()
}

// trim empties rings of others while all together hold too much: the rooms that are loaded
// take up records without being loaded again. The committer calls it, and waits for no turn.
func (s *Set) trim(r *Replica) {
	l := &s.residents
	for range 8 {
		l.mu.Lock()
		if l.bytes <= l.mostBytes || len(l.queue) < 2 {
			l.mu.Unlock()
			return
		}
		old := l.queue[0]
		l.queue = append(l.queue[1:], old)
		l.mu.Unlock()
		if old != r {
			old.moved.Lock()
			old.emptyRing()
			old.moved.Unlock()
		}
	}
}

// evict drops what a replica can read again; false while it is in use.
func (r *Replica) evict() bool {
	if !r.turn.TryLock() {
		return false
	}
	defer r.turn.Unlock()
	if r.pending.Load() > 0 {
		return false
	}
	r.shed()
	return true
}

// shed empties a replica of what it can read again. r.turn is held, and nothing is
// in flight.
func (r *Replica) shed() {
	r.row, r.rowJSON, r.state, r.tree = Row{}, nil, nil, adp.Tree{}
	r.tail, r.fresh, r.cached, r.flying = nil, nil, tile{}, nil
	l := &r.set.residents
	l.mu.Lock()
	l.states, r.weight = l.states-r.weight, 0
	l.mu.Unlock()
	if r.leaves.mu.TryLock() { // else a proof is being made
		r.leaves.hashes = nil
		r.leaves.mu.Unlock()
	}
	r.moved.Lock()
	defer r.moved.Unlock()
	r.emptyRing()
}

// emptyRing forgets the recent records. r.moved is held.
func (r *Replica) emptyRing() {
	r.set.residents.grow(-r.ring.bytes)
	r.ring = ring{}
}

func (l *residents) grow(bytes int) {
	if bytes == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += int64(bytes)
}
