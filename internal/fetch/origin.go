package fetch

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxURL bounds the text of a URL, in bytes.
const maxURL = 4096

// Origin returns the one spelling of the origin that raw names: scheme://host[:port], the host in lower case and the
// default port left out. It refuses user information, a path other than "/", a query, a fragment, a host name that is
// not made of A-labels, and an address written in any but its shortest form. With allowPrivate false it
// refuses http, localhost and literal addresses that are not public, so it also answers whether an origin is a
// private one. The error is an *Error of kind BadURL or Blocked.
func Origin(raw string, allowPrivate bool) (string, error) {
	u, err := checkURL(raw, allowPrivate)
	if err != nil {
		return "", err
	}
	if (u.Path != "" && u.Path != "/") || u.RawPath != "" || u.RawQuery != "" || u.ForceQuery {
		return "", badURL(raw, "an origin is scheme://host[:port] only; remove the path and the query")
	}
	return u.Scheme + "://" + u.Host, nil
}

// Authority returns host[:port] of an origin as Origin gives it. An IPv6 host keeps its brackets.
func Authority(origin string) string {
	_, rest, ok := strings.Cut(origin, "://")
	if !ok {
		return origin
	}
	return rest
}

// CheckURL parses raw and returns it with its host normalised as by Origin, or an *Error of kind BadURL or Blocked
// that says what to change. It does not resolve names: that happens once, when the address is dialled.
func (c *Client) CheckURL(raw string) (*url.URL, error) { return checkURL(raw, c.allowPrivate) }

func checkURL(raw string, allowPrivate bool) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, badURL(raw[:64]+"…", fmt.Sprintf("longer than %d bytes", maxURL))
	}
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case b <= ' ' || b == 0x7f || b == '\\':
			return nil, badURL(raw, "contains a space, a control character or a backslash; percent-encode it")
		case b >= 0x80:
			return nil, badURL(raw, "is not ASCII; write a host name in its A-label form (xn--…) and percent-encode the rest")
		case b == '#':
			return nil, badURL(raw, "has a fragment; remove the part from # on")
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		if ue, ok := err.(*url.Error); ok { // without the URL, which Error prints itself
			err = ue.Err
		}
		return nil, badURL(raw, err.Error())
	}
	switch {
	case u.Scheme == "http" && !allowPrivate:
		return nil, badURL(raw, "http is not allowed; use https, or set allow_private_addresses = true for a network of your own")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badURL(raw, "the scheme must be https")
	case u.Opaque != "" || u.Host == "":
		return nil, badURL(raw, "has no host; write it as https://host/…")
	case u.User != nil:
		return nil, badURL(raw, "has user information; remove the part before @")
	}
	host, port, err := splitHost(u)
	if err != nil {
		return nil, badURL(raw, err.Error())
	}
	if port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return nil, badURL(raw, "the port must be a number from 1 to 65535 without leading zeros")
		}
		if (u.Scheme == "https" && port == "443") || (u.Scheme == "http" && port == "80") {
			port = ""
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if err := checkLiteral(addr, host, u.Scheme, allowPrivate); err != nil {
			err.URL = redact(raw)
			return nil, err
		}
		host = addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
	} else {
		host = strings.ToLower(host)
		if err := checkName(host); err != nil {
			return nil, badURL(raw, err.Error())
		}
		if (host == "localhost" || strings.HasSuffix(host, ".localhost")) && !allowPrivate {
			return nil, &Error{Kind: Blocked, URL: redact(raw), Err: fmt.Errorf("host %s is this machine; %s", host, allowHint)}
		}
	}
	u.Host = host
	if port != "" {
		u.Host += ":" + port
	}
	return u, nil
}

// splitHost takes u.Host apart. url.URL's own Hostname and Port forgive too much: "host:" and "::1" pass there.
func splitHost(u *url.URL) (host, port string, err error) {
	host = u.Host
	if rest, ok := strings.CutPrefix(host, "["); ok {
		host, rest, ok = strings.Cut(rest, "]")
		if !ok || (rest != "" && rest[0] != ':') || !strings.Contains(host, ":") {
			return "", "", fmt.Errorf("the host is not an IPv6 address in brackets")
		}
		if rest == ":" {
			return "", "", fmt.Errorf("the port is empty; remove the colon")
		}
		if _, err := netip.ParseAddr(host); err != nil {
			return "", "", fmt.Errorf("the host is not an IPv6 address: %w", err)
		}
		return host, strings.TrimPrefix(rest, ":"), nil
	}
	host, port, colon := strings.Cut(host, ":")
	if colon && port == "" {
		return "", "", fmt.Errorf("the port is empty; remove the colon")
	}
	return host, port, nil
}

// checkLiteral judges a literal address early, so that the operator sees it before anything is dialled.
func checkLiteral(addr netip.Addr, host, scheme string, allowPrivate bool) *Error {
	switch {
	case addr.Zone() != "":
		return &Error{Kind: BadURL, Err: fmt.Errorf("the address %s has a zone, which means something on one machine only", host)}
	case addr.Is4In6():
		return &Error{Kind: BadURL, Err: fmt.Errorf("write the IPv4 address %s itself", addr.Unmap())}
	}
	return judge(addr, host, scheme == "http", allowPrivate)
}

// checkName accepts host names of letters, digits and hyphens in lower case. A last label that is a number is
// refused: resolvers read 127.1, 0x7f.1 and 2130706433 as IPv4 addresses.
func checkName(host string) error {
	if host == "" || len(host) > 253 {
		return fmt.Errorf("the host name must have 1 to 253 characters")
	}
	if strings.HasSuffix(host, ".") {
		return fmt.Errorf("the host name ends with a dot; remove it")
	}
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return fmt.Errorf("each label of the host name must have 1 to 63 characters and no hyphen at its ends")
		}
		for i := 0; i < len(l); i++ {
			if b := l[i]; !(b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-') {
				return fmt.Errorf("the host name may hold letters, digits, hyphens and dots only, not %q", b)
			}
		}
	}
	last := labels[len(labels)-1]
	if strings.Trim(last, "0123456789") == "" || (strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "") {
		return fmt.Errorf("the host looks like an address in an unusual form; write it as four decimal numbers")
	}
	return nil
}

func badURL(raw, why string) *Error {
	return &Error{Kind: BadURL, URL: redact(raw), Err: fmt.Errorf("%s", why)}
}

// redact leaves out of a URL what may be secret (query, user information), and keeps it printable and short.
func redact(raw string) string {
	s, _, cut := strings.Cut(raw, "?")
	if i := strings.Index(s, "://"); i >= 0 {
		authority, path, slash := strings.Cut(s[i+3:], "/")
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			authority = "…@" + authority[at+1:]
		}
		s = s[:i+3] + authority
		if slash {
			s += "/" + path
		}
	}
	if len(s) > 256 {
		s, cut = s[:256], true
	}
	if cut {
		s += "…"
	}
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}
