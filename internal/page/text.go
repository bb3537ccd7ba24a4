package page

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/witan-adp/witan/internal/plaintext"
)

// maxMarks is how many combining marks may stand on one letter. Scripts need
// few; hundreds are there to paint over other lines.
const maxMarks = 6

// hidden tells of characters that change how the text around them is read
// without being seen, and of letters that are blank.
func hidden(r rune) bool {
	switch r {
	case '\n', '\t', utf8.RuneError:
		return false
	case 0x115f, 0x1160, 0x17b4, 0x17b5, 0x3164, 0xffa0:
		return true
	}
	return plaintext.Hidden(r)
}

// maxHidden is how many hidden characters of one text are shown by their numbers; a
// text of nothing else would make a page ten times as long as itself.
const maxHidden = 500

// visible writes hidden characters as ⟦U+202E⟧, so that they are seen and not
// obeyed, a row of them as ⟦U+202E ×20⟧, and those beyond maxHidden as U+FFFD. A
// line ends with a line feed alone.
func visible(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x7f || r < 0x20 }) {
		return s // nothing can be hidden in it
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	marks, told := 0, 0
	tell := func(r rune, times int) {
		switch told++; {
		case told > maxHidden:
			b.WriteRune(utf8.RuneError)
		case times > 1:
			fmt.Fprintf(&b, "⟦U+%04X ×%d⟧", r, times)
		default:
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
		}
	}
	var last rune // hidden, and not told yet
	row := 0
	for i, r := range s {
		if row > 0 && r != last {
			tell(last, row)
			row = 0
		}
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			b.WriteRune(utf8.RuneError)
		case r == '\r':
			b.WriteByte('\n')
		case hidden(r):
			last = r
			row++
		case unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks <= maxMarks {
				b.WriteRune(r)
			} else if marks == maxMarks+1 {
				tell(r, 1)
			}
			continue
		default:
			b.WriteRune(r)
		}
		marks = 0
	}
	if row > 0 {
		tell(last, row)
	}
	return b.String()
}

var shown = regexp.MustCompile(`⟦(U\+[0-9A-F]{4,6}(?: ×[0-9]{1,9})?)⟧`)

// dress gives what visible wrote its looks. h is HTML.
func dress(h string) string {
	if !strings.Contains(h, "⟦") {
		return h
	}
	return shown.ReplaceAllString(h, `<span class="ctl">$1</span>`)
}

// clip cuts a text to about n characters, at a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	count := 0
	for i := range s {
		if count == n {
			return strings.TrimRight(s[:i], " \n\t") + "…"
		}
		count++
	}
	return s
}

// oneLine is a text without line breaks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// isolated is a piece of foreign text in a line of ours: it cannot turn what
// stands around it.
func isolated(s string) template.HTML {
	return template.HTML(`<bdi>` + dress(template.HTMLEscapeString(visible(oneLine(s)))) + `</bdi>`)
}

// hits is a piece of foreign text with what a search was for in it: from, to, in
// code points.
func hits(text string, matches [][2]int) template.HTML {
	runes := []rune(text)
	var b strings.Builder
	write := func(part []rune) { b.WriteString(dress(template.HTMLEscapeString(visible(string(part))))) }
	at := 0
	for _, m := range matches {
		if m[0] < at || m[1] <= m[0] || m[1] > len(runes) {
			continue
		}
		write(runes[at:m[0]])
		b.WriteString("<mark>")
		write(runes[m[0]:m[1]])
		b.WriteString("</mark>")
		at = m[1]
	}
	write(runes[at:])
	return template.HTML(`<bdi>` + b.String() + `</bdi>`)
}

// maxParagraphs is how many paragraphs of one text are elements of their own.
const maxParagraphs = 300

// paragraphs is plain text of many lines. Each paragraph has its own direction, as
// long as there are not too many.
func paragraphs(s string) template.HTML {
	var b strings.Builder
	for _, part := range strings.SplitN(visible(s), "\n\n", maxParagraphs) {
		if part = strings.Trim(part, "\n"); strings.TrimSpace(part) == "" {
			continue
		}
		b.WriteString(`<p class="plain" dir="auto">`)
		b.WriteString(dress(template.HTMLEscapeString(part)))
		b.WriteString("</p>\n")
	}
	return template.HTML(b.String())
}
