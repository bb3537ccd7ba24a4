package host_test

import (
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
)

// fuzzed are rooms that a fuzzer writes to; they are made anew when they ended or
// grew.
type fuzzed struct {
	w     *world
	c     *agent
	id    string
	after int
}

func newFuzzed(f *testing.F) *fuzzed {
	return &fuzzed{w: newWorld(f, func(o *host.Options) { o.Limits = roomy })}
}

func (z *fuzzed) room(t *testing.T) {
	if z.after--; z.after > 0 && z.w.in(t).status(z.id, z.c) == "active" {
		return
	}
	z.after = 300
	z.c, z.id = z.w.in(t).open(obj{"visibility": "restricted", "types": []any{obj{"use": "adp:reactions/1.0"}, obj{"use": "adp:curation/1.0"}, typeDecl(nil)}})
}

// sane checks an answer to whatever was sent: no failure of our own, and a code on
// every refusal.
func sane(t *testing.T, a answer, good int) {
	t.Helper()
	switch {
	case a.status == good:
	case a.status < 400 || a.status >= 500:
		t.Fatalf("got %d %.300s", a.status, a.body)
	default:
		a.t = t
		a.refused(a.status, a.code())
		if a.code() == "" {
			t.Fatalf("no code: %.300s", a.body)
		}
	}
}

// FuzzWriteBody sends the text as it is, and as the payload of a signed event of
// some type.
func FuzzWriteBody(f *testing.F) {
	z := newFuzzed(f)
	names := []string{room.Update, room.Join, room.Review, room.Leave, room.Close, room.Cancel, room.RoleUpdate, room.Remove, room.Message, room.Define, room.Create,
		"reaction.create", "graph.update", "a.b", "no.type"}
	for i, seed := range []string{`{"content":"x","content_type":"text/plain"}`, `{"agenda":"x"}`, `{"role":"speaker"}`, `{"use":"adp:moderation/1.0"}`, `{}`, `{"schema":{"$ref":"#"}}`,
		`{"types":[{"use":"adp:realtime/1.0"}],"topic":"x","visibility":"public","start_time":1790000000000,"end_time":1790003600000}`,
		`{"type":"a.c","kind":"signal","title":"t","schema":{"type":"object","properties":{"a":{"pattern":"^(a|b)*$"}},"anyOf":[{},{"not":{}}]}}`,
		`{"event":{},"hash":"","signature":""}`, `{"operation":"upsert_node","node":{"id":"a","title":"b","parent_id":null}}`, `[`, ``, "\xff", `{"a":1e400}`} {
		f.Add([]byte(seed), uint8(i))
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint8) {
		z.room(t)
		w := z.w.in(t)
		sane(t, w.post("/v1/rooms/"+z.id, body), 200)
		sane(t, w.post("/v1/rooms", body), 201)
		payload, err := adp.ScanDepth(body, adp.MaxDepth-2)
		if err != nil {
			return
		}
		if payload, err = payload.Canonical(); err != nil {
			t.Fatalf("what was scanned has no canonical form: %v", err)
		}
		typ, on, path, good := names[int(n)%len(names)], w.headOf(z.id), "/v1/rooms/"+z.id, 200
		if typ == room.Create {
			on, path, good = at{}, "/v1/rooms", 201
		}
		env := w.event(z.c, typ, payload, on, nil)
		got := w.post(path, env)
		sane(t, got, good)
		switch got.code() {
		case adp.InvalidEventHash, adp.InvalidSignature:
			t.Fatalf("a sound envelope was refused: %s", got.body)
		}
		if got.status == good {
			sane(t, w.post(path, env), 409)
		}
	})
}

// FuzzJoinRequestBody: whatever is taken can be read, and reviewed.
func FuzzJoinRequestBody(f *testing.F) {
	z := newFuzzed(f)
	for _, seed := range []string{`{"role":"speaker"}`, `{"role":"observer","perspective":"p","reason":"r","extra":{"a":[1,2.5,"x",null]}}`, `{"role":"moderator","extra":{"a":` +
		strings.Repeat("[", 55) + strings.Repeat("]", 55) + `}}`, `{"role":"king"}`, `{}`, `[]`, ``, "{\"role\":\"speaker\",\"reason\":\"\\ud800\"}", `{"extra":{"x":1e20},"role":"speaker"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		z.room(t)
		w := z.w.in(t)
		a := newAgent(t)
		got := w.ask(z.id, a, body)
		if sane(t, got, 201); got.status != 201 {
			return
		}
		q := got.v.Get("request")
		if back := w.get("/v1/rooms/"+z.id+"/join-requests/"+q.Get("id").Text(), a).ok(200); string(back.Get("request").Raw()) != string(q.Raw()) {
			t.Fatalf("it reads %s, and was %s", back.Raw(), q.Raw())
		}
		w.act(z.c, z.id, room.Review, obj{"request": q, "decision": "reject"}).ok(200)
	})
}

// FuzzStatusBody: whatever is taken reads the same.
func FuzzStatusBody(f *testing.F) {
	z := newFuzzed(f)
	for _, seed := range []string{`{"state":"idle"}`, `{"state":"working","summary":"s","seen_seq":1,"expires_at":1790000100000,"extra":{"a":[1.5,"😀"]}}`, `{"state":""}`,
		`{"state":"x","seen_hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`, `{}`, `[]`, ``, `{"state":"\u2028"}`, `{"state":"x","expires_at":-1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		z.room(t)
		w := z.w.in(t)
		path := "/v1/rooms/" + z.id + "/agent-status"
		w.clock.Add(2 * second) // stays below sixty a minute
		defer w.clock.Add(-2 * second)
		got := w.put(path, z.c, body)
		if sane(t, got, 200); got.status != 200 {
			return
		}
		one := w.get(path+"/"+string(z.c.id), z.c)
		if num(got.v.Get("expires_at")) <= w.now() {
			one.refused(404, adp.AgentStatusNotFound)
			return
		}
		if v := one.ok(200); string(v.Get("status").Raw()) != string(got.v.Raw()) {
			t.Fatalf("it reads %s, and was %s", v.Raw(), got.v.Raw())
		}
	})
}
