package witness

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"

	"github.com/witan-adp/witan/internal/tilelog"
)

// The logs of the origins that we follow are read whole. So a statement that its
// host keeps from everybody but one reader is found, as soon as it is in the log at
// all; and of any other checkpoint of that log we can tell whether it fits.
//
// What is read is proven from the root of a signed checkpoint down, before anything
// is taken from it. Where it does not go on from what was read before, the two
// checkpoints and the first leaf at which they differ are a proof.

// Bounds on one round, and on one log.
const (
	tailBundles   = 64      // of 256 entries
	maxTail       = 1 << 20 // entries that are read of one log
	tailCommit    = 64      // entries that are kept in one commit
	tailBytes     = 1 << 20 // of them
	maxMissing    = 1024    // envelopes that are looked for again in the next round
	bundleMost    = tilelog.TileWidth * (2 + tilelog.MaxEntry)
	tileHashBytes = 32
)

// LogReader gets what the origin of a log serves under /log/ at a path: at most
// maxBytes, ErrNotThere when there is nothing.
type LogReader func(ctx context.Context, path string, maxBytes int64) ([]byte, error)

// What is wrong with a log that is read.
var (
	ErrNotThere  = tilelog.ErrNotThere
	ErrLogForked = errors.New("witness: the log does not go on from what was read of it")
	ErrLogStale  = errors.New("witness: the log shows less than it has shown before")
	ErrLogBroken = errors.New("witness: the log serves what is not under its checkpoint")
	ErrLogKey    = errors.New("witness: the log is signed by no key that is bound to its origin")
	ErrLogFull   = fmt.Errorf("witness: of one log no more than %d entries are read", maxTail)
)

// tails are the logs that are read.
type tails struct {
	mu       sync.Mutex
	of       map[string]*tail
	suspects []suspect
	doubted  map[tilelog.Checkpoint]bool // those that were told of
}

// tail is the log of one origin.
type tail struct {
	origin string
	copy   *tilelog.Copy

	turn    sync.Mutex      // one round at a time; guards what follows
	checked uint64          // of the book: what its origin has signed up to here is in the log
	missing map[string]bool // but for these, which were not there in the last round
}

func (w *Witness) tailOf(origin string) (*tail, error) {
	w.tails.mu.Lock()
	defer w.tails.mu.Unlock()
	if t := w.tails.of[origin]; t != nil {
		return t, nil
	}
	c, err := tilelog.OpenCopy(w.o.Store, origin)
	if errors.Is(err, tilelog.ErrDamaged) {
		w.log.Error("what was read of a log is damaged, and is read again", "origin", origin, "err", err)
	} else if err != nil {
		return nil, err
	}
	t := &tail{origin: origin, copy: c, missing: map[string]bool{}}
	if w.tails.of == nil {
		w.tails.of = map[string]*tail{}
	}
	w.tails.of[origin] = t
	return t, nil
}

// TailStatus tells how far the log of an origin was read.
type TailStatus struct {
	Log  string `json:"log"`  // its origin line
	Size uint64 `json:"size"` // of the greatest checkpoint that it was read by
	Read uint64 `json:"read"` // entries that were read and proven
}

// Tailed tells how far the log of an origin was read; ok is false when it never was.
func (w *Witness) Tailed(origin string) (s TailStatus, ok bool) {
	t, err := w.tailOf(origin)
	if err != nil {
		w.log.Error("witness cannot read what it holds of a log", "origin", origin, "err", err)
		return s, false
	}
	_, read, note := t.copy.Head()
	c, err := tilelog.PeekCheckpoint(note)
	if err != nil {
		return s, false
	}
	return TailStatus{c.Origin, c.Size, read}, true
}

// round is one look at a log.
type round struct {
	w          *Witness
	t          *tail
	read       func(path string, maxBytes int64) ([]byte, error)
	note       []byte // what the log shows now, and what that says
	c          tilelog.Checkpoint
	key        ed25519.PublicKey
	generation int
}

// Tail reads what is new in the log of an origin that we follow: more tells that
// there is more than one round reads. ErrNotThere: the origin has no log, or none of
// its log keys is known.
func (w *Witness) Tail(ctx context.Context, origin string, read LogReader) (more bool, err error) {
	w.meet()
	if origin == w.o.Origin || len(w.logKeys(origin)) == 0 {
		return false, ErrNotThere
	}
	t, err := w.tailOf(origin)
	if err != nil {
		return false, err
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	r := &round{w: w, t: t, read: func(path string, most int64) ([]byte, error) { return read(ctx, path, most) }}
	more, err = r.run()
	outcome := "read"
	for name, is := range map[string]error{"forked": ErrLogForked, "stale": ErrLogStale, "broken": ErrLogBroken, "none": ErrNotThere} {
		if errors.Is(err, is) {
			outcome = name
		}
	}
	if err != nil && outcome == "read" {
		outcome = "failed"
	}
	w.metrics.tailed.WithLabelValues(outcome).Inc()
	return more, err
}

func (r *round) run() (more bool, err error) {
	w := r.w
	w.mu.RLock()
	mark := w.book.next
	w.mu.RUnlock()
	if err := r.head(); err != nil {
		return false, err
	}
	w.saw(r.note)
	generation, size, held := r.t.copy.Head()
	if generation != r.generation {
		if held != nil && r.generation < generation {
			return false, r.stale(held)
		}
		size, held = 0, nil // another log
	}
	if held != nil {
		if done, err := r.compare(size, held); done || err != nil {
			return false, err
		}
	}
	if size < r.c.Size {
		if size, err = r.grow(size, held); err != nil {
			return false, err
		}
	}
	r.suspect()
	if size < r.c.Size {
		return true, nil
	}
	return false, r.unlogged(mark)
}

// head reads the checkpoint, which one of the keys of the origin has to have signed.
func (r *round) head() error {
	note, err := r.read("checkpoint", tilelog.MaxCheckpoint)
	if err != nil {
		return err
	}
	c, err := tilelog.PeekCheckpoint(note)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLogBroken, err)
	}
	generation, ok := logGeneration(r.t.origin, c.Origin)
	if !ok {
		return fmt.Errorf("%w: its checkpoint is of %.80q", ErrLogBroken, c.Origin)
	}
	for _, key := range r.w.logKeys(r.t.origin) {
		cl, err := r.w.newClaim(note, c, key)
		if err == nil {
			r.note, r.c, r.key, r.generation = cl.note, c, key, generation
			return nil
		}
	}
	return ErrLogKey
}

// compare holds the checkpoint against what was read before; done when nothing is to
// be read.
func (r *round) compare(size uint64, held []byte) (done bool, err error) {
	was, err := tilelog.PeekCheckpoint(held)
	if err != nil {
		return false, err
	}
	switch {
	case r.c.Size == was.Size && r.c.Root != was.Root:
		p, err := ProveCheckpoints(Subject{Origin: r.t.origin}, r.key, held, r.note)
		if err != nil { // the two are of different keys
			err = fmt.Errorf("%w: %w", errUnprovable, err)
		}
		return true, r.forked(held, []*Proof{p}, err)
	case r.c.Size == was.Size && size == was.Size && len(r.note) > len(held): // more cosignatures
		return false, r.commit(nil)
	case r.c.Size >= was.Size:
		return false, nil
	}
	if r.c.Size <= size {
		root, err := r.t.copy.RootAt(r.c.Size)
		if err != nil {
			return false, err
		}
		if root != r.c.Root {
			tree, err := r.open()
			if err != nil {
				return false, err
			}
			proofs, err := r.w.confronted(r.t, r.key, tree, r.note)
			return true, r.forked(held, proofs, err)
		}
	}
	return true, r.stale(held)
}
