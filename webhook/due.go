package webhook

import (
	"container/heap"
	"sync"
)

// due holds when time alone will change a room, for each room at most one time.
type due struct {
	mu   sync.Mutex
	heap dueHeap
	of   map[uint64]int64
}

type dueRoom struct {
	at int64 // Unix ms
	id uint64
}

// at says when a room is due; 0 is never.
func (d *due) at(id uint64, at int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[uint64]int64{}
	}
	switch {
	case d.of[id] == at:
	case at == 0:
		delete(d.of, id)
	default:
		d.of[id] = at
		heap.Push(&d.heap, dueRoom{at, id})
	}
}

// take gives rooms that are due, at most some of them.
func (d *due) take(now int64, most int) (ids []uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.heap) > 0 && len(ids) < most && d.heap[0].at <= now {
		top := heap.Pop(&d.heap).(dueRoom)
		if d.of[top.id] == top.at { // else another time counts
			delete(d.of, top.id)
			ids = append(ids, top.id)
		}
	}
	return ids
}

// first is when the next room is due.
func (d *due) first() (at int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.heap) > 0 {
		if top := d.heap[0]; d.of[top.id] == top.at {
			return top.at, true
		}
		heap.Pop(&d.heap)
	}
	return 0, false
}

func (d *due) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heap, d.of = nil, nil
}

type dueHeap []dueRoom

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(dueRoom)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
