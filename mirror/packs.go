package mirror

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/fetch"
)

const (
	maxPack      = 1 << 20
	packsPerPage = 64
	packRetry    = 10 * time.Minute
	packMemory   = 4096 // packs that are remembered as not to be had
)

// packMisses remembers which packs could not be had, so that a room full of them
// does not ask for each again and again.
type packMisses struct {
	mu    sync.Mutex
	until map[types.PackRef]int64
}

func (p *packMisses) waits(ref types.PackRef, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now < p.until[ref]
}

func (p *packMisses) add(ref types.PackRef, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.until) >= packMemory {
		maps.DeleteFunc(p.until, func(_ types.PackRef, t int64) bool { return t <= now })
	}
	if len(p.until) >= packMemory || p.until == nil {
		p.until = map[types.PackRef]int64{}
	}
	p.until[ref] = now + packRetry.Milliseconds()
}

// fetchPacks collects the external packs that the records of a page import, and
// fetches those that the store lacks, for a bounded time. What is not to be had
// makes the import unverifiable. They count among the bytes of the host; errFull when
// one might not fit any more.
func (h *host) fetchPacks(ctx context.Context, page []checked) (map[string]*types.Pack, error) {
	m := h.m
	var refs []types.PackRef
	for _, c := range page {
		if c.rec != nil {
			refs = append(refs, room.PacksNeeded(c.rec.Envelope)...)
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	have, missing := m.o.Replicas.PacksFor(refs)
	ctx, cancel := context.WithTimeout(ctx, m.packWait)
	defer cancel()
	asked, space, kept := 0, h.space(), int64(0)
	var full error
	for _, ref := range missing {
		now := m.o.Now()
		if asked == packsPerPage || ctx.Err() != nil || have[ref.Digest] != nil || m.packs.waits(ref, now) {
			continue
		}
		if space-kept < maxPack {
			full = errFull
			break
		}
		asked++
		p, size, err := m.fetchPack(ctx, ref)
		if err != nil {
			m.packs.add(ref, now)
			m.log.Info("a type pack is not to be had", "pack", ref.URI, "reason", err)
			continue
		}
		if have == nil {
			have = map[string]*types.Pack{}
		}
		have[ref.Digest] = p
		kept += size
	}
	if kept > 0 {
		if err := h.update(func(row *hostRow) { row.PackBytes += kept }); err != nil {
			return nil, local(err)
		}
	}
	return have, full
}

// space is how many bytes the host may still take: of records, and of the packs that
// they import.
func (h *host) space() int64 {
	space := h.m.o.BytesPerHost
	if space <= 0 {
		return 1 << 62
	}
	h.mu.Lock()
	space -= h.row.PackBytes
	h.mu.Unlock()
	for _, r := range h.m.o.Replicas.Of(h.origin) {
		space -= r.Row().Bytes
	}
	return space
}

func (m *Mirror) fetchPack(ctx context.Context, ref types.PackRef) (p *types.Pack, size int64, err error) {
	resp, err := m.o.Fetch.Do(ctx, fetch.Request{URL: ref.URI, MaxBytes: maxPack, Timeout: m.packWait})
	if err != nil {
		return nil, 0, err
	}
	if resp.Status/100 != 2 {
		return nil, 0, &statusError{path: ref.URI, status: resp.Status}
	}
	if err := types.Digest(ref.Digest, resp.Body); err != nil {
		return nil, 0, err
	}
	if p, err = types.ParsePack(resp.Body); err != nil {
		return nil, 0, err
	}
	return p, int64(len(resp.Body)), m.o.Replicas.KeepPack(ref.Digest, resp.Body)
}
