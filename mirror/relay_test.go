package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
)

func TestRelayBringsRecords(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, b.join("host"))
	s := talk(t, "room", 5)
	h.commit(s)
	g := startOn(t, memory(t), seldom, b.join("mirror")).follow(h.fakeHost).bound(h)
	g.holds(h.fakeHost, s)
	lists, pages := h.count("/v1/rooms/public"), h.count("/v1/rooms/room/events")
	for range 5 {
		s.say(member, "live")
		h.commit(s)
		g.holds(h.fakeHost, s)
	}
	// a room that nobody has seen yet: its first record came with its head
	young := newStory(t, "young", nil)
	h.commit(young)
	g.holds(h.fakeHost, young)
	if h.count("/v1/rooms/public") != lists || h.count("/v1/rooms/room/events") != pages || h.count("/v1/rooms/young/events") != 0 {
		t.Error("the host was polled for what the relay brought")
	}
	r, _ := g.set.Get(h.origin(), "room")
	until(t, "it is in sync", func() bool { return time.Since(time.UnixMilli(r.SyncedAt.Load())) < time.Minute })
	if row := r.Row(); row.EffectiveVerdict() != replica.Verified || row.State != replica.Following {
		t.Errorf("%+v", row)
	}
}

func TestRelayCoalesces(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, b.join("host"))
	s := talk(t, "room", 3)
	began := time.Now()
	for range 200 {
		s.say(member, "much")
		h.commit(s)
	}
	until(t, "the last record is published", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.sent) > 0 && bytes.Contains(b.sent[len(b.sent)-1], []byte(s.recs[202].Hash))
	})
	if n, most := b.messages(), int(time.Since(began)/headPace)+2; n > most {
		t.Errorf("%d messages within %v, want at most %d", n, time.Since(began), most)
	}
	seen := map[int64]int{}
	for _, data := range b.sent {
		v, err := adp.ScanDepth(data, adp.RecordDepth+2)
		if err != nil || !v.IsCanonical() || len(data) > MaxRelay {
			t.Fatalf("%v: %.200s", err, data)
		}
		for e := range v.Get("records").Elements() {
			seq, _ := e.Get("seq").Int()
			seen[seq]++
		}
	}
	for seq := int64(4); seq <= 203; seq++ {
		if seen[seq] > 1 {
			t.Errorf("seq %d went out %d times", seq, seen[seq])
		}
	}
}

func TestNothingIsPublished(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		room   map[string]any
	}{
		"that this daemon may not sign": {func(o *Options) { o.Sign = nil }, nil},
		"of a private room":             {nil, map[string]any{"visibility": "private"}},
		"of a restricted room":          {nil, map[string]any{"visibility": "restricted"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t)
			h := newLiveHost(t, 4, c.change, b.join("host"))
			s := newStory(t, "room", c.room)
			h.commit(s)
			open := newStory(t, "open", nil)
			h.commit(open)
			if c.room != nil { // in order behind the other one
				until(t, "the public room is published", func() bool { return b.messages() > 0 })
				h.g.m.Publish(h.own["room"])
				open.add(member, "room.join", map[string]any{"role": "speaker"})
				h.commit(open)
				until(t, "the public room is published again", func() bool { return b.messages() > 1 })
			}
			b.set(func() {
				for _, data := range b.sent {
					if c.room == nil || bytes.Contains(data, []byte(s.recs[0].Hash)) {
						t.Errorf("published: %.300s", data)
					}
				}
			})
			q := fmt.Sprintf(`{"after_seq":0,"genesis":%q,"limit":10,"origin":%q,"room_id":"room"}`, s.recs[0].Hash, h.origin())
			answer, err := h.g.m.ServeRoomSync(t.Context(), "x", []byte(q))
			if c.room != nil && !errors.Is(err, errNoSuchRoom) || c.room == nil && !bytes.HasPrefix(answer, []byte(`{"head":null,"records":[{`)) {
				t.Errorf("a peer is told: %v, %.300s", err, answer)
			}
		})
	}
}

func TestGapIsPulledFromTheHost(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, b.join("host"))
	s := talk(t, "room", 5)
	h.commit(s)
	g := startOn(t, memory(t), seldom, b.join("mirror")).follow(h.fakeHost).bound(h)
	g.holds(h.fakeHost, s)
	b.set(func() { b.cut = true })
	for range 3 {
		s.say(member, "unheard")
	}
	sent := b.messages()
	h.commit(s)
	until(t, "it is lost", func() bool { return b.messages() > sent })
	b.set(func() { b.cut = false })
	s.say(member, "heard")
	h.commit(s)
	g.holds(h.fakeHost, s)
	b.set(func() {
		if n := b.asked["host"]; n != 0 {
			t.Errorf("a peer was asked %d times although the host answers", n)
		}
	})
}

func TestUnknownRoomIsLookedForAtOnce(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, b.join("host"))
	h.commit(talk(t, "first", 3))
	g := startOn(t, memory(t), func(o *Options) { o.PollMin, o.PollMax = 10*time.Millisecond, time.Hour }, b.join("mirror")).follow(h.fakeHost).bound(h)
	g.becomes(h.fakeHost, "first", replica.Verified)
	for n := 0; n < 3; { // until polling has become slow
		at := h.count("/v1/rooms/public")
		until(t, "the list is read", func() bool { return h.count("/v1/rooms/public") > at || g.quiet(h.fakeHost) > time.Second })
		if g.quiet(h.fakeHost) > time.Second {
			break
		}
	}
	s := talk(t, "second", 9) // its first head stands far behind its first record
	h.commit(s)
	g.holds(h.fakeHost, s)
}

// quiet is for how long the host will not be polled.
func (g *rig) quiet(h *fakeHost) time.Duration {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	x := g.m.hosts[h.origin()]
	return time.Duration(x.wait.Load())
}

func TestPollingTakesOver(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, b.join("host"))
	s := talk(t, "room", 5)
	h.commit(s)
	const interval = 300 * time.Millisecond
	g := startOn(t, memory(t), func(o *Options) { o.PollMin, o.PollMax = 5*time.Millisecond, interval }, b.join("mirror")).follow(h.fakeHost).bound(h)
	g.holds(h.fakeHost, s)
	s.say(member, "by relay")
	h.commit(s)
	g.holds(h.fakeHost, s)
	until(t, "polling is slow", func() bool { return g.quiet(h.fakeHost) > interval/2 })
	b.set(func() { b.cut = true })
	for range 4 {
		s.say(member, "by polling")
		h.commit(s)
		g.holds(h.fakeHost, s)
		if wait := g.quiet(h.fakeHost); wait > interval {
			t.Errorf("the next look is in %v, the interval is %v", wait, interval)
		}
	}
}

// A host is dead: what it has signed is to be had from a peer that mirrors it.
func TestPeersOfADeadHost(t *testing.T) {
	for _, gap := range []int{6, 2300} {
		t.Run(fmt.Sprint(gap), func(t *testing.T) {
			b := newBus(t)
			h := newLiveHost(t, 4, nil, nil)
			s := talk(t, "room", 3)
			h.keep(s)
			h.put(s)
			late := startOn(t, memory(t), nil, b.join("late")).follow(h.fakeHost).bound(h)
			late.holds(h.fakeHost, s)
			// from here on the late mirror gets nothing from the host
			if err := late.m.Pause(h.origin()); err != nil {
				t.Fatal(err)
			}
			late.looks0(h.fakeHost)
			for len(s.recs) < 3+gap {
				s.say(member, "what the late one does not get from the host")
			}
			h.put(s)
			early := startOn(t, memory(t), nil, b.join("early")).follow(h.fakeHost).bound(h)
			early.holds(h.fakeHost, s)
			h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 503, ""); return true })
			if err := late.m.Resume(h.origin()); err != nil {
				t.Fatal(err)
			}
			until(t, "the host is down for the late one", func() bool { return late.m.Hosts()[0].State == BackingOff })
			if row := late.row(h.fakeHost, "room"); row.Seq != 3 {
				t.Fatalf("unsigned records of a peer were stored: seq %d", row.Seq)
			}
			// somebody carries a head of the host, signed before it died, to both
			covered := len(s.recs) - 2
			msg := relayMessage(h.head(s, covered), nil)
			for _, m := range []*Mirror{early.m, late.m} {
				if v := deliver(m, "early", msg); v == Reject { // the one may have told the other already
					t.Fatal(v)
				}
			}
			until(t, "the late one has what is signed", func() bool { return late.row(h.fakeHost, "room").Seq >= int64(covered) })
			if row := late.row(h.fakeHost, "room"); row.Seq != int64(covered) || row.Hash != s.recs[covered-1].Hash {
				t.Errorf("seq %d, want %d: what is behind the head must wait", row.Seq, covered)
			}
			if w := late.m.relay.waiting.Load(); w < 0 || w > waitBytes {
				t.Errorf("%d bytes wait", w)
			}
			// and what waits is stored once it is signed for
			if v := deliver(late.m, "early", relayMessage(h.head(s, len(s.recs)), nil)); v != Accept {
				t.Fatal(v)
			}
			late.holds(h.fakeHost, s)
			until(t, "nothing waits", func() bool { return late.m.relay.waiting.Load() == 0 })
		})
	}
}

// looks0 waits until no look at the host is under way.
func (g *rig) looks0(h *fakeHost) {
	g.t.Helper()
	until(g.t, "it is paused", func() bool {
		g.m.mu.Lock()
		x := g.m.hosts[h.origin()]
		g.m.mu.Unlock()
		return time.Duration(x.wait.Load()) > 24*time.Hour
	})
}

func TestLyingPeers(t *testing.T) {
	other := talk(t, "room", 9)
	for name, lie := range map[string]func(h *liveHost, s *story, answer []byte) ([]byte, error){
		"not JSON":      func(*liveHost, *story, []byte) ([]byte, error) { return []byte("no"), nil },
		"no answer":     func(*liveHost, *story, []byte) ([]byte, error) { return nil, errors.New("busy") },
		"another shape": func(*liveHost, *story, []byte) ([]byte, error) { return []byte(`{"head":null}`), nil },
		"nothing":       func(*liveHost, *story, []byte) ([]byte, error) { return []byte(`{"head":null,"records":[]}`), nil },
		"another room":  func(*liveHost, *story, []byte) ([]byte, error) { return relayMessage(nil, other.texts()[3:]), nil },
		"a changed payload": func(_ *liveHost, s *story, a []byte) ([]byte, error) {
			return bytes.Replace(a, []byte("missed"), []byte("forged"), 1), nil
		},
		"a bad signature": func(_ *liveHost, s *story, a []byte) ([]byte, error) {
			return bytes.Replace(a, []byte(s.recs[4].Envelope.Signature), []byte(s.recs[3].Envelope.Signature), 1), nil
		},
		"a hole": func(_ *liveHost, s *story, a []byte) ([]byte, error) {
			return relayMessage(nil, slices.Delete(s.texts()[3:], 1, 2)), nil
		},
		"a chain of its own": func(_ *liveHost, s *story, a []byte) ([]byte, error) {
			c := s.cut(3)
			for len(c.recs) < len(s.recs) {
				c.say(member, "never said to the host")
			}
			return relayMessage(nil, c.texts()[3:]), nil
		},
		"a head of a stranger": func(_ *liveHost, s *story, a []byte) ([]byte, error) {
			e, err := adp.Sign(key(foreign), adp.Draft{Protocol: adp.WitnessProtocol, Type: TypeHead, CreatedAt: 1, Nonce: 1, Payload: map[string]any{}})
			return relayMessage(e.JSON(), s.texts()[3:]), err
		},
		"more than asked for": func(_ *liveHost, s *story, a []byte) ([]byte, error) {
			return relayMessage(nil, slices.Repeat(s.texts()[3:4], 1001)), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t)
			h := newLiveHost(t, 4, nil, nil)
			s := talk(t, "room", 3)
			h.put(s)
			g := startOn(t, memory(t), nil, b.join("mirror")).follow(h.fakeHost).bound(h)
			g.holds(h.fakeHost, s)
			for range 5 {
				s.say(member, "missed")
			}
			h.keep(s)
			honest := h.g.m
			h.g.m.network = Network{}
			b.set(func() {
				b.peers["peer"] = honest
				b.lie = func(_ string, a []byte) ([]byte, error) { return lie(h, s, a) }
			})
			h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 503, ""); return true })
			until(t, "the host is down", func() bool { return g.m.Hosts()[0].State == BackingOff })
			if v := deliver(g.m, "peer", relayMessage(h.head(s, 8), nil)); v == Reject { // the peer may have told it already
				t.Fatal(v)
			}
			until(t, "the peer is asked", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.asked["peer"] > 2 })
			row := g.row(h.fakeHost, "room")
			if row.Seq > 4 || row.Hash != s.recs[row.Seq-1].Hash || row.EffectiveVerdict() != replica.Verified {
				t.Errorf("after the lie: %+v", row)
			}
			b.set(func() { b.lie = nil })
			g.holds(h.fakeHost, s)                                                          // the truth, from the same peer
			until(t, "nothing waits", func() bool { return g.m.relay.waiting.Load() == 0 }) // an answer may still be under way
		})
	}
}

// A retry that comes while a peer is asked, in vain, counts for what comes after its answer.
func TestRetryWhileAPeerIsAsked(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, nil)
	s := talk(t, "room", 3)
	h.put(s)
	g := startOn(t, memory(t), seldom, b.join("mirror")).follow(h.fakeHost).bound(h)
	g.holds(h.fakeHost, s)
	s.say(member, "missed")
	h.keep(s)
	h.takeOver(func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 503, ""); return true })
	g.must(g.m.Retry(h.origin()))
	f := g.m.host(h.origin())
	until(t, "the host is down", f.down.Load)
	asked, gate := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	b.set(func() {
		b.peers["peer"] = h.g.m
		b.lie = func(string, []byte) ([]byte, error) { once(); <-gate; return nil, errors.New("busy") }
	})
	if v := deliver(g.m, "peer", relayMessage(h.head(s, 4), nil)); v != Accept {
		t.Fatal(v)
	}
	<-asked
	h.takeOver(nil)
	h.put(s)
	g.must(g.m.Retry(h.origin()))
	until(t, "the host is back, and the room still in work", func() bool { return !f.down.Load() })
	close(gate)
	g.holds(h.fakeHost, s)
}

func TestHeadsOutliveARestart(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, b.join("host"))
	s := talk(t, "room", 3)
	h.commit(s)
	st := memory(t)
	g := startOn(t, st, seldom, b.join("mirror")).follow(h.fakeHost).bound(h)
	g.holds(h.fakeHost, s)
	s.say(member, "live")
	h.commit(s)
	g.holds(h.fakeHost, s)
	r, _ := g.set.Get(h.origin(), "room")
	until(t, "its head is to be kept", func() bool { // the record is stored before
		f := g.m.host(h.origin())
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.rooms["room"].toKeep != nil
	})
	g.stop()
	b.set(func() { delete(b.peers, "mirror") })
	g = startOn(t, st, seldom, nil)
	if head, ok := g.m.newestHead(r.Key); !ok || head.Seq != 4 || head.Hash != s.recs[3].Hash {
		t.Errorf("after a restart: %v %+v", ok, head.Head)
	}
	answer, err := g.m.ServeRoomSync(t.Context(), "x", fmt.Appendf(nil, `{"after_seq":3,"genesis":%q,"limit":10,"origin":%q,"room_id":"room"}`, r.Genesis, r.Origin))
	if err != nil || !bytes.Contains(answer, []byte(TypeHead)) || !bytes.Contains(answer, s.recs[3].JSON()) {
		t.Errorf("%v %.300s", err, answer)
	}
	for _, q := range []string{"", "{}", `{"after_seq":0,"genesis":"x","limit":1,"origin":"o","room_id":"r"}`, `{"after_seq":-1}`,
		fmt.Sprintf(`{"after_seq":0,"genesis":%q,"limit":1001,"origin":%q,"room_id":"room"}`, r.Genesis, r.Origin),
		fmt.Sprintf(`{"after_seq":0,"genesis":%q,"limit":1,"origin":%q,"room_id":"other"}`, r.Genesis, r.Origin)} {
		if answer, err := g.m.ServeRoomSync(t.Context(), "x", []byte(q)); err == nil {
			t.Errorf("%s: %s", q, answer)
		}
	}
}

func TestContradiction(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, nil)
	s := talk(t, "room", 5)
	a, c := s.cut(5), s.cut(5)
	a.say(member, "one story")
	h.put(a)
	g := startOn(t, memory(t), nil, b.join("mirror")).follow(h.fakeHost).bound(h)
	c.say(member, "another story")
	for i, s := range []*story{a, c, a, c} {
		want := []Verdict{Accept, Accept, Ignore, Ignore}[i]
		if v := deliver(g.m, "x", relayMessage(h.head(s, 6), s.texts()[5:])); v != want {
			t.Errorf("message %d: %v, want %v", i, v, want)
		}
	}
	g.holds(h.fakeHost, a)
	until(t, "it is told", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.contradicted) == 1 })
	for i, want := range []*story{a, c} {
		e := g.contradicted[0][i]
		if p, err := ParseHead(e); err != nil || p.Hash != want.recs[5].Hash || e.CheckHash() != nil || e.CheckSignature() != nil {
			t.Errorf("side %d: %v %+v", i, err, p)
		}
	}
	// a head that is not of the chain that we hold, at a seq where none was signed
	forked := s.cut(3)
	for len(forked.recs) < 5 {
		forked.say(member, "a third one")
	}
	forked.say(member, "x")
	forked.say(member, "y")
	if v := deliver(g.m, "x", relayMessage(h.head(forked, 7), forked.texts()[6:])); v != Accept {
		t.Error(v)
	}
	a.say(member, "on")
	a.say(member, "and on")
	h.put(a)
	if v := deliver(g.m, "x", relayMessage(h.head(a, 8), a.texts()[7:])); v != Accept {
		t.Error(v)
	}
	g.holds(h.fakeHost, a)
	if row := g.row(h.fakeHost, "room"); row.EffectiveVerdict() != replica.Verified {
		t.Errorf("%+v", row)
	}
}

// rebound keys and hosts that nobody follows do not get a hearing.
func TestOnlyBoundKeysAreHeard(t *testing.T) {
	b := newBus(t)
	h := newLiveHost(t, 4, nil, nil)
	s := talk(t, "room", 5)
	h.put(s)
	g := startOn(t, memory(t), seldom, b.join("mirror"))
	msg := func() []byte { return relayMessage(h.head(s, 5), s.texts()) }
	if v := g.m.Validate("x", msg()); v != Ignore {
		t.Errorf("of a host that is not followed: %v", v)
	}
	g.follow(h.fakeHost).bound(h)
	g.holds(h.fakeHost, s)
	h.ring = keys.FromSeed([32]byte{7}, 1)
	if v := g.m.Validate("x", msg()); v != Ignore {
		t.Errorf("of a key that is not bound: %v", v)
	}
	h.ring = keys.FromSeed([32]byte{4}, 1)
	if v := g.m.Validate("x", msg()); v != Accept {
		t.Errorf("of the bound key: %v", v)
	}
	if err := g.m.Remove(h.origin()); err != nil {
		t.Fatal(err)
	}
	if v := g.m.Validate("x", strip(msg())); v != Ignore {
		t.Errorf("after the host was removed: %v", v)
	}
}

// strip takes the records off a message.
func strip(msg []byte) []byte {
	i := strings.Index(string(msg), `,"records":[`)
	return append(slices.Clone(msg[:i]), `,"records":[]}`...)
}
