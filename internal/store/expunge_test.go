package store_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/store/storetest"
)

func TestExpunge(t *testing.T) {
	if raceDetector {
		t.Skip("the engine's garbage collection races with itself")
	}
	dir := filepath.Join(t.TempDir(), "with [a] * in it")
	st, err := store.Open(store.Options{Dir: dir, LogFile: 1 << 20, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	put := func(replica uint64, seq int64, v []byte) {
		t.Helper()
		var b store.Batch
		b.Put(store.Record(replica, seq), v)
		if err := st.Commit(&b); err != nil {
			t.Fatal(err)
		}
	}
	value := func(name string, size int) []byte {
		v := make([]byte, size)
		_, _ = rand.Read(v)
		return append([]byte(name+" "), v...)
	}
	others := map[int64][]byte{}
	fill := func(from, to int64) {
		var b store.Batch
		for i := from; i < to; i++ {
			others[i] = value(fmt.Sprint("other ", i), 2000)
			b.Put(store.Record(1, i), others[i])
		}
		if err := st.Commit(&b); err != nil {
			t.Fatal(err)
		}
	}
	// in an old file, in one that is full by half, in the newest one, and in a table
	names := []string{"needle-one", "needle-two", "needle-three", "needle-small"}
	put(2, 1, value(names[0], 1000))
	for i := int64(0); i < 1200; i += 100 {
		fill(i, i+100)
	}
	put(2, 2, value(names[1], 1000))
	fill(1200, 1300)
	fill(1300, 1600)
	put(2, 3, value(names[2], 1000))
	put(2, 4, value(names[3], 20))
	for _, name := range names {
		if len(storetest.FilesWith(t, dir, name)) == 0 {
			t.Fatalf("%s is not even there", name)
		}
	}
	var b store.Batch
	b.Delete(store.Record(2, 1))
	b.Put(store.Record(2, 2), []byte("taken out"))
	b.Put(store.Record(2, 3), value("taken out, too", 1000))
	b.Delete(store.Record(2, 4))
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}

	// writers go on meanwhile, and leave garbage
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var b store.Batch
				b.Put(store.Record(3, int64(w)), bytes.Repeat([]byte("x"), 700))
				if err := st.Commit(&b); err != nil {
					t.Errorf("a write meanwhile: %v", err)
					return
				}
			}
		})
	}
	// and a reader that began before still sees what was there
	reading, read := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		if err := st.View(func(r store.Reader) error {
			from, to := store.RecordsOf(1)
			return r.Scan(from, to, func(_, _ []byte) bool {
				close(reading)
				<-read
				return false
			})
		}); err != nil {
			t.Errorf("the reader: %v", err)
		}
	})
	<-reading
	ended := make(chan error, 1)
	go func() { ended <- st.Expunge() }()
	for st.Era() == 0 {
		runtime.Gosched()
	}
	select {
	case err := <-ended:
		t.Fatalf("it did not wait for the reader: %v", err)
	default:
	}
	close(read)
	err = <-ended
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if in := storetest.FilesWith(t, dir, name); in != nil {
			t.Errorf("%s is still in %v", name, in)
		}
	}
	for i, want := range others {
		if got, ok, err := st.Get(store.Record(1, i)); err != nil || !ok || !bytes.Equal(got, want) {
			t.Fatalf("other %d: %v, %v", i, ok, err)
		}
	}
	if got, ok, err := st.Get(store.Record(2, 2)); err != nil || !ok || string(got) != "taken out" {
		t.Errorf("%q, %v, %v", got, ok, err)
	}
	if err := st.View(func(r store.Reader) error {
		n := 0
		from, to := store.RecordsOf(2)
		err := r.Keys(from, to, func([]byte) bool { n++; return true })
		if n != 2 {
			t.Errorf("%d records of the second replica, want 2", n)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Expunge(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
