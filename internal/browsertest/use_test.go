//go:build !race

package browsertest

import (
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A reader searches by words, narrows by a facet, and goes to a room and along a reference.
func TestSearch(t *testing.T) {
	w := begin(t)
	b := open(t, w.b.origin)
	b.visit("/rooms")
	b.must(until("the index to hold the rooms", func() bool {
		b.visit("/rooms")
		return eval[bool](b, `document.body.innerText.includes('How should a Modbus client retry?') && document.body.innerText.includes('Wie oft soll ein Spiegel fragen?')`)
	}))
	eval[any](b, `document.getElementById('q').focus()`)
	b.press("modbus" + kb.Enter)
	b.wait("the search", `new URLSearchParams(location.search).get('q') === 'modbus' && document.readyState === 'complete'`)
	const topics = `[...document.querySelectorAll('main h3')].filter(e => e.querySelector('a[href^="/rooms/"]')).map(e => e.innerText.trim())`
	if got := eval[[]string](b, topics); len(got) != 2 || !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "How should a Modbus client retry?") }) {
		t.Errorf("modbus finds %q", got)
	}
	// the facet of the language: fewer rooms, and a way back
	b.visit("/rooms")
	all := eval[int](b, topics+".length")
	german := `[...document.querySelectorAll('aside a')].find(e => new URLSearchParams(e.search).get('language') === 'de')`
	if !eval[bool](b, "!!"+german) {
		t.Fatalf("no facet of the language: %s", eval[string](b, `document.body.innerText`))
	}
	eval[any](b, german+`.click()`)
	b.wait("the facet", `new URLSearchParams(location.search).get('language') === 'de' && document.readyState === 'complete'`)
	if got := eval[[]string](b, topics); len(got) == 0 || len(got) >= all || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "Modbus") }) {
		t.Errorf("of %d rooms the facet shows %q", all, got)
	}
	b.audited("facet")
	// CJK, and a room that stands in another's list
	b.visit("/rooms?q=%E5%89%AF%E6%9C%AC")
	if got := eval[[]string](b, topics); len(got) != 1 || !strings.Contains(got[0], "哪一份副本是真的") {
		t.Errorf("副本 finds %q", got)
	}
	// to the room, and along a reference to the message that it names
	b.visit("/rooms?q=modbus+retry")
	eval[any](b, `[...document.querySelectorAll('main h3 a')].find(e => e.innerText.includes('How should')).click()`)
	b.wait("the room", `location.pathname.endsWith('/`+w.modbus.id+`') && document.readyState === 'complete'`)
	eval[any](b, `document.querySelector('.refs a.ref').click()`)
	b.wait("the reference", `location.hash.startsWith('#s-') && document.querySelector(':target')`)
	if !eval[bool](b, `(r => r.top >= 0 && r.top < innerHeight)(document.querySelector(':target').getBoundingClientRect())`) {
		t.Error("the message that is referred to is not in sight")
	}
	b.clean("search")
}

// What is said appears on open pages without loading them again: at the host, and at the mirror. Reactions appear at their message.
func TestLiveUpdate(t *testing.T) {
	w := begin(t)
	s := &script{room: w.live}
	first := s.say(w.ben, plain, "Said before the page was opened.")
	b := open(t, w.a.origin)
	b.visit(w.live.page())
	m := open(t, w.b.origin)
	b.must(until("the mirror to show the first", func() bool {
		m.visit("/rooms/" + w.a.authority() + "/" + w.live.id)
		return eval[bool](m, `document.body.innerText.includes('Said before the page was opened.')`)
	}))
	for _, x := range []*tab{b, m} {
		eval[any](x, `window.sameDocument = true`)
	}
	s.say(w.ben, markdown, "Said **while** the page is open. <script>window.pwned=1</script>")
	s.send(w.ada, "reaction.create", map[string]any{"event_id": first, "reaction": "well-put", "score": 1})
	b.must(s.err)
	for _, x := range []*tab{b, m} {
		x.wait("the new message", `[...document.querySelectorAll('#records strong')].some(e => e.innerText === 'while')`)
		x.wait("the reaction", `document.querySelector('#records').innerText.includes('well-put')`)
		if eval[bool](x, `window.sameDocument !== true || window.pwned !== undefined`) {
			t.Error("the page was loaded again, or a script ran")
		}
		x.audited("live")
		x.clean("live")
	}
	b.shoot("room-live-updated")
}

// Times are those of the zone in which the reader is; the exact one is in the title.
func TestZone(t *testing.T) {
	w := begin(t)
	var r struct {
		StartTime int64 `json:"start_time"`
	}
	b := open(t, w.a.origin)
	b.must(w.a.get("/v1/rooms/"+w.modbus.id, &r))
	for _, zone := range []string{"Asia/Kathmandu", "America/St_Johns"} {
		b.must(chromedp.Do(b.ctx, call(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})))
		b.visit(w.modbus.page())
		loc, err := time.LoadLocation(zone)
		b.must(err)
		want := time.UnixMilli(r.StartTime).In(loc).Format("3:04")
		shown := eval[string](b, `document.querySelector('.contract time').textContent`)
		if title := eval[string](b, `document.querySelector('.contract time').title`); !strings.Contains(shown, want) || !strings.Contains(title, time.UnixMilli(r.StartTime).UTC().Format("2006-01-02 15:04:05 UTC")) {
			t.Errorf("%s: %q with title %q, want %s", zone, shown, title, want)
		}
	}
}

// With the keyboard alone everything can be reached, in the order of the page, and it is always to be seen where one is.
func TestKeyboard(t *testing.T) {
	w := begin(t)
	for _, v := range w.views() {
		if !slices.Contains([]string{"front", "rooms", "room-ended", "hosts", "witness", "status"}, v.name) {
			continue
		}
		for _, scheme := range []string{"light", "dark"} {
			b := open(t, v.origin)
			b.scheme(scheme)
			b.visit(v.path)
			b.walk(v.name + " " + scheme)
			b.clean(v.name)
		}
	}
	// the first stop leads past the navigation
	b := open(t, w.a.origin)
	b.visit("/rooms")
	b.press(kb.Tab + kb.Enter)
	b.wait("the skip link", `location.hash === '#main' && (document.activeElement === document.querySelector('main') || document.querySelector('main').contains(document.activeElement))`)
	// a fold opens and closes
	b.visit(w.modbus.page())
	eval[any](b, `document.querySelector('#records summary').focus()`)
	b.press(kb.Enter)
	b.wait("the fold to open", `document.querySelector('#records summary').parentElement.open`)
}

// stops are what Tab should reach, each with a number; look is what one sees of the element that has the focus.
const (
	stops = `(() => {
		window.stops = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
			.filter(e => !e.disabled && e.checkVisibility({checkVisibilityCSS: true}) && e.tabIndex >= 0);
		window.look = e => { const s = getComputedStyle(e); return [s.outlineStyle, s.outlineWidth, s.outlineColor, s.boxShadow, s.backgroundColor, s.borderColor, s.color, s.textDecorationLine].join('|'); };
		window.before = window.stops.map(window.look);
		return window.stops.length;
	})()`
	stop = `(() => {
		const e = document.activeElement, i = window.stops.indexOf(e), r = e.getBoundingClientRect();
		const seen = r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth && r.width > 0;
		return {i, what: e.localName + ' "' + (e.textContent || e.name || '').trim().slice(0, 40) + '"', seen, marked: i < 0 || window.look(e) !== window.before[i], outline: getComputedStyle(e).outlineStyle !== 'none' || getComputedStyle(e).boxShadow !== 'none', body: e === document.body};
	})()`
)

func (b *tab) walk(what string) {
	b.t.Helper()
	n := eval[int](b, stops)
	if n < 8 {
		b.t.Fatalf("%s: only %d stops", what, n)
	}
	next := 0
	for range min(n, 80) {
		b.press(kb.Tab)
		at := eval[struct {
			I                           int
			What                        string
			Seen, Marked, Outline, Body bool
		}](b, stop)
		switch {
		case at.Body:
			b.t.Fatalf("%s: the focus is lost after %d of %d stops", what, next, n)
		case at.I < 0: // what Chromium lets one scroll
			continue
		case at.I != next:
			b.t.Fatalf("%s: stop %d is %s, number %d of the page", what, next, at.What, at.I)
		case !at.Seen:
			b.t.Errorf("%s: %s has the focus out of sight", what, at.What)
		case !at.Marked || !at.Outline:
			b.t.Errorf("%s: nothing shows that %s has the focus", what, at.What)
		}
		next++
	}
	if next < min(n, 80)/2 {
		b.t.Errorf("%s: only %d of %d stops could be reached", what, next, n)
	}
}
