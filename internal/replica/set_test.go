package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever comes and goes, a room is served by the first of its replicas, and each origin lists its own.
func TestWhichReplicaIsServed(t *testing.T) {
	set := openSet(t, memory(t))
	rng := rand.New(rand.NewPCG(1, 2))
	here := map[uint64]*Replica{}
	free := map[uint64]Row{}
	for id := range uint64(60) {
		free[id+1] = Row{Origin: fmt.Sprint("https://h", id%3), RoomID: fmt.Sprint("r", id%7), Genesis: fmt.Sprint("g", id)}
	}
	for range 2000 {
		if id := rng.Uint64N(60) + 1; here[id] == nil {
			r := newReplica(set, id, free[id])
			set.mu.Lock()
			set.add(r)
			set.mu.Unlock()
			here[id] = r
		} else {
			set.drop(here[id])
			delete(here, id)
		}
		first, of := map[[2]string]*Replica{}, map[string]int{}
		for _, id := range slices.Sorted(maps.Keys(here)) {
			r := here[id]
			if of[r.Origin]++; first[[2]string{r.Origin, r.RoomID}] == nil {
				first[[2]string{r.Origin, r.RoomID}] = r
			}
		}
		for o := range 3 {
			origin := fmt.Sprint("https://h", o)
			list := set.Of(origin)
			for _, r := range list {
				if here[r.ID] != r {
					t.Fatalf("%s lists the replica %d, which is gone", origin, r.ID)
				}
			}
			if slices.SortFunc(list, func(a, b *Replica) int { return int(a.ID) - int(b.ID) }); len(slices.Compact(list)) != of[origin] {
				t.Fatalf("%s lists %d replicas of %d", origin, len(list), of[origin])
			}
			for n := range 7 {
				name := [2]string{origin, fmt.Sprint("r", n)}
				if r, ok := set.Get(name[0], name[1]); r != first[name] || ok != (r != nil) {
					t.Fatalf("%s is served by %+v, not by %+v", name, r, first[name])
				}
			}
		}
		if len(set.All()) != len(here) {
			t.Fatal("another number of replicas")
		}
	}
}
