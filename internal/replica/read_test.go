package replica

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

func sha256Digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return "sha256:" + adp.Encode(sum[:])
}

// Pages from the ring, from the store, and across.
func TestRead(t *testing.T) {
	s, st := begin(t, nil).upTo(600), memory(t)
	set := openSet(t, st)
	r := keep(t, set, s)
	r.moved.Lock()
	dropped := r.ring.first + int64(r.ring.dropped)
	r.moved.Unlock()
	if dropped < 2 {
		t.Fatal("the ring holds everything; the test proves nothing")
	}
	read := func(after int64, limit, size int) int {
		t.Helper()
		recs, err := r.Read(after, limit, size)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for i, raw := range recs {
			if want := s.recs[max(after, 0)+int64(i)].JSON(); !bytes.Equal(raw, want) {
				t.Fatalf("behind %d, place %d: %s", after, i, raw)
			}
			total += len(raw)
		}
		if len(recs) > 1 && total > size {
			t.Errorf("behind %d: %d bytes, %d were asked for", after, total, size)
		}
		return len(recs)
	}
	for after := int64(-1); after <= 601; after++ {
		left := max(0, 600-max(after, 0))
		if n := read(after, 7, 1<<20); int64(n) != min(7, left) {
			t.Fatalf("behind %d: %d records", after, n)
		}
		if n := read(after, 100, 1); int64(n) != min(1, left) {
			t.Fatalf("behind %d, by the byte: %d records", after, n)
		}
	}
	for _, loaded := range []bool{true, false} {
		if n := read(0, 1000, 8<<20); n != 600 {
			t.Errorf("loaded %v: %d records", loaded, n)
		}
		if n := read(dropped-2, 1000, 8<<20); int64(n) != 602-dropped {
			t.Errorf("loaded %v: %d records across the edge of the ring", loaded, n)
		}
		for _, seq := range []int64{-1, 0, 601} {
			if raw, ok, err := r.Record(seq); ok || err != nil {
				t.Errorf("record %d: %s, %v", seq, raw, err)
			}
		}
		r.Unload(math.MaxInt64)
	}
	stop := errors.New("stop")
	var seqs []int64
	err := r.Scan(3, 1000, func(seq int64, raw []byte) error {
		if seqs = append(seqs, seq); seq == 6 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || fmt.Sprint(seqs) != "[4 5 6]" {
		t.Errorf("scan: %v, %v", seqs, err)
	}
}

// What a reader holds stays what it is while the ring drops its records, and
// all that a reader sees is committed, in order and without a gap.
func TestConcurrentWritersAndReaders(t *testing.T) {
	const n = 1500
	s, st := begin(t, nil).upTo(n), memory(t)
	r := create(t, openSet(t, st), s)
	var wg sync.WaitGroup
	next := 1
	var turn sync.Mutex // hands out the story in order; the turns themselves contend
	for range 4 {
		wg.Go(func() {
			for {
				turn.Lock()
				if next == n {
					turn.Unlock()
					return
				}
				to := min(next+3, n)
				done := feed(t, r, s, next, to)
				count := to - next
				next = to
				turn.Unlock()
				wait(t, done, count)
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			var held [][]byte
			for after := int64(0); after < n; {
				_, _, signal := r.Moved()
				recs, err := r.Read(after, 50, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				if len(recs) == 0 {
					<-signal
					continue
				}
				held = append(held, recs...)
				after += int64(len(recs))
			}
			for i, raw := range held {
				if !bytes.Equal(raw, s.recs[i].JSON()) {
					t.Errorf("place %d: %s", i, raw)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for r.Row().Seq < n {
			var seq int64
			if err := r.View(t.Context(), func(st *room.State) { seq = st.Last.Seq }); err != nil {
				t.Error(err)
				return
			}
			if r.Row().Seq < seq {
				t.Errorf("a view of seq %d is not committed", seq)
			}
			if _, ok := r.SeqOf(s.recs[seq-1].Envelope.Hash); !ok {
				t.Errorf("no envelope at %d", seq)
			}
		}
	})
	wg.Wait()
	same(t, r, s)
}

// A ring holds the newest records without a gap, within its bytes.
func TestRing(t *testing.T) {
	var g ring
	if _, ok := g.after(0, 10, 100); ok {
		t.Error("an empty ring has an answer")
	}
	rec := bytes.Repeat([]byte("x"), 1000)
	for seq := int64(1); seq <= 2000; seq++ {
		g.add(seq, rec)
		if g.bytes > ringBytes {
			t.Fatalf("%d bytes", g.bytes)
		}
		if got, ok := g.after(seq-1, 10, 1<<20); !ok || len(got) != 1 {
			t.Fatalf("the newest record is not there at %d", seq)
		}
	}
	if len(g.items) > 2*ringBytes/1000+130 {
		t.Errorf("%d places are kept", len(g.items))
	}
	for seq := int64(2001); seq <= 4000; { // what a reader holds outlives the ring's own hold
		lent, ok := g.after(g.first+int64(g.dropped)-1, 30, 1<<20)
		for range 40 {
			g.add(seq, rec)
			seq++
		}
		for i, raw := range lent {
			if !ok || !bytes.Equal(raw, rec) {
				t.Fatalf("place %d of what a reader holds is gone", i)
			}
		}
	}
	g.add(5000, rec) // a gap: what came before is of no use
	if _, ok := g.after(3999, 10, 1<<20); ok {
		t.Error("the ring answers across a gap")
	}
	big := bytes.Repeat([]byte("x"), 2*ringBytes)
	g.add(5001, big)
	if got, ok := g.after(5000, 10, 1<<20); !ok || len(got) != 1 {
		t.Error("one record larger than the ring is kept alone")
	}
}

func sha256Sum(prefix byte, parts ...[]byte) []byte {
	sum := sha256.Sum256(append([]byte{prefix}, bytes.Join(parts, nil)...))
	return sum[:]
}
