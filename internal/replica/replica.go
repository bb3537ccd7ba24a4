package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// tileSize is the number of record hashes in one stored tile, and how often a
// snapshot is taken.
const tileSize = 256

// maxSnapshot bounds a snapshot in bytes: batch and record have to stay below
// what the store commits at once.
const maxSnapshot = 4 << 20

// snapped tells of a snapshot how large it was, and how many bytes of records there were.
type snapped struct {
	size int
	at   int64
}

// Beyond snapshotFree bytes a snapshot that need not be at once waits for records of a
// part of its size: a small record of somebody else must not make us write much.
const (
	snapshotFree = 64 << 10
	snapshotPart = 16
)

func (s snapped) worthwhile(bytes int64) bool {
	return s.size <= snapshotFree || (bytes-s.at)*snapshotPart >= int64(s.size)
}

// Replica is one room as one host told it. All methods are safe for concurrent
// use.
type Replica struct {
	ID uint64
	Key
	set   *Set
	place int // in Set.origins, whose lock guards it

	// The turn: everything up to the blank line is what a writer owns. Lock
	// order: turn, then moved.
	turn    sync.Mutex
	row     Row // speculative
	rowJSON []byte
	state   *room.State      // speculative; nil while not loaded
	tree    adp.Tree         // speculative
	tail    []string         // record hashes since the last full tile
	fresh   []tile           // tiles queued and not yet committed
	cached  tile             // the stored tile looked at last
	flying  map[string]int64 // envelope hashes queued and not yet committed
	later   int64            // no snapshot before this seq: the last one was too large
	snapped snapped          // the last one since loading
	unread  error            // a look-up of this turn that the store could not answer
	pending atomic.Int64     // commits in flight
	failed  atomic.Bool      // a commit failed: reload before the next turn
	losses  atomic.Int64     // commits that failed, ever
	used    atomic.Int64     // Unix seconds of the last use, for Unload
	touched atomic.Bool      // used since resident looked at it last
	counted bool             // among the residents, whose lock guards it
	weight  int64            // of the state, likewise

	archiving sync.Mutex // taken before turn
	leaves    leaves     // for proofs; its lock is taken last

	moved     sync.Mutex
	signal    chan struct{} // closed and replaced at each commit
	committed Row
	ring      ring
	epoch     int64 // counts commits that may end somebody's reading

	// SyncedAt is when the origin last said that there is nothing newer, Unix
	// ms; 0 for our own rooms.
	SyncedAt atomic.Int64
}

func newReplica(s *Set, id uint64, row Row) *Replica {
	return &Replica{ID: id, Key: Key{row.Origin, row.RoomID, row.Genesis}, set: s, row: row, committed: row,
		signal: make(chan struct{})}
}

// Row is the committed head row.
func (r *Replica) Row() Row {
	r.moved.Lock()
	defer r.moved.Unlock()
	return r.committed
}

// Moved gives the committed seq, the epoch and a channel that is closed when
// either changes. The signal carries nothing: read what there is.
func (r *Replica) Moved() (seq, epoch int64, signal <-chan struct{}) {
	r.moved.Lock()
	defer r.moved.Unlock()
	return r.committed.Seq, r.epoch, r.signal
}

// Wake raises the epoch without a record: time has changed the room.
func (r *Replica) Wake() {
	r.moved.Lock()
	defer r.moved.Unlock()
	r.epoch++
	r.broadcast()
}

func (r *Replica) broadcast() {
	close(r.signal)
	r.signal = make(chan struct{})
}

// ErrLost: a commit failed and what had run ahead of it was dropped.
var ErrLost = errors.New("the write could not be stored; nothing of it was kept")

// View gives fn the state, loaded, and returns once all that fn saw is
// committed. fn must not keep the state.
func (r *Replica) View(ctx context.Context, fn func(*room.State)) error {
	for range 3 {
		r.turn.Lock()
		losses := r.losses.Load() // before load: a failure that load does not see changes it
		if err := r.load(); err != nil {
			r.turn.Unlock()
			return err
		}
		fn(r.state)
		seq := r.state.Last.Seq
		r.turn.Unlock()
		if err := r.settle(ctx, seq, losses); !errors.Is(err, ErrLost) {
			return err
		}
	}
	return ErrLost
}

// settle waits until seq is committed; ErrLost when a commit failed since
// losses was read.
func (r *Replica) settle(ctx context.Context, seq, losses int64) error {
	for {
		at, _, signal := r.Moved()
		if r.losses.Load() != losses { // what stands at seq now may be another record
			return ErrLost
		}
		if at >= seq {
			return nil
		}
		select {
		case <-signal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Turn is a writer's exclusive hold on a replica.
type Turn struct {
	r     *Replica
	State *room.State
}

// Take gives fn the turn. No I/O over a network may happen in it.
func (r *Replica) Take(fn func(*Turn) error) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := r.load(); err != nil {
		return err
	}
	return fn(&Turn{r, r.state})
}

// HashAt implements room.Chain over what has been appended.
func (t *Turn) HashAt(seq int64) (string, bool) { return t.r.hashAt(seq) }

// SeqOf implements room.Chain.
func (t *Turn) SeqOf(h string) (int64, bool) { return t.r.seqOf(h) }

// Row is the head row that the next Append will replace; changes to it go out
// with that Append, or with Save.
func (t *Turn) Row() *Row { return &t.r.row }

// Append queues a record that the state machine has judged, with what else
// changes in the same commit. done is called from the committer, once.
func (t *Turn) Append(rec *adp.Record, ch *room.Change, extra *store.Batch, done func(error)) error {
	r := t.r
	b := extra
	if b == nil {
		b = &store.Batch{}
	}
	_, dup := r.seqOf(rec.Envelope.Hash) // before sound, which knows whether the store could tell
	if err := r.sound(); err != nil {
		return err
	}
	if r.pending.Load() == 0 {
		clear(r.flying)
		r.fresh = nil
	}
	_, reviewed := r.state.Requests[ch.RequestID] // else the log does not say who approved it
	if err := r.state.Advance(rec, ch); err != nil {
		r.failed.Store(true) // half a change is no state: read it again
		return err
	}
	hash := rec.LeafData()
	r.appendLeaf(b, hash)
	r.tail = append(r.tail, rec.Hash)
	env, err := adp.DecodeHash(rec.Envelope.Hash)
	if err != nil {
		r.failed.Store(true)
		return err
	}
	b.Put(store.Record(r.ID, rec.Seq), rec.JSON())
	if !dup { // the first place counts
		b.Put(store.EnvelopeSeq(r.ID, env), []byte(fmt.Sprint(rec.Seq)))
		if r.flying == nil {
			r.flying = map[string]int64{}
		}
		r.flying[rec.Envelope.Hash] = rec.Seq
	}
	if len(r.tail) == tileSize {
		full := tile{rec.Seq/tileSize - 1, joinHashes(r.tail)}
		b.Put(store.TreeTile(r.ID, uint64(full.index)), full.hashes)
		r.fresh, r.tail = append(r.fresh, full), nil
	}
	row := &r.row
	row.Seq, row.Hash, row.At = rec.Seq, rec.Hash, max(row.At, rec.ReceivedAt)
	row.Bytes += int64(len(rec.JSON()))
	if rec.Redacted {
		row.Withheld++
		if err := r.noteKeptBack(b, rec); err != nil {
			r.failed.Store(true)
			return err
		}
	}
	row.Frontier = slices.Clone(r.tree.Frontier()) // the tree goes on in place
	// what the log alone does not replay to goes into a snapshot at once, or, where it is only that
	// a pack may be at hand later, soon
	due := rec.Seq-row.Snapshot >= tileSize || ch.RequestID != "" && ch.Members != nil && !reviewed ||
		(len(ch.External) > 0 || ch.Unresolved) && r.snapped.worthwhile(row.Bytes)
	if due && rec.Seq >= r.later {
		snap, err := r.state.Snapshot()
		if err != nil {
			r.failed.Store(true)
			return err
		}
		if len(snap) > maxSnapshot { // the log is the truth; a room must not stop over it
			r.later = rec.Seq + max(tileSize, rec.Seq) // a try costs as much as the state is large, and few states shrink
		} else {
			b.Put(store.Snapshot(r.ID), snap)
			row.Snapshot, r.snapped = rec.Seq, snapped{len(snap), row.Bytes}
		}
	}
	if rec.Seq%tileSize == 0 {
		r.set.resident(r)
	}
	ends := ch.Close || ch.Cancel || ch.Contract != nil
	for _, m := range ch.Members {
		ends = ends || m.Member == nil
	}
	return r.submit(b, rec, ends, done)
}

// Save commits changes of the row alone.
func (t *Turn) Save(extra *store.Batch, done func(error)) error {
	if extra == nil {
		extra = &store.Batch{}
	}
	if err := t.r.sound(); err != nil {
		return err
	}
	return t.r.submit(extra, nil, false, done)
}

// submit queues a batch that replaces the head row. r.turn is held.
func (r *Replica) submit(b *store.Batch, rec *adp.Record, ends bool, done func(error)) error {
	next, err := json.Marshal(r.row)
	if err != nil {
		r.failed.Store(true)
		return err
	}
	key := store.ReplicaRow(r.ID)
	b.Expect(key, r.rowJSON)
	b.Put(key, next)
	r.rowJSON = next
	row := r.row
	r.pending.Add(1)
	r.set.st.Submit(b, func(err error) {
		r.landed(rec, row, ends, err)
		if done != nil {
			done(err)
		}
	})
	return nil
}

// landed runs in the committer, in the order of submission.
func (r *Replica) landed(rec *adp.Record, row Row, ends bool, err error) {
	if err != nil {
		r.failed.Store(true) // before losses, see View
		r.losses.Add(1)
	}
	r.moved.Lock()
	if err == nil {
		r.committed = row
		if rec != nil {
			before := r.ring.bytes
			r.ring.add(rec.Seq, rec.JSON())
			r.set.residents.grow(r.ring.bytes - before)
		}
		if ends {
			r.epoch++
		}
	}
	r.pending.Add(-1)
	r.broadcast()
	r.moved.Unlock()
	r.set.trim(r)
}

// Create makes a replica from its first record, judged already. It answers
// ErrExists when there is one of that name.
func (s *Set) Create(origin string, rec *adp.Record, ch *room.Change, row Row, extra *store.Batch, done func(error)) (*Replica, error) {
	return s.CreateWith(origin, rec, ch, row, extra, nil, done)
}

// CreateWith is Create for a caller that has more to put into the first commit
// once the replica has its number.
func (s *Set) CreateWith(origin string, rec *adp.Record, ch *room.Change, row Row, extra *store.Batch, more func(id uint64, b *store.Batch), done func(error)) (*Replica, error) {
	key := Key{origin, rec.RoomID, rec.Hash}
	s.mu.Lock()
	if _, dup := s.byKey[key]; dup {
		s.mu.Unlock()
		return nil, ErrExists
	}
	row.Origin, row.RoomID, row.Genesis, row.Creator = origin, rec.RoomID, rec.Hash, rec.Envelope.Actor
	r := newReplica(s, s.nextID, row)
	r.committed = Row{Origin: origin, RoomID: rec.RoomID, Genesis: rec.Hash}
	r.state = room.New(rec.RoomID)
	r.turn.Lock() // before anybody can find it
	defer r.turn.Unlock()
	s.nextID++
	s.add(r)
	s.mu.Unlock()
	if extra == nil {
		extra = &store.Batch{}
	}
	extra.Put(store.ReplicaByName(key.Origin, key.RoomID, key.Genesis), fmt.Append(nil, r.ID))
	if more != nil {
		more(r.ID, extra)
	}
	t := Turn{r, r.state}
	err := t.Append(rec, ch, extra, func(err error) {
		if err != nil {
			s.drop(r)
		}
		if done != nil {
			done(err)
		}
	})
	if err != nil {
		s.drop(r)
		return nil, err
	}
	s.resident(r)
	return r, nil
}

// drop takes a replica out of the set: its first record was never stored, or it is forgotten.
func (s *Set) drop(r *Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[r.ID] != r {
		return
	}
	delete(s.byKey, r.Key)
	delete(s.byID, r.ID)
	of := s.origins[r.Origin]
	last := of[len(of)-1]
	of[r.place], last.place = last, r.place
	of[len(of)-1] = nil
	if s.origins[r.Origin] = of[:len(of)-1]; len(of) == 1 {
		delete(s.origins, r.Origin)
	}
	name := [2]string{r.Origin, r.RoomID}
	others := s.behind[name]
	if s.serving[name] == r {
		delete(s.serving, name)
		if len(others) == 0 {
			return
		}
		r = slices.MinFunc(others, func(a, b *Replica) int { return cmp.Compare(a.ID, b.ID) })
		s.serving[name] = r
	}
	if others = slices.DeleteFunc(others, func(o *Replica) bool { return o == r }); len(others) == 0 {
		delete(s.behind, name)
	} else {
		s.behind[name] = others
	}
}
