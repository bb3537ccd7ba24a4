package host_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/store"
)

func ptr[T any](x T) *T { return &x }

// limited checks that a refusal names the limit that was reached.
func (a answer) limited(status int, code adp.Code, limit string) {
	a.t.Helper()
	a.refused(status, code)
	if !a.data().Get("limit").Is(limit) || !strings.Contains(a.v.Get("error").Get("message").Text(), limit) {
		a.t.Fatalf("the refusal does not name %s: %s", limit, a.body)
	}
}

func (w *world) change(c host.AccessChange) host.Access {
	w.t.Helper()
	now, err := w.h.ChangeAccess(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return now
}

func TestRoomCreation(t *testing.T) {
	a, b := newAgent(t), newAgent(t)
	w := newWorld(t, func(o *host.Options) {
		o.Access = host.Access{RoomCreation: host.CreationAllowList, AllowedCreators: []adp.AgentID{a.id}}
	})
	id := w.create(a, nil).ok(201).Get("id").Text()
	w.create(b, nil).limited(403, adp.PermissionDenied, "allowed_creators")
	w.change(host.AccessChange{Allow: []adp.AgentID{b.id}, Disallow: []adp.AgentID{a.id}})
	w.create(b, nil).ok(201)
	w.create(a, nil).limited(403, adp.PermissionDenied, "allowed_creators")
	w.act(a, id, room.Message, say("x")).ok(200) // it is only about new rooms
	w.change(host.AccessChange{RoomCreation: ptr(host.CreationClosed)})
	w.create(b, nil).limited(403, adp.PermissionDenied, "room_creation")
	if v := w.get("/.well-known/agent-discourse", nil).ok(200); !v.Get("quotas").Get("room_creation").Is("closed") {
		t.Errorf("discovery does not show it: %s", v.Raw())
	}
	w.change(host.AccessChange{RoomCreation: ptr(host.CreationOpen)})
	w.create(newAgent(t), nil).ok(201)
}

func TestHostBan(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "restricted"})
	a := w.admit(c, id, "speaker")
	head := w.headOf(id)
	env := w.event(a, room.Message, say("x"), head, nil)
	rec := w.post("/v1/rooms/"+id, env).ok(200)
	w.change(host.AccessChange{Ban: []adp.AgentID{a.id}})
	banned := func(got answer) { t.Helper(); got.limited(403, adp.PermissionDenied, "banned_agents") }
	banned(w.act(a, id, room.Message, say("y")))
	banned(w.create(a, nil))
	banned(w.ask(id, a, obj{"role": "speaker"}))
	banned(w.put("/v1/rooms/"+id+"/agent-status", a, obj{"state": "idle"}))
	if got := w.post("/v1/rooms/"+id, env).refused(409, adp.NonceNotGreater); string(got.data().Get("record").Raw()) != string(rec.Raw()) {
		t.Errorf("the lost answer is still lost: %s", got.body)
	}
	w.change(host.AccessChange{Unban: []adp.AgentID{a.id}})
	w.act(a, id, room.Message, say("y")).ok(200)
}

func TestRoomQuotas(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Access.RoomsPerCreator, o.Access.RoomsTotal = 2, 3 })
	a, b := newAgent(t), newAgent(t)
	w.create(a, nil).ok(201)
	w.create(a, obj{"topic": " "}).refused(400, adp.InvalidEvent) // what is refused does not count
	w.create(a, nil).ok(201)
	got := w.create(a, nil)
	got.limited(429, adp.RateLimited, "rooms_per_creator")
	if got.head.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.create(b, nil).ok(201)
	w.create(b, nil).limited(429, adp.RateLimited, "rooms_total")
	w.change(host.AccessChange{RoomsTotal: ptr(int64(0)), RoomsPerCreator: ptr(int64(3))})
	w.create(a, nil).ok(201)
	w.create(a, nil).limited(429, adp.RateLimited, "rooms_per_creator")
}

// Creators that come at once do not get past the limit together.
func TestRoomsTotalAtOnce(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Access.RoomsTotal = 5 })
	agents := make([]*agent, 40)
	for i := range agents {
		agents[i] = newAgent(t)
	}
	all := parallel(40, func(i int) answer { return w.create(agents[i], nil) })
	if made := count(all, 201, ""); made != 5 || count(all, 429, adp.RateLimited) != 35 || len(w.set.All()) != 5 {
		t.Errorf("%d rooms made, %d kept", made, len(w.set.All()))
	}
}

func TestByteQuotas(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	a, id := w.open(nil)
	b, other := w.open(nil)
	same := w.create(a, nil).ok(201).Get("id").Text()
	watcher := w.member(id, "observer")
	size := func(id string) int64 { return w.replica(id).Row().Bytes }
	big := say(strings.Repeat("x", 2000))
	for _, c := range []struct {
		limit  string
		change func(n int64) host.AccessChange
		now    func() int64
		open   []string // rooms that can still be written
	}{
		{"bytes_per_room", func(n int64) host.AccessChange { return host.AccessChange{BytesPerRoom: &n} }, func() int64 { return size(id) }, []string{same, other}},
		{"bytes_per_creator", func(n int64) host.AccessChange { return host.AccessChange{BytesPerCreator: &n} }, func() int64 { return size(id) + size(same) }, []string{other}},
		{"bytes_total", func(n int64) host.AccessChange { return host.AccessChange{BytesTotal: &n} }, func() int64 { return size(id) + size(same) + size(other) }, nil},
	} {
		t.Run(c.limit, func(t *testing.T) {
			w := w.in(t)
			before := c.now()
			w.act(a, id, room.Message, big).ok(200)
			step := c.now() - before // the next has as many bytes, or a digit more
			w.change(c.change(c.now() + step - 1))
			w.act(a, id, room.Message, big).limited(413, adp.PayloadTooLarge, c.limit)
			for _, open := range c.open {
				who := a
				if open == other {
					who = b
				}
				w.act(who, open, room.Message, say("x")).ok(200)
			}
			w.change(c.change(c.now() + step + 20))
			w.act(a, id, room.Message, big).ok(200)
			w.act(a, id, room.Message, big).limited(413, adp.PayloadTooLarge, c.limit)
			if c.limit == "bytes_total" {
				w.create(newAgent(t), obj{"agenda": strings.Repeat("x", 3000)}).limited(413, adp.PayloadTooLarge, c.limit)
			}
			w.change(c.change(0))
		})
	}
	w.change(host.AccessChange{BytesPerRoom: ptr(int64(1)), BytesPerCreator: ptr(int64(1)), BytesTotal: ptr(int64(1))})
	w.act(a, id, room.Message, say("x")).limited(413, adp.PayloadTooLarge, "bytes_per_room")
	w.act(watcher, id, room.Leave, obj{}).ok(200) // a full room can be left, closed and cancelled
	w.act(a, id, room.Close, obj{}).ok(200)
	w.change(host.AccessChange{BytesPerRoom: ptr(int64(0)), BytesPerCreator: ptr(int64(0)), BytesTotal: ptr(int64(0))})
	later := w.create(a, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour}).ok(201).Get("id").Text()
	w.change(host.AccessChange{BytesPerRoom: ptr(int64(1))})
	w.act(a, later, room.Cancel, obj{}).ok(200)
	w.records(id, nil)
}

// Bytes that are on their way to the disk count too.
func TestByteQuotasAtOnce(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	a := newAgent(t)
	const n = 30
	ids, members := make([]string, n), make([]*agent, n)
	for i := range ids {
		ids[i] = w.create(a, nil).ok(201).Get("id").Text()
		members[i] = w.member(ids[i], "speaker")
	}
	total := func() (sum int64) {
		for _, id := range ids {
			sum += w.replica(id).Row().Bytes
		}
		return sum
	}
	limit := total() + 10_000
	w.change(host.AccessChange{BytesPerCreator: &limit})
	envs := make([][]byte, n)
	for i := range envs {
		envs[i] = w.event(members[i], room.Message, say(strings.Repeat("x", 2000)), w.headOf(ids[i]), nil)
	}
	all := parallel(n, func(i int) answer { return w.post("/v1/rooms/"+ids[i], envs[i]) })
	if now := total(); now > limit || count(all, 200, "") != 3 || count(all, 413, adp.PayloadTooLarge) != n-3 {
		t.Errorf("%d bytes of %d, %d accepted", now, limit, count(all, 200, ""))
	}
}

func TestChangeAccess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	a, b, c, d := newAgent(t).id, newAgent(t).id, newAgent(t).id, newAgent(t).id
	conf := host.Access{RoomCreation: host.CreationOpen, AllowedCreators: []adp.AgentID{a}, BannedAgents: []adp.AgentID{b}, RoomsPerCreator: 4, BytesTotal: 1 << 30}
	open := func(t *testing.T, conf host.Access) *world {
		return over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), func(o *host.Options) { o.Access = conf })
	}
	t.Run("changed", func(t *testing.T) {
		w := open(t, conf)
		now := w.change(host.AccessChange{RoomCreation: ptr(host.CreationAllowList), Allow: []adp.AgentID{c}, Ban: []adp.AgentID{d}, Unban: []adp.AgentID{b}, RoomsTotal: ptr(int64(9))})
		if fmt.Sprint(now) != fmt.Sprint(w.h.Access()) {
			t.Errorf("the answer %v is not what holds, %v", now, w.h.Access())
		}
		for _, bad := range []host.AccessChange{{RoomCreation: ptr("sometimes")}, {Allow: []adp.AgentID{"x"}}, {Disallow: []adp.AgentID{""}}, {Ban: []adp.AgentID{a, "x"}},
			{Unban: []adp.AgentID{"did:agent:x"}}, {RoomsTotal: ptr(int64(-1))}, {BytesPerRoom: ptr(int64(-1))}, {BytesTotal: ptr(int64(-9)), Ban: []adp.AgentID{a}}} {
			var e *adp.Error
			if _, err := w.h.ChangeAccess(bad); !errors.As(err, &e) || e.Code != adp.InvalidRequest {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if fmt.Sprint(now) != fmt.Sprint(w.h.Access()) {
			t.Errorf("a refused change changed %v to %v", now, w.h.Access())
		}
	})
	check := func(t *testing.T, got host.Access, creation string, allowed, banned []adp.AgentID, perCreator, rooms int64) {
		t.Helper()
		slices.Sort(allowed)
		slices.Sort(banned)
		if got.RoomCreation != creation || !slices.Equal(got.AllowedCreators, allowed) || !slices.Equal(got.BannedAgents, banned) ||
			got.RoomsPerCreator != perCreator || got.RoomsTotal != rooms || got.BytesTotal != 1<<30 {
			t.Errorf("got %+v", got)
		}
	}
	t.Run("opened again", func(t *testing.T) {
		w := open(t, conf)
		check(t, w.h.Access(), host.CreationAllowList, []adp.AgentID{a, c}, []adp.AgentID{d}, 4, 9)
		w.change(host.AccessChange{Disallow: []adp.AgentID{a}, RoomsPerCreator: ptr(int64(0))})
	})
	t.Run("another configuration", func(t *testing.T) { // what was changed stands above it, all else follows it
		conf := conf
		conf.RoomCreation, conf.AllowedCreators, conf.BannedAgents, conf.RoomsPerCreator = host.CreationClosed, []adp.AgentID{a, d}, []adp.AgentID{a, b}, 8
		check(t, open(t, conf).h.Access(), host.CreationAllowList, []adp.AgentID{c, d}, []adp.AgentID{a, d}, 0, 9)
	})
}

// Whoever is refused leaves nothing behind: keys cost nothing, and a host that is full
// would go on filling its memory.
func TestRefusedCreatorsAreNotCounted(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Access.RoomsTotal = 1 })
	w.create(newAgent(t), nil).ok(201)
	for range 5 {
		w.create(newAgent(t), nil).limited(429, adp.RateLimited, "rooms_total")
	}
	w.change(host.AccessChange{RoomsTotal: ptr[int64](0), BytesTotal: ptr[int64](1)})
	w.create(newAgent(t), nil).limited(413, adp.PayloadTooLarge, "bytes_total")
	if n := w.h.Counted(); n != 1 {
		t.Errorf("%d creators are counted, one has a room", n)
	}
}
