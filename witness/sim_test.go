package witness

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A simulated network of daemons: their time is that of the simulation, all chance
// comes from a seed, and one thing happens after another. Gossip floods over the
// links as the real one does: what a daemon accepts it passes on once, and what it
// has seen it does not look at again. Whoever is connected is asked for what was
// missed, at once and every 30 s.

const (
	second      = int64(1000)
	simRound    = 30 * second // of anti-entropy
	hostX       = "https://x.example"
	hostH       = "https://h.example"
	contactTime = 10 * second // within this everybody has the evidence
)

type simEvent struct {
	at int64
	n  int // order of making
	do func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

type simNode struct {
	*node
	id   int
	up   bool
	part int // of the network, while it is partitioned
	seen map[[32]byte]bool
	lies func(asker *simNode, request []byte) ([]byte, error) // instead of ServeSync
}

type sim struct {
	t       testing.TB
	rng     *rand.Rand
	now     int64
	made    int
	queue   simQueue
	wo      *world
	nodes   []*simNode
	links   map[[2]int]bool
	loss    float64 // of gossip
	sent    int
	lost    int
	rejects int
	pulled  int
}

func newSim(t testing.TB, seed uint64) *sim {
	return &sim{t: t, rng: rand.New(rand.NewPCG(seed, 7)), wo: newWorld(), links: map[[2]int]bool{}}
}

// daemons adds n daemons, each bound to its origin, that follow each other and the
// hosts X and H. They are not connected.
func (s *sim) daemons(n int) {
	for _, h := range []string{hostX, hostH} {
		s.wo.bind(h, key(h))
	}
	follows := []string{hostX, hostH}
	for i := range n {
		origin := fmt.Sprintf("https://w%d.example", i)
		follows = append(follows, origin)
		s.wo.bind(origin, key(origin))
	}
	for i := range n {
		origin := follows[i+2]
		others := slices.DeleteFunc(slices.Clone(follows), func(o string) bool { return o == origin })
		s.add(s.wo.node(s.t, origin, others...))
	}
}

func (s *sim) add(n *node) *simNode {
	x := &simNode{node: n, id: len(s.nodes), up: true, seen: map[[32]byte]bool{}}
	n.o.Now = func() int64 { return t0 + 100_000 + s.now }
	n.again()
	s.nodes = append(s.nodes, x)
	s.every(x)
	return x
}

func (s *sim) after(delay int64, do func()) {
	s.made++
	heap.Push(&s.queue, simEvent{s.now + delay, s.made, do})
}

// every is the periodic anti-entropy of a daemon.
func (s *sim) every(x *simNode) {
	var round func()
	round = func() {
		if x.up {
			s.catchUp(x)
		}
		s.after(simRound, round)
	}
	s.after(s.rng.Int64N(simRound), round)
}

// run lets time pass.
func (s *sim) run(time int64) { s.until(s.now+time, func() bool { return false }) }

// until lets time pass until something is so, or a time has come.
func (s *sim) until(end int64, ok func() bool) bool {
	s.pump()
	for !ok() {
		if len(s.queue) == 0 || s.queue[0].at > end {
			s.now = end
			return ok()
		}
		e := heap.Pop(&s.queue).(simEvent)
		s.now = e.at
		e.do()
		s.pump()
	}
	return true
}

// pump does the work of all daemons and sends what they publish.
func (s *sim) pump() {
	for _, x := range s.nodes {
		if !x.up {
			continue
		}
		x.drain()
		for len(x.w.publisher.queue) > 0 {
			s.gossip(x, (<-x.w.publisher.queue).data)
		}
	}
}

func (s *sim) linked(a, b *simNode) bool {
	return a.up && b.up && a.part == b.part && s.links[[2]int{min(a.id, b.id), max(a.id, b.id)}]
}

func (s *sim) peers(x *simNode) (peers []*simNode) {
	for _, y := range s.nodes {
		if y != x && s.linked(x, y) {
			peers = append(peers, y)
		}
	}
	return peers
}

// gossip publishes a message, unless it has been seen: its ID is its content.
func (s *sim) gossip(x *simNode, data []byte) {
	id := sha256.Sum256(data)
	if !x.seen[id] {
		x.seen[id] = true
		s.forward(x, data)
	}
}

// forward passes a message on to all peers.
func (s *sim) forward(x *simNode, data []byte) {
	for _, y := range s.peers(x) {
		if s.sent++; s.rng.Float64() < s.loss {
			s.lost++
			continue
		}
		s.after(20+s.rng.Int64N(180), func() {
			if s.linked(x, y) {
				s.hear(y, data)
			}
		})
	}
}

// hear is the arrival of a message by gossip.
func (s *sim) hear(x *simNode, data []byte) {
	id := sha256.Sum256(data)
	if x.seen[id] {
		return
	}
	x.seen[id] = true
	switch x.w.Validate("peer", data) {
	case Accept:
		x.node.hear(data)
		s.forward(x, data)
	case Reject:
		s.rejects++
	}
}

// catchUp is one round of catch-up of a daemon.
func (s *sim) catchUp(x *simNode) {
	var names []string
	for _, y := range s.peers(x) {
		names = append(names, y.o.Origin)
	}
	s.pulled++
	_ = x.w.CatchUp(s.t.Context(), names, func(ctx context.Context, peer string, request []byte) ([]byte, error) {
		for _, y := range s.nodes {
			if y.o.Origin == peer {
				if y.lies != nil {
					return y.lies(x, request)
				}
				return y.w.ServeSync(ctx, x.o.Origin, request)
			}
		}
		return nil, errors.New("no such peer")
	}) // a peer that lies is an error, and no harm
	_ = x.w.Confront(s.t.Context(), names, func(ctx context.Context, peer string, request []byte) ([]byte, error) {
		for _, y := range s.nodes {
			if y.o.Origin == peer && y.lies == nil {
				return y.w.ServeTile(ctx, x.o.Origin, request)
			}
		}
		return nil, errors.New("no such peer")
	})
}

// connect links daemons, each to each.
func (s *sim) connect(xs ...*simNode) {
	for i, x := range xs {
		for _, y := range xs[:i] {
			s.links[[2]int{min(x.id, y.id), max(x.id, y.id)}] = true
		}
	}
	for _, x := range xs { // OnPeer
		s.after(100+s.rng.Int64N(200), func() {
			if x.up {
				s.catchUp(x)
			}
		})
	}
}

// proofs are the texts of the proofs that a daemon keeps, sorted.
func (x *simNode) proofs() (texts []string) {
	x.w.mu.RLock()
	refs := slices.Clone(x.w.book.proofs)
	x.w.mu.RUnlock()
	for _, r := range refs {
		raw, err := x.w.text("", r.id)
		if err != nil || raw == nil {
			x.t.Fatal("a proof cannot be read", err)
		}
		if _, err := VerifyEvidence(raw); err != nil {
			x.t.Fatal("a proof that does not hold", err)
		}
		texts = append(texts, string(raw))
	}
	slices.Sort(texts)
	return texts
}

// agree tells whether all have the same evidence, of these kinds.
func agree(xs []*simNode, kinds ...string) bool {
	first := xs[0].proofs()
	if len(first) != len(kinds) {
		return false
	}
	for _, k := range kinds {
		if !slices.ContainsFunc(first, func(p string) bool { return strings.Contains(p, `"kind":"`+k+`"`) }) {
			return false
		}
	}
	return !slices.ContainsFunc(xs, func(x *simNode) bool { return !slices.Equal(x.proofs(), first) })
}

// stories are two histories of one room, each with the statement of its host.
type story struct {
	side      []*simNode
	contents  []string
	statement []byte
}

// show gives each side its story of a room of host X: the records, then the
// statement, which the host sends to that side alone.
func (s *sim) show(roomID string, stories ...story) {
	for i := range stories {
		st := &stories[i]
		recs := chain(s.t, roomID, st.contents...)
		st.statement = seal(s.t, key(hostX), TypeAnnounce, statement(hostX, recs)).JSON()
		for _, x := range st.side {
			x.install(hostX, recs)
			s.after(s.rng.Int64N(300), func() {
				if x.up {
					s.hear(x, st.statement)
				}
			})
		}
	}
}

func (s *sim) wantAgreement(what string, since int64, xs []*simNode, kinds ...string) {
	s.t.Helper()
	if !s.until(since+contactTime, func() bool { return agree(xs, kinds...) }) {
		for _, x := range xs {
			s.t.Logf("%s: %d proofs %.300s", x.o.Origin, len(x.proofs()), x.proofs())
		}
		s.t.Fatalf("%s: no agreement within %d s", what, contactTime/second)
	}
	s.t.Logf("%s: the same evidence everywhere after %.1f s", what, float64(s.now-since)/1000)
}

func TestSevenDaemons(t *testing.T) {
	sides := func(s *sim) (a, b []*simNode) { return s.nodes[:3], s.nodes[3:7] }
	end := func(s *sim, xs []*simNode) {
		t.Helper()
		s.run(3 * simRound)
		for _, x := range xs {
			if _, state := x.w.State(hostX, roomX); state != Equivocated {
				t.Errorf("%s says %s", x.o.Origin, state)
			}
			x.again() // for ever
			if _, state := x.w.State(hostX, roomX); state != Equivocated {
				t.Errorf("%s says %s after a restart", x.o.Origin, state)
			}
		}
		if s.rejects > 0 {
			t.Errorf("%d messages of honest daemons were rejected", s.rejects)
		}
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("connected/", seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.daemons(7)
			a, b := sides(s)
			s.connect(s.nodes...)
			s.run(second)
			s.show(roomX, story{side: a, contents: []string{"one", "two"}}, story{side: b, contents: []string{"one", "2"}})
			s.wantAgreement("connected", s.now, s.nodes, KindStatements)
			end(s, s.nodes)
		})
		t.Run(fmt.Sprint("partitioned/", seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.daemons(7)
			a, b := sides(s)
			s.connect(a...)
			s.connect(b...)
			s.show(roomX, story{side: a, contents: []string{"one", "two"}}, story{side: b, contents: []string{"one", "2"}})
			s.run(70 * second)
			for _, x := range s.nodes {
				if _, state := x.w.State(hostX, roomX); state != Attested || len(x.proofs()) != 0 {
					t.Fatalf("%s says %s while nobody can know better", x.o.Origin, state)
				}
			}
			// one link is enough
			s.connect(a[s.rng.IntN(3)], b[s.rng.IntN(4)])
			s.wantAgreement("partitioned", s.now, s.nodes, KindStatements)
			end(s, s.nodes)
		})
		t.Run(fmt.Sprint("joins later/", seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.daemons(7)
			a, b := sides(s)
			late := b[3]
			s.connect(s.nodes[:6]...)
			s.show(roomX, story{side: a, contents: []string{"one", "two"}}, story{side: b[:3], contents: []string{"one", "2"}})
			s.run(50 * second)
			if !agree(s.nodes[:6], KindStatements) || len(late.proofs()) != 0 {
				t.Fatal("the six")
			}
			s.connect(late, s.nodes[s.rng.IntN(6)])
			s.wantAgreement("joins later", s.now, s.nodes, KindStatements)
			end(s, s.nodes)
		})
		t.Run(fmt.Sprint("brings the other side/", seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.daemons(7)
			late := s.nodes[6]
			s.connect(s.nodes[:6]...)
			s.show(roomX, story{side: s.nodes[:6], contents: []string{"one", "two"}}, story{side: []*simNode{late}, contents: []string{"one", "2"}})
			s.run(50 * second)
			s.connect(late, s.nodes[s.rng.IntN(6)])
			s.wantAgreement("brings the other side", s.now, s.nodes, KindStatements)
			end(s, s.nodes)
		})
		t.Run(fmt.Sprint("while the room lives/", seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.daemons(7)
			a, b := sides(s)
			s.connect(a...)
			s.connect(b...)
			live, twin := chain(t, roomX, "one", "two"), chain(t, roomX, "one", "2")
			for i := 2; i < len(live); i++ { // the room has not ended
				x, y := seal(t, key(hostX), TypeHead, head(hostX, live[:i])), seal(t, key(hostX), TypeHead, head(hostX, twin[:i]))
				for _, n := range a {
					n.w.Head(x)
				}
				for _, n := range b {
					n.w.Head(y)
				}
			}
			s.run(70 * second)
			s.connect(a[s.rng.IntN(3)], b[s.rng.IntN(4)])
			s.wantAgreement("while the room lives", s.now, s.nodes, KindHeads)
			end(s, s.nodes)
		})
		t.Run(fmt.Sprint("two logs/", seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.daemons(7)
			a, b := sides(s)
			// the host answers each side with another log, and with nothing else
			host := s.add(s.wo.node(t, hostX))
			logs := map[bool][]byte{true: noteOf(t, LogOrigin(hostX, 1), 9, 1, logKeyOf(hostX)), false: noteOf(t, LogOrigin(hostX, 1), 9, 2, logKeyOf(hostX))}
			host.lies = func(asker *simNode, _ []byte) ([]byte, error) {
				return fmt.Appendf(nil, `{"items":[],"next":"","checkpoints":[%q]}`, logs[slices.Contains(a, asker)]), nil
			}
			s.connect(append(slices.Clone(a), host)...)
			s.connect(append(slices.Clone(b), host)...)
			s.run(70 * second)
			s.connect(a[s.rng.IntN(3)], b[s.rng.IntN(4)])
			s.wantAgreement("two logs", s.now, s.nodes[:7], KindCheckpoints)
			for _, x := range s.nodes[:7] {
				if x.again(); !x.w.HostEquivocated(hostX) || x.w.HostEquivocated(hostH) {
					t.Error(x.o.Origin)
				}
			}
		})
	}
}

// honest lets host H end rooms whose archives all hold, and gossip its statements.
func (s *sim) honest(rooms int, xs []*simNode) (ids []string) {
	for i := range rooms {
		id := fmt.Sprint("honest-", i)
		ids = append(ids, id)
		recs := chain(s.t, id, "one", fmt.Sprint("two ", i))
		st := seal(s.t, key(hostH), TypeAnnounce, statement(hostH, recs)).JSON()
		for _, x := range xs {
			x.install(hostH, recs)
		}
		first := xs[s.rng.IntN(len(xs))]
		s.after(s.rng.Int64N(20*second), func() {
			if first.up {
				s.hear(first, st)
			} else {
				first.node.hear(st)
			}
		})
	}
	return ids
}

// everywhere tells whether every room is attested by all to all.
func everywhere(xs []*simNode, attesters int64, ids ...string) bool {
	for _, x := range xs {
		for _, id := range ids {
			if n, state := x.w.State(hostH, id); n != attesters || state != Attested {
				return false
			}
		}
	}
	return true
}

// Gossip drops half of all messages: all that it should have brought comes by
// catch-up.
func TestHalfOfGossipIsLost(t *testing.T) {
	for seed := range uint64(3) {
		s := newSim(t, seed)
		s.daemons(7)
		s.loss = 0.5
		for i, x := range s.nodes { // a ring with chords: who is not told by one is told by another, or not at all
			s.connect(x, s.nodes[(i+1)%7])
			s.connect(x, s.nodes[(i+3)%7])
		}
		ids := s.honest(5, s.nodes)
		s.show(roomX, story{side: s.nodes[:3], contents: []string{"one", "two"}}, story{side: s.nodes[3:], contents: []string{"one", "2"}})
		if !s.until(10*simRound, func() bool { return everywhere(s.nodes, 7, ids...) && agree(s.nodes, KindStatements) }) {
			t.Fatalf("seed %d: not after %d rounds: %d of %d messages lost", seed, s.now/simRound, s.lost, s.sent)
		}
		if s.lost*10 < s.sent*4 {
			t.Errorf("only %d of %d messages were lost", s.lost, s.sent)
		}
		t.Logf("seed %d: after %.1f s; %d of %d messages lost, %d rounds", seed, float64(s.now)/1000, s.lost, s.sent, s.pulled)
		// none at all
		s = newSim(t, seed)
		s.daemons(7)
		s.loss = 1
		s.connect(s.nodes...)
		ids = s.honest(5, s.nodes)
		if !s.until(10*simRound, func() bool { return everywhere(s.nodes, 7, ids...) }) {
			t.Fatalf("seed %d: catch-up alone does not bring it", seed)
		}
	}
}

// One witness lies as it can: it attests two archives, forges, frames an honest
// host with keys of its own, and answers catch-up with rubbish. All that changes is
// its own standing.
func TestLyingWitness(t *testing.T) {
	for seed := range uint64(3) {
		s := newSim(t, seed)
		s.daemons(7)
		liar, honest := s.nodes[6], s.nodes[:6]
		liar.o.Witness = false // it signs nothing that is right
		liar.again()
		s.connect(s.nodes...)
		ids := s.honest(3, s.nodes)
		s.show(roomX, story{side: s.nodes[:3], contents: []string{"one", "two"}}, story{side: s.nodes[3:], contents: []string{"one", "2"}})

		recs := chain(t, ids[0], "one", "two 0")
		whole, part := statement(hostH, recs), statement(hostH, recs[:3])
		k := key(liar.o.Origin)
		true1, false1 := seal(t, k, TypeAttest, attestation(whole, "")), seal(t, k, TypeAttest, attestation(part, ""))
		other := statement(hostH, chain(t, ids[1], "one", "another"))
		false2 := seal(t, k, TypeAttest, attestation(other, ""))
		inH := seal(t, k, TypeAnnounce, other) // in the name of the host
		made := key("made to frame")
		frame := must[*Proof](t)(newProof(seal(t, made, TypeAnnounce, whole), seal(t, made, TypeAnnounce, part)))
		own := must[*Proof](t)(newProof(seal(t, k, TypeAnnounce, whole), seal(t, k, TypeAnnounce, part)))
		logs := must[*Proof](t)(ProveCheckpoints(Subject{Origin: hostH}, public(made), noteOf(t, LogOrigin(hostH, 1), 9, 1, made), noteOf(t, LogOrigin(hostH, 1), 9, 2, made)))
		forged := replaced(must[[]byte](t)(frame.JSON()), string(frame.Agent), string(agentOf(key(hostH))))
		tampered := replaced(seal(t, key(hostH), TypeAnnounce, whole).JSON(), `"bundle_bytes":7`, `"bundle_bytes":8`)
		texts := [][]byte{false2.JSON(), inH.JSON(), must[[]byte](t)(frame.JSON()), must[[]byte](t)(own.JSON()), must[[]byte](t)(logs.JSON()), forged, tampered, []byte("rubbish")}
		for i, text := range texts {
			s.after(int64(i)*second, func() { s.gossip(liar, text) })
		}
		for _, x := range honest[:3] { // one story to each half
			s.after(second, func() { s.hear(x, true1.JSON()) })
		}
		for _, x := range honest[3:] {
			s.after(second, func() { s.hear(x, false1.JSON()) })
		}
		liar.lies = func(asker *simNode, request []byte) ([]byte, error) {
			switch s.rng.IntN(4) {
			case 0:
				return nil, errors.New("no answer")
			case 1:
				return bytes.Repeat([]byte("x"), s.rng.IntN(1000)), nil
			case 2:
				return fmt.Appendf(nil, `{"items":[%s,%s],"next":"p1"}`, tampered, forged), nil
			}
			page, err := liar.w.ServeSync(t.Context(), "", request)
			return replaced(page, `"items":[`, `"seen":["x",{}],"items":[`), err
		}
		s.run(5 * simRound)
		if !agree(honest, KindStatements, KindAttestations) {
			for _, x := range honest {
				t.Log(x.proofs())
			}
			t.Fatalf("seed %d: the honest do not agree", seed)
		}
		for _, x := range honest {
			if n, state := x.w.State(hostX, roomX); state != Equivocated {
				t.Error(x.o.Origin, n, state)
			}
			if !x.w.Contradicted(agentOf(k)) || x.w.Contradicted(agentOf(key(hostH))) || x.w.HostEquivocated(hostH) || x.w.Contradicted(agentOf(made)) {
				t.Error(x.o.Origin, "blames the wrong one")
			}
		}
		if !everywhere(honest, 6, ids...) { // as many as without it
			for _, x := range honest {
				for _, id := range ids {
					t.Log(x.o.Origin, id, x.state(hostH, id))
				}
			}
			t.Errorf("seed %d: the liar has changed what the others say", seed)
		}
	}
}
