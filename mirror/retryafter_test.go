package mirror

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func patient(o *Options) { o.BackoffMax = 24 * time.Hour }

// A host that asks to be left alone for longer than an interval is shown as one that is
// waited for, from its first answer on, and is not asked before the time or a word of the
// operator. What it asks beyond the cap is cut.
func TestRetryAfterShows(t *testing.T) {
	for _, c := range []struct {
		after string
		want  time.Duration
	}{{"7200", 2 * time.Hour}, {"99999999999", 24 * time.Hour}} {
		h := newFakeHost(t)
		s := talk(t, "room", 4)
		h.put(s)
		g := start(t, memory(t), patient).follow(h)
		g.holds(h, s)
		h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", c.after)
			refuse(w, 503, "busy")
			return true
		})
		until(t, "it waits", func() bool { return g.m.Hosts()[0].State == BackingOff })
		status := g.m.Hosts()[0]
		if !strings.Contains(status.Reason, "503") {
			t.Errorf("%+v", status)
		}
		if left := time.Duration(status.NextTry-g.m.o.Now()) * time.Millisecond; left > c.want || left < c.want-time.Hour {
			t.Errorf("Retry-After %s: the next try is in %v", c.after, left)
		}
		h.takeOver(nil)
		s.say(member, "meanwhile")
		h.put(s)
		g.must(g.m.Retry(h.origin()))
		g.holds(h, s)
		until(t, "it is followed", func() bool { return g.m.Hosts()[0].State == Following })
	}
}

// A host that has no stream to give is not asked for one before the time that it names,
// and its rooms are polled.
func TestRetryAfterOfStreams(t *testing.T) {
	st := newStage(t)
	asked := make(chan struct{}, 100)
	st.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/rooms/room/events/live" {
			asked <- struct{}{}
			w.Header().Set("Retry-After", "3600")
			refuse(w, 429, "rate_limited")
			return
		}
		st.ServeHTTP(w, r)
	})
	g := start(t, memory(t), func(o *Options) { observes(o); patient(o) }).observe(st)
	until(t, "it asks for the stream", func() bool { return len(asked) > 0 })
	for range 20 {
		st.tell(func() { st.s.say(member, "polled") })
		g.holds(st.fakeHost, st.s)
		g.looks(st.fakeHost, 1)
	}
	if n := len(asked); n != 1 {
		t.Errorf("it asked %d times for the stream", n)
	}
	if s := g.m.Hosts()[0]; s.State != Following {
		t.Errorf("%+v", s)
	}
	g.must(g.m.Retry(st.origin()))
	until(t, "the operator's word goes before", func() bool { return len(asked) == 2 })
}

// A restart is no progress: a host that fails is looked at once, and the pauses go on
// from where they were; one that asked to be left alone is not asked at all.
func TestBackOffOutlivesARestart(t *testing.T) {
	h := newFakeHost(t)
	h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 500, "broken"); return true })
	impatient := func(o *Options) { o.BackoffMax = time.Hour }
	st := memory(t)
	g := start(t, st, impatient).follow(h)
	wait := func(since int64) time.Duration { return time.Duration(g.m.Hosts()[0].NextTry-since) * time.Millisecond }
	until(t, "the pauses are longer than a second", func() bool { return wait(g.m.o.Now()) > time.Second })
	g.stop()
	before, began := g.m.Hosts()[0].NextTry, g.m.o.Now()
	g = start(t, st, impatient)
	until(t, "it is looked at again", func() bool { return g.m.Hosts()[0].NextTry != before })
	if w := wait(began); w < 2*time.Second { // four fifths of twice the last one, at least
		t.Errorf("after a restart the pauses begin anew: %v", w)
	}
	h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "1800")
		refuse(w, 429, "rate_limited")
		return true
	})
	g.must(g.m.Retry(h.origin()))
	// until the look that was asked for is over: it counts failures anew
	until(t, "it waits", func() bool {
		f := g.m.host(h.origin())
		f.mu.Lock()
		failures := f.row.Failures
		f.mu.Unlock()
		return failures == 1 && wait(g.m.o.Now()) > 10*time.Minute
	})
	g.stop()
	asked := h.total()
	g = start(t, st, impatient)
	until(t, "it still waits", func() bool { return strings.Contains(g.m.Hosts()[0].Reason, "asked not to be asked") })
	if n := h.total(); n != asked || wait(g.m.o.Now()) < 10*time.Minute {
		t.Errorf("asked %d times, waits for %v", n-asked, wait(g.m.o.Now()))
	}
}
