package mirror

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the relay and the streams bring, or bring no more, whatever was new: as long as
// the host answers, the next look comes within one interval, so that what they drop is
// missed for no longer; and one that fails is asked again within the cap.
func TestPaceStaysWithinItsInterval(t *testing.T) {
	const pollMin, pollMax, backoffMax = time.Second, time.Minute, time.Hour
	peers := []string{"x"}
	g := startOn(t, memory(t), func(o *Options) {
		o.PollMin, o.PollMax, o.BackoffMin, o.BackoffMax = pollMin, pollMax, time.Minute, backoffMax
	}, func(m *Mirror) { m.Connect(Network{Peers: func() []string { return peers }}) })
	rapid.Check(t, func(t *rapid.T) {
		h := g.m.newHost(hostRow{Origin: "https://paced.example", State: Following})
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			switch rapid.SampledFrom([]string{"heard", "long ago", "nothing"}).Draw(t, "relay") {
			case "heard":
				h.heard = g.m.o.Now()
			case "long ago":
				h.heard = g.m.o.Now() - 2*pollMax.Milliseconds()
			}
			peers = [][]string{{"x"}, nil}[rapid.IntRange(0, 1).Draw(t, "peers gone")]
			news := rapid.Bool().Draw(t, "news")
			var err error
			if rapid.Float64().Draw(t, "fails") < 0.3 {
				err = errors.New("it does not answer")
			}
			wait := h.pace(news, err)
			switch {
			case err != nil && (wait > backoffMax || wait <= 0):
				t.Fatalf("after failure %d: the next look in %v, the cap is %v", h.failures, wait, backoffMax)
			case err == nil && (wait > pollMax || wait <= 0):
				t.Fatalf("the next look in %v, the interval is %v", wait, pollMax)
			case err == nil && news && wait > pollMin && !h.hears():
				t.Fatalf("after news the next look in %v, and the first interval is %v", wait, pollMin)
			case err == nil && h.failures != 0:
				t.Fatal("a host that answers is held for one that fails")
			}
		}
	})
}

// A long list is read less often, whatever is new, and within the interval all the same.
func TestLongListsAreReadLessOften(t *testing.T) {
	const size = 4 * listRate // four seconds' worth
	for _, c := range []struct{ pollMax, least, most time.Duration }{{time.Hour, 4 * time.Second, time.Hour}, {time.Second, time.Second, time.Second}} {
		h := newFakeHost(t)
		s := talk(t, "room", 4)
		h.put(s)
		h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == listPath {
				w.Header().Set("Content-Type", apiType)
				fmt.Fprintf(w, "[%s%s]", strings.Repeat(" ", size), h.resource("room", h.rooms["room"]))
			}
			return r.URL.Path == listPath
		})
		g := start(t, memory(t), func(o *Options) { o.PollMax = c.pollMax }).follow(h)
		g.holds(h, s)
		until(t, "a look is over", func() bool { return g.quiet(h) > 0 })
		if wait := g.quiet(h); wait < c.least || wait > max(c.most, c.least) {
			t.Errorf("interval %v: the next look in %v", c.pollMax, wait)
		}
	}
}
