package mirror

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
)

// followed is the host as the mirror follows it.
func (g *rig) followed(h *fakeHost) *host { return g.m.host(h.origin()) }

// A list that never comes to its end may name other rooms each time; what is remembered of them has a bound.
func TestListsWithoutEnd(t *testing.T) {
	for what, entry := range map[string]string{
		"restricted": `{"id":"x%d","visibility":"restricted"}`,
		"opted out":  `{"id":"x%d","visibility":"public","policy":{"extra":{"mirror":false}}}`,
		"public":     `{"id":"x%d","visibility":"public"}`,
	} {
		t.Run(what, func(t *testing.T) {
			h := newFakeHost(t)
			s := talk(t, "good", 3)
			h.put(s)
			n := 0
			h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != listPath {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Link", `<https://elsewhere.example/>; rel="next"`)
				fmt.Fprintf(w, "[%s", h.resource("good", h.rooms["good"]))
				for range 30 {
					n++
					fmt.Fprintf(w, ","+entry, n)
				}
				fmt.Fprint(w, "]")
				return true
			})
			g := start(t, memory(t), func(o *Options) { o.RoomsPerHost = 40 }).follow(h)
			g.holds(h, s)
			g.looks(h, 5)
			g.mu.Lock()
			told := len(g.listed)
			g.mu.Unlock()
			f := g.followed(h)
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.listed) > 40 || told > 40 || len(f.rooms) > 40+31 {
				t.Errorf("%d restricted rooms and %d others are remembered, %d are told of", len(f.listed), len(f.rooms), told)
			}
		})
	}
}

// What a list says in place of a word is not kept.
func TestLongWordsInAList(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "good", 3)
	h.put(s)
	h.set(func() { h.rooms["good"].status = strings.Repeat("x", 1<<20) })
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	g.looks(h, 2)
	f := g.followed(h)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.rooms["good"].tried); n > 200 {
		t.Errorf("%d bytes are remembered of what was listed", n)
	}
}

// The text of a record that was refused is kept by itself, and not the page in which it came.
func TestRefusedBytesAreACopy(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "good", 3)
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	g.stop()
	r, _ := g.set.Get(h.origin(), "good")
	raw := []byte(strings.Repeat("x", 1<<20))
	if err := g.m.broken(r, 4, fmt.Errorf("not one"), raw); err == nil {
		t.Fatal("no conclusion")
	}
	raw[0] = 'y'
	if row := r.Row(); row.Verdict != replica.Broken || len(row.BadBytes) != maxBadBytes || row.BadBytes[0] != 'x' {
		t.Errorf("%s, %d bytes, %.1q", row.Verdict, len(row.BadBytes), row.BadBytes)
	}
}

// A record that is larger than the store takes at once stops its room with a reason. It is no fault of ours.
func TestRecordTooLargeToStore(t *testing.T) {
	h := newFakeHost(t)
	good, s, first := talk(t, "good", 3), talk(t, "large", 3), newStory(t, "first", map[string]any{"agenda": strings.Repeat("x", maxRecord)})
	s.say(member, strings.Repeat("x", maxRecord))
	s.say(member, "behind it")
	h.put(good, s, first)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, good)
	until(t, "the room is stopped", func() bool {
		row := g.row(h, "large")
		return row.Seq == 3 && row.State == replica.Paused && strings.HasPrefix(row.Reason, "seq 4: ") && row.Verdict == ""
	})
	until(t, "the reason is told", func() bool {
		for _, p := range g.m.Hosts()[0].Problems {
			if p.RoomID == "first" && strings.HasPrefix(p.Reason, "seq 1: ") {
				return true
			}
		}
		return false
	})
	asked := h.count("/v1/rooms/large/events") + h.count("/v1/rooms/first/events")
	g.looks(h, 5)
	if n := h.count("/v1/rooms/large/events") + h.count("/v1/rooms/first/events"); n > asked+1 {
		t.Errorf("asked %d times more", n-asked)
	}
}

// Keys that are not bound are no news to those who wait for new ones, however often a host shows them: they ask for
// the document again when a log is signed by none that they know.
func TestUnboundKeysAreNoNews(t *testing.T) {
	h := newFakeHost(t)
	show := func(seed byte) {
		did, err := keys.RenderDocument(h.origin(), keys.FromSeed([32]byte{seed}, 1))
		if err != nil {
			t.Fatal(err)
		}
		h.set(func() { h.did = did })
	}
	show(4)
	var bound atomic.Int64
	g := start(t, memory(t), func(o *Options) { o.Bound = func(string) { bound.Add(1) } }).follow(h)
	until(t, "the keys are bound", func() bool { return bound.Load() == 1 })
	for seed := byte(5); seed < 9; seed++ {
		show(seed)
		from := h.count("/.well-known/did.json")
		g.m.ReadKeys(h.origin())
		until(t, "the document is read", func() bool { return h.count("/.well-known/did.json") > from })
		g.looks(h, 2)
	}
	until(t, "the host is rebound", func() bool { return g.m.Hosts()[0].State == Rebound })
	if n := bound.Load(); n != 1 {
		t.Errorf("told of new keys %d times", n)
	}
}

// The list of rooms remembers of each only so much, however large its contract is.
func TestCardsAreSmall(t *testing.T) {
	h := newFakeHost(t)
	long := strings.Repeat("x", 200<<10)
	s := newStory(t, "large", map[string]any{"agenda": "needle " + long, "guidance": long, "extra": map[string]any{"x": long}, "tags": []string{"hay", long}})
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	for query, want := range map[string]bool{"keyword=needle": true, "tag=hay": true, "keyword=other": false} {
		if _, body := g.get(h, "/v1/rooms/public?"+query); strings.Contains(body, `"id":"large"`) != want {
			t.Errorf("%s: %.100s", query, body)
		}
	}
	r, _ := g.set.Get(h.origin(), "large")
	c, err := g.m.card(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	k := c.contract
	size := len(k.Topic) + len(k.Agenda) + len(k.Guidance) + len(k.PolicyJSON) + len(k.Extra)
	for _, tag := range k.Tags {
		size += len(tag)
	}
	if size > 3*cardText {
		t.Errorf("a card of %d bytes", size)
	}
}
