package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// snippetLen is how long a snippet is, in characters, and how many of them stand before
// the first match.
const (
	snippetLen  = 240
	snippetLead = 60
)

// maxMatches bounds the ranges of a snippet.
const maxMatches = 32

// Snippet cuts the part of a text out where words first occur. It is plain text: control
// characters, line ends included, stand as spaces, and what would change the direction of
// the text around it is left out. matches are the places of words in it, from and to, as
// numbers of code points, in order and apart.
func Snippet(s string, words []Word) (snippet string, matches [][2]int) {
	runes, folded, at := clusters(s)
	marked := make([]bool, len(runes))
	first := -1
	for _, w := range words {
		for from := 0; ; {
			i := w.Index(folded, from)
			if i < 0 {
				break
			}
			from = i + len(w.Text)
			begin, end := at[i], max(at[from], at[from-1]+1)
			for n := begin; n < end; n++ {
				marked[n] = true
			}
			if first < 0 || begin < first {
				first = begin
			}
		}
	}
	start := 0
	if first > snippetLead {
		start = first - snippetLead
		for i := start; i < first; i++ { // from the beginning of a word, if one is near
			if runes[i] == ' ' {
				start = i + 1
				break
			}
		}
	}
	end := min(len(runes), start+snippetLen)
	var b strings.Builder
	if start > 0 {
		b.WriteRune('…')
	}
	n := utf8.RuneCountInString(b.String())
	open := false
	for i := start; i < end; i++ {
		r := runes[i]
		if r == 0 {
			continue
		}
		switch {
		case marked[i] && !open && len(matches) < maxMatches:
			matches = append(matches, [2]int{n, n + 1})
			open = true
		case marked[i] && open:
			matches[len(matches)-1][1] = n + 1
		default:
			open = false
		}
		b.WriteRune(r)
		n++
	}
	if end < len(runes) {
		b.WriteRune('…')
	}
	if matches == nil {
		matches = [][2]int{}
	}
	return b.String(), matches
}

// clusters gives the characters of a text as they are shown (0 is not), the text
// folded, and for each byte of that, and for its end, the character that it came from.
// What belongs to one another is folded together.
func clusters(s string) (runes []rune, folded string, at []int) {
	var b strings.Builder
	all := []rune(strings.ToValidUTF8(s, "\uFFFD"))
	runes = make([]rune, len(all))
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && joins(all[end]) {
			end++
		}
		part := Fold(string(all[i:end]))
		b.WriteString(part)
		for range len(part) {
			at = append(at, i)
		}
		for ; i < end; i++ {
			runes[i] = shown(all[i])
		}
	}
	return runes, b.String(), append(at, len(all))
}

// joins tells whether a character may become one with what is before it: a mark, the
// voicing of half-width kana, a part of a syllable of Hangul.
func joins(r rune) bool {
	return unicode.Is(unicode.M, r) || !norm.NFKC.PropertiesString(string(r)).BoundaryBefore()
}

func shown(r rune) rune {
	switch {
	case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
		return ' '
	case unicode.Is(unicode.Bidi_Control, r) || r == '\uFEFF':
		return 0
	}
	return r
}
