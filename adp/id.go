package adp

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
)

// HashLen and SignatureLen are the lengths of a hash and of a signature in
// unpadded base64url text.
const (
	HashLen      = 43
	SignatureLen = 86
)

const agentPrefix = "did:agent:"

// AgentID is an Agent ID: "did:agent:" and the 43 base64url characters of an
// Ed25519 public key (Identity, Keys).
type AgentID string

// NewAgentID is the Agent ID of a public key.
func NewAgentID(pub ed25519.PublicKey) AgentID { return AgentID(agentPrefix + Encode(pub)) }

// ParseAgentID checks the exact text of an Agent ID: prefix, alphabet, length,
// canonical trailing bits. It does not look at the curve point.
func ParseAgentID(s string) (AgentID, error) {
	rest, ok := strings.CutPrefix(s, agentPrefix)
	if !ok {
		return "", Errorf(InvalidActor, "an Agent ID starts with %q", agentPrefix)
	}
	if _, err := DecodeHash(rest); err != nil {
		return "", Errorf(InvalidActor, "an Agent ID ends in the 43 base64url characters of a 32-byte public key")
	}
	return AgentID(s), nil
}

// IsAgentID tells whether s is the exact text of an Agent ID.
func IsAgentID(s string) bool { return isAgentID(s) }

func isAgentID[S string | []byte](s S) bool {
	var out [32]byte
	return len(s) == len(agentPrefix)+HashLen && string(s[:len(agentPrefix)]) == agentPrefix &&
		decodeBase64(out[:], s[len(agentPrefix):])
}

// PublicKey is the raw public key of a well-formed Agent ID.
func (a AgentID) PublicKey() (ed25519.PublicKey, error) {
	if _, err := ParseAgentID(string(a)); err != nil {
		return nil, err
	}
	return Decode(string(a[len(agentPrefix):]))
}

// Encode is base64url without padding.
func Encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func errBase64() error {
	return Errorf(InvalidEvent, "not canonical unpadded base64url of the right length")
}

// Decode reads canonical unpadded base64url: exact alphabet, no line ends (Go's
// decoder skips them even when strict), no non-zero trailing bits.
func Decode(s string) ([]byte, error) {
	out := make([]byte, len(s)*6/8)
	if !decodeBase64(out, s) {
		return nil, errBase64()
	}
	return out, nil
}

// DecodeHash reads the 43 characters of a 32-byte value.
func DecodeHash(s string) (out [32]byte, err error) {
	if len(s) != HashLen || !decodeBase64(out[:], s) {
		return [32]byte{}, errBase64()
	}
	return out, nil
}

// DecodeSignature reads the 86 characters of a 64-byte signature.
func DecodeSignature(s string) (out [64]byte, err error) {
	if len(s) != SignatureLen || !decodeBase64(out[:], s) {
		return [64]byte{}, errBase64()
	}
	return out, nil
}

// IsHash tells whether s is the text of a 32-byte value.
func IsHash(s string) bool {
	var out [32]byte
	return len(s) == HashLen && decodeBase64(out[:], s)
}

// decodeBase64 fills out, which has the len(s)*6/8 bytes that s encodes, and
// tells whether s is their one encoding.
func decodeBase64[S string | []byte](out []byte, s S) bool {
	if len(s)%4 == 1 {
		return false
	}
	for len(s) >= 4 {
		a, b, c, d := base64Value[s[0]], base64Value[s[1]], base64Value[s[2]], base64Value[s[3]]
		if a|b|c|d > 63 {
			return false
		}
		out[0], out[1], out[2] = a<<2|b>>4, b<<4|c>>2, c<<6|d
		out, s = out[3:], s[4:]
	}
	switch len(s) {
	case 2:
		a, b := base64Value[s[0]], base64Value[s[1]]
		if a|b > 63 || b&15 != 0 {
			return false
		}
		out[0] = a<<2 | b>>4
	case 3:
		a, b, c := base64Value[s[0]], base64Value[s[1]], base64Value[s[2]]
		if a|b|c > 63 || c&3 != 0 {
			return false
		}
		out[0], out[1] = a<<2|b>>4, b<<4|c>>2
	}
	return true
}

// base64Value is the value of each character of the alphabet; 255 stands for
// every other byte.
var base64Value = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		t[c] = byte(i)
	}
	return t
}()
