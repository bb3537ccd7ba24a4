package types

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func names(defs []*Definition) (out []string) {
	for _, d := range defs {
		out = append(out, d.Type)
	}
	return out
}

var hostLimits = Limits{SchemaBytes: 16 << 10, Types: 64}

const externalDecl = `{"pack":"https://example.com/p.json","digest":"` + anyDigest + `"`

func packOf(t testing.TB, defs ...string) map[string]*Pack {
	t.Helper()
	p, err := ParsePack([]byte(`{"protocol":"agent-discourse/1.0","packs":[{"id":"x","title":"X","types":[` + strings.Join(defs, ",") + `]},{"id":"y","title":"Y","types":[` + define("other.pack", Signal) + `]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*Pack{anyDigest: p}
}

func withSchema(typ, schema string) string {
	return strings.Replace(define(typ, Message), `"schema":{}`, `"schema":`+schema, 1)
}

func TestResolve(t *testing.T) {
	packs := packOf(t, define("a.b", Message), define("a.c", Control))
	for _, c := range []struct {
		decls []string
		want  []string
	}{
		{nil, nil},
		{[]string{define("z.z", Message), `{"use":"adp:reactions/1.0"}`, define("b.b", Message)}, []string{"z.z", "reaction.create", "b.b"}},
		{[]string{externalDecl + "}"}, []string{"a.b", "a.c", "other.pack"}}, // every pack in the document
		{[]string{externalDecl + `,"types":["other.pack","a.b"]}`}, []string{"a.b", "other.pack"}},
		{[]string{externalDecl + `,"types":["a.b"]}`, externalDecl + `,"types":["a.c"]}`}, []string{"a.b", "a.c"}},
	} {
		for _, mode := range []Mode{Host, Replay} {
			defs, unresolved, err := Resolve(declare(t, c.decls...), nil, packs, mode, hostLimits)
			if err != nil || unresolved || !slices.Equal(names(defs), c.want) {
				t.Errorf("%v: %v %v %v", c.decls, names(defs), unresolved, err)
			}
		}
	}
}

func TestOverrides(t *testing.T) {
	decl := declare(t, `{"use":"adp:deliberation/1.0","types":["poll.vote"],"overrides":{"poll.vote":{"roles":["observer","moderator"],"instructions":"Vote once.","status":"deprecated","rate_hint":2,"max_payload_hint":900}}}`)
	defs, _, err := Resolve(decl, nil, nil, Host, hostLimits)
	if err != nil || len(defs) != 1 {
		t.Fatal(defs, err)
	}
	d := defs[0]
	if !d.MayRole(Observer) || d.MayRole(Speaker) || d.Status != Deprecated || d.RateHint != 2 || d.MaxPayload != 900 || d.Kind != Signal {
		t.Errorf("%+v", d)
	}
	v := scan(t, string(d.JSON()))
	if !v.IsCanonical() || !v.Get("instructions").Is("Vote once.") || !v.Get("status").Is("deprecated") || v.Get("roles").Len() != 2 {
		t.Errorf("JSON is %s", d.JSON())
	}
	wantCode(t, d.Check(scan(t, `{}`)), adp.PayloadSchemaViolation, "the schema stays")
	again, _, err := Resolve(declare(t, `{"use":"adp:deliberation/1.0","types":["poll.vote"]}`), nil, nil, Host, hostLimits)
	if err != nil || again[0].MayRole(Observer) || again[0].Status != Active {
		t.Errorf("the registered pack has changed: %+v %v", again, err)
	}
}

func TestResolveRefuses(t *testing.T) {
	reg, err := (*Registry)(nil).With([]*Definition{declare(t, define("in.force", Message))[0].def})
	if err != nil {
		t.Fatal(err)
	}
	packs := packOf(t, define("a.b", Message), define("in.force", Control))
	twice := packOf(t, define("a.b", Message), define("a.b", Message))
	var many []string
	for i := range 65 {
		many = append(many, define(fmt.Sprintf("t.t%d", i), Signal))
	}
	long := "a." + strings.Repeat("b", 127)
	for _, c := range []struct {
		name         string
		decls        []string
		packs        map[string]*Pack
		host, replay adp.Code // "" accepted
	}{
		{"a type twice", []string{define("a.b", Message), define("a.b", Message)}, nil, adp.InvalidEvent, adp.InvalidEvent},
		{"a type twice by a pack", []string{define("a.b", Message), externalDecl + `,"types":["a.b"]}`}, packs, adp.InvalidEvent, adp.InvalidEvent},
		{"a type twice by two imports", []string{`{"use":"adp:reactions/1.0"}`, `{"use":"adp:reactions/1.0"}`}, nil, adp.InvalidEvent, adp.InvalidEvent},
		{"a type twice in a pack", []string{externalDecl + "}"}, twice, adp.InvalidEvent, adp.InvalidEvent},
		{"another kind", []string{define("in.force", Signal)}, nil, adp.InvalidEvent, adp.InvalidEvent},
		{"another kind by a pack", []string{externalDecl + "}"}, packs, adp.InvalidEvent, adp.InvalidEvent},
		{"subset of what is not there", []string{externalDecl + `,"types":["a.x"]}`}, packs, adp.InvalidEvent, adp.InvalidEvent},
		{"override of what is not there", []string{externalDecl + `,"overrides":{"a.x":{}}}`}, packs, adp.InvalidEvent, adp.InvalidEvent},
		{"override of what is not imported", []string{`{"use":"adp:deliberation/1.0","overrides":{"reaction.create":{}}}`}, nil, adp.InvalidEvent, adp.InvalidEvent},
		{"pack not fetched", []string{externalDecl + "}"}, nil, adp.PackUnavailable, ""},
		{"registered pack unknown", []string{`{"use":"adp:reactions/1.1"}`}, nil, adp.PackUnavailable, ""},
		{"pack by another scheme", []string{strings.Replace(externalDecl, "https", "ftp", 1) + "}"}, nil, adp.InvalidEvent, ""},
		{"pack with a password", []string{strings.Replace(externalDecl, "https://", "https://u:p@", 1) + "}"}, nil, adp.InvalidEvent, ""},
		{"pack with a long URI", []string{strings.Replace(externalDecl, "p.json", strings.Repeat("p", 2048), 1) + "}"}, nil, adp.InvalidEvent, ""},
		{"a long type name", []string{define(long, Message)}, nil, adp.InvalidEvent, ""},
		{"65 types", many, nil, adp.InvalidEvent, ""},
		{"64 new types beside one", many[:64], nil, adp.InvalidEvent, ""},
		{"no JSON Schema", []string{withSchema("a.b", `{"type":"nothing"}`)}, nil, adp.InvalidEvent, adp.InvalidEvent},
		{"remote reference", []string{withSchema("a.b", `{"$ref":"https://example.com/"}`)}, nil, adp.InvalidEvent, adp.InvalidEvent},
		{"reference to nothing", []string{withSchema("a.b", `{"$ref":"#/$defs/x"}`)}, nil, adp.InvalidEvent, adp.InvalidEvent},
		{"doubling schema", []string{withSchema("a.b", doubling(20, `{"allOf":[%s,%s]}`))}, nil, adp.InvalidEvent, ""},
		{"schema with $id", []string{withSchema("a.b", `{"$id":"https://example.com/"}`)}, nil, adp.InvalidEvent, ""},
		{"long schema", []string{withSchema("a.b", `{"$comment":"`+strings.Repeat("x", 16<<10-14)+`"}`)}, nil, adp.InvalidEvent, ""},
	} {
		_, _, err := Resolve(declare(t, c.decls...), reg, c.packs, Host, hostLimits)
		wantCode(t, err, c.host, c.name+" on our host")
		defs, unresolved, err := Resolve(declare(t, c.decls...), reg, c.packs, Replay, Limits{})
		wantCode(t, err, c.replay, c.name+" in replay")
		if (err == nil) != (c.replay == "") {
			t.Errorf("%s in replay: %v", c.name, err)
		}
		if want := strings.Contains(c.name, "pack") && c.replay == "" && c.host != ""; unresolved != want {
			t.Errorf("%s: unresolved=%v with %v", c.name, unresolved, names(defs))
		}
	}
}

func TestLimitsAreExact(t *testing.T) {
	reg, err := (*Registry)(nil).With([]*Definition{declare(t, define("in.force", Message))[0].def})
	if err != nil {
		t.Fatal(err)
	}
	decls := []string{define("in.force", Message)} // counts once
	for i := range 63 {
		decls = append(decls, define(fmt.Sprintf("t.t%d", i), Signal))
	}
	decls[5] = withSchema("t.t4", `{"$comment":"`+strings.Repeat("x", 16<<10-15)+`"}`)
	decls[6] = define("a."+strings.Repeat("b", 126), Message)
	list := declare(t, decls...)
	if n := len(list[5].def.schema); n != 16<<10 {
		t.Fatalf("the schema has %d bytes", n)
	}
	if _, _, err := Resolve(list, reg, nil, Host, hostLimits); err != nil {
		t.Error(err)
	}
	// white space does not count
	spaced := declare(t, withSchema("a.b", "{"+strings.Repeat(" ", 20<<10)+"}"))
	if _, _, err := Resolve(spaced, nil, nil, Host, hostLimits); err != nil {
		t.Error(err)
	}
	if _, _, err := Resolve(declare(t, decls...), nil, nil, Host, Limits{}); err != nil {
		t.Error(err)
	}
}

func TestReplaySkipsWhatIsMissing(t *testing.T) {
	decls := declare(t, externalDecl+"}", define("a.a", Message), withSchema("a.b", `{"pattern":"\\w+"}`))
	defs, unresolved, err := Resolve(decls, nil, nil, Replay, Limits{})
	if err != nil || !unresolved || !slices.Equal(names(defs), []string{"a.a", "a.b"}) {
		t.Fatalf("%v %v %v", names(defs), unresolved, err)
	}
	if err := defs[0].Check(scan(t, "{}")); err != nil {
		t.Error(err)
	}
	if err := defs[1].Check(scan(t, "{}")); !errors.Is(err, ErrUnjudged) || adp.CodeOf(err) != "" {
		t.Errorf("got %v, want unjudged", err)
	}
}

func TestRegistry(t *testing.T) {
	var none *Registry
	if _, ok := none.Get("a.b"); ok || none.Len() != 0 || len(none.All()) != 0 {
		t.Error("a nil registry is empty")
	}
	one, err := none.With([]*Definition{declare(t, define("a.b", Message))[0].def, declare(t, define("a.a", Signal))[0].def})
	if err != nil {
		t.Fatal(err)
	}
	again := declare(t, strings.Replace(define("a.b", Message), `"T"`, `"U"`, 1))[0].def
	two, err := one.With([]*Definition{again, declare(t, define("c.c", Signal))[0].def})
	if err != nil || !slices.Equal(names(two.All()), []string{"a.b", "a.a", "c.c"}) || !slices.Equal(names(one.All()), []string{"a.b", "a.a"}) {
		t.Fatalf("%v %v %v", names(two.All()), names(one.All()), err)
	}
	if d, _ := two.Get("a.b"); d != again {
		t.Error("the latest definition is not in force")
	}
	if d, _ := one.Get("a.b"); d == again {
		t.Error("With changed the registry it was called on")
	}
	if same, err := two.With(nil); err != nil || same != two {
		t.Error("With nothing is the same registry")
	}
	_, err = two.With([]*Definition{declare(t, define("a.b", Signal))[0].def})
	wantCode(t, err, adp.InvalidEvent, "another kind")
	_, err = none.With([]*Definition{declare(t, define("a.b", Signal))[0].def, declare(t, define("a.b", Message))[0].def})
	wantCode(t, err, adp.InvalidEvent, "another kind in one list")
}

// However many types a host lets a room have, a replay keeps so many and no more.
func TestTypesAreBounded(t *testing.T) {
	var reg *Registry
	size := 0
	add := func(mode Mode, n int) error {
		d := declare(t, define(fmt.Sprintf("a.t%d", n), Signal))
		defs, unresolved, err := Resolve(d, reg, nil, mode, Limits{})
		if err != nil || unresolved || len(defs) != 1 {
			return err
		}
		reg, err = reg.With(defs)
		size += len(defs[0].JSON())
		return err
	}
	for n := range maxTypes {
		if err := add(Replay, n); err != nil {
			t.Fatal(n, err)
		}
	}
	if reg.Len() != maxTypes || reg.bytes != size {
		t.Errorf("%d types of %d bytes, counted as %d", reg.Len(), size, reg.bytes)
	}
	if err := add(Replay, maxTypes); !errors.Is(err, ErrTooMany) || adp.CodeOf(err) != "" {
		t.Errorf("one more: %v", err)
	}
	wantCode(t, add(Host, maxTypes), adp.InvalidEvent, "one more on our own host")
	if err := add(Replay, 7); err != nil { // a type that is there may change
		t.Errorf("again: %v", err)
	}
	// and so many bytes
	large := func(name string) string {
		return withSchema(name, `{"description":"`+strings.Repeat("x", maxTypeBytes/4)+`"}`)
	}
	if _, _, err := Resolve(declare(t, large("b.a"), large("b.b"), large("b.c")), nil, nil, Replay, Limits{}); err != nil {
		t.Error(err)
	}
	if _, _, err := Resolve(declare(t, large("b.a"), large("b.b"), large("b.c"), large("b.d")), nil, nil, Replay, Limits{}); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many bytes: %v", err)
	}
	old := reg.bytes
	two, err := reg.With([]*Definition{declare(t, strings.Replace(large("a.t7"), `"message"`, `"signal"`, 1))[0].def})
	if err != nil {
		t.Fatal(err)
	}
	back, err := two.With([]*Definition{declare(t, define("a.t7", Signal))[0].def})
	if err != nil || back.bytes != old || two.bytes <= old {
		t.Errorf("%d bytes, then %d, then %d; %v", old, two.bytes, back.bytes, err)
	}
}
