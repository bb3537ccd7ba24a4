package daemon

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/openapi"
)

// Every route is described, every description has its route, and every endpoint answers as it is described.
func TestAnswersAreAsDescribed(t *testing.T) {
	receiver, _ := receiver(t)
	a := start(t, setup{})
	d := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1], change: func(c *config.Config) { c.Webhook.Public, c.Limits.RequestsPerSecond = true, 1e6 }})
	x := describe(t, d)

	full, err := openapi.All(openapi.About{Origin: d.origin})
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(full.JSON(), &all); err != nil {
		t.Fatal(err)
	}
	for path, item := range all.Paths {
		for method := range item {
			if method != "parameters" && x.paths[path][method] == nil {
				t.Errorf("%s %s is described, and a daemon that has everything does not have it", method, path)
			}
		}
	}

	creator, speaker, stranger := newAgent(t), newAgent(t), newAgent(t)
	theirs := a.create(creator, nil)
	a.act(creator, theirs, "message.create", text("first"))
	a.act(creator, theirs, "room.close", map[string]any{})
	foreign := map[string]string{"authority": authority(a.origin), "room_id": theirs, "agent": string(speaker.id), "path": "me/rooms"}

	now := time.Now().UnixMilli()
	event := func(by *agent, id, typ string, payload any) []byte { return by.event(t, typ, payload, d.room(id)) }
	made := func(by *agent, over map[string]any) string {
		payload := map[string]any{"topic": "Described", "agenda": "a", "visibility": "public", "start_time": now - 1000, "end_time": now + 3600_000, "language": "en", "tags": []string{"api"},
			"types": []any{map[string]any{"use": "adp:reactions/1.0"}}, "policy": map[string]any{"max_speakers": 5}}
		for k, v := range over {
			payload[k] = v
		}
		body, header := x.call(ask{op: "createRoom", body: by.event(t, "room.create", payload, nil), status: 201})
		var room struct{ ID, URL string }
		if err := json.Unmarshal(body, &room); err != nil || room.URL != header.Get("Location") {
			t.Fatalf("created %s: %v", body, err)
		}
		return room.ID
	}
	open, over, closed := made(creator, nil), made(creator, nil), made(creator, map[string]any{"visibility": "restricted"})
	room := func(id string) map[string]string { return map[string]string{"room_id": id} }
	x.call(ask{op: "writeEvent", path: room(open), body: event(speaker, open, "room.join", map[string]any{"role": "speaker"})})
	x.call(ask{op: "writeEvent", path: room(over), body: event(creator, over, "message.create", text("last"))})
	x.call(ask{op: "writeEvent", path: room(over), body: event(creator, over, "room.close", map[string]any{})})
	x.call(ask{op: "writeEvent", path: room(over), body: event(creator, over, "message.create", text("too late")), status: 409})
	x.call(ask{op: "writeEvent", path: room(open), body: []byte("{}"), status: 400})
	x.call(ask{op: "writeEvent", path: room(open), body: event(stranger, open, "message.create", text("x")), status: 403})
	x.call(ask{op: "writeEvent", path: room(open), body: event(creator, open, "no.such", map[string]any{}), status: 422})
	x.call(ask{op: "writeEvent", path: room("nosuchroom"), body: creator.event(t, "message.create", text("x"), map[string]any{"id": "nosuchroom", "head": d.room(open)["head"]}), status: 404})
	x.call(ask{op: "createRoom", body: []byte("{}"), status: 400})
	x.call(ask{op: "createRoom", body: bytes.Repeat([]byte("x"), 600<<10), status: 413})

	x.call(ask{op: "discovery"})
	x.call(ask{op: "listPublicRooms", query: "limit=1"})
	x.call(ask{op: "listPublicRooms", query: "limit=0", status: 400})
	x.call(ask{op: "listMyRooms", by: speaker})
	x.call(ask{op: "listMyRooms", status: 401})
	_, header := x.call(ask{op: "readRoom", path: room(open)})
	x.call(ask{op: "readRoom", path: room(open), header: map[string]string{"If-None-Match": header.Get("ETag")}, status: 304})
	x.call(ask{op: "readRoom", path: room("nosuchroom"), status: 404})
	x.call(ask{op: "readEvents", path: room(over), query: "after_seq=1&limit=1"})
	x.call(ask{op: "readEvents", path: room(over), query: "after_seq=x", status: 400})
	x.call(ask{op: "readEvents", path: room(closed), status: 401})
	x.call(ask{op: "readEvents", path: room(closed), by: stranger, status: 403})

	body, _ := x.call(ask{op: "requestToJoin", path: room(closed), by: stranger, body: []byte(`{"role":"speaker","perspective":"p","reason":"r"}`), status: 201})
	var asked struct{ Request struct{ ID string } }
	if err := json.Unmarshal(body, &asked); err != nil {
		t.Fatal(err)
	}
	request := map[string]string{"room_id": closed, "request_id": asked.Request.ID}
	x.call(ask{op: "requestToJoin", path: room(closed), by: stranger, body: []byte(`{"role":"king"}`), status: 400})
	x.call(ask{op: "requestToJoin", path: room(over), by: stranger, body: []byte(`{"role":"speaker"}`), status: 409})
	x.call(ask{op: "listJoinRequests", path: room(closed), by: creator})
	x.call(ask{op: "listJoinRequests", path: room(closed), by: stranger, status: 403})
	x.call(ask{op: "readJoinRequest", path: request, by: stranger})
	var quoted struct{ Request json.RawMessage }
	if err := json.Unmarshal(body, &quoted); err != nil {
		t.Fatal(err)
	}
	_, _, raw := d.call("GET", "/v1/rooms/"+closed, nil, nil) // a restricted room shows itself
	var restricted map[string]any
	if err := json.Unmarshal(raw, &restricted); err != nil {
		t.Fatal(err)
	}
	x.call(ask{op: "writeEvent", path: room(closed), body: creator.event(t, "room.join.review", map[string]any{"request": quoted.Request, "decision": "approve", "role": "speaker"}, restricted)})
	x.call(ask{op: "readJoinRequest", path: request, by: creator})
	x.call(ask{op: "readJoinRequest", path: map[string]string{"room_id": closed, "request_id": "jr_none"}, by: creator, status: 404})

	status := map[string]string{"room_id": open, "agent_id": string(speaker.id)}
	x.call(ask{op: "readAgentStatus", path: status, status: 404})
	x.call(ask{op: "setAgentStatus", path: room(open), by: speaker, body: []byte(`{"state":"reading","seen_seq":2,"extra":{}}`)})
	x.call(ask{op: "setAgentStatus", path: room(open), by: speaker, body: []byte(`{"mood":"good"}`), status: 400})
	x.call(ask{op: "setAgentStatus", path: room(open), by: stranger, body: []byte(`{"state":"x"}`), status: 403})
	x.call(ask{op: "readAgentStatus", path: status})
	x.call(ask{op: "listAgentStatus", path: room(open)})
	x.call(ask{op: "streamEvents", path: room(open), by: speaker})
	x.call(ask{op: "streamEvents", path: room(open), status: 401})
	x.call(ask{op: "streamEvents", path: room(over), by: creator, status: 409})

	body, _ = x.call(ask{op: "readManifest", path: room(over)})
	var manifest struct {
		Extra struct {
			Events string `json:"events_cid"`
			Bundle string `json:"bundle_cid"`
		}
	}
	if err := json.Unmarshal(body, &manifest); err != nil || manifest.Extra.Bundle == "" {
		t.Fatalf("manifest %s: %v", body, err)
	}
	x.call(ask{op: "readManifest", path: room(open), status: 409})
	x.call(ask{op: "readBundle", path: room(over)})
	x.call(ask{op: "readBundle", path: room(over), header: map[string]string{"Range": "bytes=0-9"}, status: 206})
	x.call(ask{op: "readBundle", path: room(over), header: map[string]string{"Range": "bytes=99999999-"}, status: 416})
	x.call(ask{op: "readMarkdown", path: room(over)})
	x.call(ask{op: "readProof", path: room(over)})
	x.call(ask{op: "readProof", path: room(over), query: "from=1&to=3"})
	x.call(ask{op: "readProof", path: room(over), query: "-", status: 400})
	x.call(ask{op: "readRoomCheckpoint", path: room(over)})
	x.call(ask{op: "readRoomCheckpoint", path: room("nosuchroom"), status: 404})
	x.call(ask{op: "readContent", path: map[string]string{"cid": manifest.Extra.Events}})
	x.call(ask{op: "readContent", path: map[string]string{"cid": manifest.Extra.Bundle}})
	x.call(ask{op: "readContent", path: map[string]string{"cid": "x"}, status: 400})

	until(t, "the mirror to hold the archive, attested", func() bool {
		var found []json.RawMessage
		d.call("GET", "/v1/index/rooms?attested=attested&host="+url.QueryEscape(a.origin), nil, &found)
		return len(found) == 1
	})
	for _, op := range []string{"mirrorDiscovery", "mirrorListRooms", "mirrorReadRoom", "mirrorReadEvents", "mirrorStreamEvents", "mirrorReadManifest", "mirrorReadBundle", "mirrorReadMarkdown", "mirrorListAgentStatus", "mirrorReadProof"} {
		x.call(ask{op: op, path: foreign})
		x.call(ask{op: op, path: map[string]string{"authority": "nobody.example", "room_id": theirs}, status: 404})
	}
	for _, op := range []string{"mirrorReadAgentStatus", "mirrorElse"} {
		x.call(ask{op: op, path: foreign, status: 404})
	}
	for _, op := range []string{"mirrorRefusePost", "mirrorRefusePut", "mirrorRefusePatch", "mirrorRefuseDelete"} {
		x.call(ask{op: op, path: foreign, status: 405})
	}
	x.call(ask{op: "searchRooms"})
	x.call(ask{op: "searchRooms", query: "q=described&facets=status,host,language,tag&limit=1"})
	x.call(ask{op: "searchRooms", query: "sort=up", status: 400})

	until(t, "the statement of the own room", func() bool {
		var found []json.RawMessage
		d.call("GET", "/v1/witness/statements?origin="+url.QueryEscape(d.origin), nil, &found)
		return len(found) == 1
	})
	body, _ = x.call(ask{op: "listStatements", query: "origin=" + url.QueryEscape(d.origin)})
	var statements []struct{ Hash string }
	if err := json.Unmarshal(body, &statements); err != nil {
		t.Fatal(err)
	}
	x.call(ask{op: "listStatements", query: "origin=x", status: 400})
	x.call(ask{op: "listAttestations"})
	x.call(ask{op: "listEvidence"})
	proven := map[string]string{"statement": statements[0].Hash}
	until(t, "the statement to be in the log", func() bool {
		code, _, _ := d.call("GET", "/v1/witness/log-entry?hash="+statements[0].Hash, nil, nil)
		return code == 200
	})
	x.call(ask{op: "proveEntry", path: proven})
	x.call(ask{op: "proveEntry", path: proven, accept: "text/plain"})
	x.call(ask{op: "proveEntry", query: "hash=x", status: 400})
	x.call(ask{op: "readLogCheckpoint"})
	x.call(ask{op: "readTile", path: map[string]string{"path": "0/000.p/1"}})
	x.call(ask{op: "readTile", path: map[string]string{"path": "x"}, status: 404})
	x.call(ask{op: "readCosigned", path: map[string]string{"hash": strings.Repeat("0", 64)}, status: 404})
	x.call(ask{op: "addCheckpoint", body: []byte("x"), status: 400})

	hook, _ := json.Marshal(map[string]any{"url": receiver.URL, "events": []string{"room.ended"}, "filters": map[string]any{"tags": []string{"x"}}})
	body, _ = x.call(ask{op: "addWebhook", by: speaker, body: hook, status: 201})
	var added struct{ ID string }
	if err := json.Unmarshal(body, &added); err != nil {
		t.Fatal(err)
	}
	one := map[string]string{"webhook_id": added.ID}
	x.call(ask{op: "addWebhook", by: speaker, body: []byte("{}"), status: 400})
	x.call(ask{op: "addWebhook", body: hook, status: 401})
	for _, op := range []string{"listWebhooks", "readWebhook", "pauseWebhook", "resumeWebhook", "testWebhook", "removeWebhook"} {
		x.call(ask{op: op, path: one, by: speaker})
	}
	x.call(ask{op: "readWebhook", path: one, by: speaker, status: 404})

	until(t, "the message to be found", func() bool {
		var found []json.RawMessage
		d.call("GET", "/v1/index/events?q=first", nil, &found)
		return len(found) == 1
	})
	x.call(ask{op: "searchMessages", path: map[string]string{"word": "first"}})
	x.call(ask{op: "searchMessages", query: "-", status: 400})

	x.call(ask{op: "leaveInterests", by: speaker, body: []byte(`{"capabilities":["Described"],"languages":["en"]}`)})
	x.call(ask{op: "leaveInterests", by: speaker, body: []byte(`{"colours":[]}`), status: 400})
	x.call(ask{op: "readInterests", by: speaker})
	x.call(ask{op: "rankedRooms", query: "capabilities=api,described&lang=en"})
	x.call(ask{op: "rankedRooms", by: stranger})
	x.call(ask{op: "rankedRooms", query: "min_score=2", status: 400})
	x.call(ask{op: "forgetInterests", by: speaker, status: 204})
	x.call(ask{op: "readInterests", by: speaker, status: 404})
	for _, op := range []string{"atomFeed", "jsonFeed", "markdownFeed"} {
		x.call(ask{op: op})
		x.call(ask{op: op, query: "limit=0", status: 400})
	}
	x.call(ask{op: "verifierFile", path: map[string]string{"file": "verify-worker.js"}})
	x.call(ask{op: "verifierFile", path: map[string]string{"file": "none"}, status: 404})

	for _, op := range []string{"self", "listHosts", "didDocument", "openapi", "health", "ready", "metrics", "front", "docs"} {
		x.call(ask{op: op})
	}
	x.call(ask{op: "front", accept: "text/html"})
	rpc := map[string]string{"Content-Type": "application/json"}
	const both = "application/json, text/event-stream"
	x.call(ask{op: "mcp", accept: both, header: rpc, body: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)})
	x.call(ask{op: "mcp", accept: both, header: rpc, body: []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), status: 202})
	x.call(ask{op: "mcp", accept: both, header: rpc, body: []byte("{"), status: 400})
	x.call(ask{op: "mcp", accept: both, header: map[string]string{"Content-Type": "text/plain"}, body: []byte("{}"), status: 415})
	x.call(ask{op: "mcp", header: map[string]string{"Origin": "https://evil.example"}, status: 403})

	for _, op := range []string{"pageRooms", "pageRoom", "pageHosts", "pageHost", "pageWitness", "pageStatus"} {
		x.call(ask{op: op, path: foreign, accept: "text/html"})
	}
	x.call(ask{op: "pageHost", path: map[string]string{"authority": "nobody.example"}, accept: "text/html", status: 404})
	x.call(ask{op: "asset", path: map[string]string{"name": "page.css"}})
	x.call(ask{op: "asset", path: map[string]string{"name": "none"}, status: 404})

	has := rooms{open: open, over: over, restricted: closed, scheduled: made(creator, map[string]any{"start_time": now + 1800_000, "visibility": "restricted", "policy": map[string]any{"observer_allowed": false}}),
		creator: creator, speaker: speaker}
	has.manifest = manifest
	x.refusals(has)
	x.tested()
	x.held(has, foreign)
	x.cosigned(a)
	x.tooMuch(has, receiver.URL)
	x.operated(has)
	x.others(a, newAgent(t))
	x.full(a, newAgent(t))
	x.all()
}

// The page shows what the description holds, in the frame of the other pages.
func TestDocsPage(t *testing.T) {
	d := start(t, setup{change: func(c *config.Config) { c.Host.Enabled, c.P2P.Enabled = false, false }})
	x := describe(t, d)
	if x.ops["createRoom"].path != "" || x.ops["searchRooms"].path == "" {
		t.Error("a mirror describes the creation of rooms, or does not describe its index")
	}
	status, header, raw := d.call("GET", "/docs", nil, nil)
	page := string(raw)
	if status != 200 || !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'") || !strings.Contains(page, `<a href="/docs" aria-current="page">`) {
		t.Errorf("%d %v", status, header)
	}
	for id, op := range x.ops {
		if !strings.Contains(page, `id="`+id+`"`) || !strings.Contains(page, "curl") {
			t.Errorf("%s %s is not on the page", op.method, op.path)
		}
	}
	if m := regexp.MustCompile(`<(script|link|img|iframe)[^>]*"(https?:)?//[^"]*"`).FindAllString(page, -1); len(m) > 0 {
		t.Errorf("the page loads from elsewhere: %v", m)
	}
}
