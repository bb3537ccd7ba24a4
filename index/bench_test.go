package index

import (
	"context"
	"fmt"
	"net/url"
	"testing"
)

var benchWords = []string{"quorum", "mirror", "witness", "archive", "agent", "policy", "联邦", "讨论", "review", "schedule", "proof", "gossip"}

func benchDoc(i int) Doc {
	return doc(fmt.Sprintf("r%07d", i), func(d *Doc) {
		word := func(n int) string { return benchWords[(i*7+n*n)%len(benchWords)] }
		d.Origin = fmt.Sprintf("https://host%d.example", i%50)
		d.Topic = fmt.Sprintf("The %s of the %s, part %d", word(1), word(2), i)
		for n := range 40 {
			d.Agenda += word(n) + " and then "
		}
		d.Tags = []string{word(3), word(4)}
		d.Language = []string{"en", "en-GB", "zh", "de"}[i%4]
		d.LastActivity = start + int64(i*7919%1_000_003)%900
		d.Closed = i%3 == 0
		if i%1000 == 0 {
			d.Topic += " rarity"
		}
	})
}

func benchIndex(n int) *Index {
	x, _ := newIndex(start + 950)
	for i := range n {
		x.Put(benchDoc(i))
	}
	return x
}

func BenchmarkQuery(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		x := benchIndex(n)
		for _, q := range []struct{ name, query string }{
			{"all", ""},
			{"filters", "status=ended&language=en&verdict=verified"},
			{"tag", "tag=proof&sort=start"},
			{"q=common", "q=quorum+mirror"},
			{"q=rare", "q=rarity"},
			{"q=none", "q=absent"},
		} {
			values, err := url.ParseQuery(q.query)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%dk/%s", n/1000, q.name), func(b *testing.B) {
				for b.Loop() {
					f, err := parseRooms(values, testCursors)
					if err != nil {
						b.Fatal(err)
					}
					if _, _, err := x.page(context.Background(), f, start+950); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkPut(b *testing.B) {
	x := benchIndex(100_000)
	d := benchDoc(77)
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			d.LastActivity++
			x.Put(d)
		}
	})
	b.Run("after a query", func(b *testing.B) {
		for b.Loop() {
			x.rows.snapshot()
			d.LastActivity++
			x.Put(d)
		}
	})
}
