package keys_test

import (
	"testing"

	"github.com/witan-adp/witan/internal/keys"
)

// Who speaks for an origin now, and who could when it signed, through every history of
// its keys, and after a restart.
func TestWhoSpeaksWhen(t *testing.T) {
	old, next := ringOf(2), ringOf(3)
	type answers struct{ current, before, after bool } // before, after: signed at 4000 and 6000; the change comes at 5000
	never, always := answers{}, answers{true, true, true}
	for name, c := range map[string]struct {
		live      func(b *keys.Bindings)
		old, next answers
	}{
		"nothing is known":           {func(*keys.Bindings) {}, never, never},
		"bound":                      {func(b *keys.Bindings) { show(t, b, old, 1000, nil) }, always, never},
		"bound later than it signed": {func(b *keys.Bindings) { show(t, b, old, 9000, nil) }, always, never},
		"vouched for": {func(b *keys.Bindings) {
			show(t, b, old, 1000, nil)
			show(t, b, next, 5000, old)
			show(t, b, next, 7000, nil)
		}, answers{false, true, false}, always},
		"waiting": {func(b *keys.Bindings) {
			show(t, b, old, 1000, nil)
			show(t, b, next, 5000, nil)
		}, answers{false, true, false}, never},
		"approved": {func(b *keys.Bindings) {
			show(t, b, old, 1000, nil)
			show(t, b, next, 5000, nil)
			if err := b.Approve(otherOrigin); err != nil {
				t.Fatal(err)
			}
		}, answers{false, true, false}, always},
		"it was a slip": {func(b *keys.Bindings) {
			show(t, b, old, 1000, nil)
			show(t, b, next, 5000, nil)
			show(t, b, old, 5500, nil)
		}, always, never},
		"there and back": {func(b *keys.Bindings) {
			show(t, b, old, 1000, nil)
			show(t, b, next, 3000, old)
			show(t, b, old, 5000, next)
		}, always, answers{false, true, false}},
	} {
		st := openStore(t)
		b := openBindings(t, st)
		c.live(b)
		for when, b := range map[string]*keys.Bindings{"": b, " after a restart": openBindings(t, st)} {
			for who, a := range map[*keys.Ring]answers{old: c.old, next: c.next} {
				id := agentOf(who)
				got := answers{b.Current(otherOrigin, id), b.BoundAt(otherOrigin, id, 4000), b.BoundAt(otherOrigin, id, 6000)}
				if got != a {
					t.Errorf("%s%s, old key %v: %+v, want %+v", name, when, who == old, got, a)
				}
			}
			if b.Current(otherOrigin, agentOf(ringOf(9))) || b.BoundAt(otherOrigin, "no agent", 1) {
				t.Errorf("%s: a stranger speaks", name)
			}
			if own := agentOf(ringOf(1)); !b.Current(ownOrigin, own) || !b.BoundAt(ownOrigin, own, 1) || b.Current(ownOrigin, agentOf(old)) || b.BoundAt(ownOrigin, agentOf(old), 1) {
				t.Error("the own origin is spoken for by the own ring only")
			}
		}
	}
}

// show lets an origin show the keys of a ring at a time, vouched for by another ring unless that is nil.
func show(t *testing.T, b *keys.Bindings, r *keys.Ring, at int64, by *keys.Ring) {
	t.Helper()
	over := map[string]any{}
	if by != nil {
		over[keys.RotationMember] = rotation(t, by, r, nil)
	}
	if _, err := b.Observe(otherOrigin, document(t, otherOrigin, r, over), at); err != nil {
		t.Fatal(err)
	}
}
