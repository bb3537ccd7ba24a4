package host_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha3"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/store"
)

func TestMessages(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(nil)
	_, elsewhere := w.open(nil)
	first := w.act(c, id, room.Message, say("one")).ok(200)
	ref := first.Get("envelope").Get("hash").Text()
	msg := func(p, over obj) answer {
		t.Helper()
		return w.on(w.headOf(id), c, room.Message, with(say("x"), p), over)
	}
	msg(obj{"references": []any{ref}}, obj{"mentions": []any{newAgent(t).id}}).ok(200)
	for _, p := range []obj{{"references": []any{noHash()}}, {"references": []any{w.records(elsewhere, nil)[0].Envelope.Hash}}, {"content": nil}, {"colour": 1}} {
		msg(p, nil).refused(400, adp.InvalidEvent)
	}
	many := make([]any, 33)
	for i := range many {
		many[i] = newAgent(t).id
	}
	for _, m := range []any{many, []any{many[0], many[0]}, []any{"did:agent:x"}, "x", obj{}} {
		msg(nil, obj{"mentions": m}).refused(400, adp.InvalidEvent)
	}
	msg(obj{"content": strings.Repeat("x", 70_000)}, nil).refused(413, adp.PayloadTooLarge)
	msg(nil, obj{"mentions": many[:32]}).ok(200)
}

func TestTypes(t *testing.T) {
	w := newWorld(t, nil)
	finding := obj{"type": "review.finding", "kind": "message", "title": "Finding", "schema": obj{"type": "object", "required": []any{"severity"},
		"properties": obj{"severity": obj{"enum": []any{"low", "high"}}}, "additionalProperties": false}}
	c, id := w.open(obj{"types": []any{obj{"use": "adp:reactions/1.0"}, obj{"use": "adp:deliberation/1.0", "types": []any{"poll.create", "poll.vote"},
		"overrides": obj{"poll.vote": obj{"roles": []any{"moderator", "speaker", "observer"}}}}, finding}})
	var names []string
	for d := range w.resource(id, nil).Get("types").Elements() {
		names = append(names, d.Get("type").Text())
		if d.Get("type").Is("poll.vote") && string(d.Get("roles").Raw()) != `["moderator","speaker","observer"]` {
			t.Errorf("got %s", d.Raw())
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"poll.create", "poll.vote", "reaction.create", "review.finding"}) {
		t.Errorf("types %v", names)
	}
	observer := w.member(id, "observer")
	w.act(c, id, "review.finding", obj{"severity": "low"}).ok(200)
	w.act(c, id, "review.finding", obj{"severity": "odd"}).refused(422, adp.PayloadSchemaViolation)
	w.act(c, id, "review.unknown", obj{}).refused(422, adp.TypeNotDefined)
	w.act(c, id, "question.create", obj{"question": "q"}).refused(422, adp.TypeNotDefined)
	w.act(observer, id, "review.finding", obj{"severity": "low"}).refused(403, adp.PermissionDenied)
	poll := w.act(c, id, "poll.create", obj{"poll_id": "p", "question": "q", "options": []any{obj{"id": "a", "label": "A"}}}).ok(200)
	w.act(observer, id, "poll.vote", obj{"poll_event_id": poll.Get("envelope").Get("hash").Text(), "option_ids": []any{"a"}}).ok(200)
	w.act(observer, id, room.Define, finding).refused(403, adp.PermissionDenied)
	w.act(c, id, room.Define, with(finding, obj{"kind": "signal"})).refused(400, adp.InvalidEvent)
	w.act(c, id, room.Define, with(finding, obj{"schema": obj{"type": "object"}})).ok(200)
	w.act(c, id, "review.finding", obj{"severity": "odd"}).ok(200)
	w.act(c, id, room.Define, with(finding, obj{"status": "disabled"})).ok(200)
	w.act(c, id, "review.finding", obj{"severity": "low"}).refused(422, adp.TypeDisabled)
	w.act(c, id, room.Define, obj{"use": "adp:moderation/1.0"}).ok(200)
	if r := w.resource(id, nil); !bytes.Contains(r.Get("types").Raw(), []byte(`"turn.update"`)) {
		t.Errorf("types %s", r.Get("types").Raw())
	}
	w.records(id, nil)
}

func TestHostilePattern(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"types": []any{typeDecl(obj{"schema": obj{"type": "object", "properties": obj{"s": obj{"type": "string", "pattern": "^(a+)+$"}}}})}})
	start := time.Now()
	w.act(c, id, "a.b", obj{"s": strings.Repeat("a", 40_000) + "!"}).refused(422, adp.PayloadSchemaViolation)
	if d := time.Since(start); d > time.Minute { // it takes milliseconds, or for ever
		t.Errorf("it took %v", d)
	}
}

func TestPayloadSize(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"types": []any{obj{"use": "adp:realtime/1.0"}}})
	rest := len(encode(t, say("")))
	w.act(c, id, room.Message, say(strings.Repeat("é", 40_000))).refused(413, adp.PayloadTooLarge)
	w.act(c, id, room.Message, say(strings.Repeat("x", 65_537-rest))).refused(413, adp.PayloadTooLarge)
	w.act(c, id, room.Message, say(strings.Repeat("x", 65_536-rest))).ok(200)
	w.act(c, id, "session.offer", obj{"session_id": "s", "session_type": "webrtc", "media": []any{"audio"}, "description": obj{"type": "offer", "sdp": strings.Repeat("x", 100_000)}}).ok(200)
	w.act(c, id, "session.candidate", obj{"session_id": "s", "candidate": obj{"candidate": strings.Repeat("x", 20_000)}}).refused(413, adp.PayloadTooLarge)
	w.post("/v1/rooms/"+id, bytes.Repeat([]byte(" "), 600_000)).refused(413, adp.PayloadTooLarge)
	w.post("/v1/rooms", bytes.Repeat([]byte(" "), 600_000)).refused(413, adp.PayloadTooLarge)
}

const packURI = "https://packs.test/p.json"

func packDocument(types ...string) []byte {
	var list []string
	for _, name := range types {
		list = append(list, fmt.Sprintf(`{"type":%q,"kind":"signal","title":"Note","schema":{}}`, name))
	}
	return []byte(`{ "protocol": "agent-discourse/1.0", "packs": [{"id":"ext/1.0","title":"Ext","types":[` + strings.Join(list, ",") + `]}]}`)
}

func sha256Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + adp.Encode(sum[:])
}

func TestExternalPack(t *testing.T) {
	w := newWorld(t, nil)
	doc := packDocument("ext.note")
	w.packs.have[packURI] = doc
	create := func(digest string) answer {
		t.Helper()
		return w.create(newAgent(t), obj{"types": []any{obj{"pack": packURI, "digest": digest}}})
	}
	for _, kind := range []string{"sha256:", "sha3-256:"} {
		create(kind+noHash()).refused(422, adp.PackUnavailable)
	}
	sum := sha3.Sum256(doc)
	for _, digest := range []string{sha256Digest(doc), "sha3-256:" + adp.Encode(sum[:])} {
		id := create(digest).ok(201).Get("id").Text()
		if d := w.resource(id, nil).Get("types"); d.Len() != 1 || !bytes.Contains(d.Raw(), []byte("ext.note")) {
			t.Errorf("types %s", d.Raw())
		}
	}
	before := w.packs.asked
	create(sha256Digest(doc)).ok(201) // it is at hand now
	if w.packs.asked != before {
		t.Error("a pack that the store holds was fetched again")
	}
	w.packs.have[packURI] = []byte("{}")
	create(sha256Digest([]byte("{}"))).refused(422, adp.PackUnavailable)
}

// A refused write makes the host fetch nothing, or keep nothing.
func TestPacksOfRefused(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Access.RoomCreation = host.CreationAllowList })
	doc := packDocument("ext.one")
	w.packs.have[packURI] = doc
	imp := obj{"pack": packURI, "digest": sha256Digest(doc)}
	kept := func() bool {
		_, ok, err := w.st.Get(store.Pack(sha256Digest(doc)))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	w.create(newAgent(t), obj{"types": []any{imp}}).refused(403, adp.PermissionDenied)
	c := newAgent(t)
	if _, err := w.h.ChangeAccess(host.AccessChange{Allow: []adp.AgentID{c.id}}); err != nil {
		t.Fatal(err)
	}
	id := w.create(c, nil).ok(201).Get("id").Text()
	speaker := w.member(id, "speaker")
	w.act(speaker, id, room.Define, imp).refused(403, adp.PermissionDenied)
	w.act(newAgent(t), id, room.Define, imp).refused(403, adp.PermissionDenied)
	if w.packs.asked != 0 {
		t.Errorf("strangers made the host fetch %d packs", w.packs.asked)
	}
	w.on(at{id, 1, noHash()}, c, room.Define, imp, nil).refused(409, adp.RoomHeadMismatch)
	if kept() {
		t.Error("the pack of a refused event was kept")
	}
	w.act(c, id, room.Define, imp).ok(200)
	if !kept() {
		t.Error("the pack of an accepted event was not kept")
	}
	w.act(c, id, "ext.one", obj{}).ok(200)
	nine := make([]any, 9)
	for i := range nine {
		nine[i] = obj{"pack": fmt.Sprintf("https://packs.test/%d", i), "digest": "sha256:" + noHash()}
	}
	asked := w.packs.asked
	w.create(c, obj{"types": nine}).refused(422, adp.PackUnavailable)
	if w.packs.asked != asked {
		t.Error("nine packs were asked for")
	}
	w.act(c, id, room.Close, obj{}).ok(200)
	m := w.get("/v1/rooms/"+id+"/archive", nil).ok(200)
	if src := m.Get("extra").Get("pack_sources"); src.Len() != 1 || !bytes.Contains(m.Get("packs").Raw(), []byte("ext.one")) {
		t.Errorf("the archive lacks the pack: %s", m.Raw())
	}
}

func TestRates(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"types": []any{obj{"use": "adp:reactions/1.0"}, typeDecl(nil)}})
	first := w.records(id, nil)[0].Envelope.Hash
	react := func(a *agent) answer {
		t.Helper()
		return w.act(a, id, "reaction.create", obj{"event_id": first, "reaction": "agree"})
	}
	other := w.member(id, "speaker")
	for range 12 {
		w.act(c, id, room.Message, obj{"content_type": "text/plain"}).refused(400, adp.InvalidEvent)
	}
	times := func(n int, do func() answer) {
		t.Helper()
		for range n {
			do().ok(200)
		}
	}
	limited := func(a answer, limit string) {
		t.Helper()
		a.refused(429, adp.RateLimited)
		if !strings.HasPrefix(a.data().Get("limit").Text(), limit) || a.head.Get("Retry-After") == "" || num(a.data().Get("retry_after")) < 1 {
			t.Errorf("got %s", a.body)
		}
	}
	times(30, func() answer { return react(c) })
	limited(react(c), "rate_hint of reaction.create")
	times(30, func() answer { return w.act(c, id, "a.b", obj{}) })
	limited(w.act(c, id, "a.b", obj{}), "signal_per_minute")
	react(other).ok(200)
	times(5, func() answer { return w.act(c, id, room.Message, say("x")) })
	limited(w.act(c, id, room.Message, say("x")), "message_per_minute")
	times(9, func() answer { return w.act(c, id, room.Update, obj{"agenda": "x"}) }) // room.create was the first
	limited(w.act(c, id, room.Update, obj{"agenda": "x"}), "control_per_minute")
	w.clock.Add(minute - 1)
	limited(w.act(c, id, room.Message, say("x")), "message_per_minute")
	if err := w.h.Sweep(); err != nil {
		t.Fatal(err)
	}
	limited(w.act(c, id, room.Message, say("x")), "message_per_minute")
	w.clock.Add(1)
	times(5, func() answer { return w.act(c, id, room.Message, say("x")) })
	limited(w.act(c, id, room.Message, say("x")), "message_per_minute")
	times(10, func() answer { return w.act(c, id, room.Update, obj{"agenda": "x"}) })
	w.act(c, id, room.Leave, obj{}).ok(200) // never limited
	w.act(c, id, room.Close, obj{}).ok(200)
	w.records(id, nil)
}
