package host_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
)

func TestDiscovery(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.AgentID, o.Access.RoomsTotal = newAgent(t).id, 7 })
	v := w.get("/.well-known/agent-discourse", nil).ok(200)
	if !v.Get("protocol").Is(adp.Protocol) || !v.Get("host").Is("host.test") || !v.Get("endpoints").Get("api").Is(origin+"/v1") {
		t.Errorf("got %s", v.Raw())
	}
	have := func(name string, want ...string) {
		t.Helper()
		for _, text := range want {
			found := false
			for e := range v.Get(name).Elements() {
				found = found || e.Is(text)
			}
			if !found {
				t.Errorf("%s lacks %s", name, text)
			}
		}
	}
	have("features", "rooms", "restricted-rooms", "private-rooms", "join-requests", "join-review", "sse-event-stream", "agent-status", "archives",
		"registered-packs", "external-packs")
	have("registered_packs", "adp:reactions/1.0", "adp:deliberation/1.0", "adp:curation/1.0", "adp:moderation/1.0", "adp:realtime/1.0")
	for name, want := range map[string]int64{"message_per_minute": 5, "signal_per_minute": 60, "control_per_minute": 10, "payload_bytes": 65_536,
		"payload_bytes_ceiling": 262_144, "mentions": 32, "schema_bytes": 16_384, "types_per_room": 64, "room_min_ms": 600_000,
		"room_max_ms": 604_800_000, "speakers_per_room": 100, "observers_per_room": 1000, "body_bytes": 524_288} {
		if got := num(v.Get("limits").Get(name)); got != want {
			t.Errorf("limits.%s is %d, want %d", name, got, want)
		}
	}
	if q := v.Get("quotas"); num(q.Get("rooms_total")) != 7 || !q.Get("room_creation").Is("open") || num(q.Get("join_request_ttl_ms")) != hour {
		t.Errorf("quotas: %s", q.Raw())
	}
}

func TestCreate(t *testing.T) {
	w := newWorld(t, nil)
	a := newAgent(t)
	env := w.event(a, room.Create, w.contract(obj{"extra": obj{"n": 1.5, "deep": obj{"é": []any{"😀", nil}}}}), at{}, nil)
	made := w.post("/v1/rooms", env)
	v := made.ok(201)
	id := v.Get("id").Text()
	if !v.Get("status").Is("active") || num(v.Get("seq")) != 1 || string(v.Get("pre_hash").Raw()) != "null" || num(v.Get("received_at")) != t0 {
		t.Errorf("got %s", v.Raw())
	}
	if !regexp.MustCompile(`^[0-9a-v]{20}$`).MatchString(id) {
		t.Errorf("the room ID is %q", id)
	}
	if url := origin + "/v1/rooms/" + id; !v.Get("url").Is(url) || made.head.Get("Location") != url || made.head.Get("Max-Seen-Nonce") != "1" {
		t.Errorf("url %s, header %v", v.Get("url").Raw(), made.head)
	}
	recs := w.records(id, nil)
	want, err := adp.Scan(env)
	if err == nil {
		want, err = want.Canonical()
	}
	if err != nil || len(recs) != 1 || string(recs[0].Envelope.JSON()) != string(want.Raw()) || recs[0].Hash != v.Get("hash").Text() {
		t.Errorf("%v: %s", err, recs[0].JSON())
	}
	r := w.resource(id, nil)
	if !r.Get("creator").Is(string(a.id)) || num(r.Get("head").Get("seq")) != 1 || !r.Get("head").Get("hash").Is(recs[0].Hash) {
		t.Errorf("resource %s", r.Raw())
	}
	w.act(a, id, room.Message, say("hello")).ok(200) // the creator is a moderator
}

func TestScheduled(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
	if r := w.resource(id, nil); !r.Get("status").Is("scheduled") {
		t.Errorf("got %s", r.Raw())
	}
	w.act(a, id, room.Message, say("early")).refused(409, adp.RoomNotActive)
	w.act(a, id, room.Close, obj{}).refused(409, adp.RoomNotActive)
	w.act(a, id, room.Define, obj{"use": "adp:reactions/1.0"}).ok(200)
	w.act(a, id, room.Cancel, obj{"reason": "no"}).ok(200)
	if r := w.resource(id, nil); !r.Get("status").Is("cancelled") {
		t.Errorf("got %s", r.Raw())
	}
	w.act(newAgent(t), id, room.Join, obj{"role": "speaker"}).denied(adp.RoomNotActive, adp.RoomEnded)
	w.get("/v1/rooms/"+id+"/archive", nil).refused(409, adp.RoomNotActive)
	w.ask(id, newAgent(t), obj{"role": "speaker"}).refused(409, adp.RoomNotActive)
	w.put("/v1/rooms/"+id+"/agent-status", a, obj{"state": "idle"}).refused(409, adp.RoomNotActive)
}

func typeDecl(over obj) obj {
	return with(obj{"type": "a.b", "kind": "signal", "title": "t", "schema": obj{}}, over)
}

func TestCreateRefused(t *testing.T) {
	many := make([]any, 65)
	for i := range many {
		many[i] = typeDecl(obj{"type": fmt.Sprintf("a.t%d", i)})
	}
	doubling := obj{}
	for i := range 21 {
		doubling[fmt.Sprintf("d%d", i)] = obj{}
		if i < 20 {
			next := obj{"$ref": fmt.Sprintf("#/$defs/d%d", i+1)}
			doubling[fmt.Sprintf("d%d", i)] = obj{"allOf": []any{next, next}}
		}
	}
	types := func(entries ...any) obj { return obj{"types": entries} }
	w := newWorld(t, nil)
	for _, c := range []struct {
		name string
		over obj
		code adp.Code
	}{
		{"blank topic", obj{"topic": " \t\n"}, adp.InvalidEvent},
		{"no topic", obj{"topic": nil}, adp.InvalidEvent},
		{"end before start", obj{"end_time": 1}, adp.InvalidEvent},
		{"end has passed", obj{"start_time": t0 - 2*hour, "end_time": t0 - hour}, adp.InvalidEvent},
		{"unknown member", obj{"surprise": 1}, adp.InvalidEvent},
		{"unknown visibility", obj{"visibility": "secret"}, adp.InvalidEvent},
		{"max_speakers 0", obj{"policy": obj{"max_speakers": 0}}, adp.InvalidEvent},
		{"malformed moderator", obj{"policy": obj{"moderator_agent_ids": []any{"did:agent:x"}}}, adp.InvalidEvent},
		{"unknown policy member", obj{"policy": obj{"turn": 1}}, adp.InvalidEvent},
		{"duplicate tags", obj{"tags": []any{"a", "a"}}, adp.InvalidEvent},
		{"fractional start", obj{"start_time": 1.5}, adp.InvalidEvent},
		{"topic not a string", obj{"topic": 7}, adp.InvalidEvent},
		{"unknown registered pack", types(obj{"use": "adp:nothing/1.0"}), adp.PackUnavailable},
		{"reserved type name", types(typeDecl(obj{"type": "room.x"})), adp.InvalidEvent},
		{"type with one segment", types(typeDecl(obj{"type": "vote"})), adp.InvalidEvent},
		{"remote $ref", types(typeDecl(obj{"schema": obj{"$ref": "https://example.com/x.json"}})), adp.InvalidEvent},
		{"schema of the wrong shape", types(typeDecl(obj{"schema": obj{"type": "nothing"}})), adp.InvalidEvent},
		{"same type twice", types(typeDecl(nil), typeDecl(nil)), adp.InvalidEvent},
		{"override of a type not imported", types(obj{"use": "adp:deliberation/1.0", "types": []any{"poll.create"}, "overrides": obj{"poll.vote": obj{"roles": []any{"observer"}}}}), adp.InvalidEvent},
		{"override that changes kind", types(obj{"use": "adp:reactions/1.0", "overrides": obj{"reaction.create": obj{"kind": "message"}}}), adp.InvalidEvent},
		{"external pack that cannot be had", types(obj{"pack": "https://nothing.test/p.json", "digest": "sha256:" + strings.Repeat("A", 43)}), adp.PackUnavailable},
		{"sixty-five types", obj{"types": many}, adp.InvalidEvent},
		{"a schema that doubles at each level", types(typeDecl(obj{"schema": obj{"$ref": "#/$defs/d0", "$defs": doubling}})), adp.InvalidEvent},
		{"a room of five minutes", obj{"end_time": t0 + 5*minute}, adp.InvalidEvent},
		{"a room of eight days", obj{"end_time": t0 + 8*24*hour}, adp.InvalidEvent},
		{"schema over 16 KiB", types(typeDecl(obj{"schema": obj{"description": strings.Repeat("x", 17_000)}})), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := w.in(t).create(newAgent(t), c.over)
			if c.code == "" {
				a.denied(adp.InvalidEvent, adp.PayloadTooLarge)
				return
			}
			a.denied(c.code)
		})
	}
	for _, over := range []obj{{"room_id": "x"}, {"base_seq": 1}, {"mentions": []any{}}, {"extra": 1}} {
		w.post("/v1/rooms", w.event(newAgent(t), room.Create, w.contract(nil), at{}, over)).refused(400, adp.InvalidEvent)
	}
	if n := len(w.set.All()); n != 0 {
		t.Errorf("%d rooms came of refused events", n)
	}
}

func TestWrongEndpoint(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	head := w.headOf(id)
	w.post("/v1/rooms", w.event(a, room.Message, say("x"), head, nil)).refused(400, adp.InvalidEvent)
	w.on(head, a, room.Create, w.contract(nil), nil).refused(400, adp.InvalidEvent)
	w.get("/v1/rooms/"+nowhere, nil).refused(404, adp.RoomNotFound)
	w.on(at{nowhere, 1, noHash()}, newAgent(t), room.Join, obj{"role": "speaker"}, nil).refused(404, adp.RoomNotFound)
	w.get("/v1/nothing", nil).refused(404, adp.NotFound)
	if got := w.send("DELETE", "/v1/rooms", "", nil).refused(405, adp.InvalidRequest); got.head.Get("Allow") != "POST" {
		t.Errorf("Allow: %q", got.head.Get("Allow"))
	}
}

func TestUpdate(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(obj{"agenda": "a", "tags": []any{"x", "y"}})
	w.act(a, id, room.Update, obj{"agenda": "", "tags": []any{"z"}, "end_time": t0 + 2*hour}).ok(200)
	r := w.resource(id, nil)
	if r.Get("agenda").Text() != "" || string(r.Get("tags").Raw()) != `["z"]` || num(r.Get("end_time")) != t0+2*hour || !r.Get("topic").Is("Quorum") {
		t.Errorf("got %s", r.Raw())
	}
	for _, p := range []obj{{}, {"visibility": "private"}, {"topic": " "}, {"start_time": t0 + 1}, {"end_time": t0 - 1}, {"end_time": t0 + 8*24*hour},
		{"types": []any{}}, {"policy": obj{"max_speakers": 0}}} {
		w.act(a, id, room.Update, p).refused(400, adp.InvalidEvent)
	}
	if n := len(w.records(id, nil)); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
}
