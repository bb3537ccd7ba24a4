package plaintext

import (
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"plain text, 中文, 👩‍🔬":      "plain text, 中文, 👩‍🔬",
		"\x1b[31mred":              `\u001b[31mred`,
		"a\nb\r\tc":                `a\nb\r\tc`,
		"\u009b31m":                `\u009b31m`,
		"user\u202etxt.exe":        `user\u202etxt.exe`,
		"\u2066\u2069\u200e\u061c": `\u2066\u2069\u200e\u061c`,
		"zero\u200bwidth\ufeff":    `zero\u200bwidth\ufeff`,
		"\U000e0041tag":            `\U000e0041tag`,
		"line\u2028end\x7f":        `line\u2028end\u007f`,
		"cut \xff\xe4\xb8":         `cut \xff\xe4\xb8`,
		"honest \ufffd":            `honest \ufffd`,
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Short("12345678", 5); got != "1234…" {
		t.Errorf("short: %q", got)
	}
	if got := Short("12345", 5); got != "12345" {
		t.Errorf("short: %q", got)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		p := Line(s)
		for _, r := range p {
			if Hidden(r) {
				t.Fatalf("Line(%q) = %q holds %U", s, p, r)
			}
		}
		if Line(p) != p || !utf8.ValidString(p) {
			t.Fatalf("Line(%q) = %q is not plain", s, p)
		}
	})
}

func TestText(t *testing.T) {
	if got, want := Text("two\nlines\t\r\u202e\u2028"), "two\nlines\t\\r\\u202e\\u2028"; got != want {
		t.Errorf("Text: %q, want %q", got, want)
	}
}
