//go:build !race

package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// sound is a page without a fault; each %s is a place for one.
const sound = `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Sound</title>
<link rel="stylesheet" href="/style.css"></head><body><a class="skip" href="#main">Skip</a><header><nav aria-label="Pages"><ul><li><a href="/">Home</a></li></ul></nav></header>
<main id="main"><h1>Heading</h1><p>Text with <a href="/x">a link</a> in it.</p>%s</main><footer><p>Foot</p></footer></body></html>`

// The audit itself: every planted fault is found, and a sound page has none.
func TestAudit(t *testing.T) {
	begin(t)
	body := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/style.css" {
			w.Header().Set("Content-Type", "text/css")
			fmt.Fprint(w, `body { background: #fff; color: #222 } .faint { color: #999 } .veiled { opacity: .4 } .wide { width: 3000px } .row a { display: inline-block; width: 10px; height: 10px; overflow: hidden }
				.scroll { overflow-x: auto; width: 100px } .picture { background-image: linear-gradient(red, blue) } input { border: 1px solid #ddd } .tiny { font-size: 8px } .away { position: absolute; left: -9999px }`)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	b := open(t, s.URL)
	look := func(page string) []string {
		body = page
		b.visit("/")
		return eval[[]string](b, audit)
	}
	if found := look(fmt.Sprintf(sound, `<h2>Next</h2><section aria-labelledby="s"><h3 id="s">Part</h3><p><button>Press</button></p></section><table><tr><th>A</th></tr><tr><td>1</td></tr></table><svg aria-hidden="true"></svg>`)); len(found) > 0 {
		t.Errorf("a sound page has faults: %q", found)
	}
	for fault, want := range map[string]string{
		`<h1>Second</h1>`:     "2 headings of level 1",
		`<h4>Deep</h4>`:       "a heading of level 4 follows",
		`<h2></h2>`:           "an empty heading",
		`<p id="main">x</p>`:  "id twice",
		`<img src="/x.png">`:  "an image without alt",
		`<svg></svg>`:         "a drawing without a name",
		`<p><input></p>`:      "no name",
		`<p><a href="/"></a>`: "no name",
		`<p><button><span aria-hidden="true">x</span></button></p>`:  "no name",
		`<p class="faint">pale</p>`:                                  "text has a contrast of 2.85",
		`<p class="veiled">behind a veil</p>`:                        "text has a contrast",
		`<p class="picture">on a picture</p>`:                        "text on a picture",
		`<p><label for="f">F</label><input id="f"></p>`:              "the edge of a field",
		`<p class="tiny">small</p>`:                                  "text of 8px",
		`<p class="wide">wide</p>`:                                   "the page is",
		`<p class="row"><a href="/a">a</a><a href="/b">b</a></p>`:    "near another",
		`<pre class="scroll">` + strings.Repeat("x", 200) + `</pre>`: "scrolls sideways",
		`<p onclick="x()">x</p>`:                                     "an event handler",
		`<p style="color:red">x</p>`:                                 "a style attribute",
		`<script>1</script>`:                                         "an inline script",
		`<iframe title="x"></iframe>`:                                "an element that no page",
		`<p><a href="javascript:x()">x</a></p>`:                      "href is javascript",
		`<p aria-labelledby="nobody">x</p>`:                          "which is not there",
		`<p><a href="#nowhere">x</a></p>`:                            "which is not there",
		`<p tabindex="3">x</p>`:                                      "a tabindex above 0",
		`<nav aria-label="Pages"><a href="/">x</a></nav>`:            "two landmarks of one name",
		`<aside>a</aside><aside>b</aside>`:                           "a landmark without a name",
		`<ul><p>x</p></ul>`:                                          "in a list, but no item",
		`<dl><p>x</p></dl>`:                                          "in a list of terms",
		`<table><tr><td>1</td></tr></table>`:                         "a table without headers",
		`<div role="carousel">x</div>`:                               "an unknown role",
		`<div aria-hidden="true"><a href="/">x</a></div>`:            "hidden from readers",
		`<time>now</time>`:                                           "a time without datetime",
		`<div class="said-text"><p>see <a href="https://other.example/">there</a> now</p></div>`: "a foreign link without rel",
		`<details><summary>x <a href="/">y</a></summary></details>`:                              "a control inside a control",
	} {
		if found := look(fmt.Sprintf(sound, fault)); !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("%s: found %q, want %q", fault, found, want)
		}
	}
	for change, want := range map[[2]string]string{
		{` lang="en"`, ""}:                            "no lang",
		{"<title>Sound</title>", ""}:                  "no title",
		{"main id=\"main\"", "div id=\"main\""}:       "0 main",
		{"initial-scale=1", "user-scalable=no"}:       "cannot be zoomed",
		{`<a class="skip" href="#main">Skip</a>`, ""}: "does not skip",
		{"<footer>", "<div>"}:                         "0 footers",
		{"<header>", "<div>"}:                         "0 banners",
	} {
		if found := look(strings.Replace(fmt.Sprintf(sound, ""), change[0], change[1], 1)); !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("%q: found %q, want %q", change, found, want)
		}
	}
}

// What a page may not do is noticed: errors on the console, exceptions, requests to others, violations of the policy.
func TestFaultsAreHeard(t *testing.T) {
	begin(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/x.js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `console.error("of the console"); setTimeout(() => { window.done = true; throw new Error("thrown"); })`)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "script-src 'self'")
		fmt.Fprint(w, `<!doctype html><script src="/x.js"></script><script>inline()</script><img src="http://127.0.0.2:1/pixel.gif">`)
	}))
	defer s.Close()
	b := open(t, s.URL)
	b.visit("/")
	b.wait("the script", "window.done")
	for _, want := range []string{"of the console", "thrown", "a request to http://127.0.0.2:1/pixel.gif", "Content Security Policy"} {
		if err := until(want, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return strings.Contains(strings.Join(b.faults, "\n"), want)
		}); err != nil {
			t.Errorf("%v: %q", err, b.faults)
		}
	}
}
