package index

import (
	"context"
	"fmt"
	"slices"
)

// Bounds of what one page may cost, whatever is asked for.
const (
	maxCandidates = 10_000   // rooms that a word is looked up for; of a more common one, rooms are looked at in order
	maxLook       = 10_000   // rooms whose texts are looked at
	maxLookBytes  = 24 << 20 // and their size
	maxRelevant   = 500      // rooms that are ranked when the words are common
)

// found is one room of a page, with its place in the order.
type found struct {
	place
	row *row
}

// finder is one query at work.
type finder struct {
	ctx  context.Context
	x    *Index
	m    *matcher
	view *view
	old  bool  // view is that of an earlier page
	at   int64 // the time by which the list is ordered
	buf  []byte

	chosen [chunkLen]uint8

	looked, bytes int // of texts
}

// finder begins the query, on the snapshot of its first page if that is still held.
//
// status and joinable are judged by now, which is what the answer shows; only
// the order is that of the first page. So a room can drop out of a filtered
// list as time passes, but stands in it at most once.
func (x *Index) finder(ctx context.Context, f *filter, now int64) *finder {
	s := &finder{ctx: ctx, x: x, at: now}
	s.m, s.view = x.rows.prepare(f, now)
	if f.from != nil {
		s.at = f.from.at
		if v := x.held.get(f.from.view, now); v != nil {
			s.view, s.old = v, true
		}
	}
	return s
}

// page finds one page. next is the place behind which the following one begins, nil
// after the last.
func (s *finder) page() (page []found, next *place, note string, err error) {
	f := s.m.filter
	var from *place
	if f.from != nil {
		from = &f.from.place
	}
	switch {
	case s.m.none:
		return nil, nil, "", nil
	case !f.textual():
		page, err = s.first(f.order, f.limit+1, from)
	default:
		var slots []uint32
		var common bool
		slots, common, note, err = s.x.search.candidates(s.ctx, f)
		switch {
		case err != nil:
		case !common:
			page, err = s.among(slots, from)
		case f.order == byRelevance:
			page, note, err = s.relevant(from)
		default:
			var last *place
			page, last, err = s.walk(f.order, f.limit+1, from)
			if last != nil && len(page) <= f.limit {
				next = last
				note = fmt.Sprintf("not found quickly: this page has what the %d rooms looked at hold; follow the link to the next page for more", s.looked)
			}
		}
	}
	if err != nil {
		return nil, nil, "", err
	}
	if len(page) > f.limit {
		page = page[:f.limit]
		next = &page[f.limit-1].place
	}
	return page, next, note, nil
}

// first is one pass over the columns. It keeps the n rooms that come first after a
// place in a heap with the last of them on top, and returns them in order. Texts are
// not judged.
func (s *finder) first(o order, n int, from *place) ([]found, error) {
	page := make(heap, 0, n)
	byTime := o == byStart
	for _, c := range s.view.chunks {
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		full := len(page) == n
		best, lowest := ^c.newest, active
		if byTime {
			best = c.earliest
		} else {
			lowest = s.m.minRank(c, s.at)
		}
		if full && page[0].outer(lowest, best) < 0 {
			continue
		}
		for _, i := range s.m.choose(c, &s.chosen) {
			number := ^c.activity[i]
			if byTime {
				number = c.start[i]
			}
			if full && page[0].rank <= lowest && page[0].number < number {
				continue // whatever its rank
			}
			rank := active
			if !byTime {
				rank = statusAt(c.bits[i], c.start[i], c.end[i], c.activity[i], s.at)
			}
			if full && page[0].outer(rank, number) < 0 || from != nil && from.outer(rank, number) > 0 {
				continue // without a look at the row
			}
			r := c.row[i]
			p := place{rank: rank, number: number, text: o.text(r), tie: r.id}
			if from != nil && p.compare(from) <= 0 || full && p.compare(&page[0].place) >= 0 || !s.m.exact(r) {
				continue
			}
			if full {
				page.replace(found{p, r})
			} else {
				page.push(found{p, r})
				full = len(page) == n
			}
		}
	}
	slices.SortFunc(page, func(a, b found) int { return a.compare(&b.place) })
	return page, nil
}

// walk looks at the texts of one room after the other, in the order of the list, until
// it has n. last is the place of the last one that it looked at when it gave up.
func (s *finder) walk(o order, n int, from *place) (page []found, last *place, err error) {
	for size := min(16*n, 4096); ; size = min(4*size, maxLook) {
		batch, err := s.first(o, size, from)
		if err != nil {
			return nil, nil, err
		}
		for i := range batch {
			if s.looked >= maxLook || s.bytes >= maxLookBytes {
				return page, from, nil
			}
			from = &batch[i].place
			if s.texts(batch[i].row) {
				if page = append(page, batch[i]); len(page) == n {
					return page, from, nil
				}
			}
		}
		if len(batch) < size {
			return page, nil, nil
		}
	}
}

// texts judges the texts of a row, and counts what that cost.
func (s *finder) texts(r *row) bool {
	if s.looked++; s.looked%256 == 0 && s.ctx.Err() != nil {
		return false
	}
	search := r.search(&s.buf)
	s.bytes += len(search)
	return s.m.texts(search, r.keywords)
}

// among finds the page among rooms that were looked up by their words.
func (s *finder) among(slots []uint32, from *place) ([]found, error) {
	n := s.m.limit + 1
	page := make(heap, 0, n)
	for _, slot := range slots {
		c, i := s.view.at(slot)
		if c == nil || !s.m.columns(c, i) {
			continue
		}
		r := c.row[i]
		if !s.texts(r) {
			continue
		}
		p := s.place(c, i)
		switch {
		case from != nil && p.compare(from) <= 0:
		case len(page) < n:
			page.push(found{p, r})
		case p.compare(&page[0].place) < 0:
			page.replace(found{p, r})
		}
	}
	slices.SortFunc(page, func(a, b found) int { return a.compare(&b.place) })
	return page, s.ctx.Err()
}

// place is where a row stands in the list.
func (s *finder) place(c *chunk, i int) place {
	o, r := s.m.order, c.row[i]
	p := place{number: o.number(c.start[i], c.activity[i]), text: o.text(r), tie: r.id}
	if o != byStart {
		p.rank = statusAt(c.bits[i], c.start[i], c.end[i], c.activity[i], s.at)
	}
	if o == byRelevance {
		p.score = s.m.score(r)
	}
	return p
}

// relevant ranks the most active rooms that have words of which there are too many.
func (s *finder) relevant(from *place) (page []found, note string, err error) {
	all, last, err := s.walk(byActivity, maxRelevant, nil)
	if err != nil {
		return nil, "", err
	}
	if last != nil {
		note = fmt.Sprintf("common words: answered from the %d most active rooms", s.looked)
	}
	for i := range all {
		all[i].score = s.m.score(all[i].row)
	}
	slices.SortFunc(all, func(a, b found) int { return a.compare(&b.place) })
	at := 0
	if from != nil {
		at, _ = slices.BinarySearchFunc(all, from, func(f found, p *place) int {
			if f.compare(p) <= 0 {
				return -1
			}
			return 1
		})
	}
	return all[at:min(len(all), at+s.m.limit+1)], note, nil
}

// heap has the room that stands last on top.
type heap []found

func (h *heap) push(f found) {
	*h = append(*h, f)
	list := *h
	for i := len(list) - 1; i > 0; {
		parent := (i - 1) / 2
		if list[i].compare(&list[parent].place) <= 0 {
			return
		}
		list[i], list[parent] = list[parent], list[i]
		i = parent
	}
}

// replace puts f in the place of the top.
func (h heap) replace(f found) {
	h[0] = f
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].compare(&h[child].place) > 0 {
			child++
		}
		if h[child].compare(&h[i].place) <= 0 {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
