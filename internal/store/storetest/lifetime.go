package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/witan-adp/witan/internal/store"
)

func testClosed(t *testing.T, s *store.Store) {
	put(t, s, "a", "1")
	closeStore(t, s)
	closeStore(t, s) // a second Close is fine
	var b store.Batch
	b.Put([]byte("b"), []byte("2"))
	_, _, getErr := s.Get([]byte("a"))
	for name, err := range map[string]error{
		"Commit":  s.Commit(&b),
		"Get":     getErr,
		"View":    s.View(func(store.Reader) error { t.Error("View ran on a closed store"); return nil }),
		"GC":      s.GC(),
		"Backup":  s.Backup(io.Discard),
		"Restore": s.Restore(bytes.NewReader(nil)),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s on a closed store = %v, want ErrClosed", name, err)
		}
	}
	if st := s.Stats(); st.Commits != 1 {
		t.Errorf("Stats after Close = %+v, want 1 commit", st)
	}
	const n = 50
	order := make(chan int, n)
	for i := range n {
		s.Submit(&store.Batch{}, func(err error) {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("Submit on a closed store = %v, want ErrClosed", err)
			}
			order <- i
		})
	}
	for i := range n {
		if got := <-order; got != i {
			t.Fatalf("done %d was called in place of %d", got, i)
		}
	}
}

// testCloseDrains closes while batches wait: those before Close are written, those after are refused, each is answered.
func testCloseDrains(t *testing.T, s *store.Store) {
	release := hold(s)
	const n = 100
	var errs []error // appended by one goroutine at a time, in order
	var answered sync.WaitGroup
	submit := func(i int) {
		var b store.Batch
		b.Put(key("k%06d", i), []byte("v"))
		answered.Add(1)
		s.Submit(&b, func(err error) {
			if _, _, getErr := s.Get([]byte("k")); err == nil && getErr != nil {
				t.Errorf("Get while Close drains: %v", getErr)
			}
			errs = append(errs, err)
			answered.Done()
		})
	}
	submitted := 0
	for ; submitted < n; submitted++ {
		submit(submitted)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	// Close has begun when a submission is no longer counted as waiting.
	for counted := true; counted; submitted++ {
		before := s.Stats().Waiting
		submit(submitted)
		counted = s.Stats().Waiting > before
		runtime.Gosched()
	}
	release()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	answered.Wait()
	last := len(errs) - 1
	if len(errs) != submitted || !errors.Is(errs[last], store.ErrClosed) || errors.Join(errs[:last]...) != nil {
		t.Errorf("%d of %d answered; want all written but the last, which is refused: %v", len(errs), submitted, errors.Join(errs...))
	}
}

func testCloseWaitsForReaders(t *testing.T, s *store.Store) {
	put(t, s, "a", "1")
	reading, finish := make(chan struct{}), make(chan struct{})
	viewed, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		viewed <- s.View(func(r store.Reader) error {
			close(reading)
			<-finish
			v, found, err := r.Get([]byte("a"))
			if !found || string(v) != "1" {
				return fmt.Errorf("read %q, %v, %w", v, found, err)
			}
			return err
		})
	}()
	<-reading
	go func() { closed <- s.Close() }()
	for !errors.Is(s.View(func(store.Reader) error { return nil }), store.ErrClosed) {
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned (%v) while a View runs", err)
	default:
	}
	close(finish)
	if err := <-viewed; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func fill(t *testing.T, s *store.Store) {
	t.Helper()
	var b store.Batch
	for i := range 500 {
		b.Put(key("k%04d", i), bytes.Repeat([]byte{byte(i)}, i*8))
	}
	b.Put([]byte("empty"), nil)
	b.PutTTL([]byte("hour"), []byte("v"), time.Hour)
	b.PutTTL([]byte("past"), []byte("v"), 0)
	if err := s.Commit(&b); err != nil {
		t.Fatal(err)
	}
}

func backup(t *testing.T, s *store.Store) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := s.Backup(&buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func testBackup(t *testing.T, open func(*testing.T) *store.Store) {
	from, to := open(t), open(t)
	defer closeStore(t, from)
	defer closeStore(t, to)
	fill(t, from)
	saved := backup(t, from)
	if err := to.Restore(iotest.HalfReader(bytes.NewReader(saved))); err != nil {
		t.Fatal(err)
	}
	if a, b := scan(t, from, nil, nil), scan(t, to, nil, nil); !slices.Equal(a, b) || len(a) != 502 {
		t.Errorf("the restored store has %d keys, the first %d, want 502 that are equal", len(b), len(a))
	}
	if again := backup(t, to); !bytes.Equal(again, saved) { // expiry times too
		t.Error("the backup of the restored store differs")
	}
	put(t, to, "after", "v") // takes writes as any other
	want(t, to, "after", "v")

	broken := errors.New("broken pipe")
	if err := from.Backup(failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("Backup into a failing writer = %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// testBackupCut refuses a backup that is cut or damaged at any place, and a store that refused one is empty and usable.
func testBackupCut(t *testing.T, open func(*testing.T) *store.Store) {
	from, to := open(t), open(t)
	defer closeStore(t, from)
	defer closeStore(t, to)
	put(t, from, "a", "1", "b", "22", "c", "333")
	saved := backup(t, from)
	for n := range saved {
		if err := to.Restore(bytes.NewReader(saved[:n])); !errors.Is(err, store.ErrBadBackup) {
			t.Errorf("cut after %d of %d bytes: Restore = %v, want ErrBadBackup", n, len(saved), err)
		}
		damaged := bytes.Clone(saved)
		damaged[n] ^= 0x80
		if err := to.Restore(bytes.NewReader(damaged)); !errors.Is(err, store.ErrBadBackup) {
			t.Errorf("damaged at %d: Restore = %v, want ErrBadBackup", n, err)
		}
	}
	if err := to.Restore(bytes.NewReader(append(bytes.Clone(saved), 'x'))); !errors.Is(err, store.ErrBadBackup) {
		t.Errorf("a byte too many: Restore = %v, want ErrBadBackup", err)
	}
	broken := errors.New("broken pipe")
	err := to.Restore(io.MultiReader(bytes.NewReader(saved[:len(saved)/2]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || errors.Is(err, store.ErrBadBackup) {
		t.Errorf("a reader that fails: Restore = %v, want its own error", err)
	}
	if left := scan(t, to, nil, nil); len(left) != 0 {
		t.Errorf("refused backups left %v", left)
	}
	if err := to.Restore(bytes.NewReader(saved)); err != nil {
		t.Errorf("the whole backup after the refused ones: %v", err)
	}
	want(t, to, "c", "333")

	// Larger than one transaction: the part that was loaded before the cut goes again.
	large, second := open(t), open(t)
	defer closeStore(t, large)
	defer closeStore(t, second)
	for i := range 3 {
		var b store.Batch
		for j := range 6 {
			b.Put(key("%d/%d", i, j), make([]byte, mebibyte))
		}
		if err := large.Commit(&b); err != nil {
			t.Fatal(err)
		}
	}
	saved = backup(t, large)
	if err := second.Restore(bytes.NewReader(saved[:len(saved)-1])); !errors.Is(err, store.ErrBadBackup) {
		t.Errorf("Restore = %v, want ErrBadBackup", err)
	}
	if left := scan(t, second, nil, nil); len(left) != 0 {
		t.Errorf("a cut backup left %d keys", len(left))
	}
	if err := second.Restore(bytes.NewReader(saved)); err != nil {
		t.Error(err)
	}
	if got := scan(t, second, nil, nil); len(got) != 18 {
		t.Errorf("%d keys, want 18", len(got))
	}
}

func testRestoreNotEmpty(t *testing.T, open func(*testing.T) *store.Store) {
	from, to := open(t), open(t)
	defer closeStore(t, from)
	defer closeStore(t, to)
	fill(t, from)
	put(t, to, "mine", "v")
	if err := to.Restore(bytes.NewReader(backup(t, from))); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("Restore = %v, want ErrNotEmpty", err)
	}
	if got := scan(t, to, nil, nil); len(got) != 1 {
		t.Errorf("the store has %d keys, want its own one", len(got))
	}
}
