package index

import (
	"math"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/index/text"
)

// matcher judges rows by a filter whose words stand as the numbers of the columns.
type matcher struct {
	*filter
	now       int64
	none      bool // a word that no room has
	hosts     []uint32
	languages []bool // by number; nil: any
	kinds     []bool
	tag       uint32
	creator   uint64
	joinable  bool
	loose     bool // only rows tell the last of it, see exact
}

// prepare makes a matcher and a snapshot that belong together.
func (t *table) prepare(f *filter, now int64) (*matcher, *view) {
	m := &matcher{filter: f, now: now, joinable: f.joinable == "true"}
	t.mu.Lock()
	v := t.freeze()
	for _, o := range f.origins {
		if n := t.hosts.number(o); n != 0 {
			m.hosts = append(m.hosts, n)
		}
	}
	if f.tag != "" {
		m.tag = t.tags.number(f.tag)
	}
	var languages, kinds []string
	if f.primary != "" {
		languages = slices.Clone(t.languages.names)
	}
	if f.typ != "" {
		kinds = slices.Clone(t.kinds.names)
	}
	t.mu.Unlock()
	m.none = f.origins != nil && m.hosts == nil
	if f.primary != "" {
		m.languages = mark(languages, func(l string) bool {
			return l == f.language || f.language == "" && primary(l) == f.primary
		})
	}
	if f.typ != "" {
		m.kinds = mark(kinds, func(k string) bool { return hasKind(k, f.typ) })
	}
	if f.creator != "" {
		m.creator = creatorMark(f.creator)
	}
	m.loose = f.creator != "" || f.tag != ""
	return m, v
}

func mark(names []string, fits func(string) bool) []bool {
	out := make([]bool, len(names))
	for i, name := range names {
		out[i] = i > 0 && fits(name)
	}
	return out
}

// hasKind tells whether a type or a pack is among the kinds of a room.
func hasKind(kinds, name string) bool {
	types, rest, _ := strings.Cut(kinds, text.Between)
	_, packs, _ := strings.Cut(rest, text.Between)
	return hasItem(types, name) || hasItem(packs, name)
}

func hasItem(list, name string) bool {
	return strings.HasPrefix(list, name+listEnd) || strings.Contains(list, listEnd+name+listEnd)
}

// choose lists the rows of a chunk that match as far as columns tell, in order. It
// narrows the list by one column after the other, in loops that do nothing else, since
// a query may have to look at all rooms. buf is for the list.
func (m *matcher) choose(c *chunk, buf *[chunkLen]uint8) []uint8 {
	n := 0
	for i := range chunkLen {
		buf[n&(chunkLen-1)] = uint8(i)
		if c.bits[i]&m.mask == m.want {
			n++
		}
	}
	list := buf[:n]
	narrow := func(fits func(i uint8) bool) {
		n := 0
		for _, i := range list {
			if fits(i) {
				list[n] = i
				n++
			}
		}
		list = list[:n]
	}
	switch len(m.hosts) {
	case 0:
	case 1:
		n, host := 0, m.hosts[0]
		for _, i := range list {
			list[n] = i
			if c.host[i] == host {
				n++
			}
		}
		list = list[:n]
	default:
		narrow(func(i uint8) bool { return slices.Contains(m.hosts, c.host[i]) })
	}
	if m.filter.tag != "" {
		n, tag := 0, m.tag
		if tag == 0 {
			tag = math.MaxUint32 // no column has it
		}
		for _, i := range list {
			list[n] = i
			if t := &c.tags[i]; t[0] == tag || t[1] == tag || t[2] == tag || t[3] == tag || c.bits[i]&hasMoreTags != 0 {
				n++
			}
		}
		list = list[:n]
	}
	if m.filter.creator != "" {
		n := 0
		for _, i := range list {
			list[n] = i
			if c.creator[i] == m.creator {
				n++
			}
		}
		list = list[:n]
	}
	if m.languages != nil {
		narrow(func(i uint8) bool { return has(m.languages, c.language[i]) })
	}
	if m.kinds != nil {
		narrow(func(i uint8) bool { return has(m.kinds, c.kinds[i]) })
	}
	if m.after != math.MinInt64 {
		narrow(func(i uint8) bool { return c.start[i] > m.after })
	}
	if m.before != math.MaxInt64 {
		narrow(func(i uint8) bool { return c.end[i] < m.before })
	}
	if m.since != math.MinInt64 {
		narrow(func(i uint8) bool { return c.activity[i] > m.since })
	}
	if m.noticed != math.MinInt64 {
		narrow(func(i uint8) bool { return c.noticed[i] > m.noticed })
	}
	if m.in != anyStatus || m.filter.joinable != "" {
		narrow(func(i uint8) bool { return m.status(c, i) })
	}
	return list
}

func has(set []bool, number uint32) bool { return int(number) < len(set) && set[number] }

// status judges what follows from the status of a row.
func (m *matcher) status(c *chunk, i uint8) bool {
	s := statusAt(c.bits[i], c.start[i], c.end[i], c.activity[i], m.now)
	if m.in&(1<<s) == 0 {
		return false
	}
	if m.filter.joinable == "" {
		return true
	}
	// ADP §11: a room takes joins until it is over; only a public one takes everybody, as
	// long as it takes anybody.
	joinable := c.bits[i]>>visibilityAt&field == code(visibilities, room.Public, 0) && c.bits[i]&isFull == 0 && (s == scheduled || s == active)
	return joinable == m.joinable
}

// columns judges one row by its columns, and what they tell only almost by the row.
func (m *matcher) columns(c *chunk, i int) bool {
	switch {
	case c.bits[i]&m.mask != m.want,
		m.hosts != nil && !slices.Contains(m.hosts, c.host[i]),
		m.languages != nil && !has(m.languages, c.language[i]),
		m.kinds != nil && !has(m.kinds, c.kinds[i]),
		c.start[i] <= m.after, c.end[i] >= m.before, c.activity[i] <= m.since, c.noticed[i] <= m.noticed,
		(m.in != anyStatus || m.filter.joinable != "") && !m.status(c, uint8(i)):
		return false
	}
	return m.exact(c.row[i])
}

// exact judges what the columns tell only almost.
func (m *matcher) exact(r *row) bool {
	if !m.loose {
		return true
	}
	return (m.filter.creator == "" || r.part(atCreator) == m.filter.creator) && (m.filter.tag == "" || hasItem(r.part(atTags), m.filter.tag))
}

// textual tells whether texts are to be judged, which costs more than all else.
func (f *filter) textual() bool { return f.keyword != "" || len(f.words) > 0 }

// texts judges the search text of a row.
func (f *filter) texts(search string, keywords int32) bool {
	if f.keyword != "" && !strings.Contains(search[:keywords], f.keyword) {
		return false
	}
	for _, w := range f.words {
		if !w.In(search) {
			return false
		}
	}
	return true
}

// minRank is the lowest rank that a matching row of a chunk can have.
func (m *matcher) minRank(c *chunk, at int64) status {
	lowest := active
	if at >= c.lastEnd {
		lowest = ended
	}
	if m.now != at { // status is judged by now, the rank by at
		return lowest
	}
	for lowest < hidden && m.in&(1<<lowest) == 0 {
		lowest++
	}
	return lowest
}

// score says how well a room fits the words: where they occur, and whether the topic
// has them side by side.
func (f *filter) score(r *row) (n int64) {
	parts, titles := [...]struct {
		at     int
		weight int64
	}{{atTopic, 8}, {atTags, 6}, {atAgenda, 2}, {atGuidance, 1}}, ""
	if r.kinds != "" {
		_, list, _ := splitKinds(r.kinds)
		titles = text.Fold(joined(list))
	}
	for _, p := range parts {
		s := text.Fold(r.part(p.at))
		for _, w := range f.words {
			if w.In(s) {
				n += p.weight
			}
		}
		if p.at == atTopic && strings.Contains(s, f.q) {
			n += 8
		}
	}
	for _, w := range f.words {
		if w.In(titles) {
			n += 3
		}
	}
	return n
}
