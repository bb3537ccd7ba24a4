package room

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// snapshot is State as our own store keeps it; derived data, never signed.
type snapshot struct {
	Version    int
	RoomID     string
	Genesis    string
	Creator    adp.AgentID
	CreatedAt  int64
	Contract   *Contract
	Closed     bool `json:",omitempty"`
	Cancelled  bool `json:",omitempty"`
	Last       Position
	PreHash    string
	ReceivedAt int64
	Clock      int64
	Head       Position
	Members    map[adp.AgentID]Member
	Banned     []adp.AgentID              `json:",omitempty"`
	Requests   map[string]ReviewedRequest `json:",omitempty"`
	Types      []json.RawMessage          `json:",omitempty"`
	Registered []string                   `json:",omitempty"`
	External   []types.PackRef            `json:",omitempty"`
	Unresolved bool                       `json:",omitempty"`
	Maybe      []Position                 `json:",omitempty"`
}

const snapshotVersion = 1

// Snapshot encodes the state, to be read back by Restore.
func (s *State) Snapshot() ([]byte, error) {
	d := snapshot{snapshotVersion, s.RoomID, s.Genesis, s.Creator, s.CreatedAt, s.Contract, s.Closed, s.Cancelled, s.Last, s.PreHash,
		s.ReceivedAt, s.Clock, s.Head, s.Members, nil, s.Requests, nil, s.Registered, s.External, s.Unresolved, s.Maybe}
	d.Banned = slices.Sorted(maps.Keys(s.Banned)) // equal states, equal bytes
	for _, t := range s.Registry.All() {
		d.Types = append(d.Types, t.JSON())
	}
	return json.Marshal(d)
}

// Restore reads a snapshot back.
func Restore(b []byte) (*State, error) {
	var d snapshot
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("room snapshot: %w", err)
	}
	if d.Version != snapshotVersion || d.Contract == nil {
		return nil, fmt.Errorf("room snapshot: version %d is not readable here", d.Version)
	}
	s := New(d.RoomID)
	s.Genesis, s.Creator, s.CreatedAt, s.Contract = d.Genesis, d.Creator, d.CreatedAt, d.Contract
	s.Closed, s.Cancelled, s.Last, s.PreHash, s.ReceivedAt, s.Clock, s.Head = d.Closed, d.Cancelled, d.Last, d.PreHash, d.ReceivedAt, d.Clock, d.Head
	s.Registered, s.External, s.Unresolved, s.Maybe = d.Registered, d.External, d.Unresolved, d.Maybe
	for a, m := range d.Members {
		s.Members[a] = m
		if Speaks(m.Role) {
			s.speakers++
		}
	}
	for _, a := range d.Banned {
		s.Banned[a] = true
	}
	for id, q := range d.Requests {
		s.Requests[id] = q
	}
	var defs []*types.Definition
	for _, t := range d.Types {
		def, err := types.ParseStored(t)
		if err != nil {
			return nil, fmt.Errorf("room snapshot: %w", err)
		}
		defs = append(defs, def)
	}
	reg, err := s.Registry.With(defs)
	if err != nil {
		return nil, fmt.Errorf("room snapshot: %w", err)
	}
	s.Registry = reg
	return s, nil
}
