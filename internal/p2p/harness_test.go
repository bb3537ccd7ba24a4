package p2p

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// patience is how long a test waits for what must come: longer than the most overloaded
// machine takes.
const patience = 3 * time.Minute

// until waits for a condition that comes true by itself, and fails the test if it does not.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
	}
}

// take receives one value or fails the test.
func take[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v in vain for %s", patience, what)
		panic("not reached")
	}
}

func seededKey(b byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = b
	return ed25519.NewKeyFromSeed(seed)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// make1 makes a node on a free loopback port that keeps the given peers connected.
func make1(t *testing.T, key byte, tune tuning, peers ...*Node) *Node {
	t.Helper()
	o := Options{Key: seededKey(key), Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Log: quiet()}
	for _, p := range peers {
		o.Peers = append(o.Peers, p.Addrs()[0])
	}
	n, err := newNode(o, tune)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// run runs nodes until the test ends, in the given order, each when the one before accepts connections.
func run(t *testing.T, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := take(t, "the end of Run", done); err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("Run: %v", err)
			}
		})
		until(t, "the node is open", n.gate.open.Load)
	}
}

// inbox collects what a handler gets.
type inbox struct {
	mu   sync.Mutex
	got  []string
	from []string
}

func (b *inbox) handle(from string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, string(data))
	b.from = append(b.from, from)
}

func (b *inbox) has(s string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.got {
		if g == s {
			return true
		}
	}
	return false
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

func accept(string, []byte) Verdict { return Accept }

// strict is the validator of most tests: the first word is the verdict.
func strict(_ string, data []byte) Verdict {
	switch {
	case strings.HasPrefix(string(data), "bad"):
		return Reject
	case strings.HasPrefix(string(data), "meh"):
		return Ignore
	}
	return Accept
}

func join(t *testing.T, n *Node, validate func(string, []byte) Verdict) (*Topic, *inbox) {
	t.Helper()
	var b inbox
	topic, err := n.Join("/test/1", 1000, validate, b.handle)
	if err != nil {
		t.Fatal(err)
	}
	return topic, &b
}

// meet waits until each node knows that the other is in the topic.
func meet(t *testing.T, a, b *Topic) {
	t.Helper()
	knows := func(x, y *Topic) bool {
		for _, p := range x.topic.ListPeers() {
			if p == y.n.host.ID() {
				return true
			}
		}
		return false
	}
	until(t, "the nodes meet in the topic", func() bool { return knows(a, b) && knows(b, a) })
}

func publish(t *testing.T, topic *Topic, s string) {
	t.Helper()
	if err := topic.Publish(t.Context(), []byte(s)); err != nil {
		t.Fatal(err)
	}
}

// scoreboard keeps the latest peer scores of a node.
type scoreboard struct {
	mu sync.Mutex
	m  map[peer.ID]float64
}

func (s *scoreboard) set(m map[peer.ID]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m = m
}

func (s *scoreboard) of(p peer.ID) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[p]
}
