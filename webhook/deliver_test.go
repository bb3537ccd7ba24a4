package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

func status(code int) func(http.ResponseWriter, *http.Request, got) {
	return func(rw http.ResponseWriter, _ *http.Request, _ got) { rw.WriteHeader(code) }
}

// Who does not answer the challenge gets nothing, and nothing is kept of it.
func TestChallenge(t *testing.T) {
	w := newWorld(t, nil).run()
	hasty := newWorld(t, func(o *Options) { o.Timeout = 2 * time.Second }).run()
	release := make(chan struct{})
	defer close(release)
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, got)
		why    string
	}{
		"wrong text": {func(rw http.ResponseWriter, _ *http.Request, g got) {
			web.WriteJSON(rw, 200, obj{"challenge": g.Challenge + "x"})
		}, "something else"},
		"a mirror": {func(rw http.ResponseWriter, _ *http.Request, g got) { web.WriteRaw(rw, 200, g.body) }, "something else"},
		"no JSON":  {func(rw http.ResponseWriter, _ *http.Request, g got) { fmt.Fprint(rw, g.Challenge) }, "something else"},
		"twice": {func(rw http.ResponseWriter, _ *http.Request, g got) {
			fmt.Fprintf(rw, `{"challenge":"x","challenge":%q}`, g.Challenge)
		}, "something else"},
		"nothing":  {status(200), "something else"},
		"an error": {status(500), "answered 500"},
		"gone":     {status(410), "wants no more"},
		"too much": {func(rw http.ResponseWriter, _ *http.Request, _ got) { fmt.Fprint(rw, strings.Repeat("x", 100<<10)) }, "too large"},
		"never": {func(_ http.ResponseWriter, r *http.Request, _ got) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}, "timeout"},
		"a redirect": {func(rw http.ResponseWriter, r *http.Request, _ got) {
			http.Redirect(rw, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "redirect"},
		"right, but 201": {func(rw http.ResponseWriter, _ *http.Request, g got) {
			web.WriteJSON(rw, 201, obj{"challenge": g.Challenge})
		}, "answered 201"},
		"right, but 404": {func(rw http.ResponseWriter, _ *http.Request, g got) {
			web.WriteJSON(rw, 404, obj{"challenge": g.Challenge})
		}, "answered 404"},
	} {
		t.Run(name, func(t *testing.T) {
			w := w
			if c.why == "timeout" {
				w = hasty
			}
			r := w.receiver()
			r.answer = c.answer
			_, err := w.w.Add(context.Background(), "", Registration{URL: r.URL, Events: []string{Mention}})
			if adp.CodeOf(err) != adp.InvalidRequest || !strings.Contains(err.Error(), "challenge") || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
			if _, n := r.posts(); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
	dead := w.receiver()
	dead.Close()
	if _, err := w.w.Add(context.Background(), "", Registration{URL: dead.URL, Events: []string{Mention}}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a receiver that is not there: %v", err)
	}
	for _, w := range []*world{w, hasty} {
		if len(w.w.List("")) != 0 || w.keys(store.WebhookRange)+w.keys(store.WatchedRoomRange) != 0 {
			t.Error("something was kept")
		}
	}
}

// Only public addresses, by https, unless the operator lets others pass.
func TestGuard(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		c := fetch.New(fetch.Options{Resolver: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.0.0.7")}, nil
		}})
		o.Do, o.CheckURL = c.Do, c.CheckURL
	})
	for raw, why := range map[string]string{
		"http://rooms.example/hook":                            "http is not allowed",
		"https://127.0.0.1/hook":                               "not public",
		"https://[::1]:8443/":                                  "not public",
		"https://169.254.169.254/latest":                       "never contacted",
		"https://internal.example/hook":                        "blocked",
		"https://user:pw@rooms.example/":                       "user information",
		"https://rooms.example/hook#part":                      "fragment",
		"file:///etc/passwd":                                   "https",
		"https://2130706433/":                                  "",
		"https://rooms.example/" + strings.Repeat("x", maxURL): "bytes",
	} {
		_, err := w.w.Add(context.Background(), "", Registration{URL: raw, Events: []string{Mention}})
		if adp.CodeOf(err) != adp.InvalidRequest || !strings.Contains(err.Error(), why) {
			t.Errorf("%.60s: %v, want %q", raw, err, why)
		}
		if err != nil && strings.Contains(err.Error(), "user:pw") {
			t.Errorf("the refusal quotes a password: %v", err)
		}
	}
}

func TestRegistrationsThatCannotBe(t *testing.T) {
	w := newWorld(t, nil)
	agent := idOf(bob)
	for body, why := range map[string]string{
		`{`: "body", `[]`: "does not fit", `{"url":"https://a.example","events":["mention"],"filter":{}}`: "filter",
		`{"events":["mention"]}`:                                                                                           "url",
		`{"url":"https://a.example"}`:                                                                                      "which events",
		`{"url":"https://a.example","events":["x"]}`:                                                                       "no event",
		`{"url":"https://a.example","events":["ping"]}`:                                                                    "no event",
		`{"url":"https://a.example","events":["mention","mention"]}`:                                                       "twice",
		`{"url":"https://a.example","events":["mention"],"filters":{"hosts":["x"]}}`:                                       "hosts",
		`{"url":"https://a.example","events":["mention"],"filters":{"agents":["x"]}}`:                                      "Agent ID",
		`{"url":"https://a.example","events":["room.ended"],"filters":{"agents":["` + agent + `"]}}`:                       "not among",
		`{"url":"https://a.example","events":["mention"],"filters":{"tags":[""]}}`:                                         "tags",
		`{"url":"https://a.example","events":["mention"],"filters":{"tags":["` + strings.Repeat("x", 300) + `"]}}`:         "tags",
		`{"url":"https://a.example","events":["mention"],"filters":{"q":"` + strings.Repeat("x ", 20) + `"}}`:              "words",
		`{"url":"https://a.example","events":["mention"],"filters":{"languages":["a"` + strings.Repeat(`,"a"`, 32) + `]}}`: "entries",
		`{"url":"https://a.example","url":"https://b.example","events":["mention"]}`:                                       "url",
	} {
		r, err := decode([]byte(body))
		if err == nil {
			_, err = w.w.check("", r)
		}
		if adp.CodeOf(err) != adp.InvalidRequest || !strings.Contains(err.Error(), why) {
			t.Errorf("%.90s: %v, want %q", body, err, why)
		}
	}
	r, err := w.w.check(agent, Registration{URL: "https://A.Example:443/p%2fq?x=%20", Events: []string{Mention}, Filters: Filters{Hosts: []string{"https://Rooms.Example:443/"}}})
	if err != nil || !slices.Equal(r.Filters.Agents, []string{agent}) || !slices.Equal(r.Filters.Hosts, []string{other}) || r.URL != "https://a.example/p%2fq?x=%20" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A receiver that fails gets five tries, then its webhook is paused, and goes on where
// it stopped when its owner says so. Nobody else waits for it.
func TestTries(t *testing.T) {
	for name, do := range map[string]func(http.ResponseWriter, *http.Request, got){
		"an error": status(503),
		"a redirect": func(rw http.ResponseWriter, r *http.Request, _ got) {
			http.Redirect(rw, r, "/elsewhere", http.StatusPermanentRedirect)
		},
		"broken off": func(http.ResponseWriter, *http.Request, got) { panic(http.ErrAbortHandler) },
		"too slow":   func(_ http.ResponseWriter, r *http.Request, _ got) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(o *Options) {
				if name == "too slow" {
					o.Timeout = 2 * time.Second
				}
			})
			k := w.create(own, nil)
			w.run()
			bad, good := w.receiver(), w.receiver()
			h := bad.register([]string{Mention}, Filters{})
			good.register([]string{Mention}, Filters{})
			bad.behave(do)
			for range 3 {
				k.add(alice, room.Message, say("hello"), idOf(bob))
			}
			w.untilEvents(good, Mention, Mention, Mention)
			w.until("the pause", func() bool { return w.show(h.ID).State == Paused })
			s := w.show(h.ID)
			if s.Attempts != Tries || s.NextTry != 0 || !strings.Contains(s.Reason, "5 tries failed") || s.LastError == "" || s.Waiting != 3 || s.Delivered != 0 || strings.Contains(s.Reason, "whsec") {
				t.Errorf("%+v", s)
			}
			if tries, _ := bad.posts(); len(tries) != Tries || len(slices.Compact(tries)) != 1 {
				t.Errorf("tries: %v", tries)
			}
			// a restart changes nothing
			w.opt.Timeout = time.Minute // from here on nobody is slow
			w.open()
			w.run()
			if again := w.show(h.ID); again.State != Paused || again.Reason != s.Reason || again.Waiting != 3 {
				t.Errorf("after a restart: %+v", again)
			}
			bad.behave(nil)
			if _, err := w.w.Resume(h.ID, ""); err != nil {
				t.Fatal(err)
			}
			list := w.untilEvents(bad, Mention, Mention, Mention)
			for i, g := range list {
				w.verify(g, int64(2+i), room.Message)
			}
			w.until("an empty queue", func() bool { s := w.show(h.ID); return s.Waiting == 0 && s.Delivered == 3 && s.Attempts == 0 })
			if n := w.metric("witan_webhook_deliveries_total", "delivered"); n != 3 {
				t.Errorf("%v deliveries counted since the start", n)
			}
		})
	}
}

// Who resumes a webhook in the middle of its last try has all tries again.
func TestResumedInATry(t *testing.T) {
	w := newWorld(t, nil)
	k := w.create(own, nil)
	w.run()
	r := w.receiver()
	h := r.register([]string{Mention}, Filters{})
	var tries atomic.Int64
	last, release := make(chan struct{}), make(chan struct{})
	r.behave(func(rw http.ResponseWriter, q *http.Request, _ got) {
		if tries.Add(1) == Tries {
			close(last)
			select {
			case <-release:
			case <-q.Context().Done():
			}
		}
		rw.WriteHeader(500)
	})
	k.add(alice, room.Message, say("hello"), idOf(bob))
	<-last
	if s, err := w.w.Resume(h.ID, ""); err != nil || s.Attempts != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	close(release)
	w.until("the pause", func() bool { return w.show(h.ID).State == Paused })
	if s, n := w.show(h.ID), tries.Load(); n != 2*Tries-1 || s.Attempts != Tries {
		t.Errorf("%d tries, %+v", n, s)
	}
}

// Whatever follows the status of an answer, nobody waits for it.
func TestAnswerIsNotRead(t *testing.T) {
	w := newWorld(t, nil).run()
	r := w.receiver()
	h := r.register([]string{RoomDiscovered}, Filters{})
	for _, answer := range []func(http.ResponseWriter, *http.Request, got){
		func(rw http.ResponseWriter, _ *http.Request, _ got) { fmt.Fprint(rw, strings.Repeat("x", 2*maxAnswer)) },
		func(rw http.ResponseWriter, _ *http.Request, _ got) {
			rw.Header().Set("Content-Length", "1000000")
			fmt.Fprint(rw, "cut off")
		},
		func(rw http.ResponseWriter, _ *http.Request, _ got) {
			rw.Header().Set("Content-Encoding", "br")
			rw.WriteHeader(202)
		},
	} {
		r.behave(answer)
		n := w.show(h.ID).Delivered + 1 // read before there is anything to deliver
		w.create(own, nil)
		w.until("one more delivery", func() bool { return w.show(h.ID).Delivered == n })
	}
	if failed := w.metric("witan_webhook_deliveries_total", "failed"); failed != 0 || len(r.got()) != 3 {
		t.Errorf("%v tries failed, %d deliveries", failed, len(r.got()))
	}
}

// 410 says that no more is wanted.
func TestGone(t *testing.T) {
	w := newWorld(t, nil)
	k := w.create(own, nil)
	w.run()
	r := w.receiver()
	h := r.register([]string{Mention}, Filters{})
	r.behave(status(410))
	k.add(alice, room.Message, say("hello"), idOf(bob))
	w.until("the pause", func() bool { return w.show(h.ID).State == Paused })
	if s := w.show(h.ID); len(r.got()) != 1 || !strings.Contains(s.Reason, "410") {
		t.Errorf("%d tries, %+v", len(r.got()), s)
	}
}

// Tries go on after a restart where they were, with the pause that was left.
func TestBackoffOverRestart(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.RetryFirst = 2 * time.Minute })
	k := w.create(own, nil)
	w.run()
	r := w.receiver()
	h := r.register([]string{Mention}, Filters{})
	r.behave(status(500))
	began := w.now() // of the try, or before
	k.add(alice, room.Message, say("hello"), idOf(bob))
	total := int64(0)
	for n := 1; n <= Tries; n++ {
		w.until("a try", func() bool { return w.show(h.ID).Attempts == n })
		s := w.show(h.ID)
		if s.State == Paused {
			break
		}
		wait := s.NextTry - w.now()
		total += wait
		if want := 2 * minute << (3 * (n - 1)); s.NextTry-began < want*85/100 || wait > want*111/100 {
			t.Errorf("pause %d is %d ms, want about %d", n, wait, want)
		}
		w.open()
		w.run()
		if again := w.show(h.ID); again.Attempts != n || again.NextTry != s.NextTry {
			t.Errorf("after a restart: %+v", again)
		}
		began = w.now() + wait + 1
		w.skew.Add(wait + 1)
		poke(locked(&w.w.mu, func() *hook { return w.w.hooks[h.ID] }).wake) // the clock of the test does not ring
	}
	if s := w.show(h.ID); s.State != Paused || len(r.got()) != Tries || total > 24*hour {
		t.Errorf("%d tries in %d ms: %+v", len(r.got()), total, s)
	}
	asked := &refusal{status: 503, after: 59 * time.Minute}
	if d := w.w.backoff(1, asked); d != 59*time.Minute {
		t.Errorf("the receiver asked for 59 minutes and gets %v", d)
	}
	if d := w.w.backoff(4, asked); d < 15*time.Hour {
		t.Errorf("the receiver asked for less and gets %v", d)
	}
}

// A queue is bounded: what is too much is dropped, counted, and told of where it is
// missing.
func TestFull(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Queue = 16 })
	k := w.create(own, nil)
	w.run()
	slow, good := w.receiver(), w.receiver()
	h := slow.register([]string{Mention}, Filters{})
	good.register([]string{Mention}, Filters{})
	release := make(chan struct{})
	slow.behave(func(_ http.ResponseWriter, r *http.Request, _ got) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	const n = 50
	for i := range n {
		k.add(alice, room.Message, say("hello"), idOf(bob))
		w.until("the good one", func() bool { return len(good.events()) == i+1 })
	}
	s := w.show(h.ID)
	if s.State != Paused || s.Waiting != 16 || s.Missed != n-16 || !strings.Contains(s.Reason, "16 events wait") {
		t.Errorf("%+v", s)
	}
	w.open() // what was dropped is remembered; the receiver has not answered
	w.run()
	k.r, _ = w.set.Get(own, k.r.RoomID)
	if again := w.show(h.ID); again.Missed != n-16 || again.State != Paused || again.Waiting < 15 {
		t.Errorf("after a restart: %+v", again)
	}
	if _, err := w.w.Resume(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	k.add(alice, room.Message, say("too early"), idOf(bob)) // it has time to come through what waits
	w.until("one more that is missed", func() bool { return w.show(h.ID).Missed == n-16+1 })
	if s := w.show(h.ID); s.State != Active {
		t.Errorf("paused again at once: %+v", s)
	}
	slow.behave(nil)
	close(release)
	w.until("what waited", func() bool { return w.show(h.ID).Waiting == 0 })
	last := k.add(alice, room.Message, say("and on"), idOf(bob))
	w.until("the gap", func() bool { return len(slow.events()) == 18 })
	list := slow.events()
	if g := list[16]; g.Event != Gap || g.Missed != n-16+1 {
		t.Errorf("%s", g.body)
	}
	w.verify(list[17], last, room.Message)
	if s := w.show(h.ID); s.Missed != 0 || s.State != Active {
		t.Errorf("%+v", s)
	}
}

// What waits goes with its webhook.
func TestRemoveWhatWaits(t *testing.T) {
	w := newWorld(t, nil)
	k := w.create(own, nil)
	w.run()
	r, stays := w.receiver(), w.receiver()
	h := r.register([]string{Mention}, Filters{})
	kept := stays.register([]string{Mention}, Filters{})
	for _, id := range []string{h.ID, kept.ID} {
		if _, err := w.w.Pause(id, ""); err != nil {
			t.Fatal(err)
		}
	}
	k.add(alice, room.Message, say("hello"), idOf(bob))
	k.add(alice, room.Message, say("hello"), idOf(bob))
	w.until("what waits", func() bool { return w.show(h.ID).Waiting == 2 && w.keys(queues) == 4 })
	removed := locked(&w.w.mu, func() *hook { return w.w.hooks[h.ID] })
	if err := w.w.Remove(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	if n := w.keys(queues); n != 2 {
		t.Errorf("%d events wait after one of two webhooks went", n)
	}
	// a worker that was about to post the first one
	if err := removed.try(t.Context(), 1); !errors.Is(err, errRemoved) || w.metric("witan_webhook_deliveries_total", "lost") != 0 {
		t.Errorf("what was removed counts as lost: %v", err)
	}
	if _, err := w.w.Resume(kept.ID, ""); err != nil {
		t.Fatal(err)
	}
	w.untilEvents(stays, Mention, Mention)
}
