package webhook

import (
	"bytes"
	"slices"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

func TestEvents(t *testing.T) {
	w := newWorld(t, nil)
	old := w.create(own, obj{"end_time": w.now() + 100*hour})
	old.add(alice, room.Message, say("before"), idOf(bob))
	w.hosts = []Host{{Origin: other, State: "following"}}
	w.run()
	r := w.receiver()
	h := r.register(Events, Filters{})
	if r.pings != 1 || h.State != Active || h.Waiting != 0 {
		t.Fatalf("%d pings, %+v", r.pings, h)
	}

	now := w.now()
	k := w.create(other, obj{"start_time": now + hour, "end_time": now + 2*hour, "topic": "<b>Ledgers</b>"})
	g := w.untilEvents(r, RoomDiscovered)[0]
	w.verify(g, 1, room.Create)
	want := Room{URL: other + "/v1/rooms/" + k.r.RoomID, Mirror: own + "/m/rooms.example/v1/rooms/" + k.r.RoomID, Origin: other, RoomID: k.r.RoomID, Genesis: k.r.Genesis,
		Topic: "<b>Ledgers</b>", Language: "en-GB", Tags: []string{"federation"}, Creator: idOf(alice), StartTime: now + hour, EndTime: now + 2*hour, Status: room.Scheduled}
	if !slices.Equal(g.Room.Tags, want.Tags) || g.Room.Topic != want.Topic || g.Room.URL != want.URL || g.Room.Mirror != want.Mirror || g.Room.Status != want.Status || g.Room.Genesis != want.Genesis {
		t.Errorf("room %+v", g.Room)
	}
	first, ok, err := k.r.Record(1)
	if err != nil || !ok || !bytes.Contains(g.body, first) {
		t.Errorf("the record is not the bytes that are served: %v %s", err, g.body)
	}

	update := k.add(alice, room.Update, obj{"start_time": now + hour + 1})
	mention := k.add(alice, room.Message, say("see"), idOf(bob), idOf(alice))
	w.untilEvents(r, RoomDiscovered, Mention)
	w.skew.Add(hour + minute) // time alone starts it
	w.w.Changed(k.r)          // the clock of the test does not ring
	list := w.untilEvents(r, RoomDiscovered, Mention, RoomStarted)
	w.verify(list[1], mention, room.Message)
	if !slices.Equal(list[1].Mentions, []string{idOf(bob), idOf(alice)}) {
		t.Errorf("mentions %v", list[1].Mentions)
	}
	w.verify(list[2], update, room.Update)
	if list[2].Room.Status != room.Active {
		t.Errorf("status %s", list[2].Room.Status)
	}
	end := k.add(alice, room.Close, obj{})
	list = w.untilEvents(r, RoomDiscovered, Mention, RoomStarted, RoomEnded)
	w.verify(list[3], end, room.Close)
	if list[3].Room.Status != room.Ended {
		t.Errorf("status %s", list[3].Room.Status)
	}

	// an attestation, told of once, and only when it is of this very room
	attest := func(genesis string) *adp.Envelope {
		e, err := adp.Sign(bob, adp.Draft{Protocol: adp.WitnessProtocol, Type: "archive.attest", CreatedAt: w.now(), Nonce: w.now(), Payload: obj{"genesis": genesis}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	good := attest(k.r.Genesis)
	locked(&w.mu, func() any {
		w.attests[k.r.RoomID] = []*adp.Envelope{attest(adp.Encode(make([]byte, 32))), good}
		return nil
	})
	k.row(func(row *replica.Row) { row.Archived = true })
	list = w.untilEvents(r, RoomDiscovered, Mention, RoomStarted, RoomEnded, ArchiveAttested)
	if g := list[4]; !bytes.Equal(g.Attestation, good.JSON()) || g.Attested.State != "attested" || g.Attested.Witnesses != 2 {
		t.Errorf("attested: %s", g.body)
	}

	// a fork, with both sides
	fork := w.create(other, obj{"start_time": w.now() - 100*hour})
	fork.add(alice, room.Message, say("one story"))
	e, err := adp.Sign(alice, adp.Draft{Protocol: adp.Protocol, Type: room.Message, CreatedAt: w.now(), Nonce: w.now(), Payload: say("another story"), RoomID: fork.r.RoomID,
		BaseSeq: 1, BaseHash: fork.r.Genesis})
	if err != nil {
		t.Fatal(err)
	}
	branch := adp.NewRecord(e, fork.r.RoomID, 2, fork.r.Genesis, w.now())
	var b store.Batch
	fork.r.PutBranch(&b, []*adp.Record{branch})
	if err := w.st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	fork.row(func(row *replica.Row) { row.Verdict, row.Reason = replica.Forked, "seq 2: another story" })
	list = w.untilEvents(r, RoomDiscovered, Mention, RoomStarted, RoomEnded, ArchiveAttested, RoomDiscovered, RoomForked)
	held, _, err := fork.r.Record(2)
	if g := list[6]; err != nil || g.Verdict != replica.Forked || g.Reason != "seq 2: another story" || g.Stories.Seq != 2 || !bytes.Equal(g.Stories.Held, held) || !bytes.Equal(g.Stories.Other, branch.JSON()) {
		t.Errorf("forked: %s", g.body)
	}

	// hosts: another state, a new one, one that is gone
	locked(&w.mu, func() any {
		w.hosts = []Host{{Origin: other, State: "backing-off", Reason: "refused", Since: 5}, {Origin: "https://b.example", State: "following"}}
		return nil
	})
	w.w.HostsChanged()
	list = w.untilEvents(r, RoomDiscovered, Mention, RoomStarted, RoomEnded, ArchiveAttested, RoomDiscovered, RoomForked, HostState, HostState)
	if h := list[7].Host; *h != (HostNews{Origin: other, From: "following", State: "backing-off", Reason: "refused", Since: 5}) {
		t.Errorf("host: %+v", h)
	}
	if h := list[8].Host; h.Origin != "https://b.example" || h.From != "" || h.State != "following" {
		t.Errorf("host: %+v", h)
	}
	locked(&w.mu, func() any { w.hosts = w.hosts[:1]; return nil })
	w.w.HostsChanged()
	w.until("the host that was removed", func() bool { return len(r.events()) == 10 })
	if h := r.events()[9].Host; h.Origin != "https://b.example" || h.State != "removed" {
		t.Errorf("host: %+v", h)
	}
	if len(r.got()) != 10 {
		t.Errorf("%d deliveries of 10 events", len(r.got()))
	}
	w.until("an empty queue", func() bool { return w.show(h.ID).Waiting == 0 && w.keys(queues) == 0 })
}

// Time that passes, and what happens, while nothing runs is made up for, in order.
func TestSleptThrough(t *testing.T) {
	w := newWorld(t, nil).run()
	r := w.receiver()
	r.register(Events, Filters{})
	now := w.now()
	k := w.create(own, obj{"start_time": now + hour, "end_time": now + 2*hour})
	cancelled := w.create(own, obj{"start_time": now + hour, "end_time": now + 2*hour})
	closed := w.create(own, obj{"start_time": now + hour, "end_time": now + 2*hour})
	w.until("three rooms", func() bool { return len(r.events()) == 3 })
	w.stop()
	n := k.add(alice, room.Message, say("you there?"), idOf(bob))
	cancelled.add(alice, room.Cancel, obj{})
	closed.add(alice, room.Close, obj{}) // before its time: it never started
	late := w.create(own, nil)
	w.skew.Add(3 * hour)
	w.open()
	w.run()
	w.until("what was slept through", func() bool { return len(r.events()) == 11 })
	by := map[string][]string{}
	for _, g := range r.events()[3:] {
		by[g.Room.RoomID] = append(by[g.Room.RoomID], g.Event+" "+string(g.Room.Status))
		if g.Event == Mention {
			w.verify(g, n, room.Message)
		}
	}
	for id, want := range map[string][]string{
		k.r.RoomID:         {"room.started ended", "mention ended", "room.ended ended"},
		cancelled.r.RoomID: {"room.ended cancelled"},
		closed.r.RoomID:    {"room.ended ended"},
		late.r.RoomID:      {"room.discovered ended", "room.started ended", "room.ended ended"},
	} {
		if !slices.Equal(by[id], want) {
			t.Errorf("room %s: %v, want %v", id, by[id], want)
		}
	}
}

// A room is told of from its beginning, however late it is found, but for what is history.
func TestFoundLate(t *testing.T) {
	w := newWorld(t, nil).run()
	r := w.receiver()
	h := r.register(Events, Filters{})
	now := w.now()
	long := func(over obj) obj {
		over["start_time"] = now - 100*hour
		return over
	}
	for name, c := range map[string]struct {
		over   obj
		closes string
		at     int64
		want   []string
	}{
		"goes on":           {obj{}, "", 0, []string{"room.discovered active", "room.started active"}},
		"is over":           {obj{"start_time": now - minute}, room.Close, now, []string{"room.discovered ended", "room.started ended", "room.ended ended"}},
		"has a long past":   {long(obj{}), "", 0, []string{"room.discovered active"}},
		"ended an hour ago": {long(obj{"end_time": now - hour}), "", 0, []string{"room.discovered ended", "room.ended ended"}},
		"was closed today":  {long(obj{}), room.Close, now - hour, []string{"room.discovered ended", "room.ended ended"}},
		"ended long ago":    {long(obj{"end_time": now - 50*hour}), "", 0, []string{"room.discovered ended"}},
		"closed too early":  {obj{"start_time": now + hour}, room.Close, now, []string{"room.discovered ended", "room.ended ended"}},
		"never took place":  {obj{"start_time": now + hour}, room.Cancel, now, []string{"room.discovered cancelled", "room.ended cancelled"}},
		"is to come":        {obj{"start_time": now + hour, "end_time": now + 2*hour}, "", 0, []string{"room.discovered scheduled"}},
	} {
		t.Run(name, func(t *testing.T) {
			w.stop()
			k := w.create(other, c.over)
			if c.closes != "" {
				k.addAt(c.at, alice, c.closes, obj{})
			}
			w.open()
			w.run()
			of := func() (list []string) {
				for _, g := range r.events() {
					if g.Room.RoomID == k.r.RoomID {
						list = append(list, g.Event+" "+string(g.Room.Status))
					}
				}
				return list
			}
			w.until("its events", func() bool { return len(of()) >= len(c.want) && w.show(h.ID).Waiting == 0 })
			if got := of(); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// A room that starts by itself rings.
func TestTimeRings(t *testing.T) {
	w := newWorld(t, nil).run()
	r := w.receiver()
	r.register([]string{RoomStarted, RoomEnded}, Filters{})
	now := w.now()
	w.create(own, obj{"start_time": now + 150, "end_time": now + 300})
	w.untilEvents(r, RoomStarted, RoomEnded)
}

// Rooms that are not public are never told of, nor what is older than the webhook or
// than a room that was just found.
func TestWhatIsNotTold(t *testing.T) {
	w := newWorld(t, nil)
	before := w.create(own, nil)
	before.add(alice, room.Message, say("old"), idOf(bob))
	if w.keys(store.WatchedRoomRange) != 0 {
		t.Error("rooms are watched for nobody")
	}
	w.run()
	r := w.receiver()
	h := r.register(Events, Filters{})
	for _, v := range []string{room.Private, room.Restricted} {
		k := w.create(own, obj{"visibility": v})
		k.add(alice, room.Message, say("hush"), idOf(bob))
		k.add(alice, room.Close, obj{})
	}
	found := w.create(other, obj{"start_time": w.now() - 100*hour})
	found.addAt(w.now()-30*hour, alice, room.Message, say("history"), idOf(bob))
	last := found.add(alice, room.Message, say("news"), idOf(bob))
	locked(&w.mu, func() any { w.hidden[nameOf(w.made+1)] = true; return nil }) // before it is there to be looked at
	hidden := w.create(other, nil)
	hidden.add(alice, room.Message, say("quarantine"), idOf(bob))
	seq := before.add(alice, room.Message, say("new"), idOf(bob))
	w.until("the two mentions", func() bool { return slices.Contains(r.names(), Mention) && len(r.events()) >= 3 })
	w.until("an empty queue", func() bool { return w.show(h.ID).Waiting == 0 })
	mentions := map[string]int64{}
	for _, g := range r.events() {
		switch {
		case g.Event == Mention:
			v, err := adp.ScanDepth(g.Record, adp.RecordDepth)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := v.Get("seq").Int()
			mentions[g.Room.RoomID] += n
		case g.Event != RoomDiscovered:
			t.Errorf("told of: %s", g.body)
		}
	}
	if len(mentions) != 2 || mentions[found.r.RoomID] != last || mentions[before.r.RoomID] != seq {
		t.Errorf("mentions %v, want seq %d of %s and %d of %s", mentions, last, found.r.RoomID, seq, before.r.RoomID)
	}
	// what was hidden is found when it is shown
	locked(&w.mu, func() any { delete(w.hidden, hidden.r.RoomID); return nil })
	w.w.Changed(hidden.r)
	w.until("the room that is shown again", func() bool {
		return slices.ContainsFunc(r.events(), func(g got) bool { return g.Event == Mention && g.Room.RoomID == hidden.r.RoomID })
	})
	if err := w.w.Remove(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	if n := w.keys(store.WatchedRoomRange) + w.keys(queues) + w.keys(store.WebhookRange); n != 0 {
		t.Errorf("%d keys are left of webhooks that are gone", n)
	}
}

// What is taken from view between the event and its delivery is not delivered.
func TestTakenFromView(t *testing.T) {
	w := newWorld(t, nil)
	k := w.create(own, nil)
	gone := w.create(other, nil)
	w.run()
	r := w.receiver()
	h := r.register([]string{Mention}, Filters{})
	if _, err := w.w.Pause(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	gone.add(alice, room.Message, say("in quarantine soon"), idOf(bob))
	w.until("the first event", func() bool { return w.show(h.ID).Waiting == 1 })
	secret := k.add(alice, room.Message, say("a secret"), idOf(bob))
	w.until("two events", func() bool { return w.show(h.ID).Waiting == 2 })
	if _, err := k.r.Withhold(secret, "takedown", w.now(), replica.Seal); err != nil {
		t.Fatal(err)
	}
	locked(&w.mu, func() any { w.hidden[gone.r.RoomID] = true; return nil })
	if _, err := w.w.Resume(h.ID, ""); err != nil {
		t.Fatal(err)
	}
	g := w.untilEvents(r, Mention)[0]
	if bytes.Contains(g.body, []byte("a secret")) || !bytes.Contains(g.Record, []byte(`"redacted":true`)) {
		t.Errorf("delivered: %s", g.body)
	}
	w.until("an empty queue", func() bool { return w.show(h.ID).Waiting == 0 })
	if h := w.show(h.ID); h.Delivered != 1 {
		t.Errorf("%+v", h)
	}
}

func TestFilters(t *testing.T) {
	about := func(over func(*Event)) *Event {
		e := &Event{Type: Mention, Mentions: []string{"did:b", "did:c"}, Room: &Room{Origin: other, Topic: "Quorum Öl of MIRRORS", Tags: []string{"a", "b"}, Language: "en-GB"}}
		if over != nil {
			over(e)
		}
		return e
	}
	host := &Event{Type: HostState, Host: &HostNews{Origin: other}}
	for _, c := range []struct {
		name string
		f    Filters
		e    *Event
		want bool
	}{
		{"none", Filters{}, about(nil), true},
		{"host", Filters{Hosts: []string{own, other}}, about(nil), true},
		{"another host", Filters{Hosts: []string{own}}, about(nil), false},
		{"tag", Filters{Tags: []string{"x", "b"}}, about(nil), true},
		{"another tag", Filters{Tags: []string{"x"}}, about(nil), false},
		{"language", Filters{Languages: []string{"en"}}, about(nil), true},
		{"language in other case", Filters{Languages: []string{"EN-gb"}}, about(nil), true},
		{"narrower language", Filters{Languages: []string{"en-GB-oed"}}, about(nil), false},
		{"another language", Filters{Languages: []string{"e", "de"}}, about(nil), false},
		{"no language", Filters{Languages: []string{"en"}}, about(func(e *Event) { e.Room.Language = "" }), false},
		{"words", Filters{Q: " mirrors  ÖL "}, about(nil), true},
		{"a word that is not there", Filters{Q: "mirrors oil"}, about(nil), false},
		{"agent", Filters{Agents: []string{"did:c"}}, about(nil), true},
		{"another agent", Filters{Agents: []string{"did:d"}}, about(nil), false},
		{"agents are for mentions", Filters{Agents: []string{"did:d"}}, about(func(e *Event) { e.Type = RoomStarted }), true},
		{"all must agree", Filters{Agents: []string{"did:c"}, Tags: []string{"x"}}, about(nil), false},
		{"state of a host", Filters{Tags: []string{"x"}, Q: "y"}, host, true},
		{"state of another host", Filters{Hosts: []string{own}}, host, false},
	} {
		if got := c.f.take(c.e); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
