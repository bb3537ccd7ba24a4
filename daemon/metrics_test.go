package daemon

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/witan-adp/witan/config"
)

// Metrics are for the local network. Behind a proxy on this machine, a stranger whom the proxy
// names is none of it, whatever else the stranger says; nor is a page in somebody's browser.
func TestMetricsAreLocal(t *testing.T) {
	behind := start(t, setup{change: func(c *config.Config) {
		c.P2P.Enabled = false
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}})
	alone := start(t, setup{change: func(c *config.Config) { c.P2P.Enabled = false }})
	const stranger = "203.0.113.5"
	for _, tt := range []struct {
		what   string
		d      *running
		header http.Header
		status int
	}{
		{"from this machine", alone, nil, 200},
		{"through a proxy that is not trusted", alone, http.Header{"X-Forwarded-For": {"10.0.0.1"}}, 404},
		{"from the machine of the proxy", behind, nil, 200},
		{"from the network of the proxy", behind, http.Header{"X-Forwarded-For": {"10.1.2.3"}}, 200},
		{"a stranger", behind, http.Header{"X-Forwarded-For": {stranger}}, 404},
		{"a stranger with a claim of its own", behind, http.Header{"X-Forwarded-For": {"127.0.0.1, " + stranger}}, 404},
		{"a stranger who adds the other header", behind, http.Header{"X-Forwarded-For": {stranger}, "Forwarded": {"for=198.51.100.7"}}, 404},
		{"a stranger who spoils the header", behind, http.Header{"Forwarded": {`for=1.1.1.1;x=", for=` + stranger}}, 404},
		{"a stranger whom the proxy hides", behind, http.Header{"Forwarded": {"for=unknown"}}, 404},
		{"a proxy that names nobody", behind, http.Header{"X-Forwarded-For": {""}}, 404},
	} {
		t.Run(tt.what, func(t *testing.T) {
			req, err := http.NewRequest("GET", tt.d.origin+"/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, values := range tt.header {
				req.Header[name] = values
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
			}
			if tt.status == 200 && (resp.Header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(resp.Header.Get("Cache-Control"), "no-store")) {
				t.Errorf("pages of other origins, or caches, may have it: %v", resp.Header)
			}
		})
	}
}
