package feed

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

const (
	own   = "https://daemon.example"
	other = "https://rooms.example"
	t0    = int64(1_790_000_000_000)
	hour  = int64(3_600_000)
)

var agentKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, 32))

func agentID() string {
	return string(adp.NewAgentID(agentKey.Public().(ed25519.PublicKey)))
}

// world is a feed over an index of its own.
type world struct {
	t     *testing.T
	x     *index.Index
	f     *Feed
	mux   *web.Mux
	now   atomic.Int64
	shut  map[string]bool // rooms that do not take the agent
	asked atomic.Int64    // queries of the index
	made  int
	note  string // that the index makes
}

func newWorld(t *testing.T) *world {
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	w := &world{t: t, shut: map[string]bool{}, mux: web.NewMux()}
	w.now.Store(t0)
	w.x = index.New(index.Options{Cursors: web.NewCursors(bytes.Repeat([]byte{1}, 32)), Own: own, Now: w.now.Load})
	w.f, err = New(Options{Origin: own, Store: st, Now: w.now.Load,
		Rooms: func(ctx context.Context, q url.Values) (*index.Result, error) {
			w.asked.Add(1)
			out, err := w.x.Rooms(ctx, q)
			if err == nil {
				out.Note += w.note
			}
			return out, err
		},
		Open: func(_ context.Context, _, roomID string, who adp.AgentID) bool {
			return string(who) != agentID() || !w.shut[roomID]
		}})
	if err != nil {
		t.Fatal(err)
	}
	w.f.Routes(w.mux)
	return w
}

func (w *world) put(change func(*index.Doc)) string {
	w.made++
	d := index.Doc{Origin: own, RoomID: fmt.Sprintf("room%05d", w.made), Genesis: "g", Topic: "Something", Visibility: "public", Creator: agentID(), StartTime: t0 - hour, EndTime: t0 + 100*hour,
		CreatedAt: t0 - 2*hour, LastActivity: t0 - hour + int64(w.made), Records: 3, Members: 2, Speakers: 2, Verdict: "verified", State: "following", Own: true}
	if change != nil {
		change(&d)
	}
	d.URL = d.Origin + "/v1/rooms/" + d.RoomID
	w.x.Put(d)
	return d.RoomID
}

func (w *world) get(path string, header ...string) *httptest.ResponseRecorder {
	return w.call("GET", path, "", header...)
}

func (w *world) call(method, path, body string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	req := httptest.NewRequest(method, own+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.mux.ServeHTTP(rec, req)
	return rec
}

func (w *world) token() []string {
	w.t.Helper()
	token, err := adp.SignToken(agentKey, own, w.now.Load()/1000, 60)
	if err != nil {
		w.t.Fatal(err)
	}
	return []string{"Authorization", "Bearer " + token}
}

// answer is what GET /v1/feed says.
type answer struct {
	Rooms []struct {
		RoomID string `json:"room_id"`
		URL    string
		Topic  string
		Match  *Match
	}
	Next int64
	Note string
}

func (a answer) ids() (list []string) {
	for _, r := range a.Rooms {
		list = append(list, r.RoomID)
	}
	return list
}

func (w *world) ranked(query string, header ...string) (a answer) {
	w.t.Helper()
	rec := w.get("/v1/feed"+query, header...)
	if err := json.Unmarshal(rec.Body.Bytes(), &a); rec.Code != 200 || err != nil {
		w.t.Fatalf("%s: %d %v %s", query, rec.Code, err, rec.Body)
	}
	return a
}

func TestRanked(t *testing.T) {
	w := newWorld(t)
	w.put(func(d *index.Doc) { d.Topic = "Over"; d.Closed = true; d.Tags = []string{"modbus"} })
	w.put(func(d *index.Doc) { d.Topic = "Restricted"; d.Visibility = "restricted"; d.Tags = []string{"modbus"} })
	w.put(func(d *index.Doc) { d.Topic = "Forked"; d.Verdict = "forked"; d.Tags = []string{"modbus"} })
	w.put(func(d *index.Doc) { d.Hidden = true; d.Tags = []string{"modbus"} })
	w.put(func(d *index.Doc) {
		d.Topic, d.Tags = "Full", []string{"modbus"}
		d.Policy = json.RawMessage(`{"max_speakers":2,"observer_allowed":false}`)
	})
	observers := w.put(func(d *index.Doc) {
		d.Topic, d.Tags = "No speakers, but observers", []string{"modbus"}
		d.Policy = json.RawMessage(`{"max_speakers":2}`)
	})
	plain := w.put(nil)
	topic := w.put(func(d *index.Doc) { d.Topic = "Why <MODBUS> retries fail"; d.Language = "en-GB" })
	german := w.put(func(d *index.Doc) { d.Topic, d.Language = "Modbus auf Deutsch", "de" })
	both := w.put(func(d *index.Doc) { d.Tags, d.Types, d.Language = []string{"Modbus"}, []string{"poll.create"}, "en" })
	soon := w.put(func(d *index.Doc) { d.Tags = []string{"modbus"}; d.StartTime = t0 + hour })
	agenda := w.put(func(d *index.Doc) { d.Agenda = "We speak of modbus, too"; d.Members = 50; d.Attestations = 1 })

	if s := w.get("/v1/feed?q=retries").Body.String(); strings.Contains(s, `\u00`) {
		t.Errorf("text is not as it stands: %s", s)
	}
	general := w.ranked("")
	if len(general.Rooms) != 7 || general.Note != "" {
		t.Errorf("the general list has %v", general.ids())
	}
	for _, r := range general.Rooms {
		if r.Match != nil {
			t.Errorf("a match without interests: %+v", r)
		}
	}
	if general.Next != t0-1 { // what comes in this very moment comes again
		t.Errorf("next %d", general.Next)
	}

	got := w.ranked("?capabilities=modbus,%20poll.create,nothing&lang=en")
	if want := []string{both, observers, topic, soon, agenda, plain}; !slices.Equal(got.ids(), want) {
		t.Errorf("ranked %v\nwant   %v", got.ids(), want)
	}
	for i, want := range []Match{{0.8*2/3 + .2, []string{"modbus", "poll.create"}, ByTags}, {0.8/3 + .1, []string{"modbus"}, ByTags}, {0.8*.6/3 + .2, []string{"modbus"}, ByWords},
		{0.8 / 3, []string{"modbus"}, ByTags}, {0.8*.3/3 + .1, []string{"modbus"}, ByWords}, {.1, []string{}, General}} {
		m := got.Rooms[i].Match
		if m == nil || m.Score < want.Score-.001 || m.Score > want.Score+.001 || !slices.Equal(m.Overlap, want.Overlap) || m.Reason != want.Reason {
			t.Errorf("%s: %+v, want %+v", got.Rooms[i].RoomID, m, want)
		}
	}
	if got := w.ranked("?lang=de"); got.ids()[0] != german || got.Rooms[0].Match.Reason != ByLanguage {
		t.Errorf("%+v", got.Rooms)
	}
	for query, want := range map[string][]string{
		"?capabilities=modbus&min_score=0.5":                  {observers, topic, german, both, soon},
		"?min_members=50":                                     {agenda},
		"?min_attestations=1":                                 {agenda},
		"?min_speakers=3":                                     nil,
		"?min_records=4":                                      nil,
		"?capabilities=modbus&limit=1":                        {both},
		"?status=scheduled":                                   {soon},
		"?tag=Modbus&capabilities=modbus":                     {both},
		fmt.Sprintf("?since=%d", t0):                          nil,
		"?host=" + url.QueryEscape(other):                     nil,
		"?capabilities=retries&lang=en&min_score=0.3&limit=2": {topic},
	} {
		got := w.ranked(query).ids()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, query := range []string{"?min_score=2", "?min_score=x", "?min_score=NaN", "?min_members=-1", "?limit=0", "?since=x", "?host=%20", "?capabilities=" + strings.Repeat("x", 65),
		"?capabilities=" + strings.Repeat("x,", 40) + "y&capabilities=z", "?lang=a&lang=b", "?status=open"} {
		if rec := w.get("/v1/feed" + query); rec.Code != 400 {
			t.Errorf("%s: %d", query, rec.Code)
		}
	}
	// who goes on at next misses nothing: neither what a host tells late, nor for a clock that is wrong
	since := func(next int64) string { return fmt.Sprintf("?since=%d&limit=3", next) }
	at := w.ranked("").Next
	for name, d := range map[string]func(*index.Doc){"told late": func(d *index.Doc) { d.LastActivity = t0 - 50*hour }, "of the future": func(d *index.Doc) { d.LastActivity = t0 + hour }} {
		w.now.Add(2)
		quiet := w.ranked(since(at))
		if w.now.Add(2); len(w.ranked(since(quiet.Next)).Rooms) != 0 {
			t.Errorf("%s: what was seen comes again and again", name)
		}
		id := w.put(d)
		got := w.ranked(since(quiet.Next))
		if !slices.Equal(got.ids(), []string{id}) || got.Note != "" || got.Next >= w.now.Load() {
			t.Errorf("%s: %v, next %d at %d, %q", name, got.ids(), got.Next, w.now.Load(), got.Note)
		}
		at = got.Next
	}
	w.now.Add(2)
	for range 5 {
		w.put(nil)
	}
	if got := w.ranked(since(w.now.Load() - 1)); len(got.Rooms) != 3 || !strings.Contains(got.Note, "2 rooms more") {
		t.Errorf("%v, %q", got.ids(), got.Note)
	}
	first := w.get("/v1/feed")
	if again := w.get("/v1/feed", "If-None-Match", first.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("the same again: %d", again.Code)
	}
}

// An agent's interests stand in for the query, and are its own.
func TestInterests(t *testing.T) {
	w := newWorld(t)
	plain := w.put(func(d *index.Doc) { d.LastActivity = t0 })
	mine := w.put(func(d *index.Doc) { d.Tags = []string{"modbus"}; d.Language = "en" })
	w.put(func(d *index.Doc) { d.Language = "fr" })
	const path = "/v1/feed/interests"
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		if rec := w.call(method, path, "{}"); rec.Code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", method, rec.Code)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		if rec := w.call(method, path, "", w.token()...); rec.Code != http.StatusNotFound {
			t.Errorf("%s: %d", method, rec.Code)
		}
	}
	for body, code := range map[string]int{`{"capabilities":["Modbus "," modbus"],"languages":["EN"]}`: 200, `{"capabilities":"x"}`: 400, `{"abilities":[]}`: 400, `{"capabilities":[""]}`: 400,
		`{"languages":["` + strings.Repeat("x", 65) + `"]}`: 400, `[]`: 400, `{`: 400, `{"capabilities":["` + strings.Repeat("x", 9<<10) + `"]}`: 413} {
		if rec := w.call("PUT", path, body, w.token()...); rec.Code != code {
			t.Errorf("PUT %.50s: %d %s", body, rec.Code, rec.Body)
		}
	}
	var in Interests
	rec := w.call("GET", path, "", w.token()...)
	if err := json.Unmarshal(rec.Body.Bytes(), &in); err != nil || !slices.Equal(in.Capabilities, []string{"modbus"}) || !slices.Equal(in.Languages, []string{"en"}) || in.UpdatedAt != t0 || rec.Header().Get("Cache-Control") != web.CacheNever {
		t.Errorf("%v %s", err, rec.Body)
	}
	got := w.ranked("", w.token()...)
	if !slices.Equal(got.ids(), []string{mine, plain}) || got.Rooms[0].Match == nil || got.Rooms[0].Match.Reason != ByTags {
		t.Errorf("%+v", got.Rooms)
	}
	if got := w.ranked("?capabilities=&lang=", w.token()...); len(got.Rooms) != 3 || got.Rooms[0].Match != nil {
		t.Errorf("what the query says goes before: %+v", got.Rooms)
	}
	w.shut[mine] = true // a member of it already
	if got := w.ranked("", w.token()...); !slices.Equal(got.ids(), []string{plain}) {
		t.Errorf("%v", got.ids())
	}
	if got := w.ranked(""); len(got.Rooms) != 3 || got.Rooms[0].Match != nil {
		t.Errorf("others have these interests, too: %+v", got.Rooms)
	}
	if rec := w.call("DELETE", path, "", w.token()...); rec.Code != http.StatusNoContent {
		t.Errorf("%d", rec.Code)
	}
	if got := w.ranked("", w.token()...); len(got.Rooms) != 2 || got.Rooms[0].Match != nil {
		t.Errorf("after the end: %+v", got.Rooms)
	}
	w.f.most = 0
	if rec := w.call("PUT", path, `{"capabilities":["x"]}`, w.token()...); rec.Code != http.StatusTooManyRequests {
		t.Errorf("one agent too many: %d", rec.Code)
	}
	if rec := w.get("/v1/feed", "Authorization", "Bearer nonsense"); rec.Code != http.StatusUnauthorized {
		t.Errorf("a bad token: %d", rec.Code)
	}
}

// What the index leaves out is said here, too.
func TestNotes(t *testing.T) {
	w := newWorld(t)
	w.put(nil)
	w.note = "not all of it"
	if got := w.ranked(""); got.Note != w.note {
		t.Errorf("%q", got.Note)
	}
	for _, path := range []string{"/feed.xml", "/feed.json", "/feed.md"} {
		if got := w.get(path).Header().Get(index.NoteHeader); got != w.note {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// What a request may cost is bounded, and what is left out is said. A room whose tag is a
// capability is found among any number of others.
func TestManyRooms(t *testing.T) {
	w := newWorld(t)
	rare := w.put(func(d *index.Doc) { d.Tags, d.LastActivity = []string{"rare"}, 1 })
	for range mostPages*pageRooms + 50 {
		w.put(nil)
	}
	w.asked.Store(0)
	got := w.ranked("?capabilities=rare," + strings.Repeat("x,", 1) + "y")
	if got.Note == "" || len(got.Rooms) != 20 || got.Rooms[0].RoomID != rare {
		t.Errorf("%q %v", got.Note, got.ids())
	}
	if n := w.asked.Load(); n > mostPages+mostTags {
		t.Errorf("%d queries of the index", n)
	}
}
