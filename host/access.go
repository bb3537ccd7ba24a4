package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// Room creation modes.
const (
	CreationOpen      = "open"
	CreationAllowList = "allow_list"
	CreationClosed    = "closed"
)

// Access says who may use the host. Zero numbers mean no limit.
type Access struct {
	RoomCreation    string        `json:"room_creation"`
	AllowedCreators []adp.AgentID `json:"allowed_creators"`
	BannedAgents    []adp.AgentID `json:"banned_agents"`
	RoomsPerCreator int64         `json:"rooms_per_creator"`
	RoomsTotal      int64         `json:"rooms_total"`
	BytesPerRoom    int64         `json:"bytes_per_room"`
	BytesPerCreator int64         `json:"bytes_per_creator"`
	BytesTotal      int64         `json:"bytes_total"`
}

// AccessChange is a change at run time. It lasts over restarts and stands
// above the configuration.
type AccessChange struct {
	RoomCreation    *string       `json:"room_creation,omitempty"`
	Allow           []adp.AgentID `json:"allow,omitempty"`
	Disallow        []adp.AgentID `json:"disallow,omitempty"`
	Ban             []adp.AgentID `json:"ban,omitempty"`
	Unban           []adp.AgentID `json:"unban,omitempty"`
	RoomsPerCreator *int64        `json:"rooms_per_creator,omitempty"`
	RoomsTotal      *int64        `json:"rooms_total,omitempty"`
	BytesPerRoom    *int64        `json:"bytes_per_room,omitempty"`
	BytesPerCreator *int64        `json:"bytes_per_creator,omitempty"`
	BytesTotal      *int64        `json:"bytes_total,omitempty"`
}

// overlay is the sum of the changes at run time, as it is stored.
type overlay struct {
	AccessChange
	Allowed map[adp.AgentID]bool `json:"allowed"` // false: taken off the configured list
	Banned  map[adp.AgentID]bool `json:"banned"`
}

type access struct {
	sync.RWMutex
	st      *store.Store
	conf    Access
	over    overlay
	now     Access
	banned  map[adp.AgentID]bool
	allowed map[adp.AgentID]bool
}

const accessKey = "access"

func (a *access) load(st *store.Store, conf Access) error {
	a.st, a.conf = st, conf
	raw, ok, err := st.Get(store.Policy(accessKey))
	if err != nil {
		return err
	}
	if ok {
		if err := json.Unmarshal(raw, &a.over); err != nil {
			return err
		}
	}
	a.derive()
	return nil
}

func (a *access) derive() {
	n := a.conf
	set := func(to *int64, from *int64) {
		if from != nil {
			*to = *from
		}
	}
	if a.over.RoomCreation != nil {
		n.RoomCreation = *a.over.RoomCreation
	}
	set(&n.RoomsPerCreator, a.over.RoomsPerCreator)
	set(&n.RoomsTotal, a.over.RoomsTotal)
	set(&n.BytesPerRoom, a.over.BytesPerRoom)
	set(&n.BytesPerCreator, a.over.BytesPerCreator)
	set(&n.BytesTotal, a.over.BytesTotal)
	merge := func(conf []adp.AgentID, over map[adp.AgentID]bool) (map[adp.AgentID]bool, []adp.AgentID) {
		m := map[adp.AgentID]bool{}
		for _, id := range conf {
			m[id] = true
		}
		for id, in := range over {
			if m[id] = in; !in {
				delete(m, id)
			}
		}
		list := slices.AppendSeq([]adp.AgentID{}, maps.Keys(m))
		slices.Sort(list)
		return m, list
	}
	a.allowed, n.AllowedCreators = merge(a.conf.AllowedCreators, a.over.Allowed)
	a.banned, n.BannedAgents = merge(a.conf.BannedAgents, a.over.Banned)
	a.now = n
}

// Access is the policy in force.
func (h *Host) Access() Access {
	h.access.RLock()
	defer h.access.RUnlock()
	return h.access.now
}

// ChangeAccess applies a change at run time and keeps it.
func (h *Host) ChangeAccess(c AccessChange) (Access, error) {
	if m := c.RoomCreation; m != nil && *m != CreationOpen && *m != CreationAllowList && *m != CreationClosed {
		return Access{}, adp.Errorf(adp.InvalidRequest, "room_creation must be open, allow_list or closed")
	}
	for _, l := range [][]adp.AgentID{c.Allow, c.Disallow, c.Ban, c.Unban} {
		for _, id := range l {
			if _, err := adp.ParseAgentID(string(id)); err != nil {
				return Access{}, adp.Errorf(adp.InvalidRequest, "%.80q is not an Agent ID", id)
			}
		}
	}
	for _, n := range []*int64{c.RoomsPerCreator, c.RoomsTotal, c.BytesPerRoom, c.BytesPerCreator, c.BytesTotal} {
		if n != nil && *n < 0 {
			return Access{}, adp.Errorf(adp.InvalidRequest, "a limit cannot be negative; 0 means none")
		}
	}
	a := &h.access
	a.Lock()
	defer a.Unlock()
	old := a.over
	next := a.over
	next.Allowed, next.Banned = maps.Clone(old.Allowed), maps.Clone(old.Banned)
	if next.Allowed == nil {
		next.Allowed = map[adp.AgentID]bool{}
	}
	if next.Banned == nil {
		next.Banned = map[adp.AgentID]bool{}
	}
	put := func(m map[adp.AgentID]bool, ids []adp.AgentID, in bool) {
		for _, id := range ids {
			m[id] = in
		}
	}
	put(next.Allowed, c.Allow, true)
	put(next.Allowed, c.Disallow, false)
	put(next.Banned, c.Ban, true)
	put(next.Banned, c.Unban, false)
	if c.RoomCreation != nil {
		next.RoomCreation = c.RoomCreation
	}
	for _, f := range []struct{ to, from **int64 }{{&next.RoomsPerCreator, &c.RoomsPerCreator}, {&next.RoomsTotal, &c.RoomsTotal},
		{&next.BytesPerRoom, &c.BytesPerRoom}, {&next.BytesPerCreator, &c.BytesPerCreator}, {&next.BytesTotal, &c.BytesTotal}} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return Access{}, err
	}
	var b store.Batch
	b.Put(store.Policy(accessKey), raw)
	if err := a.st.Commit(&b); err != nil {
		return Access{}, fmt.Errorf("keep the access policy: %w", err)
	}
	a.over = next
	a.derive()
	return a.now, nil
}

// mayWrite refuses agents that the operator banned from the host.
func (h *Host) mayWrite(a adp.AgentID) error {
	h.access.RLock()
	defer h.access.RUnlock()
	if h.access.banned[a] {
		return adp.Errorf(adp.PermissionDenied, "the operator of this host has banned this agent (host.banned_agents)").With("limit", "banned_agents")
	}
	return nil
}

// mayCreate keeps the operator's word on who creates rooms.
func (h *Host) mayCreate(a adp.AgentID) error {
	h.access.RLock()
	defer h.access.RUnlock()
	switch h.access.now.RoomCreation {
	case CreationClosed:
		return adp.Errorf(adp.PermissionDenied, "this host takes no new rooms (host.room_creation is closed)").With("limit", "room_creation")
	case CreationAllowList:
		if !h.access.allowed[a] {
			return adp.Errorf(adp.PermissionDenied, "this host takes rooms only from agents that its operator allowed (host.allowed_creators)").With("limit", "allowed_creators")
		}
	}
	return nil
}
