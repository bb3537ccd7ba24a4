package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

//go:embed docs.html
var docsText string

var docs = template.Must(template.New("docs").Parse(docsText))

// group is a tag with its operations, as the page shows them.
type group struct {
	Name, Anchor string
	Text         template.HTML
	Ops          []shownOp
}

type shownOp struct {
	Method, Path, Anchor, Summary string
	Text                          template.HTML
	Token                         string // "", "wanted" or "possible"
	Params                        []shownField
	Body                          *shownBody
	Responses                     []shownResponse
	Curl                          string
}

type shownField struct {
	Name, In string
	Required bool
	Type     template.HTML
	Text     template.HTML
}

type shownBody struct {
	Type    string // media type
	Schema  template.HTML
	Fields  []shownField
	Example string
}

type shownResponse struct {
	Status  string
	Text    template.HTML
	Headers []shownField
	Bodies  []shownBody
}

type shownSchema struct {
	Name, Anchor string
	Text, Type   template.HTML
	Fields       []shownField
}

// HTML is the description as a part of a page: headings from h2 on, no script, no style.
func (d *Document) HTML() (template.HTML, error) {
	info := d.root["info"].(object)
	page := struct {
		Text    template.HTML
		Groups  []group
		Schemas []shownSchema
	}{Text: prose(str(info, "description"))}
	for _, t := range d.root["tags"].([]any) {
		tag := t.(object)
		g := group{Name: str(tag, "name"), Anchor: "tag-" + strings.ToLower(str(tag, "name")), Text: prose(str(tag, "description"))}
		for _, op := range d.ops {
			if tags, _ := op.spec["tags"].([]any); len(tags) > 0 && tags[0] == tag["name"] {
				g.Ops = append(g.Ops, d.shown(op))
			}
		}
		for _, hook := range d.hooks {
			if slices.Contains(list(hook.spec["tags"]), tag["name"]) {
				one := d.shown(hook)
				one.Curl = "" // it is the daemon that calls
				g.Ops = append(g.Ops, one)
			}
		}
		if len(g.Ops) > 0 {
			page.Groups = append(page.Groups, g)
		}
	}
	schemas := d.root["components"].(object)["schemas"].(object)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		s := schemas[name].(object)
		page.Schemas = append(page.Schemas, shownSchema{name, "schema-" + name, prose(str(s, "description")), typeOf(s), d.fields(s)})
	}
	var out bytes.Buffer
	err := docs.Execute(&out, page)
	return template.HTML(out.String()), err
}

func (d *Document) shown(op operation) shownOp {
	s := shownOp{Method: strings.ToUpper(op.method), Path: op.path, Anchor: anchor(op), Summary: str(op.spec, "summary"), Text: prose(str(op.spec, "description"))}
	security, _ := op.spec["security"].([]any)
	switch len(security) {
	case 1:
		s.Token = "wanted"
	case 2:
		s.Token = "possible"
	}
	for _, p := range d.params(op) {
		s.Params = append(s.Params, shownField{Name: str(p, "name"), In: str(p, "in"), Required: p["required"] == true, Type: typeOf(p["schema"]), Text: line(str(p, "description"))})
	}
	if body := d.resolve(op.spec["requestBody"]); body != nil {
		s.Body = &d.bodies(body)[0]
	}
	responses := op.spec["responses"].(object)
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		r := d.resolve(responses[status])
		one := shownResponse{Status: status, Text: line(str(r, "description")), Bodies: d.bodies(r)}
		for i := range one.Bodies {
			if status >= "400" { // all refusals look alike
				one.Bodies[i].Example = ""
			}
		}
		headers, _ := r["headers"].(object)
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			h := d.resolve(headers[name])
			one.Headers = append(one.Headers, shownField{Name: name, Type: typeOf(h["schema"]), Text: line(str(h, "description"))})
		}
		s.Responses = append(s.Responses, one)
	}
	s.Curl = d.curl(op)
	return s
}

// params are those of the path and of the method.
func (d *Document) params(op operation) (all []object) {
	for _, of := range []object{op.item, op.spec} {
		list, _ := of["parameters"].([]any)
		for _, p := range list {
			all = append(all, d.resolve(p))
		}
	}
	return all
}

func (d *Document) bodies(of object) (all []shownBody) {
	content, _ := of["content"].(object)
	for _, media := range slices.Sorted(maps.Keys(content)) {
		c := content[media].(object)
		b := shownBody{Type: media, Schema: typeOf(c["schema"])}
		if schema, ok := c["schema"].(object); ok && schema["$ref"] == nil {
			b.Fields = d.fields(schema)
		}
		if text, ok := c["example"].(string); ok {
			b.Example = text
		} else if c["example"] != nil {
			b.Example = pretty(c["example"])
		}
		all = append(all, b)
	}
	return all
}

func pretty(x any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(x); err != nil {
		return err.Error() // of YAML that was JSON before; a test reads all pages
	}
	return strings.TrimSpace(b.String())
}

// fields are the members of an object schema, those of schemas that it joins included.
func (d *Document) fields(schema object) (all []shownField) {
	for _, part := range list(schema["allOf"]) {
		if o, ok := part.(object); ok && o["$ref"] == nil {
			all = append(all, d.fields(o)...)
		}
	}
	properties, _ := schema["properties"].(object)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, _ := properties[name].(object)
		all = append(all, shownField{Name: name, Required: slices.Contains(list(schema["required"]), any(name)), Type: typeOf(p), Text: line(str(p, "description"))})
	}
	return all
}

func list(x any) []any {
	l, _ := x.([]any)
	return l
}

// typeOf names a schema in a few words, with links to those that have a name.
func typeOf(x any) template.HTML {
	s, _ := x.(object)
	esc := template.HTMLEscapeString
	if ref := str(s, "$ref"); ref != "" {
		name := ref[strings.LastIndexByte(ref, '/')+1:]
		return template.HTML(`<a href="#schema-` + esc(name) + `">` + esc(name) + `</a>`)
	}
	join := func(of []any, word string) template.HTML {
		var names []string
		for _, one := range of {
			names = append(names, string(typeOf(one)))
		}
		return template.HTML(strings.Join(names, word))
	}
	switch {
	case s["const"] != nil:
		return template.HTML("<code>" + esc(fmt.Sprint(s["const"])) + "</code>")
	case s["enum"] != nil:
		var words []string
		for _, w := range list(s["enum"]) {
			words = append(words, "<code>"+esc(fmt.Sprint(w))+"</code>")
		}
		return template.HTML(strings.Join(words, ", "))
	case s["oneOf"] != nil:
		return join(list(s["oneOf"]), " or ")
	case s["allOf"] != nil:
		return join(list(s["allOf"]), " and ")
	case s["type"] == "array" && s["items"] != nil:
		return "array of " + typeOf(s["items"])
	case s["type"] == "object":
		return "object"
	case str(s, "type") != "":
		text := esc(str(s, "type"))
		if s["default"] != nil {
			text += ", default <code>" + esc(fmt.Sprint(s["default"])) + "</code>"
		}
		return template.HTML(text)
	}
	if s["properties"] != nil {
		return "object"
	}
	return "anything"
}

// curl is a call as one types it.
func (d *Document) curl(op operation) string {
	path, query := op.path, url.Values{}
	for _, p := range d.params(op) {
		example, ok := p["example"]
		switch {
		case !ok:
		case p["in"] == "path":
			path = strings.ReplaceAll(path, "{"+str(p, "name")+"}", fmt.Sprint(example))
		case p["in"] == "query":
			query.Set(str(p, "name"), fmt.Sprint(example))
		}
	}
	at := str(d.root["servers"].([]any)[0].(object), "url") + path
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	words := []string{"curl"}
	if op.method != "get" && op.method != "post" {
		words = append(words, "-X "+strings.ToUpper(op.method))
	}
	if len(list(op.spec["security"])) == 1 {
		words = append(words, `-H "Authorization: Bearer $TOKEN"`)
	}
	responses := op.spec["responses"].(object)
	if ok := d.resolve(responses["200"]); ok != nil {
		if content, _ := ok["content"].(object); content["text/event-stream"] != nil {
			words = append(words, "-N")
		}
	}
	if body := d.resolve(op.spec["requestBody"]); body != nil {
		for media, c := range body["content"].(object) {
			switch example := c.(object)["example"]; {
			case media != "application/json":
				words = append(words, "-H 'Content-Type: "+media+"' --data-binary @request.txt")
			case example != nil:
				var b bytes.Buffer
				if err := json.Compact(&b, []byte(pretty(example))); err == nil {
					words = append(words, "--json '"+b.String()+"'")
				}
			default:
				words = append(words, "--json @envelope.json")
			}
		}
	} else if op.method == "post" {
		words = append(words, "-X POST")
	}
	return strings.Join(append(words, "'"+at+"'"), " ")
}

func anchor(op operation) string {
	if id := str(op.spec, "operationId"); id != "" {
		return id
	}
	return op.method + strings.NewReplacer("/", "-", "{", "", "}", "").Replace(op.path)
}

func str(o object, name string) string {
	s, _ := o[name].(string)
	return strings.TrimSpace(s)
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	linkSpan = regexp.MustCompile(`\[([^\]]+)\]\((https://[^)\s]+)\)`)
)

// line is text of the files as HTML: code between backticks, and links.
func line(s string) template.HTML {
	s = codeSpan.ReplaceAllString(template.HTMLEscapeString(s), "<code>$1</code>")
	return template.HTML(linkSpan.ReplaceAllString(s, `<a href="$2">$1</a>`))
}

// prose is text of more paragraphs.
func prose(s string) template.HTML {
	if s == "" {
		return ""
	}
	var b strings.Builder
	for p := range strings.SplitSeq(s, "\n\n") {
		b.WriteString("<p>" + string(line(p)) + "</p>\n")
	}
	return template.HTML(b.String())
}
