package room

import (
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// world makers for the tables; each gives a fresh one.
func with(over obj, then func(w *world)) func(testing.TB) *world {
	return func(t testing.TB) *world {
		w := open(t, over)
		if then != nil {
			then(w)
		}
		return w
	}
}

func policy(p obj) obj { return obj{"policy": p} }

// ADP §10.2, direct joins.
func TestJoinRules(t *testing.T) {
	full := with(policy(obj{"max_speakers": 2, "moderator_agent_ids": []adp.AgentID{chair.id}}), func(w *world) { w.must(speaker, Join, obj{"role": "speaker"}) })
	banned := with(nil, func(w *world) { w.must(creator, Remove, obj{"member": stranger.id, "ban": true}) })
	hostLimit := func(over func(*Limits)) func(testing.TB) *world {
		return func(t testing.TB) *world {
			w := peopled(t)
			over(&w.limits)
			return w
		}
	}
	gone := with(nil, func(w *world) { w.must(creator, Leave, obj{}) })
	check(t, []rule{
		{"speaker", nil, stranger, Join, obj{"role": "speaker", "perspective": "p"}, nil, "", ""},
		{"observer", nil, stranger, Join, obj{"role": "observer"}, nil, "", ""},
		{"member already", nil, speaker, Join, obj{"role": "speaker"}, nil, adp.InvalidEvent, ""},
		{"the creator is a member", nil, creator, Join, obj{"role": "speaker"}, nil, adp.InvalidEvent, ""},
		{"moderator unlisted", nil, stranger, Join, obj{"role": "moderator"}, nil, adp.ApprovalRequired, ""},
		{"moderator listed", with(nil, nil), chair, Join, obj{"role": "moderator"}, nil, "", ""},
		{"listed, but as speaker", with(nil, nil), chair, Join, obj{"role": "speaker"}, nil, "", ""},
		{"banned", banned, stranger, Join, obj{"role": "observer"}, nil, adp.MemberBanned, ""},
		{"speakers full", full, stranger, Join, obj{"role": "speaker"}, nil, adp.MaxSpeakersExceeded, ""},
		{"speakers full, for moderators too", full, chair, Join, obj{"role": "moderator"}, nil, adp.MaxSpeakersExceeded, ""},
		{"speakers full, observers not", full, stranger, Join, obj{"role": "observer"}, nil, "", ""},
		{"no observers", with(policy(obj{"observer_allowed": false}), nil), stranger, Join, obj{"role": "observer"}, nil, adp.RoleNotAllowed, ""},
		{"restricted", with(obj{"visibility": "restricted"}, nil), stranger, Join, obj{"role": "speaker"}, nil, adp.ApprovalRequired, ""},
		{"private", with(obj{"visibility": "private"}, nil), stranger, Join, obj{"role": "observer"}, nil, adp.ApprovalRequired, ""},
		{"restricted, listed moderator", with(obj{"visibility": "restricted"}, nil), chair, Join, obj{"role": "moderator"}, nil, adp.ApprovalRequired, ""},
		{"creator who left, as moderator", gone, creator, Join, obj{"role": "moderator"}, nil, adp.ApprovalRequired, ""},
		{"creator who left, as speaker", gone, creator, Join, obj{"role": "speaker"}, nil, "", ""},
		{"no role", nil, stranger, Join, obj{}, nil, adp.InvalidEvent, ""},
		{"unknown role", nil, stranger, Join, obj{"role": "expert"}, nil, adp.InvalidEvent, ""},
		{"request and perspective", nil, stranger, Join, obj{"role": "speaker", "request_id": "jr_1", "perspective": "p"}, nil, adp.InvalidEvent, ""},
		{"foreign member", nil, stranger, Join, obj{"role": "speaker", "extra": obj{}}, nil, adp.InvalidEvent, ""},
		{"host's speakers", hostLimit(func(l *Limits) { l.Speakers = 3 }), stranger, Join, obj{"role": "speaker"}, nil, adp.MaxSpeakersExceeded, "allowed"},
		{"host's observers", hostLimit(func(l *Limits) { l.Observers = 1 }), stranger, Join, obj{"role": "observer"}, nil, adp.RoleNotAllowed, "allowed"},
	})
}

// ADP §10.2, §11: joins that rest on a request.
func TestJoinByRequest(t *testing.T) {
	shut := obj{"visibility": "restricted"}
	review := func(w *world, decision string, asked, approved types.Role) {
		q := w.ask(stranger, asked, "pending")
		p := obj{"request": q, "decision": decision}
		if decision == "approve" {
			p["role"] = approved
		}
		w.must(creator, Review, p)
	}
	by := func(role string) obj { return obj{"role": role, "request_id": "jr_1"} }
	check(t, []rule{
		{"approved", with(shut, func(w *world) { review(w, "approve", "speaker", "speaker") }), stranger, Join, by("speaker"), nil, "", ""},
		{"approved, private", with(obj{"visibility": "private"}, func(w *world) { review(w, "approve", "speaker", "speaker") }), stranger, Join, by("speaker"), nil, "", ""},
		{"approved in a public room", with(nil, func(w *world) { review(w, "approve", "moderator", "moderator") }), stranger, Join, by("moderator"), nil, "", ""},
		{"approved as another role", with(shut, func(w *world) { review(w, "approve", "speaker", "observer") }), stranger, Join, by("speaker"), nil, adp.JoinRequestRoleMismatch, ""},
		{"approved for another agent", with(shut, func(w *world) { review(w, "approve", "speaker", "speaker") }), observer, Join, by("speaker"), nil, adp.JoinRequestNotFound, ""},
		{"rejected", with(shut, func(w *world) { review(w, "reject", "speaker", "") }), stranger, Join, by("speaker"), nil, adp.JoinRequestNotApproved, ""},
		{"expired", with(shut, func(w *world) { review(w, "approve", "speaker", "speaker"); w.now += hour / 2 }), stranger, Join, by("speaker"), nil, adp.JoinRequestExpired, ""},
		{"a moment before it expires", with(shut, func(w *world) { review(w, "approve", "speaker", "speaker"); w.now += hour/2 - 1 }), stranger, Join, by("speaker"), nil, "", ""},
		{"used", with(shut, func(w *world) { w.admit(stranger, "speaker"); w.must(stranger, Leave, obj{}) }), stranger, Join, by("speaker"), nil, adp.JoinRequestExpired, ""},
		{"pending", with(shut, func(w *world) { w.ask(stranger, "speaker", "pending") }), stranger, Join, by("speaker"), nil, adp.JoinRequestNotApproved, string(adp.JoinRequestNotApproved)},
		{"pending and expired", with(shut, func(w *world) { w.ask(stranger, "speaker", "pending"); w.now += hour / 2 }), stranger, Join, by("speaker"), nil, adp.JoinRequestExpired, string(adp.JoinRequestNotApproved)},
		{"unknown", with(shut, nil), stranger, Join, by("speaker"), nil, adp.JoinRequestNotFound, string(adp.JoinRequestNotApproved)},
		{"banned after the approval", with(shut, func(w *world) {
			review(w, "approve", "speaker", "speaker")
			w.must(creator, Remove, obj{"member": stranger.id, "ban": true})
		}), stranger, Join, by("speaker"), nil, adp.MemberBanned, ""},
		{"full by now", with(merge(shut, policy(obj{"max_speakers": 2})), func(w *world) { review(w, "approve", "speaker", "speaker"); w.admit(speaker, "speaker") }), stranger, Join, by("speaker"), nil, adp.MaxSpeakersExceeded, ""},
		{"observers shut out by now", with(shut, func(w *world) {
			review(w, "approve", "observer", "observer")
			w.must(creator, Update, policy(obj{"observer_allowed": false}))
		}), stranger, Join, by("observer"), nil, adp.RoleNotAllowed, ""},
		// wire-facts §3.5: an approval over HTTP leaves no record
		{"public, approved by the host", with(nil, func(w *world) { w.ask(stranger, "speaker", "approved") }), stranger, Join, by("speaker"), nil, "", "unverifiable"},
		{"public, unknown", with(nil, nil), stranger, Join, by("speaker"), nil, adp.JoinRequestNotFound, "unverifiable"},
		{"public, moderator in the policy", with(nil, func(w *world) { w.ask(chair, "moderator", "approved") }), chair, Join, by("moderator"), nil, "", "unverifiable"},
		{"public, moderator not in it", with(nil, func(w *world) { w.ask(stranger, "moderator", "approved") }), stranger, Join, by("moderator"), nil, adp.JoinRequestNotApproved, ""},
		{"public, banned", with(nil, func(w *world) {
			w.must(creator, Remove, obj{"member": stranger.id, "ban": true})
			w.ask(stranger, "speaker", "approved")
		}), stranger, Join, by("speaker"), nil, adp.MemberBanned, ""},
		{"public, member already", with(nil, func(w *world) {
			w.must(stranger, Join, obj{"role": "observer"})
			w.ask(stranger, "speaker", "approved")
		}), stranger, Join, by("speaker"), nil, adp.InvalidEvent, ""},
		{"restricted, approved by the host", with(shut, func(w *world) { w.ask(stranger, "speaker", "approved") }), stranger, Join, by("speaker"), nil, adp.JoinRequestNotApproved, ""},
	})
}

// The request gives the perspective, and is used up by the join (ADP §10.2).
func TestRequestIsConsumed(t *testing.T) {
	w := open(t, obj{"visibility": "restricted"})
	w.admit(stranger, "observer")
	if m := w.s.Members[stranger.id]; m != (Member{"observer", "asked"}) {
		t.Errorf("member %+v", m)
	}
	if q := w.s.Requests["jr_1"]; !q.Consumed || q.Applicant != stranger.id {
		t.Errorf("request %+v", q)
	}
	w.must(stranger, Leave, obj{})
	w.refuse(adp.JoinRequestExpired, stranger, Join, obj{"role": "observer", "request_id": "jr_1"})
	w.admit(stranger, "observer") // a new request
	// one that the host approved itself, in a public room
	w = open(t, nil)
	q := w.ask(stranger, "speaker", "approved")
	w.must(stranger, Join, obj{"role": "speaker", "request_id": q["id"]})
	w.must(stranger, Leave, obj{})
	w.refuse(adp.JoinRequestExpired, stranger, Join, obj{"role": "speaker", "request_id": q["id"]})
}

// What has expired is forgotten, so that a room does not grow by requests.
func TestExpiredRequestsAreForgotten(t *testing.T) {
	w := open(t, obj{"visibility": "restricted"})
	for range 63 {
		w.must(creator, Review, obj{"request": w.ask(stranger, "speaker", "pending"), "decision": "reject"})
	}
	w.now += hour/2 + 1
	w.must(creator, Review, obj{"request": w.ask(stranger, "speaker", "pending"), "decision": "reject"})
	if n := len(w.s.Requests); n != 1 {
		t.Errorf("%d requests are kept", n)
	}
	w.refuse(adp.JoinRequestExpired, creator, Review, obj{"request": w.requests["jr_1"].Object, "decision": "reject"})
}

// ADP §11, reviews.
func TestReviewRules(t *testing.T) {
	shut := obj{"visibility": "restricted"}
	asked := func(over obj, then func(w *world)) func(testing.TB) *world {
		return with(merge(shut, over), func(w *world) {
			w.ask(stranger, "speaker", "pending")
			if then != nil {
				then(w)
			}
		})
	}
	request := func(over obj) obj {
		return merge(obj{"id": "jr_1", "room_id": testRoom, "applicant": stranger.id, "role": "speaker", "perspective": "asked", "created_at": t0, "expires_at": t0 + hour/2, "extra": obj{}}, over)
	}
	approve := func(role string, over obj) obj {
		return obj{"request": request(over), "decision": "approve", "role": role}
	}
	reject := obj{"request": request(nil), "decision": "reject", "reason": "full"}
	check(t, []rule{
		{"approve", asked(nil, nil), creator, Review, approve("speaker", nil), nil, "", ""},
		{"approve as another role", asked(nil, nil), creator, Review, approve("observer", nil), nil, "", ""},
		{"approve as moderator", asked(nil, nil), creator, Review, approve("moderator", nil), nil, "", ""},
		{"reject", asked(nil, nil), creator, Review, reject, nil, "", ""},
		{"by a moderator", asked(nil, func(w *world) { w.admit(chair, "moderator") }), chair, Review, reject, nil, "", ""},
		{"by a speaker", asked(nil, func(w *world) { w.admit(speaker, "speaker") }), speaker, Review, reject, nil, adp.PermissionDenied, ""},
		{"by a stranger", asked(nil, nil), observer, Review, reject, nil, adp.PermissionDenied, ""},
		{"by a creator who left", asked(nil, func(w *world) { w.must(creator, Leave, obj{}) }), creator, Review, reject, nil, "", ""},
		{"approve without role", asked(nil, nil), creator, Review, obj{"request": request(nil), "decision": "approve"}, nil, adp.InvalidEvent, ""},
		{"unknown decision", asked(nil, nil), creator, Review, obj{"request": request(nil), "decision": "maybe"}, nil, adp.InvalidEvent, ""},
		{"another room", asked(nil, nil), creator, Review, approve("speaker", obj{"room_id": "other"}), nil, adp.InvalidEvent, ""},
		{"request with a token", asked(nil, nil), creator, Review, approve("speaker", obj{"token": "x"}), nil, adp.InvalidEvent, ""},
		{"request without id", asked(nil, nil), creator, Review, approve("speaker", obj{"id": nil}), nil, adp.InvalidEvent, ""},
		{"request altered", asked(nil, nil), creator, Review, approve("speaker", obj{"reason": "other"}), nil, adp.InvalidEvent, "allowed"}, // the request itself is no record
		{"request unknown", asked(nil, nil), creator, Review, approve("speaker", obj{"id": "jr_9"}), nil, adp.JoinRequestNotFound, "allowed"},
		{"second review", asked(nil, func(w *world) { w.must(creator, Review, reject) }), creator, Review, approve("speaker", nil), nil, adp.InvalidEvent, ""},
		{"after the host approved it", asked(nil, func(w *world) { q := w.requests["jr_1"]; q.Status = "approved"; w.requests["jr_1"] = q }), creator, Review, reject, nil, adp.InvalidEvent, "allowed"},
		{"expired", asked(nil, func(w *world) { w.now += hour / 2 }), creator, Review, reject, nil, adp.JoinRequestExpired, ""},
		{"speakers full", asked(policy(obj{"max_speakers": 1}), nil), creator, Review, approve("speaker", nil), nil, adp.MaxSpeakersExceeded, ""},
		{"speakers full, observers not", asked(policy(obj{"max_speakers": 1}), nil), creator, Review, approve("observer", nil), nil, "", ""},
		{"speakers full, rejected", asked(policy(obj{"max_speakers": 1}), nil), creator, Review, reject, nil, "", ""},
		{"no observers", asked(policy(obj{"observer_allowed": false}), nil), creator, Review, approve("observer", nil), nil, adp.RoleNotAllowed, ""},
		{"a member already", asked(nil, func(w *world) { w.admit(stranger, "observer") }), creator, Review, approve("speaker", nil), nil, adp.InvalidEvent, "allowed"},
	})
}

// ADP §10.5: an approved request is the only way back from a ban.
func TestBanAndUnban(t *testing.T) {
	w := peopled(t)
	w.must(chair, Remove, obj{"member": speaker.id, "ban": true, "reason": "spam"})
	if w.s.IsMember(speaker.id) || !w.s.Banned[speaker.id] || w.s.Speakers() != 2 {
		t.Errorf("members %v, banned %v, speakers %d", w.s.Members, w.s.Banned, w.s.Speakers())
	}
	w.refuse(adp.MemberBanned, speaker, Join, obj{"role": "speaker"})
	w.must(creator, Review, obj{"request": w.ask(speaker, "speaker", "pending"), "decision": "reject"})
	w.refuse(adp.MemberBanned, speaker, Join, obj{"role": "speaker"})
	q := w.ask(speaker, "speaker", "pending")
	w.must(creator, Review, obj{"request": q, "decision": "approve", "role": "observer"})
	if w.s.Banned[speaker.id] {
		t.Error("the approval lifts the ban")
	}
	w.must(speaker, Join, obj{"role": "observer", "request_id": q["id"]})
	w.must(creator, Remove, obj{"member": stranger.id, "ban": true}) // in advance
	w.refuse(adp.MemberBanned, stranger, Join, obj{"role": "observer"})
	// without a ban, one may come back
	w.must(creator, Remove, obj{"member": observer.id})
	w.must(observer, Join, obj{"role": "observer"})
}

func TestRemoveRules(t *testing.T) {
	check(t, []rule{
		{"a member", nil, creator, Remove, obj{"member": speaker.id}, nil, "", ""},
		{"another moderator", nil, chair, Remove, obj{"member": speaker.id, "ban": true}, nil, "", ""},
		{"the creator", nil, chair, Remove, obj{"member": creator.id}, nil, adp.InvalidEvent, ""},
		{"the creator, with a ban", nil, chair, Remove, obj{"member": creator.id, "ban": true}, nil, adp.InvalidEvent, ""},
		{"oneself", nil, chair, Remove, obj{"member": chair.id}, nil, adp.InvalidEvent, ""},
		{"oneself, with a ban", nil, chair, Remove, obj{"member": chair.id, "ban": true}, nil, adp.InvalidEvent, ""},
		{"a stranger", nil, creator, Remove, obj{"member": stranger.id}, nil, adp.InvalidEvent, ""},
		{"a stranger, ban false", nil, creator, Remove, obj{"member": stranger.id, "ban": false}, nil, adp.InvalidEvent, ""},
		{"a stranger, with a ban", nil, creator, Remove, obj{"member": stranger.id, "ban": true}, nil, "", ""},
		{"no member", nil, creator, Remove, obj{}, nil, adp.InvalidEvent, ""},
		{"malformed member", nil, creator, Remove, obj{"member": "did:agent:x"}, nil, adp.InvalidEvent, ""},
		{"ban no bool", nil, creator, Remove, obj{"member": speaker.id, "ban": "yes"}, nil, adp.InvalidEvent, ""},
		{"by a speaker", nil, speaker, Remove, obj{"member": observer.id}, nil, adp.PermissionDenied, ""},
		{"by an observer", nil, observer, Remove, obj{"member": speaker.id}, nil, adp.PermissionDenied, ""},
		{"by a stranger", nil, stranger, Remove, obj{"member": speaker.id}, nil, adp.PermissionDenied, ""},
	})
}

// ADP §10.4.
func TestRoleUpdateRules(t *testing.T) {
	full := with(policy(obj{"max_speakers": 2}), func(w *world) {
		w.must(speaker, Join, obj{"role": "speaker"})
		w.must(observer, Join, obj{"role": "observer"})
	})
	shut := with(nil, func(w *world) {
		w.must(speaker, Join, obj{"role": "speaker"})
		w.must(creator, Update, policy(obj{"observer_allowed": false}))
	})
	crowd := func(t testing.TB) *world { w := peopled(t); w.limits.Observers = 1; return w }
	to := func(a *player, role string) obj { return obj{"member": a.id, "role": role, "reason": "r"} }
	check(t, []rule{
		{"mute", nil, creator, RoleUpdate, to(speaker, "observer"), nil, "", ""},
		{"promote", nil, chair, RoleUpdate, to(observer, "speaker"), nil, "", ""},
		{"the creator's own", nil, creator, RoleUpdate, to(creator, "observer"), nil, "", ""},
		{"by a speaker", nil, speaker, RoleUpdate, to(observer, "speaker"), nil, adp.PermissionDenied, ""},
		{"by a stranger", nil, stranger, RoleUpdate, to(observer, "speaker"), nil, adp.PermissionDenied, ""},
		{"of a stranger", nil, creator, RoleUpdate, to(stranger, "speaker"), nil, adp.InvalidEvent, ""},
		{"to no role", nil, creator, RoleUpdate, to(speaker, "expert"), nil, adp.InvalidEvent, ""},
		{"speakers full", full, creator, RoleUpdate, to(observer, "speaker"), nil, adp.MaxSpeakersExceeded, ""},
		{"speakers full, speaker to moderator", full, creator, RoleUpdate, to(speaker, "moderator"), nil, "", ""},
		{"no observers", shut, creator, RoleUpdate, to(speaker, "observer"), nil, adp.RoleNotAllowed, ""},
		{"host's observers", crowd, creator, RoleUpdate, to(speaker, "observer"), nil, adp.RoleNotAllowed, "allowed"},
		{"host's observers, one already", crowd, creator, RoleUpdate, to(observer, "observer"), nil, "", ""},
	})
	w := peopled(t)
	w.must(creator, RoleUpdate, to(speaker, "observer"))
	if m := w.s.Members[speaker.id]; m != (Member{"observer", "p"}) || w.s.Speakers() != 2 || w.s.Observers() != 2 {
		t.Errorf("member %+v, %d speakers, %d observers", m, w.s.Speakers(), w.s.Observers())
	}
}

// ADP §9.4: a lower limit removes nobody and binds what comes after it.
func TestLowerMaxSpeakers(t *testing.T) {
	w := peopled(t)
	w.must(creator, Update, policy(obj{"max_speakers": 1}))
	if w.s.Speakers() != 3 {
		t.Errorf("%d speakers", w.s.Speakers())
	}
	w.must(speaker, Message, say("still here"))
	w.refuse(adp.MaxSpeakersExceeded, stranger, Join, obj{"role": "speaker"})
	w.refuse(adp.MaxSpeakersExceeded, creator, RoleUpdate, obj{"member": observer.id, "role": "speaker"})
	w.must(creator, RoleUpdate, obj{"member": speaker.id, "role": "moderator"})
}

func TestLeaveRules(t *testing.T) {
	check(t, []rule{
		{"speaker", nil, speaker, Leave, obj{"reason": "done"}, nil, "", ""},
		{"observer", nil, observer, Leave, obj{}, nil, "", ""},
		{"creator", nil, creator, Leave, obj{}, nil, "", ""},
		{"stranger", nil, stranger, Leave, obj{}, nil, adp.PermissionDenied, ""},
		{"foreign member", nil, speaker, Leave, obj{"x": 1}, nil, adp.InvalidEvent, ""},
	})
}

// wire-facts §3.15: creator power passes role checks, never the membership check.
func TestCreatorPower(t *testing.T) {
	w := peopled(t)
	w.must(creator, RoleUpdate, obj{"member": creator.id, "role": "observer"})
	w.must(creator, Message, say("an observer, but the creator"))
	w.must(creator, "a.lead", obj{})
	w.must(creator, Define, obj{"use": "adp:moderation/1.0"})
	w.must(creator, Update, obj{"agenda": "x"})
	w.must(creator, Leave, obj{})
	for _, typ := range []string{Message, "a.sign", "a.lead", "a.open", "review.finding"} {
		w.refuse(adp.PermissionDenied, creator, typ, merge(everything()[Message], nil))
	}
	w.must(creator, Remove, obj{"member": speaker.id}) // manages still
	w.must(creator, Close, obj{})
}

// What a host accepted against the rules took effect all the same.
func TestViolationsTakeEffect(t *testing.T) {
	w := peopled(t)
	if v := w.force(w.event(stranger, Join, obj{"role": "moderator"}, nil)); v.Rule != adp.ApprovalRequired {
		t.Errorf("join: %+v", v)
	}
	if w.s.Members[stranger.id].Role != "moderator" || w.s.Speakers() != 4 {
		t.Errorf("members %v", w.s.Members)
	}
	if v := w.force(w.event(stranger, Update, obj{"agenda": "mine"}, nil)); v.Outcome != Allowed {
		t.Errorf("update: %+v", v)
	}
	if v := w.force(w.event(chair, Remove, obj{"member": creator.id, "ban": true}, nil)); v.Rule != adp.InvalidEvent || w.s.IsMember(creator.id) || !w.s.Banned[creator.id] {
		t.Errorf("remove: %+v, members %v", v, w.s.Members)
	}
	if v := w.force(w.event(speaker, Join, obj{"role": "observer"}, nil)); v.Rule != adp.InvalidEvent || w.s.Members[speaker.id].Role != "observer" || w.s.Speakers() != 2 {
		t.Errorf("second join: %+v, members %v, speakers %d", v, w.s.Members, w.s.Speakers())
	}
	// but a payload that says nothing has no effect
	before := len(w.s.Members)
	for typ, payload := range map[string]any{Join: obj{"role": "king"}, RoleUpdate: obj{"member": speaker.id}, Remove: obj{}, Review: obj{}, Leave: obj{"x": 1}, Close: 1, Update: obj{"topic": ""}} {
		if v := w.force(w.event(chair, typ, payload, nil)); v.Rule != adp.InvalidEvent {
			t.Errorf("%s: %+v", typ, v)
		}
	}
	if len(w.s.Members) != before || w.s.Closed || w.s.Contract.Topic != "Quorum" || w.s.Members[""].Role != "" {
		t.Errorf("void payloads took effect: %v", w.s.Members)
	}
	if v := w.force(w.event(speaker, Close, obj{}, nil)); v.Rule != adp.PermissionDenied || w.s.StatusAt(w.now) != Ended {
		t.Errorf("close: %+v", v)
	}
	if v := w.force(w.event(chair, Message, say("late"), nil)); v.Rule != adp.RoomEnded {
		t.Errorf("late: %+v", v)
	}
}

func TestWhoMayRead(t *testing.T) {
	for _, c := range []struct {
		visibility                string
		nobody, outsider, insider bool
	}{{"public", true, true, true}, {"restricted", false, false, true}, {"private", false, false, true}} {
		w := open(t, obj{"visibility": c.visibility})
		w.admit(speaker, "observer")
		w.must(creator, Leave, obj{})
		for a, want := range map[adp.AgentID]bool{"": c.nobody, stranger.id: c.outsider, speaker.id: c.insider, creator.id: c.insider} {
			if got := w.s.MayRead(a); got != want {
				t.Errorf("%s: may %.20q read: %v", c.visibility, a, got)
			}
		}
	}
}
