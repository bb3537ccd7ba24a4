package witness

import (
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/policy"
)

// With a policy, State counts operator groups and asks for as many as it says.
func TestStateByPolicy(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	b := wo.node(t, hostB, hostA)
	var ws []policy.Witness
	for who, group := range map[string]string{"w1": "one", "w1 again": "one", "w2": "two", "friend of A": "a", hostA: "a"} {
		b.o.Trust = append(b.o.Trust, Trust{Agent: agentOf(key(who)), Group: group})
		ws = append(ws, policy.Witness{Agent: agentOf(key(who)), Group: group})
	}
	var err error
	if b.o.Policy, err = policy.New(ws, nil, policy.Group{Threshold: 2}); err != nil {
		t.Fatal(err)
	}
	b.again()
	recs := chain(t, roomX, "one", "two")
	st := statement(hostA, recs)
	for _, step := range []struct {
		who  string
		want string
	}{{"w1", "1 partial"}, {"w1 again", "1 partial"}, {"friend of A", "1 partial"}, {"w2", "2 attested"}} {
		if v := b.hear(seal(t, key(step.who), TypeAttest, attestation(st, "")).JSON()); v != Accept {
			t.Fatal(step.who, v)
		}
		if got := b.state(hostA, roomX); got != step.want {
			t.Errorf("after %s: %s", step.who, got)
		}
	}
	b.again() // after a restart
	if got := b.state(hostA, roomX); got != "2 attested" {
		t.Error(got)
	}
	// a witness on both sides counts no more
	other := attestation(statement(hostA, chain(t, roomX, "one", "2")), "")
	b.hear(seal(t, key("w2"), TypeAttest, other).JSON())
	if got := b.state(hostA, roomX); got != "1 partial" {
		t.Error(got)
	}
	// a host on both sides is equivocated, whoever attests
	for _, content := range []string{"two", "2"} {
		b.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, chain(t, roomX, "one", content))).JSON())
	}
	if got := b.state(hostA, roomX); got != "1 "+Equivocated {
		t.Error(got)
	}
	// nobody who is not in the policy counts, bound or not
	c := wo.node(t, hostB, hostA)
	wo.bind(hostA+"x", key("bound"))
	c.o.Policy = b.o.Policy
	c.o.Origins = func() []string { return []string{hostA + "x"} }
	c.o.Bound = func(o string, a adp.AgentID) bool { return o == hostA+"x" && a == agentOf(key("bound")) }
	c.again()
	if v := c.hear(seal(t, key("bound"), TypeAttest, attestation(st, "")).JSON()); v != Accept || c.state(hostA, roomX) != "0 "+Unattested {
		t.Error(v, c.state(hostA, roomX))
	}
}
