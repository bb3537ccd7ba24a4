package witness

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have labels from fixed words only.
type metrics struct {
	signed   *prometheus.CounterVec // type
	judged   *prometheus.CounterVec // verdict
	evidence *prometheus.CounterVec // class
	dropped  *prometheus.CounterVec // queue
	tailed   *prometheus.CounterVec // outcome
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		signed:   counter("witan_witness_signed_total", "Envelopes signed about archives, by type.", "type"),
		judged:   counter("witan_witness_messages_total", "Statements, attestations and proofs from peers, by verdict.", "verdict"),
		evidence: counter("witan_witness_evidence_total", "Evidence kept, by class.", "class"),
		dropped:  counter("witan_witness_dropped_total", "Messages dropped because a queue was full; catch-up brings them again.", "queue"),
	}
	m.tailed = counter("witan_witness_tail_rounds_total", "Looks at the logs of followed origins, by outcome.", "outcome")
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.signed, m.judged, m.evidence, m.dropped, m.tailed} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("witness: register metrics: %w", err)
		}
	}
	return m, nil
}
