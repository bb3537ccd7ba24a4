package witness

import (
	"testing"

	"github.com/witan-adp/witan/adp"
)

// A copy that did not come from the host is believed as far as its keys have signed for
// one story, and no further.
func TestVouched(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	wo.bind(hostA, key("second key"))
	recs, twin := chain(t, roomX, "one"), chain(t, roomX, "two")
	n1 := int64(len(recs))
	stated := func(who string, recs []*adp.Record) func(*node) {
		return func(n *node) { n.hear(seal(t, key(who), TypeAnnounce, statement(hostA, recs)).JSON()) }
	}
	headed := func(who string, recs []*adp.Record) func(*node) {
		return func(n *node) { n.w.Head(seal(t, key(who), TypeHead, head(hostA, recs))) }
	}
	for name, c := range map[string]struct {
		heard []func(*node)
		seq   int64
	}{
		"nothing":                     {nil, 0},
		"a statement":                 {[]func(*node){stated(hostA, recs)}, n1},
		"a head":                      {[]func(*node){headed(hostA, recs[:2])}, 2},
		"a head before the statement": {[]func(*node){headed(hostA, recs[:2]), stated(hostA, recs)}, n1},
		"two heads":                   {[]func(*node){headed(hostA, recs[:2]), headed(hostA, recs[:1])}, 2},
		"of a stranger":               {[]func(*node){stated("x", recs), headed("x", recs)}, 0},
		"two statements, one key":     {[]func(*node){stated(hostA, recs), stated(hostA, twin)}, 0},
		"two statements, two keys":    {[]func(*node){stated(hostA, recs), stated("second key", twin)}, 0},
		"the same by two keys":        {[]func(*node){stated(hostA, recs), stated("second key", recs)}, n1},
		"two heads that contradict":   {[]func(*node){headed(hostA, recs), headed(hostA, twin)}, 0},
	} {
		n := wo.node(t, hostB, hostA)
		for _, hear := range c.heard {
			hear(n)
		}
		s := statement(hostA, recs).Subject
		seq, hash, ok := n.w.Vouched(s)
		if ok != (c.seq > 0) || seq != c.seq || ok && hash != recs[seq-1].Hash {
			t.Errorf("%s: %d %q %v, want %d", name, seq, hash, ok, c.seq)
		}
		all := func(string, string) bool { return true }
		if list := n.w.VouchedRooms(hostA, 10, all); c.seq > 0 && (len(list) != 1 || list[0] != s) || len(c.heard) == 0 && len(list) != 0 {
			t.Errorf("%s: rooms %v", name, list)
		}
		if list := n.w.VouchedRooms(hostA, 10, func(string, string) bool { return false }); len(list) != 0 {
			t.Errorf("%s: rooms that nobody wants: %v", name, list)
		}
	}
}
