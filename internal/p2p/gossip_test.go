package p2p

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestGossipBothWays(t *testing.T) {
	a := make1(t, 1, tuning{})
	b := make1(t, 2, tuning{}, a)
	ta, ia := join(t, a, accept)
	tb, ib := join(t, b, accept)
	publish(t, ta, "to nobody") // no peers is no error
	run(t, a, b)
	meet(t, ta, tb)
	publish(t, ta, "from a")
	publish(t, tb, "from b")
	until(t, "b has a's message", func() bool { return ib.has("from a") })
	until(t, "a has b's message", func() bool { return ia.has("from b") })
	if ia.has("from a") || ib.has("from b") {
		t.Error("a node handled its own message")
	}
	if ia.from[0] != b.ID() {
		t.Errorf("message came from %s, want %s", ia.from[0], b.ID())
	}
	// The same content from another node is the same message: it comes back to nobody.
	publish(t, tb, "from a")
	publish(t, tb, "last")
	until(t, "a has the last message", func() bool { return ia.has("last") })
	if ia.has("from a") {
		t.Error("content published again came back to its first publisher")
	}
}

func TestLateJoinerAndForwarding(t *testing.T) {
	hub := make1(t, 1, tuning{})
	old := make1(t, 2, tuning{}, hub)
	th, ih := join(t, hub, accept)
	to, _ := join(t, old, accept)
	run(t, hub, old)
	meet(t, th, to)
	publish(t, to, "before")
	until(t, "the hub has the message", func() bool { return ih.has("before") })

	late := make1(t, 3, tuning{}, hub)
	tl, il := join(t, late, accept)
	run(t, late)
	meet(t, th, tl)
	publish(t, th, "after")
	until(t, "the late joiner has the hub's message", func() bool { return il.has("after") })
	// Forwarding needs a mesh, which forms at a heartbeat.
	i := 0
	until(t, "the late joiner has what the hub passed on", func() bool {
		i++
		publish(t, to, fmt.Sprintf("through the hub %d", i))
		for j := 1; j <= i; j++ {
			if il.has(fmt.Sprintf("through the hub %d", j)) {
				return true
			}
		}
		return false
	})
	il.mu.Lock() // more may come
	defer il.mu.Unlock()
	for _, from := range il.from {
		if from != hub.ID() {
			t.Errorf("a message came from %s, want the hub", from)
		}
	}
}

func TestRejectGraylistsAndHonestPeersStay(t *testing.T) {
	const words = "good words of a graylisted peer"
	var scores scoreboard
	var wordsCame, wordsJudged atomic.Bool
	victim := make1(t, 1, tuning{score: scores.set, inspect: func(_ peer.ID, rpc *pubsub.RPC) {
		for _, m := range rpc.GetPublish() {
			if string(m.GetData()) == words {
				wordsCame.Store(true)
			}
		}
	}})
	bad := make1(t, 2, tuning{}, victim)
	honest := make1(t, 3, tuning{}, victim)
	tv, iv := join(t, victim, func(from string, data []byte) Verdict {
		if string(data) == words {
			wordsJudged.Store(true)
		}
		return strict(from, data)
	})
	tb, _ := join(t, bad, accept)
	th, _ := join(t, honest, accept)
	run(t, victim, bad, honest)
	meet(t, tv, tb)
	meet(t, tv, th)

	publish(t, tb, "meh 1") // ignored: no harm
	publish(t, tb, "bad 1")
	until(t, "one rejected message lowers the score", func() bool { return scores.of(bad.host.ID()) < 0 })
	if s := scores.of(bad.host.ID()); s < -100 {
		t.Errorf("score %v after one rejected message: too harsh", s)
	}
	for i := 2; i <= 12; i++ {
		publish(t, tb, fmt.Sprintf("bad %d", i))
	}
	until(t, "the peer is graylisted", func() bool { return scores.of(bad.host.ID()) < graylistThreshold })

	publish(t, tb, words)
	until(t, "the victim got the words", wordsCame.Load)
	publish(t, th, "good words of an honest peer")
	until(t, "the honest peer is heard", func() bool { return iv.has("good words of an honest peer") })
	if iv.has(words) || wordsJudged.Load() {
		t.Error("a graylisted peer was heard")
	}
	if s := scores.of(honest.host.ID()); s < 0 {
		t.Errorf("the honest peer has score %v", s)
	}
}

func TestFloodDoesNotDelayOthers(t *testing.T) {
	victim := make1(t, 1, tuning{})
	bad := make1(t, 2, tuning{}, victim)
	honest := make1(t, 3, tuning{}, victim)
	tv, iv := join(t, victim, strict)
	tb, _ := join(t, bad, accept)
	th, _ := join(t, honest, accept)
	run(t, victim, bad, honest)
	meet(t, tv, tb)
	meet(t, tv, th)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; i < 50_000; i++ {
			select {
			case <-stop:
				return
			default:
				_ = tb.Publish(t.Context(), fmt.Appendf(nil, "bad %d %s", i, strings.Repeat("x", 900)))
			}
		}
	}()
	until(t, "the flood has begun", func() bool { return counter(t, victim, "reject") > 0 })
	for i := range 50 {
		m := fmt.Sprintf("honest %d", i)
		publish(t, th, m)
		until(t, m+" arrives", func() bool { return iv.has(m) })
	}
	close(stop)
	<-stopped
}

func TestFloodOfAcceptableMessagesIsCut(t *testing.T) {
	victim := make1(t, 1, tuning{})
	g := victim.gossip
	if _, err := victim.Join("/test/1", 1000, accept, func(string, []byte) {}); err != nil {
		t.Fatal(err)
	}
	topic := "/test/1"
	rpc := &pubsub.RPC{}
	for i := range 3 * messagesBurst {
		rpc.Publish = append(rpc.Publish, &pb.Message{Topic: &topic, Data: fmt.Append(nil, i)})
	}
	// A meter of our own: the one of the node belongs to its event loop.
	in := intake{g: g, peers: map[peer.ID]*allowance{}}
	synctest.Test(t, func(t *testing.T) { // no time passes
		if err := in.inspect("x", rpc); err != nil {
			t.Fatal(err)
		}
		if n := len(rpc.Publish); n != messagesBurst {
			t.Errorf("%d of %d messages were let through, want %d", n, 3*messagesBurst, messagesBurst)
		}
		if got := counter(t, victim, verdictThrottled); got != 2*messagesBurst {
			t.Errorf("%d counted as throttled, want %d", got, 2*messagesBurst)
		}
		other := &pubsub.RPC{}
		other.Publish = []*pb.Message{{Topic: &topic}}
		if err := in.inspect("y", other); err != nil || len(other.Publish) != 1 {
			t.Errorf("another peer pays for the flood: %v", err)
		}
		for i := range rpcsBurst { // one came above
			if err := in.inspect("x", &pubsub.RPC{}); errors.Is(err, errFlood) != (i == rpcsBurst-1) {
				t.Fatalf("empty RPC %d of a flood: %v", i+2, err)
			}
		}
	})
	// What is kept of peers that have left is bounded.
	for i := range 5 * victim.maxPeers {
		in.of(peer.ID(fmt.Sprint(i)))
	}
	if len(in.peers) > 2*victim.maxPeers {
		t.Errorf("meters of %d peers are kept, none of them connected", len(in.peers))
	}
}

func TestOversizeMessage(t *testing.T) {
	var scores scoreboard
	a := make1(t, 1, tuning{score: scores.set})
	b := make1(t, 2, tuning{}, a)
	ta, ia := join(t, a, accept)
	tb, err := b.Join("/test/1", MaxMessage, accept, func(string, []byte) {})
	if err != nil {
		t.Fatal(err)
	}
	run(t, a, b)
	meet(t, ta, tb)
	if err := ta.Publish(t.Context(), make([]byte, 1001)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("publish of too much: %v, want ErrTooLarge", err)
	}
	publish(t, tb, strings.Repeat("x", 1001))
	until(t, "the peer is penalised", func() bool { return scores.of(b.host.ID()) < 0 })
	publish(t, tb, strings.Repeat("x", 1000))
	until(t, "a message at the limit arrives", func() bool { return ia.count() == 1 })
	if got := counter(t, a, verdictOversize); got != 1 {
		t.Errorf("%d oversize messages counted, want 1", got)
	}
}

func TestLargestMessage(t *testing.T) {
	a := make1(t, 1, tuning{})
	b := make1(t, 2, tuning{}, a)
	var ia inbox
	ta, err := a.Join("/test/1", MaxMessage, accept, ia.handle)
	if err != nil {
		t.Fatal(err)
	}
	tb, err := b.Join("/test/1", MaxMessage, accept, func(string, []byte) {})
	if err != nil {
		t.Fatal(err)
	}
	run(t, a, b)
	meet(t, ta, tb)
	publish(t, tb, strings.Repeat("x", MaxMessage))
	until(t, "the largest message arrives", func() bool { return ia.count() == 1 })
}

func TestAuthorAndSignatureAreRefused(t *testing.T) {
	a := make1(t, 1, tuning{})
	_, ia := join(t, a, accept)
	run(t, a)
	// A gossip node with libp2p's defaults, so with authors and signatures.
	other, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	to, err := peer.AddrInfoFromString(a.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Connect(t.Context(), *to); err != nil {
		t.Fatal(err)
	}
	signed, err := pubsub.NewGossipSub(t.Context(), other, pubsub.WithFloodPublish(true))
	if err != nil {
		t.Fatal(err)
	}
	st, err := signed.Join("/test/1")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the topic is known", func() bool { return len(st.ListPeers()) == 1 })
	i := 0
	until(t, "the message is counted as malformed", func() bool {
		i++
		if err := st.Publish(t.Context(), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		return counter(t, a, verdictMalformed) > 0
	})
	if ia.count() != 0 {
		t.Error("a message with an author was handled")
	}
}

func TestJoinRefusals(t *testing.T) {
	n := make1(t, 1, tuning{})
	nop := func(string, []byte) {}
	join(t, n, accept)
	for _, c := range []struct {
		name  string
		topic string
		max   int
	}{{"twice", "/test/1", 10}, {"no name", "", 10}, {"no size", "/x", 0}, {"too large", "/x", MaxMessage + 1}} {
		if _, err := n.Join(c.topic, c.max, accept, nop); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	run(t, n)
	if _, err := n.Join("/late", 10, accept, nop); err == nil {
		t.Error("join after Run: no error")
	}
}

func TestContentID(t *testing.T) {
	id := func(topic, data string) string { return contentID(&pb.Message{Topic: &topic, Data: []byte(data)}) }
	if id("/a", "bc") == id("/ab", "c") {
		t.Error("topic and data run into each other")
	}
	if again := id("/a", "b"); id("/a", "b") != again || len(again) != 32 {
		t.Error("the ID is not the hash of topic and data")
	}
}

// counter sums the messages that n counted with a verdict, over all topics.
func counter(t *testing.T, n *Node, verdict string) int {
	t.Helper()
	c := make(chan prometheus.Metric, 100)
	n.metrics.messages.Collect(c)
	close(c)
	sum := 0.0
	for m := range c {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			t.Fatal(err)
		}
		for _, l := range d.GetLabel() {
			if l.GetName() == "verdict" && l.GetValue() == verdict {
				sum += d.GetCounter().GetValue()
			}
		}
	}
	return int(sum)
}
