package feed

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

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
			return w.x.Rooms(ctx, q)
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
	topic := w.put(func(d *index.Doc) { d.Topic = "Why MODBUS retries fail"; d.Language = "en-GB" })
	german := w.put(func(d *index.Doc) { d.Topic, d.Language = "Modbus auf Deutsch", "de" })
	both := w.put(func(d *index.Doc) { d.Tags, d.Types, d.Language = []string{"Modbus"}, []string{"poll.create"}, "en" })
	soon := w.put(func(d *index.Doc) { d.Tags = []string{"modbus"}; d.StartTime = t0 + hour })
	agenda := w.put(func(d *index.Doc) { d.Agenda = "We speak of modbus, too"; d.Members = 50; d.Attestations = 1 })

	general := w.ranked("")
	if len(general.Rooms) != 7 || general.Note != "" {
		t.Errorf("the general list has %v", general.ids())
	}
	for _, r := range general.Rooms {
		if r.Match != nil {
			t.Errorf("a match without interests: %+v", r)
		}
	}
	if general.Next != t0-hour+int64(w.made) {
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
		fmt.Sprintf("?since=%d", t0-hour+int64(w.made)-1):     {agenda},
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
	// a host whose clock is wrong moves nobody's cursor into the future
	w.put(func(d *index.Doc) { d.LastActivity = t0 + hour })
	if got := w.ranked(""); got.Next != t0 {
		t.Errorf("next %d, now %d", got.Next, t0)
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

const hostile = "</title><script>alert(1)</script> [x](javascript:1) **b** `c` \u202eevil\u0007 &amp; ]]> <!-- http://a.example www.b.example a@c.example\n# h\n- l\n1. n\n> q\n\n    code"

func hostileRoom(d *index.Doc) {
	d.Topic, d.Agenda, d.Guidance, d.Tags, d.Language = hostile, hostile, "x\x00y", []string{hostile, "\ufffe"}, `en" onload="x`
	d.LastActivity, d.CreatedAt = 1<<52, -1
}

func TestAtom(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.put(func(d *index.Doc) { d.Origin, d.Own = other, false; d.Tags = []string{"a", "b"}; d.Language = "en-GB" })
	}
	w.put(hostileRoom)
	w.put(func(d *index.Doc) { d.Hidden = true })
	rec := w.get("/feed.xml")
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "application/atom+xml; charset=utf-8" {
		t.Fatalf("%d %v", rec.Code, rec.Header())
	}
	f := checkAtom(t, rec.Body.Bytes())
	if len(f.Entries) != 4 || f.ID != own+"/feed.xml" || f.Updated != "9999-12-31T23:59:59.999Z" {
		t.Errorf("%d entries, %s, %s", len(f.Entries), f.ID, f.Updated)
	}
	for _, bad := range []string{"<script", "\u202e", "\x07", "onload=\"x"} {
		if strings.Contains(rec.Body.String(), bad) {
			t.Errorf("the feed has %q", bad)
		}
	}
	for _, e := range f.Entries {
		if strings.HasPrefix(e.ID, other) {
			if len(e.Categories) != 2 || !slices.ContainsFunc(e.Links, func(l atomLink) bool {
				return l.Rel == "alternate" && strings.HasPrefix(l.Href, own+"/rooms/rooms.example/room")
			}) {
				t.Errorf("%+v", e)
			}
		} else if !strings.HasPrefix(e.Title.Text, "</title><script>alert(1)</script> [x](javascript:1) **b** `c` \\u202eevil\\u0007 &amp; ]]>") {
			t.Errorf("title %q", e.Title.Text)
		}
	}
	if n, en := strings.Count(rec.Body.String(), "xml:lang="), strings.Count(rec.Body.String(), `xml:lang="en-GB"`); n != 3 || en != 3 {
		t.Errorf("%d languages, %d of them en-GB", n, en)
	}
	// the filters are those of the index, and pages go on
	page := checkAtom(t, w.get("/feed.xml?limit=2&tag=a").Body.Bytes())
	at := slices.IndexFunc(page.Links, func(l atomLink) bool { return l.Rel == "next" })
	if len(page.Entries) != 2 || at < 0 || page.ID != own+"/feed.xml?limit=2&tag=a" {
		t.Fatalf("%+v", page)
	}
	rest := checkAtom(t, w.get(strings.TrimPrefix(page.Links[at].Href, own)).Body.Bytes())
	if len(rest.Entries) != 1 || rest.ID != page.ID || rest.Entries[0].ID == page.Entries[0].ID || rest.Entries[0].ID == page.Entries[1].ID {
		t.Errorf("%+v", rest)
	}
	checkAtom(t, w.get("/feed.xml?tag=nowhere").Body.Bytes())
	if rec := w.get("/feed.xml?status=open"); rec.Code != 400 {
		t.Errorf("a filter that is none: %d", rec.Code)
	}
}

// checkAtom holds a document against RFC 4287: elements that must be there, how often, and
// the form of what they hold.
func checkAtom(t *testing.T, raw []byte) (f atomFeed) {
	t.Helper()
	type counted struct{ id, title, updated, author, self int }
	var path []string
	var in counted
	d := xml.NewDecoder(bytes.NewReader(raw))
	check := func(what string) {
		if in.id != 1 || in.title != 1 || in.updated != 1 || in.author > 1 || what == "feed" && (in.self != 1 || in.author != 1) {
			t.Errorf("%s: %+v", what, in)
		}
	}
	var outer counted
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			if e.Name.Space != "http://www.w3.org/2005/Atom" {
				t.Errorf("element %v", e.Name)
			}
			path = append(path, e.Name.Local)
			if e.Name.Local == "entry" {
				outer, in = in, counted{}
			}
			if len(path) == 2 && path[1] != "entry" || len(path) == 3 && path[1] == "entry" {
				switch e.Name.Local {
				case "id":
					in.id++
				case "title":
					in.title++
				case "updated":
					in.updated++
				case "author":
					in.author++
				case "link":
					for _, a := range e.Attr {
						if a.Name.Local == "href" {
							if u, err := url.Parse(a.Value); err != nil || !u.IsAbs() {
								t.Errorf("link %q", a.Value)
							}
						}
						if a.Name.Local == "rel" && a.Value == "self" {
							in.self++
						}
					}
				}
			}
		case xml.EndElement:
			if e.Name.Local == "entry" {
				check("entry")
				in = outer
			}
			path = path[:len(path)-1]
		case xml.CharData:
			if len(path) == 0 && strings.TrimSpace(string(e)) != "" {
				t.Errorf("text outside: %q", e)
			}
		}
	}
	check("feed")
	if err := xml.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	dates := []string{f.Updated}
	for _, e := range f.Entries {
		if u, err := url.Parse(e.ID); err != nil || !u.IsAbs() || ids[e.ID] {
			t.Errorf("entry id %q", e.ID)
		}
		ids[e.ID] = true
		dates = append(dates, e.Updated, e.Published)
		if e.Title.Type != "text" || e.Summary.Type != "text" || e.Author.Name == "" {
			t.Errorf("%+v", e)
		}
	}
	for _, s := range dates {
		if _, err := time.Parse(time.RFC3339, s); err != nil || len(s) != len("2006-01-02T15:04:05.000Z") {
			t.Errorf("date %q: %v", s, err)
		}
	}
	return f
}

func TestJSONFeed(t *testing.T) {
	w := newWorld(t)
	w.put(func(d *index.Doc) { d.Origin, d.Own = other, false; d.Tags = []string{"a"}; d.Language = "en" })
	w.put(hostileRoom)
	w.put(func(d *index.Doc) { d.Hidden = true })
	w.put(func(d *index.Doc) {
		d.Visibility, d.MetadataOnly, d.Genesis, d.Origin, d.Own = "restricted", true, "", other, false
	})
	rec := w.get("/feed.json?limit=3")
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "application/feed+json; charset=utf-8" {
		t.Fatalf("%d %v", rec.Code, rec.Header())
	}
	var f map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	if f["version"] != "https://jsonfeed.org/version/1.1" || f["title"] == "" || f["feed_url"] != own+"/feed.json?limit=3" || f["home_page_url"] != own+"/rooms" {
		t.Errorf("%v", f)
	}
	ids := map[any]bool{}
	for _, it := range f["items"].([]any) {
		item := it.(map[string]any)
		id, _ := item["id"].(string)
		if id == "" || ids[id] {
			t.Errorf("id %v", item["id"])
		}
		ids[id] = true
		if _, ok := item["content_text"].(string); !ok || item["content_html"] != nil {
			t.Errorf("content of %v", item)
		}
		for _, name := range []string{"date_published", "date_modified"} {
			if _, err := time.Parse(time.RFC3339, item[name].(string)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"url", "external_url"} {
			if u, err := url.Parse(item[name].(string)); err != nil || !u.IsAbs() {
				t.Errorf("%s: %v", name, item[name])
			}
		}
		if strings.ContainsAny(item["title"].(string)+item["content_text"].(string), "\u202e\x07\x00") {
			t.Errorf("hidden characters in %q", item["title"])
		}
		if room := item["_room"].(map[string]any); room["url"] != id || room["verdict"] == "" {
			t.Errorf("%v", room)
		}
		if room := item["_room"].(map[string]any); room["visibility"] == "restricted" && item["url"] != id {
			t.Errorf("a page for a room that is not held: %v", item["url"])
		}
	}
	if len(ids) == 0 || f["next_url"] == nil {
		t.Errorf("%d items, next %v", len(ids), f["next_url"])
	}
	var empty map[string]any
	if err := json.Unmarshal(w.get("/feed.json?tag=nowhere").Body.Bytes(), &empty); err != nil || len(empty["items"].([]any)) != 0 || empty["next_url"] != nil {
		t.Errorf("%v %v", err, empty)
	}
}

// Nothing that a stranger wrote is markup, also for a renderer that makes links of
// addresses.
func TestMarkdown(t *testing.T) {
	w := newWorld(t)
	w.put(hostileRoom)
	w.put(func(d *index.Doc) { d.Topic = "# Plain [topic]" })
	rec := w.get("/feed.md")
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "text/markdown; charset=utf-8" || rec.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%d %v", rec.Code, rec.Header())
	}
	if s := rec.Body.String(); strings.ContainsAny(s, "\u202e\x07\x00") || !strings.Contains(s, `\\u202e`) {
		t.Errorf("hidden characters are not shown: %q", s)
	}
	var html bytes.Buffer
	if err := goldmark.New(goldmark.WithExtensions(extension.GFM)).Convert(rec.Body.Bytes(), &html); err != nil {
		t.Fatal(err)
	}
	tags := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader([]byte("<x>" + strings.ReplaceAll(html.String(), "\ufffe", "") + "</x>")))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var text strings.Builder
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, html.String())
		}
		switch e := tok.(type) {
		case xml.StartElement:
			tags[e.Name.Local]++
			for _, a := range e.Attr {
				if a.Name.Local == "href" && !strings.HasPrefix(a.Value, own) {
					t.Errorf("a link to %q", a.Value)
				}
			}
		case xml.CharData:
			text.Write(e)
		}
	}
	// two rooms: a heading with a link each, a link to the host each, two lists, two quotes with paragraphs of the hostile one
	want := map[string]int{"x": 1, "h1": 1, "h2": 2, "a": 4, "ul": 2, "li": 8, "blockquote": 1}
	delete(tags, "p")
	for tag, n := range tags {
		if want[tag] != n {
			t.Errorf("%d of <%s>, want %d:\n%s", n, tag, want[tag], html.String())
		}
	}
	for _, line := range []string{"# Plain [topic]", "</title><script>alert(1)</script> [x](javascript:1) **b** `c`", "&amp; ]]> <!--", "1. n", "> q"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("%q is not in the text:\n%s", line, text.String())
		}
	}
}

func TestCaching(t *testing.T) {
	w := newWorld(t)
	w.put(nil)
	for _, path := range []string{"/feed.xml", "/feed.json", "/feed.md"} {
		first := w.get(path)
		tag, at := first.Header().Get("ETag"), first.Header().Get("Last-Modified")
		if tag == "" || at == "" || first.Header().Get("Cache-Control") != web.CacheAsk {
			t.Fatalf("%s: %v", path, first.Header())
		}
		for _, h := range [][]string{{"If-None-Match", tag}, {"If-Modified-Since", at}, {"If-None-Match", tag, "If-Modified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"}} {
			if again := w.get(path, h...); again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("ETag") != tag || again.Header().Get("Last-Modified") != at {
				t.Errorf("%s with %v: %d %v", path, h, again.Code, again.Header())
			}
		}
	}
	first := w.get("/feed.xml")
	w.put(nil) // within the same second
	second := w.get("/feed.xml", "If-Modified-Since", first.Header().Get("Last-Modified"))
	if second.Code != 200 || second.Header().Get("ETag") == first.Header().Get("ETag") {
		t.Errorf("a change is hidden: %d", second.Code)
	}
	if again := w.get("/feed.xml", "If-None-Match", first.Header().Get("ETag"), "If-Modified-Since", second.Header().Get("Last-Modified")); again.Code != 200 {
		t.Errorf("If-None-Match goes first: %d", again.Code)
	}
	for i := range 2 * maxVersions {
		w.f.seen.at(fmt.Sprint(i), "x", time.UnixMilli(t0))
	}
	if len(w.f.seen.of) > maxVersions {
		t.Errorf("%d versions are remembered", len(w.f.seen.of))
	}
}
