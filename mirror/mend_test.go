package mirror

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
)

// withhold makes a host show a story with some records without their envelopes.
func (h *fakeHost) withhold(s *story, seqs ...int) {
	h.t.Helper()
	served := s.texts()
	for _, seq := range seqs {
		red, err := s.recs[seq-1].Redact()
		if err != nil {
			h.t.Fatal(err)
		}
		served[seq-1] = red.JSON()
	}
	h.set(func() { h.rooms[s.id].texts = served })
}

// asks counts the requests for single records of a room.
func (h *fakeHost) asks(id string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for path, k := range h.asked {
		if strings.HasPrefix(path, "/v1/rooms/"+id+"/events?") && strings.HasSuffix(path, "&limit=1") {
			n += k
		}
	}
	return n
}

// unasked keeps a mirror from looking for originals before somebody wants it: it would do so
// some time within the first hour.
func unasked(m *Mirror) { m.mendEvery = 1 << 62 }

func often(o *Options) { o.PollMin, o.PollMax = 2*time.Millisecond, 5*time.Millisecond }

// What a host withheld when it was copied, and shows again, takes its place, whatever
// became of the room meanwhile.
func TestOriginalsComeBack(t *testing.T) {
	for name, c := range map[string]struct {
		end func(t *testing.T, h *fakeHost, s *story)
	}{
		"of a room that goes on": {func(t *testing.T, h *fakeHost, s *story) { h.put(s) }},
		"of one whose archive was believed": {func(t *testing.T, h *fakeHost, s *story) {
			manifest, _ := ended(t, s, true)
			h.end(s, manifest)
		}},
		"of one that could have no archive": {func(t *testing.T, h *fakeHost, s *story) {
			ended(t, s, true)
			h.end(s, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h, st := newFakeHost(t), memory(t)
			s := talk(t, "room", 8)
			s.say(foreign, "let me in") // a violation, as will be seen
			bad := len(s.recs)
			s.say(member, "who was that")
			c.end(t, h, s)
			h.withhold(s, 5, bad)
			g := startOn(t, st, often, unasked).follow(h)
			over := len(s.recs) > bad+1
			until(t, "it is copied", func() bool {
				row := g.row(h, "room")
				return row.Seq == int64(len(s.recs)) && row.Withheld == 2 && (!over || row.State == replica.Complete)
			})
			if row := g.row(h, "room"); row.EffectiveVerdict() != replica.Verified {
				t.Errorf("%+v", row)
			}
			told := func() int { g.mu.Lock(); defer g.mu.Unlock(); return len(g.completed) }
			before := told()
			h.withhold(s) // nothing any more
			n := h.asks("room")
			g.looks(h, 5)
			if h.asks("room") != n {
				t.Error("the host is asked at every look")
			}
			g.must(g.m.Retry(h.origin()))
			until(t, "the originals are there", func() bool { return g.row(h, "room").Withheld == 0 })
			g.holds(h, s)
			row := g.row(h, "room")
			if row.Violations != 1 || row.Rules[adp.PermissionDenied] != 1 || row.EffectiveVerdict() != replica.Violations {
				t.Errorf("%+v", row)
			}
			if _, body := g.get(h, "/v1/rooms/room/events"); strings.Contains(body, `"redacted"`) || !strings.Contains(body, "let me in") {
				t.Error("the originals are not served")
			}
			if over {
				until(t, "others are told that the archive can be recomputed", func() bool { return told() > before })
				if row := g.row(h, "room"); !row.Archived || row.State != replica.Complete {
					t.Errorf("%+v", row)
				}
			}
		})
	}
}

// While a host goes on withholding, it is asked seldom, for some records at a time; all
// come by turns, over a restart too.
func TestWithheldIsNotAskedForHotly(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	s := talk(t, "room", 2+2*mendAsks)
	h.put(s)
	var all []int
	for seq := 3; seq <= len(s.recs); seq++ {
		all = append(all, seq)
	}
	h.withhold(s, all...)
	g := startOn(t, st, often, unasked).follow(h)
	until(t, "it is copied", func() bool { return g.row(h, "room").Withheld == 2*mendAsks })
	g.looks(h, 20)
	if n := h.asks("room"); n != 0 {
		t.Errorf("asked %d times before anybody wanted it", n)
	}
	for i := range 4 {
		g.must(g.m.Retry(h.origin() + "/v1/rooms/room"))
		until(t, "a share of them is asked for", func() bool { return h.asks("room") == (i+1)*mendAsks })
		g.looks(h, 10)
		if n := h.asks("room"); n != (i+1)*mendAsks {
			t.Errorf("look %d: asked %d times, want %d", i, n, (i+1)*mendAsks)
		}
	}
	h.withhold(s, slices.DeleteFunc(all, func(seq int) bool { return seq == 5 || seq == 60 })...)
	g.stop()
	g = startOn(t, st, often, unasked)
	g.must(g.m.Retry(h.origin()))
	until(t, "the first is there", func() bool { return g.row(h, "room").Withheld < 2*mendAsks })
	until(t, "the other one is there", func() bool {
		g.must(g.m.Retry(h.origin()))
		return g.row(h, "room").Withheld == 2*mendAsks-2
	})
}

// Another record in the place of what was withheld is another story.
func TestOriginalThatIsAnother(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 8)
	h.put(s)
	h.withhold(s, 5)
	g := start(t, memory(t), often).follow(h)
	until(t, "it is copied", func() bool { return g.row(h, "room").Withheld == 1 })
	c := s.cut(4)
	for len(c.recs) < 8 {
		c.say(member, "it was never said like this")
	}
	h.set(func() { h.rooms["room"].texts = append(c.texts()[:7:7], s.texts()[7]) }) // the list tells of no change
	g.must(g.m.Retry(h.origin()))
	row := g.becomes(h, "room", replica.Forked)
	if !strings.HasPrefix(row.Reason, "seq 5: ") || row.Withheld != 1 {
		t.Errorf("%+v", row)
	}
}

// What the operator withholds, too, stays so.
func TestOriginalThatTheOperatorWithholds(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 8)
	h.put(s)
	h.withhold(s, 4, 6)
	g := start(t, memory(t), often).follow(h)
	until(t, "it is copied", func() bool { return g.row(h, "room").Withheld == 2 })
	url := h.origin() + "/v1/rooms/room"
	if _, err := g.m.Withhold(url, 4, "we were asked, too"); err != nil {
		t.Fatal(err)
	}
	h.withhold(s)
	g.must(g.m.Retry(h.origin()))
	until(t, "the other one is there", func() bool { return g.row(h, "room").Withheld == 1 })
	g.must(g.m.ReleaseRecord(url, 4))
	g.must(g.m.Retry(h.origin()))
	until(t, "so is this one", func() bool { return g.row(h, "room").Withheld == 0 })
	g.holds(h, s)
}

// Each time that originals come back the whole room is judged anew: the longer it is, the longer until the next time.
func TestMendingTakesItsTime(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 8)
	h.put(s)
	h.withhold(s, 5)
	now := time.Now().UnixMilli()
	g := start(t, memory(t), func(o *Options) { often(o); o.Now = func() int64 { return now } }).follow(h)
	until(t, "it is copied", func() bool { return g.row(h, "room").Withheld == 1 })
	h.withhold(s)
	g.must(g.m.Retry(h.origin()))
	until(t, "the original is there", func() bool { return g.row(h, "room").Withheld == 0 })
	f := g.m.host(h.origin())
	f.mu.Lock()
	defer f.mu.Unlock()
	if wait := f.rooms["room"].mendAt - now; wait < 8*mendPace+g.m.o.PollMax.Milliseconds()*4/5 {
		t.Errorf("the next look for originals is in %d ms", wait)
	}
}
