// Package storetest says in tests what every engine under internal/store must do. An engine is right when Run passes; the
// callers of the store rely on nothing else. It imports testing and belongs into tests only.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/store"
)

// Run tries everything on stores that open returns. open must return a new, empty store each time and leave closing to Run.
func Run(t *testing.T, open func(t *testing.T) *store.Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s *store.Store)
	}{
		{"GetPutDelete", testGetPutDelete},
		{"EmptyValues", testEmptyValues},
		{"Ordering", testOrdering},
		{"Ranges", testRanges},
		{"Snapshot", testSnapshot},
		{"Model", testModel},
		{"LastWriteOfABatchWins", testLastWriteWins},
		{"Expect", testExpect},
		{"CheckFailureIsolated", testCheckFailureIsolated},
		{"CheckSeesEarlierBatches", testCheckSeesEarlier},
		{"DoneInOrder", testDoneInOrder},
		{"SubmitDoesNotBlock", testSubmitDoesNotBlock},
		{"Counter64", testCounter},
		{"AtomicForReaders", testAtomicForReaders},
		{"LargeBatch", testLargeBatch},
		{"TooBig", testTooBig},
		{"SplitGroups", testSplitGroups},
		{"BadKeys", testBadKeys},
		{"TTL", testTTL},
		{"Closed", testClosed},
		{"CloseDrains", testCloseDrains},
		{"CloseWaitsForReaders", testCloseWaitsForReaders},
		{"GC", testGC},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			defer closeStore(t, s)
			test.run(t, s)
		})
	}
	t.Run("Backup", func(t *testing.T) { testBackup(t, open) })
	t.Run("BackupCut", func(t *testing.T) { testBackupCut(t, open) })
	t.Run("RestoreNotEmpty", func(t *testing.T) { testRestoreNotEmpty(t, open) })
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func key(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }

func put(t *testing.T, s *store.Store, pairs ...string) {
	t.Helper()
	var b store.Batch
	for i := 0; i < len(pairs); i += 2 {
		b.Put([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	if err := s.Commit(&b); err != nil {
		t.Fatalf("Commit(%q): %v", pairs, err)
	}
}

// want fails unless the key holds the value, or is absent for the value "-".
func want(t *testing.T, s *store.Store, key, value string) {
	t.Helper()
	got, found, err := s.Get([]byte(key))
	switch {
	case err != nil:
		t.Fatalf("Get(%q): %v", key, err)
	case value == "-" && found:
		t.Errorf("Get(%q) = %q, want it absent", key, got)
	case value != "-" && (!found || string(got) != value):
		t.Errorf("Get(%q) = %q, %v, want %q", key, got, found, value)
	}
}

// mebibyte is the longest value that a store in memory takes.
const mebibyte = 1<<20 - 1

type pair struct{ key, value string }

func scan(t *testing.T, s *store.Store, from, to []byte) (pairs []pair) {
	t.Helper()
	err := s.View(func(r store.Reader) error {
		return r.Scan(from, to, func(k, v []byte) bool {
			pairs = append(pairs, pair{string(k), string(v)})
			return true
		})
	})
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	return pairs
}

// hold stops the committer inside a Check until release is called, so that what is submitted meanwhile waits together.
func hold(s *store.Store) (release func()) {
	reached, gate := make(chan struct{}), make(chan struct{})
	var b store.Batch
	b.Check(func(func([]byte) ([]byte, bool, error)) error {
		close(reached)
		<-gate
		return nil
	})
	s.Submit(&b, func(error) {})
	<-reached
	return func() { close(gate) }
}

func testGetPutDelete(t *testing.T, s *store.Store) {
	want(t, s, "a", "-")
	put(t, s, "a", "1", "b", "2")
	want(t, s, "a", "1")
	want(t, s, "b", "2")
	put(t, s, "a", "3")
	want(t, s, "a", "3")
	var b store.Batch
	b.Delete([]byte("a"))
	b.Delete([]byte("never was"))
	if err := s.Commit(&b); err != nil {
		t.Fatal(err)
	}
	want(t, s, "a", "-")
	want(t, s, "b", "2")

	got, _, err := s.Get([]byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	got[0] = 'X' // a copy that the caller owns
	want(t, s, "b", "2")
}

func testEmptyValues(t *testing.T, s *store.Store) {
	var b store.Batch
	b.Put([]byte("nil"), nil)
	b.Put([]byte("empty"), []byte{})
	if err := s.Commit(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"nil", "empty"} {
		got, found, err := s.Get([]byte(k))
		if err != nil || !found || got == nil || len(got) != 0 {
			t.Errorf("Get(%q) = %#v, %v, %v; want present and empty", k, got, found, err)
		}
	}
	if got := scan(t, s, nil, nil); len(got) != 2 {
		t.Errorf("Scan found %v, want both keys", got)
	}
}

func testOrdering(t *testing.T, s *store.Store) {
	keys := []string{"b", "a", "a\x00", "a\x00\x01", "aa", "ab", "\xff", "\xff\xff", "\x01", "B"}
	var b store.Batch
	for _, k := range keys {
		b.Put([]byte(k), []byte("v"+k))
	}
	if err := s.Commit(&b); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	var forward, backward, only []string
	err := s.View(func(r store.Reader) error {
		return errors.Join(
			r.Scan(nil, nil, func(k, v []byte) bool {
				if string(v) != "v"+string(k) {
					t.Errorf("key %q has value %q", k, v)
				}
				forward = append(forward, string(k))
				return true
			}),
			r.ScanReverse(nil, nil, func(k, v []byte) bool {
				if string(v) != "v"+string(k) {
					t.Errorf("in reverse, key %q has value %q", k, v)
				}
				backward = append(backward, string(k))
				return true
			}),
			r.Keys(nil, nil, func(k []byte) bool { only = append(only, string(k)); return true }),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(backward)
	for name, got := range map[string][]string{"Scan": forward, "ScanReverse": backward, "Keys": only} {
		if !slices.Equal(got, keys) {
			t.Errorf("%s gave %q, want %q", name, got, keys)
		}
	}
}

func testRanges(t *testing.T, s *store.Store) {
	put(t, s, "a", "", "b", "", "ba", "", "bb", "", "c", "", "\xff", "", "\xff\xffz", "")
	for _, test := range []struct {
		from, to string // "-" as to is nil
		limit    int
		want     []string
	}{
		{"b", "c", 9, []string{"b", "ba", "bb"}},
		{"b", "c", 2, []string{"b", "ba"}},
		{"b", "bb", 9, []string{"b", "ba"}},
		{"aa", "bab", 9, []string{"b", "ba"}},
		{"", "b", 9, []string{"a"}},
		{"c", "-", 9, []string{"c", "\xff", "\xff\xffz"}},
		{"\xff", "-", 9, []string{"\xff", "\xff\xffz"}},
		{"b", "b", 9, nil},
		{"c", "b", 9, nil},
		{"d", "e", 9, nil},
	} {
		to := []byte(test.to)
		if test.to == "-" {
			to = nil
		}
		collect := func(into *[]string, limit int) func(k, v []byte) bool {
			return func(k, _ []byte) bool {
				*into = append(*into, string(k))
				return len(*into) < limit
			}
		}
		var forward, backward []string
		err := s.View(func(r store.Reader) error {
			return errors.Join(r.Scan([]byte(test.from), to, collect(&forward, test.limit)),
				r.ScanReverse([]byte(test.from), to, collect(&backward, 9)))
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(forward, test.want) {
			t.Errorf("Scan(%q, %q) limited to %d = %q, want %q", test.from, test.to, test.limit, forward, test.want)
		}
		slices.Reverse(backward)
		if test.limit == 9 && !slices.Equal(backward, test.want) {
			t.Errorf("ScanReverse(%q, %q), turned = %q, want %q", test.from, test.to, backward, test.want)
		}
	}
	for prefix, want := range map[string]string{"a": "b", "a\xff": "b", "a\xff\xff": "b", "ab": "ac"} {
		if got := store.PrefixEnd([]byte(prefix)); string(got) != want {
			t.Errorf("PrefixEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
	if got := store.PrefixEnd([]byte("\xff\xff")); got != nil {
		t.Errorf("PrefixEnd of the last prefix = %q, want nil", got)
	}
}

func testSnapshot(t *testing.T, s *store.Store) {
	put(t, s, "a", "old", "b", "old")
	err := s.View(func(r store.Reader) error {
		put(t, s, "a", "new", "c", "new")
		got, _, err := r.Get([]byte("a"))
		if err != nil || string(got) != "old" {
			t.Errorf("a later write is seen in a snapshot: %q, %v", got, err)
		}
		if _, found, err := r.Get([]byte("c")); found || err != nil {
			t.Errorf("a later key is seen in a snapshot: %v, %v", found, err)
		}
		n := 0
		err = r.Keys(nil, nil, func([]byte) bool { n++; return true })
		if n != 2 {
			t.Errorf("the snapshot has %d keys, want 2", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, s, "a", "new")

	sentinel := errors.New("mine")
	if err := s.View(func(store.Reader) error { return sentinel }); !errors.Is(err, sentinel) {
		t.Errorf("View returned %v, want fn's own error", err)
	}
}

func testTTL(t *testing.T, s *store.Store) {
	start := time.Now()
	var b store.Batch
	b.PutTTL([]byte("short"), []byte("v"), 1100*time.Millisecond)
	b.PutTTL([]byte("long"), []byte("v"), time.Hour)
	b.Put([]byte("none"), []byte("v"))
	b.Put([]byte("gone"), []byte("v"))
	b.PutTTL([]byte("gone"), []byte("v"), 0)
	if err := s.Commit(&b); err != nil {
		t.Fatal(err)
	}
	want(t, s, "gone", "-")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		asked := time.Since(start)
		value, found, err := s.Get([]byte("short"))
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			if passed := time.Since(start); passed < 1100*time.Millisecond {
				t.Errorf("the key went after %v, before its time of 1.1 s", passed)
			}
			break
		}
		if string(value) != "v" {
			t.Fatalf("the value is %q", value)
		}
		if asked > 5*time.Second {
			t.Fatalf("the key is still there after %v", asked)
		}
		<-tick.C
	}
	want(t, s, "long", "v")
	want(t, s, "none", "v")
	if got := scan(t, s, nil, nil); len(got) != 2 {
		t.Errorf("Scan shows %v, want only what has not expired", got)
	}
	var again store.Batch
	again.Expect([]byte("short"), nil)
	again.Put([]byte("short"), []byte("again"))
	if err := s.Commit(&again); err != nil {
		t.Fatalf("an expired key is not absent for Expect: %v", err)
	}
	want(t, s, "short", "again")
}

func testGC(t *testing.T, s *store.Store) {
	big := bytes.Repeat([]byte("x"), 4096)
	for range 3 {
		var b store.Batch
		for i := range 200 {
			b.Put(key("k%03d", i), big)
		}
		if err := s.Commit(&b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.GC(); err != nil {
		t.Fatalf("GC: %v", err)
	}
	if got := scan(t, s, nil, nil); len(got) != 200 || got[7].value != string(big) {
		t.Errorf("after GC there are %d keys, want 200 with their values", len(got))
	}
}
