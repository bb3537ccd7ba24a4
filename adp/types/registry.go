package types

import "github.com/witan-adp/witan/adp"

// Registry is the set of definitions in force in a room, in the order in which
// types were first defined. It never changes: With makes another. A nil
// Registry is an empty one.
type Registry struct {
	defs  []*Definition
	index map[string]int
	bytes int // of all definitions
}

// Get is the latest definition of a type.
func (r *Registry) Get(typ string) (*Definition, bool) {
	if r == nil {
		return nil, false
	}
	i, ok := r.index[typ]
	if !ok {
		return nil, false
	}
	return r.defs[i], true
}

// All is every definition in force. Not to be changed.
func (r *Registry) All() []*Definition {
	if r == nil {
		return nil
	}
	return r.defs
}

// Len counts the types.
func (r *Registry) Len() int { return len(r.All()) }

// Bytes is how large all definitions are together.
func (r *Registry) Bytes() int {
	if r == nil {
		return 0
	}
	return r.bytes
}

// With is the registry after defs are accepted in turn. A definition of a type
// that is there replaces it and must keep its kind (ADP §13.4), or the answer is
// invalid_event.
func (r *Registry) With(defs []*Definition) (*Registry, error) {
	if len(defs) == 0 && r != nil {
		return r, nil
	}
	out := &Registry{
		defs:  append(make([]*Definition, 0, r.Len()+len(defs)), r.All()...),
		index: make(map[string]int, r.Len()+len(defs)),
	}
	for i, d := range out.defs {
		out.index[d.Type] = i
		out.bytes += len(d.json)
	}
	for _, d := range defs {
		out.bytes += len(d.json)
		i, known := out.index[d.Type]
		if !known {
			out.index[d.Type] = len(out.defs)
			out.defs = append(out.defs, d)
			continue
		}
		if err := keepsKind(out.defs[i], d); err != nil {
			return nil, err
		}
		out.bytes -= len(out.defs[i].json)
		out.defs[i] = d
	}
	return out, nil
}

func keepsKind(old, now *Definition) error {
	if old.Kind != now.Kind {
		return adp.Errorf(adp.InvalidEvent, "type %.128s is of kind %s and stays so; define another type for kind %s", now.Type, old.Kind, now.Kind)
	}
	return nil
}
