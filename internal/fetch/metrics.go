package fetch

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has labels from closed sets only: never a URL or an address.
type metrics struct {
	exchanges *prometheus.CounterVec // by result: 1xx … 5xx, or a Kind
	seconds   prometheus.Histogram
	bytes     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		exchanges: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "witan_fetch_exchanges_total",
			Help: "Outbound HTTP exchanges by class of status or kind of error."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "witan_fetch_seconds",
			Help: "Time of outbound HTTP exchanges; of streams up to the header.", Buckets: []float64{.005, .02, .1, .5, 2, 10, 60}}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "witan_fetch_received_bytes_total",
			Help: "Body bytes received by outbound HTTP exchanges, before decoding."}),
	}
	if reg != nil { // two clients of one process share their metrics
		m.exchanges = registered(reg, m.exchanges)
		m.seconds = registered(reg, m.seconds)
		m.bytes = registered(reg, m.bytes)
	}
	return m
}

func registered[T prometheus.Collector](reg prometheus.Registerer, c T) T {
	err := reg.Register(c)
	if err == nil {
		return c
	}
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := known.ExistingCollector.(T); ok {
			return old
		}
	}
	panic(err) // a name of ours is taken by something else: a mistake in the program
}

func (m *metrics) exchange(resp *Response, err error, took time.Duration) {
	result := string(KindOf(err))
	if err == nil {
		result = "other"
		if class := resp.Status / 100; class >= 1 && class <= 5 {
			result = strconv.Itoa(class) + "xx"
		}
	}
	m.exchanges.WithLabelValues(result).Inc()
	m.seconds.Observe(took.Seconds())
}

func (m *metrics) received(n int64) { m.bytes.Add(float64(n)) }
