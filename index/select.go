package index

import (
	"context"
	"slices"
	"strings"
	"unique"

	"github.com/witan-adp/witan/adp/room"
)

// found is one room of a page, with its place in the order.
type found struct {
	place
	row *row
}

// find is one pass over a snapshot. It keeps the limit+1 rooms that come first
// after the cursor in a heap with the last of them on top, and returns them in
// order: one more than limit when there is a next page. The second value is
// the time by which they are ordered.
//
// status and joinable are judged by now, which is what the answer shows; only
// the order is that of the first page. So a room can drop out of a filtered
// list as time passes, but stands in it at most once.
func (x *Index) find(ctx context.Context, f *filter, now int64) ([]found, int64, error) {
	at := now
	if f.from != nil {
		at = f.from.at
	}
	page := make(heap, 0, f.limit+1)
	for _, c := range x.rows.snapshot() {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		for i := range chunkLen {
			if !f.columns(c, i, now) {
				continue
			}
			var rank status
			if f.order != byStart {
				rank = statusAt(c.bits[i], c.start[i], c.end[i], c.activity[i], at)
			}
			number := f.order.number(c.start[i], c.activity[i])
			full := len(page) > f.limit
			if full && page[0].outer(rank, number) < 0 || f.from != nil && f.from.place.outer(rank, number) > 0 {
				continue // without a look at the row
			}
			r := c.row[i]
			p := place{rank, number, f.order.text(r), r.tie}
			if f.from != nil && p.compare(&f.from.place) <= 0 || full && p.compare(&page[0].place) >= 0 || !f.rowOnly(r) {
				continue
			}
			if full {
				page.replace(found{p, r})
			} else {
				page.push(found{p, r})
			}
		}
	}
	slices.SortFunc(page, func(a, b found) int { return a.compare(&b.place) })
	return page, at, nil
}

// columns judges what stands in the columns of a chunk.
func (f *filter) columns(c *chunk, i int, now int64) bool {
	none := unique.Handle[string]{}
	switch {
	case c.bits[i]&f.mask != f.want,
		c.start[i] <= f.after,
		c.end[i] >= f.before,
		c.activity[i] <= f.since,
		c.tags[i]&f.tagMark != f.tagMark,
		c.types[i]&f.typeMark != f.typeMark,
		f.creator != none && c.creator[i] != f.creator,
		f.primary != none && c.primary[i] != f.primary,
		f.origins != nil && !slices.Contains(f.origins, c.origin[i]):
		return false
	}
	if f.in == anyStatus && f.joinable == "" {
		return true
	}
	s := statusAt(c.bits[i], c.start[i], c.end[i], c.activity[i], now)
	if f.in&(1<<s) == 0 {
		return false
	}
	if f.joinable == "" {
		return true
	}
	// ADP §11: a room takes joins until it is over; only a public one takes everybody.
	joinable := c.bits[i]>>visibilityAt&field == code(visibilities, room.Public, 0) && (s == scheduled || s == active)
	return joinable == (f.joinable == "true")
}

// rowOnly judges what stands only in the row.
func (f *filter) rowOnly(r *row) bool {
	if f.language != "" && r.language != f.language ||
		f.tag != "" && !slices.Contains(r.doc.Tags, f.tag) ||
		f.typ != "" && !slices.Contains(r.doc.Types, f.typ) && !slices.Contains(r.doc.Packs, f.typ) ||
		f.keyword != "" && !strings.Contains(r.text[:r.keywords], f.keyword) {
		return false
	}
	for _, w := range f.words {
		if !w.in(r.text) {
			return false
		}
	}
	return true
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

// page is what find found, and the cursor of the next page.
func (x *Index) page(ctx context.Context, f *filter, now int64) (page []found, next string, err error) {
	page, at, err := x.find(ctx, f, now)
	if err != nil {
		return nil, "", err
	}
	if len(page) > f.limit {
		page = page[:f.limit]
		next = sealCursor(x.opts.Cursors, f.list, at, page[f.limit-1].place)
	}
	return page, next, nil
}
