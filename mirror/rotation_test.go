package mirror

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
)

// rotate shows a mirror the did:web document of a host with the keys of another seed,
// vouched for by the present ones or not, and signs with them from now on.
func (h *liveHost) rotate(g *rig, seed byte, vouch bool) (state string) {
	t := h.fakeHost.t
	t.Helper()
	next := keys.FromSeed([32]byte{seed}, 1)
	var rotation json.RawMessage
	if vouch {
		e, err := h.sign(keys.RotationType, map[string]string{"origin": h.origin(), "agent": keys.Multikey(next.Public(keys.Agent)),
			"log": keys.Multikey(next.Public(keys.Log)), "cosigner": keys.Multikey(next.Public(keys.Cosigner))})
		if err != nil {
			t.Fatal(err)
		}
		rotation = e.JSON()
	}
	did, err := keys.RenderRotated(h.origin(), next, next, rotation)
	if err != nil {
		t.Fatal(err)
	}
	h.set(func() { h.did = did })
	if state, err = g.m.o.Bindings.Observe(h.origin(), did, time.Now().UnixMilli()); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.ring = next
	h.mu.Unlock()
	return state
}

// signAs signs a head with the keys of any seed.
func (h *liveHost) signAs(seed byte, s *story, seq int) []byte {
	h.mu.Lock()
	now := h.ring
	h.ring = keys.FromSeed([32]byte{seed}, 1)
	h.mu.Unlock()
	defer func() { h.mu.Lock(); h.ring = now; h.mu.Unlock() }()
	return h.head(s, seq)
}

// A head counts only while its key is bound, by whatever way it comes. The first key of
// these hosts is that of seed 4, the second that of seed 5.
func TestOnlyBoundKeysSignHeads(t *testing.T) {
	histories := map[string]struct {
		live func(t *testing.T, h *liveHost, g *rig)
		good []byte // seeds whose heads count
		bad  []byte
	}{
		"one key": {func(*testing.T, *liveHost, *rig) {}, []byte{4}, []byte{5, 6}},
		"vouched for": {func(t *testing.T, h *liveHost, g *rig) {
			if state := h.rotate(g, 5, true); state != keys.BindingVouched {
				t.Fatal(state)
			}
		}, []byte{5}, []byte{4, 6}},
		"waiting for the operator": {func(t *testing.T, h *liveHost, g *rig) {
			if state := h.rotate(g, 5, false); state != keys.BindingRebound {
				t.Fatal(state)
			}
		}, nil, []byte{4, 5, 6}},
		"approved": {func(t *testing.T, h *liveHost, g *rig) {
			h.rotate(g, 5, false)
			if err := g.m.o.Bindings.Approve(h.origin()); err != nil {
				t.Fatal(err)
			}
		}, []byte{5}, []byte{4, 6}},
		"back again": {func(t *testing.T, h *liveHost, g *rig) {
			h.rotate(g, 5, true)
			if state := h.rotate(g, 4, true); state != keys.BindingVouched {
				t.Fatal(state)
			}
		}, []byte{4}, []byte{5, 6}},
	}
	for name, c := range histories {
		t.Run(name, func(t *testing.T) {
			h, g, s := heard(t)
			c.live(t, h, g)
			for _, seed := range c.bad {
				raw := h.signAs(seed, s, 6)
				if v := deliver(g.m, "x", relayMessage(raw, s.texts()[:6])); v != Ignore {
					t.Errorf("relay, key %d: %v, want ignore", seed, v)
				}
				v, err := adp.Scan(raw)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := verifiedHead(v, g.m.speaksFor); !errors.Is(err, errNotBound) {
					t.Errorf("answer of a peer, key %d: %v", seed, err)
				}
			}
			if _, ok := g.set.Get(h.origin(), "room"); ok {
				t.Error("records were stored")
			}
			for _, seed := range c.good {
				if v := deliver(g.m, "x", relayMessage(h.signAs(seed, s, 6), s.texts()[:6])); v != Accept {
					t.Errorf("relay, key %d: %v, want accept", seed, v)
				}
				until(t, "what is signed for is stored", func() bool { return g.row(h.fakeHost, "room").Seq == 6 })
			}
		})
	}
}

// Whatever a retired key has said, the new one is heard; and a peer that kept a head of
// the old key is no liar.
func TestHeadsOverARotation(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, nil)
	s := talk(t, "room", 3)
	h.keep(s)
	h.put(s)
	st := memory(t)
	join := b.join("late")
	late := startOn(t, st, seldom, join).follow(h.fakeHost).bound(h)
	early := startOn(t, memory(t), nil, b.join("early")).follow(h.fakeHost).bound(h)
	late.holds(h.fakeHost, s)
	for range 6 {
		s.say(member, "what the late one misses")
	}
	h.put(s)
	early.holds(h.fakeHost, s)
	before := h.head(s, 9)
	if v := deliver(early.m, "x", relayMessage(before, nil)); v != Accept {
		t.Fatal(v)
	}
	// the old key says nonsense about a seq far away, and is replaced
	far := h.say(Head{Origin: h.origin(), RoomID: "room", Genesis: s.recs[0].Hash, Seq: 1 << 40, Hash: s.recs[5].Hash, Root: s.recs[4].Hash, At: 1})
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool { refuse(w, 503, ""); return true })
	if v := deliver(late.m, "x", relayMessage(far, nil)); v != Accept {
		t.Fatal(v)
	}
	until(t, "nobody has what it says", func() bool { // what is asked for from here on is asked for the new key
		f := late.m.host(h.origin())
		f.mu.Lock()
		defer f.mu.Unlock()
		v := f.rooms["room"]
		return v.failures > 0 && !v.busy
	})
	h.rotate(late, 5, true)
	h.rotate(early, 5, false)
	if v := deliver(late.m, "x", relayMessage(h.signAs(5, s, 5), s.texts()[3:5])); v != Accept {
		t.Fatal(v)
	}
	until(t, "the new key is heard", func() bool { return late.row(h.fakeHost, "room").Seq == 5 })
	if v := deliver(late.m, "x", relayMessage(h.signAs(5, s, 7), nil)); v != Accept {
		t.Fatal(v)
	}
	if err := late.m.Retry(h.origin()); err != nil {
		t.Fatal(err)
	}
	until(t, "the peer is asked, and its head of the old key does no harm", func() bool { return late.row(h.fakeHost, "room").Seq == 7 })
	if row := late.row(h.fakeHost, "room"); row.EffectiveVerdict() != replica.Verified {
		t.Errorf("%+v", row)
	}
}
