package adp

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
)

// stricter is why Scan refuses a text that encoding/json takes for valid.
var stricter = []string{"stands twice", "unpaired surrogate", "not valid UTF-8", "an integer outside", "no double holds", "nested too deeply"}

// longNumber finds the numbers that strconv, and so both oracles, may misread
// (see parseDouble).
var longNumber = regexp.MustCompile(`[0-9.]{390}|[eE][-+]?[0-9]{5}`)

// fataler is what a *testing.T and a *rapid.T share here.
type fataler interface{ Fatalf(string, ...any) }

// checkAgainstOracles compares Scan with encoding/json, and Canonical with
// another canonicaliser.
func checkAgainstOracles(t fataler, text []byte) {
	v, err := Scan(text)
	valid := json.Valid(text)
	if err != nil {
		s, ok := err.(*SyntaxError)
		if !ok || s.Offset < 0 || s.Offset > len(text) {
			t.Fatalf("%q: %v", text, err)
		}
		if valid && !slices.ContainsFunc(stricter, func(why string) bool { return strings.Contains(s.Reason, why) }) {
			t.Fatalf("%q is valid JSON, and was refused: %v", text, err)
		}
		return
	}
	if !valid {
		t.Fatalf("%q is not valid JSON, and was accepted", text)
	}
	var want any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&want); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if got := v.Any(); !reflect.DeepEqual(want, got) {
		t.Fatalf("%q: %v, want %v", text, got, want)
	}
	c, err := v.Canonical()
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if v.IsCanonical() != bytes.Equal(c.Raw(), v.Raw()) || !c.IsCanonical() {
		t.Fatalf("%q: flag %v, canonical form %q", text, v.IsCanonical(), c.Raw())
	}
	if again, err := Scan(c.Raw()); err != nil || !again.IsCanonical() {
		t.Fatalf("%q: its canonical form %q is not canonical: %v", text, c.Raw(), err)
	}
	if longNumber.Match(text) {
		return
	}
	oracle, err := jcs.Transform(text)
	if err != nil || !bytes.Equal(oracle, c.Raw()) {
		t.Fatalf("%q: canonical form %q, the oracle says %q, %v", text, c.Raw(), oracle, err)
	}
	checkNodes(t, v, c)
}

// checkNodes walks a value beside its canonical form: same kinds, same members
// by name, same numbers.
func checkNodes(t fataler, v, c Value) {
	if v.Kind() != c.Kind() || v.Len() != c.Len() {
		t.Fatalf("%q and %q differ", v.Raw(), c.Raw())
	}
	switch v.Kind() {
	case Object:
		for name, m := range v.Members() {
			checkNodes(t, m, c.Get(name))
		}
	case Array:
		var elements []Value
		for e := range c.Elements() {
			elements = append(elements, e)
		}
		i := 0
		for e := range v.Elements() {
			checkNodes(t, e, elements[i])
			i++
		}
	case Number:
		a, ok1 := v.Float()
		b, ok2 := c.Float()
		n, ok3 := v.Int()
		m, ok4 := c.Int()
		if !ok1 || !ok2 || a != b || ok3 != ok4 || n != m || ok3 && float64(n) != a {
			t.Fatalf("%q and %q are different numbers", v.Raw(), c.Raw())
		}
	case String:
		if v.Text() != c.Text() || !v.Is(c.Text()) {
			t.Fatalf("%q and %q are different strings", v.Raw(), c.Raw())
		}
	}
}

func TestKnownTextsAgainstOracles(t *testing.T) {
	for _, c := range jsonCases(t) {
		checkAgainstOracles(t, []byte(c.Text))
		checkAgainstOracles(t, []byte(`{"z":[`+c.Text+`],"a":`+c.Text+`}`))
		for cut := range len(c.Text) {
			checkAgainstOracles(t, []byte(c.Text[:cut]))
			checkAgainstOracles(t, []byte(c.Text[cut:]))
		}
	}
}
