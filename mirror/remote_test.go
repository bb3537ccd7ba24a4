package mirror

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
)

func TestHostsThatNeverEnd(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(h *fakeHost) func(w http.ResponseWriter, r *http.Request) bool
		reason string // in the host's status
	}{
		"cursor that repeats": {func(h *fakeHost) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/rooms/public" {
					w.Header().Set("Link", `<`+h.srv.URL+`/v1/rooms/public?cursor=again>; rel="next"`)
					if r.URL.Query().Get("cursor") != "" {
						w.Header().Set("Content-Type", "application/json")
						fmt.Fprint(w, "[]")
						return true
					}
				}
				return false
			}
		}, "read before"},
		"cursor that never ends": {func(h *fakeHost) func(http.ResponseWriter, *http.Request) bool {
			n := 0
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/rooms/public" {
					n++
					w.Header().Set("Link", fmt.Sprintf(`<%s/v1/rooms/public?n=%d>; rel="next"`, h.srv.URL, n))
				}
				return false
			}
		}, "without naming another room"},
		"link to another host": {func(h *fakeHost) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/rooms/public" {
					w.Header().Set("Link", `<http://127.0.0.1:2/v1/rooms/public?cursor=x>; rel="next"`)
				}
				return false
			}
		}, "another origin"},
		"later page fails": {func(h *fakeHost) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/rooms/public" {
					if r.URL.Query().Get("cursor") != "" {
						refuse(w, 500, "internal")
						return true
					}
					w.Header().Set("Link", `<`+h.srv.URL+`/v1/rooms/public?cursor=x>; rel="next"`)
				}
				return false
			}
		}, "page 2"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHost(t)
			s := talk(t, "room", 5)
			h.put(s)
			h.takeOver(c.answer(h))
			g := start(t, memory(t), nil).follow(h)
			g.holds(h, s)
			until(t, "the reason", func() bool { return strings.Contains(g.m.Hosts()[0].Reason, c.reason) })
			if s := g.m.Hosts()[0]; s.State != Following {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestHostDownAndBack(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	s := talk(t, "room", 5)
	h.put(s)
	g := start(t, st, nil).follow(h)
	g.holds(h, s)
	h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 502, ""); return true })
	until(t, "it backs off", func() bool {
		x := g.m.Hosts()[0]
		return x.State == BackingOff && x.NextTry > 0 && strings.Contains(x.Reason, "502")
	})
	if resp, body := g.get(h, "/v1/rooms/room/events"); resp.StatusCode != 200 || !strings.Contains(body, s.recs[4].Hash) {
		t.Errorf("a dead host's room: %d %.200s", resp.StatusCode, body)
	}
	g.stop()
	s.say(member, "back")
	h.takeOver(nil)
	h.put(s)
	g = start(t, st, nil)
	g.holds(h, s)
	until(t, "it follows", func() bool { x := g.m.Hosts()[0]; return x.State == Following && x.Reason == "" && x.NextTry == 0 })
}

func TestRetryAfterIsKept(t *testing.T) {
	h := newFakeHost(t)
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		refuse(w, 429, "rate_limited")
		return true
	})
	g := start(t, memory(t), func(o *Options) { o.BackoffMax = 2 * time.Hour }).follow(h)
	until(t, "one look", func() bool { return h.count("/.well-known/agent-discourse") > 0 })
	g.m.mu.Lock()
	x := g.m.hosts[h.origin()]
	g.m.mu.Unlock()
	until(t, "the hold", func() bool { return x.heldFor() > 50*time.Minute })
	h.takeOver(nil)
	if err := g.m.Retry(h.origin()); err != nil { // the operator may ask all the same
		t.Fatal(err)
	}
	until(t, "another look", func() bool { return h.count("/v1/rooms/public") > 0 })
	if n := h.count("/.well-known/agent-discourse"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestStatesOfAHost(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		h := newFakeHost(t)
		h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 410, ""); return true })
		g := start(t, memory(t), nil).follow(h)
		until(t, "gone", func() bool { return g.m.Hosts()[0].State == Gone })
	})
	t.Run("api elsewhere", func(t *testing.T) {
		h := newFakeHost(t)
		h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"protocol":"agent-discourse/1.0","endpoints":{"api":"http://127.0.0.1:2/v1"}}`)
			return true
		})
		g := start(t, memory(t), nil).follow(h)
		until(t, "a reason", func() bool {
			x := g.m.Hosts()[0]
			return x.State == BackingOff && strings.Contains(x.Reason, "mirror that origin instead")
		})
	})
	t.Run("rebound", func(t *testing.T) {
		h, st := newFakeHost(t), memory(t)
		document := func(b byte) []byte {
			d, err := keys.RenderDocument(h.origin(), keys.FromSeed([32]byte{b}, 1))
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		h.set(func() { h.did = document(4) })
		g := start(t, st, nil).follow(h)
		agent := adp.AgentID(keys.FromSeed([32]byte{4}, 1).AgentID())
		until(t, "bound", func() bool { return g.m.o.Bindings.Bound(h.origin(), agent) })
		g.stop()
		h.set(func() { h.did = document(5) })
		g = start(t, st, nil)
		until(t, "rebound", func() bool { return g.m.Hosts()[0].State == Rebound })
		s := talk(t, "room", 3)
		h.put(s)
		g.holds(h, s) // records need no key
	})
	t.Run("paused", func(t *testing.T) {
		h, st := newFakeHost(t), memory(t)
		g := start(t, st, nil).follow(h)
		g.looks(h, 1)
		if err := g.m.Pause(h.origin()); err != nil {
			t.Fatal(err)
		}
		g.stop()
		asked := h.count("/v1/rooms/public")
		g = start(t, st, nil)
		if x := g.m.Hosts()[0]; x.State != Paused {
			t.Errorf("%+v", x)
		}
		if err := g.m.Resume(h.origin()); err != nil {
			t.Fatal(err)
		}
		until(t, "it goes on", func() bool { return h.count("/v1/rooms/public") > asked && g.m.Hosts()[0].State == Following })
		if err := g.m.Remove(h.origin()); err != nil || g.m.Followed(h.origin()) {
			t.Errorf("remove: %v", err)
		}
		g.stop()
		if g = start(t, st, nil); len(g.m.Hosts()) != 0 {
			t.Error("a removed host is back")
		}
	})
	t.Run("not to be added", func(t *testing.T) {
		g := start(t, memory(t), nil)
		for _, origin := range []string{ownOrigin, "ftp://x.example", "https://x.example/path", ""} {
			if err := g.m.Add(origin, "flag"); err == nil {
				t.Errorf("%q was added", origin)
			}
		}
	})
}

func TestLinkHeader(t *testing.T) {
	const origin, at = "https://a.example", "https://a.example/v1/rooms/public?x=1"
	for link, want := range map[string]string{
		``: "",
		`<https://a.example/v1/rooms/public?c=1>; rel="next"`:                  "https://a.example/v1/rooms/public?c=1",
		`</v1/x?c=1>; rel=next`:                                                "https://a.example/v1/x?c=1",
		`<?c=2>; title="a"; rel="prev next"`:                                   "https://a.example/v1/rooms/public?c=2",
		`<https://a.example/a>; rel="prev", <https://a.example/b>; rel="next"`: "https://a.example/b",
		`<https://b.example/>; rel="next"`:                                     "error",
		`<http://a.example/>; rel="next"`:                                      "error",
		`<//b.example/>; rel="next"`:                                           "error",
		`<https://a.example/a>; rel="last"`:                                    "",
		`https://a.example/a; rel="next"`:                                      "",
	} {
		got, err := nextPage(at, http.Header{"Link": {link}}, origin)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %q (%v), want %q", link, got, err, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{`[]`, `[1,{"a":[2]},"x"]`, `[{"a":1,"a":2},{}]`, `[1,2`, `[1] x`, `[,]`, `{}`, ` [ ] `, `[1,]`, `[00`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		items, err := split(body)
		if err != nil {
			return
		}
		v, err := adp.ScanDepth(body, roomDepth+1)
		if err == nil && v.Len() != len(items) {
			t.Errorf("%d elements, split gives %d", v.Len(), len(items))
		}
		if err != nil { // then something must be left that no reader takes for a record
			for _, item := range items {
				if _, err := adp.ScanDepth(item.raw, roomDepth); err != nil || item.err != nil {
					return
				}
			}
			t.Errorf("nothing of %q is bad", body)
		}
	})
}
