package witness

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

const t0 = 1_780_000_000_000

// key is the key whose seed is a text.
func key(seed string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%-32.32s", seed))
}

func agentOf(k ed25519.PrivateKey) adp.AgentID { return adp.NewAgentID(k.Public().(ed25519.PublicKey)) }

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// chain makes the records of a room: a message for each content, then its close.
// A content that begins with "stranger" is by an agent who is no member.
func chain(t testing.TB, roomID string, contents ...string) []*adp.Record {
	t.Helper()
	return chainOf(t, room.Public, roomID, contents...)
}

func chainOf(t testing.TB, visibility, roomID string, contents ...string) []*adp.Record {
	t.Helper()
	creator := key("creator of " + roomID)
	var recs []*adp.Record
	add := func(k ed25519.PrivateKey, typ string, payload any) {
		n := int64(len(recs)) + 1
		d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: t0 + n, Nonce: n, Payload: payload}
		pre := ""
		if n > 1 {
			pre = recs[n-2].Hash
			d.RoomID, d.BaseSeq, d.BaseHash = roomID, n-1, pre
		}
		recs = append(recs, adp.NewRecord(must[*adp.Envelope](t)(adp.Sign(k, d)), roomID, n, pre, t0+n*10))
	}
	add(creator, room.Create, map[string]any{"topic": "T", "visibility": visibility, "start_time": t0, "end_time": t0 + 3_600_000})
	for _, c := range contents {
		k := creator
		if len(c) > 8 && c[:8] == "stranger" {
			k = key("stranger")
		}
		add(k, room.Message, map[string]any{"content_type": "text/plain", "content": c})
	}
	add(creator, room.Close, map[string]any{})
	return recs
}

// node is one daemon's worth of witness.
type node struct {
	t      testing.TB
	o      Options
	w      *Witness
	set    *replica.Set
	sent   chan message // what it published
	told   sync.Map     // room → last state told
	alarms atomic.Int64
}

// world is what all nodes know of keys.
type world struct {
	mu     sync.Mutex
	bound  map[string][]adp.AgentID
	follow map[string][]string
}

func newWorld() *world {
	return &world{bound: map[string][]adp.AgentID{}, follow: map[string][]string{}}
}

func (wo *world) bind(origin string, k ed25519.PrivateKey) {
	wo.mu.Lock()
	defer wo.mu.Unlock()
	wo.bound[origin] = append(wo.bound[origin], agentOf(k))
}

func (wo *world) agents(origin string) []adp.AgentID {
	wo.mu.Lock()
	defer wo.mu.Unlock()
	return slices.Clone(wo.bound[origin])
}

// logKeys are the log keys of an origin in its first generations.
func logKeys(origin string) (keys []ed25519.PublicKey) {
	for g := range 3 {
		keys = append(keys, key(fmt.Sprint("log ", g+1, " ", origin)).Public().(ed25519.PublicKey))
	}
	return keys
}

type alarmCounter struct{ n *node }

func (a alarmCounter) Enabled(context.Context, slog.Level) bool { return true }
func (a alarmCounter) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		a.n.alarms.Add(1)
	}
	return nil
}
func (a alarmCounter) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a alarmCounter) WithGroup(string) slog.Handler      { return a }

// node makes a daemon that follows some origins. It does not run yet.
func (wo *world) node(t testing.TB, origin string, follows ...string) *node {
	t.Helper()
	return wo.nodeOn(t, memory(t), origin, follows...)
}

func memory(t testing.TB) *store.Store {
	t.Helper()
	st := must[*store.Store](t)(store.Open(store.Options{InMemory: true}))
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// nodeOn is node over a store that there is already.
func (wo *world) nodeOn(t testing.TB, st *store.Store, origin string, follows ...string) *node {
	t.Helper()
	n := &node{t: t, set: must[*replica.Set](t)(replica.Open(st)), sent: make(chan message, 4096)}
	n.o = Options{Origin: origin, Key: key(origin), Store: st, Replicas: n.set, Sign: true, Witness: true,
		Bound: func(o string, a adp.AgentID) bool {
			return (o == origin || slices.Contains(follows, o)) && slices.Contains(wo.agents(o), a)
		},
		LogKey:  func(g int) ed25519.PrivateKey { return key(fmt.Sprint("log ", g, " ", origin)) },
		LogKeys: func(o string) []ed25519.PublicKey { return logKeys(o) },
		Agents:  wo.agents, Origins: func() []string { return follows },
		Now: func() int64 { return t0 + 100_000 }, StatementWait: time.Hour,
		Cursors: web.NewCursors(make([]byte, 16)), Log: slog.New(alarmCounter{n}),
		Attested: func(o, id string, k int64, state string) { n.told.Store(o+" "+id, fmt.Sprint(k, " ", state)) }}
	n.again()
	return n
}

// again opens the same store once more, as a restart does.
func (n *node) again() {
	n.t.Helper()
	n.w = must[*Witness](n.t)(New(n.o))
	send := func(topic string) func(context.Context, []byte) error {
		return func(_ context.Context, b []byte) error { n.sent <- message{topic, b}; return nil }
	}
	n.w.SetPublisher(send(TopicStatements), send(TopicEvidence))
}

func (n *node) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	w := n.w // a restart gives the node another one
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				n.t.Error(err)
			}
		})
	}
	n.t.Cleanup(stop)
	return stop
}

// install puts a room into the node as an origin told it, with its archive.
func (n *node) install(origin string, recs []*adp.Record) *replica.Replica {
	n.t.Helper()
	_, ch, err := room.New(recs[0].RoomID).Judge(recs[0], room.Context{Chain: &room.MemoryChain{}})
	if err != nil {
		n.t.Fatal(err)
	}
	done := make(chan error, len(recs)+1)
	answer := func(err error) { done <- err }
	r := must[*replica.Replica](n.t)(n.set.Create(origin, recs[0], ch, replica.Row{}, nil, answer))
	for _, rec := range recs[1:] {
		err := r.Take(func(t *replica.Turn) error {
			v, ch, err := t.State.Judge(rec, room.Context{Chain: t})
			if err != nil {
				return err
			}
			if v.Outcome == room.Violation {
				t.Row().Violations++
			}
			return t.Append(rec, ch, nil, answer)
		})
		if err != nil {
			n.t.Fatal(err)
		}
	}
	for range recs {
		if err := <-done; err != nil {
			n.t.Fatal(err)
		}
	}
	if recs[len(recs)-1].Envelope.Type != room.Close {
		return r
	}
	must[[]byte](n.t)(r.MakeArchive(n.t.Context(), origin+"/v1/rooms/"+r.RoomID, t0+50_000, t0+50_000))
	if origin != n.o.Origin {
		n.setRow(r, func(row *replica.Row) { row.State = replica.Complete })
	}
	return r
}

func (n *node) setRow(r *replica.Replica, change func(*replica.Row)) {
	n.t.Helper()
	done := make(chan error, 1)
	if err := r.Take(func(t *replica.Turn) error {
		change(t.Row())
		return t.Save(nil, func(err error) { done <- err })
	}); err != nil {
		n.t.Fatal(err)
	}
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
}

// get reads a list.
func (n *node) get(path string) []json.RawMessage {
	n.t.Helper()
	list, _ := n.page(path)
	return list
}

func (n *node) page(path string) (list []json.RawMessage, link string) {
	n.t.Helper()
	mux := web.NewMux()
	mux.Handle("GET", "/v1/witness/statements", n.w.ServeStatements)
	mux.Handle("GET", "/v1/witness/attestations", n.w.ServeAttestations)
	mux.Handle("GET", "/v1/witness/evidence", n.w.ServeEvidence)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/v1/witness/"+path, nil))
	body, _ := io.ReadAll(rec.Result().Body)
	if rec.Code != 200 {
		n.t.Fatalf("%s: %d %s", path, rec.Code, body)
	}
	if err := json.Unmarshal(body, &list); err != nil {
		n.t.Fatalf("%s: %v in %s", path, err, body)
	}
	return list, rec.Header().Get("Link")
}

// patience is how long a test waits for what must come: longer than the most overloaded
// machine takes.
const patience = 3 * time.Minute

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// next is the next message that the node published.
func (n *node) next() message {
	n.t.Helper()
	select {
	case m := <-n.sent:
		return m
	case <-time.After(patience):
		n.t.Fatal("nothing was published")
	}
	return message{}
}

// deliver gives a message to a node as gossip does.
func (n *node) deliver(data []byte) Verdict {
	n.t.Helper()
	v := n.w.Validate("peer", data)
	if v == Accept {
		n.w.Receive("peer", data)
	}
	return v
}

// hear is deliver without Run: what is accepted is on the disk when it returns.
func (n *node) hear(data []byte) Verdict {
	n.t.Helper()
	v, p := n.w.judge(data)
	if v == Accept {
		if err := n.w.keep([]parsed{p}); err != nil {
			n.t.Fatal(err)
		}
	}
	return v
}

// drain does all the work that is due, without Run, each job once: what is tried again
// later waits, however much time goes by meanwhile.
func (n *node) drain() {
	done := map[*job]bool{}
	for j, _ := n.w.next(time.Now()); j != nil; j, _ = n.w.next(time.Now()) {
		if !done[j] {
			done[j] = true
			n.w.do(n.t.Context(), j)
			continue
		}
		defer n.w.later(j)
	}
}

func (n *node) state(origin, roomID string) string {
	k, s := n.w.State(origin, roomID)
	return fmt.Sprint(k, " ", s)
}

func envelope(t testing.TB, raw []byte) *adp.Envelope {
	t.Helper()
	return must[*adp.Envelope](t)(parseEnvelope(raw))
}

// statement is what the host of a room would sign.
func statement(origin string, recs []*adp.Record) Statement {
	var d adp.Digest
	for _, r := range recs {
		d.Add(r)
	}
	s := d.Summary()
	return Statement{Subject: Subject{origin, s.RoomID, s.Genesis}, Revision: Revision, EventCount: s.Count, LastSeq: s.Count, LastHash: s.LastHash,
		ArchiveRoot: adp.Encode(s.Root[:]), EventsDigest: adp.Encode(s.Events[:]), EventsCID: s.EventsCID(),
		BundleCID: adp.NewCID(adp.CodecRaw, s.Root), BundleBytes: 7, GeneratedAt: t0}
}

func attestation(s Statement, hash string) Attestation {
	a := Attestation{Subject: s.Subject, Complete: true, LastSeq: s.LastSeq, LastHash: s.LastHash, ArchiveRoot: s.ArchiveRoot, EventsCID: s.EventsCID,
		Source: s.Origin, OriginKeys: []adp.AgentID{}, Rules: Rules{Revision, RulesVersion}, VerifiedAt: t0}
	if hash != "" {
		a.Statement = &hash
	}
	return a
}

var nonces atomic.Int64

func seal(t testing.TB, k ed25519.PrivateKey, typ string, payload any) *adp.Envelope {
	t.Helper()
	n := nonces.Add(1)
	return must[*adp.Envelope](t)(adp.Sign(k, adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, CreatedAt: t0 + n, Nonce: n, Payload: payload}))
}

func replaced(b []byte, old, with string) []byte {
	return bytes.Replace(b, []byte(old), []byte(with), 1)
}
