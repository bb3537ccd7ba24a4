package webhook

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// face asks the HTTP endpoints.
type face struct {
	w   *world
	mux *web.Mux
}

func (f face) call(key ed25519.PrivateKey, method, path string, body any) (status int, answer []byte) {
	f.w.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		f.w.t.Fatal(err)
	}
	req := httptest.NewRequest(method, own+path, bytes.NewReader(raw))
	if key != nil {
		token, err := adp.SignToken(key, own, f.w.opt.Now()/1000, 60)
		if err != nil {
			f.w.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	f.mux.ServeHTTP(rec, req)
	return rec.Code, rec.Body.Bytes()
}

func (f face) hook(key ed25519.PrivateKey, method, path string, body any, want int) (h Hook) {
	f.w.t.Helper()
	status, raw := f.call(key, method, path, body)
	if status != want {
		f.w.t.Fatalf("%s %s: %d %s, want %d", method, path, status, raw, want)
	}
	if want < 300 {
		if err := json.Unmarshal(raw, &h); err != nil {
			f.w.t.Fatalf("%v: %s", err, raw)
		}
	}
	return h
}

func (f face) list(key ed25519.PrivateKey, path string) (hooks []Hook, raw []byte) {
	f.w.t.Helper()
	status, raw := f.call(key, "GET", path, nil)
	if err := json.Unmarshal(raw, &hooks); status != 200 || err != nil {
		f.w.t.Fatalf("%d %s", status, raw)
	}
	return hooks, raw
}

// An agent has its own webhooks, sees no others, and only so many.
func TestAgents(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Public, o.PerOwner, o.Total = true, 2, 3 })
	k := w.create(own, nil)
	w.run()
	f, admin := face{w: w, mux: web.NewMux()}, face{w: w, mux: web.NewMux()}
	w.w.Routes(f.mux)
	w.w.AdminRoutes(admin.mux)
	const path = "/v1/webhooks"
	a, b := w.receiver(), w.receiver()
	ask := func(r *receiver) obj { return obj{"url": r.URL, "events": []string{Mention}} }

	f.hook(nil, "GET", path, nil, http.StatusUnauthorized)
	f.hook(nil, "POST", path, ask(a), http.StatusUnauthorized)
	f.hook(bob, "POST", path, obj{"url": a.URL}, http.StatusBadRequest)
	mine := f.hook(bob, "POST", path, ask(a), http.StatusCreated)
	if !strings.HasPrefix(mine.Secret, "whsec_") || mine.Owner != idOf(bob) || len(mine.Filters.Agents) != 1 || mine.Filters.Agents[0] != idOf(bob) {
		t.Errorf("%+v", mine)
	}
	a.secret.Store(&mine.Secret)
	theirs := f.hook(alice, "POST", path, ask(b), http.StatusCreated)
	b.secret.Store(&theirs.Secret)
	if mine.Secret == theirs.Secret {
		t.Error("two webhooks have one secret")
	}
	if hooks, raw := f.list(bob, path); len(hooks) != 1 || hooks[0].ID != mine.ID || strings.Contains(string(raw), "whsec_") {
		t.Errorf("%s", raw)
	}
	for _, c := range [][2]string{{"GET", ""}, {"POST", "/pause"}, {"POST", "/resume"}, {"POST", "/test"}, {"DELETE", ""}} {
		f.hook(bob, c[0], path+"/"+theirs.ID+c[1], nil, http.StatusNotFound)
	}

	seq := k.add(alice, room.Message, say("bob, alice?"), idOf(bob), idOf(keyOf(9)))
	w.verify(w.untilEvents(a, Mention)[0], seq, room.Message)
	if n := len(b.got()); n != 0 {
		t.Errorf("alice gets %d deliveries that mention others", n)
	}

	if h := f.hook(bob, "POST", path+"/"+mine.ID+"/pause", nil, 200); h.State != Paused || h.Reason != "paused by its owner" {
		t.Errorf("%+v", h)
	}
	k.add(alice, room.Message, say("bob?"), idOf(bob))
	w.until("an event that waits", func() bool { return f.hook(bob, "GET", path+"/"+mine.ID, nil, 200).Waiting == 1 })
	if h := f.hook(bob, "POST", path+"/"+mine.ID+"/resume", nil, 200); h.State != Active || h.Reason != "" {
		t.Errorf("%+v", h)
	}
	w.untilEvents(a, Mention, Mention)

	// bounds, of an agent and of all of them; the operator is not bound
	second := f.hook(bob, "POST", path, ask(w.receiver()), http.StatusCreated)
	f.hook(bob, "POST", path, ask(w.receiver()), http.StatusTooManyRequests)
	f.hook(keyOf(9), "POST", path, ask(w.receiver()), http.StatusTooManyRequests)
	op := admin.hook(nil, "POST", "/webhooks", obj{"url": w.receiver().URL, "events": Events, "filters": obj{"tags": []string{"x"}}}, 200)
	if op.Owner != "" || op.Secret == "" {
		t.Errorf("%+v", op)
	}
	f.hook(bob, "GET", path+"/"+op.ID, nil, http.StatusNotFound)
	if all, raw := admin.list(nil, "/webhooks"); len(all) != 4 || strings.Contains(string(raw), "whsec_") {
		t.Errorf("%s", raw)
	}
	if h := admin.hook(nil, "POST", "/webhooks/"+second.ID+"/pause", nil, 200); h.Reason != "paused by the operator" {
		t.Errorf("%+v", h)
	}
	admin.hook(nil, "DELETE", "/webhooks/"+second.ID, nil, 200)
	f.hook(bob, "DELETE", path+"/"+mine.ID, nil, 200)
	f.hook(bob, "GET", path+"/"+mine.ID, nil, http.StatusNotFound)
	k.add(alice, room.Message, say("still there?"), idOf(bob))
	k.add(alice, room.Message, say("alice!"), idOf(alice))
	w.untilEvents(b, Mention)
	if n := len(a.events()); n != 2 {
		t.Errorf("%d events after the end", n)
	}
	// the secret is the same after a restart, and nowhere in the store
	w.open()
	if again := w.w.secret(theirs.ID); again != theirs.Secret {
		t.Error("the secret has changed")
	}
	raw, _, err := w.st.Get(store.Webhook(theirs.ID))
	if err != nil || len(raw) == 0 || bytes.Contains(raw, []byte("whsec")) {
		t.Errorf("the row of a webhook: %v %s", err, raw)
	}
}

func TestNotPublic(t *testing.T) {
	w := newWorld(t, nil)
	f := face{w: w, mux: web.NewMux()}
	w.w.Routes(f.mux)
	f.hook(bob, "GET", "/v1/webhooks", nil, http.StatusNotFound)
}

// Nobody is knocked at again and again because strangers ask for it.
func TestChallengesAreBounded(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(o *Options) { // no time passes
		o.Public, o.Now = true, now.UnixMilli
	}).run()
	f := face{w: w, mux: web.NewMux()}
	w.w.Routes(f.mux)
	victim := w.receiver()
	victim.answer = status(404)
	refused := 0
	for i := range 20 {
		switch status, raw := f.call(keyOf(byte(20+i)), "POST", "/v1/webhooks", obj{"url": victim.URL, "events": []string{Mention}}); status {
		case http.StatusBadRequest:
		case http.StatusTooManyRequests:
			refused++
			if !bytes.Contains(raw, []byte(`"retry_after":10}`)) {
				t.Errorf("how long is that: %s", raw)
			}
		default:
			t.Errorf("%d %s", status, raw)
		}
	}
	if n := locked(&victim.mu, func() int { return victim.pings }); n != pingsBurst || refused != 20-n {
		t.Errorf("%d challenges, %d refused", n, refused)
	}
	p := newPings()
	for i := range 2 * pingsAtOnce {
		_, wait := p.take(strings.Repeat("x", i), now)
		if (wait == 0) != (i < pingsAtOnce) {
			t.Errorf("challenge %d of many at once: %v", i, wait)
		}
	}
	for i := range 3 * pingsKnown {
		p.take(fmt.Sprint(i), now)
	}
	if len(p.of) > pingsKnown {
		t.Errorf("%d authorities are remembered", len(p.of))
	}
	for range pingsAtOnce { // all of the first ones have ended
		<-p.busy
	}
	if _, wait := p.take("new", now.Add(time.Second)); wait == 0 {
		t.Error("there is room for one more")
	}
	if leave, wait := p.take("new", now.Add(time.Minute)); wait != 0 {
		t.Errorf("nobody was forgotten within a minute: %v", wait)
	} else {
		leave()
	}
}

func TestTestChallengesAgain(t *testing.T) {
	w := newWorld(t, nil).run()
	r := w.receiver()
	h := r.register([]string{RoomEnded}, Filters{})
	if _, err := w.w.Test(t.Context(), h.ID, ""); err != nil || locked(&r.mu, func() int { return r.pings }) != 2 {
		t.Errorf("%v", err)
	}
	r.mu.Lock()
	r.answer = status(500)
	r.mu.Unlock()
	if _, err := w.w.Test(t.Context(), h.ID, ""); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("%v", err)
	}
	if s := w.show(h.ID); s.State != Active || s.Attempts != 0 {
		t.Errorf("a test changed it: %+v", s)
	}
}
