package policy

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/adp"
)

func agent(n int) adp.AgentID {
	seed := fmt.Appendf(nil, "%-32d", n)
	return adp.NewAgentID(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
}

func agents(ns ...int) (out []adp.AgentID) {
	for _, n := range ns {
		out = append(out, agent(n))
	}
	return out
}

// keys 1, 2: a; 3: b; 4: c; 5: d; 6: e
func witnesses() []Witness {
	return []Witness{{agent(1), "a", "x"}, {agent(2), "a", "y"}, {agent(3), "b", ""}, {agent(4), "c", ""}, {agent(5), "d", ""}, {agent(6), "e", ""}}
}

func TestEvaluate(t *testing.T) {
	flat, err := New(witnesses(), nil, Group{Threshold: 2, Members: []string{"a", "b", "c"}})
	if err != nil {
		t.Fatal(err)
	}
	// one of a, b; and both of the group that wants two of c, d, e
	nested, err := New(witnesses(), []Group{{"ab", 1, []string{"a", "b"}}, {"cde", 2, []string{"c", "d", "e"}}}, Group{Threshold: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		p           *Policy
		signed, own []int
		equivocated bool
		want        string
		counted     string
	}{
		{"nobody", flat, nil, nil, false, Unattested, ""},
		{"a stranger", flat, []int{99}, nil, false, Unattested, ""},
		{"one group", flat, []int{1}, nil, false, Partial, "a"},
		{"two keys of one operator", flat, []int{1, 2}, nil, false, Partial, "a"},
		{"one key twice", flat, []int{3, 3}, nil, false, Partial, "b"},
		{"two groups", flat, []int{1, 3}, nil, false, Attested, "a b"},
		{"a group that is not asked for", flat, []int{1, 5}, nil, false, Partial, "a"},
		{"the host's own group", flat, []int{1, 3}, []int{2}, false, Partial, "b"},
		{"the host itself", flat, []int{1}, []int{1}, false, Unattested, ""},
		{"two stories", flat, []int{1, 3, 4}, nil, true, Equivocated, "a b c"},
		{"nested: half", nested, []int{1, 3}, nil, false, Partial, "a b"},
		{"nested: one of two", nested, []int{1, 4}, nil, false, Partial, "a c"},
		{"nested: met", nested, []int{1, 4, 6}, nil, false, Attested, "a c e"},
		{"nested: without the host's", nested, []int{1, 4, 6}, []int{6}, false, Partial, "a c"},
	} {
		o := c.p.Evaluate(agents(c.signed...), agents(c.own...), c.equivocated)
		if o.State != c.want || strings.Join(o.Counted, " ") != c.counted {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
	if g, ok := nested.Group(agent(6)); !ok || g != "e" {
		t.Error(g, ok)
	}
	if _, ok := flat.Group(agent(6)); ok {
		t.Error("flat does not ask for e")
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		w      []Witness
		groups []Group
		top    Group
	}{
		"asks for 0":         {witnesses(), nil, Group{}},
		"asks for 6 of 5":    {witnesses(), nil, Group{Threshold: 6}},
		"which is neither":   {witnesses(), nil, Group{Threshold: 1, Members: []string{"z"}}},
		"a member twice":     {witnesses(), nil, Group{Threshold: 1, Members: []string{"a", "a"}}},
		"a member twice;":    {witnesses(), []Group{{"g", 1, []string{"a"}}}, Group{Threshold: 1, Members: []string{"a", "g"}}},
		"stands for two":     {witnesses(), []Group{{"a", 1, []string{"b"}}}, Group{Threshold: 1}},
		"no name":            {witnesses(), []Group{{"", 1, []string{"b"}}}, Group{Threshold: 1}},
		"is no Agent ID":     {[]Witness{{"did:agent:x", "a", ""}}, nil, Group{Threshold: 1}},
		"no operator":        {[]Witness{{agent(1), "", ""}}, nil, Group{Threshold: 1}},
		"counts once":        {append(witnesses(), Witness{agent(1), "b", "again"}), nil, Group{Threshold: 1}},
		"asks for 1 of 0":    {nil, nil, Group{Threshold: 1}},
		"not a part":         {witnesses(), []Group{{"g", 1, []string{"a"}}}, Group{Threshold: 1, Members: []string{"b"}}},
		"not a part of":      {witnesses(), []Group{{"g", 1, []string{"h"}}, {"h", 1, []string{"g"}}}, Group{Threshold: 1}},
		"\"g\" asks for 2 o": {witnesses(), []Group{{"g", 2, []string{"a"}}}, Group{Threshold: 1}},
	} {
		if _, err := New(c.w, c.groups, c.top); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, ";")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// More signers never make less of a policy, and no key counts in two places.
func TestMonotone(t *testing.T) {
	rank := map[string]int{Unattested: 0, Partial: 1, Attested: 2}
	rapid.Check(t, func(rt *rapid.T) {
		var ws []Witness
		for i := range rapid.IntRange(1, 9).Draw(rt, "keys") {
			ws = append(ws, Witness{agent(i), fmt.Sprint("o", rapid.IntRange(0, 4).Draw(rt, "operator")), ""})
		}
		names := map[string]bool{}
		for _, w := range ws {
			names[w.Group] = true
		}
		var groups []Group
		top := len(names)
		if names["o0"] && names["o1"] {
			groups, top = []Group{{"pair", rapid.IntRange(1, 2).Draw(rt, "k"), []string{"o0", "o1"}}}, top-1
		}
		p, err := New(ws, groups, Group{Threshold: rapid.IntRange(1, top).Draw(rt, "top")})
		if err != nil {
			rt.Fatal(err)
		}
		var signed []adp.AgentID
		before := p.Evaluate(signed, nil, false)
		for _, i := range rapid.Permutation(ws).Draw(rt, "order") {
			signed = append(signed, i.Agent)
			now := p.Evaluate(signed, nil, false)
			if rank[now.State] < rank[before.State] || now.Met < before.Met || len(now.Counted) > len(names) {
				rt.Fatalf("%+v after %+v", now, before)
			}
			before = now
		}
		if before.State != Attested {
			rt.Fatalf("all have signed: %+v", before)
		}
	})
}
