package text

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFold(t *testing.T) {
	for _, tt := range []struct{ a, b string }{
		{"Quorum", "qUORUM"}, {"Straße", "STRASSE"}, {"ΣΊΣΥΦΟΣ", "σίσυφος"}, {"Москва", "МОСКВА"},
		{"cafe\u0301", "CAFÉ"}, {"ＡＢＣ１", "abc1"}, {"ﾐﾗｰ", "ミラー"}, {"\u212a", "k"}, {"ﬁn", "FIN"},
	} {
		if Fold(tt.a) != Fold(tt.b) {
			t.Errorf("%q → %q, %q → %q", tt.a, Fold(tt.a), tt.b, Fold(tt.b))
		}
	}
	if got := Fold("a\xffb"); strings.Contains(got, Between) {
		t.Errorf("%q holds what parts fields", got)
	}
}

func TestWords(t *testing.T) {
	w := func(s string) Word { return Word{s, true} }
	g := func(s string) Word { return Word{s, false} }
	for _, tt := range []struct {
		q    string
		want []Word
	}{
		{"", nil},
		{" - \u0301 \ufe0f", nil},
		{"Hello, World-2 C++", []Word{w("hello"), w("world"), w("2"), w("c")}},
		{"don't", []Word{w("don"), w("t")}},
		{"5G网络v2", []Word{w("5g"), g("网络"), w("v2")}},
		{"サーバー 同期", []Word{g("サーバー"), g("同期")}},
		{"अधिकार", []Word{w("अधिकार")}}, // vowel signs belong to the word
		{"🦀crab", []Word{g("🦀"), w("crab")}},
	} {
		if diff := cmp.Diff(tt.want, Words(tt.q)); diff != "" {
			t.Errorf("%q: %s", tt.q, diff)
		}
	}
}

func TestWordIn(t *testing.T) {
	for _, tt := range []struct {
		q, topic string
		want     bool
	}{
		{"go", "Go!", true},
		{"go", "gopher cargo", false},
		{"go", "gopher, cargo and go", true},
		{"go", "用go写", true},
		{"go", "go\u0301", false},
		{"aa", "aaa aaaa", false},
		{"aa", "aaa aa", true},
		{"a", "aa a", true},
		{"网络", "5g网络安全", true},
		{"❤", "I ❤️ it", true},
		{"ber", "über", false},
		{"topic agenda", "topic", true}, // words may stand in different fields
		{"topicagenda", "topic", false},
	} {
		text := Fold(tt.topic) + Between + "agenda" + Between
		got := true
		for _, w := range Words(tt.q) {
			got = got && w.In(text)
		}
		if got != tt.want {
			t.Errorf("%q in %q: %v", tt.q, tt.topic, got)
		}
	}
}

// Each word of a text is found in that text.
func TestWordsAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.StringOf(rapid.OneOf(rapid.RuneFrom([]rune("aAbß -'.网ーか\u3099\u0301\u0303🦀\ufe0fΣς한글")), rapid.Rune())).Draw(t, "topic")
		text := Fold(topic) + Between
		for _, w := range Words(topic) {
			if !w.In(text) {
				t.Fatalf("%q does not hold its own word %q", topic, w.Text)
			}
			for _, term := range w.Terms() {
				if !slices.Contains(Terms(text), term) {
					t.Fatalf("the terms of %q lack %q of its word %q", topic, term, w.Text)
				}
			}
		}
	})
}

// A text in which the word of any query occurs has all terms of that word, so that no
// room is missed by looking at terms first.
func TestTermsMissNothing(t *testing.T) {
	text := rapid.StringOf(rapid.OneOf(rapid.RuneFrom([]rune("aAbß -'.网络安全ーか\u3099\u0301🦀\ufe0fς한글")), rapid.Rune()))
	rapid.Check(t, func(t *rapid.T) {
		topic := Fold(text.Draw(t, "topic"))
		runes := []rune(topic)
		from := rapid.IntRange(0, len(runes)).Draw(t, "from")
		part := string(runes[from:rapid.IntRange(from, len(runes)).Draw(t, "to")])
		terms := Terms(topic)
		for _, w := range Words(part) {
			for _, term := range w.Terms() {
				if w.In(topic) && !slices.Contains(terms, term) {
					t.Fatalf("%q holds %q and has not its term %q", topic, w.Text, term)
				}
			}
		}
	})
}

// A snippet looks for words in what the search looked in, and marks them where they stand.
func TestSnippetFoldsAsTheSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.OneOf(rapid.RuneFrom([]rune("aAbß -'网ーかﾃﾞｰﾀﾊﾟ\u3099\u0301\u0345🦀\ufe0fΣς한글\u1112\u1161\u11ab")), rapid.Rune())).Draw(t, "text")
		if _, folded, at := clusters(s); folded != Fold(s) || len(at) != len(folded)+1 {
			t.Fatalf("%q: %q and %d places, want %q", s, folded, len(at), Fold(s))
		}
	})
	for text, words := range map[string]map[string]string{
		"次に ﾃﾞｰﾀﾍﾞｰｽの同期":                                        {"データベース": "ﾃﾞｰﾀﾍﾞｰｽ", "ﾃﾞｰﾀ": "ﾃﾞｰﾀ", "ース": "ｰｽ"},
		"\u1112\u1161\u11ab\u1100\u1173\u11af is written apart": {"한": "\u1112\u1161\u11ab", "한글": "\u1112\u1161\u11ab\u1100\u1173\u11af"},
		"STRASSE, Straße": {"straße": "STRASSE Straße"},
	} {
		for q, want := range words {
			shown, matches := Snippet(text, Words(q))
			var marked []string
			for _, m := range matches {
				marked = append(marked, string([]rune(shown)[m[0]:m[1]]))
			}
			if got := strings.Join(marked, " "); got != want {
				t.Errorf("%q in %q marks %q, want %q", q, text, got, want)
			}
		}
	}
}
