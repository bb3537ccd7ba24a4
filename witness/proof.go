package witness

import (
	"crypto/sha3"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/witan-adp/witan/adp"
)

// Classes of evidence (federation: Proof against observation).
const (
	ClassProof       = "proof"
	ClassObservation = "observation"
)

// Kinds of proof.
const (
	// KindStatements: one key of a host signed two archives of one room that cannot
	// both be. It makes the room equivocated.
	KindStatements = "statement-contradiction"
	// KindAttestations: one witness attested both. It says nothing against the host;
	// that witness no longer counts for the room.
	KindAttestations = "attestation-contradiction"
)

// Proof is two envelopes of one key that cannot both hold. It needs nothing else
// to be checked, so that it can be passed from hand to hand.
type Proof struct {
	Kind string
	Subject
	Agent adp.AgentID
	Sides [2]*adp.Envelope // the lesser hash first
}

// Contradiction tells whether two envelopes prove that their signer said two
// things that cannot both hold: statements, or attestations, about one room of one
// origin and one genesis. It looks at no signature.
//
// What is compared is what they say about the records. A bundle that was made
// again (generated_at, bundle_cid) is no second story.
func Contradiction(a, b *adp.Envelope) (kind string, ok bool) {
	if a == nil || b == nil || a.Actor != b.Actor || a.Type != b.Type || a.Hash == b.Hash {
		return "", false
	}
	x, err := readItem(a)
	if err != nil {
		return "", false
	}
	y, err := readItem(b)
	if err != nil || x.subject != y.subject || !x.content.differs(y.content) {
		return "", false
	}
	if a.Type == TypeAnnounce {
		return KindStatements, true
	}
	return KindAttestations, true
}

// newProof makes the proof of a contradiction.
func newProof(a, b *adp.Envelope) (*Proof, error) {
	kind, ok := Contradiction(a, b)
	if !ok {
		return nil, errors.New("witness: the two envelopes do not contradict each other")
	}
	x, err := readItem(a)
	if err != nil {
		return nil, err
	}
	if b.Hash < a.Hash {
		a, b = b, a
	}
	return &Proof{kind, x.subject, a.Actor, [2]*adp.Envelope{a, b}}, nil
}

// id names the proof: one is kept for each key and subject.
func (p *Proof) id() string { return evidenceID(ClassProof, p.Kind, p.Subject, string(p.Agent)) }

// JSON is the canonical text of the proof, as it is gossiped.
func (p *Proof) JSON() ([]byte, error) {
	v, err := adp.EncodeValue(p.members())
	return v.Raw(), err
}

func (p *Proof) members() map[string]any {
	return map[string]any{"class": ClassProof, "kind": p.Kind, "origin": p.Origin, "room_id": p.RoomID, "genesis": p.Genesis, "agent": p.Agent,
		"sides": []json.RawMessage{p.Sides[0].JSON(), p.Sides[1].JSON()}}
}

// VerifyEvidence checks a proof from nothing but its bytes: strict canonical JSON,
// closed shape, both signatures, and that the two sides contradict each other. It
// does not say whether the key speaks for anybody.
func VerifyEvidence(raw []byte) (*Proof, error) {
	if len(raw) > MaxEvidence {
		return nil, fmt.Errorf("the proof has %d bytes, %d is the limit", len(raw), MaxEvidence)
	}
	v, err := adp.Scan(raw)
	if err != nil {
		return nil, err
	}
	return verifyProof(v, len(raw))
}

func verifyProof(v adp.Value, size int) (*Proof, error) {
	if v.Kind() != adp.Object || !v.IsCanonical() || len(v.Raw()) != size {
		return nil, errors.New("a proof is a canonical JSON object")
	}
	f := fields{v: v}
	f.text("class", ClassProof, func(s string) bool { return s == ClassProof })
	claimed := Proof{Kind: f.word("kind"), Subject: f.subject(), Agent: adp.AgentID(f.text("agent", "an Agent ID", adp.IsAgentID))}
	sides := f.get("sides")
	if sides.Kind() != adp.Array || sides.Len() != 2 {
		f.fail("sides", "two envelopes")
	}
	if err := f.end(); err != nil {
		return nil, err
	}
	n := 0
	for side := range sides.Elements() {
		e, err := adp.ParseEnvelope(side)
		if err == nil {
			err = e.CheckHash()
		}
		if err == nil {
			err = e.CheckSignature()
		}
		if err != nil {
			return nil, fmt.Errorf("side %d: %w", n, err)
		}
		claimed.Sides[n] = e
		n++
	}
	found, err := newProof(claimed.Sides[0], claimed.Sides[1])
	if err != nil {
		return nil, err
	}
	if found.Kind != claimed.Kind || found.Subject != claimed.Subject || found.Agent != claimed.Agent || found.Sides[0].Hash != claimed.Sides[0].Hash {
		return nil, errors.New("the proof is not about what its sides say, or its sides are out of order")
	}
	return found, nil
}

// evidenceID is the SHA3-256 of what makes a piece of evidence the same one.
func evidenceID(class, kind string, s Subject, what ...string) string {
	v, err := adp.EncodeValue(append([]string{class, kind, s.Origin, s.RoomID, s.Genesis}, what...))
	if err != nil { // strings can always be written
		panic("witness: evidence id: " + err.Error())
	}
	sum := sha3.Sum256(v.Raw())
	return adp.Encode(sum[:])
}
