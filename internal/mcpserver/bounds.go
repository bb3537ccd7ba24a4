package mcpserver

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/plaintext"
)

// Bounds of one answer, in bytes of what is shown. A model has to read it: what is longer is cut, which is said, or goes on at a cursor.
const (
	listBytes    = 48 << 10 // the texts of a list of rooms, together
	topicBytes   = 1000
	longBytes    = 8 << 10 // agenda, guidance, policy, extra, one type
	tagBytes     = 100
	mostTags     = 32
	typeBytes    = 48 << 10 // the declarations of one page of types
	mostTypes    = 64
	mostMembers  = 200
	sideBytes    = 200 // a perspective
	historyBytes = 64 << 10
	recordBytes  = 16 << 10 // of one record in it
	mostRefs     = 32       // references and mentions of one record
	mostProblems = 20
	mostHosts    = 100
)

// clip is text of others of at most n bytes once it is escaped, and whether there is more of it.
func clip(s string, n int) (shown string, cut bool) {
	long := len(s) > n // escapes only make it longer
	if long {
		s = s[:whole(s, n)]
	}
	if shown = plaintext.Text(s); len(shown) > n {
		shown, long = shown[:whole(shown, n)], true
	}
	return shown, long
}

// whole is the greatest length up to n that parts no character of s.
func whole(s string, n int) int {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

// shownUpTo is JSON of others, as text when it has more than n bytes.
func shownUpTo(v value, n int) (out any, cut bool) {
	if len(v.Raw()) > n {
		return clip(string(v.Raw()), n)
	}
	out = shown(v)
	if size(out) > 2*n { // escapes and their own escapes
		return clip(string(v.Raw()), n)
	}
	return out, false
}

// size is what x takes in an answer, in bytes.
func size(x any) int {
	s, err := encode(x)
	if err != nil {
		return 0 // the answer fails to be encoded, too
	}
	return len(s)
}

// shown is JSON of others with each of its texts escaped.
func shown(v value) any {
	switch v.Kind() {
	case adp.Object:
		out := map[string]any{}
		for name, m := range v.Members() {
			out[plaintext.Text(name)] = shown(m)
		}
		return out
	case adp.Array:
		out := []any{}
		for e := range v.Elements() {
			out = append(out, shown(e))
		}
		return out
	case adp.String:
		return plaintext.Text(v.Text())
	}
	return json.RawMessage(v.Raw())
}
