package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// serve starts a loopback server and returns a client that may reach it.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, *Client) {
	t.Helper()
	s := httptest.NewServer(h)
	c := New(Options{AllowPrivate: true, UserAgent: "witan/test"})
	t.Cleanup(func() { c.CloseIdle(); s.Close() })
	return s, c
}

func wantKind(t *testing.T, err error, want Kind) *Error {
	t.Helper()
	if KindOf(err) != want {
		t.Fatalf("error %v is of kind %q, want %q", err, KindOf(err), want)
	}
	return err.(*Error)
}

func TestDo(t *testing.T) {
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for k, want := range map[string]string{"User-Agent": "witan/test", "Accept-Encoding": "gzip", "Accept": "application/json", "If-None-Match": `"1"`, "X-One": "1"} {
			if got := r.Header.Get(k); got != want {
				t.Errorf("header %s = %q, want %q", k, got, want)
			}
		}
		w.Header().Set("Content-Type", "application/JSON; charset=utf-8")
		w.WriteHeader(201)
		fmt.Fprintf(w, "%s %s", r.Method, body)
	})
	resp, err := c.Do(context.Background(), Request{Method: "POST", URL: s.URL + "/x", Body: []byte("hello"), MaxBytes: 10,
		Header: http.Header{"X-One": {"1"}}, ContentType: "application/json", IfNoneMatch: `"1"`})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != 201 || string(resp.Body) != "POST hello" || resp.URL != s.URL+"/x" || resp.Truncated {
		t.Fatalf("got %+v %q", resp, resp.Body)
	}
}

func TestAnyStatusIsAnAnswer(t *testing.T) {
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		if status != 204 && status != 304 {
			io.WriteString(w, "0123456789")
		}
	})
	for _, status := range []int{204, 301, 304, 400, 404, 429, 500, 503} {
		resp, err := c.Do(context.Background(), Request{URL: fmt.Sprint(s.URL, "/", status), MaxBytes: 4, ContentType: "application/json"})
		if err != nil || resp.Status != status {
			t.Fatalf("status %d: %+v, %v", status, resp, err)
		}
		if hasBody := status != 204 && status != 304; resp.Truncated != hasBody || (hasBody && string(resp.Body) != "0123") {
			t.Fatalf("status %d: body %q, truncated %v", status, resp.Body, resp.Truncated)
		}
	}
}

func TestNoRedirect(t *testing.T) {
	asked := 0
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	resp, err := c.Do(context.Background(), Request{Method: "POST", URL: s.URL, Body: []byte("x"), MaxBytes: 1 << 10, NoRedirect: true})
	if err != nil || resp.Status != http.StatusTemporaryRedirect || resp.Header.Get("Location") != "/elsewhere" || resp.URL != s.URL || asked != 1 {
		t.Errorf("%+v, %v, asked %d times", resp, err, asked)
	}
}

func TestNoBody(t *testing.T) {
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			io.WriteString(w, strings.Repeat("x", 1<<20))
		case "/cut":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "x")
		case "/coded":
			w.Header().Set("Content-Encoding", "br")
		}
	})
	for _, path := range []string{"/", "/long", "/cut", "/coded"} {
		resp, err := c.Do(context.Background(), Request{Method: "POST", URL: s.URL + path, MaxBytes: 10, NoBody: true})
		if err != nil || resp.Status != 200 || resp.Body != nil {
			t.Errorf("%s: %+v, %v", path, resp, err)
		}
	}
}

func TestBlockedAddresses(t *testing.T) {
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was reached") })
	port := s.Listener.Addr().(*net.TCPAddr).Port
	resolver := func(addrs ...string) func(context.Context, string) ([]netip.Addr, error) {
		return func(context.Context, string) (out []netip.Addr, _ error) {
			for _, a := range addrs {
				out = append(out, netip.MustParseAddr(a))
			}
			return out, nil
		}
	}
	for _, tt := range []struct {
		name  string
		allow bool
		url   string
		addrs []string
		text  string
	}{
		{"loopback by name", false, "https://host.example", []string{"127.0.0.1"}, "address 127.0.0.1 of host host.example is not public; set allow_private_addresses"},
		{"all candidates are judged", false, "https://host.example", []string{"10.0.0.1", "::1", "::ffff:127.0.0.1"}, "address 10.0.0.1"},
		{"metadata service", true, "http://host.example", []string{"169.254.169.254"}, "special kind"},
		{"plain http to a public address", true, "http://host.example", []string{"8.8.8.8"}, "use https"},
		{"literal", false, "https://127.0.0.1", nil, "allow_private_addresses"},
		{"nat64", false, "https://host.example", []string{"64:ff9b::127.0.0.1"}, "special kind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{AllowPrivate: tt.allow, Resolver: resolver(tt.addrs...)})
			c.dial = func(_ context.Context, _, address string) (net.Conn, error) {
				t.Errorf("dialled %s", address)
				return nil, io.EOF
			}
			_, err := c.Do(context.Background(), Request{URL: fmt.Sprintf("%s:%d/", tt.url, port), MaxBytes: 1})
			if e := wantKind(t, err, Blocked); !strings.Contains(e.Error(), tt.text) {
				t.Errorf("text %q lacks %q", e, tt.text)
			}
		})
	}
}

// A name that first leads to a public address and then to loopback is dialled only at what was judged in that very dial.
func TestRebinding(t *testing.T) {
	var lookups int
	var dialled []string
	c := New(Options{Resolver: func(context.Context, string) ([]netip.Addr, error) {
		lookups++
		if lookups == 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("8.8.8.8")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	c.dial = func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return nil, &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}
	}
	_, err := c.Do(context.Background(), Request{URL: "https://host.example/", MaxBytes: 1})
	wantKind(t, err, Unreachable)
	_, err = c.Do(context.Background(), Request{URL: "https://host.example/", MaxBytes: 1})
	wantKind(t, err, Blocked)
	if lookups != 2 || len(dialled) != 1 || dialled[0] != "8.8.8.8:443" {
		t.Fatalf("%d lookups, dialled %v", lookups, dialled)
	}
}

// A dead first address does not hide a live second one, and the list is bounded.
func TestCandidates(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	many := make([]netip.Addr, 0, 100)
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{127, 1, 1, byte(i)}))
	}
	addrs := []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:127.0.0.1")}
	c := New(Options{AllowPrivate: true, Resolver: func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "many.example" {
			return many, nil
		}
		return addrs, nil
	}})
	defer c.CloseIdle()
	var tried int
	real := c.dial
	c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		tried++
		if strings.HasPrefix(address, "127.0.0.1:") {
			return real(ctx, network, address)
		}
		return nil, &net.OpError{Op: "dial", Err: io.ErrClosedPipe}
	}
	port := s.Listener.Addr().(*net.TCPAddr).Port
	resp, err := c.Do(context.Background(), Request{URL: fmt.Sprintf("http://host.example:%d", port), MaxBytes: 9})
	if err != nil || string(resp.Body) != "ok" || tried != 2 {
		t.Fatalf("%v, %v, %d tried", resp, err, tried)
	}
	tried = 0
	_, err = c.Do(context.Background(), Request{URL: fmt.Sprintf("http://many.example:%d", port), MaxBytes: 9})
	if wantKind(t, err, Unreachable); tried != maxCandidates {
		t.Fatalf("%d candidates tried, want %d", tried, maxCandidates)
	}
}

func TestRedirects(t *testing.T) {
	other, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the other origin was contacted") })
	var seen []string
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, fmt.Sprintf("%s %s %s", r.Method, r.URL, body))
		to := map[string]string{
			"/same": "end?x=1#frag", "/other": other.URL + "/x", "/loop": "/loop", "/userinfo": "http://u:p@" + r.Host + "/end", "/scheme": "https://" + r.Host + "/end",
			"/file": "file:///etc/passwd", "/bad": "http://[::1", "/see": "/end", "/keep": "/end", "/five": "/6", "/6": "/7", "/7": "/8", "/8": "/9", "/9": "/end",
			"/link-local": "http://169.254.169.254/latest",
		}[r.URL.Path]
		if to == "" {
			io.WriteString(w, "end")
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(map[string]int{"/see": 303, "/keep": 307}[r.URL.Path] + map[bool]int{true: 302}[r.URL.Path != "/see" && r.URL.Path != "/keep"])
	})
	for _, tt := range []struct {
		method, path string
		kind         Kind
		last         string
	}{
		{"GET", "/same", "", "GET /end?x=1 b"},
		{"GET", "/five", "", "GET /end b"},
		{"POST", "/see", "", "GET /end "},
		{"POST", "/keep", "", "POST /end b"},
		{"POST", "/same", BadRedirect, "POST /same b"},
		{"GET", "/other", BadRedirect, "GET /other b"},
		{"GET", "/loop", BadRedirect, "GET /loop b"},
		{"GET", "/userinfo", BadRedirect, "GET /userinfo b"},
		{"GET", "/scheme", BadRedirect, "GET /scheme b"},
		{"GET", "/file", BadRedirect, "GET /file b"},
		{"GET", "/bad", BadRedirect, "GET /bad b"},
		{"GET", "/link-local", BadRedirect, "GET /link-local b"},
	} {
		seen = nil
		resp, err := c.Do(context.Background(), Request{Method: tt.method, URL: s.URL + tt.path, Body: []byte("b"), MaxBytes: 10})
		if KindOf(err) != tt.kind {
			t.Errorf("%s %s: %v, want kind %q", tt.method, tt.path, err, tt.kind)
		}
		if last := seen[len(seen)-1]; last != tt.last {
			t.Errorf("%s %s ended with %q, want %q", tt.method, tt.path, last, tt.last)
		}
		if len(seen) > maxRedirects+1 {
			t.Errorf("%s: %d requests", tt.path, len(seen))
		}
		if err == nil && tt.path == "/same" && resp.URL != s.URL+"/end?x=1" {
			t.Errorf("URL after the redirect is %q", resp.URL)
		}
	}
}

func zipped(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

func TestBodyBounds(t *testing.T) {
	bomb := zipped(make([]byte, 8<<20))
	empty := zipped(nil)
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		switch r.URL.Path {
		case "/exact":
			io.WriteString(w, strings.Repeat("x", 1000))
		case "/declared":
			h.Set("Content-Length", "1001")
			io.WriteString(w, strings.Repeat("x", 1001))
		case "/endless":
			for _, err := w.Write(make([]byte, 512)); err == nil; _, err = w.Write(make([]byte, 512)) {
			}
		case "/gzip":
			h.Set("Content-Encoding", "GZIP")
			w.Write(zipped(bytes.Repeat([]byte("x"), 1000)))
		case "/bomb":
			h.Set("Content-Encoding", "gzip")
			h.Set("Retry-After", "7")
			w.Write(bomb)
		case "/members": // decodes to nothing, for ever
			h.Set("Content-Encoding", "gzip")
			for _, err := w.Write(empty); err == nil; _, err = w.Write(empty) {
			}
		case "/notgzip":
			h.Set("Content-Encoding", "gzip")
			io.WriteString(w, strings.Repeat("x", 100))
		case "/cutgzip":
			h.Set("Content-Encoding", "gzip")
			w.Write(zipped(bytes.Repeat([]byte("xyz"), 300))[:20])
		case "/br", "/twice":
			h.Set("Content-Encoding", map[string]string{"/br": "br", "/twice": "gzip, gzip"}[r.URL.Path])
			io.WriteString(w, "x")
		case "/cut":
			h.Set("Content-Length", "100")
			io.WriteString(w, "x")
		case "/type":
			h.Set("Content-Type", "text/html")
			io.WriteString(w, "x")
		case "/header":
			h.Set("X-Huge", strings.Repeat("x", maxHeader+8192))
		}
	})
	for path, kind := range map[string]Kind{"/exact": "", "/gzip": "", "/declared": TooLarge, "/endless": TooLarge, "/bomb": TooLarge, "/members": TooLarge,
		"/notgzip": Broken, "/cutgzip": Broken, "/br": BadContentType, "/twice": BadContentType, "/cut": Broken, "/header": TooLarge, "/type": BadContentType} {
		want := ""
		if path == "/type" {
			want = "application/json"
		}
		resp, err := c.Do(context.Background(), Request{URL: s.URL + path, MaxBytes: 1000, ContentType: want})
		if KindOf(err) != kind {
			t.Errorf("%s: %v is of kind %q, want %q", path, err, KindOf(err), kind)
			continue
		}
		if kind == "" && (len(resp.Body) != 1000 || resp.Truncated) {
			t.Errorf("%s: %d bytes", path, len(resp.Body))
		}
		if path == "/bomb" && err.(*Error).RetryAfter != 7*time.Second {
			t.Errorf("RetryAfter = %v", err.(*Error).RetryAfter)
		}
	}
	_, err := c.Do(context.Background(), Request{URL: s.URL})
	wantKind(t, err, BadRequest)
	_, err = c.Do(context.Background(), Request{URL: s.URL, MaxBytes: 1, Method: "GET\r\nX: y"})
	wantKind(t, err, BadRequest)
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	c := New(Options{AllowPrivate: true})
	defer c.CloseIdle()
	_, err := c.Do(context.Background(), Request{URL: s.URL, MaxBytes: 100})
	wantKind(t, err, TLS)

	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	c.short.https.TLSClientConfig.RootCAs = pool
	resp, err := c.Do(context.Background(), Request{URL: s.URL, MaxBytes: 100})
	if err != nil || string(resp.Body) != "HTTP/2.0" {
		t.Fatalf("%v, %v", resp, err)
	}

	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.Config.ErrorLog = s.Config.ErrorLog
	old.StartTLS()
	defer old.Close()
	_, err = c.Do(context.Background(), Request{URL: old.URL, MaxBytes: 100})
	wantKind(t, err, TLS)

	plain, c := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, err = c.Do(context.Background(), Request{URL: "https://" + Authority(plain.URL), MaxBytes: 100})
	wantKind(t, err, TLS)
}

func TestRefusedUnreachableBroken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	c := New(Options{AllowPrivate: true, Resolver: func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "empty.example" {
			return nil, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}})
	defer c.CloseIdle()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			io.WriteString(conn, "SSH-2.0-OpenSSH\r\n\r\n")
			conn.Close()
		}
	}()
	_, err = c.Do(context.Background(), Request{URL: url, MaxBytes: 1})
	wantKind(t, err, Broken)
	l.Close()
	// A port that nobody listens on: that of l may be somebody else's by now.
	_, err = c.Do(context.Background(), Request{URL: "http://127.0.0.1:1", MaxBytes: 1})
	wantKind(t, err, Refused)
	for _, host := range []string{"none.example", "empty.example"} {
		_, err = c.Do(context.Background(), Request{URL: "https://" + host, MaxBytes: 1})
		wantKind(t, err, Unreachable)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = c.Do(ctx, Request{URL: url, MaxBytes: 1})
	wantKind(t, err, Canceled)
}

func TestNoProxyNoCookies(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) != 0 {
			t.Errorf("cookies %v", r.Cookies())
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
	})
	for range 2 {
		if _, err := c.Do(context.Background(), Request{URL: s.URL, MaxBytes: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tr := range []*http.Transport{c.short.http, c.short.https, c.long.http, c.long.https} {
		if tr.Proxy != nil {
			t.Error("a transport reads a proxy")
		}
	}
}

func TestMetricsAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "12345") })
	for range 2 { // the second client shares the first one's metrics
		c := New(Options{AllowPrivate: true, Registerer: reg})
		for i := range 3 {
			if _, err := c.Do(context.Background(), Request{URL: fmt.Sprint(s.URL, "/", i), MaxBytes: 9}); err != nil {
				t.Fatal(err)
			}
		}
		c.Do(context.Background(), Request{URL: "ftp://x", MaxBytes: 9})
		c.CloseIdle()
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{"witan_fetch_exchanges_total result=2xx": 6, "witan_fetch_exchanges_total result=bad_url": 2, "witan_fetch_received_bytes_total": 30} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v (all: %v)", name, got[name], want, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("series %v", got)
	}
}
