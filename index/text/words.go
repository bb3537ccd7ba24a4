package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Between stands between two fields of a search text. It is no UTF-8, so that
// nothing that is searched for can span it.
const Between = "\xff"

// Fold makes texts equal that differ only in case or in the way the same
// characters are encoded: NFKC of the full Unicode case folding.
func Fold(s string) string {
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

// Unparted tells whether a character is of a script that does not part its words.
func Unparted(r rune) bool { return unicode.IsOneOf(unparted, r) }

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
	case r == prolonged || Unparted(r) || unicode.Is(unicode.So, r):
		return glyph
	case unicode.IsLetter(r) || unicode.IsNumber(r):
		return letter
	}
	return separator
}

// Word is one part of a query, folded.
type Word struct {
	Text  string
	Whole bool // stands by itself, not inside of a longer word
}

// Words parts a query where a reader would, and where a script begins that does not
// part its words.
func Words(q string) []Word {
	q = Fold(q)
	var words []Word
	each(q, func(from, to int, kind class) { words = append(words, Word{q[from:to], kind == letter}) })
	return words
}

// each gives the words of a text, folded or not, and of which class each is.
func each(text string, fn func(from, to int, kind class)) {
	from, kind := 0, separator
	end := func(at int) {
		if kind != separator {
			fn(from, at, kind)
		}
	}
	for i, r := range text {
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
	end(len(text))
}

// In tells whether the word occurs in a folded text.
func (w Word) In(text string) bool { return w.Index(text, 0) >= 0 }

// Index is where the word first occurs in a folded text from a place on, -1 when it
// does not.
func (w Word) Index(text string, from int) int {
	for {
		at := strings.Index(text[from:], w.Text)
		if at < 0 {
			return -1
		}
		at += from
		// a whole word that began inside of this hit would have a letter before it
		from = at + len(w.Text)
		if !w.Whole || !endsInWord(text[:at]) && !startsInWord(text[from:]) {
			return at
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

// maxTerm bounds a term of the text index, in bytes: longer words are found by their
// beginning, and judged by In like all others.
const maxTerm = 64

// Terms are what a folded text is found by in a Store: its words, and of scripts that
// do not part words each character and each pair of neighbours. In no order, each once.
func Terms(text string) []string {
	seen := map[string]struct{}{}
	each(text, func(from, to int, kind class) {
		run := text[from:to]
		if kind == letter {
			seen[term(run)] = struct{}{}
			return
		}
		grams(run, func(gram string) { seen[gram] = struct{}{} })
	})
	out := make([]string, 0, len(seen))
	for t := range seen {
		out = append(out, t)
	}
	return out
}

// Terms are those that a text has in which the word occurs; others may have them, too.
func (w Word) Terms() (terms []string) {
	if w.Whole {
		return []string{term(w.Text)}
	}
	if utf8.RuneCountInString(w.Text) == 1 {
		return []string{w.Text}
	}
	grams(w.Text, func(gram string) {
		if utf8.RuneCountInString(gram) == 2 {
			terms = append(terms, gram)
		}
	})
	return terms
}

func term(word string) string { return word[:min(len(word), maxTerm)] }

// grams gives each character of a run, and each pair of neighbours.
func grams(run string, fn func(string)) {
	last := -1
	for i, r := range run {
		end := i + utf8.RuneLen(r)
		fn(run[i:end])
		if last >= 0 {
			fn(run[last:end])
		}
		last = i
	}
}
