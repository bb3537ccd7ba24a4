package adp

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of a signed text (Identity, JSON).
const MaxDepth = 64

// MaxInt is the greatest integer that every JSON reader keeps: 2^53-1.
const MaxInt = 1<<53 - 1

// Kind says what a Value is.
type Kind uint8

// The kinds of a Value. Absent is the zero Value: a member that is not there.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

const (
	flagCanonical = 1 << iota // the text of this value is its JCS form
	flagEscaped               // a string with at least one escape
	flagTrue
)

// node is one value of a scanned text. Children follow their parent; a member
// is two nodes, the name and the value. next is the index behind the subtree.
type node struct {
	kind       Kind
	flags      uint8
	start, end uint32
	next       uint32
	count      uint32 // elements or members
}

type doc struct {
	src   []byte
	nodes []node
}

// SyntaxError says where a text stops being acceptable JSON, and why.
type SyntaxError struct {
	Offset int
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not acceptable JSON at byte %d: %s", e.Offset, e.Reason)
}

// Scan reads one JSON text as I-JSON, strictly (Identity, JSON: strict in): no
// duplicate names, no unpaired surrogates or invalid UTF-8, no number that is
// an integer outside ±(2^53-1) or not finite, nothing behind the value, no
// nesting deeper than MaxDepth. The Value keeps b, which must not change.
func Scan(b []byte) (Value, error) { return ScanDepth(b, MaxDepth) }

// ScanDepth is Scan with another bound on nesting, for texts that wrap signed
// ones (a record, a page of records).
func ScanDepth(b []byte, depth int) (Value, error) { return scan(b, depth, 16+len(b)/24) }

// scan expects a number of nodes, and makes room for more as they come.
func scan(b []byte, depth, expected int) (Value, error) {
	if len(b) > math.MaxUint32-1 {
		return Value{}, &SyntaxError{0, "longer than 4 GiB"}
	}
	s := &scanner{doc: doc{b, make([]node, 0, expected)}, depth: depth}
	s.space()
	if _, err := s.value(); err != nil {
		return Value{}, err
	}
	s.space()
	if s.pos != len(b) {
		return Value{}, s.fail("something follows the value")
	}
	return Value{&s.doc, 0}, nil
}

type scanner struct {
	doc
	pos   int
	depth int
}

func (s *scanner) fail(reason string) error { return &SyntaxError{s.pos, reason} }

// space skips white space and tells whether there was any.
func (s *scanner) space() bool {
	from := s.pos
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return s.pos > from
		}
	}
	return s.pos > from
}

// value scans one value and tells whether its text is canonical.
func (s *scanner) value() (canonical bool, err error) {
	if s.pos >= len(s.src) {
		return false, s.fail("the text ends where a value should be")
	}
	i := len(s.nodes)
	if i == cap(s.nodes) {
		s.nodes = slices.Grow(s.nodes, i+1) // append alone grows by a quarter and copies more
	}
	s.nodes = append(s.nodes, node{start: uint32(s.pos)})
	var kind Kind
	var flags uint8
	var count uint32
	switch c := s.src[s.pos]; c {
	case '{':
		kind = Object
		canonical, count, err = s.object()
	case '[':
		kind = Array
		canonical, count, err = s.array()
	case '"':
		kind = String
		var escaped bool
		canonical, escaped, err = s.str()
		if escaped {
			flags |= flagEscaped
		}
	case 't':
		kind, canonical, flags, err = Bool, true, flagTrue, s.literal("true")
	case 'f':
		kind, canonical, err = Bool, true, s.literal("false")
	case 'n':
		kind, canonical, err = Null, true, s.literal("null")
	default:
		if c != '-' && (c < '0' || c > '9') {
			return false, s.fail("no value starts like this")
		}
		kind = Number
		canonical, err = s.number()
	}
	if err != nil {
		return false, err
	}
	if canonical {
		flags |= flagCanonical
	}
	n := &s.nodes[i]
	n.kind, n.flags, n.count = kind, flags, count
	n.end, n.next = uint32(s.pos), uint32(len(s.nodes))
	return canonical, nil
}

func (s *scanner) literal(word string) error {
	if len(s.src)-s.pos < len(word) || string(s.src[s.pos:s.pos+len(word)]) != word {
		return s.fail("no value starts like this")
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) enter() error {
	if s.depth--; s.depth < 0 {
		return s.fail("nested too deeply")
	}
	s.pos++
	return nil
}

func (s *scanner) array() (canonical bool, count uint32, err error) {
	if err := s.enter(); err != nil {
		return false, 0, err
	}
	canonical = true
	for {
		if s.space() {
			canonical = false
		}
		if count == 0 && s.pos < len(s.src) && s.src[s.pos] == ']' {
			break
		}
		ok, err := s.value()
		if err != nil {
			return false, 0, err
		}
		canonical = canonical && ok
		count++
		if s.space() {
			canonical = false
		}
		if s.pos >= len(s.src) {
			return false, 0, s.fail("the text ends inside an array")
		}
		if s.src[s.pos] == ']' {
			break
		}
		if s.src[s.pos] != ',' {
			return false, 0, s.fail("a comma or ] should be here")
		}
		s.pos++
	}
	s.pos++
	s.depth++
	return canonical, count, nil
}

func (s *scanner) object() (canonical bool, count uint32, err error) {
	first := len(s.nodes)
	if err := s.enter(); err != nil {
		return false, 0, err
	}
	canonical = true
	ascending, last := true, -1
	for {
		if s.space() {
			canonical = false
		}
		if s.pos >= len(s.src) {
			return false, 0, s.fail("the text ends inside an object")
		}
		if count == 0 && s.src[s.pos] == '}' {
			break
		}
		if s.src[s.pos] != '"' {
			return false, 0, s.fail("a member name should be here")
		}
		name := len(s.nodes)
		ok, err := s.value()
		if err != nil {
			return false, 0, err
		}
		canonical = canonical && ok
		// strictly ascending names prove order and uniqueness at once
		if ascending && last >= 0 && compareUTF16(s.text(uint32(last)), s.text(uint32(name))) >= 0 {
			ascending = false
		}
		last = name
		if s.space() {
			canonical = false
		}
		if s.pos >= len(s.src) || s.src[s.pos] != ':' {
			return false, 0, s.fail("a colon should be here")
		}
		s.pos++
		if s.space() {
			canonical = false
		}
		if ok, err = s.value(); err != nil {
			return false, 0, err
		}
		canonical = canonical && ok
		count++
		if s.space() {
			canonical = false
		}
		if s.pos >= len(s.src) {
			return false, 0, s.fail("the text ends inside an object")
		}
		if s.src[s.pos] == '}' {
			break
		}
		if s.src[s.pos] != ',' {
			return false, 0, s.fail("a comma or } should be here")
		}
		s.pos++
	}
	if !ascending {
		canonical = false
		if err := s.unique(first, int(count)); err != nil {
			return false, 0, err
		}
	}
	s.pos++
	s.depth++
	return canonical, count, nil
}

// text is the decoded text of a string node, without a copy when it has no
// escape.
func (d *doc) text(i uint32) []byte {
	n := &d.nodes[i]
	inner := d.src[n.start+1 : n.end-1]
	if n.flags&flagEscaped == 0 {
		return inner
	}
	return unescape(inner)
}

// unique refuses an object that names a member twice.
func (s *scanner) unique(first, count int) error {
	if count <= 16 {
		var names [16][]byte
		for k, i := 0, first; k < count; k++ {
			names[k] = s.text(uint32(i))
			for _, other := range names[:k] {
				if string(other) == string(names[k]) {
					return s.duplicate(names[k])
				}
			}
			i = int(s.nodes[i+1].next)
		}
		return nil
	}
	members := s.sortedMembers(make([]member, 0, count), uint32(first), uint32(count))
	for k := 1; k < count; k++ {
		if string(members[k-1].name) == string(members[k].name) {
			return s.duplicate(members[k].name)
		}
	}
	return nil
}

func (s *scanner) duplicate(name []byte) error {
	if len(name) > 64 {
		name = name[:64]
	}
	return s.fail(fmt.Sprintf("the member %q stands twice in one object", name))
}

// str scans a string; s.pos is at its opening quote.
func (s *scanner) str() (canonical, escaped bool, err error) {
	canonical = true
	src := s.src
	i := s.pos + 1
	for {
		for i+8 <= len(src) && plainWord(binary.LittleEndian.Uint64(src[i:])) {
			i += 8
		}
		for i < len(src) && plainByte[src[i]] {
			i++
		}
		if i >= len(src) {
			s.pos = i
			return false, false, s.fail("the text ends inside a string")
		}
		switch c := src[i]; {
		case c == '"':
			s.pos = i + 1
			return canonical, escaped, nil
		case c == '\\':
			escaped = true
			n, ok, reason := escape(src[i:])
			if reason != "" {
				s.pos = i
				return false, false, s.fail(reason)
			}
			canonical = canonical && ok
			i += n
		case c < 0x20:
			s.pos = i
			return false, false, s.fail("a control character must be escaped")
		default:
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				s.pos = i
				return false, false, s.fail("not valid UTF-8")
			}
			i += n
		}
	}
}

// plainByte marks the bytes that a string may hold as they are.
var plainByte = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// plainWord tells whether all eight bytes are plain. It may call a plain word
// not plain, never the reverse: a borrow only spreads from a byte that is not.
func plainWord(w uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, backslash := w^ones*'"', w^ones*'\\'
	return (w|(w-ones*0x20)|(quote-ones)|(backslash-ones))&highs == 0
}

// escape reads one escape sequence (or a surrogate pair of two) at the start of
// b: its length, and whether JCS would write it so.
func escape(b []byte) (n int, canonical bool, reason string) {
	if len(b) < 2 {
		return 0, false, "the text ends inside an escape"
	}
	switch b[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2, true, ""
	case '/':
		return 2, false, ""
	case 'u':
	default:
		return 0, false, "no such escape"
	}
	u, ok := hex4(b[2:])
	if !ok {
		return 0, false, "\\u needs four hexadecimal digits"
	}
	switch {
	case u >= 0xdc00 && u <= 0xdfff:
		return 0, false, "an unpaired surrogate"
	case u >= 0xd800 && u <= 0xdbff:
		if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
			return 0, false, "an unpaired surrogate"
		}
		low, ok := hex4(b[8:])
		if !ok || low < 0xdc00 || low > 0xdfff {
			return 0, false, "an unpaired surrogate"
		}
		return 12, false, ""
	}
	// only control characters without a short form are written \u00xx, in lower case
	if u >= 0x20 || u == 8 || u == 9 || u == 10 || u == 12 || u == 13 {
		return 6, false, ""
	}
	return 6, b[5] < 'A' || b[5] > 'F', ""
}

func hex4(b []byte) (u rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		u = u<<4 | rune(c)
	}
	return u, true
}

// unescape decodes the inside of a string that escape has accepted.
func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			out = append(out, b[i])
			i++
			continue
		}
		switch b[i+1] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			u, _ := hex4(b[i+2:])
			if u >= 0xd800 && u <= 0xdbff {
				low, _ := hex4(b[i+8:])
				u = 0x10000 + (u-0xd800)<<10 + (low - 0xdc00)
				i += 6
			}
			out = utf8.AppendRune(out, u)
			i += 4
		default:
			out = append(out, b[i+1])
		}
		i += 2
	}
	return out
}
