package messages

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What readers do not get is not found from that moment on, and once the index has
// followed, its words are in no file.
func TestTakedown(t *testing.T) {
	for name, take := range map[string]func(w *world, r *held){
		"withheld":     func(_ *world, r *held) { r.withheld[1] = true },
		"dropped":      func(_ *world, r *held) { r.Dropped = 1 },
		"hidden":       func(_ *world, r *held) { r.Shown = false },
		"forgotten":    func(w *world, r *held) { delete(w.rooms, r.ID) },
		"another room": func(_ *world, r *held) { r.Genesis, r.recs = "h", nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1000)
			r := w.room(1, "https://a.example")
			w.say(r, 1, 1000, "message.create", say("the secretword"))
			w.say(r, 1, 2000, "message.create", say("something else"))
			w.say(w.room(2, "https://b.example"), 1, 3000, "message.create", say("an owl, which stays"))
			w.flush()
			w.compact() // all of it stands in one file
			if got := w.find("q=secretword"); got != "room1/1" {
				t.Fatal(got)
			}
			take(w, r)
			if got := w.find("q=secretword"); got != "" {
				t.Errorf("found at once after: %s", got)
			}
			w.x.Changed(1)
			w.flush()
			if name != "dropped" { // retention is no takedown: its words go when the files are next written
				list, err := w.store.Terms("secretword", "secretword")
				if err != nil || len(list) != 0 {
					t.Errorf("the files have %v, %v", list, err)
				}
			}
			ids, _, err := w.store.Find(t.Context(), []string{"secretword"}, 10)
			if err != nil || len(ids) != 0 {
				t.Errorf("the index has %q, %v", ids, err)
			}
			want := map[string]string{"withheld": "room1/2", "dropped": "room1/2"}[name]
			if got := w.find("q=something"); got != want {
				t.Errorf("the other message: %q", got)
			}
		})
	}
}

// A daemon that ends between a takedown and the time at which the files are written anew
// does that when it is back.
func TestTakedownBeforeTheEnd(t *testing.T) {
	w := newWorld(t, 1000)
	path := filepath.Join(t.TempDir(), "again")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.store.Close())
	w.open(path, 1000)
	r, stays := w.room(1, "https://a.example"), w.room(2, "https://b.example")
	w.say(r, 1, 1000, "message.create", say("the secretword"))
	w.say(stays, 1, 1000, "message.create", say("an owl"))
	w.flush()
	w.compact()
	old, err := filepath.Glob(filepath.Join(path, "*.zap"))
	if must(err); len(old) == 0 {
		t.Fatal("the index has no files")
	}
	r.Shown = false
	w.x.Changed(1)
	w.x.compacted = time.Now().Add(time.Hour) // there was a takedown a moment ago
	must(w.x.flush(t.Context(), false))
	if list, err := w.store.Terms("secretword", "secretword"); err != nil || len(list) != 1 {
		t.Fatalf("the files have %v, %v", list, err)
	}
	must(w.store.Close())

	w.open(path, 1000)
	must(w.x.Load())
	must(w.x.flush(t.Context(), false))
	if list, err := w.store.Terms("secretword", "secretword"); err != nil || len(list) != 0 {
		t.Errorf("after a restart the files have %v, %v", list, err)
	}
	for _, name := range old { // they are removed in the background
		for limit, tick := time.After(time.Minute), time.Tick(2*time.Millisecond); ; {
			if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
				break
			}
			select {
			case <-tick:
				continue
			case <-limit:
				t.Fatalf("%s is still there", name)
			}
		}
	}
	must(w.store.Close())
	w.open(path, 1000)
	must(w.x.Load())
	if w.x.mustCompact() {
		t.Error("it is done at each start")
	}
	if got := w.find("q=owl"); got != "room2/1" {
		t.Errorf("found %q", got)
	}
}

// The files are written anew for what was in them, and not for each change of a room that
// is not shown.
func TestNothingToTakeDown(t *testing.T) {
	w := newWorld(t, 1000)
	r := w.room(1, "https://a.example")
	r.Shown = false
	w.say(r, 1, 1000, "message.create", say("hush"))
	if err := w.x.flush(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if w.x.mustCompact() || !w.x.compacted.IsZero() {
		t.Error("the files are written anew for nothing")
	}
}
