package mirror

import (
	"errors"
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
