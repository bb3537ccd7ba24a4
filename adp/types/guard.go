package types

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/witan-adp/witan/adp"
)

// maxPatterns bounds the summed sizes of the distinct patterns of a schema.
const maxPatterns = 8 << 10

// schemaError says why a schema is not run.
type schemaError struct {
	// outside: the schema may be good JSON Schema, but it is beyond what we run
	// (wire-facts §3.2, §3.22). Else it breaks a MUST of ADP §13.3.
	outside bool
	reason  string
}

func (e *schemaError) Error() string { return e.reason }

// subschema is one schema position of a type schema, by the keyword that leads
// to it from the one above.
type subschema struct {
	ptr  string
	src  adp.Value
	ref  *subschema
	here []*subschema // run on the same value; ref is run there too

	props    []member     // properties
	anyProp  []*subschema // patternProperties, unevaluatedProperties
	rest     *subschema   // additionalProperties, for members that props lack
	names    *subschema   // propertyNames
	prefix   []*subschema // prefixItems
	items    *subschema   // for items behind prefix
	anyItem  []*subschema // contains, unevaluatedItems
	weight   int          // cost of one evaluation; 1 is a bare check of a type
	patterns int          // summed sizes of the patterns that run on a text or a member name
	unique   bool
}

type member struct {
	name string
	s    *subschema
}

// survey is the walk over every schema position of a document, reached or not.
type survey struct {
	root     *subschema
	list     []*subschema
	byPtr    map[string]*subschema
	anchors  map[string]*subschema
	compiled map[string]*pattern
	// patternSize is the sum over compiled.
	patternSize int
	hasID       bool
	outside     *schemaError
}

func (w *survey) refuse(at, format string, args ...any) {
	if w.outside == nil {
		w.outside = &schemaError{true, fmt.Sprintf("at #%.80s: ", at) + fmt.Sprintf(format, args...)}
	}
}

// surveySchema walks a schema that the metaschema has accepted. The error, if
// any, breaks a MUST; what is merely outside of our bounds is left in outside.
func surveySchema(schema adp.Value) (*survey, *schemaError) {
	w := &survey{
		byPtr:    map[string]*subschema{},
		anchors:  map[string]*subschema{},
		compiled: map[string]*pattern{},
	}
	w.root = w.walk(schema, "")
	for _, s := range w.list {
		if err := w.link(s); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *survey) walk(v adp.Value, ptr string) *subschema {
	s := &subschema{ptr: ptr, src: v, weight: 1}
	w.list = append(w.list, s)
	w.byPtr[ptr] = s
	if v.Kind() != adp.Object {
		return s
	}
	hasIf := v.Get("if").Exists()
	for name, m := range v.Members() {
		at := ptr + "/" + escapeToken(name)
		switch name {
		case "$id":
			w.hasID = true
			w.refuse(at, "$id is not taken; a type schema is one self-contained document")
		case "$schema":
			if ptr != "" {
				w.refuse(at, "$schema may only stand at the root")
			}
		case "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "dependencies":
			w.refuse(at, "%s is not taken; use $ref, $anchor, dependentSchemas or dependentRequired", name)
		case "$anchor":
			if _, twice := w.anchors[m.Text()]; twice {
				w.refuse(at, "the anchor %.64q stands twice", m.Text())
			}
			w.anchors[m.Text()] = s
		case "allOf", "anyOf", "oneOf":
			s.here = append(s.here, w.walkList(m, at)...)
		case "not", "if":
			s.here = append(s.here, w.walk(m, at))
		case "then", "else":
			if sub := w.walk(m, at); hasIf {
				s.here = append(s.here, sub)
			}
		case "dependentSchemas":
			for _, sub := range w.walkMap(m, at) {
				s.here = append(s.here, sub.s)
			}
		case "properties":
			s.props = w.walkMap(m, at)
		case "patternProperties":
			for _, sub := range w.walkMap(m, at) {
				s.anyProp = append(s.anyProp, sub.s)
				s.patterns += w.pattern(sub.name, at)
			}
		case "additionalProperties":
			s.rest = w.walk(m, at)
		case "unevaluatedProperties":
			s.anyProp = append(s.anyProp, w.walk(m, at))
		case "propertyNames":
			s.names = w.walk(m, at)
		case "prefixItems":
			s.prefix = w.walkList(m, at)
		case "items":
			s.items = w.walk(m, at)
		case "contains", "unevaluatedItems":
			s.anyItem = append(s.anyItem, w.walk(m, at))
		case "$defs", "definitions":
			w.walkMap(m, at)
		case "contentSchema": // an annotation; its positions may be referred to
			w.walk(m, at)
		case "pattern":
			s.patterns += w.pattern(m.Text(), at)
		case "uniqueItems":
			s.unique, _ = m.Bool()
		}
	}
	s.weight += ownWeight(v)
	return s
}

func (w *survey) walkList(v adp.Value, ptr string) (out []*subschema) {
	i := 0
	for e := range v.Elements() {
		out = append(out, w.walk(e, ptr+"/"+strconv.Itoa(i)))
		i++
	}
	return out
}

func (w *survey) walkMap(v adp.Value, ptr string) (out []member) {
	for name, m := range v.Members() {
		out = append(out, member{name, w.walk(m, ptr+"/"+escapeToken(name))})
	}
	return out
}

func (w *survey) pattern(text, at string) (size int) {
	if w.patternSize > maxPatterns {
		return 0 // refused already; compile no more
	}
	if p := w.compiled[text]; p != nil {
		return p.size
	}
	p, err := compilePattern(text)
	if err != nil {
		w.refuse(at, "%v", err)
		return 0
	}
	w.compiled[text] = p
	if w.patternSize += p.size; w.patternSize > maxPatterns {
		w.refuse(at, "the patterns of the schema are too large together")
	}
	return p.size
}

// ownWeight is what the keywords of one schema object cost above a bare one, in
// evaluations. Numbers become rationals of up to a thousand bits: about eight.
func ownWeight(v adp.Value) (n int) {
	for name, m := range v.Members() {
		switch name {
		case "type":
			for e := range m.Elements() {
				if e.Is("integer") {
					n += 8
				}
			}
			if m.Is("integer") {
				n += 8
			}
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
			n += 8
		case "multipleOf":
			n += 20
		case "enum", "const":
			n += 1 + len(m.Raw())/256 // keys are made up to the longest value
		case "required", "dependentSchemas":
			n += m.Len() / 8
		case "dependentRequired":
			n += m.Len() / 8
			for _, list := range m.Members() {
				n += list.Len() / 8
			}
		}
	}
	return n
}

// link resolves the $ref of s (ADP §13.3: inside the schema object only).
func (w *survey) link(s *subschema) *schemaError {
	m := s.src.Get("$ref")
	text, ok := m.Str()
	if !ok || w.hasID { // an $id moves the base of references; it is refused anyway
		return nil
	}
	at := func(format string, args ...any) *schemaError {
		return &schemaError{false, fmt.Sprintf("at #%.80s: $ref %.80q ", s.ptr, text) + fmt.Sprintf(format, args...)}
	}
	inside, local := strings.CutPrefix(text, "#")
	if !local {
		return at("points outside; a schema is self-contained, so put the definition under $defs and write #/$defs/…")
	}
	frag, err := url.PathUnescape(inside)
	if err != nil {
		return at("is not a well-formed reference")
	}
	if frag != "" && frag[0] != '/' {
		if s.ref = w.anchors[frag]; s.ref == nil {
			return at("names an anchor that is not there")
		}
		return nil
	}
	ptr, found := w.lookup(frag)
	if !found {
		return at("points at nothing; correct it or add what it names")
	}
	if s.ref = w.byPtr[ptr]; s.ref == nil {
		w.refuse(s.ptr, "$ref %.80q points at something that is no subschema", text)
	}
	return nil
}

// lookup follows a JSON pointer (RFC 6901) and gives it back as walk writes it.
func (w *survey) lookup(frag string) (ptr string, found bool) {
	v := w.root.src
	if frag == "" {
		return "", true
	}
	for _, token := range strings.Split(frag[1:], "/") {
		name, ok := unescapeToken(token)
		if !ok {
			return "", false
		}
		switch v.Kind() {
		case adp.Object:
			v = v.Get(name)
		case adp.Array:
			i, err := strconv.Atoi(name)
			if err != nil || strconv.Itoa(i) != name || i < 0 || i >= v.Len() {
				return "", false
			}
			for e := range v.Elements() {
				if i == 0 {
					v = e
					break
				}
				i--
			}
		default:
			return "", false
		}
		if !v.Exists() {
			return "", false
		}
		ptr += "/" + escapeToken(name)
	}
	return ptr, true
}

func escapeToken(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

func unescapeToken(s string) (string, bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == '~' {
			if i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1' {
				return "", false
			}
			i++
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~"), true
}
