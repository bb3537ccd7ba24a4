package room

import "github.com/witan-adp/witan/adp"

// Withheld is the outcome for a record whose envelope is kept back: it is linked,
// but neither its signature nor whether it was allowed can be known.
const Withheld Outcome = "withheld"

// CanBeWithheld tells whether an event of a type may be kept back without taking
// something away that the room's state rests on: what agents said, in messages
// and in events of types that the room declared.
func CanBeWithheld(typ string) bool { return typ == Message || !IsBuiltin(typ) }

// judgeRedacted says what a record without its envelope did to the room: it moved
// the head, or not, as its type does, and changed nothing else. So the state is the
// same as with the envelope.
func (s *State) judgeRedacted(r *adp.Record) (Verdict, *Change, error) {
	typ := r.Envelope.Type
	if !CanBeWithheld(typ) {
		return Verdict{}, nil, adp.Errorf(adp.InvalidEvent, "a %s may not be withheld: the state of the room rests on it", typ)
	}
	ch := &Change{Class: builtin[typ]}
	if !IsBuiltin(typ) {
		if def, ok := s.Registry.Get(typ); ok {
			ch.Class = Class(def.Kind)
		} else {
			ch.maybe = true
		}
	}
	return Verdict{Withheld, "", "the envelope is withheld"}, ch, nil
}
