package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/replica"
)

// What is copied at the moment when the operator forgets it is dropped with the rest.
func TestForgetWhileItIsCopied(t *testing.T) {
	h := newFakeHost(t)
	h.pageSize = 3
	var stories []*story
	for i := range 30 {
		stories = append(stories, talk(t, fmt.Sprintf("room-%02d", i), 8))
	}
	h.put(stories...)
	g := start(t, memory(t), func(o *Options) {
		o.PollMin, o.PollMax = time.Millisecond, 2*time.Millisecond
		o.Changed = func(r *replica.Replica) { _ = r.Row() } // it is told of rooms that there are
	}).follow(h)
	held := func() int { return len(g.set.Of(h.origin())) }
	for n := range 5 {
		until(t, "some rooms are held", func() bool { return held() > 3*n })
		if f, err := g.m.Forget(h.origin(), true); err != nil || f.Rooms == 0 {
			t.Fatalf("%+v, %v", f, err)
		}
		if n := held(); n > 0 {
			t.Fatalf("%d rooms are held of a forgotten host", n)
		}
		g.looks(h, 3)
		if n := held(); n > 0 {
			t.Fatalf("%d rooms of a forgotten host were copied again", n)
		}
		g.must(g.m.Resume(h.origin()))
	}
	for _, s := range stories {
		g.holds(h, s)
	}
}
