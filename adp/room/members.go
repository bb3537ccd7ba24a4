package room

import (
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// seat checks that the room may have one more member in a role: policy, and
// the limits on speakers and observers. moving is the agent's present role, ""
// for one who joins.
func (c *checker) seat(r, moving types.Role) {
	p := c.s.Contract.Policy
	if r == "observer" {
		if p.NoObservers {
			c.fail(adp.RoleNotAllowed, "the room takes no observers (policy.observer_allowed is false)")
		}
		if c.live() && moving != "observer" {
			if l := c.ctx.Live.Limits.Observers; l > 0 && c.s.Observers() >= l {
				c.fail(adp.RoleNotAllowed, "the room is full: it has %d observers, the most that this host allows", l)
			}
		}
		return
	}
	if Speaks(moving) {
		return
	}
	limit := p.MaxSpeakers
	if c.live() {
		if l := c.ctx.Live.Limits.Speakers; l > 0 && (limit == 0 || l < limit) {
			limit = l
		}
	}
	if limit > 0 && c.s.speakers >= limit {
		c.fail(adp.MaxSpeakersExceeded, "the room has %d members in speaking roles, the most that it allows", c.s.speakers)
	}
}

// join keeps ADP §10.2.
func (c *checker) join() {
	s, a := c.s, c.e.Actor
	m := Member{Role: types.Role(c.p.Get("role").Text()), Perspective: c.p.Get("perspective").Text()}
	if s.IsMember(a) {
		c.fail(adp.InvalidEvent, "you are a member already")
	}
	if s.Banned[a] {
		c.fail(adp.MemberBanned, "you are banned from this room; a join request that is approved lifts the ban")
	}
	if id := c.p.Get("request_id"); id.Exists() {
		if m.Role == "observer" && s.Contract.Policy.NoObservers {
			c.fail(adp.RoleNotAllowed, "the room takes no observers (policy.observer_allowed is false)")
		}
		m.Perspective = c.byRequest(id.Text(), m.Role)
	} else {
		switch {
		case s.Contract.Visibility != Public:
			c.fail(adp.ApprovalRequired, "the room is %s: make a join request first, then join with its request_id", s.Contract.Visibility)
		case m.Role == "moderator" && !slices.Contains(s.Contract.Policy.Moderators, a):
			c.fail(adp.ApprovalRequired, "only agents in policy.moderator_agent_ids join as moderator without an approved request")
		}
	}
	c.seat(m.Role, "")
	c.ch.Members = []MemberChange{{a, &m, "joined"}}
}

// byRequest judges a join that rests on a join request, uses the request up,
// and gives the perspective.
func (c *checker) byRequest(id string, r types.Role) string {
	s, a := c.s, c.e.Actor
	q, reviewed := s.Requests[id]
	status := "approved"
	if reviewed && q.Role == "" {
		status = "rejected"
	}
	switch {
	case reviewed:
	case c.live():
		known, ok := c.ctx.Live.Request(id)
		if !ok {
			c.fail(adp.JoinRequestNotFound, "there is no join request of yours with this request_id in this room")
			return ""
		}
		status = known.Status
		q = ReviewedRequest{known.Applicant, known.ApprovedRole, known.Perspective, known.ExpiresAt, known.Consumed}
	case !s.AutoApproves(a, r):
		c.fail(adp.JoinRequestNotApproved, "no review in the chain approves this request, and it is not one that a public room approves by itself")
		return ""
	default: // the approval is an HTTP resource and left no record
		c.doubt("the join rests on an approval that left no record")
		return ""
	}
	switch {
	case q.Applicant != a:
		c.fail(adp.JoinRequestNotFound, "there is no join request of yours with this request_id in this room")
	case q.Consumed:
		c.fail(adp.JoinRequestExpired, "the join request has been used; make a new one")
	case status == "pending" && q.ExpiresAt > c.ctx.At, status == "rejected":
		c.fail(adp.JoinRequestNotApproved, "the join request is %s", status)
	case q.ExpiresAt <= c.ctx.At:
		c.fail(adp.JoinRequestExpired, "the join request has expired; make a new one")
	case q.Role != r:
		c.fail(adp.JoinRequestRoleMismatch, "the request was approved for the role %s", q.Role)
	case !reviewed && !s.AutoApproves(a, r): // it rests on a policy that has changed since
		c.fail(adp.JoinRequestNotApproved, "the host's own approval no longer stands: the policy has changed; make a new request, for review")
	}
	q.Consumed = true
	c.ch.RequestID, c.ch.Request = id, q
	return q.Perspective
}

// AutoApproves tells whether a host may approve a join request without a review
// (ADP §11): in public rooms, except for the banned, and for moderators whom the
// policy does not list.
func (s *State) AutoApproves(a adp.AgentID, r types.Role) bool {
	return s.Contract.Visibility == Public && !s.Banned[a] && (r != "moderator" || slices.Contains(s.Contract.Policy.Moderators, a))
}

// review keeps ADP §11.
func (c *checker) review() {
	s, req := c.s, c.p.Get("request")
	id := req.Get("id").Text()
	applicant := adp.AgentID(req.Get("applicant").Text())
	expires, _ := req.Get("expires_at").Int()
	q := ReviewedRequest{Applicant: applicant, Perspective: req.Get("perspective").Text(), ExpiresAt: expires}
	if !req.Get("room_id").Is(s.RoomID) {
		c.fail(adp.InvalidEvent, "request.room_id is not this room")
	}
	if old, ok := s.Requests[id]; ok {
		c.fail(adp.InvalidEvent, "the join request has been reviewed already")
		q.Consumed = old.Consumed
	}
	if c.live() {
		known, ok := c.ctx.Live.Request(id)
		switch {
		case !ok:
			c.fail(adp.JoinRequestNotFound, "there is no join request with this id in this room")
		case string(known.Object.Raw()) != string(req.Raw()):
			c.fail(adp.InvalidEvent, "request must be the immutable request object, exactly as GET …/join-requests/{id} shows it")
		case known.Status != "pending":
			c.fail(adp.InvalidEvent, "the join request is %s already", known.Status)
		}
	}
	if expires <= c.ctx.At {
		c.fail(adp.JoinRequestExpired, "the join request has expired; the applicant has to make a new one")
	}
	if c.p.Get("decision").Is("approve") {
		q.Role = types.Role(c.p.Get("role").Text())
		if s.IsMember(applicant) {
			if c.live() {
				c.fail(adp.InvalidEvent, "the applicant is a member already")
			}
		} else {
			c.seat(q.Role, "")
		}
		if s.Banned[applicant] { // the only way back (ADP §10.5)
			c.ch.Unban = applicant
		}
	}
	c.ch.RequestID, c.ch.Request = id, q
}

// leave keeps ADP §10.3.
func (c *checker) leave() {
	if !c.s.IsMember(c.e.Actor) {
		c.fail(adp.PermissionDenied, "you are not a member of this room")
	}
	c.references(false)
	c.ch.Members = []MemberChange{{c.e.Actor, nil, "left"}}
}

// roleUpdate keeps ADP §10.4.
func (c *checker) roleUpdate() {
	a := adp.AgentID(c.p.Get("member").Text())
	m, ok := c.s.Members[a]
	if !ok {
		c.fail(adp.InvalidEvent, "payload.member is no active member")
		c.void = true
		return
	}
	r := types.Role(c.p.Get("role").Text())
	c.seat(r, m.Role)
	m.Role = r
	c.ch.Members = []MemberChange{{a, &m, "role"}}
}

// remove keeps ADP §10.5.
func (c *checker) remove() {
	a := adp.AgentID(c.p.Get("member").Text())
	ban, _ := c.p.Get("ban").Bool()
	switch {
	case a == c.s.Creator:
		c.fail(adp.InvalidEvent, "the creator can be neither removed nor banned")
	case a == c.e.Actor:
		c.fail(adp.InvalidEvent, "to leave, send room.leave")
	case !ban && !c.s.IsMember(a):
		c.fail(adp.InvalidEvent, "payload.member is no active member; only a ban may name a stranger")
	}
	c.references(false)
	if c.s.IsMember(a) {
		c.ch.Members = []MemberChange{{a, nil, "removed"}}
	}
	if ban {
		c.ch.Ban = a
	}
}
