package replica

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// However many packs rooms import, only so many are kept in memory; the others are read again.
func TestPacksInMemoryAreBounded(t *testing.T) {
	set := openSet(t, memory(t))
	digests, size := []string{}, 0
	for i := range 60 {
		raw := fmt.Appendf(nil, `{"packs":[{"id":"x%02d","title":"X","types":[{"kind":"signal","schema":{},"title":"A","type":"x.a"}]}],"protocol":"agent-discourse/1.0"}`, i)
		sum := sha256.Sum256(raw)
		digests, size = append(digests, "sha256:"+adp.Encode(sum[:])), len(raw)
		if err := set.KeepPack(digests[i], raw); err != nil {
			t.Fatal(err)
		}
	}
	set.packs.most = 10 * size
	for range 2 {
		for i, d := range digests {
			if p, ok := set.Pack(d); !ok || len(p.Document()) == 0 {
				t.Fatalf("pack %d is not to be had", i)
			}
			if p, ok := set.Pack(digests[0]); !ok || p == nil { // used again and again: it stays
				t.Fatal("the first pack is not to be had")
			}
		}
	}
	if n := len(set.packs.of); n != 10 || set.packs.order.Len() != n || set.packs.bytes != n*size {
		t.Errorf("%d packs of %d bytes are kept", n, set.packs.bytes)
	}
	var b store.Batch // what is in memory needs no look at the store
	b.Delete(store.Pack(digests[0]))
	b.Delete(store.Pack(digests[5]))
	if err := set.st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	if _, ok := set.Pack(digests[0]); !ok {
		t.Error("the pack in use was let go")
	}
	if _, ok := set.Pack(digests[5]); ok {
		t.Error("a pack that was let go is still there")
	}
}
