package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// lockName is the file that carries the lock of a store's folder. The file stays; the lock goes with the process.
const lockName = "store.lock"

// lockFolder creates the folder if it is absent and takes its exclusive lock, which lasts until unlockFolder or the
// end of the process.
func lockFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: create the folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: open the lock file: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder := "unknown"
		if text, err := os.ReadFile(f.Name()); err == nil && len(text) > 0 {
			holder = strings.TrimSpace(string(text))
		}
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s (held by process %s); stop that process or choose another folder", ErrLocked, dir, holder)
	}
	if err == nil {
		err = writePID(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("store: lock the folder %s: %w", dir, err)
	}
	return f, nil
}

// unlockFolder drops the lock. To close the file would not do: a child process that is being started holds its
// descriptors, and with them the lock, until it runs its own program.
func unlockFolder(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// unclosed are the locks of engines that could not be closed: they still have the folder, as long as the process lives.
var unclosed sync.Map // *os.File → nothing

// writePID leaves the process number for the message that another process shows.
func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// freeSpace returns the bytes that an unprivileged process may still write on the disk that holds dir.
func freeSpace(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("store: free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// Allocated returns the bytes that the files below dir take on the disk. The engine makes sparse files, so that their sizes tell nothing. Files
// that come and go meanwhile are no error; nor do links lead out of dir.
func Allocated(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			var n int64
			n, err = blocks(path)
			sum += n
		}
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store: size of %s: %w", dir, err)
	}
	return sum, nil
}

// blocks returns the bytes that one file takes on the disk.
func blocks(name string) (int64, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(name, &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}

// flushMargin is what a flush needs beside the memtables themselves.
const flushMargin = 8 << 20

// flushNeeds is the space that the memtables take as tables.
func (s *Store) flushNeeds() (uint64, error) {
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.mem"))
	if err != nil {
		return 0, err
	}
	need := uint64(flushMargin)
	for _, name := range logs {
		n, err := blocks(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was flushed just now
		}
		if err != nil {
			return 0, fmt.Errorf("store: size of %s: %w", name, err)
		}
		need += uint64(n)
	}
	return need, nil
}

// roomToFlush answers ErrDiskFull when the memtables do not fit on the disk as tables. The engine writes tables through memory maps,
// so that trying would end the process (SIGBUS). Then it is better left as it is: its logs are synced, and are read at the next start.
func (s *Store) roomToFlush() error {
	if s.inMemory {
		return nil
	}
	need, err := s.flushNeeds()
	if err != nil {
		return err
	}
	if free, err := s.free(); err == nil && free < need { // where nobody knows, the engine tries
		return fmt.Errorf("%w: %d bytes free in %s, %d needed to write the last tables; nothing that was answered is lost, and the next start reads it from the log", ErrDiskFull, free, s.dir, need)
	}
	return nil
}

// roomFor answers ErrDiskFull when writing n more bytes would leave less than MinFree, or less than the next flush needs.
func (s *Store) roomFor(n int64) error {
	free, err := s.free()
	if err != nil {
		return err
	}
	need := s.minFree
	if need < openNeeds && !s.inMemory { // above that it holds every memtable there can be
		flush, err := s.flushNeeds()
		if err != nil {
			return err
		}
		need = max(need, flush)
	}
	if need += uint64(n); free < need {
		return fmt.Errorf("%w: %d bytes free in %s, %d needed; make space, or lower min_free_disk", ErrDiskFull, free, s.dir, need)
	}
	return nil
}

// removeUnborn removes write-ahead logs of the engine that have no bytes: a kill came between their making and their first use, so
// that nothing was ever written to them, and the engine refuses to open with one.
func removeUnborn(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if info.Size() == 0 {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
