package witness

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// stop takes a daemon off the network; start starts it again from its store.
func (s *sim) stop(x *simNode) { x.up = false }

func (s *sim) start(x *simNode) {
	if x.up {
		return
	}
	x.again()
	x.up, x.seen = true, map[[32]byte]bool{}
	x.w.resume()
	s.greet(x)
}

// greet is what follows new connections of a daemon.
func (s *sim) greet(x *simNode) {
	for _, y := range append(s.peers(x), x) {
		s.after(100+s.rng.Int64N(400), func() {
			if y.up {
				s.catchUp(y)
			}
		})
	}
}

// split cuts the network into parts at random; heal joins them.
func (s *sim) split(parts int) {
	for _, x := range s.nodes {
		x.part = s.rng.IntN(parts)
	}
}

func (s *sim) heal() {
	for _, x := range s.nodes {
		x.part = 0
	}
	for _, x := range s.nodes {
		if x.up {
			s.greet(x)
		}
	}
}

// churn is a network of n daemons in which, for a while, daemons stop and start,
// the network falls apart and grows together, messages are lost, host H ends rooms
// and host X tells two stories of some. In the end all is known to all.
func churn(t *testing.T, seed uint64, n int, time int64) {
	s := newSim(t, seed)
	s.daemons(n)
	s.loss = 0.2
	for i, x := range s.nodes { // a ring, and two more links each
		s.connect(x, s.nodes[(i+1)%n])
		for range 2 {
			if y := s.nodes[s.rng.IntN(n)]; y != x {
				s.connect(x, y)
			}
		}
	}
	course := rand.New(rand.NewPCG(seed, 8)) // of its own: what happens does not hang on who is answered first
	var honest, twofold []string
	stops, splits := 0, 0
	for s.now < time {
		s.run(second + course.Int64N(6*second))
		x := s.nodes[course.IntN(n)]
		switch course.IntN(8) {
		case 0, 1:
			s.stop(x)
			stops++
		case 2, 3:
			s.start(x)
		case 4:
			s.split(2 + course.IntN(3))
			splits++
		case 5:
			s.heal()
		case 6:
			if len(honest) < 12 {
				id := fmt.Sprintf("honest-%d-%d", seed, len(honest))
				honest = append(honest, id)
				s.endRoom(id)
			}
		case 7:
			if len(twofold) < 4 && x.up { // the host X shows one of two stories to each, and sends it to those who are there
				id := fmt.Sprintf("twofold-%d-%d", seed, len(twofold))
				twofold = append(twofold, id)
				order := course.Perm(n)
				stories := [2]story{{contents: []string{"one", "two"}}, {contents: []string{"one", "2"}}}
				for i, k := range order {
					side := &stories[i%2]
					side.side = append(side.side, s.nodes[k])
				}
				s.show(id, stories[:]...)
			}
		}
	}
	for _, x := range s.nodes {
		s.start(x)
	}
	s.heal()
	healed := s.now
	kinds := slices.Repeat([]string{KindStatements}, len(twofold))
	done := func() bool { return everywhere(s.nodes, int64(n), honest...) && agree(s.nodes, kinds...) }
	for !done() && s.now < healed+20*simRound {
		s.run(second)
	}
	t.Logf("seed %d: %d daemons, %d rooms, %d twofold, %d stops, %d partitions, %d of %d messages lost, %d rounds; all is known %.0f s after the end of it",
		seed, n, len(honest), len(twofold), stops, splits, s.lost, s.sent, s.pulled, float64(s.now-healed)/1000)
	if !done() {
		for _, x := range s.nodes {
			for _, id := range honest {
				if got := x.state(hostH, id); got != fmt.Sprint(n, " ", Attested) {
					t.Logf("%s says of %s: %s", x.o.Origin, id, got)
				}
			}
			t.Logf("%s: %d proofs", x.o.Origin, len(x.proofs()))
		}
		t.Fatalf("seed %d: not all is known to all", seed)
	}
	if s.rejects > 0 {
		t.Errorf("seed %d: %d messages of honest daemons were rejected", seed, s.rejects)
	}
	if len(honest) == 0 || len(twofold) == 0 || stops == 0 || splits == 0 {
		t.Fatalf("seed %d: nothing happened", seed)
	}
}

// endRoom ends a room of host H: all mirrors have it, one is sent the statement.
func (s *sim) endRoom(id string) {
	recs := chain(s.t, id, "one", id)
	st := seal(s.t, key(hostH), TypeAnnounce, statement(hostH, recs)).JSON()
	for _, x := range s.nodes {
		x.install(hostH, recs)
	}
	first := s.nodes[s.rng.IntN(len(s.nodes))]
	if first.up {
		s.hear(first, st)
	} else {
		first.node.hear(st) // just before it stopped
	}
}

func TestChurn(t *testing.T) { churn(t, 1, 8, 120*second) }

// Thirty daemons, for as long as SOAK says (a duration); SOAK_SEED plays one course
// of events again.
func TestSoakNetwork(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Skip("make soak, or set SOAK to a duration")
	}
	seed := rand.Uint64() >> 1
	if text := os.Getenv("SOAK_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("SOAK_SEED must be a number: ", err)
		}
	}
	t.Logf("SOAK_SEED=%d", seed)
	start := time.Now()
	for run := uint64(0); run == 0 || time.Since(start) < length; run++ {
		t.Run(fmt.Sprint(seed+run), func(t *testing.T) { churn(t, seed+run, 30, 300*second) })
		if t.Failed() {
			return
		}
	}
}
