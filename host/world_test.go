package host_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha3"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

type obj = map[string]any

const (
	origin   = "http://host.test"
	t0       = int64(1_790_000_000_000)
	second   = int64(1000)
	minute   = 60 * second
	hour     = 60 * minute
	nowhere  = "d8ftedhpqhsusbg001tg" // a room ID that no room has
	badToken = "a.b.c"
)

// defaults are those of ADP §21 and wire-facts §6.
var defaults = host.Limits{MessagePerMinute: 5, SignalPerMinute: 60, ControlPerMinute: 10, PayloadBytes: 65_536, PayloadBytesCeiling: 262_144, Mentions: 32,
	SchemaBytes: 16_384, TypesPerRoom: 64, RoomMinMS: 10 * minute, RoomMaxMS: 7 * 24 * hour, SpeakersPerRoom: 100, ObserversPerRoom: 1000, BodyBytes: 512 << 10}

// roomy is without the quotas a minute.
var roomy = func() host.Limits {
	l := defaults
	l.MessagePerMinute, l.SignalPerMinute, l.ControlPerMinute = 0, 0, 0
	return l
}()

// agent is somebody with a key. Its nonces are its own and only grow.
type agent struct {
	key   ed25519.PrivateKey
	id    adp.AgentID
	nonce atomic.Int64
}

func newAgent(t testing.TB) *agent {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return withKey(key)
}

func withKey(key ed25519.PrivateKey) *agent {
	return &agent{key: key, id: adp.NewAgentID(key.Public().(ed25519.PublicKey))}
}

// world is a host with what it stands on. Its clock stands still until it is set.
type world struct {
	t       testing.TB
	st      *store.Store
	set     *replica.Set
	h       *host.Host
	handler http.Handler
	clock   *atomic.Int64 // that of now, unless a test has another
	now     func() int64
	opt     host.Options
	dir     *directory
	packs   *packs
}

// directory answers what the test says, and keeps what it was asked.
type directory struct {
	sync.Mutex
	asked url.Values
	ids   []string
	next  string
	err   error
}

func (d *directory) Public(q url.Values) ([]string, string, error) {
	d.Lock()
	defer d.Unlock()
	d.asked = q
	return d.ids, d.next, d.err
}

// packs serves external packs by URI.
type packs struct {
	sync.Mutex
	have  map[string][]byte
	asked int
	hold  func() // what an answer waits for; nil: nothing
}

func (p *packs) FetchPack(_ context.Context, uri string) ([]byte, error) {
	p.Lock()
	defer p.Unlock()
	p.asked++
	if p.hold != nil {
		p.Unlock()
		p.hold()
		p.Lock()
	}
	if raw, ok := p.have[uri]; ok {
		return raw, nil
	}
	return nil, fmt.Errorf("nothing there")
}

func memory(t testing.TB) *store.Store {
	t.Helper()
	return openStore(t, store.Options{InMemory: true})
}

func openStore(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	st, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return st
}

// newWorld is a host with the default limits in memory; change may alter its
// options.
func newWorld(t testing.TB, change func(*host.Options)) *world {
	t.Helper()
	return over(t, memory(t), change)
}

// over is a host over a store, that may hold rooms already.
func over(t testing.TB, st *store.Store, change func(*host.Options)) *world {
	t.Helper()
	set, err := replica.Open(st)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, st: st, set: set, clock: &atomic.Int64{}, dir: &directory{}, packs: &packs{have: map[string][]byte{}}}
	w.clock.Store(t0)
	w.opt = host.Options{Origin: origin, Replicas: set, Limits: defaults, Access: host.Access{RoomCreation: host.CreationOpen}, JoinRequestTTL: hour,
		AgentStatusTTL: 5 * minute, Directory: w.dir, Packs: w.packs, Cursors: web.NewCursors(make([]byte, 32)), Version: "test", Now: w.clock.Load, Log: quiet}
	if change != nil {
		change(&w.opt)
	}
	w.now = w.opt.Now
	if w.h, err = host.New(w.opt); err != nil {
		t.Fatal(err)
	}
	mux := web.NewMux()
	w.h.Routes(mux)
	w.handler = (&web.Guard{Origin: origin, Log: quiet, Rate: rate.Inf}).Wrap(mux)
	return w
}

var quiet = slog.New(slog.DiscardHandler)

// in is the same world in a part of a test.
func (w *world) in(t testing.TB) *world {
	c := *w
	c.t = t
	return &c
}

// answer is what the host said.
type answer struct {
	t      testing.TB
	status int
	head   http.Header
	body   []byte
	v      adp.Value
}

func (a answer) code() adp.Code { return adp.Code(a.v.Get("error").Get("code").Text()) }
func (a answer) data() adp.Value {
	return a.v.Get("error").Get("data")
}

// refused checks for a coded error with a message that says something.
func (a answer) refused(status int, codes ...adp.Code) answer {
	a.t.Helper()
	if a.status != status || len(codes) > 0 && a.code() != codes[0] {
		a.t.Fatalf("want %d %v, got %d %.300s", status, codes, a.status, a.body)
	}
	if len(a.v.Get("error").Get("message").Text()) < 10 || a.data().Kind() != adp.Object {
		a.t.Fatalf("a poor error: %.300s", a.body)
	}
	return a
}

// denied checks for a refusal by one of several rules.
func (a answer) denied(codes ...adp.Code) {
	a.t.Helper()
	for _, c := range codes {
		if a.code() == c && a.status >= 400 && a.status < 500 {
			return
		}
	}
	a.t.Fatalf("want one of %v, got %d %.300s", codes, a.status, a.body)
}

func (a answer) ok(status int) adp.Value {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("want %d, got %d %.400s", status, a.status, a.body)
	}
	return a.v
}

// send asks the host. token "" is none.
func (w *world) send(method, path, token string, body []byte) answer {
	w.t.Helper()
	req := httptest.NewRequest(method, origin+path, bytes.NewReader(body))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, req)
	a := answer{t: w.t, status: rec.Code, head: rec.Header(), body: rec.Body.Bytes()}
	if a.head.Get("Content-Type") == "application/json" && len(a.body) > 0 {
		v, err := adp.ScanDepth(a.body, 200)
		if err != nil {
			w.t.Fatalf("%s %s answered %d with what is no JSON: %v %.200s", method, path, a.status, err, a.body)
		}
		a.v = v
	}
	return a
}

func (w *world) token(a *agent) string {
	w.t.Helper()
	if a == nil {
		return ""
	}
	token, err := adp.SignToken(a.key, origin, w.now()/1000, 120)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

func (w *world) get(path string, a *agent) answer {
	w.t.Helper()
	return w.send("GET", path, w.token(a), nil)
}

func (w *world) put(path string, a *agent, body any) answer {
	w.t.Helper()
	return w.send("PUT", path, w.token(a), encode(w.t, body))
}

func (w *world) post(path string, body []byte) answer {
	w.t.Helper()
	return w.send("POST", path, "", body)
}

func encode(t testing.TB, x any) []byte {
	t.Helper()
	if raw, ok := x.([]byte); ok {
		return raw
	}
	v, err := adp.EncodeValue(x)
	if err != nil {
		t.Fatal(err)
	}
	return v.Raw()
}

// seal signs any event object.
func seal(t testing.TB, a *agent, event obj) []byte {
	t.Helper()
	return sealRaw(a, encode(t, event))
}

// sealRaw signs the text of an event as it stands.
func sealRaw(a *agent, event []byte) []byte {
	sum := sha3.Sum256(event)
	return fmt.Appendf(nil, `{"event":%s,"hash":%q,"signature":%q}`, event, adp.Encode(sum[:]), adp.Encode(ed25519.Sign(a.key, sum[:])))
}

// with is base with members replaced; a nil removes.
func with(base, over obj) obj {
	out := maps.Clone(base)
	for k, v := range over {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

// at is a place in a room's chain.
type at struct {
	room string
	seq  int64
	hash string
}

func (w *world) replica(id string) *replica.Replica {
	w.t.Helper()
	r, ok := w.set.Get(origin, id)
	if !ok {
		w.t.Fatalf("there is no room %s", id)
	}
	return r
}

// headOf is the room head now.
func (w *world) headOf(id string) at {
	w.t.Helper()
	p := at{room: id}
	if err := w.replica(id).View(context.Background(), func(s *room.State) { p.seq, p.hash = s.Head.Seq, s.Head.Hash }); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// event is an envelope on a place in a room; over replaces members of the event.
func (w *world) event(a *agent, typ string, payload any, on at, over obj) []byte {
	w.t.Helper()
	e := obj{"protocol": adp.Protocol, "type": typ, "actor": a.id, "created_at": w.now(), "nonce": a.nonce.Add(1), "payload": payload}
	if on.room != "" {
		e["room_id"], e["base_seq"], e["base_hash"] = on.room, on.seq, on.hash
	}
	return seal(w.t, a, with(e, over))
}

// on posts an event that rests on a place, to the room of that place.
func (w *world) on(on at, a *agent, typ string, payload any, over obj) answer {
	w.t.Helper()
	return w.post("/v1/rooms/"+on.room, w.event(a, typ, payload, on, over))
}

// act posts an event on the head.
func (w *world) act(a *agent, id, typ string, payload any) answer {
	w.t.Helper()
	return w.on(w.headOf(id), a, typ, payload, nil)
}

func say(content string) obj { return obj{"content_type": "text/plain", "content": content} }

// contract is a payload of room.create for a room that is active now.
func (w *world) contract(over obj) obj {
	now := w.now()
	return with(obj{"topic": "Quorum", "visibility": "public", "start_time": now - 1, "end_time": now + hour}, over)
}

func (w *world) create(a *agent, over obj) answer {
	w.t.Helper()
	return w.post("/v1/rooms", w.event(a, room.Create, w.contract(over), at{}, nil))
}

// open makes a room with a creator of its own.
func (w *world) open(over obj) (*agent, string) {
	w.t.Helper()
	a := newAgent(w.t)
	return a, w.create(a, over).ok(201).Get("id").Text()
}

// member is a new agent that joined a public room.
func (w *world) member(id, role string) *agent {
	w.t.Helper()
	a := newAgent(w.t)
	w.act(a, id, room.Join, obj{"role": role}).ok(200)
	return a
}

func (w *world) ask(id string, a *agent, body any) answer {
	w.t.Helper()
	return w.send("POST", "/v1/rooms/"+id+"/join-requests", w.token(a), encode(w.t, body))
}

// admit takes a new agent into a room by request, review and join.
func (w *world) admit(creator *agent, id, role string) *agent {
	w.t.Helper()
	a := newAgent(w.t)
	q := w.ask(id, a, obj{"role": role}).ok(201).Get("request")
	w.act(creator, id, room.Review, obj{"request": q, "decision": "approve", "role": role}).ok(200)
	w.act(a, id, room.Join, obj{"role": role, "request_id": q.Get("id").Text()}).ok(200)
	return a
}

// records are those of a room, read over HTTP page by page and verified.
func (w *world) records(id string, a *agent) []*adp.Record {
	w.t.Helper()
	var all []*adp.Record
	v := room.NewVerifier(id, nil)
	for after := int64(0); ; {
		page := w.get(fmt.Sprintf("/v1/rooms/%s/events?limit=1000&after_seq=%d", id, after), a).ok(200)
		for raw := range page.Elements() {
			rec := verified(w.t, raw)
			if err := v.Add(rec); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, rec)
		}
		if n := int64(len(all)); n == after {
			break
		} else {
			after = n
		}
	}
	if v.Counts[room.Violation] > 0 {
		w.t.Fatalf("the host broke the rules: %+v", v.Findings())
	}
	return all
}

func verified(t testing.TB, raw adp.Value) *adp.Record {
	t.Helper()
	rec, err := adp.ParseRecord(raw)
	if err == nil {
		err = rec.CheckSignature()
	}
	if err == nil {
		err = rec.Envelope.CheckHash()
	}
	if err != nil {
		t.Fatalf("a record that does not verify: %v %.200s", err, raw.Raw())
	}
	return rec
}

// resource is the Room resource.
func (w *world) resource(id string, a *agent) adp.Value {
	w.t.Helper()
	return w.get("/v1/rooms/"+id, a).ok(200)
}

func num(v adp.Value) int64 {
	n, ok := v.Int()
	if !ok {
		return -1
	}
	return n
}

func noHash() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return adp.Encode(b)
}

// sign ends a token.
func sign(a *agent, input string) string {
	return input + "." + adp.Encode(ed25519.Sign(a.key, []byte(input)))
}

// sendHeader asks with an Authorization header as it stands.
func (w *world) sendHeader(method, path, authorization string) answer {
	w.t.Helper()
	req := httptest.NewRequest(method, origin+path, nil)
	req.Header.Set("Authorization", authorization)
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, req)
	v, err := adp.Scan(rec.Body.Bytes())
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{w.t, rec.Code, rec.Header(), rec.Body.Bytes(), v}
}

func (w *world) sendContext(ctx context.Context, path string) answer {
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", origin+path, nil))
	v, err := adp.Scan(rec.Body.Bytes())
	if err != nil {
		w.t.Error(err)
	}
	return answer{w.t, rec.Code, rec.Header(), rec.Body.Bytes(), v}
}
