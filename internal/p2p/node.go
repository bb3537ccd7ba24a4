// Package p2p is the daemon's peer-to-peer network: gossip topics, request streams, and the connections under them. It is the only
// importer of go-libp2p and go-libp2p-pubsub.
//
// Bytes go in and bytes come out. The package knows nothing about rooms, statements or signatures: what a message means is decided by
// the validator of its topic, what a request means by the handler of its protocol. A peer may flood, stall or lie, so everything a peer
// can make this node hold or do has a bound: connections, messages a second, queue lengths, frame sizes, streams at once, and time.
//
// The node talks TCP, and QUIC where the operator lists a QUIC address. It has no relay, no port mapping, no DHT, no mDNS and no
// reachability probes, and it dials nobody but the peers that the operator configured or allowed (federation: nothing is contacted
// because a peer named it). An address book remembers where those were found.
//
// Use: New, then Join, HandleStream and OnPeer, then Run. Until Run, no connection is accepted or dialled.
package p2p

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	userAgent       = "witan"
	defaultMaxPeers = 128
	closeGrace      = 10 * time.Second // how long Close waits for handlers that are still at work
)

// Errors that a caller may want to tell apart with errors.Is.
var (
	// ErrClosed: the node was closed, or its Run has ended.
	ErrClosed = errors.New("p2p node is closed")
	// ErrNotConnected: a request needs a connected peer; the node does not dial on request.
	ErrNotConnected = errors.New("peer is not connected")
	// ErrUnsupported: the peer does not speak the protocol of the request.
	ErrUnsupported = errors.New("peer does not speak the protocol")
	// ErrBusy: the peer already serves as many requests as it allows; try again later, or ask another peer.
	ErrBusy = errors.New("peer is busy")
	// ErrTooLarge: a message, request or response is longer than its bound.
	ErrTooLarge = errors.New("too large")
)

// Options of a node. Key is required, everything else may be empty.
type Options struct {
	Key          ed25519.PrivateKey    // identity, 64 bytes as crypto/ed25519 has it; used for the p2p purpose only
	Listen       []string              // multiaddrs: /ip4|ip6/…/tcp/… or /ip4|ip6/…/udp/…/quic-v1; empty: dial only
	Peers        []string              // multiaddrs with /p2p/<id>; kept connected. ip4, ip6, dns, dns4, dns6
	MaxPeers     int                   // connections above this number are trimmed, configured peers last; 0 means 128
	Lists        Lists                 // who may be a peer; may be changed with SetLists
	Known        []KnownPeer           // the address book of the last run
	Keep         func([]KnownPeer)     // is given the address book when it has changed, every 10 s at most and at the end, one call at a time; nil: it is forgotten
	AllowPrivate bool                  // dial and publish addresses that are not global, too; configured ones are always dialled
	Log          *slog.Logger          // nil: slog.Default
	Registerer   prometheus.Registerer // nil: no metrics
}

// tuning is what tests change; the zero value is what a daemon runs with.
type tuning struct {
	readTimeout    time.Duration // server: until the whole request has arrived; also per response write
	handlerTimeout time.Duration // server: until the handler has answered
	requestTimeout time.Duration // client: the whole request
	closeGrace     time.Duration
	score          func(scores map[peer.ID]float64)    // sees all peer scores, every 50 ms
	inspect        func(from peer.ID, rpc *pubsub.RPC) // sees each RPC of a peer before it is vetted
}

func (t *tuning) fill() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&t.readTimeout, 10*time.Second)
	def(&t.handlerTimeout, 20*time.Second)
	def(&t.requestTimeout, 45*time.Second) // longer than a server's whole time, so that its error text arrives
	def(&t.closeGrace, closeGrace)
}

// Node is one libp2p host with its topics, streams and configured peers. All methods may be called concurrently.
type Node struct {
	log      *slog.Logger
	tune     tuning
	host     host.Host
	gate     *gate
	book     *book
	peers    []peer.AddrInfo // configured, one per ID
	maxPeers int
	gossip   *gossip
	streams  *streams
	greet    *greeter
	metrics  *metrics

	ctx    context.Context // ends when the node closes
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields below, held for moments only; no other lock is taken under it
	running bool
	closed  bool
	tasks   sync.WaitGroup            // Add only under mu while !closed, see begin
	down    map[peer.ID]chan struct{} // peers that are kept connected: poked when the last connection is gone

	closeOnce sync.Once
	closeErr  error
}

// New makes a node and binds its listen addresses. A bad address fails with an error that names it. A node that was made and is never
// run must be closed with Close.
func New(o Options) (*Node, error) { return newNode(o, tuning{}) }

func newNode(o Options, tune tuning) (*Node, error) {
	tune.fill()
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.MaxPeers == 0 {
		o.MaxPeers = defaultMaxPeers
	}
	if o.MaxPeers < 0 {
		return nil, fmt.Errorf("p2p: at most %d peers makes no sense; give a positive number, or 0 for %d", o.MaxPeers, defaultMaxPeers)
	}
	key, id, err := identity(o.Key)
	if err != nil {
		return nil, err
	}
	listen, err := parseListen(o.Listen)
	if err != nil {
		return nil, err
	}
	peers, err := parsePeers(o.Peers, id)
	if err != nil {
		return nil, err
	}

	n := &Node{log: o.Log, tune: tune, peers: peers, maxPeers: o.MaxPeers, gate: newGate(peers, o.AllowPrivate), down: map[peer.ID]chan struct{}{}}
	permitted, err := parseLists(o.Lists, id)
	if err != nil {
		return nil, err
	}
	n.gate.lists.Store(permitted)
	n.book = newBook(o.Known, o.AllowPrivate, o.Keep)
	n.ctx, n.cancel = context.WithCancel(context.Background())

	limits, err := newResourceManager(o.MaxPeers, len(peers)+len(permitted.allow))
	if err != nil {
		return nil, fmt.Errorf("p2p: set resource limits: %w", err)
	}
	trim, err := connmgr.NewConnManager(max(1, o.MaxPeers*3/4), o.MaxPeers, connmgr.WithGracePeriod(20*time.Second))
	if err != nil {
		return nil, fmt.Errorf("p2p: limit connections: %w", err)
	}
	opts := []libp2p.Option{
		libp2p.Identity(key),
		libp2p.UserAgent(userAgent),
		libp2p.NoListenAddrs, // bound below one by one: libp2p would be content if one of several could be bound
		// Without port reuse: it lets two daemons bind one port without an error.
		libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport()),
		libp2p.ConnectionGater(n.gate),
		libp2p.MultiaddrResolver(n.gate),
		libp2p.ConnectionManager(trim),
		libp2p.ResourceManager(limits),
		libp2p.DisableRelay(),
		libp2p.ForceReachabilityPublic(), // a fixed answer, so that autonat asks nobody
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.NonPublicAddrPublishing(o.AllowPrivate),
		libp2p.Ping(false),
		libp2p.DisableMetrics(), // libp2p's own would go to the global registry
	}
	if usesQUIC(listen, peers) {
		opts = append(opts, libp2p.Transport(quic.NewTransport))
	}
	if n.host, err = libp2p.New(opts...); err != nil {
		n.cancel()
		return nil, errors.Join(fmt.Errorf("p2p: start the host: %w", err), trim.Close(), limits.Close())
	}
	if err := n.build(o, listen); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// build adds what stands on the host. The caller closes the node if it fails.
func (n *Node) build(o Options, listen []multiaddr) (err error) {
	if n.metrics, err = newMetrics(o.Registerer, func() int { return len(n.host.Network().Peers()) }); err != nil {
		return err
	}
	n.streams = newStreams()
	if n.greet, err = newGreeter(n); err != nil {
		return err
	}
	n.host.Network().Notify(&network.NotifyBundle{ConnectedF: n.arrived, DisconnectedF: n.disconnected})
	for _, p := range n.peers {
		n.host.ConnManager().Protect(p.ID, "configured")
	}
	if n.gossip, err = newGossip(n, o.AllowPrivate); err != nil {
		return err
	}
	for _, a := range listen {
		if err := n.host.Network().Listen(a); err != nil {
			return fmt.Errorf("p2p: listen on %s: %w", a, err)
		}
	}
	return nil
}

// identity turns the key into libp2p's form and checks it.
func identity(k ed25519.PrivateKey) (crypto.PrivKey, peer.ID, error) {
	if len(k) != ed25519.PrivateKeySize {
		return nil, "", fmt.Errorf("p2p: the identity key has %d bytes, an Ed25519 private key has %d", len(k), ed25519.PrivateKeySize)
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(k)
	if err != nil {
		return nil, "", fmt.Errorf("p2p: identity key: %w", err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return nil, "", fmt.Errorf("p2p: identity key: %w", err)
	}
	return key, id, nil
}

// Run opens the node to the network, dials the configured peers, and keeps at both until ctx ends. Then it closes everything; it
// returns nil after a clean end. It can be called once.
func (n *Node) Run(ctx context.Context) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	if n.running {
		n.mu.Unlock()
		return errors.New("p2p: Run was called twice")
	}
	n.running = true
	n.mu.Unlock()

	n.gate.open.Store(true)
	n.keepAll()
	n.log.Info("p2p node runs", "id", n.ID(), "addrs", n.Addrs(), "configured_peers", len(n.peers))
	select {
	case <-ctx.Done():
	case <-n.ctx.Done():
	}
	return n.Close()
}

// Close ends the node and waits for its handlers. Run does this too; a second call returns what the first did.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

func (n *Node) close() error {
	n.gate.open.Store(false)
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	var errs []error
	if err := n.host.Close(); err != nil {
		errs = append(errs, fmt.Errorf("p2p: close the host: %w", err))
	}
	done := make(chan struct{})
	go func() { n.tasks.Wait(); close(done) }()
	t := time.NewTimer(n.tune.closeGrace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		errs = append(errs, fmt.Errorf("p2p: a handler or an OnPeer function still runs %v after the node closed; it must end with its context", n.tune.closeGrace))
	}
	n.metrics.unregister()
	return errors.Join(errs...)
}

// begin counts a goroutine that Close must wait for; if it says true, the goroutine calls n.tasks.Done at its end.
func (n *Node) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.tasks.Add(1)
	return true
}

// started says whether Run was called.
func (n *Node) started() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

// ID is the node's peer ID, in base58.
func (n *Node) ID() string { return n.host.ID().String() }

// Addrs returns the addresses the node listens on, each ending in /p2p/<id>. Unspecified addresses (0.0.0.0, ::) are replaced by those
// of the interfaces.
func (n *Node) Addrs() []string {
	addrs, err := n.host.Network().InterfaceListenAddresses()
	if err != nil {
		n.log.Error("p2p: cannot list the interface addresses", "err", err)
		return nil
	}
	out := make([]string, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, a.String()+"/p2p/"+n.ID())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Peers returns the IDs of the connected peers, in order.
func (n *Node) Peers() []string {
	ids := n.host.Network().Peers()
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		out = append(out, id.String())
	}
	slices.Sort(out)
	return out
}

func (n *Node) connected(id peer.ID) bool {
	return n.host.Network().Connectedness(id) == network.Connected
}
