// Package replica keeps one room as one host told it: (origin, room ID, genesis
// hash) → a log of records and the state they replay to. Our own rooms are
// replicas with our own origin; mirrored rooms are replicas with another one.
//
// A writer takes the replica's turn, judges a record against the state, and
// queues it; the state then runs ahead of the disk until the store's fsync
// answers. Readers see only what is committed: recent records from a ring of
// bytes, older ones from the store. A commit that fails drops everything that
// ran ahead of it, and each commit compares the row that it replaces, so that
// nothing can be built on what was never written.
//
// The package has no network and no policy: who may write, read or mirror is
// the business of the roles.
package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// Key names a replica.
type Key struct{ Origin, RoomID, Genesis string }

// Verdicts of a replica (federation: Mirroring a host, 5).
const (
	Verified        = "verified"
	Violations      = "violations"
	Broken          = "broken"
	Forked          = "forked"
	ArchiveMismatch = "archive-mismatch"
	Equivocated     = "equivocated"
)

// States of a mirrored replica.
const (
	Following   = "following"
	Behind      = "behind"
	Complete    = "complete"
	Paused      = "paused"
	Gone        = "gone"
	Quarantined = "quarantined"
)

// Row is the head row of a replica: one small value that changes with every
// commit. Its maps and slices are replaced, never changed in place.
type Row struct {
	Origin   string      `json:"origin"`
	RoomID   string      `json:"room_id"`
	Genesis  string      `json:"genesis"`
	Creator  adp.AgentID `json:"creator"`
	Seq      int64       `json:"seq"`
	Hash     string      `json:"hash"`
	Frontier [][]byte    `json:"frontier"`
	Bytes    int64       `json:"bytes"` // of the records
	At       int64       `json:"at"`    // received_at of the newest record
	Snapshot int64       `json:"snapshot"`

	// What a verifier found. Rules counts violations by rule.
	Violations   int64              `json:"violations,omitempty"`
	Unverifiable int64              `json:"unverifiable,omitempty"`
	Rules        map[adp.Code]int64 `json:"rules,omitempty"`
	Verdict      string             `json:"verdict,omitempty"` // broken, forked, archive-mismatch; else derived
	State        string             `json:"state,omitempty"`
	Reason       string             `json:"reason,omitempty"` // why it is broken, forked, behind, gone…
	BadBytes     []byte             `json:"bad_bytes,omitempty"`
	Archived     bool               `json:"archived,omitempty"`
	// Withheld counts the records whose envelope readers do not get.
	Withheld int64 `json:"withheld,omitempty"`
	// CopiedAt is when the first record of a mirrored room was stored here, Unix ms.
	CopiedAt int64 `json:"copied_at,omitempty"`
	// Dropped is the seq up to which the records are not kept any more.
	Dropped int64 `json:"dropped,omitempty"`
}

// EffectiveVerdict is the verdict as it is shown: a sticky one, else what the
// counts say.
func (r Row) EffectiveVerdict() string {
	switch {
	case r.Verdict != "":
		return r.Verdict
	case r.Violations > 0:
		return Violations
	}
	return Verified
}

// Set holds all replicas of a store.
type Set struct {
	// Hidden tells of replicas that are held and not shown, so that what they hold is
	// not given out by CID either. Set before the first request; nil: none is hidden.
	Hidden func(*Replica) bool
	// Forgotten is called when a replica is gone, if it is not nil. Set as Hidden is.
	Forgotten func(*Replica)
	// Finished is what Open found half done.
	Finished Unfinished

	st *store.Store

	mu      sync.RWMutex
	byKey   map[Key]*Replica
	byID    map[uint64]*Replica
	serving map[[2]string]*Replica   // (origin, room) → the replica that is served
	behind  map[[2]string][]*Replica // the others of the same room, in no order; most have none
	origins map[string][]*Replica    // in no order; Replica.place is where
	nextID  uint64

	residents residents

	packs packs

	contents contents
}

// Open reads the head rows of all replicas.
func Open(st *store.Store) (*Set, error) {
	s := &Set{st: st, byKey: map[Key]*Replica{}, byID: map[uint64]*Replica{}, serving: map[[2]string]*Replica{}, behind: map[[2]string][]*Replica{}, origins: map[string][]*Replica{}, nextID: 1,
		residents: residents{most: maxResident, mostBytes: maxResidentBytes, mostStates: maxStateBytes}, packs: packs{most: maxPackBytes}}
	err := st.View(func(r store.Reader) error {
		from, to := store.ReplicaRowRange()
		var bad error
		err := r.Scan(from, to, func(key, value []byte) bool {
			var id uint64
			if id, bad = store.ParseReplicaRow(key); bad != nil {
				return false
			}
			var row Row
			if bad = json.Unmarshal(value, &row); bad != nil {
				bad = fmt.Errorf("replica %d: %w", id, bad)
				return false
			}
			s.add(newReplica(s, id, row)) // loading it reads the row again
			return true
		})
		return errors.Join(err, bad)
	})
	if err != nil {
		return nil, fmt.Errorf("read the replicas: %w", err)
	}
	if err := s.finish(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Set) add(r *Replica) {
	s.byKey[r.Key], s.byID[r.ID] = r, r
	r.place = len(s.origins[r.Origin])
	s.origins[r.Origin] = append(s.origins[r.Origin], r)
	if r.ID >= s.nextID {
		s.nextID = r.ID + 1
	}
	// of several rooms that used one ID, the first stays what is served
	name := [2]string{r.Origin, r.RoomID}
	first, ok := s.serving[name]
	if !ok || r.ID < first.ID {
		s.serving[name], r = r, first
	}
	if ok {
		s.behind[name] = append(s.behind[name], r)
	}
}

// Store is the store behind the set.
func (s *Set) Store() *store.Store { return s.st }

// Get is the replica that is served for a room of an origin.
func (s *Set) Get(origin, roomID string) (*Replica, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.serving[[2]string{origin, roomID}]
	return r, ok
}

// GetKey is the replica of one genesis.
func (s *Set) GetKey(k Key) (*Replica, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.byKey[k]
	return r, ok
}

// ByID is the replica of a number.
func (s *Set) ByID(id uint64) (*Replica, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.byID[id]
	return r, ok
}

// All lists the replicas, in no order.
func (s *Set) All() []*Replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*Replica, 0, len(s.byKey))
	for _, r := range s.byKey {
		all = append(all, r)
	}
	return all
}

// Of lists the replicas of an origin.
func (s *Set) Of(origin string) []*Replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.origins[origin])
}

// ErrExists: the set has a replica of that name already.
var ErrExists = errors.New("the replica exists already")
