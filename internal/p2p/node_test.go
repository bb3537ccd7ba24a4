package p2p

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/prometheus/client_golang/prometheus"
)

func peerNamed(r rune) peer.ID { return peer.ID(string(r)) }

// idle says whether no request is at work.
func (s *streams) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total == 0 && len(s.served) == 0 && len(s.sent) == 0
}

func TestBadOptionsAreNamed(t *testing.T) {
	other := make1(t, 2, tuning{})
	self := make1(t, 1, tuning{})
	used, _, _ := strings.Cut(other.Addrs()[0], "/p2p/")
	for _, c := range []struct {
		name, want string
		o          Options
	}{
		{"no key", "identity key", Options{}},
		{"listen text", `"nonsense"`, Options{Key: seededKey(1), Listen: []string{"nonsense"}}},
		{"listen websocket", `"/ip4/127.0.0.1/tcp/0/ws"`, Options{Key: seededKey(1), Listen: []string{"/ip4/127.0.0.1/tcp/0/ws"}}},
		{"listen in use", used, Options{Key: seededKey(1), Listen: []string{"/ip4/127.0.0.1/tcp/0", used}}},
		{"peer without ID", `"/ip4/127.0.0.1/tcp/1"`, Options{Key: seededKey(1), Peers: []string{"/ip4/127.0.0.1/tcp/1"}}},
		{"peer by relay", "p2p-circuit", Options{Key: seededKey(1), Peers: []string{other.Addrs()[0] + "/p2p-circuit/p2p/" + self.ID()}}},
		{"peer is self", "names this node itself", Options{Key: seededKey(1), Peers: self.Addrs()}},
		{"negative", "-1", Options{Key: seededKey(1), MaxPeers: -1}},
	} {
		n, err := New(c.o)
		if err == nil {
			_ = n.Close()
			t.Errorf("%s: no error", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %q does not say %q", c.name, err, c.want)
		}
	}
}

func TestAddrs(t *testing.T) {
	n, err := New(Options{Key: seededKey(1), Listen: []string{"/ip4/0.0.0.0/tcp/0"}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	addrs := n.Addrs()
	if len(addrs) == 0 {
		t.Fatal("no addresses")
	}
	for _, a := range addrs {
		if strings.Contains(a, "0.0.0.0") || strings.Contains(a, "/tcp/0/") || !strings.HasSuffix(a, "/p2p/"+n.ID()) {
			t.Errorf("address %s", a)
		}
	}
}

func TestQUICWhenListed(t *testing.T) {
	listen := []string{"/ip4/127.0.0.1/udp/0/quic-v1"}
	a, err := New(Options{Key: seededKey(1), Listen: listen, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{Key: seededKey(2), Peers: a.Addrs(), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	a.HandleStream(proto, 10, 100, echo)
	run(t, a, b)
	until(t, "connected by QUIC", func() bool { return slices.Equal(b.Peers(), []string{a.ID()}) })
	if got, err := b.Request(t.Context(), a.ID(), proto, []byte("x"), 100); err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRedialAfterRestartAndOnPeer(t *testing.T) {
	key, o := seededKey(1), Options{Key: seededKey(1), Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Log: quiet()}
	first, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	addr, _, _ := strings.Cut(first.Addrs()[0], "/p2p/")
	client := make1(t, 2, tuning{}, first)
	arrivals := make(chan string, 10)
	client.OnPeer(func(p string) {
		client.metricsTouch() // may use the node
		arrivals <- p
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	until(t, "the first node is open", first.gate.open.Load)
	run(t, client)
	if p := take(t, "the first arrival", arrivals); p != first.ID() {
		t.Errorf("arrived %s, want %s", p, first.ID())
	}

	stop()
	if err := take(t, "the end of the first node", ended); err != nil {
		t.Fatal(err)
	}
	until(t, "the client has lost it", func() bool { return len(client.Peers()) == 0 })
	var second *Node
	until(t, "its port is free", func() bool { // somebody else may have it for a moment
		second, err = New(Options{Key: key, Listen: []string{addr}, Log: quiet()})
		if err != nil && !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
		return err == nil
	})
	run(t, second)
	if p := take(t, "the second arrival", arrivals); p != first.ID() {
		t.Errorf("arrived %s, want %s", p, first.ID())
	}
	select {
	case p := <-arrivals:
		t.Errorf("a third arrival, of %s", p)
	default:
	}
}

// metricsTouch stands for any use of the node inside an OnPeer function.
func (n *Node) metricsTouch() { _ = n.Peers() }

func TestGreeterIsBounded(t *testing.T) {
	n := make1(t, 1, tuning{})
	g := n.greet
	release := make(chan struct{})
	var mu sync.Mutex
	calls := 0
	n.OnPeer(func(string) {
		mu.Lock()
		calls++
		mu.Unlock()
		<-release
	})
	g.mu.Lock()
	for i := range 3 * maxGreetings {
		g.waiting[greeting{0, peer.ID(rune(i + 1))}] = true
	}
	g.start()
	working := len(g.working)
	g.mu.Unlock()
	if working != maxGreetings {
		t.Errorf("%d calls at work, want %d", working, maxGreetings)
	}
	close(release)
	until(t, "all are called", func() bool { mu.Lock(); defer mu.Unlock(); return calls == 3*maxGreetings })
}

func TestGate(t *testing.T) {
	known, stranger := peerNamed('k'), peerNamed('s')
	addr := func(s string) multiaddr {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	home, name := addr("/ip4/10.0.0.1/tcp/4001"), addr("/dns4/peer.example/tcp/4001")
	peers := []peer.AddrInfo{{ID: known, Addrs: []multiaddr{home, name}}}
	g := newGate(peers, false)
	g.resolver = fakeDNS{addr("/ip4/192.168.7.7/tcp/4001")}
	if g.InterceptPeerDial(known) || g.InterceptAccept(nil) {
		t.Error("the gate is open before Run")
	}
	g.open.Store(true)
	if !g.InterceptAccept(nil) || !g.InterceptPeerDial(known) || g.InterceptPeerDial(stranger) {
		t.Error("an open gate accepts all and dials configured peers only")
	}
	check := func(when string, p peer.ID, a string, want bool) {
		t.Helper()
		if got := g.InterceptAddrDial(p, addr(a)); got != want {
			t.Errorf("%s: dial %s: %v, want %v", when, a, got, want)
		}
	}
	check("configured", known, "/ip4/10.0.0.1/tcp/4001", true)
	check("learned, other port", known, "/ip4/10.0.0.1/tcp/22", false)
	check("learned, loopback", known, "/ip4/127.0.0.1/tcp/4001", false)
	check("learned, link-local", known, "/ip6/fe80::1/tcp/4001", false)
	check("learned, metadata service", known, "/ip4/169.254.169.254/tcp/80", false)
	check("learned, global", known, "/ip4/8.8.8.8/tcp/4001", true)
	check("stranger", stranger, "/ip4/8.8.8.8/tcp/4001", false)
	check("not yet resolved", known, "/ip4/192.168.7.7/tcp/4001", false)
	if _, err := g.ResolveDNSComponent(t.Context(), addr("/dns4/learned.example/tcp/4001"), 10); err != nil {
		t.Fatal(err)
	}
	check("resolved from a learned name", known, "/ip4/192.168.7.7/tcp/4001", false)
	if _, err := g.ResolveDNSComponent(t.Context(), name, 10); err != nil {
		t.Fatal(err)
	}
	check("resolved from the configured name", known, "/ip4/192.168.7.7/tcp/4001", true)

	g = newGate(peers, true)
	g.open.Store(true)
	check("private allowed", known, "/ip4/127.0.0.1/tcp/22", true)
	check("private allowed, stranger", stranger, "/ip4/127.0.0.1/tcp/22", false)
}

type fakeDNS struct{ answer multiaddr }

func (f fakeDNS) ResolveDNSAddr(context.Context, peer.ID, multiaddr, int, int) ([]multiaddr, error) {
	return nil, errors.New("not used")
}

func (f fakeDNS) ResolveDNSComponent(context.Context, multiaddr, int) ([]multiaddr, error) {
	return []multiaddr{f.answer}, nil
}

var _ network.MultiaddrDNSResolver = fakeDNS{}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	o := Options{Key: seededKey(1), Log: quiet(), Registerer: reg}
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Request(t.Context(), n.ID(), proto, nil, 1); !errors.Is(err, ErrNotConnected) {
		t.Errorf("request to itself: %v", err)
	}
	if two, err := New(o); err == nil {
		_ = two.Close()
		t.Error("two nodes in one registry: no error")
	}
	fams, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range fams {
		names = append(names, f.GetName())
	}
	if want := []string{"witan_p2p_peers", "witan_p2p_stream_requests_total"}; !slices.Equal(names, want) {
		t.Errorf("metrics %v, want %v", names, want)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := New(o) // the registry is free again
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// The best of some tries counts: a busy machine makes each of them slow.
func TestEverythingEndsWithTheContext(t *testing.T) {
	took := endWithTheContext(t)
	for try := 1; try < 4 && took > closeGrace; try++ {
		took = endWithTheContext(t)
	}
	if took > closeGrace {
		t.Errorf("the end took %v", took)
	}
}

func endWithTheContext(t *testing.T) (took time.Duration) {
	t.Helper()
	a := make1(t, 1, tuning{})
	b := make1(t, 2, tuning{}, a)
	ta, _ := join(t, a, accept)
	tb, _ := join(t, b, accept)
	a.HandleStream(proto, 10, 100, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx) }()
	until(t, "a is open", a.gate.open.Load)
	go func() { ended <- b.Run(ctx) }()
	meet(t, ta, tb)
	asked := make(chan error, 1)
	go func() {
		_, err := b.Request(context.Background(), a.ID(), proto, nil, 100)
		asked <- err
	}()
	until(t, "the request is at work", func() bool { return !a.streams.idle() })
	// A client that never says a word holds a connection.
	raw, err := net.Dial("tcp", strings.Split(a.Addrs()[0], "/")[2]+":"+strings.Split(a.Addrs()[0], "/")[4])
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()

	begun := time.Now()
	cancel()
	for range 2 {
		if err := take(t, "the end of Run", ended); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	if err := take(t, "the end of the request", asked); err == nil {
		t.Error("the request outlived its node")
	}
	took = time.Since(begun)
	if err := a.Run(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Run after the end: %v, want ErrClosed", err)
	}
	if err := ta.Publish(t.Context(), []byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("Publish after the end: %v, want ErrClosed", err)
	}
	if _, err := b.Request(t.Context(), a.ID(), proto, nil, 100); !errors.Is(err, ErrClosed) {
		t.Errorf("Request after the end: %v, want ErrClosed", err)
	}
	raw.Close()
	stacks := make([]byte, 8<<20)
	until(t, "all goroutines of libp2p are gone", func() bool {
		stacks = stacks[:cap(stacks)]
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("github.com/libp2p/"))
	})
	return took
}

func TestCloseTellsOfAHandlerThatStays(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	called := make(chan struct{})
	server := make1(t, 1, tuning{closeGrace: 50 * time.Millisecond})
	client := make1(t, 2, tuning{}, server)
	server.HandleStream(proto, 10, 10, func(context.Context, string, []byte) ([]byte, error) {
		close(called)
		<-release
		return nil, nil
	})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- server.Run(ctx) }()
	until(t, "the server is open", server.gate.open.Load)
	run(t, client)
	until(t, "connected", func() bool { return client.connected(server.host.ID()) })
	go func() { _, _ = client.Request(t.Context(), server.ID(), proto, nil, 10) }()
	take(t, "the call", called)
	cancel()
	if err := take(t, "the end of Run", ended); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Errorf("Run ended with %v, though a handler stays", err)
	}
}
