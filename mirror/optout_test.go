package mirror

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
)

var noMirrors = map[string]any{"extra": map[string]any{"mirror": false}}

// shown tells whether readers get the records of a room here.
func (g *rig) shown(h *fakeHost, id string) bool {
	g.t.Helper()
	resp, body := g.get(h, "/v1/rooms/"+id+"/events")
	if resp.StatusCode != 200 && (resp.StatusCode != 404 || !strings.Contains(body, "asks not to be mirrored")) {
		g.t.Errorf("events of %s: %d %s", id, resp.StatusCode, body)
	}
	return resp.StatusCode == 200
}

func TestOptOutOfARoom(t *testing.T) {
	for name, c := range map[string]struct {
		by    byte
		shown bool
	}{"by its creator": {creator, false}, "by a moderator": {member, true}} {
		t.Run(name, func(t *testing.T) {
			h, st := newFakeHost(t), memory(t)
			s := newStory(t, "room", map[string]any{"policy": map[string]any{"moderator_agent_ids": []adp.AgentID{agent(member)}}})
			s.add(member, room.Join, map[string]any{"role": "moderator"})
			s.say(member, "hello")
			other := talk(t, "other", 5)
			h.put(s, other)
			g := start(t, st, nil).follow(h)
			g.holds(h, s)
			g.holds(h, other)
			s.add(c.by, room.Update, map[string]any{"policy": map[string]any{"extra": map[string]any{"mirror": false}, "moderator_agent_ids": []adp.AgentID{agent(member)}}})
			h.put(s)
			until(t, "the wish is heeded", func() bool { return g.room(h, "room").State == replica.Paused })
			s.say(creator, "not for mirrors")
			h.put(s)
			g.looks(h, 4)
			check := func() {
				t.Helper()
				r := g.room(h, "room")
				if r.Seq != 4 || r.State != replica.Paused || r.Reason != roomOptsOut || r.Hidden == c.shown || r.Verdict != replica.Verified {
					t.Errorf("%+v", r)
				}
				if g.shown(h, "room") != c.shown || !g.shown(h, "other") {
					t.Error("shown or not, the other way round")
				}
				rep, _ := g.set.Get(h.origin(), "room")
				if p, err := rep.Inclusion(2, 4); err != nil || p.LeafHash != s.recs[1].Hash { // proofs stay
					t.Errorf("proof: %v", err)
				}
				if err := g.m.Resume(h.origin() + "/v1/rooms/room"); adp.CodeOf(err) != adp.InvalidRequest {
					t.Errorf("the operator went over the wish: %v", err)
				}
			}
			check()
			g.stop()
			g = start(t, st, nil)
			g.looks(h, 4)
			check()
			// the wish is taken back: by a record, whatever the list says
			s.add(creator, room.Update, map[string]any{"policy": map[string]any{"moderator_agent_ids": []adp.AgentID{agent(member)}}})
			h.put(s)
			g.holds(h, s)
			until(t, "it is shown", func() bool { return g.shown(h, "room") && g.room(h, "room").State == replica.Following })
			s.say(creator, "for all again")
			h.put(s)
			g.holds(h, s)
		})
	}
}

// A room that asks not to be mirrored from the start is listed, and none of it is
// copied; a host that lists it without the wish does not get it shown.
func TestOptOutFromTheStart(t *testing.T) {
	h := newFakeHost(t)
	s := newStory(t, "room", map[string]any{"policy": noMirrors})
	s.say(creator, "among us")
	h.put(s)
	list := func(policy string) {
		h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/rooms/public" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `[{"id":"room","visibility":"public","status":"active","policy":%s,"seq":2,"hash":%q}]`, policy, s.recs[1].Hash)
			return true
		})
	}
	list(`{"extra":{"mirror":false}}`)
	g := start(t, memory(t), nil).follow(h)
	until(t, "it is listed", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.listed["room"] != ""
	})
	g.looks(h, 3)
	if n := len(g.set.All()); n != 0 {
		t.Errorf("%d rooms are held", n)
	}
	list(`{}`)
	until(t, "the signed wish is read", func() bool { return g.room(h, "room").State == replica.Paused })
	if g.shown(h, "room") {
		t.Error("it is shown")
	}
}

func TestOptOutOfAHost(t *testing.T) {
	ring, buyer := keys.FromSeed([32]byte{4}, 1), keys.FromSeed([32]byte{5}, 1)
	document := func(t *testing.T, h *fakeHost, r *keys.Ring) []byte {
		t.Helper()
		d, err := keys.RenderDocument(h.origin(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	wish := func(t *testing.T, r *keys.Ring, payload any) json.RawMessage {
		t.Helper()
		e, err := adp.Sign(r.Key(keys.Agent), adp.Draft{Protocol: adp.WitnessProtocol, Type: TypeOptOut, CreatedAt: time.Now().UnixMilli(), Nonce: 1, Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		return e.JSON()
	}
	for name, c := range map[string]struct {
		keysBefore bool // the host has keys when the copy begins
		signed     func(t *testing.T, h *fakeHost) json.RawMessage
		after      *keys.Ring // keys that the host shows with the wish
		shown      bool
	}{
		"unsigned": {true, nil, ring, true},
		"signed": {true, func(t *testing.T, h *fakeHost) json.RawMessage {
			return wish(t, ring, map[string]any{"origin": h.origin()})
		}, ring, false},
		"for another origin": {true, func(t *testing.T, h *fakeHost) json.RawMessage {
			return wish(t, ring, map[string]any{"origin": "https://a.example"})
		}, ring, true},
		"with more in it": {true, func(t *testing.T, h *fakeHost) json.RawMessage {
			return wish(t, ring, map[string]any{"origin": h.origin(), "x": 1})
		}, ring, true},
		"by a buyer": {true, func(t *testing.T, h *fakeHost) json.RawMessage {
			return wish(t, buyer, map[string]any{"origin": h.origin()})
		}, buyer, true},
		"buyer of a plain one": {false, func(t *testing.T, h *fakeHost) json.RawMessage {
			return wish(t, buyer, map[string]any{"origin": h.origin()})
		}, buyer, true},
		"garbage": {true, func(*testing.T, *fakeHost) json.RawMessage { return json.RawMessage(`{"hash":"x"}`) }, ring, true},
	} {
		t.Run(name, func(t *testing.T) {
			h, st := newFakeHost(t), memory(t)
			s := talk(t, "room", 5)
			h.put(s)
			if c.keysBefore {
				h.set(func() { h.did = document(t, h, ring) })
			}
			g := start(t, st, nil).follow(h)
			g.holds(h, s)
			if c.keysBefore {
				until(t, "the key is bound", func() bool { return g.m.o.Bindings.Has(h.origin()) })
			}
			g.stop()
			if c.after != nil {
				h.set(func() { h.did = document(t, h, c.after) })
			}
			d := map[string]any{"protocol": adp.Protocol, "mirror": false}
			if c.signed != nil {
				d[OptOutMember] = c.signed(t, h)
			}
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			discovery := func(text []byte) {
				h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != "/.well-known/agent-discourse" {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write(text)
					return true
				})
			}
			discovery(text)
			s.say(member, "not for mirrors")
			h.put(s, talk(t, "new", 3))
			for range 2 { // the second time, new keys have been seen
				g = start(t, st, nil)
				g.looks(h, 3)
				x := g.m.Hosts()[0]
				if x.State != Paused || x.Reason != hostOptsOut {
					t.Errorf("%+v", x)
				}
				if r := g.room(h, "room"); r.Seq != 5 || r.State != replica.Paused || r.Hidden == c.shown {
					t.Errorf("%+v", r)
				}
				if _, ok := g.set.Get(h.origin(), "new"); ok || g.shown(h, "room") != c.shown {
					t.Error("copied, or not shown as it should be")
				}
				g.stop()
			}
			discovery([]byte(`{"protocol":"agent-discourse/1.0"}`))
			g = start(t, st, nil)
			if c.after == ring { // else somebody else may have taken the wish back
				g.holds(h, s)
				if !g.shown(h, "room") {
					t.Error("the wish was taken back, and the room is not shown")
				}
			}
		})
	}
}

// The document is read once an hour; a retry of the operator reads it at once.
func TestRetryReadsTheDiscoveryDocument(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 4)
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == discovery {
			w.Header().Set("Content-Type", apiType)
			fmt.Fprintf(w, `{"protocol":%q,"mirror":false}`, adp.Protocol)
		}
		return r.URL.Path == discovery
	})
	g.looks(h, 3)
	if state := g.m.Hosts()[0].State; state != Following {
		t.Fatalf("it is %s before the document was read again", state)
	}
	g.must(g.m.Retry(h.origin()))
	until(t, "the wish is heeded", func() bool { return g.m.Hosts()[0].State == Paused })
}
