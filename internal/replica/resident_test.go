package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp/room"
)

// loaded counts the replicas of a set that hold a state, and their recent records.
func loaded(set *Set) (states, ringBytes int) {
	for _, r := range set.All() {
		r.turn.Lock()
		if r.state != nil {
			states++
		}
		ringBytes += r.ring.bytes
		r.turn.Unlock()
	}
	return states, ringBytes
}

// Of many rooms, only so many are held in memory; the others are read again when
// somebody asks.
func TestResidentsAreBounded(t *testing.T) {
	const rooms, records, most = 40, 5, 8
	st := memory(t)
	set := openSet(t, st)
	set.residents.most = most
	s := begin(t, nil).upTo(records)
	var all []*Replica
	for i := range rooms { // one story, told by many hosts
		done := make(chan error, 1)
		r, err := set.Create(fmt.Sprintf("https://h%d.example", i), s.recs[0], s.chs[0], Row{}, nil, func(err error) { done <- err })
		if err == nil {
			err = <-done
		}
		if err != nil {
			t.Fatal(err)
		}
		wait(t, feed(t, r, s, 1, records), records-1)
		all = append(all, r)
		if n, bytes := loaded(set); n > most+1 || int64(bytes) != set.residents.bytes {
			t.Fatalf("%d rooms are loaded; their rings hold %d bytes, counted are %d", n, bytes, set.residents.bytes)
		}
	}
	for range 2 {
		for _, r := range all {
			if err := r.View(t.Context(), func(s *room.State) {
				if s.Last.Seq != records {
					t.Errorf("seq %d", s.Last.Seq)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if n, _ := loaded(set); n > most+1 {
				t.Fatalf("%d rooms are loaded", n)
			}
			same(t, r, s)
		}
	}
	// what is used again and again stays, as far as there is room for it
	hot := all[3]
	for i, r := range all {
		for _, r := range []*Replica{r, hot} {
			if i > most && r == hot && r.state == nil {
				t.Fatal("a room in use was dropped")
			}
			if err := r.View(t.Context(), func(*room.State) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// the bytes of recent records are bounded too
	set.residents.mostBytes = 1
	for _, r := range all {
		if err := r.Take(func(t *Turn) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n, bytes := loaded(set); n > most || bytes != 0 || set.residents.bytes != 0 {
		t.Errorf("%d rooms are loaded, their rings hold %d bytes, counted are %d", n, bytes, set.residents.bytes)
	}
	for _, r := range all { // a sweep and the bound do not count a room twice
		r.Unload(1 << 60)
	}
	if err := all[0].View(t.Context(), func(*room.State) {}); err != nil {
		t.Fatal(err)
	}
	if n, _ := loaded(set); n != 1 {
		t.Errorf("%d rooms are loaded after all were let go but one", n)
	}
}

// Rooms that are loaded already take up recent records without being loaded again; together they
// hold no more than that bound either.
func TestRingsOfLoadedRoomsAreBounded(t *testing.T) {
	const rooms, records = 30, 6
	set := openSet(t, memory(t))
	s := begin(t, nil).upTo(records)
	var all []*Replica
	for i := range rooms {
		done := make(chan error, 1)
		r, err := set.Create(fmt.Sprintf("https://h%d.example", i), s.recs[0], s.chs[0], Row{}, nil, func(err error) { done <- err })
		if err == nil {
			err = <-done
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	_, before := loaded(set)
	set.residents.mostBytes = int64(before)
	largest := 0
	for _, rec := range s.recs {
		largest = max(largest, len(rec.JSON()))
	}
	for i := 1; i < records; i++ {
		for _, r := range all {
			wait(t, feed(t, r, s, i, i+1), 1)
			if _, bytes := loaded(set); int64(bytes) != set.residents.bytes || bytes > before+largest {
				t.Fatalf("the rings hold %d bytes, counted are %d; the bound is %d", bytes, set.residents.bytes, before)
			}
		}
	}
	for _, r := range all {
		same(t, r, s)
	}
}

// A few rooms with much to remember take no more than that bound, and go on to be read and written.
func TestStatesAreBoundedInBytes(t *testing.T) {
	const rooms = 12
	set := openSet(t, memory(t))
	s := begin(t, obj{"agenda": strings.Repeat("x", 100_000)}).upTo(4)
	one := int64(s.s.Weight())
	if one < 100_000 || one > 110_000 {
		t.Fatalf("a room weighs %d bytes", one)
	}
	set.residents.mostStates = 4 * one
	var all []*Replica
	for i := range rooms {
		done := make(chan error, 1)
		r, err := set.Create(fmt.Sprintf("https://h%d.example", i), s.recs[0], s.chs[0], Row{}, nil, func(err error) { done <- err })
		if err == nil {
			err = <-done
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	weighed := func() (n int64) {
		for _, r := range all {
			r.turn.Lock()
			if r.state != nil {
				n += int64(r.state.Weight())
			}
			r.turn.Unlock()
		}
		return n
	}
	for i := 1; i < 4; i++ {
		for range 2 { // the second time the ones that were in use may go
			for _, r := range all {
				if err := r.View(t.Context(), func(*room.State) {}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, r := range all {
			wait(t, feed(t, r, s, i, i+1), 1)
		}
		if n := weighed(); n != set.residents.states || n > 5*one {
			t.Fatalf("states of %d bytes are loaded, counted are %d; the bound is %d", n, set.residents.states, 4*one)
		}
	}
	for _, r := range all {
		same(t, r, s)
	}
	for _, r := range all {
		r.used.Store(0)
		r.Unload(1)
	}
	if set.residents.states != 0 {
		t.Errorf("%d bytes are counted and none is loaded", set.residents.states)
	}
}
