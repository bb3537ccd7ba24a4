package mirror

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp/room"
)

func TestRoutes(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 4)
	h.put(s)
	for i := range 3 {
		h.put(talk(t, fmt.Sprintf("r%d", i), 2))
	}
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	until(t, "all rooms", func() bool { return g.m.Hosts()[0].Rooms == 4 && g.m.Hosts()[0].Records == 10 })
	resp, body := g.get(h, "/v1/rooms/room")
	var res struct {
		Seq  int64
		URL  string
		Head room.Position
	}
	if err := json.Unmarshal([]byte(body), &res); err != nil || res.Seq != 4 || res.Head.Hash != s.head.Hash || res.URL != h.origin()+"/v1/rooms/room" {
		t.Errorf("resource: %v %s", err, body)
	}
	until(t, "a moment of agreement", func() bool { resp, _ = g.get(h, "/v1/rooms/room"); return resp.Header.Get("Witan-Synced-At") != "" })
	for name, want := range map[string]string{"Witan-Origin": h.origin(), "Witan-Verified-Seq": "4", "Witan-Verdict": "verified"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	base := ownOrigin + "/m/" + h.authority()
	resp, _ = g.get(h, "/v1/rooms/room/events?limit=2")
	if link := resp.Header.Get("Link"); !strings.HasPrefix(link, "<"+base+"/v1/rooms/room/events?after_seq=2") {
		t.Errorf("Link %q", link)
	}
	if _, body = g.get(h, "/.well-known/agent-discourse"); !strings.Contains(body, `"api":"`+base+`/v1"`) {
		t.Errorf("discovery: %s", body)
	}
	if _, body = g.get(h, "/v1/rooms/room/agent-status"); body != `{"statuses":[]}` {
		t.Errorf("agent status: %s", body)
	}
	var ids []string
	for path := "/v1/rooms/public?limit=3&status=active"; path != ""; {
		resp, body = g.get(h, path)
		var page []struct{ ID string }
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatalf("%s: %s", path, body)
		}
		for _, p := range page {
			ids = append(ids, p.ID)
		}
		_, rest, _ := strings.Cut(resp.Header.Get("Link"), "<"+base)
		path, _, _ = strings.Cut(rest, ">")
	}
	if len(ids) != 4 {
		t.Errorf("listed: %v", ids)
	}
	for path, status := range map[string]int{"/v1/rooms/public?status=x": 400, "/v1/rooms/public?cursor=x": 400, "/v1/rooms/none": 404, "/v1/me/rooms": 404,
		"/v1/rooms/public?keyword=nothing": 200, "/v1/rooms/room/archive": 409, "/v1/rooms/room/events?limit=0": 400} {
		if resp, body := g.get(h, path); resp.StatusCode != status {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	for _, path := range []string{"/v1/rooms/room", "/v1/rooms", "/v1/rooms/room/join-requests"} {
		resp, err := http.Post(g.face.URL+"/m/"+h.authority()+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d, Allow %q", path, resp.StatusCode, resp.Header.Get("Allow"))
		}
	}
	if resp, err := http.Get(g.face.URL + "/m/elsewhere.example/v1/rooms/public"); err != nil || resp.StatusCode != 404 {
		t.Errorf("another host: %v %v", resp, err)
	}
}

func TestLiveStreamAndLongPoll(t *testing.T) {
	h := newFakeHost(t)
	s := talk(t, "room", 4)
	h.put(s)
	g := start(t, memory(t), nil).follow(h)
	g.holds(h, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", g.face.URL+"/m/"+h.authority()+"/v1/rooms/room/events/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	polled := make(chan string, 1)
	go func() {
		resp, body := g.get(h, "/v1/rooms/room/events?after_seq=4&wait=20")
		polled <- resp.Header.Get("Witan-Verified-Seq") + " " + body
	}()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	lines.Scan() // the stream is open: a record from now on is live
	s.add(creator, room.Close, map[string]any{})
	h.end(s, nil)
	if got := <-polled; got != "5 ["+string(s.recs[4].JSON())+"]" {
		t.Errorf("long poll: %.300s", got)
	}
	var data string
	for lines.Scan() { // ends because the room does
		if rest, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			data += rest
		}
	}
	if lines.Err() != nil || data != string(s.recs[4].JSON()) {
		t.Errorf("stream: %v, %.300s", lines.Err(), data)
	}
}
