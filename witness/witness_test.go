package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

const (
	hostA = "https://a.example"
	hostB = "https://b.example:8443"
	hostC = "https://c.example"
	roomX = "room-x"
)

// The whole way: a host states, a mirror attests, both show both, once.
func TestStatementAndAttestation(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	recs := chain(t, roomX, "one", "two")
	a := wo.node(t, hostA)
	b := wo.node(t, hostB, hostA)
	stopA, stopB := a.run(), b.run()

	mirrored := b.install(hostA, recs)
	b.w.Completed(mirrored) // the statement has not come yet: it waits
	own := a.install(hostA, recs)
	a.w.Ended(own)
	a.w.Ended(own)
	said := a.next()
	if said.topic != TopicStatements {
		t.Fatal(said.topic)
	}
	e := envelope(t, said.data)
	if e.CheckHash() != nil || e.CheckSignature() != nil || e.Actor != agentOf(key(hostA)) || e.Protocol != adp.WitnessProtocol {
		t.Fatalf("%s", said.data)
	}
	st := must[*Statement](t)(ParseStatement(e))
	want := statement(hostA, recs)
	raw, _, _ := own.Manifest()
	claim := must[*adp.Claim](t)(adp.ParseClaim(raw))
	want.BundleCID, want.BundleBytes, want.GeneratedAt = claim.BundleCID, claim.BundleBytes, claim.GeneratedAt
	if *st != want {
		t.Errorf("%+v, want %+v", *st, want)
	}
	if len(b.sent) != 0 {
		t.Error("attested without waiting for the statement")
	}
	if v := b.deliver(said.data); v != Accept {
		t.Fatal(v)
	}
	heard := b.next()
	at := envelope(t, heard.data)
	att := must[*Attestation](t)(ParseAttestation(at))
	if at.CheckHash() != nil || at.CheckSignature() != nil || at.Actor != agentOf(key(hostB)) || att.Statement == nil || *att.Statement != e.Hash ||
		att.ArchiveRoot != st.ArchiveRoot || !att.Complete || len(att.OriginKeys) != 1 || att.Source != hostA {
		t.Fatalf("%s", heard.data)
	}
	// the host takes an attestation of its own statement from a key that it does not know
	if v := a.deliver(heard.data); v != Accept {
		t.Fatal(v)
	}
	until(t, "the attestation at the host", func() bool { return len(a.get("attestations?origin="+hostA+"&room_id="+roomX)) == 1 })
	for _, n := range []*node{a, b} {
		if l := n.get("statements?origin=" + hostA + "&room_id=" + roomX); len(l) != 1 || !bytes.Equal(l[0], said.data) {
			t.Errorf("statements: %s", l)
		}
		if l := n.get("attestations?origin=" + hostA); len(l) != 1 || !bytes.Equal(l[0], heard.data) {
			t.Errorf("attestations: %s", l)
		}
		until(t, "the state", func() bool { got, _ := n.told.Load(hostA + " " + roomX); return got == "1 attested" })
		if n.state(hostA, roomX) != "1 attested" || len(n.get("evidence")) != 0 {
			t.Error(n.state(hostA, roomX))
		}
	}
	// nothing is signed again after a restart, and the state is told anew
	stopA()
	stopB()
	for _, n := range []*node{a, b} {
		n.told.Clear()
		n.again()
		n.w.resume()
		n.w.Ended(own)
		n.w.Completed(mirrored)
		n.drain()
		if got, _ := n.told.Load(hostA + " " + roomX); got != "1 attested" {
			t.Errorf("told %v after a restart", got)
		}
		if len(n.w.publisher.queue) != 0 || len(n.get("statements")) != 1 || len(n.get("attestations")) != 1 || n.alarms.Load() != 0 {
			t.Error("signed again")
		}
	}
}

// A crash between the archive and the signature: the next start finds it.
func TestRestartResumes(t *testing.T) {
	wo := newWorld()
	a, b := wo.node(t, hostA), wo.node(t, hostB, hostA)
	recs := chain(t, roomX, "one")
	a.install(hostA, recs)
	b.install(hostA, recs)
	a.again()
	a.run()
	b.run()
	if m := a.next(); envelope(t, m.data).Type != TypeAnnounce {
		t.Errorf("%s", m.data)
	}
	// a plain host (no key is bound): no statement is to be waited for
	m := b.next()
	if att := must[*Attestation](t)(ParseAttestation(envelope(t, m.data))); att.Statement != nil || len(att.OriginKeys) != 0 || !bytes.Contains(m.data, []byte(`"origin_keys":[]`)) {
		t.Errorf("%s", m.data)
	}
}

func TestLateStatementIsAttestedAgain(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	b := wo.node(t, hostB, hostA)
	b.o.StatementWait = 10 * time.Millisecond
	b.again()
	b.run()
	recs := chain(t, roomX, "one")
	b.w.Completed(b.install(hostA, recs))
	first := envelope(t, b.next().data)
	if att := must[*Attestation](t)(ParseAttestation(first)); att.Statement != nil {
		t.Fatal("a statement from nowhere")
	}
	e := seal(t, key(hostA), TypeAnnounce, statement(hostA, recs))
	if v := b.deliver(e.JSON()); v != Accept {
		t.Fatal(v)
	}
	second := envelope(t, b.next().data)
	if att := must[*Attestation](t)(ParseAttestation(second)); att.Statement == nil || *att.Statement != e.Hash {
		t.Errorf("%s", second.JSON())
	}
	if second.Nonce <= first.Nonce { // the clock of the test stands still
		t.Errorf("nonce %d after %d", second.Nonce, first.Nonce)
	}
	if l := b.get("attestations"); len(l) != 2 || b.state(hostA, roomX) != "1 attested" {
		t.Error(len(l), b.state(hostA, roomX))
	}
}

// Whatever disagrees: no signature, and where somebody else is at fault, both sides.
func TestNothingIsSignedWhen(t *testing.T) {
	recs := chain(t, roomX, "one", "two")
	newB := func(t *testing.T) *node {
		wo := newWorld()
		wo.bind(hostA, key(hostA))
		return wo.node(t, hostB, hostA)
	}
	none := func(t *testing.T, n *node) {
		t.Helper()
		if len(n.w.publisher.queue) != 0 || len(n.get("attestations")) != 0 {
			t.Error("signed")
		}
	}
	t.Run("nothing is wrong", func(t *testing.T) { // the other cases would sign but for their fault
		b := newB(t)
		b.install(hostA, recs)
		b.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, recs)).JSON())
		b.drain()
		if len(b.w.publisher.queue) != 1 || len(b.get("attestations")) != 1 {
			t.Error("not signed")
		}
	})
	t.Run("the statement differs", func(t *testing.T) {
		b := newB(t)
		bad := statement(hostA, recs)
		bad.ArchiveRoot = adp.Encode(make([]byte, 32))
		e := seal(t, key(hostA), TypeAnnounce, bad)
		b.install(hostA, recs)
		b.hear(e.JSON())
		b.drain()
		b.w.enqueue(replica.Key(bad.Subject))
		b.drain()
		none(t, b)
		l := b.get("evidence")
		var o struct {
			Class, Kind, Observer string
			Subject
			SeenAt      int64 `json:"seen_at"`
			Held, Other []json.RawMessage
		}
		if err := json.Unmarshal(l[0], &o); err != nil || len(l) != 1 {
			t.Fatal(err, len(l))
		}
		if o.Class != ClassObservation || o.Kind != "statement-mismatch" || o.Subject != bad.Subject || o.Observer != string(b.w.self) || o.SeenAt == 0 ||
			len(o.Held) != 1 || len(o.Other) != 1 || !bytes.Equal(o.Other[0], e.JSON()) || !strings.Contains(string(o.Held[0]), recs[3].Hash) {
			t.Errorf("%s", l[0])
		}
		if b.alarms.Load() == 0 {
			t.Error("no alarm")
		}
	})
	t.Run("a stored record was changed", func(t *testing.T) {
		for name, change := range map[string]func([]byte) []byte{
			"content": func(b []byte) []byte { return replaced(b, `"content":"two"`, `"content":"too"`) },
			"signature": func(b []byte) []byte {
				return replaced(b, `"signature":"`+recs[2].Envelope.Signature[:4], `"signature":"AAAA`)
			},
			"link": func([]byte) []byte { return chain(t, roomX, "other", "two")[2].JSON() },
			"cut":  func(b []byte) []byte { return b[:len(b)-1] },
		} {
			b := newB(t)
			r := b.install(hostA, recs)
			var batch store.Batch
			changed := change(append([]byte(nil), recs[2].JSON()...))
			if bytes.Equal(changed, recs[2].JSON()) {
				t.Fatal(name)
			}
			batch.Put(store.Record(r.ID, 3), changed)
			if err := b.o.Store.Commit(&batch); err != nil {
				t.Fatal(err)
			}
			b.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, recs)).JSON())
			b.drain()
			if b.alarms.Load() != 1 || len(b.get("evidence")) != 0 { // our own disk is at fault, not the host
				t.Errorf("%s: %d alarms, %s", name, b.alarms.Load(), b.get("evidence"))
			}
			none(t, b)
		}
	})
	t.Run("another version was seen", func(t *testing.T) {
		for _, verdict := range []string{replica.Forked, replica.Broken, replica.ArchiveMismatch, replica.Equivocated} {
			b := newB(t)
			r := b.install(hostA, recs)
			b.setRow(r, func(row *replica.Row) { row.Verdict = verdict })
			b.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, recs)).JSON())
			b.w.resume()
			b.drain()
			none(t, b)
			if len(b.get("statements")) != 1 {
				t.Error("the statement is not shown")
			}
		}
	})
	t.Run("another version is seen meanwhile", func(t *testing.T) {
		b := newB(t)
		r := b.install(hostA, recs)
		b.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, recs)).JSON())
		now := b.o.Now
		b.w.o.Now = func() int64 { // is asked when all was recomputed
			b.w.o.Now = now
			b.setRow(r, func(row *replica.Row) { row.Verdict = replica.Forked })
			return now()
		}
		b.drain()
		none(t, b)
		if r.Row().EffectiveVerdict() != replica.Forked {
			t.Error("nothing was seen")
		}
	})
	t.Run("told not to", func(t *testing.T) {
		for _, sign := range []bool{false, true} {
			b := newB(t)
			b.o.Sign, b.o.Witness = sign, !sign
			b.again()
			b.install(hostA, recs)
			b.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, recs)).JSON())
			b.w.resume()
			b.drain()
			none(t, b)
			if len(b.get("statements")) != 1 {
				t.Error("the statement is not shown")
			}
		}
		a := newWorld().node(t, hostA)
		a.o.Sign = false
		a.again()
		a.w.Ended(a.install(hostA, recs))
		a.drain()
		if len(a.get("statements")) != 0 {
			t.Error("signed")
		}
		if _, err := a.w.sign(TypeAnnounce, statement(hostA, recs)); err == nil {
			t.Error("sign signed")
		}
	})
	t.Run("the room is not public", func(t *testing.T) {
		for _, visibility := range []string{room.Restricted, room.Private} {
			closed := chainOf(t, visibility, roomX, "one")
			a, b := newWorld().node(t, hostA), newWorld().node(t, hostB, hostA)
			a.w.Ended(a.install(hostA, closed))
			b.w.Completed(b.install(hostA, closed))
			for _, n := range []*node{a, b} {
				n.drain()
				if len(n.w.publisher.queue) != 0 || len(n.get("statements")) != 0 || len(n.w.jobs.waiting) != 0 {
					t.Error("signed")
				}
				none(t, n)
			}
		}
	})
	t.Run("the room goes on", func(t *testing.T) {
		open := recs[:3]
		a, b := newWorld().node(t, hostA), newWorld().node(t, hostB, hostA)
		a.w.Ended(a.install(hostA, open))
		b.w.Completed(b.install(hostA, open))
		for _, n := range []*node{a, b} {
			n.drain()
			none(t, n)
			fresh := must[*Witness](t)(New(n.o))
			if fresh.resume(); len(fresh.jobs.waiting) != 0 {
				t.Error("a start takes an open room for an ended one")
			}
			j := n.w.jobs.waiting[replica.Key{Origin: hostA, RoomID: roomX, Genesis: recs[0].Hash}]
			if j == nil || j.tries != 1 || time.Until(j.due) > retryMin {
				t.Fatalf("it is not tried again: %+v", j)
			}
			for range 40 { // back-off is bounded
				n.w.do(t.Context(), j)
			}
			if d := time.Until(j.due); d > retryMax || d < retryMax/2 {
				t.Errorf("tried again in %v", d)
			}
		}
	})
	t.Run("it contradicts what was signed", func(t *testing.T) {
		a := newWorld().node(t, hostA)
		must[*adp.Envelope](t)(a.w.sign(TypeAnnounce, statement(hostA, recs)))
		if _, err := a.w.sign(TypeAnnounce, statement(hostA, recs[:3])); err == nil || a.alarms.Load() == 0 {
			t.Error("a second story was signed")
		}
		if len(a.get("statements")) != 1 || len(a.get("evidence")) != 0 {
			t.Error("kept")
		}
	})
}

// Violations are what the host published; a witness says only what the archive is.
func TestViolationsAreAttested(t *testing.T) {
	b := newWorld().node(t, hostB, hostA)
	r := b.install(hostA, chain(t, roomX, "one", "stranger: let me in"))
	if r.Row().Violations != 1 {
		t.Fatal("the room has no violation")
	}
	b.run()
	b.w.Completed(r)
	if envelope(t, b.next().data).Type != TypeAttest {
		t.Error("no attestation")
	}
}

func TestObservations(t *testing.T) {
	b := newWorld().node(t, hostB, hostA)
	recs, other := chain(t, roomX, "first"), chain(t, roomX, "another story")
	o := Observation{Kind: "fork", Subject: Subject{hostA, roomX, recs[0].Hash}, Seq: 2, Reason: "seq 2: another record",
		Held: []json.RawMessage{recs[1].JSON()}, Other: []json.RawMessage{other[1].JSON()}}
	for range 2 {
		if err := b.w.Evidence(o); err != nil {
			t.Fatal(err)
		}
		o.Other = append(o.Other, other[2].JSON()) // the other side has grown
	}
	b.again()
	if err := b.w.Evidence(o); err != nil {
		t.Fatal(err)
	}
	l := b.get("evidence?origin=" + hostA + "&room_id=" + roomX)
	if len(l) != 1 || !strings.Contains(string(l[0]), `"content":"first"`) || !strings.Contains(string(l[0]), `"content":"another story"`) {
		t.Fatalf("%s", l)
	}
	if b.state(hostA, roomX) != "0 unattested" {
		t.Error("an observation is sticky")
	}
	for i := range int64(100) {
		o.Seq = i + 3
		if err := b.w.Evidence(o); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.get("evidence")); n != maxObservations {
		t.Errorf("%d observations of one room", n)
	}
	o.Kind, o.Held = "stale-head", []json.RawMessage{json.RawMessage(`{`)}
	if err := b.w.Evidence(o); err == nil {
		t.Error("something that is no JSON was kept")
	}
	// long sides are cut, the first of each stays
	big := json.RawMessage(`"` + strings.Repeat("x", maxObservationSize/4) + `"`)
	raw := must[[]byte](t)(b.w.writeObservation(Observation{Kind: "fork", Held: []json.RawMessage{big, big, big, big}, Other: []json.RawMessage{big, big, big, big}}))
	var sides struct{ Held, Other []json.RawMessage }
	if err := json.Unmarshal(raw, &sides); err != nil || len(sides.Held) != 2 || len(sides.Other) != 1 {
		t.Errorf("%v: %d, %d", err, len(sides.Held), len(sides.Other))
	}
}

func TestStoreFailure(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	b := wo.node(t, hostB, hostA)
	recs := chain(t, roomX, "one")
	e := seal(t, key(hostA), TypeAnnounce, statement(hostA, recs))
	_, p := b.w.judge(e.JSON())
	if err := b.o.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.w.keep([]parsed{p}); err == nil {
		t.Error("kept in a closed store")
	}
	if _, err := b.w.sign(TypeAttest, attestation(statement(hostA, recs), "")); err == nil || len(b.w.publisher.queue) != 0 {
		t.Error("a signature got out that is not on the disk")
	}
}

// What knows the bindings is made after the witness, so New must not ask it; what
// was kept of strangers is told apart later all the same.
func TestNewAsksNobody(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	a := wo.node(t, hostA)
	a.w.Ended(a.install(hostA, chain(t, roomX, "one")))
	a.drain()
	e := envelope(t, a.get("statements")[0])
	st := *must[*Statement](t)(ParseStatement(e))
	for i := range MaxStrangers {
		if v := a.hear(seal(t, key(fmt.Sprint("stranger ", i)), TypeAttest, attestation(st, e.Hash)).JSON()); v != Accept {
			t.Fatal(i, v)
		}
	}
	made := false
	ask := func() {
		if !made {
			t.Error("asked before New has returned")
		}
	}
	bound, agents, origins := a.o.Bound, a.o.Agents, a.o.Origins
	a.o.Bound = func(o string, id adp.AgentID) bool { ask(); return bound(o, id) }
	a.o.Agents = func(o string) []adp.AgentID { ask(); return agents(o) }
	a.o.Origins = func() []string { ask(); return origins() }
	a.o.LogKeys = func(o string) []ed25519.PublicKey { ask(); return nil }
	a.again()
	made = true
	if v := a.hear(seal(t, key("one more"), TypeAttest, attestation(st, e.Hash)).JSON()); v != Ignore {
		t.Errorf("stranger %d after a restart: %v", MaxStrangers+1, v)
	}
}
