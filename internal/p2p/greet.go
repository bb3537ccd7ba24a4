package p2p

import (
	"fmt"
	"sync"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
)

// maxGreetings bounds the OnPeer calls at work at one time; further ones wait, one per connected peer and function.
const maxGreetings = 64

// greeting is one OnPeer function to be called for one peer.
type greeting struct {
	fn   int
	peer peer.ID
}

// greeter calls the OnPeer functions. A peer that comes and goes quickly does not multiply calls: for one function and one peer there
// is at most one call at work and one waiting, and what waits is forgotten when its peer leaves.
type greeter struct {
	n       *Node
	mu      sync.Mutex // no other lock of this package but Node.mu is taken under it
	fns     []func(string)
	here    map[peer.ID]bool // identified and connected
	waiting map[greeting]bool
	working map[greeting]bool
}

// OnPeer registers fn, to be called in a goroutine of its own each time a peer has connected and told its protocols. Register before
// Run. fn must return soon after Run's context ends.
func (n *Node) OnPeer(fn func(peer string)) {
	n.greet.mu.Lock()
	defer n.greet.mu.Unlock()
	n.greet.fns = append(n.greet.fns, fn)
}

func newGreeter(n *Node) (*greeter, error) {
	g := &greeter{n: n, here: map[peer.ID]bool{}, waiting: map[greeting]bool{}, working: map[greeting]bool{}}
	sub, err := n.host.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted), eventbus.BufSize(256))
	if err != nil {
		return nil, fmt.Errorf("p2p: watch peers: %w", err)
	}
	n.begin()
	go func() {
		defer n.tasks.Done()
		n.book.run(n.ctx)
	}()
	n.begin()
	go func() {
		defer n.tasks.Done()
		defer sub.Close()
		for {
			select {
			case <-n.ctx.Done():
				return
			case e, ok := <-sub.Out():
				if !ok {
					return
				}
				said := e.(event.EvtPeerIdentificationCompleted)
				if n.gate.permits(said.Peer) {
					n.book.met(said.Peer, said.ListenAddrs)
				}
				g.arrived(said.Peer)
			}
		}
	}()
	return g, nil
}

func (g *greeter) arrived(p peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A second connection of a peer is no arrival; nor is an event that is read after its peer has left.
	if g.here[p] || !g.n.connected(p) {
		return
	}
	g.here[p] = true
	for i := range g.fns {
		g.waiting[greeting{i, p}] = true
	}
	g.start()
}

func (g *greeter) left(p peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.here, p)
	for i := range g.fns {
		delete(g.waiting, greeting{i, p})
	}
}

// start sets waiting calls to work as far as the bound allows. The caller holds g.mu.
func (g *greeter) start() {
	for w := range g.waiting {
		if len(g.working) >= maxGreetings {
			return
		}
		if g.working[w] {
			continue
		}
		if !g.n.begin() {
			return
		}
		delete(g.waiting, w)
		g.working[w] = true
		fn := g.fns[w.fn]
		go func() {
			defer g.n.tasks.Done()
			fn(w.peer.String())
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.working, w)
			g.start()
		}()
	}
}
