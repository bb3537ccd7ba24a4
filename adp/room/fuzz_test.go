package room

import (
	"encoding/json"
	"testing"

	"github.com/witan-adp/witan/adp"
)

var fuzzTemplates []*world

// fuzzRooms are the rooms that fuzzed events go into, made once and copied.
func fuzzRooms(t testing.TB) []*world {
	if fuzzTemplates == nil {
		fuzzTemplates = []*world{peopled(t), unresolved(t)}
	}
	var rooms []*world
	for _, from := range fuzzTemplates {
		w := *from
		w.t, w.s, w.requests = t, from.s.Clone(), map[string]JoinRequest{}
		w.chain = MemoryChain{}
		for _, r := range from.records {
			w.chain.Add(r)
		}
		rooms = append(rooms, &w)
	}
	return rooms
}

func addPayloads(f *testing.F) {
	for typ, payload := range everything() {
		b, err := json.Marshal(payload)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(typ, b, byte(3))
	}
	for _, d := range testTypes {
		b, err := json.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(Define, b, byte(1))
	}
	b, err := json.Marshal(contract(obj{"types": testTypes, "policy": obj{"max_speakers": 3, "moderator_agent_ids": []adp.AgentID{chair.id}}, "tags": []string{"a"}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(Create, b, byte(1))
	f.Add(Join, []byte(`{"role":"speaker","request_id":"jr_1"}`), byte(5))
	f.Add(Message, []byte(`{"content_type":"a","content":{"a":[1e300,-0.0,"é😀"]},"extra":{}}`), byte(3))
}

// fuzzed makes an event of any JSON, or nothing.
func fuzzed(t testing.TB, w *world, typ string, payload []byte, who byte) *adp.Envelope {
	v, err := adp.Scan(payload)
	if err != nil {
		return nil
	}
	if v, err = v.Canonical(); err != nil {
		return nil
	}
	w.nonce++
	e := obj{"protocol": adp.Protocol, "type": typ, "actor": cast[int(who)%len(cast)].id, "created_at": w.now, "nonce": w.nonce, "payload": v}
	if typ != Create {
		e["room_id"], e["base_seq"], e["base_hash"] = testRoom, w.s.Head.Seq, w.s.Head.Hash
	}
	if _, err := adp.EncodeValue(e); err != nil { // nested too deep for an event
		return nil
	}
	return seal(t, cast[int(who)%len(cast)], e)
}

// FuzzApply: any payload of any type is accepted or refused with a rule, never
// changes the state by being judged, and what is accepted live is no violation
// in replay.
func FuzzApply(f *testing.F) {
	addPayloads(f)
	f.Fuzz(func(t *testing.T, typ string, payload []byte, who byte) {
		for _, w := range fuzzRooms(t) {
			e := fuzzed(t, w, typ, payload, who)
			if e == nil {
				return
			}
			before := w.snapshot()
			_, err := w.s.Apply(e, w.context())
			if err != nil && (adp.CodeOf(err) == "" || adp.CodeOf(err) == adp.Internal) {
				t.Fatalf("refused without a rule: %v", err)
			}
			if w.snapshot() != before {
				t.Fatal("Apply changed the state")
			}
			v, ch := w.judge(e)
			if err == nil && v.Outcome == Violation {
				t.Fatalf("accepted live, in replay %+v", v)
			}
			w.take(w.record(e), ch)
			again(t, w.s)
		}
	})
}

// again holds a state to its snapshot.
func again(t *testing.T, s *State) {
	t.Helper()
	want := snap(t, s)
	r, err := Restore([]byte(want))
	if err != nil {
		t.Fatalf("restore: %v\n%s", err, want)
	}
	if got := snap(t, r); got != want {
		t.Fatalf("snapshot differs after a round trip:\n%s\n%s", want, got)
	}
}

// FuzzJudge replays a whole record of any text, as a first record and as a later one.
func FuzzJudge(f *testing.F) {
	for _, w := range fuzzRooms(f) {
		for _, r := range w.records {
			v, err := adp.ScanDepth(r.JSON(), adp.RecordDepth)
			if err != nil {
				f.Fatal(err)
			}
			f.Add([]byte(v.Get("envelope").Get("event").Raw()))
		}
	}
	f.Add([]byte(`{"actor":"` + string(speaker.id) + `","type":"room.create"}`))
	f.Add([]byte(`{"actor":"` + string(speaker.id) + `","type":7,"payload":[],"room_id":{},"mentions":{"a":1}}`))
	f.Fuzz(func(t *testing.T, event []byte) {
		v, err := adp.Scan(event)
		if err != nil || v.Kind() != adp.Object {
			return
		}
		if v, err = v.Canonical(); err != nil {
			return
		}
		text := append(append([]byte(`{"event":`), v.Raw()...), `,"hash":"`+noHash+`","signature":"`...)
		text = append(append(text, adp.Encode(make([]byte, 64))...), `"}`...)
		env, err := adp.Scan(text)
		if err != nil {
			return
		}
		e, err := adp.ParseEnvelope(env)
		if err != nil {
			return
		}
		for _, w := range append(fuzzRooms(t), empty(t)) {
			r := w.record(e)
			v, ch, err := w.s.Judge(r, w.context())
			if err != nil {
				if w.s.Last.Seq != 0 || e.Type == Create {
					t.Fatalf("a linked record was refused: %v", err)
				}
				continue
			}
			if (v.Outcome == Violation) != (v.Rule != "") || (v.Outcome == Allowed) != (v.Reason == "") {
				t.Fatalf("verdict %+v", v)
			}
			if err := w.s.Advance(r, ch); err != nil {
				t.Fatalf("advance: %v", err)
			}
			if w.s.Contract == nil {
				t.Fatal("no contract")
			}
			again(t, w.s)
			if b := w.s.Resource("u", w.now); !json.Valid(b) {
				t.Fatalf("resource %s", b)
			}
		}
	})
}

// FuzzRestore: any text is refused or read into a state that stands.
func FuzzRestore(f *testing.F) {
	for _, w := range append(fuzzRooms(f), full(f)) {
		f.Add([]byte(w.snapshot()))
	}
	f.Add([]byte(`{"Version":1,"Contract":{},"Members":null,"Requests":{"":{}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(b)
		if err != nil {
			return
		}
		again(t, s)
		w := &world{t: t, s: s, now: t0, limits: defaults, requests: map[string]JoinRequest{}}
		for typ, payload := range everything() {
			e := w.event(speaker, typ, payload, obj{"base_seq": 1, "base_hash": noHash})
			if _, err := s.Apply(e, w.context()); err != nil && adp.CodeOf(err) == "" {
				t.Fatalf("%s: %v", typ, err)
			}
		}
		s.StatusAt(t0)
		s.NextTransition(t0)
		s.MayRead(speaker.id)
	})
}

// FuzzCheckPayload: what passes is what Apply does not refuse for its shape.
func FuzzCheckPayload(f *testing.F) {
	addPayloads(f)
	f.Fuzz(func(t *testing.T, typ string, payload []byte, who byte) {
		w := empty(t)
		e := fuzzed(t, w, typ, payload, who)
		if e == nil {
			return
		}
		err := CheckPayload(e)
		if err != nil && (adp.CodeOf(err) != adp.InvalidEvent || !IsBuiltin(typ)) {
			t.Fatalf("%s: %v", typ, err)
		}
		if err != nil {
			p := fuzzRooms(t)[0]
			if v, _ := p.judge(e); v.Outcome != Violation {
				t.Fatalf("a bad shape is %+v in replay", v)
			}
		}
		if v, scanErr := adp.Scan(payload); scanErr == nil {
			_ = CheckJoinRequest(v)
		}
	})
}
