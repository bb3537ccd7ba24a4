//go:build !race

package browsertest

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// What may stand where, as far as these pages use it (HTML Living Standard, 4). Browsers forgive what is wrong and guess; a reader with another
// program should not depend on how it guesses.
var (
	void     = set("area base br col embed hr img input link meta source track wbr")
	block    = set("p div ul ol dl table h1 h2 h3 h4 h5 h6 section article aside header footer nav main form blockquote pre figure details hr address fieldset")
	phrasing = set("p h1 h2 h3 h4 h5 h6 pre span code em strong del q cite small label button summary time bdi mark b i sub sup abbr kbd samp var progress option title")
	control  = set("a button input select textarea label details summary")
	known    = set("html head body title meta link script br em strong del code span a q cite small label button input select option textarea summary time bdi mark progress li dt dd thead tbody tr th td caption figcaption svg path rect circle g use symbol title datalist noscript template")
	only     = map[string]map[string]bool{"ul": set("li script template"), "ol": set("li script template"), "dl": set("dt dd div script template"), "table": set("caption colgroup thead tbody tfoot tr"),
		"thead": set("tr"), "tbody": set("tr"), "tr": set("th td"), "select": set("option optgroup"), "html": set("head body")}
	within = map[string]map[string]bool{"li": set("ul ol menu"), "dt": set("dl div"), "dd": set("dl div"), "tr": set("thead tbody tfoot table"), "td": set("tr"), "th": set("tr"), "thead": set("table"), "tbody": set("table"),
		"option": set("select datalist optgroup"), "figcaption": set("figure"), "summary": set("details"), "caption": set("table")}
	once = set("main header footer") // none of these in another of them
)

// quoted is the value of an attribute.
var quoted = regexp.MustCompile(`=\s*("[^"]*"|'[^']*'|[^\s"'>]+)`)

func set(words string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		out[w] = true
	}
	return out
}

// misnested lists what is wrong with the nesting of a document, or of a piece of one.
func misnested(text string, whole bool) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	z := html.NewTokenizer(strings.NewReader(text))
	var open []string
	children := []int{0} // elements so far, of each that is open
	parent := func() string {
		if len(open) == 0 {
			return ""
		}
		return open[len(open)-1]
	}
	for n := 0; ; n++ {
		kind := z.Next()
		raw := string(z.Raw()) // which Token overwrites
		tok := z.Token()
		name := tok.Data
		switch kind {
		case html.ErrorToken:
			if z.Err() != io.EOF {
				add("%v", z.Err())
			}
			if len(open) > 0 {
				add("never closed: %s", strings.Join(open, " > "))
			}
			return faults
		case html.DoctypeToken:
			if n > 0 || !strings.EqualFold(name, "html") {
				add("doctype %q at token %d", name, n)
			}
		case html.TextToken:
			if rules := only[parent()]; rules != nil && strings.TrimSpace(name) != "" {
				add("text in <%s>: %.60q", parent(), name)
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			if whole && n == 0 {
				add("no doctype")
			}
			svg := slices.Contains(open, "svg")
			if !known[name] && !block[name] && !void[name] {
				add("an unknown element <%s>", name)
			}
			seen := map[string]bool{}
			for _, a := range strings.Fields(quoted.ReplaceAllString(strings.TrimRight(raw, "/>"), "")) { // the tokenizer keeps the first only
				if seen[a] {
					add("<%s> has %s twice", name, a)
				}
				seen[a] = true
			}
			for _, a := range tok.Attr {
				if a.Key == "id" && (a.Val == "" || strings.ContainsAny(a.Val, " \t\n")) {
					add("<%s> has the id %q", name, a.Val)
				}
			}
			if rules := only[parent()]; rules != nil && !rules[name] {
				add("<%s> in <%s>", name, parent())
			}
			if rules := within[name]; rules != nil && !rules[parent()] {
				add("<%s> in <%s>", name, parent())
			}
			if name == "summary" && children[len(children)-1] > 0 {
				add("<summary> is not the first of <details>")
			}
			for i := len(open) - 1; i >= 0 && !svg; i-- {
				if block[name] && phrasing[open[i]] && !(open[i] == "summary" && strings.HasPrefix(name, "h")) {
					add("<%s> in <%s>", name, open[i])
				}
				if control[name] && (open[i] == "a" || open[i] == "button" || open[i] == "summary") {
					add("<%s> in <%s>", name, open[i])
				}
				if once[name] && (open[i] == name || name == "main" && open[i] != "body" && open[i] != "html") {
					add("<%s> in <%s>", name, open[i])
				}
			}
			children[len(children)-1]++
			if kind == html.SelfClosingTagToken && !svg && !void[name] {
				add("<%s/> is not closed by its slash", name)
			}
			if kind == html.StartTagToken && !void[name] {
				open, children = append(open, name), append(children, 0)
			}
		case html.EndTagToken:
			switch {
			case void[name]:
				add("</%s>, which has no end", name)
			case parent() != name:
				add("</%s> where <%s> is open (%s)", name, parent(), strings.Join(open, " > "))
				if i := slices.Index(open, name); i >= 0 {
					open, children = open[:i], children[:i+1]
				}
			default:
				open, children = open[:len(open)-1], children[:len(children)-1]
			}
		}
	}
}

// The check itself finds what is planted.
func TestMisnested(t *testing.T) {
	frame := "<!doctype html><html><head><title>x</title></head><body><main>%s</main></body></html>"
	if f := misnested(fmt.Sprintf(frame, `<h2>a <em>b</em></h2><ul><li><p>x<br>y</p></li></ul><dl><div><dt>a</dt><dd><p>b</p></dd></div></dl><svg><path d=""/></svg><details><summary>a</summary><p>b</p></details>`), true); f != nil {
		t.Errorf("a sound page: %q", f)
	}
	for _, fault := range []string{`<p><div>x</div></p>`, `<ul><p>x</p></ul>`, `<b>x</i></b>`, `<p>x`, `<a href="/"><button>x</button></a>`, `<ul>text</ul>`, `<li>x</li>`, `<p id="a" id="b">x</p>`, `<blink>x</blink>`, `<div/>`, `</br>`,
		`<details><p>x</p><summary>a</summary></details>`, `<p id="a b">x</p>`, `<span><h3>x</h3></span>`, `<table><td>x</td></table>`, `<header><header>x</header></header>`, `<p><a href="/"><ul><li>x</li></ul></a></p>`} {
		if misnested(fmt.Sprintf(frame, fault), true) == nil {
			t.Errorf("not found: %s", fault)
		}
	}
	if misnested("<html></html>", true) == nil {
		t.Error("a page without a doctype")
	}
}

// Every page is valid as it is sent, and so is what a live page gets.
func TestValid(t *testing.T) {
	w := begin(t)
	pages := w.views()
	pages = append(pages, view{name: "fragment", origin: w.a.origin, path: w.live.page() + "?after=0&fragment=1"},
		view{name: "hostile fragment", origin: w.a.origin, path: w.hostile.page() + "?after=0&fragment=1"})
	for _, v := range pages {
		r, err := http.NewRequest("GET", v.origin+v.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if len(body) < 300 {
			t.Errorf("%s: only %q", v.name, body)
		}
		for _, f := range misnested(string(body), !strings.Contains(v.path, "fragment=1")) {
			t.Errorf("%s: %s", v.name, f)
		}
	}
}
