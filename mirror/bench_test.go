package mirror

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// BenchmarkSync mirrors a long room from a loopback host into a store on a
// disk; BenchmarkVerify checks and replays the same records from memory. The
// ratio of their rates is a gate of the design.
func BenchmarkSync(b *testing.B) {
	h := newFakeHost(b)
	s := benchStory(b)
	h.put(s)
	for b.Loop() {
		b.StopTimer()
		st, err := store.Open(store.Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		set, err := replica.Open(st)
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		var over atomic.Bool
		m, err := New(Options{Own: ownOrigin, Replicas: set, Store: st, AllowPrivate: true, Fetch: fetch.New(fetch.Options{AllowPrivate: true}),
			PollMin: time.Millisecond, RequestsPerSecond: 1e6,
			Changed: func(r *replica.Replica) {
				if r.Row().Seq == int64(len(s.recs)) && over.CompareAndSwap(false, true) {
					close(done)
				}
			}})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		if err := m.Add(h.origin(), "flag"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		go func() { ended <- m.Run(ctx) }()
		<-done
		b.StopTimer()
		cancel()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(len(s.recs))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkVerify(b *testing.B) {
	s := benchStory(b)
	var items []element
	for _, raw := range s.texts() {
		items = append(items, element{raw: raw})
	}
	m := &Mirror{cores: make(chan struct{}, 2)}
	for b.Loop() {
		v := room.NewVerifier(s.id, nil)
		for _, c := range m.check(items) {
			if err := v.Add(c.rec); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(s.recs))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// benchStory is a room of 20,000 records, or of as many as BENCH_RECORDS says.
func benchStory(b *testing.B) *story {
	b.Helper()
	records := 20_000
	if text := os.Getenv("BENCH_RECORDS"); text != "" {
		var err error
		if records, err = strconv.Atoi(text); err != nil {
			b.Fatalf("BENCH_RECORDS: %v", err)
		}
	}
	s := newStory(b, "long", map[string]any{"language": "en"})
	s.add(member, room.Join, map[string]any{"role": "speaker"})
	for len(s.recs) < records {
		s.add(member, room.Message, map[string]any{"content_type": "text/plain", "content": fmt.Sprintf("%d %0400d", len(s.recs), 7), "references": []string{}, "extra": map[string]any{"by": adp.Protocol}})
	}
	return s
}
