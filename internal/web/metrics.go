package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts answers. Labels are bounded: a known method or "other", the
// pattern of the route or "none", the status we sent or "aborted".
type metrics struct {
	answers *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// newMetrics registers with reg, or finds there what another guard has
// registered. A nil reg gives nil, which observes nothing.
func newMetrics(reg prometheus.Registerer) *metrics {
	if reg == nil {
		return nil
	}
	return &metrics{
		answers: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "witan_http_requests_total",
			Help: "Answered HTTP requests by method, route pattern and status.",
		}, []string{"method", "route", "status"})),
		seconds: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "witan_http_request_duration_seconds",
			Help:    "Time from the request's headers to the end of the answer; streams count when they end.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 30, 300},
		}, []string{"method", "route"})),
	}
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	if err == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	panic(fmt.Errorf("web: register HTTP metrics: %w", err)) // two meanings of one name
}

func (m *metrics) observe(method, route string, rec *recorder, took time.Duration) {
	if m == nil {
		return
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions:
	default:
		method = "other"
	}
	if route == "" {
		route = "none"
	}
	status := "200" // net/http's answer to a handler that wrote nothing
	switch {
	case rec.aborted:
		status = "aborted"
	case rec.status != 0:
		status = strconv.Itoa(rec.status)
	}
	m.answers.WithLabelValues(method, route, status).Inc()
	m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
}
