package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
)

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// room is the status of one room of a host.
func (g *rig) room(h *fakeHost, id string) RoomStatus {
	g.t.Helper()
	for _, r := range g.m.Report(h.origin()) {
		for _, s := range r.RoomList {
			if s.RoomID == id {
				return s
			}
		}
	}
	return RoomStatus{}
}

func TestOperateOneRoom(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	one, two := talk(t, "one", 5), talk(t, "two", 5)
	h.put(one, two)
	g := start(t, st, nil).follow(h)
	g.holds(h, one)
	g.holds(h, two)
	url := h.origin() + "/v1/rooms/one"

	g.must(g.m.Pause(url))
	one.say(member, "while it is paused")
	two.say(member, "while the other is paused")
	h.put(one, two)
	g.holds(h, two)
	g.looks(h, 3)
	if s := g.room(h, "one"); s.State != replica.Paused || s.Seq != 5 || s.Reason != "paused by the operator" || s.Verdict != replica.Verified || s.Hidden {
		t.Errorf("%+v", s)
	}
	if resp, _ := g.get(h, "/v1/rooms/one/events"); resp.StatusCode != 200 {
		t.Errorf("a paused room: %d", resp.StatusCode)
	}
	g.stop()
	g = start(t, st, nil)
	g.looks(h, 3)
	if s := g.room(h, "one"); s.State != replica.Paused || s.Seq != 5 {
		t.Errorf("after a restart: %+v", s)
	}
	g.must(g.m.Resume(ownOrigin + "/m/" + h.authority() + "/v1/rooms/one"))
	g.holds(h, one)
	if s := g.room(h, "one"); s.State != replica.Following || s.Reason != "" || s.Behind != 0 {
		t.Errorf("resumed: %+v", s)
	}
}

func TestQuarantine(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	one, two := talk(t, "one", 5), talk(t, "two", 5)
	h.put(one, two)
	g := start(t, st, nil).follow(h)
	g.holds(h, one)
	g.holds(h, two)
	url := h.origin() + "/v1/rooms/one"
	req, err := http.NewRequest("GET", g.face.URL+"/m/"+h.authority()+"/v1/rooms/one/events/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	live, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Body.Close()
	g.must(g.m.Quarantine(url, "it smells"))
	if _, err := io.ReadAll(live.Body); err != nil { // the stream ends
		t.Errorf("the live stream: %v", err)
	}
	hidden := func(g *rig) {
		t.Helper()
		for _, path := range []string{"", "/events", "/events?wait=20", "/events/live", "/archive", "/archive.jsonl", "/archive.md"} {
			if resp, body := g.get(h, "/v1/rooms/one"+path); resp.StatusCode != 404 || !strings.Contains(body, "quarantine") || strings.Contains(body, "it smells") {
				t.Errorf("%s: %d %s", path, resp.StatusCode, body)
			}
		}
		if _, body := g.get(h, "/v1/rooms/public"); strings.Contains(body, `"id":"one"`) || !strings.Contains(body, `"id":"two"`) {
			t.Errorf("the list: %.300s", body)
		}
		if resp, body := g.get(h, "/v1/rooms/one/proof?seq=2"); resp.StatusCode != 200 || !strings.Contains(body, one.recs[1].Hash) {
			t.Errorf("proof: %d %s", resp.StatusCode, body)
		}
		r, _ := g.set.Get(h.origin(), "one")
		request, _ := json.Marshal(map[string]any{"origin": h.origin(), "room_id": "one", "genesis": r.Genesis, "after_seq": 0, "limit": 10})
		if answer, err := g.m.ServeRoomSync(t.Context(), "peer", request); err == nil {
			t.Errorf("a peer got %.200s", answer)
		}
		if s := g.room(h, "one"); s.State != replica.Quarantined || !s.Hidden || !strings.Contains(s.Reason, "it smells") || s.Seq != 5 {
			t.Errorf("%+v", s)
		}
	}
	hidden(g)
	g.stop()
	g = start(t, st, nil)
	hidden(g)
	if err := g.m.Release(h.origin() + "/v1/rooms/two"); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("released what is not in quarantine: %v", err)
	}
	one.say(member, "meanwhile")
	h.put(one)
	g.must(g.m.Release(url))
	g.holds(h, one)
	if resp, _ := g.get(h, "/v1/rooms/one/events"); resp.StatusCode != 200 {
		t.Errorf("released: %d", resp.StatusCode)
	}

	// a whole host
	g.must(g.m.Quarantine(h.origin(), "all of it"))
	if s := g.m.Hosts()[0]; s.State != Paused || !strings.Contains(s.Reason, "all of it") {
		t.Errorf("%+v", s)
	}
	for _, id := range []string{"one", "two"} {
		if resp, _ := g.get(h, "/v1/rooms/"+id+"/events"); resp.StatusCode != 404 {
			t.Errorf("%s of a host in quarantine: %d", id, resp.StatusCode)
		}
	}
	g.must(g.m.Release(h.origin()))
	if resp, _ := g.get(h, "/v1/rooms/two/events"); resp.StatusCode != 200 {
		t.Errorf("released: %d", resp.StatusCode)
	}
}

func TestForgetRoomAndHost(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	one, two := talk(t, "one", 5), talk(t, "two", 7)
	h.put(one, two)
	gone := make(chan string, 10)
	g := start(t, st, func(o *Options) { o.Unlisted = func(_, id string) { gone <- id } }).follow(h)
	g.holds(h, one)
	g.holds(h, two)
	url := h.origin() + "/v1/rooms/one"
	f, err := g.m.Forget(url, false)
	if err != nil || f.Done || f.Rooms != 1 || f.Records != 5 || f.Bytes == 0 || len(f.URLs) != 1 || f.URLs[0] != url {
		t.Errorf("dry run: %+v, %v", f, err)
	}
	g.holds(h, one)
	if f, err = g.m.Forget(url, true); err != nil || !f.Done || f.Records != 5 {
		t.Errorf("%+v, %v", f, err)
	}
	if id := <-gone; id != "one" {
		t.Errorf("the index was told to drop %s", id)
	}
	two.say(member, "go on")
	h.put(two)
	g.holds(h, two)
	g.looks(h, 3)
	absent := func(g *rig) {
		t.Helper()
		if _, ok := g.set.Get(h.origin(), "one"); ok {
			t.Error("a forgotten room was copied again")
		}
		if s := g.room(h, "one"); s.Held || s.State != replica.Paused || s.Reason != "forgotten by the operator" {
			t.Errorf("%+v", s)
		}
	}
	absent(g)
	g.stop()
	g = start(t, st, nil)
	g.looks(h, 3)
	absent(g)
	g.must(g.m.Resume(url))
	g.holds(h, one)

	if f, err = g.m.Forget(h.origin(), true); err != nil || f.Rooms != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	g.looks(h, 3)
	if n := len(g.set.Of(h.origin())); n != 0 {
		t.Errorf("%d rooms are held of a forgotten host", n)
	}
	if s := g.m.Hosts()[0]; s.State != Paused || s.Reason != "forgotten by the operator" {
		t.Errorf("%+v", s)
	}
	g.must(g.m.Resume(h.origin()))
	g.holds(h, one)
	g.holds(h, two)
	g.must(g.m.Remove(h.origin()))
	if r := g.m.Report(h.origin()); len(r) != 1 || r[0].State != Removed || r[0].Rooms != 2 {
		t.Errorf("%+v", r)
	}
	if f, err = g.m.Forget(h.origin(), true); err != nil || f.Rooms != 2 || len(g.m.Report("")) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	for i, want := range []bool{false, true, false} { // a dry run, a run, a run with nothing to do
		if r, err := g.m.RetainNow(t.Context(), i > 0); err != nil || r.Expunged != want {
			t.Errorf("run %d of retention: %+v, %v", i, r, err)
		}
	}
}

// What the operator said while the daemon ran goes before what the configuration
// says at the next start.
func TestConfigurationDoesNotBringBack(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	g := start(t, st, nil)
	g.must(g.m.Add(h.origin(), "config"))
	g.must(g.m.Pause(h.origin()))
	g.stop()
	g = start(t, st, nil)
	g.must(g.m.Add(h.origin(), "config"))
	if s := g.m.Hosts(); len(s) != 1 || s[0].State != Paused || s[0].Source != "config" {
		t.Errorf("%+v", s)
	}
	g.must(g.m.Remove(h.origin()))
	g.stop()
	g = start(t, st, nil)
	g.must(g.m.Add(h.origin(), "config"))
	if s := g.m.Hosts(); len(s) != 0 {
		t.Errorf("a removed host is back: %+v", s)
	}
	if r := g.m.Report(""); len(r) != 1 || r[0].State != Removed || r[0].Source != "config" || !strings.Contains(r[0].Reason, "removed by the operator") {
		t.Errorf("the status does not tell that the configuration is overruled: %+v", r)
	}
	g.must(g.m.Add(h.origin(), "runtime"))
	if s := g.m.Hosts(); len(s) != 1 || s[0].Source != "config, runtime" {
		t.Errorf("%+v", s)
	}
	g.must(g.m.Remove(h.origin()))
	if r := g.m.Report(""); len(r) != 1 || r[0].State != Removed || r[0].Source != "config" {
		t.Errorf("%+v", r)
	}
	g.must(g.m.Add(h.origin(), "runtime"))
	g.stop()
	g = start(t, st, nil)
	if s := g.m.Hosts(); len(s) != 1 || s[0].Source != "runtime" {
		t.Errorf("a host that was added, after a restart: %+v", s)
	}
	g.must(g.m.Remove(h.origin()))
	if r := g.m.Report(""); len(r) != 0 {
		t.Errorf("%+v", r)
	}
}

// A host that the configuration names no more is followed on, and the status says so.
func TestNamedNoMore(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	g := start(t, st, nil)
	g.must(g.m.Add(h.origin(), "flag"))
	g.stop()
	g = start(t, st, nil)
	if s := g.m.Hosts(); len(s) != 1 || s[0].Source != "earlier flag" {
		t.Errorf("%+v", s)
	}
	g.must(g.m.Add(h.origin(), "config"))
	if s := g.m.Hosts(); len(s) != 1 || s[0].Source != "config" {
		t.Errorf("%+v", s)
	}
}

// A mistyped name is told, and nothing is noted down for it.
func TestUnknownTargets(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 5)
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	for name, code := range map[string]adp.Code{h.origin() + "/v1/rooms/roam": adp.RoomNotFound, "https://nobody.example": adp.NotFound, "https://nobody.example/v1/rooms/room": adp.NotFound} {
		for what, do := range map[string]func(string) error{"pause": g.m.Pause, "resume": g.m.Resume, "retry": g.m.Retry, "release": g.m.Release,
			"quarantine": func(n string) error { return g.m.Quarantine(n, "x") }, "forget": func(n string) error { _, err := g.m.Forget(n, true); return err }} {
			if err := do(name); adp.CodeOf(err) != code {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	if r := g.m.Report(""); len(r) != 1 || len(g.m.Report(h.origin())[0].RoomList) != 1 {
		t.Errorf("%+v", r)
	}
	// what is forgotten is known, and so is what is listed and not held
	url := h.origin() + "/v1/rooms/room"
	if _, err := g.m.Forget(url, true); err != nil {
		t.Fatal(err)
	}
	g.must(g.m.Quarantine(url, "it smells"))
	if list, ok := g.m.ReportRoom(url); !ok || len(list) != 1 || len(list[0].RoomList) != 1 || list[0].RoomList[0].State != replica.Quarantined {
		t.Errorf("%+v, %v", list, ok)
	}
	g.must(g.m.Release(url))
	g.must(g.m.Resume(url))
	g.holds(h, s)
}

// A crash in the middle of a Forget leaves nothing that the next start does not drop.
func TestForgetGoesOnAfterACrash(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	one, two := talk(t, "one", 5), talk(t, "two", 7)
	h.put(one, two)
	g := start(t, st, nil).follow(h)
	g.holds(h, one)
	g.holds(h, two)
	g.must(g.m.decide(h.origin(), "", func(k *keeping) { k.Forgotten = true })) // the first step
	g.stop()
	g = start(t, st, nil)
	until(t, "the rooms to be dropped", func() bool { return len(g.set.Of(h.origin())) == 0 })
	if s := g.m.Hosts(); len(s) != 1 || s[0].State != Paused || s[0].Reason != "forgotten by the operator" {
		t.Errorf("%+v", s)
	}
	g.must(g.m.Resume(h.origin()))
	g.holds(h, one)

	g.must(g.m.Remove(h.origin()))
	g.must(g.m.decide(h.origin(), "", func(k *keeping) { k.Forgotten = true }))
	g.stop()
	g = start(t, st, nil)
	until(t, "the rooms of the removed host to be dropped", func() bool { return len(g.set.Of(h.origin())) == 0 && len(g.m.Report("")) == 0 })
}

func TestRetryOneRoom(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 5)
	h.put(s)
	bad := tamper(s.texts(), 2, "message", "massage")
	h.set(func() { h.rooms["room"].texts = bad })
	g := startOn(t, memory(t), nil, func(m *Mirror) { m.roomRetry = time.Hour }).follow(h)
	g.becomes(h, "room", replica.Broken)
	h.put(s)
	g.must(g.m.Retry(h.origin() + "/v1/rooms/room"))
	g.holds(h, s)
}

// A retry that comes while the host answers counts for what comes after that answer.
func TestRetryOfARoomInWork(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 5)
	h.put(s)
	asked, gate := make(chan struct{}), make(chan struct{})
	first := true
	h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/rooms/room/events" || !first {
			return false
		}
		first = false
		h.mu.Unlock() // the host goes on answering others
		close(asked)
		<-gate
		h.mu.Lock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "[%s]", bytes.Join(tamper(s.texts(), 2, "message", "massage"), []byte(",")))
		return true
	})
	g := startOn(t, memory(t), nil, func(m *Mirror) { m.roomRetry = time.Hour }).follow(h)
	<-asked
	g.must(g.m.Retry(h.origin() + "/v1/rooms/room"))
	close(gate)
	g.holds(h, s)
}

func TestTargets(t *testing.T) {
	h := newFakeHost(t)
	g := start(t, memory(t), nil).follow(h)
	for _, name := range []string{"", "x", "ftp://a.example", "https://a.example/v1", "https://a.example/v1/rooms/public", "https://a.example/v1/rooms/a/events", "https://a.example/?x=1",
		ownOrigin, ownOrigin + "/v1/rooms/x", ownOrigin + "/m/unknown.example/v1/rooms/x"} {
		for what, do := range map[string]func(string) error{"pause": g.m.Pause, "resume": g.m.Resume, "retry": g.m.Retry, "remove": g.m.Remove,
			"release": g.m.Release, "quarantine": func(n string) error { return g.m.Quarantine(n, "x") }, "forget": func(n string) error { _, err := g.m.Forget(n, true); return err }} {
			if err := do(name); err == nil {
				t.Errorf("%s %q went through", what, name)
			}
		}
	}
	if err := g.m.Pause("https://nobody.example"); err == nil {
		t.Error("a host that is not followed was paused")
	}
	if _, err := g.m.Withhold(h.origin()+"/v1/rooms/none", 1, "x"); adp.CodeOf(err) != adp.RoomNotFound {
		t.Errorf("%v", err)
	}
}

func TestProgress(t *testing.T) {
	var p progress
	t0 := time.Unix(1_000_000, 0)
	if got := p.now(t0, 5, 0); got.RecordsPerSecond != 0 || got.ETA != 0 || got.Pending != 5 {
		t.Errorf("%+v", got)
	}
	for i := range 40 { // 100 records and 1000 bytes a second
		p.add(50, 500, t0.Add(time.Duration(i)*500*time.Millisecond))
	}
	got := p.now(t0.Add(20*time.Second), 600, 400)
	if got.Records != 2000 || got.Bytes != 20_000 || got.RecordsPerSecond < 80 || got.RecordsPerSecond > 110 || got.ETA < 9 || got.ETA > 13 {
		t.Errorf("%+v", got)
	}
	if n := len(p.marks); n > 13 {
		t.Errorf("%d marks", n)
	}
	if got := p.now(t0.Add(time.Minute), 1000, 0); got.RecordsPerSecond != 0 || got.ETA != 0 || got.Records != 2000 {
		t.Errorf("after a pause: %+v", got)
	}
}

// A host that withholds a record tells no other story, and garbage that looks like a
// withheld record is none either.
func TestWithheldByTheHost(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 6)
	h.put(s)
	early := start(t, memory(t), nil).follow(h)
	early.holds(h, s)
	red, err := s.recs[4].Redact()
	if err != nil {
		t.Fatal(err)
	}
	served := s.texts()
	served[4] = red.JSON()
	h.set(func() { h.rooms["room"].texts = served })
	late := start(t, memory(t), nil).follow(h)
	until(t, "the late mirror to hold all", func() bool { return late.row(h, "room").Seq == 6 })
	if row := late.row(h, "room"); row.Withheld != 1 || row.EffectiveVerdict() != replica.Verified || row.Violations != 0 {
		t.Errorf("%+v", row)
	}
	if s := late.room(h, "room"); s.Withheld != 1 || s.Verdict != replica.Verified {
		t.Errorf("%+v", s)
	}
	early.looks(h, 3)
	early.holds(h, s) // whole
	if row := early.row(h, "room"); row.Withheld != 0 {
		t.Errorf("%+v", row)
	}

	// a withheld record is no proof of another story
	other := s.cut(4)
	other.say(member, "another story")
	other.say(member, "to the end")
	forged, err := other.recs[4].Redact()
	if err != nil {
		t.Fatal(err)
	}
	h.set(func() {
		lie := other.texts()
		lie[4] = forged.JSON()
		last := other.recs[5]
		h.rooms["room"].texts, h.rooms["room"].hash = lie, last.Hash
	})
	row := early.becomes(h, "room", replica.Broken)
	if !strings.HasPrefix(row.Reason, "seq 5: ") {
		t.Errorf("%+v", row)
	}
	early.mu.Lock()
	defer early.mu.Unlock()
	if len(early.observed) > 0 {
		t.Errorf("it was observed as %s", early.observed[0].Kind)
	}
}
