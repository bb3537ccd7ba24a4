package mirror

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// Removed is the state of a host that is followed no more while rooms of it are
// still held.
const Removed = "removed"

// Unread is the state of a room that is listed and of which nothing could be read yet.
const Unread = "unread"

// HostReport is all that the operator may want to know of a host.
type HostReport struct {
	HostStatus
	Bytes    int64            `json:"bytes"`   // of the records held, and of the type packs that they import
	Behind   int64            `json:"behind"`  // records that the host lists and we do not hold, of rooms that it shows
	Claimed  int64            `json:"claimed"` // the same, of rooms of which it has shown nothing, or nothing more: it may not have them
	Verdicts map[string]int64 `json:"verdicts"`
	States   map[string]int64 `json:"states"`
	Progress Progress         `json:"progress"`
	RoomList []RoomStatus     `json:"room_list,omitempty"`
}

// HostStatus is one host as /federation/v1/hosts shows it.
type HostStatus struct {
	Origin  string `json:"origin"`
	State   string `json:"state"`
	Since   int64  `json:"since"`              // Unix ms
	NextTry int64  `json:"next_try,omitempty"` // Unix ms
	Reason  string `json:"reason,omitempty"`
	Rooms   int64  `json:"rooms"`
	Records int64  `json:"records"`
	Source  string `json:"source"`
	// Problems names rooms that cannot be followed now, at most 20.
	Problems []RoomProblem `json:"problems,omitempty"`
	// Equivocated: the host is proven to have told two stories of what it signs. It stays so.
	Equivocated bool `json:"equivocated,omitempty"`
}

// RoomProblem says why a room cannot be followed.
type RoomProblem struct {
	RoomID string `json:"room_id"`
	Reason string `json:"reason"`
}

// RoomStatus is where one mirrored room stands, and why.
type RoomStatus struct {
	RoomID       string `json:"room_id"`
	URL          string `json:"url"`
	State        string `json:"state"`
	Verdict      string `json:"verdict"`
	Reason       string `json:"reason,omitempty"`
	Seq          int64  `json:"seq"`
	Behind       int64  `json:"behind"` // as the host lists it
	Bytes        int64  `json:"bytes"`
	Violations   int64  `json:"violations"`
	Unverifiable int64  `json:"unverifiable"`
	Withheld     int64  `json:"withheld"`
	Dropped      int64  `json:"dropped,omitempty"`   // seq up to which the records are not kept any more
	At           int64  `json:"at"`                  // received_at of the newest record, Unix ms
	SyncedAt     int64  `json:"synced_at,omitempty"` // when the host last said that there is no more, Unix ms
	Hidden       bool   `json:"hidden,omitempty"`    // held, not shown
	Held         bool   `json:"held"`                // false: nothing is held, as of a forgotten room
}

// Report lists the hosts, those that are followed and those of which rooms are
// held, by origin; of one origin when it is not "", with its rooms.
func (m *Mirror) Report(origin string) []HostReport {
	m.mu.Lock()
	hosts, unwanted := maps.Clone(m.hosts), maps.Clone(m.unwanted)
	m.mu.Unlock()
	rooms := map[string][]*replica.Replica{}
	for _, r := range m.o.Replicas.All() {
		if r.Origin != m.o.Own && r.Row().Seq > 0 {
			rooms[r.Origin] = append(rooms[r.Origin], r)
		}
	}
	origins := map[string]bool{}
	for o := range hosts {
		origins[o] = true
	}
	for o := range rooms {
		origins[o] = true
	}
	for o := range unwanted {
		origins[o] = true
	}
	for _, o := range m.keepings.stoppedOrigins() {
		origins[o] = true
	}
	out := []HostReport{}
	for _, o := range slices.Sorted(maps.Keys(origins)) {
		if origin == "" || origin == o {
			one := m.report(o, hosts[o], rooms[o], origin != "")
			if source, ok := unwanted[o]; ok {
				one.Source, one.Reason = source, whyUnwanted(one.Reason, source)
			}
			out = append(out, one)
		}
	}
	return out
}

// ReportRoom is the report of the host of a room, with this room alone; false when the
// name is not that of a room.
func (m *Mirror) ReportRoom(name string) ([]HostReport, bool) {
	origin, roomID, err := m.find(name)
	if err != nil || roomID == "" {
		return nil, false
	}
	list := m.Report(origin)
	for i := range list {
		list[i].RoomList = slices.DeleteFunc(list[i].RoomList, func(r RoomStatus) bool { return r.RoomID != roomID })
	}
	return list, true
}

func (m *Mirror) report(origin string, h *host, held []*replica.Replica, whole bool) HostReport {
	out := HostReport{HostStatus: HostStatus{Origin: origin, State: Removed, Equivocated: m.equivocated(origin)}, Verdicts: map[string]int64{}, States: map[string]int64{}}
	listed, problems := map[*replica.Replica]int64{}, map[string]string{}
	untried := int64(0)
	if h != nil {
		out.HostStatus = h.status()
		h.mu.Lock()
		out.Bytes = h.row.PackBytes
		for id, v := range h.rooms {
			if v.r != nil {
				listed[v.r] = v.listed
			}
			if reason := v.trouble(h); reason != "" {
				problems[id] = reason
			}
		}
		out.Behind, out.Claimed, untried = h.owed()
		h.mu.Unlock()
	} else if reason, yes := m.keepings.get(origin, "").stops(); yes {
		out.Reason = reason
	}
	for _, r := range held {
		row := r.Row()
		state, reason := m.Standing(r)
		s := RoomStatus{RoomID: r.RoomID, URL: m.RoomURL(origin, r.RoomID), State: state, Verdict: row.EffectiveVerdict(), Reason: reason, Seq: row.Seq, Bytes: row.Bytes,
			Violations: row.Violations, Unverifiable: row.Unverifiable, Withheld: row.Withheld, Dropped: row.Dropped, At: row.At, SyncedAt: r.SyncedAt.Load(), Held: true}
		s.Behind = max(0, listed[r]-row.Seq) // of the one that the host tells now
		if s.Reason == "" {
			s.Reason = problems[r.RoomID]
		}
		_, s.Hidden = m.Hidden(r)
		out.Rooms++
		out.Records, out.Bytes = out.Records+row.Seq, out.Bytes+row.Bytes
		out.Verdicts[s.Verdict]++
		out.States[s.State]++
		if whole {
			out.RoomList = append(out.RoomList, s)
		}
	}
	if h != nil {
		out.Progress = h.progress.now(time.Now(), out.Behind, untried)
	}
	if whole {
		out.RoomList = append(out.RoomList, m.notHeld(origin, held)...)
		slices.SortFunc(out.RoomList, func(a, b RoomStatus) int { return strings.Compare(a.RoomID, b.RoomID) })
		out.RoomList = append(out.RoomList, m.unread(origin, out.RoomList, problems)...)
	}
	return out
}

// notHeld lists rooms of which only that is known that they are not copied.
func (m *Mirror) notHeld(origin string, held []*replica.Replica) (out []RoomStatus) {
	have := map[string]bool{"": true}
	for _, r := range held {
		have[r.RoomID] = true
	}
	m.keepings.mu.RLock()
	defer m.keepings.mu.RUnlock()
	for name, k := range m.keepings.of {
		if name[0] != origin || have[name[1]] {
			continue
		}
		reason, _ := k.stops()
		out = append(out, RoomStatus{RoomID: name[1], URL: origin + "/v1/rooms/" + name[1], State: k.state(), Reason: reason})
	}
	return out
}

// maxUnread bounds the rooms that are told of though nothing of them is held.
const maxUnread = 100

// unread lists rooms of which nothing could be read yet.
func (m *Mirror) unread(origin string, told []RoomStatus, problems map[string]string) (out []RoomStatus) {
	for _, s := range told {
		delete(problems, s.RoomID)
	}
	for _, id := range slices.Sorted(maps.Keys(problems)) {
		if len(out) == maxUnread {
			break
		}
		out = append(out, RoomStatus{RoomID: id, URL: m.RoomURL(origin, id), State: Unread, Reason: problems[id]})
	}
	return out
}

func (m *Mirror) equivocated(origin string) bool {
	return m.o.Equivocated != nil && m.o.Equivocated(origin)
}

// stateOf is the state of a host whose looks fail in this way.
func stateOf(err error) string {
	var s *statusError
	switch kind := fetch.KindOf(err); {
	case kind == fetch.Blocked || kind == fetch.BadURL:
		return Blocked
	case errors.As(err, &s) && s.discovery && (s.status == http.StatusNotFound || s.status == http.StatusGone):
		return Gone
	}
	return BackingOff
}
