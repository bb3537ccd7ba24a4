package replica

import (
	"sync"
	"testing"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

const writers = 64

// spread runs the work of b.N writes on 64 goroutines, each with jobs of its own.
func spread(b *testing.B, work func(writer, i int)) {
	b.Helper()
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range writers {
		wg.Go(func() {
			for i := w; i < b.N; i += writers {
				work(w, i)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func disk(b *testing.B) *store.Store {
	b.Helper()
	st, err := store.Open(store.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	return st
}

// BenchmarkAppend64Writers appends records of about 1 KiB from 64 writers, each
// waiting for its own on disk: through one replica, with judgement; and as bare
// batches of the store. The ratio is what the replica costs.
func BenchmarkAppend64Writers(b *testing.B) {
	b.Run("replica", func(b *testing.B) {
		s := begin(b, nil)
		s.upTo(b.N + 1)
		r := create(b, openSet(b, disk(b)), s)
		next := 1
		spread(b, func(int, int) {
			done := make(chan error, 1)
			err := r.Take(func(t *Turn) error {
				rec := s.recs[next]
				next++
				_, ch, err := t.State.Judge(rec, room.Context{Chain: t})
				if err != nil {
					return err
				}
				return t.Append(rec, ch, nil, func(err error) { done <- err })
			})
			if err == nil {
				err = <-done
			}
			if err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("store", func(b *testing.B) {
		s := begin(b, nil)
		s.upTo(b.N + 1)
		st := disk(b)
		spread(b, func(_, i int) {
			var batch store.Batch
			batch.Put(store.Record(1, int64(i)), s.recs[i+1].JSON())
			if err := st.Commit(&batch); err != nil {
				b.Error(err)
			}
		})
	})
}
