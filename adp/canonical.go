package adp

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Canonical is the value in its JCS form (RFC 8785): itself when it already
// is, else a new text, scanned again, so that what is hashed is what is read.
func (v Value) Canonical() (Value, error) {
	if v.d == nil || v.IsCanonical() {
		return v, nil
	}
	n := v.node()
	b := v.d.appendCanonical(make([]byte, 0, n.end-n.start), v.i)
	c, err := scan(b, 1<<16, int(n.next-v.i)) // the depth was judged when v was scanned
	if err != nil {
		return Value{}, fmt.Errorf("canonical form: %w", err)
	}
	if !c.IsCanonical() || c.Kind() != v.Kind() {
		return Value{}, fmt.Errorf("canonical form: the writer and the scanner disagree about %.64q", b)
	}
	return c, nil
}

// appendCanonical writes the subtree at node i; what is canonical already is
// copied as it stands.
func (d *doc) appendCanonical(b []byte, i uint32) []byte {
	n := &d.nodes[i]
	raw := d.src[n.start:n.end]
	if n.flags&flagCanonical != 0 {
		return append(b, raw...)
	}
	switch n.kind {
	case Number:
		return append(b, canonicalNumber(raw)...)
	case String:
		return appendQuoted(b, unescape(raw[1:len(raw)-1]))
	case Array:
		b = append(b, '[')
		for k, child := uint32(0), i+1; k < n.count; k++ {
			if k > 0 {
				b = append(b, ',')
			}
			b = d.appendCanonical(b, child)
			child = d.nodes[child].next
		}
		return append(b, ']')
	}
	var few [16]member
	members := d.sortedMembers(few[:0], i+1, n.count)
	b = append(b, '{')
	for k, m := range members {
		if k > 0 {
			b = append(b, ',')
		}
		b = d.appendCanonical(b, m.node)
		b = append(b, ':')
		b = d.appendCanonical(b, m.node+1)
	}
	return append(b, '}')
}

// member is a name, decoded, and its node; the value is the next node.
type member struct {
	name []byte
	node uint32
}

// sortedMembers appends the count members that start at node first, in the
// order of JCS.
func (d *doc) sortedMembers(to []member, first, count uint32) []member {
	for ; count > 0; count-- {
		to = append(to, member{d.text(first), first})
		first = d.nodes[first+1].next
	}
	slices.SortFunc(to, func(x, y member) int { return compareUTF16(x.name, y.name) })
	return to
}

// compareUTF16 orders valid UTF-8 by UTF-16 code units (RFC 8785 §3.2.3). The
// order of bytes is the same except that U+E000…U+FFFF stand behind the
// surrogates that write the supplementary planes.
func compareUTF16(a, b []byte) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) {
		return len(a) - len(b)
	}
	x, y := a[i], b[i]
	// the first differing byte is a lead byte, or inside characters of equal lead
	if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
		if x >= 0xf0 {
			return -1
		}
		return 1
	}
	return int(x) - int(y)
}

// AppendString appends s as a canonical JSON string. s must be valid UTF-8;
// invalid bytes are written as U+FFFD.
func AppendString(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return appendQuoted(b, s)
}

// appendQuoted writes valid UTF-8 with the escapes of RFC 8785 §3.2.2.2.
func appendQuoted[S string | []byte](b []byte, s S) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
