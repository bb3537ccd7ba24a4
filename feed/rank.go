package feed

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/index/text"
)

// Reasons of a Match.
const (
	ByTags     = "tags"     // a capability is a tag, a type or a pack of the room
	ByWords    = "words"    // a capability stands in its topic or agenda
	ByLanguage = "language" // it is in a language of the agent
	General    = "general"  // nothing is known that would speak for it
)

// Match says why a room stands where it does.
type Match struct {
	Score   float64  `json:"score"`   // 0 to 1, three decimals
	Overlap []string `json:"overlap"` // the capabilities that were found
	Reason  string   `json:"reason"`
}

// How much of a score comes from what.
const (
	ofCapabilities = 0.8 // the share of the capabilities that were found,
	ofLanguage     = 0.1
	ofStatus       = 0.1 // it is going on

	// and how much a capability counts that was found among the tags, in the topic, in the agenda.
	inTags   = 1.0
	inTopic  = 0.6
	inAgenda = 0.3
)

// match judges a room by interests that were checked.
func match(in *Interests, r *index.Room) Match {
	m := Match{Overlap: []string{}, Reason: General}
	speaks := slices.ContainsFunc(in.Languages, func(l string) bool { return isLanguage(r.Language, l) })
	if speaks {
		m.Reason = ByLanguage
	}
	topic, agenda := spaced(r.Topic), spaced(r.Agenda)
	sum := 0.0
	for _, c := range in.Capabilities {
		is := func(s string) bool { return strings.EqualFold(s, c) || spaced(s) == spaced(c) }
		weight := 0.0
		switch {
		case slices.ContainsFunc(r.Tags, is) || slices.ContainsFunc(r.Types, is) || slices.ContainsFunc(r.Packs, is):
			weight = inTags
			m.Reason = ByTags
		case holds(topic, c):
			weight = inTopic
		case holds(agenda, c):
			weight = inAgenda
		}
		if weight == 0 {
			continue
		}
		if m.Reason != ByTags {
			m.Reason = ByWords
		}
		m.Overlap = append(m.Overlap, c)
		sum += weight
	}
	score := 0.0
	if n := len(in.Capabilities); n > 0 {
		score = ofCapabilities * sum / float64(n)
	}
	if speaks {
		score += ofLanguage
	}
	if r.Status == "active" {
		score += ofStatus
	}
	m.Score = math.Round(score*1000) / 1000
	return m
}

// isLanguage tells whether a language tag is a wanted one, or a kind of it.
func isLanguage(tag, want string) bool {
	tag = strings.ToLower(tag)
	return tag == want || strings.HasPrefix(tag, want+"-")
}

// spaced is a text in lower case with one space before, between and behind its words.
func spaced(s string) string {
	var b strings.Builder
	gap := true
	b.WriteByte(' ')
	for _, r := range s {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) {
			b.WriteRune(unicode.ToLower(r))
			gap = false
		} else if !gap {
			b.WriteByte(' ')
			gap = true
		}
	}
	if !gap {
		b.WriteByte(' ')
	}
	return b.String()
}

// holds tells whether a spaced text has a capability in it, as whole words; in scripts
// that set no spaces, as it stands.
func holds(in, capability string) bool {
	want := spaced(capability)
	if len(want) < 3 { // no word in it
		return false
	}
	if strings.ContainsFunc(capability, text.Unparted) {
		want = strings.TrimSpace(want)
	}
	return strings.Contains(in, want)
}

// ranked is a room with its match.
type ranked struct {
	room  index.Room
	match Match
}

// compare puts what matches before what does not, then goes by score, by activity, and
// by name, so that an order is always the same.
func compare(a, b ranked) int {
	none := func(r ranked) int { return btoi(len(r.match.Overlap) == 0) }
	return cmp.Or(cmp.Compare(none(a), none(b)), cmp.Compare(b.match.Score, a.match.Score), cmp.Compare(b.room.LastActivity, a.room.LastActivity),
		cmp.Compare(a.room.URL, b.room.URL))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// takes tells whether an agent of these interests can make use of a room that one may
// join: it is not in a foreign language, and its host has told one story.
func takes(in *Interests, r *index.Room) bool {
	switch r.Verdict {
	case "broken", "forked", "archive-mismatch", "equivocated":
		return false
	}
	if r.Hidden {
		return false
	}
	return len(in.Languages) == 0 || r.Language == "" || slices.ContainsFunc(in.Languages, func(l string) bool { return isLanguage(r.Language, l) })
}
