package index

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/witan-adp/witan/index/text"
)

// searcher keeps the text store in step with the table, and asks it. A room whose words
// changed waits until the store has them, and is a candidate for every word meanwhile,
// so that it is found at once. What the store finds is judged by the texts of the
// table: an entry that is out of date finds nothing.
//
// The name of a document is the id of the room and the hash of its search text, so
// that after a restart only what is missing is written.
type searcher struct {
	x     *Index
	store *text.Store // nil: none
	wake  chan struct{}

	flushing sync.Mutex // one at a time

	mu      sync.Mutex    // taken after that of the table
	pending map[id]uint64 // hash of what the store has, 0 for nothing
	flying  map[id]uint64 // the same, of what is being written
	known   map[id]uint64 // what the store had when it was opened and no room was put for yet; nil once all are
}

func (s *searcher) init(x *Index) {
	*s = searcher{x: x, store: x.opts.Text, wake: make(chan struct{}, 1), pending: map[id]uint64{}, flying: map[id]uint64{}}
}

// changed notes that a room has other words, or is gone. The lock of the table is held.
func (s *searcher) changed(before, after *row) {
	if s.store == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var n id
	var had uint64
	if before != nil {
		n, had = before.id, before.hash
	}
	if after != nil {
		if n = after.id; before != nil && before.hash == after.hash {
			return
		}
		if hash, ok := s.known[n]; ok && before == nil {
			delete(s.known, n)
			if had = hash; hash == after.hash {
				return
			}
		}
	}
	if _, ok := s.pending[n]; !ok {
		s.pending[n] = had
	}
	s.poke()
}

// poke tells Run that something waits.
func (s *searcher) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Load reads what the text store has. Call it before the first Put, and Loaded after
// the last one of the start: what no room was put for is deleted then.
func (x *Index) Load() error {
	x.rows.setLoading(true)
	s := &x.search
	if s.store == nil {
		return nil
	}
	known := map[id]uint64{}
	var twice []string
	err := s.store.Each(func(name string) bool {
		n, hash, ok := parseName(name)
		if _, again := known[n]; !ok || again {
			twice = append(twice, name)
			return true
		}
		known[n] = hash
		return true
	})
	if err != nil {
		return err
	}
	if len(twice) > 0 {
		if err := s.store.Apply(text.Change{Delete: twice}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
	return nil
}

// Loaded tells that all rooms were put.
func (x *Index) Loaded() {
	x.rows.setLoading(false)
	s := &x.search
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, hash := range s.known {
		s.pending[n] = hash
	}
	if len(s.known) > 0 {
		s.poke()
	}
	s.known = nil
}

func nameOf(n id, hash uint64) string {
	b := append(make([]byte, 0, 24), n[:]...)
	for shift := 56; shift >= 0; shift -= 8 {
		b = append(b, byte(hash>>shift))
	}
	return string(b)
}

func parseName(s string) (n id, hash uint64, ok bool) {
	if len(s) != len(n)+8 {
		return n, 0, false
	}
	for _, c := range []byte(s[copy(n[:], s):]) {
		hash = hash<<8 | uint64(c)
	}
	return n, hash, true
}

// candidates are the places of all rooms that may have the words of a filter; common
// means that they are too many to be listed. Which really have them, the texts tell.
func (s *searcher) candidates(ctx context.Context, f *filter) (slots []uint32, common bool, note string, err error) {
	if s.store == nil || len(f.words) == 0 {
		return nil, true, "", nil
	}
	var terms []string
	for _, w := range f.words {
		terms = append(terms, w.Terms()...)
	}
	// what waits is read first: what is written between the two is seen twice, not never
	s.mu.Lock()
	names := make([]id, 0, min(len(s.pending), maxLook)+len(s.flying))
	for n := range s.flying {
		names = append(names, n)
	}
	for n := range s.pending {
		if len(names) >= maxLook {
			note = fmt.Sprintf("the words of %d rooms are still being read; some of them are not searched yet", len(s.pending))
			break
		}
		names = append(names, n)
	}
	s.mu.Unlock()
	found, common, err := s.store.Find(ctx, terms, maxCandidates)
	if err != nil || common {
		return nil, common, "", err
	}
	seen := make(map[id]struct{}, len(names)+len(found))
	for _, n := range names {
		seen[n] = struct{}{}
	}
	for _, name := range found {
		if n, _, ok := parseName(name); ok {
			if _, twice := seen[n]; !twice {
				seen[n] = struct{}{}
				names = append(names, n)
			}
		}
	}
	return s.x.rows.find(names), false, note, nil
}

// Bounds of one write to the text store, and how long changes are gathered for one.
const (
	flushRooms = 1000
	flushBytes = 8 << 20
	gather     = 200 * time.Millisecond
	retryAfter = 10 * time.Second
	tidyEvery  = time.Minute
)

// Run writes changed words to the text store, and lets go of what is only kept for a
// while, until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	s := &x.search
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tidy.C:
			now := x.opts.Now()
			x.held.tidy(now)
			x.counted.tidy(now)
			continue
		case <-s.wake:
		}
		pause := gather
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			err := x.Flush(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil
			}
			x.opts.Log.Error("the words of rooms could not be written to the text index; they are searched without it", "error", err)
			pause = retryAfter
		}
	}
}

// Flush writes all words that wait. It is for Run, and for who has to know that they
// are written.
func (x *Index) Flush(ctx context.Context) error {
	s := &x.search
	if s.store == nil {
		return nil
	}
	s.flushing.Lock()
	defer s.flushing.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if more, err := s.flush(); err != nil || !more {
			return err
		}
	}
}

// flush writes one batch.
func (s *searcher) flush() (more bool, err error) {
	s.mu.Lock()
	for n, had := range s.pending {
		if len(s.flying) == flushRooms {
			break
		}
		s.flying[n] = had
		delete(s.pending, n)
	}
	batch := maps.Clone(s.flying)
	s.mu.Unlock()
	if len(batch) == 0 {
		return false, nil
	}
	var c text.Change
	var buf []byte
	size := 0
	var late []id // of which no room was read, for the batch is full
	for n, had := range batch {
		r := s.x.rows.get(n)
		if size > flushBytes {
			late = append(late, n)
			continue
		}
		if had != 0 && (r == nil || r.hash != had) {
			c.Delete = append(c.Delete, nameOf(n, had))
		}
		if r != nil && r.hash != had {
			search := strings.Clone(r.search(&buf)) // the terms are parts of it
			size += len(search)
			c.Put = append(c.Put, text.Document{ID: nameOf(n, r.hash), Terms: text.Terms(search)})
			batch[n] = r.hash
		} else if r == nil {
			batch[n] = 0
		}
	}
	err = s.store.Apply(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range late {
		s.wait(n, s.flying[n])
		delete(s.flying, n)
	}
	for n := range s.flying {
		if err != nil {
			s.wait(n, s.flying[n])
		} else if _, again := s.pending[n]; again {
			s.pending[n] = batch[n]
		}
	}
	clear(s.flying)
	return true, err
}

// wait puts a room back. It needs mu.
func (s *searcher) wait(n id, had uint64) { s.pending[n] = had }

// Rebuild drops the text store and writes it again from the rooms, and tells how many
// they are. Meanwhile searches look at rooms one after the other.
func (x *Index) Rebuild(ctx context.Context) (rooms int, err error) {
	s := &x.search
	if s.store == nil {
		return 0, nil
	}
	s.flushing.Lock()
	err = s.store.Reset()
	if err == nil {
		x.rows.mu.Lock()
		s.mu.Lock()
		clear(s.pending)
		for n := range x.rows.slots {
			s.pending[n] = 0
		}
		rooms = len(s.pending)
		s.mu.Unlock()
		x.rows.mu.Unlock()
	}
	s.flushing.Unlock()
	if err != nil {
		return 0, err
	}
	return rooms, x.Flush(ctx)
}
