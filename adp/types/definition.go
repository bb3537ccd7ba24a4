package types

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp"
)

// Kind decides default senders, freshness and quota of a type (ADP §13.1).
type Kind string

// The kinds.
const (
	Message Kind = "message"
	Signal  Kind = "signal"
	Control Kind = "control"
)

// Role is the role of a member.
type Role string

// The roles.
const (
	Moderator Role = "moderator"
	Speaker   Role = "speaker"
	Observer  Role = "observer"
)

// Status says whether a type may still be used.
type Status string

// The statuses (ADP §13.3). Disabled blocks new events of the type.
const (
	Active     Status = "active"
	Deprecated Status = "deprecated"
	Disabled   Status = "disabled"
)

// Definition is one materialised type (ADP §13.3), immutable.
type Definition struct {
	Type                 string
	Title                string // for people
	Kind                 Kind
	Roles                []Role // nil: the default of the kind
	Status               Status
	RateHint, MaxPayload int64 // events a minute, bytes; 0: none

	json   []byte
	schema []byte // inside of json
	key    [sha256.Size]byte
}

// JSON is the whole definition as the registry shows it, canonical: "status" is
// always there, "roles" only when set. Not to be changed.
func (d *Definition) JSON() []byte { return d.json }

// MayRole tells whether members of a role may send the type. Creator power is
// the caller's business (ADP §13.1).
func (d *Definition) MayRole(r Role) bool {
	if d.Roles != nil {
		return slices.Contains(d.Roles, r)
	}
	switch d.Kind {
	case Signal:
		return r == Moderator || r == Speaker || r == Observer
	case Message:
		return r == Moderator || r == Speaker
	}
	return r == Moderator
}

// Check judges a payload by the schema of the type (ADP §13.6, rule 4). It
// answers nil; payload_schema_violation with the JSON pointer of a failing
// place; or an error that wraps ErrUnjudged.
func (d *Definition) Check(payload adp.Value) error {
	s, bad := compiledSchemas.get(d.key, d.schema)
	if bad != nil {
		return fmt.Errorf("%w: the schema of %s is outside of them: %s", ErrUnjudged, d.Type, bad.reason)
	}
	return s.check(payload)
}

// ParseStored reads back what JSON gave. The schema is not judged again; one
// that we do not run makes Check answer ErrUnjudged.
func ParseStored(json []byte) (*Definition, error) {
	v, err := adp.Scan(json)
	if err != nil {
		return nil, adp.Errorf(adp.InvalidEvent, "stored type definition: %v", err)
	}
	return parseDefinition(v)
}

// definitionMembers are the members of a definition, in canonical order.
var definitionMembers = []string{"description", "extra", "instructions", "kind", "max_payload_hint", "rate_hint",
	"roles", "schema", "status", "title", "type", "version"}

// parseDefinition checks the shape of a definition, all but its schema.
func parseDefinition(v adp.Value) (*Definition, error) {
	if v.Kind() != adp.Object {
		return nil, adp.Errorf(adp.InvalidEvent, "a type definition is an object, not %v", v.Kind())
	}
	v, err := v.Canonical()
	if err != nil {
		return nil, adp.Errorf(adp.InvalidEvent, "type definition: %v", err)
	}
	name := v.Get("type")
	if err := checkTypeName(name); err != nil {
		return nil, err
	}
	d := &Definition{Type: name.Text(), Status: Active}
	fail := func(format string, args ...any) error {
		return adp.Errorf(adp.InvalidEvent, "type %.128s: "+format, append([]any{d.Type}, args...)...)
	}
	raw := make(map[string][]byte, 12)
	for name, m := range v.Members() {
		if !slices.Contains(definitionMembers, name) {
			return nil, fail("%.64q is no member of a type definition; free data goes into extra", name)
		}
		raw[name] = m.Raw()
		var err error
		switch name {
		case "kind":
			d.Kind = Kind(m.Text())
			if d.Kind != Message && d.Kind != Signal && d.Kind != Control {
				err = fmt.Errorf("kind is message, signal or control")
			}
		case "title":
			d.Title = m.Text()
			if strings.TrimSpace(d.Title) == "" {
				err = fmt.Errorf("title is a string that is not blank")
			}
		case "schema":
			if m.Kind() != adp.Object {
				err = fmt.Errorf("schema is an object")
			}
		case "extra":
			if m.Kind() != adp.Object {
				err = fmt.Errorf("extra is an object")
			}
		case "description", "version":
			if m.Kind() != adp.String {
				err = fmt.Errorf("%s is a string", name)
			}
		case "type":
		default:
			err = d.adjust(name, m)
		}
		if err != nil {
			return nil, fail("%v", err)
		}
	}
	for _, name := range []string{"kind", "title", "schema"} {
		if raw[name] == nil {
			return nil, fail("%s is missing", name)
		}
	}
	if raw["status"] == nil {
		raw["status"] = adp.AppendString(nil, string(Active))
	}
	d.render(raw)
	return d, nil
}

// adjust takes one of the members that an override may change too.
func (d *Definition) adjust(name string, m adp.Value) error {
	hint := func(into *int64) error {
		n, ok := m.Int()
		if !ok || n < 1 {
			return fmt.Errorf("%s is an integer of at least 1", name)
		}
		*into = n
		return nil
	}
	switch name {
	case "roles":
		roles, err := parseRoles(m)
		if err != nil {
			return err
		}
		d.Roles = roles
	case "instructions":
		if m.Kind() != adp.String {
			return fmt.Errorf("instructions is a string")
		}
	case "status":
		d.Status = Status(m.Text())
		if d.Status != Active && d.Status != Deprecated && d.Status != Disabled {
			return fmt.Errorf("status is active, deprecated or disabled")
		}
	case "rate_hint":
		return hint(&d.RateHint)
	case "max_payload_hint":
		return hint(&d.MaxPayload)
	default:
		return fmt.Errorf("an override may set roles, instructions, status, rate_hint and max_payload_hint, not %.64q", name)
	}
	return nil
}

func parseRoles(v adp.Value) ([]Role, error) {
	var roles []Role
	for e := range v.Elements() {
		r := Role(e.Text())
		if r != Moderator && r != Speaker && r != Observer {
			return nil, fmt.Errorf("roles holds moderator, speaker and observer")
		}
		if slices.Contains(roles, r) {
			return nil, fmt.Errorf("roles names %s twice", r)
		}
		roles = append(roles, r)
	}
	if len(roles) == 0 {
		return nil, fmt.Errorf("roles is a list of at least one role")
	}
	return roles, nil
}

// render writes json from canonical members, which it copies.
func (d *Definition) render(raw map[string][]byte) {
	size := 2
	for name, m := range raw {
		size += len(name) + len(m) + 4
	}
	b := append(make([]byte, 0, size), '{')
	var from, to int
	for _, name := range definitionMembers {
		m, ok := raw[name]
		if !ok {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(adp.AppendString(b, name), ':')
		if name == "schema" {
			from, to = len(b), len(b)+len(m)
		}
		b = append(b, m...)
	}
	d.json = append(b, '}')
	d.schema = d.json[from:to:to]
	d.key = sha256.Sum256(d.schema)
}

// override gives a copy with members replaced; names and shapes were checked.
func (d *Definition) override(o adp.Value) (*Definition, error) {
	v, err := adp.Scan(d.json)
	if err != nil {
		return nil, err
	}
	raw := make(map[string][]byte, 12)
	for name, m := range v.Members() {
		raw[name] = m.Raw()
	}
	c := *d
	for name, m := range o.Members() {
		if err := c.adjust(name, m); err != nil {
			return nil, adp.Errorf(adp.InvalidEvent, "override of %s: %v", d.Type, err)
		}
		raw[name] = m.Raw()
	}
	c.render(raw)
	return &c, nil
}
