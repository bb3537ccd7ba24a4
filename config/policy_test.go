package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/policy"
)

const policyText = `[[witness.trust]]
agent = "did:agent:6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw"
group = "a"
[[witness.trust]]
agent = "did:agent:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
group = "b"
[witness.policy]
threshold = 1
require = ["statement", "log"]
[[witness.policy.group]]
name = "ab"
threshold = 2
members = ["a", "b"]
[[witness.policy.origin]]
origin = "https://rooms.example"
agent = "did:agent:6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw"
`

func TestLoadPolicy(t *testing.T) {
	load := func(text string) (*Witness, *policy.Policy, error) {
		path := filepath.Join(t.TempDir(), "policy.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadPolicy(path)
	}
	w, p, err := load(policyText)
	if err != nil {
		t.Fatal(err)
	}
	both := []adp.AgentID{adp.AgentID(w.Trust[0].Agent), adp.AgentID(w.Trust[1].Agent)}
	if one, two := p.Evaluate(both[:1], nil, false), p.Evaluate(both, nil, false); one.State != policy.Partial || two.State != policy.Attested {
		t.Error(one, two)
	}
	for want, edit := range map[string][2]string{
		"0 means that there is no policy":        {"threshold = 1\nrequire", "require"},
		"-1 is below 0":                          {"threshold = 1\nrequire", "threshold = -1\nrequire"},
		"asks for 2 of 1":                        {"threshold = 1\nrequire", "threshold = 2\nrequire"},
		`names "c", which is neither`:            {`"a", "b"]`, `"a", "c"]`},
		"witness.policy.require":                 {`"log"`, `"logs"`},
		"write it as it is signed":               {"https://rooms.example", "https://Rooms.example"},
		"is not an origin":                       {"https://rooms.example", "rooms.example"},
		"witness.policy.origin 1: agent":         {"iw\"\n", "iw\"\n"}, // replaced below
		"witness.trust 2: group":                 {`group = "b"`, `group = ""`},
		"witness.trust 1: log":                   {`group = "a"`, "group = \"a\"\nlog = \"x\""},
		"witness.trust 1: cosigner":              {`group = "a"`, "group = \"a\"\ncosigner = \"x\""},
		"witness.policy.origin 1: log: log.exam": {"origin = \"https", "log = \"log.example/2026+6d0b5ae2+BJav3FAdTtFZV5XfVIKFeCbW7BS4zyxpSOnU2GtCbUqX\"\norigin = \"https"},
		"witness.policy.grop":                    {"[[witness.policy.group]]", "[[witness.policy.grop]]"},
	} {
		text := strings.Replace(policyText, edit[0], edit[1], 1)
		if edit[0] == edit[1] {
			i := strings.LastIndex(text, "did:agent:")
			text = text[:i] + "did:agent:x\"\n"
		}
		if _, _, err := load(text); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, ": log.exam")) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if c := Default(); c.Witness.Policy.Threshold != 0 {
		t.Error("a policy by default")
	} else if p, err := c.Witness.Rules(); p != nil || err != nil {
		t.Error(p, err)
	}
}
