package types

import (
	"net/url"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp"
)

// builtIn are the eleven types that hosts execute themselves (ADP §13.2).
var builtIn = []string{"room.create", "room.update", "room.join", "room.join.review", "room.leave",
	"room.member.role.update", "room.member.remove", "room.close", "room.cancel", "type.define", "message.create"}

// BuiltIn tells whether a type is one of the eleven that no room may define.
func BuiltIn(typ string) bool { return slices.Contains(builtIn, typ) }

// Declaration is one entry of room.create's payload.types, or the payload of
// type.define: a definition in place, or an import of packs (ADP §13.4, §13.5).
type Declaration struct {
	def        *Definition // in place, else nil
	registered string
	pack       PackRef
	types      []string  // the subset to import; nil: all
	overrides  adp.Value // canonical; type → members
}

// PackRef is an external import: where the pack document is, and the digest of
// its raw bytes.
type PackRef struct{ URI, Digest string }

// Pack is the external import of the declaration, if it is one.
func (d *Declaration) Pack() (PackRef, bool) { return d.pack, d.pack.Digest != "" }

// Registered is the id of the registered pack that it imports, if it does.
func (d *Declaration) Registered() (id string, ok bool) { return d.registered, d.registered != "" }

func invalid(format string, args ...any) error { return adp.Errorf(adp.InvalidEvent, format, args...) }

// ParseDeclaration checks the shape of a declaration: closed members, patterns,
// reserved names. Whether it stands is for Resolve. Errors are invalid_event.
func ParseDeclaration(v adp.Value) (*Declaration, error) {
	if v.Kind() != adp.Object {
		return nil, invalid("a type declaration is an object, not %v", v.Kind())
	}
	use, pack := v.Get("use"), v.Get("pack")
	if !use.Exists() && !pack.Exists() {
		def, err := parseDefinition(v)
		if err != nil {
			return nil, err
		}
		return &Declaration{def: def}, nil
	}
	v, err := v.Canonical()
	if err != nil {
		return nil, invalid("type declaration: %v", err)
	}
	d := &Declaration{}
	for name, m := range v.Members() {
		switch name {
		case "use":
			if d.registered = m.Text(); !isRegisteredID(d.registered) {
				return nil, invalid(`use names a registered pack, as "adp:deliberation/1.0"`)
			}
		case "pack":
			if d.pack.URI = m.Text(); !isPackURI(d.pack.URI) {
				return nil, invalid("pack is an absolute URI")
			}
		case "digest":
			d.pack.Digest = m.Text()
			if _, _, ok := parseDigest(d.pack.Digest); !ok {
				return nil, invalid("digest is sha256: or sha3-256: and the 43 base64url characters of the hash of the pack document")
			}
		case "types":
			if d.types, err = parseSubset(m); err != nil {
				return nil, err
			}
		case "overrides":
			d.overrides = m
		default:
			return nil, invalid("%.64q is no member of a pack import; it has use, or pack and digest, and may have types and overrides", name)
		}
	}
	if use.Exists() == pack.Exists() || pack.Exists() != (d.pack.Digest != "") {
		return nil, invalid("a pack import has either use alone, or pack and digest")
	}
	return d, d.checkOverrides()
}

func parseSubset(v adp.Value) (out []string, err error) {
	seen := map[string]bool{}
	for e := range v.Elements() {
		name, ok := e.Str()
		if !ok || !isTypeName(name) {
			return nil, invalid("types of a pack import is a list of type names")
		}
		if seen[name] {
			return nil, invalid("types of a pack import names %.128s twice", name)
		}
		seen[name] = true
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, invalid("types of a pack import names at least one type; leave it out to import all")
	}
	return out, nil
}

func (d *Declaration) checkOverrides() error {
	if d.overrides.Exists() && d.overrides.Kind() != adp.Object {
		return invalid("overrides is an object of type name to changes")
	}
	subset := map[string]bool{}
	for _, typ := range d.types {
		subset[typ] = true
	}
	for typ, o := range d.overrides.Members() {
		if !isTypeName(typ) {
			return invalid("overrides: %.64q is no type name", typ)
		}
		if d.types != nil && !subset[typ] {
			return invalid("overrides names %.128s, which types does not import", typ)
		}
		if o.Kind() != adp.Object {
			return invalid("the override of %.128s is an object", typ)
		}
		var scratch Definition
		for name, m := range o.Members() {
			if err := scratch.adjust(name, m); err != nil {
				return invalid("override of %.128s: %v", typ, err)
			}
		}
	}
	return nil
}

// isTypeName: dotted lower case, two parts or more (wire-facts §2).
func isTypeName(s string) bool {
	parts := 0
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || part[0] == '_' || part[0] == '-' {
			return false
		}
		for i := 0; i < len(part); i++ {
			c := part[i]
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
				return false
			}
		}
		parts++
	}
	return parts >= 2
}

// checkTypeName judges the name in a definition (ADP §13.3).
func checkTypeName(v adp.Value) error {
	name, ok := v.Str()
	if !ok {
		return invalid("a type definition needs type, a string (or use, or pack and digest, to import)")
	}
	if !isTypeName(name) {
		return invalid("%.128q is no type name: lower case letters, digits, _ and -, in two or more parts divided by dots", name)
	}
	if strings.HasPrefix(name, "room.") || strings.HasPrefix(name, "type.") || BuiltIn(name) {
		return invalid("the type %.128s is reserved: choose a name that is not built in and not under room. or type.", name)
	}
	return nil
}

// isRegisteredID: ^adp:[a-z0-9-]+/[0-9]+\.[0-9]+$ (wire-facts §2).
func isRegisteredID(s string) bool {
	rest, ok := strings.CutPrefix(s, "adp:")
	name, version, cut := strings.Cut(rest, "/")
	major, minor, dotted := strings.Cut(version, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return ok && cut && dotted && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" &&
		digits(major) && digits(minor)
}

// isPackURI takes any absolute URI; which ones our own host fetches is for
// Resolve to say.
func isPackURI(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	u, err := url.Parse(s)
	return err == nil && u.IsAbs()
}
