package keys

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/multiformats/go-multibase"

	"github.com/witan-adp/witan/adp"
)

// multikeyHeader is the multicodec of an Ed25519 public key (0xed) as a varint.
var multikeyHeader = []byte{0xed, 0x01}

// multikeyLength is the length of every Ed25519 Multikey: "z" and 47 characters.
const multikeyLength = 48

// MaxDocument bounds the text of a did:web document, in bytes.
const MaxDocument = 64 << 10

// Multikey is the Multikey text of an Ed25519 public key: "z" and the base58btc text of 0xed 0x01 and the key.
func Multikey(pub ed25519.PublicKey) string {
	s, err := multibase.Encode(multibase.Base58BTC, append(bytes.Clone(multikeyHeader), pub...))
	if err != nil { // the base is a constant
		panic(err)
	}
	return s
}

// ParseMultikey reads the exact text that Multikey writes. It refuses other key types and keys that are not canonical
// or of small order (Identity, Signature verification, rules 1 and 2).
func ParseMultikey(s string) (ed25519.PublicKey, error) {
	if len(s) != multikeyLength || s[0] != multibase.Base58BTC {
		return nil, fmt.Errorf("a Multikey of an Ed25519 key is \"z\" and 47 characters, not %.60q", s)
	}
	_, raw, err := multibase.Decode(s)
	if err != nil {
		return nil, fmt.Errorf("Multikey %q: %w", s, err)
	}
	key, ok := bytes.CutPrefix(raw, multikeyHeader)
	if !ok || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("Multikey %q is not of an Ed25519 public key", s)
	}
	pub := ed25519.PublicKey(key)
	if Multikey(pub) != s {
		return nil, fmt.Errorf("Multikey %q is not in its canonical form", s)
	}
	if err := adp.CheckPublicKey(pub); err != nil {
		return nil, fmt.Errorf("Multikey %q: %w", s, err)
	}
	return pub, nil
}

// DID is the did:web identifier of an origin in its normal form (fetch.Origin): the authority with every character but
// letters, digits, dots and hyphens percent-encoded, so that a port follows "%3A".
func DID(origin string) (string, error) {
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.Scheme+"://"+u.Host != origin || strings.ToLower(origin) != origin {
		return "", fmt.Errorf("%q is not an origin in its normal form, scheme://host[:port]", origin)
	}
	var b strings.Builder
	b.WriteString("did:web:")
	for i := 0; i < len(u.Host); i++ {
		if c := u.Host[i]; c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String(), nil
}

// Document is what a did:web document says: the keys that speak for its origin. Log and Cosigner are nil when it names none.
type Document struct {
	Agent, Log, Cosigner ed25519.PublicKey
}

type method struct {
	ID         string `json:"id"`
	Type       string `json:"type"`
	Controller string `json:"controller"`
	Key        string `json:"publicKeyMultibase"`
}

type service struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Endpoint string `json:"serviceEndpoint"`
}

// RenderDocument writes the document that an origin serves at /.well-known/did.json.
func RenderDocument(origin string, r *Ring) ([]byte, error) {
	return RenderRotated(origin, r, r.At(r.Generation()), nil)
}

// RenderRotated is RenderDocument with the log key of another generation, and
// the key.rotate envelope by which the agent key vouches for it, or nil.
func RenderRotated(origin string, r, logRing *Ring, rotation json.RawMessage) ([]byte, error) {
	did, err := DID(origin)
	if err != nil {
		return nil, err
	}
	doc := struct {
		Context   []string        `json:"@context"`
		ID        string          `json:"id"`
		Methods   []method        `json:"verificationMethod"`
		Assertion []string        `json:"assertionMethod"`
		Service   []service       `json:"service"`
		Rotation  json.RawMessage `json:"witan:rotation,omitempty"`
	}{
		Context:  []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"},
		ID:       did,
		Service:  []service{{did + "#adp", "AgentDiscourse", origin + "/.well-known/agent-discourse"}},
		Rotation: rotation,
	}
	for _, p := range []Purpose{Agent, Log, Cosigner} {
		id := did + "#" + string(p)
		from := r
		if p == Log {
			from = logRing
		}
		doc.Methods = append(doc.Methods, method{id, "Multikey", did, Multikey(from.Public(p))})
		doc.Assertion = append(doc.Assertion, id)
	}
	return json.Marshal(doc)
}

// ParseDocument reads the did:web document of an origin. It wants the id of that very origin, at most one entry of a name, and an
// agent key. Entries under names that are not ours are for others and are not judged.
func ParseDocument(origin string, body []byte) (*Document, error) {
	did, err := DID(origin)
	if err != nil {
		return nil, err
	}
	doc, err := parseDocument(did, body)
	if err != nil {
		return nil, fmt.Errorf("did:web document of %s: %w", origin, err)
	}
	return doc, nil
}

func parseDocument(did string, body []byte) (*Document, error) {
	if len(body) > MaxDocument {
		return nil, fmt.Errorf("longer than %d bytes", MaxDocument)
	}
	v, err := adp.Scan(body)
	if err != nil {
		return nil, err
	}
	if v.Kind() != adp.Object {
		return nil, errors.New("is not a JSON object")
	}
	if id := v.Get("id"); !id.Is(did) {
		return nil, fmt.Errorf("its id is %.100q, not %q", id.Raw(), did)
	}
	methods := v.Get("verificationMethod")
	if methods.Kind() != adp.Array {
		return nil, errors.New("has no verificationMethod array")
	}
	var doc Document
	ours := map[string]*ed25519.PublicKey{string(Agent): &doc.Agent, string(Log): &doc.Log, string(Cosigner): &doc.Cosigner}
	seen := map[string]bool{}
	for m := range methods.Elements() {
		id, ok := m.Get("id").Str()
		if !ok {
			return nil, errors.New("a verificationMethod has no id")
		}
		fragment, ok := strings.CutPrefix(strings.TrimPrefix(id, did), "#") // DID Core §5.3.1: "#x" is relative to the document
		if !ok {
			continue // of another subject
		}
		if seen[fragment] {
			return nil, fmt.Errorf("names the key %.60q twice", fragment)
		}
		seen[fragment] = true
		slot := ours[fragment]
		if slot == nil {
			continue
		}
		if !m.Get("type").Is("Multikey") || !m.Get("controller").Is(did) {
			return nil, fmt.Errorf("the key %q must have type Multikey and controller %s", fragment, did)
		}
		if *slot, err = ParseMultikey(m.Get("publicKeyMultibase").Text()); err != nil {
			return nil, fmt.Errorf("the key %q: %w", fragment, err)
		}
	}
	if doc.Agent == nil {
		return nil, fmt.Errorf("has no key %s#agent", did)
	}
	return &doc, nil
}
