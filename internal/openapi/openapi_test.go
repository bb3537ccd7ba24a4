package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/witan-adp/witan/internal/web"
)

var about = About{Origin: "https://rooms.example", Version: "1.2.3"}

func all(t *testing.T) *Document {
	t.Helper()
	d, err := All(about)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refusing loads nothing: a schema that points elsewhere is a mistake.
type refusing struct{}

func (refusing) Load(url string) (any, error) { return nil, fmt.Errorf("%s is not to be loaded", url) }

// schemas compiles the schemas of a description, by their place in it.
func schemas(t *testing.T, d *Document) func(pointer string) *jsonschema.Schema {
	t.Helper()
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.JSON()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(refusing{})
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("mem:openapi.json", root); err != nil {
		t.Fatal(err)
	}
	return func(pointer string) *jsonschema.Schema {
		t.Helper()
		s, err := c.Compile("mem:openapi.json#" + pointer)
		if err != nil {
			t.Fatalf("%s: %v", pointer, err)
		}
		return s
	}
}

func escape(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }

// Every schema compiles, every reference leads somewhere, every example fits its schema, every operation is told well.
func TestDescription(t *testing.T) {
	d := all(t)
	compile := schemas(t, d)
	seen := map[string]bool{}
	var walk func(at string, x any)
	walk = func(at string, x any) {
		switch x := x.(type) {
		case object:
			if ref, ok := x["$ref"].(string); ok {
				if d.resolve(x) == nil || !strings.HasPrefix(ref, "#/components/") {
					t.Errorf("%s: %s leads nowhere", at, ref)
				}
			}
			if schema, ok := x["schema"]; ok && schema != nil {
				s := compile(at + "/schema")
				if example, ok := x["example"]; ok {
					raw, err := json.Marshal(example)
					if err != nil {
						t.Fatal(err)
					}
					v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
					if err == nil {
						err = s.Validate(v)
					}
					if err != nil {
						t.Errorf("%s: the example: %v", at, err)
					}
				}
			}
			for name, m := range x {
				walk(at+"/"+escape(name), m)
			}
		case []any:
			for i, m := range x {
				walk(fmt.Sprintf("%s/%d", at, i), m)
			}
		}
	}
	walk("", d.root)
	for name := range d.root["components"].(object)["schemas"].(object) {
		compile("/components/schemas/" + escape(name))
	}
	var tags []any
	for _, tag := range d.root["tags"].([]any) {
		tags = append(tags, tag.(object)["name"])
	}
	param := regexp.MustCompile(`\{([^}]+)\}`)
	status := regexp.MustCompile(`^[1-5][0-9][0-9]$`)
	statusOfOthers := regexp.MustCompile(`^([1-5][0-9][0-9]|[1-5]XX|default)$`) // a receiver answers as it likes
	for _, op := range slices.Concat(d.ops, d.hooks) {
		at := op.method + " " + op.path
		id := str(op.spec, "operationId")
		if id == "" || seen[id] || str(op.spec, "summary") == "" || len(list(op.spec["tags"])) != 1 || !slices.Contains(tags, list(op.spec["tags"])[0]) || strings.HasSuffix(str(op.spec, "summary"), ".") {
			t.Errorf("%s: operationId %q, summary %q, tags %v", at, id, op.spec["summary"], op.spec["tags"])
		}
		seen[id] = true
		var inPath, said []string
		for _, m := range param.FindAllStringSubmatch(op.path, -1) {
			inPath = append(inPath, m[1])
		}
		for _, p := range d.params(op) {
			if p["in"] == "path" {
				said = append(said, str(p, "name"))
				if p["required"] != true || p["example"] == nil {
					t.Errorf("%s: path parameter %s wants required and example", at, p["name"])
				}
			}
			if p["schema"] == nil {
				t.Errorf("%s: parameter %s has no schema", at, p["name"])
			}
		}
		slices.Sort(inPath)
		slices.Sort(said)
		if !slices.Equal(inPath, said) {
			t.Errorf("%s: parameters %v are described", at, said)
		}
		code := status
		if !strings.HasPrefix(op.path, "/") {
			code = statusOfOthers
		}
		for status, r := range op.spec["responses"].(object) {
			if !code.MatchString(status) || str(d.resolve(r), "description") == "" {
				t.Errorf("%s: answer %s: %v", at, status, r)
			}
		}
	}
}

func TestOnlyWhatIsThere(t *testing.T) {
	d, err := For(about, []web.Route{{Method: "GET", Pattern: "/healthz"}, {Method: "PATCH", Pattern: "/new/{path...}"}, {Method: "POST", Pattern: "/v1/rooms/{room_id}"}})
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Info    struct{ Version string }
		Servers []struct{ URL string }
		Paths   map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(d.JSON(), &out); err != nil {
		t.Fatal(err)
	}
	if out.Info.Version != "1.2.3" || out.Servers[0].URL != "https://rooms.example" || len(out.Paths) != 3 {
		t.Errorf("%+v", out)
	}
	if room := out.Paths["/v1/rooms/{room_id}"]; room["post"] == nil || room["get"] != nil || room["parameters"] == nil {
		t.Errorf("the room: %v", room)
	}
	if fresh := out.Paths["/new/{path}"]["patch"]; !bytes.Contains(fresh, []byte(`"x-undocumented": true`)) {
		t.Errorf("what nobody described: %s", fresh)
	}
	rec := httptest.NewRecorder()
	if err := d.Serve(rec, httptest.NewRequest("GET", "/openapi.json", nil)); err != nil || rec.Code != http.StatusOK {
		t.Fatal(rec.Code, err)
	}
	again := httptest.NewRequest("GET", "/openapi.json", nil)
	again.Header.Set("If-None-Match", rec.Header().Get("ETag"))
	if rec = httptest.NewRecorder(); d.Serve(rec, again) != nil || rec.Code != http.StatusNotModified {
		t.Errorf("asked again: %d", rec.Code)
	}
}

// The page shows every operation under its anchor, and its links lead somewhere on it.
func TestPage(t *testing.T) {
	d := all(t)
	body, err := d.HTML()
	if err != nil {
		t.Fatal(err)
	}
	page := string(body)
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("the anchor %s stands twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` href="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if to, ok := strings.CutPrefix(m[1], "#"); ok && !ids[to] || !ok && m[1] != "/openapi.json" && !strings.HasPrefix(m[1], "https://") {
			t.Errorf("the link %s", m[1])
		}
	}
	if len(d.hooks) == 0 {
		t.Error("no delivery is described")
	}
	for _, op := range d.hooks {
		if !ids[anchor(op)] {
			t.Errorf("the delivery %s has no anchor", op.path)
		}
	}
	for _, op := range d.ops {
		if !ids[anchor(op)] {
			t.Errorf("%s %s has no anchor", op.method, op.path)
		}
		if c := d.curl(op); strings.Contains(c, "{") && !strings.Contains(c, "--json") {
			t.Errorf("%s %s: %s", op.method, op.path, c)
		}
	}
	for _, part := range []string{"<script", "<style", " style=", "javascript:"} {
		if strings.Contains(page, part) {
			t.Errorf("the page holds %s", part)
		}
	}
	if c := d.curl(operation{"get", "/x", object{}, object{"responses": object{}}}); c != "curl 'https://rooms.example/x'" {
		t.Error(c)
	}
}
