package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/policy"
	"github.com/witan-adp/witan/internal/proofbundle"
	"github.com/witan-adp/witan/witness"
)

// maxSigned bounds the attestations and the proofs that one file may hold.
const maxSigned = 10_000

// linesOf are the lines of a part, each ended by a line feed.
func linesOf(text []byte) ([][]byte, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if text[len(text)-1] != '\n' {
		return nil, errors.New("its last line has no end")
	}
	lines := bytes.Split(text[:len(text)-1], []byte("\n"))
	if len(lines) > maxSigned {
		return nil, fmt.Errorf("it has %d lines; %d is the limit", len(lines), maxSigned)
	}
	return lines, nil
}

// readEvidence looks for proofs against the host and against witnesses. What a key that is of neither has signed is nobody's business:
// anybody can make such keys.
func (d *dossier) readEvidence() {
	const what = "evidence"
	if d.leftOut(proofbundle.Evidence, what) {
		return
	}
	lines, err := linesOf(d.parts[proofbundle.Evidence])
	if err != nil {
		d.add(resultFailed, what, proofbundle.Evidence, "%v", err)
		return
	}
	if len(lines) == 0 {
		d.add(resultOK, what, proofbundle.Evidence, "the exporter knew of none")
	}
	for i, line := range lines {
		p, err := witness.VerifyEvidence(line)
		switch {
		case err != nil:
			d.add(resultFailed, what, fmt.Sprintf("%s, line %d", proofbundle.Evidence, i+1), "%v", err)
		case p.Origin != d.Origin || p.RoomID != "" && (p.RoomID != d.RoomID || p.Genesis != d.Genesis):
			d.add(resultFailed, what, fmt.Sprintf("%s, line %d", proofbundle.Evidence, i+1), "it is about something else: %s of %s", p.RoomID, p.Origin)
		case p.Against() == "host" && slices.Contains(d.own(), p.Agent):
			d.State = policy.Equivocated
			d.add(resultFailed, what, "two signatures of "+string(p.Agent), "a key of the host signed two things that cannot both hold (%s)", p.Kind)
		default:
			d.proven[p.Agent] = true
			d.add(resultNote, what, "two signatures of "+string(p.Agent), "%s; whatever this key vouches for here counts no more", p.Kind)
		}
	}
}

func (d *dossier) readAttestations() {
	const what = "attestation"
	if d.leftOut(proofbundle.Attestations, what) {
		return
	}
	lines, err := linesOf(d.parts[proofbundle.Attestations])
	if err != nil {
		d.add(resultFailed, what, proofbundle.Attestations, "%v", err)
		return
	}
	if len(lines) == 0 {
		d.add(resultLeftOut, what, proofbundle.Attestations, "the exporter knew of none")
	}
	for i, line := range lines {
		e, err := authentic(line)
		var a *witness.Attestation
		if err == nil {
			d.attested[e.Hash] = e
			a, err = witness.ParseAttestation(e)
		}
		if err == nil && a.Subject != d.subject() {
			err = fmt.Errorf("it is about room %s of %s, genesis %s", a.RoomID, a.Origin, a.Genesis)
		}
		if err != nil {
			d.add(resultFailed, what, fmt.Sprintf("%s, line %d", proofbundle.Attestations, i+1), "%v", err)
			continue
		}
		d.judgeAttestation(e, a)
	}
}

// judgeAttestation compares an attestation with the archive. Who is not in the policy can neither help nor harm.
func (d *dossier) judgeAttestation(e *adp.Envelope, a *witness.Attestation) {
	const what = "attestation"
	by, known := "signature of "+string(e.Actor), false
	if d.rules != nil {
		var group string
		if group, known = d.rules.policy.Group(e.Actor); known {
			by = group + ", " + by
		}
	}
	s := d.archive.Verifier.Digest.Summary()
	agrees := a.LastSeq == s.Count && a.LastHash == s.LastHash && a.ArchiveRoot == adp.Encode(s.Root[:]) && (s.Withheld > 0 || a.EventsCID == s.EventsCID())
	switch {
	case slices.Contains(d.own(), e.Actor):
		d.add(resultNote, what, by, "of the host itself, which is no witness")
	case d.proven[e.Actor]:
		d.add(resultNote, what, by, "does not count: it is proven to have attested two archives")
	case !a.Complete && a.LastSeq < s.Count:
		d.add(resultNote, what, by, "does not count: of the first %s only", count(a.LastSeq, "record"))
	case !agrees && known:
		d.add(resultFailed, what, by, "it saw another archive: %s, last hash %s, root %s", count(a.LastSeq, "record"), a.LastHash, a.ArchiveRoot)
	case !agrees:
		d.add(resultNote, what, by, "of another archive, by a key that the policy does not name")
	case !a.Complete:
		d.add(resultNote, what, by, "does not count: the room had not ended")
	case d.rules != nil && !known:
		d.add(resultNote, what, by, "agrees, and does not count: the policy does not name this key")
	default:
		d.signers, d.counted = append(d.signers, e.Actor), append(d.counted, e)
		if d.statement != nil && slices.Contains(a.OriginKeys, d.statement.Actor) {
			d.confirm = append(d.confirm, e.Actor)
		}
		d.add(resultOK, what, by, "recomputed this archive from %s at %s, by rules %s/%d", a.Source, utc(a.VerifiedAt), a.Rules.Revision, a.Rules.Version)
	}
}
