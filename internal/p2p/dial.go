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

// keepAll sees to it that each peer that may be dialled is kept connected.
func (n *Node) keepAll() {
	var all []peer.ID
	for id := range n.gate.peers {
		all = append(all, id)
	}
	for id := range n.gate.lists.Load().allow {
		all = append(all, id)
	}
	for _, id := range all {
		n.mu.Lock()
		known := n.down[id] != nil
		if !known {
			n.down[id] = make(chan struct{}, 1)
		}
		n.mu.Unlock()
		if !known && n.begin() {
			go n.keepConnected(id)
		}
	}
}

// keepConnected dials a peer whenever no connection to it stands, until the node closes or the peer may not be dialled any more.
func (n *Node) keepConnected(id peer.ID) {
	defer n.tasks.Done()
	wait := &backoff.ExponentialBackOff{InitialInterval: redialFirst, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: redialMost}
	wait.Reset()
	n.mu.Lock()
	down := n.down[id]
	n.mu.Unlock()
	failing := false
	for {
		n.mu.Lock()
		if !n.gate.mayDial(id) { // under the lock of keepAll, which starts again once it may
			delete(n.down, id)
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		addrs, _ := n.addrsOf(id)
		p := peer.AddrInfo{ID: id, Addrs: addrs}
		if err := n.dial(p); err == nil {
			failing = false
			up := time.Now()
			n.log.Info("p2p peer connected", "peer", id)
			for n.connected(id) {
				select {
				case <-n.ctx.Done():
					return
				case <-down:
				}
			}
			n.log.Info("p2p peer disconnected", "peer", id)
			if time.Since(up) >= settled {
				wait.Reset()
			}
		} else if n.ctx.Err() == nil && !failing {
			failing = true // once per outage: the log must not grow with a dead peer
			n.log.Warn("p2p peer cannot be reached; dialling on", "peer", id, "addrs", p.Addrs, "err", err)
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
