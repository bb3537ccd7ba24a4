package index

import (
	"fmt"
	"testing"
)

// noticed_since goes by when something came here, whatever the clock of a host says.
func TestNoticedSince(t *testing.T) {
	x, c := newIndex(start)
	if err := x.Load(); err != nil {
		t.Fatal(err)
	}
	x.Put(doc("own", func(d *Doc) { d.LastActivity = start - 300 }))
	x.Put(doc("found", func(d *Doc) { d.LastActivity, d.FoundAt = start-300, start-100 }))
	x.Put(doc("future", func(d *Doc) { d.LastActivity = start + 1000 }))
	x.Loaded()
	check := func(what string, since int64, want string) {
		t.Helper()
		if got := sorted(roomIDs(t, x, fmt.Sprint("noticed_since=", since))); got != want {
			t.Errorf("%s: since %d: %q, want %q", what, since-start, got, want)
		}
	}
	check("after a start", start-301, "found future own")
	check("after a start", start-300, "found future")
	check("after a start", start-100, "future")
	check("after a start", start, "")

	c.ms += 10
	late := func(d *Doc) { d.LastActivity = start - 5000 }
	x.Put(doc("late", late)) // an old room of a host that is new
	check("a room that comes", start, "late")
	c.ms += 10
	x.Put(doc("late", func(d *Doc) { late(d); d.SyncedAt = c.ms; d.Verdict = "forked" }))
	x.SetAttested(doc("late", nil).Origin, "late", 1, "attested")
	check("nothing was said", start+10, "")
	x.Put(doc("late", func(d *Doc) { late(d); d.Records++ }))
	check("one more record", start+10, "late")
	c.ms += 10
	x.Put(doc("late", func(d *Doc) { late(d); d.Records++; d.Hidden = true }))
	c.ms += 10
	x.Put(doc("late", func(d *Doc) { late(d); d.Records++ }))
	check("shown again", start+30, "late")
	c.ms += 10
	x.Remove(doc("late", nil).Origin, "late")
	x.Put(doc("late", late))
	check("found again", start+40, "late")
	if r, ok := x.Room(doc("late", nil).Origin, "late"); !ok || r.NoticedAt != start+50 {
		t.Errorf("%+v", r)
	}
}
