// Package keys keeps the one secret of a daemon or of a user, its seed file, and derives every key from it. It
// also writes and reads the did:web document by which an origin says which keys speak for it.
//
// The seed itself signs nothing. Each key has one purpose, and what it signs cannot be taken for what another signs
// (federation.md, "Origins, keys, and who may speak for whom").
//
// It may not sign, fetch or decide whom to trust: it only says what the keys are. No secret leaves it in a log line, an
// error or a formatted value.
package keys

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"golang.org/x/crypto/hkdf"

	"github.com/witan-adp/witan/adp"
)

// Purpose names what a key is for. It is part of the derivation, so its text never changes.
type Purpose string

const (
	Agent    Purpose = "agent"    // envelopes and request tokens
	Log      Purpose = "log"      // checkpoints of the daemon's own log
	Cosigner Purpose = "cosigner" // cosignatures of other logs
	P2P      Purpose = "p2p"      // the libp2p identity
)

// Ring derives the keys of one seed. It is safe for concurrent use and shows nothing of the seed when printed.
type Ring struct {
	seed       [32]byte
	generation int
	agent      string
}

// FirstGeneration is the generation of the keys of a new seed.
const FirstGeneration = 1

// FromSeed returns the keys of a seed in one generation, 1 or above. A later generation has keys that have nothing in common
// with those before it.
func FromSeed(seed [32]byte, generation int) *Ring {
	if generation < FirstGeneration {
		panic(fmt.Sprintf("keys: generation %d", generation))
	}
	r := &Ring{seed: seed, generation: generation}
	r.agent = string(adp.NewAgentID(r.Key(Agent).Public().(ed25519.PublicKey)))
	return r
}

// Generation is the generation of these keys.
func (r *Ring) Generation() int { return r.generation }

// At returns the keys of the same seed in another generation.
func (r *Ring) At(generation int) *Ring { return FromSeed(r.seed, generation) }

// Key derives the key of a purpose: its Ed25519 seed is HKDF-SHA256(seed, "witan/1/<purpose>/<generation>"). It panics on
// a purpose that this package does not declare.
func (r *Ring) Key(p Purpose) ed25519.PrivateKey {
	switch p {
	case Agent, Log, Cosigner, P2P:
		return ed25519.NewKeyFromSeed(r.derive(string(p), ed25519.SeedSize))
	}
	panic(fmt.Sprintf("keys: unknown purpose %q", string(p)))
}

// Public derives the public key of a purpose.
func (r *Ring) Public(p Purpose) ed25519.PublicKey { return r.Key(p).Public().(ed25519.PublicKey) }

// Derive gives n secret bytes (at most 8160) for a use other than a key, such as the MAC of cursors. Equal labels give equal bytes.
func (r *Ring) Derive(label string, n int) []byte { return r.derive("secret/"+label, n) }

func (r *Ring) derive(what string, n int) []byte {
	out := make([]byte, n)
	_, err := io.ReadFull(hkdf.New(sha256.New, r.seed[:], nil, []byte("witan/1/"+what+"/"+strconv.Itoa(r.generation))), out)
	if err != nil { // n is out of range: a mistake in the program
		panic(err)
	}
	return out
}

// AgentID is "did:agent:" and the base64url text of the Agent public key.
func (r *Ring) AgentID() string { return r.agent }

// String says whose keys these are, and nothing that is secret.
func (r Ring) String() string { return "keys of " + r.agent + " (secret)" }

// GoString hides the seed from %#v.
func (r Ring) GoString() string { return r.String() }

// Format hides the seed from every verb, %d and %x included.
func (r Ring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// LogValue hides the seed from log/slog.
func (r Ring) LogValue() slog.Value { return slog.StringValue(r.String()) }
