package openapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/witan-adp/witan/internal/web"
)

//go:embed parts/*.yaml
var parts embed.FS

type object = map[string]any

// Document is the description of one daemon.
type Document struct {
	root  object
	ops   []operation // in the order of the files
	hooks []operation // what is posted to webhooks: path is the name of the event
	json  []byte
}

// operation is a method of a path.
type operation struct {
	method, path string
	item, spec   object // the path item, and what stands under the method
}

// About is what a description says of the daemon that it is about.
type About struct{ Origin, Version string }

// Methods of a path item, in the order in which a page shows them.
var methods = []string{"get", "post", "put", "patch", "delete"}

// All is the description of a daemon that has everything.
func All(about About) (*Document, error) {
	d := &Document{root: object{}}
	names, err := fs.Glob(parts, "parts/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := parts.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := d.take(text); err != nil {
			return nil, fmt.Errorf("openapi: %s: %w", name, err)
		}
	}
	d.root["info"].(object)["version"] = about.Version
	d.root["servers"] = []any{object{"url": about.Origin}}
	return d, d.encode()
}

// For is the description of a daemon that has these routes. Whatever no file describes is in it all the same, and marked.
func For(about About, routes []web.Route) (*Document, error) {
	d, err := All(about)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, r := range routes {
		there[strings.ToLower(r.Method)+" "+Path(r.Pattern)] = true
	}
	paths := d.root["paths"].(object)
	kept := d.ops[:0]
	for _, op := range d.ops {
		key := op.method + " " + op.path
		if !there[key] {
			delete(op.item, op.method)
			continue
		}
		delete(there, key)
		kept = append(kept, op)
	}
	d.ops = kept
	for path, item := range paths {
		has := false
		for _, m := range methods {
			has = has || item.(object)[m] != nil
		}
		if !has {
			delete(paths, path)
		}
	}
	for _, r := range routes {
		method, path := strings.ToLower(r.Method), Path(r.Pattern)
		if !there[method+" "+path] {
			continue
		}
		item, ok := paths[path].(object)
		if !ok {
			item = object{}
			paths[path] = item
		}
		spec := object{"x-undocumented": true, "summary": "Not described yet", "tags": []any{"Operating"}, "responses": object{"default": object{"description": "Not described yet."}}}
		item[method] = spec
		d.ops = append(d.ops, operation{method, path, item, spec})
	}
	return d, d.encode()
}

// Path is a pattern of the router as it stands in a description.
func Path(pattern string) string {
	return strings.NewReplacer("...}", "}", "{$}", "").Replace(pattern)
}

// take adds a file.
func (d *Document) take(text []byte) error {
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return err
	}
	var part object
	if err := tree.Decode(&part); err != nil {
		return err
	}
	for name, v := range part {
		switch name {
		case "paths":
			continue
		case "components":
			all := member(d.root, "components")
			for kind, named := range v.(object) {
				if err := join(member(all, kind), named.(object)); err != nil {
					return fmt.Errorf("components.%s: %w", kind, err)
				}
			}
		default:
			if d.root[name] != nil {
				return fmt.Errorf("%s stands in two files", name)
			}
			d.root[name] = v
		}
	}
	paths, _ := part["paths"].(object)
	if err := join(member(d.root, "paths"), paths); err != nil {
		return fmt.Errorf("paths: %w", err)
	}
	d.ops = append(d.ops, operations(&tree, "paths", paths)...)
	hooks, _ := part["webhooks"].(object)
	d.hooks = append(d.hooks, operations(&tree, "webhooks", hooks)...)
	return nil
}

// operations are those of the path items in a member of a file, as they stand there.
func operations(tree *yaml.Node, name string, items object) (ops []operation) {
	for _, path := range order(tree.Content[0], name) {
		item := items[path].(object)
		for _, m := range methods {
			if spec, ok := item[m].(object); ok {
				ops = append(ops, operation{m, path, item, spec})
			}
		}
	}
	return ops
}

// order lists the names in a member of a YAML mapping as they stand there.
func order(mapping *yaml.Node, name string) (names []string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value != name {
			continue
		}
		for j := 0; j < len(mapping.Content[i+1].Content); j += 2 {
			names = append(names, mapping.Content[i+1].Content[j].Value)
		}
	}
	return names
}

func member(o object, name string) object {
	m, ok := o[name].(object)
	if !ok {
		m = object{}
		o[name] = m
	}
	return m
}

func join(to, from object) error {
	for name, v := range from {
		if to[name] != nil {
			return fmt.Errorf("%s stands in two files", name)
		}
		to[name] = v
	}
	return nil
}

func (d *Document) encode() error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(d.root)
	d.json = b.Bytes()
	return err
}

// JSON is the description as JSON. It is not to be changed.
func (d *Document) JSON() []byte { return d.json }

// Serve answers GET /openapi.json.
func (d *Document) Serve(w http.ResponseWriter, r *http.Request) error {
	web.WriteTagged(w, r, web.CacheAsk, d.json)
	return nil
}

// resolve follows a reference within the description.
func (d *Document) resolve(x any) object {
	o, _ := x.(object)
	for o != nil {
		ref, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		var at any = d.root
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			in, _ := at.(object)
			at = in[name]
		}
		o, _ = at.(object)
	}
	return o
}
