package mirror

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// collector tells, when it is asked, where mirroring stands. No label names a host or
// a room: their number is not bounded. `witan mirror status` tells of each.
type collector struct{ m *Mirror }

var (
	descHosts    = describe("hosts", "Hosts that are followed, and removed ones of which rooms are held, by state.", "state")
	descRooms    = describe("rooms", "Rooms of other hosts that are held, by state.", "state")
	descVerdicts = describe("rooms_by_verdict", "Rooms of other hosts that are held, by verdict.", "verdict")
	descRecords  = describe("records_held", "Records of other hosts that are held.")
	descBytes    = describe("bytes_held", "Bytes of the records of other hosts that are held.")
	descRate     = describe("copied_records_per_second", "Records copied a second, over the last ten.")
	descETA      = describe("backfill_eta_seconds", "When the slowest host will have been caught up with at its present rate; 0 when nothing is behind or no rate can be told.")
	descWork     = describe("rooms_in_work", "Rooms that are being copied or compared now.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("witan_mirror_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descHosts, descRooms, descVerdicts, descRecords, descBytes, descRate, descETA, descWork} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	hosts, states, verdicts := map[string]int64{}, map[string]int64{}, map[string]int64{}
	var records, bytes, eta int64
	var rate float64
	for _, h := range c.m.Report("") {
		hosts[h.State]++
		add(states, h.States)
		add(verdicts, h.Verdicts)
		records, bytes = records+h.Records, bytes+h.Bytes
		rate, eta = rate+h.Progress.RecordsPerSecond, max(eta, h.Progress.ETA)
	}
	for _, g := range []struct {
		desc *prometheus.Desc
		of   map[string]int64
	}{{descHosts, hosts}, {descRooms, states}, {descVerdicts, verdicts}} {
		for _, label := range slices.Sorted(maps.Keys(g.of)) {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.of[label]), label)
		}
	}
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(descRecords, float64(records))
	gauge(descBytes, float64(bytes))
	gauge(descRate, rate)
	gauge(descETA, float64(eta))
	gauge(descWork, float64(c.m.working()))
}

func add(to, more map[string]int64) {
	for k, n := range more {
		to[k] += n
	}
}
