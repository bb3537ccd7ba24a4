package types

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/witan-adp/witan/adp"
)

const (
	anyDigest = "sha256:GDt8oHZQfQ3jl5ZUfyNxKZu07yAJdDYuaw_jf_JjLYs"
	goodDef   = `{"type":"review.finding","kind":"message","title":"Finding","description":"d","schema":{"type":"object"},"roles":["speaker","observer"],` +
		`"instructions":"i","version":"2","status":"deprecated","rate_hint":5,"max_payload_hint":1e3,"extra":{"x":1}}`
)

func define(typ string, kind Kind) string {
	return `{"type":"` + typ + `","kind":"` + string(kind) + `","title":"T","schema":{}}`
}

func declare(t testing.TB, texts ...string) (out []*Declaration) {
	t.Helper()
	for _, text := range texts {
		d, err := ParseDeclaration(scan(t, text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, d)
	}
	return out
}

func TestParseDeclarationAccepts(t *testing.T) {
	d := declare(t, goodDef)[0].def
	want := Definition{Type: "review.finding", Title: "Finding", Kind: Message, Roles: []Role{Speaker, Observer}, Status: Deprecated, RateHint: 5, MaxPayload: 1000}
	if diff := cmp.Diff(want, *d, cmp.FilterPath(func(p cmp.Path) bool {
		return slices.Contains([]string{"json", "schema", "key"}, p.Last().String()[1:])
	}, cmp.Ignore())); diff != "" {
		t.Error(diff)
	}
	if got := string(d.JSON()); got != `{"description":"d","extra":{"x":1},"instructions":"i","kind":"message","max_payload_hint":1000,"rate_hint":5,`+
		`"roles":["speaker","observer"],"schema":{"type":"object"},"status":"deprecated","title":"Finding","type":"review.finding","version":"2"}` {
		t.Errorf("JSON is %s", got)
	}
	plain := declare(t, define("a.b", Signal))[0].def
	if got := string(plain.JSON()); got != `{"kind":"signal","schema":{},"status":"active","title":"T","type":"a.b"}` {
		t.Errorf("JSON is %s", got)
	}
	for _, text := range []string{
		`{"use":"adp:deliberation/1.0"}`, `{"use":"adp:x-1/10.23","types":["a.b"],"overrides":{}}`,
		`{"pack":"https://example.com/p.json","digest":"` + anyDigest + `","types":["a.b","c.d"],"overrides":{"a.b":{"roles":["observer"],"instructions":"","status":"disabled","rate_hint":1,"max_payload_hint":1}}}`,
		`{"pack":"ipfs://x","digest":"sha3-256:GDt8oHZQfQ3jl5ZUfyNxKZu07yAJdDYuaw_jf_JjLYs"}`,
		define("roomy.x", Control), define("typed.x", Control), define("message.created", Message), define("0.1_-.a-b", Signal), define("message.x.y", Signal),
	} {
		declare(t, text)
	}
	d2 := declare(t, `{"use":"adp:reactions/1.0"}`, `{"pack":"https://example.com/p.json","digest":"`+anyDigest+`"}`, goodDef)
	if id, ok := d2[0].Registered(); !ok || id != "adp:reactions/1.0" {
		t.Errorf("Registered: %q %v", id, ok)
	}
	if ref, ok := d2[1].Pack(); !ok || ref != (PackRef{"https://example.com/p.json", anyDigest}) {
		t.Errorf("Pack: %v %v", ref, ok)
	}
	_, a := d2[0].Pack()
	_, b := d2[1].Registered()
	_, c := d2[2].Pack()
	_, e := d2[2].Registered()
	if a || b || c || e {
		t.Error("a declaration that is two things")
	}
}

func TestParseDeclarationRefuses(t *testing.T) {
	edits := [][2]string{
		{`"review.finding"`, `"review"`}, {`"review.finding"`, `"Review.finding"`}, {`"review.finding"`, `"review..x"`}, {`"review.finding"`, `".x"`},
		{`"review.finding"`, `"x."`}, {`"review.finding"`, `"_x.y"`}, {`"review.finding"`, `"x.-y"`}, {`"review.finding"`, `"x.y\n"`}, {`"review.finding"`, `"é.y"`},
		{`"review.finding"`, `""`}, {`"review.finding"`, `1`}, {`"type":"review.finding",`, ``},
		{`"kind":"message"`, `"kind":"lifecycle"`}, {`"kind":"message"`, `"kind":"Message"`}, {`"kind":"message",`, ``}, {`"kind":"message"`, `"kind":null`},
		{`"title":"Finding"`, `"title":""`}, {`"title":"Finding"`, `"title":" \t\u00a0"`}, {`"title":"Finding"`, `"title":1`}, {`"title":"Finding",`, ``},
		{`"description":"d"`, `"description":null`}, {`"schema":{"type":"object"}`, `"schema":true`}, {`"schema":{"type":"object"}`, `"schema":"{}"`}, {`"schema":{"type":"object"},`, ``},
		{`["speaker","observer"]`, `[]`}, {`["speaker","observer"]`, `["speaker","speaker"]`}, {`["speaker","observer"]`, `["creator"]`}, {`["speaker","observer"]`, `"speaker"`},
		{`["speaker","observer"]`, `[1]`}, {`["speaker","observer"]`, `null`}, {`["speaker","observer"]`, `{"speaker":1}`},
		{`"instructions":"i"`, `"instructions":[]`}, {`"version":"2"`, `"version":2`}, {`"status":"deprecated"`, `"status":"gone"`}, {`"status":"deprecated"`, `"status":null`},
		{`"rate_hint":5`, `"rate_hint":0`}, {`"rate_hint":5`, `"rate_hint":1.5`}, {`"rate_hint":5`, `"rate_hint":"5"`}, {`"max_payload_hint":1e3`, `"max_payload_hint":-1`},
		{`"extra":{"x":1}`, `"extra":[]`}, {`"extra":{"x":1}`, `"more":1`}, {`"extra":{"x":1}`, `"digest":"x"`}, {`"extra":{"x":1}`, `"Type":"a.b"`},
	}
	var texts []string
	for _, e := range edits {
		text := strings.Replace(goodDef, e[0], e[1], 1)
		if text == goodDef {
			t.Fatalf("edit %v changes nothing", e)
		}
		texts = append(texts, text)
	}
	for _, typ := range append(slices.Clone(builtIn), "room.x", "type.x.y", "room.member", "type.undefine") {
		texts = append(texts, define(typ, Message))
	}
	external := `{"pack":"https://example.com/p.json","digest":"` + anyDigest + `"`
	texts = append(texts, `[]`, `null`, `"adp:reactions/1.0"`, `{}`,
		`{"use":""}`, `{"use":1}`, `{"use":"adp:reactions"}`, `{"use":"adp:reactions/1"}`, `{"use":"adp:Reactions/1.0"}`, `{"use":"adp:/1.0"}`, `{"use":"reactions/1.0"}`,
		`{"use":"adp:reactions/1.0.0"}`, `{"use":"adp:reactions/1.0\n"}`, `{"use":"adp:re/actions/1.0"}`,
		`{"use":"adp:reactions/1.0","digest":"`+anyDigest+`"}`, `{"use":"adp:reactions/1.0","pack":"https://example.com/","digest":"`+anyDigest+`"}`,
		`{"use":"adp:reactions/1.0","title":"x"}`, `{"use":"adp:reactions/1.0","extra":{}}`, `{"use":"adp:reactions/1.0","type":"a.b"}`,
		`{"pack":"https://example.com/p.json"}`, `{"digest":"`+anyDigest+`"}`, external+`,"use":"adp:reactions/1.0"}`,
		strings.Replace(external, "https://example.com/p.json", "p.json", 1)+`}`, strings.Replace(external, "https://example.com/p.json", "", 1)+`}`,
		strings.Replace(external, "p.json", "a b", 1)+`}`, strings.Replace(external, `"https://example.com/p.json"`, "1", 1)+`}`,
		strings.Replace(external, "sha256", "sha512", 1)+`}`, strings.Replace(external, "sha256:", "", 1)+`}`, strings.Replace(external, "LYs", "LYt", 1)+`}`,
		strings.Replace(external, "LYs", "LYs=", 1)+`}`, strings.Replace(external, anyDigest, "", 1)+`}`,
		external+`,"types":[]}`, external+`,"types":["a.b","a.b"]}`, external+`,"types":"a.b"}`, external+`,"types":["a"]}`, external+`,"types":[1]}`, external+`,"types":null}`,
		external+`,"overrides":[]}`, external+`,"overrides":null}`, external+`,"overrides":{"a":{}}}`, external+`,"overrides":{"a.b":1}}`,
		external+`,"types":["a.b"],"overrides":{"c.d":{}}}`,
	)
	for _, o := range []string{`"kind":"signal"`, `"schema":{}`, `"title":"x"`, `"extra":{}`, `"version":"2"`, `"roles":[]`, `"roles":["x"]`, `"status":"x"`,
		`"rate_hint":0`, `"max_payload_hint":1.5`, `"instructions":1`, `"type":"a.b"`, `"description":""`} {
		texts = append(texts, external+`,"overrides":{"a.b":{`+o+`}}}`)
	}
	for _, text := range texts {
		d, err := ParseDeclaration(scan(t, text))
		wantCode(t, err, adp.InvalidEvent, text)
		if err == nil {
			t.Logf("%+v", d)
		}
	}
}

func TestMayRole(t *testing.T) {
	for _, c := range []struct {
		def  string
		want []Role
	}{
		{define("a.b", Message), []Role{Moderator, Speaker}},
		{define("a.b", Signal), []Role{Moderator, Speaker, Observer}},
		{define("a.b", Control), []Role{Moderator}},
		{strings.Replace(define("a.b", Control), `"title"`, `"roles":["observer"],"title"`, 1), []Role{Observer}},
	} {
		d := declare(t, c.def)[0].def
		for _, r := range []Role{Moderator, Speaker, Observer, "", "creator"} {
			if d.MayRole(r) != slices.Contains(c.want, r) {
				t.Errorf("%s: role %q", c.def, r)
			}
		}
	}
}

func TestParseStored(t *testing.T) {
	for _, text := range []string{goodDef, define("a.b", Signal), strings.Replace(goodDef, `{"type":"object"}`, `{"$id":"x","pattern":"\\d"}`, 1)} {
		d := declare(t, text)[0].def
		again, err := ParseStored(d.JSON())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again, cmp.AllowUnexported(Definition{})); diff != "" {
			t.Error(diff)
		}
	}
	for _, text := range []string{"", "{}", "{", goodDef + "x"} {
		_, err := ParseStored([]byte(text))
		wantCode(t, err, adp.InvalidEvent, text)
	}
}

// genDefinition draws a definition text with any of its optional members.
func genDefinition(t *rapid.T) string {
	b := fmt.Sprintf(`{"type":"t.t%d","kind":%q,"title":"T","schema":%s`, rapid.IntRange(0, 5).Draw(t, "type"),
		rapid.SampledFrom([]Kind{Message, Signal, Control}).Draw(t, "kind"),
		rapid.SampledFrom([]string{"{}", `{"type":"object"}`, `{"$id":"x"}`, `{"maxProperties":1e0}`}).Draw(t, "schema"))
	for _, m := range []string{`"roles":["observer","speaker"]`, `"status":"disabled"`, `"rate_hint":7`, `"max_payload_hint":70`, `"instructions":"\u00e9\n"`, `"extra":{"z":1,"a":[1.50]}`} {
		if rapid.Bool().Draw(t, m) {
			b += "," + m
		}
	}
	return b + "}"
}

func TestRegistryProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var reg *Registry
		kinds := map[string]Kind{}
		var order []string
		for range rapid.IntRange(0, 20).Draw(rt, "steps") {
			decl, err := ParseDeclaration(scan(t, genDefinition(rt)))
			if err != nil {
				rt.Fatal(err)
			}
			before := slices.Clone(reg.All())
			defs, _, err := Resolve([]*Declaration{decl}, reg, nil, Replay, Limits{})
			var next *Registry
			if err == nil {
				next, err = reg.With(defs)
			}
			if !slices.Equal(before, reg.All()) {
				rt.Fatal("With changed the registry it was called on")
			}
			kind, known := kinds[decl.def.Type]
			if known && kind != decl.def.Kind {
				if adp.CodeOf(err) != adp.InvalidEvent {
					rt.Fatalf("a change of kind gives %v", err)
				}
				if _, err := reg.With([]*Definition{decl.def}); adp.CodeOf(err) != adp.InvalidEvent {
					rt.Fatalf("With takes a change of kind: %v", err)
				}
				continue
			}
			if err != nil {
				rt.Fatal(err)
			}
			if !known {
				order = append(order, decl.def.Type)
			}
			kinds[decl.def.Type] = decl.def.Kind
			reg = next
			for i, d := range reg.All() {
				again, err := ParseStored(d.JSON())
				if err != nil || cmp.Diff(d, again, cmp.AllowUnexported(Definition{})) != "" {
					rt.Fatalf("%s does not read back: %v", d.JSON(), err)
				}
				if got, ok := reg.Get(d.Type); !ok || got != d || d.Kind != kinds[d.Type] || order[i] != d.Type {
					rt.Fatalf("%s is out of place", d.Type)
				}
			}
			if got, _ := reg.Get(decl.def.Type); got != defs[0] || reg.Len() != len(order) {
				rt.Fatal("the latest definition is not in force")
			}
		}
	})
}

func FuzzParseDeclaration(f *testing.F) {
	f.Add([]byte(goodDef))
	f.Add([]byte(define("a.b", Control)))
	f.Add([]byte(`{"use":"adp:deliberation/1.0","types":["poll.vote"],"overrides":{"poll.vote":{"roles":["observer"]}}}`))
	f.Add([]byte(`{"pack":"https://example.com/p","digest":"` + anyDigest + `"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := adp.Scan(raw)
		if err != nil {
			return
		}
		d, err := ParseDeclaration(v)
		if err != nil {
			wantCode(t, err, adp.InvalidEvent, "fuzz")
			return
		}
		for _, mode := range []Mode{Host, Replay} {
			defs, _, err := Resolve([]*Declaration{d}, nil, nil, mode, Limits{})
			if code := adp.CodeOf(err); err != nil && code != adp.InvalidEvent && code != adp.PackUnavailable {
				t.Fatal(err)
			}
			for _, def := range defs {
				again, err := ParseStored(def.JSON())
				if err != nil || cmp.Diff(def, again, cmp.AllowUnexported(Definition{})) != "" {
					t.Fatalf("%s does not read back: %v", def.JSON(), err)
				}
			}
		}
	})
}
