package mirror

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// dead makes a rig that has the first records of a host's room and cannot reach the
// host any more, while another mirror, which serves all of it, still could.
func dead(t *testing.T, vouched func(k replica.Key) (int64, string, bool)) (h *liveHost, s *story, late, early *rig) {
	t.Helper()
	h = newLiveHost(t, 4, nil, nil)
	s = talk(t, "room", 3)
	h.put(s)
	late = startOn(t, memory(t), func(o *Options) { o.Vouched = vouched }, nil).follow(h.fakeHost).bound(h)
	late.holds(h.fakeHost, s)
	if err := late.m.Pause(h.origin()); err != nil {
		t.Fatal(err)
	}
	late.looks0(h.fakeHost)
	for range 6 {
		s.say(member, "what the late one misses")
	}
	h.put(s)
	early = start(t, memory(t), nil).follow(h.fakeHost)
	early.holds(h.fakeHost, s)
	h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 503, ""); return true })
	if err := late.m.AddWith(h.origin(), "config", HostOptions{Via: []string{early.face.URL + "/"}}); err != nil {
		t.Fatal(err)
	}
	if err := late.m.Resume(h.origin()); err != nil {
		t.Fatal(err)
	}
	return h, s, late, early
}

// waits tells how many records of a room wait.
func (g *rig) waits(h *fakeHost) int {
	g.m.mu.Lock()
	x := g.m.hosts[h.origin()]
	g.m.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.rooms["room"].held)
}

func TestViaAMirror(t *testing.T) {
	h, s, late, _ := dead(t, nil)
	until(t, "what the mirror has waits", func() bool { return late.waits(h.fakeHost) == 6 })
	if row := late.row(h.fakeHost, "room"); row.Seq != 3 {
		t.Fatalf("unsigned records were stored: seq %d", row.Seq)
	}
	if _, body := late.get(h.fakeHost, "/v1/rooms/room/events"); bytes.Contains([]byte(body), s.recs[3].JSON()) {
		t.Error("unsigned records are served")
	}
	if v := deliver(late.m, "x", relayMessage(h.head(s, 7), nil)); v != Accept {
		t.Fatal(v)
	}
	until(t, "what is signed for is stored", func() bool { return late.row(h.fakeHost, "room").Seq == 7 })
	until(t, "what is behind it waits", func() bool { return late.waits(h.fakeHost) == 2 })
	if row := late.row(h.fakeHost, "room"); row.Hash != s.recs[6].Hash || row.EffectiveVerdict() != replica.Verified {
		t.Errorf("%+v", row)
	}
	if err := late.m.Remove(h.origin()); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing waits for a host that was removed", func() bool { return late.m.relay.waiting.Load() == 0 })
}

// A statement about the archive covers as a head does.
func TestViaAMirrorUpToAStatement(t *testing.T) {
	var s *story
	ready := make(chan struct{})
	h, s, late, _ := dead(t, func(k replica.Key) (int64, string, bool) {
		select {
		case <-ready:
			return 9, s.recs[8].Hash, true
		default:
			return 0, "", false
		}
	})
	until(t, "what the mirror has waits", func() bool { return late.waits(h.fakeHost) == 6 })
	close(ready)
	if err := late.m.Retry(h.origin()); err != nil {
		t.Fatal(err)
	}
	late.holds(h.fakeHost, s)
	until(t, "nothing waits", func() bool { return late.m.relay.waiting.Load() == 0 })
}

// A mirror that lies is no better than a peer that does, and one that is gone does
// no harm.
func TestViaALiar(t *testing.T) {
	h, s, late, early := dead(t, nil)
	liar := newFakeHost(t)
	c := s.cut(3)
	for len(c.recs) < 9 {
		c.say(member, "never said to the host")
	}
	liar.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		r.URL.Path = "/v1/rooms/room/events"
		w.Header().Set("Content-Type", "application/json")
		liar.room(w, r, "room", "events", public(c))
		return true
	})
	if err := late.m.AddWith(h.origin(), "config", HostOptions{Via: []string{"http://127.0.0.1:2", liar.origin()}}); err != nil {
		t.Fatal(err)
	}
	if v := deliver(late.m, "x", relayMessage(h.head(s, 9), nil)); v != Accept {
		t.Fatal(v)
	}
	until(t, "the liar is asked", func() bool { return liar.total() > 3 })
	if row := late.row(h.fakeHost, "room"); row.Seq != 3 && row.Hash == c.recs[row.Seq-1].Hash {
		t.Errorf("a lie was stored: seq %d", row.Seq)
	}
	if err := late.m.AddWith(h.origin(), "config", HostOptions{Via: []string{liar.origin(), early.face.URL}}); err != nil {
		t.Fatal(err)
	}
	late.holds(h.fakeHost, s)
}

func (h *fakeHost) total() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.asked {
		n += k
	}
	return n
}

func TestViaOptions(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	g := start(t, st, nil)
	for _, via := range []string{"mirror.example", "ftp://x.example", "http://127.0.0.1:3?x=1", "http://u@127.0.0.1:3"} {
		if err := g.m.AddWith(h.origin(), "config", HostOptions{Via: []string{via}}); err == nil || g.m.Followed(h.origin()) {
			t.Errorf("via %q: %v", via, err)
		}
	}
	if err := g.m.AddWith(h.origin(), "config", HostOptions{Via: []string{"http://127.0.0.1:3/a/"}}); err != nil {
		t.Fatal(err)
	}
	if err := g.m.Add(h.origin(), "flag"); err != nil { // which says nothing of via
		t.Fatal(err)
	}
	g.stop()
	g = start(t, st, nil)
	x := g.m.host(h.origin())
	x.mu.Lock()
	row := x.row
	x.mu.Unlock()
	if len(row.Via) != 1 || row.Via[0] != "http://127.0.0.1:3/a" {
		t.Errorf("after a restart: %+v", row)
	}
}

// A host that is gone cannot offer an archive. It is made here of a room that is whole by
// the host's own word, and of no other.
func TestArchiveOfADeadHost(t *testing.T) {
	h := newLiveHost(t, 4, nil, nil)
	over := map[string]any{"end_time": time.Now().UnixMilli() - 300_000}
	closed, open, unsigned := talk(t, "closed", 3), talk(t, "open", 3), talk(t, "unsigned", 3)
	stated, short, headed := newStory(t, "stated", over), newStory(t, "short", over), newStory(t, "headed", over)
	for _, s := range []*story{closed, unsigned} {
		s.add(creator, room.Close, map[string]any{})
	}
	all := []*story{closed, open, unsigned, stated, short, headed}
	g := startOn(t, memory(t), func(o *Options) {
		o.Stated = func(k replica.Key) (int64, string, bool) {
			switch k.RoomID {
			case "stated":
				return 1, stated.recs[0].Hash, true
			case "short": // it goes on, behind what we hold
				return 2, stated.recs[0].Hash, true
			}
			return 0, "", false
		}
	}, nil).follow(h.fakeHost).bound(h)
	for _, s := range all {
		h.put(s)
	}
	for _, s := range all {
		g.holds(h.fakeHost, s)
	}
	h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 503, ""); return true })
	for _, s := range []*story{closed, open, headed} {
		if v := deliver(g.m, "x", relayMessage(h.head(s, len(s.recs)), nil)); v != Accept {
			t.Fatal(s.id, v)
		}
	}
	for _, s := range []*story{closed, stated} {
		until(t, s.id+" is complete", func() bool { return g.row(h.fakeHost, s.id).State == replica.Complete })
		if resp, body := g.get(h.fakeHost, "/v1/rooms/"+s.id+"/archive.jsonl"); resp.StatusCode != 200 || !strings.HasSuffix(body, string(s.recs[len(s.recs)-1].JSON())+"\n") {
			t.Errorf("%s: %d %.200q", s.id, resp.StatusCode, body)
		}
	}
	asked := h.total()
	until(t, "further looks", func() bool { return h.total() > asked+2 })
	for _, s := range []*story{open, unsigned, short, headed} {
		if row := g.row(h.fakeHost, s.id); row.State == replica.Complete || row.EffectiveVerdict() != replica.Verified {
			t.Errorf("%s: %+v", s.id, row)
		}
	}
}
