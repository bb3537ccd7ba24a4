package page

import (
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// full is a world in which every page has something to show.
func full(t *testing.T) *world {
	w := newWorld(t)
	w.text("ben", "hello")
	item := RoomItem{Origin: "https://" + theHost, Authority: theHost, ID: roomID, URL: w.room.URL, Topic: "A topic", Tags: []string{"one"}, Status: "active", Verdict: "verified", State: "following",
		Attested: "attested", Records: 2, Speakers: 1, Members: 1, LastActivity: start, Language: "en", Visibility: "public"}
	listed := item
	listed.MetadataOnly, listed.Verdict, listed.Topic = true, "unverified", "Listed only"
	hidden := RoomItem{Origin: "https://" + theHost, Authority: theHost, ID: "hidden", State: "quarantined", Reason: "because", Hidden: true}
	w.rooms = []RoomItem{item, listed, hidden}
	w.next = "more"
	w.facets = []Facet{{"status", []FacetValue{{"active", 2}}}, {"host", []FacetValue{{"https://" + theHost, 3}}}, {"tag", []FacetValue{{"one", 1}}}}
	w.hosts = []Host{{Origin: "https://" + theHost, Authority: theHost, State: "following", Since: start, Rooms: 2, Records: 9, Bytes: 12345, Behind: 3, Source: "flag", Equivocated: true,
		Verdicts: []Count{{"forked", 1}, {"verified", 1}}, Problems: []HostRoom{{ID: roomID, Topic: "A topic", State: "following", Verdict: "forked", Reason: "seq 3", Shown: true}},
		Keys: []HostKey{{Purpose: "agent", Key: "z6Mk", FirstSeen: start, LastSeen: start}, {Purpose: "log", Key: "z6Ml", FirstSeen: start, LastSeen: start, Waiting: true}}}}
	about := map[string]any{"origin": "https://" + theHost, "room_id": roomID, "genesis": w.room.Genesis, "last_seq": 2, "archive_root": strings.Repeat("R", 43), "verified_at": start, "generated_at": start, "complete": true}
	envelope := encode(t, map[string]any{"hash": strings.Repeat("H", 43), "event": map[string]any{"actor": w.id("cyd"), "payload": about}})
	w.signed = map[string][][]byte{"statements": {envelope}, "attestations": {envelope},
		"evidence": {encode(t, map[string]any{"class": "proof", "kind": "statement-contradiction", "origin": "https://" + theHost, "room_id": roomID, "agent": w.id("cyd"), "seen_at": start})}}
	w.self.Alarms = []Alarm{{Origin: "https://" + theHost, Authority: theHost, RoomID: roomID, Topic: "A topic", Verdict: "forked"}}
	w.room.Archive = &Archive{Root: strings.Repeat("Q", 43), EventsCID: "bagaa", BundleCID: "bafk", Bytes: 100, Count: 2, GeneratedAt: start}
	w.room.Attested, w.room.Attestations = "attested", 1
	for i := range 5 {
		w.stats = append(w.stats, Sample{At: start + int64(i)*15_000, Records: int64(i * 30), DiskUsed: 1 << 20, DiskFree: 1 << 30, Lag: []HostLag{{theHost, int64(i)}}})
	}
	return w
}

var allPages = []string{"/", "/rooms", "/rooms?q=a&status=active&host=rooms.example&sort=start&joinable=true", thePlace, thePlace + "?seq=2", "/hosts", "/hosts/" + theHost,
	"/witness", "/witness?list=statements", "/witness?list=evidence", "/status"}

// Every page has what a reader needs who does not see it, or has no script.
func TestPages(t *testing.T) {
	w := full(t)
	for _, path := range allPages {
		out := get(t, w.handler(), path)
		if out.Code != http.StatusOK {
			t.Fatalf("GET %s: %d %s", path, out.Code, out.Body)
		}
		for name, want := range map[string]string{"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": security, "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
			"Cache-Control": "no-cache"} {
			if got := out.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if out.Header().Get("Set-Cookie") != "" || out.Header().Get("ETag") == "" {
			t.Errorf("%s: headers %v", path, out.Header())
		}
		doc := sound(t, out.Body.String())
		count := func(name string) int { return len(find(doc, func(n *html.Node) bool { return n.Data == name })) }
		if count("main") != 1 || count("h1") != 1 || count("footer") != 1 || count("title") != 1 || count("img") != 0 {
			t.Errorf("%s: main, h1, footer and title stand there once each", path)
		}
		if attr(find(doc, func(n *html.Node) bool { return n.Data == "html" })[0], "lang") != "en" {
			t.Errorf("%s: no language", path)
		}
		ids := map[string]bool{}
		for _, n := range find(doc, func(n *html.Node) bool { return attr(n, "id") != "" }) {
			ids[attr(n, "id")] = true
		}
		level := 0
		for _, n := range find(doc, func(*html.Node) bool { return true }) {
			if len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '1' && n.Data[1] <= '6' {
				if is := int(n.Data[1] - '0'); is > level+1 {
					t.Errorf("%s: <%s> stands below <h%d>: %q", path, n.Data, level, textOf(n))
				} else {
					level = is
				}
			}
			for _, name := range []string{"aria-labelledby", "for"} {
				if to := attr(n, name); to != "" && !ids[to] {
					t.Errorf("%s: %s=%q leads nowhere", path, name, to)
				}
			}
			switch n.Data {
			case "input", "select":
				labelled := attr(n, "type") == "hidden" || len(find(doc, func(l *html.Node) bool { return l.Data == "label" && attr(l, "for") == attr(n, "id") })) == 1
				if !labelled {
					t.Errorf("%s: a field without a label: %v", path, n.Attr)
				}
			case "nav", "aside", "form":
				if attr(n, "aria-label") == "" {
					t.Errorf("%s: <%s> has no label", path, n.Data)
				}
			case "a", "button", "summary":
				if textOf(n) == "" && attr(n, "aria-label") == "" {
					t.Errorf("%s: <%s> says nothing: %v", path, n.Data, n.Attr)
				}
			case "svg":
				if attr(n, "aria-hidden") != "true" && attr(n, "aria-label") == "" {
					t.Errorf("%s: a picture without words", path)
				}
			case "time":
				if attr(n, "datetime") == "" {
					t.Errorf("%s: a time without its machine form", path)
				}
			}
		}
		again := httptest.NewRequest("GET", path, nil)
		again.Header.Set("Accept", "text/html")
		again.Header.Set("If-None-Match", out.Header().Get("ETag"))
		same := httptest.NewRecorder()
		w.handler().ServeHTTP(same, again)
		if same.Code != http.StatusNotModified || same.Body.Len() > 0 {
			t.Errorf("%s: the same again is %d", path, same.Code)
		}
	}
}

func TestSearch(t *testing.T) {
	w := full(t)
	doc := w.page("/rooms?q=+Modbus+retries&status=&host=&language=en&tag=&types=&verdict=&attested=&joinable=true&sort=")
	if got := w.asked.Encode(); got != "facets=status%2Chost%2Clanguage%2Ctag&joinable=true&language=en&limit=25&q=Modbus+retries" {
		t.Errorf("the index was asked %s", got)
	}
	hrefs := map[string]string{}
	for _, a := range find(doc, func(n *html.Node) bool { return n.Data == "a" }) {
		hrefs[textOf(a)] = attr(a, "href")
	}
	for text, want := range map[string]string{"More": "/rooms?cursor=more&joinable=true&language=en&q=Modbus+retries", "active": "/rooms?joinable=true&language=en&q=Modbus+retries&status=active",
		"Language en ×take this filter away": "/rooms?joinable=true&q=Modbus+retries"} {
		if hrefs[text] != want {
			t.Errorf("%q leads to %q, want %q", text, hrefs[text], want)
		}
	}
	if v := attr(byID(t, doc, "q"), "value"); v != "Modbus retries" {
		t.Errorf("the field holds %q", v)
	}
	if n := find(doc, func(n *html.Node) bool {
		return n.Data == "option" && attr(n, "value") == "true" && slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "selected" })
	}); len(n) != 1 {
		t.Error("the chosen value is not chosen")
	}
	for since, want := range map[string]struct{ asked, chosen, chip string }{
		"7d":            {strconv.FormatInt(start-7*24*3600_000, 10), "in the last week", "Something new in the last week"},
		"1796013868232": {"1796013868232", "2026-11-30 04:44 UTC", "Something new 2026-11-30 04:44 UTC"},
	} {
		doc := w.page("/rooms?since=" + since)
		if got := w.asked.Get("since"); got != want.asked {
			t.Errorf("since=%s asked for %q, want %q", since, got, want.asked)
		}
		var more []string
		for _, a := range find(doc, func(n *html.Node) bool { return n.Data == "a" }) {
			if attr(a, "rel") == "next" {
				more = append(more, attr(a, "href"))
			}
		}
		if len(more) != 1 || more[0] != "/rooms?cursor=more&since="+want.asked { // the span of the first page, on all pages
			t.Errorf("since=%s goes on at %q", since, more)
		}
		var chosen []string
		for _, o := range find(byID(t, doc, "f-since"), func(n *html.Node) bool {
			return n.Data == "option" && slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "selected" })
		}) {
			chosen = append(chosen, attr(o, "value")+" "+textOf(o))
		}
		if !slices.Equal(chosen, []string{since + " " + want.chosen}) {
			t.Errorf("since=%s shows as %q", since, chosen)
		}
		if !strings.Contains(textOf(doc), want.chip) {
			t.Errorf("since=%s is not among the filters", since)
		}
	}
	w.said = []Said{{theHost, roomID, "A topic", string(w.id("ben")), 7, start, "Three <b>owls</b>", [][2]int{{9, 13}}}}
	found := w.page("/rooms?q=owls")
	if m := find(found, func(n *html.Node) bool { return n.Data == "mark" }); len(m) != 1 || textOf(m[0]) != "owls" || textOf(m[0].Parent) != "Three <b>owls</b>" {
		t.Errorf("what was said is not shown: %d", len(m))
	}
	if a := find(found, func(n *html.Node) bool { return attr(n, "href") == thePlace+"?seq=7#s-7" }); len(a) != 1 {
		t.Error("what was said does not lead to its record")
	}
	if got := textOf(doc); !strings.Contains(got, "Held here, and not shown. because") || !strings.Contains(got, "Listed only, and not copied here") {
		t.Errorf("rooms that are not shown: %q", got)
	}
}

func TestAssets(t *testing.T) {
	w := newWorld(t)
	s := New(Options{Source: w, Now: func() int64 { return start }})
	for _, name := range []string{"page.css", "page.js", "mark.svg"} {
		path := s.path(name)
		out := get(t, w.handler(), path)
		if out.Code != 200 || out.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" || out.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, out.Code, out.Header())
		}
		if out := get(t, w.handler(), "/static/"+name); out.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s without a version is kept: %v", name, out.Header())
		}
	}
	if out := get(t, w.handler(), "/static/nothing.js"); out.Code != 404 {
		t.Errorf("an unknown file: %d", out.Code)
	}
	if s.path("nothing.js") != "" {
		t.Error("an unknown file has a path")
	}
}

// Every text that a page asks for is there, and every text is asked for.
func TestStrings(t *testing.T) {
	families := []string{"since.", "check.", "word.", "kind.", "typestatus.", "verdict.", "attest.", "event.join.", "event.role.", "sort.", "facet.", "hoststate.", "source.", "key.", "list.", "signed.", "evidence.", "error.", "alarm.", "field."}
	used := map[string]bool{}
	constant := regexp.MustCompile(`(?:\bt|count) "([a-z0-9._-]+)"|\bt\("([a-z0-9._-]+)"|"((?:event|field|record|alarm|plot|error)\.[a-z0-9._-]+)"|count\("([a-z0-9._-]+)"`)
	plural := map[string]bool{}
	walk := func(root string, f fs.FS) {
		err := fs.WalkDir(f, root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || path == "english.go" || strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".html") {
				if e != nil && e.IsDir() && path != root {
					return fs.SkipDir
				}
				return err
			}
			text, err := fs.ReadFile(f, path)
			for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
				key := m[1] + m[2] + m[3] + m[4]
				if strings.HasPrefix(m[0], "count") {
					plural[key] = true
				} else if !strings.HasSuffix(key, ".") {
					used[key] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	walk("templates", files)
	walk(".", os.DirFS("."))
	for key := range plural {
		used[key+".one"], used[key+".other"] = true, true
	}
	for key := range used {
		if _, ok := english[key]; !ok {
			t.Errorf("there is no text for %q", key)
		}
	}
	for key := range english {
		if !used[key] && !slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(key, f) }) {
			t.Errorf("nobody asks for %q", key)
		}
	}
	for _, span := range words("since") {
		if spans[span] == 0 || english["since."+span] == "" {
			t.Errorf("a span %q is offered, and not known", span)
		}
	}
	for _, word := range slices.Concat(words("status"), words("verdict"), words("attested")) {
		if english["word."+word] == "" {
			t.Errorf("there is no word for %q", word)
		}
	}
}

// Text is readable in both schemes: WCAG 2 AA asks for a contrast of 4.5.
func TestContrast(t *testing.T) {
	css, err := fs.ReadFile(files, "static/page.css")
	if err != nil {
		t.Fatal(err)
	}
	light, rest, _ := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	colours := func(text string) map[string]string {
		out := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6})`).FindAllStringSubmatch(text, -1) {
			if _, there := out[m[1]]; !there {
				out[m[1]] = m[2]
			}
		}
		return out
	}
	pairs := []string{"ink/paper", "ink/shade", "ink/leaf", "ink/bad-wash", "ink/warn-wash", "soft/paper", "soft/shade", "soft/leaf", "accent/paper", "accent/leaf", "accent/shade", "accent-ink/accent", "accent/accent-wash",
		"good/good-wash", "warn/warn-wash", "bad/bad-wash", "mute/mute-wash", "bad/paper", "warn/paper", "soft/accent-wash"}
	for scheme, of := range map[string]map[string]string{"light": colours(light), "dark": colours(rest)} {
		for _, pair := range pairs {
			text, ground, _ := strings.Cut(pair, "/")
			if of[text] == "" || of[ground] == "" {
				t.Fatalf("%s: no colours for %s", scheme, pair)
			}
			if c := contrast(of[text], of[ground]); c < 4.5 {
				t.Errorf("%s: %s has a contrast of %.2f", scheme, pair, c)
			}
		}
	}
	for scheme, text := range map[string]string{"light": light + rest, "dark": rest} { // the marks are drawn on their own ground
		for _, m := range regexp.MustCompile(`\.(h\d+) \{ --mark: (#[0-9a-f]{6}); --mark-wash: (#[0-9a-f]{6})`).FindAllStringSubmatch(text, -1) {
			if c := contrast(m[2], m[3]); c < 3 {
				t.Errorf("%s: %s has a contrast of %.2f", scheme, m[1], c)
			}
		}
	}
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(hex string) (l float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			panic(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}

func TestFormats(t *testing.T) {
	for in, want := range map[string]string{fmt.Sprint(number(0)): "0", number(999): "999", number(1000): "1\u202f000", number(-1234567): "−1\u202f234\u202f567", size(1023): "1\u202f023 B", size(1536): "1.5 KiB",
		size(20 << 20): "20 MiB", size(3 << 40): "3.0 TiB", clip("日本語です", 2): "日本…", clip("abc", 3): "abc", shortAgent("did:agent:" + strings.Repeat("x", 43)): "xxxxxxxx…"} {
		if in != want {
			t.Errorf("%q, want %q", in, want)
		}
	}
	for _, ms := range []int64{0, -1, 1 << 62} {
		if got := when(ms); strings.Contains(string(got), "<time") {
			t.Errorf("time %d is shown as %s", ms, got)
		}
	}
	if got := string(when(start)); !strings.HasPrefix(got, `<time datetime="2027-01-15T08:00:00.000Z" title="2027-01-15 08:00:00 UTC">2027-01-15 08:00 UTC</time>`) {
		t.Errorf("a time is shown as %s", got)
	}
	if a, b := ornament("a"), ornament("b"); a == b || a != ornament("a") {
		t.Error("an ornament names its agent")
	}
}

func TestPlots(t *testing.T) {
	w := newWorld(t)
	if got := textOf(w.page("/status")); !strings.Contains(got, "Not enough was measured yet") {
		t.Errorf("without samples: %q", got)
	}
	for i := range 4 {
		w.stats = append(w.stats, Sample{At: start + int64(i)*10_000, Records: int64(i) * 50, DiskUsed: 5 << 20, DiskFree: 9 << 30, Lag: []HostLag{{"b.example", int64(7 * i)}}})
	}
	got := textOf(w.page("/status"))
	for _, want := range []string{"Records verified 5 a second", "Behind b.example 21 records", "Disk in use 5.0 MiB", "Disk free 9.0 GiB"} {
		if !strings.Contains(got, want) {
			t.Errorf("the plots lack %q: %q", want, got)
		}
	}
	// a time without measurements, such as that of a stopped daemon, is a gap in the line; a measurement alone is a dot
	gap := plots([]Sample{{At: 0, DiskUsed: 9}, {At: 15_000, DiskUsed: 9, Records: 30}, {At: 600_000, DiskUsed: 9, Records: 900}, {At: 1_200_000, DiskUsed: 9, Records: 900}, {At: 1_215_000, DiskUsed: 9, Records: 930}})
	for _, p := range gap {
		line := string(p.Picture)[strings.Index(string(p.Picture), `class="line"`):]
		if strings.Count(line, "M") != 3 || strings.Count(line, "L") != 2 || strings.Count(line, "h0.1") != 1 {
			t.Errorf("%s: %s", p.Title, line)
		}
	}
	if got := gap[0]; got.Now != "2.0" && got.Now != "2" || got.Most != got.Now {
		t.Errorf("%+v", got)
	}
	for v, want := range map[float64]string{0: "0", 0.04: "0.04", 2: "2", 5.26: "5.3", 12.4: "12"} {
		if got := rate(v); got != want {
			t.Errorf("rate %v: %s, want %s", v, got, want)
		}
	}
	for _, p := range plots([]Sample{{At: 5}, {At: 5}}) { // a clock that stands still
		if strings.Contains(string(p.Picture), "NaN") || strings.Contains(string(p.Picture), "Inf") {
			t.Errorf("%s: %s", p.Title, p.Picture)
		}
	}
}

// What was rendered is kept within bounds.
func TestRenderingsAreBounded(t *testing.T) {
	var c renderings
	made := 0
	text := strings.Repeat("x", 1<<20)
	for i := range 40 {
		c.of(fmt.Sprint(i%30), func() template.HTML { made++; return template.HTML(text) })
	}
	if made < 30 || c.bytes > maxRendered+1<<20 || len(c.now)+len(c.old) > 2*maxRendered>>20 {
		t.Errorf("%d were made, %d bytes in %d+%d are kept", made, c.bytes, len(c.now), len(c.old))
	}
	for range 3 {
		c.of("again", func() template.HTML { made = -1; return "y" })
		if made != -1 {
			t.Fatal("nothing was made")
		}
		c.of("again", func() template.HTML { t.Error("it was made again"); return "" })
		made = -1
	}
}

func TestDocument(t *testing.T) {
	s := New(Options{Source: newWorld(t), Now: func() int64 { return start }})
	out := httptest.NewRecorder()
	if err := s.ServeDocument(out, httptest.NewRequest("GET", "/docs", nil), Document{Title: "The API", Section: "docs", Lead: "All of it.", Body: "<h2>One</h2><p>two</p>"}); err != nil {
		t.Fatal(err)
	}
	doc := sound(t, out.Body.String())
	here := find(doc, func(n *html.Node) bool { return attr(n, "aria-current") == "page" })
	if len(here) != 1 || textOf(here[0]) != "Docs" || !strings.Contains(out.Body.String(), "<h1>The API</h1><p class=\"lead\">All of it.</p>") || !strings.Contains(out.Body.String(), "<h2>One</h2><p>two</p>") {
		t.Errorf("%s", out.Body)
	}
}
