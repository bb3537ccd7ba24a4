package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/policy"
)

// Policy says which witnesses are enough.
type Policy struct {
	Threshold int            `toml:"threshold"` // k of Members; 0: there is no policy
	Members   []string       `toml:"members"`   // operator groups of Witness.Trust, and Groups; empty: all that stand in no other
	Require   []string       `toml:"require"`   // what a proof bundle must have; see Require…
	Groups    []PolicyGroup  `toml:"group"`
	Origins   []PolicyOrigin `toml:"origin"`
}

// PolicyGroup is k of n groups under one name.
type PolicyGroup struct {
	Name      string   `toml:"name"`
	Threshold int      `toml:"threshold"`
	Members   []string `toml:"members"`
}

// PolicyOrigin is the keys of a host, known from elsewhere. `witan verify` believes them before anything that a file says.
type PolicyOrigin struct {
	Origin string `toml:"origin"`
	Agent  string `toml:"agent"` // Agent ID
	Log    string `toml:"log"`   // verifier key of its log
}

// Values of Policy.Require.
const (
	RequireStatement   = "statement"   // the host has signed what the archive is
	RequireLog         = "log"         // the statement is in the host's log
	RequireCosignature = "cosignature" // a cosigner of witness.trust has signed the checkpoint of that log
)

// LoadPolicy reads the policy of a settings file, which needs nothing but [witness.policy] and the [[witness.trust]] that it
// counts, and may be that of a daemon. The file must ask for at least one witness.
func LoadPolicy(path string) (*Witness, *policy.Policy, error) {
	c, err := Load(path)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	p, err := c.Witness.Rules()
	if err == nil && p == nil {
		err = fmt.Errorf("%s: witness.policy.threshold: says for how many witnesses to ask", path)
	}
	return &c.Witness, p, err
}

// Rules is the policy in force; nil when there is none.
func (c *Witness) Rules() (*policy.Policy, error) {
	if c.Policy.Threshold == 0 {
		return nil, nil
	}
	var witnesses []policy.Witness
	for _, t := range c.Trust {
		witnesses = append(witnesses, policy.Witness{Agent: adp.AgentID(t.Agent), Group: t.Group, Name: t.Name})
	}
	var groups []policy.Group
	for _, g := range c.Policy.Groups {
		groups = append(groups, policy.Group(g))
	}
	return policy.New(witnesses, groups, policy.Group{Threshold: c.Policy.Threshold, Members: c.Policy.Members})
}

func (c *Witness) validatePolicy(p *problems) {
	w := c.Policy
	for _, r := range w.Require {
		oneOf(p, "witness.policy.require", r, RequireStatement, RequireLog, RequireCosignature)
	}
	seen := map[string]bool{}
	for i, o := range w.Origins {
		key := fmt.Sprintf("witness.policy.origin %d: ", i+1)
		if why := originProblem(o.Origin); why != "" {
			p.add(key+"origin", "%s", why)
		} else if o.Origin != strings.ToLower(strings.TrimSuffix(o.Origin, "/")) {
			p.add(key+"origin", "write it as it is signed: %s", strings.ToLower(strings.TrimSuffix(o.Origin, "/")))
		}
		if seen[o.Origin] {
			p.add(key+"origin", "%s stands there twice", o.Origin)
		}
		seen[o.Origin] = true
		agents(p, key+"agent", []string{o.Agent})
		if o.Log == "" {
			continue
		}
		if v, err := cosignature.ParseVerifier(o.Log); err != nil {
			p.add(key+"log", "%v", err)
		} else if v.Kind() != cosignature.Log {
			p.add(key+"log", "%s is %v; the key of a log is of type 1", o.Log, v.Kind())
		}
	}
	keys := map[string]bool{}
	for i, t := range c.Trust {
		if t.Log != "" {
			key := fmt.Sprintf("witness.trust %d: log", i+1)
			if v, err := cosignature.ParseVerifier(t.Log); err != nil {
				p.add(key, "%v", err)
			} else if v.Kind() != cosignature.Log {
				p.add(key, "%s is %v; the key of a log is of type 1", t.Log, v.Kind())
			}
		}
		if t.Cosigner == "" {
			continue
		}
		key := fmt.Sprintf("witness.trust %d: cosigner", i+1)
		v, err := cosignature.ParseVerifier(t.Cosigner)
		switch {
		case err != nil:
			p.add(key, "%v", err)
		case v.Kind() != cosignature.Witness:
			p.add(key, "%s is %v; the key of a cosigner is of type 4", t.Cosigner, v.Kind())
		case keys[string(v.Key())]:
			p.add(key, "%s stands there twice; one key counts once", t.Cosigner)
		default:
			keys[string(v.Key())] = true
		}
	}
	switch {
	case w.Threshold < 0:
		p.add("witness.policy.threshold", "%d is below 0", w.Threshold)
	case w.Threshold == 0:
		if len(w.Members) > 0 || len(w.Groups) > 0 {
			p.add("witness.policy.threshold", "0 means that there is no policy; say how many of the groups are enough")
		}
	case !slices.ContainsFunc(c.Trust, func(t Trust) bool { _, err := adp.ParseAgentID(t.Agent); return err != nil || t.Group == "" }):
		if _, err := c.Rules(); err != nil {
			p.add("witness.policy", "%v", err)
		}
	}
}
