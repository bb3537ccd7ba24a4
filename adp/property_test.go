package adp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

// writer writes random JSON trees in random spellings.
type writer struct {
	t   *rapid.T
	out strings.Builder
}

func (w *writer) pick(n int) int { return rapid.IntRange(0, n-1).Draw(w.t, "pick") }

func (w *writer) space() {
	if w.pick(4) == 0 {
		w.out.WriteString([]string{" ", "\n", "\t", "\r\n", "  "}[w.pick(5)])
	}
}

var text = rapid.OneOf(
	rapid.StringMatching(`[a-c]{0,2}`),
	rapid.StringOfN(rapid.SampledFrom([]rune("ab/\\\"\b\f\n\r\t\x00\x1f\x7fé\u20ac\u2028\ud7ff\ue000\ufb33\uffff\U00010000😀\U0010ffff")), 0, 12, -1),
	rapid.StringN(0, 20, -1),
)

func (w *writer) str(s string) {
	w.out.WriteByte('"')
	plain := w.pick(3) == 0 // as JCS writes it
	for _, r := range s {
		must := r < 0x20 || r == '"' || r == '\\'
		if plain || !must && w.pick(4) != 0 {
			q := AppendString(nil, string(r))
			w.out.Write(q[1 : len(q)-1])
			continue
		}
		if short := strings.IndexRune("\"\\/\b\f\n\r\t", r); short >= 0 && w.pick(2) == 0 {
			w.out.WriteString(`\` + `"\/bfnrt`[short:short+1])
			continue
		}
		format := []string{`\u%04x`, `\u%04X`}[w.pick(2)]
		if r >= 0x10000 {
			fmt.Fprintf(&w.out, format, 0xd800+(r-0x10000)>>10)
			r = 0xdc00 + (r-0x10000)&0x3ff
		}
		fmt.Fprintf(&w.out, format, r)
	}
	w.out.WriteByte('"')
}

func (w *writer) number() {
	var f float64
	switch w.pick(4) {
	case 0:
		f = float64(rapid.Int64Range(-MaxInt, MaxInt).Draw(w.t, "int"))
	case 1:
		f = float64(rapid.IntRange(-1000, 1000).Draw(w.t, "small")) / 8
	case 2:
		f = math.Ldexp(rapid.Float64Range(-2, 2).Draw(w.t, "mantissa"), rapid.IntRange(-1080, 40).Draw(w.t, "exponent"))
	default:
		f = rapid.SampledFrom([]float64{0, 1e-6, 1e-7, 9.5e-7, MaxInt, -MaxInt, 5e-324, 2.2250738585072014e-308, 1e15, 4503599627370495.5}).Draw(w.t, "special")
	}
	s := strconv.FormatFloat(f, []byte{'g', 'e', 'f', 'E'}[w.pick(4)], -1, 64)
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	switch w.pick(4) {
	case 0:
		if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
		mantissa += strings.Repeat("0", 1+w.pick(3))
	case 1:
		s = mantissa
		if exponent == "" {
			exponent = []string{"0", "+0", "-00"}[w.pick(3)]
		}
	}
	w.out.WriteString(mantissa)
	if exponent != "" {
		w.out.WriteString([]string{"e", "E"}[w.pick(2)] + exponent)
	}
}

func (w *writer) value(depth int) {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch w.pick(kinds) {
	case 0:
		w.out.WriteString([]string{"null", "true", "false"}[w.pick(3)])
	case 1:
		w.number()
	case 2, 3:
		w.str(text.Draw(w.t, "text"))
	case 4:
		w.out.WriteByte('[')
		w.space()
		for i := range w.pick(5) {
			if i > 0 {
				w.out.WriteByte(',')
				w.space()
			}
			w.value(depth - 1)
			w.space()
		}
		w.out.WriteByte(']')
	default:
		w.object(depth)
	}
}

func (w *writer) object(depth int) {
	names := rapid.SliceOfNDistinct(text, 0, []int{3, 6, 25}[w.pick(3)], rapid.ID).Draw(w.t, "names")
	w.out.WriteByte('{')
	w.space()
	for i, name := range names {
		if i > 0 {
			w.out.WriteByte(',')
			w.space()
		}
		w.str(name)
		w.space()
		w.out.WriteByte(':')
		w.space()
		w.value(max(0, depth-1))
		w.space()
	}
	w.out.WriteByte('}')
}

func TestRandomTreesAgainstOracles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{t: t}
		w.space()
		w.value(4)
		w.space()
		text := []byte(w.out.String())
		v, err := Scan(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		oracle, err := jcs.Transform(text)
		if err != nil {
			t.Fatalf("%q: the oracle says %v", text, err)
		}
		c, err := v.Canonical()
		if err != nil || !bytes.Equal(c.Raw(), oracle) {
			t.Fatalf("%q: %q, %v, want %q", text, c.Raw(), err, oracle)
		}
		if v.IsCanonical() != bytes.Equal(v.Raw(), oracle) {
			t.Fatalf("%q: canonical flag %v", text, v.IsCanonical())
		}
		again, err := Scan(oracle)
		if err != nil || !again.IsCanonical() {
			t.Fatalf("%q: the canonical form is not taken for one: %v", oracle, err)
		}
	})
}

// TestBrokenTreesAgainstOracles alters one byte of a good text.
func TestBrokenTreesAgainstOracles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{t: t}
		w.value(3)
		text := []byte(w.out.String())
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		switch w.pick(3) {
		case 0:
			text[at] = rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte(`{}[],:"\eE.+-0/u `))).Draw(t, "byte")
		case 1:
			text = append(text[:at], text[at+1:]...)
		default:
			text = append(text[:at+1], text[at:]...)
		}
		checkAgainstOracles(t, text)
	})
}

func TestSignParseVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{t: t}
		w.object(3)
		key := seedKey(rapid.Byte().Draw(t, "seed"))
		d := message(rapid.Int64Range(1, MaxInt-1779753700000).Draw(t, "nonce"), rapid.Int64Range(1, MaxInt).Draw(t, "seq"), goodHash, "")
		d.Payload = json.RawMessage(w.out.String())
		e, err := Sign(key, d)
		if err != nil {
			t.Fatal(err)
		}
		r := NewRecord(e, sampleRoom, d.BaseSeq, goodHash, rapid.Int64Range(0, MaxInt).Draw(t, "at"))
		if r.Seq == 1 {
			r = NewRecord(e, sampleRoom, 1, "", r.ReceivedAt)
		}
		v, err := ScanDepth(r.JSON(), RecordDepth)
		if err != nil || !v.IsCanonical() {
			t.Fatalf("NewRecord writes %s: %v", r.JSON(), err)
		}
		rnd := rand.New(rand.NewPCG(uint64(d.Nonce), 0))
		texts := [][]byte{r.JSON(), shuffleValue(v, rnd, func(err error) { t.Fatal(err) })}
		for _, text := range texts {
			v, err := ScanDepth(text, RecordDepth)
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseRecord(v)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if err := again.CheckSignature(); err != nil {
				t.Fatal(err)
			}
			if err := again.Envelope.CheckShape(); err != nil {
				t.Fatal(err)
			}
			if again.Hash != r.Hash || !bytes.Equal(again.JSON(), r.JSON()) || again.Envelope.Nonce != d.Nonce {
				t.Fatalf("%s became %s", r.JSON(), again.JSON())
			}
		}
	})
}

// checkAltered: an altered text of a record is refused, unless it is another
// spelling of the same value ("\u000B" for "\u000b").
func checkAltered(t testing.TB, original *Record, text []byte) {
	v, err := ScanDepth(text, RecordDepth)
	if err != nil {
		return
	}
	r, err := ParseRecord(v)
	if err != nil {
		if CodeOf(err) == "" {
			t.Fatalf("%s: a refusal without a code: %v", text, err)
		}
		return
	}
	if r.CheckSignature() == nil && !bytes.Equal(r.JSON(), original.JSON()) {
		t.Fatalf("%s verifies instead of %s", text, original.JSON())
	}
}

// TestEveryBitOfARecord flips each bit of two canonical records, deletes each
// byte and doubles each byte.
func TestEveryBitOfARecord(t *testing.T) {
	plain := chain(t, 2)
	odd := message(2, 1, plain[0].Hash, "\x0b é😀\u2028\"\\/\n")
	odd.Payload.(map[string]any)["n"] = []float64{1e-7, 0.5, -3}
	for _, r := range []*Record{plain[0], plain[1], NewRecord(mustSign(t, seedKey(7), odd), sampleRoom, 2, plain[0].Hash, 5)} {
		for i := range r.JSON() {
			for bit := range 8 {
				text := bytes.Clone(r.JSON())
				text[i] ^= 1 << bit
				checkAltered(t, r, text)
			}
			checkAltered(t, r, append(bytes.Clone(r.JSON()[:i]), r.JSON()[i+1:]...))
			checkAltered(t, r, append(bytes.Clone(r.JSON()[:i+1]), r.JSON()[i:]...))
		}
	}
}

func TestRandomByteOfARecord(t *testing.T) {
	records := chain(t, 6)
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(records).Draw(t, "record")
		text := bytes.Clone(r.JSON())
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		b := rapid.Byte().Draw(t, "byte")
		if text[at] == b {
			return
		}
		text[at] = b
		v, err := ScanDepth(text, RecordDepth)
		if err != nil {
			return
		}
		// these records hold nothing that has two spellings
		if got, err := ParseRecord(v); err == nil && got.CheckSignature() == nil {
			t.Fatalf("%s verifies instead of %s", text, r.JSON())
		}
	})
}
