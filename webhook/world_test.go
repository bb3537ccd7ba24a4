package webhook

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

const (
	own    = "https://daemon.example"
	other  = "https://rooms.example"
	minute = int64(60_000)
	hour   = 60 * minute
)

type obj = map[string]any

func keyOf(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
}

func idOf(k ed25519.PrivateKey) string {
	return string(adp.NewAgentID(k.Public().(ed25519.PublicKey)))
}

var alice, bob = keyOf(1), keyOf(2)

// world is a store with rooms, and webhooks over it that can be opened again, as a
// start does. Its clock is that of the wall, put forward by skew.
type world struct {
	t    testing.TB
	st   *store.Store
	set  *replica.Set
	w    *Webhooks
	opt  Options
	reg  *prometheus.Registry
	skew atomic.Int64
	stop func()

	mu      sync.Mutex
	hosts   []Host
	hidden  map[string]bool // by room
	attests map[string][]*adp.Envelope
	posts   map[string][]post // by URL, in the order in which they were sent
	busy    map[string]bool   // webhooks with a delivery under way
	made    int
}

// post is what a webhook sent, whether it arrived or not.
type post struct{ event, id string }

func newWorld(t testing.TB, change func(*Options)) *world {
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	w := &world{t: t, st: st, hidden: map[string]bool{}, attests: map[string][]*adp.Envelope{}, posts: map[string][]post{}, busy: map[string]bool{}, stop: func() {}}
	client := fetch.New(fetch.Options{AllowPrivate: true, UserAgent: "witan/test"})
	t.Cleanup(client.CloseIdle)
	w.opt = Options{Origin: own, Store: st, Do: w.sends(client.Do), CheckURL: client.CheckURL, Key: bytes.Repeat([]byte{7}, 32),
		Timeout: time.Minute, RetryFirst: time.Millisecond, Now: w.now,
		Hidden: func(r *replica.Replica) bool { return locked(&w.mu, func() bool { return w.hidden[r.RoomID] }) },
		Hosts:  func() []Host { return locked(&w.mu, func() []Host { return append([]Host(nil), w.hosts...) }) },
		Attestations: func(_, roomID string) ([]*adp.Envelope, error) {
			return locked(&w.mu, func() []*adp.Envelope { return append([]*adp.Envelope(nil), w.attests[roomID]...) }), nil
		},
		Attested: func(_, roomID string) (int64, string) {
			return locked(&w.mu, func() int64 { return int64(len(w.attests[roomID])) }), "attested"
		},
	}
	if change != nil {
		change(&w.opt)
	}
	t.Cleanup(func() { w.stop() })
	w.open()
	return w
}

// sends notes what is sent before it is: a receiver can still be busy with a post that was
// given up when the next one comes, so that the order there says less. A receiver
// here has more time for a challenge than it is given outside.
func (w *world) sends(do func(context.Context, fetch.Request) (*fetch.Response, error)) func(context.Context, fetch.Request) (*fetch.Response, error) {
	return func(ctx context.Context, q fetch.Request) (*fetch.Response, error) {
		p, id := post{q.Header.Get(HeaderEvent), q.Header.Get(HeaderDelivery)}, q.Header.Get(HeaderWebhook)
		w.mu.Lock()
		w.posts[q.URL] = append(w.posts[q.URL], p)
		if p.event == Ping {
			w.mu.Unlock()
			if q.Timeout > pingTime {
				w.t.Errorf("a challenge has %v to be answered", q.Timeout)
			}
			if q.Timeout == pingTime {
				q.Timeout = time.Minute
			}
			return do(ctx, q)
		}
		if w.busy[id] {
			w.t.Errorf("webhook %s posts two events at once", id)
		}
		w.busy[id] = true
		w.mu.Unlock()
		resp, err := do(ctx, q)
		locked(&w.mu, func() any { delete(w.busy, id); return nil })
		return resp, err
	}
}

func locked[T any](mu *sync.Mutex, fn func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return fn()
}

func (w *world) now() int64 { return time.Now().UnixMilli() + w.skew.Load() }

// open makes replicas and webhooks anew from the store, without running them.
func (w *world) open() {
	w.t.Helper()
	w.stop()
	var err error
	if w.set, err = replica.Open(w.st); err != nil {
		w.t.Fatal(err)
	}
	w.opt.Replicas, w.reg = w.set, prometheus.NewRegistry()
	w.opt.Registerer = w.reg
	if w.w, err = New(w.opt); err != nil {
		w.t.Fatal(err)
	}
	w.stop = func() {}
}

// run lets the webhooks work until stop.
func (w *world) run() *world {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	hooks := w.w
	go func() {
		defer close(done)
		if err := hooks.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	w.stop = sync.OnceFunc(func() { cancel(); <-done })
	return w
}

// talk is a room that is written to as its host does.
type talk struct {
	w *world
	r *replica.Replica
}

// nameOf is the ID of the n-th room that is created.
func nameOf(n int) string { return fmt.Sprintf("room%04d", n) }

// create makes a room of an origin.
func (w *world) create(origin string, over obj) *talk {
	w.t.Helper()
	w.made++
	now := w.now()
	payload := obj{"topic": "Quorum of mirrors", "visibility": "public", "start_time": now - minute, "end_time": now + hour, "tags": []string{"federation"}, "language": "en-GB"}
	for k, v := range over {
		payload[k] = v
	}
	roomID := nameOf(w.made)
	e, err := adp.Sign(alice, adp.Draft{Protocol: adp.Protocol, Type: room.Create, CreatedAt: now, Nonce: now, Payload: payload})
	if err != nil {
		w.t.Fatal(err)
	}
	rec := adp.NewRecord(e, roomID, 1, "", now)
	_, ch, err := room.New(roomID).Judge(rec, room.Context{Chain: &room.MemoryChain{}})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	row := replica.Row{}
	if origin != own {
		row.CopiedAt = now
	}
	r, err := w.set.Create(origin, rec, ch, row, nil, func(err error) { done <- err })
	if err == nil {
		err = <-done
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.w.Changed(r)
	return &talk{w, r}
}

// add appends what an agent said and gives its seq.
func (k *talk) add(key ed25519.PrivateKey, typ string, payload any, mentions ...string) int64 {
	return k.addAt(k.w.now(), key, typ, payload, mentions...)
}

func (k *talk) addAt(now int64, key ed25519.PrivateKey, typ string, payload any, mentions ...string) (seq int64) {
	k.w.t.Helper()
	done := make(chan error, 1)
	err := k.r.Take(func(turn *replica.Turn) error {
		s := turn.State
		d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: now, Nonce: now + s.Last.Seq, Payload: payload, RoomID: k.r.RoomID, BaseSeq: s.Head.Seq, BaseHash: s.Head.Hash}
		for _, m := range mentions {
			d.Mentions = append(d.Mentions, adp.AgentID(m))
		}
		e, err := adp.Sign(key, d)
		if err != nil {
			return err
		}
		seq = s.Last.Seq + 1
		rec := adp.NewRecord(e, k.r.RoomID, seq, s.Last.Hash, now)
		_, ch, err := s.Judge(rec, room.Context{Chain: turn})
		if err != nil {
			return err
		}
		return turn.Append(rec, ch, nil, func(err error) { done <- err })
	})
	if err == nil {
		err = <-done
	}
	if err != nil {
		k.w.t.Fatal(err)
	}
	k.w.w.Changed(k.r)
	return seq
}

// row changes the head row, as a mirror does.
func (k *talk) row(change func(*replica.Row)) {
	k.w.t.Helper()
	done := make(chan error, 1)
	err := k.r.Take(func(turn *replica.Turn) error {
		change(turn.Row())
		return turn.Save(nil, func(err error) { done <- err })
	})
	if err == nil {
		err = <-done
	}
	if err != nil {
		k.w.t.Fatal(err)
	}
	k.w.w.Changed(k.r)
}

func say(text string) obj { return obj{"content_type": "text/plain", "content": text} }

// got is one delivery as a receiver has it.
type got struct {
	header http.Header
	body   []byte
	delivery
}

// receiver takes deliveries, and checks the form and the signature of each.
type receiver struct {
	*httptest.Server
	w      *world
	secret atomic.Pointer[string]

	mu    sync.Mutex
	all   []got
	pings int
	// do answers a delivery in place of 200; nil: 200
	do func(http.ResponseWriter, *http.Request, got)
	// answer answers a challenge; nil: as it should
	answer func(http.ResponseWriter, *http.Request, got)
}

func (w *world) receiver() *receiver {
	r := &receiver{w: w}
	r.Server = httptest.NewServer(r)
	w.t.Cleanup(r.Close)
	return r
}

func (r *receiver) behave(do func(http.ResponseWriter, *http.Request, got)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.do = do
}

func (r *receiver) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the daemon gave up
	}
	g := got{header: req.Header.Clone(), body: body}
	if err := json.Unmarshal(body, &g.delivery); err != nil {
		r.w.t.Errorf("a delivery is no JSON: %v %s", err, body)
	}
	if req.Method != "POST" || req.Header.Get("Content-Type") != "application/json" || req.Header.Get(HeaderEvent) != g.Event || req.Header.Get(HeaderDelivery) != g.ID ||
		req.Header.Get(HeaderWebhook) != g.Hook || g.Daemon != own || g.At == 0 {
		r.w.t.Errorf("%s %v does not go with %s", req.Method, req.Header, body)
	}
	if s := r.secret.Load(); s != nil {
		t, _, _ := strings.Cut(strings.TrimPrefix(req.Header.Get(HeaderSignature), "t="), ",")
		var unix int64
		if _, err := fmt.Sscan(t, &unix); err != nil || Sign(*s, unix, body) != req.Header.Get(HeaderSignature) || Sign(*s+"x", unix, body) == req.Header.Get(HeaderSignature) {
			r.w.t.Errorf("the signature %q does not go with %s", req.Header.Get(HeaderSignature), body)
		}
	}
	r.mu.Lock()
	do := r.do
	if g.Event == Ping {
		r.pings++
		do = r.answer
	} else {
		r.all = append(r.all, g)
	}
	r.mu.Unlock()
	switch {
	case do != nil:
		do(rw, req, g)
	case g.Event == Ping:
		web.WriteJSON(rw, 200, obj{"challenge": g.Challenge})
	}
}

func (r *receiver) got() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.all...)
}

// posts are the IDs of the deliveries that were sent to it, and how many challenges.
func (r *receiver) posts() (ids []string, pings int) {
	for _, p := range locked(&r.w.mu, func() []post { return append([]post(nil), r.w.posts[r.URL]...) }) {
		if p.event == Ping {
			pings++
			continue
		}
		ids = append(ids, p.id)
	}
	return ids, pings
}

// events are the first deliveries of each event, in the order of their arrival.
func (r *receiver) events() (list []got) {
	seen := map[string]bool{}
	for _, g := range r.got() {
		if !seen[g.ID] {
			seen[g.ID] = true
			list = append(list, g)
		}
	}
	return list
}

func (r *receiver) names() (list []string) {
	for _, g := range r.events() {
		list = append(list, g.Event)
	}
	return list
}

// register makes a webhook to the receiver.
func (r *receiver) register(events []string, f Filters) Hook {
	r.w.t.Helper()
	h, err := r.w.w.Add(context.Background(), "", Registration{URL: r.URL, Events: events, Filters: f})
	if err != nil {
		r.w.t.Fatal(err)
	}
	r.secret.Store(&h.Secret)
	return h
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	limit := time.After(3 * time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			w.t.Fatalf("waited for %s: %+v", what, w.w.List(""))
		}
	}
}

func (w *world) untilEvents(r *receiver, want ...string) []got {
	w.t.Helper()
	w.until(fmt.Sprint(want), func() bool { return len(r.events()) >= len(want) })
	got := r.events()
	if names := r.names(); strings.Join(names, " ") != strings.Join(want, " ") {
		w.t.Fatalf("got %v, want %v", names, want)
	}
	return got
}

func (w *world) show(id string) Hook {
	w.t.Helper()
	h, err := w.w.Show(id, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// verify checks a delivered record as a receiver would.
func (w *world) verify(g got, seq int64, typ string) {
	w.t.Helper()
	v, err := adp.ScanDepth(g.Record, adp.RecordDepth)
	if err != nil {
		w.t.Fatalf("%s: %v: %s", g.Event, err, g.body)
	}
	rec, err := adp.ParseRecord(v)
	if err == nil {
		err = rec.Envelope.CheckSignature()
	}
	if err != nil || rec.Seq != seq || rec.Envelope.Type != typ || rec.RoomID != g.Room.RoomID {
		w.t.Errorf("%s carries %s, want a good %s at seq %d: %v", g.Event, g.Record, typ, seq, err)
	}
}

// keys counts what the store has in a range.
func (w *world) keys(span func() (from, to []byte)) (n int) {
	w.t.Helper()
	err := w.st.View(func(r store.Reader) error {
		from, to := span()
		return r.Keys(from, to, func([]byte) bool { n++; return true })
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// metric is the value of a counter with a label.
func (w *world) metric(name, label string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func queues() (from, to []byte) { return store.WebhookQueueRange("") }
