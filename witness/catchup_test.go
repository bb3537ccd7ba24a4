package witness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asksIn is one round, in which some peers fail; it tells who was asked.
func asksIn(t *testing.T, n *node, peers []string, fails func(peer string) bool) []string {
	t.Helper()
	var mu sync.Mutex
	got := map[string]bool{}
	err := n.w.CatchUp(t.Context(), peers, func(_ context.Context, peer string, _ []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if got[peer] {
			t.Errorf("%s is asked twice", peer)
		}
		got[peer] = true
		if fails != nil && fails(peer) {
			return nil, errors.New("no answer")
		}
		return []byte(`{"items":[],"next":""}`), nil
	})
	failed := slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(p string) bool { return fails != nil && fails(p) })
	if failed != (err != nil) {
		t.Errorf("%v", err)
	}
	return slices.Sorted(maps.Keys(got))
}

func TestCatchUpAsksThree(t *testing.T) {
	n := newWorld().node(t, hostB)
	var peers []string
	for i := range 30 {
		peers = append(peers, fmt.Sprintf("peer-%02d", i))
	}
	if got := asksIn(t, n, nil, nil); len(got) != 0 {
		t.Error(got)
	}
	for _, k := range []int{1, 2} {
		if got := asksIn(t, n, peers[:k], nil); len(got) != k {
			t.Error(got)
		}
	}
	// who is connected for the first time is asked at once, within reason
	if got := asksIn(t, n, peers[:10], nil); len(got) != 8 || slices.Contains(got, peers[0]) {
		t.Error(got)
	}
	if got := asksIn(t, n, peers, nil); len(got) != maxFresh || got[0] < peers[10] {
		t.Error(got)
	}
	// then three a round, and all in turn
	seen := map[string]int{}
	asksIn(t, n, peers, nil) // the last fresh ones
	for range 10 {
		got := asksIn(t, n, peers, nil)
		if len(got) != roundPeers {
			t.Error(got)
		}
		for _, p := range got {
			seen[p]++
		}
	}
	if len(seen) != 30 {
		t.Errorf("%d of 30 were asked in ten rounds: %v", len(seen), seen)
	}
	// one that does not answer is made up for by another
	for range 20 {
		fails := func(p string) bool { return p < peers[20] }
		answered := 0
		for _, p := range asksIn(t, n, peers, fails) {
			if !fails(p) {
				answered++
			}
		}
		if answered != roundPeers {
			t.Error(answered)
		}
	}
	if got := asksIn(t, n, peers, func(string) bool { return true }); len(got) != 30 {
		t.Error(len(got))
	}
	if got := asksIn(t, n, peers[:5], func(p string) bool { return p != peers[4] }); len(got) != 5 {
		t.Error(got)
	}
}

// A peer that never answers holds up nobody else, and not for ever.
func TestCatchUpWithASilentPeer(t *testing.T) {
	n := newWorld().node(t, hostB) // its store is not of the bubble
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		asked := map[string]time.Duration{}
		err := n.w.CatchUp(t.Context(), []string{"silent", "a", "b", "c"}, func(ctx context.Context, peer string, _ []byte) ([]byte, error) {
			mu.Lock()
			asked[peer] = time.Since(start)
			mu.Unlock()
			if peer == "silent" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []byte(`{"items":[],"next":""}`), nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != roundTime {
			t.Error(err, time.Since(start))
		}
		for _, p := range []string{"a", "b", "c"} {
			if at, ok := asked[p]; !ok || at != 0 {
				t.Error(p, at, ok)
			}
		}
		// the round ends with its context
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.w.CatchUp(ctx, []string{"a", "b"}, func(context.Context, string, []byte) ([]byte, error) {
			t.Error("asked")
			return nil, nil
		}); err != nil {
			t.Error(err)
		}
	})
}
