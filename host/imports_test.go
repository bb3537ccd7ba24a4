package host_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// wanting is a room.create whose pack is not to be had.
func (w *world) wanting(uri string) []byte {
	imp := obj{"pack": uri, "digest": "sha256:" + noHash()}
	return w.event(newAgent(w.t), room.Create, w.contract(obj{"types": []any{imp}}), at{}, nil)
}

// An event that is refused for its pack makes the host ask for it once, however often
// it is sent: it is asked for again when half a minute has gone by.
func TestFetchOfAReplay(t *testing.T) {
	w := newWorld(t, nil)
	event := w.wanting(packURI)
	for range 5 {
		w.post("/v1/rooms", event).refused(422, adp.PackUnavailable)
	}
	if w.packs.asked != 1 {
		t.Errorf("the pack was asked for %d times", w.packs.asked)
	}
	doc := packDocument("ext.note") // under the same address, which another event names rightly
	w.packs.have[packURI] = doc
	w.create(newAgent(t), obj{"types": []any{obj{"pack": packURI, "digest": sha256Digest(doc)}}}).ok(201)
	w.clock.Add(30 * second)
	w.post("/v1/rooms", event).refused(422, adp.PackUnavailable)
	if w.packs.asked != 3 {
		t.Errorf("the pack was asked for %d times, want 3", w.packs.asked)
	}
}

// Nobody is flooded by means of the host, and who answers slowly does not hold its
// connections.
func TestFetchesAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	begun, end := make(chan struct{}), make(chan struct{})
	w.packs.hold = func() { begun <- struct{}{}; <-end }
	var slow sync.WaitGroup
	const most = 16
	for i := range most {
		event := w.wanting(fmt.Sprintf("https://slow.test/%d", i))
		slow.Go(func() { w.post("/v1/rooms", event) })
		<-begun
	}
	w.post("/v1/rooms", w.wanting("https://slow.test/more")).refused(429, adp.RateLimited)
	close(end)
	slow.Wait()
	w.packs.hold = nil

	asked := func() (refused int) {
		for i := range 100 {
			if w.post("/v1/rooms", w.wanting(fmt.Sprintf("https://quick.test/%d", i))).status == 429 {
				refused++
			}
		}
		return refused
	}
	if n := asked(); n < 100-64 || w.packs.asked > 64 {
		t.Errorf("%d of a hundred were refused, %d packs asked for", n, w.packs.asked)
	}
	w.clock.Add(second)
	before := w.packs.asked
	if asked(); w.packs.asked == before || w.packs.asked > before+5 {
		t.Errorf("%d packs asked for in one second", w.packs.asked-before)
	}
	w.create(newAgent(t), nil).ok(201) // which needs no pack
}
