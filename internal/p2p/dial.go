package p2p

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

const (
	redialFirst = time.Second
	redialMost  = time.Minute
	dialTimeout = 15 * time.Second
	// A connection that lasted this long was a success. A shorter one does not reset the back-off: a peer that accepts and hangs up
	// at once would be dialled in a tight loop.
	settled = 10 * time.Second
)

// keepConnected dials a configured peer whenever no connection to it stands, until the node closes.
func (n *Node) keepConnected(p peer.AddrInfo) {
	defer n.tasks.Done()
	wait := &backoff.ExponentialBackOff{InitialInterval: redialFirst, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: redialMost}
	wait.Reset()
	n.mu.Lock()
	down := n.down[p.ID]
	n.mu.Unlock()
	failing := false
	for {
		if err := n.dial(p); err == nil {
			failing = false
			up := time.Now()
			n.log.Info("p2p peer connected", "peer", p.ID)
			for n.connected(p.ID) {
				select {
				case <-n.ctx.Done():
					return
				case <-down:
				}
			}
			n.log.Info("p2p peer disconnected", "peer", p.ID)
			if time.Since(up) >= settled {
				wait.Reset()
			}
		} else if n.ctx.Err() == nil && !failing {
			failing = true // once per outage: the log must not grow with a dead peer
			n.log.Warn("p2p peer cannot be reached; dialling on", "peer", p.ID, "addrs", p.Addrs, "err", err)
		}
		t := time.NewTimer(min(wait.NextBackOff(), redialMost))
		select {
		case <-n.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// dial connects to p unless it is connected already, no matter who dialled.
func (n *Node) dial(p peer.AddrInfo) error {
	if n.connected(p.ID) {
		return nil
	}
	ctx, cancel := context.WithTimeout(n.ctx, dialTimeout)
	defer cancel()
	// The back-off here rules alone; libp2p's own would answer for it with an error.
	if s, ok := n.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(p.ID)
	}
	return n.host.Connect(ctx, p)
}

// disconnected is called by libp2p after a connection is gone; it must not block.
func (n *Node) disconnected(_ network.Network, c network.Conn) {
	id := c.RemotePeer()
	if n.connected(id) {
		return
	}
	n.greet.left(id)
	n.mu.Lock()
	down := n.down[id]
	n.mu.Unlock()
	select {
	case down <- struct{}{}: // nil, so never ready, for a peer that is not configured
	default:
	}
}
