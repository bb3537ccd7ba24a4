package page

import (
	"bytes"
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/bidi"
)

// Bounds on Markdown. What is beyond them is shown as plain text: nobody writes
// so for readers, and some of it costs more than it is long.
const (
	maxMarkdown = 32 << 10 // bytes
	maxNesting  = 24       // quotes and lists in one line
	maxBrackets = 2000     // of each kind of character that may open something
	maxLines    = 2000     // each may be an element
)

// linkRel goes on every link that somebody else wrote.
const linkRel = "nofollow noopener noreferrer ugc"

// markdown renders what an agent wrote. Three walls stand one behind another: the
// renderer writes no HTML of the author's and no link but http, https and mailto;
// bluemonday lets through only what the renderer may write; the policy of the page
// runs no script and loads no picture from elsewhere.
func markdown(s string) template.HTML {
	s = visible(s)
	if costly(s) {
		return paragraphs(s)
	}
	var out bytes.Buffer
	if err := marks.Convert([]byte(s), &out); err != nil {
		return paragraphs(s) // it renders into memory: only a fault of the renderer ends here, and plain text is all of it
	}
	// entities have become what they stand for: hidden characters are looked for again
	return template.HTML(dress(visible(string(policy.SanitizeBytes(out.Bytes())))))
}

// costly tells of texts that a parser of Markdown may take long for.
func costly(s string) bool {
	if len(s) > maxMarkdown {
		return true
	}
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	if counts['\n'] > maxLines {
		return true
	}
	for _, c := range []byte("[]()<>*_`~!&\\|") {
		if counts[c] > maxBrackets {
			return true
		}
	}
	for line := range strings.SplitSeq(s, "\n") {
		if nesting(line) > maxNesting {
			return true
		}
	}
	return false
}

// nesting counts what opens blocks at the beginning of a line, and how deep it is
// indented, which is how lists nest. A rule, such as -----, opens nothing.
func nesting(line string) (n int) {
	spaces, rule := 0, true
	for i := range len(line) {
		switch c := line[i]; {
		case c == ' ':
			if spaces++; spaces%2 == 0 {
				n++
			}
		case c == '\t':
			n += 2
		case c == '-' || c == '+' || c == '*':
			n++
		case c == '>' || c == '.' || c == ')':
			rule = false
			n++
		case c >= '0' && c <= '9':
			rule = false
		default:
			return n
		}
	}
	if rule {
		return 0
	}
	return n
}

var marks = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(directions{}, 100))),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(writer{}, 10))),
)

// directions gives each block the direction of its own text.
type directions struct{}

// Transform implements parser.ASTTransformer.
func (directions) Transform(doc *ast.Document, source text.Reader, _ parser.Context) {
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			switch n.Kind() {
			case ast.KindParagraph, ast.KindHeading, ast.KindListItem, east.KindTableCell:
				n.SetAttributeString("dir", []byte("auto"))
			case ast.KindList, ast.KindBlockquote, east.KindTable: // "auto" would not look into the blocks within
				n.SetAttributeString("dir", firstDirection(n, source.Source()))
			}
		}
		return ast.WalkContinue, nil
	})
}

// firstDirection is that of the first letter in a block: what is drawn beside or around the text follows it.
func firstDirection(n ast.Node, source []byte) []byte {
	found := []byte("ltr")
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		t, ok := n.(*ast.Text)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		for _, r := range string(t.Segment.Value(source)) {
			switch p, _ := bidi.LookupRune(r); p.Class() {
			case bidi.L:
				return ast.WalkStop, nil
			case bidi.R, bidi.AL:
				found = []byte("rtl")
				return ast.WalkStop, nil
			}
		}
		return ast.WalkContinue, nil
	})
	return found
}

// writer writes the nodes that carry addresses or HTML, and headings, which
// belong below those of the page.
type writer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (writer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindLink, writeLink)
	r.Register(ast.KindImage, writeImage)
	r.Register(ast.KindAutoLink, writeAutoLink)
	r.Register(ast.KindRawHTML, writeRawHTML)
	r.Register(ast.KindHTMLBlock, writeHTMLBlock)
	r.Register(ast.KindHeading, writeHeading)
	r.Register(ast.KindCodeBlock, writeCode)
	r.Register(ast.KindFencedCodeBlock, writeCode)
}

func writeLink(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	openOrClose(w, string(n.(*ast.Link).Destination), "", entering)
	return ast.WalkContinue, nil
}

// writeImage writes a link to the picture: nothing is loaded from elsewhere.
func writeImage(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering && n.FirstChild() == nil {
		openOrClose(w, string(n.(*ast.Image).Destination), "img", true)
		_, _ = w.WriteString(template.HTMLEscapeString(t("markdown.image")))
		return ast.WalkContinue, nil
	}
	openOrClose(w, string(n.(*ast.Image).Destination), "img", entering)
	return ast.WalkContinue, nil
}

func openOrClose(w util.BufWriter, dest, class string, entering bool) {
	href, host, ok := destination(dest)
	switch {
	case ok && entering:
		_, _ = w.WriteString(`<a href="` + template.HTMLEscapeString(href) + `" rel="` + linkRel + `"`)
		if class != "" {
			_, _ = w.WriteString(` class="` + class + `"`)
		}
		_, _ = w.WriteString(">")
	case ok:
		_, _ = w.WriteString(`</a> <span class="dest">` + template.HTMLEscapeString(host) + `</span>`)
	case entering:
		_, _ = w.WriteString(`<span class="nolink">`)
	default:
		_, _ = w.WriteString(`</span> <code>` + template.HTMLEscapeString(clip(dest, 120)) + `</code>`)
	}
}

func writeAutoLink(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	link := n.(*ast.AutoLink)
	label, dest := string(link.Label(source)), string(link.URL(source))
	if link.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(dest), "mailto:") {
		dest = "mailto:" + dest
	}
	_, _ = w.WriteString(string(addressLink(label, dest)))
	return ast.WalkContinue, nil
}

// addressLink is a link whose text is an address. The host behind it is written out
// where the text may look like another one.
func addressLink(label, dest string) template.HTML {
	text := template.HTMLEscapeString(label)
	href, host, ok := destination(dest)
	if !ok {
		return template.HTML(`<span class="nolink">` + text + `</span>`)
	}
	out := `<a href="` + template.HTMLEscapeString(href) + `" rel="` + linkRel + `">` + text + `</a>`
	if !strings.Contains(label, host) {
		out += ` <span class="dest">` + template.HTMLEscapeString(host) + `</span>`
	}
	return template.HTML(out)
}

// hostNames brings names of hosts to the form in which they are looked up, and
// refuses what is none.
var hostNames = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true))

// destination judges where a link leads: its address as it may stand in a page,
// and the host as machines read it, so that letters that only look like others do
// not pass for them (punycode). No other scheme than http, https and mailto leads
// anywhere.
func destination(dest string) (href, host string, ok bool) {
	if strings.Contains(dest, "⟦") || len(dest) > 4096 {
		return "", "", false
	}
	u, err := url.Parse(dest)
	if err != nil {
		return "", "", false
	}
	switch u.Scheme = strings.ToLower(u.Scheme); {
	case u.Scheme == "mailto" && u.Opaque != "":
		_, domain, _ := strings.Cut(u.Opaque, "@")
		if domain, _, _ = strings.Cut(domain, "?"); domain == "" {
			return "", "", false
		}
		name, err := hostNames.ToASCII(domain)
		return u.String(), name, err == nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil: // user@host is made to look like a host
		return "", "", false
	}
	name := u.Hostname()
	if !strings.Contains(name, ":") { // no IPv6 address
		if name, err = hostNames.ToASCII(name); err != nil || name == "" {
			return "", "", false
		}
		if port := u.Port(); port != "" {
			name += ":" + port
		}
		u.Host = name
	}
	return u.String(), u.Host, true
}

// writeRawHTML shows HTML as the text that it is.
func writeRawHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<code>" + template.HTMLEscapeString(string(n.(*ast.RawHTML).Segments.Value(source))) + "</code>")
	}
	return ast.WalkSkipChildren, nil
}

func writeHTMLBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	block := n.(*ast.HTMLBlock)
	if entering {
		_, _ = w.WriteString(`<pre tabindex="0"><code>` + template.HTMLEscapeString(string(block.Lines().Value(source))))
		return ast.WalkContinue, nil
	}
	if block.HasClosure() {
		_, _ = w.WriteString(template.HTMLEscapeString(string(block.ClosureLine.Value(source))))
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkContinue, nil
}

func writeHeading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	level := []string{"h4", "h5", "h6"}[min(n.(*ast.Heading).Level-1, 2)]
	if entering {
		_, _ = w.WriteString("<" + level + ` dir="auto">`)
	} else {
		_, _ = w.WriteString("</" + level + ">\n")
	}
	return ast.WalkContinue, nil
}

// writeCode writes a block that the keyboard can scroll.
func writeCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<pre tabindex="0"><code>` + template.HTMLEscapeString(string(n.Lines().Value(source))))
	} else {
		_, _ = w.WriteString("</code></pre>\n")
	}
	return ast.WalkContinue, nil
}

// policy lets through what the renderer above writes and nothing else.
var policy = func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "em", "strong", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h4", "h5", "h6",
		"table", "thead", "tbody", "tr", "th", "td", "span")
	p.AllowAttrs("dir").Matching(regexp.MustCompile(`^auto$`)).OnElements("p", "h4", "h5", "h6", "li", "th", "td")
	p.AllowAttrs("dir").Matching(regexp.MustCompile(`^(ltr|rtl)$`)).OnElements("ul", "ol", "blockquote", "table")
	p.AllowAttrs("start").Matching(regexp.MustCompile(`^[0-9]{1,9}$`)).OnElements("ol")
	p.AllowAttrs("tabindex").Matching(regexp.MustCompile(`^0$`)).OnElements("pre")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^(dest|nolink)$`)).OnElements("span")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^img$`)).OnElements("a")
	p.AllowAttrs("href").OnElements("a")
	p.AllowAttrs("rel").Matching(regexp.MustCompile(`^` + linkRel + `$`)).OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	return p
}()
