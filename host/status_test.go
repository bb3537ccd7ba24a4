package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
)

func (w *world) statuses(id string, a *agent) int {
	w.t.Helper()
	return w.get("/v1/rooms/"+id+"/agent-status", a).ok(200).Get("statuses").Len()
}

func TestAgentStatus(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(nil)
	path := "/v1/rooms/" + id + "/agent-status"
	watcher := w.member(id, "observer")
	w.put(path, watcher, obj{"state": "idle"}).refused(403, adp.PermissionDenied)
	w.put(path, newAgent(t), obj{"state": "idle"}).refused(403, adp.PermissionDenied)
	w.put(path, nil, obj{"state": "idle"}).refused(401, adp.InvalidToken)
	w.put("/v1/rooms/"+nowhere+"/agent-status", c, obj{"state": "idle"}).refused(404, adp.RoomNotFound)
	seq := num(w.resource(id, nil).Get("seq"))
	full := obj{"state": "working", "summary": "s", "claim_id": "c", "activity": "a", "seen_seq": 1, "seen_hash": noHash(), "extra": obj{"x": []any{1.5}}}
	got := w.put(path, c, full).ok(200)
	want := string(encode(t, with(full, obj{"room_id": id, "agent_id": c.id, "updated_at": t0, "expires_at": t0 + 5*minute})))
	if string(got.Raw()) != want {
		t.Errorf("got %s, want %s", got.Raw(), want)
	}
	if v := w.get(path+"/"+string(c.id), nil).ok(200); string(v.Get("status").Raw()) != want {
		t.Errorf("got %s", v.Raw())
	}
	if v := w.get(path, nil).ok(200); v.Get("statuses").Len() != 1 || string(firstOf(v.Get("statuses")).Raw()) != want {
		t.Errorf("got %s", v.Raw())
	}
	w.get(path+"/"+string(watcher.id), nil).refused(404, adp.AgentStatusNotFound)
	for _, c := range []struct{ asked, want int64 }{{t0 + 24*hour, t0 + 5*minute}, {t0 + 5*minute + 1, t0 + 5*minute}, {t0 + minute, t0 + minute}, {0, 0}} {
		a := w.member(id, "speaker")
		if got := w.put(path, a, obj{"state": "idle", "expires_at": c.asked}).ok(200); num(got.Get("expires_at")) != c.want {
			t.Errorf("expires_at %d became %d", c.asked-t0, num(got.Get("expires_at"))-t0)
		}
	}
	if n := w.statuses(id, nil); n != 4 { // the one that had expired is not shown
		t.Errorf("%d statuses, want 4", n)
	}
	w.clock.Add(minute)
	if n := w.statuses(id, nil); n != 3 {
		t.Errorf("%d statuses, want 3", n)
	}
	w.clock.Add(4*minute - 1)
	if n := w.statuses(id, nil); n != 3 {
		t.Errorf("%d statuses, want 3", n)
	}
	w.clock.Add(1)
	if n := w.statuses(id, nil); n != 0 {
		t.Errorf("%d statuses, want none", n)
	}
	w.get(path+"/"+string(c.id), nil).refused(404, adp.AgentStatusNotFound)
	if got := num(w.resource(id, nil).Get("seq")); got != seq+4 {
		t.Errorf("statuses made records: seq %d, want %d", got, seq+4)
	}
}

func TestAgentStatusRefused(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(nil)
	path := "/v1/rooms/" + id + "/agent-status"
	for _, body := range []string{"", "{", "null", "[]", `"idle"`, "1", "{}", `{"state":"idle"}{}`, `{"state":"idle","state":"away"}`,
		`{"state":"idle","extra":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + "}", strings.Repeat("[", 8000), "{\"state\":\"\xff\"}"} {
		w.put(path, c, []byte(body)).refused(400, adp.InvalidRequest)
	}
	for member, bad := range map[string][]any{
		"state": {"", " \n", nil, 1, true, []any{}, obj{}}, "summary": {nil, 1, []any{}, obj{}}, "claim_id": {1, obj{}}, "activity": {1, false},
		"seen_seq": {-1, 1.5, "1", nil}, "seen_hash": {"x", 1, "", nil}, "expires_at": {-1, 1.5, "1", nil, []any{}}, "extra": {"x", 1, []any{}, nil},
		"colour": {"red"}, "agent_id": {string(c.id)}, "room_id": {id}, "updated_at": {1},
	} {
		for _, x := range bad {
			body := obj{"state": "idle"}
			body[member] = x
			w.put(path, c, body).refused(400, adp.InvalidRequest)
		}
	}
	w.put(path, c, obj{"state": "idle", "summary": strings.Repeat("x", 9000)}).refused(413, adp.PayloadTooLarge)
	w.put(path, c, obj{"state": "idle", "summary": strings.Repeat("x", 600_000)}).refused(413, adp.PayloadTooLarge)
	w.put(path, c, obj{"state": "idle", "summary": strings.Repeat("x", 8000)}).ok(200)
	for range 59 { // sixty a minute; what was refused did not count
		w.put(path, c, obj{"state": "idle"}).ok(200)
	}
	if got := w.put(path, c, obj{"state": "idle"}).refused(429, adp.RateLimited); got.head.Get("Retry-After") != "60" {
		t.Errorf("Retry-After %q", got.head.Get("Retry-After"))
	}
	w.put(path, w.member(id, "speaker"), obj{"state": "idle"}).ok(200)
	w.clock.Add(minute)
	w.put(path, c, obj{"state": "idle"}).ok(200)
}

// A status goes with what allowed it.
func TestAgentStatusCleared(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	c, id := w.open(nil)
	path := "/v1/rooms/" + id + "/agent-status"
	for _, end := range []func(a *agent){
		func(a *agent) { w.act(a, id, room.Leave, obj{}).ok(200) },
		func(a *agent) { w.act(c, id, room.Remove, obj{"member": a.id}).ok(200) },
		func(a *agent) { w.act(c, id, room.Remove, obj{"member": a.id, "ban": true}).ok(200) },
		func(a *agent) { w.act(c, id, room.RoleUpdate, obj{"member": a.id, "role": "observer"}).ok(200) },
	} {
		a, stays := w.member(id, "speaker"), w.member(id, "speaker")
		w.put(path, a, obj{"state": "idle"}).ok(200)
		w.put(path, stays, obj{"state": "idle"}).ok(200)
		end(a)
		w.get(path+"/"+string(a.id), nil).refused(404, adp.AgentStatusNotFound)
		w.get(path+"/"+string(stays.id), nil).ok(200)
		w.put(path, a, obj{"state": "idle"}).refused(403, adp.PermissionDenied)
	}
}

// A creator that is no speaker writes no status, its power notwithstanding
// (wire-facts §3.15).
func TestCreatorAsObserver(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(nil)
	w.act(c, id, room.RoleUpdate, obj{"member": c.id, "role": "observer"}).ok(200)
	w.put("/v1/rooms/"+id+"/agent-status", c, obj{"state": "idle"}).refused(403, adp.PermissionDenied)
	w.act(c, id, room.Message, say("all the same")).ok(200)
}

func TestManyStatuses(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	_, id := w.open(nil)
	path := "/v1/rooms/" + id + "/agent-status"
	agents := make([]*agent, 60)
	for i := range agents {
		agents[i] = w.member(id, "speaker")
	}
	parallel(len(agents), func(i int) answer { return w.put(path, agents[i], obj{"state": "idle", "summary": fmt.Sprint(i)}) })
	last := ""
	for s := range w.get(path, nil).ok(200).Get("statuses").Elements() {
		if id := s.Get("agent_id").Text(); id <= last {
			t.Error("the list is in no order")
		} else {
			last = id
		}
	}
	if n := w.statuses(id, nil); n != 60 {
		t.Errorf("%d statuses, want 60", n)
	}
	if err := w.h.Sweep(); err != nil || w.statuses(id, nil) != 60 {
		t.Errorf("%v: %d statuses after the sweep", err, w.statuses(id, nil))
	}
	w.clock.Add(6 * minute)
	if err := w.h.Sweep(); err != nil || w.statuses(id, nil) != 0 {
		t.Errorf("%v: %d statuses after they expired", err, w.statuses(id, nil))
	}
}
