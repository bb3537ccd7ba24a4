package web

import (
	"net/http/httptest"
	"net/netip"
	"testing"
)

func testProxies() proxies {
	return newProxies([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("::ffff:192.168.7.0/120"),
	})
}

func TestClientBehindProxies(t *testing.T) {
	for _, tt := range []struct {
		name, peer     string
		xff, forwarded []string
		want           string
	}{
		{"direct", "203.0.113.5:999", nil, nil, "203.0.113.5"},
		{"direct IPv6 with zone", "[fe80::1%eth0]:999", nil, nil, "fe80::1"},
		{"direct, mapped", "[::ffff:203.0.113.5]:999", nil, nil, "203.0.113.5"},
		{"no IP", "@", nil, nil, ""},
		{"untrusted peer is not believed", "203.0.113.5:1", []string{"1.1.1.1"}, []string{"for=1.1.1.1"}, "203.0.113.5"},
		{"no IP is not believed", "", []string{"1.1.1.1"}, nil, ""},
		{"proxy itself", "10.0.0.1:1", nil, nil, "10.0.0.1"},
		{"one hop", "10.0.0.1:1", []string{"203.0.113.5"}, nil, "203.0.113.5"},
		{"mapped proxy", "[::ffff:10.0.0.1]:1", []string{"203.0.113.5"}, nil, "203.0.113.5"},
		{"mapped prefix", "192.168.7.9:1", []string{"203.0.113.5"}, nil, "203.0.113.5"},
		{"beside mapped prefix", "192.168.8.9:1", []string{"203.0.113.5"}, nil, "192.168.8.9"},
		{"claim on the left", "10.0.0.1:1", []string{"1.1.1.1, 203.0.113.5"}, nil, "203.0.113.5"},
		{"claim of a trusted address", "10.0.0.1:1", []string{"10.0.0.9,203.0.113.5"}, nil, "203.0.113.5"},
		{"chain", "10.0.0.1:1", []string{"1.1.1.1, 203.0.113.5,10.0.0.3 , 10.0.0.2"}, nil, "203.0.113.5"},
		{"chain over lines", "10.0.0.1:1", []string{"1.1.1.1", "203.0.113.5", "10.0.0.2"}, nil, "203.0.113.5"},
		{"all trusted", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, nil, "10.0.0.3"},
		{"empty elements", "10.0.0.1:1", []string{" , 203.0.113.5,, "}, nil, "203.0.113.5"},
		{"empty", "10.0.0.1:1", []string{""}, nil, "10.0.0.1"},
		{"port", "10.0.0.1:1", []string{"203.0.113.5:4711"}, nil, "203.0.113.5"},
		{"IPv6", "[fd00::1]:1", []string{"2001:db8::5"}, nil, "2001:db8::5"},
		{"IPv6 in brackets", "10.0.0.1:1", []string{"[2001:db8::5]"}, nil, "2001:db8::5"},
		{"IPv6 with port", "10.0.0.1:1", []string{"[2001:db8::5]:80"}, nil, "2001:db8::5"},
		{"mapped hop", "10.0.0.1:1", []string{"::ffff:203.0.113.5"}, nil, "203.0.113.5"},
		{"malformed right", "10.0.0.1:1", []string{"203.0.113.5, nonsense"}, nil, "10.0.0.1"},
		{"malformed left", "10.0.0.1:1", []string{"nonsense, 203.0.113.5"}, nil, "203.0.113.5"},
		{"malformed behind a proxy", "10.0.0.1:1", []string{"1.1.1.1, unknown, 10.0.0.2"}, nil, "10.0.0.2"},
		{"zone", "10.0.0.1:1", []string{"fe80::1%1"}, nil, "10.0.0.1"},
		{"bad port", "10.0.0.1:1", []string{"203.0.113.5:http"}, nil, "10.0.0.1"},
		{"no port", "10.0.0.1:1", []string{"203.0.113.5:"}, nil, "10.0.0.1"},
		{"IPv4 in brackets", "10.0.0.1:1", []string{"[203.0.113.5]"}, nil, "10.0.0.1"},
		{"open bracket", "10.0.0.1:1", []string{"[2001:db8::5"}, nil, "10.0.0.1"},
		{"after bracket", "10.0.0.1:1", []string{"[2001:db8::5]x"}, nil, "10.0.0.1"},

		{"Forwarded", "10.0.0.1:1", nil, []string{"for=203.0.113.5;proto=https;by=10.0.0.1"}, "203.0.113.5"},
		{"Forwarded, any case and order", "10.0.0.1:1", nil, []string{"proto=https ; FOR=\"203.0.113.5\";"}, "203.0.113.5"},
		{"Forwarded IPv6", "10.0.0.1:1", nil, []string{`for="[2001:db8::5]:4711"`}, "2001:db8::5"},
		{"Forwarded, hidden port", "10.0.0.1:1", nil, []string{`for="203.0.113.5:_web"`}, "203.0.113.5"},
		{"Forwarded chain", "10.0.0.1:1", nil, []string{"for=1.1.1.1, for=203.0.113.5;host=a", `for=10.0.0.3,for="10.0.0.2"`}, "203.0.113.5"},
		{"Forwarded, escaped", "10.0.0.1:1", nil, []string{`for="203.0.113\.5"`}, "203.0.113.5"},
		{"Forwarded, comma in quotes", "10.0.0.1:1", nil, []string{`for=203.0.113.5;host="a,for=1.1.1.1"`}, "203.0.113.5"},
		{"Forwarded, unknown", "10.0.0.1:1", nil, []string{"for=1.1.1.1, for=unknown"}, "10.0.0.1"},
		{"Forwarded, hidden", "10.0.0.1:1", nil, []string{"for=1.1.1.1, for=_abc, for=10.0.0.2"}, "10.0.0.2"},
		{"Forwarded without for", "10.0.0.1:1", nil, []string{"for=1.1.1.1, proto=http"}, "10.0.0.1"},
		{"Forwarded, twice for", "10.0.0.1:1", nil, []string{"for=1.1.1.1;for=203.0.113.5"}, "10.0.0.1"},
		{"open quote swallows nothing", "10.0.0.1:1", nil, []string{`for=1.1.1.1;x=", for=203.0.113.5`}, "10.0.0.1"},
		{"open quote meets a quote", "10.0.0.1:1", nil, []string{`for=1.1.1.1;x="`, `for="[2001:db8::5]"`}, "10.0.0.1"},
		{"Forwarded, space in pair", "10.0.0.1:1", nil, []string{"for = 203.0.113.5"}, "10.0.0.1"},
		{"Forwarded, no value", "10.0.0.1:1", nil, []string{"for="}, "10.0.0.1"},
		{"Forwarded, escape at the end", "10.0.0.1:1", nil, []string{`for="1.1.1.1\`}, "10.0.0.1"},
		{"Forwarded, bare IPv6", "10.0.0.1:1", nil, []string{"for=2001:db8::5"}, "10.0.0.1"},
		{"Forwarded, empty", "10.0.0.1:1", nil, []string{" ,, "}, "10.0.0.1"},

		{"both agree", "10.0.0.1:1", []string{"203.0.113.5"}, []string{"for=203.0.113.5"}, "203.0.113.5"},
		{"both disagree", "10.0.0.1:1", []string{"203.0.113.5"}, []string{"for=1.1.1.1"}, "10.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = tt.peer
			r.Header["X-Forwarded-For"], r.Header["Forwarded"] = tt.xff, tt.forwarded
			want := netip.Addr{}
			if tt.want != "" {
				want = netip.MustParseAddr(tt.want)
			}
			if got, _ := testProxies().client(r); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// What a client puts in front never decides: the hop that the proxy appended
// is the client, or the proxy itself is when nothing can be told.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{"", "1.1.1.1", "for=1.1.1.1", `for=1.1.1.1;x="`, `x="\`, `"`, ",", ";", `for="[::1]:80"`, "for=1.1.1.1;for"} {
		f.Add(s)
	}
	p := testProxies()
	peer := netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, claim string) {
		for _, tt := range []struct{ xff, forwarded, real string }{
			{claim + ", 203.0.113.5", "", "203.0.113.5"},
			{"", claim + ", for=203.0.113.5", "203.0.113.5"},
			{"", claim + `, for="[2001:db8::5]"`, "2001:db8::5"},
			{claim + ",203.0.113.5", claim, "203.0.113.5"},
		} {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = "10.0.0.1:1"
			if tt.xff != "" {
				r.Header.Set("X-Forwarded-For", tt.xff)
			}
			if tt.forwarded != "" {
				r.Header.Set("Forwarded", tt.forwarded)
			}
			got, known := p.client(r)
			if got != peer && got != netip.MustParseAddr(tt.real) || got == peer && known {
				t.Errorf("%q %q: %v, known: %v", tt.xff, tt.forwarded, got, known)
			}
			if tt.forwarded == "" && got == peer {
				t.Errorf("%q hides the client", tt.xff)
			}
		}
	})
}
