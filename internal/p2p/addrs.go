package p2p

import (
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

type multiaddr = ma.Multiaddr

// shapes lists what an address may look like; anything else is a transport that the node does not have.
const shapes = "/ip4|ip6/<addr>/tcp/<port> or /ip4|ip6/<addr>/udp/<port>/quic-v1"

func parseListen(in []string) ([]multiaddr, error) {
	var out []multiaddr
	for _, s := range in {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("p2p: listen address %q: %w", s, err)
		}
		if !transportOK(a, ma.P_IP4, ma.P_IP6) {
			return nil, fmt.Errorf("p2p: listen address %q: want %s", s, shapes)
		}
		out = append(out, a)
	}
	return out, nil
}

// parsePeers reads the configured peers and joins several addresses of one peer.
func parsePeers(in []string, self peer.ID) ([]peer.AddrInfo, error) {
	var out []peer.AddrInfo
	for _, s := range in {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("p2p: peer address %q: %w", s, err)
		}
		info, err := peer.AddrInfoFromP2pAddr(a)
		if err != nil {
			return nil, fmt.Errorf("p2p: peer address %q: %w; it must end in /p2p/<peer id>", s, err)
		}
		if len(info.Addrs) != 1 || !transportOK(info.Addrs[0], ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6) {
			return nil, fmt.Errorf("p2p: peer address %q: want %s (or dns, dns4, dns6 in place of the IP), then /p2p/<peer id>", s, shapes)
		}
		if info.ID == self {
			return nil, fmt.Errorf("p2p: peer address %q names this node itself; remove it", s)
		}
		i := slices.IndexFunc(out, func(p peer.AddrInfo) bool { return p.ID == info.ID })
		if i < 0 {
			out = append(out, *info)
		} else if !ma.Contains(out[i].Addrs, info.Addrs[0]) {
			out[i].Addrs = append(out[i].Addrs, info.Addrs[0])
		}
	}
	return out, nil
}

// transportOK says whether a is one host of the given kinds followed by tcp, or by udp and quic-v1.
func transportOK(a multiaddr, hosts ...int) bool {
	var codes []int
	for _, p := range a.Protocols() {
		codes = append(codes, p.Code)
	}
	if len(codes) < 2 || !slices.Contains(hosts, codes[0]) {
		return false
	}
	return slices.Equal(codes[1:], []int{ma.P_TCP}) || slices.Equal(codes[1:], []int{ma.P_UDP, ma.P_QUIC_V1})
}

func usesQUIC(listen []multiaddr, peers []peer.AddrInfo) bool {
	all := slices.Clone(listen)
	for _, p := range peers {
		all = append(all, p.Addrs...)
	}
	return slices.ContainsFunc(all, func(a multiaddr) bool {
		_, err := a.ValueForProtocol(ma.P_UDP)
		return err == nil
	})
}
