package index

import (
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

func newTally(names []string) *tally {
	n := &tally{of: map[string]bool{}, moreTags: map[string]int64{}}
	for _, name := range names {
		n.of[name] = true
	}
	return n
}

// grow makes room for all numbers that there are.
func (n *tally) grow(t *table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, names := range map[*[]int64]int{&n.hosts: len(t.hosts.names), &n.languages: len(t.languages.names), &n.tags: len(t.tags.names)} {
		*of = append(*of, make([]int64, names-len(*of))...)
	}
}

// facets counts over all rooms that match, whatever page is asked for. With words that
// many rooms have, it counts among those that are looked at, and says so.
func (s *finder) facets() (map[string][]Count, string, error) {
	if !s.m.textual() && !s.m.none {
		counts, err := s.x.counts(s.ctx, s.m.filter, s.m.now)
		return counts, "", err
	}
	t, note := newTally(s.m.facets), ""
	m, v := s.x.rows.prepare(s.m.filter, s.m.now) // counts are of now, on every page
	s = &finder{ctx: s.ctx, x: s.x, m: m, view: v, at: m.now}
	t.grow(&s.x.rows)
	if !m.none {
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
				t.add(m, c, []uint8{uint8(i)}, 1)
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

// chunk counts the rows of a chunk that match, or takes them back when by is -1.
func (t *tally) chunk(m *matcher, c *chunk, by int64) {
	var chosen [chunkLen]uint8
	list := m.choose(c, &chosen)
	if m.loose {
		list = slices.DeleteFunc(list, func(i uint8) bool { return !m.exact(c.row[i]) })
	}
	t.add(m, c, list, by)
}

// add counts rows of a chunk, column by column.
func (t *tally) add(m *matcher, c *chunk, list []uint8, by int64) {
	if t.of[facetStatus] {
		for _, i := range list {
			t.statuses[statusAt(c.bits[i], c.start[i], c.end[i], c.activity[i], m.now)] += by
		}
	}
	if t.of[facetHost] {
		for _, i := range list {
			count(t.hosts, c.host[i], by)
		}
	}
	if t.of[facetLanguage] {
		for _, i := range list {
			count(t.languages, c.language[i], by)
		}
	}
	if !t.of[facetTag] {
		return
	}
	for _, i := range list {
		tags := &c.tags[i] // 0 is counted too, and left out in the end
		count(t.tags, tags[0], by)
		count(t.tags, tags[1], by)
		count(t.tags, tags[2], by)
		count(t.tags, tags[3], by)
		if c.bits[i]&hasMoreTags == 0 {
			continue
		}
		for _, tag := range split(c.row[i].part(atTags))[tagColumns:] {
			if t.moreTags[tag] += by; t.moreTags[tag] == 0 {
				delete(t.moreTags, tag)
			}
		}
	}
}

// count leaves out what came after the tally was made.
func count(of []int64, number uint32, by int64) {
	if int(number) < len(of) {
		of[number] += by
	}
}

// named puts words in the place of numbers.
func (t *tally) named(from *table) map[string][]Count {
	out := map[string][]Count{}
	from.mu.Lock()
	defer from.mu.Unlock()
	for name := range t.of {
		counts := best{}
		switch name {
		case facetStatus:
			for i, n := range t.statuses[:hidden] {
				if n > 0 {
					counts.add(statuses[i], n)
				}
			}
		case facetHost:
			for number, n := range t.hosts {
				if n > 0 && counts.takes(n) && from.hosts.names[number] != "" {
					counts.add(from.hosts.names[number], n)
				}
			}
		case facetLanguage:
			languages := map[string]int64{}
			for number, n := range t.languages {
				if l := primary(from.languages.names[number]); n > 0 && l != "" {
					languages[l] += n
				}
			}
			for l, n := range languages {
				counts.add(l, n)
			}
		case facetTag:
			for number, n := range t.tags {
				if tag := from.tags.names[number]; n > 0 && tag != "" && counts.takes(n+t.moreTags[tag]) {
					counts.add(tag, n+t.moreTags[tag])
				}
			}
			for tag, n := range t.moreTags {
				if number := from.tags.number(tag); int(number) >= len(t.tags) || t.tags[number] <= 0 || number == 0 { // else it was counted
					counts.add(tag, n)
				}
			}
		}
		out[name] = counts
	}
	return out
}
