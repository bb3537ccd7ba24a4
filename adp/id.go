package adp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
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
func IsAgentID(s string) bool { _, err := ParseAgentID(s); return err == nil }

// PublicKey is the raw public key of a well-formed Agent ID.
func (a AgentID) PublicKey() (ed25519.PublicKey, error) {
	if _, err := ParseAgentID(string(a)); err != nil {
		return nil, err
	}
	k, err := DecodeHash(string(a[len(agentPrefix):]))
	if err != nil {
		return nil, err
	}
	return ed25519.PublicKey(k[:]), nil
}

// Encode is base64url without padding.
func Encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

var errBase64 = Errorf(InvalidEvent, "not canonical unpadded base64url of the right length")

// Decode reads canonical unpadded base64url: exact alphabet, no line ends (Go's
// decoder skips them even when strict), no non-zero trailing bits.
func Decode(s string) ([]byte, error) {
	if !plainBase64(s) {
		return nil, errBase64
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, errBase64
	}
	return b, nil
}

// DecodeHash reads the 43 characters of a 32-byte value.
func DecodeHash(s string) (out [32]byte, err error) {
	if len(s) != HashLen || !plainBase64(s) {
		return out, errBase64
	}
	if _, err := strictBase64.Decode(out[:], []byte(s)); err != nil {
		return out, errBase64
	}
	return out, nil
}

// DecodeSignature reads the 86 characters of a 64-byte signature.
func DecodeSignature(s string) (out [64]byte, err error) {
	if len(s) != SignatureLen || !plainBase64(s) {
		return out, errBase64
	}
	if _, err := strictBase64.Decode(out[:], []byte(s)); err != nil {
		return out, errBase64
	}
	return out, nil
}

// IsHash tells whether s is the text of a 32-byte value.
func IsHash(s string) bool { _, err := DecodeHash(s); return err == nil }

var strictBase64 = base64.RawURLEncoding.Strict()

func plainBase64(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// smallOrder holds the encodings, sign bit cleared, of the points whose order
// divides eight (Identity, Signature verification, rule 2).
var smallOrder = func() (out [5][32]byte) {
	for i, h := range []string{
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	} {
		b, err := hex.DecodeString(h)
		if err != nil {
			panic(err)
		}
		copy(out[i][:], b)
	}
	return out
}()

// checkPoint refuses what two verifiers could judge differently: an encoding
// with y >= 2^255-19, and a point of small order (Identity, rules 1 and 2).
func checkPoint(p []byte) bool {
	var c [32]byte
	copy(c[:], p)
	c[31] &= 0x7f
	if c[31] == 0x7f && c[0] >= 0xed {
		all := true
		for _, b := range c[1:31] {
			if b != 0xff {
				all = false
				break
			}
		}
		if all {
			return false
		}
	}
	for i := range smallOrder {
		if bytes.Equal(c[:], smallOrder[i][:]) {
			return false
		}
	}
	return true
}

// CheckPublicKey refuses keys that are not 32 bytes, not canonical, or of
// small order, with invalid_actor. Whether the bytes lie on the curve is only
// known when a signature is verified.
func CheckPublicKey(pub []byte) error {
	if len(pub) != ed25519.PublicKeySize || !checkPoint(pub) {
		return Errorf(InvalidActor, "the public key is not a canonical Ed25519 point of large order")
	}
	return nil
}

// VerifySignature is the one verdict of Identity, "Signature verification":
// canonical A and R, no small order, S < L, the cofactorless equation.
func VerifySignature(pub, message, sig []byte) error {
	if err := CheckPublicKey(pub); err != nil {
		return err
	}
	if len(sig) != ed25519.SignatureSize || !checkPoint(sig[:32]) || !ed25519.Verify(pub, message, sig) {
		return Errorf(InvalidSignature, "the signature does not verify: sign the 32 raw bytes of the event hash with the key of event.actor")
	}
	return nil
}
