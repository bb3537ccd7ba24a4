package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/tilelog"
)

// maxInclusion is the number of hashes that an inclusion proof can have.
const maxInclusion = 63

// Signed is one side of a proof by checkpoints: a signed note with the one
// signature that counts, and, for KindInclusion, what leads from a leaf to its root.
type Signed struct {
	Note      []byte
	Inclusion *Inclusion

	checkpoint tilelog.Checkpoint
}

// Inclusion says that a tree has a leaf at an index (RFC 6962). Where a leaf
// stands in a tree of a known size fixes how many hashes lead to the root, so that
// an inner node cannot pass for a leaf.
type Inclusion struct {
	Index  int64
	Leaf   [32]byte // leaf hash
	Hashes [][]byte
}

func (s *Signed) text() ([]byte, error) {
	m := map[string]any{"checkpoint": string(s.Note)}
	if i := s.Inclusion; i != nil {
		hashes := []string{}
		for _, h := range i.Hashes {
			hashes = append(hashes, base64.StdEncoding.EncodeToString(h))
		}
		m["index"], m["leaf"], m["hashes"] = i.Index, base64.StdEncoding.EncodeToString(i.Leaf[:]), hashes
	}
	v, err := adp.EncodeValue(m)
	return v.Raw(), err
}

func noteHash(s string) ([]byte, bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) == 32 && base64.StdEncoding.EncodeToString(b) == s
}

// readSigned reads a side and verifies all that it says by itself.
func (p *Proof) readSigned(side adp.Value) (*Signed, error) {
	f := fields{v: side}
	s := &Signed{Note: []byte(f.text("checkpoint", "a signed note", func(s string) bool { return len(s) <= tilelog.MaxCheckpoint }))}
	if included(p.Kind) {
		i := &Inclusion{Index: f.integer("index", 0)}
		leaf, ok := noteHash(f.text("leaf", "base64 of 32 bytes", func(s string) bool { _, ok := noteHash(s); return ok }))
		if ok {
			copy(i.Leaf[:], leaf)
		}
		hashes := f.get("hashes")
		if hashes.Kind() != adp.Array || hashes.Len() > maxInclusion {
			f.fail("hashes", fmt.Sprintf("an array of at most %d hashes", maxInclusion))
		} else {
			for v := range hashes.Elements() {
				h, ok := noteHash(v.Text())
				if !ok {
					f.fail("hashes", "base64 of 32 bytes each")
					break
				}
				i.Hashes = append(i.Hashes, h)
			}
		}
		s.Inclusion = i
	}
	if err := f.end(); err != nil {
		return nil, err
	}
	return s, p.open(s)
}

// open checks the signature and the inclusion of a side.
func (p *Proof) open(s *Signed) error {
	key, err := p.Agent.PublicKey()
	if err != nil {
		return err
	}
	alg := byte(algNote)
	if byCosigner(p.Kind) {
		alg = algCosign
	}
	c, single, err := openNote(s.Note, key, alg)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(single, s.Note):
		return errors.New("a checkpoint in a proof has no other signature than that of the key")
	case !lineOf(p.Subject, c.Origin):
		return fmt.Errorf("the checkpoint of %.80q is not one of what the proof is about", c.Origin)
	}
	s.checkpoint = c
	if i := s.Inclusion; i != nil {
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(i.Index), c.Size, i.Leaf[:], i.Hashes, c.Root[:]); err != nil {
			return fmt.Errorf("the leaf is not in the tree: %w", err)
		}
	}
	return nil
}

// contradicts tells why two sides that each hold by themselves are no proof, or
// are not in their one order.
func (p *Proof) contradicts() error {
	a, b := p.Sides[0].Signed, p.Sides[1].Signed
	switch {
	case bytes.Compare(a.Note, b.Note) >= 0:
		return errors.New("the two checkpoints are the same, or out of order")
	case a.checkpoint.Origin != b.checkpoint.Origin:
		return errors.New("the two checkpoints are not of one log")
	case included(p.Kind) && (a.Inclusion.Index != b.Inclusion.Index || a.Inclusion.Leaf == b.Inclusion.Leaf):
		return errors.New("the two trees do not disagree at one index")
	case !included(p.Kind) && (a.checkpoint.Size != b.checkpoint.Size || a.checkpoint.Root == b.checkpoint.Root):
		return errors.New("the two checkpoints can both hold: they are not of one size with different roots")
	}
	return nil
}

// ProveCheckpoints makes the proof that a log key signed two checkpoints of equal
// size with different roots, of the log of an origin or of a room.
func ProveCheckpoints(s Subject, key ed25519.PublicKey, a, b []byte) (*Proof, error) {
	return proveNotes(KindCheckpoints, s, key, &Signed{Note: a}, &Signed{Note: b})
}

// ProveCosignatures makes the proof that a witness cosigned two such checkpoints.
func ProveCosignatures(s Subject, key ed25519.PublicKey, a, b []byte) (*Proof, error) {
	return proveNotes(KindCosignatures, s, key, &Signed{Note: a}, &Signed{Note: b})
}

// ProveInclusion makes the proof that two checkpoints of a log key, of any sizes,
// hold different leaves at one index.
func ProveInclusion(s Subject, key ed25519.PublicKey, a, b Signed) (*Proof, error) {
	return proveIncluded(KindInclusion, s, key, a, b)
}

// ProveCosignedInclusion makes the proof that a witness cosigned two such
// checkpoints.
func ProveCosignedInclusion(s Subject, key ed25519.PublicKey, a, b Signed) (*Proof, error) {
	return proveIncluded(KindCosignedInclusion, s, key, a, b)
}

func proveIncluded(kind string, s Subject, key ed25519.PublicKey, a, b Signed) (*Proof, error) {
	if a.Inclusion == nil || b.Inclusion == nil {
		return nil, errors.New("witness: both checkpoints need an inclusion proof")
	}
	return proveNotes(kind, s, key, &a, &b)
}

func proveNotes(kind string, s Subject, key ed25519.PublicKey, sides ...*Signed) (*Proof, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, errors.New("witness: not an Ed25519 key")
	}
	p := &Proof{Kind: kind, Subject: s, Agent: adp.NewAgentID(key)}
	alg := byte(algNote)
	if byCosigner(kind) {
		alg = algCosign
	}
	for i, side := range sides {
		_, single, err := openNote(side.Note, key, alg)
		if err != nil {
			return nil, fmt.Errorf("witness: %w", err)
		}
		side.Note = single
		if err := p.open(side); err != nil {
			return nil, fmt.Errorf("witness: %w", err)
		}
		p.Sides[i].Signed = side
	}
	p.sort()
	if err := p.contradicts(); err != nil {
		return nil, fmt.Errorf("witness: %w", err)
	}
	return p, nil
}
