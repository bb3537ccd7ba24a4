package tilelog

import (
	"errors"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

func TestProveGrowth(t *testing.T) {
	st := memory(t)
	l := open(t, st)
	list := entries(600)
	at := 0
	for _, n := range []int{1, 5, 256, 257, 600} {
		put(t, st, l, list[at:n]...)
		at = n
		for _, to := range []int{1, 2, 5, 255, 256, 257, 511, 512, 600} {
			for _, from := range []int{1, 2, 4, 200, 256, 257, 512, 600} {
				hashes, err := l.ProveGrowth(uint64(from), uint64(to))
				if from > to || to > n {
					if !errors.Is(err, ErrNotThere) {
						t.Fatalf("from %d to %d of %d: %v", from, to, n, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				var p tlog.TreeProof
				for _, h := range hashes {
					p = append(p, tlog.Hash(h))
				}
				before, _ := theirs(t, list[:from])
				after, _ := theirs(t, list[:to])
				if err := tlog.CheckTree(p, int64(to), after, int64(from), before); err != nil {
					t.Fatalf("from %d to %d of %d: %v", from, to, n, err)
				}
			}
		}
	}
	if hashes, err := l.ProveGrowth(0, 600); err != nil || len(hashes) != 0 {
		t.Error(hashes, err)
	}
}
