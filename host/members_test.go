package host_test

import (
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

func TestMembership(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"policy": obj{"max_speakers": 3}})
	w.act(newAgent(t), id, room.Message, say("x")).refused(403, adp.PermissionDenied)
	speaker, watcher := w.member(id, "speaker"), w.member(id, "observer")
	w.act(speaker, id, room.Join, obj{"role": "speaker"}).denied(adp.InvalidEvent)
	w.act(newAgent(t), id, room.Join, obj{"role": "moderator"}).denied(adp.ApprovalRequired)
	w.act(watcher, id, room.Message, say("x")).refused(403, adp.PermissionDenied)
	third := w.member(id, "speaker")
	w.act(newAgent(t), id, room.Join, obj{"role": "speaker"}).refused(409, adp.MaxSpeakersExceeded)
	w.act(c, id, room.RoleUpdate, obj{"member": watcher.id, "role": "speaker"}).refused(409, adp.MaxSpeakersExceeded)
	w.act(speaker, id, room.RoleUpdate, obj{"member": watcher.id, "role": "observer"}).refused(403, adp.PermissionDenied)
	for typ, p := range map[string]obj{room.Update: {"agenda": "x"}, room.Remove: {"member": watcher.id}, room.Define: {"use": "adp:reactions/1.0"}, room.Close: {}} {
		w.act(speaker, id, typ, p).refused(403, adp.PermissionDenied)
	}
	w.act(c, id, room.RoleUpdate, obj{"member": third.id, "role": "observer"}).ok(200)
	w.act(third, id, room.Message, say("x")).refused(403, adp.PermissionDenied)
	w.act(c, id, room.Remove, obj{"member": speaker.id, "ban": true, "reason": "spam"}).ok(200)
	w.act(speaker, id, room.Join, obj{"role": "speaker"}).refused(403, adp.MemberBanned)
	w.act(c, id, room.Remove, obj{"member": c.id}).denied(adp.InvalidEvent)
	w.act(c, id, room.Remove, obj{"member": newAgent(t).id}).denied(adp.InvalidEvent)
	unwelcome := newAgent(t)
	w.act(c, id, room.Remove, obj{"member": unwelcome.id, "ban": true}).ok(200)
	w.act(unwelcome, id, room.Join, obj{"role": "observer"}).refused(403, adp.MemberBanned)
	w.act(watcher, id, room.Leave, obj{"reason": "done"}).ok(200)
	w.act(watcher, id, room.Leave, obj{}).denied(adp.PermissionDenied)
	q := w.ask(id, speaker, obj{"role": "speaker"}).ok(201) // the banned come back by review only
	if !q.Get("status").Is("pending") {
		t.Errorf("got %s", q.Raw())
	}
	w.act(c, id, room.Review, obj{"request": q.Get("request"), "decision": "approve", "role": "speaker"}).ok(200)
	w.act(speaker, id, room.Join, obj{"role": "speaker", "request_id": q.Get("request").Get("id").Text()}).ok(200)
	w.records(id, nil)
}

func TestPolicy(t *testing.T) {
	w := newWorld(t, nil)
	chair := newAgent(t)
	_, id := w.open(obj{"policy": obj{"moderator_agent_ids": []any{chair.id}, "observer_allowed": false}})
	w.act(chair, id, room.Join, obj{"role": "moderator", "perspective": "chair"}).ok(200)
	w.act(newAgent(t), id, room.Join, obj{"role": "observer"}).refused(403, adp.RoleNotAllowed)
	w.act(chair, id, room.Update, obj{"policy": obj{}}).ok(200)
	w.act(newAgent(t), id, room.Join, obj{"role": "observer"}).ok(200)
}

func TestRestricted(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "restricted"})
	path := "/v1/rooms/" + id
	a, other := newAgent(t), newAgent(t)
	join := func(who *agent, p obj) answer { t.Helper(); return w.act(who, id, room.Join, p) }
	join(a, obj{"role": "speaker"}).refused(403, adp.ApprovalRequired)
	made := w.ask(id, a, obj{"role": "speaker", "perspective": "p", "reason": "r"}).ok(201)
	req := made.Get("request")
	rid := req.Get("id").Text()
	if !made.Get("status").Is("pending") || !req.Get("applicant").Is(string(a.id)) || rid[:3] != "jr_" || !req.Get("room_id").Is(id) || num(req.Get("expires_at")) != t0+hour {
		t.Errorf("got %s", made.Raw())
	}
	w.get(path+"/join-requests", a).refused(403, adp.PermissionDenied)
	if n := w.get(path+"/join-requests", c).ok(200).Len(); n != 1 {
		t.Errorf("%d requests", n)
	}
	w.get(path+"/join-requests/"+rid, other).refused(404, adp.JoinRequestNotFound)
	w.get(path+"/join-requests/"+rid, nil).refused(401, adp.InvalidToken)
	if v := w.get(path+"/join-requests/"+rid, a).ok(200); !v.Get("status").Is("pending") {
		t.Errorf("got %s", v.Raw())
	}
	join(a, obj{"role": "speaker", "request_id": rid}).refused(403, adp.JoinRequestNotApproved)
	altered := req.Any().(map[string]any)
	altered["reason"] = "other"
	w.act(c, id, room.Review, obj{"request": altered, "decision": "approve", "role": "speaker"}).denied(adp.InvalidEvent)
	w.act(c, id, room.Review, obj{"request": req, "decision": "approve", "role": "observer", "reason": "why not"}).ok(200)
	if v := w.get(path+"/join-requests/"+rid, a).ok(200); !v.Get("status").Is("approved") || !v.Get("approved_role").Is("observer") || !v.Get("review_reason").Is("why not") ||
		!v.Get("reviewed_by").Is(string(c.id)) || num(v.Get("reviewed_at")) != t0 {
		t.Errorf("got %s", v.Raw())
	}
	join(a, obj{"role": "speaker", "request_id": rid}).refused(409, adp.JoinRequestRoleMismatch)
	join(a, obj{"role": "observer", "request_id": rid, "perspective": "p"}).refused(400, adp.InvalidEvent)
	join(other, obj{"role": "observer", "request_id": rid}).refused(404, adp.JoinRequestNotFound)
	w.get(path+"/events", a).refused(403, adp.MembershipRequired)
	join(a, obj{"role": "observer", "request_id": rid}).ok(200)
	w.get(path+"/events", a).ok(200)
	w.get(path+"/events", nil).refused(401, adp.InvalidToken)
	w.act(a, id, room.Leave, obj{}).ok(200)
	w.get(path+"/events", a).refused(403, adp.MembershipRequired)
	join(a, obj{"role": "observer", "request_id": rid}).refused(409, adp.JoinRequestExpired) // the first join used it up
	w.records(id, c)
}

func TestPrivate(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "private", "topic": "hidden"})
	path := "/v1/rooms/" + id
	stranger, a := newAgent(t), newAgent(t)
	elsewhere, err := adp.SignToken(stranger.key, "https://elsewhere.test", t0/1000, 120)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"", "/events", "/events?wait=20", "/events/live", "/agent-status", "/agent-status/" + string(c.id), "/archive", "/archive.jsonl",
		"/archive.md", "/join-requests", "/join-requests/jr_x"} {
		w.get(path+p, stranger).refused(404, adp.RoomNotFound)
		for _, token := range []string{w.token(stranger), "", elsewhere, badToken} {
			there, absent := w.send("GET", path+p, token, nil), w.send("GET", "/v1/rooms/"+nowhere+p, token, nil)
			if there.status != absent.status || there.code() != absent.code() || there.v.Get("error").Get("message").Text() != absent.v.Get("error").Get("message").Text() {
				t.Errorf("%s tells the two apart: %d %s, %d %s", p, there.status, there.body, absent.status, absent.body)
			}
		}
	}
	req := w.ask(id, a, obj{"role": "speaker"}).ok(201).Get("request")
	w.get(path, a).refused(404, adp.RoomNotFound)
	w.get(path+"/join-requests/"+req.Get("id").Text(), a).ok(200)
	w.act(c, id, room.Review, obj{"request": req, "decision": "approve", "role": "speaker"}).ok(200)
	w.get(path, a).ok(200)
	w.get(path+"/events", a).refused(403, adp.MembershipRequired)
	w.clock.Add(hour) // an approval that was not used is gone
	w.get(path, a).refused(404, adp.RoomNotFound)
	w.clock.Add(-hour)
	w.act(a, id, room.Join, obj{"role": "speaker", "request_id": req.Get("id").Text()}).ok(200)
	w.get(path+"/events", a).ok(200)
}

// A write on another record than the head is told the head, in every room whose
// resource its writer may read (ADP §6.1, §16).
func TestHeadIsTold(t *testing.T) {
	w := newWorld(t, nil)
	for _, visibility := range []string{"public", "restricted", "private"} {
		c, id := w.open(obj{"visibility": visibility})
		head := w.resource(id, c).Get("head")
		approved, wrong := newAgent(t), noHash()
		req := w.ask(id, approved, obj{"role": "speaker"}).ok(201).Get("request")
		if visibility != "public" {
			w.act(c, id, room.Review, obj{"request": req, "decision": "approve", "role": "speaker"}).ok(200)
		}
		writers := []*agent{c, approved}
		if visibility != "private" {
			writers = append(writers, newAgent(t))
		}
		for _, who := range writers {
			for typ, p := range map[string]obj{room.Message: say("x"), room.Update: {"agenda": "z"}, room.Close: {}, room.Define: {"use": "adp:reactions/1.0"}} {
				a := w.on(at{id, 77, wrong}, who, typ, p, nil).refused(409, adp.RoomHeadMismatch)
				if d := a.data(); num(d.Get("base_seq")) != 77 || d.Get("base_hash").Text() != wrong || num(d.Get("current_seq")) != num(head.Get("seq")) ||
					!d.Get("current_hash").Is(head.Get("hash").Text()) || !strings.HasSuffix(d.Get("events_url").Text(), "/events?after_seq=77") {
					t.Errorf("%s, %s: data %s", visibility, typ, d.Raw())
				}
			}
		}
	}
}

// To a stranger all private rooms answer alike, whatever they have for types,
// head and times (ADP §16): a write cannot be used to guess at one.
func TestPrivateWritesOfStrangers(t *testing.T) {
	w := newWorld(t, nil)
	private := func(p obj) (*agent, string) { t.Helper(); return w.open(with(obj{"visibility": "private"}, p)) }
	typ := func(name, kind, status string) obj {
		return obj{"type": name, "kind": kind, "title": "t", "status": status, "schema": obj{"type": "object", "required": []any{"n"}}}
	}
	c, typed := private(obj{"types": []any{typ("secret.signal", "signal", "active"), typ("secret.control", "control", "active"), typ("secret.off", "message", "disabled")}})
	_, plain := private(nil)
	_, later := private(obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
	cc, closed := private(nil)
	w.act(cc, closed, room.Close, obj{}).ok(200)
	kc, cancelled := private(obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
	w.act(kc, cancelled, room.Cancel, obj{}).ok(200)
	former, stranger, waiting := w.admit(c, typed, "moderator"), newAgent(t), newAgent(t)
	w.act(former, typed, room.Leave, obj{}).ok(200)
	w.ask(typed, waiting, obj{"role": "speaker"}).ok(201)
	head := w.resource(typed, c).Get("head")
	on := at{typed, num(head.Get("seq")), head.Get("hash").Text()}

	var answers = map[string]bool{}
	hear := func(a answer) {
		t.Helper()
		a.refused(403, adp.PermissionDenied)
		answers[string(a.body)] = true
	}
	for _, who := range []*agent{stranger, waiting, former} {
		for name, p := range map[string]obj{"secret.signal": {"n": 1}, "secret.control": {}, "secret.off": {}, "no.such": {}, room.Message: say("x"), room.Update: {"agenda": "z"}, room.Close: {},
			room.Cancel: {}, room.Define: {"use": "adp:reactions/1.0"}, room.Leave: {}, room.RoleUpdate: {"member": c.id, "role": "observer"}, room.Remove: {"member": c.id}} {
			for _, id := range []string{typed, plain, later, closed, cancelled} {
				hear(w.on(at{id, 1, noHash()}, who, name, p, nil))
			}
			hear(w.on(on, who, name, p, nil)) // knowing the head helps nobody
		}
	}
	if len(answers) != 1 {
		t.Errorf("%d different answers: %v", len(answers), answers)
	}
	// a join is judged by its request, and needs no head for that
	for _, who := range []*agent{stranger, waiting, former} {
		for _, id := range []string{typed, plain, later} {
			w.on(at{id, 1, noHash()}, who, room.Join, obj{"role": "speaker"}, nil).refused(403, adp.ApprovalRequired)
			w.on(at{id, 1, noHash()}, who, room.Join, obj{"role": "speaker", "request_id": "jr_x"}, nil).refused(404, adp.JoinRequestNotFound)
		}
	}
	w.on(at{closed, 1, noHash()}, stranger, room.Join, obj{"role": "speaker"}, nil).refused(409, adp.RoomEnded) // as a join request is told
	w.act(c, typed, room.Remove, obj{"member": stranger.id, "ban": true}).ok(200)
	w.on(on, stranger, room.Join, obj{"role": "speaker"}, nil).refused(403, adp.MemberBanned)
	w.act(c, typed, "secret.signal", obj{"n": 1}).ok(200)
}

// What a review decides, and what the creator is safe from.
func TestModerators(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "restricted", "policy": obj{"max_speakers": 2}})
	path := "/v1/rooms/" + id
	chair, a := w.admit(c, id, "moderator"), newAgent(t)
	w.act(chair, id, room.Remove, obj{"member": c.id, "ban": true}).denied(adp.InvalidEvent)
	req := w.ask(id, a, obj{"role": "speaker"}).ok(201).Get("request")
	rid := req.Get("id").Text()
	review := func(who *agent, decision string, role any) answer {
		t.Helper()
		return w.act(who, id, room.Review, with(obj{"request": req, "decision": decision}, obj{"role": role}))
	}
	review(chair, "approve", "speaker").refused(409, adp.MaxSpeakersExceeded)
	review(newAgent(t), "approve", "observer").refused(403, adp.PermissionDenied)
	review(chair, "reject", nil).ok(200)
	if v := w.get(path+"/join-requests/"+rid, a).ok(200); !v.Get("status").Is("rejected") {
		t.Errorf("got %s", v.Raw())
	}
	w.act(a, id, room.Join, obj{"role": "speaker", "request_id": rid}).refused(403, adp.JoinRequestNotApproved)
	review(chair, "approve", "observer").denied(adp.InvalidEvent, adp.JoinRequestExpired)
	w.get(path, nil).ok(200) // the metadata of a restricted room is public
	for _, p := range []string{"/events", "/agent-status"} {
		w.get(path+p, a).refused(403, adp.MembershipRequired)
	}
	w.act(chair, id, room.Close, obj{}).ok(200)
	for _, p := range []string{"/archive", "/archive.jsonl", "/archive.md"} {
		w.get(path+p, a).refused(403, adp.MembershipRequired)
		w.get(path+p, chair).ok(200)
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "private"})
	now := t0 / 1000
	token := func(header, claims obj) string {
		h := encode(t, with(obj{"alg": "EdDSA", "typ": "JWT", "kid": c.id}, header))
		p := encode(t, with(obj{"iss": c.id, "sub": c.id, "aud": origin, "iat": now, "exp": now + 120}, claims))
		return sign(c, adp.Encode(h)+"."+adp.Encode(p))
	}
	ask := func(header string) answer {
		t.Helper()
		return w.sendHeader("GET", "/v1/rooms/"+id, header)
	}
	ask("Bearer " + token(nil, nil)).ok(200)
	ask("bearer " + token(nil, obj{"exp": now + 300})).ok(200)
	other := newAgent(t).id
	for name, header := range map[string]string{
		"other audience":  "Bearer " + token(nil, obj{"aud": "https://elsewhere.test"}),
		"expired":         "Bearer " + token(nil, obj{"iat": now - 200, "exp": now - 100}),
		"from the future": "Bearer " + token(nil, obj{"iat": now + 120, "exp": now + 240}),
		"too long":        "Bearer " + token(nil, obj{"exp": now + 301}),
		"exp before iat":  "Bearer " + token(nil, obj{"exp": now - 5}),
		"exp at iat":      "Bearer " + token(nil, obj{"iat": now + 30, "exp": now + 30}),
		"other typ":       "Bearer " + token(obj{"typ": "at+jwt"}, nil),
		"alg none":        "Bearer " + token(obj{"alg": "none"}, nil),
		"other kid":       "Bearer " + token(obj{"kid": other}, nil),
		"other sub":       "Bearer " + token(nil, obj{"sub": other}),
		"tampered":        "Bearer " + token(nil, nil) + "A",
		"no dots":         "Bearer x", "garbage": "Bearer " + badToken, "empty": "Bearer ", "basic": "Basic eDp5", "only a word": "Bearer", "nothing": "",
	} {
		t.Run(name, func(t *testing.T) { w.in(t).sendHeader("GET", "/v1/rooms/"+id, header).refused(401, adp.InvalidToken) })
	}
}

func TestRolesAtWork(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"types": []any{obj{"use": "adp:reactions/1.0", "overrides": obj{"reaction.create": obj{"status": "disabled"}}},
		obj{"type": "a.open", "kind": "control", "title": "t", "schema": obj{}, "roles": []any{"observer"}}, obj{"type": "a.sign", "kind": "signal", "title": "t", "schema": obj{}},
		obj{"type": "a.lead", "kind": "control", "title": "t", "schema": obj{}}}})
	first := w.records(id, nil)[0]
	w.act(c, id, "reaction.create", obj{"event_id": first.Envelope.Hash, "reaction": "agree"}).refused(422, adp.TypeDisabled)
	w.act(newAgent(t), id, "a.open", obj{}).refused(403, adp.PermissionDenied)
	speaker, observer := w.member(id, "speaker"), w.member(id, "observer")
	for _, typ := range []string{"a.open", "a.lead"} {
		w.act(speaker, id, typ, obj{}).refused(403, adp.PermissionDenied)
	}
	for _, typ := range []string{"a.open", "a.sign"} {
		w.act(observer, id, typ, obj{}).ok(200)
	}
	// creator power passes role checks, not the membership check (ADP §12, §13.1)
	w.act(c, id, room.Leave, obj{}).ok(200)
	for typ, p := range map[string]obj{room.Message: say("x"), "a.sign": {}} {
		w.act(c, id, typ, p).refused(403, adp.PermissionDenied)
	}
	w.records(id, nil)
}
