package index

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"unique"
)

// chunkLen is the number of rows of a chunk: small enough to copy for one Put
// (20 KiB), large enough that the list of chunks stays short.
const chunkLen = 256

// chunk holds rows as columns: what most filters and the order read lies side
// by side, and only rows that pass them are looked at one by one.
type chunk struct {
	epoch    uint64
	bits     [chunkLen]uint32 // 0 = no row
	start    [chunkLen]int64
	end      [chunkLen]int64
	activity [chunkLen]int64
	origin   [chunkLen]unique.Handle[string]
	creator  [chunkLen]unique.Handle[string]
	primary  [chunkLen]unique.Handle[string] // primary subtag of the language, lower case
	tags     [chunkLen]uint64                // marks of the tags together
	types    [chunkLen]uint64                // and of the type names
	row      [chunkLen]*row
}

func (c *chunk) set(i int, r *row) {
	d := &r.doc
	c.bits[i] = bitsOf(d)
	c.start[i], c.end[i], c.activity[i] = d.StartTime, d.EndTime, d.LastActivity
	c.origin[i], c.creator[i] = unique.Make(d.Origin), unique.Make(d.Creator)
	c.primary[i] = unique.Make(primary(r.language))
	c.tags[i], c.types[i] = marksOf(d.Tags), marksOf(d.Types)|marksOf(d.Packs)
	c.row[i] = r
}

// markOf turns a word into one bit of 64. A row that lacks the bit lacks the
// word; for most rows that saves a look at the words themselves.
func markOf(s string) uint64 { return 1 << (maphash.String(markSeed, s) & 63) }

var markSeed = maphash.MakeSeed()

func marksOf(list []string) (marks uint64) {
	for _, s := range list {
		marks |= markOf(s)
	}
	return marks
}

func (c *chunk) clear(i int) {
	none := unique.Handle[string]{}
	c.bits[i], c.row[i] = 0, nil
	c.origin[i], c.creator[i], c.primary[i] = none, none, none
}

func primary(language string) string {
	first, _, _ := strings.Cut(language, "-")
	return first
}

type name struct {
	origin unique.Handle[string]
	room   string
}

func nameOf(origin, roomID string) name { return name{unique.Make(origin), roomID} }

// table is copy on write. A snapshot freezes the chunks and the list of them;
// the first write to each afterwards makes a copy, and further writes change
// that copy in place until the next snapshot. So a query is consistent without
// a lock, and loading many rooms with no query between copies nothing.
//
// Only what carries the current epoch may be written. mu guards all fields, and
// is never held for longer than one such copy.
type table struct {
	mu        sync.Mutex
	slots     map[name]int
	free      []int
	chunks    []*chunk
	epoch     uint64 // number of snapshots taken
	listEpoch uint64 // of chunks
}

// snapshot is the table as it is now; nothing in it changes any more.
func (t *table) snapshot() []*chunk {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch++
	return t.chunks
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.slots)
}

func (t *table) get(n name) *row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at(n)
}

func (t *table) at(n name) *row {
	slot, ok := t.slots[n]
	if !ok {
		return nil
	}
	return t.chunks[slot/chunkLen].row[slot%chunkLen]
}

// writable is chunk i, which may be changed until mu is released.
func (t *table) writable(i int) *chunk {
	if t.listEpoch != t.epoch {
		t.chunks, t.listEpoch = slices.Clone(t.chunks), t.epoch
	}
	if i == len(t.chunks) {
		t.chunks = append(t.chunks, &chunk{epoch: t.epoch})
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

func (t *table) put(n name, r *row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, ok := t.slots[n]
	if !ok {
		if last := len(t.free) - 1; last >= 0 {
			slot, t.free = t.free[last], t.free[:last]
		} else {
			slot = len(t.slots) // with no free slot, those in use are 0 … len-1
		}
		t.slots[n] = slot
	}
	t.writable(slot/chunkLen).set(slot%chunkLen, r)
}

func (t *table) remove(n name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, ok := t.slots[n]
	if !ok {
		return
	}
	t.writable(slot / chunkLen).clear(slot % chunkLen)
	delete(t.slots, n)
	t.free = append(t.free, slot)
}

// change replaces a row by what f makes of it, with no other write in between.
func (t *table) change(n name, f func(*row) *row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.at(n); r != nil {
		slot := t.slots[n]
		t.writable(slot/chunkLen).set(slot%chunkLen, f(r))
	}
}
