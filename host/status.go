package host

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
)

// Bounds of agent status (ADP §17.4).
const (
	statusBytes     = 8 << 10
	statusPerMinute = 60
	boardItems      = 256
)

// statuses are the temporary agent statuses of all rooms, and what streams
// carry beside records. Nothing of it is stored.
type statuses struct {
	sync.Mutex
	rooms map[uint64]*board
}

// board is one room's: the statuses in force, and the latest items for its
// streams, each reader with a cursor of its own.
type board struct {
	status map[adp.AgentID]statusEntry
	items  []item
	first  int64 // number of items[0]
	aged   int64 // items before this one have been here for a sweep
	signal chan struct{}
}

type statusEntry struct {
	body      []byte
	expiresAt int64
}

// item is something that a stream carries and no chain keeps.
type item struct {
	kind      string
	data      []byte
	reviewers bool // only for those who may review
}

func (s *statuses) board(id uint64) *board {
	b := s.rooms[id]
	if b == nil {
		b = &board{status: map[adp.AgentID]statusEntry{}, first: 1, signal: make(chan struct{})}
		s.rooms[id] = b
	}
	return b
}

// announce gives an item to the streams of a room.
func (s *statuses) announce(id uint64, it item) {
	s.Lock()
	defer s.Unlock()
	s.board(id).announce(it)
}

func (b *board) announce(it item) {
	b.items = append(b.items, it)
	if n := len(b.items) - boardItems; n > 0 { // hints, not facts: a slow reader misses some
		b.items, b.first = slices.Clone(b.items[n:]), b.first+int64(n)
	}
	close(b.signal)
	b.signal = make(chan struct{})
}

// since gives the items from a number on, the next number, and the channel that
// is closed when there are more. next 0 means: from now on.
func (s *statuses) since(id uint64, next int64) ([]item, int64, <-chan struct{}) {
	s.Lock()
	defer s.Unlock()
	b := s.board(id)
	end := b.first + int64(len(b.items))
	if next == 0 || next >= end {
		return nil, end, b.signal
	}
	return slices.Clone(b.items[max(next, b.first)-b.first:]), end, b.signal
}

func (s *statuses) set(id uint64, agent adp.AgentID, e statusEntry) {
	s.Lock()
	defer s.Unlock()
	b := s.board(id)
	b.status[agent] = e
	b.announce(item{kind: "room.agent_status", data: e.body})
}

func (s *statuses) clear(id uint64, agent adp.AgentID) {
	s.Lock()
	defer s.Unlock()
	if b := s.rooms[id]; b != nil {
		delete(b.status, agent)
	}
}

// clearRoom forgets a room that has ended.
func (s *statuses) clearRoom(id uint64) {
	s.Lock()
	defer s.Unlock()
	if b := s.rooms[id]; b != nil {
		delete(s.rooms, id)
		close(b.signal)
	}
}

// current lists the statuses in force, by agent.
func (s *statuses) current(id uint64, now int64) []json.RawMessage {
	s.Lock()
	defer s.Unlock()
	list := []json.RawMessage{}
	b := s.rooms[id]
	if b == nil {
		return list
	}
	var agents []adp.AgentID
	for a, e := range b.status {
		if e.expiresAt > now {
			agents = append(agents, a)
		}
	}
	slices.Sort(agents)
	for _, a := range agents {
		list = append(list, b.status[a].body)
	}
	return list
}

func (s *statuses) of(id uint64, agent adp.AgentID, now int64) ([]byte, bool) {
	s.Lock()
	defer s.Unlock()
	if b := s.rooms[id]; b != nil {
		if e, ok := b.status[agent]; ok && e.expiresAt > now {
			return e.body, true
		}
	}
	return nil, false
}

// sweep drops the statuses that have expired, and the items that streams have
// had the time between two sweeps to send.
func (s *statuses) sweep(now int64) {
	s.Lock()
	defer s.Unlock()
	for _, b := range s.rooms {
		for a, e := range b.status {
			if e.expiresAt <= now {
				delete(b.status, a)
			}
		}
		if n := b.aged - b.first; n > 0 {
			b.items, b.first = slices.Clone(b.items[n:]), b.aged
		}
		b.aged = b.first + int64(len(b.items))
	}
}

// parseStatus reads the body of PUT …/agent-status and makes the stored object.
func parseStatus(body []byte, roomID string, agent adp.AgentID, now, ttl int64) (statusEntry, error) {
	bad := func(format string, args ...any) (statusEntry, error) {
		return statusEntry{}, adp.Errorf(adp.InvalidRequest, format, args...)
	}
	if len(body) > statusBytes {
		return statusEntry{}, adp.Errorf(adp.PayloadTooLarge, "an agent status may have %d bytes", statusBytes)
	}
	v, err := adp.Scan(body)
	if err != nil {
		return bad("the body is %v", err)
	}
	if v.Kind() != adp.Object {
		return bad("an agent status is an object")
	}
	out := map[string]any{"room_id": roomID, "agent_id": agent, "updated_at": now}
	expires := now + ttl
	for name, m := range v.Members() {
		ok := false
		switch name {
		case "state":
			ok = strings.TrimSpace(m.Text()) != ""
		case "summary", "claim_id", "activity":
			ok = m.Kind() == adp.String
		case "seen_seq":
			n, isInt := m.Int()
			ok = isInt && n >= 0
		case "seen_hash":
			ok = adp.IsHash(m.Text())
		case "expires_at":
			t, isInt := m.Int()
			if !isInt || t < 0 {
				return bad("expires_at must be Unix milliseconds")
			}
			expires = min(expires, t) // the host's greatest TTL stays the bound
			continue
		case "extra":
			ok = m.Kind() == adp.Object
		default:
			return bad("the member %.60q has no place in an agent status; free data goes into extra", name)
		}
		if !ok {
			return bad("%s is not acceptable: see ADP §17.4", name)
		}
		out[name] = m
	}
	if !v.Get("state").Exists() {
		return bad("state is missing: a non-empty string such as idle, reading, drafting, working, waiting or away")
	}
	out["expires_at"] = expires
	enc, err := adp.EncodeValue(out)
	if err != nil {
		return statusEntry{}, err
	}
	return statusEntry{enc.Raw(), expires}, nil
}
