package types

import (
	"errors"
	"net/url"

	"github.com/witan-adp/witan/adp"
)

// Mode says by whose measure declarations are judged.
type Mode int

// Host refuses whatever our stricter choices exclude. Replay refuses only what
// a MUST of the text forbids: the room is somebody else's.
const (
	Host Mode = iota
	Replay
)

// Limits are those of our own host; 0 means none. SchemaBytes is the length of
// the canonical schema, Types the number of types in the registry afterwards.
type Limits struct{ SchemaBytes, Types int }

const (
	maxTypeName = 128  // bytes; our own host
	maxPackURI  = 2048 // bytes; our own host

	// Whatever a host allows, these bound what a room can make us keep, and look through with
	// each definition.
	maxTypes     = 1024
	maxTypeBytes = 8 << 20
)

// ErrTooMany: with these declarations a room would have more types than a replay keeps, so
// that none of them is taken and what they define is not known.
var ErrTooMany = errors.New("the room declares more types than are kept here")

// Resolve turns one list of declarations into definitions, in order, given the
// registry in force and the external packs that the caller has fetched, by
// digest. A type named twice in the list is refused (wire-facts §3.3).
//
// In mode Host a pack that is not there is pack_unavailable; everything else,
// schemas and limits included, is invalid_event. In mode Replay a pack that is
// not there is skipped and unresolved is true, a schema that we do not run
// still makes a Definition, whose Check answers ErrUnjudged, and far too many types
// are ErrTooMany.
func Resolve(decls []*Declaration, reg *Registry, packs map[string]*Pack, mode Mode, lim Limits) (defs []*Definition, unresolved bool, err error) {
	seen := map[string]bool{}
	for _, d := range decls {
		list, missing, err := d.definitions(packs, mode)
		if err != nil {
			return nil, false, err
		}
		unresolved = unresolved || missing
		for _, def := range list {
			if seen[def.Type] {
				return nil, false, invalid("type %.128s is declared twice in one list", def.Type)
			}
			seen[def.Type] = true
			if old, ok := reg.Get(def.Type); ok {
				if err := keepsKind(old, def); err != nil {
					return nil, false, err
				}
			}
			if mode == Host && len(def.Type) > maxTypeName {
				return nil, false, invalid("a type name has at most %d bytes", maxTypeName)
			}
			defs = append(defs, def)
		}
	}
	total, size := reg.Len(), reg.Bytes()
	for _, def := range defs {
		size += len(def.json)
		if old, known := reg.Get(def.Type); known {
			size -= len(old.json)
		} else {
			total++
		}
	}
	switch tooMany := total > maxTypes || size > maxTypeBytes; {
	case mode == Host && lim.Types > 0 && total > lim.Types:
		return nil, false, invalid("the room would have %d types; at most %d are allowed: import a subset with types", total, lim.Types)
	case mode == Host && tooMany: // whatever its limits, it must be able to replay its own rooms
		return nil, false, invalid("the room would have %d types of %d bytes; at most %d of %d are possible: import a subset with types", total, size, maxTypes, maxTypeBytes)
	case tooMany:
		return nil, false, ErrTooMany
	}
	// what compiles schemas comes last
	for _, def := range defs {
		if mode == Host && lim.SchemaBytes > 0 && len(def.schema) > lim.SchemaBytes {
			return nil, false, invalid("type %.128s: the schema has %d bytes in canonical form, at most %d are allowed: shorten it", def.Type, len(def.schema), lim.SchemaBytes)
		}
		if _, bad := compiledSchemas.get(def.key, def.schema); bad != nil && (mode == Host || !bad.outside) {
			return nil, false, invalid("type %.128s: schema: %s", def.Type, bad.reason)
		}
	}
	return defs, unresolved, nil
}

// definitions are what one declaration brings, overrides applied.
func (d *Declaration) definitions(packs map[string]*Pack, mode Mode) (out []*Definition, missing bool, err error) {
	if d.def != nil {
		return []*Definition{d.def}, false, nil
	}
	p, ok := packs[d.pack.Digest]
	if d.registered != "" {
		p, ok = RegisteredPack(d.registered)
	} else if mode == Host && !fetchable(d.pack.URI) {
		return nil, false, invalid("pack is an http or https URI of at most %d bytes, without user and fragment", maxPackURI)
	}
	if !ok || p == nil {
		if mode == Replay {
			return nil, true, nil
		}
		if d.registered != "" {
			return nil, false, adp.Errorf(adp.PackUnavailable, "there is no registered pack %.64s; this host knows %v", d.registered, RegisteredIDs())
		}
		return nil, false, adp.Errorf(adp.PackUnavailable, "the pack %.200s could not be fetched", d.pack.URI)
	}
	have := make(map[string]bool, len(p.defs))
	for _, def := range p.defs {
		have[def.Type] = true
	}
	want := have
	if d.types != nil {
		want = make(map[string]bool, len(d.types))
		for _, typ := range d.types {
			if !have[typ] {
				return nil, false, invalid("types names %.128s, which the pack does not define", typ)
			}
			want[typ] = true
		}
	}
	for typ := range d.overrides.Members() {
		if !want[typ] {
			return nil, false, invalid("overrides names %.128s, which is not imported", typ)
		}
	}
	for _, def := range p.defs {
		if !want[def.Type] {
			continue
		}
		if o := d.overrides.Get(def.Type); o.Exists() {
			if def, err = def.override(o); err != nil {
				return nil, false, err
			}
		}
		out = append(out, def)
	}
	return out, false, nil
}

func fetchable(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && len(uri) <= maxPackURI && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && u.Fragment == ""
}
