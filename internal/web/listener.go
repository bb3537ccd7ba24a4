package web

import (
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Connections bound what strangers can make a server hold open before they have asked
// for anything.
type Connections struct {
	All        int // at a time
	PerAddress int // of one client address (IPv6: its /64)
	// Trusted are proxies, whose connections are those of many clients: only All is
	// for them.
	Trusted []netip.Prefix
	// Registerer takes the metrics; nil means none.
	Registerer prometheus.Registerer
}

// Listen keeps the bounds over a listener: one connection too many is closed at once.
func (c Connections) Listen(l net.Listener) net.Listener {
	b := &bounded{Listener: l, c: c, proxies: newProxies(c.Trusted), of: map[netip.Addr]int{}}
	if c.Registerer != nil {
		b.refused = register(c.Registerer, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "witan_http_connections_refused_total",
			Help: "Connections that were closed at once, by the bound that they went over: all or address.",
		}, []string{"bound"}))
	}
	return b
}

type bounded struct {
	net.Listener
	c       Connections
	proxies proxies
	refused *prometheus.CounterVec // nil: not counted

	mu  sync.Mutex
	all int
	of  map[netip.Addr]int
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		leave, bound := b.take(peerAddr(conn.RemoteAddr().String()))
		if leave != nil {
			return &counted{Conn: conn, leave: leave}, nil
		}
		if b.refused != nil {
			b.refused.WithLabelValues(bound).Inc()
		}
		_ = conn.Close() // nothing was written
	}
}

// take counts a connection until leave is called, or names the bound that it goes over.
func (b *bounded) take(addr netip.Addr) (leave func(), bound string) {
	own := !b.proxies.trusts(addr)
	addr = bucketKey(addr)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.all >= b.c.All:
		return nil, "all"
	case own && b.of[addr] >= b.c.PerAddress:
		return nil, "address"
	}
	b.all++
	if own {
		b.of[addr]++
	}
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.all--
		if !own {
			return
		}
		if b.of[addr]--; b.of[addr] == 0 {
			delete(b.of, addr)
		}
	}), ""
}

// counted is a connection that gives its place back when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
