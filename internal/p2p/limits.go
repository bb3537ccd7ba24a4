package p2p

import (
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
)

// newResourceManager makes libp2p's accounts of connections, streams, memory and files. The numbers do not depend on the machine, so
// that a node behaves the same on all of them. Above MaxPeers the connection manager trims; this is the wall some way behind it. One
// IP address gets eight connections (libp2p's default), loopback any number.
func newResourceManager(maxPeers, configured int) (network.ResourceManager, error) {
	const memory = 256 << 20
	conns := maxPeers + maxPeers/4 + 16
	// A configured peer may be dialled on several addresses at once.
	outbound := conns + 8*configured
	total := conns + outbound
	base := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&base)
	lim := rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{
			Conns: rcmgr.LimitVal(total), ConnsInbound: rcmgr.LimitVal(conns), ConnsOutbound: rcmgr.LimitVal(outbound),
			Streams: rcmgr.LimitVal(32 * total), StreamsInbound: rcmgr.LimitVal(16 * total), StreamsOutbound: rcmgr.LimitVal(16 * total),
			FD: rcmgr.LimitVal(total), Memory: memory,
		},
		PeerDefault: rcmgr.ResourceLimits{
			Conns: 8, ConnsInbound: 4, ConnsOutbound: 8,
			Streams: 64, StreamsInbound: 32, StreamsOutbound: 32, Memory: 32 << 20,
		},
	}
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(lim.Build(base.Scale(memory, total))), rcmgr.WithMetricsDisabled())
}
