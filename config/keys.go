package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

var (
	configType   = reflect.TypeFor[Config]()
	durationType = reflect.TypeFor[Duration]()
	sizeType     = reflect.TypeFor[Size]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// isTable tells whether a type is written as a table, or as an array of tables; elem is the type of that table.
func isTable(t reflect.Type) (elem reflect.Type, ok bool) {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t, t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textType)
}

func dotted(path []string) string { return strings.Join(path, ".") }

// maxErrors is where the report of one file ends: to find the line of each error costs a pass over the file.
const maxErrors = 20

// checker walks the keys of a file and compares them with the tags of Config, to the letter, and the forms of their values with
// its types: the decoder would also take a key in other case, and its errors speak of Go types.
type checker struct {
	name string
	p    unstable.Parser
	errs []error
}

func checkKeys(name string, data []byte) error {
	c := &checker{name: name}
	c.p.Reset(data)
	table, path := configType, []string(nil)
	for len(c.errs) < maxErrors && c.p.NextExpression() {
		switch e := c.p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, path = c.descend(configType, nil, e.Key())
		case unstable.KeyValue:
			c.keyValue(table, path, e)
		}
	}
	// A syntax error ends the walk; the decoder meets it again and reports it with its place.
	return errors.Join(c.errs...)
}

func (c *checker) fail(at unstable.Range, format string, args ...any) {
	start := c.p.Shape(at).Start
	c.errs = append(c.errs, fmt.Errorf("%s:%d:%d: %s", c.name, start.Line, start.Column, fmt.Sprintf(format, args...)))
}

// descend follows the parts of a key from a table and returns the type that they lead to, or nil after a failure.
func (c *checker) descend(t reflect.Type, path []string, parts unstable.Iterator) (reflect.Type, []string) {
	for parts.Next() {
		table, ok := isTable(t)
		if !ok {
			return nil, nil // a key below a plain value: the decoder says so
		}
		n := parts.Node()
		key := string(n.Data)
		path = append(path[:len(path):len(path)], key)
		field, ok := fieldByKey(table, key)
		if !ok {
			c.fail(n.Raw, "unknown key %s%s", dotted(path), hint(table, key))
			return nil, nil
		}
		t = field.Type
	}
	return t, path
}

func (c *checker) keyValue(table reflect.Type, path []string, e *unstable.Node) {
	if table == nil {
		return // below an unknown table, which was reported
	}
	if t, path := c.descend(table, path, e.Key()); t != nil {
		parts := e.Key()
		parts.Next()
		c.value(t, path, e.Value(), parts.Node().Raw)
	}
}

// value checks the form of v. key is the place to name when the parser keeps none for v, as for arrays.
func (c *checker) value(t reflect.Type, path []string, v *unstable.Node, key unstable.Range) {
	want, kinds := form(t)
	if !slices.Contains(kinds, v.Kind) {
		at := v.Raw
		if at.Length == 0 {
			at = key
		}
		c.fail(at, "%s: must be %s", dotted(path), want)
		return
	}
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			c.keyValue(t, path, it.Node())
		}
	case unstable.Array:
		for it := v.Children(); it.Next(); {
			c.value(t.Elem(), path, it.Node(), key)
		}
	}
}

// form says how a value of a type is written.
func form(t reflect.Type) (want string, kinds []unstable.Kind) {
	switch {
	case t == durationType: // the decoder would take 30 for 30 ns
		return "a time in quotes, a number and a unit, such as \"30s\"", []unstable.Kind{unstable.String}
	case t == sizeType:
		return "a size, bytes as a whole number or a text such as \"64KiB\"", []unstable.Kind{unstable.String, unstable.Integer}
	case t.Kind() == reflect.Slice:
		return "a list in brackets", []unstable.Kind{unstable.Array}
	case t.Kind() == reflect.Bool:
		return "true or false", []unstable.Kind{unstable.Bool}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return "a whole number", []unstable.Kind{unstable.Integer}
	case t.Kind() == reflect.Float64:
		return "a number", []unstable.Kind{unstable.Integer, unstable.Float}
	}
	if _, ok := isTable(t); ok {
		return "a [section] or a table in braces", []unstable.Kind{unstable.InlineTable}
	}
	return "a text in quotes", []unstable.Kind{unstable.String}
}

func fieldByKey(table reflect.Type, key string) (reflect.StructField, bool) {
	for f := range table.Fields() {
		if f.Tag.Get("toml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// hint says which key may have been meant: one that is spelled nearly so, or one of that name in another section.
func hint(table reflect.Type, key string) string {
	best, distance := "", 1+max(1, len(key)/3)
	for f := range table.Fields() {
		tag := f.Tag.Get("toml")
		if d := editDistance(strings.ToLower(key), tag, distance); d < distance {
			best, distance = tag, d
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	var elsewhere []string
	settings(reflect.New(configType).Elem(), nil, func(path []string, _ reflect.Value) {
		if path[len(path)-1] == key {
			elsewhere = append(elsewhere, dotted(path))
		}
	})
	if len(elsewhere) > 0 {
		return "; did you mean " + strings.Join(elsewhere, " or ") + "? A key belongs to the [section] above it"
	}
	return "; `witan config default` shows all keys"
}

// settings calls fn for each setting that is not in an array of tables, in the order of the file.
func settings(v reflect.Value, path []string, fn func(path []string, v reflect.Value)) {
	for f, fv := range v.Fields() {
		path := append(path[:len(path):len(path)], f.Tag.Get("toml"))
		if _, ok := isTable(f.Type); !ok {
			fn(path, fv)
		} else if f.Type.Kind() == reflect.Struct {
			settings(fv, path, fn)
		}
	}
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b, up to limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return min(last[len(b)], limit)
}
