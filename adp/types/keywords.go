package types

import (
	"encoding/json"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/witan-adp/witan/adp"
)

// The library compares a value with every enum value in turn and, for
// uniqueItems, with every item of an equal hash, where unequal items with equal
// hashes are easily made. keywordSet answers both by exact keys, so that the
// cost is linear in the value. It stands in the schema under keywordName, a
// name no author can use because unknown names are dropped.
const keywordName = "witan:set"

type keywordSet struct {
	enum   *enumSet
	konst  *enumSet
	unique bool
}

// Validate implements jsonschema.SchemaExt.
func (k *keywordSet) Validate(ctx *jsonschema.ValidatorContext, v any) {
	if k.enum != nil && !k.enum.has(v) {
		ctx.AddError(&kind.Enum{Got: v, Want: k.enum.want})
	}
	if k.konst != nil && !k.konst.has(v) {
		ctx.AddError(&kind.Const{Got: v, Want: k.konst.want[0]})
	}
	if a, ok := v.([]any); ok && k.unique {
		if i, j := duplicate(a); j > 0 {
			ctx.AddError(&kind.UniqueItems{Duplicates: [2]int{i, j}})
		}
	}
}

// keywords is the vocabulary that hands keywordSet to the library.
var keywords = &jsonschema.Vocabulary{
	URL: "urn:witan:keywords",
	Compile: func(_ *jsonschema.CompilerContext, obj map[string]any) (jsonschema.SchemaExt, error) {
		if k, ok := obj[keywordName].(*keywordSet); ok {
			return k, nil
		}
		return nil, nil
	},
}

// enumSet is a set of JSON values.
type enumSet struct {
	want    []any
	strings map[string]struct{}
	others  map[string]struct{} // by appendKey
	longest int                 // of the keys in others, in bytes
}

func newEnumSet(values []any) *enumSet {
	e := &enumSet{want: values, strings: map[string]struct{}{}, others: map[string]struct{}{}}
	for _, v := range values {
		if s, ok := v.(string); ok {
			e.strings[s] = struct{}{}
			continue
		}
		k := appendKey(nil, v, -1)
		e.others[string(k)] = struct{}{}
		e.longest = max(e.longest, len(k))
	}
	return e
}

func (e *enumSet) has(v any) bool {
	if s, ok := v.(string); ok {
		_, ok := e.strings[s]
		return ok
	}
	if len(e.others) == 0 {
		return false
	}
	var room [64]byte
	k := appendKey(room[:0], v, e.longest)
	_, ok := e.others[string(k)]
	return ok
}

// duplicate finds two equal items, or says 0, 0.
func duplicate(a []any) (first, second int) {
	if len(a) < 2 {
		return 0, 0
	}
	seen := make(map[string]int, len(a))
	var room [64]byte
	for j, v := range a {
		k := appendKey(room[:0], v, -1)
		if i, ok := seen[string(k)]; ok {
			return i, j
		}
		seen[string(k)] = j
	}
	return 0, 0
}

// appendKey appends a text that two values share exactly when they are equal in
// the sense of JSON Schema: their canonical JSON. Numbers are canonical already.
// It stops early once the text is longer than limit (if not negative), which
// then equals no text within the limit.
func appendKey(b []byte, v any, limit int) []byte {
	if limit >= 0 && len(b) > limit {
		return b
	}
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		b = append(b, '{')
		for _, name := range names {
			if limit >= 0 && len(b) > limit {
				return b
			}
			b = adp.AppendString(b, name)
			b = append(b, ':')
			b = appendKey(b, v[name], limit)
			b = append(b, ',')
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for _, item := range v {
			if limit >= 0 && len(b) > limit {
				return b
			}
			b = appendKey(b, item, limit)
			b = append(b, ',')
		}
		return append(b, ']')
	case string:
		if limit >= 0 && len(v) > limit {
			return append(b, v[:limit+1]...) // longer than limit, whatever b is
		}
		return adp.AppendString(b, v)
	case json.Number:
		return append(b, v...)
	case bool:
		if v {
			return append(b, "true"...)
		}
		return append(b, "false"...)
	}
	return append(b, "null"...)
}
