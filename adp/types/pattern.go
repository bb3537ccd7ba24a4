package types

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxPatternSize bounds the compiled size of one pattern, repeats unrolled.
	maxPatternSize = 1000
	// maxPatternNesting bounds groups in groups.
	maxPatternNesting = 64
)

// pattern is an I-Regexp (RFC 9485) with optional ^ and $ and without \p and a
// bare dot, on Go's linear-time engine. As in JSON Schema it matches anywhere
// in a text unless anchored. It implements jsonschema.Regexp.
type pattern struct {
	text string
	re   *regexp.Regexp
	size int // instructions, about: one byte of text costs at most this many steps
}

func (p *pattern) String() string            { return p.text }
func (p *pattern) MatchString(s string) bool { return p.re.MatchString(s) }

// compilePattern parses the text by the grammar of RFC 9485 and writes a Go
// expression that means the same, so that no Go-only syntax slips through.
func compilePattern(text string) (*pattern, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("pattern %.80q: not valid UTF-8", text)
	}
	p := patternParser{in: text}
	if strings.HasPrefix(text, "^") {
		p.out.WriteString(`\A`)
		p.pos = 1
	}
	anchored := strings.HasSuffix(text, "$")
	if anchored {
		p.in = text[:len(text)-1]
	}
	// An anchor binds to the branch it stands in, as it does in ECMA-262.
	size, err := p.branches(0)
	if err != nil {
		return nil, fmt.Errorf("pattern %.80q: %w", text, err)
	}
	if p.pos != len(p.in) {
		return nil, fmt.Errorf("pattern %.80q: ) without ( at byte %d", text, p.pos)
	}
	if anchored {
		p.out.WriteString(`\z`)
	}
	re, err := regexp.Compile(p.out.String())
	if err != nil {
		return nil, fmt.Errorf("pattern %.80q: too large", text)
	}
	return &pattern{text: text, re: re, size: size + 2}, nil
}

type patternParser struct {
	in  string
	pos int
	out strings.Builder
}

func (p *patternParser) peek() (r rune, n int) {
	if p.pos >= len(p.in) {
		return -1, 0
	}
	return utf8.DecodeRuneInString(p.in[p.pos:])
}

func (p *patternParser) fail(format string, args ...any) error {
	return fmt.Errorf(format+fmt.Sprintf(" at byte %d", p.pos), args...)
}

// branches reads i-regexp: branches divided by |.
func (p *patternParser) branches(depth int) (size int, err error) {
	if depth > maxPatternNesting {
		return 0, p.fail("groups nested too deeply")
	}
	for {
		n, err := p.branch(depth)
		if err != nil {
			return 0, err
		}
		if size += n + 1; size > maxPatternSize {
			return 0, errPatternSize
		}
		if r, _ := p.peek(); r != '|' {
			return size, nil
		}
		p.pos++
		p.out.WriteByte('|')
	}
}

var errPatternSize = fmt.Errorf("its repeats unroll to more than %d steps; use smaller counts, or minLength and maxLength", maxPatternSize)

// branch reads pieces until | or ) or the end.
func (p *patternParser) branch(depth int) (size int, err error) {
	for {
		r, _ := p.peek()
		if r < 0 || r == '|' || r == ')' {
			return size, nil
		}
		n, err := p.atom(depth)
		if err != nil {
			return 0, err
		}
		if n, err = p.quantifier(n); err != nil {
			return 0, err
		}
		if size += n; size > maxPatternSize {
			return 0, errPatternSize
		}
	}
}

func (p *patternParser) atom(depth int) (size int, err error) {
	r, n := p.peek()
	switch r {
	case '(':
		p.pos++
		p.out.WriteString("(?:")
		size, err := p.branches(depth + 1)
		if err != nil {
			return 0, err
		}
		if r, _ := p.peek(); r != ')' {
			return 0, p.fail("( without )")
		}
		p.pos++
		p.out.WriteByte(')')
		return size, nil
	case '[':
		return 1, p.class()
	case '\\':
		r, err := p.escape()
		if err != nil {
			return 0, err
		}
		p.literal(r)
		return 1, nil
	case '.':
		return 0, p.fail(`a bare dot, which engines read differently: write [^\n\r]`)
	case '^', '$':
		return 0, p.fail("%c inside: it may only stand at the very start or end; write [%c] for the character itself", r, r)
	case '*', '+', '?', '{', '}', ']':
		return 0, p.fail("%c where nothing precedes it that it could apply to", r)
	}
	p.pos += n
	p.literal(r)
	return 1, nil
}

func (p *patternParser) literal(r rune) { fmt.Fprintf(&p.out, `\x{%X}`, r) }

// escape reads SingleCharEsc.
func (p *patternParser) escape() (rune, error) {
	p.pos++
	r, n := p.peek()
	switch r {
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case '(', ')', '*', '+', '-', '.', '?', '[', '\\', ']', '^', '{', '|', '}':
	default:
		return 0, p.fail(`an escape that is not in I-Regexp (RFC 9485): spell classes out, as [0-9] for \d`)
	}
	p.pos += n
	return r, nil
}

// class reads charClassExpr.
func (p *patternParser) class() error {
	p.pos++
	p.out.WriteByte('[')
	if r, _ := p.peek(); r == '^' {
		p.pos++
		p.out.WriteByte('^')
	}
	for first := true; ; first = false {
		r, _ := p.peek()
		if r == ']' && !first {
			p.pos++
			p.out.WriteByte(']')
			return nil
		}
		if r == '-' && (first || strings.HasPrefix(p.in[p.pos+1:], "]")) {
			p.pos++
			p.literal('-')
			continue
		}
		lo, err := p.classChar()
		if err != nil {
			return err
		}
		p.literal(lo)
		if r, _ := p.peek(); r != '-' || strings.HasPrefix(p.in[p.pos+1:], "]") {
			continue
		}
		p.pos++
		hi, err := p.classChar()
		if err != nil {
			return err
		}
		if hi < lo {
			return p.fail("a class range that runs backwards")
		}
		p.out.WriteByte('-')
		p.literal(hi)
	}
}

func (p *patternParser) classChar() (rune, error) {
	r, n := p.peek()
	switch r {
	case -1:
		return 0, p.fail("[ without ]")
	case '\\':
		return p.escape()
	case '[', ']', '-':
		return 0, p.fail(`%c in a class needs a backslash`, r)
	}
	p.pos += n
	return r, nil
}

// quantifier reads what may follow an atom of the given size.
func (p *patternParser) quantifier(size int) (int, error) {
	r, _ := p.peek()
	switch r {
	case '*', '+', '?':
		p.pos++
		p.out.WriteByte(byte(r))
		return size + 1, nil
	case '{':
	default:
		return size, nil
	}
	p.pos++
	low, err := p.count()
	if err != nil {
		return 0, err
	}
	high := low
	text := fmt.Sprintf("{%d}", low)
	if r, _ := p.peek(); r == ',' {
		p.pos++
		if r, _ := p.peek(); r == '}' {
			text, high = fmt.Sprintf("{%d,}", low), low+1
		} else {
			if high, err = p.count(); err != nil {
				return 0, err
			}
			if high < low {
				return 0, p.fail("a repeat whose bounds run backwards")
			}
			text = fmt.Sprintf("{%d,%d}", low, high)
		}
	}
	if r, _ := p.peek(); r != '}' {
		return 0, p.fail("a repeat that does not end in }")
	}
	p.pos++
	// what may be left out still costs a step; an atom repeated no times costs one
	if size = max(size*high, 1); size > maxPatternSize {
		return 0, errPatternSize
	}
	p.out.WriteString(text)
	return size, nil
}

func (p *patternParser) count() (n int, err error) {
	from := p.pos
	for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
		if n = n*10 + int(p.in[p.pos]-'0'); n > maxPatternSize {
			return 0, errPatternSize
		}
		p.pos++
	}
	if p.pos == from {
		return 0, p.fail("a repeat without a count")
	}
	return n, nil
}
