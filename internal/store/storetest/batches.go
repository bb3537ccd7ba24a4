package storetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/internal/store"
)

// testModel runs random batches against the store and against a map, and compares all that can be read.
func testModel(t *testing.T, s *store.Store) {
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		space := fmt.Sprintf("%06d/", round) // each run has keys of its own
		model := map[string]string{}
		keys := rapid.SampledFrom([]string{"a", "aa", "ab", "b", "b\x00", "b\xff", "c"})
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			var b store.Batch
			after := maps.Clone(model)
			met := true
			for range rapid.IntRange(0, 4).Draw(t, "writes") {
				k := space + keys.Draw(t, "key")
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					b.Delete([]byte(k))
					delete(after, k)
				case 1:
					value := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "expected")
					b.Expect([]byte(k), []byte(value))
					met = met && model[k] == value
				default:
					value := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")
					b.Put([]byte(k), []byte(value))
					after[k] = value
				}
			}
			err := s.Commit(&b)
			if met && err != nil || !met && !errors.Is(err, store.ErrConflict) {
				t.Fatalf("Commit = %v, conditions met: %v", err, met)
			}
			if met {
				model = after
			}
		}
		var got, wanted []pair
		for _, k := range slices.Sorted(maps.Keys(model)) {
			wanted = append(wanted, pair{k, model[k]})
		}
		err := s.View(func(r store.Reader) error {
			return r.Scan([]byte(space), store.PrefixEnd([]byte(space)), func(k, v []byte) bool {
				got = append(got, pair{string(k), string(v)})
				return true
			})
		})
		if err != nil || !slices.Equal(got, wanted) {
			t.Fatalf("the store has %q (%v), the model %q", got, err, wanted)
		}
	})
}

func testLastWriteWins(t *testing.T, s *store.Store) {
	put(t, s, "b", "before")
	put(t, s, "a", "1", "a", "2", "b", "1")
	want(t, s, "a", "2")
	var b store.Batch
	b.Delete([]byte("a"))
	b.Put([]byte("a"), []byte("3"))
	b.Put([]byte("b"), []byte("2"))
	b.Delete([]byte("b"))
	if b.Size() != 6 {
		t.Errorf("Size = %d, want 6", b.Size())
	}
	if err := s.Commit(&b); err != nil {
		t.Fatal(err)
	}
	want(t, s, "a", "3")
	want(t, s, "b", "-")
}

func testExpect(t *testing.T, s *store.Store) {
	put(t, s, "a", "1", "empty", "")
	for _, test := range []struct {
		name  string
		key   string
		value []byte
		ok    bool
	}{
		{"equal", "a", []byte("1"), true},
		{"other", "a", []byte("2"), false},
		{"absent wanted, present", "a", nil, false},
		{"empty wanted, other", "a", []byte{}, false},
		{"empty wanted, empty", "empty", []byte{}, true},
		{"absent wanted, present but empty", "empty", nil, false},
		{"absent wanted, absent", "none", nil, true},
		{"empty wanted, absent", "none", []byte{}, false},
		{"value wanted, absent", "none", []byte("1"), false},
	} {
		k := "written by " + test.name
		var b store.Batch
		b.Put([]byte(k), []byte("v"))
		b.Expect([]byte(test.key), test.value)
		err := s.Commit(&b)
		if test.ok {
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			want(t, s, k, "v")
			continue
		}
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: Commit = %v, want ErrConflict", test.name, err)
		}
		want(t, s, k, "-")
	}
}

func testCheckFailureIsolated(t *testing.T, s *store.Store) {
	mine := errors.New("mine")
	release := hold(s)
	errs := make([]error, 9)
	var answered sync.WaitGroup
	for i := range errs {
		var b store.Batch
		b.Put(key("k%d", i), []byte("v"))
		b.Put(key("l%d", i), []byte("v"))
		if i%3 == 1 {
			b.Check(func(func([]byte) ([]byte, bool, error)) error { return mine })
		}
		if i%3 == 2 {
			b.Expect([]byte("absent"), []byte("x"))
		}
		answered.Add(1)
		s.Submit(&b, func(err error) { errs[i] = err; answered.Done() })
	}
	release()
	answered.Wait()
	for i, err := range errs {
		wantErr, value := error(nil), "v"
		switch i % 3 {
		case 1:
			wantErr, value = mine, "-"
		case 2:
			wantErr, value = store.ErrConflict, "-"
		}
		if !errors.Is(err, wantErr) {
			t.Errorf("batch %d: %v, want %v", i, err, wantErr)
		}
		want(t, s, fmt.Sprintf("k%d", i), value)
		want(t, s, fmt.Sprintf("l%d", i), value)
	}
}

func testCheckSeesEarlier(t *testing.T, s *store.Store) {
	put(t, s, "deleted", "v")
	release := hold(s)
	var first, refused, last store.Batch
	first.Put([]byte("head"), []byte("1"))
	first.Delete([]byte("deleted"))
	refused.Expect([]byte("head"), []byte("0"))
	refused.Put([]byte("head"), []byte("wrong"))
	var seen []byte
	var found, own bool
	last.Put([]byte("own"), []byte("v"))
	last.Check(func(get func([]byte) ([]byte, bool, error)) (err error) {
		if seen, _, err = get([]byte("head")); err != nil {
			return err
		}
		if _, own, err = get([]byte("own")); err != nil {
			return err
		}
		_, found, err = get([]byte("deleted"))
		return err
	})
	last.Expect([]byte("head"), []byte("1"))
	s.Submit(&first, func(error) {})
	s.Submit(&refused, func(error) {})
	answer := make(chan error)
	go func() { answer <- s.Commit(&last) }()
	release()
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if string(seen) != "1" || found || own {
		t.Errorf("the check saw head %q, deleted present %v, its own write %v; want 1, false, false", seen, found, own)
	}
	want(t, s, "head", "1")
}

func testDoneInOrder(t *testing.T, s *store.Store) {
	const n = 500
	var order []int
	all := make(chan struct{})
	for i := range n {
		var b store.Batch
		b.Put([]byte("last"), key("%d", i))
		if i%7 == 3 {
			b.Expect([]byte("absent"), []byte("x")) // failures keep their place
		}
		s.Submit(&b, func(error) {
			order = append(order, i) // one goroutine calls done, so this needs no lock
			if len(order) == n {
				close(all)
			}
		})
	}
	<-all
	if !slices.IsSorted(order) {
		t.Errorf("done was called in the order %v", order)
	}
	want(t, s, "last", fmt.Sprint(n-1))
}

func testSubmitDoesNotBlock(t *testing.T, s *store.Store) {
	release := hold(s)
	const n = 20_000 // would fill any sensible channel; a blocked Submit fails by the test's timeout
	var answered sync.WaitGroup
	answered.Add(n)
	for i := range n {
		var b store.Batch
		b.Put(key("k%06d", i), []byte("v"))
		s.Submit(&b, func(err error) {
			if err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
			answered.Done()
		})
	}
	if st := s.Stats(); st.Waiting != n+1 {
		t.Errorf("Waiting = %d, want %d", st.Waiting, n+1)
	}
	release()
	answered.Wait()
	if got := scan(t, s, nil, nil); len(got) != n {
		t.Errorf("%d keys, want %d", len(got), n)
	}
}

// testCounter lets 64 goroutines count up one key by compare-and-swap: no step may be lost or done twice.
func testCounter(t *testing.T, s *store.Store) {
	const writers, steps = 64, 8
	counter := []byte("counter")
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range steps {
				for {
					old, found, err := s.Get(counter)
					if err != nil {
						t.Error(err)
						return
					}
					var n uint64
					if found {
						n = binary.BigEndian.Uint64(old)
					}
					var b store.Batch
					b.Expect(counter, old)
					b.Put(counter, binary.BigEndian.AppendUint64(nil, n+1))
					b.Put(key("step/%d", n+1), key("%d/%d", w, i))
					err = s.Commit(&b)
					if err == nil {
						break
					}
					if !errors.Is(err, store.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	got, _, err := s.Get(counter)
	if err != nil || binary.BigEndian.Uint64(got) != writers*steps {
		t.Errorf("the counter is %x (%v), want %d", got, err, writers*steps)
	}
	if steps := scan(t, s, []byte("step/"), store.PrefixEnd([]byte("step/"))); len(steps) != writers*8 {
		t.Errorf("%d steps, want %d", len(steps), writers*8)
	}
	if st := s.Stats(); st.Commits != writers*steps || st.Groups == 0 || st.Groups > st.Commits {
		t.Errorf("Stats = %+v, want %d commits", st, writers*steps)
	}
}

// testAtomicForReaders moves one unit between two keys again and again; every snapshot must hold the whole.
func testAtomicForReaders(t *testing.T, s *store.Store) {
	put(t, s, "a", "100", "b", "0")
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var a, b int
				err := s.View(func(r store.Reader) error {
					for k, n := range map[string]*int{"a": &a, "b": &b} {
						v, _, err := r.Get([]byte(k))
						if err != nil {
							return err
						}
						if _, err := fmt.Sscan(string(v), n); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil || a+b != 100 {
					t.Errorf("a snapshot has a=%d b=%d (%v), want a sum of 100", a, b, err)
					return
				}
			}
		})
	}
	for i := 1; i <= 100; i++ {
		put(t, s, "a", fmt.Sprint(100-i), "b", fmt.Sprint(i))
	}
	close(stop)
	readers.Wait()
}

func testLargeBatch(t *testing.T, s *store.Store) {
	for _, size := range []int{100, 700, 70_000, mebibyte} {
		value := bytes.Repeat([]byte{'x'}, size)
		var b store.Batch
		n := 0
		for ; b.Size()+size+20 <= 8<<20; n++ {
			b.Put(key("%07d/%08d", size, n), value)
		}
		if err := s.Commit(&b); err != nil {
			t.Fatalf("a batch of %d bytes in values of %d: %v", b.Size(), size, err)
		}
		from := key("%07d/", size)
		if got := scan(t, s, from, store.PrefixEnd(from)); len(got) != n || got[n-1].value != string(value) {
			t.Errorf("%d of %d entries are there", len(got), n)
		}
	}
}

func testTooBig(t *testing.T, s *store.Store) {
	release := hold(s)
	var before, big, after store.Batch
	before.Put([]byte("before"), []byte("v"))
	for i := range 64 {
		big.Put(key("big%d", i), make([]byte, mebibyte))
	}
	after.Put([]byte("after"), []byte("v"))
	errs := make(chan error, 3)
	for _, b := range []*store.Batch{&before, &big, &after} {
		s.Submit(b, func(err error) { errs <- err })
	}
	release()
	for i, wanted := range []error{nil, store.ErrTooBig, nil} {
		if err := <-errs; !errors.Is(err, wanted) {
			t.Errorf("batch %d: %v, want %v", i, err, wanted)
		}
	}
	want(t, s, "before", "v")
	want(t, s, "after", "v")
	want(t, s, "big0", "-")
}

func testSplitGroups(t *testing.T, s *store.Store) {
	release := hold(s)
	const n = 24
	value := make([]byte, mebibyte)
	var answered sync.WaitGroup
	answered.Add(n)
	for i := range n {
		var b store.Batch
		b.Put(key("big/%02d", i), value)
		if i > 0 {
			b.Expect(key("big/%02d", i-1), value) // also across the place of a split
		}
		s.Submit(&b, func(err error) {
			if err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
			answered.Done()
		})
	}
	release()
	answered.Wait()
	if got := scan(t, s, nil, nil); len(got) != n {
		t.Errorf("%d keys, want %d", len(got), n)
	}
	if st := s.Stats(); st.Groups < 2 || st.Groups >= n {
		t.Errorf("%d batches of 1 MiB went in %d groups, want fewer than batches and more than one", n, st.Groups)
	}
}

func testBadKeys(t *testing.T, s *store.Store) {
	for name, k := range map[string][]byte{
		"empty": nil, "long": make([]byte, store.MaxKey+1), "reserved": {0, 'x'},
	} {
		var b store.Batch
		b.Put([]byte("other "+name), []byte("v"))
		b.Put(k, []byte("v"))
		if err := s.Commit(&b); !errors.Is(err, store.ErrBadKey) {
			t.Errorf("%s key: Commit = %v, want ErrBadKey", name, err)
		}
		want(t, s, "other "+name, "-")
	}
	longest := bytes.Repeat([]byte("k"), store.MaxKey)
	put(t, s, string(longest), "v")
	want(t, s, string(longest), "v")
}
