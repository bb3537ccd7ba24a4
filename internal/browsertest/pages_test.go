//go:build !race

package browsertest

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

//go:embed testdata/audit.js
var audit string

// audited fails the test for what the audit finds.
func (b *tab) audited(what string) {
	b.t.Helper()
	for _, f := range eval[[]string](b, audit) {
		b.t.Errorf("%s: %s", what, f)
	}
}

// view is one page at one daemon.
type view struct {
	name, origin, path string
	except             []string // faults that belong to it
}

func (w *world) views() []view {
	mirrored := func(h hosted) string { return "/rooms/" + w.a.authority() + "/" + h.id }
	notFound := []string{"status of 404"}
	return []view{
		{"front", w.b.origin, "/", nil},
		{"rooms", w.a.origin, "/rooms", nil},
		{"rooms-found", w.b.origin, "/rooms?q=modbus", nil},
		{"rooms-nothing", w.b.origin, "/rooms?q=nosuchwordanywhere", nil},
		{"room-ended", w.a.origin, w.modbus.page(), nil},
		{"room-mirrored", w.b.origin, mirrored(w.modbus), nil},
		{"room-live", w.a.origin, w.live.page(), nil},
		{"room-hostile", w.b.origin, mirrored(w.hostile), nil},
		{"room-long", w.a.origin, w.long.page(), nil},
		{"room-long-middle", w.a.origin, w.long.page() + "?seq=150", nil},
		{"room-forked", w.b.origin, "/rooms/" + w.c.authority() + "/" + w.forked.id, nil},
		{"host-forked", w.b.origin, "/hosts/" + w.c.authority(), nil},
		{"witness-evidence", w.b.origin, "/witness?list=evidence", nil},
		{"witness-statements", w.b.origin, "/witness?list=statements", nil},
		{"room-right-to-left", w.b.origin, mirrored(w.right), nil},
		{"room-withheld", w.a.origin, w.taken.page(), nil},
		{"room-restricted", w.a.origin, w.closed.page(), nil},
		{"room-scheduled", w.a.origin, w.coming.page(), nil},
		{"new-front", w.d.origin, "/", nil},
		{"new-rooms", w.d.origin, "/rooms", nil},
		{"new-hosts", w.d.origin, "/hosts", nil},
		{"new-witness", w.d.origin, "/witness", nil},
		{"new-status", w.d.origin, "/status", nil},
		{"room-none", w.a.origin, "/rooms/" + w.a.authority() + "/no-such-room", notFound},
		{"hosts", w.b.origin, "/hosts", nil},
		{"host", w.b.origin, "/hosts/" + w.a.authority(), nil},
		{"host-self", w.a.origin, "/hosts/" + w.a.authority(), nil},
		{"witness", w.b.origin, "/witness", nil},
		{"witness-attestations", w.b.origin, "/witness?list=attestations", nil},
		{"status", w.b.origin, "/status", nil},
		{"docs", w.a.origin, "/docs", nil},
		{"not-found", w.a.origin, "/rooms/x", notFound},
	}
}

// Every page, at the width of a phone and of a desk, by day and by night: no fault of structure, names, contrast, targets or width; nothing on
// the console, no violation of the policy, no request to others.
func TestPages(t *testing.T) {
	w := begin(t)
	for _, v := range w.views() {
		t.Run(v.name, func(t *testing.T) {
			b := open(t, v.origin)
			b.visit(v.path)
			if eval[bool](b, `!!document.querySelector('.narrow')`) { // looked at, too
				eval[any](b, `document.querySelector('.narrow').open = true`)
				b.audited(v.name + " with filters")
				b.shoot(v.name + "-filters")
				eval[any](b, `document.querySelector('.narrow').open = false`)
			}
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				for _, width := range []int64{1280, 390} {
					b.size(width, 900)
					what := fmt.Sprintf("%s-%d-%s", v.name, width, scheme)
					b.audited(what)
					b.shoot(what)
				}
			}
			b.size(320, 900) // what is left of a desk at 400 %
			if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 320 {
				t.Errorf("%s is %d wide in a window of 320", v.name, wide)
			}
			b.clean(v.name, v.except...)
		})
	}
}

// Without scripts every page has all of its content, and its forms work.
func TestWithoutScripts(t *testing.T) {
	w := begin(t)
	bare := func(v view) *tab {
		b := open(t, v.origin)
		b.scripts(false)
		b.size(390, 900)
		b.visit(v.path)
		return b
	}
	for _, v := range w.views() {
		b := bare(v)
		b.audited(v.name + " without scripts")
		if eval[bool](b, `[...document.querySelectorAll('button:not([hidden])')].some(e => !e.form && e.checkVisibility())`) {
			t.Errorf("%s: a button that needs a script is shown without one", v.name)
		}
		b.clean(v.name+" without scripts", v.except...)
	}
	b := bare(view{origin: w.b.origin, path: "/rooms/" + w.a.authority() + "/" + w.modbus.id})
	text := eval[string](b, `document.querySelector('main').innerText`)
	for _, want := range []string{"How should a Modbus client retry?", "late answer is taken", "Two retries, after silence", "同じ結果", "Adopt the proposal?", "witan verify http"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page of the room lacks %q", want)
		}
	}
	b.clean("without scripts")
}

// What people sent to break the page is shown as what it is. Nothing of it runs, loads, leads anywhere or covers anything.
func TestHostileText(t *testing.T) {
	w := begin(t)
	for _, v := range []view{{origin: w.a.origin, path: w.hostile.page()}, {origin: w.b.origin, path: "/rooms/" + w.a.authority() + "/" + w.hostile.id},
		{origin: w.b.origin, path: "/rooms?q=Zwischenraum"}, {origin: w.b.origin, path: "/rooms?q=%3Cscript%3Ewindow.pwned%3D1%3C%2Fscript%3E%E2%80%AE&tag=%22%3E%3Cscript%3E"}} {
		b, first := open(t, v.origin), v.path
		pages := 0
		for v.path != "" {
			pages++
			b.visit(v.path)
			if eval[bool](b, "window.pwned !== undefined") {
				t.Errorf("%s: a script of a stranger ran", v.path)
			}
			for _, f := range eval[[]string](b, `[...document.querySelectorAll('main script:not([type="application/json"]), main img, main iframe, main object, main form:not([role=search]), main style, main base, main svg a, main [onclick], main [onload], main [onerror], main .said-text [id]')].map(e => e.outerHTML.slice(0, 200))`) {
				t.Errorf("%s: %s", v.path, f)
			}
			for _, f := range eval[[]string](b, `[...document.querySelectorAll('main a[href]')].filter(e => !/^https?:$/.test(e.protocol) || new URL(e.href).origin !== location.origin && !/nofollow/.test(e.rel)).map(e => e.outerHTML.slice(0, 200))`) {
				t.Errorf("%s: a link %s", v.path, f)
			}
			// characters that turn or hide text are shown by their numbers
			for _, f := range eval[[]string](b, `[...document.body.innerText.matchAll(/.{0,20}[\u202a-\u202e\u2066-\u2069\u200b\ufeff\u001b]/g)].map(m => JSON.stringify(m[0]))`) {
				t.Errorf("%s: obeyed: %s", v.path, f)
			}
			v.path = eval[string](b, `(a => a ? a.getAttribute('href') : '')(document.querySelector('main .pager a[rel=next]'))`)
		}
		if strings.HasSuffix(first, w.hostile.id) && pages < 2 {
			t.Errorf("%s: all of it on %d page", first, pages)
		}
		b.clean(first)
	}
}

// A page says by its headers that it may do little, sets no cookie, and is not changed by who asks.
func TestHeaders(t *testing.T) {
	w := begin(t)
	for _, v := range w.views() {
		r, err := http.NewRequest("GET", v.origin+v.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Body.Close(); err != nil {
			t.Fatal(err)
		}
		policy := got.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy lacks %s: %q", v.name, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe-inline") || strings.Contains(policy, "'unsafe-eval'") || strings.Contains(policy, "http") || got.Header.Get("Set-Cookie") != "" ||
			got.Header.Get("X-Content-Type-Options") != "nosniff" || got.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", v.name, got.Header)
		}
	}
}

// No link of a page leads nowhere.
func TestLinks(t *testing.T) {
	w := begin(t)
	seen := map[string]string{}
	for _, v := range w.views() {
		if v.except != nil {
			continue
		}
		b := open(t, v.origin)
		b.visit(v.path)
		for _, u := range eval[[]string](b, `[...document.querySelectorAll('a[href], link[href]')].map(e => new URL(e.href)).filter(u => u.origin === location.origin).map(u => u.origin + u.pathname + u.search)`) {
			if seen[u] == "" {
				seen[u] = v.name
			}
		}
	}
	if len(seen) < 50 {
		t.Fatalf("only %d links", len(seen))
	}
	for u, from := range seen {
		r, err := http.Get(u)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode >= 400 {
			t.Errorf("%s leads to %s: status %d", from, u, r.StatusCode)
		}
	}
}
