package index

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/witan-adp/witan/index/text"
)

var benchWords = []string{"quorum", "mirror", "witness", "archive", "agent", "policy", "联邦", "讨论", "review", "schedule", "proof", "gossip"}

// benchDoc is a room of a size that rooms have: a topic, some lines of agenda, tags.
func benchDoc(i int) Doc {
	return doc(fmt.Sprintf("r%07d", i), func(d *Doc) {
		word := func(n int) string { return benchWords[(i*7+n*n)%len(benchWords)] }
		d.Origin = fmt.Sprintf("https://host%d.example", i%50)
		d.Topic = fmt.Sprintf("The %s of the %s, part %d", word(1), word(2), i)
		for n := range 20 {
			d.Agenda += word(n) + " and then "
		}
		d.Tags = []string{word(3), fmt.Sprint("tag", i%997), "federation"}
		d.Language = []string{"en", "en-GB", "zh", "de"}[i%4]
		d.Creator = agent(i % 10_000)
		d.LastActivity = start + int64(i)*7919%1_000_003
		d.StartTime = d.LastActivity - 3600_000
		d.EndTime = d.LastActivity + int64(i%5)*100_000
		d.Closed = i%7 == 0
		if i%1000 == 0 {
			d.Topic += " rarity"
		}
		if i%100_000 == 0 {
			d.Verdict = "forked"
		}
	})
}

var benchNow = start + 800_000

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// benchSizes are 10k and 100k rooms, and what BENCH_ROOMS says on top.
func benchSizes(b *testing.B) []int {
	sizes := []int{10_000, 100_000}
	if s := os.Getenv("BENCH_ROOMS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal("BENCH_ROOMS: ", err)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

var benchQueries = []struct{ name, query string }{
	{"all", ""},
	{"filters", "status=ended&language=en&verdict=verified"},
	{"tag", "tag=proof&sort=start"},
	{"rare tag", "tag=tag77"},
	{"rare verdict", "verdict=forked&status=active"},
	{"no match", "verdict=forked&state=gone"},
	{"host", "host=host7.example&joinable=true"},
	{"creator", "creator=" + agent(77)},
	{"facets", "facets=status,host,language,tag&limit=1"},
}

var benchWordQueries = []struct{ name, query string }{
	{"q=rare", "q=rarity"},
	{"q=rare, relevance", "q=rarity&sort=relevance"},
	{"q=rare, filters", "q=rarity&status=ended&language=en"},
	{"q=none", "q=absent"},
	{"q=common", "q=quorum+mirror"},
	{"q=common, CJK", "q=" + url.QueryEscape("讨论")},
	{"q=common, relevance", "q=quorum&sort=relevance"},
	{"keyword", "keyword=um+and"},
	{"keyword=none", "keyword=absent"},
}

func benchRun(b *testing.B, x *Index, query string) {
	values, err := url.ParseQuery(query)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := x.Rooms(context.Background(), values); err != nil {
			b.Fatal(err)
		}
	}
}

// deep is the query of a page in the middle of the list.
func deep(b *testing.B, x *Index, query string) string {
	values, err := url.ParseQuery(query)
	if err != nil {
		b.Fatal(err)
	}
	f, err := parseRooms(values, testCursors)
	if err != nil {
		b.Fatal(err)
	}
	f.limit = x.Len() / 10
	s := x.finder(context.Background(), f, benchNow)
	_, next, _, err := s.page()
	if err != nil || next == nil {
		b.Fatal(next, err)
	}
	c := &cursor{at: s.at, place: *next}
	values.Set("cursor", c.seal(testCursors, f.list))
	return values.Encode()
}

func BenchmarkIndex(b *testing.B) {
	for _, n := range benchSizes(b) {
		b.Run(fmt.Sprintf("%dk", n/1000), func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "text")
			store, _, err := text.Open(dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			before := heapBytes()
			x := New(Options{Cursors: testCursors, Own: ownOrigin, Now: func() int64 { return benchNow }, Text: store})
			x.search.store = nil // first the columns alone
			began := time.Now()
			for i := range n {
				x.Put(benchDoc(i))
			}
			put := time.Since(began)
			all := heapBytes() - before
			docs := int64(0)
			for _, c := range x.rows.chunks {
				for _, r := range c.row {
					if r != nil {
						docs += int64(len(r.doc) + len(r.folded))
					}
				}
			}
			b.Logf("%d rooms: %d MiB for the columns, %d MiB for the documents, %.1f s to put", n, (all-docs)>>20, docs>>20, put.Seconds())
			b.Run("columns", func(b *testing.B) {
				for b.Loop() {
				}
				b.ReportMetric(float64(all-docs)/(1<<20), "MiB-columns")
				b.ReportMetric(float64(docs)/(1<<20), "MiB-documents")
			})
			for _, q := range benchQueries {
				b.Run(q.name, func(b *testing.B) { benchRun(b, x, q.query) })
			}
			facets := url.Values{"facets": {"status,host,language,tag"}, "limit": {"1"}}
			for name, between := range map[string]func(){
				"facets, first": func() { x.counted = countedList{} },
				"facets, 100 changes between": func() {
					for i := range 100 {
						x.Put(benchDoc(i * 7919 % n))
					}
				},
			} {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						between()
						b.StartTimer()
						if _, err := x.Rooms(context.Background(), facets); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			for _, query := range []string{"", "status=ended&language=en", "sort=start"} {
				query := deep(b, x, query)
				b.Run("deep page", func(b *testing.B) { benchRun(b, x, query) })
			}

			x.search.store = store
			began = time.Now()
			if _, err := x.Rebuild(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.Logf("%d rooms: %.1f s to write the text index, heap %d MiB", n, time.Since(began).Seconds(), (heapBytes()-before)>>20)
			for _, q := range benchWordQueries {
				b.Run(q.name, func(b *testing.B) { benchRun(b, x, q.query) })
			}
			b.Run("searchable", func(b *testing.B) { // a changed word, until the store has it
				i := 0
				for b.Loop() {
					i++
					d := benchDoc(i)
					d.Topic = fmt.Sprint("fresh", b.N, "x", i)
					x.Put(d)
					if err := x.Flush(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkPut(b *testing.B) {
	x, _ := newIndex(benchNow)
	for i := range 100_000 {
		x.Put(benchDoc(i))
	}
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
