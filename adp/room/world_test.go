package room

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha3"
	"fmt"
	"maps"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// agent is an actor of the tests, from a seed.
type player struct {
	key ed25519.PrivateKey
	id  adp.AgentID
}

func ag(seed byte) *player {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	return &player{key, adp.NewAgentID(key.Public().(ed25519.PublicKey))}
}

// The usual cast of a room.
var creator, chair, speaker, observer, stranger = ag(1), ag(2), ag(3), ag(4), ag(5)

type obj = map[string]any

const (
	t0       = int64(1_790_000_000_000)
	minute   = int64(60_000)
	hour     = 60 * minute
	testRoom = "d8ftedhpqhsusbg001tg"
)

// defaults are those of ADP §21.
var defaults = Limits{PayloadBytes: 65_536, PayloadCeiling: 262_144, Mentions: 32, SchemaBytes: 16_384, Types: 64,
	RoomMin: 10 * minute, RoomMax: 7 * 24 * hour, Speakers: 100, Observers: 1000}

// world is a room with its log and what a host knows beside it.
type world struct {
	t        testing.TB
	s        *State
	chain    MemoryChain
	records  []*adp.Record
	now      int64
	nonce    int64
	limits   Limits
	packs    map[string]*types.Pack
	requests map[string]JoinRequest
}

func empty(t testing.TB) *world {
	return &world{t: t, s: New(testRoom), now: t0, limits: defaults, requests: map[string]JoinRequest{}}
}

// contract is a payload of room.create, with members replaced; a nil removes.
func contract(over obj) obj {
	return merge(obj{"topic": "Quorum", "visibility": "public", "start_time": t0 - minute, "end_time": t0 + hour}, over)
}

func merge(base, over obj) obj {
	out := maps.Clone(base)
	for k, v := range over {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

// testTypes has one type of each kind, one that only observers may send, and
// one that is disabled.
var testTypes = []any{
	obj{"use": "adp:reactions/1.0"},
	obj{"type": "review.finding", "kind": "message", "title": "Finding", "schema": obj{"type": "object", "required": []string{"severity"},
		"properties": obj{"severity": obj{"enum": []string{"low", "high"}}}, "additionalProperties": false}},
	obj{"type": "a.lead", "kind": "control", "title": "Lead", "schema": obj{}},
	obj{"type": "a.sign", "kind": "signal", "title": "Sign", "schema": obj{}},
	obj{"type": "a.open", "kind": "control", "title": "Open", "schema": obj{}, "roles": []string{"observer"}},
	obj{"type": "a.off", "kind": "message", "title": "Off", "schema": obj{}, "status": "disabled"},
	obj{"type": "a.old", "kind": "message", "title": "Old", "schema": obj{}, "status": "deprecated"},
	obj{"type": "a.small", "kind": "message", "title": "Small", "schema": obj{}, "max_payload_hint": 100},
	obj{"type": "a.big", "kind": "message", "title": "Big", "schema": obj{}, "max_payload_hint": 1_000_000},
}

// open makes a room; over changes its contract.
func open(t testing.TB, over obj) *world {
	w := empty(t)
	w.must(creator, Create, contract(merge(obj{"types": testTypes, "policy": obj{"moderator_agent_ids": []adp.AgentID{chair.id}}}, over)))
	return w
}

// peopled is a public, active room with the usual cast in it.
func peopled(t testing.TB) *world {
	w := open(t, nil)
	w.must(chair, Join, obj{"role": "moderator", "perspective": "chair"})
	w.must(speaker, Join, obj{"role": "speaker", "perspective": "p"})
	w.must(observer, Join, obj{"role": "observer"})
	return w
}

// seal signs any event object.
func seal(t testing.TB, a *player, event obj) *adp.Envelope {
	t.Helper()
	v, err := adp.EncodeValue(event)
	if err != nil {
		t.Fatalf("encode event: %v", err)
	}
	sum := sha3.Sum256(v.Raw())
	text := fmt.Sprintf(`{"event":%s,"hash":%q,"signature":%q}`, v.Raw(), adp.Encode(sum[:]), adp.Encode(ed25519.Sign(a.key, sum[:])))
	env, err := adp.Scan([]byte(text))
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	e, err := adp.ParseEnvelope(env)
	if err != nil {
		t.Fatalf("envelope: %v", err)
	}
	return e
}

// event makes an envelope on the present head; over replaces members.
func (w *world) event(a *player, typ string, payload any, over obj) *adp.Envelope {
	w.t.Helper()
	w.nonce++
	e := obj{"protocol": adp.Protocol, "type": typ, "actor": a.id, "created_at": w.now, "nonce": w.nonce, "payload": payload}
	if typ != Create {
		e["room_id"], e["base_seq"], e["base_hash"] = testRoom, w.s.Head.Seq, w.s.Head.Hash
	}
	return seal(w.t, a, merge(e, over))
}

func (w *world) context() Context {
	return Context{At: w.now, Chain: &w.chain, Packs: w.packs, Live: &Live{Limits: w.limits, Request: func(id string) (JoinRequest, bool) {
		r, ok := w.requests[id]
		return r, ok
	}}}
}

func (w *world) record(e *adp.Envelope) *adp.Record {
	return adp.NewRecord(e, testRoom, w.s.Last.Seq+1, w.s.Last.Hash, w.now)
}

func (w *world) take(r *adp.Record, ch *Change) {
	w.t.Helper()
	if err := w.s.Advance(r, ch); err != nil {
		w.t.Fatalf("advance to seq %d: %v", r.Seq, err)
	}
	w.chain.Add(r)
	w.records = append(w.records, r)
}

// send is a live write: accepted and logged, or refused.
func (w *world) send(e *adp.Envelope) (*adp.Record, error) {
	w.t.Helper()
	ch, err := w.s.Apply(e, w.context())
	if err != nil {
		return nil, err
	}
	r := w.record(e)
	w.take(r, ch)
	return r, nil
}

func (w *world) must(a *player, typ string, payload any) *adp.Record {
	w.t.Helper()
	r, err := w.send(w.event(a, typ, payload, nil))
	if err != nil {
		w.t.Fatalf("%s refused: %v", typ, err)
	}
	return r
}

func (w *world) refuse(want adp.Code, a *player, typ string, payload any) {
	w.t.Helper()
	if _, err := w.send(w.event(a, typ, payload, nil)); adp.CodeOf(err) != want {
		w.t.Fatalf("%s: got %v, want %s", typ, err, want)
	}
}

// judge is what a verifier says about an event that the host accepted now.
func (w *world) judge(e *adp.Envelope) (Verdict, *Change) {
	w.t.Helper()
	ctx := w.context()
	v, ch, err := w.s.Judge(w.record(e), ctx)
	if err != nil {
		w.t.Fatalf("judge: %v", err)
	}
	return v, ch
}

// force accepts an event whatever the rules say, as a lax host would.
func (w *world) force(e *adp.Envelope) Verdict {
	w.t.Helper()
	v, ch := w.judge(e)
	w.take(w.record(e), ch)
	return v
}

func (w *world) snapshot() string { return snap(w.t, w.s) }

func snap(t testing.TB, s *State) string {
	t.Helper()
	b, err := s.Snapshot()
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return string(b)
}

// ask makes a join request, as POST …/join-requests does, pending or approved
// by the host itself.
func (w *world) ask(a *player, role types.Role, status string) obj {
	w.t.Helper()
	id := fmt.Sprintf("jr_%d", len(w.requests)+1)
	obj := obj{"id": id, "room_id": testRoom, "applicant": a.id, "role": role, "perspective": "asked", "created_at": w.now, "expires_at": w.now + hour/2, "extra": obj{}}
	v, err := adp.EncodeValue(obj)
	if err != nil {
		w.t.Fatal(err)
	}
	q := JoinRequest{Object: v, Applicant: a.id, Perspective: "asked", Status: status, ExpiresAt: w.now + hour/2}
	if status == "approved" {
		q.ApprovedRole = role
	}
	w.requests[id] = q
	return obj
}

// admit takes an agent through request, review and join.
func (w *world) admit(a *player, role types.Role) {
	w.t.Helper()
	q := w.ask(a, role, "pending")
	w.must(creator, Review, obj{"request": q, "decision": "approve", "role": role})
	w.must(a, Join, obj{"role": role, "request_id": q["id"]})
}

func say(content string) obj { return obj{"content_type": "text/plain", "content": content} }

var noHash = adp.Encode(bytes.Repeat([]byte{9}, 32))

// rule is one case of a table: what a live write answers, and what a verifier
// says when another host accepted the same.
type rule struct {
	name    string
	in      func(t testing.TB) *world // peopled when nil
	actor   *player
	typ     string
	payload any
	over    obj
	live    adp.Code // "" = accepted
	replay  string   // "" = a violation of the same rule; "allowed", "unverifiable", or another code
}

func check(t *testing.T, rules []rule) {
	t.Helper()
	for _, c := range rules {
		t.Run(c.name, func(t *testing.T) {
			if c.in == nil {
				c.in = func(t testing.TB) *world { return peopled(t) }
			}
			w := c.in(t)
			e := w.event(c.actor, c.typ, c.payload, c.over)
			before := w.snapshot()
			ch, err := w.s.Apply(e, w.context())
			if code := adp.CodeOf(err); code != c.live || c.live == "" && err != nil {
				t.Errorf("live: got %v, want %q", err, c.live)
			}
			if err != nil && ch != nil {
				t.Error("a refusal came with a change")
			}
			v, _ := w.judge(e)
			if after := w.snapshot(); after != before {
				t.Errorf("judging changed the state:\n%s\n%s", before, after)
			}
			want := Verdict{Outcome: Violation, Rule: c.live}
			switch c.replay {
			case "":
				if c.live == "" {
					want = Verdict{Outcome: Allowed}
				}
			case "allowed", "unverifiable":
				want = Verdict{Outcome: Outcome(c.replay)}
			default:
				want.Rule = adp.Code(c.replay)
			}
			if v.Outcome != want.Outcome || v.Rule != want.Rule {
				t.Errorf("replay: got %+v, want %+v", v, want)
			}
			if (v.Reason == "") != (v.Outcome == Allowed) {
				t.Errorf("replay: reason %q of outcome %s", v.Reason, v.Outcome)
			}
		})
	}
}
