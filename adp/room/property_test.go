package room

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// cast is everybody who may act in a random room.
var cast = []*player{creator, chair, speaker, observer, stranger, ag(6), ag(7), ag(8)}

// random draws events, good or bad, for the room as it stands. The draws are
// even, from a seed: rapid's own favour small numbers, and would hardly get an
// event accepted.
type random struct {
	*world
	rnd *rand.Rand
}

func pick[T any](r random, of ...T) T { return of[r.rnd.IntN(len(of))] }

// chance is one in of.
func (r random) chance(of int) bool { return r.rnd.IntN(of) == 0 }

func (r random) role() string { return pick(r, "speaker", "speaker", "observer", "moderator") }

func (r random) definition() obj {
	switch pick(r, 0, 1, 2, 3, 4) {
	case 0:
		return obj{"use": pick(r, "adp:reactions/1.0", "adp:moderation/1.0", "adp:nothing/1.0")}
	case 1:
		return obj{"use": "adp:reactions/1.0", "overrides": obj{"reaction.create": obj{"status": pick(r, "active", "disabled")}}}
	}
	d := obj{"type": pick(r, "a.one", "a.two", "a.sign", "review.finding", "room.bad"), "kind": pick(r, "message", "signal", "control"), "title": "t",
		"schema": pick(r, obj{}, obj{}, obj{"required": []string{"x"}}, obj{"$ref": "https://h.example/"}), "status": pick(r, "active", "active", "disabled", "deprecated")}
	if r.chance(3) {
		d["roles"] = []string{r.role()}
	}
	return d
}

func (r random) references() any {
	if len(r.records) == 0 || r.chance(8) {
		return []string{noHash}
	}
	return []string{pick(r, r.records...).Envelope.Hash}
}

// request is a join request of the host: one that exists, or a new one.
func (r random) request(a *player) obj {
	if n := len(r.requests); n > 0 && !r.chance(3) {
		v := r.requests[fmt.Sprintf("jr_%d", 1+r.rnd.IntN(n))]
		return obj{"id": v.Object.Get("id"), "object": v.Object, "role": v.Object.Get("role").Text()}
	}
	role := types.Role(r.role())
	status := "pending"
	if r.s.Contract != nil && r.s.AutoApproves(a.id, role) && !(role == "observer" && r.s.Contract.Policy.NoObservers) {
		status = "approved"
	}
	o := r.ask(a, role, status)
	return obj{"id": o["id"], "object": o, "role": o["role"]}
}

// event draws actor, type, payload, base and sometimes something malformed.
func (r random) draw() *adp.Envelope {
	a := pick(r, cast...)
	if r.chance(2) {
		a = pick(r, creator, chair)
	}
	typ := pick(r, Message, Message, Message, Join, Join, Join, Join, Leave, RoleUpdate, RoleUpdate, Remove, Review, Review, Update, Define, Define,
		"a.sign", "review.finding", "a.one", "a.two", "a.lead", "a.open", "reaction.create", "no.such", Close, Cancel, Create)
	if (typ == Close || typ == Cancel) && !r.chance(6) {
		typ = Message
	}
	for _, b := range cast { // who is banned tries to come back
		if r.s.Banned[b.id] && r.chance(4) {
			a, typ = b, Join
			break
		}
	}
	if !r.s.IsMember(a.id) && typ != Join && !r.chance(4) { // most actors are members
		for _, m := range cast {
			if r.s.IsMember(m.id) && r.chance(2) {
				a = m
			}
		}
	}
	var payload obj
	other := pick(r, cast...)
	switch typ {
	case Create:
		payload = contract(nil)
	case Update:
		payload = pick(r, obj{"agenda": "a"}, obj{"topic": " "}, obj{"end_time": r.now + hour}, obj{"end_time": r.now}, obj{"start_time": r.now}, obj{"start_time": r.now + minute}, obj{},
			obj{"policy": obj{"max_speakers": 2}}, obj{"policy": obj{"max_speakers": 4, "moderator_agent_ids": []adp.AgentID{chair.id}}}, obj{"policy": obj{"observer_allowed": false}}, obj{"policy": obj{}}, obj{"tags": []string{}})
	case Join:
		payload = obj{"role": r.role()}
		if r.chance(2) {
			q := r.request(a)
			payload = obj{"role": q["role"], "request_id": q["id"]}
			if r.chance(6) {
				payload["role"] = r.role()
			}
		} else if r.chance(2) {
			payload["perspective"] = "p"
		}
	case Review:
		q := r.request(other)
		payload = obj{"request": q["object"], "decision": pick(r, "approve", "approve", "reject")}
		if payload["decision"] == "approve" || r.chance(4) {
			payload["role"] = pick(r, fmt.Sprint(q["role"]), r.role())
		}
	case RoleUpdate:
		payload = obj{"member": other.id, "role": r.role()}
	case Remove:
		payload = obj{"member": other.id, "ban": r.chance(2)}
	case Define:
		payload = r.definition()
	case Message:
		payload = say("x")
		if r.chance(3) {
			payload["references"] = r.references()
		}
	case "review.finding":
		payload = obj{"severity": pick(r, "low", "high", "odd")}
	case "reaction.create":
		payload = obj{"event_id": noHash, "reaction": "agree"}
	case "a.one", "a.two":
		payload = pick(r, obj{}, obj{"x": 1})
	default:
		payload = obj{}
	}
	over := obj{}
	if len(r.records) > 0 && r.chance(6) {
		base := pick(r, r.records...)
		over["base_seq"], over["base_hash"] = base.Seq, base.Hash
		if r.chance(4) {
			over["base_hash"] = noHash
		}
	}
	if r.chance(10) {
		over["mentions"] = []adp.AgentID{speaker.id, pick(r, cast...).id}
	}
	if r.chance(25) {
		over = merge(over, pick(r, obj{"nonce": 0}, obj{"room_id": "other"}, obj{"colour": 1}, obj{"payload": "x"}, obj{"protocol": "x"}))
	}
	if r.chance(25) {
		payload["surprise"] = 1
	}
	return r.event(a, typ, payload, over)
}

// reviewed is what the HTTP resource learns of an accepted event.
func (r random) reviewed(e *adp.Envelope) {
	id := e.Payload.Get("request").Get("id").Text()
	if e.Type == Review {
		q := r.requests[id]
		q.Status, q.ApprovedRole = "rejected", ""
		if e.Payload.Get("decision").Is("approve") {
			q.Status, q.ApprovedRole = "approved", types.Role(e.Payload.Get("role").Text())
		}
		r.requests[id] = q
	}
	if id := e.Payload.Get("request_id").Text(); e.Type == Join && id != "" {
		q := r.requests[id]
		q.Consumed = true
		r.requests[id] = q
	}
}

func newRandom(t testing.TB, seed [2]uint64) random {
	w := empty(t)
	r := random{w, rand.New(rand.NewPCG(seed[0], seed[1]))}
	start := t0 + pick(r, -minute, 2*minute)
	w.must(creator, Create, contract(obj{"start_time": start, "end_time": start + hour, "visibility": pick(r, "public", "public", "restricted", "private"), "types": testTypes,
		"policy": pick(r, obj{}, obj{"max_speakers": 2, "moderator_agent_ids": []adp.AgentID{chair.id}}, obj{"observer_allowed": false})}))
	return r
}

// seeds are what rapid varies.
var seeds = rapid.Custom(func(t *rapid.T) [2]uint64 { return [2]uint64{rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")} })

type tally struct {
	accepted map[string]int
	refused  map[adp.Code]int
}

// failer ends one try: a *testing.T, or a *rapid.T that looks for a shorter one.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// liveRoom draws a whole room of live events, good and bad mixed, with time
// moving on, and holds the room to its laws.
func liveRoom(t testing.TB, fatal failer, seed [2]uint64, n tally) {
	r := newRandom(t, seed)
	kinds := map[string]types.Kind{}
	verifier := NewVerifier(testRoom, nil)
	follow := func() { // replays the newest record
		rec := r.records[len(r.records)-1]
		v, err := adp.ScanDepth(rec.JSON(), adp.RecordDepth)
		if err != nil {
			fatal.Fatalf("record %d: %v", rec.Seq, err)
		}
		parsed, err := adp.ParseRecord(v)
		if err == nil {
			err = errors.Join(parsed.CheckSignature(), verifier.Add(parsed))
		}
		if err != nil {
			fatal.Fatalf("the chain does not verify from genesis: %v", err)
		}
		if f := verifier.Findings(); len(f) > 0 && f[len(f)-1].Outcome == Violation {
			fatal.Fatalf("what we accepted is a violation in replay: %+v\n%s", f[len(f)-1], rec.JSON())
		}
	}
	follow()
	for range 10 + r.rnd.IntN(40) {
		if r.chance(4) {
			r.now += pick(r, 1, minute, 5*minute, 20*minute)
		}
		e := r.draw()
		restored, err := Restore([]byte(r.snapshot()))
		if err != nil {
			fatal.Fatal(err)
		}
		before, status := r.snapshot(), r.s.StatusAt(r.now)
		ch, err := r.s.Apply(e, r.context())
		if after := r.snapshot(); after != before {
			fatal.Fatalf("Apply changed the state:\n%s\n%s", before, after)
		}
		ch2, err2 := restored.Apply(e, r.context())
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			fatal.Fatalf("a restored state answers otherwise: %v, %v", err, err2)
		}
		if err != nil {
			if n.refused[adp.CodeOf(err)]++; adp.CodeOf(err) == "" || adp.CodeOf(err) == adp.Internal {
				fatal.Fatalf("refused without a rule: %v", err)
			}
			continue
		}
		n.accepted[e.Type]++
		if status == Ended || status == Cancelled {
			fatal.Fatalf("%s was accepted in a room that is %s", e.Type, status)
		}
		speakers := r.s.Speakers()
		r.take(r.record(e), ch)
		r.reviewed(e)
		if limit := r.s.Contract.Policy.MaxSpeakers; limit > 0 && r.s.Speakers() > limit && r.s.Speakers() > speakers {
			fatal.Fatalf("%s took the room to %d speakers of %d", e.Type, r.s.Speakers(), limit)
		}
		if err := restored.Advance(r.records[len(r.records)-1], ch2); err != nil || snap(t, restored) != r.snapshot() {
			fatal.Fatalf("a restored state goes on otherwise (%v):\n%s\n%s", err, r.snapshot(), snap(t, restored))
		}
		for _, d := range r.s.Registry.All() {
			if old, known := kinds[d.Type]; known && old != d.Kind {
				fatal.Fatalf("%s was of kind %s and is of kind %s", d.Type, old, d.Kind)
			}
			kinds[d.Type] = d.Kind
		}
		speaking := int64(0)
		for a, m := range r.s.Members {
			if Speaks(m.Role) {
				speaking++
			}
			if r.s.Banned[a] {
				fatal.Fatalf("%s is a member and banned", a)
			}
		}
		if speaking != r.s.Speakers() {
			fatal.Fatalf("%d members speak, %d are counted", speaking, r.s.Speakers())
		}
		follow()
		// an approval over HTTP is all that a replay cannot know
		want, got := r.s.Clone(), verifier.State.Clone()
		if verifier.Counts[Unverifiable] > 0 {
			want.Requests, got.Requests = nil, nil
			for _, s := range []*State{want, got} {
				for a, m := range s.Members {
					s.Members[a] = Member{Role: m.Role}
				}
			}
		}
		if snap(t, want) != snap(t, got) {
			fatal.Fatalf("replay comes to another state:\n%s\n%s", snap(t, want), snap(t, got))
		}
	}
	if sum := verifier.Digest.Summary(); sum.Count != r.s.Last.Seq || sum.LastHash != r.s.Last.Hash {
		fatal.Fatalf("summary %+v", sum)
	}
}

func TestLiveRooms(t *testing.T) {
	n := tally{map[string]int{}, map[adp.Code]int{}}
	rapid.Check(t, func(rt *rapid.T) { liveRoom(t, rt, seeds.Draw(rt, "seed"), n) })
}

func TestLiveRoomsOfFixedSeeds(t *testing.T) {
	n := tally{map[string]int{}, map[adp.Code]int{}}
	for i := range uint64(90) {
		liveRoom(t, t, [2]uint64{i, 1}, n)
	}
	// a generator that never gets anything in, or out, would prove nothing
	for _, typ := range []string{Message, Join, Leave, RoleUpdate, Remove, Review, Update, Define, "a.sign", "review.finding", "reaction.create", Close} {
		if n.accepted[typ] == 0 {
			t.Errorf("%s was never accepted", typ)
		}
	}
	for _, code := range []adp.Code{adp.InvalidEvent, adp.PermissionDenied, adp.RoomHeadMismatch, adp.BaseRecordMismatch, adp.RoomNotActive, adp.RoomEnded, adp.ApprovalRequired, adp.MemberBanned,
		adp.RoleNotAllowed, adp.MaxSpeakersExceeded, adp.TypeNotDefined, adp.TypeDisabled, adp.PayloadSchemaViolation, adp.JoinRequestExpired, adp.JoinRequestNotFound, adp.JoinRequestNotApproved} {
		if n.refused[code] == 0 {
			t.Errorf("nothing was refused as %s", code)
		}
	}
}

// TestLaxRooms replays rooms of a host that lets everything in: the replay
// never fails, counts speakers right, keeps kinds, and can be snapshotted.
func TestLaxRooms(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRandom(t, seeds.Draw(rt, "seed"))
		kinds := map[string]types.Kind{}
		for range 1 + r.rnd.IntN(40) {
			r.now += pick(r, 0, 1, minute, 20*minute, -minute)
			e := r.draw()
			restored, err := Restore([]byte(r.snapshot()))
			if err != nil {
				rt.Fatal(err)
			}
			_, liveErr := r.s.Apply(e, r.context())
			v, ch := r.judge(e)
			v2, _, err := restored.Judge(r.record(e), r.context())
			if err != nil || v != v2 {
				rt.Fatalf("a restored state judges otherwise: %+v, %+v, %v", v, v2, err)
			}
			if liveErr == nil && v.Outcome == Violation {
				rt.Fatalf("we would accept what is a violation: %+v\n%s", v, e.JSON())
			}
			r.take(r.record(e), ch)
			r.reviewed(e)
			speaking := int64(0)
			for _, m := range r.s.Members {
				if Speaks(m.Role) {
					speaking++
				}
			}
			if speaking != r.s.Speakers() {
				rt.Fatalf("%d members speak, %d are counted", speaking, r.s.Speakers())
			}
			for _, d := range r.s.Registry.All() {
				if old, known := kinds[d.Type]; known && old != d.Kind {
					rt.Fatalf("%s was of kind %s and is of kind %s", d.Type, old, d.Kind)
				}
				kinds[d.Type] = d.Kind
			}
		}
	})
}
