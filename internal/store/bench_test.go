package store_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/internal/store"
)

// The append benchmarks write records of 1 KiB durably. Their ratios are the gates of the design: 64 writers at least ten
// times one by one, and at least 0.4 of the raw file.

const recordSize = 1 << 10

func record() []byte {
	b := make([]byte, recordSize)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ{}"[rand.IntN(64)]
	}
	return b
}

func perSecond(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s") }

func appendRecord(b *testing.B, s *store.Store, id uint64, seq int64, value []byte) {
	var batch store.Batch
	batch.Put(store.Record(id, seq), value)
	if err := s.Commit(&batch); err != nil {
		b.Error(err)
	}
}

func BenchmarkAppendOneByOne(b *testing.B) {
	s := mustOpen(b, store.Options{Dir: b.TempDir()})
	value := record()
	var seq int64
	for b.Loop() {
		seq++
		appendRecord(b, s, 1, seq, value)
	}
	perSecond(b)
}

func BenchmarkAppend64Writers(b *testing.B) {
	s := mustOpen(b, store.Options{Dir: b.TempDir()})
	value := record()
	run64(b, func(writer, i int) { appendRecord(b, s, uint64(writer), int64(i), value) })
	st := s.Stats()
	b.ReportMetric(float64(st.Commits)/float64(st.Groups), "records/fsync")
	perSecond(b)
}

// run64 shares b.N calls out among 64 goroutines.
func run64(b *testing.B, write func(writer, i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				write(w, int(i))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkRawFile64 is the floor: the same, with a plain file that is appended to and synced for each group.
func BenchmarkRawFile64(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	log := &rawLog{file: f, wake: make(chan struct{}, 1)}
	ended := make(chan struct{})
	go func() { defer close(ended); log.loop(b) }()
	value := record()
	run64(b, func(int, int) { <-log.append(value) })
	close(log.wake)
	<-ended
	perSecond(b)
}

type rawLog struct {
	file    *os.File
	wake    chan struct{}
	mu      sync.Mutex
	buf     []byte
	waiting []chan struct{}
}

func (l *rawLog) append(value []byte) chan struct{} {
	done := make(chan struct{})
	l.mu.Lock()
	l.buf = append(l.buf, value...)
	l.waiting = append(l.waiting, done)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return done
}

func (l *rawLog) loop(b *testing.B) {
	var spare []byte
	for range l.wake {
		l.mu.Lock()
		buf, waiting := l.buf, l.waiting
		l.buf, l.waiting = spare[:0], nil
		l.mu.Unlock()
		if _, err := l.file.Write(buf); err != nil {
			b.Error(err)
		}
		if err := l.file.Sync(); err != nil {
			b.Error(err)
		}
		for _, done := range waiting {
			close(done)
		}
		spare = buf
	}
}

func BenchmarkScan1000(b *testing.B) {
	s := mustOpen(b, store.Options{Dir: b.TempDir()})
	const total = 50_000
	value := record()
	for seq := int64(0); seq < total; seq += 1000 {
		var batch store.Batch
		for i := range int64(1000) {
			batch.Put(store.Record(1, seq+i), value)
		}
		if err := s.Commit(&batch); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		at := rand.Int64N(total - 1000)
		from, to := store.RecordRange(1, at, at+1000)
		n := 0
		err := s.View(func(r store.Reader) error {
			return r.Scan(from, to, func(_, v []byte) bool { n += len(v); return true })
		})
		if err != nil || n != 1000*recordSize {
			b.Fatal(fmt.Errorf("%d bytes: %w", n, err))
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
