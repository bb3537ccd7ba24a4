package fetch

import (
	"net/netip"
)

// prefixes parses a list of literals that the tests cover one by one.
func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

var (
	// special4 holds the IPv4 blocks that are not ordinary global unicast (IANA special-purpose registry).
	special4 = prefixes(
		"0.0.0.0/8",       // this network
		"10.0.0.0/8",      // private
		"100.64.0.0/10",   // shared address space of carriers (CGNAT)
		"127.0.0.0/8",     // loopback
		"169.254.0.0/16",  // link-local, the metadata services of clouds
		"172.16.0.0/12",   // private
		"192.0.0.0/24",    // protocol assignments
		"192.0.2.0/24",    // documentation
		"192.88.99.0/24",  // 6to4 relays, deprecated
		"192.168.0.0/16",  // private
		"198.18.0.0/15",   // benchmarking
		"198.51.100.0/24", // documentation
		"203.0.113.0/24",  // documentation
		"224.0.0.0/4",     // multicast
		"240.0.0.0/4",     // reserved, and the limited broadcast
	)
	// global6 is the only block from which global unicast addresses are given out.
	global6 = netip.MustParsePrefix("2000::/3")
	// special6 holds what is inside global6 and yet not an ordinary host.
	special6 = prefixes(
		"2001::/23",     // protocol assignments: Teredo, benchmarking, ORCHID
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4: the packet would leave for the embedded IPv4 address
		"3fff::/20",     // documentation
	)
	// nat64 carries an IPv4 address in its last four bytes; IPv6-only networks reach IPv4 hosts through it.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	// cgnat is used as a private network by overlay networks.
	cgnat = netip.MustParsePrefix("100.64.0.0/10")
)

func within(addr netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Global reports whether addr is an ordinary public unicast address. An IPv4 address embedded in a mapped
// (::ffff:0:0/96) or NAT64 (64:ff9b::/96) address is judged in its place; other ways of embedding one
// (v4-compatible, local NAT64 64:ff9b:1::/48, 6to4, Teredo, ISATAP) are refused outright, since nobody needs them and each
// has been used to reach a private network. An address with a zone is never global.
func Global(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	if addr.Is4() {
		return !within(addr, special4)
	}
	if nat64.Contains(addr) {
		b := addr.As16()
		return Global(netip.AddrFrom4([4]byte(b[12:])))
	}
	return global6.Contains(addr) && !within(addr, special6) && !isatap(addr)
}

// isatap reports whether the last eight bytes of addr are the identifier of an ISATAP interface (RFC 5214), which ends in an
// IPv4 address.
func isatap(addr netip.Addr) bool {
	b := addr.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// private reports whether addr is one that AllowPrivate lets through: loopback, private, unique local and carrier-shared
// addresses. Link-local addresses are not among them: the metadata services of clouds live there.
func private(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	return addr.IsLoopback() || addr.IsPrivate() || cgnat.Contains(addr)
}
