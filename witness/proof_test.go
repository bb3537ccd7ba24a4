package witness

import (
	"bytes"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func TestContradiction(t *testing.T) {
	recs := chain(t, roomX, "one", "two")
	whole, part := statement(hostA, recs), statement(hostA, recs[:3])
	k := key(hostA)
	said := func(change func(*Statement)) *adp.Envelope {
		s := whole
		change(&s)
		return seal(t, k, TypeAnnounce, s)
	}
	a := said(func(*Statement) {})
	zero := adp.Encode(make([]byte, 32))
	half := attestation(part, "")
	half.Complete = false
	att := func(at Attestation) *adp.Envelope { return seal(t, k, TypeAttest, at) }
	prefix := attestation(whole, "")
	prefix.Complete = false
	for name, c := range map[string]struct {
		a, b *adp.Envelope
		kind string
	}{
		"shorter":                       {a, seal(t, k, TypeAnnounce, part), KindStatements},
		"another last hash":             {a, said(func(s *Statement) { s.LastHash = zero }), KindStatements},
		"another root":                  {a, said(func(s *Statement) { s.ArchiveRoot = zero }), KindStatements},
		"another digest":                {a, said(func(s *Statement) { s.EventsDigest, s.EventsCID = part.EventsDigest, part.EventsCID }), KindStatements},
		"the same twice":                {a, a, ""},
		"the same under another nonce":  {a, said(func(*Statement) {}), ""},
		"a bundle made again":           {a, said(func(s *Statement) { s.GeneratedAt++; s.BundleBytes++ }), ""},
		"another genesis":               {a, said(func(s *Statement) { s.Genesis, s.LastHash = zero, zero }), ""},
		"another room":                  {a, said(func(s *Statement) { s.RoomID, s.LastHash = "y", zero }), ""},
		"another origin":                {a, said(func(s *Statement) { s.Origin, s.LastHash = hostB, zero }), ""},
		"another key":                   {a, seal(t, key(hostB), TypeAnnounce, part), ""},
		"a statement, an attestation":   {a, att(attestation(part, "")), ""},
		"not a statement":               {a, seal(t, k, "room.head", part), ""},
		"nothing":                       {a, nil, ""},
		"two complete archives":         {att(attestation(whole, "")), att(attestation(part, "")), KindAttestations},
		"a prefix beyond the end":       {att(attestation(part, "")), att(prefix), KindAttestations},
		"a prefix and the whole":        {att(half), att(attestation(whole, "")), ""},
		"two prefixes":                  {att(half), att(prefix), ""},
		"with and without a statement":  {att(attestation(whole, "")), att(attestation(whole, zero)), ""},
		"a prefix with the same length": {att(prefix), att(attestation(whole, "")), ""},
	} {
		for range 2 {
			if kind, ok := Contradiction(c.a, c.b); kind != c.kind || ok != (c.kind != "") {
				t.Errorf("%s: %q, %v", name, kind, ok)
			}
			c.a, c.b = c.b, c.a
		}
	}
}

func TestProof(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	b, c := wo.node(t, hostB, hostA), wo.node(t, hostC, hostA)
	recs := chain(t, roomX, "one", "two")
	first, second := seal(t, key(hostA), TypeAnnounce, statement(hostA, recs)), seal(t, key(hostA), TypeAnnounce, statement(hostA, recs[:3]))
	b.run()
	b.install(hostA, recs)
	b.deliver(first.JSON())
	if envelope(t, b.next().data).Type != TypeAttest || b.state(hostA, roomX) != "1 attested" {
		t.Fatal(b.state(hostA, roomX))
	}
	if v := b.deliver(second.JSON()); v != Accept {
		t.Fatal(v)
	}
	m := b.next()
	if m.topic != TopicEvidence {
		t.Fatal(m.topic)
	}
	p := must[*Proof](t)(VerifyEvidence(m.data))
	if p.Kind != KindStatements || p.Agent != agentOf(key(hostA)) || p.Origin != hostA || p.RoomID != roomX || p.Genesis != recs[0].Hash {
		t.Errorf("%+v", p)
	}
	until(t, "the state", func() bool { got, _ := b.told.Load(hostA + " " + roomX); return got == "1 equivocated" })

	// from hand to hand
	if v := c.hear(m.data); v != Accept {
		t.Fatal(v)
	}
	if v := c.w.Validate("peer", m.data); v != Ignore {
		t.Errorf("the same proof twice: %v", v)
	}
	for _, n := range []*node{b, c} {
		n.again() // sticky
		l := n.get("evidence?origin=" + hostA + "&room_id=" + roomX)
		if len(l) != 1 || !strings.HasSuffix(n.state(hostA, roomX), "equivocated") {
			t.Fatalf("%s, %s", n.state(hostA, roomX), l)
		}
		for _, want := range []string{`"class":"proof"`, `"seen_at":`, `"observer":"` + string(n.w.self), first.Hash, second.Hash} {
			if !strings.Contains(string(l[0]), want) {
				t.Errorf("the evidence lacks %s: %s", want, l[0])
			}
		}
		// one proof for each key and subject, whatever else the key signs
		third := statement(hostA, recs)
		third.LastHash = recs[0].Hash
		if v := n.hear(seal(t, key(hostA), TypeAnnounce, third).JSON()); v != Ignore {
			t.Errorf("a third story: %v", v)
		}
	}
	if len(b.get("statements")) != 1 || len(c.get("statements")) != 0 {
		t.Error("statements")
	}
	// nobody attests a room whose host told two stories
	c.o.StatementWait = 1
	c.again()
	c.install(hostA, recs)
	c.w.resume()
	c.drain()
	if len(c.get("attestations")) != 0 {
		t.Error("attested")
	}

	for name, bad := range map[string][]byte{
		"a side":             replaced(m.data, `"bundle_bytes":7`, `"bundle_bytes":8`),
		"a signature":        replaced(m.data, p.Sides[0].Signature, p.Sides[1].Signature),
		"the kind":           replaced(m.data, KindStatements, KindAttestations),
		"the room":           replaced(m.data, `"room_id":"room-x","sides"`, `"room_id":"room-y","sides"`),
		"the agent":          replaced(m.data, string(p.Agent), string(agentOf(key(hostB)))),
		"the class":          replaced(m.data, `"proof"`, `"proofs"`),
		"a free member":      replaced(m.data, `{"agent"`, `{"a":1,"agent"`),
		"white space":        replaced(m.data, `{"agent"`, `{ "agent"`),
		"cut":                m.data[:len(m.data)-1],
		"one side":           replaced(m.data, string(p.Sides[1].JSON()), ""),
		"the same side":      replaced(m.data, string(p.Sides[1].JSON()), string(p.Sides[0].JSON())),
		"sides out of order": replaced(replaced(replaced(m.data, string(p.Sides[0].JSON()), "@"), string(p.Sides[1].JSON()), string(p.Sides[0].JSON())), "@", string(p.Sides[1].JSON())),
		"too long":           append(bytes.Clone(m.data), bytes.Repeat([]byte(" "), MaxEvidence)...),
	} {
		if bytes.Equal(bad, m.data) {
			t.Errorf("%s: nothing was changed", name)
		}
		if _, err := VerifyEvidence(bad); err == nil {
			t.Errorf("%s was changed, and the proof holds", name)
		}
	}
}

// A proof is of interest only if the key speaks for somebody.
func TestProofOfUnknownKey(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	recs := chain(t, roomX, "one", "two")
	prove := func(k, typ string, x, y any) []byte {
		p := must[*Proof](t)(newProof(seal(t, key(k), typ, x), seal(t, key(k), typ, y)))
		return must[[]byte](t)(p.JSON())
	}
	whole, part := statement(hostA, recs), statement(hostA, recs[:3])
	b := wo.node(t, hostB, hostA)
	wo.bind(hostC, key(hostC)) // bound, but to an origin that b does not follow
	for _, who := range []string{"nobody", hostC} {
		if v := b.hear(prove(who, TypeAnnounce, whole, part)); v != Ignore {
			t.Error(who, v)
		}
		if v := b.hear(prove(who, TypeAttest, attestation(whole, ""), attestation(part, ""))); v != Ignore {
			t.Error(who, v)
		}
	}
	// the key of A speaks for A only
	forC, partC := whole, part
	forC.Origin, partC.Origin = hostC, hostC
	if v := b.hear(prove(hostA, TypeAnnounce, forC, partC)); v != Ignore {
		t.Error(v)
	}
	if len(b.get("evidence")) != 0 {
		t.Error("kept")
	}
}

// A witness that attested two archives is out; the host is not to blame.
func TestWitnessOnBothSides(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	wo.bind(hostC, key(hostC))
	b := wo.node(t, hostB, hostA, hostC)
	recs := chain(t, roomX, "one", "two")
	whole, part := attestation(statement(hostA, recs), ""), attestation(statement(hostA, recs[:3]), "")
	x, y := seal(t, key(hostC), TypeAttest, whole), seal(t, key(hostC), TypeAttest, part)
	b.hear(x.JSON())
	if b.state(hostA, roomX) != "1 attested" {
		t.Fatal(b.state(hostA, roomX))
	}
	b.hear(y.JSON())
	l := b.get("evidence")
	if len(l) != 1 || !strings.Contains(string(l[0]), KindAttestations) || b.state(hostA, roomX) != "0 unattested" {
		t.Errorf("%s: %s", b.state(hostA, roomX), l)
	}
	// both sides in one commit
	n := wo.node(t, hostB, hostA, hostC)
	_, p := n.w.judge(x.JSON())
	_, q := n.w.judge(y.JSON())
	if err := n.w.keep([]parsed{p, q}); err != nil || len(n.get("evidence")) != 1 || len(n.get("attestations")) != 1 {
		t.Error(err, len(n.get("evidence")), len(n.get("attestations")))
	}
}
