package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/store"
)

// Join requests in a public room approve themselves, within the policy.
func TestAutoApproval(t *testing.T) {
	w := newWorld(t, nil)
	chair := newAgent(t)
	c, id := w.open(obj{"policy": obj{"observer_allowed": false, "moderator_agent_ids": []any{chair.id}}})
	ask := func(a *agent, role string) answer {
		t.Helper()
		return w.ask(id, a, obj{"role": role, "perspective": "p"})
	}
	ask(newAgent(t), "observer").refused(403, adp.RoleNotAllowed)
	if v := ask(newAgent(t), "moderator").ok(201); !v.Get("status").Is("pending") || v.Get("approved_role").Exists() {
		t.Errorf("got %s", v.Raw())
	}
	if v := ask(chair, "moderator").ok(201); !v.Get("status").Is("approved") {
		t.Errorf("got %s", v.Raw())
	}
	a := newAgent(t)
	v := ask(a, "speaker").ok(201)
	if !v.Get("status").Is("approved") || !v.Get("approved_role").Is("speaker") || string(v.Get("reviewed_by").Raw()) != "null" {
		t.Errorf("got %s", v.Raw())
	}
	w.act(a, id, room.Join, obj{"role": "speaker", "request_id": v.Get("request").Get("id").Text()}).ok(200)
	ask(a, "speaker").refused(400, adp.InvalidRequest) // a member already
	banned := newAgent(t)
	w.act(c, id, room.Remove, obj{"member": banned.id, "ban": true}).ok(200)
	if v := ask(banned, "speaker").ok(201); !v.Get("status").Is("pending") {
		t.Errorf("a banned agent was let in: %s", v.Raw())
	}
	w.records(id, nil)
}

func TestRequestsRefused(t *testing.T) {
	w := newWorld(t, nil)
	_, id := w.open(obj{"visibility": "restricted"})
	a := newAgent(t)
	w.ask(id, nil, obj{"role": "speaker"}).refused(401, adp.InvalidToken)
	w.ask(nowhere, a, obj{"role": "speaker"}).refused(404, adp.RoomNotFound)
	for _, body := range []string{"", "{", "null", "[]", "1", "{}", `{"role":"speaker"}x`, `{"role":"speaker","role":"observer"}`, strings.Repeat("[", 100_000)} {
		w.ask(id, a, []byte(body)).refused(400, adp.InvalidRequest)
	}
	for member, bad := range map[string][]any{"role": {"king", "", 1, nil, []any{}, obj{}}, "perspective": {1, nil, obj{}}, "reason": {1, true, []any{}},
		"extra": {"x", 1, []any{}, nil}, "applicant": {string(a.id)}, "id": {"jr_x"}, "expires_at": {1}} {
		for _, x := range bad {
			body := obj{"role": "speaker"}
			body[member] = x
			w.ask(id, a, body).refused(400, adp.InvalidRequest)
		}
	}
	if n := w.standing(a, id); n != "" {
		t.Errorf("refused requests made %q", n)
	}
}

// Whatever is taken can be reviewed: it has to fit into a signed event.
func TestRequestsFitReview(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	c, id := w.open(obj{"visibility": "restricted"})
	review := func(q adp.Value) {
		t.Helper()
		w.act(c, id, room.Review, obj{"request": q.Get("request"), "decision": "reject"}).ok(200)
	}
	nested := func(n int) []byte {
		return []byte(`{"role":"speaker","extra":{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`)
	}
	// the request stands three levels deep in the envelope, extra one deeper
	deepest := 0
	for n := adp.MaxDepth - 10; n < adp.MaxDepth; n++ {
		got := w.ask(id, newAgent(t), nested(n))
		if got.status == 201 {
			deepest = n
			review(got.v)
			continue
		}
		got.refused(400, adp.InvalidRequest)
	}
	if deepest < adp.MaxDepth-7 || deepest > adp.MaxDepth-5 {
		t.Errorf("%d levels below extra are the most", deepest)
	}
	half := int(defaults.PayloadBytes / 2)
	w.ask(id, newAgent(t), obj{"role": "speaker", "reason": strings.Repeat("x", half)}).refused(413, adp.PayloadTooLarge)
	review(w.ask(id, newAgent(t), obj{"role": "speaker", "reason": strings.Repeat("x", half-500)}).ok(201))
	// small as it was sent, large in its canonical form
	numbers := []byte(`{"role":"speaker","extra":{"x":[1e15` + strings.Repeat(",1e15", half/6-20) + `]}}`)
	if len(numbers) > half {
		t.Fatal("the text is too large itself")
	}
	w.ask(id, newAgent(t), numbers).refused(413, adp.PayloadTooLarge)
	w.ask(id, newAgent(t), obj{"role": "speaker", "reason": strings.Repeat("x", 600_000)}).refused(413, adp.PayloadTooLarge)
}

func TestRequestCaps(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "restricted", "end_time": t0 + 10*hour})
	path := "/v1/rooms/" + id
	a := newAgent(t)
	var mine []adp.Value
	for range 5 {
		mine = append(mine, w.ask(id, a, obj{"role": "speaker"}).ok(201).Get("request"))
	}
	if got := w.ask(id, a, obj{"role": "speaker"}).refused(429, adp.RateLimited); got.head.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.ask(id, newAgent(t), obj{"role": "speaker"}).ok(201)
	w.act(c, id, room.Review, obj{"request": mine[0], "decision": "reject"}).ok(200) // makes room for another
	w.ask(id, a, obj{"role": "observer"}).ok(201)
	w.ask(id, a, obj{"role": "observer"}).refused(429, adp.RateLimited)
	w.clock.Add(hour)
	w.ask(id, a, obj{"role": "observer"}).ok(201)
	if v := w.get(path+"/join-requests/"+mine[1].Get("id").Text(), a).ok(200); !v.Get("status").Is("expired") {
		t.Errorf("got %s", v.Raw())
	}
	w.act(c, id, room.Review, obj{"request": mine[1], "decision": "approve", "role": "speaker"}).refused(409, adp.JoinRequestExpired)
	agents := make([]*agent, 210)
	for i := range agents {
		agents[i] = newAgent(t)
	}
	all := parallel(5*len(agents), func(i int) answer { return w.ask(id, agents[i%len(agents)], obj{"role": "speaker"}) })
	if n := count(all, 201, ""); n != 999 || count(all, 429, adp.RateLimited) != 5*len(agents)-999 { // with the one before, a thousand
		t.Errorf("%d requests were taken", n)
	}
}

func TestRequestExpiry(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.JoinRequestTTL = 10 * minute })
	c, id := w.open(obj{"visibility": "restricted", "end_time": t0 + 100*hour})
	path := "/v1/rooms/" + id
	a, b := newAgent(t), newAgent(t)
	q := w.ask(id, a, obj{"role": "speaker"}).ok(201).Get("request")
	rid := q.Get("id").Text()
	w.act(c, id, room.Review, obj{"request": q, "decision": "approve", "role": "speaker"}).ok(200)
	rejected := w.ask(id, b, obj{"role": "speaker"}).ok(201).Get("request")
	w.act(c, id, room.Review, obj{"request": rejected, "decision": "reject"}).ok(200)
	status := func(a *agent, id string) string {
		t.Helper()
		return w.get(path+"/join-requests/"+id, a).ok(200).Get("status").Text()
	}
	w.clock.Add(10*minute - 1)
	if s := status(a, rid); s != "approved" {
		t.Errorf("a moment before it is %s", s)
	}
	w.clock.Add(1)
	if s := status(a, rid); s != "expired" {
		t.Errorf("it is %s", s)
	}
	if s := status(b, rejected.Get("id").Text()); s != "rejected" {
		t.Errorf("a rejected one is %s", s)
	}
	w.act(a, id, room.Join, obj{"role": "speaker", "request_id": rid}).refused(409, adp.JoinRequestExpired)
	used := w.ask(id, a, obj{"role": "speaker"}).ok(201).Get("request")
	w.act(c, id, room.Review, obj{"request": used, "decision": "approve", "role": "speaker"}).ok(200)
	w.act(a, id, room.Join, obj{"role": "speaker", "request_id": used.Get("id").Text()}).ok(200)
	w.clock.Add(hour)
	if s := status(a, used.Get("id").Text()); s != "approved" { // it was used in time
		t.Errorf("a used one is %s", s)
	}
	w.clock.Store(t0 + 10*minute + 7*24*hour)
	sweep := func() int {
		t.Helper()
		if err := w.h.Sweep(); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := w.st.View(func(r store.Reader) error {
			from, to := store.JoinRequestRange(w.replica(id).ID)
			return r.Scan(from, to, func(_, _ []byte) bool { n++; return true })
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := sweep(); n != 3 {
		t.Errorf("%d requests are left, want 3", n)
	}
	w.clock.Add(1)
	if n := sweep(); n != 1 {
		t.Errorf("%d requests are left, want 1", n)
	}
	w.get(path+"/join-requests/"+rid, a).refused(404, adp.JoinRequestNotFound)
	w.get(path+"/join-requests/"+used.Get("id").Text(), a).ok(200)
	if s := w.standing(a, id); s != "active" {
		t.Errorf("the standing is %q", s)
	}
	w.records(id, c)
}

func TestRequestList(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	c, id := w.open(obj{"visibility": "restricted"})
	path := "/v1/rooms/" + id + "/join-requests"
	var want []string
	wanted := map[string][]string{}
	for i := range 23 {
		q := w.ask(id, newAgent(t), obj{"role": "speaker", "reason": fmt.Sprint(i)}).ok(201).Get("request")
		rid, status := q.Get("id").Text(), "pending"
		switch i % 3 {
		case 1:
			status = "approved"
			w.act(c, id, room.Review, obj{"request": q, "decision": "approve", "role": "observer"}).ok(200)
		case 2:
			status = "rejected"
			w.act(c, id, room.Review, obj{"request": q, "decision": "reject", "reason": "no"}).ok(200)
		}
		want, wanted[status] = append(want, rid), append(wanted[status], rid)
	}
	walk := func(query string) (got []string) {
		t.Helper()
		for next, n := path+"?limit=4"+query, 0; next != ""; n++ {
			page := w.get(next, c)
			rows := page.ok(200)
			if rows.Len() > 4 || n > 6 {
				t.Fatalf("page %d has %d requests", n, rows.Len())
			}
			for r := range rows.Elements() {
				got = append(got, r.Get("request").Get("id").Text())
			}
			next = nextPage(page)
		}
		return got
	}
	if got := walk(""); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for status, want := range wanted {
		if got := walk("&status=" + status); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", status, got, want)
		}
	}
	for _, q := range []string{"limit=0", "limit=x", "cursor=x", "limit=1&limit=2", "status=open", "status=Pending", "status=pending&status=expired"} {
		w.get(path+"?"+q, c).refused(400, adp.InvalidRequest)
	}
	w.clock.Add(hour)
	if got := walk("&status=expired"); len(got) != len(wanted["pending"])+len(wanted["approved"]) {
		t.Errorf("%d expired, want all but the rejected", len(got))
	}
	if got := walk("&status=pending"); len(got) != 0 {
		t.Errorf("%d pending", len(got))
	}
	w.get(path, nil).refused(401, adp.InvalidToken)
	w.get(path, newAgent(t)).refused(403, adp.PermissionDenied)
	w.get(path+"/"+strings.Repeat("x", 5000), c).refused(404, adp.JoinRequestNotFound)
	w.get(path+"/jr_x", c).refused(404, adp.JoinRequestNotFound)
}
