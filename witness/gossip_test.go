package witness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// unsigned changes an event and hashes it again, but keeps the old signature.
func unsigned(t testing.TB, e *adp.Envelope, payload any) []byte {
	t.Helper()
	d := adp.Draft{Protocol: adp.WitnessProtocol, Type: e.Type, CreatedAt: e.CreatedAt, Nonce: e.Nonce, Payload: payload}
	other := must[*adp.Envelope](t)(adp.Sign(key("somebody else"), d))
	forged := replaced(other.Event().Raw(), string(other.Actor), string(e.Actor))
	v := must[adp.Value](t)(adp.Scan(forged))
	// Sign computes the hash of the forged event; its signature is replaced
	var draft adp.Draft
	if err := json.Unmarshal(v.Raw(), &draft); err != nil {
		t.Fatal(err)
	}
	own := must[*adp.Envelope](t)(adp.Sign(key(hostA), draft))
	if own.Actor != e.Actor {
		t.Fatal("unsigned is for the key of host A")
	}
	return replaced(own.JSON(), own.Signature, e.Signature)
}

func TestValidate(t *testing.T) {
	recs := chain(t, roomX, "one")
	st := statement(hostA, recs)
	kA, kB := key(hostA), key(hostB)
	good := seal(t, kA, TypeAnnounce, st)
	change := func(payload any, name string, value any) map[string]any {
		raw, _ := json.Marshal(payload)
		m := map[string]any{}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m[name] = value; value == nil {
			delete(m, name)
		}
		return m
	}
	said := func(name string, value any) []byte { return seal(t, kA, TypeAnnounce, change(st, name, value)).JSON() }
	at := attestation(st, good.Hash)
	attested := func(name string, value any) []byte { return seal(t, kB, TypeAttest, change(at, name, value)).JSON() }
	draft := adp.Draft{Protocol: adp.WitnessProtocol, Type: TypeAnnounce, CreatedAt: t0, Nonce: 1, Payload: st}
	signed := func(change func(*adp.Draft)) []byte {
		d := draft
		change(&d)
		return must[*adp.Envelope](t)(adp.Sign(kA, d)).JSON()
	}
	elsewhere := st
	elsewhere.Origin = hostC
	otherEnd := statement(hostA, recs[:2])
	for name, c := range map[string]struct {
		data []byte
		want Verdict
	}{
		"a statement":                 {good.JSON(), Accept},
		"an attestation":              {seal(t, kB, TypeAttest, at).JSON(), Accept},
		"without a statement":         {seal(t, kB, TypeAttest, attestation(st, "")).JSON(), Accept},
		"by a configured witness":     {seal(t, key("trusted"), TypeAttest, at).JSON(), Accept},
		"within the skew":             {signed(func(d *adp.Draft) { d.CreatedAt = t0 + 100_000 + futureSkew }), Accept},
		"of long ago":                 {signed(func(d *adp.Draft) { d.CreatedAt = 0 }), Accept},
		"from the future":             {signed(func(d *adp.Draft) { d.CreatedAt = t0 + 100_001 + futureSkew }), Ignore},
		"a later type":                {signed(func(d *adp.Draft) { d.Type = "room.head" }), Ignore},
		"an unbound key":              {seal(t, key("nobody"), TypeAnnounce, st).JSON(), Ignore},
		"another origin's name":       {seal(t, kA, TypeAnnounce, elsewhere).JSON(), Ignore},
		"another host's room":         {seal(t, kB, TypeAnnounce, st).JSON(), Ignore},
		"a configured witness states": {seal(t, key("trusted"), TypeAnnounce, st).JSON(), Ignore},
		"a stranger attests":          {seal(t, key("nobody"), TypeAttest, at).JSON(), Ignore},
		"a forged signature":          {unsigned(t, good, otherEnd), Reject},
		"a wrong hash":                {replaced(good.JSON(), `"bundle_bytes":7`, `"bundle_bytes":8`), Reject},
		"white space":                 {append([]byte(" "), good.JSON()...), Reject},
		"a line feed":                 {append(bytes.Clone(good.JSON()), '\n'), Reject},
		"trailing bytes":              {append(bytes.Clone(good.JSON()), "{}"...), Reject},
		"not JSON":                    {[]byte("hello"), Reject},
		"nothing":                     {nil, Reject},
		"an array":                    {[]byte("[]"), Reject},
		"another protocol":            {signed(func(d *adp.Draft) { d.Protocol = "agent-discourse/1.0" }), Reject},
		"a room event's member":       {signed(func(d *adp.Draft) { d.RoomID = roomX }), Reject},
		"too long":                    {said("revision", strings.Repeat("x", MaxStatement)), Reject},
		"a free member":               {said("extra", 1), Reject},
		"no genesis":                  {said("genesis", nil), Reject},
		"an origin with a path":       {said("origin", hostA+"/"), Reject},
		"an origin in capitals":       {said("origin", "https://A.example"), Reject},
		"a bad room":                  {said("room_id", "a/b"), Reject},
		"no events":                   {said("event_count", 0), Reject},
		"count and seq differ":        {said("event_count", 2), Reject},
		"half an event":               {said("last_seq", 3.5), Reject},
		"a bad hash":                  {said("last_hash", "x"), Reject},
		"another CID":                 {said("events_cid", otherEnd.EventsCID), Reject},
		"a CID of the wrong codec":    {said("bundle_cid", st.EventsCID), Reject},
		"no time":                     {said("generated_at", -1), Reject},
		"complete is a word":          {attested("complete", "yes"), Reject},
		"a free member in an attest":  {attested("note", "x"), Reject},
		"a statement that is no hash": {attested("statement", "x"), Reject},
		"keys that are none":          {attested("origin_keys", []string{"x"}), Reject},
		"too many keys":               {attested("origin_keys", make([]adp.AgentID, maxOriginKeys+1)), Reject},
		"rules with more":             {attested("rules", map[string]any{"revision": "x", "version": 1, "y": 1}), Reject},
		"no rules":                    {attested("rules", nil), Reject},
		"no source":                   {attested("source", ""), Reject},
		"a proof of nothing":          {[]byte(`{"class":"proof"}`), Reject},
	} {
		wo := newWorld()
		wo.bind(hostA, kA)
		wo.bind(hostB, kB)
		n := wo.node(t, hostC, hostA, hostB)
		n.o.Trust = []Trust{{Agent: agentOf(key("trusted")), Group: "g"}}
		n.again()
		if got := n.w.Validate("peer", c.data); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDuplicates(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	b := wo.node(t, hostB, hostA)
	st := statement(hostA, chain(t, roomX, "one"))
	e := seal(t, key(hostA), TypeAnnounce, st)
	if b.hear(e.JSON()) != Accept || b.w.Validate("peer", e.JSON()) != Ignore {
		t.Error("the same message twice")
	}
	// the same again under a new nonce, without end
	for i := range 10 {
		want := Ignore
		if i < maxPerSubject-1 {
			want = Accept
		}
		if v := b.hear(seal(t, key(hostA), TypeAnnounce, st).JSON()); v != want {
			t.Errorf("repeat %d: %v", i, v)
		}
	}
	// two copies that are judged before either is kept
	other := statement(hostA, chain(t, "room-y", "one"))
	_, p := b.w.judge(seal(t, key(hostA), TypeAnnounce, other).JSON())
	if err := b.w.keep([]parsed{p, p}); err != nil {
		t.Fatal(err)
	}
	if l := b.get("statements?origin=" + hostA + "&room_id=room-y"); len(l) != 1 {
		t.Errorf("%d statements", len(l))
	}
	if len(b.get("statements")) != maxPerSubject+1 || len(b.get("evidence")) != 0 {
		t.Error(len(b.get("statements")))
	}
}

func TestFloodOfOneSigner(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	wo.bind(hostC, key(hostC))
	b := wo.node(t, hostB, hostA, hostC)
	st := statement(hostA, chain(t, roomX, "one"))
	counts := map[Verdict]int{}
	for i := range signerBurst + 50 {
		st.RoomID = fmt.Sprint("room-", i)
		counts[b.w.Validate("peer", seal(t, key(hostA), TypeAnnounce, st).JSON())]++
	}
	if counts[Accept] != signerBurst || counts[Ignore] != 50 {
		t.Error(counts)
	}
	// others are not held up, and forgeries in a signer's name cost it nothing
	st.Origin = hostC
	good := seal(t, key(hostC), TypeAnnounce, st)
	for range signerBurst + 1 {
		if v := b.w.Validate("peer", replaced(good.JSON(), good.Signature, seal(t, key(hostA), TypeAnnounce, st).Signature)); v != Reject {
			t.Fatal(v)
		}
	}
	if v := b.w.Validate("peer", good.JSON()); v != Accept {
		t.Error(v)
	}
}

func TestStrangersAttestOurStatement(t *testing.T) {
	a := newWorld().node(t, hostA)
	a.o.Trust = []Trust{{Agent: agentOf(key("trusted")), Group: "g"}}
	a.again()
	recs := chain(t, roomX, "one", "two")
	a.w.Ended(a.install(hostA, recs))
	a.drain()
	e := envelope(t, a.get("statements")[0])
	st := *must[*Statement](t)(ParseStatement(e))
	stranger := func(i int) adp.AgentID { return agentOf(key(fmt.Sprint("stranger ", i))) }
	hear := func(i int, at Attestation) Verdict {
		return a.hear(seal(t, key(fmt.Sprint("stranger ", i)), TypeAttest, at).JSON())
	}
	other := attestation(statement(hostA, recs[:3]), e.Hash)
	half := attestation(st, e.Hash)
	half.Complete = false
	elsewhere := attestation(st, e.Hash)
	elsewhere.RoomID = "room-y"
	for name, at := range map[string]Attestation{"no statement": attestation(st, ""), "an unknown statement": attestation(st, recs[0].Hash),
		"other records": other, "half of it": half, "another room": elsewhere} {
		if v := hear(0, at); v != Ignore {
			t.Errorf("%s: %v", name, v)
		}
	}
	for i := range MaxStrangers {
		if v := hear(i, attestation(st, e.Hash)); v != Accept {
			t.Fatal(i, v)
		}
	}
	if v := hear(3, attestation(st, e.Hash)); v != Ignore {
		t.Errorf("twice by one stranger: %v", v)
	}
	if v := hear(MaxStrangers, attestation(st, e.Hash)); v != Ignore {
		t.Errorf("number 65: %v", v)
	}
	if v := a.hear(seal(t, key("trusted"), TypeAttest, attestation(st, e.Hash)).JSON()); v != Accept {
		t.Errorf("strangers crowd out a configured witness: %v", v)
	}
	if a.state(hostA, roomX) != "65 attested" || len(a.get("attestations?limit=200")) != 65 {
		t.Error(a.state(hostA, roomX))
	}
	a.again() // who is a stranger is known after a restart
	if v := hear(MaxStrangers, attestation(st, e.Hash)); v != Ignore || !a.w.book.subjects[st.Subject].by(TypeAttest, stranger(5)).stranger {
		t.Errorf("number 65 after a restart: %v", v)
	}
}

// The daemon's own key, a key of the host and the host's own operator are no
// witnesses of the host.
func TestWhoCounts(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	wo.bind(hostA, key("old key of A"))
	b := wo.node(t, hostB, hostA)
	b.o.Trust = []Trust{{Agent: agentOf(key(hostA)), Group: "a"}, {Agent: agentOf(key("friend of A")), Group: "a"}, {Agent: agentOf(key("other")), Group: "o"}}
	b.again()
	recs := chain(t, roomX, "one", "two")
	st := statement(hostA, recs)
	hear := func(who string, at Attestation) {
		t.Helper()
		if v := b.hear(seal(t, key(who), TypeAttest, at).JSON()); v != Accept {
			t.Fatal(who, v)
		}
	}
	hear(hostA, attestation(st, ""))
	hear("old key of A", attestation(st, ""))
	hear("friend of A", attestation(st, ""))
	half := attestation(statement(hostA, recs[:2]), "")
	half.Complete = false
	hear("other", half)
	if b.state(hostA, roomX) != "0 unattested" {
		t.Error(b.state(hostA, roomX))
	}
	hear("other", attestation(st, recs[0].Hash)) // of a statement that we have not seen
	if b.state(hostA, roomX) != "1 attested" {
		t.Error(b.state(hostA, roomX))
	}
	// once we hold the room, only what agrees with it counts
	b.install(hostA, chain(t, roomX, "one", "two")) // the same records
	if b.state(hostA, roomX) != "1 attested" {
		t.Error(b.state(hostA, roomX))
	}
	c := wo.node(t, hostB, hostA)
	c.o.Trust = b.o.Trust
	c.again()
	longer := chain(t, roomX, "one", "two", "three")
	if longer[0].Hash != recs[0].Hash {
		t.Fatal("not the same genesis")
	}
	c.hear(seal(t, key("other"), TypeAttest, attestation(st, "")).JSON())
	if c.state(hostA, roomX) != "1 attested" {
		t.Error(c.state(hostA, roomX))
	}
	c.install(hostA, longer)
	if c.state(hostA, roomX) != "0 unattested" {
		t.Error(c.state(hostA, roomX))
	}
	c.o.Agents = func(string) []adp.AgentID { return nil }
	c.again()
	c.w.resume()
	c.drain() // our own attestation, and the comparison with the one that came before
	if l := c.get("evidence"); len(l) != 1 || !strings.Contains(string(l[0]), "attestation-mismatch") || c.state(hostA, roomX) != "1 attested" {
		t.Errorf("%s, %s", l, c.state(hostA, roomX))
	}
	c.hear(seal(t, key("friend of A"), TypeAttest, attestation(st, "")).JSON())
	if len(c.get("evidence")) != 2 {
		t.Error("an attestation of another archive left no observation")
	}
}
