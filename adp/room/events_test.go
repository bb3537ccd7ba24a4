package room

import (
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// Envelope rules of ADP §6 that the room judges.
func TestEnvelopeRules(t *testing.T) {
	ids := func(n int) []adp.AgentID {
		var out []adp.AgentID
		for i := range n {
			out = append(out, ag(byte(100+i)).id)
		}
		return out
	}
	msg := func(name string, over obj, live adp.Code, replay string) rule {
		return rule{name, nil, creator, Message, say("x"), over, live, replay}
	}
	check(t, []rule{
		msg("plain", nil, "", ""),
		msg("mentions", obj{"mentions": ids(32)}, "", ""),
		msg("no mentions", obj{"mentions": []string{}}, "", ""),
		msg("33 mentions", obj{"mentions": ids(33)}, adp.InvalidEvent, ""),
		msg("a malformed mention", obj{"mentions": []string{"did:agent:x"}}, adp.InvalidEvent, ""),
		msg("mentions no array", obj{"mentions": obj{}}, adp.InvalidEvent, ""),
		msg("an agent mentioned twice", obj{"mentions": append(ids(1), ids(1)...)}, adp.InvalidEvent, "allowed"), // wire-facts §3.22
		msg("foreign member", obj{"colour": "red"}, adp.InvalidEvent, ""),
		msg("another protocol", obj{"protocol": "agent-discourse/2.0"}, adp.InvalidEvent, ""),
		msg("nonce 0", obj{"nonce": 0}, adp.InvalidEvent, ""),
		msg("another room", obj{"room_id": "d8ftedhpqhsusbg001th"}, adp.InvalidEvent, ""),
		msg("no room", obj{"room_id": nil}, adp.InvalidEvent, ""),
		msg("no base_seq", obj{"base_seq": nil}, adp.InvalidEvent, ""),
		msg("base_seq 0", obj{"base_seq": 0}, adp.InvalidEvent, ""),
		msg("no base_hash", obj{"base_hash": nil}, adp.InvalidEvent, ""),
		msg("malformed base_hash", obj{"base_hash": "x"}, adp.InvalidEvent, ""),
		msg("payload no object", obj{"payload": "x"}, adp.InvalidEvent, ""),
		msg("no type", obj{"type": ""}, adp.InvalidEvent, ""),
		{"custom payload no object", nil, creator, "a.sign", "x", nil, adp.InvalidEvent, ""},
		{"custom payload missing", nil, creator, "a.sign", nil, obj{"payload": nil}, adp.InvalidEvent, ""},
	})
}

// The 32 of ADP §6 is a MUST: a quota can only be lower.
func TestMentionsQuota(t *testing.T) {
	var ids []adp.AgentID
	for i := range 33 {
		ids = append(ids, ag(byte(100+i)).id)
	}
	for _, c := range []struct{ limit, mentions int }{{2, 2}, {0, 32}, {100, 32}} {
		w := peopled(t)
		w.limits.Mentions = c.limit
		for n, want := range map[int]adp.Code{c.mentions: "", c.mentions + 1: adp.InvalidEvent} {
			if _, err := w.s.Apply(w.event(creator, Message, say("x"), obj{"mentions": ids[:n]}), w.context()); adp.CodeOf(err) != want {
				t.Errorf("limit %d, %d mentions: %v", c.limit, n, err)
			}
		}
	}
}

// wire-facts §3.5: the same envelope twice.
func TestSameEnvelopeTwice(t *testing.T) {
	w := peopled(t)
	e := w.event(speaker, "a.sign", obj{}, nil)
	if _, err := w.send(e); err != nil {
		t.Fatal(err)
	}
	if _, err := w.send(e); adp.CodeOf(err) != adp.InvalidEvent {
		t.Errorf("live: %v", err)
	}
	if v := w.force(e); v.Rule != adp.InvalidEvent {
		t.Errorf("replay: %+v", v)
	}
}

// ADP §6.1, for every class: what moves the head needs the head itself.
func TestHeadRule(t *testing.T) {
	tail := func(t testing.TB) *world { // the newest record is a signal
		w := peopled(t)
		w.must(creator, Message, say("head"))
		w.must(observer, "a.sign", obj{})
		w.ask(stranger, "speaker", "pending")
		return w
	}
	w := tail(t)
	if w.s.Head.Seq+1 != w.s.Last.Seq {
		t.Fatalf("head %v, last %v", w.s.Head, w.s.Last)
	}
	head, last, first := w.s.Head, w.s.Last, Position{1, w.s.Genesis}
	bases := []struct {
		name   string
		base   Position
		mover  bool // may an event that moves the head stand on it
		signal bool
	}{
		{"head", head, true, true}, {"newest record", last, false, true}, {"first record", first, false, true},
		{"newest seq, head's hash", Position{last.Seq, head.Hash}, false, false}, {"head's seq, newest hash", Position{head.Seq, last.Hash}, false, false},
		{"head's seq, no hash of ours", Position{head.Seq, noHash}, false, false}, {"next seq", Position{last.Seq + 1, last.Hash}, false, false}, {"far seq", Position{999, head.Hash}, false, false},
	}
	review := merge(everything()[Review], obj{"request": w.requests["jr_1"].Object})
	movers := map[string]obj{Message: say("x"), "review.finding": {"severity": "low"}, "a.lead": {}, Define: {"use": "adp:moderation/1.0"}, Update: {"agenda": "x"}, Close: {}}
	signals := map[string]obj{"a.sign": {}, "reaction.create": {"event_id": noHash, "reaction": "agree"}, RoleUpdate: {"member": speaker.id, "role": "observer"},
		Remove: {"member": speaker.id}, Leave: {}, Review: review}
	var rules []rule
	for _, b := range bases {
		over := obj{"base_seq": b.base.Seq, "base_hash": b.base.Hash}
		for typ, payload := range movers {
			r := rule{name: b.name + "/" + typ, in: tail, actor: creator, typ: typ, payload: payload, over: over}
			if !b.mover {
				r.live = adp.RoomHeadMismatch
			}
			rules = append(rules, r)
		}
		for typ, payload := range signals {
			r := rule{name: b.name + "/" + typ, in: tail, actor: creator, typ: typ, payload: payload, over: over}
			if !b.signal {
				r.live = adp.BaseRecordMismatch
			}
			rules = append(rules, r)
		}
		r := rule{name: b.name + "/" + Join, in: tail, actor: stranger, typ: Join, payload: obj{"role": "speaker"}, over: over}
		if !b.signal {
			r.live = adp.BaseRecordMismatch
		}
		rules = append(rules, r)
	}
	check(t, rules)
	// a scheduled room: cancel is a lifecycle event as well
	w = open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
	stale := w.s.Head
	w.must(creator, Update, obj{"agenda": "x"})
	if _, err := w.send(w.event(creator, Cancel, obj{}, obj{"base_seq": stale.Seq, "base_hash": stale.Hash})); adp.CodeOf(err) != adp.RoomHeadMismatch {
		t.Errorf("cancel: %v", err)
	}
}

// Which records move the head, and what the refusal of a stale one says.
func TestHeadMoves(t *testing.T) {
	w := peopled(t)
	if w.s.Head.Seq != 1 || w.s.Last.Seq != 4 {
		t.Errorf("joins moved the head to %d", w.s.Head.Seq)
	}
	for _, typ := range []string{Message, "review.finding", "a.lead", Define, Update} {
		stale := w.s.Head
		r := w.must(creator, typ, everything()[typ])
		if w.s.Head != (Position{r.Seq, r.Hash}) {
			t.Errorf("%s did not move the head", typ)
		}
		_, err := w.send(w.event(creator, Message, say("stale"), obj{"base_seq": stale.Seq, "base_hash": stale.Hash}))
		e, ok := err.(*adp.Error)
		if !ok || e.Code != adp.RoomHeadMismatch || e.Data["current_seq"] != r.Seq || e.Data["current_hash"] != r.Hash || e.Data["base_seq"] != stale.Seq || e.Data["base_hash"] != stale.Hash {
			t.Errorf("%s: %#v", typ, err)
		}
	}
	head := w.s.Head
	for _, typ := range []string{"a.sign", RoleUpdate, Remove} {
		w.must(creator, typ, everything()[typ])
	}
	w.must(observer, Leave, obj{})
	if w.s.Head != head {
		t.Error("signals moved the head")
	}
}

// ADP §12.
func TestMessageRules(t *testing.T) {
	first := w0Hash(t)
	msg := func(name string, a *player, payload any, live adp.Code, replay string) rule {
		return rule{name, nil, a, Message, payload, nil, live, replay}
	}
	check(t, []rule{
		msg("speaker", speaker, say("x"), "", ""),
		msg("moderator", chair, say("x"), "", ""),
		msg("observer", observer, say("x"), adp.PermissionDenied, ""),
		msg("stranger", stranger, say("x"), adp.PermissionDenied, ""),
		msg("object", speaker, obj{"content_type": "application/json", "content": obj{"a": 1}}, "", ""),
		msg("references", speaker, merge(say("x"), obj{"references": []string{first}}), "", ""),
		msg("reference to nothing", speaker, merge(say("x"), obj{"references": []string{first, noHash}}), adp.InvalidEvent, ""),
		msg("reference to a record hash", speaker, merge(say("x"), obj{"references": []string{peopled(t).s.Genesis}}), adp.InvalidEvent, ""),
		msg("reference twice", speaker, merge(say("x"), obj{"references": []string{first, first}}), adp.InvalidEvent, ""),
		msg("reference malformed", speaker, merge(say("x"), obj{"references": []string{"x"}}), adp.InvalidEvent, ""),
		msg("no content", speaker, obj{"content_type": "text/plain"}, adp.InvalidEvent, ""),
		msg("content a number", speaker, obj{"content_type": "text/plain", "content": 1}, adp.InvalidEvent, ""),
		msg("content an array", speaker, obj{"content_type": "text/plain", "content": []int{}}, adp.InvalidEvent, ""),
		msg("no content_type", speaker, obj{"content": "x"}, adp.InvalidEvent, ""),
		msg("empty content_type", speaker, obj{"content_type": "", "content": "x"}, adp.InvalidEvent, ""),
		msg("foreign member", speaker, merge(say("x"), obj{"colour": 1}), adp.InvalidEvent, ""),
		msg("extra no object", speaker, merge(say("x"), obj{"extra": 1}), adp.InvalidEvent, ""),
		// references of other built-in events are only our choice
		{"leave", nil, speaker, Leave, obj{"references": []string{noHash}}, nil, adp.InvalidEvent, "allowed"},
		{"remove", nil, creator, Remove, obj{"member": speaker.id, "references": []string{noHash}}, nil, adp.InvalidEvent, "allowed"},
		{"close", nil, creator, Close, obj{"references": []string{noHash}}, nil, adp.InvalidEvent, "allowed"},
		{"cancel", func(t testing.TB) *world { return open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour}) }, creator, Cancel, obj{"references": []string{noHash}}, nil, adp.InvalidEvent, "allowed"},
	})
}

// w0Hash is the envelope hash of the first record of a peopled room.
func w0Hash(t testing.TB) string { return peopled(t).records[0].Envelope.Hash }

// ADP §13.1, §13.6, §14.
func TestCustomTypeRules(t *testing.T) {
	send := func(name string, a *player, typ string, payload any, live adp.Code, replay string) rule {
		return rule{name, nil, a, typ, payload, nil, live, replay}
	}
	low := obj{"severity": "low"}
	check(t, []rule{
		send("message by a speaker", speaker, "review.finding", low, "", ""),
		send("message by an observer", observer, "review.finding", low, adp.PermissionDenied, ""),
		send("message by a stranger", stranger, "review.finding", low, adp.PermissionDenied, ""),
		send("signal by an observer", observer, "a.sign", obj{}, "", ""),
		send("signal by a stranger", stranger, "a.sign", obj{}, adp.PermissionDenied, ""),
		send("control by a moderator", chair, "a.lead", obj{}, "", ""),
		send("control by the creator", creator, "a.lead", obj{}, "", ""),
		send("control by a speaker", speaker, "a.lead", obj{}, adp.PermissionDenied, ""),
		send("roles let an observer in", observer, "a.open", obj{}, "", ""),
		send("roles keep a moderator out", chair, "a.open", obj{}, adp.PermissionDenied, ""),
		send("roles never keep the creator out", creator, "a.open", obj{}, "", ""),
		send("roles reach no stranger", stranger, "a.open", obj{}, adp.PermissionDenied, ""),
		send("schema", speaker, "review.finding", obj{"severity": "odd"}, adp.PayloadSchemaViolation, ""),
		send("schema, closed", speaker, "review.finding", merge(low, obj{"x": 1}), adp.PayloadSchemaViolation, ""),
		send("disabled", speaker, "a.off", obj{}, adp.TypeDisabled, ""),
		send("disabled, for the creator too", creator, "a.off", obj{}, adp.TypeDisabled, ""),
		send("deprecated", speaker, "a.old", obj{}, "", ""),
		send("unknown type", speaker, "review.unknown", obj{}, adp.TypeNotDefined, ""),
		send("a type of a pack not imported", speaker, "question.create", obj{"question": "q"}, adp.TypeNotDefined, ""),
		send("an unknown type under room.", creator, "room.archive", obj{}, adp.TypeNotDefined, ""),
		send("registered pack", observer, "reaction.create", obj{"event_id": noHash, "reaction": "agree", "score": 0.5}, "", ""),
		send("registered pack, bad payload", observer, "reaction.create", obj{"event_id": noHash, "reaction": "agree", "score": 2}, adp.PayloadSchemaViolation, ""),
		send("hint narrows", speaker, "a.small", obj{"x": strings.Repeat("x", 100)}, adp.PayloadTooLarge, "allowed"),
		send("hint widens", speaker, "a.big", obj{"x": strings.Repeat("x", 100_000)}, "", ""),
		send("hint up to the ceiling", speaker, "a.big", obj{"x": strings.Repeat("x", 262_144)}, adp.PayloadTooLarge, "allowed"),
	})
}

// ADP §21: the length of JCS(payload), in bytes.
func TestPayloadSize(t *testing.T) {
	rest := len(`{"content":"","content_type":"text/plain"}`)
	check(t, []rule{
		{"just fits", nil, speaker, Message, say(strings.Repeat("x", 65_536-rest)), nil, "", ""},
		{"one too many", nil, speaker, Message, say(strings.Repeat("x", 65_537-rest)), nil, adp.PayloadTooLarge, "allowed"},
		{"bytes, not characters", nil, speaker, Message, say(strings.Repeat("é", 40_000)), nil, adp.PayloadTooLarge, "allowed"},
		{"membership events too", nil, stranger, Join, obj{"role": "speaker", "perspective": strings.Repeat("x", 70_000)}, nil, adp.PayloadTooLarge, "allowed"},
	})
	// 0 means no limit, and a hint still holds
	w := peopled(t)
	w.limits = Limits{}
	w.must(speaker, Message, say(strings.Repeat("x", 300_000)))
	w.must(speaker, "a.big", obj{"x": strings.Repeat("x", 300_000)})
	w.refuse(adp.PayloadTooLarge, speaker, "a.small", obj{"x": strings.Repeat("x", 100)})
}

// ADP §13.4, §13.5.
func TestDefineRules(t *testing.T) {
	finding := func(over obj) obj {
		return merge(obj{"type": "review.finding", "kind": "message", "title": "Finding", "schema": obj{"type": "object"}}, over)
	}
	crowded := func(t testing.TB) *world { w := peopled(t); w.limits.Types = w.s.Registry.Len(); return w }
	check(t, []rule{
		{"new type", nil, creator, Define, finding(obj{"type": "a.new"}), nil, "", ""},
		{"redefine", nil, chair, Define, finding(nil), nil, "", ""},
		{"disable", nil, creator, Define, finding(obj{"status": "disabled"}), nil, "", ""},
		{"import", nil, creator, Define, obj{"use": "adp:moderation/1.0"}, nil, "", ""},
		{"import again", nil, creator, Define, obj{"use": "adp:reactions/1.0"}, nil, "", ""},
		{"change kind", nil, creator, Define, finding(obj{"kind": "signal"}), nil, adp.InvalidEvent, ""},
		{"by a speaker", nil, speaker, Define, finding(nil), nil, adp.PermissionDenied, ""},
		{"by an observer", nil, observer, Define, finding(nil), nil, adp.PermissionDenied, ""},
		{"by a stranger", nil, stranger, Define, finding(nil), nil, adp.PermissionDenied, ""},
		{"reserved name", nil, creator, Define, finding(obj{"type": "type.x"}), nil, adp.InvalidEvent, ""},
		{"foreign member", nil, creator, Define, finding(obj{"x": 1}), nil, adp.InvalidEvent, ""},
		{"empty", nil, creator, Define, obj{}, nil, adp.InvalidEvent, ""},
		{"remote $ref", nil, creator, Define, finding(obj{"schema": obj{"$ref": "https://h.example/s"}}), nil, adp.InvalidEvent, ""},
		{"unknown registered pack", nil, creator, Define, obj{"use": "adp:nothing/1.0"}, nil, adp.PackUnavailable, "unverifiable"},
		{"one type too many", crowded, creator, Define, finding(obj{"type": "a.new"}), nil, adp.InvalidEvent, "allowed"},
		{"redefinition in a full room", crowded, creator, Define, finding(nil), nil, "", ""},
		{"$id in a schema", nil, creator, Define, finding(obj{"schema": obj{"$id": "https://h.example/s"}}), nil, adp.InvalidEvent, "allowed"}, // wire-facts §3.22
	})
	w := peopled(t)
	w.refuse(adp.PayloadSchemaViolation, speaker, "review.finding", obj{"severity": "odd"})
	w.must(creator, Define, finding(nil))
	w.must(speaker, "review.finding", obj{"severity": "odd"}) // the latest definition binds
	w.must(creator, Define, finding(obj{"status": "disabled"}))
	w.refuse(adp.TypeDisabled, speaker, "review.finding", obj{"severity": "low"})
	if d, _ := w.s.Registry.Get("review.finding"); d.Kind != "message" {
		t.Errorf("kind %s", d.Kind)
	}
}

// ADP §22: a hostile pattern costs no more than the payload's length.
func TestHostilePattern(t *testing.T) {
	w := open(t, obj{"types": []any{obj{"type": "a.b", "kind": "signal", "title": "t", "schema": obj{"properties": obj{"s": obj{"type": "string", "pattern": "^(a+)+$"}}}}}})
	w.refuse(adp.PayloadSchemaViolation, creator, "a.b", obj{"s": strings.Repeat("a", 40_000) + "!"})
	w.must(creator, "a.b", obj{"s": strings.Repeat("a", 40_000)})
}

// Closed shapes are judged without the room, and before anything costly.
func TestCheckPayload(t *testing.T) {
	w := peopled(t)
	for typ, payload := range everything() {
		if err := CheckPayload(w.event(creator, typ, payload, nil)); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		err := CheckPayload(w.event(creator, typ, merge(payload, obj{"surprise": 1}), nil))
		if IsBuiltin(typ) && typ != Define && adp.CodeOf(err) != adp.InvalidEvent {
			t.Errorf("%s with a foreign member: %v", typ, err)
		}
	}
	for body, want := range map[string]adp.Code{
		`{"role":"speaker"}`: "", `{"role":"observer","perspective":"p","reason":"r","extra":{}}`: "",
		`{}`: adp.InvalidRequest, `{"role":"x"}`: adp.InvalidRequest, `{"role":"speaker","x":1}`: adp.InvalidRequest, `[]`: adp.InvalidRequest, `{"role":"speaker","reason":1}`: adp.InvalidRequest,
	} {
		v, err := adp.Scan([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckJoinRequest(v); adp.CodeOf(err) != want {
			t.Errorf("%s: %v", body, err)
		}
	}
}
