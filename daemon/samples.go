package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/witan-adp/witan/internal/page"
	"github.com/witan-adp/witan/internal/store"
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
	s := page.Sample{At: p.d.edges.Now(), DiskFree: int64(min(p.d.st.Stats().FreeBytes, 1<<62))}
	used, err := store.Allocated(p.d.cfg.Data)
	p.troubled("the size of the data folder cannot be told", &p.unsized, err)
	s.DiskUsed = used
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
	p.troubled("what was measured for the status page could not be stored", &p.unstored, p.remember(s))
}

// troubled tells of an error that comes with each sample once, until it is over.
func (p *pages) troubled(what string, already *bool, err error) {
	if err != nil && !*already {
		p.d.log.Warn(what, "error", err)
	}
	*already = err != nil
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

// remember stores a sample where the one of two hours ago stands.
func (p *pages) remember(s page.Sample) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var b store.Batch
	b.Put(store.Sample(uint64(s.At/sampleEvery.Milliseconds())%maxSamples), raw)
	return p.d.st.Commit(&b)
}

// recall reads the samples of the last two hours, which an earlier run may have taken.
func (p *pages) recall() error {
	now := p.d.edges.Now()
	from, to := store.SampleRange()
	var damaged error
	err := p.d.st.View(func(r store.Reader) error {
		return r.Scan(from, to, func(_, value []byte) bool {
			var s page.Sample
			if damaged = json.Unmarshal(value, &s); damaged != nil {
				return false
			}
			if s.At <= now && now-s.At < maxSamples*sampleEvery.Milliseconds() {
				p.samples = append(p.samples, s)
			}
			return true
		})
	})
	if err = cmp.Or(err, damaged); err != nil {
		return fmt.Errorf("read what was measured before: %w", err)
	}
	slices.SortFunc(p.samples, func(a, b page.Sample) int { return cmp.Compare(a.At, b.At) })
	return nil
}

// Samples implements page.Source.
func (p *pages) Samples() []page.Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.samples)
}
