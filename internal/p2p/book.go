package p2p

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Bounds of the address book.
const (
	maxKnown      = 256 // peers; the one that was connected least lately goes first
	maxKnownAddrs = 8   // of one peer

	// bookEvery is how often the book is written at most: anybody can come and go as often as they like.
	bookEvery = 10 * time.Second
)

// KnownPeer is a peer that was connected, with the addresses that it said it listens on. The book only helps to find the configured
// and the allowed peers again; nobody is dialled because of it.
type KnownPeer struct {
	ID    string   `json:"id"`
	Addrs []string `json:"addrs"`
	Seen  int64    `json:"seen"` // Unix ms
}

// book remembers peers.
type book struct {
	private bool
	keep    func([]KnownPeer) // may be nil

	mu    sync.Mutex // no other lock is taken under it
	peers map[peer.ID]known
	last  int64 // the greatest seen: each is greater than those before

	changed chan struct{} // holds a token while the book is not written as it is
}

type known struct {
	addrs []multiaddr
	seen  int64
}

// newBook reads what was kept. What cannot be read, or would not be taken from a peer, is left out.
func newBook(list []KnownPeer, private bool, keep func([]KnownPeer)) *book {
	b := &book{private: private, keep: keep, peers: map[peer.ID]known{}, changed: make(chan struct{}, 1)}
	for _, k := range list {
		id, err := peer.Decode(k.ID)
		if err != nil || len(b.peers) >= maxKnown {
			continue
		}
		var addrs []multiaddr
		for _, s := range k.Addrs {
			if a, err := ma.NewMultiaddr(s); err == nil {
				addrs = append(addrs, a)
			}
		}
		b.peers[id] = known{b.usable(addrs), k.Seen}
		b.last = max(b.last, k.Seen)
	}
	return b
}

// usable picks the addresses that may be dialled.
func (b *book) usable(addrs []multiaddr) (out []multiaddr) {
	for _, a := range addrs {
		a = withoutPeer(a)
		if a == nil || !transportOK(a, ma.P_IP4, ma.P_IP6) || !b.private && !manet.IsPublicAddr(a) || ma.Contains(out, a) {
			continue
		}
		if out = append(out, a); len(out) == maxKnownAddrs {
			break
		}
	}
	return out
}

// met notes that a peer is connected, and where it says that it listens.
func (b *book) met(id peer.ID, addrs []multiaddr) {
	b.mu.Lock()
	b.last = max(b.last+1, time.Now().UnixMilli())
	k := known{b.usable(addrs), b.last}
	if old := b.peers[id]; len(k.addrs) == 0 {
		k.addrs = old.addrs
	}
	b.peers[id] = k
	if len(b.peers) > maxKnown {
		var oldest peer.ID
		for id, k := range b.peers {
			if oldest == "" || k.seen < b.peers[oldest].seen {
				oldest = id
			}
		}
		delete(b.peers, oldest)
	}
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// run writes the book until ctx ends, and a last time then.
func (b *book) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-b.changed:
			b.write()
		case <-ctx.Done():
			continue
		}
		pause := time.NewTimer(bookEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	select {
	case <-b.changed:
		b.write()
	default:
	}
}

func (b *book) write() {
	if b.keep != nil {
		b.keep(b.list())
	}
}

// list is the whole book, by ID.
func (b *book) list() []KnownPeer {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]KnownPeer, 0, len(b.peers))
	for id, k := range b.peers {
		p := KnownPeer{ID: id.String(), Addrs: []string{}, Seen: k.seen}
		for _, a := range k.addrs {
			p.Addrs = append(p.Addrs, a.String())
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b KnownPeer) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

func (b *book) of(id peer.ID) known {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peers[id]
}

// addrsOf are the addresses of a peer, the configured ones first.
func (n *Node) addrsOf(id peer.ID) (addrs []multiaddr, seen int64) {
	k := n.book.of(id)
	for _, p := range n.peers {
		if p.ID == id {
			addrs = slices.Clone(p.Addrs)
		}
	}
	for _, a := range k.addrs {
		if !ma.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, k.seen
}
