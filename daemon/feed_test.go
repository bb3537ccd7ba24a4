package daemon

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
)

// Feeds show the rooms of the index; an agent's own feed leaves out the rooms that it is in
// and those that have banned it.
func TestFeeds(t *testing.T) {
	d := start(t, setup{})
	host, guest := newAgent(t), newAgent(t)
	joined := d.create(host, map[string]any{"topic": "Joined", "tags": []string{"ledgers"}})
	banned := d.create(host, map[string]any{"topic": "Banned", "tags": []string{"ledgers"}})
	open := d.create(host, map[string]any{"topic": "Open", "tags": []string{"ledgers"}})
	other := d.create(host, map[string]any{"topic": "Something else", "tags": []string{"x"}})
	for _, id := range []string{joined, banned} {
		d.act(guest, id, "room.join", map[string]any{"role": "speaker"})
	}
	d.act(host, banned, "room.member.remove", map[string]any{"member": guest.id, "ban": true})

	for path, want := range map[string]string{"/feed.xml": "application/atom+xml; charset=utf-8", "/feed.json": "application/feed+json; charset=utf-8", "/feed.md": "text/markdown; charset=utf-8"} {
		status, header, body := d.call("GET", path+"?tag=ledgers", nil, nil)
		if status != 200 || header.Get("Content-Type") != want {
			t.Errorf("%s: %d %v", path, status, header)
		}
		for _, id := range []string{joined, banned, open} {
			if !bytes.Contains(body, []byte(d.origin+"/v1/rooms/"+id)) || !bytes.Contains(body, []byte(d.origin+"/rooms/"+authority(d.origin)+"/"+id)) {
				t.Errorf("%s has no room %s", path, id)
			}
		}
		if bytes.Contains(body, []byte(other)) {
			t.Errorf("%s heeds no filter", path)
		}
		if status, _, _ := d.call("GET", "/rooms/"+authority(d.origin)+"/"+open, nil, nil); status != 200 {
			t.Errorf("the page of a room that %s names: %d", path, status)
		}
	}
	token, err := adp.SignToken(guest.key, d.origin, time.Now().Unix(), 60)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) (rooms []string) {
		req, err := http.NewRequest(method, d.origin+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var out struct {
			Rooms []struct {
				RoomID string `json:"room_id"`
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s %s: %d %v", method, path, resp.StatusCode, err)
		}
		for _, r := range out.Rooms {
			rooms = append(rooms, r.RoomID)
		}
		return rooms
	}
	ask("PUT", "/v1/feed/interests", `{"capabilities":["ledgers"],"languages":[]}`)
	if got := ask("GET", "/v1/feed", ""); !slices.Equal(got, []string{open, other}) {
		t.Errorf("the feed of the guest: %v, want %v", got, []string{open, other})
	}
	var all struct{ Rooms []json.RawMessage }
	if d.call("GET", "/v1/feed", nil, &all); len(all.Rooms) != 4 {
		t.Errorf("%d rooms for everybody", len(all.Rooms))
	}
}
