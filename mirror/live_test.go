package mirror

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
)

// bus is a network in memory that carries messages at once, as long as nobody cuts
// it, and answers requests by the name of a peer.
type bus struct {
	t testing.TB

	mu    sync.Mutex
	cut   bool
	sent  [][]byte
	peers map[string]*Mirror
	lie   func(peer string, answer []byte) ([]byte, error) // changes what a peer answers
	asked map[string]int
}

func newBus(t testing.TB) *bus {
	return &bus{t: t, peers: map[string]*Mirror{}, asked: map[string]int{}}
}

// join connects a mirror under a name.
func (b *bus) join(name string) func(*Mirror) {
	return func(m *Mirror) {
		b.mu.Lock()
		b.peers[name] = m
		b.mu.Unlock()
		m.Connect(Network{
			Publish: func(_ context.Context, data []byte) error { b.carry(name, data); return nil },
			Request: func(ctx context.Context, peer string, request []byte) ([]byte, error) {
				b.mu.Lock()
				to, lie := b.peers[peer], b.lie
				b.asked[peer]++
				b.mu.Unlock()
				answer, err := to.ServeRoomSync(ctx, name, request)
				if lie != nil && err == nil {
					return lie(peer, answer)
				}
				return answer, err
			},
			Peers: func() (list []string) {
				b.mu.Lock()
				defer b.mu.Unlock()
				for p := range b.peers {
					if p != name {
						list = append(list, p)
					}
				}
				slices.Sort(list)
				return list
			},
		})
	}
}

func (b *bus) set(fn func()) { b.mu.Lock(); defer b.mu.Unlock(); fn() }

func (b *bus) carry(from string, data []byte) {
	b.mu.Lock()
	b.sent = append(b.sent, data)
	to := map[string]*Mirror{}
	for name, m := range b.peers {
		if name != from && !b.cut {
			to[name] = m
		}
	}
	b.mu.Unlock()
	for _, m := range to {
		deliver(m, from, data)
	}
}

// deliver does what the gossip layer does with a message.
func deliver(m *Mirror, from string, data []byte) Verdict {
	v := m.Validate(from, data)
	if v == Accept {
		m.Receive(from, data)
	}
	return v
}

func (b *bus) messages() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.sent) }

// liveHost is a host with a bound key that keeps its rooms in replicas of its own
// and publishes them, beside the fake host that shows them over HTTP.
type liveHost struct {
	*fakeHost
	g     *rig
	ring  *keys.Ring
	nonce int64
	mu    sync.Mutex
	own   map[string]*replica.Replica
}

// newLiveHost makes the host with the keys of a seed.
func newLiveHost(t *testing.T, seed byte, change func(*Options), connect func(*Mirror)) *liveHost {
	t.Helper()
	h := &liveHost{fakeHost: newFakeHost(t), ring: keys.FromSeed([32]byte{seed}, 1), own: map[string]*replica.Replica{}}
	did, err := keys.RenderDocument(h.origin(), h.ring)
	if err != nil {
		t.Fatal(err)
	}
	h.set(func() { h.did = did })
	h.g = startOn(t, memory(t), func(o *Options) {
		o.Own, o.Sign = h.origin(), h.sign
		if change != nil {
			change(o)
		}
	}, connect)
	return h
}

func (h *liveHost) sign(typ string, payload any) (*adp.Envelope, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nonce = max(h.nonce+1, time.Now().UnixMilli())
	return adp.Sign(h.ring.Key(keys.Agent), adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, CreatedAt: time.Now().UnixMilli(), Nonce: h.nonce, Payload: payload})
}

// commit stores what a story has and the host has not, shows it over HTTP, and
// publishes it.
func (h *liveHost) commit(s *story) {
	h.fakeHost.t.Helper()
	h.keep(s)
	h.put(s)
	h.g.m.Publish(h.own[s.id])
}

// keep is commit without HTTP and relay.
func (h *liveHost) keep(s *story) {
	t := h.fakeHost.t
	t.Helper()
	done := make(chan error, len(s.recs))
	n := 0
	from := int64(0)
	r := h.own[s.id]
	if r == nil {
		_, ch, err := room.New(s.id).Judge(s.recs[0], room.Context{Chain: &room.MemoryChain{}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err = h.g.set.Create(h.origin(), s.recs[0], ch, replica.Row{}, nil, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		h.own[s.id] = r
		n, from = 1, 1
	} else {
		from = r.Row().Seq
	}
	err := r.Take(func(turn *replica.Turn) error {
		for _, rec := range s.recs[from:] {
			_, ch, err := turn.State.Judge(rec, room.Context{Chain: turn})
			if err != nil {
				return err
			}
			if err := turn.Append(rec, ch, nil, func(err error) { done <- err }); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	for range n {
		if e := <-done; e != nil {
			t.Fatal(e)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// head signs a head of what a story has up to a seq.
func (h *liveHost) head(s *story, seq int) []byte {
	h.fakeHost.t.Helper()
	var tree adp.Tree
	for _, r := range s.recs[:seq] {
		tree.Append(r.LeafData())
	}
	root := tree.Root()
	return h.say(Head{Origin: h.origin(), RoomID: s.id, Genesis: s.recs[0].Hash, Seq: int64(seq), Hash: s.recs[seq-1].Hash, Root: adp.Encode(root[:]), At: time.Now().UnixMilli()})
}

// say signs any payload as a head.
func (h *liveHost) say(payload any) []byte {
	h.fakeHost.t.Helper()
	e, err := h.sign(TypeHead, payload)
	if err != nil {
		h.fakeHost.t.Fatal(err)
	}
	return e.JSON()
}

// bound waits until a mirror knows the host's key.
func (g *rig) bound(h *liveHost) *rig {
	g.t.Helper()
	until(g.t, "the key is bound", func() bool { return g.m.o.Bindings.Bound(h.origin(), adp.AgentID(h.ring.AgentID())) })
	return g
}

// seldom polls once, and then for a test's purposes never.
func seldom(o *Options) { o.PollMin, o.PollMax = time.Hour, time.Hour }
