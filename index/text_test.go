package index

import (
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
		if fold(tt.a) != fold(tt.b) {
			t.Errorf("%q → %q, %q → %q", tt.a, fold(tt.a), tt.b, fold(tt.b))
		}
	}
	if got := fold("a\xffb"); strings.Contains(got, between) {
		t.Errorf("%q holds what parts fields", got)
	}
}

func TestWordsOf(t *testing.T) {
	w := func(s string) word { return word{s, true} }
	g := func(s string) word { return word{s, false} }
	for _, tt := range []struct {
		q    string
		want []word
	}{
		{"", nil},
		{" - \u0301 \ufe0f", nil},
		{"Hello, World-2 C++", []word{w("hello"), w("world"), w("2"), w("c")}},
		{"don't", []word{w("don"), w("t")}},
		{"5G网络v2", []word{w("5g"), g("网络"), w("v2")}},
		{"サーバー 同期", []word{g("サーバー"), g("同期")}},
		{"अधिकार", []word{w("अधिकार")}}, // vowel signs belong to the word
		{"🦀crab", []word{g("🦀"), w("crab")}},
	} {
		if diff := cmp.Diff(tt.want, wordsOf(tt.q), cmp.AllowUnexported(word{})); diff != "" {
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
		text, _ := searchText(&Doc{Topic: tt.topic, Agenda: "agenda"})
		got := true
		for _, w := range wordsOf(tt.q) {
			got = got && w.in(text)
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
		text, keywords := searchText(&Doc{Topic: topic})
		for _, w := range wordsOf(topic) {
			if !w.in(text) {
				t.Fatalf("%q does not hold its own word %q", topic, w.text)
			}
		}
		if !strings.Contains(text[:keywords], fold(topic)) {
			t.Fatalf("%q does not hold itself", topic)
		}
	})
}
