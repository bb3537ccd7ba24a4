package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func testMux() *Mux {
	m := NewMux()
	for _, route := range []string{
		"GET /", "GET /v1/rooms/public", "POST /v1/rooms", "GET /v1/rooms/{room_id}", "POST /v1/rooms/{room_id}",
		"GET /v1/rooms/{room_id}/events", "PUT /v1/rooms/{id}/agent-status", "GET /v1/rooms/{room_id}/agent-status/{agent}",
		"GET /m/{authority}/v1/rooms/{room_id}", "GET /static/{file...}", "GET /dir/{$}", "GET /x/archive.jsonl",
	} {
		method, pattern, _ := strings.Cut(route, " ")
		m.Handle(method, pattern, func(w http.ResponseWriter, r *http.Request) error {
			var b strings.Builder
			b.WriteString(r.Pattern)
			for _, name := range []string{"room_id", "id", "agent", "authority", "file"} {
				if v := r.PathValue(name); v != "" {
					b.WriteString(" " + name + "=" + v)
				}
			}
			_, err := io.WriteString(w, b.String())
			return err
		})
	}
	return m
}

func TestMux(t *testing.T) {
	const unknown, wrong = "404 not_found", "405 invalid_request"
	for _, tt := range []struct{ method, path, want, allow string }{
		{"GET", "/", "/", ""},
		{"GET", "/v1/rooms/public", "/v1/rooms/public", ""},
		{"POST", "/v1/rooms/public", "/v1/rooms/{room_id} room_id=public", ""},
		{"GET", "/v1/rooms/public/events", "/v1/rooms/{room_id}/events room_id=public", ""},
		{"GET", "/v1/rooms/a%2Fb", "/v1/rooms/{room_id} room_id=a/b", ""},
		{"GET", "/v1/r%6Foms/x", "/v1/rooms/{room_id} room_id=x", ""},
		{"PUT", "/v1/rooms/x/agent-status", "/v1/rooms/{id}/agent-status id=x", ""},
		{"GET", "/v1/rooms/x/agent-status/did:agent:y", "/v1/rooms/{room_id}/agent-status/{agent} room_id=x agent=did:agent:y", ""},
		{"GET", "/m/localhost%3A80/v1/rooms/x", "/m/{authority}/v1/rooms/{room_id} room_id=x authority=localhost:80", ""},
		{"GET", "/m/localhost:80/v1/rooms/x", "/m/{authority}/v1/rooms/{room_id} room_id=x authority=localhost:80", ""},
		{"GET", "/static/a/b.css", "/static/{file...} file=a/b.css", ""},
		{"GET", "/dir/", "/dir/{$}", ""},
		{"GET", "/x/archive.jsonl", "/x/archive.jsonl", ""},
		{"GET", "/dir", unknown, ""},
		{"GET", "/v1", unknown, ""},
		{"GET", "/v1/rooms/", unknown, ""},
		{"GET", "/v1//rooms/x", unknown, ""},
		{"GET", "//v1/rooms/x", unknown, ""},
		{"GET", "/v1/rooms/../rooms/x", unknown, ""},
		{"GET", "/v1/rooms/%2e%2e", unknown, ""},
		{"GET", "/v1/rooms/.", unknown, ""},
		{"GET", "/static/a/../b", unknown, ""},
		{"GET", "/static/a//b", unknown, ""},
		{"GET", "/v1/rooms/x/events/", unknown, ""},
		{"DELETE", "/v1/nothing", unknown, ""},
		{"DELETE", "/v1/rooms", wrong, "POST"},
		{"DELETE", "/v1/rooms/x", wrong, "GET, HEAD, POST"},
		{"DELETE", "/v1/rooms/public", wrong, "GET, HEAD, POST"},
		{"HEAD", "/v1/rooms", wrong, "POST"},
		{"POST", "/v1/rooms/x/events", wrong, "GET, HEAD"},
		{"OPTIONS", "/v1/rooms/x/agent-status", wrong, "PUT"},
		{"POST", "/static/a", wrong, "GET, HEAD"},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			w := httptest.NewRecorder()
			testMux().ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
			got := w.Body.String()
			if w.Code != 200 {
				status, code, _ := strings.Cut(tt.want, " ")
				if w.Result().Status[:3] != status || !strings.HasPrefix(got, `{"error":{"code":"`+code+`","message":"`) || !strings.HasSuffix(got, `,"data":{}}}`) {
					t.Errorf("got %d %s, want %s", w.Code, got, tt.want)
				}
			} else if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := w.Header().Get("Allow"); got != tt.allow {
				t.Errorf("Allow: %q, want %q", got, tt.allow)
			}
			if w.Header().Get("Location") != "" {
				t.Error("redirected")
			}
		})
	}
}

func TestMuxOddTargets(t *testing.T) {
	for _, u := range []*url.URL{{}, {Path: "*"}, {Path: "v1"}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = u
		testMux().ServeHTTP(w, r)
		if w.Code != 404 {
			t.Errorf("%q: %d", u.Path, w.Code)
		}
	}
}

func TestMuxHead(t *testing.T) {
	server := httptest.NewServer(testMux())
	defer server.Close()
	get, err := http.Get(server.URL + "/v1/rooms/x")
	if err != nil {
		t.Fatal(err)
	}
	get.Body.Close()
	for path, status := range map[string]int{"/v1/rooms/x": 200, "/v1/nothing": 404} {
		head, err := http.Head(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(head.Body)
		head.Body.Close()
		if err != nil || len(body) > 0 || head.StatusCode != status {
			t.Errorf("HEAD %s: %d, %q, %v", path, head.StatusCode, body, err)
		}
		if status == 200 && head.ContentLength != get.ContentLength {
			t.Errorf("HEAD says %d bytes, GET %d", head.ContentLength, get.ContentLength)
		}
	}
}

func TestMuxWritesErrors(t *testing.T) {
	m := NewMux()
	m.Handle("GET", "/gone", func(http.ResponseWriter, *http.Request) error { return adp.Errorf(adp.RoomNotFound, "No such room.") })
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/gone", nil))
	if want := `{"error":{"code":"room_not_found","message":"No such room.","data":{}}}`; w.Code != 404 || w.Body.String() != want {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestMuxRefusesBadPatterns(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) error { return nil }
	for _, pattern := range []string{"", "a", "//", "/a//b", "/{", "/{}", "/{...}", "/{a...}/b", "/{a}/{a}", "/a{b}", "/{a}b", "/{$}/a", "/taken", "/t/{other}"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("pattern %q was taken", pattern)
				}
			}()
			m := NewMux()
			m.Handle("GET", "/taken", ok)
			m.Handle("GET", "/t/{name}", ok)
			m.Handle("GET", pattern, ok)
		}()
	}
}

func TestRoutes(t *testing.T) {
	mux := NewMux()
	none := func(http.ResponseWriter, *http.Request) error { return nil }
	for _, r := range []Route{{"POST", "/a"}, {"GET", "/a"}, {"GET", "/"}, {"GET", "/a/{x}/b"}, {"PUT", "/a/{path...}"}} {
		mux.Handle(r.Method, r.Pattern, none)
	}
	want := []Route{{"GET", "/"}, {"GET", "/a"}, {"POST", "/a"}, {"PUT", "/a/{path...}"}, {"GET", "/a/{x}/b"}}
	if got := mux.Routes(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
