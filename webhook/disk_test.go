package webhook

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

// A disk that is full loses nothing: what could not be queued is found, and what could not
// be ticked off is posted again, once there is space.
func TestDiskFull(t *testing.T) {
	var logged lines
	w := newWorld(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	dir := t.TempDir()
	reopen := func(minFree uint64) {
		t.Helper()
		w.stop()
		if err := w.st.Close(); err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(store.Options{Dir: dir, MinFree: minFree})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.stop(); _ = st.Close() })
		w.st, w.opt.Store = st, st
		w.open()
	}
	reopen(1)
	k := w.create(own, nil)
	w.run()
	r := w.receiver()
	h := r.register([]string{Mention}, Filters{})
	if _, err := w.w.Pause(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	first := k.add(alice, room.Message, say("queued"), idOf(bob))
	w.until("an event in the queue", func() bool { return w.show(h.ID).Waiting == 1 })
	if _, err := w.w.Resume(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	w.until("its delivery", func() bool { return w.show(h.ID).Waiting == 0 })
	if _, err := w.w.Pause(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	second := k.add(alice, room.Message, say("queued, too"), idOf(bob))
	w.until("an event in the queue", func() bool { return w.show(h.ID).Waiting == 1 })
	w.stop() // before it is active again, so that it is not posted yet
	if err := locked(&w.w.mu, func() *hook { return w.w.hooks[h.ID] }).update(func(s *standing, _ *uint64) { s.State, s.Reason = Active, "" }, nil); err != nil {
		t.Fatal(err)
	}
	third := k.add(alice, room.Message, say("not queued yet"), idOf(bob))

	reopen(1 << 62)
	w.run()
	w.until("a delivery that cannot be ticked off", func() bool { return len(r.events()) == 2 })
	w.until("the look that cannot be stored", func() bool { return logged.has("events for webhooks could not be queued") })
	w.until("the delivery that cannot be stored", func() bool { return logged.has("what became of a delivery could not be stored") })
	if s := w.show(h.ID); s.Waiting != 1 || s.Delivered != 1 { // and nobody holds a lock for ever
		t.Errorf("%+v", s)
	}
	if _, err := w.w.Pause(h.ID, ""); err == nil {
		t.Error("a pause that is not stored is no pause")
	}
	reopen(1)
	w.run()
	list := w.untilEvents(r, Mention, Mention, Mention)
	for i, seq := range []int64{first, second, third} {
		w.verify(list[i], seq, room.Message)
	}
	w.until("an empty queue", func() bool { return w.show(h.ID).Waiting == 0 })
	if n := len(r.got()); n < 4 {
		t.Errorf("%d deliveries: the one that was not ticked off did not come again", n)
	}
	if logged.has("whsec_") || logged.has("queued, too") {
		t.Errorf("the log tells secrets:\n%s", logged.text.String())
	}
}
