package host_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/store"
)

// The directory decides which rooms and in which order; the host shows them.
func TestPublicRooms(t *testing.T) {
	w := newWorld(t, nil)
	_, one := w.open(obj{"topic": "Alpha"})
	_, two := w.open(obj{"topic": "Beta", "visibility": "restricted"})
	if got := w.get("/v1/rooms/public", nil); string(got.body) != "[]" {
		t.Errorf("got %s", got.body)
	}
	w.dir.ids, w.dir.next = []string{two, nowhere, one}, "more"
	a := w.get("/v1/rooms/public?tag=x&keyword=QUORUM&limit=2", nil)
	v := a.ok(200)
	var topics []string
	for r := range v.Elements() {
		topics = append(topics, r.Get("topic").Text())
		if r.Get("types").Exists() {
			t.Errorf("a list shows types: %s", r.Raw())
		}
	}
	if fmt.Sprint(topics) != "[Beta Alpha]" {
		t.Errorf("got %v", topics)
	}
	q := w.dir.asked
	if q.Get("tag") != "x" || q.Get("keyword") != "QUORUM" || q.Get("limit") != "2" {
		t.Errorf("the directory was asked %v", q)
	}
	next, err := url.Parse(nextPage(a))
	if err != nil || next.Path != "/v1/rooms/public" || next.Query().Get("cursor") != "more" || next.Query().Get("keyword") != "QUORUM" {
		t.Errorf("next page %v", next)
	}
	w.dir.err = adp.Errorf(adp.InvalidRequest, "status must be one of the four")
	w.get("/v1/rooms/public?status=open", nil).refused(400, adp.InvalidRequest)
}

func (w *world) mine(a *agent, query string) (rows []adp.Value) {
	w.t.Helper()
	for r := range w.get("/v1/me/rooms"+query, a).ok(200).Elements() {
		rows = append(rows, r)
	}
	return rows
}

// standing is an agent's membership in a room, "" when the room is not listed.
func (w *world) standing(a *agent, id string) string {
	w.t.Helper()
	for _, r := range w.mine(a, "") {
		if r.Get("id").Is(id) {
			return r.Get("membership").Text()
		}
	}
	return ""
}

func TestMyRooms(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(nil)
	w.get("/v1/me/rooms", nil).refused(401, adp.InvalidToken)
	speaker, banned, asker, rejected := w.member(id, "speaker"), newAgent(t), newAgent(t), newAgent(t)
	rows := w.mine(speaker, "")
	if len(rows) != 1 || !rows[0].Get("id").Is(id) || !rows[0].Get("role").Is("speaker") || !rows[0].Get("membership").Is("active") || rows[0].Get("types").Exists() {
		t.Errorf("got %v", rows)
	}
	want := func(a *agent, room, standing string) {
		t.Helper()
		if got := w.standing(a, room); got != standing {
			t.Errorf("the standing is %q, want %q", got, standing)
		}
	}
	want(c, id, "active")
	want(newAgent(t), id, "")
	w.act(c, id, room.Remove, obj{"member": banned.id, "ban": true}).ok(200)
	want(banned, id, "banned")
	w.act(speaker, id, room.Leave, obj{}).ok(200)
	want(speaker, id, "left")
	w.ask(id, speaker, obj{"role": "speaker"}).ok(201) // a request takes nothing from a membership that was
	want(speaker, id, "pending")
	w.clock.Add(hour - 1)
	want(speaker, id, "pending")
	w.clock.Add(1)
	want(speaker, id, "left")
	w.clock.Store(t0)

	// of a private room, who may not read it learns no more than that it is there
	pc, pid := w.open(obj{"visibility": "private", "topic": "hidden"})
	req := w.ask(pid, asker, obj{"role": "speaker"}).ok(201).Get("request")
	rows = w.mine(asker, "")
	if len(rows) != 1 || rows[0].Len() != 3 || !rows[0].Get("id").Is(pid) || !rows[0].Get("membership").Is("pending") || !rows[0].Get("url").Is(origin+"/v1/rooms/"+pid) {
		t.Errorf("got %v", rows)
	}
	w.act(pc, pid, room.Review, obj{"request": req, "decision": "approve", "role": "speaker"}).ok(200)
	if rows = w.mine(asker, ""); len(rows) != 1 || !rows[0].Get("topic").Is("hidden") || !rows[0].Get("membership").Is("pending") {
		t.Errorf("got %v", rows)
	}
	w.act(asker, pid, room.Join, obj{"role": "speaker", "request_id": req.Get("id").Text()}).ok(200)
	want(asker, pid, "active")
	w.act(asker, pid, room.Leave, obj{}).ok(200)
	if rows = w.mine(asker, ""); len(rows) != 1 || rows[0].Len() != 3 || !rows[0].Get("membership").Is("left") {
		t.Errorf("got %v", rows)
	}
	w.act(pc, pid, room.Remove, obj{"member": asker.id, "ban": true}).ok(200)
	if rows = w.mine(asker, ""); len(rows) != 1 || rows[0].Len() != 3 || !rows[0].Get("membership").Is("banned") {
		t.Errorf("got %v", rows)
	}
	req = w.ask(pid, rejected, obj{"role": "speaker"}).ok(201).Get("request")
	want(rejected, pid, "pending")
	w.act(pc, pid, room.Review, obj{"request": req, "decision": "reject"}).ok(200)
	want(rejected, pid, "")
	w.clock.Add(8 * 24 * hour) // the request is swept, and who only asked was never a member
	if err := w.h.Sweep(); err != nil {
		t.Fatal(err)
	}
	want(rejected, pid, "")
	want(asker, pid, "banned")
	want(speaker, id, "left")
	if _, ok, err := w.st.Get(store.MemberRoom(string(rejected.id), w.replica(pid).ID)); ok || err != nil {
		t.Errorf("the row of who only asked is still there: %v", err)
	}
}

func TestMyRoomsPages(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	a := newAgent(t)
	var want []string
	for i := range 23 {
		over := obj{"topic": fmt.Sprint(i)}
		if i%3 == 0 {
			over = obj{"topic": fmt.Sprint(i), "start_time": t0 + hour, "end_time": t0 + 2*hour}
		}
		want = append([]string{w.create(a, over).ok(201).Get("id").Text()}, want...)
	}
	walk := func(query string) (got []string) {
		t.Helper()
		for next, n := "/v1/me/rooms?limit=5"+query, 0; next != ""; n++ {
			page := w.get(next, a)
			rows := page.ok(200)
			if rows.Len() > 5 || rows.Len() == 0 || n > 5 {
				t.Fatalf("page %d has %d rooms", n, rows.Len())
			}
			for r := range rows.Elements() {
				got = append(got, r.Get("id").Text())
			}
			next = nextPage(page)
		}
		return got
	}
	if got := walk(""); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := walk("&status=scheduled"); len(got) != 8 {
		t.Errorf("%d scheduled rooms, want 8", len(got))
	}
	if got := walk("&status=active&membership=active"); len(got) != 15 {
		t.Errorf("%d active rooms, want 15", len(got))
	}
	for _, q := range []string{"status=cancelled", "status=ended", "membership=left", "membership=pending", "membership=banned"} {
		if n := len(w.mine(a, "?"+q)); n != 0 {
			t.Errorf("%s: %d rooms", q, n)
		}
	}
	foreign := strings.Replace(nextPage(w.get("/v1/me/rooms?limit=5", a)), "/v1/me/rooms", "/v1/rooms/"+want[0]+"/join-requests", 1)
	for _, path := range []string{"/v1/me/rooms?status=x", "/v1/me/rooms?membership=x", "/v1/me/rooms?limit=0", "/v1/me/rooms?cursor=x", foreign} {
		w.get(path, a).refused(400, adp.InvalidRequest)
	}
}
