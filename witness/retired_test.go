package witness

import (
	"testing"

	"github.com/witan-adp/witan/adp"
)

// What a key signs counts as long as it is bound: what a retired one signed before stands,
// what it signs later does not, and of its heads none is taken.
func TestRetiredKeys(t *testing.T) {
	const retired = t0 + 50_000
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	recs, twin := chain(t, roomX, "one"), chain(t, roomX, "two")
	signed := func(at int64, typ string, payload any) *adp.Envelope {
		t.Helper()
		return must[*adp.Envelope](t)(adp.Sign(key(hostA), adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, CreatedAt: at, Nonce: at, Payload: payload}))
	}
	st := statement(hostA, recs)
	other := chain(t, "other", "one")
	foreign := statement(hostC, other)
	for name, c := range map[string]struct {
		e       *adp.Envelope
		retired bool
		want    Verdict
	}{
		"statement of a bound key":          {signed(retired+1, TypeAnnounce, st), false, Accept},
		"statement before it was retired":   {signed(retired, TypeAnnounce, st), true, Accept},
		"statement after it was retired":    {signed(retired+1, TypeAnnounce, st), true, Ignore},
		"attestation of a bound key":        {signed(retired+1, TypeAttest, attestation(foreign, "")), false, Accept},
		"attestation before it was retired": {signed(retired, TypeAttest, attestation(foreign, "")), true, Accept},
		"attestation after it was retired":  {signed(retired+1, TypeAttest, attestation(foreign, "")), true, Ignore},
	} {
		n := wo.node(t, hostB, hostA, hostC)
		n.o.BoundAt = func(o string, a adp.AgentID, at int64) bool { return n.o.Bound(o, a) && (!c.retired || at <= retired) }
		n.again()
		if v := n.hear(c.e.JSON()); v != c.want {
			t.Errorf("%s: %v, want %v", name, v, c.want)
		}
	}
	for name, current := range map[string]bool{"bound": true, "retired": false} {
		n := wo.node(t, hostB, hostA)
		n.o.Current = func(o string, a adp.AgentID) bool { return current && n.o.Bound(o, a) }
		n.again()
		for _, recs := range [][]*adp.Record{recs, twin} {
			if !n.w.Head(signed(retired+1, TypeHead, head(hostA, recs))) {
				t.Errorf("%s: an authentic head is called none", name)
			}
		}
		if got := n.w.HostEquivocated(hostA) || n.state(hostA, roomX) == "0 equivocated"; got != current {
			t.Errorf("%s: two heads made it equivocated: %v", name, got)
		}
	}
}
