package types

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/witan-adp/witan/adp"
)

func compileText(t testing.TB, text string) (*schema, *schemaError) {
	t.Helper()
	v, err := scan(t, text).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return compileSchema(v.Raw())
}

// doubling is a chain of n definitions, each made from the next two times over.
func doubling(n int, link string) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		next := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&b, `"d%d":`+link+`,`, i, next, next)
	}
	fmt.Fprintf(&b, `"d%d":{"type":"string"}}}`, n)
	return b.String()
}

func repeated(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// What we do not run; outside tells a schema that is merely beyond us from one
// that breaks a MUST. None of them reaches the library.
var refusedSchemas = []struct {
	name, schema string
	outside      bool
}{
	{"type nothing", `{"type":"nothing"}`, false},
	{"properties as a list", `{"properties":[]}`, false},
	{"negative length", `{"minLength":-1}`, false},
	{"empty allOf", `{"allOf":[]}`, false},
	{"bad subschema in $defs", `{"$defs":{"a":{"type":7}}}`, false},
	{"remote $ref", `{"$ref":"https://example.com/s.json"}`, false},
	{"remote $ref to the metaschema", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, false},
	{"$ref to a file", `{"$ref":"file:///etc/passwd"}`, false},
	{"relative $ref", `{"items":{"$ref":"s.json#/a"}}`, false},
	{"our own resource", `{"$ref":"mem:///verdict"}`, false},
	{"remote $ref not reached", `{"$defs":{"a":{"$ref":"urn:x"}}}`, false},
	{"$ref to nothing", `{"$ref":"#/$defs/a"}`, false},
	{"$ref through a bad escape", `{"$ref":"#/$defs/a~2","$defs":{"a~2":{}}}`, false},
	{"$ref through a bad percent", `{"$ref":"#/$defs/%zz"}`, false},
	{"$ref with a leading zero", `{"allOf":[{},{"$ref":"#/allOf/00"}]}`, false},
	{"$ref to no anchor", `{"$ref":"#a"}`, false},
	{"$ref to data", `{"$ref":"#/enum/0","enum":[{}]}`, true},
	{"$ref to a keyword map", `{"$ref":"#/$defs","$defs":{}}`, true},
	{"$id", `{"$id":"https://example.com/s"}`, true},
	{"$id below", `{"$defs":{"a":{"$id":"a","$ref":"b"}}}`, true},
	{"another dialect", `{"$schema":"http://json-schema.org/draft-07/schema#"}`, true},
	{"another dialect below", `{"$defs":{"a":{"$schema":"https://json-schema.org/draft/2020-12/schema"}}}`, true},
	{"$dynamicRef", `{"$dynamicRef":"#"}`, true},
	{"$dynamicAnchor", `{"$dynamicAnchor":"a"}`, true},
	{"$recursiveRef", `{"$recursiveRef":"#"}`, true},
	{"$vocabulary", `{"$vocabulary":{}}`, true},
	{"dependencies", `{"dependencies":{"a":["b"]}}`, true},
	{"anchor twice", `{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`, true},
	{"pattern with a class escape", `{"pattern":"\\d"}`, true},
	{"pattern with a dot", `{"patternProperties":{"^.$":{}}}`, true},
	{"pattern with look-ahead", `{"$defs":{"a":{"pattern":"(?=a)"}}}`, true},
	{"pattern whose repeats explode", `{"pattern":"(((a{99}){99}){99}){99}"}`, true},
	{"many large patterns", `{"properties":{` + func() string {
		var s []string
		for i := range 20 {
			s = append(s, fmt.Sprintf(`"p%d":{"pattern":"[a-%c]{900}"}`, i, 'b'+i))
		}
		return strings.Join(s, ",")
	}() + `}}`, true},
	{"large patterns on one text", `{"allOf":[{"pattern":"a{900}"},{"pattern":"b{900}"},{"pattern":"c{900}"}]}`, true},
	{"allOf that doubles", doubling(60, `{"allOf":[%s,%s]}`), true},
	{"anyOf that doubles", doubling(60, `{"anyOf":[%s,%s]}`), true},
	{"if that doubles", doubling(60, `{"if":%s,"then":%s}`), true},
	{"not and oneOf that double", doubling(60, `{"not":%s,"oneOf":[%s]}`), true},
	{"dependentSchemas that double", doubling(60, `{"dependentSchemas":{"a":%s,"b":%s}}`), true},
	{"members that double", doubling(60, `{"properties":{"a":%s},"patternProperties":{"a":%s}}`), true},
	{"items that double", doubling(60, `{"items":%s,"contains":%s}`), true},
	{"257 subschemas", `{"allOf":` + repeated(256, "{}") + `}`, true},
	{"257 subschemas not reached", `{"$defs":{"a":{"allOf":` + repeated(255, "{}") + `}}}`, true},
	{"itself", `{"$ref":"#"}`, true},
	{"itself through allOf", `{"allOf":[{"$ref":"#"}]}`, true},
	{"itself through two", `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}`, true},
	{"recursion by two members", `{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`, true},
	{"recursion twice through one", `{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`, true},
	{"a recursion in a recursion", `{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#/$defs/n"}},"$defs":{"n":{"items":{"$ref":"#/$defs/n"}}}}`, true},
	{"recursion by items and contains", `{"items":{"$ref":"#"},"contains":{"$ref":"#"}}`, true},
	{"heavy numbers", `{"allOf":` + repeated(40, `{"type":"integer","minimum":1e-300,"multipleOf":1e-300}`) + `}`, true},
	{"dependentRequired without end", `{"dependentRequired":{` + func() string {
		var s []string
		for i := range 9000 {
			s = append(s, fmt.Sprintf(`"%d":[]`, i))
		}
		return strings.Join(s, ",")
	}() + `}}`, true},
	{"uniqueItems in a recursion", `{"uniqueItems":true,"items":{"uniqueItems":true,"items":{"uniqueItems":true,"items":{"uniqueItems":true,"items":{
		"uniqueItems":true,"items":{"uniqueItems":true,"items":{"uniqueItems":true,"items":{"uniqueItems":true,"items":{"uniqueItems":true,"items":{"$ref":"#"}}}}}}}}}}`, true},
}

func TestRefusedSchemas(t *testing.T) {
	for _, c := range refusedSchemas {
		s, bad := compileText(t, c.schema)
		if bad == nil {
			t.Errorf("%s: taken, %+v", c.name, s.cost)
			continue
		}
		if bad.outside != c.outside || bad.reason == "" {
			t.Errorf("%s: outside=%v: %s", c.name, bad.outside, bad.reason)
		}
		if s != nil {
			t.Errorf("%s: a schema beside an error", c.name)
		}
	}
}

// The walk itself must not double: its length is bounded by a count.
func TestExpansionIsBounded(t *testing.T) {
	for _, c := range refusedSchemas {
		v := scan(t, c.schema)
		if metaschema().Validate(v.Any()) != nil {
			continue
		}
		w, wrong := surveySchema(v)
		if wrong != nil || w.outside != nil {
			continue
		}
		x := &expansion{active: map[*subschema]*place{}}
		x.expand(w.root, 0, 0)
		if n := len(x.places); n > 2*maxSubschemas {
			t.Errorf("%s: %d places", c.name, n)
		}
	}
}

func TestCostOfSchemas(t *testing.T) {
	for _, c := range []struct {
		schema       string
		weight, scan int
	}{
		{`{}`, 1, 0},
		{`{"type":"integer"}`, 9, 0},
		{`{"allOf":[{},{},{}]}`, 4, 0},
		{`{"properties":{"a":{"allOf":[{},{}]},"b":{},"c":{}}}`, 3, 0}, // members do not meet
		{`{"properties":{"a":{}},"additionalProperties":{"allOf":[{},{}]}}`, 3, 0},
		{`{"properties":{"a":{}},"patternProperties":{"^a":{"anyOf":[{}]}}}`, 3, 4},
		{`{"prefixItems":[{},{}],"items":{"not":{}}}`, 2, 0},
		{`{"items":{"not":{}},"contains":{"not":{}}}`, 4, 0},
		{`{"type":"object","properties":{"children":{"items":{"$ref":"#"}}}}`, 2, 0}, // recursion by one path
		{`{"allOf":[{"properties":{"a":{"pattern":"a"}}},{"properties":{"a":{"pattern":"ab"},"b":{"pattern":"abcdefgh"}}}]}`, 3, 11},
		{`{"propertyNames":{"pattern":"a"}}`, 1, 4},
		{`{"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"$anchor":"x"}}}`, 2, 0},
		{`{"items":{"$ref":"#x"},"$defs":{"a/b%":{"$anchor":"x"}}}`, 2, 0},
		{`{"uniqueItems":true}`, 1, 4},
		{`{"uniqueItems":true,"items":{"$ref":"#"}}`, 1 + 1, 256}, // settled on the head, and the step to it
		{`{"items":{"$ref":"#"},"contains":{"uniqueItems":true}}`, 3, 4},
	} {
		s, bad := compileText(t, c.schema)
		if bad != nil {
			t.Errorf("%s: %s", c.schema, bad.reason)
		} else if s.weight != c.weight || s.scan != c.scan {
			t.Errorf("%s: %+v, want %d and %d", c.schema, s.cost, c.weight, c.scan)
		}
	}
}

// The largest payloads that hosts take stay judgeable under the packs.
func TestRegisteredCosts(t *testing.T) {
	for typ, d := range registered(t) {
		s, bad := compiledSchemas.get(d.key, d.schema)
		if bad != nil {
			t.Fatal(bad)
		}
		if size := max(d.MaxPayload, 64<<10); int64(s.scan)*size > maxScanned || s.weight*8192 > maxWork {
			t.Errorf("%s: %+v", typ, s.cost)
		}
	}
}

func TestVerdicts(t *testing.T) {
	deep := strings.Repeat(`{"k":[`, 25) + strings.Repeat(`]}`, 25)
	for _, c := range []struct {
		schema, payload string
		want            string // "" valid, else part of the message
	}{
		{`{"enum":["a",1,null,{"x":[1.0,{}]}]}`, `{"x":[1,{}]}`, ""},
		{`{"enum":["a",1,null,{"x":[1.0,{}]}]}`, `1e0`, ""},
		{`{"enum":["a",1,null]}`, `"1"`, "one of"},
		{`{"enum":["a",1,null]}`, `false`, "one of"},
		{`{"enum":[]}`, `1`, "value"},
		{`{"const":{"a":"b"}}`, `{"a":"b"}`, ""},
		{`{"const":{"a":"b"}}`, `{"a":"b","c":1}`, "const"},
		{`{"uniqueItems":true}`, `["a","b",1,"1",true,null,{}]`, ""},
		{`{"uniqueItems":true}`, `[{"a":1,"b":2},{"b":2,"a":1.0}]`, "equal"},
		{`{"uniqueItems":true}`, `[["a","b"],["a\u0004b"],["ab"]]`, ""},
		{`{"uniqueItems":false}`, `[1,1]`, ""},
		{`{"type":"integer"}`, `1.0`, ""},
		{`{"type":"integer"}`, `1.5`, `at "": got number, want integer`},
		{`{"minimum":0.1}`, `0.1`, ""},
		{`{"multipleOf":0.1}`, `0.3`, ""},
		{`{"format":"uri"}`, `"no uri"`, ""},
		{`{"contentMediaType":"application/json","contentSchema":{"type":"object"}}`, `"x"`, ""},
		{`{"properties":{"a/b":{"items":{"type":"string"}}}}`, `{"a/b":["x",1]}`, `at "/a~1b/1": got number, want string`},
		{`{"additionalProperties":false}`, `{"b":1,"a":1}`, `the member "a" is not known`},
		{`{"required":["x"]}`, `{}`, "x"},
		{`{"anyOf":[{"type":"string"},{"properties":{"a":{"type":"string"}}}]}`, `{"a":1}`, `at "/a"`},
		{`{"properties":{"k":{"items":{"$ref":"#"}}},"additionalProperties":false}`, deep, ""},
		{`{"properties":{"k":{"items":{"$ref":"#"}}},"additionalProperties":false}`, strings.Replace(deep, "[]", `[{"x":1}]`, 1), `the member "x"`},
		{`{"type":"string","minLength":2}`, `"💡"`, "minLength"},
		{`{"unevaluatedProperties":false,"allOf":[{"properties":{"a":true}}]}`, `{"a":1}`, ""},
		{`{"unevaluatedProperties":false,"allOf":[{"properties":{"a":true}}]}`, `{"b":1}`, "/b"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "b"},
		{`{"exclusiveMaximum":5e-324}`, `0`, ""},
		{`{"$ref":"#/$defs/a b","$defs":{"a b":{"type":"null"}}}`, `null`, ""},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema","definitions":{"a":{"type":"null"}},"$ref":"#/definitions/a"}`, `1`, "want null"},
		{`{"witan:set":1,"x-mine":{"$ref":"nowhere"}}`, `1`, ""},
	} {
		s, bad := compileText(t, c.schema)
		if bad != nil {
			t.Errorf("%s: %s", c.schema, bad.reason)
			continue
		}
		err := s.check(scan(t, c.payload))
		if c.want == "" && err != nil {
			t.Errorf("%s on %.60s: %v", c.schema, c.payload, err)
		}
		if c.want != "" {
			wantCode(t, err, adp.PayloadSchemaViolation, c.schema+" on "+c.payload)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s on %.60s: %v, want %q in it", c.schema, c.payload, err, c.want)
			}
		}
	}
}

func TestMessagesAreShort(t *testing.T) {
	long := strings.Repeat("é", 5000)
	s, bad := compileText(t, `{"additionalProperties":{"pattern":"^a$"}}`)
	if bad != nil {
		t.Fatal(bad)
	}
	err := s.check(scan(t, `{"`+long+`":"`+long+`"}`))
	var e *adp.Error
	if !errors.As(err, &e) || len(e.Message) > 300 || !utf8.ValidString(e.Message) || !strings.Contains(e.Message, "pattern") {
		t.Errorf("got %v", err)
	}
}

func TestCheckIsBounded(t *testing.T) {
	cases := []struct {
		schema, payload string
		code            adp.Code // "": unjudged
	}{
		// far too much work: 256 KiB of values under a hundred alternatives
		{`{"items":{"anyOf":` + repeated(100, `{"type":"string"}`) + `}}`, repeated(130000, "1"), ""},
		{`{"items":{"pattern":"^[a-c]{900}$"}}`, `["` + strings.Repeat("abc", 60000) + `"]`, ""},
		// a lot, and judged
		{`{"items":{"type":"string"}}`, repeated(130000, "1"), adp.PayloadSchemaViolation},
		{`{"pattern":"^(a+)+$"}`, `"` + strings.Repeat("a", 40000) + `!"`, adp.PayloadSchemaViolation},
		{`{"patternProperties":{"^(a+)+$":{"type":"null"}},"additionalProperties":false}`, `{"` + strings.Repeat("a", 40000) + `!":1}`, adp.PayloadSchemaViolation},
		// numbers that a naive rational would unfold
		{`{"type":"integer","multipleOf":3}`, `1.5e-999999999`, "valid"},
		{`{"type":"integer"}`, `1e-300`, adp.PayloadSchemaViolation},
		{`{"multipleOf":1e-999999999}`, `1`, "refused"},
	}
	for _, c := range cases {
		s, bad := compileText(t, c.schema)
		if bad != nil {
			if c.code != "refused" {
				t.Errorf("%.60s: %s", c.schema, bad.reason)
			}
			continue
		}
		err := s.check(scan(t, c.payload))
		switch c.code {
		case "":
			if !errors.Is(err, ErrUnjudged) {
				t.Errorf("%.60s: %v, want unjudged", c.schema, err)
			}
		case "valid":
			if err != nil {
				t.Errorf("%.60s: %v", c.schema, err)
			}
		default:
			wantCode(t, err, c.code, c.schema)
		}
	}
}

// Arrays whose items have equal hashes in the library are told apart by keys, so
// that comparing them stays linear: the keys are all different.
func TestUniqueKeysAreExact(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{`1`, `-1`, `"1"`, `[1]`, `["1"]`, `["a","b"]`, `["a,b"]`, `["a\",\"b"]`, `[["a"],"b"]`, `{"a":"b"}`, `["a",{"b":[]}]`,
		`{"a":{}}`, `{"a":[]}`, `null`, `"null"`, `true`, `"true"`, `[]`, `{}`, `[null]`, `257`, `[2,57]`, `[25,7]`} {
		k := string(appendKey(nil, scan(t, text).Any(), -1))
		if other, ok := seen[k]; ok {
			t.Errorf("%s and %s share a key", text, other)
		}
		seen[k] = text
	}
	e := newEnumSet([]any{[]any{"abc"}})
	if e.has([]any{strings.Repeat("a", 100)}) || e.has(map[string]any{"abc": []any{"abc", "abc"}}) || !e.has([]any{"abc"}) {
		t.Error("enumSet and long values")
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newSchemaCache(3, 6)
	get := func(text string) *schema {
		s, bad := c.get(sha256.Sum256([]byte(text)), []byte(text))
		if bad != nil && text[0] == '{' {
			t.Fatal(bad)
		}
		return s
	}
	a := get(`{"title":"a"}`)
	get(`{"title":"b"}`)
	get(`[]`) // why there is none is kept too
	if get(`{"title":"a"}`) != a {
		t.Error("compiled twice")
	}
	get(`{"title":"d"}`)
	if c.order.Len() != 3 || len(c.byKey) != 3 || c.used != 3 || get(`{"title":"a"}`) != a {
		t.Errorf("holds %d entries of size %d", c.order.Len(), c.used)
	}
	get(`{"allOf":[{},{},{},{}]}`) // size 5 drives out all but the latest
	if c.order.Len() != 2 || c.used != 6 {
		t.Errorf("holds %d entries of size %d", c.order.Len(), c.used)
	}
	get(`{"allOf":[{},{},{},{},{},{},{},{}]}`)
	if c.order.Len() != 0 || c.used != 0 || len(c.byKey) != 0 {
		t.Errorf("keeps what is larger than its room: %d entries of size %d", c.order.Len(), c.used)
	}
}

// FuzzCompile: no schema and payload hang or panic, and what we run agrees with
// the library on the schema as it was written.
func FuzzCompile(f *testing.F) {
	for _, c := range refusedSchemas {
		if len(c.schema) < 2000 {
			f.Add(c.schema, `{"a":[1,"a",{"a":null}]}`)
		}
	}
	for _, row := range packRows {
		d := registered(f)[row.typ]
		f.Add(string(d.schema), object(row.full))
	}
	f.Add(`{"type":["integer","null"],"enum":[1,2.50],"minimum":0}`, `2.5`)
	f.Add(`{"prefixItems":[true,{"const":0}],"items":{"multipleOf":0.1},"contains":{"type":"null"},"minContains":2,"unevaluatedItems":false}`, `[1,0,0.3]`)
	f.Add(`{"if":{"propertyNames":{"maxLength":1}},"then":{"maxProperties":1},"else":{"dependentRequired":{"ab":["c"]}}}`, `{"ab":1}`)
	f.Fuzz(func(t *testing.T, schemaText, payload string) {
		sv, err := adp.Scan([]byte(schemaText))
		if err != nil || len(schemaText) > 4096 || len(payload) > 4096 {
			return
		}
		pv, err := adp.Scan([]byte(payload))
		if err != nil {
			return
		}
		if sv, err = sv.Canonical(); err != nil {
			t.Fatal(err)
		}
		s, bad := compileSchema(sv.Raw())
		if bad != nil {
			return
		}
		err = s.check(pv)
		if errors.Is(err, ErrUnjudged) {
			return
		}
		if code := adp.CodeOf(err); err != nil && (code != adp.PayloadSchemaViolation || len(err.Error()) > 350) {
			t.Fatalf("%v", err)
		}
		plain := jsonschema.NewCompiler()
		plain.UseLoader(noLoader{})
		if plain.AddResource("mem:///plain", sv.Any()) != nil {
			return
		}
		p, perr := plain.Compile("mem:///plain")
		if perr != nil {
			return // such as a $ref text that is no URI reference
		}
		canonical, cerr := pv.Canonical()
		if cerr != nil {
			t.Fatal(cerr)
		}
		if want := p.Validate(canonical.Any()); (want == nil) != (err == nil) {
			t.Fatalf("%s on %s: we say %v, the library %v", sv.Raw(), canonical.Raw(), err, want)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	d := registered(b)["question.create"]
	p := scan(b, `{"priority":0.5,"question":"Which branch lacks evidence?","references":[`+h1+`]}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Check(p); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCheckIsConcurrent(t *testing.T) {
	d := declare(t, withSchema("a.b", `{"properties":{"a":{"enum":["x",{"y":[1]}]},"b":{"uniqueItems":true,"items":{"pattern":"^[a-z]+$"}}}}`))[0].def
	good, bad := scan(t, `{"a":{"y":[1]},"b":["p","q"]}`), scan(t, `{"b":["p","Q"]}`)
	errs := make(chan error, 16)
	for range cap(errs) / 2 {
		go func() { errs <- d.Check(good) }()
		go func() { errs <- d.Check(bad) }()
	}
	failed := 0
	for range cap(errs) {
		if err := <-errs; err != nil {
			failed++
			wantCode(t, err, adp.PayloadSchemaViolation, "concurrent")
		}
	}
	if failed != cap(errs)/2 {
		t.Errorf("%d checks failed", failed)
	}
}
