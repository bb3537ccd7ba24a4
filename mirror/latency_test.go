package mirror

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/internal/replica"
)

// wire connects a mirror to a real node on loopback, as a daemon does.
func wire(t *testing.T, seed byte, peers ...string) (*p2p.Node, func(*Mirror)) {
	t.Helper()
	node, err := p2p.New(p2p.Options{Key: ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, 32)), Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Peers: peers, AllowPrivate: true,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return node, func(m *Mirror) {
		topic, err := node.Join(TopicRelay, MaxRelay, func(from string, data []byte) p2p.Verdict {
			switch m.Validate(from, data) {
			case Accept:
				return p2p.Accept
			case Reject:
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

// The time from a host's commit to the mirror's commit, over a real pair of nodes.
func TestRelayLatency(t *testing.T) {
	const rooms, rounds, gate = 20, 60, 100 * time.Millisecond
	a, wireA := wire(t, 1)
	h := newLiveHost(t, 4, nil, wireA)
	b, wireB := wire(t, 2, a.Addrs()[0])
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
	until(t, "the topic is up on both sides", func() bool { _, ok := say(all[0], 200*time.Millisecond); return ok })
	for _, c := range []struct {
		what string
		room func(i int) *story
	}{
		{"a record now and then in each of many rooms", func(i int) *story { return all[i%rooms] }},
		{"one room that never rests", func(int) *story { return all[0] }}, // at most one head in 50 ms
	} {
		var took []time.Duration
		for i := range rounds {
			d, ok := say(c.room(i), 20*time.Second)
			if !ok {
				t.Fatalf("%s: record %d never came", c.what, i)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		t.Logf("%s: median %v, 90%% %v, worst %v", c.what, took[rounds/2], took[rounds*9/10], took[rounds-1])
		if took[rounds/2] >= gate {
			t.Errorf("%s: the median is %v, want less than %v", c.what, took[rounds/2], gate)
		}
	}
}
