package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// keeping is what was said about copying and showing one room, or all rooms of an
// origin. It stands beside the replicas: it outlives them, and goes before them.
type keeping struct {
	Paused      bool   `json:"paused,omitempty"`      // by the operator; for an origin, its row says it
	Forgotten   bool   `json:"forgotten,omitempty"`   // dropped by the operator: not copied again
	Removed     bool   `json:"removed,omitempty"`     // an origin that the operator removed: the configuration does not bring it back
	Quarantined string `json:"quarantined,omitempty"` // by the operator, with the reason: neither copied nor shown
	OptOut      string `json:"opt_out,omitempty"`     // by the room or the host, how: not copied
	Withdrawn   bool   `json:"withdrawn,omitempty"`   // the wish is signed by who may have it: not shown either
	BoundSince  int64  `json:"bound_since,omitempty"` // of an origin: since when its key is known here that signed the wish, Unix ms
	At          int64  `json:"at,omitempty"`          // of the last change, Unix ms
}

func (k keeping) empty() bool { k.At = 0; return k == keeping{} }

// stops says why nothing is copied.
func (k keeping) stops() (reason string, yes bool) {
	switch {
	case k.Quarantined != "":
		return "quarantined by the operator: " + k.Quarantined, true
	case k.OptOut != "":
		return k.OptOut, true
	case k.Forgotten:
		return "forgotten by the operator", true
	case k.Paused:
		return "paused by the operator", true
	}
	return "", false
}

// hides says why nothing is shown.
func (k keeping) hides() (reason string, yes bool) {
	switch {
	case k.Quarantined != "":
		return "the operator of this mirror keeps it in quarantine", true
	case k.Withdrawn:
		return k.OptOut, true
	}
	return "", false
}

// state is the state to show instead of one's own, or "".
func (k keeping) state() string {
	if k.Quarantined != "" {
		return replica.Quarantined
	}
	if _, yes := k.stops(); yes {
		return replica.Paused
	}
	return ""
}

// keepings holds all of them; most rooms have none.
type keepings struct {
	mu sync.RWMutex
	of map[[2]string]keeping // (origin, room); room "" for all of an origin
}

func (k *keepings) load(st *store.Store) error {
	k.of = map[[2]string]keeping{}
	return st.View(func(r store.Reader) error {
		from, to := store.KeepingRange()
		var bad error
		err := r.Scan(from, to, func(key, value []byte) bool {
			var one keeping
			origin, roomID, err := store.ParseKeeping(key)
			if bad = errors.Join(err, json.Unmarshal(value, &one)); bad != nil {
				bad = fmt.Errorf("keeping %q: %w", key, bad)
				return false
			}
			k.of[[2]string{origin, roomID}] = one
			return true
		})
		return errors.Join(err, bad)
	})
}

func (k *keepings) get(origin, roomID string) keeping {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.of[[2]string{origin, roomID}]
}

// stoppedOrigins lists the hosts of which nothing is copied.
func (k *keepings) stoppedOrigins() (list []string) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for name, one := range k.of {
		if _, stops := one.stops(); stops && name[1] == "" {
			list = append(list, name[0])
		}
	}
	return list
}

// both are what was said of the origin and of the room.
func (k *keepings) both(origin, roomID string) [2]keeping {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return [2]keeping{k.of[[2]string{origin, ""}], k.of[[2]string{origin, roomID}]}
}

// say changes what was said, on disk first. It tells whether anything changed.
func (m *Mirror) say(origin, roomID string, change func(*keeping)) (changed bool, err error) {
	k := &m.keepings
	k.mu.Lock()
	defer k.mu.Unlock()
	name := [2]string{origin, roomID}
	next := k.of[name]
	change(&next)
	if next == k.of[name] {
		return false, nil
	}
	next.At = m.o.Now()
	var b store.Batch
	if next.empty() {
		b.Delete(store.Keeping(origin, roomID))
	} else {
		value, err := json.Marshal(next)
		if err != nil {
			return false, err
		}
		b.Put(store.Keeping(origin, roomID), value)
	}
	if err := m.o.Store.Commit(&b); err != nil {
		return false, fmt.Errorf("mirror: %w", err)
	}
	if next.empty() {
		delete(k.of, name)
	} else {
		k.of[name] = next
	}
	if roomID == "" {
		m.o.HostChanged()
	}
	return true, nil
}

// stopped says why a room is not copied now.
func (m *Mirror) stopped(origin, roomID string) (reason string, yes bool) {
	return m.keepings.unless(origin, roomID, func() {})
}

// unless does something about a room as long as nothing stops its copying. Whoever says
// that something does, and then looks, finds what was done before.
func (k *keepings) unless(origin, roomID string, do func()) (reason string, stopped bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, name := range [][2]string{{origin, ""}, {origin, roomID}} {
		if reason, stopped = k.of[name].stops(); stopped {
			return reason, true
		}
	}
	do()
	return "", false
}

// Hidden says why a room that is held is not shown to readers. Its proofs,
// statements and attestations still are.
func (m *Mirror) Hidden(r *replica.Replica) (reason string, yes bool) {
	both := m.keepings.both(r.Origin, r.RoomID)
	if all := both[0]; all.Withdrawn && all.Quarantined == "" {
		// a key that came after the copy may belong to somebody else
		if at := r.Row().CopiedAt; at == 0 || at < all.BoundSince {
			both[0].Withdrawn = false
		}
	}
	for _, k := range both {
		if reason, yes = k.hides(); yes {
			return reason, true
		}
	}
	return "", false
}

// dismissed tells whether the operator keeps a room, or all of its host, from readers, or
// has forgotten it: not even that it is listed is kept.
func (m *Mirror) dismissed(origin, roomID string) bool {
	both := m.keepings.both(origin, roomID)
	return both[0].Quarantined+both[1].Quarantined != "" || both[0].Forgotten || both[1].Forgotten
}

// Standing is the state of a mirrored room with its reason, as it is to be shown:
// what the operator or the room said goes before what the mirror found.
func (m *Mirror) Standing(r *replica.Replica) (state, reason string) {
	row := r.Row()
	state, reason = row.State, row.Reason
	both := m.keepings.both(r.Origin, r.RoomID)
	for _, k := range []keeping{both[1], both[0]} {
		if s := k.state(); s != "" && state != replica.Quarantined {
			state = s
			if why, _ := k.stops(); row.Verdict == "" {
				reason = why
			} else {
				reason = why + "; " + row.Reason
			}
			break
		}
	}
	return state, reason
}
