package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/witan-adp/witan/internal/page"
)

// What is measured for the status page: four times a minute, the last two hours,
// the hosts that are furthest behind.
const (
	sampleEvery = 15 * time.Second
	maxSamples  = 480
	maxLags     = 8
)

// run takes samples as long as the daemon runs.
func (p *pages) run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		p.sample(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *pages) sample(ctx context.Context) {
	stats := p.d.st.Stats()
	s := page.Sample{At: p.d.edges.Now(), DiskUsed: stats.LSMBytes + stats.ValueLogBytes, DiskFree: int64(min(stats.FreeBytes, 1<<62))}
	for _, h := range p.report("") {
		s.Lag = append(s.Lag, page.HostLag{Authority: authority(h.Origin), Behind: h.Behind})
	}
	slices.SortStableFunc(s.Lag, func(a, b page.HostLag) int { return int(b.Behind - a.Behind) })
	s.Lag = s.Lag[:min(len(s.Lag), maxLags)]
	p.mu.Lock()
	p.count(ctx)
	p.at = s.At
	s.Records = p.counted.Records
	p.mu.Unlock()
	p.keep(s)
}

// keep adds a sample and lets go of the oldest.
func (p *pages) keep(s page.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.samples) >= maxSamples {
		p.samples = slices.Delete(p.samples, 0, len(p.samples)-maxSamples+1)
	}
	p.samples = append(p.samples, s)
}

// Samples implements page.Source.
func (p *pages) Samples() []page.Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.samples)
}
