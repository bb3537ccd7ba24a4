package mirror

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/witan-adp/witan/internal/web"
)

// open asks for something that stays open; the answer has begun when it returns.
func (g *rig) open(ctx context.Context, h *fakeHost, path string) *http.Response {
	g.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", g.face.URL+"/m/"+h.authority()+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestStreamsOfOneAddressAreBounded(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 4)
	h.put(s)
	g := startOn(t, memory(t), nil, func(m *Mirror) { m.seats = web.NewSeats(3) }).follow(h)
	g.holds(h, s)
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		if resp := g.open(ctx, h, "/v1/rooms/room/events/live"); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	for _, path := range []string{"/v1/rooms/room/events/live", "/v1/rooms/room/events?after_seq=4&wait=25", "/v1/rooms/room/events?wait=1"} {
		resp := g.open(t.Context(), h, path)
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "rate_limited") {
			t.Errorf("%s: %d %s %v", path, resp.StatusCode, body, err)
		}
	}
	if resp, _ := g.get(h, "/v1/rooms/room/events"); resp.StatusCode != 200 {
		t.Errorf("what does not wait: %d", resp.StatusCode)
	}
	cancel() // the readers go
	until(t, "a seat is free", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return g.open(ctx, h, "/v1/rooms/room/events/live").StatusCode == 200
	})
}

func TestMirroredAnswersAreCached(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 6)
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	for path, cache := range map[string]string{
		"/v1/rooms/room":                            web.CacheAsk,
		"/v1/rooms/room/events":                     web.CacheAsk,
		"/v1/rooms/room/events?limit=4":             web.CacheFinal,
		"/v1/rooms/room/events?limit=4&after_seq=2": web.CacheFinal,
	} {
		resp, _ := g.get(h, path)
		tag := resp.Header.Get("ETag")
		if resp.Header.Get("Cache-Control") != cache || tag == "" {
			t.Errorf("%s: %v", path, resp.Header)
		}
		req, err := http.NewRequest("GET", g.face.URL+"/m/"+h.authority()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("If-None-Match", tag)
		again, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Body.Close()
		if again.StatusCode != 304 || again.Header.Get("Witan-Verified-Seq") != "6" {
			t.Errorf("%s: %d %v", path, again.StatusCode, again.Header)
		}
	}
}
