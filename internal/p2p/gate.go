package p2p

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	madns "github.com/multiformats/go-multiaddr-dns"
	manet "github.com/multiformats/go-multiaddr/net"
)

// gate decides whom the node dials and whom it lets in. Only configured and allowed peers are dialled, whatever another peer or a peer
// exchange names. Of their addresses those that the operator wrote are always fine; those that a peer told about itself must be global, so
// that a peer cannot point this node at the inside of the operator's network.
//
// It is the DNS resolver too, since libp2p asks the gater about resolved addresses: what a configured name resolves to counts as
// configured.
type gate struct {
	open    atomic.Bool // accept and dial; set by Run
	private bool
	peers   map[peer.ID]bool
	lists   atomic.Pointer[lists]
	named   map[string]bool // addresses in the configuration, without /p2p

	resolver network.MultiaddrDNSResolver
	mu       sync.Mutex
	resolved map[string][]multiaddr // configured DNS address → what it resolved to last
}

var (
	_ connmgr.ConnectionGater      = (*gate)(nil)
	_ network.MultiaddrDNSResolver = (*gate)(nil)
)

func newGate(peers []peer.AddrInfo, private bool) *gate {
	g := &gate{
		private: private, peers: map[peer.ID]bool{}, named: map[string]bool{},
		resolver: swarm.ResolverFromMaDNS{Resolver: madns.DefaultResolver}, resolved: map[string][]multiaddr{},
	}
	g.lists.Store(&lists{})
	for _, p := range peers {
		g.peers[p.ID] = true
		for _, a := range p.Addrs {
			g.named[a.String()] = true
		}
	}
	return g
}

// InterceptPeerDial lets the node dial configured and allowed peers only.
func (g *gate) InterceptPeerDial(p peer.ID) bool { return g.open.Load() && g.mayDial(p) }

// InterceptAddrDial sees each address, after resolution.
func (g *gate) InterceptAddrDial(p peer.ID, a multiaddr) bool {
	if !g.InterceptPeerDial(p) {
		return false
	}
	return g.private || manet.IsPublicAddr(a) || g.configured(a)
}

func (g *gate) configured(a multiaddr) bool {
	a = withoutPeer(a)
	if g.named[a.String()] {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, addrs := range g.resolved {
		if ma.Contains(addrs, a) {
			return true
		}
	}
	return false
}

// InterceptAccept refuses connections while the node does not run, so that no peer finds it half built.
func (g *gate) InterceptAccept(network.ConnMultiaddrs) bool { return g.open.Load() }

// InterceptSecured hangs up on who may not be a peer, as soon as it has proven who it is.
func (g *gate) InterceptSecured(_ network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	return g.permits(p)
}

// InterceptUpgraded has nothing to add.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// ResolveDNSAddr passes on: no configured address is a dnsaddr.
func (g *gate) ResolveDNSAddr(ctx context.Context, p peer.ID, a multiaddr, recursion, limit int) ([]multiaddr, error) {
	return g.resolver.ResolveDNSAddr(ctx, p, a, recursion, limit)
}

// ResolveDNSComponent resolves a name and remembers the result if the operator configured that name.
func (g *gate) ResolveDNSComponent(ctx context.Context, a multiaddr, limit int) ([]multiaddr, error) {
	out, err := g.resolver.ResolveDNSComponent(ctx, a, limit)
	if name := withoutPeer(a).String(); err == nil && g.named[name] {
		plain := make([]multiaddr, 0, len(out))
		for _, r := range out {
			plain = append(plain, withoutPeer(r))
		}
		g.mu.Lock()
		g.resolved[name] = plain
		g.mu.Unlock()
	}
	return out, err
}

func withoutPeer(a multiaddr) multiaddr {
	addr, _ := peer.SplitAddr(a)
	return addr
}
