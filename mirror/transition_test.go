package mirror

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/witan-adp/witan/internal/replica"
)

// transitions collects what is logged about changes of state.
type transitions struct {
	mu   sync.Mutex
	seen map[string]int // message and where it led
}

func (l *transitions) Enabled(context.Context, slog.Level) bool { return true }
func (l *transitions) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *transitions) WithGroup(string) slog.Handler            { return l }

func (l *transitions) Handle(_ context.Context, r slog.Record) error {
	to, verdict := "", ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "to":
			to = a.Value.String()
		case "verdict":
			verdict = " " + a.Value.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[r.Message+": "+to+verdict]++
	return nil
}

func (l *transitions) count(what string) int { l.mu.Lock(); defer l.mu.Unlock(); return l.seen[what] }

// Each change of state of a host and of a room is logged once and counted once, however
// often it is found to be so again.
func TestTransitionsAreToldOnce(t *testing.T) {
	h := newFakeHost(t)
	s, odd := talk(t, "room", 6), talk(t, "odd", 4)
	odd.say(foreign, "let me in")
	h.put(s, odd)
	log := &transitions{seen: map[string]int{}}
	g := start(t, memory(t), func(o *Options) { o.Log = slog.New(log) }).follow(h)
	g.holds(h, s)
	g.becomes(h, "odd", replica.Violations)
	s.say(member, "it is changed on the way")
	h.putAs(s, tamper(s.texts(), 6, "changed", "altered"))
	g.becomes(h, "room", replica.Broken)
	g.looks(h, 5)
	h.set(func() { h.rooms["room"].texts = s.texts() })
	g.must(g.m.Retry(h.origin()))
	g.becomes(h, "room", replica.Verified)
	h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 503, ""); return true })
	until(t, "the host is down", func() bool { return g.m.Hosts()[0].State == BackingOff })
	g.must(g.m.Retry(h.origin()))
	n := h.total()
	until(t, "it was asked some more", func() bool { return h.total() > n })
	h.takeOver(nil)
	g.must(g.m.Retry(h.origin()))
	until(t, "the host is back", func() bool { return g.m.Hosts()[0].State == Following })
	for what, want := range map[string]int{
		"a host changed its state: backing-off":          1,
		"a host changed its state: following":            1,
		"a room changed its state: following violations": 1,
		"a room changed its state: following broken":     1,
		"a room changed its state: following verified":   1,
	} {
		until(t, "it is logged: "+what, func() bool { return log.count(what) >= want }) // the state is seen before it is told
		if got := log.count(what); got != want {
			t.Errorf("%s: logged %d times, want %d", what, got, want)
		}
	}
	for labels, want := range map[[2]string]float64{{"host", BackingOff}: 1, {"host", Following}: 1, {"verdict", replica.Violations}: 1, {"verdict", replica.Broken}: 1, {"verdict", replica.Verified}: 1} {
		var m dto.Metric
		if err := g.m.metrics.moves.WithLabelValues(labels[0], labels[1]).Write(&m); err != nil {
			t.Fatal(err)
		}
		if got := m.GetCounter().GetValue(); got != want {
			t.Errorf("%v: counted %v times, want %v", labels, got, want)
		}
	}
}
