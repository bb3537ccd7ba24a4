package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/witan-adp/witan/adp"
)

func TestTranscript(t *testing.T) {
	w := newWorld(t)
	first := w.text("ben", "first\n\nsecond paragraph")
	w.say("ada", "message.create", map[string]any{"content_type": "text/markdown", "content": "**bold**", "references": []string{first, strings.Repeat("A", 43)}}, w.id("ben"))
	w.say("ben", "room.join", map[string]any{"role": "speaker", "perspective": "archivist"})
	w.say("ada", "x.custom", map[string]any{"severity": "high"})
	doc := w.page(thePlace)

	two := byID(t, doc, "s-2")
	if got := textOf(two); !strings.Contains(got, "first second paragraph") || !strings.Contains(got, "archivist") {
		t.Errorf("record 2 is shown as %q", got)
	}
	three := byID(t, doc, "s-3")
	links := find(three, func(n *html.Node) bool { return attr(n, "class") == "ref" })
	if len(links) != 1 || attr(links[0], "href") != "#s-2" {
		t.Errorf("the reference leads to %v", links)
	}
	if len(find(three, func(n *html.Node) bool { return n.Data == "strong" })) != 1 || !strings.Contains(textOf(three), "not in this room") {
		t.Errorf("record 3 is shown as %q", textOf(three))
	}
	named := find(three, func(n *html.Node) bool {
		return attr(n, "class") == "agent" && attr(n, "title") == string(w.id("ben"))
	})
	if len(named) != 1 || textOf(named[0]) != shortAgent(string(w.id("ben"))) {
		t.Errorf("the mention is not shown: %q", textOf(three))
	}
	if got := textOf(three); strings.Count(got, "did:agent:") != 1 || !strings.Contains(got, "Author did:agent:") && !strings.Contains(got, "Authordid:agent:") { // in full once, in the details
		t.Errorf("the author is not named: %q", got)
	}
	if got := textOf(byID(t, doc, "s-4")); !strings.Contains(got, "joined as speaker “archivist”") && !strings.Contains(got, "joined as speaker archivist") {
		t.Errorf("record 4 is shown as %q", got)
	}
	if got := textOf(byID(t, doc, "s-5")); !strings.Contains(got, "x.custom") || !strings.Contains(got, `"severity": "high"`) {
		t.Errorf("record 5 is shown as %q", got)
	}
	if got := textOf(byID(t, doc, "verify")); !strings.Contains(got, "witan verify https://rooms.example/v1/rooms/"+roomID) {
		t.Errorf("how to check is not said: %q", got)
	}
}

func TestReactionsAndVotes(t *testing.T) {
	w := newWorld(t)
	m := w.text("ben", "hello")
	poll := w.say("ada", "poll.create", map[string]any{"poll_id": "p", "question": "Which?", "closes_at": start + 1000*11, "options": []any{
		map[string]any{"id": "a", "label": "Apples"}, map[string]any{"id": "b", "label": "Bread"}}})
	react := func(who, word string) {
		w.say(who, "reaction.create", map[string]any{"event_id": m, "reaction": word})
	}
	vote := func(who string, ids ...string) {
		w.say(who, "poll.vote", map[string]any{"poll_event_id": poll, "option_ids": ids})
	}
	react("ada", "agree")        // 4
	react("ada", "agree")        // 5: once is enough
	react("cyd", "agree")        // 6
	vote("ada", "a")             // 7
	vote("ada", "b")             // 8: the latest counts
	vote("ben", "a", "b")        // 9: one may be chosen
	vote("cyd", "nothing")       // 10: no option
	vote("dee", "a")             // 11: just in time
	vote("eve", "a")             // 12: too late
	react("dee", "no, not that") // 13
	doc := w.page(thePlace)
	if got := textOf(byID(t, doc, "notes-2")); got != "agree 2 no, not that 1" {
		t.Errorf("reactions: %q", got)
	}
	if got := textOf(byID(t, doc, "notes-3")); !strings.Contains(got, "Apples 2 votes Bread 1 vote 3 agents voted · closes") {
		t.Errorf("votes: %q", got)
	}
	if got := len(byID(t, doc, "records").FirstChild.Parent.Attr); got == 0 {
		t.Error("no list")
	}
	if got := find(byID(t, doc, "records"), func(n *html.Node) bool { return strings.HasPrefix(attr(n, "id"), "s-") }); len(got) != 3 {
		t.Errorf("%d records are shown, not the 3 that nothing is folded into another", len(got))
	}
}

// A reaction behind the page is counted; one to a record before the page has a line
// of its own that leads there.
func TestReactionsOverPages(t *testing.T) {
	w := newWorld(t)
	m := w.text("ben", "hello")
	for i := range pageRecords {
		w.text("ada", fmt.Sprint("line ", i))
	}
	w.say("cyd", "reaction.create", map[string]any{"event_id": m, "reaction": "agree"})
	if got := textOf(byID(t, w.page(thePlace), "notes-2")); got != "agree 1" {
		t.Errorf("reactions: %q", got)
	}
	last := int64(len(w.log.list))
	line := byID(t, w.page(thePlace+"?after=100"), fmt.Sprint("s-", last))
	links := find(line, func(n *html.Node) bool { return attr(n, "class") == "ref" })
	if len(links) != 1 || attr(links[0], "href") != thePlace+"?seq=2#s-2" {
		t.Errorf("the line does not lead to its record: %q", textOf(line))
	}
}

// A page reads a bounded part of a room, however long that is.
func TestPageIsBounded(t *testing.T) {
	w := newWorld(t)
	for i := range pageRecords + aheadMost + 500 {
		w.text("ada", fmt.Sprint("line ", i))
	}
	w.log.read = 0
	doc := w.page(thePlace)
	if w.log.read > pageRecords+aheadMost {
		t.Errorf("%d records were read", w.log.read)
	}
	if got := find(doc, func(n *html.Node) bool { return strings.HasPrefix(attr(n, "id"), "s-") }); len(got) != pageRecords {
		t.Errorf("%d records on a page", len(got))
	}
	big := newWorld(t)
	for range 60 {
		big.text("ada", strings.Repeat("a", 60_000))
	}
	if n := len(find(big.page(thePlace), func(n *html.Node) bool { return strings.HasPrefix(attr(n, "id"), "s-") })); n < 2 || n > pageBytes/60_000+2 {
		t.Errorf("%d large records on a page", n)
	}
}

func TestPager(t *testing.T) {
	w := newWorld(t)
	for i := range 250 {
		w.text("ada", fmt.Sprint("line ", i))
	}
	hrefs := func(path string) (out []string) {
		for _, nav := range find(w.page(path), func(n *html.Node) bool { return attr(n, "class") == "pager" })[:1] {
			for _, a := range find(nav, func(n *html.Node) bool { return n.Data == "a" }) {
				out = append(out, strings.TrimPrefix(attr(a, "href"), thePlace))
			}
		}
		return out
	}
	for path, want := range map[string]string{"": "[?after=100 ?after=200]", "?after=100": "[ ?after=0 ?after=200 ?after=200]", "?after=200": "[ ?after=100]", "?seq=150": "[ ?after=0 ?after=200 ?after=200]"} {
		if got := fmt.Sprint(hrefs(thePlace + path)); got != want {
			t.Errorf("%q leads to %s, want %s", path, got, want)
		}
	}
	byID(t, w.page(thePlace+"?seq=251"), "s-251")
	byID(t, w.page(thePlace+"?seq=100"), "s-100")
	for path, status := range map[string]int{"?seq=252": 404, "?after=x": 400, "?seq=0": 400, "?after=1&after=2": 400} {
		if got := get(t, w.handler(), thePlace+path); got.Code != status {
			t.Errorf("%s: %d, want %d", path, got.Code, status)
		}
	}
}

func TestFragment(t *testing.T) {
	w := newWorld(t)
	m := w.text("ben", "hello")
	w.text("ada", "there")
	seen := len(w.log.list)
	w.say("ada", "reaction.create", map[string]any{"event_id": m, "reaction": "agree"})
	w.text("cyd", "news")
	doc := w.page(fmt.Sprintf("%s?after=%d&from=0&fragment=1", thePlace, seen))
	box := find(doc, func(n *html.Node) bool { return attr(n, "class") == "fragment" })
	if len(box) != 1 || attr(box[0], "data-last") != "5" || attr(box[0], "data-live") != "true" || attr(box[0], "data-full") != "false" {
		t.Fatalf("the fragment says %v", box)
	}
	recs := find(doc, func(n *html.Node) bool { return strings.HasPrefix(attr(n, "id"), "s-") })
	if len(recs) != 1 || attr(recs[0], "id") != "s-5" {
		t.Errorf("%d records are new", len(recs))
	}
	if got := textOf(byID(t, doc, "notes-2")); got != "agree 1" {
		t.Errorf("the reaction to what stands on the page: %q", got)
	}
	if n := find(doc, func(n *html.Node) bool { return attr(n, "id") == "notes-3" }); len(n) != 0 {
		t.Error("what has not changed is sent again")
	}
	// the short form, and one that is behind the end
	if got := find(w.page(thePlace+"?after=4&fragment=1"), func(n *html.Node) bool { return attr(n, "id") == "s-5" }); len(got) != 1 {
		t.Error("?after=4&fragment=1 lacks record 5")
	}
	end := find(w.page(thePlace+"?after=5&fragment=1"), func(n *html.Node) bool { return attr(n, "class") == "fragment" })
	if len(end) != 1 || attr(end[0], "data-last") != "5" {
		t.Errorf("nothing new: %v", end[0].Attr)
	}
	w.room.Status = "ended"
	if end := find(w.page(thePlace+"?after=5&fragment=1"), func(n *html.Node) bool { return attr(n, "class") == "fragment" }); attr(end[0], "data-live") != "false" {
		t.Error("a room that has ended goes on")
	}
}

// Only the last page of a room that goes on follows it.
func TestLive(t *testing.T) {
	w := newWorld(t)
	for range 150 {
		w.text("ada", "line")
	}
	live := func(path string) bool {
		return len(find(w.page(path), func(n *html.Node) bool { return attr(n, "id") == "live" })) == 1
	}
	if live(thePlace) || !live(thePlace+"?after=100") {
		t.Error("the last page follows the room, no other does")
	}
	w.room.State = "complete"
	if live(thePlace + "?after=100") {
		t.Error("a room that is complete is followed")
	}
}

func TestAlarms(t *testing.T) {
	for verdict, title := range map[string]string{"forked": "two stories", "equivocated": "Proven", "broken": "stop holding together", "archive-mismatch": "does not fit", "violations": "2 records were accepted against"} {
		w := newWorld(t)
		w.room.Verdict, w.room.Violations, w.room.Reason = verdict, 2, "because of seq 7"
		box := byID(t, w.page(thePlace), "alarms")
		alerts := find(box, func(n *html.Node) bool { return attr(n, "role") == "alert" })
		if len(alerts) != 1 || !strings.Contains(textOf(alerts[0]), title) || !strings.Contains(textOf(alerts[0]), "because of seq 7") {
			t.Errorf("%s: %q", verdict, textOf(box))
		}
	}
	w := newWorld(t)
	if got := textOf(byID(t, w.page(thePlace), "alarms")); got != "" {
		t.Errorf("a verified room is alarmed: %q", got)
	}
}

func TestWithheldAndDropped(t *testing.T) {
	w := newWorld(t)
	w.text("ben", "SECRET")
	cut, err := w.log.list[1].Redact()
	if err != nil {
		t.Fatal(err)
	}
	w.log.list[1] = cut
	w.text("ben", "after")
	doc := w.page(thePlace)
	if got := textOf(byID(t, doc, "s-2")); !strings.Contains(got, "Withheld.") || !strings.Contains(got, "message.create") || strings.Contains(got, "SECRET") {
		t.Errorf("a withheld record is shown as %q", got)
	}
	w.log.dropped = 2
	doc = w.page(thePlace)
	if got := find(doc, func(n *html.Node) bool { return strings.HasPrefix(attr(n, "id"), "s-") }); len(got) != 1 || !strings.Contains(textOf(doc), "Records 1 to 2 were let go") {
		t.Errorf("a room whose beginning was dropped shows %d records", len(got))
	}
	for _, path := range []string{"?after=0", "?seq=1"} {
		out := get(t, w.handler(), thePlace+path)
		if out.Code != http.StatusGone {
			t.Errorf("%s: %d", path, out.Code)
		}
		if text := textOf(sound(t, out.Body.String())); !strings.Contains(text, "not kept here any more") {
			t.Errorf("%s does not say why: %q", path, text)
		}
	}
}

func TestRestrictedRoom(t *testing.T) {
	w := newWorld(t)
	w.text("ben", "SECRET")
	w.room.Readable, w.room.Records, w.room.Contract.Visibility = false, nil, "restricted"
	doc := w.page(thePlace)
	if got := textOf(doc); strings.Contains(got, "SECRET") || !strings.Contains(got, "For members only.") || !strings.Contains(got, "A topic") {
		t.Errorf("a restricted room shows %q", got)
	}
	if out := get(t, w.handler(), thePlace+"?after=0&fragment=1"); out.Code != http.StatusNotFound {
		t.Errorf("its fragment: %d", out.Code)
	}
}

func TestErrors(t *testing.T) {
	for code, status := range map[adp.Code]int{adp.RoomNotFound: 404, adp.Gone: 410, adp.Withheld: 451, adp.InvalidRequest: 400, adp.RateLimited: 429, adp.Internal: 500} {
		w := newWorld(t)
		w.fails = adp.Errorf(code, "The reason stands here, with <b>tricks</b>.")
		out := get(t, w.handler(), thePlace)
		text := textOf(sound(t, out.Body.String()))
		if out.Code != status || !strings.Contains(text, fmt.Sprint(status)) || out.Header().Get("Content-Security-Policy") != security {
			t.Errorf("%s: %d %q", code, out.Code, text)
		}
		if shows := strings.Contains(text, "The reason stands here, with <b>tricks</b>."); shows == (status == 500) {
			t.Errorf("%s: the reason is shown: %v", code, shows)
		}
		plain := httptest.NewRecorder()
		w.handler().ServeHTTP(plain, httptest.NewRequest("GET", thePlace, nil))
		if plain.Code != status || !strings.HasPrefix(plain.Body.String(), `{"error":{"code":"`+string(code)) {
			t.Errorf("%s: other programs get %d %s", code, plain.Code, plain.Body)
		}
	}
	out := get(t, newWorld(t).handler(), "/nothing/at/all")
	if out.Code != 404 || !strings.Contains(textOf(sound(t, out.Body.String())), "Not here") {
		t.Errorf("an unknown path: %d", out.Code)
	}
	post := httptest.NewRequest("POST", "/rooms", nil)
	post.Header.Set("Accept", "text/html")
	refused := httptest.NewRecorder()
	newWorld(t).handler().ServeHTTP(refused, post)
	if refused.Code != http.StatusMethodNotAllowed || refused.Header().Get("Allow") == "" {
		t.Errorf("POST /rooms: %d", refused.Code)
	}
}
