package mirror

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/internal/replica"
)

// wire connects a mirror to a real node on loopback, as a daemon does. rejected
// counts what its validator rejects.
func wire(t *testing.T, seed byte, peers ...string) (node *p2p.Node, connect func(*Mirror), rejected *atomic.Int64) {
	t.Helper()
	rejected = &atomic.Int64{}
	node, err := p2p.New(p2p.Options{Key: ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, 32)), Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Peers: peers, AllowPrivate: true,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return node, rejecting(t, node, rejected), rejected
}

// rejecting is the connect of wire.
func rejecting(t *testing.T, node *p2p.Node, rejected *atomic.Int64) func(*Mirror) {
	return func(m *Mirror) {
		topic, err := node.Join(TopicRelay, MaxRelay, func(from string, data []byte) p2p.Verdict {
			switch m.Validate(from, data) {
			case Accept:
				return p2p.Accept
			case Reject:
				rejected.Add(1)
				return p2p.Reject
			}
			return p2p.Ignore
		}, m.Receive)
		if err != nil {
			t.Fatal(err)
		}
		node.HandleStream(ProtocolRoomSync, MaxSyncRequest, MaxSyncResponse, m.ServeRoomSync)
		m.Connect(Network{Publish: topic.Publish, Peers: node.Peers, Request: func(ctx context.Context, peer string, request []byte) ([]byte, error) {
			return node.Request(ctx, peer, ProtocolRoomSync, request, MaxSyncResponse)
		}})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- node.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// calm is how often a test that measures may try: a machine that is busy with other
// things makes a series slow, and nothing makes one fast.
const calm = 5

// echo is a protocol that does nothing: what it takes is what the machine takes.
const echo = "/witan/echo/1"

// The time from a host's commit to the mirror's commit, over a real pair of nodes.
func TestRelayLatency(t *testing.T) {
	const rooms, rounds, gate = 20, 60, 100 * time.Millisecond
	a, wireA, _ := wire(t, 1)
	a.HandleStream(echo, 1, 1, func(_ context.Context, _ string, request []byte) ([]byte, error) { return slices.Clone(request), nil })
	h := newLiveHost(t, 4, nil, wireA)
	b, wireB, _ := wire(t, 2, a.Addrs()[0])
	var all []*story
	for i := range rooms {
		s := talk(t, fmt.Sprint("room", i), 3)
		h.commit(s)
		all = append(all, s)
	}
	news := make(chan *replica.Replica, 1000)
	g := startOn(t, memory(t), func(o *Options) {
		seldom(o)
		o.Changed = func(r *replica.Replica) { news <- r }
	}, wireB).follow(h.fakeHost).bound(h)
	for _, s := range all {
		g.holds(h.fakeHost, s)
	}
	until(t, "the nodes are connected", func() bool { return len(b.Peers()) > 0 && len(a.Peers()) > 0 })
	// say commits a message and waits until the mirror has committed it
	say := func(s *story, limit time.Duration) (time.Duration, bool) {
		s.say(member, "now")
		h.keep(s)
		h.put(s)
		began := time.Now()
		h.g.m.Publish(h.own[s.id])
		late := time.After(limit)
		for {
			select {
			case r := <-news:
				if r.RoomID == s.id && r.Row().Seq == int64(len(s.recs)) {
					return time.Since(began), true
				}
			case <-late:
				return limit, false
			}
		}
	}
	until(t, "the topic is up on both sides", func() bool { _, ok := say(all[0], 2*time.Second); return ok })
	for _, c := range []struct {
		what string
		room func(i int) *story
	}{
		{"a record now and then in each of many rooms", func(i int) *story { return all[i%rooms] }},
		{"one room that never rests", func(int) *story { return all[0] }}, // at most one head in 50 ms
	} {
		median, most := gate, gate
		for try := 0; try < calm && median >= most; try++ {
			var took, bare []time.Duration
			for i := range rounds {
				d, ok := say(c.room(i), patience)
				if !ok {
					t.Fatalf("%s: record %d never came", c.what, i)
				}
				took = append(took, d)
				began := time.Now()
				if _, err := b.Request(t.Context(), a.ID(), echo, []byte{1}, 1); err != nil {
					t.Fatal(err)
				}
				bare = append(bare, time.Since(began))
			}
			slices.Sort(took)
			slices.Sort(bare)
			median, most = took[rounds/2], gate+10*bare[rounds/2]
			t.Logf("%s: median %v, 90%% %v, worst %v; a bare exchange: median %v", c.what, median, took[rounds*9/10], took[rounds-1], bare[rounds/2])
		}
		if median >= most {
			t.Errorf("%s: the median is %v, want less than %v", c.what, median, most)
		}
	}
}

// One peer sends bad messages as fast as it can: the records of an honest host come
// all the same, and the sender is no longer listened to.
func TestFloodOfAPeer(t *testing.T) {
	const lasts, gate = 3 * time.Second, time.Second
	a, wireA, _ := wire(t, 1)
	h := newLiveHost(t, 4, nil, wireA)
	b, wireB, rejected := wire(t, 2, a.Addrs()[0])
	s := talk(t, "room", 3)
	h.commit(s)
	var sent, at atomic.Int64
	g := startOn(t, memory(t), func(o *Options) {
		seldom(o)
		o.Changed = func(r *replica.Replica) { at.Store(r.Row().Seq) }
	}, wireB).follow(h.fakeHost).bound(h)
	g.holds(h.fakeHost, s)
	say := func(limit time.Duration) bool {
		s.say(member, "now")
		h.keep(s)
		h.put(s)
		h.g.m.Publish(h.own["room"])
		for late := time.After(limit); at.Load() < int64(len(s.recs)); {
			select {
			case <-late:
				return false
			case <-time.After(time.Millisecond):
			}
		}
		return true
	}
	until(t, "the topic is up on both sides", func() bool { return say(2 * time.Second) })

	flooder, err := p2p.New(p2p.Options{Key: ed25519.NewKeyFromSeed(slices.Repeat([]byte{3}, 32)), Listen: []string{"/ip4/127.0.0.1/tcp/0"},
		Peers: b.Addrs()[:1], AllowPrivate: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	topic, err := flooder.Join(TopicRelay, MaxRelay, func(string, []byte) p2p.Verdict { return p2p.Accept }, func(string, []byte) {
		poke(heard)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = flooder.Run(ctx) })
	defer ended.Wait()
	defer cancel()
	until(t, "the flooder is of the topic", func() bool {
		say(gate)
		select {
		case <-heard:
			return true
		default:
			return false
		}
	})
	// slowest is what an honest record takes at worst. A message that is lost in the flood
	// is made good for by the next one.
	slowest := func() (worst time.Duration) {
		for stop := time.Now().Add(lasts); time.Now().Before(stop); {
			began := time.Now()
			until(t, "an honest record comes", func() bool { return say(gate) })
			worst = max(worst, time.Since(began))
		}
		return worst
	}
	calmly := slowest()
	bad := relayMessage(h.head(s, 3), s.texts()[2:3])
	ended.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			if err := topic.Publish(ctx, append(slices.Clone(bad), fmt.Sprint(i)...)); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			if sent.Add(1); i%100 == 99 { // 10,000 a second
				<-tick.C
			}
		}
	})
	worst := calmly + 2*gate
	for try := 0; try < calm && worst > calmly+gate; try++ {
		worst = slowest()
		t.Logf("%d bad messages sent, %d looked at; the slowest honest record took %v, and %v before", sent.Load(), rejected.Load(), worst, calmly)
	}
	if worst > calmly+gate {
		t.Errorf("an honest record took %v, and %v without the flood; want at most %v more", worst, calmly, gate)
	}
	until(t, "the sender is not listened to any more", func() bool {
		looked, all := rejected.Load(), sent.Load()
		return all >= 1000 && looked >= 11 && looked <= all/2
	})
}
