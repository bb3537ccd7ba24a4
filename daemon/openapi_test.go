package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/openapi"
)

// described is what a test needs of /openapi.json.
type described struct {
	t       *testing.T
	d       *running
	paths   map[string]map[string]json.RawMessage
	ops     map[string]operation // by operationId
	schemas *jsonschema.Compiler
	seen    map[string]bool // operationId and status
}

type operation struct {
	ID           string `json:"operationId"`
	Undocumented bool   `json:"x-undocumented"`
	Query        string `json:"x-call"`
	Security     []any
	Responses    map[string]any
	method, path string
}

// nothing refuses to load schemas from anywhere.
type nothing struct{}

func (nothing) Load(at string) (any, error) { return nil, fmt.Errorf("%s is not to be loaded", at) }

const document = "mem:openapi.json"

func describe(t *testing.T, d *running) *described {
	t.Helper()
	status, header, raw := d.call("GET", "/openapi.json", nil, nil)
	if status != http.StatusOK || header.Get("ETag") == "" {
		t.Fatalf("/openapi.json: %d %v", status, header)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	x := &described{t: t, d: d, ops: map[string]operation{}, seen: map[string]bool{}, schemas: jsonschema.NewCompiler()}
	x.schemas.UseLoader(nothing{})
	x.schemas.DefaultDraft(jsonschema.Draft2020)
	if err := x.schemas.AddResource(document, root); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	x.paths = doc.Paths
	for path, item := range doc.Paths {
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			if item[method] == nil {
				continue
			}
			op := operation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(item[method], &op); err != nil {
				t.Fatal(err)
			}
			if op.Undocumented {
				t.Errorf("nobody has described %s %s: see internal/openapi/parts", op.method, path)
			}
			x.ops[op.ID] = op
		}
	}
	return x
}

// ask is one call of an operation. Path holds values for the parameters in braces, in path and query.
type ask struct {
	op     string
	path   map[string]string
	query  string // "-" for none; "" for that of the description
	body   []byte
	by     *agent // who signs the request token
	accept string
	header map[string]string
	status int // 0 is any 2xx
}

// call asks and holds the answer against what is described of it.
func (x *described) call(a ask) (body []byte, header http.Header) {
	x.t.Helper()
	op, ok := x.ops[a.op]
	if !ok {
		x.t.Errorf("no operation is described as %s", a.op)
		return nil, nil
	}
	put := func(s string, escape func(string) string) string {
		for name, value := range a.path {
			s = strings.ReplaceAll(s, "{"+name+"}", escape(value))
		}
		return s
	}
	at := put(op.path, func(s string) string { return strings.ReplaceAll(url.PathEscape(s), "%2F", "/") })
	if a.query == "" {
		a.query = op.Query
	}
	if a.query != "-" && a.query != "" {
		at += "?" + put(a.query, url.QueryEscape)
	}
	name := fmt.Sprintf("%s (%s %s)", a.op, op.method, at)
	ctx, cancel := context.WithTimeout(x.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, op.method, x.d.origin+at, bytes.NewReader(a.body))
	if err != nil {
		x.t.Fatal(err)
	}
	if a.by != nil {
		token, err := adp.SignToken(a.by.key, x.d.origin, time.Now().Unix(), 120)
		if err != nil {
			x.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if a.accept != "" {
		req.Header.Set("Accept", a.accept)
	}
	for k, v := range a.header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		x.t.Fatalf("%s: %v", name, err)
	}
	defer resp.Body.Close()
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil && resp.StatusCode < 300 && resp.StatusCode != http.StatusAccepted {
		x.t.Errorf("%s: Content-Type %q", name, resp.Header.Get("Content-Type"))
	}
	if media != "text/event-stream" {
		if body, err = io.ReadAll(resp.Body); err != nil {
			x.t.Fatalf("%s: %v", name, err)
		}
	}
	if a.status == 0 && resp.StatusCode/100 != 2 || a.status != 0 && resp.StatusCode != a.status {
		x.t.Errorf("%s: answered %d %.300s, want %d", name, resp.StatusCode, body, a.status)
	}
	status := strconv.Itoa(resp.StatusCode)
	if op.Responses[status] == nil {
		x.t.Errorf("%s: the answer %s is not described: %.300s", name, status, body)
		return body, resp.Header
	}
	x.seen[a.op+" "+status] = true
	x.seen[a.op] = true
	x.hold(name, op, status, media, body)
	return body, resp.Header
}

// hold validates a body against the schema of its media type.
func (x *described) hold(name string, op operation, status, media string, body []byte) {
	x.t.Helper()
	pointer := func(parts ...string) string {
		for i, p := range parts {
			parts[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(p)
		}
		return "/" + strings.Join(parts, "/")
	}
	content := pointer("paths", op.path, strings.ToLower(op.method), "responses", status)
	response := op.Responses[status].(map[string]any)
	if ref, ok := response["$ref"].(string); ok {
		content = strings.TrimPrefix(ref, "#")
		response = x.component(ref)
	}
	types, _ := response["content"].(map[string]any)
	if types == nil {
		if len(body) > 0 && status[0] != '2' {
			x.t.Errorf("%s: the answer %s has a body, and none is described: %.200s", name, status, body)
		}
		return
	}
	if types[media] == nil {
		x.t.Errorf("%s: the answer %s is %q, which is not described", name, status, media)
		return
	}
	schema, err := x.schemas.Compile(document + "#" + content + pointer("content", media, "schema"))
	if err != nil {
		x.t.Fatalf("%s: %v", name, err)
	}
	var v any = string(body)
	if media == "application/json" {
		if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			x.t.Errorf("%s: %v in %.200s", name, err, body)
			return
		}
	}
	if err := schema.Validate(v); err != nil {
		x.t.Errorf("%s: the answer %s is not as described: %v\n%.500s", name, status, err, body)
	}
}

func (x *described) component(ref string) map[string]any {
	_, _, raw := x.d.call("GET", "/openapi.json", nil, nil)
	var at any
	if err := json.Unmarshal(raw, &at); err != nil {
		x.t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[name]
	}
	return at.(map[string]any)
}

// Every route is described, every description has its route, and every endpoint answers as it is described.
func TestAnswersAreAsDescribed(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Challenge string `json:"challenge"`
			Data      struct {
				Challenge string `json:"challenge"`
			} `json:"data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&e); err == nil {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"challenge":%q}`, e.Challenge+e.Data.Challenge)
		}
	}))
	defer receiver.Close()
	a := start(t, setup{})
	d := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1], change: func(c *config.Config) { c.Webhook.Public = true }})
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

	for id, op := range x.ops {
		if !x.seen[id] {
			t.Errorf("%s %s (%s) was not called", op.method, op.path, id)
		}
		for _, status := range []string{"200", "201"} {
			if op.Responses[status] != nil && !x.seen[id+" "+status] && !slices.Contains([]string{"addCheckpoint", "readCosigned"}, id) { // witness/cosign has tests for these
				t.Errorf("%s %s (%s) did not answer %s", op.method, op.path, id, status)
			}
		}
	}
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
	if m := regexp.MustCompile(`(src|href)="(https?:)?//[^"]*"`).FindAllString(strings.ReplaceAll(page, "https://c2sp.org", ""), -1); len(m) > 0 {
		t.Errorf("the page leads elsewhere: %v", m)
	}
}
