package store_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/witan-adp/witan/internal/store"
)

// used is what the value log in a folder takes of the disk, as du tells it.
func used(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) { // the engine works on
				return nil
			}
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && filepath.Ext(path) == ".vlog" {
			n += s.Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReclaim(t *testing.T) {
	if raceDetector {
		t.Skip("the engine's garbage collection races with itself")
	}
	dir := t.TempDir()
	o := store.Options{Dir: dir, LogFile: 1 << 20, MinFree: 1}
	st, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	value := func(i int) []byte {
		v := bytes.Repeat([]byte(fmt.Sprintf("%06d ", i)), 300)
		_, _ = rand.Read(v[100:])
		return v
	}
	kept := map[int][]byte{}
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i += 100 {
			var b store.Batch
			for j := i; j < i+100; j++ {
				v := value(j)
				if j%10 == 0 {
					kept[j] = v
				}
				b.Put(store.Record(1, int64(j)), v)
			}
			if err := st.Commit(&b); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 10_000)
	before := used(t, dir)
	for i := 0; i < 10_000; i += 1000 {
		var b store.Batch
		for j := i; j < i+1000; j++ {
			if kept[j] == nil {
				b.Delete(store.Record(1, int64(j)))
			}
		}
		if err := st.Commit(&b); err != nil {
			t.Fatal(err)
		}
	}
	// writers and readers go on meanwhile; their values are too small for the value log
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var b store.Batch
				b.Put(store.Record(2, int64(w)), []byte(fmt.Sprint(i)))
				if err := st.Commit(&b); err != nil {
					t.Errorf("a write meanwhile: %v", err)
					return
				}
				if got, ok, err := st.Get(store.Record(2, int64(w))); err != nil || !ok || string(got) != fmt.Sprint(i) {
					t.Errorf("a read meanwhile: %s %v %v", got, ok, err)
					return
				}
			}
		})
	}
	err = st.Reclaim()
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	after := used(t, dir)
	t.Logf("%d KiB before, %d KiB after", before>>10, after>>10)
	if freed := before - after; freed < 12<<20 {
		t.Errorf("%d KiB before and %d KiB after 18 MiB of 20 were deleted", before>>10, after>>10)
	}
	check := func() {
		t.Helper()
		for j := range 10_000 {
			got, ok, err := st.Get(store.Record(1, int64(j)))
			if err != nil || ok != (kept[j] != nil) || !bytes.Equal(got, kept[j]) {
				t.Fatalf("key %d: %v, %v", j, ok, err)
			}
		}
	}
	check()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err = store.Open(o); err != nil {
		t.Fatal(err)
	}
	check()
	if err := st.Reclaim(); err != nil { // with nothing to do
		t.Error(err)
	}
	check()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Reclaim(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestGivingBackNeedsRoom(t *testing.T) {
	o := store.Options{Dir: t.TempDir(), MinFree: 1 << 20}
	free := uint64(1 << 40)
	o.SetFree(func() (uint64, error) { return free, nil })
	st, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	free = 1000
	for what, work := range map[string]func() error{"Reclaim": st.Reclaim, "Expunge": st.Expunge} {
		if err := work(); !errors.Is(err, store.ErrDiskFull) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
