package p2p

import (
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Lists say who may be a peer, by peer ID. A blocked peer is neither dialled nor let in, whatever else names it. When Allow is not
// empty, nobody is let in but who stands there and the configured peers; an allowed peer is dialled, too, where its addresses are
// known from earlier.
type Lists struct {
	Allow, Block []string
}

type lists struct{ allow, block map[peer.ID]bool }

func parseLists(l Lists, self peer.ID) (*lists, error) {
	out := &lists{map[peer.ID]bool{}, map[peer.ID]bool{}}
	for _, in := range []struct {
		name string
		ids  []string
		to   map[peer.ID]bool
	}{{"allow", l.Allow, out.allow}, {"block", l.Block, out.block}} {
		for _, s := range in.ids {
			id, err := peer.Decode(s)
			if err != nil {
				return nil, fmt.Errorf("p2p: %s %q: not a peer ID, which is what stands behind /p2p/ in an address: %w", in.name, s, err)
			}
			if id == self {
				return nil, fmt.Errorf("p2p: %s %q: this is the node itself", in.name, s)
			}
			in.to[id] = true
		}
	}
	return out, nil
}

// permits tells whether a peer may be connected.
func (g *gate) permits(p peer.ID) bool {
	l := g.lists.Load()
	return !l.block[p] && (len(l.allow) == 0 || l.allow[p] || g.peers[p])
}

// mayDial tells whether a peer may be dialled.
func (g *gate) mayDial(p peer.ID) bool {
	return (g.peers[p] || g.lists.Load().allow[p]) && g.permits(p)
}

// SetLists replaces the lists. Connections that they do not permit are closed.
func (n *Node) SetLists(l Lists) error {
	parsed, err := parseLists(l, n.host.ID())
	if err != nil {
		return err
	}
	n.gate.lists.Store(parsed)
	for _, id := range n.host.Network().Peers() {
		if !n.gate.permits(id) {
			n.log.Info("p2p peer is not permitted any more", "peer", id)
			if err := n.host.Network().ClosePeer(id); err != nil {
				return fmt.Errorf("p2p: hang up on %s: %w", id, err)
			}
		}
	}
	if n.started() {
		n.keepAll()
	}
	return nil
}

// arrived is called by libp2p once a connection stands; it must not block. The lists may have changed since the gate let the peer
// through, and SetLists hangs up only on who is there already.
func (n *Node) arrived(_ network.Network, c network.Conn) {
	if n.gate.permits(c.RemotePeer()) || !n.begin() {
		return
	}
	go func() {
		defer n.tasks.Done()
		n.log.Info("p2p peer is not permitted any more", "peer", c.RemotePeer())
		_ = c.Close() // it goes away, or is gone already
	}()
}

// PeerStatus is what the node knows of a peer.
type PeerStatus struct {
	ID         string   `json:"id"`
	Addrs      []string `json:"addrs"` // without /p2p
	Connected  bool     `json:"connected"`
	Configured bool     `json:"configured"`
	Allowed    bool     `json:"allowed"` // stands in the allow list
	Blocked    bool     `json:"blocked"` // stands in the block list, or not in an allow list that others stand in
	Seen       int64    `json:"seen"`    // when it was connected last, Unix ms; 0 for never
}

// Status lists the peers that are configured, connected, known from earlier, or on a list, by ID.
func (n *Node) Status() []PeerStatus {
	l := n.gate.lists.Load()
	ids := map[peer.ID]bool{}
	for _, set := range []map[peer.ID]bool{n.gate.peers, l.allow, l.block} {
		for id := range set {
			ids[id] = true
		}
	}
	for _, id := range n.host.Network().Peers() {
		ids[id] = true
	}
	for _, k := range n.book.list() {
		if id, err := peer.Decode(k.ID); err == nil {
			ids[id] = true
		}
	}
	out := make([]PeerStatus, 0, len(ids))
	for id := range ids {
		addrs, seen := n.addrsOf(id)
		s := PeerStatus{ID: id.String(), Addrs: []string{}, Connected: n.connected(id), Configured: n.gate.peers[id], Allowed: l.allow[id], Blocked: !n.gate.permits(id), Seen: seen}
		for _, a := range addrs {
			s.Addrs = append(s.Addrs, a.String())
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}
