package keys_test

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/store"
)

const (
	ownOrigin   = "https://own.example"
	otherOrigin = "https://other.example:8443"
)

func openStore(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func openBindings(t *testing.T, st *store.Store) *keys.Bindings {
	t.Helper()
	b, err := keys.NewBindings(st, ownOrigin, ringOf(1))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ringOf(b byte) *keys.Ring { return keys.FromSeed([32]byte{b}, 1) }

func agentOf(r *keys.Ring) adp.AgentID { return adp.AgentID(r.AgentID()) }

// document renders the did:web document of a ring, with members added.
func document(t *testing.T, origin string, r *keys.Ring, add map[string]any) []byte {
	t.Helper()
	raw, err := keys.RenderDocument(origin, r)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	maps.Copy(doc, add)
	raw, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func rotation(t *testing.T, signer, next *keys.Ring, over map[string]any) json.RawMessage {
	t.Helper()
	payload := map[string]any{"origin": otherOrigin, "agent": keys.Multikey(next.Public(keys.Agent)),
		"log": keys.Multikey(next.Public(keys.Log)), "cosigner": keys.Multikey(next.Public(keys.Cosigner))}
	maps.Copy(payload, over)
	e, err := adp.Sign(signer.Key(keys.Agent), adp.Draft{Protocol: adp.WitnessProtocol, Type: keys.RotationType, CreatedAt: 5, Nonce: 5, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return e.JSON()
}

func observe(t *testing.T, b *keys.Bindings, doc []byte, want string) {
	t.Helper()
	got, err := b.Observe(otherOrigin, doc, 1000)
	if err != nil || got != want {
		t.Fatalf("Observe = %q, %v; want %q", got, err, want)
	}
}

func TestFirstUseIsTrustedAndKept(t *testing.T) {
	st := openStore(t)
	b := openBindings(t, st)
	first := ringOf(2)
	if b.Has(otherOrigin) || b.Bound(otherOrigin, agentOf(first)) {
		t.Fatal("bound before anything was observed")
	}
	observe(t, b, document(t, otherOrigin, first, nil), keys.BindingNew)
	observe(t, b, document(t, otherOrigin, first, map[string]any{"x": 1}), keys.BindingSame)
	for _, b := range []*keys.Bindings{b, openBindings(t, st)} {
		if !b.Has(otherOrigin) || !b.Bound(otherOrigin, agentOf(first)) || b.Bound("https://third.example", agentOf(first)) {
			t.Error("the binding is not that of the first document")
		}
	}
}

func TestOwnOrigin(t *testing.T) {
	b := openBindings(t, openStore(t))
	if !b.Bound(ownOrigin, agentOf(ringOf(1))) || b.Bound(ownOrigin, agentOf(ringOf(2))) {
		t.Error("the own origin is bound to the own ring only")
	}
	if _, err := b.Observe(ownOrigin, document(t, ownOrigin, ringOf(2), nil), 1); err == nil {
		t.Error("the own origin was observed")
	}
}

func TestUnusableDocumentChangesNothing(t *testing.T) {
	b := openBindings(t, openStore(t))
	observe(t, b, document(t, otherOrigin, ringOf(2), nil), keys.BindingNew)
	for _, doc := range [][]byte{[]byte("{}"), nil, document(t, "https://else.example", ringOf(3), nil)} {
		if state, err := b.Observe(otherOrigin, doc, 2); err == nil {
			t.Errorf("%.40s: state %q and no error", doc, state)
		}
	}
	if b.Rebound(otherOrigin) || !b.Bound(otherOrigin, agentOf(ringOf(2))) {
		t.Error("the binding changed")
	}
}

func TestChangeWaitsForTheOperator(t *testing.T) {
	st := openStore(t)
	b := openBindings(t, st)
	old, next := ringOf(2), ringOf(3)
	observe(t, b, document(t, otherOrigin, old, nil), keys.BindingNew)
	if err := b.Approve(otherOrigin); !errors.Is(err, keys.ErrNothingPending) {
		t.Errorf("Approve without a change: %v", err)
	}
	observe(t, b, document(t, otherOrigin, next, nil), keys.BindingRebound)
	b = openBindings(t, st)
	if !b.Rebound(otherOrigin) || b.Bound(otherOrigin, agentOf(next)) || !b.Bound(otherOrigin, agentOf(old)) {
		t.Error("the new key counts before the approval, or the old one no more")
	}
	if err := b.Approve(otherOrigin); err != nil {
		t.Fatal(err)
	}
	b = openBindings(t, st)
	if b.Rebound(otherOrigin) || !b.Bound(otherOrigin, agentOf(next)) || !b.Bound(otherOrigin, agentOf(old)) {
		t.Error("after the approval both keys are known")
	}
	observe(t, b, document(t, otherOrigin, next, nil), keys.BindingSame)
	observe(t, b, document(t, otherOrigin, old, nil), keys.BindingRebound)
	observe(t, b, document(t, otherOrigin, next, nil), keys.BindingSame)
	if b.Rebound(otherOrigin) {
		t.Error("the origin shows its bound keys again and is still rebound")
	}
}

func TestRotation(t *testing.T) {
	old, next, stranger := ringOf(2), ringOf(3), ringOf(4)
	for name, c := range map[string]struct {
		rotation json.RawMessage
		want     string
	}{
		"by the bound key":   {rotation(t, old, next, nil), keys.BindingVouched},
		"by the new key":     {rotation(t, next, next, nil), keys.BindingRebound},
		"by a stranger":      {rotation(t, stranger, next, nil), keys.BindingRebound},
		"to other keys":      {rotation(t, old, stranger, nil), keys.BindingRebound},
		"of another origin":  {rotation(t, old, next, map[string]any{"origin": "https://else.example"}), keys.BindingRebound},
		"without the log":    {rotation(t, old, next, map[string]any{"log": nil}), keys.BindingRebound},
		"with a member more": {rotation(t, old, next, map[string]any{"x": 1}), keys.BindingRebound},
	} {
		b := openBindings(t, openStore(t))
		observe(t, b, document(t, otherOrigin, old, nil), keys.BindingNew)
		observe(t, b, document(t, otherOrigin, next, map[string]any{keys.RotationMember: c.rotation}), c.want)
		if got := b.Bound(otherOrigin, agentOf(next)); got != (c.want == keys.BindingVouched) {
			t.Errorf("%s: new key bound: %v", name, got)
		}
		if !b.Bound(otherOrigin, agentOf(old)) {
			t.Errorf("%s: the old key is forgotten", name)
		}
		// a retired key can vouch for nothing
		observe(t, b, document(t, otherOrigin, stranger, map[string]any{keys.RotationMember: rotation(t, old, stranger, nil)}),
			map[string]string{keys.BindingVouched: keys.BindingRebound, keys.BindingRebound: keys.BindingVouched}[c.want])
	}
}

func TestLogKeyIsPartOfTheBinding(t *testing.T) {
	b := openBindings(t, openStore(t))
	old, next := ringOf(2), ringOf(3)
	observe(t, b, document(t, otherOrigin, old, nil), keys.BindingNew)
	var doc map[string]any
	if err := json.Unmarshal(document(t, otherOrigin, old, nil), &doc); err != nil {
		t.Fatal(err)
	}
	doc["verificationMethod"].([]any)[1].(map[string]any)["publicKeyMultibase"] = keys.Multikey(next.Public(keys.Log))
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	observe(t, b, raw, keys.BindingRebound)
}

// A host that changes its keys without end, each time vouched for, has to ask the operator after a while: all of them are kept.
func TestRotationsAreBounded(t *testing.T) {
	st := openStore(t)
	b := openBindings(t, st)
	ring := ringOf(2)
	observe(t, b, document(t, otherOrigin, ring, nil), keys.BindingNew)
	rotate := func(n byte) (state string, next *keys.Ring) {
		next = ringOf(n)
		state, err := b.Observe(otherOrigin, document(t, otherOrigin, next, map[string]any{keys.RotationMember: rotation(t, ring, next, nil)}), 1000)
		if err != nil {
			t.Fatal(err)
		}
		return state, next
	}
	n := byte(3)
	for ; n < 200; n++ {
		state, next := rotate(n)
		if state == keys.BindingRebound {
			break
		}
		if state != keys.BindingVouched {
			t.Fatal(state)
		}
		ring = next
	}
	if all := len(b.LogKeys(otherOrigin)); n > 60 || all > 60 || n < 30 {
		t.Errorf("%d changes, %d log keys are kept", n, all)
	}
	if !b.Rebound(otherOrigin) || !b.Bound(otherOrigin, agentOf(ring)) {
		t.Error("it does not wait for the operator")
	}
	if err := b.Approve(otherOrigin); err != nil || !b.Current(otherOrigin, agentOf(ringOf(n))) {
		t.Errorf("the operator approves: %v", err)
	}
}
