package index

import (
	"cmp"
	"fmt"
	"slices"
)

// The names that "facets" takes.
const (
	facetStatus   = "status"
	facetHost     = "host"
	facetLanguage = "language"
	facetTag      = "tag"
)

var facetNames = []string{facetStatus, facetHost, facetLanguage, facetTag}

// MaxFacet is how many values of a facet an answer has at most.
const MaxFacet = 50

// tally counts the values of columns by their numbers.
type tally struct {
	statuses               [hidden + 1]int64
	hosts, languages, tags []int64
	moreTags               map[string]int64 // that stand in no column
	of                     map[string]bool  // which are wanted
}

func newTally(names []string, t *table) *tally {
	n := &tally{of: map[string]bool{}, moreTags: map[string]int64{}}
	for _, name := range names {
		n.of[name] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n.hosts, n.languages, n.tags = make([]int64, len(t.hosts.names)), make([]int64, len(t.languages.names)), make([]int64, len(t.tags.names))
	return n
}

// facets counts over all rooms that match, whatever page is asked for. With words that
// many rooms have, it counts among those that are looked at, and says so.
func (s *finder) facets() (map[string][]Count, string, error) {
	t, note := newTally(s.m.facets, &s.x.rows), ""
	m, v := s.x.rows.prepare(s.m.filter, s.m.now) // counts are of now, on every page
	s = &finder{ctx: s.ctx, x: s.x, m: m, view: v, at: m.now}
	switch {
	case m.none:
	case !m.textual():
		for _, c := range v.chunks {
			if err := s.ctx.Err(); err != nil {
				return nil, "", err
			}
			t.chunk(s, c)
		}
	default:
		slots, common, _, err := s.x.search.candidates(s.ctx, m.filter)
		if err != nil {
			return nil, "", err
		}
		if common {
			if slots, note, err = s.active(); err != nil {
				return nil, "", err
			}
		}
		for _, slot := range slots {
			if c, i := v.at(slot); c != nil && m.columns(c, i) && s.texts(c.row[i]) {
				t.add(s, c, []uint8{uint8(i)})
			}
		}
		if err := s.ctx.Err(); err != nil {
			return nil, "", err
		}
	}
	return t.named(&s.x.rows), note, nil
}

// active are the places of the most active rooms that match but for their texts.
func (s *finder) active() (slots []uint32, note string, err error) {
	rows, err := s.first(byActivity, maxLook, nil)
	if err != nil {
		return nil, "", err
	}
	names := make([]id, len(rows))
	for i, f := range rows {
		names[i] = f.row.id
	}
	if len(rows) == maxLook {
		note = fmt.Sprintf("the counts are of the %d most active rooms", maxLook)
	}
	return s.x.rows.find(names), note, nil
}

func (t *tally) chunk(s *finder, c *chunk) {
	list := s.m.choose(c, &s.chosen)
	if s.m.loose {
		list = slices.DeleteFunc(list, func(i uint8) bool { return !s.m.exact(c.row[i]) })
	}
	t.add(s, c, list)
}

// add counts rows of a chunk, column by column.
func (t *tally) add(s *finder, c *chunk, list []uint8) {
	if t.of[facetStatus] {
		for _, i := range list {
			t.statuses[statusAt(c.bits[i], c.start[i], c.end[i], c.activity[i], s.m.now)]++
		}
	}
	if t.of[facetHost] {
		for _, i := range list {
			count(t.hosts, c.host[i])
		}
	}
	if t.of[facetLanguage] {
		for _, i := range list {
			count(t.languages, c.language[i])
		}
	}
	if !t.of[facetTag] {
		return
	}
	for _, i := range list {
		tags := &c.tags[i] // 0 is counted too, and left out in the end
		count(t.tags, tags[0])
		count(t.tags, tags[1])
		count(t.tags, tags[2])
		count(t.tags, tags[3])
		if c.bits[i]&hasMoreTags != 0 {
			for _, tag := range split(c.row[i].part(atTags))[tagColumns:] {
				t.moreTags[tag]++
			}
		}
	}
}

// count leaves out what came after the tally was made.
func count(of []int64, number uint32) {
	if int(number) < len(of) {
		of[number]++
	}
}

// named puts words in the place of numbers.
func (t *tally) named(from *table) map[string][]Count {
	out := map[string][]Count{}
	by := func(d *dict, of []int64, to map[string]int64, word func(string) string) {
		for number, n := range of {
			if n > 0 && number > 0 && d.names[number] != "" {
				to[word(d.names[number])] += n
			}
		}
	}
	same := func(s string) string { return s }
	from.mu.Lock()
	defer from.mu.Unlock()
	for name := range t.of {
		counts := map[string]int64{}
		switch name {
		case facetStatus:
			for i, n := range t.statuses[:hidden] {
				counts[statuses[i]] = n
			}
		case facetHost:
			by(&from.hosts, t.hosts, counts, same)
		case facetLanguage:
			by(&from.languages, t.languages, counts, primary)
		case facetTag:
			counts = t.moreTags
			by(&from.tags, t.tags, counts, same)
		}
		out[name] = ranked(counts)
	}
	return out
}

// ranked lists counts, the greatest first.
func ranked(of map[string]int64) []Count {
	list := make([]Count, 0, len(of))
	for value, n := range of {
		if n > 0 && value != "" {
			list = append(list, Count{value, n})
		}
	}
	slices.SortFunc(list, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value)) })
	return list[:min(len(list), MaxFacet)]
}
