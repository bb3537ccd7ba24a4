package room

import (
	"maps"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// Status is the lifecycle state of a room (ADP §8).
type Status string

// The four states.
const (
	Scheduled Status = "scheduled"
	Active    Status = "active"
	Ended     Status = "ended"
	Cancelled Status = "cancelled"
)

// Visibilities of a room (ADP §9.2).
const (
	Public     = "public"
	Restricted = "restricted"
	Private    = "private"
)

// Contract is what room.create says and room.update may change (ADP §9). A
// Contract is never changed in place.
type Contract struct {
	Topic, Agenda, Guidance string
	Visibility, Language    string
	StartTime, EndTime      int64 // Unix ms
	Tags                    []string
	Policy                  Policy
	PolicyJSON              []byte // canonical, nil when there is none
	Extra                   []byte // canonical, nil when there is none
}

// Policy is the room policy (ADP §9.3).
type Policy struct {
	Moderators  []adp.AgentID
	MaxSpeakers int64 // 0 = none
	NoObservers bool  // observer_allowed is false
}

// Member is an active member.
type Member struct {
	Role        types.Role `json:"role"`
	Perspective string     `json:"perspective,omitempty"`
}

// Speaks tells whether the role counts against max_speakers.
func Speaks(r types.Role) bool { return r == "moderator" || r == "speaker" }

// ReviewedRequest is what the chain says of a join request: a review, or the
// join that used it up.
type ReviewedRequest struct {
	Applicant   adp.AgentID `json:"applicant"`
	Role        types.Role  `json:"role,omitempty"` // approved role; "" when rejected
	Perspective string      `json:"perspective,omitempty"`
	ExpiresAt   int64       `json:"expires_at"`
	Consumed    bool        `json:"consumed,omitempty"`
}

// Position is a place in the chain.
type Position struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// State is what a room's records amount to. It is changed only by Advance and
// is not safe for concurrent use.
type State struct {
	RoomID    string
	Genesis   string // hash of the record at seq 1
	Creator   adp.AgentID
	CreatedAt int64 // created_at of room.create
	Contract  *Contract
	Closed    bool // by room.close
	Cancelled bool

	Last       Position // newest record
	PreHash    string   // its pre_hash
	ReceivedAt int64    // its received_at
	Clock      int64    // greatest received_at so far
	Head       Position // newest record that is no signal (ADP §6.1)

	Members  map[adp.AgentID]Member
	Banned   map[adp.AgentID]bool
	Requests map[string]ReviewedRequest
	Registry *types.Registry

	Registered []string        // registered packs imported, in order
	External   []types.PackRef // external packs imported, in order

	// Unresolved: an import could not be judged, so that a type that is not in
	// the registry may still be one that the room has. Maybe holds records of
	// such types since Head, any of which may be the head.
	Unresolved bool
	Maybe      []Position

	speakers int64
}

// maxMaybe bounds Maybe.
const maxMaybe = 1024

// maxImports bounds Registered and External: whether a host has the packs that it lets a
// room import is not known.
const maxImports = 4096

// New is a room before its first record.
func New(roomID string) *State {
	return &State{RoomID: roomID, Members: map[adp.AgentID]Member{}, Banned: map[adp.AgentID]bool{}, Requests: map[string]ReviewedRequest{}}
}

// StatusAt derives the state from the times in force (ADP §8); a transition
// leaves no record. Time never runs back behind the newest record.
func (s *State) StatusAt(now int64) Status {
	now = max(now, s.Clock)
	switch {
	case s.Cancelled:
		return Cancelled
	case s.Closed:
		return Ended
	case s.Contract == nil || now < s.Contract.StartTime:
		return Scheduled
	case now < s.Contract.EndTime:
		return Active
	}
	return Ended
}

// NextTransition is when time alone will change the status, or 0.
func (s *State) NextTransition(now int64) int64 {
	switch s.StatusAt(now) {
	case Scheduled:
		return s.Contract.StartTime
	case Active:
		return s.Contract.EndTime
	}
	return 0
}

// Speakers counts the members that hold a speaking role (wire-facts §3.6).
func (s *State) Speakers() int64 { return s.speakers }

// Observers counts the members that do not.
func (s *State) Observers() int64 { return int64(len(s.Members)) - s.speakers }

// IsMember tells whether the agent is an active member.
func (s *State) IsMember(a adp.AgentID) bool { _, ok := s.Members[a]; return ok }

// MayManage tells whether the agent is the creator or a moderator.
func (s *State) MayManage(a adp.AgentID) bool {
	return a == s.Creator || s.Members[a].Role == "moderator"
}

// MayRead tells whether the agent may read what is kept for members: events,
// agent status and archives of restricted and private rooms (ADP §16).
func (s *State) MayRead(a adp.AgentID) bool {
	return s.Contract.Visibility == Public || a != "" && (a == s.Creator || s.IsMember(a))
}

// MayLook tells whether the agent may read the room resource: of a private room
// who may read its events, and who holds an approved request that is neither
// used nor expired (ADP §11, §16).
func (s *State) MayLook(a adp.AgentID, at int64) bool {
	if s.Contract.Visibility != Private || s.MayRead(a) {
		return true
	}
	if a != "" {
		for _, q := range s.Requests {
			if q.Applicant == a && q.Role != "" && !q.Consumed && q.ExpiresAt > at {
				return true
			}
		}
	}
	return false
}

// Clone is an independent copy.
func (s *State) Clone() *State {
	c := *s
	c.Members, c.Banned, c.Requests = maps.Clone(s.Members), maps.Clone(s.Banned), maps.Clone(s.Requests)
	c.Registered, c.External, c.Maybe = slices.Clone(s.Registered), slices.Clone(s.External), slices.Clone(s.Maybe)
	return &c
}

// Weight is about how many bytes the state takes in memory.
func (s *State) Weight() int {
	const entry = 128 // of a map, with its key
	n := 1024 + s.Registry.Bytes() + entry*(len(s.Banned)+len(s.Maybe)+len(s.External))
	if k := s.Contract; k != nil {
		n += len(k.Topic) + len(k.Agenda) + len(k.Guidance) + len(k.Language) + 2*len(k.PolicyJSON) + len(k.Extra)
		for _, t := range k.Tags {
			n += len(t) + 16
		}
	}
	for _, m := range s.Members {
		n += entry + len(m.Perspective)
	}
	for id, q := range s.Requests {
		n += 2*entry + len(id) + len(q.Perspective)
	}
	return n
}

// Change is what one accepted record does to the state.
type Change struct {
	Class    Class
	Contract *Contract // new contract, or nil
	Creator  adp.AgentID
	Close    bool
	Cancel   bool
	Members  []MemberChange
	Ban      adp.AgentID
	Unban    adp.AgentID

	RequestID string // a request that was reviewed or consumed
	Request   ReviewedRequest

	Types      []*types.Definition
	Registered []string
	External   []types.PackRef
	Unresolved bool
	maybe      bool // the class is not known
}

// MemberChange is one agent's new standing.
type MemberChange struct {
	Agent  adp.AgentID
	Member *Member // nil: no longer a member
	How    string  // joined, role, left, removed
}

// Advance applies a Change that Apply or Judge gave for this record.
func (s *State) Advance(r *adp.Record, ch *Change) error {
	if ch.Types != nil {
		reg, err := s.Registry.With(ch.Types)
		if err != nil {
			return err
		}
		s.Registry = reg
	}
	if s.Last.Seq == 0 {
		s.Genesis, s.Creator, s.CreatedAt = r.Hash, ch.Creator, max(r.Envelope.CreatedAt, 0)
	}
	s.PreHash, s.ReceivedAt = r.PreHash, r.ReceivedAt
	s.Last = Position{r.Seq, r.Hash}
	s.Clock = max(s.Clock, r.ReceivedAt)
	switch {
	case ch.maybe:
		if len(s.Maybe) < maxMaybe {
			s.Maybe = append(s.Maybe, s.Last)
		}
	case ch.Class.MovesHead():
		s.Head, s.Maybe = s.Last, nil
	}
	if ch.Contract != nil {
		s.Contract = ch.Contract
	}
	s.Closed = s.Closed || ch.Close
	s.Cancelled = s.Cancelled || ch.Cancel
	for _, m := range ch.Members {
		if Speaks(s.Members[m.Agent].Role) {
			s.speakers--
		}
		if m.Member == nil {
			delete(s.Members, m.Agent)
			continue
		}
		s.Members[m.Agent] = *m.Member
		if Speaks(m.Member.Role) {
			s.speakers++
		}
	}
	if ch.Ban != "" {
		s.Banned[ch.Ban] = true
	}
	delete(s.Banned, ch.Unban)
	if ch.RequestID != "" {
		s.Requests[ch.RequestID] = ch.Request
		if len(s.Requests)%64 == 0 { // what has expired can neither be used nor reviewed again
			maps.DeleteFunc(s.Requests, func(_ string, q ReviewedRequest) bool { return q.ExpiresAt <= s.Clock })
		}
	}
	s.Unresolved = s.Unresolved || ch.Unresolved
	for _, id := range ch.Registered {
		if len(s.Registered) < maxImports && !slices.Contains(s.Registered, id) {
			s.Registered = append(s.Registered, id)
		}
	}
	for _, ref := range ch.External {
		if len(s.External) < maxImports && !slices.Contains(s.External, ref) {
			s.External = append(s.External, ref)
		}
	}
	return nil
}
