package adp

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// worstTexts is what an adversary sends to make n bytes costly.
func worstTexts(n int) map[string]string {
	fill := func(open string, item func(i int) string, shut string) string {
		var b strings.Builder
		b.WriteString(open)
		for i := 0; b.Len() < n; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return b.String() + shut
	}
	nested := func(item string) string {
		var b strings.Builder
		for range MaxDepth {
			b.WriteString(`{"z":1,`)
			for range n / MaxDepth / (len(item) + 8) {
				fmt.Fprintf(&b, `"%s%06d":1,`, item, n-b.Len())
			}
			b.WriteString(`"a":`)
		}
		return b.String() + "1" + strings.Repeat("}", MaxDepth)
	}
	long := strings.Repeat("p", 1000)
	return map[string]string{
		"members descending":       fill("{", func(i int) string { return fmt.Sprintf(`"%08d":0`, 99999999-i) }, "}"),
		"members ascending":        fill("{", func(i int) string { return fmt.Sprintf(`"%08d":0`, i) }, "}"),
		"last member out of order": fill("{", func(i int) string { return fmt.Sprintf(`"%08d":0`, i) }, `,"":0}`),
		"escaped names descending": fill("{", func(i int) string { return fmt.Sprintf(`"\u0061%08d":0`, 99999999-i) }, "}"),
		"long common prefixes":     fill("{", func(i int) string { return fmt.Sprintf(`"%s%08d":0`, long, 99999999-i) }, "}"),
		"long escaped prefixes":    fill("{", func(i int) string { return fmt.Sprintf(`"%s%08d":0`, strings.Repeat(`\u0061`, 1000), 99999999-i) }, "}"),
		"objects of sixteen": fill("[", func(i int) string {
			return `{"p":0,"o":0,"n":0,"m":0,"l":0,"k":0,"j":0,"i":0,"h":0,"g":0,"f":0,"e":0,"d":0,"c":0,"b":0,"a":0}`
		}, "]"),
		"objects of seventeen": fill("[", func(i int) string {
			return `{"q":0,"p":0,"o":0,"n":0,"m":0,"l":0,"k":0,"j":0,"i":0,"h":0,"g":0,"f":0,"e":0,"d":0,"c":0,"b":0,"a":0}`
		}, "]"),
		"descending at every depth":   nested("m"),
		"long names at every depth":   nested(long[:200]),
		"one deep chain":              strings.Repeat(`{"a":[`, MaxDepth/2) + strings.Repeat("0,", n/2) + "0" + strings.Repeat("]}", MaxDepth/2),
		"deeper than allowed":         strings.Repeat("[", n),
		"empty arrays":                fill("[", func(int) string { return "[]" }, "]"),
		"string of escapes":           `"` + strings.Repeat(`\u0041`, n/6) + `"`,
		"string of surrogate pairs":   `"` + strings.Repeat(`\ud83d\ude00`, n/12) + `"`,
		"string of high surrogates":   `"` + strings.Repeat(`\ud83d`, n/6) + `"`,
		"string of quotes":            `"` + strings.Repeat(`\"`, n/2) + `"`,
		"string of three-byte runes":  `"` + strings.Repeat("\ufb33", n/3) + `"`,
		"string without end":          `"` + strings.Repeat("a", n),
		"number of ones":              strings.Repeat("1", n),
		"fraction of ones":            "0." + strings.Repeat("1", n),
		"zeros undone by an exponent": "1" + strings.Repeat("0", n) + fmt.Sprintf("e-%d", n),
		"exponent of nines":           "1e" + strings.Repeat("9", n),
		"negative exponent of nines":  "1e-" + strings.Repeat("9", n),
		"huge exponents":              fill("[", func(int) string { return "1e-99999999" }, "]"),
		"huge exponent":               "[1e99999999" + strings.Repeat(",1", n/2) + "]",
		"slow doubles":                fill("[", func(i int) string { return fmt.Sprintf("8.41%012de-300", i) }, "]"),
		"halfway doubles":             fill("[", func(i int) string { return "1.00000000000000011102230246251565404236316680908203125" }, "]"),
		"doubles of eight hundred": fill("[", func(i int) string {
			return "1.0000000000000001110223024625156540423631668090820312" + strings.Repeat("5", 800)
		}, "]"),
		"white space":                   "[" + strings.Repeat(" ", n) + "]",
		"white space between":           fill("[", func(int) string { return " \n\t\r0 " }, "]"),
		"commas":                        "[" + strings.Repeat(",", n) + "]",
		"invalid at the end":            fill("[", func(int) string { return "{}" }, "\xff"),
		"same name over and over":       fill("{", func(int) string { return `"a":0` }, "}"),
		"same name once again, the end": fill("{", func(i int) string { return fmt.Sprintf(`"%08d":0`, i) }, `,"00000001":0}`),
	}
}

// work is what a host does with a body until it refuses it.
func work(text []byte) (accepted bool) {
	v, err := Scan(text)
	if err != nil {
		return false
	}
	c, err := v.Canonical()
	if err != nil {
		panic(err)
	}
	_, err1 := ParseRecord(c)
	_, err2 := ParseEnvelope(c)
	return err1 == nil || err2 == nil
}

// allocated is the bytes that f takes from the heap.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestWorstCaseMemory: four times the text takes some four times the memory
// (buffers that double make it up to eight; sixteen would be quadratic), and
// never more than a fixed multiple of the text. Time is the business of
// BenchmarkWorstCase.
func TestWorstCaseMemory(t *testing.T) {
	const small, large = 128 << 10, 512 << 10
	smaller := worstTexts(small)
	for name, text := range worstTexts(large) {
		a, b := []byte(smaller[name]), []byte(text)
		if work(b) {
			t.Errorf("%s: a record or an envelope", name)
		}
		one := allocated(func() { work(a) })
		four := allocated(func() { work(b) })
		if four > 10*one+256<<10 {
			t.Errorf("%s: %d bytes for a text of %d, %d for one of %d", name, one, len(a), four, len(b))
		}
		if limit := uint64(48 * len(b)); four > limit {
			t.Errorf("%s: %d bytes for a text of %d", name, four, len(b))
		}
	}
}

// BenchmarkWorstCase reports, for each text, the time of 512 KiB over four
// times the time of 128 KiB (1 is linear) and the time for one byte.
func BenchmarkWorstCase(b *testing.B) {
	const small, large = 128 << 10, 512 << 10
	smaller := worstTexts(small)
	for name, text := range worstTexts(large) {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			one, four := []byte(smaller[name]), []byte(text)
			var tookOne, tookFour time.Duration
			for b.Loop() {
				start := time.Now()
				for range 4 {
					work(one)
				}
				middle := time.Now()
				work(four)
				tookOne += middle.Sub(start)
				tookFour += time.Since(middle)
			}
			b.ReportMetric(float64(tookFour)/float64(tookOne), "growth")
			b.ReportMetric(float64(tookFour.Nanoseconds())/float64(b.N)/float64(len(four)), "ns/byte")
			b.ReportMetric(0, "ns/op")
		})
	}
}
