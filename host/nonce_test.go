package host_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/store"
)

// replayed checks that an accepted envelope gets its record, whatever is the
// case now.
func (a answer) replayed(rec adp.Value) {
	a.t.Helper()
	a.refused(409, adp.NonceNotGreater)
	if string(a.data().Get("record").Raw()) != string(rec.Raw()) || a.head.Get("Max-Seen-Nonce") == "" {
		a.t.Fatalf("the answer does not carry the record: %s", a.body)
	}
}

func TestNonces(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(obj{"types": []any{obj{"use": "adp:reactions/1.0"}}})
	path := "/v1/rooms/" + id
	first := w.event(a, room.Message, say("1"), w.headOf(id), nil)
	ok := w.post(path, first)
	if rec := ok.ok(200); ok.head.Get("Max-Seen-Nonce") != "2" || num(rec.Get("seq")) != 2 {
		t.Errorf("%v %s", ok.head, ok.body)
	}
	again := w.post(path, first)
	again.replayed(ok.v)
	if again.head.Get("Max-Seen-Nonce") != "2" || num(again.data().Get("max_seen_nonce")) != 2 {
		t.Errorf("%v %s", again.head, again.body)
	}
	// a refused event never moves it
	for _, p := range []obj{{"content_type": "", "content": "x"}, {"content": "x"}, {}} {
		w.on(w.headOf(id), a, room.Message, p, obj{"nonce": 1000}).refused(400, adp.InvalidEvent)
	}
	w.on(w.headOf(id), a, room.Message, say("x"), obj{"nonce": 1000, "created_at": t0 - hour}).refused(400, adp.TimestampOutOfWindow)
	w.on(at{id, 1, noHash()}, a, room.Message, say("x"), obj{"nonce": 1000}).refused(409, adp.RoomHeadMismatch)
	w.on(w.headOf(id), a, "no.type", obj{}, obj{"nonce": 1000}).refused(422, adp.TypeNotDefined)
	w.on(w.headOf(id), newAgent(t), room.Message, say("x"), obj{"nonce": 1000, "actor": a.id}).refused(400, adp.InvalidSignature)
	w.on(w.headOf(id), a, room.Message, say("2"), obj{"nonce": 3}).ok(200)
	// another event with a used nonce brings no record
	for _, nonce := range []int64{1, 2, 3} {
		got := w.on(w.headOf(id), a, room.Message, say("other"), obj{"nonce": nonce}).refused(409, adp.NonceNotGreater)
		if got.data().Get("record").Exists() || got.head.Get("Max-Seen-Nonce") != "3" {
			t.Errorf("nonce %d: %v %s", nonce, got.head, got.body)
		}
	}
	w.on(w.headOf(id), a, room.Message, say("4"), obj{"nonce": 1<<53 - 1}).ok(200)
	w.on(w.headOf(id), a, room.Message, say("5"), obj{"nonce": 1<<53 - 1}).refused(409, adp.NonceNotGreater)
	// the nonce is the actor's, not the room's
	_, other := w.open(nil)
	w.on(w.headOf(other), a, room.Join, obj{"role": "speaker"}, obj{"nonce": 5}).refused(409, adp.NonceNotGreater)
	w.post("/v1/rooms", w.event(a, room.Create, w.contract(nil), at{}, obj{"nonce": 6})).refused(409, adp.NonceNotGreater)
}

func TestReplay(t *testing.T) {
	w := newWorld(t, nil)
	c := newAgent(t)
	genesis := w.event(c, room.Create, w.contract(obj{"types": []any{obj{"use": "adp:reactions/1.0"}}}), at{}, nil)
	id := w.post("/v1/rooms", genesis).ok(201).Get("id").Text()
	made := firstOf(w.get("/v1/rooms/"+id+"/events", nil).ok(200))
	a := w.member(id, "speaker")
	_, other := w.open(nil)
	path := "/v1/rooms/" + id
	env := w.event(a, room.Message, say("x"), w.headOf(id), nil)
	rec := w.post(path, env).ok(200)
	all := func() {
		t.Helper()
		w.post("/v1/rooms", genesis).replayed(made)
		w.post(path, env).replayed(rec)
	}
	all()
	w.clock.Add(10 * minute) // long after the window
	all()
	w.act(c, id, room.Remove, obj{"member": a.id, "ban": true}).ok(200)
	w.change(host.AccessChange{Ban: []adp.AgentID{a.id, c.id}, RoomCreation: ptr(host.CreationClosed)})
	all()
	w.change(host.AccessChange{Unban: []adp.AgentID{c.id}})
	w.act(c, id, room.Close, obj{}).ok(200)
	all()
	w.clock.Add(30 * 24 * hour)
	all()
	// in another room it is an event of the wrong room
	w.post("/v1/rooms/"+other, env).refused(400, adp.InvalidEvent)
}

// The same envelope at once, fifty times, as after lost answers: one record.
func TestLostAnswers(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	check := func(all []answer, status int) adp.Value {
		t.Helper()
		var won adp.Value
		for _, x := range all {
			if x.status == status {
				won = x.v
			}
		}
		if n := count(all, status, ""); n != 1 || count(all, 409, adp.NonceNotGreater) != 49 {
			t.Fatalf("%d accepted, %d told of the nonce", n, count(all, 409, adp.NonceNotGreater))
		}
		return won
	}
	env := w.event(a, room.Message, say("x"), w.headOf(id), nil)
	all := parallel(50, func(int) answer { return w.post("/v1/rooms/"+id, env) })
	rec := check(all, 200)
	for _, x := range all {
		if r := x.data().Get("record"); x.status != 200 && r.Exists() && string(r.Raw()) != string(rec.Raw()) {
			t.Errorf("another record: %s", x.body)
		}
	}
	w.post("/v1/rooms/"+id, env).replayed(rec)
	if n := len(w.records(id, nil)); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
	genesis := w.event(a, room.Create, w.contract(nil), at{}, nil)
	check(parallel(50, func(int) answer { return w.post("/v1/rooms", genesis) }), 201)
	if n := len(w.set.All()); n != 2 {
		t.Errorf("%d rooms, want 2", n)
	}
}

// Of the writes of one actor in many rooms with one nonce, exactly one wins.
func TestOneNonceManyRooms(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	a := newAgent(t)
	ids := make([]string, 20)
	for i := range ids {
		ids[i] = w.create(a, nil).ok(201).Get("id").Text()
	}
	for round := range 10 {
		nonce := int64(1000 + round)
		envs := make([][]byte, len(ids))
		for i, id := range ids {
			envs[i] = w.event(a, room.Message, say(strconv.Itoa(i)), w.headOf(id), obj{"nonce": nonce})
		}
		all := parallel(len(ids), func(i int) answer { return w.post("/v1/rooms/"+ids[i], envs[i]) })
		if n := count(all, 200, ""); n != 1 || count(all, 409, adp.NonceNotGreater) != len(ids)-1 {
			t.Fatalf("round %d: %d accepted", round, n)
		}
	}
	total := 0
	for _, id := range ids {
		total += len(w.records(id, nil))
	}
	if total != len(ids)+10 {
		t.Errorf("%d records, want %d", total, len(ids)+10)
	}
	// growing nonces, at once: whatever is accepted is in order, and at least the greatest is
	envs := make([][]byte, len(ids))
	for i, id := range ids {
		envs[i] = w.event(a, room.Message, say("x"), w.headOf(id), obj{"nonce": 2000 + i})
	}
	all := parallel(len(ids), func(i int) answer { return w.post("/v1/rooms/"+ids[i], envs[i]) })
	if all[len(ids)-1].status != 200 || count(all, 200, "")+count(all, 409, adp.NonceNotGreater) != len(ids) {
		t.Errorf("the greatest nonce: %d %s", all[len(ids)-1].status, all[len(ids)-1].body)
	}
}

func TestNoncesPersist(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var id string
	var env []byte
	var rec adp.Value
	a := newAgent(t)
	t.Run("first", func(t *testing.T) {
		w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), nil)
		id = w.create(a, nil).ok(201).Get("id").Text()
		env = w.event(a, room.Message, say("x"), w.headOf(id), obj{"nonce": 77})
		rec = w.post("/v1/rooms/"+id, env).ok(200)
	})
	t.Run("again", func(t *testing.T) {
		w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), nil)
		if got := w.on(w.headOf(id), a, room.Message, say("y"), obj{"nonce": 77}).refused(409, adp.NonceNotGreater); got.head.Get("Max-Seen-Nonce") != "77" {
			t.Errorf("Max-Seen-Nonce %q", got.head.Get("Max-Seen-Nonce"))
		}
		w.post("/v1/rooms/"+id, env).replayed(rec)
		w.on(w.headOf(id), a, room.Message, say("y"), obj{"nonce": 78}).ok(200)
	})
}

// received_at never steps back when the clock does (wire-facts §3.4).
func TestClockStepsBack(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	w.clock.Add(10 * minute)
	w.act(a, id, room.Message, say("1")).ok(200)
	w.clock.Add(-5 * minute)
	if rec := w.act(a, id, room.Message, say("2")).ok(200); num(rec.Get("received_at")) != t0+10*minute {
		t.Errorf("received_at %d", num(rec.Get("received_at"))-t0)
	}
	w.clock.Add(6 * minute)
	if rec := w.act(a, id, room.Message, say("3")).ok(200); num(rec.Get("received_at")) != t0+11*minute {
		t.Errorf("received_at %d", num(rec.Get("received_at"))-t0)
	}
	last := int64(0)
	for _, r := range w.records(id, nil) {
		if r.ReceivedAt < last {
			t.Errorf("seq %d was received before the record in front of it", r.Seq)
		}
		last = r.ReceivedAt
	}
}
