package feed

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/index"
)

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		text, capability string
		want             bool
	}{
		{"Modbus retries", "modbus", true},
		{"Modbus retries", "mod", false},
		{"A code review, of sorts", "code-review", true},
		{"code-review", "code review", true},
		{"codereview", "code-review", false},
		{"关于仲裁的讨论", "仲裁", true},
		{"關於", "仲裁", false},
		{"Größe zählt", "GRÖSSE", false},
		{"Größe zählt", "größe", true},
		{"모드버스의 재시도", "모드버스", true}, // particles stand at the word
		{"anything", "--", false},
		{"", "x", false},
	} {
		if got := holds(spaced(c.text), c.capability); got != c.want {
			t.Errorf("%q in %q: %v", c.capability, c.text, got)
		}
	}
}

func genRoom(t *rapid.T, name string) index.Room {
	word := rapid.SampledFrom([]string{"modbus", "poll", "law", "rust", "仲裁", "code-review", "x y"})
	return index.Room{URL: "https://a.example/v1/rooms/" + rapid.StringMatching(`[a-z0-9]{1,8}`).Draw(t, name+" url"), Topic: strings.Join(rapid.SliceOfN(word, 0, 3).Draw(t, name+" topic"), " "),
		Agenda: strings.Join(rapid.SliceOfN(word, 0, 3).Draw(t, name+" agenda"), ", "), Tags: rapid.SliceOfN(word, 0, 3).Draw(t, name+" tags"),
		Language: rapid.SampledFrom([]string{"", "en", "en-GB", "de"}).Draw(t, name+" language"), Status: rapid.SampledFrom([]string{"active", "scheduled"}).Draw(t, name+" status"),
		LastActivity: rapid.Int64Range(0, 3).Draw(t, name+" activity"), Verdict: "verified"}
}

func genInterests(t *rapid.T) Interests {
	in, err := Interests{Capabilities: rapid.SliceOfN(rapid.SampledFrom([]string{"modbus", "Law", "仲裁", "code review", "nothing"}), 0, 5).Draw(t, "capabilities"),
		Languages: rapid.SliceOfN(rapid.SampledFrom([]string{"en", "DE", "fr"}), 0, 3).Draw(t, "languages")}.check()
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// The order of a feed: matches before the rest, scores that fall, no two rooms alike; and
// what speaks for a room never lowers its score.
func TestRankProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genInterests(t)
		var list []ranked
		for range rapid.IntRange(0, 12).Draw(t, "rooms") {
			r := genRoom(t, "room")
			m := match(&in, &r)
			list = append(list, ranked{r, m})
			if m.Score < 0 || m.Score > 1 {
				t.Fatalf("score %v", m.Score)
			}
			for _, c := range m.Overlap {
				if !slices.Contains(in.Capabilities, c) {
					t.Fatalf("%q was not asked for", c)
				}
			}
			if (len(m.Overlap) > 0) != (m.Reason == ByTags || m.Reason == ByWords) {
				t.Fatalf("%+v", m)
			}
			if len(in.Capabilities) > 0 {
				c := rapid.SampledFrom(in.Capabilities).Draw(t, "one more")
				better := r
				better.Tags = append(slices.Clone(r.Tags), strings.ToUpper(c))
				if b := match(&in, &better); b.Score < m.Score || !slices.Contains(b.Overlap, c) || b.Reason != ByTags {
					t.Fatalf("with the tag %s %+v, without %+v", c, b, m)
				}
			}
			shuffled := in
			shuffled.Capabilities = rapid.Permutation(in.Capabilities).Draw(t, "order")
			if b := match(&shuffled, &r); b.Score != m.Score || len(b.Overlap) != len(m.Overlap) {
				t.Fatalf("another order of the interests: %+v, %+v", b, m)
			}
		}
		slices.SortFunc(list, compare)
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			if len(a.match.Overlap) == 0 && len(b.match.Overlap) > 0 {
				t.Fatalf("a room that does not match stands before one that does")
			}
			if (len(a.match.Overlap) == 0) == (len(b.match.Overlap) == 0) && a.match.Score < b.match.Score {
				t.Fatalf("%v stands before %v", a.match, b.match)
			}
		}
	})
}
