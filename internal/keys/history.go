package keys

import (
	"cmp"
	"slices"
)

// Known is a key that speaks, or spoke, for an origin.
type Known struct {
	Purpose             Purpose
	Key                 string // Multikey
	FirstSeen, LastSeen int64  // Unix ms
	Retired             bool   // a later document no longer names it
	Waiting             bool   // vouched for by nobody: it counts for nothing until the operator approves
}

// History lists the keys of an origin, the one seen first in front. Our own are
// not in it.
func (b *Bindings) History(origin string) (list []Known) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.byOrigin[origin]
	if o == nil {
		return nil
	}
	for p, keys := range o.keys {
		for key, k := range keys {
			list = append(list, Known{Purpose: p, Key: key, FirstSeen: k.FirstSeen, LastSeen: k.LastSeen, Retired: k.Retired})
		}
	}
	if o.pending != nil {
		for p, key := range o.pending.Keys {
			list = append(list, Known{Purpose: p, Key: key, FirstSeen: o.pending.Seen, LastSeen: o.pending.Seen, Waiting: true})
		}
	}
	slices.SortFunc(list, func(a, b Known) int {
		return cmp.Or(cmp.Compare(a.FirstSeen, b.FirstSeen), cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Key, b.Key))
	})
	return list
}
