package webhook

import (
	"fmt"
	"testing"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// BenchmarkDeliver is one event after the other, from the change to the answer of a
// receiver on loopback, its way through the disk included.
func BenchmarkDeliver(b *testing.B) {
	w := newWorld(b, nil)
	onDisk(b, w)
	k := w.create(own, nil)
	w.run()
	r := w.receiver()
	h := r.register([]string{Mention}, Filters{})
	if _, err := w.w.Pause(h.ID, ""); err != nil {
		b.Fatal(err)
	}
	for i := range b.N {
		k.add(alice, room.Message, say(fmt.Sprint(i)), idOf(bob))
	}
	w.until("the queue", func() bool { return w.show(h.ID).Waiting >= int64(min(b.N, 10_000)) })
	b.ResetTimer()
	if _, err := w.w.Resume(h.ID, ""); err != nil {
		b.Fatal(err)
	}
	w.until("the end", func() bool { return w.show(h.ID).Waiting == 0 })
}

// BenchmarkStart is the look at all rooms at a start, per room of which nothing is new.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b, nil)
	for range 2000 {
		w.create(own, nil)
	}
	w.run()
	r := w.receiver()
	r.register([]string{RoomForked}, Filters{})
	w.until("all rooms", func() bool { return quiet(w) })
	w.stop()
	b.ResetTimer()
	for range b.N/2000 + 1 {
		w.open()
		for ids, hosts := w.w.takeDirty(); len(ids) > 0 || hosts; ids, hosts = w.w.takeDirty() {
			if err := w.w.lookAll(b.Context(), ids, hosts); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func quiet(w *world) bool {
	w.w.dirtyMu.Lock()
	defer w.w.dirtyMu.Unlock()
	return len(w.w.dirty) == 0
}

// onDisk gives a world a store that syncs.
func onDisk(b *testing.B, w *world) {
	st, err := store.Open(store.Options{Dir: b.TempDir(), MinFree: 1})
	if err != nil {
		b.Fatal(err)
	}
	w.st, w.opt.Store = st, st
	w.open()
	b.Cleanup(func() { w.stop(); _ = st.Close() })
}
