package mcpserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
	"github.com/witan-adp/witan/internal/web"
)

// endpoint runs /mcp as a daemon does. The origin of the tools is that of the test server.
func endpoint(t *testing.T, served http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	origin := "http://" + srv.Listener.Addr().String()
	mux := web.NewMux()
	mux.Handle("POST", "/mcp", NewHTTP(Options{Daemon: origin, Version: "1", Key: inspecttest.Key(1)}, served).Serve)
	srv.Config.Handler = (&web.Guard{Origin: origin, Rate: rate.Inf}).Wrap(mux)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func TestHTTPSession(t *testing.T) {
	srv := endpoint(t, api(inspecttest.Room(5, true).Serve()))
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 8 {
		t.Fatalf("%d tools, %v: those that write must not be there, key or not", len(tools.Tools), err)
	}
	if got, _, _ := call(t, s, "verify_room", fields{"room": inspecttest.RoomID}, ""); got["verdict"] != "verified" || !strings.Contains(got["verified_by"].(string), "witan verify") {
		t.Errorf("verify_room: %v", got)
	}
}

func TestHTTPRefuses(t *testing.T) {
	srv := endpoint(t, api(inspecttest.Room(5, true).Serve()))
	const ping = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	post := func(body string, change func(*http.Request)) (int, string) {
		t.Helper()
		req, err := http.NewRequest("POST", srv.URL+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if change != nil {
			change(req)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
		want   string
	}{
		"as it should be":          {ping, nil, 200, `"search_rooms"`},
		"from our own page":        {ping, func(r *http.Request) { r.Header.Set("Origin", srv.URL) }, 200, `"search_rooms"`},
		"from another page":        {ping, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403, "permission_denied"},
		"from an unnamed page":     {ping, func(r *http.Request) { r.Header.Set("Origin", "null") }, 403, "permission_denied"},
		"by a name that is no one": {ping, func(r *http.Request) { r.Host = "evil.example" }, 421, "This server answers for"},
		"too large":                {`{"x":"` + strings.Repeat("x", requestBytes) + `"}`, nil, 413, "payload_too_large"},
		"not JSON":                 {"{", nil, 400, ""},
		"a batch":                  {" [" + ping + "," + ping + "]", nil, 400, "no batches"},
		"a method that is none":    {`{"jsonrpc":"2.0","id":1,"method":"no/such"}`, nil, 400, "no/such"},
		"GET":                      {"", func(r *http.Request) { r.Method, r.Body, r.ContentLength = "GET", nil, 0 }, 405, "POST"},
		"a session that is none":   {ping, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "abc") }, 200, "search_rooms"},
	} {
		status, body := post(c.body, c.change)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %.300s, want %d with %q", name, status, body, c.status, c.want)
		}
	}
}

// An address asks so often, and then as time passes; another one does not pay for it.
func TestHTTPPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHTTP(Options{Daemon: "http://h.example", Version: "1"}, http.NotFoundHandler())
		limited := func(client string) bool {
			r := httptest.NewRequest("POST", "/mcp", strings.NewReader("{"))
			r.RemoteAddr = client + ":1"
			return adp.CodeOf(h.Serve(httptest.NewRecorder(), r)) == adp.RateLimited
		}
		for _, n := range []int{requestsBurst, requestsPerSec} {
			for i := range n {
				if limited("192.0.2.1") {
					t.Fatalf("request %d of %d is refused", i+1, n)
				}
			}
			if !limited("192.0.2.1") {
				t.Error("nothing bounds how often an address asks")
			}
			time.Sleep(time.Second) // of the bubble
		}
		if limited("192.0.2.2") {
			t.Error("another address is refused")
		}
	})
}

// While an address has all its seats taken, it gets no more; a call that nobody waits for any more ends.
func TestHTTPSeats(t *testing.T) {
	began, release := make(chan struct{}, requestsAtATime), make(chan struct{})
	srv := endpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-release
		fmt.Fprint(w, "{}")
	}))
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_hosts","arguments":{}}}`)
	ask := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/mcp", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		return http.DefaultClient.Do(req)
	}
	ended := make(chan error, requestsAtATime)
	for range requestsAtATime {
		go func() {
			resp, err := ask()
			if err == nil {
				resp.Body.Close()
			}
			ended <- err
		}()
	}
	for range requestsAtATime {
		<-began
	}
	resp, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more was answered %d", resp.StatusCode)
	}
	close(release)
	for range requestsAtATime {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
