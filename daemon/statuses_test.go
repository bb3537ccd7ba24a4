package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/store"
)

// elsewhere are the answers that are described and that no test here provokes, with the reason; in their packages they are tested.
var elsewhere = map[string]string{
	"ready 503":          "only while the daemon starts or stops; TestRunAndStop",
	"leaveInterests 429": "the interests of 100,000 agents; feed",
}

// all holds every described answer against what was seen.
func (x *described) all() {
	x.t.Helper()
	for id, op := range x.ops {
		for status := range op.Responses {
			why, excused := elsewhere[id+" "+status]
			if seen := x.seen[id+" "+status]; seen == excused {
				x.t.Errorf("%s %s (%s): %s is described; seen: %v, excused: %q", op.method, op.path, id, status, seen, why)
			}
		}
	}
	for pair := range elsewhere {
		id, status, _ := strings.Cut(pair, " ")
		if x.ops[id].Responses[status] == nil {
			x.t.Errorf("%s is excused, and not described", pair)
		}
	}
}

// beside is the description of another daemon; what it answers counts for this one.
func (x *described) beside(d *running) *described {
	x.t.Helper()
	y := describe(x.t, d)
	y.seen = x.seen
	return y
}

// unchanged asks twice, the second time with the ETag of the first answer.
func (x *described) unchanged(a ask) {
	x.t.Helper()
	_, header := x.call(a)
	if header.Get("ETag") == "" {
		x.t.Errorf("%s: no ETag", a.op)
		return
	}
	a.header, a.status = map[string]string{"If-None-Match": header.Get("ETag")}, http.StatusNotModified
	x.call(a)
}

// untilRefused asks again and again until it has asked too often.
func (x *described) untilRefused(a ask, most int, next func(i int) ask) {
	x.t.Helper()
	for i := range most {
		if next != nil {
			a = next(i)
		}
		a.status = -1
		_, header := x.call(a)
		if x.seen[a.op+" 429"] {
			if n, err := strconv.Atoi(header.Get("Retry-After")); err != nil || n < 1 {
				x.t.Errorf("%s: Retry-After %q", a.op, header.Get("Retry-After"))
			}
			return
		}
	}
	x.t.Errorf("%s: asked %d times and never refused", a.op, most)
}

// hammer asks the same from many sides until it is stopped, so that what is allowed so
// often in a second is refused on a machine that alone would be too slow for it.
func (x *described) hammer(a ask) (stop func()) {
	x.t.Helper()
	ctx, cancel := context.WithCancel(x.t.Context())
	var ended sync.WaitGroup
	for range 32 {
		req, _ := x.request(ctx, x.ops[a.op], a)
		ended.Go(func() {
			for ctx.Err() == nil {
				again := req.Clone(ctx)
				again.Body = io.NopCloser(bytes.NewReader(a.body))
				if resp, err := http.DefaultClient.Do(again); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	return func() { cancel(); ended.Wait() }
}

// rooms are those that a test of answers works with.
type rooms struct {
	open, over, restricted, scheduled string // restricted has ended
	creator, speaker                  *agent
	manifest                          struct {
		Extra struct {
			Events string `json:"events_cid"`
			Bundle string `json:"bundle_cid"`
		}
	}
}

func in(id string) map[string]string { return map[string]string{"room_id": id} }

var bad = map[string]string{"Authorization": "Bearer x"} // a token that does not verify

// refusals provokes what is refused to those who ask for what is not theirs, or is not there.
func (x *described) refusals(r rooms) {
	x.t.Helper()
	stranger := newAgent(x.t)
	status := map[string]string{"room_id": r.restricted, "agent_id": string(r.speaker.id)}
	for _, op := range []string{"readEvents", "readManifest", "readBundle", "readMarkdown", "readProof", "listAgentStatus", "readAgentStatus"} {
		x.call(ask{op: op, path: status, status: 401})
		x.call(ask{op: op, path: status, by: stranger, status: 403})
		x.call(ask{op: op, path: map[string]string{"room_id": "nosuchroom", "agent_id": string(r.speaker.id)}, status: 404})
	}
	for _, op := range []string{"readManifest", "readBundle", "readMarkdown"} {
		x.call(ask{op: op, path: in(r.open), status: 409})
	}
	x.call(ask{op: "readRoom", path: in(r.open), header: bad, status: 401})
	x.call(ask{op: "listMyRooms", by: stranger, query: "membership=x", status: 400})
	x.call(ask{op: "rankedRooms", header: bad, status: 401})
	x.call(ask{op: "streamEvents", path: in(r.open), by: stranger, status: 403})
	x.call(ask{op: "streamEvents", path: in("nosuchroom"), by: stranger, status: 404})
	x.call(ask{op: "listJoinRequests", path: in(r.open), by: r.creator, query: "limit=0", status: 400})
	x.call(ask{op: "listJoinRequests", path: in(r.open), status: 401})
	x.call(ask{op: "listJoinRequests", path: in("nosuchroom"), by: r.creator, status: 404})
	x.call(ask{op: "readJoinRequest", path: map[string]string{"room_id": r.open, "request_id": "jr_x"}, status: 401})
	wish := []byte(`{"role":"observer"}`)
	x.call(ask{op: "requestToJoin", path: in(r.open), body: wish, status: 401})
	x.call(ask{op: "requestToJoin", path: in(r.scheduled), by: stranger, body: wish, status: 403})
	x.call(ask{op: "requestToJoin", path: in("nosuchroom"), by: stranger, body: wish, status: 404})
	x.call(ask{op: "setAgentStatus", path: in(r.open), body: []byte(`{"state":"x"}`), status: 401})
	x.call(ask{op: "setAgentStatus", path: in("nosuchroom"), by: stranger, body: []byte(`{"state":"x"}`), status: 404})
	x.call(ask{op: "setAgentStatus", path: in(r.over), by: r.creator, body: []byte(`{"state":"x"}`), status: 409})
	for _, op := range []string{"listWebhooks", "readWebhook", "pauseWebhook", "resumeWebhook", "testWebhook", "removeWebhook"} {
		path := map[string]string{"webhook_id": "wh_none"}
		x.call(ask{op: op, path: path, status: 401})
		if op != "listWebhooks" {
			x.call(ask{op: op, path: path, by: stranger, status: 404})
		}
	}
	x.call(ask{op: "readInterests", status: 401})
	x.call(ask{op: "leaveInterests", body: []byte(`{"languages":["en"]}`), status: 401})
	x.call(ask{op: "forgetInterests", status: 401})
	x.call(ask{op: "forgetInterests", by: stranger, status: 404})
	x.call(ask{op: "listAttestations", query: "origin=x", status: 400})
	x.call(ask{op: "listEvidence", query: "origin=x", status: 400})
	x.call(ask{op: "proveEntry", path: map[string]string{"statement": adp.Encode(make([]byte, 32))}, status: 404})
	x.call(ask{op: "readContent", path: map[string]string{"cid": "bagaaifra" + strings.Repeat("a", 52)}, status: 404})
}

// receiver passes the challenge of a webhook, until it is turned.
func receiver(t *testing.T) (*httptest.Server, *atomic.Bool) {
	var turned atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct{ Challenge string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil || turned.Load() {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"challenge":%q}`, e.Challenge)
	}))
	t.Cleanup(srv.Close)
	return srv, &turned
}

// tested provokes what is answered to a test of a webhook: by a receiver that has turned bad, and when it is tested too often.
func (x *described) tested() {
	x.t.Helper()
	receiver, turned := receiver(x.t)
	owner := newAgent(x.t)
	body, _ := x.call(ask{op: "addWebhook", by: owner, body: fmt.Appendf(nil, `{"url":%q,"events":["room.ended"]}`, receiver.URL), status: 201})
	var added struct{ ID string }
	if err := json.Unmarshal(body, &added); err != nil {
		x.t.Fatal(err)
	}
	turned.Store(true)
	one := map[string]string{"webhook_id": added.ID}
	x.call(ask{op: "testWebhook", path: one, by: owner, status: 400})
	x.untilRefused(ask{op: "testWebhook", path: one, by: owner}, 100, nil)
}

// tooMuch provokes what is refused for its size, or because it comes too often.
func (x *described) tooMuch(r rooms, receiver string) {
	x.t.Helper()
	d, busy := x.d, newAgent(x.t)
	long := strings.Repeat("x", 70<<10)
	json := map[string]string{"Content-Type": "application/json"}
	x.call(ask{op: "writeEvent", path: in(r.open), body: r.creator.event(x.t, "message.create", text(long), d.room(r.open)), status: 413})
	x.call(ask{op: "requestToJoin", path: in(r.open), by: busy, body: []byte(`{"role":"speaker","reason":"` + long + `"}`), status: 413})
	x.call(ask{op: "setAgentStatus", path: in(r.open), by: r.speaker, body: []byte(`{"state":"` + long + `"}`), status: 413})
	x.call(ask{op: "addWebhook", by: busy, body: bytes.Repeat([]byte("x"), 1<<20), status: 413})
	x.call(ask{op: "leaveInterests", by: busy, body: bytes.Repeat([]byte("x"), 1<<20), status: 413})
	x.call(ask{op: "mcp", header: json, body: bytes.Repeat([]byte("x"), 1<<20), status: 413})
	x.call(ask{op: "addCheckpoint", body: bytes.Repeat([]byte("x"), 1<<20), status: 413})

	x.untilRefused(ask{}, 10, func(i int) ask {
		return ask{op: "writeEvent", path: in(r.open), body: r.creator.event(x.t, "message.create", text("again"), d.room(r.open))}
	})
	x.untilRefused(ask{op: "requestToJoin", path: in(r.open), by: busy, body: []byte(`{"role":"speaker"}`)}, 10, nil)
	for _, a := range []ask{{op: "setAgentStatus", path: in(r.open), by: r.speaker, body: []byte(`{"state":"idle"}`)},
		{op: "mcp", accept: "application/json, text/event-stream", header: json, body: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)}} {
		stop := x.hammer(a)
		x.untilRefused(a, 1000, nil)
		stop()
	}
	x.untilRefused(ask{}, 100, func(i int) ask {
		return ask{op: "addWebhook", by: busy, body: fmt.Appendf(nil, `{"url":%q,"events":["room.ended"]}`, fmt.Sprint(receiver, "/", i))}
	})
}

// held provokes what is answered to those who hold an answer already, and to those who want a part.
func (x *described) held(r rooms, foreign map[string]string) {
	x.t.Helper()
	content := map[string]string{"cid": r.manifest.Extra.Bundle}
	for _, a := range []ask{{op: "readEvents", path: in(r.over)}, {op: "readManifest", path: in(r.over)}, {op: "readBundle", path: in(r.over)}, {op: "readContent", path: content},
		{op: "mirrorReadRoom", path: foreign}, {op: "mirrorReadEvents", path: foreign}, {op: "mirrorReadManifest", path: foreign}, {op: "mirrorReadBundle", path: foreign},
		{op: "searchRooms"}, {op: "searchMessages", path: map[string]string{"word": "first"}}, {op: "rankedRooms", query: "capabilities=api"}, {op: "atomFeed"}, {op: "jsonFeed"}, {op: "markdownFeed"},
		{op: "openapi"}, {op: "docs"}, {op: "asset", path: map[string]string{"name": "page.css"}}, {op: "verifierFile", path: map[string]string{"file": "verify-worker.js"}}} {
		x.unchanged(a)
	}
	for _, op := range []string{"front", "pageRooms", "pageRoom", "pageHosts", "pageHost", "pageWitness", "pageStatus"} {
		until(x.t, op+" to stay as it is for a moment", func() bool { // numbers on it go on
			_, header := x.call(ask{op: op, path: foreign, accept: "text/html"})
			x.call(ask{op: op, path: foreign, accept: "text/html", header: map[string]string{"If-None-Match": header.Get("ETag")}, status: -1})
			return x.seen[op+" 304"]
		})
	}
	part, none := map[string]string{"Range": "bytes=0-9"}, map[string]string{"Range": "bytes=99999999-"}
	for op, path := range map[string]map[string]string{"readContent": content, "mirrorReadBundle": foreign} {
		x.call(ask{op: op, path: path, header: part, status: 206})
		x.call(ask{op: op, path: path, header: none, status: 416})
	}
	x.call(ask{op: "mirrorListRooms", path: foreign, query: "limit=0", status: 400})
	x.call(ask{op: "mirrorReadEvents", path: foreign, query: "limit=0", status: 400})
	x.call(ask{op: "mirrorReadProof", path: foreign, query: "seq=0", status: 400})
	for _, op := range []string{"mirrorRefusePost", "mirrorRefusePut", "mirrorRefusePatch", "mirrorRefuseDelete"} {
		x.call(ask{op: op, path: map[string]string{"authority": "nobody.example", "path": "v1/rooms"}, status: 404})
	}
	x.call(ask{op: "pageRooms", query: "sort=up", accept: "text/html", status: 400})
	x.call(ask{op: "pageRoom", path: map[string]string{"authority": foreign["authority"], "room_id": "nosuchroom"}, accept: "text/html", status: 404})
}

// operated provokes what follows from decisions of the operator.
func (x *described) operated(r rooms) {
	x.t.Helper()
	d := x.d
	agent := newAgent(x.t)
	payload := func(over obj) obj {
		p := obj{"topic": "t", "visibility": "public", "start_time": time.Now().UnixMilli(), "end_time": time.Now().UnixMilli() + 3600_000}
		for k, v := range over {
			p[k] = v
		}
		return p
	}
	x.call(ask{op: "createRoom", body: agent.event(x.t, "room.create", payload(obj{"types": []any{obj{"use": "adp:none/1.0"}}}), nil), status: 422})
	made := agent.event(x.t, "room.create", payload(nil), nil)
	x.call(ask{op: "createRoom", body: made, status: 201})
	x.call(ask{op: "createRoom", body: made, status: 409})
	d.command("/host/access", obj{"rooms_per_creator": 1})
	x.call(ask{op: "createRoom", body: agent.event(x.t, "room.create", payload(nil), nil), status: 429})
	d.command("/host/access", obj{"rooms_per_creator": 0, "room_creation": "closed"})
	x.call(ask{op: "createRoom", body: agent.event(x.t, "room.create", payload(nil), nil), status: 403})
	d.command("/host/access", obj{"room_creation": "open"})
	d.command("/host/withhold", obj{"room": r.over, "seq": 2, "reason": "a name"})
	x.call(ask{op: "readContent", path: map[string]string{"cid": r.manifest.Extra.Events}, status: 451})
}

// forged is a checkpoint whose signature is not what it was.
func forged(signed []byte) []byte {
	at := bytes.LastIndexByte(signed, ' ') + 20
	out := slices.Clone(signed)
	if out[at] = 'A'; signed[at] == 'A' {
		out[at] = 'B'
	}
	return out
}

// cosigned provokes what a witness of logs answers about the log of a host that it follows.
func (x *described) cosigned(a *running) {
	x.t.Helper()
	log := parseKey(x.t, a.keys(x.t).Log)
	add := func(old int, signed []byte, status int) {
		x.t.Helper()
		x.call(ask{op: "addCheckpoint", body: fmt.Appendf(nil, "old %d\n\n%s", old, signed), status: status})
	}
	first := a.checkpoint(x.t, 1)
	_, _, unknown := x.d.call("GET", "/log/checkpoint", nil, nil)
	add(0, unknown, 404)
	add(0, forged(first), 403)
	add(2, first, 400)
	add(0, first, 200)
	a.end(x.t)
	second := a.checkpoint(x.t, 2)
	add(0, second, 409)
	x.call(ask{op: "addCheckpoint", body: fmt.Appendf(nil, "old 1\n%s\n\n%s", strings.Repeat("A", 43)+"=", second), status: 422})
	x.call(ask{op: "readCosigned", path: map[string]string{"hash": cosignature.OriginHash(log.Name())}})
}

// others provokes the answers of daemons that are set up in another way, or have no space left.
func (x *described) others(a *running, creator *agent) {
	x.t.Helper()
	live := a.create(creator, nil)
	ended := a.create(creator, nil)
	for range 3 {
		a.act(creator, ended, "message.create", text("old"))
	}
	a.act(creator, ended, "room.close", obj{})
	few := start(x.t, setup{mirrors: []string{a.origin}, change: func(c *config.Config) {
		c.P2P.Enabled, c.Limits.StreamsPerAddress, c.TrustedProxies = false, 1, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		c.Mirror.Hosts[0].Retention.Count = 2
	}})
	y := x.beside(few)
	at := func(id string) map[string]string {
		return map[string]string{"authority": authority(a.origin), "room_id": id, "cid": id}
	}
	until(x.t, "the mirror to hold both rooms", func() bool {
		one, _, _ := few.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+live, nil, nil)
		two, _, _ := few.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+ended+"/archive", nil, nil)
		return one == 200 && two == 200
	})
	for _, op := range []string{"mirrorReadManifest", "mirrorReadBundle", "mirrorReadMarkdown"} {
		y.call(ask{op: op, path: at(live), status: 409})
	}
	var manifest struct {
		Extra struct {
			Events string `json:"events_cid"`
		}
	}
	if _, _, raw := few.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+ended+"/archive", nil, nil); json.Unmarshal(raw, &manifest) != nil {
		x.t.Fatalf("%s", raw)
	}
	few.command("/mirror/retention", obj{})
	for _, op := range []string{"mirrorReadEvents", "mirrorReadBundle", "mirrorReadMarkdown"} {
		y.call(ask{op: op, path: at(ended), status: 410})
	}
	y.call(ask{op: "readContent", path: at(manifest.Extra.Events), status: 410})
	y.call(ask{op: "metrics", header: map[string]string{"X-Forwarded-For": "198.51.100.7"}, status: 404})
	leave := few.stream(x.t, "/m/"+authority(a.origin)+"/v1/rooms/"+live+"/events/live", "")
	y.call(ask{op: "mirrorStreamEvents", path: at(live), status: 429})
	y.call(ask{op: "mirrorReadEvents", path: at(live), query: "wait=1&after_seq=99", status: 429})
	leave()
}

// full provokes the answers of a daemon without space on its disk, and of one that signs nothing.
func (x *described) full(a *running, creator *agent) {
	x.t.Helper()
	d := start(x.t, setup{change: alone, mirrors: []string{a.origin}})
	open := d.create(creator, nil)
	_, _, theirs := a.call("GET", "/log/checkpoint", nil, nil)
	until(x.t, "the log of the mirrored host to be known", func() bool {
		status, _, _ := d.call("POST", "/witness/add-checkpoint", fmt.Appendf(nil, "old 0\n\n%s", forged(theirs)), nil)
		return status == 403
	})
	head := d.room(open)
	if err := d.stop(); err != nil {
		x.t.Fatal(err)
	}
	d = start(x.t, setup{data: d.data, port: d.port(), mirrors: []string{a.origin}, change: func(c *config.Config) {
		alone(c)
		c.MinFreeDisk, c.Limits.StreamsPerAddress, c.Webhook.Public = 1<<62, 1, true
	}})
	y := x.beside(d)
	now := time.Now().UnixMilli()
	y.call(ask{op: "createRoom", body: creator.event(x.t, "room.create", obj{"topic": "t", "visibility": "public", "start_time": now, "end_time": now + 3600_000}, nil), status: 503})
	y.call(ask{op: "writeEvent", path: in(open), body: creator.event(x.t, "message.create", text("x"), head), status: 503})
	y.call(ask{op: "requestToJoin", path: in(open), by: newAgent(x.t), body: []byte(`{"role":"speaker"}`), status: 503})
	y.call(ask{op: "leaveInterests", by: creator, body: []byte(`{"languages":["en"]}`), status: 503})
	srv, _ := receiver(x.t)
	y.call(ask{op: "addWebhook", by: creator, body: fmt.Appendf(nil, `{"url":%q,"events":["room.ended"]}`, srv.URL), status: 503})
	y.call(ask{op: "readRoomCheckpoint", path: in(open), status: 503})
	y.call(ask{op: "addCheckpoint", body: fmt.Appendf(nil, "old 0\n\n%s", theirs), status: 503})
	token, err := adp.SignToken(creator.key, d.origin, now/1000, 120)
	if err != nil {
		x.t.Fatal(err)
	}
	leave := d.stream(x.t, "/v1/rooms/"+open+"/events/live", token)
	y.call(ask{op: "streamEvents", path: in(open), by: creator, status: 429})
	y.call(ask{op: "readEvents", path: in(open), query: "wait=1&after_seq=99", status: 429})
	leave()

	if err := d.stop(); err != nil && !errors.Is(err, store.ErrDiskFull) {
		x.t.Error(err)
	}

	silent := x.beside(start(x.t, setup{change: func(c *config.Config) {
		alone(c)
		c.AllowPrivateAddresses = false
	}}))
	silent.call(ask{op: "readLogCheckpoint", status: 404})
}

// stream opens a live stream and holds it open until leave is called.
func (d *running) stream(t *testing.T, path string, token string) (leave func()) {
	t.Helper()
	req, err := http.NewRequest("GET", d.origin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %v %v", path, resp, err)
	}
	return func() { resp.Body.Close() }
}
