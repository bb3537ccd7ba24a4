package feed

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/internal/web"
)

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
	for range 3 {
		w.put(func(d *index.Doc) { d.Origin, d.Own, d.SyncedAt = other, false, w.now.Load() })
	}
	for _, path := range []string{"/feed.xml?limit=2", "/feed.json?limit=2", "/feed.md?limit=2", "/v1/feed?capabilities=x&limit=2"} { // the documents lead on
		first := w.get(path)
		w.now.Add(5)
		w.made--
		w.put(func(d *index.Doc) { d.Origin, d.Own, d.SyncedAt = other, false, w.now.Load() }) // looked at again, and nothing was new
		for _, h := range [][]string{{"If-None-Match", first.Header().Get("ETag")}, {"If-Modified-Since", first.Header().Get("Last-Modified")}} {
			if h[0] == "If-Modified-Since" && h[1] == "" { // what is ranked has no date
				continue
			}
			if again := w.get(path, h...); again.Code != http.StatusNotModified {
				t.Errorf("%s with %v: %d\n%s\n%s", path, h, again.Code, first.Body, again.Body)
			}
		}
		if whole := w.get(strings.Replace(path, "=2", "=4", 1)); whole.Header().Get("ETag") == first.Header().Get("ETag") {
			t.Errorf("%s: another page has the same tag", path)
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
