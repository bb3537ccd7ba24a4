package witness

import (
	"bytes"
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
	// KindHeads: one key of a host signed two heads of one room that cannot both
	// hold, or a head and a statement. It makes the room equivocated.
	KindHeads = "head-contradiction"
	// KindCheckpoints: one log key signed two checkpoints of one log, or of one room,
	// of equal size with different roots. It makes the host, or the room, equivocated.
	KindCheckpoints = "checkpoint-contradiction"
	// KindInclusion: one log key signed two checkpoints of one log, or of one room,
	// and at one index they hold different leaves. It makes the host, or the room,
	// equivocated.
	KindInclusion = "inclusion-contradiction"
	// KindAttestations: one witness attested two archives that cannot both be. It says
	// nothing against the host; that witness no longer counts for the room.
	KindAttestations = "attestation-contradiction"
	// KindCosignatures: one witness cosigned two checkpoints as in KindCheckpoints. It
	// says nothing against the log.
	KindCosignatures = "cosignature-contradiction"
	// KindCosignedInclusion: one witness cosigned two checkpoints as in KindInclusion.
	// It says nothing against the log.
	KindCosignedInclusion = "cosigned-inclusion-contradiction"
)

// Proof is two things signed by one key that cannot both hold. It needs nothing
// else to be checked, so that it can be passed from hand to hand.
type Proof struct {
	Kind    string
	Subject             // of the log of an origin: RoomID and Genesis are empty
	Agent   adp.AgentID // the key; also of a log, or of a cosigner
	Sides   [2]Side     // the lesser first: of envelopes by hash, of checkpoints by text
}

// Side is an envelope, or a checkpoint.
type Side struct {
	*adp.Envelope
	*Signed
}

// text is the side as it stands in a proof.
func (s Side) text() ([]byte, error) {
	if s.Envelope != nil {
		return s.Envelope.JSON(), nil
	}
	return s.Signed.text()
}

// order is what the two sides are sorted by.
func (s Side) order() []byte {
	if s.Envelope != nil {
		return []byte(s.Envelope.Hash)
	}
	return s.Note
}

// Contradiction tells whether two envelopes prove that their signer said two
// things that cannot both hold: statements, heads, or attestations, about one room
// of one origin and one genesis. It looks at no signature.
//
// What is compared is what they say about the records. A bundle that was made
// again (generated_at, bundle_cid) is no second story.
func Contradiction(a, b *adp.Envelope) (kind string, ok bool) {
	if a == nil || b == nil || a.Actor != b.Actor || a.Hash == b.Hash || (a.Type == TypeAttest) != (b.Type == TypeAttest) {
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
	switch {
	case a.Type == TypeAttest:
		return KindAttestations, true
	case a.Type == TypeHead || b.Type == TypeHead:
		return KindHeads, true
	}
	return KindStatements, true
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
	p := &Proof{kind, x.subject, a.Actor, [2]Side{{Envelope: a}, {Envelope: b}}}
	p.sort()
	return p, nil
}

func (p *Proof) sort() {
	if bytes.Compare(p.Sides[1].order(), p.Sides[0].order()) < 0 {
		p.Sides[0], p.Sides[1] = p.Sides[1], p.Sides[0]
	}
}

// id names the proof: one is kept for each key and subject.
func (p *Proof) id() string { return evidenceID(ClassProof, p.Kind, p.Subject, string(p.Agent)) }

// against tells whether a proof is one against the origin of its subject, and not
// against a witness.
func against(kind string) bool { return kind != KindAttestations && !byCosigner(kind) }

// byCosigner tells whether the sides of a kind are checkpoints that a witness signed.
func byCosigner(kind string) bool { return kind == KindCosignatures || kind == KindCosignedInclusion }

// included tells whether the sides of a kind have inclusion proofs.
func included(kind string) bool { return kind == KindInclusion || kind == KindCosignedInclusion }

// byNote tells whether the sides of a kind are checkpoints.
func byNote(kind string) bool {
	return kind == KindCheckpoints || kind == KindInclusion || byCosigner(kind)
}

// JSON is the canonical text of the proof, as it is gossiped.
func (p *Proof) JSON() ([]byte, error) {
	m, err := p.members()
	if err != nil {
		return nil, err
	}
	v, err := adp.EncodeValue(m)
	return v.Raw(), err
}

func (p *Proof) members() (map[string]any, error) {
	x, err := p.Sides[0].text()
	if err != nil {
		return nil, err
	}
	y, err := p.Sides[1].text()
	return map[string]any{"class": ClassProof, "kind": p.Kind, "origin": p.Origin, "room_id": p.RoomID, "genesis": p.Genesis, "agent": p.Agent,
		"sides": []json.RawMessage{x, y}}, err
}

// ProofText gives the proof itself, as VerifyEvidence wants it, out of what
// /v1/witness/evidence shows of it: without when and by whom it was seen first, and
// in canonical form.
func ProofText(shown adp.Value) ([]byte, error) {
	if shown.Kind() != adp.Object {
		return nil, errors.New("a piece of evidence is a JSON object")
	}
	m := map[string]json.RawMessage{}
	for name, x := range shown.Members() {
		if name != "seen_at" && name != "observer" {
			m[name] = x.Raw()
		}
	}
	v, err := adp.EncodeValue(m)
	return v.Raw(), err
}

// Against says whom a proof speaks against: the host that told two stories, or the
// witness that vouched for both; of that one the host is not to blame.
func (p *Proof) Against() string {
	if against(p.Kind) {
		return "host"
	}
	return "witness"
}

// Says tells, in a line, what a side says that the other one contradicts.
func (s Side) Says() string {
	if s.Envelope == nil {
		c := s.Signed.checkpoint
		text := fmt.Sprintf("checkpoint: size %d, root %s", c.Size, adp.Encode(c.Root[:]))
		if i := s.Inclusion; i != nil {
			text += fmt.Sprintf(", leaf %s at index %d", adp.Encode(i.Leaf[:]), i.Index)
		}
		return text
	}
	it, err := readItem(s.Envelope)
	if err != nil {
		return err.Error()
	}
	what := map[string]string{TypeAnnounce: "statement", TypeAttest: "attestation", TypeHead: "head"}[it.typ]
	return fmt.Sprintf("%s %s: last seq %d, last hash %s, root %s", what, it.hash, it.content.lastSeq, it.content.lastHash, it.content.root)
}

// VerifyEvidence checks a proof from nothing but its bytes: strict canonical JSON,
// closed shape, both signatures, inclusion proofs where it has them, and that the
// two sides contradict each other. It does not say whether the key speaks for
// anybody: that is for who reads it to know.
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
	claimed := Proof{Kind: f.word("kind"), Agent: adp.AgentID(f.text("agent", "an Agent ID", adp.IsAgentID))}
	claimed.Subject = f.proofSubject(byNote(claimed.Kind))
	sides := f.get("sides")
	if sides.Kind() != adp.Array || sides.Len() != 2 {
		f.fail("sides", "an array of two")
	}
	if err := f.end(); err != nil {
		return nil, err
	}
	n := 0
	for side := range sides.Elements() {
		var err error
		if byNote(claimed.Kind) {
			claimed.Sides[n].Signed, err = claimed.readSigned(side)
		} else {
			claimed.Sides[n].Envelope, err = readAuthentic(side)
		}
		if err != nil {
			return nil, fmt.Errorf("side %d: %w", n, err)
		}
		n++
	}
	if byNote(claimed.Kind) {
		if err := claimed.contradicts(); err != nil {
			return nil, err
		}
		return &claimed, nil
	}
	found, err := newProof(claimed.Sides[0].Envelope, claimed.Sides[1].Envelope)
	if err != nil {
		return nil, err
	}
	if found.Kind != claimed.Kind || found.Subject != claimed.Subject || found.Agent != claimed.Agent || found.Sides != claimed.Sides {
		return nil, errors.New("the proof is not about what its sides say, or its sides are out of order")
	}
	return found, nil
}

func readAuthentic(side adp.Value) (*adp.Envelope, error) {
	e, err := adp.ParseEnvelope(side)
	if err == nil {
		err = e.CheckHash()
	}
	if err == nil {
		err = e.CheckSignature()
	}
	return e, err
}

// proofSubject reads a subject; that of a log has no room.
func (f *fields) proofSubject(log bool) Subject {
	if log && f.v.Get("room_id").Text() == "" {
		empty := func(s string) bool { return s == "" }
		return Subject{f.text("origin", "an origin", isOrigin), f.text("room_id", "empty", empty), f.text("genesis", "empty, as room_id is", empty)}
	}
	return f.subject()
}

func isRoom(s Subject) bool { return adp.IsRoomID(s.RoomID) && adp.IsHash(s.Genesis) }

// evidenceID is the SHA3-256 of what makes a piece of evidence the same one.
func evidenceID(class, kind string, s Subject, what ...string) string {
	v, err := adp.EncodeValue(append([]string{class, kind, s.Origin, s.RoomID, s.Genesis}, what...))
	if err != nil { // strings can always be written
		panic("witness: evidence id: " + err.Error())
	}
	sum := sha3.Sum256(v.Raw())
	return adp.Encode(sum[:])
}
