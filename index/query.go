package index

import (
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/index/text"
	"github.com/witan-adp/witan/internal/web"
)

// Bounds of what one query may ask for.
const (
	maxText  = 1024 // bytes of q or keyword
	maxWords = 16
)

// anyStatus has a bit for each status.
const anyStatus = 1<<5 - 1

// filter is a query, parsed. A zero value of a part asks for nothing.
type filter struct {
	mask, want uint32 // of the bits of a row
	origins    []string
	creator    string
	primary    string // subtag of the language
	language   string // with its subtags
	tag, typ   string
	in         uint8 // the statuses asked for, 1<<status
	joinable   string
	after      int64 // start_time is more
	before     int64 // end_time is less
	since      int64 // last activity is more
	noticed    int64 // it came here after this
	facets     []string
	keyword    string
	words      []text.Word
	q          string // folded

	order order
	limit int
	from  *cursor // after what the page begins
	list  string  // kind of the cursors: the same for all pages of one list
	same  string  // what is the same for all queries that find the same rooms
	kept  url.Values
}

// params reads parameters by name and keeps the first error.
type params struct {
	q    url.Values
	kept url.Values // what was read; unknown parameters are ignored
	err  error
}

func (p *params) refuse(name, format string, args ...any) {
	if p.err == nil {
		p.err = adp.Errorf(adp.InvalidRequest, "Query parameter %q "+format, append([]any{name}, args...)...).With("parameter", name)
	}
}

// text is the value of a parameter that is there once and is not empty.
func (p *params) text(name string) (string, bool) {
	if !p.q.Has(name) {
		return "", false
	}
	s, err := web.String(p.q, name)
	switch {
	case err != nil:
		if p.err == nil {
			p.err = err
		}
	case s == "":
		p.refuse(name, "is empty; give a value or leave it out.")
	case !utf8.ValidString(s):
		p.refuse(name, "is not UTF-8.")
	}
	if p.err != nil {
		return "", false
	}
	p.kept.Set(name, s)
	return s, true
}

// oneOf is the value of a parameter that takes only some words.
func (p *params) oneOf(name string, words ...string) (string, bool) {
	s, ok := p.text(name)
	if ok && !slices.Contains(words, s) {
		p.refuse(name, "is %.60q; give one of %s.", s, strings.Join(words, ", "))
		return "", false
	}
	return s, ok
}

func (p *params) time(name string, absent int64) int64 {
	if _, ok := p.text(name); !ok {
		return absent
	}
	n, err := web.Int64(p.q, name, -adp.MaxInt, adp.MaxInt, absent)
	if err != nil && p.err == nil {
		p.err = err
	}
	return n
}

// known filters by one of the fields of a row's bits.
func (f *filter) known(p *params, name string, words []string, at int) {
	if s, ok := p.oneOf(name, words...); ok {
		f.mask |= field << at
		f.want |= code(words, s, at)
	}
}

// parseRooms reads the query of GET /v1/index/rooms.
func parseRooms(q url.Values, cursors *web.Cursors) (*filter, error) {
	p := &params{q: q, kept: url.Values{}}
	f := &filter{mask: isLive, want: isLive}
	f.common(p)
	f.host(p)
	f.known(p, "visibility", visibilities, visibilityAt)
	f.known(p, "verdict", verdicts, verdictAt)
	f.known(p, "state", states, stateAt)
	f.known(p, "attested", attesteds, attestedAt)
	f.joinable, _ = p.oneOf("joinable", "true", "false")
	if s, ok := p.text("types"); ok {
		if !isTypeName(s) && !isPackName(s) {
			p.refuse("types", "is neither a type name like \"poll.create\" nor a pack like \"adp:deliberation/1.0\" or https://example.org/pack.json.")
		}
		f.typ = s
	}
	if s, ok := p.text("q"); ok {
		switch f.words = text.Words(s); {
		case len(s) > maxText || len(f.words) > maxWords:
			p.refuse("q", "asks for too much; give up to %d words in %d bytes.", maxWords, maxText)
		case len(f.words) == 0:
			p.refuse("q", "has no word to search for.")
		}
		// the longest is most likely the rarest, and settles most rooms
		slices.SortStableFunc(f.words, func(a, b text.Word) int { return len(b.Text) - len(a.Text) })
		f.q = text.Fold(s)
	}
	f.since, f.noticed = p.time("since", math.MinInt64), p.time("noticed_since", math.MinInt64)
	if s, ok := p.oneOf("sort", "activity", "start", "relevance"); ok && s == "start" {
		f.order = byStart
	} else if ok && s == "relevance" {
		if f.order = byRelevance; len(f.words) == 0 {
			p.refuse("sort", "is relevance, which needs words to be relevant to; give \"q\", too.")
		}
	}
	f, err := f.page(p, cursors, "index/rooms", 20, 200)
	if err != nil {
		return nil, err
	}
	if s, ok := p.text("facets"); ok { // no part of what makes the list
		for name := range strings.SplitSeq(s, ",") {
			if !slices.Contains(facetNames, name) {
				p.refuse("facets", "asks for %.60q; give some of %s, with commas between them.", name, strings.Join(facetNames, ", "))
			} else if !slices.Contains(f.facets, name) {
				f.facets = append(f.facets, name)
			}
		}
	}
	return f, p.err
}

// parsePublic reads the query of GET /v1/rooms/public (ADP §18).
func parsePublic(q url.Values, cursors *web.Cursors) (*filter, error) {
	p := &params{q: q, kept: url.Values{}}
	f := &filter{mask: isLive | isOwn, want: isLive | isOwn, order: byID, since: math.MinInt64, noticed: math.MinInt64}
	f.common(p)
	return f.page(p, cursors, "rooms/public", 20, 100)
}

// common reads the filters of ADP §18.
func (f *filter) common(p *params) {
	f.in = anyStatus
	if s, ok := p.oneOf("status", statuses...); ok {
		f.in = 1 << slices.Index(statuses, s)
	}
	if s, ok := p.text("tag"); ok {
		f.tag = s
	}
	if s, ok := p.text("keyword"); ok {
		if f.keyword = text.Fold(s); len(s) > maxText {
			p.refuse("keyword", "has %d bytes; give up to %d.", len(s), maxText)
		}
	}
	if s, ok := p.text("creator"); ok {
		if !adp.IsAgentID(s) {
			p.refuse("creator", "is no Agent ID; give did:agent: and 43 base64url characters.")
		}
		f.creator = s
	}
	if s, ok := p.text("language"); ok {
		s = strings.ToLower(s)
		f.primary = primary(s)
		if strings.Contains(s, "-") { // else "en" also means en-GB
			f.language = s
		}
	}
	f.after = p.time("starts_after", math.MinInt64)
	f.before = p.time("ends_before", math.MaxInt64)
}

// page reads limit and cursor, which are not part of what makes the list.
func (f *filter) page(p *params, cursors *web.Cursors, list string, def, max int) (*filter, error) {
	f.list = list + "?" + p.kept.Encode()
	found := maps.Clone(p.kept)
	found.Del("sort")
	f.same = found.Encode()
	p.text("limit")
	sealed, continued := p.text("cursor")
	if p.err != nil {
		return nil, p.err
	}
	var err error
	if f.limit, err = web.Limit(p.q, def, max); err != nil {
		return nil, err
	}
	if continued {
		if f.from, err = openCursor(cursors, f.list, sealed); err != nil {
			return nil, err
		}
	}
	p.kept.Del("cursor")
	f.kept = p.kept
	return f, nil
}

// isPackName tells whether s may name a pack: a registered one, or the URI of
// another.
func isPackName(s string) bool {
	return len(s) <= 2048 && (strings.HasPrefix(s, "adp:") || strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://"))
}

// isTypeName keeps the pattern of wire-facts §2: two or more parts between
// dots, each of a-z, 0-9, _ and -, and starting with neither of the last two.
func isTypeName(s string) bool {
	if len(s) > 128 || !strings.Contains(s, ".") {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || part[0] == '_' || part[0] == '-' {
			return false
		}
		for _, c := range []byte(part) {
			if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
				return false
			}
		}
	}
	return true
}
