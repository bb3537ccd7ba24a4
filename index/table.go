package index

import (
	"math"
	"slices"
	"strings"
	"sync"
)

// chunkLen is the number of rows of a chunk: small enough to copy for one Put
// (20 KiB), large enough that the list of chunks stays short.
const chunkLen = 256

// tagColumns is how many tags of a room stand in the columns; of more, the row is
// asked.
const tagColumns = 4

// chunk holds rows as columns: what filters, order and facets read lies side by side,
// and only rows that pass are looked at one by one.
type chunk struct {
	epoch uint64
	// Bounds over the rows, never too tight: the latest activity, the earliest start, and
	// the latest end, or start, of those that were not ended early. They let a query skip the chunk.
	newest, earliest, lastEnd int64

	bits     [chunkLen]uint32 // 0 = no row
	host     [chunkLen]uint32 // of dicts
	language [chunkLen]uint32 // lower case
	kinds    [chunkLen]uint32
	tags     [chunkLen][tagColumns]uint32
	creator  [chunkLen]uint64 // marks
	start    [chunkLen]int64
	end      [chunkLen]int64
	activity [chunkLen]int64
	noticed  [chunkLen]int64
	row      [chunkLen]*row
}

func newChunk(epoch uint64) *chunk {
	return &chunk{epoch: epoch, newest: math.MinInt64, earliest: math.MaxInt64, lastEnd: math.MinInt64}
}

func primary(language string) string {
	first, _, _ := strings.Cut(strings.ToLower(language), "-")
	return first
}

// table is copy on write. A snapshot freezes the chunks and the list of them;
// the first write to each afterwards makes a copy, and further writes change
// that copy in place until the next snapshot. So a query is consistent without
// a lock, and loading many rooms with no query between copies nothing.
//
// Only what carries the current epoch may be written. mu guards all fields, and
// is never held for longer than one such copy.
type table struct {
	mu        sync.Mutex
	now       func() int64
	slots     map[id]uint32
	free      []uint32
	chunks    []*chunk
	epoch     uint64 // number of snapshots taken
	listEpoch uint64 // of chunks
	version   uint64 // number of writes
	loading   bool   // what is put was here before

	hosts, languages, tags, kinds dict
}

func (t *table) init(now func() int64) {
	t.now = now
	t.slots = map[id]uint32{}
	t.hosts, t.languages, t.tags, t.kinds = newDict(), newDict(), newDict(), newDict()
}

// view is the table as it was at one time; nothing in it changes.
type view struct {
	chunks  []*chunk
	version uint64
}

func (v *view) at(slot uint32) (*chunk, int) {
	if int(slot/chunkLen) >= len(v.chunks) {
		return nil, 0
	}
	return v.chunks[slot/chunkLen], int(slot % chunkLen)
}

// snapshot is the table as it is now.
func (t *table) snapshot() *view {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.freeze()
}

// freeze needs mu.
func (t *table) freeze() *view {
	t.epoch++
	return &view{t.chunks, t.version}
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.slots)
}

func (t *table) get(n id) *row {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot, ok := t.slots[n]; ok {
		return t.chunks[slot/chunkLen].row[slot%chunkLen]
	}
	return nil
}

func (t *table) setLoading(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loading = on
}

// find gives the places of rooms that are listed now.
func (t *table) find(names []id) []uint32 {
	out := make([]uint32, 0, len(names))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		if slot, ok := t.slots[n]; ok {
			out = append(out, slot)
		}
	}
	return out
}

// writable is chunk i, which may be changed until mu is released.
func (t *table) writable(i int) *chunk {
	if t.listEpoch != t.epoch {
		t.chunks, t.listEpoch = slices.Clone(t.chunks), t.epoch
	}
	if i == len(t.chunks) {
		t.chunks = append(t.chunks, newChunk(t.epoch))
	}
	c := t.chunks[i]
	if c.epoch != t.epoch {
		copied := *c
		copied.epoch = t.epoch
		c = &copied
		t.chunks[i] = c
	}
	return c
}

// put tells changed, under the lock, which row was there before, nil for none.
func (t *table) put(r *row, changed func(before *row)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, ok := t.slots[r.id]
	if !ok {
		if last := len(t.free) - 1; last >= 0 {
			slot, t.free = t.free[last], t.free[:last]
		} else {
			slot = uint32(len(t.slots)) // with no free slot, those in use are 0 … len-1
		}
		t.slots[r.id] = slot
	}
	changed(t.set(slot, r))
}

func (t *table) remove(n id, changed func(before *row)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, ok := t.slots[n]
	if !ok {
		return
	}
	before := t.set(slot, nil)
	delete(t.slots, n)
	t.free = append(t.free, slot)
	changed(before)
}

// change replaces a row by what f makes of it, with no other write in between. The
// words of the row stay.
func (t *table) change(n id, f func(*row) *row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot, ok := t.slots[n]; ok {
		t.set(slot, f(t.chunks[slot/chunkLen].row[slot%chunkLen]))
	}
}

// noticed is when the newest of a row came here. Of what was here before the start it
// follows from what is stored.
func (t *table) noticed(r *row, d *Doc, before *row, now int64) int64 {
	if before == nil {
		if t.loading {
			return min(max(d.LastActivity, r.noticed), now)
		}
		return now
	}
	if b := before.unpack(); b.Genesis == d.Genesis && b.Records == d.Records && b.LastActivity == d.LastActivity && b.Hidden == d.Hidden {
		return before.noticed
	}
	return now
}

// set writes a row, or nil, into its place, and gives the one before. It needs mu.
func (t *table) set(slot uint32, r *row) (before *row) {
	t.version++
	now := t.now()
	c, i := t.writable(int(slot/chunkLen)), slot%chunkLen
	before = c.row[i]
	host, language, kinds, tags := c.host[i], c.language[i], c.kinds[i], c.tags[i]
	if r == nil {
		c.bits[i], c.row[i] = 0, nil
		c.host[i], c.language[i], c.kinds[i], c.tags[i] = 0, 0, 0, [tagColumns]uint32{}
	} else {
		d := r.unpack()
		c.bits[i] = bitsOf(&d)
		c.start[i], c.end[i], c.activity[i] = d.StartTime, d.EndTime, d.LastActivity
		r.noticed = t.noticed(r, &d, before, now)
		c.noticed[i] = r.noticed
		c.creator[i] = creatorMark(d.Creator)
		c.host[i], _ = t.hosts.use(d.Origin, now)
		c.language[i], _ = t.languages.use(strings.ToLower(d.Language), now)
		c.kinds[i], r.kinds = t.kinds.use(r.kinds, now)
		c.tags[i] = [tagColumns]uint32{}
		for n, tag := range d.Tags[:min(len(d.Tags), tagColumns)] {
			c.tags[i][n], _ = t.tags.use(tag, now)
		}
		c.row[i] = r
		c.newest, c.earliest = max(c.newest, d.LastActivity), min(c.earliest, d.StartTime)
		if !d.Closed && !d.Cancelled && !d.Hidden {
			c.lastEnd = max(c.lastEnd, d.EndTime, d.StartTime)
		}
	}
	t.hosts.leave(host, now)
	t.languages.leave(language, now)
	t.kinds.leave(kinds, now)
	for _, tag := range tags {
		t.tags.leave(tag, now)
	}
	return before
}
