package daemon

import (
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/store"
)

// Nonces grow over restarts and over a clock that runs back.
func TestSignerNonces(t *testing.T) {
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	clock := int64(1_000_000)
	d := &daemon{st: st, edges: Edges{Now: func() int64 { return clock }}, ring: keys.FromSeed([32]byte{1}, 1)}
	var last int64
	for start, at := range []int64{1_000_000, 1_000_001, 500, 3_000_000, 0} {
		clock = at
		s, err := newSigner(d)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			e, err := s.head("room.head", map[string]any{})
			if err != nil {
				t.Fatal(err)
			}
			if e.Nonce <= last || e.CreatedAt != at || e.Protocol != adp.WitnessProtocol || e.CheckSignature() != nil {
				t.Errorf("start %d: nonce %d after %d", start, e.Nonce, last)
			}
			last = e.Nonce
		}
	}
}
