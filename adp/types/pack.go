package types

import (
	"crypto/sha256"
	"crypto/sha3"
	"embed"
	"fmt"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
)

// Pack is a pack document (wire-facts §3.1): {"protocol","packs":[{"id","title",
// "description"?,"types":[…],"extra"?}]}. An import takes every pack in it.
type Pack struct {
	document []byte
	defs     []*Definition
}

// Document is the document as canonical JSON. Not to be changed. A digest is
// over the raw bytes that were fetched, which need not be canonical.
func (p *Pack) Document() []byte { return p.document }

// ParsePack reads an external pack document strictly. Schemas are judged when
// its types are imported. Errors are pack_unavailable.
func ParsePack(raw []byte) (*Pack, error) {
	p, err := parsePack(raw)
	if err != nil {
		return nil, adp.Errorf(adp.PackUnavailable, "the pack document cannot be used: %v", err)
	}
	return p, nil
}

func parsePack(raw []byte) (*Pack, error) {
	v, err := adp.Scan(raw)
	if err != nil {
		return nil, err
	}
	if v, err = v.Canonical(); err != nil {
		return nil, err
	}
	if v.Kind() != adp.Object {
		return nil, fmt.Errorf("it is an object, not %v", v.Kind())
	}
	for name := range v.Members() {
		if name != "protocol" && name != "packs" {
			return nil, fmt.Errorf("it has no member %.64q", name)
		}
	}
	if !v.Get("protocol").Is(adp.Protocol) {
		return nil, fmt.Errorf("protocol is %q", adp.Protocol)
	}
	packs := v.Get("packs")
	if packs.Len() == 0 || packs.Kind() != adp.Array {
		return nil, fmt.Errorf("packs is a list of at least one pack")
	}
	p := &Pack{document: v.Raw()}
	for e := range packs.Elements() {
		if err := p.add(e); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// add reads one pack of a document.
func (p *Pack) add(v adp.Value) error {
	if v.Kind() != adp.Object {
		return fmt.Errorf("a pack is an object, not %v", v.Kind())
	}
	for name, m := range v.Members() {
		switch name {
		case "id", "title":
			if strings.TrimSpace(m.Text()) == "" {
				return fmt.Errorf("the %s of a pack is a string that is not blank", name)
			}
		case "description":
			if m.Kind() != adp.String {
				return fmt.Errorf("the description of a pack is a string")
			}
		case "extra":
			if m.Kind() != adp.Object {
				return fmt.Errorf("the extra of a pack is an object")
			}
		case "types":
			if m.Kind() != adp.Array || m.Len() == 0 {
				return fmt.Errorf("the types of a pack is a list of at least one type definition")
			}
			for e := range m.Elements() {
				d, err := parseDefinition(e)
				if err != nil {
					return err
				}
				p.defs = append(p.defs, d)
			}
		default:
			return fmt.Errorf("a pack has no member %.64q", name)
		}
	}
	for _, name := range []string{"id", "title", "types"} {
		if !v.Get(name).Exists() {
			return fmt.Errorf("a pack needs %s", name)
		}
	}
	return nil
}

// Digest compares raw bytes with a digest, "sha256:" or "sha3-256:" and 43
// base64url characters (ADP §13.5). It answers pack_unavailable when they
// differ, invalid_event when the digest is malformed.
func Digest(digest string, raw []byte) error {
	algorithm, want, ok := parseDigest(digest)
	if !ok {
		return invalid("%.64q is no digest: write sha256: or sha3-256: and 43 base64url characters", digest)
	}
	got := sha256.Sum256(raw)
	if algorithm == "sha3-256" {
		got = sha3.Sum256(raw)
	}
	if got != want {
		return adp.Errorf(adp.PackUnavailable, "the pack document has the digest %s:%s, not the declared one", algorithm, adp.Encode(got[:]))
	}
	return nil
}

func parseDigest(s string) (algorithm string, sum [32]byte, ok bool) {
	algorithm, text, _ := strings.Cut(s, ":")
	if algorithm != "sha256" && algorithm != "sha3-256" {
		return "", sum, false
	}
	sum, err := adp.DecodeHash(text)
	return algorithm, sum, err == nil
}

//go:embed packs/*.json
var packFiles embed.FS

// registeredNames in the order of ADP, appendix A.
var registeredNames = []string{"reactions", "deliberation", "curation", "moderation", "realtime"}

func registeredID(name string) string { return "adp:" + name + "/1.0" }

// registeredPacks reads the embedded documents once. They are part of the
// program: a broken one is a panic, in every test of this package.
var registeredPacks = sync.OnceValue(func() map[string]*Pack {
	out := make(map[string]*Pack, len(registeredNames))
	for _, name := range registeredNames {
		raw, err := packFiles.ReadFile("packs/" + name + ".json")
		if err != nil {
			panic("types: " + err.Error())
		}
		p, err := ParsePack(raw)
		if err != nil {
			panic("types: pack " + name + ": " + err.Error())
		}
		out[registeredID(name)] = p
	}
	return out
})

// RegisteredPack is a pack of ADP, appendix A, by id ("adp:reactions/1.0"): a
// document with that one pack.
func RegisteredPack(id string) (*Pack, bool) {
	p, ok := registeredPacks()[id]
	return p, ok
}

// RegisteredIDs are the ids that RegisteredPack knows, in the order of ADP,
// appendix A.
func RegisteredIDs() []string {
	out := make([]string, len(registeredNames))
	for i, name := range registeredNames {
		out[i] = registeredID(name)
	}
	return out
}
