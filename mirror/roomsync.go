package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// syncRequest is what a peer asks on /witan/room-sync/1.
type syncRequest struct {
	AfterSeq int64  `json:"after_seq"`
	Genesis  string `json:"genesis"`
	Limit    int64  `json:"limit"`
	Origin   string `json:"origin"`
	RoomID   string `json:"room_id"`
}

func readSyncRequest(raw []byte) (q syncRequest, err error) {
	v, err := adp.Scan(raw)
	if err != nil {
		return q, err
	}
	var okAfter, okLimit bool
	q.AfterSeq, okAfter = v.Get("after_seq").Int()
	q.Limit, okLimit = v.Get("limit").Int()
	q.Origin, q.RoomID, q.Genesis = v.Get("origin").Text(), v.Get("room_id").Text(), v.Get("genesis").Text()
	switch {
	case v.Kind() != adp.Object || v.Len() != 5:
		return q, errors.New("a request has exactly origin, room_id, genesis, after_seq and limit")
	case !okAfter || q.AfterSeq < 0 || !okLimit || q.Limit < 1 || q.Limit > pageRecords:
		return q, fmt.Errorf("after_seq must be 0 or greater, limit 1 to %d", pageRecords)
	case q.Origin == "" || len(q.Origin) > maxOrigin || !adp.IsRoomID(q.RoomID) || !adp.IsHash(q.Genesis):
		return q, errors.New("origin, room_id and genesis must name a room")
	}
	return q, nil
}

// errNoSuchRoom is what a peer is told of a room that it may not have, too.
var errNoSuchRoom = errors.New("no such public room here")

// ServeRoomSync answers one request on ProtocolRoomSync: the records of a public
// room behind a seq, and the newest head of it that a bound key signed, or null.
func (m *Mirror) ServeRoomSync(ctx context.Context, _ string, request []byte) ([]byte, error) {
	q, err := readSyncRequest(request)
	if err != nil {
		return nil, err
	}
	r, ok := m.o.Replicas.GetKey(replica.Key{Origin: q.Origin, RoomID: q.RoomID, Genesis: q.Genesis})
	if !ok || r.Row().Seq == 0 {
		return nil, errNoSuchRoom
	}
	if _, hidden := m.Hidden(r); hidden {
		return nil, errNoSuchRoom
	}
	public, err := isPublic(ctx, r)
	if err != nil {
		m.log.Error("a room cannot be read for a peer", "origin", r.Origin, "room", r.RoomID, "error", err)
		return nil, errors.New("the room cannot be read now")
	}
	if !public {
		return nil, errNoSuchRoom
	}
	recs, err := r.Read(q.AfterSeq, int(q.Limit), MaxSyncResponse-64<<10)
	if replica.IsGone(err) {
		return nil, errNoSuchRoom
	}
	if err != nil {
		m.log.Error("records cannot be read for a peer", "origin", r.Origin, "room", r.RoomID, "error", err)
		return nil, errors.New("the room cannot be read now")
	}
	head, err := m.headOf(r)
	if err != nil {
		m.log.Error("a head cannot be signed", "room", r.RoomID, "error", err)
	}
	return relayMessage(head.raw, recs), nil
}

// headOf is the newest signed head of a replica, or none.
func (m *Mirror) headOf(r *replica.Replica) (signedHead, error) {
	if r.Origin == m.o.Own {
		return m.publisher.headNow(m, r)
	}
	head, _ := m.newestHead(r.Key)
	return head, nil
}

func isPublic(ctx context.Context, r *replica.Replica) (public bool, err error) {
	err = r.View(ctx, func(s *room.State) { public = s.Contract != nil && s.Contract.Visibility == room.Public })
	return public, err
}

// relayMessage puts canonical texts together: {"head":…,"records":[…]}.
func relayMessage(head []byte, recs [][]byte) []byte {
	size := len(head) + 32
	for _, r := range recs {
		size += len(r) + 1
	}
	if head == nil {
		head = []byte("null")
	}
	b := make([]byte, 0, size)
	b = append(append(b, `{"head":`...), head...)
	b = append(append(b, `,"records":[`...), bytes.Join(recs, []byte(","))...)
	return append(b, "]}"...)
}

// askPeer asks a peer for the records of a room behind a seq. The head it knows, if
// its key speaks for the host, is remembered.
func (h *host) askPeer(ctx context.Context, peer string, k replica.Key, after int64, limit int) ([]element, error) {
	q, err := adp.EncodeValue(syncRequest{Origin: k.Origin, RoomID: k.RoomID, Genesis: k.Genesis, AfterSeq: after, Limit: int64(limit)})
	if err != nil {
		return nil, err
	}
	raw, err := h.m.network.Request(ctx, peer, q.Raw())
	if err != nil {
		return nil, err
	}
	v, err := adp.ScanDepth(raw, adp.RecordDepth+2)
	if err != nil {
		return nil, fmt.Errorf("the answer of a peer: %w", err)
	}
	list, said := v.Get("records"), v.Get("head")
	if v.Kind() != adp.Object || v.Len() != 2 || list.Kind() != adp.Array || !said.Exists() || list.Len() > limit {
		return nil, errors.New("the answer of a peer has not exactly head and records, or more records than asked for")
	}
	if said.Kind() != adp.Null {
		switch head, err := verifiedHead(said, h.m.speaksFor); {
		case errors.Is(err, errNotBound) && head.Key() == k:
			// an honest peer may know other keys of the host than we do, or have kept a head
			// of one that is retired; it covers nothing here
		case err != nil || head.Key() != k:
			return nil, fmt.Errorf("the answer of a peer holds a head that is not one, or not of this room: %v", err)
		default:
			h.m.learn(head)
		}
	}
	items := make([]element, 0, list.Len())
	for e := range list.Elements() {
		items = append(items, element{raw: bytes.Clone(e.Raw())})
	}
	return items, nil
}

// learn remembers a verified head that did not come by gossip.
func (m *Mirror) learn(head signedHead) {
	switch place, other := m.heads.add(head); place {
	case headNew:
		m.see(head)
	case headContradiction:
		select {
		case m.relay.conflicts <- [2]signedHead{other, head}:
		default:
			m.log.Error("too many contradictions wait; one is not kept", "origin", head.Origin, "room", head.RoomID)
		}
	}
}
