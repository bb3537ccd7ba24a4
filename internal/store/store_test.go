package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVar); dir != "" {
		appendUntilKilled(dir)
	}
	os.Exit(m.Run())
}

func mustOpen(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Run("Disk", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) *store.Store { return mustOpen(t, store.Options{Dir: t.TempDir()}) })
	})
	t.Run("InMemory", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) *store.Store { return mustOpen(t, store.Options{InMemory: true}) })
	})
}

func commit(s *store.Store, key, value string) error {
	var b store.Batch
	b.Put([]byte(key), []byte(value))
	return s.Commit(&b)
}

func mustHave(t *testing.T, s *store.Store, key string, wanted bool) {
	t.Helper()
	if _, found, err := s.Get([]byte(key)); err != nil || found != wanted {
		t.Errorf("Get(%q) found %v (%v), want %v", key, found, err, wanted)
	}
}

func TestOpenWantsOnePlace(t *testing.T) {
	for _, o := range []store.Options{{}, {Dir: t.TempDir(), InMemory: true}} {
		if s, err := store.Open(o); err == nil {
			t.Errorf("Open(%+v) took it", o)
			_ = s.Close()
		}
	}
}

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "store")
	s := mustOpen(t, store.Options{Dir: dir})
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v (%v), want mode 0700", info.Mode(), err)
	}
	big := strings.Repeat("x", 70<<10)
	if err := errors.Join(commit(s, "small", "v"), commit(s, "big", big)); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.FreeBytes == 0 || st.LastError != nil {
		t.Errorf("Stats = %+v, want free bytes and no error", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, store.Options{Dir: dir})
	mustHave(t, s, "small", true)
	if got, _, err := s.Get([]byte("big")); err != nil || string(got) != big {
		t.Errorf("the big value has %d bytes (%v), want %d", len(got), err, len(big))
	}
}

// TestLargeValue: one value may be nearly a whole transaction, but in memory the engine has a limit of its own.
func TestLargeValue(t *testing.T) {
	value := strings.Repeat("x", 8<<20)
	disk := mustOpen(t, store.Options{Dir: t.TempDir()})
	if err := commit(disk, "a", value); err != nil {
		t.Fatal(err)
	}
	if got, _, err := disk.Get([]byte("a")); err != nil || string(got) != value {
		t.Errorf("the value has %d bytes (%v), want %d", len(got), err, len(value))
	}
	memory := mustOpen(t, store.Options{InMemory: true})
	if err := commit(memory, "a", value[:1<<20]); !errors.Is(err, store.ErrTooBig) {
		t.Errorf("Commit in memory = %v, want ErrTooBig", err)
	}
	if err := commit(memory, "a", value[:1<<20-1]); err != nil {
		t.Error(err)
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, store.Options{Dir: dir})
	_, err := store.Open(store.Options{Dir: dir})
	if !errors.Is(err, store.ErrLocked) {
		t.Fatalf("the second Open = %v, want ErrLocked", err)
	}
	for _, part := range []string{dir, fmt.Sprint(os.Getpid())} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message %q does not name %s", err, part)
		}
	}
	if err := commit(s, "a", "v"); err != nil {
		t.Errorf("the refused Open hurt the first store: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustHave(t, mustOpen(t, store.Options{Dir: dir}), "a", true)
}

// A child process that is being started has a copy of every descriptor until it runs its
// own program. A store that was closed meanwhile can be opened all the same.
func TestLockIsNotInherited(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, store.Options{Dir: dir})
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the open files of a process are not to be seen here")
	}
	copies := 0
	for _, e := range open {
		if at, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || !strings.HasPrefix(at, dir) {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		copied, err := syscall.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(copied)
		copies++
	}
	if copies == 0 {
		t.Fatal("the store holds no file open")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, store.Options{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(store.Options{Dir: filepath.Join(file, "store")}); err == nil || errors.Is(err, store.ErrLocked) {
		t.Errorf("Open below a file = %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 30)
	var statErr atomic.Pointer[error]
	o := store.Options{Dir: t.TempDir(), MinFree: 200 << 20}
	o.SetFree(func() (uint64, error) {
		if err := statErr.Load(); err != nil {
			return 0, *err
		}
		return free.Load(), nil
	})
	s := mustOpen(t, o)
	if err := commit(s, "a", "v"); err != nil {
		t.Fatal(err)
	}

	free.Store(200<<20 + 100) // the batch itself would break the reserve
	if err := commit(s, "b", strings.Repeat("x", 1000)); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("Commit = %v, want ErrDiskFull", err)
	}
	if st := s.Stats(); !errors.Is(st.LastError, store.ErrDiskFull) || st.FreeBytes != 200<<20+100 {
		t.Errorf("Stats = %+v, want ErrDiskFull", st)
	}
	if err := commit(s, "c", "v"); err != nil {
		t.Errorf("a small batch that leaves the reserve alone: %v", err)
	}
	if err := s.GC(); err != nil {
		t.Errorf("GC with the reserve in place: %v", err)
	}
	free.Store(100 << 20)
	if err := commit(s, "d", "v"); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("Commit = %v, want ErrDiskFull", err)
	}
	if err := s.GC(); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("GC = %v, want ErrDiskFull", err)
	}
	mustHave(t, s, "a", true)
	mustHave(t, s, "b", false)

	free.Store(1 << 30)
	if err := commit(s, "b", "v"); err != nil {
		t.Errorf("Commit after space was made = %v", err)
	}
	broken := errors.New("statfs broke")
	statErr.Store(&broken)
	if err := commit(s, "e", "v"); !errors.Is(err, broken) { // unknown is not enough
		t.Errorf("Commit = %v, want the error of the free space function", err)
	}
	statErr.Store(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	free.Store(100 << 20)
	if _, err := store.Open(o); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("Open = %v, want ErrDiskFull", err)
	}
	free.Store(1 << 30)
	mustHave(t, mustOpen(t, o), "b", true)
}

// TestCommitFails has the engine fail in both ways: with nothing written, and with everything written but the answer lost.
func TestCommitFails(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("persisted=%v", persisted), func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, store.Options{Dir: dir})
			if err := commit(s, "before", "v"); err != nil {
				t.Fatal(err)
			}
			broken := errors.New("i/o error")
			s.FailCommits(func(commit func() error) error {
				if persisted {
					if err := commit(); err != nil {
						t.Error(err)
					}
				}
				return broken
			})
			gate, errs := make(chan struct{}), make(chan error, 4)
			for i := range 4 {
				var b store.Batch
				b.Put(fmt.Appendf(nil, "k%d", i), []byte("v"))
				switch i {
				case 0: // holds the group until all have been submitted
					b.Check(func(func([]byte) ([]byte, bool, error)) error { <-gate; return nil })
				case 2:
					b.Expect([]byte("k1"), nil) // fails, but on a state that is lost
				}
				s.Submit(&b, func(err error) { errs <- err })
			}
			close(gate)
			for i := range 4 {
				err := <-errs
				if !errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrConflict) {
					t.Errorf("batch %d: %v, want ErrFailed", i, err)
				}
				if i == 0 && !errors.Is(err, broken) {
					t.Errorf("batch %d: %v does not carry the cause", i, err)
				}
			}
			s.FailCommits(func(commit func() error) error { return commit() })
			if err := commit(s, "later", "v"); !errors.Is(err, store.ErrFailed) {
				t.Errorf("a later Commit = %v, want ErrFailed", err)
			}
			if err := s.Restore(bytes.NewReader(nil)); !errors.Is(err, store.ErrFailed) {
				t.Errorf("Restore = %v, want ErrFailed", err)
			}
			mustHave(t, s, "before", true) // still readable
			if st := s.Stats(); st.Commits != 1 || !errors.Is(st.LastError, store.ErrFailed) {
				t.Errorf("Stats = %+v, want one commit and ErrFailed", st)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, store.Options{Dir: dir})
			mustHave(t, s, "before", true)
			mustHave(t, s, "k0", persisted)
			mustHave(t, s, "later", false)
			if err := commit(s, "after", "v"); err != nil {
				t.Errorf("Commit after reopening: %v", err)
			}
		})
	}
}

func TestEngineLog(t *testing.T) {
	var out bytes.Buffer
	s := mustOpen(t, store.Options{InMemory: true, Log: slog.New(slog.NewTextHandler(&out, nil))})
	s.EngineWarning("slow %d\n", 7)
	s.EngineError("bad %s", "block")
	text := out.String()
	for _, part := range []string{"level=WARN", "slow 7", "level=ERROR", "bad block"} {
		if !strings.Contains(text, part) {
			t.Errorf("the log lacks %q: %s", part, text)
		}
	}
	if strings.Contains(text, "chatter") {
		t.Errorf("the log has the engine's chatter: %s", text)
	}
	if err := commit(s, "a", "v"); err != nil {
		t.Errorf("an engine error that is no failed sync stopped the store: %v", err)
	}

	// The engine logs this in the middle of a commit and commits all the same.
	s.FailCommits(func(commit func() error) error {
		s.EngineError("Error while curlf sync: %v\n", fs.ErrInvalid)
		return commit()
	})
	if err := commit(s, "b", "v"); !errors.Is(err, store.ErrFailed) || !strings.Contains(err.Error(), "curlf sync") {
		t.Errorf("Commit beside a failed sync = %v, want ErrFailed with its cause", err)
	}
	if err := commit(s, "c", "v"); !errors.Is(err, store.ErrFailed) {
		t.Errorf("the next Commit = %v, want ErrFailed", err)
	}
}

func TestInterruptedRestore(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, store.Options{Dir: dir})
	if err := s.MarkRestoring(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // refusing lets go of the lock
		if _, err := store.Open(store.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Fatalf("Open = %v, want it to say that a restore was interrupted", err)
		}
	}
}

// What a folder takes is what its files have been given, not how long they look.
func TestAllocated(t *testing.T) {
	dir := t.TempDir()
	if _, err := store.Allocated(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that there is not: %v", err)
	}
	empty, err := store.Allocated(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	sparse := filepath.Join(dir, "sub", "sparse")
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "sub", "elsewhere")); err != nil {
		t.Fatal(err)
	}
	n, err := store.Allocated(dir)
	if n -= empty; err != nil || n < 1<<20 || n > 2<<20 {
		t.Errorf("%d bytes, %v; want about 1 MiB", n, err)
	}
}
