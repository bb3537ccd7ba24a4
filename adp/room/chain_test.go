package room

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func TestMemoryChainGrows(t *testing.T) {
	hash := func(kind byte, n uint64) string {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte{kind}, n))
		return adp.Encode(sum[:])
	}
	var m MemoryChain
	if _, ok := m.SeqOf(hash('e', 1)); ok {
		t.Error("an empty chain has an envelope")
	}
	if _, ok := m.HashAt(1); ok {
		t.Error("an empty chain has a record")
	}
	const n = 5 * chunkSize / 2
	for i := uint64(1); i <= n; i++ {
		e := i
		if i%100 == 0 { // the envelope before once more
			e = i - 1
		}
		m.Add(&adp.Record{Hash: hash('r', i), Envelope: &adp.Envelope{Hash: hash('e', e)}})
	}
	for i := uint64(1); i <= n; i++ {
		if h, ok := m.HashAt(int64(i)); !ok || h != hash('r', i) {
			t.Fatalf("record %d: %q", i, h)
		}
		seq, ok := m.SeqOf(hash('e', i))
		if want := i%100 != 0; ok != want || ok && seq != int64(i) {
			t.Fatalf("envelope %d at %d, %v", i, seq, ok)
		}
	}
	for _, seq := range []int64{-1, 0, n + 1} {
		if _, ok := m.HashAt(seq); ok {
			t.Errorf("a record at %d", seq)
		}
	}
	for _, h := range []string{"", "x", hash('r', 1)} {
		if _, ok := m.SeqOf(h); ok {
			t.Errorf("an envelope %q", h)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a record without a hash was taken")
		}
	}()
	m.Add(&adp.Record{Envelope: &adp.Envelope{}})
}
