package mirror

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

func TestViolationIsCountedAndStored(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 4)
	s.say(foreign, "let me in")
	s.say(member, "who was that")
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	row := g.becomes(h, "room", replica.Violations)
	if row.Violations != 1 || row.Rules[adp.PermissionDenied] != 1 {
		t.Errorf("%d violations, rules %v", row.Violations, row.Rules)
	}
	if resp, _ := g.get(h, "/v1/rooms/room"); resp.Header.Get("Witan-Verdict") != replica.Violations {
		t.Errorf("served as %q", resp.Header.Get("Witan-Verdict"))
	}
}

func TestPrivateRoomListedAsPublic(t *testing.T) {
	h := newFakeHost(t)
	s := newStory(t, "room", map[string]any{"visibility": "private"})
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	until(t, "the problem is told", func() bool { return len(g.m.Hosts()[0].Problems) == 1 })
	if len(g.set.All()) != 0 {
		t.Error("a private room is kept")
	}
}

func TestExternalPack(t *testing.T) {
	pack := []byte(`{"protocol":"agent-discourse/1.0","packs":[{"id":"x:notes/1.0","title":"Notes","types":[{"type":"note.add","kind":"message","title":"Note","schema":{"type":"object","required":["n"]}}]}]}`)
	sum := sha256.Sum256(pack)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/pack.json" {
			w.WriteHeader(404)
			return
		}
		_, _ = w.Write(pack)
	}))
	defer server.Close()
	tell := func(id, path string) *story {
		s := newStory(t, id, map[string]any{"types": []any{map[string]any{"pack": server.URL + path, "digest": "sha256:" + adp.Encode(sum[:])}}})
		s.add(member, room.Join, map[string]any{"role": "speaker"})
		s.add(member, "note.add", map[string]any{"n": 1})
		return s
	}
	lost := newFakeHost(t)
	a := tell("lost", "/missing.json")
	lost.put(a)
	g := start(t, memory(t), nil).follow(lost)
	g.holds(lost, a)
	if row := g.row(lost, "lost"); row.Unverifiable != 2 || row.Violations != 0 || row.EffectiveVerdict() != replica.Verified {
		t.Errorf("without the pack: %+v", row)
	}
	had := newFakeHost(t)
	b := tell("had", "/pack.json")
	b.add(member, "note.add", map[string]any{})
	had.put(b)
	g.follow(had)
	g.holds(had, b)
	if row := g.row(had, "had"); row.Unverifiable != 0 || row.Violations != 1 || row.Rules[adp.PayloadSchemaViolation] != 1 {
		t.Errorf("with the pack: %+v", row)
	}
}

func TestRoomsThatCannotBeRead(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter, s *story){
		"error":        func(w http.ResponseWriter, _ *story) { refuse(w, 500, "internal") },
		"content type": func(w http.ResponseWriter, _ *story) { fmt.Fprint(w, "<html>") },
		"no array": func(w http.ResponseWriter, _ *story) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{}")
		},
		"repeated page": func(w http.ResponseWriter, s *story) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, "[%s]", bytes.Join(s.texts()[:3], []byte(",")))
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			h := newFakeHost(t)
			good, bad := talk(t, "good", 5), talk(t, "bad", 6)
			h.put(good, bad)
			h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/rooms/bad/events" {
					answer(w, bad)
					return true
				}
				return false
			})
			g := start(t, memory(t), nil).follow(h)
			g.holds(h, good)
			until(t, "the problem", func() bool { p := g.m.Hosts()[0].Problems; return len(p) == 1 && p[0].RoomID == "bad" })
			if name == "repeated page" {
				until(t, "the reason of the room", func() bool { return strings.Contains(g.row(h, "bad").Reason, "repeats a page") })
			}
			if s := g.m.Hosts()[0]; s.State != Following {
				t.Errorf("%+v", s)
			}
			h.takeOver(nil)
			if err := g.m.Retry(h.origin()); err != nil {
				t.Fatal(err)
			}
			g.holds(h, bad)
			until(t, "no problem any more", func() bool { return len(g.m.Hosts()[0].Problems) == 0 && g.row(h, "bad").Reason == "" })
		})
	}
}

func TestRoomThatGoes(t *testing.T) {
	h := newFakeHost(t)
	s, hidden := talk(t, "room", 5), talk(t, "hidden", 4)
	h.put(s, hidden)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	g.holds(h, hidden)
	hidden.say(member, "still here")
	h.set(func() {
		delete(h.rooms, "room")
		h.rooms["hidden"] = public(hidden)
		h.rooms["hidden"].unlisted = true
	})
	until(t, "it is gone", func() bool { return g.row(h, "room").State == replica.Gone })
	if row := g.row(h, "room"); !strings.Contains(row.Reason, "404") || row.Seq != 5 {
		t.Errorf("%+v", row)
	}
	g.holds(h, hidden) // not listed, but there
	h.put(s)
	until(t, "it is back", func() bool { return g.row(h, "room").State == replica.Following })
}

func TestLimits(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 12)
	h.put(s)
	g := start(t, memory(t), func(o *Options) { o.RecordsPerRoom = 7 }).follow(h)
	until(t, "it stops at the limit", func() bool { return g.row(h, "room").State == replica.Paused })
	if row := g.row(h, "room"); row.Seq != 7 || !strings.HasPrefix(row.Reason, "seq 8: ") {
		t.Errorf("%+v", row)
	}
	g = start(t, memory(t), func(o *Options) { o.BytesPerHost = int64(len(s.recs[0].JSON()) + len(s.recs[1].JSON())) }).follow(h)
	until(t, "it stops at the limit", func() bool { return g.row(h, "room").State == replica.Paused })
	if row := g.row(h, "room"); row.Seq != 2 {
		t.Errorf("%+v", row)
	}
}

func TestOversizedPagesAreAskedForInParts(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 250)
	h.put(s)
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if r.URL.Path != "/v1/rooms/room/events" || err == nil && limit <= 100 {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(maxPage+1))
		fmt.Fprint(w, "[")
		return true
	})
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	if n := h.count("/v1/rooms/room/events"); n > 12 {
		t.Errorf("%d requests", n)
	}
}

// Type packs that rooms import count among the bytes of their host, over a restart too.
func TestPacksCountAsBytesOfTheHost(t *testing.T) {
	pack := func(n int) []byte {
		return fmt.Appendf(nil, `{"protocol":"agent-discourse/1.0","packs":[{"id":"x:notes%d/1.0","title":"%s","types":[{"type":"note%d.add","kind":"message","title":"Note","schema":{"type":"object"}}]}]}`,
			n, strings.Repeat("n", 100), n)
	}
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		_, _ = w.Write(pack(n))
	}))
	defer server.Close()
	tell := func(id string, n int) *story {
		sum := sha256.Sum256(pack(n))
		s := newStory(t, id, map[string]any{"types": []any{map[string]any{"pack": fmt.Sprint(server.URL, "/", n), "digest": "sha256:" + adp.Encode(sum[:])}}})
		s.add(member, room.Join, map[string]any{"role": "speaker"})
		return s
	}
	h, st := newFakeHost(t), memory(t)
	first := tell("first", 1)
	h.put(first)
	size := int64(len(pack(1)))
	for _, rec := range first.recs {
		size += int64(len(rec.JSON()))
	}
	g := start(t, st, nil).follow(h)
	g.holds(h, first)
	if got := g.m.Report(h.origin())[0].Bytes; got != size {
		t.Errorf("%d bytes are counted, want %d", got, size)
	}
	g.stop()
	g = start(t, st, func(o *Options) { o.BytesPerHost = size + maxPack - 1 })
	if got := g.m.Report(h.origin())[0].Bytes; got != size {
		t.Errorf("%d bytes are counted after a restart, want %d", got, size)
	}
	h.put(tell("second", 2))
	until(t, "the second room says why it is not copied", func() bool {
		p := g.m.Hosts()[0].Problems
		return len(p) == 1 && p[0].RoomID == "second" && strings.Contains(p[0].Reason, "mirror.bytes_per_host")
	})
	if path := <-asked; path != "/1" || len(asked) != 0 {
		t.Errorf("asked for %s, and for %d more", path, len(asked))
	}
}
