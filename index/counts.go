package index

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
)

// Counting over all rooms passes over all columns. So the counts of the queries that
// were asked last are kept, and brought up to date chunk by chunk: what a chunk gave is
// taken back, and counted anew, when the chunk is another one or time has changed the
// status of a room in it. They are exact: nothing is ever answered from what was.
//
// Each one holds the chunks that it counted, as a snapshot does, so they are few and are
// let go soon.
const (
	maxCounted = 4
	countedAge = 60_000 // ms since it was used last
)

type countedList struct {
	mu sync.Mutex
	of map[string]*counted
}

// get is what is kept for a key, empty at first.
func (l *countedList) get(key string, now int64) *counted {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(now)
	k := l.of[key]
	if k == nil {
		if len(l.of) >= maxCounted {
			oldest := ""
			for name, other := range l.of {
				if oldest == "" || other.used < l.of[oldest].used {
					oldest = name
				}
			}
			delete(l.of, oldest)
		}
		if l.of == nil {
			l.of = map[string]*counted{}
		}
		k = &counted{}
		l.of[key] = k
	}
	k.used = now
	return k
}

func (l *countedList) tidy(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(now)
}

// drop needs mu.
func (l *countedList) drop(now int64) {
	maps.DeleteFunc(l.of, func(_ string, k *counted) bool { return now-k.used > countedAge })
}

// counted are the counts of one filter. Its lock is taken before that of the table.
type counted struct {
	used int64 // when it was asked for last, Unix ms; under the lock of the list

	mu    sync.Mutex
	m     *matcher
	tally *tally
	parts []part // of the chunks that are in the tally
}

// part is a chunk as it was counted.
type part struct {
	chunk     *chunk
	at, until int64 // counted by this time; from until on it would be another count
}

// counts are those of a filter without words, as of now.
func (x *Index) counts(ctx context.Context, f *filter, now int64) (map[string][]Count, error) {
	names := slices.Sorted(slices.Values(f.facets))
	k := x.counted.get(f.same+" "+strings.Join(names, ","), now)
	k.mu.Lock()
	defer k.mu.Unlock()
	m, v := x.rows.prepare(f, now) // under the lock, so that no older view comes behind a newer one
	if m.none {
		return newTally(names).named(&x.rows), nil
	}
	if k.m == nil || !k.m.agrees(m) {
		k.tally, k.parts = newTally(names), nil
	}
	k.m = m
	k.tally.grow(&x.rows)
	timed := k.tally.of[facetStatus] || m.in != anyStatus || m.filter.joinable != ""
	before := *m
	for i, c := range v.chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if i == len(k.parts) {
			k.parts = append(k.parts, part{})
		}
		p := &k.parts[i]
		if p.chunk == c && p.at <= now && now < p.until {
			continue
		}
		if p.chunk != nil {
			before.now = p.at
			k.tally.chunk(&before, p.chunk, -1)
		}
		k.tally.chunk(m, c, 1)
		*p = part{c, now, math.MaxInt64}
		if timed {
			p.until = c.turn(now)
		}
	}
	return k.tally.named(&x.rows), nil
}

// agrees tells whether another matcher of the same filter judges every row that this one
// has judged as this one did: whether the words still have the numbers that they had.
func (m *matcher) agrees(n *matcher) bool {
	begins := func(list, with []bool) bool { return len(list) >= len(with) && slices.Equal(list[:len(with)], with) }
	return slices.Equal(m.hosts, n.hosts) && m.tag == n.tag && m.creator == n.creator && begins(n.languages, m.languages) && begins(n.kinds, m.kinds)
}

// turn is when time alone changes the status of a row next.
func (c *chunk) turn(now int64) int64 {
	next := int64(math.MaxInt64)
	if now >= c.lastEnd {
		return next
	}
	for i := range chunkLen {
		if c.bits[i]&(isLive|isHidden|isClosed|isCancelled) != isLive {
			continue
		}
		t := max(now, c.activity[i])
		if at := c.start[i]; at > t {
			next = min(next, at)
		}
		if at := c.end[i]; at > t {
			next = min(next, at)
		}
	}
	return next
}

// best keeps the values with the greatest counts, at most MaxFacet of them.
type best []Count

func (b *best) add(value string, n int64) {
	c := Count{value, n}
	at, _ := slices.BinarySearchFunc(*b, c, compareCounts)
	if at == MaxFacet {
		return
	}
	if len(*b) == MaxFacet {
		*b = (*b)[:MaxFacet-1]
	}
	*b = slices.Insert(*b, at, c)
}

// takes tells whether a value with such a count may be among them.
func (b best) takes(n int64) bool { return len(b) < MaxFacet || n >= b[len(b)-1].Count }

func compareCounts(a, b Count) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value))
}
