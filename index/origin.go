package index

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// host reads the parameter host, which is an origin, or an authority of
// whichever scheme; origin is another name of it.
func (f *filter) host(p *params) {
	if p.q.Has("host") && p.q.Has("origin") {
		p.refuse("origin", "means the same as \"host\"; give one of them.")
		return
	}
	for _, name := range []string{"host", "origin"} {
		s, ok := p.text(name)
		if !ok {
			continue
		}
		origins := Origins(s)
		if origins == nil {
			p.refuse(name, "is neither an origin like https://example.org nor an authority like example.org:8443.")
		}
		f.origins = append(f.origins, origins...)
	}
}

// Origins writes an origin as the daemon writes origins (federation:
// Origins, keys): lower case, no default port. An authority makes two. nil is a
// text that is neither.
func Origins(s string) []string {
	scheme, authority, ok := strings.Cut(s, "://")
	if !ok {
		scheme, authority = "", s
	} else if scheme = strings.ToLower(scheme); scheme != "https" && scheme != "http" {
		return nil
	}
	u, err := url.Parse("//" + strings.TrimSuffix(authority, "/"))
	if err != nil || u.User != nil || u.Path != "" || strings.ContainsAny(authority, "?#@") {
		return nil
	}
	host := strings.ToLower(u.Hostname())
	if strings.HasPrefix(u.Host, "[") {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return nil
		}
		host = "[" + addr.String() + "]"
	} else if !isHostName(host) {
		return nil
	}
	port := u.Port()
	if strings.HasSuffix(u.Host, ":") {
		return nil
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil
		}
		port = strconv.FormatUint(n, 10)
	}
	var origins []string
	for _, known := range []struct{ scheme, port string }{{"https", "443"}, {"http", "80"}} {
		if scheme != "" && scheme != known.scheme {
			continue
		}
		o := known.scheme + "://" + host
		if port != "" && port != known.port {
			o += ":" + port
		}
		origins = append(origins, o)
	}
	return origins
}

func isHostName(s string) bool {
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return s != ""
}
