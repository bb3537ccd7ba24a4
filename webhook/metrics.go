package webhook

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics say how the webhooks do. No label holds a URL, an agent or the ID of a
// webhook.
type metrics struct {
	events     *prometheus.CounterVec
	deliveries *prometheus.CounterVec
	paused     *prometheus.CounterVec
	pings      *prometheus.CounterVec
	seconds    prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, w *Webhooks) (*metrics, error) {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		events:     counter("witan_webhook_events_total", "Events found, by type, whether a webhook asked for them or not.", "event"),
		deliveries: counter("witan_webhook_deliveries_total", "Tries to post an event, by outcome.", "outcome"),
		paused:     counter("witan_webhook_paused_total", "Webhooks that were paused by the daemon, by reason.", "reason"),
		pings:      counter("witan_webhook_challenges_total", "Challenges of receivers, by outcome.", "outcome"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "witan_webhook_post_seconds", Help: "Time of one post, challenges included.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30}}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.events, m.deliveries, m.paused, m.pings, m.seconds, gauges{w}} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

var (
	hooksDesc   = prometheus.NewDesc("witan_webhooks", "Webhooks by state.", []string{"state"}, nil)
	waitingDesc = prometheus.NewDesc("witan_webhook_waiting_events", "Events that wait in the queues of all webhooks.", nil, nil)
)

// gauges count when they are asked.
type gauges struct{ w *Webhooks }

// Describe implements prometheus.Collector.
func (gauges) Describe(c chan<- *prometheus.Desc) { c <- hooksDesc; c <- waitingDesc }

// Collect implements prometheus.Collector.
func (g gauges) Collect(c chan<- prometheus.Metric) {
	states, waiting := map[string]int{Active: 0, Paused: 0}, int64(0)
	for _, h := range g.w.all() {
		s := h.show()
		states[s.State]++
		waiting += s.Waiting
	}
	for state, n := range states {
		c <- prometheus.MustNewConstMetric(hooksDesc, prometheus.GaugeValue, float64(n), state)
	}
	c <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(waiting))
}
