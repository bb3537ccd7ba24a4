package store

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// flushPrefix begins a key that is written only to be dropped: dropping a prefix is the one way to make the engine flush its
// memtable, and only what is flushed and compacted counts as garbage.
var flushPrefix = []byte{reservedByte, 'f'}

// worthCollecting is the part of a value log file that must be garbage for Reclaim to rewrite it; GC asks for half.
const worthCollecting = 0.05

// Reclaim gives the space of all that was deleted back to the disk, as far as it can be: values in the newest file of the value
// log stay until that file is full. It is work in proportion to the size of the store, holds writers up for a part of it, and is
// for after many deletions at once; GC is for all other times. It answers ErrDiskFull when there is too little space to work in.
func (s *Store) Reclaim() error {
	return s.collecting(func() error {
		if err := s.roomToCollect(); err != nil {
			return err
		}
		if err := s.compact(); err != nil {
			return err
		}
		return s.collect(worthCollecting)
	})
}

// collecting does work that gives space back, while no other such work is done. In memory there is no disk to give it back to.
func (s *Store) collecting(work func() error) error {
	if !s.enter() {
		return ErrClosed
	}
	defer s.leave()
	if s.inMemory {
		return nil
	}
	s.gcMu.Lock()
	defer s.gcMu.Unlock()
	return work()
}

// compact makes the engine forget what was deleted or overwritten, and count it as garbage where it stands.
func (s *Store) compact() error {
	if err := s.flush(); err != nil {
		return fmt.Errorf("store: flush: %w", err)
	}
	if err := s.db.Flatten(1); err != nil {
		return fmt.Errorf("store: compact: %w", err)
	}
	return nil
}

// flush writes the memtable to a table.
func (s *Store) flush() error {
	s.writeMu.Lock() // the engine refuses writes meanwhile
	defer s.writeMu.Unlock()
	if cause := s.failure(); cause != nil {
		return fmt.Errorf("%w (%v)", ErrFailed, cause)
	}
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(flushPrefix, nil) })
	if err != nil {
		return err
	}
	return s.db.DropPrefix(flushPrefix)
}

// roomToCollect refuses to collect garbage on a disk that is nearly full.
func (s *Store) roomToCollect() error {
	free, err := s.free()
	if err != nil {
		return err
	}
	if need := min(s.minFree, openNeeds); free < need {
		return fmt.Errorf("%w: %d bytes free in %s, collecting garbage needs %d", ErrDiskFull, free, s.dir, need)
	}
	return nil
}

// collect rewrites value log files of which at least a part is garbage, until there are none. s.gcMu is held.
func (s *Store) collect(part float64) error {
	for {
		if err := s.roomToCollect(); err != nil {
			return err
		}
		switch err := s.db.RunValueLogGC(part); {
		case err == nil: // a file went; there may be more
		case errors.Is(err, badger.ErrNoRewrite), errors.Is(err, badger.ErrRejected): // nothing to gain, or another GC runs
			return nil
		default:
			return fmt.Errorf("store: collect garbage: %w", err)
		}
	}
}
