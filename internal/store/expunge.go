package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// fillerKey is written, and deleted again, to make the engine begin a new value log file.
var fillerKey = []byte{reservedByte, 'x'}

const (
	// anyGarbage is a part of a value log file that the smallest value makes up.
	anyGarbage = 1e-12

	// expungeTries is how often Expunge begins again when writers were faster.
	expungeTries = 4

	// fillerSize is the most that is written at once to fill a value log file.
	fillerSize = 4 << 20

	// discardFile is where the engine counts the garbage of each value log file: slots of a number and a count, up to the number 0.
	discardFile = "DISCARD"
)

// ErrBusy: what was deleted could not be taken out of the files because of what was written meanwhile.
var ErrBusy = errors.New("store: too busy, with writers or a long read, to take out of its files what was deleted; try again later")

// await waits for a condition, for a minute at most, and tells whether it holds.
func await(ok func() bool) bool {
	for range 3000 {
		if ok() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ok()
}

// reading counts a view until the function that it returns is called.
func (s *Store) reading() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	era := s.era
	s.viewing[era]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.viewing[era]--; s.viewing[era] == 0 {
			delete(s.viewing, era)
		}
	}
}

// outlastReaders waits until no view is open that began before the call.
func (s *Store) outlastReaders() bool {
	era := s.nextEra()
	return await(func() bool { return !s.viewedBefore(era) })
}

// nextEra begins an era: views that were open before belong to earlier ones.
func (s *Store) nextEra() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era++
	return s.era
}

// viewedBefore tells whether a view is open that began before an era.
func (s *Store) viewedBefore(era uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.viewing {
		if e < era {
			return true
		}
	}
	return false
}

// anyLogFile tells whether any of these value log files is there.
func (s *Store) anyLogFile(files []uint64) bool {
	return slices.ContainsFunc(files, func(n uint64) bool {
		_, err := os.Stat(filepath.Join(s.dir, fmt.Sprintf("%06d.vlog", n)))
		return err == nil
	})
}

// Expunge takes everything that was deleted or overwritten before the call out of the files of the store, to the last byte:
// it is for what must not be found on the disk any more. Each value log file with garbage in it is written anew, so this is work in
// proportion to the size of the store; Reclaim gives space back for less. It holds up writers for a part of it, and answers
// ErrDiskFull when there is too little space to work in.
func (s *Store) Expunge() error { return s.collecting(s.expunge) }

func (s *Store) expunge() error {
	for range expungeTries {
		if err := s.roomToCollect(); err != nil {
			return err
		}
		// for a reader the engine keeps what the reader may still see
		if !s.outlastReaders() {
			return ErrBusy
		}
		if err := s.compact(); err != nil {
			return err
		}
		last, err := s.closeLogFile()
		if err != nil {
			return fmt.Errorf("store: begin a value log file: %w", err)
		}
		gone, err := s.withGarbage(last)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if err := s.collect(anyGarbage); err != nil {
			return err
		}
		// the engine ends early when most garbage is in the file that it writes to
		left, err := s.withGarbage(last)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if len(left) > 0 {
			continue
		}
		// the engine deletes a file once nobody iterates
		if !await(func() bool { return !s.anyLogFile(gone) }) {
			return ErrBusy
		}
		return s.giveBackFiller()
	}
	return ErrBusy
}

// closeLogFile fills the newest value log file, so that it may be rewritten, and tells its number.
func (s *Store) closeLogFile() (last uint64, err error) {
	if last, err = s.newestLogFile(); err != nil {
		return 0, err
	}
	size := min(s.logFile, fillerSize)
	filler := make([]byte, size)
	for range 2*s.logFile/size + 2 {
		err := s.update(func(txn *badger.Txn) error { return txn.Set(fillerKey, filler) })
		if err != nil {
			return 0, err
		}
		now, err := s.newestLogFile()
		if err != nil {
			return 0, err
		}
		if now > last {
			return last, s.update(func(txn *badger.Txn) error { return txn.Delete(fillerKey) })
		}
	}
	return 0, fmt.Errorf("%d bytes did not fill it", 2*s.logFile)
}

// giveBackFiller gives the space back that closeLogFile took.
func (s *Store) giveBackFiller() error {
	if !s.outlastReaders() {
		return nil // GC finds it later
	}
	if err := s.compact(); err != nil {
		return err
	}
	return s.collect(0.5)
}

// update writes what is only for the engine, between two groups of batches.
func (s *Store) update(fn func(*badger.Txn) error) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if cause := s.failure(); cause != nil {
		return fmt.Errorf("%w (%v)", ErrFailed, cause)
	}
	return s.db.Update(fn)
}

func (s *Store) newestLogFile() (newest uint64, err error) {
	names, err := filepath.Glob(filepath.Join(globEscape(s.dir), "*.vlog"))
	for _, name := range names {
		n, bad := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), ".vlog"), 10, 32)
		if bad != nil {
			return 0, fmt.Errorf("%s: %w", name, bad)
		}
		newest = max(newest, n)
	}
	return newest, err
}

// globEscape makes a pattern that only the path itself matches.
func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// withGarbage lists the value log files up to a number in which the engine counts garbage.
func (s *Store) withGarbage(last uint64) (files []uint64, err error) {
	raw, err := os.ReadFile(filepath.Join(s.dir, discardFile))
	if err != nil {
		return nil, err
	}
	for ; len(raw) >= 16; raw = raw[16:] {
		file, n := binary.BigEndian.Uint64(raw), binary.BigEndian.Uint64(raw[8:])
		if file == 0 {
			break
		}
		if file <= last && n > 0 {
			files = append(files, file)
		}
	}
	return files, nil
}
