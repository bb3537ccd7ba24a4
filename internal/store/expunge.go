package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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
var ErrBusy = errors.New("store: too busy to take out of its files what was deleted; try again later")

// Expunge takes everything that was deleted or overwritten before the call out of the files of the store, to the last byte:
// it is for what must not be found on the disk any more. Each value log file with garbage in it is written anew, so this is work in
// proportion to the size of the store; Reclaim gives space back for less. It holds up writers for a part of it, and answers
// ErrDiskFull when there is too little space to work in.
func (s *Store) Expunge() error {
	if !s.enter() {
		return ErrClosed
	}
	defer s.leave()
	if s.inMemory {
		return nil
	}
	s.gcMu.Lock()
	defer s.gcMu.Unlock()
	for range expungeTries {
		if err := s.roomToCollect(); err != nil {
			return err
		}
		if err := s.compact(); err != nil {
			return err
		}
		last, err := s.closeLogFile()
		if err != nil {
			return fmt.Errorf("store: begin a value log file: %w", err)
		}
		if err := s.collect(anyGarbage); err != nil {
			return err
		}
		// the engine ends early when most garbage is in the file that it writes to
		left, err := s.garbage(last)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if left == 0 {
			return s.giveBackFiller()
		}
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

// garbage is what the engine counts as garbage in the value log files up to a number.
func (s *Store) garbage(last uint64) (bytes uint64, err error) {
	raw, err := os.ReadFile(filepath.Join(s.dir, discardFile))
	if err != nil {
		return 0, err
	}
	for ; len(raw) >= 16; raw = raw[16:] {
		file, n := binary.BigEndian.Uint64(raw), binary.BigEndian.Uint64(raw[8:])
		if file == 0 {
			break
		}
		if file <= last {
			bytes += n
		}
	}
	return bytes, nil
}
