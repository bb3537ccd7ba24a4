package store

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/dgraph-io/badger/v4"
)

// pending is one submitted batch and what became of it.
type pending struct {
	batch *Batch
	done  func(error)
	err   error // the batch's own failure, known before its group is committed
}

// Commit writes the batch and returns after it is on the disk. An error from Expect (ErrConflict), from a Check, ErrTooBig or
// ErrBadKey fails only this batch. ErrDiskFull and ErrFailed fail all that waits. Whenever Commit returns an error that is
// not an engine failure (ErrFailed), nothing of the batch was written.
func (s *Store) Commit(b *Batch) error {
	answer := make(chan error, 1)
	s.Submit(b, func(err error) { answer <- err })
	return <-answer
}

// Submit is Commit without the waiting: it never blocks on the disk or on a full queue, and done gets what Commit would
// have returned. The order of submission is the order of commits. done is called exactly once, in the order of
// submission, from the committer goroutine, while no lock of the store is held; it must not block and must not call
// Commit or Close. It may call Submit and Get.
//
// The queue is not bounded: a caller that can outrun the disk has to bound what it has in flight.
func (s *Store) Submit(b *Batch, done func(error)) {
	p := &pending{batch: b, done: done}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		s.late = append(s.late, p)
		if !s.refusing {
			s.refusing = true
			go s.refuseLate()
		}
		return
	}
	s.queue = append(s.queue, p)
	s.wake.Signal()
}

// refuseLate answers what was submitted after Close, in order and after everything that came before Close.
func (s *Store) refuseLate() {
	<-s.drained
	for {
		s.mu.Lock()
		late := s.late
		s.late = nil
		if len(late) == 0 {
			s.refusing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for _, p := range late {
			p.done(ErrClosed)
		}
	}
}

// maxReturn bounds how many batches the committer waits for when the disk is not the one that is slow.
const maxReturn = 1024

// returnPatience is how often the committer gives way in vain before it believes that nobody else comes back: on several
// cores the answered are still on their way when its own queue of runnable work is empty.
const returnPatience = 32

// commitLoop is the committer goroutine. It ends when Close has been called and the queue is empty.
func (s *Store) commitLoop() {
	defer close(s.drained)
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closing {
			s.wake.Wait()
		}
		group := s.queue
		s.queue = nil
		s.inFlight = len(group)
		s.mu.Unlock()
		if len(group) == 0 {
			return
		}
		for len(group) > 0 {
			n := s.fill(group)
			s.commitGroup(group[:n])
			clear(group[:n]) // let go of the batches before the rest of a long queue is through
			group = group[n:]
			s.mu.Lock()
			s.inFlight = len(group)
			s.mu.Unlock()
		}
		s.letReturn()
	}
}

// letReturn gives the processor to those who were just answered, as long as more of them come back with their next batch.
// Otherwise the writers fall into two halves that wait for each other's fsync. It costs a lone writer nothing.
func (s *Store) letReturn() {
	for waiting, still := -1, 0; still < returnPatience; {
		s.mu.Lock()
		n := len(s.queue)
		s.mu.Unlock()
		if n >= maxReturn {
			return
		}
		if n <= waiting {
			still++
		} else {
			waiting, still = n, 0
		}
		runtime.Gosched()
	}
}

// fill says how many of the waiting batches make up the next transaction: as many as fit, at least one.
func (s *Store) fill(waiting []*pending) int {
	var sum cost
	for i, p := range waiting {
		c := p.batch.cost()
		if !c.within(s.limit) {
			continue // will be refused and takes no room
		}
		sum = sum.plus(c)
		if i > 0 && !sum.within(s.limit) {
			return i
		}
	}
	return len(waiting)
}

// commitGroup commits batches that fit into one transaction and answers each of them.
func (s *Store) commitGroup(group []*pending) {
	err := s.writeGroup(group)
	s.countGroup(group, err)
	for _, p := range group {
		// When the transaction failed, a failed check was judged against a state that never came to be: its verdict is void.
		if err != nil {
			p.err = err
		}
		p.done(p.err)
	}
}

// writeGroup fills p.err of the batches that fail alone and returns an error when the whole group failed.
func (s *Store) writeGroup(group []*pending) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()

	if cause := s.failure(); cause != nil {
		return fmt.Errorf("%w (%v)", ErrFailed, cause)
	}
	var sum cost
	for _, p := range group {
		if c := p.batch.cost(); c.within(s.limit) {
			sum = sum.plus(c)
		}
	}
	if err := s.roomFor(sum.bytes); err != nil {
		return err
	}

	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	for _, p := range group {
		if p.err = s.admit(txn, p.batch); p.err != nil {
			continue
		}
		for _, w := range p.batch.writes {
			if err := put(txn, w); err != nil {
				// The sizes and keys were checked before, so this is not the batch's fault, and part of it is in the transaction.
				return fmt.Errorf("store: building the transaction: %w", err)
			}
		}
	}
	err := s.commitTxn(txn)
	if err == nil {
		err = s.log.syncFailure()
	}
	if err != nil {
		s.fail(err)
		return fmt.Errorf("%w (%w)", ErrFailed, err)
	}
	return nil
}

// admit says whether the batch may be written on top of what txn holds already.
func (s *Store) admit(txn *badger.Txn, b *Batch) error {
	if b.bad != nil {
		return b.bad
	}
	if c := b.cost(); !c.within(s.limit) {
		return fmt.Errorf("%w: %d bytes in %d entries; a transaction takes less than %d bytes and %d entries",
			ErrTooBig, c.bytes, c.entries, s.limit.bytes, s.limit.entries)
	}
	if s.inMemory && b.widest > maxInMemoryValue {
		return fmt.Errorf("%w: a value of %d bytes; in memory, %d is the limit", ErrTooBig, b.widest, maxInMemoryValue)
	}
	return b.verify(reader{txn}.Get)
}

func put(txn *badger.Txn, w write) error {
	if w.del {
		return txn.Delete(w.key)
	}
	return txn.SetEntry(&badger.Entry{Key: w.key, Value: w.value, ExpiresAt: w.expires})
}

// fail stops all later writes. The first cause stays.
func (s *Store) fail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = cause
	}
}

func (s *Store) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *Store) countGroup(group []*pending, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.counts.LastError = err
		return
	}
	wrote := false
	for _, p := range group {
		if p.err == nil {
			s.counts.Commits++
			wrote = true
		} else if errors.Is(p.err, ErrTooBig) || errors.Is(p.err, ErrBadKey) {
			s.counts.LastError = p.err
		}
	}
	if wrote {
		s.counts.Groups++
	}
}
