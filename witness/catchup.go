package witness

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"
)

// Of one round of CatchUp.
const (
	roundPeers = 3               // that have to answer, when there are so many
	roundTime  = 2 * time.Minute // for one peer
	maxFresh   = 16              // peers that were never asked: all are asked at once, up to this many
)

// asked remembers when each connected peer was asked last, by the number of the
// round.
type asked struct {
	mu    sync.Mutex
	round uint64
	last  map[string]uint64
}

// order sorts peers: those never asked first, then by how long ago they were
// asked; among equals each daemon has another order in each round. fresh is how
// many were never asked.
func (a *asked) order(self string, peers []string) (sorted []string, fresh int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.round++
	last := map[string]uint64{}
	for _, p := range peers {
		if last[p] = a.last[p]; last[p] == 0 {
			fresh++
		}
	}
	a.last = last // who is not connected any more is forgotten
	lot := func(peer string) uint64 {
		sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, a.round), self+" "+peer...))
		return binary.BigEndian.Uint64(sum[:])
	}
	sorted = slices.Clone(peers)
	slices.SortFunc(sorted, func(x, y string) int {
		return cmp.Or(cmp.Compare(last[x], last[y]), cmp.Compare(lot(x), lot(y)), cmp.Compare(x, y))
	})
	return sorted, fresh
}

func (a *asked) mark(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, connected := a.last[peer]; connected {
		a.last[peer] = a.round
	}
}

// CatchUp asks peers for everything new, side by side: all that are connected for
// the first time, and as many as it takes for three to answer, beginning with the
// one that was asked longest ago. So one that lies, or keeps things back, or does
// not answer, keeps nothing from us that any of the others has. The error holds
// what went wrong with each peer; the others are asked all the same.
func (w *Witness) CatchUp(ctx context.Context, peers []string, request func(ctx context.Context, peer string, request []byte) ([]byte, error)) error {
	sorted, fresh := w.asked.order(string(w.self), peers)
	need := max(roundPeers, min(fresh, maxFresh))
	var mu sync.Mutex
	var all []error
	next, answered, running := 0, 0, 0
	done := sync.NewCond(&mu)
	ask := func(peer string) {
		ctx, cancel := context.WithTimeout(ctx, roundTime)
		defer cancel()
		w.asked.mark(peer)
		err := w.Pull(ctx, peer, func(ctx context.Context, b []byte) ([]byte, error) { return request(ctx, peer, b) })
		mu.Lock()
		defer mu.Unlock()
		if running--; err != nil {
			all = append(all, err)
		} else {
			answered++
		}
		done.Broadcast()
	}
	mu.Lock()
	defer mu.Unlock()
	for {
		for next < len(sorted) && answered+running < need && ctx.Err() == nil {
			peer := sorted[next]
			next++
			running++
			go ask(peer)
		}
		if running == 0 {
			return errors.Join(all...)
		}
		done.Wait()
	}
}
