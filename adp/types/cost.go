package types

import (
	"encoding/binary"
	"slices"
)

const (
	// maxSubschemas bounds a schema with every $ref expanded (wire-facts §3.2).
	maxSubschemas = 256
	// maxWeight bounds what one value of a payload can cost, in evaluations.
	maxWeight = 1024
	// maxScan bounds what one byte of a payload can cost, in pattern steps.
	maxScan = 1024
	// maxSets bounds the analysis that finds weight and scan; behind it, sums are
	// taken instead.
	maxSets = 4096
)

// cost is the worst that a schema can do: at most weight evaluations for each
// value or member name of a payload, at most scan steps for each of its bytes.
type cost struct{ weight, scan int }

// place is one subschema in the schema with every reference expanded, a tree.
// A place that leads back to one above it (recursion) has only back set.
type place struct {
	id   int
	s    *subschema
	back *place

	here    []*place
	props   []*place // beside s.props
	anyProp []*place
	rest    *place
	names   *place
	prefix  []*place
	items   *place
	anyItem []*place

	level   int  // members and items passed on the way from the root
	depth   int  // steps since the value was reached
	head    bool // something below leads back here
	returns int  // ways from here, down, back to this or any place above
}

type expansion struct {
	places []*place
	active map[*subschema]*place
	err    *schemaError
}

// measure expands a schema and finds its cost. It refuses what could take more
// than linear work: more than maxSubschemas places, a schema that runs itself
// on the same value, and recursion by more than one path, where the work would
// double at each level.
//
// With at most one way back below each head, a place meets a given value of the
// payload at most once, however deep: the number of rounds follows from the
// depth. So no value is evaluated more often than there are places.
func (w *survey) measure() (cost, *schemaError) {
	if len(w.list) > maxSubschemas {
		return cost{}, &schemaError{true, "more than 256 subschemas; split the type"}
	}
	x := &expansion{active: map[*subschema]*place{}}
	root := x.expand(w.root, 0, 0)
	if x.err != nil {
		return cost{}, x.err
	}
	c := x.worst(root)
	for _, p := range x.places {
		if p.back != nil || !p.s.unique {
			continue
		}
		// uniqueItems reads everything below its array; with a way back below, it
		// may do so again at each level
		c.scan += 4
		if p.returns > 0 {
			c.scan += 252
		}
	}
	if c.weight > maxWeight {
		return c, &schemaError{true, "too much to evaluate for each value of a payload; use fewer alternatives and shorter lists"}
	}
	if c.scan > maxScan {
		return c, &schemaError{true, "too many or too large patterns, or uniqueItems in a recursion"}
	}
	return c, nil
}

// expand makes the place of s. Once x.err is set, what it returns means nothing.
func (x *expansion) expand(s *subschema, level, depth int) *place {
	p := &place{id: len(x.places), s: s, level: level, depth: depth}
	x.places = append(x.places, p)
	if x.err != nil {
		return p
	}
	if len(x.places) > maxSubschemas {
		x.err = &schemaError{true, "more than 256 subschemas once its references are expanded; share less, or split the type"}
		return p
	}
	if head := x.active[s]; head != nil {
		if head.level == level {
			x.err = &schemaError{true, "at #" + s.ptr + ": refers to itself without passing a member or an item"}
			return p
		}
		head.head = true
		p.back, p.returns = head, 1
		return p
	}
	x.active[s] = p
	child := func(s *subschema, level, depth int) *place {
		if s == nil {
			return nil
		}
		c := x.expand(s, level, depth)
		p.returns += c.returns
		return c
	}
	if s.ref != nil {
		p.here = append(p.here, child(s.ref, level, depth+1))
	}
	for _, sub := range s.here {
		p.here = append(p.here, child(sub, level, depth+1))
	}
	below := func(list []*subschema) (out []*place) {
		for _, sub := range list {
			out = append(out, child(sub, level+1, 0))
		}
		return out
	}
	for _, m := range s.props {
		p.props = append(p.props, child(m.s, level+1, 0))
	}
	p.anyProp, p.prefix, p.anyItem = below(s.anyProp), below(s.prefix), below(s.anyItem)
	p.rest, p.items, p.names = child(s.rest, level+1, 0), child(s.items, level+1, 0), child(s.names, level+1, 0)
	delete(x.active, s)
	if p.head && p.returns != 1 && x.err == nil {
		x.err = &schemaError{true, "at #" + s.ptr + ": recursion by more than one path, whose work can double at each level"}
	}
	return p
}

// worst goes through the sets of places that can meet one value together.
func (x *expansion) worst(root *place) (c cost) {
	seen := map[string]bool{}
	var queue [][]*place
	add := func(set []*place) {
		set = x.settle(set)
		if len(set) == 0 {
			return
		}
		key := make([]byte, 0, 2*len(set))
		for _, p := range set {
			key = binary.BigEndian.AppendUint16(key, uint16(p.id))
		}
		if !seen[string(key)] {
			seen[string(key)] = true
			queue = append(queue, set)
		}
	}
	add([]*place{root})
	for len(queue) > 0 {
		if len(seen) > maxSets {
			return x.sum(x.places)
		}
		set := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		at := x.sum(set)
		c.weight, c.scan = max(c.weight, at.weight), max(c.scan, at.scan)
		named, longest := map[string]bool{}, 0
		var names []*place
		for _, p := range set {
			for _, m := range p.s.props {
				named[m.name] = true
			}
			longest = max(longest, len(p.prefix))
			if p.names != nil {
				names = append(names, p.names)
			}
		}
		add(names)
		add(memberSet(set, "", true))
		for name := range named {
			add(memberSet(set, name, false))
		}
		for i := 0; i <= longest; i++ {
			add(itemSet(set, i))
		}
	}
	return c
}

// settle follows ways back and adds what runs on the same value, in order of id.
func (x *expansion) settle(set []*place) (out []*place) {
	in := map[int]bool{}
	var visit func(p *place)
	visit = func(p *place) {
		if p.back != nil {
			p = p.back
		}
		if in[p.id] {
			return
		}
		in[p.id] = true
		out = append(out, p)
		for _, h := range p.here {
			visit(h)
		}
	}
	for _, p := range set {
		visit(p)
	}
	slices.SortFunc(out, func(a, b *place) int { return a.id - b.id })
	return out
}

func (x *expansion) sum(set []*place) (c cost) {
	for _, p := range set {
		if p.back == nil {
			c.weight += p.s.weight + p.depth/8 // the library looks for cycles at each step
			c.scan += p.s.patterns
		}
	}
	return c
}

// memberSet is what meets the member of a name, or one that no schema names.
func memberSet(set []*place, name string, other bool) (out []*place) {
	for _, p := range set {
		out = append(out, p.anyProp...)
		i := -1
		if !other {
			i = slices.IndexFunc(p.s.props, func(m member) bool { return m.name == name })
		}
		if i >= 0 {
			out = append(out, p.props[i])
		} else if p.rest != nil {
			out = append(out, p.rest)
		}
	}
	return out
}

// itemSet is what meets the i-th item; at the longest prefix, all behind it.
func itemSet(set []*place, i int) (out []*place) {
	for _, p := range set {
		out = append(out, p.anyItem...)
		if i < len(p.prefix) {
			out = append(out, p.prefix[i])
		} else if p.items != nil {
			out = append(out, p.items)
		}
	}
	return out
}
