package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/oklog/ulid/v2"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// Bounds of open join requests.
const (
	requestsPerApplicant = 5
	requestsPerRoom      = 1000
)

// requestDepth leaves room for the request inside a signed review: envelope,
// event, payload, request.
const requestDepth = adp.MaxDepth - 4

// requestRow is a join request as it is stored (ADP §11).
type requestRow struct {
	Request      json.RawMessage `json:"request"` // canonical and immutable
	Applicant    adp.AgentID     `json:"applicant"`
	Perspective  string          `json:"perspective,omitempty"`
	ExpiresAt    int64           `json:"expires_at"`
	Status       string          `json:"status"`
	ApprovedRole types.Role      `json:"approved_role,omitempty"`
	ReviewReason string          `json:"review_reason,omitempty"`
	ReviewedBy   adp.AgentID     `json:"reviewed_by,omitempty"`
	ReviewedAt   int64           `json:"reviewed_at,omitempty"`
	Consumed     bool            `json:"consumed,omitempty"`
}

func (q requestRow) id() string {
	v, err := adp.Scan(q.Request)
	if err != nil {
		return ""
	}
	return v.Get("id").Text()
}

// statusAt is the status as it is shown: what was neither used nor decided in
// time has expired.
func (q requestRow) statusAt(now int64) string {
	if q.ExpiresAt <= now && !q.Consumed && q.Status != "rejected" {
		return "expired"
	}
	return q.Status
}

// render is the answer of ADP §11 and wire-facts §1.
func (q requestRow) render(now int64) any {
	out := map[string]any{"request": q.Request, "status": q.statusAt(now)}
	if q.Status == "pending" {
		return out
	}
	if q.ApprovedRole != "" {
		out["approved_role"] = q.ApprovedRole
	}
	if q.ReviewReason != "" {
		out["review_reason"] = q.ReviewReason
	}
	out["reviewed_at"] = q.ReviewedAt
	if out["reviewed_by"] = nil; q.ReviewedBy != "" {
		out["reviewed_by"] = q.ReviewedBy
	}
	return out
}

func (h *Host) requestRow(replicaID uint64, id string) (requestRow, bool, error) {
	var q requestRow
	if len(id) > 64 {
		return q, false, nil
	}
	key := store.JoinRequest(replicaID, id)
	if flying, ok := h.flying.Load(string(key)); ok {
		return *flying.(*requestRow), true, nil
	}
	raw, ok, err := h.st.Get(key)
	if err != nil || !ok {
		return q, false, err
	}
	return q, true, json.Unmarshal(raw, &q)
}

// request shows a stored request to the state machine.
func (h *Host) request(replicaID uint64, id string) (room.JoinRequest, bool) {
	q, ok, err := h.requestRow(replicaID, id)
	if err != nil || !ok {
		return room.JoinRequest{}, false
	}
	v, err := adp.Scan(q.Request)
	if err != nil {
		return room.JoinRequest{}, false
	}
	return room.JoinRequest{Object: v, Applicant: q.Applicant, Perspective: q.Perspective, Status: q.Status, ApprovedRole: q.ApprovedRole,
		ExpiresAt: q.ExpiresAt, Consumed: q.Consumed}, true
}

// requests lists the stored requests of a room, oldest first.
func (h *Host) requests(replicaID uint64) ([]requestRow, error) {
	var all []requestRow
	var bad error
	err := h.st.View(func(r store.Reader) error {
		from, to := store.JoinRequestRange(replicaID)
		return r.Scan(from, to, func(_, value []byte) bool {
			var q requestRow
			if bad = json.Unmarshal(value, &q); bad != nil {
				return false
			}
			all = append(all, q)
			return true
		})
	})
	if err == nil {
		err = bad
	}
	return all, err
}

// RequestJoin makes a join request (ADP §11).
func (h *Host) RequestJoin(ctx context.Context, r *replica.Replica, applicant adp.AgentID, body []byte) (requestRow, error) {
	v, err := adp.ScanDepth(body, requestDepth)
	if err != nil {
		return requestRow{}, adp.Errorf(adp.InvalidRequest, "the body is %v", err)
	}
	if err := room.CheckJoinRequest(v); err != nil {
		return requestRow{}, err
	}
	if err := h.mayWrite(applicant); err != nil {
		return requestRow{}, err
	}
	now := h.now()
	role := types.Role(v.Get("role").Text())
	q := requestRow{Applicant: applicant, Perspective: v.Get("perspective").Text(), Status: "pending", ExpiresAt: now + h.opt.JoinRequestTTL}
	var refused error
	err = r.View(ctx, func(s *room.State) {
		switch status := s.StatusAt(now); {
		case status == room.Ended:
			refused = adp.Errorf(adp.RoomEnded, "the room has ended and takes no members")
		case status == room.Cancelled:
			refused = adp.Errorf(adp.RoomNotActive, "the room was cancelled and takes no members")
		case s.IsMember(applicant):
			refused = adp.Errorf(adp.InvalidRequest, "you are a member of the room already")
		case role == "observer" && s.Contract.Policy.NoObservers:
			refused = adp.Errorf(adp.RoleNotAllowed, "the room takes no observers (policy.observer_allowed is false)")
		case s.AutoApproves(applicant, role):
			q.Status, q.ApprovedRole, q.ReviewReason, q.ReviewedAt = "approved", role, "a public room approves valid requests by itself", now
		}
	})
	if err != nil {
		return requestRow{}, h.unavailable(err)
	}
	if refused != nil {
		return requestRow{}, refused
	}
	id := "jr_" + ulid.Make().String()
	object := map[string]any{"id": id, "room_id": r.RoomID, "applicant": applicant, "created_at": now, "expires_at": q.ExpiresAt}
	for name, member := range v.Members() {
		object[name] = member
	}
	o, err := adp.EncodeValue(object)
	if err != nil {
		return requestRow{}, err
	}
	q.Request = o.Raw()
	if most := h.opt.Limits.PayloadBytes / 2; most > 0 && int64(len(q.Request)) > most { // a review has to carry it
		return requestRow{}, adp.Errorf(adp.PayloadTooLarge, "a join request may have %d bytes in its canonical form", most).With("max_bytes", most)
	}
	return q, h.keepRequest(r, id, role, q, now)
}

func (h *Host) keepRequest(r *replica.Replica, id string, role types.Role, q requestRow, now int64) error {
	if err := h.openAsk(r.ID, id, q, now); err != nil {
		return err
	}
	if err := h.storeRequest(r.ID, id, q); err != nil {
		h.closeAsk(r.ID, id)
		return err
	}
	data, err := json.Marshal(map[string]any{"room_id": r.RoomID, "request_id": id, "applicant": q.Applicant, "role": role,
		"created_at": now, "expires_at": q.ExpiresAt})
	if err != nil {
		return err
	}
	h.statuses.announce(r.ID, item{kind: "room.join_request", reviewers: true, data: data})
	return nil
}

// storeRequest commits a request, and its applicant's standing unless a
// membership has made one.
func (h *Host) storeRequest(replicaID uint64, id string, q requestRow) error {
	raw, err := json.Marshal(q)
	if err != nil {
		return err
	}
	standing := store.MemberRoom(string(q.Applicant), replicaID)
	for range 4 * requestsPerApplicant { // each conflict is the success of another
		var b store.Batch
		b.Put(store.JoinRequest(replicaID, id), raw)
		var old []byte
		var had bool
		if old, had, err = h.st.Get(standing); err == nil {
			if !had {
				old = nil
			}
			if string(old) != memberRow {
				b.Expect(standing, old)
				b.Put(standing, []byte(requestRowMark+id))
			}
			err = h.st.Commit(&b)
		}
		if !errors.Is(err, store.ErrConflict) { // it joined, or was swept, meanwhile
			break
		}
	}
	if err != nil {
		return h.unavailable(err)
	}
	return nil
}

// follow puts what a change means outside of the log into the same commit: the
// fate of a join request, and which rooms are an agent's own. settled is to be
// called once the commit has landed, or failed.
func (h *Host) follow(b *store.Batch, replicaID uint64, e *adp.Envelope, ch *room.Change) (settled func(error), err error) {
	h.standing(b, replicaID, ch)
	if ch.RequestID == "" {
		return func(error) {}, nil
	}
	q, ok, err := h.requestRow(replicaID, ch.RequestID)
	if err != nil || !ok {
		return func(error) {}, err // swept long ago: the chain still has the review
	}
	switch e.Type {
	case room.Review:
		q.ReviewedBy, q.ReviewedAt, q.ReviewReason = e.Actor, h.now(), e.Payload.Get("reason").Text()
		if q.Status = "rejected"; ch.Request.Role != "" {
			q.Status, q.ApprovedRole = "approved", ch.Request.Role
		}
	case room.Join:
		q.Consumed = true
	}
	raw, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	key := store.JoinRequest(replicaID, ch.RequestID)
	b.Put(key, raw)
	// until it is on disk, the next turn reads it here
	h.flying.Store(string(key), &q)
	return func(err error) {
		h.flying.CompareAndDelete(string(key), &q)
		if err == nil && (q.Consumed || q.Status == "rejected") {
			h.closeAsk(replicaID, ch.RequestID)
		}
	}, nil
}

// What a MemberRoom row says: the agent is or was a member, or only asked, the
// last time with the request whose ID follows.
const (
	memberRow      = "member"
	requestRowMark = "request "
)

// standing lists the room among those of every agent that the change concerns.
func (h *Host) standing(b *store.Batch, replicaID uint64, ch *room.Change) {
	for _, m := range ch.Members {
		b.Put(store.MemberRoom(string(m.Agent), replicaID), []byte(memberRow))
	}
	if ch.Ban != "" {
		b.Put(store.MemberRoom(string(ch.Ban), replicaID), []byte(memberRow))
	}
}

// sweepRequests deletes requests that expired a week ago, and the standing of
// agents that had nothing else in the room.
func (h *Host) sweepRequests(now int64) error {
	for _, r := range h.set.Of(h.opt.Origin) {
		if err := h.sweepRoom(r.ID, now-7*24*3600_000); err != nil {
			return err
		}
	}
	return nil
}

// sweptAtOnce keeps a batch below what the store commits.
const sweptAtOnce = 10_000

func (h *Host) sweepRoom(replicaID uint64, before int64) error {
	all, err := h.requests(replicaID)
	if err != nil {
		return err
	}
	var b store.Batch
	gone, kept := map[adp.AgentID]bool{}, map[adp.AgentID]bool{}
	n := 0
	for _, q := range all {
		if q.ExpiresAt >= before || n == sweptAtOnce {
			kept[q.Applicant] = true
			continue
		}
		b.Delete(store.JoinRequest(replicaID, q.id()))
		gone[q.Applicant] = true
		n++
	}
	for applicant := range gone {
		key := store.MemberRoom(string(applicant), replicaID)
		v, ok, err := h.st.Get(key)
		if err != nil {
			return err
		}
		if ok && string(v) != memberRow && !kept[applicant] {
			b.Expect(key, v) // a new request would have changed it
			b.Delete(key)
		}
	}
	if n == 0 {
		return nil
	}
	if err := h.st.Commit(&b); !errors.Is(err, store.ErrConflict) { // somebody joined or asked: next time
		return err
	}
	return nil
}
