package web

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

func guardedServer(g *Guard, mux *Mux) http.Handler {
	if g.Log == nil {
		g.Log = quiet()
	}
	if g.Origin == "" {
		g.Origin = "http://example.com"
	}
	return g.Wrap(mux)
}

func TestGuardHost(t *testing.T) {
	for _, tt := range []struct {
		origin, host, path string
		ok                 bool
	}{
		{"https://adp.example", "adp.example", "/", true},
		{"https://adp.example", "ADP.Example", "/", true},
		{"https://adp.example", "adp.example:443", "/", true},
		{"https://ADP.example:443", "adp.example", "/", true},
		{"https://adp.example", "adp.example:", "/", true},
		{"https://adp.example", "adp.example:80", "/", false},
		{"https://adp.example", "adp.example:8443", "/", false},
		{"https://adp.example:8443", "adp.example:8443", "/", true},
		{"https://adp.example:8443", "adp.example", "/", false},
		{"http://adp.example", "adp.example:80", "/", true},
		{"http://adp.example", "adp.example:443", "/", false},
		{"http://[::1]:8080", "[::1]:8080", "/", true},
		{"http://[::1]", "[::1]:80", "/", true},
		{"https://adp.example", "evil.example", "/", false},
		{"https://adp.example", "adp.example.evil.example", "/", false},
		{"https://adp.example", "127.0.0.1", "/", false},
		{"https://adp.example", "", "/", false},
		{"https://adp.example", "127.0.0.1:9000", "/healthz", true},
		{"https://adp.example", "127.0.0.1:9000", "/healthz/x", false},
	} {
		t.Run(tt.origin+" "+tt.host+tt.path, func(t *testing.T) {
			called := false
			g := &Guard{Origin: tt.origin, ExemptHost: []string{"/healthz"}, Log: quiet()}
			h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
			r := httptest.NewRequest("GET", tt.path, nil)
			r.Host = tt.host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if called != tt.ok {
				t.Fatalf("passed: %v", called)
			}
			if !tt.ok && (w.Code != 421 || !strings.HasPrefix(w.Body.String(), `{"error":{"code":"invalid_request","message":"This server answers for `+tt.origin+` only;`) ||
				!strings.HasSuffix(w.Body.String(), `"data":{"origin":"`+tt.origin+`"}}}`)) {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestGuardBadOrigin(t *testing.T) {
	for _, origin := range []string{"", "adp.example", "ftp://x", "https://", "://"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("origin %q was taken", origin)
				}
			}()
			(&Guard{Origin: origin}).Wrap(NewMux())
		}()
	}
}

func TestGuardHeadersOnEveryAnswer(t *testing.T) {
	m := NewMux()
	m.Handle("GET", "/ok", func(w http.ResponseWriter, _ *http.Request) error { WriteRaw(w, 200, []byte("{}")); return nil })
	m.Handle("GET", "/panic", func(http.ResponseWriter, *http.Request) error { panic("x") })
	h := guardedServer(&Guard{Rate: 1e-9, Burst: 5}, m)
	for _, tt := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/ok", "", 200}, {"GET", "/none", "", 404}, {"GET", "/panic", "", 500}, {"GET", "/ok", "evil", 421},
		{"OPTIONS", "/ok", "", 204}, {"GET", "/ok", "", 429},
	} {
		r := httptest.NewRequest(tt.method, tt.path, nil)
		if tt.host != "" {
			r.Host = tt.host
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.status)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*", "Content-Security-Policy": "",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%d: %s: %q, want %q", tt.status, name, got, want)
			}
		}
		if tt.status == 204 && (w.Body.Len() > 0 || w.Header().Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, If-None-Match, If-Range, Range" ||
			!strings.Contains(w.Header().Get("Access-Control-Allow-Methods"), "PUT")) {
			t.Errorf("preflight: %v %s", w.Header(), w.Body)
		}
	}
}

// What somebody gets who has said who they are is for them, unless the handler knows
// that everybody gets the same.
func TestGuardCachesNothingForOne(t *testing.T) {
	m := NewMux()
	m.Handle("GET", "/mine", func(w http.ResponseWriter, _ *http.Request) error { WriteJSON(w, 200, 1); return nil })
	m.Handle("GET", "/public", func(w http.ResponseWriter, r *http.Request) error {
		WriteTagged(w, r, CacheAsk, []byte("{}"))
		return nil
	})
	h := guardedServer(&Guard{}, m)
	for _, tt := range []struct{ path, token, want string }{
		{"/mine", "Bearer x", CacheNever}, {"/mine", "", ""}, {"/public", "Bearer x", CacheAsk}, {"/none", "Bearer x", "no-store"},
	} {
		r := httptest.NewRequest("GET", tt.path, nil)
		if tt.token != "" {
			r.Header.Set("Authorization", tt.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Cache-Control"); got != tt.want {
			t.Errorf("%s with %q: Cache-Control %q, want %q", tt.path, tt.token, got, tt.want)
		}
	}
}

func TestGuardPanic(t *testing.T) {
	var logged bytes.Buffer
	m := NewMux()
	m.Handle("GET", "/early", func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Length", "3")
		panic("the secret reason")
	})
	m.Handle("GET", "/late", func(w http.ResponseWriter, _ *http.Request) error {
		_, _ = io.WriteString(w, "[1,")
		panic("the secret reason")
	})
	h := guardedServer(&Guard{Log: slog.New(slog.NewTextHandler(&logged, nil))}, m)

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/early", nil))
	body := w.Body.String()
	if w.Code != 500 || !strings.HasPrefix(body, `{"error":{"code":"internal"`) || strings.Contains(body, "secret") || w.Header().Get("Content-Length") != fmt.Sprint(len(body)) {
		t.Errorf("got %d %s", w.Code, body)
	}
	_, rest, _ := strings.Cut(body, `"request_id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if log := logged.String(); id == "" || !strings.Contains(log, "request_id="+id) || !strings.Contains(log, "secret reason") || !strings.Contains(log, "guard_test.go") {
		t.Errorf("log lacks id, reason or stack: %s", log)
	}

	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("a panic in the middle of an answer: %v, want the connection cut", p)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/late", nil))
}

func TestGuardRateBeforeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMux()
		m.Handle("POST", "/", func(w http.ResponseWriter, _ *http.Request) error { WriteRaw(w, 200, []byte("{}")); return nil })
		h := guardedServer(&Guard{Rate: 0.5, Burst: 2, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, m)
		ask := func(client string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "/", unread{t}) // from 192.0.2.1
			r.Header.Set("X-Forwarded-For", client)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		steps := []struct {
			client string
			sleep  time.Duration
			status int
			retry  string
		}{
			{"203.0.113.1", 0, 200, ""},
			{"203.0.113.1", 0, 200, ""},
			{"203.0.113.1", 0, 429, "2"},
			{"203.0.113.1", 0, 429, "2"}, // a refusal spends nothing
			{"203.0.113.2", 0, 200, ""},
			{"203.0.113.1", 1500 * time.Millisecond, 429, "1"},
			{"203.0.113.1", 500 * time.Millisecond, 200, ""},
			{"203.0.113.1", 0, 429, "2"},
			{"2001:db8:1:1::1", 0, 200, ""},
			{"2001:db8:1:1:ffff::2", 0, 200, ""},
			{"2001:db8:1:1::3", 0, 429, "2"}, // one /64 is one client
			{"2001:db8:1:2::3", 0, 200, ""},
		}
		for i, s := range steps {
			<-time.After(s.sleep) // the fake clock
			w := ask(s.client)
			if w.Code != s.status || w.Header().Get("Retry-After") != s.retry {
				t.Errorf("step %d: %d, Retry-After %q; want %d, %q", i, w.Code, w.Header().Get("Retry-After"), s.status, s.retry)
			}
			if s.status == 429 && !strings.HasPrefix(w.Body.String(), `{"error":{"code":"rate_limited"`) {
				t.Errorf("step %d: %s", i, w.Body)
			}
		}
	})
}

// unread is a body that nobody may touch.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

func TestBucketsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBuckets(1, 1, 3)
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}) }
	for i := range 3 {
		if b.take(addr(i), now) != 0 {
			t.Fatalf("first request of %d refused", i)
		}
	}
	if b.take(addr(0), now) == 0 {
		t.Error("second request let through") // and 0 is now the latest used
	}
	b.take(addr(3), now) // pushes 1 out
	if len(b.byAddr) != 3 || b.order.Len() != 3 || b.byAddr[addr(1)] != nil || b.byAddr[addr(0)] == nil {
		t.Errorf("kept %v", b.byAddr)
	}
	now = now.Add(time.Second) // all are full again: two go for each that comes
	b.take(addr(4), now)
	if len(b.byAddr) != 2 || b.order.Len() != 2 {
		t.Errorf("%d buckets left after a quiet time, %d in order", len(b.byAddr), b.order.Len())
	}
}

func TestGuardRateDefaults(t *testing.T) {
	for _, tt := range []struct {
		limit rate.Limit
		burst int
		want  int
	}{{0, 0, 2000}, {0, 7, 7}, {0.1, 0, 1}, {10, 0, 40}} {
		in := (&Guard{Origin: "http://example.com", Rate: tt.limit, Burst: tt.burst}).Wrap(NewMux()).(*guarded)
		now := time.Now()
		got := 0
		for in.buckets.take(netip.Addr{}, now) == 0 {
			got++
		}
		if got != tt.want {
			t.Errorf("%v, %d: %d at once, want %d", tt.limit, tt.burst, got, tt.want)
		}
	}
	in := (&Guard{Origin: "http://example.com", Rate: rate.Inf}).Wrap(NewMux()).(*guarded)
	for range 5000 {
		if in.buckets.take(netip.Addr{}, time.Time{}) != 0 {
			t.Fatal("rate.Inf refused")
		}
	}
}

func TestClientAddr(t *testing.T) {
	m := NewMux()
	m.Handle("GET", "/", func(w http.ResponseWriter, r *http.Request) error {
		_, err := io.WriteString(w, ClientAddr(r).String())
		return err
	})
	h := guardedServer(&Guard{}, m)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Body.String() != "192.0.2.1" {
		t.Errorf("got %s", w.Body)
	}
	if ClientAddr(httptest.NewRequest("GET", "/", nil)).IsValid() {
		t.Error("an address without a guard")
	}
}

func TestGuardMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := NewMux()
	m.Handle("GET", "/v1/rooms/{room_id}", func(w http.ResponseWriter, _ *http.Request) error { WriteRaw(w, 200, []byte("{}")); return nil })
	m.Handle("GET", "/panic", func(http.ResponseWriter, *http.Request) error { panic("x") })
	m.Handle("GET", "/abort", func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) })
	m.Handle("GET", "/empty", func(http.ResponseWriter, *http.Request) error { return nil })
	for range 2 { // a second guard shares the collectors of the first
		h := guardedServer(&Guard{Registerer: reg}, m)
		for _, target := range []string{"GET /v1/rooms/a", "GET /v1/rooms/b", "HEAD /v1/rooms/c", "PUT /v1/rooms/d", "BREW /v1/rooms/e",
			"GET /secret", "GET /panic", "GET /abort", "GET /empty", "OPTIONS /v1/rooms/a"} {
			method, path, _ := strings.Cut(target, " ")
			func() {
				defer func() { _ = recover() }() // of /abort
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
			}()
		}
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			key := family.GetName()
			for _, label := range metric.GetLabel() { // sorted: method, route, status
				key += " " + label.GetValue()
			}
			if c := metric.GetCounter(); c != nil {
				got[key] = c.GetValue()
			} else {
				got[key] = float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	const answers, seconds = "witan_http_requests_total ", "witan_http_request_duration_seconds "
	want := map[string]float64{
		answers + "GET /v1/rooms/{room_id} 200": 4, answers + "HEAD /v1/rooms/{room_id} 200": 2,
		answers + "PUT /v1/rooms/{room_id} 405": 2, answers + "other /v1/rooms/{room_id} 405": 2,
		answers + "GET none 404": 2, answers + "GET /panic 500": 2, answers + "GET /abort aborted": 2,
		answers + "GET /empty 200": 2, answers + "OPTIONS none 204": 2,
		seconds + "GET /v1/rooms/{room_id}": 4, seconds + "HEAD /v1/rooms/{room_id}": 2,
		seconds + "PUT /v1/rooms/{room_id}": 2, seconds + "other /v1/rooms/{room_id}": 2,
		seconds + "GET none": 2, seconds + "GET /panic": 2, seconds + "GET /abort": 2, seconds + "GET /empty": 2, seconds + "OPTIONS none": 2,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
