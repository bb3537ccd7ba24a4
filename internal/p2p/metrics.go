package p2p

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the node's counters. Label values are bounded: topics that were joined, protocols that this daemon names, and the fixed
// words of the code; never a peer or an address.
type metrics struct {
	reg      prometheus.Registerer
	all      []prometheus.Collector
	messages *prometheus.CounterVec // topic, verdict
	requests *prometheus.CounterVec // protocol, side, result
}

// Verdicts beside those of a validator.
const (
	verdictOversize    = "oversize"    // longer than the topic allows: rejected
	verdictThrottled   = "throttled"   // more than one peer may send, or the queue was full: dropped unseen
	verdictMalformed   = "malformed"   // carried an author or a signature: rejected
	verdictUndelivered = "undelivered" // accepted and passed on, but the handler was too slow: not handled
)

func newMetrics(reg prometheus.Registerer, peers func() int) (*metrics, error) {
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "witan_p2p_messages_total", Help: "Gossip messages from peers, by topic and by what became of them.",
		}, []string{"topic", "verdict"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "witan_p2p_stream_requests_total", Help: "Stream requests, by protocol, side (served or sent) and result.",
		}, []string{"protocol", "side", "result"}),
	}
	if reg == nil {
		return m, nil
	}
	m.reg = reg
	connected := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "witan_p2p_peers", Help: "Connected peers.",
	}, func() float64 { return float64(peers()) })
	for _, c := range []prometheus.Collector{connected, m.messages, m.requests} {
		if err := reg.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("p2p: register metrics: %w", err)
		}
		m.all = append(m.all, c)
	}
	return m, nil
}

// unregister lets another node use the registry. It may be called on nil: a node that failed early has no metrics.
func (m *metrics) unregister() {
	if m == nil {
		return
	}
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
	m.all = nil
}

func (m *metrics) message(topic, verdict string) { m.messages.WithLabelValues(topic, verdict).Inc() }

// request counts one request; a nil error is "ok", others are told apart as far as an operator can act on the difference.
func (m *metrics) request(protocol, side string, err error) {
	result := "ok"
	var remote *RemoteError
	switch {
	case err == nil:
	case errors.Is(err, ErrUnsupported):
		result = "unsupported"
	case errors.Is(err, ErrNotConnected):
		result = "not_connected"
	case errors.Is(err, ErrBusy):
		result = "busy"
	case errors.Is(err, ErrTooLarge):
		result = "too_large"
	case isTimeout(err):
		result = "timeout"
	case errors.As(err, &remote), errors.Is(err, errHandler):
		result = "refused" // the handler answered with an error
	default:
		result = "broken"
	}
	m.requests.WithLabelValues(protocol, side, result).Inc()
}
