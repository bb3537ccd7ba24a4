package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/config"
)

// said searches messages.
func (d *running) said(query string) (found []obj) {
	d.t.Helper()
	if status, _, raw := d.call("GET", "/v1/index/events?"+query, nil, &found); status != http.StatusOK {
		d.t.Fatalf("%s: %d %s", query, status, raw)
	}
	return found
}

// What is said in public rooms is found at the host and at its mirrors, with links that
// lead to the record and its proof, and is found no more from the moment on when
// readers do not get it.
func TestMessageSearch(t *testing.T) {
	a := start(t, setup{change: func(c *config.Config) { c.Host.Withheld = config.WithheldSeal }})
	b := start(t, setup{mirrors: []string{a.origin}})
	creator := newAgent(t)
	id := a.create(creator, nil)
	a.act(creator, id, "message.create", text("The walrus lives at Harbour Road 7"))
	a.act(creator, id, "message.create", text("海象住在港口路"))
	other := a.create(creator, obj{"visibility": "restricted"})
	a.act(creator, other, "message.create", text("The walrus is restricted"))
	own, mirrored := "/v1/rooms/"+id, "/m/"+authority(a.origin)+"/v1/rooms/"+id
	until(t, "both to find both messages", func() bool {
		return len(a.said("q=walrus")) > 0 && len(b.said("q=walrus")) > 0 && len(a.said("q="+url.QueryEscape("港口"))) == 1 && len(b.said("q="+url.QueryEscape("港口"))) == 1
	})
	for _, d := range []struct {
		*running
		base string
	}{{a, own}, {b, mirrored}} {
		found := d.said("q=WALRUS+harbour")
		if len(found) != 1 || len(d.said("q=walrus")) != 1 {
			t.Fatalf("%v", found)
		}
		m := found[0]
		seq := m["seq"].(float64)
		if m["room"] != a.origin+own || m["author"] != string(creator.id) || m["snippet"] != "The walrus lives at Harbour Road 7" || seq != 2 ||
			!reflect.DeepEqual(m["matches"], []any{[]any{4.0, 10.0}, []any{20.0, 27.0}}) {
			t.Errorf("%v", m)
		}
		var recs, proof any
		path := func(link string) string { return strings.TrimPrefix(m[link].(string), d.origin) }
		if status, _, raw := d.call("GET", path("record"), nil, &recs); status != http.StatusOK || len(recs.([]any)) != 1 || recs.([]any)[0].(obj)["hash"] != m["hash"] {
			t.Errorf("%s: %d %s", m["record"], status, raw)
		}
		if status, _, raw := d.call("GET", path("proof"), nil, &proof); status != http.StatusOK || proof.(obj)["seq"] != 2.0 {
			t.Errorf("%s: %d %s", m["proof"], status, raw)
		}
		for query, want := range map[string]int{"room=" + url.QueryEscape(a.origin+own): 1, "room=" + url.QueryEscape(d.origin+d.base): 1, "host=" + url.QueryEscape(a.origin): 1,
			"host=" + authority(a.origin): 1, "host=nowhere.example": 0, "author=" + string(creator.id): 1, "author=" + string(newAgent(t).id): 0, "since=9000000000000": 0, "until=1000": 0} {
			if found := d.said("q=walrus&" + query); len(found) != want {
				t.Errorf("%s: %v", query, found)
			}
		}
	}

	a.command("/host/withhold", obj{"room": id, "seq": 2, "reason": "an address"})
	if found := a.said("q=walrus"); len(found) != 0 {
		t.Errorf("a withheld message is found: %v", found)
	}
	a.command("/index/rebuild", nil)
	if found := a.said("q=walrus"); len(found) != 0 {
		t.Errorf("a withheld message is found after a rebuild: %v", found)
	}
	a.command("/host/show", obj{"room": id, "seq": 2})
	until(t, "the message to be found again", func() bool { return len(a.said("q=walrus")) == 1 })
	a.command("/host/withhold", obj{"room": id, "seq": 2, "reason": "an address"})

	b.command("/mirror/quarantine", obj{"origin": a.origin + own, "reason": "a complaint"})
	if found := append(b.said("q=walrus"), b.said("q="+url.QueryEscape("港口"))...); len(found) != 0 {
		t.Errorf("a message of a room in quarantine is found: %v", found)
	}
	b.command("/mirror/release", obj{"origin": a.origin + own})
	until(t, "the messages to be found again", func() bool { return len(b.said("q=walrus")) == 1 })
	b.command("/mirror/forget", obj{"origin": a.origin + own, "yes": true})
	if found := b.said("q=walrus"); len(found) != 0 {
		t.Errorf("a message of a forgotten room is found: %v", found)
	}
}

// The index answers alike after a restart, after a rebuild, and after its folder was
// damaged.
func TestIndexIsDerived(t *testing.T) {
	a := start(t, setup{})
	creator := newAgent(t)
	id := a.create(creator, obj{"topic": "Quorum of owls", "agenda": "猫头鹰"})
	a.create(creator, obj{"topic": "Nothing of the kind"})
	a.act(creator, id, "message.create", text("hoot"))
	queries := []string{"/v1/index/rooms?q=owls", "/v1/index/rooms?q=" + url.QueryEscape("猫头鹰"), "/v1/index/rooms?facets=status,host,tag,language", "/v1/index/events?q=hoot", "/v1/rooms/public?keyword=owl"}
	answers := func() (all []string) {
		for _, query := range queries {
			status, _, raw := a.call("GET", query, nil, nil)
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", query, status, raw)
			}
			all = append(all, string(raw))
		}
		return all
	}
	until(t, "everything to be found", func() bool {
		all := answers()
		return len(a.said("q=hoot")) == 1 && !slices.Contains(all, "[]") && strings.Contains(all[0], `"records":2`)
	})
	want := answers()
	same := func(when string) {
		t.Helper()
		until(t, "the message to be found "+when, func() bool { return len(a.said("q=hoot")) == 1 })
		if got := answers(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", when, got, want)
		}
	}
	var did Rebuilt
	if status, raw := a.operate("POST", "/index/rebuild", nil, &did); status != http.StatusOK || did.Rooms != 2 || did.Texts != 2 || did.Messages != 1 || did.Removed != 0 {
		t.Errorf("%d %s", status, raw)
	}
	same("after a rebuild")
	_, header, _ := a.call("GET", queries[0], nil, nil)
	if header.Get("ETag") == "" {
		t.Error("no ETag")
	}
	port := a.port()
	for _, damage := range []func(folder string) error{
		func(string) error { return nil },
		os.RemoveAll,
		func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "rooms", "root.bolt"), []byte("x"), 0o600)
		},
		func(folder string) error { return os.Truncate(filepath.Join(folder, "messages", "root.bolt"), 100) },
	} {
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if err := damage(filepath.Join(a.data, indexFolder)); err != nil {
			t.Fatal(err)
		}
		a = start(t, setup{data: a.data, port: port})
		same("after a restart")
	}
}

// The index says when a copy was last in step with its host, also while nothing is new.
func TestAgeOfACopy(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, change: func(c *config.Config) { c.Mirror.PollMax = config.Duration(time.Second) }})
	a.create(newAgent(t), nil)
	age := func() int64 {
		var found []struct {
			SyncedAt int64 `json:"synced_at"`
		}
		b.call("GET", "/v1/index/rooms", nil, &found)
		if len(found) != 1 {
			return 0
		}
		return found[0].SyncedAt
	}
	until(t, "the copy", func() bool { return age() > 0 })
	first := age()
	until(t, "a younger copy", func() bool { return age() > first })
}

// Rooms that a host lists and that are not copied stay in the index of a mirror while
// their host is away, also after a restart and a rebuild, with the time when they were
// seen last.
func TestListedRoomsOutliveTheirHost(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}})
	creator := newAgent(t)
	circle := a.create(creator, obj{"topic": "A closed circle of owls", "tags": []string{"birds"}, "visibility": "restricted"})
	shy := a.create(creator, obj{"topic": "Owls that ask not to be copied", "policy": obj{"extra": obj{"mirror": false}}})
	secret := a.create(creator, obj{"topic": "The secret of the owls", "visibility": "private"})
	query := "/v1/index/rooms?host=" + url.QueryEscape(a.origin) + "&q=owls&sort=start"
	search := func(d *running) map[string]obj {
		t.Helper()
		var found []obj
		if status, _, raw := d.call("GET", query, nil, &found); status != http.StatusOK {
			t.Fatalf("%d %s", status, raw)
		}
		rooms := map[string]obj{}
		for _, r := range found {
			rooms[r["room_id"].(string)] = r
		}
		return rooms
	}
	until(t, "both to be found", func() bool { return len(search(b)) == 2 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	before := search(b)
	if before[circle] == nil || before[shy] == nil || before[secret] != nil || before[circle]["verdict"] != "unverified" {
		t.Fatalf("%v", before)
	}
	port, data := b.port(), b.data
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now().UnixMilli()
	b = start(t, setup{data: data, port: port, mirrors: []string{a.origin}, now: func() int64 { return time.Now().Add(24 * time.Hour).UnixMilli() }})
	same := func(when string) {
		t.Helper()
		var after map[string]obj
		until(t, "both to be found "+when, func() bool { after = search(b); return len(after) == 2 })
		for id, room := range after {
			if at := int64(room["synced_at"].(float64)); at == 0 || at > stopped {
				t.Errorf("%s: synced at %d, but the host was last there before %d", when, at, stopped)
			}
			for _, changes := range []string{"synced_at", "status"} { // with the clock
				delete(room, changes)
				delete(before[id], changes)
			}
			if !reflect.DeepEqual(room, before[id]) {
				t.Errorf("%s:\n got %v\nwant %v", when, room, before[id])
			}
		}
	}
	same("after a restart")
	var did Rebuilt
	if status, raw := b.operate("POST", "/index/rebuild", nil, &did); status != http.StatusOK || did.Rooms != 2 || did.Texts != 2 || did.Removed != 0 {
		t.Errorf("%d %s", status, raw)
	}
	same("after a rebuild")
	b.command("/mirror/remove", obj{"origin": a.origin})
	if left := search(b); len(left) != 0 {
		t.Errorf("of a host that was removed: %v", left)
	}
}

// A public room that cannot be read yet can be found: one document for every room that is
// known, which says that nothing of it is verified.
func TestWaitingRoomIsFound(t *testing.T) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/agent-discourse":
			fmt.Fprintf(w, `{"protocol":"agent-discourse/1.0","endpoints":{"api":"http://%s/v1"}}`, r.Host)
		case "/v1/rooms/public":
			fmt.Fprint(w, `[{"id":"slow","visibility":"public","status":"active","topic":"Owls that take their time","tags":["birds"],"start_time":1,"end_time":4102444800000,"created_at":1}]`)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(host.Close)
	d := start(t, setup{mirrors: []string{host.URL}})
	var found []obj
	query := "/v1/index/rooms?q=owls&tag=birds&status=active&joinable=true&verdict=unverified&host=" + url.QueryEscape(host.URL)
	until(t, "the room to be found", func() bool { d.call("GET", query, nil, &found); return len(found) == 1 })
	if r := found[0]; r["room_id"] != "slow" || r["url"] != host.URL+"/v1/rooms/slow" || r["state"] != "following" || !strings.Contains(fmt.Sprint(r["reason"]), "verified yet") {
		t.Errorf("%v", r)
	}
	if _, _, page := d.call("GET", "/rooms?q=owls", nil, nil); !bytes.Contains(page, []byte("Owls that take their time")) {
		t.Error("the page of rooms does not show it")
	}
}
