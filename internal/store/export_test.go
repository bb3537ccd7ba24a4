package store

import "github.com/dgraph-io/badger/v4"

// SetFree replaces the free space of the disk.
func (o *Options) SetFree(free func() (uint64, error)) { o.free = free }

// FailCommits makes the engine's commits go through fault, which decides whether to run the real one.
func (s *Store) FailCommits(fault func(commit func() error) error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.commitTxn = func(txn *badger.Txn) error { return fault(txn.Commit) }
}

// EngineError logs as the engine does.
func (s *Store) EngineError(format string, args ...any) { s.log.Errorf(format, args...) }

// EngineWarning logs as the engine does.
func (s *Store) EngineWarning(format string, args ...any) {
	s.log.Warningf(format, args...)
	s.log.Infof("chatter")
	s.log.Debugf("chatter")
}

// MarkRestoring leaves what a Restore leaves that died.
func (s *Store) MarkRestoring() error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return s.apply([]write{{key: restoring}}, 0)
}

// Era is how often Expunge has begun to wait for readers.
func (s *Store) Era() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}
