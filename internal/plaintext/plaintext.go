// Package plaintext makes text that others wrote safe to show: what a terminal, a page or a reader would obey instead of showing
// is written as an escape. It changes nothing else, and it knows nothing of what the text means.
package plaintext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line makes one line of text: control characters, line ends, and the format characters that reorder or
// hide text (bidi controls, zero width space, tags) are written as escapes, so that a terminal does not obey them. The
// joiners that scripts and emoji need stay.
func Line(s string) string { return escape(s, Hidden) }

// Text is Line for text of more lines: line feeds and tabs stay.
func Text(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && r != '\t' && Hidden(r) })
}

// Short is Line of at most n characters.
func Short(s string, n int) string {
	s = Line(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Hidden tells whether a character does something instead of showing something.
func Hidden(r rune) bool {
	const zwnj, zwj = '\u200c', '\u200d'
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Cf, r) && r != zwnj && r != zwj
}

func escape(s string, hidden func(rune) bool) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
