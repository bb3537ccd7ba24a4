package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/witan-adp/witan/adp"
)

// described is what a test needs of /openapi.json.
type described struct {
	t       *testing.T
	d       *running
	paths   map[string]map[string]json.RawMessage
	ops     map[string]operation // by operationId
	schemas *jsonschema.Compiler
	seen    map[string]bool // operationId and status
}

type operation struct {
	ID           string `json:"operationId"`
	Undocumented bool   `json:"x-undocumented"`
	Query        string `json:"x-call"`
	Security     []any
	Responses    map[string]any
	method, path string
}

// answers are the media types that are described of a status; those of a reference count as one.
func (o operation) answers(status int) map[string]any {
	r, _ := o.Responses[strconv.Itoa(status)].(map[string]any)
	if r["$ref"] != nil {
		return r
	}
	types, _ := r["content"].(map[string]any)
	return types
}

// nothing refuses to load schemas from anywhere.
type nothing struct{}

func (nothing) Load(at string) (any, error) { return nil, fmt.Errorf("%s is not to be loaded", at) }

const document = "mem:openapi.json"

func describe(t *testing.T, d *running) *described {
	t.Helper()
	status, header, raw := d.call("GET", "/openapi.json", nil, nil)
	if status != http.StatusOK || header.Get("ETag") == "" {
		t.Fatalf("/openapi.json: %d %v", status, header)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	x := &described{t: t, d: d, ops: map[string]operation{}, seen: map[string]bool{}, schemas: jsonschema.NewCompiler()}
	x.schemas.UseLoader(nothing{})
	x.schemas.DefaultDraft(jsonschema.Draft2020)
	if err := x.schemas.AddResource(document, root); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	x.paths = doc.Paths
	for path, item := range doc.Paths {
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			if item[method] == nil {
				continue
			}
			op := operation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(item[method], &op); err != nil {
				t.Fatal(err)
			}
			if op.Undocumented {
				t.Errorf("nobody has described %s %s: see internal/openapi/parts", op.method, path)
			}
			x.ops[op.ID] = op
		}
	}
	return x
}

// ask is one call of an operation. Path holds values for the parameters in braces, in path and query.
type ask struct {
	op     string
	path   map[string]string
	query  string // "-" for none; "" for that of the description
	body   []byte
	by     *agent // who signs the request token
	accept string
	header map[string]string
	status int // 0 is any 2xx, -1 any that is described
}

// request is what a call sends, and what it is called in complaints.
func (x *described) request(ctx context.Context, op operation, a ask) (req *http.Request, name string) {
	x.t.Helper()
	put := func(s string, escape func(string) string) string {
		for name, value := range a.path {
			s = strings.ReplaceAll(s, "{"+name+"}", escape(value))
		}
		return s
	}
	at := put(op.path, func(s string) string { return strings.ReplaceAll(url.PathEscape(s), "%2F", "/") })
	if a.query == "" {
		a.query = op.Query
	}
	if a.query != "-" && a.query != "" {
		at += "?" + put(a.query, url.QueryEscape)
	}
	req, err := http.NewRequestWithContext(ctx, op.method, x.d.origin+at, bytes.NewReader(a.body))
	if err != nil {
		x.t.Fatal(err)
	}
	if a.by != nil {
		token, err := adp.SignToken(a.by.key, x.d.origin, time.Now().Unix(), 120)
		if err != nil {
			x.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if a.accept != "" {
		req.Header.Set("Accept", a.accept)
	}
	for k, v := range a.header {
		req.Header.Set(k, v)
	}
	return req, fmt.Sprintf("%s (%s %s)", a.op, op.method, at)
}

// call asks and holds the answer against what is described of it.
func (x *described) call(a ask) (body []byte, header http.Header) {
	x.t.Helper()
	op, ok := x.ops[a.op]
	if !ok {
		x.t.Errorf("no operation is described as %s", a.op)
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	req, name := x.request(ctx, op, a)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		x.t.Fatalf("%s: %v", name, err)
	}
	defer resp.Body.Close()
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil && resp.StatusCode < 300 && len(op.answers(resp.StatusCode)) > 0 {
		x.t.Errorf("%s: Content-Type %q", name, resp.Header.Get("Content-Type"))
	}
	if media != "text/event-stream" {
		if body, err = io.ReadAll(resp.Body); err != nil {
			x.t.Fatalf("%s: %v", name, err)
		}
	}
	if a.status == 0 && resp.StatusCode/100 != 2 || a.status > 0 && resp.StatusCode != a.status {
		x.t.Errorf("%s: answered %d %.300s, want %d", name, resp.StatusCode, body, a.status)
	}
	status := strconv.Itoa(resp.StatusCode)
	if op.Responses[status] == nil {
		x.t.Errorf("%s: the answer %s is not described: %.300s", name, status, body)
		return body, resp.Header
	}
	x.seen[a.op+" "+status] = true
	x.seen[a.op] = true
	x.hold(name, op, status, media, body)
	return body, resp.Header
}

// hold validates a body against the schema of its media type.
func (x *described) hold(name string, op operation, status, media string, body []byte) {
	x.t.Helper()
	pointer := func(parts ...string) string {
		for i, p := range parts {
			parts[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(p)
		}
		return "/" + strings.Join(parts, "/")
	}
	content := pointer("paths", op.path, strings.ToLower(op.method), "responses", status)
	response := op.Responses[status].(map[string]any)
	if ref, ok := response["$ref"].(string); ok {
		content = strings.TrimPrefix(ref, "#")
		response = x.component(ref)
	}
	types, _ := response["content"].(map[string]any)
	if types == nil {
		if len(body) > 0 && status[0] != '2' {
			x.t.Errorf("%s: the answer %s has a body, and none is described: %.200s", name, status, body)
		}
		return
	}
	if types[media] == nil {
		x.t.Errorf("%s: the answer %s is %q, which is not described", name, status, media)
		return
	}
	schema, err := x.schemas.Compile(document + "#" + content + pointer("content", media, "schema"))
	if err != nil {
		x.t.Fatalf("%s: %v", name, err)
	}
	var v any = string(body)
	if media == "application/json" || strings.HasSuffix(media, "+json") {
		if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			x.t.Errorf("%s: %v in %.200s", name, err, body)
			return
		}
	}
	if err := schema.Validate(v); err != nil {
		x.t.Errorf("%s: the answer %s is not as described: %v\n%.500s", name, status, err, body)
	}
}

func (x *described) component(ref string) map[string]any {
	_, _, raw := x.d.call("GET", "/openapi.json", nil, nil)
	var at any
	if err := json.Unmarshal(raw, &at); err != nil {
		x.t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[name]
	}
	return at.(map[string]any)
}
