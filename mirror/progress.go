package mirror

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// rateWindow is the time over which a rate is told.
const rateWindow = 10 * time.Second

// progress counts what was copied of a host since the daemon started.
type progress struct {
	mu      sync.Mutex
	records int64
	bytes   int64
	marks   []mark // oldest first, about one a second
}

type mark struct {
	at             time.Time
	records, bytes int64
}

func (p *progress) add(records, bytes int64, now time.Time) {
	if records <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.marks); n == 0 || now.Sub(p.marks[n-1].at) >= time.Second {
		p.marks = append(p.marks, mark{now, p.records, p.bytes})
		p.trim(now)
	}
	p.records, p.bytes = p.records+records, p.bytes+max(0, bytes)
}

// trim keeps one mark that is older than the window. p.mu is held.
func (p *progress) trim(now time.Time) {
	for len(p.marks) > 1 && now.Sub(p.marks[1].at) >= rateWindow {
		p.marks = append(p.marks[:0], p.marks[1:]...)
	}
}

// Progress is how copying goes. Records and Bytes count since the daemon started;
// Pending is what the host lists and we do not hold yet, of rooms that it shows. The
// time left counts those, too, that it was not asked for yet.
type Progress struct {
	Records          int64   `json:"records"`
	Bytes            int64   `json:"bytes"`
	RecordsPerSecond float64 `json:"records_per_second"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
	Pending          int64   `json:"pending"`
	ETA              int64   `json:"eta_seconds,omitempty"` // 0 when nothing is pending, or no rate can be told
}

func (p *progress) now(now time.Time, pending, untried int64) Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim(now)
	out := Progress{Records: p.records, Bytes: p.bytes, Pending: pending}
	if len(p.marks) == 0 {
		return out
	}
	first := p.marks[0]
	// over the window at least, so that a burst right now is no rate; a pause of the
	// whole window ends it
	span := max(now.Sub(first.at), time.Second)
	if now.Sub(p.marks[len(p.marks)-1].at) >= rateWindow {
		return out
	}
	out.RecordsPerSecond = float64(p.records-first.records) / span.Seconds()
	out.BytesPerSecond = float64(p.bytes-first.bytes) / span.Seconds()
	if left := pending + untried; left > 0 && out.RecordsPerSecond > 0 {
		out.ETA = int64(float64(left)/out.RecordsPerSecond) + 1
	}
	return out
}

// owed counts the records that the host lists and we do not hold, save of rooms that are
// not copied: of rooms that it shows, and of those of which it merely says so. untried is
// what of the latter it was not asked for yet. No room counts for more than may be kept
// of it: a host can list any number. h.mu is held.
func (h *host) owed() (behind, claimed, untried int64) {
	for _, v := range h.rooms {
		held := int64(0)
		if v.r != nil {
			held = v.r.Row().Seq
		}
		n := min(v.listed, h.m.o.RecordsPerRoom) - held
		if n <= 0 {
			continue
		}
		if _, stopped := h.m.stopped(h.origin, v.id); stopped {
			continue
		}
		if v.r != nil && v.problem == "" {
			behind += n
			continue
		}
		claimed += n
		if v.problem == "" {
			untried += n
		}
	}
	return behind, claimed, untried
}

// owed is that of all hosts.
func (m *Mirror) owed() (behind, claimed int64) {
	for _, h := range m.followed() {
		h.mu.Lock()
		b, c, _ := h.owed()
		h.mu.Unlock()
		behind, claimed = behind+b, claimed+c
	}
	return behind, claimed
}

// registerOwed makes what is owed a part of the metrics.
func (m *Mirror) registerOwed(reg prometheus.Registerer) {
	gauge := func(name, help string, of func() int64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(of()) }))
	}
	gauge("witan_mirror_pending_records", "Records that hosts list and that are not held yet, of rooms that they show.", func() int64 { behind, _ := m.owed(); return behind })
	gauge("witan_mirror_claimed_records", "Records that hosts list of rooms of which they have shown nothing, or nothing more.", func() int64 { _, claimed := m.owed(); return claimed })
}
