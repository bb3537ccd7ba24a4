package index

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// between stands between two fields of a search text. It is no UTF-8, so that
// nothing that is searched for can span it.
const between = "\xff"

// searchText is what keyword sees (ADP §18: topic, agenda, tags), up to the
// length that is also returned, and behind it what only q sees.
func searchText(d *Doc) (text string, keywords int) {
	var b strings.Builder
	add := func(s string) {
		b.WriteString(fold(s))
		b.WriteString(between)
	}
	add(d.Topic)
	add(d.Agenda)
	for _, tag := range d.Tags {
		add(tag)
	}
	keywords = b.Len()
	add(d.Guidance)
	for _, title := range d.Titles {
		add(title)
	}
	return b.String(), keywords
}

// fold makes texts equal that differ only in case or in the way the same
// characters are encoded: NFKC of the full Unicode case folding.
func fold(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return strings.ToLower(s)
	}
	s = norm.NFKC.String(strings.ToValidUTF8(s, "\uFFFD"))
	return norm.NFKC.String(cases.Fold().String(s))
}

type class uint8

const (
	separator class = iota
	letter          // of a script that parts words: a word is searched as a whole
	glyph           // of a script that does not, or a symbol: searched as a substring
	mark            // belongs to what is before it
)

var unparted = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo,
	unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

const (
	prolonged = 'ー' // in Japanese words, but of no script by itself
	textStyle = '\uFE0E'
	iconStyle = '\uFE0F'
)

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' {
			return letter
		}
		return separator
	case r == utf8.RuneError || r == textStyle || r == iconStyle:
		return separator
	case unicode.Is(unicode.M, r):
		return mark
	case r == prolonged || unicode.IsOneOf(unparted, r) || unicode.Is(unicode.So, r):
		return glyph
	case unicode.IsLetter(r) || unicode.IsNumber(r):
		return letter
	}
	return separator
}

// word is one part of q, folded.
type word struct {
	text  string
	whole bool // stands by itself, not inside of a longer word
}

// wordsOf parts q where a reader would, and where a script begins that does not
// part its words.
func wordsOf(q string) []word {
	q = fold(q)
	var words []word
	from, kind := 0, separator
	end := func(at int) {
		if kind != separator {
			words = append(words, word{q[from:at], kind == letter})
		}
	}
	for i, r := range q {
		c := classOf(r)
		if c == mark {
			if kind != separator {
				continue
			}
			c = separator
		}
		if c != kind {
			end(i)
			from, kind = i, c
		}
	}
	end(len(q))
	return words
}

// in tells whether the word occurs in a search text.
func (w word) in(text string) bool {
	for from := 0; ; {
		at := strings.Index(text[from:], w.text)
		if at < 0 {
			return false
		}
		at += from
		// a whole word that began inside of this hit would have a letter before it
		from = at + len(w.text)
		if !w.whole || !endsInWord(text[:at]) && !startsInWord(text[from:]) {
			return true
		}
	}
}

func endsInWord(s string) bool {
	for len(s) > 0 {
		r, size := utf8.DecodeLastRuneInString(s)
		if c := classOf(r); c != mark {
			return c == letter
		}
		s = s[:len(s)-size] // what the mark belongs to decides
	}
	return false
}

func startsInWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	c := classOf(r)
	return c == letter || c == mark
}
