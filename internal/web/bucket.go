package web

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// buckets holds a token bucket per client address, for at most capacity
// addresses. The one unused for longest goes first. Who owns so many addresses
// as to push others out has their rates added up anyway, so an early reset
// gives nothing more away.
type buckets struct {
	limit    rate.Limit
	burst    int
	capacity int
	refill   time.Duration // after which an untouched bucket is full, so worth no memory

	mu     sync.Mutex // guards what follows
	order  *list.List // of *bucket, the latest used in front
	byAddr map[netip.Addr]*list.Element
}

type bucket struct {
	addr    netip.Addr
	used    time.Time
	limiter *rate.Limiter
}

func newBuckets(limit rate.Limit, burst, capacity int) *buckets {
	return &buckets{
		limit: limit, burst: burst, capacity: capacity,
		refill: time.Duration(min(float64(burst)/float64(limit), 1e9) * float64(time.Second)),
		order:  list.New(), byAddr: make(map[netip.Addr]*list.Element),
	}
}

// take spends one token of the address. It returns 0, or the time after which
// a token will be there; a refused request spends nothing.
func (b *buckets) take(addr netip.Addr, now time.Time) time.Duration {
	if b.limit == rate.Inf {
		return 0
	}
	reservation := b.limiter(bucketKey(addr), now).ReserveN(now, 1)
	if !reservation.OK() {
		return time.Second // a burst below 1 lets nothing through
	}
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

func (b *buckets) limiter(key netip.Addr, now time.Time) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.byAddr[key]; e != nil {
		b.order.MoveToFront(e)
		found := e.Value.(*bucket)
		found.used = now
		return found.limiter
	}
	// Two full ones out for each one in: the table shrinks again after a rush.
	for range 2 {
		if e := b.order.Back(); e != nil && now.Sub(e.Value.(*bucket).used) >= b.refill {
			b.drop(e)
		}
	}
	if b.order.Len() >= b.capacity {
		b.drop(b.order.Back())
	}
	made := &bucket{addr: key, used: now, limiter: rate.NewLimiter(b.limit, b.burst)}
	b.byAddr[key] = b.order.PushFront(made)
	return made.limiter
}

func (b *buckets) drop(e *list.Element) {
	delete(b.byAddr, b.order.Remove(e).(*bucket).addr)
}

// bucketKey is what counts as one client: an IPv4 address, or the /64 that an
// IPv6 site gets at the least.
func bucketKey(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.Addr()
		}
	}
	return addr
}
