package mirror

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The backfill can be watched from outside: what is held, what is behind, how fast.
func TestMetricsShowTheBackfill(t *testing.T) {
	h := newFakeHost(t)
	h.pageSize = 10
	s := talk(t, "room", 60)
	h.put(s)
	gate := make(chan struct{})
	h.takeOver(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v1/rooms/room/events" && r.URL.Query().Get("after_seq") == "30" {
			h.mu.Unlock() // the host goes on answering others
			<-gate
			h.mu.Lock()
		}
		return false
	})
	reg := prometheus.NewRegistry()
	g := start(t, memory(t), func(o *Options) { o.Registerer = reg }).follow(h)
	value := func(name, label string) float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() != "witan_mirror_"+name || label != "" && m.GetLabel()[0].GetValue() != label {
					continue
				}
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		return -1
	}
	until(t, "half of the room is held", func() bool { return value("records_held", "") == 30 })
	for name, want := range map[string]float64{"pending_records": 30, "rooms_in_work": 1, "hosts": 1, "rooms": 1} {
		label := map[string]string{"hosts": Following, "rooms": "following"}[name]
		until(t, fmt.Sprint(name, " is ", want), func() bool { return value(name, label) == want })
	}
	other := talk(t, "other", 3)
	until(t, "a rate is told while something is copied", func() bool {
		other.say(member, "on")
		h.put(other)
		return value("copied_records_per_second", "") > 0 && value("backfill_eta_seconds", "") > 0
	})
	close(gate)
	g.holds(h, s)
	g.holds(h, other)
	until(t, "nothing is behind", func() bool { return value("pending_records", "") == 0 && value("rooms_in_work", "") == 0 })
	for name, want := range map[string]float64{"records_held": float64(60 + len(other.recs)), "backfill_eta_seconds": 0, "rooms_by_verdict": 2, "bytes_total": value("bytes_held", "")} {
		label := map[string]string{"rooms_by_verdict": "verified"}[name]
		until(t, fmt.Sprint("at the end ", name, " is ", want), func() bool { return value(name, label) == want })
	}
}
