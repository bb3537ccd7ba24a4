package cosignature

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/witan-adp/witan/adp"
)

// Kind is the signature type of a key (signed-note, "Signature types"). The same
// Ed25519 key under another kind is another verifier.
type Kind byte

const (
	Log     Kind = 0x01 // Ed25519 over the text of the note
	Witness Kind = 0x04 // timestamped Ed25519 cosignature
)

func (k Kind) String() string {
	switch k {
	case Log:
		return "the key of a log (type 1)"
	case Witness:
		return "the key of a witness (type 4)"
	}
	return fmt.Sprintf("a key of type %d", byte(k))
}

// Verifier checks the signatures of one key in signed notes. It is a
// note.Verifier.
type Verifier struct {
	name string
	kind Kind
	hash uint32
	key  ed25519.PublicKey
}

var _ note.Verifier = (*Verifier)(nil)

// NewVerifier makes the verifier of a key.
func NewVerifier(name string, kind Kind, key ed25519.PublicKey) (*Verifier, error) {
	switch {
	case !validName(name):
		return nil, malformed("the key name %.80q: not empty, at most %d bytes, no space and no plus", name, maxName)
	case kind != Log && kind != Witness:
		return nil, malformed("%v is not one that can be used here: an Ed25519 key of type 1 or 4 is", kind)
	case len(key) != ed25519.PublicKeySize:
		return nil, malformed("an Ed25519 key of %d bytes", len(key))
	}
	if err := adp.CheckPublicKey(key); err != nil {
		return nil, malformed("the key of %.80q: %v", name, err)
	}
	return &Verifier{name, kind, keyID(name, kind, key), key}, nil
}

// keyID is SHA-256(name || "\n" || kind || key)[:4].
func keyID(name string, kind Kind, key ed25519.PublicKey) uint32 {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write([]byte{'\n', byte(kind)})
	h.Write(key)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// ParseVerifier reads a verifier key, "<name>+<key ID in hex>+<base64 of kind and
// key>": the exact text that String writes.
func ParseVerifier(vkey string) (*Verifier, error) {
	name, rest, ok := strings.Cut(vkey, "+")
	_, encoded, ok2 := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || !ok2 || err != nil || len(raw) < 1 {
		return nil, malformed("%.120q is not a verifier key, <name>+<8 hex digits>+<base64>", vkey)
	}
	v, err := NewVerifier(name, Kind(raw[0]), raw[1:])
	if err != nil {
		return nil, err
	}
	if v.String() != vkey {
		return nil, malformed("the verifier key %.120q does not fit together: its key ID is %08x", vkey, v.hash)
	}
	return v, nil
}

// String is the verifier key.
func (v *Verifier) String() string {
	return fmt.Sprintf("%s+%08x+%s", v.name, v.hash, base64.StdEncoding.EncodeToString(append([]byte{byte(v.kind)}, v.key...)))
}

func (v *Verifier) Name() string           { return v.name }
func (v *Verifier) KeyHash() uint32        { return v.hash }
func (v *Verifier) Kind() Kind             { return v.kind }
func (v *Verifier) Key() ed25519.PublicKey { return v.key }

// Verify checks a signature over the text of a note, without its key ID.
func (v *Verifier) Verify(msg, sig []byte) bool {
	if v.kind == Log {
		return len(sig) == ed25519.SignatureSize && ed25519.Verify(v.key, msg, sig)
	}
	if len(sig) != timeSize+ed25519.SignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(sig)
	if _, err := ParseCheckpoint(string(msg)); err != nil || at > math.MaxInt64 {
		return false
	}
	return ed25519.Verify(v.key, signedMessage(int64(at), string(msg)), sig[timeSize:])
}

const timeSize = 8

// signedMessage is what a cosigner signs (tlog-cosignature, "Ed25519 signed
// message").
func signedMessage(at int64, text string) []byte {
	return []byte("cosignature/v1\ntime " + strconv.FormatInt(at, 10) + "\n" + text)
}

// Cosign makes the signature line of a cosigner over the text of a checkpoint, at a
// time in Unix seconds.
func Cosign(name string, key ed25519.PrivateKey, text string, at int64) (line string, err error) {
	if _, err := ParseCheckpoint(text); err != nil {
		return "", err
	}
	if !validName(name) || at <= 0 {
		return "", malformed("%.80q cannot cosign at the time %d", name, at)
	}
	sig := binary.BigEndian.AppendUint32(nil, keyID(name, Witness, key.Public().(ed25519.PublicKey)))
	sig = binary.BigEndian.AppendUint64(sig, uint64(at))
	sig = append(sig, ed25519.Sign(key, signedMessage(at, text))...)
	return signatureLine(note.Signature{Name: name, Base64: base64.StdEncoding.EncodeToString(sig)}), nil
}

func signatureLine(s note.Signature) string { return "— " + s.Name + " " + s.Base64 + "\n" }

// Time is when a cosignature was made, in Unix seconds. Whether it is a good one,
// Verify has to say.
func Time(s note.Signature) (int64, error) {
	raw, err := base64.StdEncoding.DecodeString(s.Base64)
	if err != nil || len(raw) != 4+timeSize+ed25519.SignatureSize {
		return 0, malformed("not a cosignature: %.200q", s.Base64)
	}
	at := binary.BigEndian.Uint64(raw[4:])
	if at > math.MaxInt64 {
		return 0, malformed("the time %d of a cosignature", at)
	}
	return int64(at), nil
}
