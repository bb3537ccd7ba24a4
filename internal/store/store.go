package store

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Options say where a store lives.
type Options struct {
	// Dir is the folder. It is created with mode 0700 if absent. Empty with InMemory.
	Dir string

	// InMemory keeps everything in memory and nothing on a disk; for tests. Single values are limited to less than 1 MiB then.
	InMemory bool

	// MinFree is how many bytes must stay free on the disk; 0 means 256 MiB. The engine writes through memory maps, so a
	// disk that is really full would not be an error but a SIGBUS that ends the process.
	MinFree uint64

	// LogFile is the size of the files that large values stand in, and so the unit in which space is given back; 0 means 64 MiB,
	// tests take less. A value must fit.
	LogFile int64

	// Log gets the engine's warnings and errors; nil drops them.
	Log *slog.Logger

	free func() (uint64, error) // for tests
}

const defaultMinFree = 256 << 20

// A Store is an open store. All methods are for concurrent use.
//
// Lock order: gcMu, writeMu, mu. mu guards the fields below it and is held only for moments.
type Store struct {
	dir       string
	db        *badger.DB
	lock      *os.File // nil in memory
	log       *engineLog
	limit     cost // what one transaction must stay below
	minFree   uint64
	free      func() (uint64, error)
	commitTxn func(*badger.Txn) error
	inMemory  bool
	logFile   int64 // size of the value log files

	writeMu sync.Mutex    // held over each group's transaction, and over the whole of Restore
	gcMu    sync.Mutex    // held while garbage is collected; before writeMu
	drained chan struct{} // closed when the committer has ended

	mu       sync.Mutex
	wake     sync.Cond // queue grew, closing began, or a reader left
	queue    []*pending
	inFlight int
	closing  bool // no more batches
	late     []*pending
	refusing bool // refuseLate runs
	failed   error
	counts   Stats
	readers  int
	viewing  map[uint64]int // views that are open, by the value of era when they began
	era      uint64
	shut     bool // no more readers
	closed   chan struct{}
	closeErr error // valid when closed is closed
}

// Open opens the store in the folder, creating it if needed, and recovers what a crash left.
func Open(o Options) (*Store, error) {
	if o.InMemory != (o.Dir == "") {
		return nil, errors.New("store: set either a folder or InMemory")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MinFree == 0 {
		o.MinFree = defaultMinFree
	}
	if o.LogFile == 0 {
		o.LogFile = valueLogFileSize
	}
	s := &Store{
		dir:       o.Dir,
		log:       &engineLog{log: o.Log},
		minFree:   o.MinFree,
		free:      o.free,
		commitTxn: (*badger.Txn).Commit,
		inMemory:  o.InMemory,
		logFile:   o.LogFile,
		viewing:   map[uint64]int{},
		drained:   make(chan struct{}),
		closed:    make(chan struct{}),
	}
	s.wake.L = &s.mu
	if s.free == nil {
		s.free = func() (uint64, error) { return freeSpace(o.Dir) }
		if o.InMemory {
			s.free = func() (uint64, error) { return math.MaxInt64, nil }
		}
	}
	if err := s.open(o); err != nil {
		if s.lock != nil {
			_ = unlockFolder(s.lock)
		}
		return nil, err
	}
	go s.commitLoop()
	return s, nil
}

func (s *Store) open(o Options) (err error) {
	if !o.InMemory {
		if s.lock, err = lockFolder(o.Dir); err != nil {
			return err
		}
		free, err := s.free()
		if err != nil {
			return err
		}
		// Opening writes: it starts a log and may flush the last one.
		if need := min(o.MinFree, openNeeds); free < need {
			return fmt.Errorf("%w: %d bytes free in %s, opening needs %d; make space", ErrDiskFull, free, o.Dir, need)
		}
	}
	if o.Dir != "" && !o.InMemory {
		if err := removeUnborn(o.Dir); err != nil {
			return err
		}
	}
	if s.db, err = badger.Open(engineOptions(o, s.log)); err != nil {
		return fmt.Errorf("store: open %s: %w", o.Dir, err)
	}
	s.limit = cost{bytes: s.db.MaxBatchSize() - 64, entries: s.db.MaxBatchCount() - 1} // the engine adds a closing entry
	if err := s.refuseUnfinishedRestore(); err != nil {
		return errors.Join(err, s.db.Close())
	}
	return nil
}

// Close takes no more batches, commits those that wait, waits for the readers, and closes the engine. Every call returns the
// same result, after the store is closed. It must not be called from a View, a Check or a done function.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.wake.Broadcast()
	s.mu.Unlock()
	if first {
		s.closeErr = s.close()
		close(s.closed)
	}
	<-s.closed
	return s.closeErr
}

func (s *Store) close() error {
	<-s.drained
	s.mu.Lock()
	s.shut = true
	for s.readers > 0 {
		s.wake.Wait()
	}
	s.mu.Unlock()
	err := s.closeEngine()
	switch {
	case s.lock == nil:
	case err == nil:
		err = unlockFolder(s.lock)
	default:
		unclosed.Store(s.lock, nil)
	}
	if err != nil {
		return fmt.Errorf("store: close %s: %w", s.dir, err)
	}
	return nil
}

// closeTime bounds the flush at the end: an engine that cannot write tries for
// ever. What was answered is in its synced log all the same.
const closeTime = 30 * time.Second

func (s *Store) closeEngine() error {
	if err := s.roomToFlush(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- s.db.Close() }()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("the engine could not flush within %s; nothing that was answered is lost, and the next start reads it from the log", closeTime)
	}
}

// enter and leave keep the engine open while someone reads: its memory maps must not go away under a reader.
func (s *Store) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return false
	}
	s.readers++
	return true
}

func (s *Store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
	if s.shut && s.readers == 0 {
		s.wake.Broadcast()
	}
}

// Stats describe a store at a moment.
type Stats struct {
	Commits   uint64 // batches written since Open
	Groups    uint64 // transactions, each with one fsync, that carried them
	Waiting   int    // batches submitted and not answered
	LastError error  // the last failure of a commit that was not a failed Expect or Check; nil if none
	FreeBytes uint64 // on the disk; 0 if unknown
}

// Stats returns the present numbers. After Close, the free space is zero.
func (s *Store) Stats() Stats {
	var free uint64
	if s.enter() {
		if n, err := s.free(); err == nil {
			free = n
		}
		s.leave()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.counts
	st.FreeBytes = free
	st.Waiting = len(s.queue) + s.inFlight
	return st
}

// GC gives back the space of overwritten, deleted and expired large values. Call it every few minutes; it returns when there is
// nothing more that is worth the work. It needs some free space itself and answers ErrDiskFull when there is too little.
func (s *Store) GC() error {
	return s.collecting(func() error { return s.collect(0.5) })
}
