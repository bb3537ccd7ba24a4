package host

import (
	"maps"
	"sync"

	"github.com/witan-adp/witan/adp"
)

// asks are the open join requests of the rooms, as far as counting needs them:
// rows may be large, and strangers decide how often they would be read. It is
// derived from the rows, room by room at first use.
type asks struct{ rooms sync.Map } // replica ID → *roomAsks

// roomAsks are one room's. The lock is not held over a commit.
type roomAsks struct {
	sync.Mutex
	open map[string]ask // by request ID; nil until read
}

type ask struct {
	applicant adp.AgentID
	expiresAt int64
}

// lockAsks gives the open requests of a room at a time, locked.
func (h *Host) lockAsks(replicaID uint64, now int64) (*roomAsks, error) {
	x, _ := h.asks.rooms.LoadOrStore(replicaID, &roomAsks{})
	a := x.(*roomAsks)
	a.Lock()
	if a.open == nil {
		all, err := h.requests(replicaID)
		if err != nil {
			a.Unlock()
			return nil, err
		}
		a.open = map[string]ask{}
		for _, q := range all {
			if q.Status == "pending" || q.Status == "approved" && !q.Consumed {
				a.open[q.id()] = ask{q.Applicant, q.ExpiresAt}
			}
		}
	}
	maps.DeleteFunc(a.open, func(_ string, q ask) bool { return q.expiresAt <= now })
	return a, nil
}

func (a *roomAsks) of(applicant adp.AgentID) (n int) {
	for _, q := range a.open {
		if q.applicant == applicant {
			n++
		}
	}
	return n
}

// openAsk counts a request that is about to be stored, or says which bound it
// would go over. What is then not stored is given back with closeAsk.
func (h *Host) openAsk(replicaID uint64, id string, q requestRow, now int64) error {
	a, err := h.lockAsks(replicaID, now)
	if err != nil {
		return h.unavailable(err)
	}
	defer a.Unlock()
	if n := a.of(q.Applicant); n >= requestsPerApplicant {
		return adp.Errorf(adp.RateLimited, "you have %d open join requests in this room; use one, or wait until one expires", n).With("retry_after", 60)
	}
	if n := len(a.open); n >= requestsPerRoom {
		return adp.Errorf(adp.RateLimited, "the room has %d open join requests, the most that it keeps", n).With("retry_after", 60)
	}
	a.open[id] = ask{q.Applicant, q.ExpiresAt}
	return nil
}

// closeAsk counts a request no longer: it was rejected or used, or never stored.
func (h *Host) closeAsk(replicaID uint64, id string) {
	if x, ok := h.asks.rooms.Load(replicaID); ok {
		a := x.(*roomAsks)
		a.Lock()
		defer a.Unlock()
		delete(a.open, id)
	}
}

// hasAsked tells whether an agent has an open request in a room.
func (h *Host) hasAsked(replicaID uint64, who adp.AgentID, now int64) (bool, error) {
	a, err := h.lockAsks(replicaID, now)
	if err != nil {
		return false, err
	}
	defer a.Unlock()
	return a.of(who) > 0, nil
}
