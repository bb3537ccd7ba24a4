package replica

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/witan-adp/witan/internal/store"
)

// sink is an answer that goes nowhere.
type sink struct {
	h http.Header
	n int64
}

func (w *sink) Header() http.Header { return w.h }
func (w *sink) WriteHeader(int)     {}
func (w *sink) Write(b []byte) (int, error) {
	w.n += int64(len(b))
	return len(b), nil
}

const (
	benchRecords = 20_000
	benchPage    = 1000
)

func history(b *testing.B) *Replica {
	b.Helper()
	s := begin(b, nil).upTo(benchRecords)
	st := disk(b)
	r := create(b, openSet(b, st), s)
	for from := 1; from < benchRecords; {
		to := min(from+1000, benchRecords)
		wait(b, feed(b, r, s, from, to), to-from)
		from = to
	}
	r.Unload(1 << 60) // history is read from the store, not from memory
	return r
}

// BenchmarkHistory reads a long room in pages of 1,000: as bare scans of the store
// that copy out what they read, and as answers of the HTTP handler. The ratio of the
// rates is a gate.
func BenchmarkHistory(b *testing.B) {
	r := history(b)
	pages := benchRecords / benchPage
	report := func(b *testing.B) {
		b.ReportMetric(float64(b.N)*benchPage/b.Elapsed().Seconds(), "records/s")
	}
	b.Run("Scan1000", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			from, to := store.RecordRange(r.ID, int64(i%pages*benchPage)+1, int64((i%pages+1)*benchPage)+1)
			n := 0
			err := r.set.st.View(func(rd store.Reader) error {
				buf := make([]byte, 0, 1<<20)
				return rd.Scan(from, to, func(_, value []byte) bool {
					buf = append(buf, value...)
					n++
					return true
				})
			})
			if err != nil || n != benchPage {
				b.Fatal(n, err)
			}
		}
		report(b)
	})
	b.Run("ServeEvents", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			req := httptest.NewRequest("GET", fmt.Sprintf("%s?after_seq=%d&limit=%d", eventsURL, i%pages*benchPage, benchPage), nil)
			w := &sink{h: http.Header{}}
			if err := r.ServeEvents(w, req, eventsURL, true); err != nil || w.n < benchPage*500 {
				b.Fatal(w.n, err)
			}
		}
		report(b)
	})
}
