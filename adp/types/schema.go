package types

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/witan-adp/witan/adp"
)

const (
	dialect = "https://json-schema.org/draft/2020-12/schema"

	// maxSchemaRead bounds the schemas we look at when replaying; our own host
	// has a smaller limit (ADP §13.3).
	maxSchemaRead = 256 << 10

	schemaURL  = "mem:///schema"
	verdictURL = "mem:///verdict"
)

// schema is a compiled type schema.
type schema struct {
	cost
	size    int                // memory, in units of about 600 bytes
	full    *jsonschema.Schema // says what is wrong, at the price of an error for each failing place
	verdict *jsonschema.Schema // says yes or no and gives up early
}

// metaschema judges whether a document is JSON Schema at all. Formats are
// annotations (wire-facts §3.2), so that a pattern of another engine passes.
var metaschema = sync.OnceValue(func() *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	return c.MustCompile(dialect)
})

// noLoader refuses: nothing is ever loaded from outside (ADP §13.3).
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema may not load %.80q", url)
}

// compileSchema judges and compiles a schema in canonical form.
func compileSchema(text []byte) (*schema, *schemaError) {
	if len(text) > maxSchemaRead {
		return nil, &schemaError{true, "the schema is too large to be judged"}
	}
	v, err := adp.Scan(text)
	if err != nil || v.Kind() != adp.Object {
		return nil, &schemaError{false, "a schema is a JSON object"}
	}
	if d, ok := v.Get("$schema").Str(); ok && strings.TrimSuffix(d, "#") != dialect {
		return nil, &schemaError{true, fmt.Sprintf("$schema %.80q: only draft 2020-12 is run; leave $schema out", d)}
	}
	if err := metaschema().Validate(v.Any()); err != nil {
		return nil, &schemaError{false, "no JSON Schema (draft 2020-12): " + explain(err)}
	}
	w, wrong := surveySchema(v)
	if wrong != nil {
		return nil, wrong
	}
	if w.outside != nil {
		return nil, w.outside
	}
	c, wrong := w.measure()
	if wrong != nil {
		return nil, wrong
	}
	out, err := w.compile(c)
	if err != nil {
		return nil, &schemaError{true, fmt.Sprintf("does not compile: %.200s", err)}
	}
	return out, nil
}

func (w *survey) compile(c cost) (*schema, error) {
	jc := jsonschema.NewCompiler()
	jc.DefaultDraft(jsonschema.Draft2020)
	jc.UseLoader(noLoader{})
	jc.UseRegexpEngine(func(text string) (jsonschema.Regexp, error) {
		if p := w.compiled[text]; p != nil {
			return p, nil
		}
		return compilePattern(text) // the metaschema asks, with the same texts
	})
	jc.RegisterVocabulary(keywords)
	jc.AssertVocabs()
	if err := jc.AddResource(schemaURL, w.document(w.root)); err != nil {
		return nil, err
	}
	// Under `if` the library stops at the first failure of a value and keeps no texts.
	if err := jc.AddResource(verdictURL, map[string]any{
		"if": map[string]any{"$ref": schemaURL}, "then": true, "else": false,
	}); err != nil {
		return nil, err
	}
	out := &schema{cost: c, size: len(w.list) + w.patternSize/8}
	var err error
	if out.full, err = jc.Compile(schemaURL); err != nil {
		return nil, err
	}
	if out.verdict, err = jc.Compile(verdictURL); err != nil {
		return nil, err
	}
	return out, nil
}

// document writes a schema again for the library: only keywords that decide,
// references as resolved pointers, sets in place of lists.
func (w *survey) document(s *subschema) any {
	if s.src.Kind() != adp.Object {
		return s.src.Any()
	}
	out := make(map[string]any, s.src.Len())
	set := keywordSet{unique: s.unique}
	for name, m := range s.src.Members() {
		at := s.ptr + "/" + escapeToken(name)
		switch name {
		case "$ref":
			out[name] = refPointer(s.ref.ptr)
		case "allOf", "anyOf", "oneOf", "prefixItems":
			list := make([]any, m.Len())
			for i := range list {
				list[i] = w.document(w.byPtr[at+"/"+strconv.Itoa(i)])
			}
			out[name] = list
		case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions":
			members := make(map[string]any, m.Len())
			for key := range m.Members() {
				members[key] = w.document(w.byPtr[at+"/"+escapeToken(key)])
			}
			out[name] = members
		case "not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames",
			"items", "contains", "unevaluatedItems", "contentSchema":
			out[name] = w.document(w.byPtr[at])
		case "enum":
			values := make([]any, 0, m.Len())
			for e := range m.Elements() {
				values = append(values, e.Any())
			}
			set.enum = newEnumSet(values)
		case "const":
			set.konst = newEnumSet([]any{m.Any()})
		case "type", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength",
			"minLength", "pattern", "maxItems", "minItems", "maxContains", "minContains", "maxProperties",
			"minProperties", "required", "dependentRequired":
			out[name] = m.Any()
		}
	}
	if set.unique || set.enum != nil || set.konst != nil {
		out[keywordName] = &set
	}
	return out
}

func refPointer(ptr string) string {
	tokens := strings.Split(ptr, "/")
	for i, t := range tokens {
		tokens[i] = url.PathEscape(t)
	}
	return "#" + strings.Join(tokens, "/")
}
