package witness

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/internal/tilelog"
)

// A host that shows two logs to two parts of the network, never of one size, is
// proven to as soon as the parts meet: those who hold one log ask those who hold the
// other for its tiles.
func TestSevenDaemonsAndTwoLogs(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.daemons(7)
			a, b := s.nodes[:3], s.nodes[3:7]
			s.connect(a...)
			s.connect(b...)
			common := sealed(t, hostX, 0, 40)
			one := newLog(t, hostX, append(slices.Clone(common), sealed(t, hostX, 100, 110)...)...)
			two := newLog(t, hostX, append(slices.Clone(common), sealed(t, hostX, 200, 200+300*int(seed%2)+5)...)...)
			for i, x := range s.nodes {
				if err := x.tail(hostX, map[bool]*hostLog{true: one, false: two}[i < 3]); err != nil {
					t.Fatal(err)
				}
			}
			s.run(70 * second)
			for _, x := range s.nodes {
				if len(x.proofs()) != 0 || x.w.HostEquivocated(hostX) {
					t.Fatal("nobody can know yet")
				}
			}
			s.connect(a[s.rng.IntN(3)], b[s.rng.IntN(4)])
			s.wantAgreement("two logs", s.now, s.nodes, KindInclusion)
			s.run(3 * simRound)
			for _, x := range s.nodes {
				x.again()
				if !x.w.HostEquivocated(hostX) || x.w.HostEquivocated(hostH) {
					t.Errorf("%s: %v", x.o.Origin, x.w.HostEquivocated(hostX))
				}
			}
			if s.rejects > 0 {
				t.Errorf("%d messages of honest daemons were rejected", s.rejects)
			}
		})
	}
}

// A cosigner of both logs is proven to, too.
func TestTailProvesCosigner(t *testing.T) {
	b := follower(t)
	cosigner := key("cosigner")
	one := newLog(t, hostA, sealed(t, hostA, 0, 5)...)
	two := newLog(t, hostA, sealed(t, hostA, 10, 17)...)
	for _, x := range []*hostLog{one, two} {
		x.lie = func(path string, body []byte) []byte {
			if path == "checkpoint" {
				return cosigned(t, body, "w.example/witness", cosigner, 7)
			}
			return body
		}
	}
	b.o.Cosigners = func() []ed25519.PublicKey { return []ed25519.PublicKey{public(cosigner)} }
	b.again()
	if err := b.tail(hostA, one); err != nil {
		t.Fatal(err)
	}
	if err := b.tail(hostA, two); !errors.Is(err, ErrLogForked) {
		t.Fatal(err)
	}
	b.sees("proof "+KindCosignedInclusion, "proof "+KindInclusion)
	for range 2 {
		p := must[*Proof](t)(VerifyEvidence(b.w.publisher.next(t)))
		if want := map[string]string{KindInclusion: "host", KindCosignedInclusion: "witness"}[p.Kind]; p.Against() != want {
			t.Errorf("%s: against %s", p.Kind, p.Against())
		}
	}
}

// A peer that serves other tiles than those of the checkpoint proves nothing, and is
// asked no more often than there is use in it.
func TestConfrontLyingPeer(t *testing.T) {
	b := follower(t)
	if err := b.tail(hostA, newLog(t, hostA, sealed(t, hostA, 0, 9)...)); err != nil {
		t.Fatal(err)
	}
	other := newLog(t, hostA, sealed(t, hostA, 20, 25)...)
	b.w.saw(other.l.Checkpoint())
	b.w.saw(other.l.Checkpoint())
	third := newLog(t, hostA, sealed(t, hostA, 30, 35)...)
	asked := 0
	lying := func(x *hostLog) func(context.Context, string, []byte) ([]byte, error) {
		return func(_ context.Context, _ string, request []byte) ([]byte, error) {
			asked++
			_, path, _ := strings.Cut(string(request), `"tile":"`)
			return x.l.Read(must[tilelog.Tile](t)(tilelog.ParsePath(strings.TrimSuffix(path, `"}`))))
		}
	}
	for range suspectTries - 1 {
		if err := b.w.Confront(t.Context(), []string{"peer"}, lying(third)); err == nil {
			t.Fatal("believed")
		}
	}
	if asked != suspectTries-1 {
		t.Errorf("asked %d times", asked)
	}
	b.sees("observation log-fork")
	for range suspectTries {
		if err := b.w.Confront(t.Context(), nil, lying(other)); err != nil || !b.w.Suspects() { // nobody is there: no try
			t.Error(err)
		}
	}
	if err := b.w.Confront(t.Context(), []string{"peer"}, lying(third)); err == nil || b.w.Suspects() {
		t.Error("the last try")
	}
	if err := b.w.Confront(t.Context(), []string{"peer"}, lying(other)); err != nil || asked != suspectTries {
		t.Error(err, asked)
	}
	// what was seen is seen again after a restart, and proven
	b.again()
	b.w.saw(other.l.Checkpoint())
	if err := b.w.Confront(t.Context(), []string{"peer"}, lying(other)); err != nil {
		t.Error(err)
	}
	b.sees("observation log-fork", "proof "+KindInclusion)
}

func TestServeTile(t *testing.T) {
	b := follower(t)
	b.o.LogKey = nil // of its own it has none
	b.again()
	x := newLog(t, hostA, sealed(t, hostA, 0, 300)...)
	if err := b.tail(hostA, x); err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		`{"log":"a.example/witan","tile":"tile/0/000"}`:          "",
		`{"log":"a.example/witan","tile":"tile/0/001.p/44"}`:     "",
		`{"log":"a.example/witan","tile":"tile/0/001.p/7"}`:      "",
		`{"log":"a.example/witan","tile":"tile/0/001.p/45"}`:     "no such tile",
		`{"log":"a.example/witan","tile":"tile/1/000.p/1"}`:      "",
		`{"log":"a.example/witan/2","tile":"tile/0/000"}`:        "no such tile",
		`{"log":"b.example/witan","tile":"tile/0/000"}`:          "no such tile",
		`{"log":"c.example/witan","tile":"tile/0/000"}`:          "no such tile",
		`{"log":"a.example/witan","tile":"tile/entries/000"}`:    "must be",
		`{"log":"a.example/witan","tile":"tile/0/0"}`:            "must be",
		`{"log":"a.example/witan","tile":"tile/0/000","more":1}`: "must be",
		`{"log":1,"tile":"tile/0/000"}`:                          "must be",
		`["a.example/witan","tile/0/000"]`:                       "must be",
		`{"log":"` + strings.Repeat("a", 1024) + `","tile":"x"}`: "must be",
	} {
		got, err := b.w.ServeTile(t.Context(), "peer", []byte(request))
		if want == "" {
			_, path, _ := strings.Cut(request, `"tile":"`)
			tile := must[tilelog.Tile](t)(tilelog.ParsePath(strings.TrimSuffix(path, `"}`)))
			if body := must[[]byte](t)(x.l.Read(tile)); err != nil || !slices.Equal(got, body) || len(got) > MaxTileResponse {
				t.Errorf("%s: %d bytes, %v", request, len(got), err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", request, err)
		}
	}
	a := newWorld().node(t, hostA)
	a.states("room-1")
	own := must[[]byte](t)(a.w.ServeTile(t.Context(), "peer", []byte(`{"log":"a.example/witan","tile":"tile/0/000.p/1"}`)))
	if len(own) != 32 {
		t.Errorf("%d bytes of our own log", len(own))
	}
}

func FuzzServeTile(f *testing.F) {
	a := newWorld().node(f, hostA)
	a.states("room-1")
	f.Add([]byte(`{"log":"a.example/witan","tile":"tile/0/000.p/1"}`))
	f.Add([]byte(`{"log":"a.example/witan/2","tile":"tile/entries/x001/000"}`))
	f.Add([]byte(`{"log":"","tile":""}`))
	f.Fuzz(func(t *testing.T, request []byte) {
		if out, err := a.w.ServeTile(t.Context(), "peer", request); err == nil && len(out) != 32 {
			t.Errorf("%s: %d bytes of a log with one entry", request, len(out))
		}
	})
}
