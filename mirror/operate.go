package mirror

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// ErrUnknownHost: the origin is not one that the mirror follows.
var ErrUnknownHost = errors.New("this host is not followed")

// The operator names a host by its origin, and a room by its URL at its host or by
// its URL here. What is said holds over restarts, and before the configuration.

// find takes a name apart; roomID is "" for a host.
func (m *Mirror) find(name string) (origin, roomID string, err error) {
	bad := adp.Errorf(adp.InvalidRequest, "%.300q is neither a host, such as https://rooms.example, nor a room, such as https://rooms.example/v1/rooms/ID or %s/m/rooms.example/v1/rooms/ID", name, m.o.Own)
	u, err := url.Parse(strings.TrimSpace(name))
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", "", bad
	}
	if origin, err = fetch.Origin(u.Scheme+"://"+u.Host, true); err != nil {
		return "", "", bad
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) == 1 && parts[0] == "" {
		if origin == m.o.Own {
			return "", "", adp.Errorf(adp.InvalidRequest, "%s is this daemon itself", origin)
		}
		return origin, "", nil
	}
	n := len(parts)
	if n < 2 || parts[n-2] != "rooms" || !adp.IsRoomID(parts[n-1]) {
		return "", "", bad
	}
	roomID = parts[n-1]
	if origin != m.o.Own {
		return origin, roomID, nil
	}
	if parts[0] != "m" {
		return "", "", adp.Errorf(adp.InvalidRequest, "%.300q is a room of this daemon's own; see witan host --help", name)
	}
	for _, scheme := range []string{"https://", "http://"} {
		if o := scheme + parts[1]; m.Followed(o) || len(m.o.Replicas.Of(o)) > 0 {
			return o, roomID, nil
		}
	}
	return "", "", bad
}

// Room finds a mirrored room by its URL at its host, or by its URL here.
func (m *Mirror) Room(name string) (*replica.Replica, error) {
	origin, roomID, err := m.find(name)
	if err != nil {
		return nil, err
	}
	r := m.verified(origin, roomID)
	if r == nil {
		return nil, adp.Errorf(adp.RoomNotFound, "no room %.300q is held here; witan mirror status %s lists what is", name, origin)
	}
	return r, nil
}

// named takes a name apart of which something is known here: a host that is followed, a
// room that a followed host lists, and what is held. The operator is told of a mistyped
// name, and does not wait for what it would do.
func (m *Mirror) named(name string) (origin, roomID string, err error) {
	if origin, roomID, err = m.find(name); err != nil {
		return "", "", err
	}
	h, held := m.host(origin), m.o.Replicas.Of(origin)
	switch {
	case h == nil && len(held) == 0 && m.keepings.get(origin, roomID).empty():
		return "", "", adp.Errorf(adp.NotFound, "%s is not followed, and no room of it is held; to follow it: witan mirror add %[1]s", origin)
	case roomID == "" || !m.keepings.get(origin, roomID).empty() || slices.ContainsFunc(held, func(r *replica.Replica) bool { return r.RoomID == roomID }):
		return origin, roomID, nil
	case h != nil && h.lists(roomID):
		return origin, roomID, nil
	}
	return "", "", adp.Errorf(adp.RoomNotFound, "%s shows no room %s, and none is held; witan mirror status %[1]s lists its rooms", origin, roomID)
}

// lists tells whether a room was seen in the room list.
func (h *host) lists(roomID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, only := h.listed[roomID]
	return only || h.rooms[roomID] != nil
}

func (m *Mirror) host(origin string) *host {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hosts[origin]
}

// Remove follows a host no more, although the configuration names it, and leaves the
// rooms that were joined to observe them. What was mirrored stays and is served.
func (m *Mirror) Remove(name string) error {
	origin, roomID, err := m.find(name)
	if err != nil {
		return err
	}
	if roomID != "" {
		return adp.Errorf(adp.InvalidRequest, "hosts are removed, rooms are paused or forgotten")
	}
	if !m.Followed(origin) {
		return fmt.Errorf("%s: %w", origin, ErrUnknownHost)
	}
	if _, err := m.say(origin, "", func(k *keeping) { k.Removed = true }); err != nil {
		return err
	}
	m.mu.Lock()
	if h := m.hosts[origin]; h != nil {
		m.remember(origin, h.configured)
	}
	m.mu.Unlock()
	return m.drop(origin)
}

// Pause stops copying a host or a room until Resume, also after restarts.
func (m *Mirror) Pause(name string) error {
	origin, roomID, err := m.named(name)
	if err != nil {
		return err
	}
	if roomID == "" {
		return m.with(origin, func(h *host) error { return h.pause(true) })
	}
	return m.decide(origin, roomID, func(k *keeping) { k.Paused = true })
}

// Resume goes on with a host or a room that is paused or forgotten.
func (m *Mirror) Resume(name string) error {
	origin, roomID, err := m.named(name)
	if err != nil {
		return err
	}
	if k := m.keepings.get(origin, roomID); k.OptOut != "" {
		return adp.Errorf(adp.InvalidRequest, "it is not copied because of a wish that is not the operator's: %s", k.OptOut)
	}
	if roomID == "" {
		if err := m.with(origin, func(h *host) error { return h.pause(false) }); err != nil {
			return err
		}
	}
	if err := m.decide(origin, roomID, func(k *keeping) { k.Paused, k.Forgotten = false, false }); err != nil {
		return err
	}
	return m.retry(origin, roomID)
}

// Retry asks again at once about a host, its stuck rooms included, or about one room.
// Rooms of the host that put us out as an observer are joined again.
func (m *Mirror) Retry(name string) error {
	origin, roomID, err := m.named(name)
	if err != nil {
		return err
	}
	return m.retry(origin, roomID)
}

// ReadKeys reads the did:web document of a followed host again soon: something was
// signed by a key that is not known. It does not wait.
func (m *Mirror) ReadKeys(origin string) {
	m.mu.Lock()
	h := m.hosts[origin]
	m.mu.Unlock()
	if h != nil {
		h.keysSoon.Store(true)
		poke(h.wake)
	}
}

func (m *Mirror) retry(origin, roomID string) error {
	if roomID == "" {
		return m.with(origin, func(h *host) error {
			err := h.readmit()
			h.reset()
			return err
		})
	}
	return m.with(origin, func(h *host) error {
		h.mu.Lock()
		if v := h.rooms[roomID]; v != nil {
			v.retry()
		}
		h.mu.Unlock()
		poke(h.wake)
		return nil
	})
}

// reset forgets every wait.
func (h *host) reset() {
	h.anew.Store(true) // first: a look may begin as soon as nothing holds it back
	h.mu.Lock()
	h.held, h.heard, h.viaListed, h.streamHeld = 0, 0, 0, 0 // until the relay brings news again, polling does
	for _, v := range h.rooms {
		v.unsigned = ""
		v.streamAt, v.streamFails = 0, 0
		v.retry()
	}
	h.mu.Unlock()
	poke(h.wake)
}

// Quarantine keeps what is held of a host or a room from every reader, and copies no
// more of it, until Release.
func (m *Mirror) Quarantine(name, reason string) error {
	origin, roomID, err := m.named(name)
	if err != nil {
		return err
	}
	if reason = strings.TrimSpace(reason); reason == "" {
		reason = "no reason given"
	}
	if err := m.decide(origin, roomID, func(k *keeping) { k.Quarantined = reason }); err != nil {
		return err
	}
	if h := m.host(origin); h != nil {
		return h.delist(roomID)
	}
	return nil
}

// Release ends a quarantine.
func (m *Mirror) Release(name string) error {
	origin, roomID, err := m.named(name)
	if err != nil {
		return err
	}
	if m.keepings.get(origin, roomID).Quarantined == "" {
		return adp.Errorf(adp.InvalidRequest, "%.300q is not in quarantine", name)
	}
	if err := m.decide(origin, roomID, func(k *keeping) { k.Quarantined = "" }); err != nil {
		return err
	}
	if !m.Followed(origin) {
		return nil
	}
	return m.retry(origin, roomID)
}

// decide keeps what was said, and tells readers and the index.
func (m *Mirror) decide(origin, roomID string, change func(*keeping)) error {
	changed, err := m.say(origin, roomID, change)
	if err != nil || !changed {
		return err
	}
	for _, r := range m.o.Replicas.Of(origin) {
		if (roomID == "" || r.RoomID == roomID) && r.Row().Seq > 0 {
			r.Wake() // streams of what is not shown any more end
			m.o.Changed(r)
		}
	}
	return nil
}

// Forgotten is what Forget drops, or would drop.
type Forgotten struct {
	Done    bool     `json:"done"`
	Rooms   int64    `json:"rooms"`
	Records int64    `json:"records"`
	Bytes   int64    `json:"bytes"`
	URLs    []string `json:"urls"`   // of the rooms, at most 100
	Listed  int64    `json:"listed"` // rooms of which nothing is held, and that are listed no more
}

// Forget drops what is held of a host or a room. Statements, attestations and
// evidence stay. Unless do, it only tells what it would drop. What is forgotten is
// not copied again before Resume, or, for a host, Add.
func (m *Mirror) Forget(name string, do bool) (out Forgotten, err error) {
	origin, roomID, err := m.named(name)
	if err != nil {
		return out, err
	}
	h := m.host(origin)
	if h != nil { // before the decision: a look lets go of them from then on
		out.Listed = int64(len(h.onlyListed(roomID)))
	}
	if do { // on disk first: what a crash leaves is dropped at the next start
		if err := m.decide(origin, roomID, func(k *keeping) { k.Forgotten = true }); err != nil {
			return out, err
		}
	}
	out.URLs = []string{}
	var drop []*replica.Replica // looked for after the decision: no more is copied from then on
	for _, r := range m.o.Replicas.Of(origin) {
		if roomID != "" && r.RoomID != roomID {
			continue
		}
		row := r.Row()
		drop = append(drop, r)
		out.Rooms, out.Records, out.Bytes = out.Rooms+1, out.Records+row.Seq, out.Bytes+row.Bytes
		if len(out.URLs) < 100 {
			out.URLs = append(out.URLs, m.RoomURL(origin, r.RoomID))
		}
	}
	if !do {
		return out, nil
	}
	for _, r := range drop {
		if err := m.forget(h, r); err != nil {
			return out, err
		}
	}
	if h != nil {
		if err := h.delist(roomID); err != nil {
			return out, err
		}
	}
	if err := m.forgot(origin, roomID); err != nil {
		return out, err
	}
	out.Done = true
	m.log.Warn("forgotten by the operator", "origin", origin, "room", roomID, "rooms", out.Rooms, "records", out.Records, "bytes", out.Bytes, "listed", out.Listed)
	return out, nil
}

// forgot ends a Forget: of a host that is not followed there is nothing more to say.
func (m *Mirror) forgot(origin, roomID string) error {
	if roomID != "" || m.Followed(origin) {
		return nil
	}
	_, err := m.say(origin, "", func(k *keeping) { k.Forgotten = false })
	return err
}

// finishForgetting drops what a crash left of what the operator had forgotten.
func (m *Mirror) finishForgetting() error {
	for _, r := range m.o.Replicas.All() {
		both := m.keepings.both(r.Origin, r.RoomID)
		if r.Origin == m.o.Own || !both[0].Forgotten && !both[1].Forgotten {
			continue
		}
		row := r.Row()
		if err := m.forget(m.host(r.Origin), r); err != nil {
			return err
		}
		m.log.Warn("forgotten by the operator before the last stop, and dropped now", "origin", r.Origin, "room", r.RoomID, "records", row.Seq, "bytes", row.Bytes)
		if len(m.o.Replicas.Of(r.Origin)) == 0 {
			if err := m.forgot(r.Origin, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Mirror) forget(h *host, r *replica.Replica) error {
	if h != nil {
		h.letGo(r)
		defer h.letGo(r) // whoever is at work on the room may just have made it
	}
	if err := m.o.Replicas.Forget(r); err != nil {
		return fmt.Errorf("forget room %s of %s: %w", r.RoomID, r.Origin, err)
	}
	m.cards.mu.Lock()
	delete(m.cards.of, r.ID)
	m.cards.mu.Unlock()
	m.unlist(r.Origin, r.RoomID)
	return nil
}

// letGo takes a replica out of what is known of its room.
func (h *host) letGo(r *replica.Replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.rooms[r.RoomID]; v != nil && v.r == r {
		v.r = nil
	}
}
