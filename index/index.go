package index

import (
	"log/slog"
	"slices"
	"strings"
)

// Index is safe for concurrent use. Queries work on a snapshot and hold no lock
// while they look.
type Index struct {
	opts    Options
	rows    table
	held    snapshots
	counted countedList
	search  searcher
}

// New makes an empty index. It panics when Options lacks Cursors, Own or Now.
func New(opts Options) *Index {
	if opts.Cursors == nil || opts.Now == nil || opts.Own == "" {
		panic("index: Options needs Cursors, Own and Now")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	x := &Index{opts: opts}
	x.rows.init(opts.Now)
	x.search.init(x)
	return x
}

// Put lists a room, in place of what (Origin, RoomID) was before. It is seen by
// every query that starts afterwards. A room that is neither public nor
// restricted is not listed, and no longer listed if it was (ADP §9.2).
func (x *Index) Put(d Doc) {
	if !slices.Contains(visibilities, d.Visibility) {
		x.Remove(d.Origin, d.RoomID)
		return
	}
	r := newRow(d, x.rows.get(idOf(d.Origin, d.RoomID))) // outside of the lock: folding a long text takes a while
	x.rows.put(r, func(before *row) { x.search.changed(before, r) })
}

// Remove takes a room out of the list, if it is there.
func (x *Index) Remove(origin, roomID string) {
	x.rows.remove(idOf(origin, roomID), func(before *row) { x.search.changed(before, nil) })
}

// Len is the number of listed rooms.
func (x *Index) Len() int { return x.rows.len() }

// SetAttested changes only what is said about attestations of a room, if it is
// listed.
func (x *Index) SetAttested(origin, roomID string, n int64, state string) {
	x.rows.change(idOf(origin, roomID), func(r *row) *row {
		d := r.unpack()
		d.Attestations, d.Attested = n, state
		return newRow(d, r)
	})
}

// Room is one listed room.
func (x *Index) Room(origin, roomID string) (Room, bool) {
	r := x.rows.get(idOf(origin, roomID))
	if r == nil {
		return Room{}, false
	}
	return x.shown(r, x.opts.Now()), true
}

// shown is a row as an answer has it.
func (x *Index) shown(r *row, now int64) Room {
	out := r.room(now)
	if x.opts.SyncedAt != nil && !out.Own {
		if at := x.opts.SyncedAt(out.Origin, out.RoomID); at != 0 {
			out.SyncedAt = at
		}
	}
	return out
}

// Name is what a listed room is called.
type Name struct {
	Origin, RoomID string
	MetadataOnly   bool
}

// Listed names all listed rooms, in no order.
func (x *Index) Listed() (names []Name) {
	for _, c := range x.rows.snapshot().chunks {
		for _, r := range c.row {
			if r != nil {
				d := r.unpack()
				names = append(names, Name{strings.Clone(d.Origin), strings.Clone(d.RoomID), d.MetadataOnly})
			}
		}
	}
	return names
}
