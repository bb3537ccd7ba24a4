package store_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/internal/store"
)

// A store that is closed on a disk without space for its last tables is left as it is, and
// says so: writing them would end the process. All of it is there at the next start.
func TestCloseOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		free uint64
		full bool
	}{"no space": {0, true}, "not enough": {4 << 20, true}, "enough": {1 << 30, false}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			var free atomic.Uint64
			free.Store(1 << 40)
			o := store.Options{Dir: dir, MinFree: 1 << 20}
			o.SetFree(func() (uint64, error) { return free.Load(), nil })
			st, err := store.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			for i := range int64(200) {
				var b store.Batch
				b.Put(store.Record(1, i+1), make([]byte, 100+i*20))
				if err := st.Commit(&b); err != nil {
					t.Fatal(err)
				}
			}
			free.Store(c.free)
			if err := st.Close(); errors.Is(err, store.ErrDiskFull) != c.full {
				t.Fatalf("Close = %v", err)
			}
			if again, err := store.Open(o); c.full != errors.Is(err, store.ErrLocked) {
				t.Errorf("Open of a folder whose engine still runs: %v", err)
			} else if err == nil {
				_ = again.Close()
			}
			// another process would find it so; this one still holds the lock
			again := filepath.Join(t.TempDir(), "store")
			if out, err := exec.Command("cp", "-a", "--sparse=always", dir, again).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			st, err = store.Open(store.Options{Dir: again, MinFree: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			}()
			for i := range int64(200) {
				if v, ok, err := st.Get(store.Record(1, i+1)); err != nil || !ok || int64(len(v)) != 100+i*20 {
					t.Fatalf("record %d: %d bytes, %v, %v", i+1, len(v), ok, err)
				}
			}
		})
	}
}
