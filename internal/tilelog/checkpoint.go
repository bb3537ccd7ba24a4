// Package tilelog keeps an append-only log of signed envelopes as a Merkle tree
// that standard tools can read: the tree of RFC 6962 with SHA-256, served as the
// tiles, entry bundles and signed checkpoints of C2SP (tlog-tiles,
// tlog-checkpoint, signed-note, tlog-proof).
//
// It writes and reads those formats, and it keeps the state of one log in the
// store. An entry, the tiles that it changes and the checkpoint over the new tree
// go into one batch of the caller, which compares the state it was made from; the
// new checkpoint is served only after the caller says that the batch is on the
// disk. So there are never two checkpoints of one log that cannot both hold, as
// long as the store is the one that the key was used with: see Custody.
//
// It decides nothing about what may be logged, and it has no network.
package tilelog

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// MaxCheckpoint bounds a signed checkpoint, in bytes; its cosignatures have room.
const MaxCheckpoint = 16 << 10

// maxOrigin bounds an origin line.
const maxOrigin = 500

// ErrFormat: a text or a path is not of the form that C2SP says.
var ErrFormat = errors.New("tilelog: malformed")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

// Checkpoint is the head of a log at one size.
type Checkpoint struct {
	Origin string // names the log; also the name of the key that signs
	Size   uint64
	Root   [32]byte
}

// Text is the body of the note: origin, size, base64 root, a line each.
func (c Checkpoint) Text() string {
	return c.Origin + "\n" + strconv.FormatUint(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
}

// ParseCheckpoint reads the body of a note. It refuses extension lines, which no
// log of ours has, and any other spelling of the same numbers.
func ParseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(text) > MaxCheckpoint || len(lines) != 4 || lines[3] != "" {
		return c, malformed("a checkpoint is three lines: origin, size, root")
	}
	if c.Origin = lines[0]; !validName(c.Origin) {
		return c, malformed("the origin line %.80q", c.Origin)
	}
	if c.Size, err = number(lines[1]); err != nil {
		return c, err
	}
	c.Root, err = hash(lines[2])
	return c, err
}

// Sign makes the signed note. The name of the key is the origin line.
func (c Checkpoint) Sign(key ed25519.PrivateKey) ([]byte, error) {
	if !validName(c.Origin) || c.Size > math.MaxInt64 {
		return nil, malformed("the checkpoint of %.80q at %d cannot be signed", c.Origin, c.Size)
	}
	return note.Sign(&note.Note{Text: c.Text()}, signer{c.Origin, key})
}

// OpenCheckpoint reads a signed note whose origin line names one of the keys that
// signed it, which must be one of keys. Signatures by others are not looked at.
func OpenCheckpoint(signed []byte, keys ...ed25519.PublicKey) (Checkpoint, error) {
	c, err := PeekCheckpoint(signed)
	if err != nil {
		return c, err
	}
	var known []note.Verifier
	for _, k := range keys {
		vkey, err := VerifierKey(c.Origin, k)
		if err != nil {
			return Checkpoint{}, err
		}
		v, err := note.NewVerifier(vkey)
		if err != nil {
			return Checkpoint{}, malformed("%v", err)
		}
		known = append(known, v)
	}
	if _, err := note.Open(signed, note.VerifierList(known...)); err != nil {
		return Checkpoint{}, malformed("checkpoint of %.80q: %v", c.Origin, err)
	}
	return c, nil
}

// PeekCheckpoint reads the body of a signed note and looks at no signature.
func PeekCheckpoint(signed []byte) (Checkpoint, error) {
	if len(signed) > MaxCheckpoint {
		return Checkpoint{}, malformed("a checkpoint of %d bytes", len(signed))
	}
	body, _, ok := strings.Cut(string(signed), "\n\n")
	if !ok {
		return Checkpoint{}, malformed("a signed note has a blank line before its signatures")
	}
	return ParseCheckpoint(body + "\n")
}

// VerifierKey is the text of a public log key as C2SP tools are configured with
// it: name+hash+base64.
func VerifierKey(name string, key ed25519.PublicKey) (string, error) {
	if !validName(name) {
		return "", malformed("the key name %.80q", name)
	}
	return note.NewEd25519VerifierKey(name, key)
}

// signer signs notes with an Ed25519 key (signed-note, type 0x01).
type signer struct {
	name string
	key  ed25519.PrivateKey
}

func (s signer) Name() string { return s.name }

func (s signer) KeyHash() uint32 {
	h := sha256.New()
	h.Write([]byte(s.name + "\n\x01"))
	h.Write(s.key.Public().(ed25519.PublicKey))
	return binary.BigEndian.Uint32(h.Sum(nil))
}

func (s signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// validName tells whether a key name stands in a note without doubt: printable
// ASCII without space and plus.
func validName(s string) bool {
	if s == "" || len(s) > maxOrigin {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '+' }) < 0
}

// number reads a decimal without leading zeros that an int64 holds.
func number(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, malformed("the number %.40q", s)
	}
	return n, nil
}

// hash reads the one base64 text of 32 bytes.
func hash(s string) (out [32]byte, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 32 || strings.ContainsAny(s, "\r\n") {
		return out, malformed("the hash %.60q", s)
	}
	copy(out[:], b)
	return out, nil
}
