package web

import (
	"net/http"
	"net/netip"
	"strings"
)

// proxies are the networks whose word about their client is taken.
type proxies []netip.Prefix

func newProxies(prefixes []netip.Prefix) proxies {
	var p proxies
	for _, prefix := range prefixes {
		if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
		}
		p = append(p, prefix.Masked())
	}
	return p
}

func (p proxies) trusts(addr netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// client is the address a request comes from: the peer's, or, when that is a
// trusted proxy, the right-most hop of X-Forwarded-For or Forwarded (RFC 7239)
// that is not one. Hops left of it are the client's own claims and are not read.
//
// A hop that is no address ends the walk at the proxy that reported it. When
// both headers are there and disagree, one of them was not written by the proxy
// and nobody knows which: the request counts for the proxy itself. In these cases,
// and when a peer that is not trusted speaks for somebody, known is false: the
// address is that of a proxy, and the client is elsewhere.
func (p proxies) client(r *http.Request) (addr netip.Addr, known bool) {
	peer := peerAddr(r.RemoteAddr)
	xff, forwarded := r.Header.Values("X-Forwarded-For"), r.Header.Values("Forwarded")
	switch trusted := p.trusts(peer); {
	case len(xff)+len(forwarded) == 0:
		return peer, true
	case !trusted:
		return peer, false
	case len(xff) > 0 && len(forwarded) > 0:
		a, aKnown := p.walk(peer, xffHops(xff))
		b, bKnown := p.walk(peer, forwardedHops(forwarded))
		if a != b {
			return peer, false
		}
		return a, aKnown && bKnown
	case len(xff) > 0:
		return p.walk(peer, xffHops(xff))
	default:
		return p.walk(peer, forwardedHops(forwarded))
	}
}

// walk goes from the peer leftwards through the hops as long as the last one
// is trusted to know the next.
func (p proxies) walk(peer netip.Addr, hops []string) (at netip.Addr, known bool) {
	at = peer
	for i := len(hops) - 1; i >= 0 && p.trusts(at); i-- {
		next, ok := hopAddr(hops[i])
		if !ok {
			return at, false
		}
		at = next
	}
	return at, len(hops) > 0
}

func peerAddr(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{} // no IP peer, such as a Unix socket
	}
	return ap.Addr().Unmap().WithZone("")
}

// xffHops are the entries of X-Forwarded-For, left to right; empty list
// elements do not count (RFC 9110 §5.6.1).
func xffHops(values []string) []string {
	var hops []string
	for _, value := range values {
		for hop := range strings.SplitSeq(value, ",") {
			if hop = strings.Trim(hop, " \t"); hop != "" {
				hops = append(hops, hop)
			}
		}
	}
	return hops
}

// hopAddr reads an address as proxies write it: 192.0.2.1, 192.0.2.1:80,
// 2001:db8::1, [2001:db8::1], [2001:db8::1]:80. A port may also be an
// obfuscated one (RFC 7239 §6). A zone is refused: it means nothing here.
func hopAddr(hop string) (netip.Addr, bool) {
	host := hop
	if inner, ok := strings.CutPrefix(hop, "["); ok {
		var port string
		host, port, ok = strings.Cut(inner, "]")
		if !ok || port != "" && !hopPort(port) || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
	} else if i := strings.IndexByte(hop, ':'); i >= 0 && strings.Count(hop, ":") == 1 {
		if !hopPort(hop[i:]) {
			return netip.Addr{}, false
		}
		host = hop[:i]
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// hopPort checks ":80" or ":_name".
func hopPort(s string) bool {
	port, ok := strings.CutPrefix(s, ":")
	if !ok || port == "" {
		return false
	}
	if name, obfuscated := strings.CutPrefix(port, "_"); obfuscated {
		return name != "" && !strings.ContainsFunc(name, func(c rune) bool { return c > 0x7f || !isToken(byte(c)) })
	}
	return len(port) <= 5 && !strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' })
}

// forwardedHops are the for= nodes of Forwarded, left to right, "" for an
// element without one. A header that does not parse to its end gives none at
// all: an open quote on the left must not swallow what a proxy appended.
func forwardedHops(values []string) []string {
	s := forwardedScanner{rest: strings.Join(values, ",")}
	var hops []string
	for {
		hop, empty, ok := s.element()
		if !ok {
			return nil
		}
		if !empty {
			hops = append(hops, hop)
		}
		if s.rest == "" {
			return hops
		}
		s.rest = s.rest[1:] // the comma that ended the element
	}
}

type forwardedScanner struct {
	rest string
}

// element reads one forwarded-element up to the comma or the end:
// [ token "=" ( token / quoted-string ) ] *( ";" [ … ] ).
func (s *forwardedScanner) element() (hop string, empty, ok bool) {
	empty = true
	seen := false
	for {
		s.space()
		if name := s.token(); name != "" {
			value, ok := s.value()
			if !ok {
				return "", false, false
			}
			empty = false
			if strings.EqualFold(name, "for") {
				if seen { // RFC 7239 §4: each parameter at most once
					return "", false, false
				}
				hop, seen = value, true
			}
			s.space()
		}
		switch {
		case s.rest == "" || s.rest[0] == ',':
			return hop, empty, true
		case s.rest[0] == ';':
			s.rest = s.rest[1:]
		default:
			return "", false, false
		}
	}
}

func (s *forwardedScanner) space() { s.rest = strings.TrimLeft(s.rest, " \t") }

func (s *forwardedScanner) token() string {
	i := 0
	for i < len(s.rest) && isToken(s.rest[i]) {
		i++
	}
	token := s.rest[:i]
	s.rest = s.rest[i:]
	return token
}

func (s *forwardedScanner) value() (string, bool) {
	rest, ok := strings.CutPrefix(s.rest, "=")
	if !ok {
		return "", false
	}
	if s.rest = rest; !strings.HasPrefix(rest, `"`) {
		token := s.token()
		return token, token != ""
	}
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '"':
			s.rest = rest[i+1:]
			return b.String(), true
		case '\\':
			if i++; i == len(rest) {
				return "", false
			}
		}
		b.WriteByte(rest[i])
	}
	return "", false
}

// isToken is tchar of RFC 9110 §5.6.2.
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
