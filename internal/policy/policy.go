// Package policy says when the witnesses of an archive are enough: k of n groups,
// where a group is the keys of one operator, or again k of n groups.
//
// It only counts. Whose attestation is valid, and what it is about, is decided
// before; the package has no clock, no network and no state.
package policy

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"github.com/witan-adp/witan/adp"
)

// States of an archive.
const (
	Unattested  = "unattested"
	Partial     = "partial"  // somebody who counts, but not enough
	Attested    = "attested" // enough
	Equivocated = "equivocated"
)

// Witness is one key, and the operator who runs it.
type Witness struct {
	Agent adp.AgentID
	Group string
	Name  string
}

// Group is k of n groups, as it is written down.
type Group struct {
	Name      string
	Threshold int      // k; from 1 to the number of members
	Members   []string // names of operators, or of other groups
}

// Policy is a tree of groups. A key stands in it once, so that it counts once,
// whatever its name. It is safe for concurrent use.
type Policy struct {
	top   *node
	leafs []*node
}

type node struct {
	Group
	children []*node
	keys     map[[32]byte]bool // of an operator
	parent   *node
}

// maxGroups bounds a policy.
const maxGroups = 1000

// New builds a policy: the witnesses by operator, groups over them, and what the
// whole asks for. Without members it asks for all groups that stand in no other.
// Its name does not matter.
func New(witnesses []Witness, groups []Group, top Group) (*Policy, error) {
	nodes, order, owner := map[string]*node{}, []*node(nil), map[[32]byte]string{}
	for _, w := range witnesses {
		pub, err := w.Agent.PublicKey()
		if err == nil {
			err = adp.CheckPublicKey(pub)
		}
		if err != nil {
			return nil, fmt.Errorf("witness %q: %q is no Agent ID: %w", w.Name, w.Agent, err)
		}
		if w.Group == "" {
			return nil, fmt.Errorf("witness %q has no operator group", w.Agent)
		}
		if g, ok := owner[[32]byte(pub)]; ok && g != w.Group {
			return nil, fmt.Errorf("%s stands in the groups %q and %q; one key counts once", w.Agent, g, w.Group)
		}
		owner[[32]byte(pub)] = w.Group
		n := nodes[w.Group]
		if n == nil {
			n = &node{Group: Group{Name: w.Group, Threshold: 1}, keys: map[[32]byte]bool{}}
			nodes[w.Group], order = n, append(order, n)
		}
		n.keys[[32]byte(pub)] = true
	}
	for _, g := range groups {
		if g.Name == "" {
			return nil, errors.New("a group has no name")
		}
		if nodes[g.Name] != nil {
			return nil, fmt.Errorf("the name %q stands for two groups", g.Name)
		}
		n := &node{Group: g}
		nodes[g.Name], order = n, append(order, n)
	}
	if len(order) > maxGroups {
		return nil, fmt.Errorf("%d groups; %d is the limit", len(order), maxGroups)
	}
	for _, n := range order {
		if n.keys == nil {
			if err := n.adopt(nodes, fmt.Sprintf("the group %q", n.Name)); err != nil {
				return nil, err
			}
		}
	}
	p := &Policy{top: &node{Group: top}}
	if len(top.Members) == 0 {
		for _, n := range order {
			if n.parent == nil {
				p.top.Members = append(p.top.Members, n.Name)
			}
		}
	}
	if err := p.top.adopt(nodes, "the policy"); err != nil {
		return nil, err
	}
	p.collect(p.top)
	for _, n := range order {
		if n.keys == nil && !n.under(p.top) {
			return nil, fmt.Errorf("the group %q is not a part of the policy: name it in members, or leave it out", n.Name)
		}
	}
	return p, nil
}

// adopt gives a group its members.
func (n *node) adopt(nodes map[string]*node, what string) error {
	if n.Threshold < 1 || n.Threshold > len(n.Members) {
		return fmt.Errorf("%s asks for %d of %d members; from 1 to all of them can be asked for", what, n.Threshold, len(n.Members))
	}
	for _, name := range n.Members {
		m := nodes[name]
		switch {
		case m == nil:
			return fmt.Errorf("%s names %q, which is neither an operator group of a witness nor a group", what, name)
		case m.parent != nil:
			return fmt.Errorf("%q is a member twice; one group counts once", name)
		}
		m.parent = n
		n.children = append(n.children, m)
	}
	return nil
}

// under tells whether a group leads up to the top; those of a circle do not.
func (n *node) under(top *node) bool {
	for range maxGroups + 1 {
		if n = n.parent; n == nil || n == top {
			return n == top
		}
	}
	return false
}

func (p *Policy) collect(n *node) {
	for _, c := range n.children {
		if c.keys != nil {
			p.leafs = append(p.leafs, c)
		}
		p.collect(c)
	}
}

// Outcome is what a policy makes of the witnesses of one archive.
type Outcome struct {
	State     string
	Counted   []string // operator groups that count, sorted
	Met, Of   int      // members of the whole that are met, and how many there are
	Threshold int
}

// Evaluate judges an archive. attested are the signers of valid attestations of
// it; own are the keys of its host, whose operator group never counts as its
// witness; equivocated is whether the host is proven to have told two stories.
func (p *Policy) Evaluate(attested, own []adp.AgentID, equivocated bool) Outcome {
	signed, mine := raw(attested), raw(own)
	met := map[*node]bool{}
	o := Outcome{Of: len(p.top.children), Threshold: p.top.Threshold, State: Unattested}
	for _, leaf := range p.leafs {
		has, is := false, false
		for key := range leaf.keys {
			has, is = has || signed[key], is || mine[key]
		}
		if met[leaf] = has && !is; met[leaf] {
			o.Counted = append(o.Counted, leaf.Name)
		}
	}
	slices.Sort(o.Counted)
	for _, c := range p.top.children {
		if c.met(met) {
			o.Met++
		}
	}
	switch {
	case equivocated:
		o.State = Equivocated
	case o.Met >= o.Threshold:
		o.State = Attested
	case len(o.Counted) > 0:
		o.State = Partial
	}
	return o
}

func (n *node) met(leafs map[*node]bool) bool {
	if n.keys != nil {
		return leafs[n]
	}
	k := 0
	for _, c := range n.children {
		if c.met(leafs) {
			k++
		}
	}
	return k >= n.Threshold
}

// Group is the operator group of a key that the policy counts.
func (p *Policy) Group(agent adp.AgentID) (name string, ok bool) {
	keys := raw([]adp.AgentID{agent})
	for _, leaf := range p.leafs {
		for k := range keys {
			if leaf.keys[k] {
				return leaf.Name, true
			}
		}
	}
	return "", false
}

// raw are the keys behind Agent IDs; what is none counts for nobody.
func raw(agents []adp.AgentID) map[[32]byte]bool {
	out := make(map[[32]byte]bool, len(agents))
	for _, a := range agents {
		if pub, err := a.PublicKey(); err == nil && len(pub) == ed25519.PublicKeySize {
			out[[32]byte(pub)] = true
		}
	}
	return out
}
