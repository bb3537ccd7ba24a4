package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
)

// kind is what a member of a built-in payload may be (wire-facts §2).
type kind string

const (
	text     kind = "text"
	filled   kind = "filled" // not empty
	nonBlank kind = "nonBlank"
	hash     kind = "hash"
	hashes   kind = "hashes"
	id       kind = "id" // an Agent ID
	ids      kind = "ids"
	role     kind = "role"
	object   kind = "object"
	boolean  kind = "boolean"
	natural  kind = "natural" // an integer, not negative
	positive kind = "positive"
	tags     kind = "tags"
	content  kind = "content" // a string or an object
	word     kind = "word"    // of a fixed list
	list     kind = "list"    // of objects
)

// wrong gives values that a member of the kind may not have.
func wrong(k kind) []any {
	var deep any = "x"
	for range 20 {
		deep = []any{deep}
	}
	pool := []any{nil, true, 0, -1, 1.5, 1e15, "", " ", "x", "king", []any{}, []any{1}, []any{""}, []any{"a", "a"}, []any{nil}, obj{}, obj{"x": 1}, []any{obj{}},
		[]any{[]any{}}, deep, "did:agent:x", noText(43), "\x00"}
	return slices.DeleteFunc(pool, func(x any) bool { return fits(k, x) })
}

// noText is n bytes that end in no base64url of 32 bytes.
func noText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '!'
	}
	return string(b)
}

func fits(k kind, x any) bool {
	s, isText := x.(string)
	l, isList := x.([]any)
	_, isObject := x.(obj)
	n, isInt := x.(int)
	if f, ok := x.(float64); ok && f == 1e15 {
		n, isInt = int(f), true
	}
	switch k {
	case text:
		return isText
	case filled:
		return isText && s != ""
	case nonBlank:
		return isText && s != "" && s != " "
	case object:
		return isObject
	case content:
		return isText || isObject
	case boolean:
		_, ok := x.(bool)
		return ok
	case natural:
		return isInt && n >= 0
	case positive:
		return isInt && n >= 1
	case hashes, ids, tags, list:
		return isList && len(l) == 0 || k == list && isList && fmt.Sprint(l) == "[map[]]"
	}
	return false
}

var policyMembers = map[string]kind{"moderator_agent_ids": ids, "max_speakers": positive, "observer_allowed": boolean, "extra": object}

// builtins are the built-in types with a good payload each and what their members
// may be.
func builtins(w *world, c, a, target *agent, q adp.Value) map[string]struct {
	actor   *agent
	good    obj
	members map[string]kind
} {
	return map[string]struct {
		actor   *agent
		good    obj
		members map[string]kind
	}{
		room.Create: {c, w.contract(nil), map[string]kind{"topic": nonBlank, "visibility": word, "start_time": natural, "end_time": natural, "agenda": text, "guidance": text,
			"tags": tags, "language": text, "policy": object, "types": list, "extra": object}},
		room.Update: {c, obj{"agenda": "x"}, map[string]kind{"topic": nonBlank, "agenda": text, "guidance": text, "tags": tags, "language": text, "policy": object,
			"start_time": natural, "end_time": natural}},
		room.Join: {newAgent(w.t), obj{"role": "speaker"}, map[string]kind{"role": role, "request_id": filled, "perspective": text}},
		room.Review: {c, obj{"request": q, "decision": "approve", "role": "speaker"},
			map[string]kind{"request": word, "decision": word, "role": role, "reason": text, "extra": object}},
		room.Leave:      {a, obj{}, map[string]kind{"reason": text, "references": hashes, "extra": object}},
		room.Close:      {c, obj{}, map[string]kind{"reason": text, "references": hashes, "extra": object}},
		room.Cancel:     {c, obj{}, map[string]kind{"reason": text, "references": hashes, "extra": object}},
		room.RoleUpdate: {c, obj{"member": target.id, "role": "observer"}, map[string]kind{"member": id, "role": role, "reason": text, "extra": object}},
		room.Remove:     {c, obj{"member": target.id}, map[string]kind{"member": id, "ban": boolean, "reason": text, "references": hashes, "extra": object}},
		room.Message:    {a, say("x"), map[string]kind{"content_type": filled, "content": content, "references": hashes, "extra": object}},
		room.Define: {c, typeDecl(nil), map[string]kind{"type": word, "kind": word, "title": nonBlank, "schema": object, "description": text, "roles": word, "instructions": text,
			"version": text, "status": word, "rate_hint": positive, "max_payload_hint": positive, "extra": object}},
	}
}

// accidents are refusals that have nothing to do with a wrong value.
var accidents = []adp.Code{adp.Internal, adp.RateLimited, adp.RoomHeadMismatch, adp.NonceNotGreater, adp.TimestampOutOfWindow, adp.InvalidSignature, adp.InvalidEventHash}

// Every member of every built-in payload, with every wrong value: a coded refusal,
// and the room stays as it is.
func TestWrongMembers(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	c, rid := w.open(nil)
	a, target := w.member(rid, "speaker"), w.member(rid, "speaker")
	q := w.ask(rid, newAgent(t), obj{"role": "moderator"}).ok(201).Get("request")
	head := w.headOf(rid)
	snapshot := func() string {
		var s []byte
		var err error
		if e := w.replica(rid).View(context.Background(), func(st *room.State) { s, err = st.Snapshot() }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		return string(s)
	}
	before, rooms, tried := snapshot(), len(w.set.All()), 0
	for typ, b := range builtins(w, c, a, target, q) {
		try := func(p any, what string) {
			t.Helper()
			tried++
			on, path := head, "/v1/rooms/"+rid
			if typ == room.Create {
				on, path = at{}, "/v1/rooms"
			}
			got := w.post(path, w.event(b.actor, typ, p, on, nil))
			if got.status < 400 || got.status >= 500 || got.code() == "" || slices.Contains(accidents, got.code()) {
				t.Errorf("%s with %s: %d %.200s", typ, what, got.status, got.body)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(b.members)) {
			for _, x := range wrong(b.members[name]) {
				p := maps.Clone(b.good)
				p[name] = x
				try(p, fmt.Sprintf("%s = %#v", name, x))
			}
			if _, required := b.good[name]; required && !(typ == room.Update && name == "agenda") {
				try(with(b.good, obj{name: nil}), "no "+name)
			}
		}
		try(with(b.good, obj{"colour": "red"}), "a member too many")
		for _, x := range []any{nil, 1, "x", true, []any{}, []any{b.good}} {
			try(x, fmt.Sprintf("payload %v", x))
		}
		if _, ok := b.members["policy"]; ok {
			for name, k := range policyMembers {
				for _, x := range wrong(k) {
					try(with(b.good, obj{"policy": map[string]any{name: x}}), fmt.Sprintf("policy.%s = %#v", name, x))
				}
			}
		}
		if typ == room.Review {
			for name, k := range map[string]kind{"id": word, "room_id": word, "applicant": id, "role": word, "created_at": word, "expires_at": word, "perspective": word,
				"reason": word, "extra": word} { // anything but the request itself is an altered one
				for _, x := range wrong(k) {
					altered := q.Any().(map[string]any)
					altered[name] = x
					try(with(b.good, obj{"request": altered}), fmt.Sprintf("request.%s = %#v", name, x))
				}
			}
		}
	}
	if after := snapshot(); after != before {
		t.Errorf("refused events changed the room:\n%s\n%s", before, after)
	}
	if n := len(w.records(rid, nil)); n != 3 || len(w.set.All()) != rooms {
		t.Errorf("%d records, %d rooms", n, len(w.set.All()))
	}
	if tried < 1500 {
		t.Errorf("only %d were tried", tried)
	}
	// the good ones are good; those that end the room come last
	for typ, b := range builtins(w, c, a, target, q) {
		switch typ {
		case room.Create, room.Cancel, room.Close, room.Leave, room.Remove:
		default:
			w.act(b.actor, rid, typ, b.good).ok(200)
		}
	}
	w.act(c, rid, room.Remove, obj{"member": target.id}).ok(200)
	w.act(a, rid, room.Leave, obj{}).ok(200)
	w.act(c, rid, room.Close, obj{}).ok(200)
}

// Members of the event around the payload.
func TestWrongEventMembers(t *testing.T) {
	w := newWorld(t, nil)
	c, rid := w.open(nil)
	head := w.headOf(rid)
	for _, name := range []string{"protocol", "type", "actor", "created_at", "nonce", "payload", "room_id", "base_seq", "base_hash", "mentions"} {
		for _, x := range wrong(word) {
			if name == "mentions" && fits(ids, x) || name == "nonce" && fits(positive, x) {
				continue
			}
			e := obj{"protocol": adp.Protocol, "type": room.Message, "actor": c.id, "created_at": t0, "nonce": 1000, "payload": say("x"), "room_id": rid, "base_seq": head.seq, "base_hash": head.hash}
			e[name] = x
			got := w.post("/v1/rooms/"+rid, seal(t, c, e))
			if got.status < 400 || got.status >= 500 || got.code() == "" {
				t.Errorf("%s = %#v: %d %.200s", name, x, got.status, got.body)
			}
		}
	}
	env := w.event(c, room.Message, say("x"), head, nil)
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(env, &parts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"event", "hash", "signature"} {
		for _, x := range wrong(word) {
			changed := maps.Clone(parts)
			changed[name] = encode(t, x)
			raw, err := json.Marshal(changed)
			if err != nil {
				t.Fatal(err)
			}
			w.post("/v1/rooms/"+rid, raw).refused(400)
		}
		changed := maps.Clone(parts)
		delete(changed, name)
		raw, _ := json.Marshal(changed)
		w.post("/v1/rooms/"+rid, raw).refused(400, adp.InvalidEvent)
	}
	w.post("/v1/rooms/"+rid, env).ok(200)
}
