package host

import (
	"encoding/binary"
	"net/http"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// features of ADP §16.1 that this host has.
var features = []string{"rooms", "restricted-rooms", "private-rooms", "join-requests", "join-review", "sse-event-stream", "agent-status", "archives",
	"registered-packs", "external-packs"}

func (h *Host) serveDiscovery(w http.ResponseWriter, _ *http.Request) error {
	access := h.Access()
	web.WriteJSON(w, http.StatusOK, map[string]any{
		"protocol": adp.Protocol, "host": h.authority(), "features": features, "registered_packs": types.RegisteredIDs(),
		"profile":   map[string]any{"mode": "none"},
		"endpoints": map[string]string{"api": h.opt.Origin + "/v1", "sse": h.opt.Origin + "/v1"},
		"limits":    h.opt.Limits,
		"quotas": map[string]any{"room_creation": access.RoomCreation, "rooms_per_creator": access.RoomsPerCreator, "rooms_total": access.RoomsTotal,
			"bytes_per_room": access.BytesPerRoom, "bytes_per_creator": access.BytesPerCreator, "bytes_total": access.BytesTotal,
			"join_request_ttl_ms": h.opt.JoinRequestTTL, "agent_status_ttl_ms": h.opt.AgentStatusTTL},
		"software": map[string]any{"name": "witan", "version": h.opt.Version, "agent_id": h.opt.AgentID},
	})
	return nil
}

// servePublic answers ADP §18.
func (h *Host) servePublic(w http.ResponseWriter, req *http.Request) error {
	q, err := web.ParseQuery(req)
	if err != nil {
		return err
	}
	ids, next, err := h.opt.Directory.Public(q)
	if err != nil {
		return err
	}
	var list [][]byte
	for _, id := range ids {
		r, err := h.find(id)
		if err != nil {
			continue // the directory follows the rooms, never the other way round
		}
		err = r.View(req.Context(), func(s *room.State) { list = append(list, s.Listed(h.roomURL(id), h.now())) })
		if err != nil {
			return h.unavailable(err)
		}
	}
	if next != "" {
		n := url.Values{}
		for k, v := range q {
			n[k] = v
		}
		n.Set("cursor", next)
		web.NextLink(w, h.opt.Origin+"/v1/rooms/public?"+n.Encode())
	}
	web.WriteArray(w, list)
	return nil
}

// serveMine answers GET /v1/me/rooms, newest room first.
func (h *Host) serveMine(w http.ResponseWriter, req *http.Request) error {
	who, err := h.identified(req)
	if err != nil {
		return err
	}
	q, err := h.listQuery(req, "me-rooms", string(room.Scheduled), string(room.Active), string(room.Ended), string(room.Cancelled))
	if err != nil {
		return err
	}
	membership, err := q.word("membership", "active", "left", "banned", "pending")
	if err != nil {
		return err
	}
	list := [][]byte{}
	var last uint64
	more := false
	err = h.mine(who, q.after, func(r *replica.Replica) (bool, error) {
		body, st, ms, err := h.mineIn(req, r, who)
		if err != nil || body == nil || q.status != "" && string(st) != q.status || membership != "" && ms != membership {
			return true, err
		}
		if len(list) == q.limit {
			more = true
			return false, nil
		}
		list, last = append(list, body), r.ID
		return true, nil
	})
	if err != nil {
		return h.unavailable(err)
	}
	if more {
		web.NextLink(w, h.opt.Origin+"/v1/me/rooms?"+q.next(string(binary.BigEndian.AppendUint64(nil, last))))
	}
	web.WriteArray(w, list)
	return nil
}

// mine walks the rooms that concern an agent, newest first, behind a cursor.
func (h *Host) mine(who adp.AgentID, before string, fn func(*replica.Replica) (bool, error)) error {
	from, to := store.MemberRoomRange(string(who))
	if len(before) == 8 {
		to = store.MemberRoom(string(who), binary.BigEndian.Uint64([]byte(before)))
	}
	var ids []uint64
	var bad error
	err := h.st.View(func(r store.Reader) error {
		return r.ScanReverse(from, to, func(key, _ []byte) bool {
			var id uint64
			if _, id, bad = store.ParseMemberRoom(key); bad != nil {
				return false
			}
			ids = append(ids, id)
			return true
		})
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, ok := h.set.ByID(id)
		if !ok || r.Origin != h.opt.Origin {
			continue
		}
		if ok, err := fn(r); !ok || err != nil {
			return err
		}
	}
	return nil
}

// mineIn is one room as an agent sees its own standing in it; nil when nothing
// but an expired request connects them. Of a private room, somebody who may not
// read it learns no more than its ID.
func (h *Host) mineIn(req *http.Request, r *replica.Replica, who adp.AgentID) (body []byte, status room.Status, membership string, err error) {
	now := h.now()
	pending, err := h.hasAsked(r.ID, who, now)
	if err != nil {
		return nil, "", "", err
	}
	err = r.View(req.Context(), func(s *room.State) {
		m, member := s.Members[who]
		switch {
		case member:
			membership = "active"
		case s.Banned[who]:
			membership = "banned"
		case pending:
			membership = "pending"
		case !h.everMember(r, who):
			return
		default:
			membership = "left"
		}
		status = s.StatusAt(now)
		url := h.roomURL(r.RoomID)
		if !s.MayLook(who, now) {
			body = []byte(`{"id":"` + r.RoomID + `","url":"` + url + `","membership":"` + membership + `"}`)
			return
		}
		body = s.ListedFor(url, now, m.Role, membership)
	})
	return body, status, membership, err
}

// everMember tells whether the agent's row comes from a membership, not only
// from a request.
func (h *Host) everMember(r *replica.Replica, who adp.AgentID) bool {
	v, ok, err := h.st.Get(store.MemberRoom(string(who), r.ID))
	return err == nil && ok && string(v) == memberRow
}
