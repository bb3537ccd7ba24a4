package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/witan-adp/witan/internal/childtest"
	"github.com/witan-adp/witan/internal/store"
)

// childVar makes the test binary a writer on the folder that it names.
const childVar = "WITAN_STORE_TEST_CHILD"

func crashValue(key string) []byte { return bytes.Repeat([]byte(key), 1+len(key)*len(key)%150) }

// appendUntilKilled commits pairs of keys from several goroutines and prints each pair's name after it was answered.
func appendUntilKilled(dir string) {
	s, err := store.Open(store.Options{Dir: dir, MinFree: 1})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				var b store.Batch
				b.Put([]byte("left/"+name), crashValue(name))
				b.Put([]byte("right/"+name), bytes.Repeat(crashValue(name), 20))
				if err := s.Commit(&b); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				if _, err := fmt.Println(name); err != nil {
					os.Exit(1)
				}
			}
		}()
	}
	select {}
}

// TestKill kills a writing process again and again. Whatever was answered is there, and no batch is there by half.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	answered := map[string]bool{}
	for round := range 8 {
		enough := len(answered) + 1 + rand.IntN(2000)
		childtest.KillWhen(t, func(line string) bool {
			answered[line] = true
			return len(answered) >= enough
		}, childVar+"="+dir)

		s := mustOpen(t, store.Options{Dir: dir, MinFree: 1})
		for name := range answered {
			for key, want := range map[string][]byte{
				"left/" + name:  crashValue(name),
				"right/" + name: bytes.Repeat(crashValue(name), 20),
			} {
				if got, found, err := s.Get([]byte(key)); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("round %d: %s was answered and is lost: found %v, %d of %d bytes, %v",
						round, key, found, len(got), len(want), err)
				}
			}
		}
		left, right := names(t, s, "left/"), names(t, s, "right/")
		for name := range left {
			if !right[name] {
				t.Errorf("round %d: %s is there by half", round, name)
			}
		}
		if len(left) != len(right) {
			t.Errorf("round %d: %d left and %d right halves", round, len(left), len(right))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, s *store.Store, prefix string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := s.View(func(r store.Reader) error {
		return r.Keys([]byte(prefix), store.PrefixEnd([]byte(prefix)), func(key []byte) bool {
			all[strings.TrimPrefix(string(key), prefix)] = true
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A kill can leave a write-ahead log that was made and never sized; the store opens all the same, with all that it had.
func TestOpenAfterKillAtTheMakingOfALog(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, store.Options{Dir: dir, MinFree: 1})
	var b store.Batch
	b.Put([]byte("key"), []byte("value"))
	if err := errors.Join(s.Commit(&b), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "00099.mem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, store.Options{Dir: dir, MinFree: 1})
	if got, found, err := s.Get([]byte("key")); err != nil || !found || string(got) != "value" {
		t.Errorf("%q %v %v", got, found, err)
	}
}
