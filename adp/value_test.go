package adp

import (
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValueAccessors(t *testing.T) {
	v := mustScan(t, ` {"s":"a\nb","plain":"x","n":-12,"f":1.5,"e":1e2,"big":9007199254740991,"t":true,"no":false,"nil":null,"a":[1,[2,"x"],{}],"o":{"k":{"k":"deep"}},"\u006b":"escaped name","":"empty"} `)
	if v.Kind() != Object || v.Len() != 13 || !v.Exists() {
		t.Fatalf("%v, %d members", v.Kind(), v.Len())
	}
	if s, ok := v.Get("s").Str(); !ok || s != "a\nb" || !v.Get("s").Is("a\nb") || v.Get("s").Is(`a\nb`) {
		t.Errorf("%q", s)
	}
	if !v.Get("k").Is("escaped name") || !v.Get("").Is("empty") || v.Get("o").Get("k").Get("k").Text() != "deep" {
		t.Error("Get")
	}
	for _, name := range []string{"S", "s ", "missing", `\u006b`, "n\x00"} {
		if v.Get(name).Exists() {
			t.Errorf("%q exists", name)
		}
	}
	for name, want := range map[string]int64{"n": -12, "e": 100, "big": MaxInt} {
		if i, ok := v.Get(name).Int(); !ok || i != want {
			t.Errorf("%s: %d, %v", name, i, ok)
		}
	}
	for _, name := range []string{"f", "s", "t", "nil", "a", "o", "missing"} {
		if i, ok := v.Get(name).Int(); ok || i != 0 {
			t.Errorf("%s is the integer %d", name, i)
		}
	}
	if f, ok := v.Get("f").Float(); !ok || f != 1.5 {
		t.Error("f")
	}
	if f, ok := v.Get("s").Float(); ok || f != 0 {
		t.Error("a string is a double")
	}
	if b, ok := v.Get("t").Bool(); !b || !ok {
		t.Error("t")
	}
	if b, ok := v.Get("no").Bool(); b || !ok {
		t.Error("no")
	}
	if b, ok := v.Get("nil").Bool(); b || ok {
		t.Error("null is a boolean")
	}
	kinds := []Kind{}
	for _, name := range []string{"s", "n", "t", "nil", "a", "o", "missing"} {
		kinds = append(kinds, v.Get(name).Kind())
	}
	if !slices.Equal(kinds, []Kind{String, Number, Bool, Null, Array, Object, Absent}) {
		t.Errorf("%v", kinds)
	}
	names := map[string]bool{}
	for k := Absent; k <= Object; k++ {
		names[k.String()] = true
	}
	if len(names) != 7 {
		t.Error("kinds share a name")
	}
	var texts []string
	for e := range v.Get("a").Elements() {
		texts = append(texts, string(e.Raw()))
	}
	if !slices.Equal(texts, []string{"1", `[2,"x"]`, "{}"}) {
		t.Errorf("%q", texts)
	}
	for range v.Get("a").Elements() {
		break // an early end is allowed
	}
	var members []string
	for name, m := range v.Members() {
		if members = append(members, name+"="+m.Kind().String()); len(members) == 2 {
			break
		}
	}
	if !slices.Equal(members, []string{"s=a string", "plain=a string"}) {
		t.Errorf("%q", members)
	}
	if string(v.Raw()) != strings.TrimSpace(string(v.d.src)) {
		t.Error("Raw holds the space around the value")
	}
	raw := v.Get("plain").Raw()
	if _ = append(raw, "!!!"...); !v.Get("n").Exists() {
		t.Error("appending to Raw wrote over the text")
	}
}

func TestAbsentValue(t *testing.T) {
	for name, v := range map[string]Value{"zero": {}, "missing": mustScan(t, `{"a":1}`).Get("b"), "of a number": mustScan(t, "1").Get("b")} {
		if v.Exists() || v.Kind() != Absent || v.Raw() != nil || v.Len() != 0 || v.Text() != "" || v.Is("") || v.IsCanonical() || v.Any() != nil || v.Get("x").Exists() {
			t.Errorf("%s: an absent value is there", name)
		}
		for range v.Members() {
			t.Error("a member of nothing")
		}
		for range v.Elements() {
			t.Error("an element of nothing")
		}
		if c, err := v.Canonical(); err != nil || c.Exists() {
			t.Error("a canonical form of nothing")
		}
		if b, err := json.Marshal(v); err != nil || string(b) != "null" {
			t.Errorf("%s, %v", b, err)
		}
	}
	arr := mustScan(t, `["a"]`)
	for range arr.Members() {
		t.Error("a member of an array")
	}
	for range mustScan(t, `{"a":1}`).Elements() {
		t.Error("an element of an object")
	}
}

func TestAnyAndMarshal(t *testing.T) {
	text := `{"a":[1.50,"x",true,null,{}],"b":{"c":9007199254740991}}`
	v := mustScan(t, text)
	want := map[string]any{"a": []any{json.Number("1.50"), "x", true, nil, map[string]any{}}, "b": map[string]any{"c": json.Number("9007199254740991")}}
	if d := cmp.Diff(want, v.Any()); d != "" {
		t.Error(d)
	}
	b, err := json.Marshal(map[string]any{"v": v.Get("b")})
	if err != nil || string(b) != `{"v":{"c":9007199254740991}}` {
		t.Errorf("%s, %v", b, err)
	}
}

func TestCanonicalOfAPart(t *testing.T) {
	v := mustScan(t, `{"z":{"a":1,"b":[1,2]},"a":{"b":1,"a":2}}`)
	if v.IsCanonical() || !v.Get("z").IsCanonical() || v.Get("a").IsCanonical() {
		t.Error("flags")
	}
	c, err := v.Get("a").Canonical()
	if err != nil || string(c.Raw()) != `{"a":2,"b":1}` {
		t.Errorf("%s, %v", c.Raw(), err)
	}
	z, err := v.Get("z").Canonical()
	if err != nil || &z.Raw()[0] != &v.Get("z").Raw()[0] {
		t.Error("a canonical part was copied")
	}
	if string(v.Raw()) != `{"z":{"a":1,"b":[1,2]},"a":{"b":1,"a":2}}` {
		t.Error("the scanned text changed")
	}
	// a text deeper than MaxDepth, scanned with a greater bound
	deep := strings.Repeat(`{"b":1,"a":`, 200) + "[]" + strings.Repeat("}", 200)
	d, err := ScanDepth([]byte(deep), 300)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := d.Canonical(); err != nil || string(c.Raw()) != strings.Repeat(`{"a":`, 200)+"[]"+strings.Repeat(`,"b":1}`, 200) {
		t.Error(err)
	}
}

func TestEncodeValue(t *testing.T) {
	v, err := EncodeValue(map[string]any{"\ufb33": 1, "😀": "<\u2028>", "a": []int{}})
	if err != nil || string(v.Raw()) != "{\"a\":[],\"😀\":\"<\u2028>\",\"\ufb33\":1}" {
		t.Errorf("%s, %v", v.Raw(), err)
	}
	for name, x := range map[string]any{"big": uint64(1) << 53, "infinite": math.Inf(1), "channel": make(chan int), "huge": 1e300,
		"twice": json.RawMessage(`{"a":1,"a":2}`), "deep": json.RawMessage(strings.Repeat("[", 65) + strings.Repeat("]", 65))} {
		if v, err := EncodeValue(x); err == nil {
			t.Errorf("%s: %.40s", name, v.Raw())
		}
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"": `""`, "a/b": `"a/b"`, "\"\\\b\f\n\r\t": `"\"\\\b\f\n\r\t"`, "\x00\x1f\x7f": "\"\\u0000\\u001f\x7f\"",
		"é€😀\u2028<>&": "\"é€😀\u2028<>&\"", "\xff": "\"\ufffd\"", "a\xc3": "\"a\ufffd\"", "\xe2\x82": "\"\ufffd\ufffd\"",
	} {
		if got := string(AppendString([]byte("x"), in)); got != "x"+want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// TestDoublesAgainstRationals compares with exact arithmetic, on numbers around
// and beyond what strconv alone reads rightly.
func TestDoublesAgainstRationals(t *testing.T) {
	digits := "9007199254740993000000000000000000000000000000000000000000000000001"
	for _, n := range []int{0, 1, 17, 330, 399, 790, 801, 2000} {
		for _, d := range []string{"1", "5", "9007199254740991", "2.2250738585072011", "4.35", digits, digits[:17] + "." + digits[17:], "123456789012345678901234567890"} {
			for _, e := range []string{"", "e-1", "E+3", "e-307", "e-324", "e-800", "e-2000", "e00000000000000000001"} {
				for _, text := range []string{d + e, strings.Replace(d, ".", "", 1) + strings.Repeat("0", n) + e, "0." + strings.Repeat("0", n) + strings.Replace(d, ".", "", 1) + e, d + strings.Repeat("0", n*min(1, strings.Count(d, "."))) + e} {
					r, ok := new(big.Rat).SetString(text)
					if !ok {
						t.Fatal(text)
					}
					want, _ := r.Float64()
					got, err := parseDouble([]byte(text))
					if (err != nil) != math.IsInf(want, 0) || err == nil && got != want {
						t.Fatalf("%.30s… (%d bytes)%s: %v, %v, want %v", text, len(text), e, got, err, want)
					}
				}
			}
		}
	}
}
