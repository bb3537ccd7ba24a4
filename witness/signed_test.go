package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/tilelog"
)

// logKeyOf is the log key of an origin in its first generation.
func logKeyOf(origin string) ed25519.PrivateKey { return key("log 1 " + origin) }

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func noteOf(t testing.TB, line string, size uint64, root byte, k ed25519.PrivateKey) []byte {
	t.Helper()
	return must[[]byte](t)(tilelog.Checkpoint{Origin: line, Size: size, Root: [32]byte{root}}.Sign(k))
}

// cosigned adds the cosignature of a witness to a note.
func cosigned(t testing.TB, note []byte, name string, k ed25519.PrivateKey, at uint64) []byte {
	t.Helper()
	c := must[tilelog.Checkpoint](t)(tilelog.PeekCheckpoint(note))
	sig := binary.BigEndian.AppendUint32(nil, noteKeyHash(name, algCosign, public(k)))
	sig = binary.BigEndian.AppendUint64(sig, at)
	sig = append(sig, ed25519.Sign(k, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, c.Text()))...)
	return append(bytes.Clone(note), "— "+name+" "+base64.StdEncoding.EncodeToString(sig)+"\n"...)
}

// tree is a small RFC 6962 tree.
type tree [][]byte

func treeOf(entries ...string) (t tree) {
	for _, e := range entries {
		t = append(t, rfc6962.DefaultHasher.HashLeaf([]byte(e)))
	}
	return t
}

func (t tree) root() []byte {
	if len(t) == 1 {
		return t[0]
	}
	k := 1
	for k*2 < len(t) {
		k *= 2
	}
	return rfc6962.DefaultHasher.HashChildren(t[:k].root(), t[k:].root())
}

func (t tree) prove(i int) [][]byte {
	if len(t) == 1 {
		return nil
	}
	k := 1
	for k*2 < len(t) {
		k *= 2
	}
	if i < k {
		return append(t[:k].prove(i), t[k:].root())
	}
	return append(t[k:].prove(i-k), t[:k].root())
}

// side is a checkpoint over a tree with one leaf proven.
func (t tree) side(tt testing.TB, line string, k ed25519.PrivateKey, i int) Signed {
	tt.Helper()
	note := must[[]byte](tt)(tilelog.Checkpoint{Origin: line, Size: uint64(len(t)), Root: [32]byte(t.root())}.Sign(k))
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(i), uint64(len(t)), t[i], t.prove(i), t.root()); err != nil {
		tt.Fatal(err)
	}
	return Signed{Note: note, Inclusion: &Inclusion{Index: int64(i), Leaf: [32]byte(t[i]), Hashes: t.prove(i)}}
}

// noteProofs is one proof of each kind that has checkpoints as its sides.
func noteProofs(t testing.TB) map[string]*Proof {
	k, line := logKeyOf(hostA), LogOrigin(hostA, 1)
	room := Subject{hostA, roomX, chain(t, roomX)[0].Hash}
	cosigner := key("cosigner")
	return map[string]*Proof{
		"log":  must[*Proof](t)(ProveCheckpoints(Subject{Origin: hostA}, public(k), noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 2, k))),
		"room": must[*Proof](t)(ProveCheckpoints(room, public(k), noteOf(t, RoomOrigin(room), 7, 2, k), noteOf(t, RoomOrigin(room), 7, 1, k))),
		"inclusion": must[*Proof](t)(ProveInclusion(Subject{Origin: hostA}, public(k), treeOf("a", "b", "c").side(t, line, k, 1),
			treeOf("a", "x", "c", "d", "e").side(t, line, k, 1))),
		"cosignatures": must[*Proof](t)(ProveCosignatures(Subject{Origin: hostA}, public(cosigner),
			cosigned(t, noteOf(t, line, 7, 1, k), "w.example/witness", cosigner, 5), cosigned(t, noteOf(t, line, 7, 2, k), "w.example/witness", cosigner, 9))),
	}
}

func TestProofsByCheckpoints(t *testing.T) {
	want := map[string]string{"log": KindCheckpoints, "room": KindCheckpoints, "inclusion": KindInclusion, "cosignatures": KindCosignatures}
	for name, p := range noteProofs(t) {
		text := must[[]byte](t)(p.JSON())
		q, err := VerifyEvidence(text)
		if err != nil || q.Kind != want[name] || q.Subject != p.Subject || q.Agent != p.Agent || q.id() != p.id() {
			t.Fatalf("%s: %+v, %v: %s", name, q, err, text)
		}
		if again := must[[]byte](t)(q.JSON()); !bytes.Equal(again, text) {
			t.Errorf("%s: %s reads as %s", name, text, again)
		}
		var m struct{ Sides []json.RawMessage }
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		x, y := string(m.Sides[0]), string(m.Sides[1])
		for what, bad := range map[string][]byte{
			"another size":       replaced(text, `\n7\n`, `\n8\n`),
			"another key":        replaced(text, string(p.Agent), string(agentOf(key("nobody")))),
			"another origin":     replaced(text, `"origin":"`+hostA, `"origin":"`+hostC),
			"of envelopes":       replaced(text, `"kind":"`+p.Kind, `"kind":"`+KindStatements),
			"the kind":           replaced(text, `"kind":"`+p.Kind, `"kind":"`+map[bool]string{true: KindCosignatures, false: KindCheckpoints}[p.Kind == KindCheckpoints]),
			"out of order":       replaced(text, x+","+y, y+","+x),
			"the same side":      replaced(text, x+","+y, x+","+x),
			"three sides":        replaced(text, x+","+y, x+","+y+","+y),
			"a member":           replaced(text, `{"checkpoint"`, `{"a":1,"checkpoint"`),
			"an envelope":        replaced(text, x, string(seal(t, key(hostA), TypeHead, map[string]any{}).JSON())),
			"a genesis":          replaced(text, `"genesis":""`, `"genesis":"`+chain(t, roomX)[0].Hash+`"`),
			"a room":             replaced(text, `"room_id":"`, `"room_id":"z`),
			"a second signature": replaced(text, `=\n"`, `=\n— x AAAAAAA=\n"`),
			"no signature":       replaced(text, "—", "-"),
			"another index":      replaced(text, `"index":1`, `"index":2`),
			"a negative index":   replaced(text, `"index":1`, `"index":-1`),
			"a fraction":         replaced(text, `"index":1`, `"index":1.5`),
			"a hash less":        replaced(text, `"hashes":["`, `"hashes":["AAAA","`),
			"hashes":             replaced(text, `"hashes":[`, `"hashes":[1,`),
			"the leaf":           replaced(text, `"leaf":"`, `"leaf":"A`),
		} {
			if bytes.Equal(bad, text) {
				continue // of another kind
			}
			if _, err := VerifyEvidence(bad); err == nil {
				t.Errorf("%s: %s was changed, and the proof holds: %s", name, what, bad)
			}
		}
		// any bit of a side
		for i := range len(x) {
			at := bytes.Index(text, []byte(x)) + i
			bad := bytes.Clone(text)
			bad[at] ^= 1
			if _, err := VerifyEvidence(bad); err == nil {
				t.Fatalf("%s: byte %d was changed, and the proof holds: %s", name, at, bad)
			}
		}
	}
}

func TestNoProofByCheckpoints(t *testing.T) {
	k, other, line := logKeyOf(hostA), logKeyOf(hostC), LogOrigin(hostA, 1)
	log := Subject{Origin: hostA}
	room := Subject{hostA, roomX, chain(t, roomX)[0].Hash}
	for name, c := range map[string]struct {
		s    Subject
		key  ed25519.PublicKey
		a, b []byte
	}{
		"another size":     {log, public(k), noteOf(t, line, 7, 1, k), noteOf(t, line, 8, 2, k)},
		"the same root":    {log, public(k), noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 1, k)},
		"two keys":         {log, public(k), noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 2, other)},
		"another log":      {log, public(k), noteOf(t, line, 7, 1, k), noteOf(t, LogOrigin(hostA, 2), 7, 2, k)},
		"of another host":  {Subject{Origin: hostC}, public(k), noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 2, k)},
		"a log, a room":    {log, public(k), noteOf(t, line, 7, 1, k), noteOf(t, RoomOrigin(room), 7, 2, k)},
		"of another room":  {Subject{hostA, "y", room.Genesis}, public(k), noteOf(t, RoomOrigin(room), 7, 1, k), noteOf(t, RoomOrigin(room), 7, 2, k)},
		"no note":          {log, public(k), []byte("x"), noteOf(t, line, 7, 2, k)},
		"no key":           {log, nil, noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 2, k)},
		"cosigned, not by": {log, public(other), cosigned(t, noteOf(t, line, 7, 1, k), "w", other, 1), cosigned(t, noteOf(t, line, 7, 2, k), "w", other, 1)},
	} {
		if p, err := ProveCheckpoints(c.s, c.key, c.a, c.b); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	// the log's own signature is no cosignature
	if _, err := ProveCosignatures(log, public(k), noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 2, k)); err == nil {
		t.Error("a cosignature of the log itself")
	}
	// what grew is the same at every index; an inner node is no leaf
	for i := range 3 {
		if _, err := ProveInclusion(log, public(k), treeOf("a", "b", "c").side(t, line, k, i), treeOf("a", "b", "c", "d").side(t, line, k, i)); err == nil {
			t.Error("a tree that grew")
		}
	}
	inner := treeOf("a", "b", "c", "d").side(t, line, k, 0)
	inner.Inclusion = &Inclusion{Index: 0, Leaf: [32]byte(treeOf("a", "b").root()), Hashes: inner.Inclusion.Hashes[1:]}
	if _, err := ProveInclusion(log, public(k), inner, treeOf("a", "b", "c").side(t, line, k, 0)); err == nil {
		t.Error("an inner node passes for a leaf")
	}
	if _, err := ProveInclusion(log, public(k), Signed{Note: noteOf(t, line, 7, 1, k)}, inner); err == nil {
		t.Error("no inclusion")
	}
}

// A proof by checkpoints is taken against keys that are bound, or in the policy,
// and against nobody else.
func TestWhoAnswersForCheckpoints(t *testing.T) {
	proofs := noteProofs(t)
	wo := newWorld()
	follows, stranger := wo.node(t, hostB, hostA), wo.node(t, hostC, hostB)
	policy := wo.node(t, hostC, hostB)
	policy.o.Cosigners = func() []ed25519.PublicKey { return []ed25519.PublicKey{public(key("cosigner"))} }
	policy.again()
	for name, p := range proofs {
		text := must[[]byte](t)(p.JSON())
		for n, accepts := range map[*node]bool{follows: name != "cosignatures", stranger: false, policy: name == "cosignatures"} {
			want := Ignore
			if accepts {
				want = Accept
			}
			if v := n.hear(text); v != want {
				t.Errorf("%s at %s: %v", name, n.o.Origin, v)
			}
		}
	}
	if !follows.w.HostEquivocated(hostA) || follows.w.HostEquivocated(hostC) || stranger.w.HostEquivocated(hostA) || policy.w.HostEquivocated(hostA) {
		t.Error("hosts")
	}
	if !policy.w.Contradicted(agentOf(key("cosigner"))) || policy.w.Contradicted(agentOf(key("nobody"))) {
		t.Error("cosigners")
	}
	if follows.state(hostA, roomX) != "0 equivocated" || len(follows.get("evidence")) != 3 || len(follows.get("evidence?origin="+hostA)) != 3 ||
		len(follows.get("evidence?room_id="+roomX)) != 1 || len(stranger.get("evidence")) != 0 {
		t.Error(follows.state(hostA, roomX), len(follows.get("evidence")))
	}
	follows.again() // for ever
	if !follows.w.HostEquivocated(hostA) || follows.state(hostA, roomX) != "0 equivocated" {
		t.Error("forgotten")
	}
	// framing: keys made for the purpose, in the name of the host that is followed
	k, line := key("made for the purpose"), LogOrigin(hostA, 1)
	forged := must[*Proof](t)(ProveCheckpoints(Subject{Origin: hostA}, public(k), noteOf(t, line, 9, 1, k), noteOf(t, line, 9, 2, k)))
	if v := follows.hear(must[[]byte](t)(forged.JSON())); v != Ignore {
		t.Error(v)
	}
	// the key of another followed host does not answer for this one
	c := wo.node(t, hostB, hostA, hostC)
	k = logKeyOf(hostC)
	forged = must[*Proof](t)(ProveCheckpoints(Subject{Origin: hostA}, public(k), noteOf(t, line, 9, 1, k), noteOf(t, line, 9, 2, k)))
	if v := c.hear(must[[]byte](t)(forged.JSON())); v != Ignore || c.w.HostEquivocated(hostA) {
		t.Error(v)
	}
	// a kind of later times is no offence
	text := must[[]byte](t)(proofs["log"].JSON())
	if v := c.hear(replaced(text, KindCheckpoints, "later-contradiction")); v != Ignore {
		t.Error(v)
	}
}

func head(origin string, recs []*adp.Record) Head {
	st := statement(origin, recs)
	return Head{st.Subject, st.LastSeq, st.LastHash, st.ArchiveRoot, t0}
}

// Heads and checkpoints of any source are held against each other.
func TestClaims(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	recs, twin := chain(t, roomX, "one", "two"), chain(t, roomX, "one", "2")
	h := func(k string, recs []*adp.Record) *adp.Envelope { return seal(t, key(k), TypeHead, head(hostA, recs)) }
	st := seal(t, key(hostA), TypeAnnounce, statement(hostA, recs))
	k := logKeyOf(hostA)
	room := Subject{hostA, roomX, recs[0].Hash}
	for name, c := range map[string]struct {
		feed func(n *node)
		kind string // "" for none
	}{
		"two heads":            {func(n *node) { n.w.Head(h(hostA, recs)); n.w.Head(h(hostA, twin)) }, KindHeads},
		"two heads from above": {func(n *node) { n.w.Heads(h(hostA, recs), h(hostA, twin)) }, KindHeads},
		"a head that grows":    {func(n *node) { n.w.Head(h(hostA, recs[:2])); n.w.Head(h(hostA, recs)); n.w.Head(h(hostA, recs)) }, ""},
		"no contradiction":     {func(n *node) { n.w.Heads(h(hostA, recs[:2]), h(hostA, recs)) }, ""},
		"of no bound key":      {func(n *node) { n.w.Head(h("x", recs)); n.w.Head(h("x", twin)); n.w.Heads(h("x", recs), h("x", twin)) }, ""},
		"a forgery": {func(n *node) {
			bad := envelope(t, replaced(h(hostA, recs).JSON(), fmt.Sprint(`"at":`, int64(t0)), `"at":5`))
			if n.w.Head(bad) {
				t.Error("authentic")
			}
			n.w.Heads(bad, h(hostA, twin))
		}, ""},
		"a head, then a statement": {func(n *node) { n.w.Head(h(hostA, twin)); n.hear(st.JSON()) }, KindHeads},
		"a statement, then a head": {func(n *node) { n.hear(st.JSON()); n.w.Head(h(hostA, twin)) }, KindHeads},
		"a head of a longer room": {func(n *node) {
			n.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, recs[:3])).JSON())
			n.w.Head(h(hostA, recs))
		}, KindHeads},
		"a statement and its heads": {func(n *node) { n.w.Head(h(hostA, recs[:2])); n.hear(st.JSON()); n.w.Head(h(hostA, recs)) }, ""},
		"two logs": {func(n *node) {
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 1, k))
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 2, k))
		}, KindCheckpoints},
		"two logs, one is longer now": {func(n *node) {
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 1, k))
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 4, 1, k))
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 2, k))
		}, KindCheckpoints},
		"two logs, over a restart": {func(n *node) {
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 1, k))
			n.again()
			n.w.meet()
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 2, k))
		}, KindCheckpoints},
		"two rooms": {func(n *node) {
			n.w.saw(noteOf(t, RoomOrigin(room), 3, 1, k))
			n.w.saw(noteOf(t, RoomOrigin(room), 3, 2, k))
		}, KindCheckpoints},
		"a log grows": {func(n *node) {
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 1, k))
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 4, 2, k))
		}, ""},
		"two log keys": {func(n *node) {
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 1, k))
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 2, key("log 2 "+hostA)))
		}, ""},
		"no room": {func(n *node) {
			n.w.saw(noteOf(t, "a.example/witan/rooms/x/y", 3, 1, k))
			n.w.saw(noteOf(t, "a.example/witan/rooms/x/y", 3, 2, k))
		}, ""},
		"an unknown key": {func(n *node) {
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 1, key("x")))
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 2, key("x")))
		}, ""},
		"junk lines": {func(n *node) {
			junk := func(note []byte) []byte { return append(note, "— "+strings.Repeat("<", 3000)+" AAAAAAAA\n"...) }
			n.w.shown(junk(noteOf(t, LogOrigin(hostA, 1), 3, 1, k)))
			n.w.shown(junk(noteOf(t, RoomOrigin(room), 3, 1, k)))
			for _, c := range n.w.claims.show() {
				if bytes.Contains(c.wire, []byte("u003c")) {
					t.Errorf("junk is passed on: %s", c.wire)
				}
			}
			if bytes.Contains(n.w.journal.seen[hostA], []byte("<")) || len(n.w.claims.show()) != 2 {
				t.Error("junk is kept")
			}
			n.w.shown(noteOf(t, LogOrigin(hostA, 1), 3, 2, k))
		}, KindCheckpoints},
		"a cosigner": {func(n *node) {
			cos := key("cosigner")
			n.o.Cosigners = func() []ed25519.PublicKey { return []ed25519.PublicKey{public(cos)} }
			n.again()
			// of two generations of keys, so that the log itself is not proven anything
			n.w.shown(cosigned(t, noteOf(t, LogOrigin(hostA, 1), 3, 1, k), "w", cos, 4))
			n.w.shown(cosigned(t, noteOf(t, LogOrigin(hostA, 1), 3, 2, key("log 2 "+hostA)), "w", cos, 5))
		}, KindCosignatures},
	} {
		n := wo.node(t, hostB, hostA)
		n.w.meet()
		c.feed(n)
		l := n.get("evidence")
		if c.kind == "" {
			if len(l) != 0 || len(n.sent) != 0 {
				t.Errorf("%s: %s", name, l)
			}
			continue
		}
		if len(l) != 1 || !strings.Contains(string(l[0]), `"kind":"`+c.kind+`"`) {
			t.Errorf("%s: %s", name, l)
			continue
		}
		if len(n.w.publisher.queue) == 0 {
			t.Errorf("%s: not gossiped", name)
		}
		for m := range len(n.w.publisher.queue) {
			msg := <-n.w.publisher.queue
			if p, err := VerifyEvidence(msg.data); msg.topic == TopicEvidence && (err != nil || p.Kind != c.kind) {
				t.Errorf("%s: message %d: %v", name, m, err)
			}
		}
	}
}

// What hosts signed last is bounded, for one host and for all, and is all shown
// after a while.
func TestClaimsAreBounded(t *testing.T) {
	var c claims
	shown := map[string]bool{}
	put := func(origin string, i int) {
		note := fmt.Appendf(nil, "%s %d %0200d", origin, i, 0)
		c.add(lineName{Subject{Origin: origin, RoomID: fmt.Sprint(i)}, "x"}, claim{note: note, wire: note, c: tilelog.Checkpoint{Origin: origin, Size: uint64(i)}, key: public(key(origin))})
	}
	for i := range linesPerOrigin * 3 {
		put(hostA, i)
		if i < 10 {
			put(hostC, i)
		}
	}
	if len(c.lines) != linesPerOrigin+10 || c.order.Len() != len(c.lines) || c.origins[hostA] != linesPerOrigin || c.origins[hostC] != 10 {
		t.Fatal(len(c.lines), c.origins)
	}
	for range 2 * len(c.lines) / (seenItems - seenOutOfTurn) {
		page, size := c.show(), 0
		for _, x := range page {
			shown[string(x.note)] = true
			size += len(x.wire)
		}
		if len(page) > seenItems || size > seenBytes {
			t.Fatal(len(page), size)
		}
	}
	if len(shown) != len(c.lines) {
		t.Errorf("%d of %d were shown", len(shown), len(c.lines))
	}
	for i := range linesInAll {
		put(fmt.Sprint("https://", i%100, ".example"), i)
	}
	if len(c.lines) > linesInAll || c.order.Len() != len(c.lines) {
		t.Error(len(c.lines))
	}
	name := lineName{Subject{Origin: hostA}, "y"}
	for i := range 100 {
		c.add(name, claim{c: tilelog.Checkpoint{Size: uint64(i)}, key: public(key(hostA))})
	}
	if len(c.of(name)) != claimsPerLine || !c.has(name, claim{c: tilelog.Checkpoint{Size: 99}, key: public(key(hostA))}) {
		t.Error(len(c.of(name)))
	}
}

// A key that makes proofs against itself, to fill the disk or to bury the one that
// counts, gets nowhere: some are kept, and then nothing of that origin is believed.
func TestFloodOfProofs(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	n := wo.node(t, hostB, hostA)
	told := map[Subject]int{}
	n.o.Equivocated = func(origin, roomID, genesis string) { told[Subject{origin, roomID, genesis}]++ }
	n.again()
	recs := chain(t, "room-0", "one")
	good := seal(t, key(hostA), TypeAnnounce, statement(hostA, recs))
	n.hear(good.JSON())
	wo.bind(hostC, key(hostC))
	n.o.Bound = func(o string, a adp.AgentID) bool {
		return a == agentOf(key(hostA)) && o == hostA || a == agentOf(key(hostC)) && o == hostC
	}
	n.o.Origins = func() []string { return []string{hostA, hostC} }
	n.again()
	n.hear(seal(t, key(hostC), TypeAttest, attestation(statement(hostA, recs), good.Hash)).JSON())
	if n.state(hostA, "room-0") != "1 attested" {
		t.Fatal(n.state(hostA, "room-0"))
	}
	st := statement(hostA, recs)
	var batch []parsed
	for i := 1; i <= maxProofs+50; i++ {
		st.RoomID = fmt.Sprintf("flood-%04d", i)
		other := st
		other.ArchiveRoot = st.Genesis
		p := must[*Proof](t)(newProof(seal(t, key(hostA), TypeAnnounce, st), seal(t, key(hostA), TypeAnnounce, other)))
		v, got := n.w.judge(must[[]byte](t)(p.JSON()))
		if v != Accept {
			t.Fatal(v)
		}
		if batch = append(batch, got); i == maxProofs-1 {
			if err := n.w.keep(batch); err != nil || n.state(hostA, "room-0") != "1 attested" || n.w.HostEquivocated(hostA) {
				t.Fatal(err, n.state(hostA, "room-0"))
			}
			batch = nil
		}
	}
	for range 2 {
		if err := n.w.keep(batch); err != nil {
			t.Fatal(err)
		}
		if len(n.w.book.proofs) != maxProofs || n.state(hostA, "room-0") != "1 equivocated" || n.state(hostA, "never heard of") != "0 equivocated" ||
			!n.w.HostEquivocated(hostA) || n.w.HostEquivocated(hostC) || n.state(hostC, "x") != "0 unattested" {
			t.Error(len(n.w.book.proofs), n.state(hostA, "room-0"))
		}
		n.again()
	}
	if told[Subject{Origin: hostA}] != 1 || told[Subject{hostA, "flood-0007", st.Genesis}] != 1 || len(told) != maxProofs+1 {
		t.Error(len(told), told[Subject{Origin: hostA}])
	}
	if v, _ := n.w.judge(must[[]byte](t)(batch[49].proof.JSON())); v != Ignore {
		t.Error(v)
	}
}

// Who is told, and when: at once, again at a start, and when the room comes later.
func TestEquivocatedIsTold(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	n := wo.node(t, hostB, hostA)
	var told []Subject
	n.o.Equivocated = func(origin, roomID, genesis string) {
		s := Subject{origin, roomID, genesis}
		if told = append(told, s); roomID != "" && !n.w.Proven(s) || roomID == "" && !n.w.HostEquivocated(origin) {
			t.Error("told before it is so", s)
		}
	}
	n.again()
	recs := chain(t, roomX, "one", "two")
	s := Subject{hostA, roomX, recs[0].Hash}
	n.w.Heads(seal(t, key(hostA), TypeHead, head(hostA, recs)), seal(t, key(hostA), TypeHead, head(hostA, chain(t, roomX, "one", "2"))))
	k := logKeyOf(hostA)
	if err := n.w.Prove(must[*Proof](t)(ProveCheckpoints(Subject{Origin: hostA}, public(k), noteOf(t, LogOrigin(hostA, 1), 7, 1, k), noteOf(t, LogOrigin(hostA, 1), 7, 2, k)))); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0] != s || told[1] != (Subject{Origin: hostA}) {
		t.Fatal(told)
	}
	n.again()
	told = nil
	n.w.resume()
	if len(told) != 2 {
		t.Error(told)
	}
	r := n.install(hostA, recs)
	told = nil
	n.w.Completed(r)
	n.drain()
	if len(told) != 1 || told[0] != s || n.state(hostA, roomX) != "0 equivocated" {
		t.Error(told)
	}
	if len(n.get("attestations")) != 0 {
		t.Error("attested")
	}
}

// Anybody can add lines that look like those of a key; only so many of them are worth a check.
func TestNoteWithManyLinesOfOneKey(t *testing.T) {
	k := logKeyOf(hostA)
	line := LogOrigin(hostA, 1)
	note := noteOf(t, line, 7, 1, k)
	text, sigs, _ := strings.Cut(string(note), "\n\n")
	fake := func(n int) string {
		sig := binary.BigEndian.AppendUint32(nil, noteKeyHash(line, algNote, public(k)))
		return strings.Repeat("— "+line+" "+base64.StdEncoding.EncodeToString(append(sig, make([]byte, ed25519.SignatureSize)...))+"\n", n)
	}
	for n, ok := range map[int]bool{0: true, maxSignatures - 1: true, maxSignatures: false, 100: false} {
		_, single, err := openNote([]byte(text+"\n\n"+fake(n)+sigs), public(k), algNote)
		if (err == nil) != ok || ok && !bytes.Equal(single, note) {
			t.Errorf("behind %d others: %v, %q", n, err, single)
		}
		if _, single, err := openNote([]byte(text+"\n\n"+sigs+fake(n)), public(k), algNote); err != nil || !bytes.Equal(single, note) {
			t.Errorf("before %d others: %v", n, err)
		}
	}
}
