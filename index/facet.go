package index

import (
	"cmp"
	"context"
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

// facets counts over all rooms that match, whatever page is asked for.
func (x *Index) facets(ctx context.Context, f *filter, now int64) (map[string][]Count, error) {
	counts := map[string]map[string]int64{}
	for _, name := range f.facets {
		counts[name] = map[string]int64{}
	}
	for _, c := range x.rows.snapshot() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for i := range chunkLen {
			if !f.columns(c, i, now) || !f.rowOnly(c.row[i]) {
				continue
			}
			for _, name := range f.facets {
				switch of := counts[name]; name {
				case facetStatus:
					of[c.row[i].statusAt(now)]++
				case facetHost:
					of[c.row[i].doc.Origin]++
				case facetLanguage:
					of[primary(c.row[i].language)]++
				case facetTag:
					for _, tag := range c.row[i].doc.Tags {
						of[tag]++
					}
				}
			}
		}
	}
	out := map[string][]Count{}
	for name, of := range counts {
		out[name] = ranked(of)
	}
	return out, nil
}

// ranked lists counts, the greatest first, and leaves out what has no value.
func ranked(of map[string]int64) []Count {
	list := []Count{}
	for value, n := range of {
		if value != "" {
			list = append(list, Count{value, n})
		}
	}
	slices.SortFunc(list, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value)) })
	return list[:min(len(list), MaxFacet)]
}
