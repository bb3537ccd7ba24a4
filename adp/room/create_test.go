package room

import (
	"fmt"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func TestCreateMakesTheCreatorAModerator(t *testing.T) {
	w := open(t, obj{"extra": obj{"n": 1.5}})
	s := w.s
	if s.Creator != creator.id || s.Members[creator.id].Role != "moderator" || s.Speakers() != 1 || s.CreatedAt != t0 {
		t.Errorf("creator %s, members %v, speakers %d, created at %d", s.Creator, s.Members, s.Speakers(), s.CreatedAt)
	}
	if s.Genesis != w.records[0].Hash || s.Head != (Position{1, s.Genesis}) || s.Last != s.Head || s.PreHash != "" {
		t.Errorf("genesis %s, head %v, last %v", s.Genesis, s.Head, s.Last)
	}
	if s.Registry.Len() != len(testTypes) || len(s.Registered) != 1 {
		t.Errorf("%d types, packs %v", s.Registry.Len(), s.Registered)
	}
}

// ADP §9.1, §9.3, §13.4, §13.5; wire-facts §2.
func TestCreateRefused(t *testing.T) {
	def := func(over obj) []any {
		return []any{merge(obj{"type": "a.b", "kind": "signal", "title": "t", "schema": obj{}}, over)}
	}
	doubling := obj{"$ref": "#/$defs/d0", "$defs": func() obj {
		defs := obj{"d20": obj{}}
		for i := range 20 {
			next := obj{"$ref": fmt.Sprintf("#/$defs/d%d", i+1)}
			defs[fmt.Sprintf("d%d", i)] = obj{"allOf": []any{next, next}}
		}
		return defs
	}()}
	var many []any
	for i := range 65 {
		many = append(many, obj{"type": fmt.Sprintf("a.t%d", i), "kind": "signal", "title": "t", "schema": obj{}})
	}
	cases := []struct {
		name   string
		over   obj
		live   adp.Code
		replay string
	}{
		{"plain", nil, "", ""},
		{"blank topic", obj{"topic": " \t\n"}, adp.InvalidEvent, ""},
		{"no topic", obj{"topic": nil}, adp.InvalidEvent, ""},
		{"topic not a string", obj{"topic": 7}, adp.InvalidEvent, ""},
		{"no visibility", obj{"visibility": nil}, adp.InvalidEvent, ""},
		{"unknown visibility", obj{"visibility": "secret"}, adp.InvalidEvent, ""},
		{"no start", obj{"start_time": nil}, adp.InvalidEvent, ""},
		{"no end", obj{"end_time": nil}, adp.InvalidEvent, ""},
		{"end before start", obj{"end_time": t0 - 2*minute}, adp.InvalidEvent, ""},
		{"end at start", obj{"end_time": t0 - minute}, adp.InvalidEvent, ""},
		{"fractional start", obj{"start_time": 1.5}, adp.InvalidEvent, ""},
		{"negative start", obj{"start_time": -1}, adp.InvalidEvent, ""},
		{"unknown member", obj{"surprise": 1}, adp.InvalidEvent, ""},
		{"duplicate tags", obj{"tags": []string{"a", "a"}}, adp.InvalidEvent, ""},
		{"empty tag", obj{"tags": []string{""}}, adp.InvalidEvent, ""},
		{"tags no array", obj{"tags": "a"}, adp.InvalidEvent, ""},
		{"agenda no string", obj{"agenda": 1}, adp.InvalidEvent, ""},
		{"extra no object", obj{"extra": 1}, adp.InvalidEvent, ""},
		{"policy no object", obj{"policy": 1}, adp.InvalidEvent, ""},
		{"max_speakers 0", obj{"policy": obj{"max_speakers": 0}}, adp.InvalidEvent, ""},
		{"max_speakers fractional", obj{"policy": obj{"max_speakers": 1.5}}, adp.InvalidEvent, ""},
		{"malformed moderator", obj{"policy": obj{"moderator_agent_ids": []string{"did:agent:x"}}}, adp.InvalidEvent, ""},
		{"moderator twice", obj{"policy": obj{"moderator_agent_ids": []adp.AgentID{chair.id, chair.id}}}, adp.InvalidEvent, ""},
		{"observer_allowed no bool", obj{"policy": obj{"observer_allowed": 1}}, adp.InvalidEvent, ""},
		{"unknown policy member", obj{"policy": obj{"turn": 1}}, adp.InvalidEvent, ""},
		{"types no array", obj{"types": obj{}}, adp.InvalidEvent, ""},
		{"types of strings", obj{"types": []string{"a.b"}}, adp.InvalidEvent, ""},
		{"unknown registered pack", obj{"types": []any{obj{"use": "adp:nothing/1.0"}}}, adp.PackUnavailable, "unverifiable"},
		{"external pack not at hand", obj{"types": []any{obj{"pack": "https://h.example/p.json", "digest": "sha256:" + noHash}}}, adp.PackUnavailable, "unverifiable"},
		{"use and pack", obj{"types": []any{obj{"use": "adp:reactions/1.0", "pack": "https://h.example/p.json", "digest": "sha256:" + noHash}}}, adp.InvalidEvent, ""},
		{"reserved type name", obj{"types": def(obj{"type": "room.x"})}, adp.InvalidEvent, ""},
		{"built-in type name", obj{"types": def(obj{"type": "message.create"})}, adp.InvalidEvent, ""},
		{"type with one segment", obj{"types": def(obj{"type": "vote"})}, adp.InvalidEvent, ""},
		{"type without schema", obj{"types": def(obj{"schema": nil})}, adp.InvalidEvent, ""},
		{"unknown kind", obj{"types": def(obj{"kind": "lifecycle"})}, adp.InvalidEvent, ""},
		{"remote $ref", obj{"types": def(obj{"schema": obj{"$ref": "https://example.com/x.json"}})}, adp.InvalidEvent, ""},
		{"schema of the wrong shape", obj{"types": def(obj{"schema": obj{"type": "nothing"}})}, adp.InvalidEvent, ""},
		{"same type twice", obj{"types": append(def(nil), def(nil)...)}, adp.InvalidEvent, ""},
		{"override of a type not imported", obj{"types": []any{obj{"use": "adp:deliberation/1.0", "types": []string{"poll.create"}, "overrides": obj{"poll.vote": obj{"roles": []string{"observer"}}}}}}, adp.InvalidEvent, ""},
		{"override that changes kind", obj{"types": []any{obj{"use": "adp:reactions/1.0", "overrides": obj{"reaction.create": obj{"kind": "message"}}}}}, adp.InvalidEvent, ""},
		// our stricter choices (federation: Mirroring a host, 4)
		{"65 types", obj{"types": many}, adp.InvalidEvent, "allowed"},
		{"schema that doubles", obj{"types": def(obj{"schema": doubling})}, adp.InvalidEvent, "allowed"},
		{"schema over 16 KiB", obj{"types": def(obj{"schema": obj{"description": strings.Repeat("x", 17_000)}})}, adp.InvalidEvent, "allowed"},
		{"five minutes", obj{"start_time": t0, "end_time": t0 + 5*minute}, adp.InvalidEvent, "allowed"},
		{"exactly ten minutes", obj{"start_time": t0, "end_time": t0 + 10*minute}, "", ""},
		{"exactly seven days", obj{"start_time": t0, "end_time": t0 + 7*24*hour}, "", ""},
		{"eight days", obj{"end_time": t0 + 8*24*hour}, adp.InvalidEvent, "allowed"},
		{"over before it began", obj{"start_time": t0 - 2*hour, "end_time": t0 - hour}, adp.InvalidEvent, "allowed"},
		{"payload too large", obj{"extra": obj{"x": strings.Repeat("x", 70_000)}}, adp.PayloadTooLarge, "allowed"},
	}
	var rules []rule
	for _, c := range cases {
		rules = append(rules, rule{c.name, empty, creator, Create, contract(c.over), nil, c.live, c.replay})
	}
	for _, c := range []struct {
		name   string
		over   obj
		replay string
	}{
		{"with room_id", obj{"room_id": "x"}, ""}, {"with base_seq", obj{"base_seq": 1}, ""}, {"with base_hash", obj{"base_hash": noHash}, ""},
		{"with a foreign member", obj{"extra": 1}, ""}, {"nonce 0", obj{"nonce": 0}, ""}, {"no payload", obj{"payload": nil}, ""},
		{"payload no object", obj{"payload": []int{1}}, ""}, {"created_at no time", obj{"created_at": "now"}, ""},
		{"with mentions", obj{"mentions": []string{}}, "allowed"}, // wire-facts §3.22
	} {
		rules = append(rules, rule{"event " + c.name, empty, creator, Create, contract(nil), c.over, adp.InvalidEvent, c.replay})
	}
	rules = append(rules, rule{"second room.create", nil, creator, Create, contract(nil), nil, adp.InvalidEvent, ""})
	check(t, rules)
}

func TestARoomStartsWithCreate(t *testing.T) {
	w := empty(t)
	e := w.event(creator, Message, say("x"), obj{"base_seq": 1, "base_hash": noHash})
	if _, err := w.s.Apply(e, w.context()); adp.CodeOf(err) != adp.InvalidEvent {
		t.Errorf("live: %v", err)
	}
	if _, _, err := w.s.Judge(w.record(e), w.context()); adp.CodeOf(err) != adp.InvalidEvent {
		t.Errorf("replay: %v", err)
	}
}

// A host that took a second room.create did nothing to the room by it.
func TestSecondCreateChangesNothing(t *testing.T) {
	w := peopled(t)
	before := *w.s.Contract
	members := len(w.s.Members)
	if v := w.force(w.event(stranger, Create, contract(obj{"topic": "Other"}), nil)); v.Rule != adp.InvalidEvent {
		t.Errorf("verdict %+v", v)
	}
	if w.s.Contract.Topic != before.Topic || w.s.Creator != creator.id || len(w.s.Members) != members || w.s.Registry.Len() != len(testTypes) {
		t.Error("the second room.create took effect")
	}
	if w.s.Head != w.s.Last {
		t.Error("a lifecycle record moves the head")
	}
}

// A first record that breaks rules still makes the room that it describes.
func TestCreateInViolationIsReplayed(t *testing.T) {
	w := empty(t)
	if v := w.force(w.event(creator, Create, contract(obj{"visibility": "secret", "policy": obj{"max_speakers": "x", "observer_allowed": false}}), nil)); v.Outcome != Violation {
		t.Fatalf("verdict %+v", v)
	}
	if k := w.s.Contract; k.Visibility != Private || k.Topic != "Quorum" || !k.Policy.NoObservers || k.Policy.MaxSpeakers != 0 {
		t.Errorf("contract %+v", *k)
	}
}

// ADP §9.4.
func TestUpdateRules(t *testing.T) {
	scheduled := func(t testing.TB) *world { return open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour}) }
	up := func(name string, in func(testing.TB) *world, payload obj, live adp.Code, replay string) rule {
		return rule{name, in, creator, Update, payload, nil, live, replay}
	}
	check(t, []rule{
		up("nothing", nil, obj{}, adp.InvalidEvent, ""),
		up("visibility", nil, obj{"visibility": "private"}, adp.InvalidEvent, ""),
		up("types", nil, obj{"types": []any{}}, adp.InvalidEvent, ""),
		up("extra", nil, obj{"extra": obj{}}, adp.InvalidEvent, ""),
		up("blank topic", nil, obj{"topic": " "}, adp.InvalidEvent, ""),
		up("start while active", nil, obj{"start_time": t0 + 1}, adp.InvalidEvent, ""),
		up("start unchanged while active", nil, obj{"start_time": t0 - minute}, adp.InvalidEvent, ""),
		up("end before start", nil, obj{"end_time": t0 - hour}, adp.InvalidEvent, ""),
		up("end in the past", nil, obj{"end_time": t0 - 1}, adp.InvalidEvent, ""),
		up("end now", nil, obj{"end_time": t0}, adp.InvalidEvent, ""),
		up("end later", nil, obj{"end_time": t0 + 2*hour}, "", ""),
		up("end in eight days", nil, obj{"end_time": t0 + 8*24*hour}, adp.InvalidEvent, "allowed"),
		up("too short now", nil, obj{"end_time": t0 + 1}, adp.InvalidEvent, "allowed"),
		up("max_speakers 0", nil, obj{"policy": obj{"max_speakers": 0}}, adp.InvalidEvent, ""),
		up("malformed moderator", nil, obj{"policy": obj{"moderator_agent_ids": []string{"x"}}}, adp.InvalidEvent, ""),
		up("max_speakers below what there is", nil, obj{"policy": obj{"max_speakers": 1}}, "", ""),
		up("clear everything", nil, obj{"agenda": "", "guidance": "", "language": "", "tags": []string{}, "policy": obj{}}, "", ""),
		up("scheduled: start", scheduled, obj{"start_time": t0 + hour/2}, "", ""),
		up("scheduled: start in the past", scheduled, obj{"start_time": t0 - 1}, "", ""),
		up("scheduled: start after end", scheduled, obj{"start_time": t0 + 3*hour}, adp.InvalidEvent, ""),
		up("scheduled: end before start", scheduled, obj{"end_time": t0 + hour}, adp.InvalidEvent, ""),
		up("scheduled: all in the past", scheduled, obj{"start_time": t0 - 2*hour, "end_time": t0 - hour}, adp.InvalidEvent, "allowed"),
		{"by a moderator", nil, chair, Update, obj{"agenda": "x"}, nil, "", ""},
		{"by a speaker", nil, speaker, Update, obj{"agenda": "x"}, nil, adp.PermissionDenied, ""},
		{"by a stranger", nil, stranger, Update, obj{"agenda": "x"}, nil, adp.PermissionDenied, ""},
	})
}

func TestUpdateReplacesAndClears(t *testing.T) {
	w := open(t, obj{"agenda": "a", "guidance": "g", "language": "en", "tags": []string{"x", "y"}, "extra": obj{"k": 1}})
	old := w.s.Contract
	w.must(creator, Update, obj{"agenda": "", "tags": []string{"z"}, "policy": obj{"max_speakers": 5, "extra": obj{}}})
	k := w.s.Contract
	if k.Agenda != "" || len(k.Tags) != 1 || k.Tags[0] != "z" || k.Policy.MaxSpeakers != 5 || k.Policy.Moderators != nil || k.Guidance != "g" || k.Extra == nil {
		t.Errorf("contract %+v", *k)
	}
	if old.Agenda != "a" || len(old.Tags) != 2 || len(old.Policy.Moderators) != 1 {
		t.Error("a contract was changed in place")
	}
	w.must(creator, Update, obj{"tags": []string{}, "policy": obj{}})
	if k := w.s.Contract; k.Tags != nil || k.PolicyJSON != nil || k.Policy.MaxSpeakers != 0 {
		t.Errorf("contract %+v", *k)
	}
}

// ADP §8, wire-facts §3.4, §3.18: start ≤ t < end, and time never runs back.
func TestStatusByTime(t *testing.T) {
	w := open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
	s := w.s
	for _, c := range []struct {
		at   int64
		want Status
		next int64
	}{
		{t0 - hour, Scheduled, t0 + hour}, {t0 + hour - 1, Scheduled, t0 + hour}, {t0 + hour, Active, t0 + 2*hour},
		{t0 + 2*hour - 1, Active, t0 + 2*hour}, {t0 + 2*hour, Ended, 0}, {1 << 60, Ended, 0},
	} {
		if got := s.StatusAt(c.at); got != c.want {
			t.Errorf("at %d: %s, want %s", c.at-t0, got, c.want)
		}
		if got := s.NextTransition(c.at); got != c.next {
			t.Errorf("at %d: next transition at %d, want %d", c.at-t0, got-t0, c.next-t0)
		}
	}
	w.now = t0 + hour
	w.must(creator, Message, say("begun"))
	if got := s.StatusAt(t0); got != Active {
		t.Errorf("the clock ran back to %s", got)
	}
	w.must(creator, Update, obj{"end_time": t0 + 3*hour})
	w.now = t0 + 2*hour
	w.must(creator, Message, say("longer"))
	w.now = t0 + 3*hour
	w.refuse(adp.RoomEnded, creator, Message, say("late"))
}

func TestUpdateMovesTheStart(t *testing.T) {
	w := open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
	w.refuse(adp.RoomNotActive, creator, Message, say("early"))
	w.must(creator, Update, obj{"start_time": t0})
	w.must(creator, Message, say("at once"))
}

// wire-facts §3.4: the greatest received_at so far decides, in replay too.
func TestReceivedAtGoingBack(t *testing.T) {
	w := open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
	w.now = t0 + hour + 1
	w.must(creator, Message, say("active"))
	w.now = t0 // the host's clock went back: the room stays active
	if v := w.force(w.event(creator, Message, say("x"), nil)); v.Outcome != Allowed {
		t.Errorf("message: %+v", v)
	}
	if v := w.force(w.event(creator, Cancel, obj{}, nil)); v.Rule != adp.RoomNotActive {
		t.Errorf("cancel: %+v", v)
	}
	if w.s.ReceivedAt != t0 || w.s.Clock != t0+hour+1 {
		t.Errorf("received_at %d, clock %d", w.s.ReceivedAt-t0, w.s.Clock-t0)
	}
	// a live write at such a time is judged by the same clock
	w = open(t, nil)
	w.now = t0 + hour - 1
	w.must(creator, Message, say("x"))
	w.now = t0 - hour
	if _, err := w.send(w.event(creator, Update, obj{"end_time": t0 + hour - 1}, nil)); adp.CodeOf(err) != adp.InvalidEvent {
		t.Errorf("an end that the clock has passed: %v", err)
	}
}

func TestCloseAndCancel(t *testing.T) {
	scheduled := func(t testing.TB) *world { return open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour}) }
	check(t, []rule{
		{"close", nil, creator, Close, obj{"reason": "done"}, nil, "", ""},
		{"close by a moderator", nil, chair, Close, obj{}, nil, "", ""},
		{"close by a speaker", nil, speaker, Close, obj{}, nil, adp.PermissionDenied, ""},
		{"close while scheduled", scheduled, creator, Close, obj{}, nil, adp.RoomNotActive, ""},
		{"close with a foreign member", nil, creator, Close, obj{"x": 1}, nil, adp.InvalidEvent, ""},
		{"cancel", scheduled, creator, Cancel, obj{}, nil, "", ""},
		{"cancel by a stranger", scheduled, stranger, Cancel, obj{}, nil, adp.PermissionDenied, ""},
		{"cancel while active", nil, creator, Cancel, obj{}, nil, adp.RoomNotActive, ""},
	})
	w := scheduled(t)
	w.must(creator, Cancel, obj{})
	if w.s.StatusAt(t0+hour) != Cancelled || w.s.NextTransition(t0) != 0 {
		t.Error("a cancelled room stays cancelled")
	}
}

// ADP §8, §14: ended and cancelled rooms take no write of any kind.
func TestNoWriteAfterTheEnd(t *testing.T) {
	ends := map[adp.Code][]func(testing.TB) *world{
		adp.RoomEnded: {
			func(t testing.TB) *world { w := peopled(t); w.must(creator, Close, obj{}); return w },
			func(t testing.TB) *world { w := peopled(t); w.now = t0 + hour; return w },
		},
		adp.RoomNotActive: {func(t testing.TB) *world {
			w := open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
			w.must(creator, Cancel, obj{})
			return w
		}},
	}
	var rules []rule
	for code, worlds := range ends {
		for i, in := range worlds {
			for typ, payload := range everything() {
				rules = append(rules, rule{fmt.Sprintf("%s/%d/%s", code, i, typ), in, creator, typ, payload, nil, code, ""})
			}
		}
	}
	check(t, rules)
}

// everything is a well-formed payload of every type but room.create.
func everything() map[string]obj {
	return map[string]obj{
		Update: {"agenda": "x"}, Join: {"role": "speaker"}, Leave: {}, RoleUpdate: {"member": speaker.id, "role": "observer"}, Remove: {"member": speaker.id},
		Review: {"request": obj{"id": "jr_1", "room_id": testRoom, "applicant": stranger.id, "role": "speaker", "created_at": t0, "expires_at": t0 + 9*hour}, "decision": "reject"},
		Close:  {}, Cancel: {}, Define: {"use": "adp:moderation/1.0"}, Message: say("x"),
		"review.finding": {"severity": "low"}, "a.sign": {}, "a.lead": {}, "reaction.create": {"event_id": noHash, "reaction": "agree"},
	}
}

// ADP §14, State restrictions: the row of scheduled rooms.
func TestScheduledRoomTakesOnly(t *testing.T) {
	scheduled := func(t testing.TB) *world {
		w := open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
		w.must(speaker, Join, obj{"role": "speaker"})
		w.ask(stranger, "speaker", "pending")
		return w
	}
	review := merge(everything()[Review], obj{"request": scheduled(t).requests["jr_1"].Object})
	check(t, []rule{
		{"join", scheduled, observer, Join, obj{"role": "observer"}, nil, "", ""},
		{"review", scheduled, creator, Review, review, nil, "", ""},
		{"role update", scheduled, creator, RoleUpdate, everything()[RoleUpdate], nil, "", ""},
		{"remove", scheduled, creator, Remove, everything()[Remove], nil, "", ""},
		{"leave", scheduled, speaker, Leave, obj{}, nil, "", ""},
		{"update", scheduled, creator, Update, obj{"agenda": "x"}, nil, "", ""},
		{"define", scheduled, creator, Define, obj{"use": "adp:moderation/1.0"}, nil, "", ""},
		{"cancel", scheduled, creator, Cancel, obj{}, nil, "", ""},
		{"message", scheduled, creator, Message, say("x"), nil, adp.RoomNotActive, ""},
		{"close", scheduled, creator, Close, obj{}, nil, adp.RoomNotActive, ""},
		{"custom message", scheduled, creator, "review.finding", obj{"severity": "low"}, nil, adp.RoomNotActive, ""},
		{"custom signal", scheduled, creator, "a.sign", obj{}, nil, adp.RoomNotActive, ""},
		{"custom control", scheduled, creator, "a.lead", obj{}, nil, adp.RoomNotActive, ""},
	})
}
