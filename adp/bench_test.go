package adp

import (
	"crypto/ed25519"
	"crypto/sha3"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// verifyText is everything a mirror does with one record of a chain.
func verifyText(b testing.TB, text []byte, pre string, signature bool) {
	v, err := ScanDepth(text, RecordDepth)
	if err != nil {
		b.Fatal(err)
	}
	r, err := ParseRecord(v)
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Envelope.CheckShape(); err != nil {
		b.Fatal(err)
	}
	if err := r.Follows(sampleRoom, 1, pre); err != nil {
		b.Fatal(err)
	}
	if signature {
		if err := r.CheckSignature(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyRecord(b *testing.B) {
	text, pre := benchRecord(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		verifyText(b, text, pre, true)
	}
}

func BenchmarkBareVerify(b *testing.B) {
	key := seedKey(7)
	pub := key.Public().(ed25519.PublicKey)
	hash := sha3.Sum256([]byte("event"))
	sig := ed25519.Sign(key, hash[:])
	for b.Loop() {
		if !ed25519.Verify(pub, hash[:], sig) {
			b.Fatal("a good signature was refused")
		}
	}
}

func BenchmarkNoSignature(b *testing.B) {
	text, pre := benchRecord(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		verifyText(b, text, pre, false)
	}
}

func BenchmarkNoSignatureShuffled(b *testing.B) {
	text, pre := benchRecord(b)
	mixed := shuffled(b, mustScan(b, string(text)), rand.New(rand.NewPCG(1, 2)))
	b.SetBytes(int64(len(mixed)))
	b.ReportAllocs()
	for b.Loop() {
		verifyText(b, mixed, pre, false)
	}
}

func BenchmarkVerifyRecordParallel(b *testing.B) {
	text, pre := benchRecord(b)
	b.SetBytes(int64(len(text)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			verifyText(b, text, pre, true)
		}
	})
}

// BenchmarkRatios interleaves the kinds of work in one loop and reports the
// median of each as a ratio to that of the bare signature check: ratios hold
// where times swing, and medians where other processes cut in. The gates are
// 0.70 for the full check and 0.15 for the rest of a canonical record.
func BenchmarkRatios(b *testing.B) {
	text, pre := benchRecord(b)
	mixed := shuffled(b, mustScan(b, string(text)), rand.New(rand.NewPCG(1, 2)))
	key := seedKey(7)
	pub := key.Public().(ed25519.PublicKey)
	hash := sha3.Sum256([]byte("event"))
	sig := ed25519.Sign(key, hash[:])
	kinds := []struct {
		name string
		work func()
		took []time.Duration
	}{
		{"bare", func() { ed25519.Verify(pub, hash[:], sig) }, nil},
		{"full/bare", func() { verifyText(b, text, pre, true) }, nil},
		{"nosig/bare", func() { verifyText(b, text, pre, false) }, nil},
		{"shuffled/bare", func() { verifyText(b, mixed, pre, false) }, nil},
	}
	runtime.GC()
	for b.Loop() {
		for i := range kinds {
			start := time.Now()
			kinds[i].work()
			kinds[i].took = append(kinds[i].took, time.Since(start))
		}
	}
	median := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2])
	}
	for _, k := range kinds[1:] {
		b.ReportMetric(median(k.took)/median(kinds[0].took), k.name)
	}
}
