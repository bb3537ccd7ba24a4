package adp

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
)

// golden reads a file of known answers.
func golden(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

type jsonCase struct {
	Text, Hex, Reason, Canonical string
	Offset                       int
}

func jsonCases(t testing.TB) []jsonCase {
	var file struct{ Cases []jsonCase }
	golden(t, "json.json", &file)
	for i, c := range file.Cases {
		if c.Hex != "" {
			b, err := hex.DecodeString(c.Hex)
			if err != nil {
				t.Fatal(err)
			}
			file.Cases[i].Text = string(b)
		}
	}
	return file.Cases
}

func refusal(t *testing.T, err error) *SyntaxError {
	t.Helper()
	var s *SyntaxError
	if !errors.As(err, &s) {
		t.Fatalf("got error %v, want a SyntaxError", err)
	}
	return s
}

func TestScanKnownAnswers(t *testing.T) {
	for _, c := range jsonCases(t) {
		v, err := Scan([]byte(c.Text))
		if c.Reason != "" {
			if err == nil {
				t.Errorf("%q was accepted, want %q", c.Text, c.Reason)
				continue
			}
			s := refusal(t, err)
			if !strings.Contains(s.Reason, c.Reason) || s.Offset != c.Offset {
				t.Errorf("%q: refused at %d with %q, want %d with %q", c.Text, s.Offset, s.Reason, c.Offset, c.Reason)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("at byte %d: ", c.Offset)) {
				t.Errorf("%q: the error text %q does not say where", c.Text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.Text, err)
			continue
		}
		if got, want := v.IsCanonical(), strings.Trim(c.Text, " \r\n\t") == c.Canonical; got != want {
			t.Errorf("%q: canonical flag %v, want %v", c.Text, got, want)
		}
		can, err := v.Canonical()
		if err != nil || string(can.Raw()) != c.Canonical || !can.IsCanonical() {
			t.Errorf("%q: canonical form %q, %v, want %q", c.Text, can.Raw(), err, c.Canonical)
		}
	}
}

func TestScanDepth(t *testing.T) {
	nest := func(open, middle, shut string, n int) string {
		return strings.Repeat(open, n) + middle + strings.Repeat(shut, n)
	}
	for _, kind := range [][3]string{{"[", "", "]"}, {"[", "1", "]"}, {`{"a":`, "null", "}"}, {`{"a":[`, "{}", "]}"}, {"[1,", "2", "]"}, {" [ ", "", " ] "}} {
		per := strings.Count(kind[0], "[") + strings.Count(kind[0], "{")
		full := MaxDepth / per
		inner := strings.Count(kind[1], "{")
		if _, err := Scan([]byte(nest(kind[0], kind[1], kind[2], full-inner))); err != nil {
			t.Errorf("%d levels of %q: %v", MaxDepth, kind[0], err)
		}
		_, err := Scan([]byte(nest(kind[0], kind[1], kind[2], full+1-inner)))
		if inner == 0 || per == 1 {
			if err == nil || refusal(t, err).Reason != "nested too deeply" {
				t.Errorf("%d levels of %q: %v", MaxDepth+per, kind[0], err)
			}
		}
	}
	_, err := Scan([]byte(strings.Repeat("[", MaxDepth+1)))
	if s := refusal(t, err); s.Offset != MaxDepth || s.Reason != "nested too deeply" {
		t.Errorf("refused at %d: %s", s.Offset, s.Reason)
	}
	// depth counts nesting, not containers
	if _, err := Scan([]byte("[" + strings.Repeat("[[]],", 200) + "[]]")); err != nil {
		t.Error(err)
	}
	if _, err := ScanDepth([]byte("1"), 0); err != nil {
		t.Error(err)
	}
	if _, err := ScanDepth([]byte("[]"), 0); err == nil {
		t.Error("an array was accepted at depth 0")
	}
	if _, err := ScanDepth([]byte("[[]]"), 2); err != nil {
		t.Error(err)
	}
}

// TestScanDuplicates covers both ways to find one, around their limit of 16
// members, with the second place first, in the middle and last, plain and
// escaped.
func TestScanDuplicates(t *testing.T) {
	for _, n := range []int{2, 3, 15, 16, 17, 18, 40, 1000} {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("n%04d", n-i)
		}
		text := func(names []string) []byte {
			var b strings.Builder
			for i, name := range names {
				fmt.Fprintf(&b, `%c"%s":{"n0001":[%d]}`, "{,"[min(i, 1)], name, i)
			}
			return []byte(b.String() + "}")
		}
		v, err := Scan(text(names))
		if err != nil || v.Len() != n || v.IsCanonical() {
			t.Fatalf("%d distinct names: %v, len %d", n, err, v.Len())
		}
		if got := v.Get(names[n-1]).Get("n0001"); got.Len() != 1 {
			t.Errorf("%d names: the last one is not found", n)
		}
		for _, to := range []int{1, n / 2, n - 1} {
			for _, from := range []int{0, (to - 1) / 2, to - 1} {
				if from >= to || from < 0 || to >= n {
					continue
				}
				for _, spell := range []string{names[from], `\u006` + "e" + names[from][1:], "n\\u003" + names[from][1:2] + names[from][2:]} {
					twice := slices.Clone(names)
					twice[to] = spell
					_, err := Scan(text(twice))
					if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the member %q stands twice", names[from])) {
						t.Errorf("%d names, %d repeated at %d as %s: %v", n, from, to, spell, err)
					}
				}
			}
		}
	}
	// ascending names that only decode to the same one
	if _, err := Scan([]byte(`{"\u0061":1,"a":2}`)); err == nil {
		t.Error("a duplicate behind an escape was accepted")
	}
	long := strings.Repeat("é", 5000)
	_, err := Scan([]byte(`{"` + long + `":1,"` + long + `":2}`))
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("the refusal of a long name is %d bytes long", len(err.Error()))
	}
}

func TestScanEveryByteInAString(t *testing.T) {
	for at := 0; at < 20; at++ { // at each place of a word, and behind it
		for c := 0; c < 256; c++ {
			text := []byte(`"` + strings.Repeat("x", at) + string([]byte{byte(c)}) + strings.Repeat("y", 19-at) + `"`)
			_, err := Scan(text)
			want := c >= 0x20 && c < 0x80 && c != '"' && c != '\\'
			if (err == nil) != want {
				t.Fatalf("byte %#02x at %d: error %v", c, at, err)
			}
		}
	}
}

func TestEveryControlEscape(t *testing.T) {
	for u := 0; u < 0x120; u++ {
		for _, format := range []string{`"\u%04x"`, `"\u%04X"`} {
			text := fmt.Sprintf(format, u)
			v := mustScan(t, text)
			want, err := jcs.Transform([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			can, err := v.Canonical()
			if err != nil || string(can.Raw()) != string(want) || v.IsCanonical() != (text == string(want)) {
				t.Errorf("%s: %q, %v, canonical %v; want %q", text, can.Raw(), err, v.IsCanonical(), want)
			}
			if s, ok := v.Str(); !ok || s != string(rune(u)) {
				t.Errorf("%s: text %q", text, s)
			}
		}
	}
}

// TestExponentsThatUndoZeros: numbers are judged by their nearest double, and
// that is the same for every way of writing it. ECMAScript says 1 to each.
func TestExponentsThatUndoZeros(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("0", n) }
	for _, n := range []int{10, 300, 390, 799, 800, 801, 1000, 9990, 9999, 10000, 12345, 99999, 100000, 123455, 400000} {
		for _, c := range []struct{ text, want string }{
			{fmt.Sprintf("0.%s1e%d", zeros(n), n+1), "1"},
			{fmt.Sprintf("1%se-%d", zeros(n), n), "1"},
			{fmt.Sprintf("-15%s.0E-%d", zeros(n), n), "-15"},
			{fmt.Sprintf("-0.%s25e+000%d", zeros(n), n+1), "-2.5"},
			{fmt.Sprintf("0.%s1e%d", zeros(n), n-6), "1e-7"},
			{fmt.Sprintf("0.%s1e%d", zeros(n), n+401), "no double"},
			{fmt.Sprintf("0.%s1e%d", zeros(n), n+31), "outside"},
			{fmt.Sprintf("0.%s1e%d0000000", zeros(n), n+1), "no double"},
			{fmt.Sprintf("1%se-%d0000000", zeros(n), n), "0"},
			{fmt.Sprintf("1%se%d", zeros(n), n), "no double"},
			{fmt.Sprintf("0.%se%d0000000", zeros(n), n), "0"},
			{fmt.Sprintf("0.%s9007199254740991e%d", zeros(n), n+16), "9007199254740991"},
			{fmt.Sprintf("0.%s9007199254740992e%d", zeros(n), n+16), "outside"},
		} {
			v, err := Scan([]byte(c.text))
			if c.want == "no double" || c.want == "outside" {
				if err == nil || !strings.Contains(err.Error(), c.want) && !(n == 10 && strings.Contains(err.Error(), "outside")) /* 1e20 */ {
					t.Errorf("n=%d %.20s…%s: %v, want %s", n, c.text, c.text[len(c.text)-12:], err, c.want)
				}
				continue
			}
			if err != nil {
				t.Errorf("n=%d %.20s…%s: %v", n, c.text, c.text[len(c.text)-12:], err)
				continue
			}
			can, err := v.Canonical()
			if err != nil || string(can.Raw()) != c.want {
				t.Errorf("n=%d %.20s…%s: %s, %v, want %s", n, c.text, c.text[len(c.text)-12:], can.Raw(), err, c.want)
			}
		}
	}
}
