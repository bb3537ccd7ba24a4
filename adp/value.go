package adp

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"
)

// Value is a view of one value in a scanned text. The zero Value is Absent; its
// methods answer as for a value that is not there.
type Value struct {
	d *doc
	i uint32
}

func (v Value) node() *node { return &v.d.nodes[v.i] }

// Kind says what the value is.
func (v Value) Kind() Kind {
	if v.d == nil {
		return Absent
	}
	return v.node().kind
}

// Exists tells whether the value is there, null included.
func (v Value) Exists() bool { return v.d != nil }

// Raw is the text of the value as it was scanned; not to be changed.
func (v Value) Raw() []byte {
	if v.d == nil {
		return nil
	}
	n := v.node()
	return v.d.src[n.start:n.end:n.end]
}

// IsCanonical tells whether Raw is the JCS form of the value.
func (v Value) IsCanonical() bool { return v.d != nil && v.node().flags&flagCanonical != 0 }

// Str is the decoded text of a string.
func (v Value) Str() (string, bool) {
	if v.Kind() != String {
		return "", false
	}
	return string(v.d.text(v.i)), true
}

// Text is Str, or "" for anything else.
func (v Value) Text() string { s, _ := v.Str(); return s }

// Is tells whether the value is a string with this text.
func (v Value) Is(text string) bool {
	return v.Kind() == String && string(v.d.text(v.i)) == text
}

// Float is the double of a number.
func (v Value) Float() (float64, bool) {
	if v.Kind() != Number {
		return 0, false
	}
	f, err := parseDouble(v.Raw())
	return f, err == nil
}

// Int is the integer of a number whose value is one, however it is written.
func (v Value) Int() (int64, bool) {
	if v.Kind() != Number {
		return 0, false
	}
	if i, err := strconv.ParseInt(string(v.Raw()), 10, 64); err == nil {
		return i, true
	}
	f, ok := v.Float()
	if i := int64(f); ok && float64(i) == f {
		return i, true
	}
	return 0, false
}

// Bool is the truth of a boolean.
func (v Value) Bool() (value, ok bool) {
	if v.Kind() != Bool {
		return false, false
	}
	return v.node().flags&flagTrue != 0, true
}

// Len counts the elements of an array or the members of an object.
func (v Value) Len() int {
	if v.d == nil {
		return 0
	}
	return int(v.node().count)
}

// Get is a member of an object, or the zero Value. Names match exactly.
func (v Value) Get(name string) Value {
	if v.Kind() != Object {
		return Value{}
	}
	i := v.i + 1
	for range v.Len() {
		if string(v.d.text(i)) == name {
			return Value{v.d, i + 1}
		}
		i = v.d.nodes[i+1].next
	}
	return Value{}
}

// Members walks the members of an object in the order of the text.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.Kind() != Object {
			return
		}
		i := v.i + 1
		for range v.Len() {
			if !yield((Value{v.d, i}).Text(), Value{v.d, i + 1}) {
				return
			}
			i = v.d.nodes[i+1].next
		}
	}
}

// Elements walks the elements of an array.
func (v Value) Elements() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.Kind() != Array {
			return
		}
		i := v.i + 1
		for range v.Len() {
			if !yield(Value{v.d, i}) {
				return
			}
			i = v.d.nodes[i].next
		}
	}
}

// Any is the value as plain Go: map[string]any, []any, string, bool, nil, and
// json.Number for numbers, whose text is the scanned one.
func (v Value) Any() any {
	switch v.Kind() {
	case Object:
		m := make(map[string]any, v.Len())
		for name, member := range v.Members() {
			m[name] = member.Any()
		}
		return m
	case Array:
		a := make([]any, 0, v.Len())
		for e := range v.Elements() {
			a = append(a, e.Any())
		}
		return a
	case String:
		return v.Text()
	case Number:
		return json.Number(v.Raw())
	case Bool:
		b, _ := v.Bool()
		return b
	}
	return nil
}

// MarshalJSON gives the text as it stands.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.d == nil {
		return []byte("null"), nil
	}
	return v.Raw(), nil
}

// EncodeJSON writes a Go value as JSON and leaves the texts in it as they are, those that
// are JSON already included: json.Marshal escapes some of their characters (<, >, &), and
// what was signed would no longer be the bytes that were hashed.
func EncodeJSON(x any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// EncodeValue writes a Go value as canonical JSON and scans it. It is for what we
// say ourselves; what others said is scanned as they wrote it.
func EncodeValue(x any) (Value, error) {
	text, err := EncodeJSON(x)
	if err != nil {
		return Value{}, err
	}
	v, err := Scan(text)
	if err != nil {
		return Value{}, err
	}
	return v.Canonical()
}
