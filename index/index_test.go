package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/web"
)

const (
	ownOrigin = "https://own.example"
	start     = int64(1_000_000)
)

var testCursors = web.NewCursors([]byte("0123456789abcdef"))

// clock is the injected time of a test.
type clock struct{ ms int64 }

func (c *clock) now() int64 { return c.ms }

func newIndex(ms int64, docs ...Doc) (*Index, *clock) {
	c := &clock{ms}
	x := New(Options{Cursors: testCursors, Own: ownOrigin, Now: c.now})
	for _, d := range docs {
		x.Put(d)
	}
	return x, c
}

func agent(i int) string { return string(adp.NewAgentID([]byte(fmt.Sprintf("%032d", i)))) }

// doc is an active public room of another host; with changes what differs.
func doc(id string, with func(*Doc)) Doc {
	d := Doc{
		Origin: "https://other.example", RoomID: id, Genesis: "g-" + id, Topic: "Topic " + id, Visibility: "public",
		Creator: agent(1), StartTime: start, EndTime: start + 1000, CreatedAt: start - 10, LastActivity: start,
		Members: 3, Speakers: 2, Observers: 1, Records: 7, Verdict: "verified", State: "following", SyncedAt: start + 5,
	}
	if with != nil {
		with(&d)
	}
	d.URL = d.Origin + "/v1/rooms/" + d.RoomID
	return d
}

var linkForm = regexp.MustCompile(`^<([^>]+)>; rel="next"$`)

// tester is what tests and properties have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rooms asks over HTTP. next is the query of the next page, "" when there is none.
func rooms(t tester, x *Index, query string) (list []map[string]any, next string, err error) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/v1/index/rooms", nil)
	r.URL.RawQuery = query
	if err := x.ServeRooms(w, r); err != nil {
		if w.Body.Len() > 0 {
			t.Fatalf("%s: an error after %q was written", query, w.Body)
		}
		return nil, "", err
	}
	body := w.Body.Bytes()
	if values, err := url.ParseQuery(query); err == nil && values.Has("facets") { // then it is an object
		var object struct{ Rooms json.RawMessage }
		if err := json.Unmarshal(body, &object); err != nil {
			t.Fatalf("%s: no object: %v %q", query, err, body)
		}
		body = object.Rooms
	}
	if err := json.Unmarshal(body, &list); err != nil || list == nil {
		t.Fatalf("%s: no bare array: %v %q", query, err, w.Body)
	}
	if link := w.Header().Get("Link"); link != "" {
		m := linkForm.FindStringSubmatch(link)
		if m == nil {
			t.Fatalf("%s: Link %q", query, link)
		}
		rest, ok := strings.CutPrefix(m[1], ownOrigin+"/v1/index/rooms?")
		if !ok {
			t.Fatalf("%s: Link %q is not absolute on the own origin", query, link)
		}
		next = rest
	}
	return list, next, nil
}

func roomIDs(t testing.TB, x *Index, query string) string {
	t.Helper()
	list, _, err := rooms(t, x, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	ids := make([]string, len(list))
	for i, item := range list {
		ids[i] = item["room_id"].(string)
	}
	return strings.Join(ids, " ")
}

func publicIDs(t testing.TB, x *Index, query string) string {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	ids, _, err := x.Public(q)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(ids, " ")
}

// refused checks that err is invalid_request and names the parameter.
func refused(t testing.TB, query, parameter string, err error) {
	t.Helper()
	var coded *adp.Error
	if !errors.As(err, &coded) || coded.Code != adp.InvalidRequest || coded.Data["parameter"] != parameter || !strings.Contains(coded.Message, `"`+parameter+`"`) {
		t.Errorf("%s: %v; want invalid_request that names %q", query, err, parameter)
	}
}

func TestAnswer(t *testing.T) {
	full := Doc{
		Origin: "https://other.example", RoomID: "r1", Genesis: "gen", URL: "https://other.example/v1/rooms/r1",
		Topic: "a <b> & c", Agenda: "agenda", Guidance: "guidance", Visibility: "public", Language: "en-GB", Creator: agent(1),
		Tags: []string{"Go", "adp"}, StartTime: start, EndTime: start + 100, CreatedAt: start - 1,
		Policy: json.RawMessage(`{"max_speakers": 3, "extra":{"n":1.50}}`), Extra: json.RawMessage(`{"x":1}`),
		Members: 5, Speakers: 3, Observers: 2, Records: 9, LastActivity: start + 1, Types: []string{"poll.create"},
		Verdict: "broken", State: "following", Reason: "seq 3: the hash does not match", Unverifiable: 1, Withheld: 2,
		SyncedAt: start + 2, Attestations: 4, Attested: "partial",
	}
	x, _ := newIndex(start, full)
	w := httptest.NewRecorder()
	if err := x.ServeRooms(w, httptest.NewRequest("GET", "/v1/index/rooms", nil)); err != nil {
		t.Fatal(err)
	}
	want := `[{"url":"https://other.example/v1/rooms/r1","origin":"https://other.example","room_id":"r1","genesis":"gen",` +
		`"topic":"a <b> & c","agenda":"agenda","guidance":"guidance","visibility":"public","start_time":1000000,"end_time":1000100,` +
		`"tags":["Go","adp"],"language":"en-GB","policy":{"max_speakers":3,"extra":{"n":1.50}},"creator":"` + agent(1) + `","created_at":999999,` +
		`"status":"active","members":5,"speakers":3,"records":9,"last_activity":1000001,"verdict":"broken","state":"following",` +
		`"reason":"seq 3: the hash does not match","unverifiable":1,"withheld":2,"attested":"partial","attestations":4,` +
		`"synced_at":1000002,"types":["poll.create"]}]`
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Error(diff)
	}
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Link") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}

	// the smallest room has no optional member
	x, _ = newIndex(start, Doc{Origin: ownOrigin, RoomID: "r", URL: "u", Topic: "t", Visibility: "restricted", Own: true, Policy: json.RawMessage(`{broken`)})
	list, _, err := rooms(t, x, "")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	for _, name := range []string{"agenda", "guidance", "tags", "language", "policy", "reason", "synced_at", "types"} {
		if v, ok := list[0][name]; ok {
			t.Errorf("%s = %v", name, v)
		}
	}
	if list[0]["attested"] != "unattested" || list[0]["status"] != "ended" {
		t.Errorf("%v", list[0])
	}
	x, _ = newIndex(start)
	if list, next, err := rooms(t, x, ""); len(list) != 0 || next != "" || err != nil {
		t.Errorf("an empty index: %v %q %v", list, next, err)
	}
}

func TestPutReplacesAndRemoves(t *testing.T) {
	x, _ := newIndex(start, doc("a", nil), doc("b", nil), doc("a", func(d *Doc) { d.Origin = "https://third.example" }))
	if got := roomIDs(t, x, "host=other.example"); got != "a b" || x.Len() != 3 {
		t.Fatalf("%s, %d", got, x.Len())
	}
	x.Put(doc("a", func(d *Doc) { d.Topic, d.Genesis = "Renamed", "other genesis" }))
	if got := roomIDs(t, x, "keyword=renamed"); got != "a" || x.Len() != 3 {
		t.Errorf("%s, %d", got, x.Len())
	}
	if got := roomIDs(t, x, "keyword=topic&host=other.example"); got != "b" {
		t.Errorf("the old words still match: %s", got)
	}
	x.Remove("https://other.example", "a")
	x.Remove("https://other.example", "a")
	x.Remove("https://nowhere.example", "b")
	if got := roomIDs(t, x, ""); got != "b a" || x.Len() != 2 {
		t.Errorf("%s, %d", got, x.Len())
	}
	x.Put(doc("c", nil)) // takes the free place
	if got := roomIDs(t, x, ""); got != "b c a" || x.Len() != 3 || len(x.rows.free) != 0 {
		t.Errorf("%s, %d", got, x.Len())
	}
}

func TestOnlyPublicAndRestricted(t *testing.T) {
	x, _ := newIndex(start)
	for _, visibility := range []string{"private", "", "Public", "secret"} {
		for _, own := range []bool{true, false} {
			x.Put(doc("v"+visibility, func(d *Doc) { d.Visibility, d.Own = visibility, own }))
		}
	}
	if got := roomIDs(t, x, "") + publicIDs(t, x, ""); got != "" || x.Len() != 0 {
		t.Fatalf("listed: %s, %d", got, x.Len())
	}
	x.Put(doc("open", func(d *Doc) { d.Own = true }))
	x.Put(doc("meta", func(d *Doc) { d.Visibility, d.MetadataOnly = "restricted", true }))
	if got := roomIDs(t, x, ""); got != "meta open" {
		t.Fatal(got)
	}
	x.Put(doc("open", func(d *Doc) { d.Own, d.Visibility = true, "private" }))
	if got := roomIDs(t, x, "") + publicIDs(t, x, ""); got != "meta" {
		t.Errorf("a room that became private is still listed: %s", got)
	}
}

// The age of a copy is that of now, without a change to the room.
func TestSyncedAt(t *testing.T) {
	at := map[string]int64{"a": start + 5}
	x := New(Options{Cursors: testCursors, Own: ownOrigin, Now: func() int64 { return start }, SyncedAt: func(_, roomID string) int64 { return at[roomID] }})
	for _, id := range []string{"a", "b"} {
		x.Put(doc(id, func(d *Doc) { d.SyncedAt = start + 1 }))
	}
	x.Put(doc("mine", func(d *Doc) { d.Origin, d.Own, d.SyncedAt = ownOrigin, true, 0 }))
	at["mine"] = start
	all, err := x.Rooms(t.Context(), url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Rooms {
		want := map[string]int64{"a": start + 5, "b": start + 1, "mine": 0}[r.RoomID]
		if one, ok := x.Room(r.Origin, r.RoomID); r.SyncedAt != want || !ok || one.SyncedAt != want {
			t.Errorf("%s: in step at %d and %d, want %d", r.RoomID, r.SyncedAt, one.SyncedAt, want)
		}
	}
	at["a"]++
	if again, err := x.Rooms(t.Context(), url.Values{}); err != nil || again.ETag != all.ETag || again.Rooms[0].SyncedAt == all.Rooms[0].SyncedAt && again.Rooms[1].SyncedAt == all.Rooms[1].SyncedAt {
		t.Errorf("%v: %+v", err, again)
	}
}

func TestSetAttested(t *testing.T) {
	d := doc("a", func(d *Doc) { d.Tags, d.Agenda = []string{"t"}, "agenda" })
	x, _ := newIndex(start, d)
	before, _, _ := rooms(t, x, "attested=unattested")
	x.SetAttested(d.Origin, "a", 2, "attested")
	x.SetAttested(d.Origin, "gone", 2, "attested")
	x.SetAttested("https://third.example", "a", 2, "attested")
	after, _, _ := rooms(t, x, "attested=attested&tag=t&keyword=agenda")
	if len(before) != 1 || len(after) != 1 || x.Len() != 1 || roomIDs(t, x, "attested=unattested") != "" {
		t.Fatal(before, after)
	}
	before[0]["attested"], before[0]["attestations"] = "attested", 2.0
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestRowOwnsItsMemory(t *testing.T) {
	d := doc("a", func(d *Doc) {
		d.Tags, d.Types, d.Policy = []string{"tag"}, []string{"a.b"}, json.RawMessage(`{"a":1}`)
	})
	x, _ := newIndex(start, d)
	d.Tags[0], d.Types[0], d.Policy[5] = "changed", "changed", '2'
	list, _, _ := rooms(t, x, "tag=tag&types=a.b")
	if len(list) != 1 || list[0]["policy"].(map[string]any)["a"] != 1.0 {
		t.Errorf("a change of the caller's Doc reached the index: %v", list)
	}
}
