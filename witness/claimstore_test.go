package witness

import (
	"fmt"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

func stored(t testing.TB, n *node) (lines int) {
	t.Helper()
	err := n.o.Store.View(func(r store.Reader) error {
		from, to := store.ClaimRange("")
		return r.Keys(from, to, func([]byte) bool { lines++; return true })
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// Two heads, two room checkpoints, or two checkpoints of a log that cannot both hold
// are proven although a restart lies between them.
func TestClaimsOutliveRestart(t *testing.T) {
	recs, twin := chain(t, roomX, "one", "two"), chain(t, roomX, "one", "2")
	k := logKeyOf(hostA)
	for name, c := range map[string]struct {
		one, two func(n *node)
		want     string
	}{
		"heads": {func(n *node) { n.w.Head(seal(t, key(hostA), TypeHead, head(hostA, recs[:3]))) },
			func(n *node) { n.w.Head(seal(t, key(hostA), TypeHead, head(hostA, twin[:3]))) }, KindHeads},
		"room checkpoints": {func(n *node) { n.w.saw(noteOf(t, RoomOrigin(Subject{hostA, roomX, recs[0].Hash}), 7, 1, k)) },
			func(n *node) { n.w.saw(noteOf(t, RoomOrigin(Subject{hostA, roomX, recs[0].Hash}), 7, 2, k)) }, KindCheckpoints},
		"log": {func(n *node) { // the one that matters is not the greatest
			n.w.saw(noteOf(t, LogOrigin(hostA, 1), 7, 1, k))
			n.w.saw(noteOf(t, LogOrigin(hostA, 1), 9, 1, k))
		}, func(n *node) { n.w.saw(noteOf(t, LogOrigin(hostA, 1), 7, 2, k)) }, KindCheckpoints},
		"head and statement": {func(n *node) { n.w.Head(seal(t, key(hostA), TypeHead, head(hostA, recs[:3]))) },
			func(n *node) { n.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, twin[:3])).JSON()) }, KindHeads},
	} {
		for _, orderly := range []bool{true, false} {
			b := follower(t)
			stop := b.run()
			c.one(b)
			if !orderly { // as a crash leaves it, a second later
				until(t, "what was heard to be written", func() bool { return stored(t, b) > 0 })
			}
			stop()
			b.sees()
			b.again()
			b.w.meet()
			if b.w.claims.order.Len() != 1 || len(b.w.claims.unwritten) != 0 {
				t.Errorf("%s: %d lines are recalled, %d to be written", name, b.w.claims.order.Len(), len(b.w.claims.unwritten))
			}
			c.two(b)
			b.sees("proof " + c.want)
		}
	}
}

// What is forgotten in memory is forgotten on the disk; so is what a host said that is
// not followed any more.
func TestClaimsOnDiskAreBounded(t *testing.T) {
	b := follower(t)
	recs := chain(t, roomX, "one")
	say := func(i int) {
		h := head(hostA, recs[:2])
		h.RoomID = fmt.Sprintf("room-%d", i)
		b.w.Head(seal(t, key(hostA), TypeHead, h))
	}
	for i := range linesPerOrigin + 40 {
		say(i)
		if i%500 == 0 {
			if err := b.w.saveClaims(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.w.saveClaims(); err != nil || stored(t, b) != linesPerOrigin {
		t.Fatal(err, stored(t, b))
	}
	b.again()
	b.w.meet()
	if n := b.w.claims.order.Len(); n != linesPerOrigin || len(b.w.claims.unwritten) != 0 {
		t.Errorf("%d lines, %d unwritten", n, len(b.w.claims.unwritten))
	}
	for name, fault := range faults { // nothing is lost, whatever a commit does
		put := b.w.put
		b.w.put = fault(b)
		say(5000)
		if err := b.w.saveClaims(); err == nil {
			t.Errorf("%s: not told", name)
		}
		b.w.put = put
		if err := b.w.saveClaims(); err != nil || stored(t, b) != linesPerOrigin {
			t.Error(name, err, stored(t, b))
		}
		if raw, ok, err := b.o.Store.Get(store.Claim(hostA, "room-5000", recs[0].Hash, "")); !ok || err != nil {
			t.Errorf("%s: %s %v", name, raw, err)
		}
	}
	b.o.Origins = func() []string { return nil }
	b.o.Current = func(string, adp.AgentID) bool { return false }
	b.again()
	b.w.meet()
	if err := b.w.saveClaims(); err != nil || stored(t, b) != 0 {
		t.Error(err, stored(t, b))
	}
}
