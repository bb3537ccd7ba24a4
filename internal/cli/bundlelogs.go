package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/proofbundle"
	"github.com/witan-adp/witan/internal/tilelog"
)

// attestationProof is a line of attestation-proofs.jsonl: that an attestation stands in the log of its witness.
type attestationProof struct {
	hash  string // of the attestation
	proof tilelog.Proof
	log   *cosignature.Verifier // the key of that log, as the exporter knew it
}

func (p attestationProof) json() ([]byte, error) {
	v, err := adp.EncodeValue(map[string]any{"hash": p.hash, "proof": string(p.proof.Text()), "vkey": p.log.String()})
	return v.Raw(), err
}

// parseAttestationProof takes the one text that json gives a line.
func parseAttestationProof(line []byte) (p attestationProof, err error) {
	v, err := adp.Scan(line)
	if err != nil {
		return p, err
	}
	if !adp.IsHash(v.Get("hash").Text()) || v.Len() != 3 {
		return p, errors.New("a line is {hash, proof, vkey}, of an attestation")
	}
	p.hash = v.Get("hash").Text()
	if p.proof, err = tilelog.ParseProof([]byte(v.Get("proof").Text())); err != nil {
		return p, err
	}
	if p.log, err = cosignature.ParseVerifier(v.Get("vkey").Text()); err != nil {
		return p, err
	}
	if again, err := p.json(); err != nil || string(again) != string(line) {
		return p, errors.New("the line is not in its one form")
	}
	return p, nil
}

// verify checks that the log, by its key, has the attestation.
func (p attestationProof) verify(e *adp.Envelope) (tilelog.Checkpoint, error) {
	head, err := tilelog.PeekCheckpoint(p.proof.Checkpoint)
	if err == nil && (p.log.Kind() != cosignature.Log || p.log.Name() != head.Origin) {
		err = fmt.Errorf("the checkpoint is of the log %s, the key of %s", head.Origin, p.log.Name())
	}
	if err != nil {
		return head, err
	}
	return p.proof.Verify(e.JSON(), ed25519.PublicKey(p.log.Key()))
}

// logEntryProof asks a daemon for the proof of an envelope in whatever log it knows it from.
func (c *client) logEntryProof(ctx context.Context, base, hash string) (p attestationProof, err error) {
	v, _, err := c.Get(ctx, fetch.Request{URL: base + "/v1/witness/log-entry?hash=" + url.QueryEscape(hash)})
	if err != nil {
		return p, err
	}
	p.hash = hash
	index, ok := v.Get("index").Int()
	if !ok || index < 0 {
		return p, errors.New("its answer has no index")
	}
	p.proof = tilelog.Proof{Index: uint64(index), Checkpoint: []byte(v.Get("checkpoint").Text())}
	for h := range v.Get("hashes").Elements() {
		raw, err := base64.StdEncoding.DecodeString(h.Text())
		if err != nil {
			return p, err
		}
		p.proof.Hashes = append(p.proof.Hashes, raw)
	}
	p.log, err = cosignature.ParseVerifier(v.Get("vkey").Text())
	return p, err
}

// takeAttestationProofs takes, for each attestation, that it stands in the log of its witness, as far as the daemon that is asked keeps
// that log or has read it.
func (x *exporter) takeAttestationProofs(ctx context.Context) ([]byte, error) {
	lines, err := linesOf(x.parts[proofbundle.Attestations])
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, line := range lines {
		e, err := authentic(line)
		if err != nil {
			return nil, err
		}
		p, err := x.c.logEntryProof(ctx, x.seen, e.Hash)
		if err == nil {
			_, err = p.verify(e)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			x.c.notef("the attestation of %s is not proven to be in a log: %v", e.Actor, err)
			continue
		}
		text, err := p.json()
		if err != nil {
			return nil, err
		}
		out = append(append(out, text...), '\n')
	}
	return out, nil
}

// judgeAttestationLogs: a witness that puts what it signs into a log cannot sign in secret, nor twice for two readers.
func (d *dossier) judgeAttestationLogs() {
	const what = "attestation in the log of its witness"
	if d.leftOut(proofbundle.AttestationProofs, what) {
		return
	}
	lines, err := linesOf(d.parts[proofbundle.AttestationProofs])
	if err != nil {
		d.add(resultFailed, what, proofbundle.AttestationProofs, "%v", err)
		return
	}
	shown := map[string]bool{}
	for i, line := range lines {
		at := fmt.Sprintf("%s, line %d", proofbundle.AttestationProofs, i+1)
		p, err := parseAttestationProof(line)
		if err != nil {
			d.add(resultFailed, what, at, "%v", err)
			continue
		}
		e := d.attested[p.hash]
		if e == nil {
			d.add(resultFailed, what, at, "it is of no attestation in this file: %s", p.hash)
			continue
		}
		c, err := p.verify(e)
		if err != nil {
			d.add(resultFailed, what, at, "%v", err)
			continue
		}
		shown[p.hash] = true
		d.judgeAttestationLog(what, e, p, c)
	}
	for _, e := range d.counted {
		if !shown[e.Hash] {
			d.add(resultLeftOut, what, d.operator(e.Actor), "the exporter found no proof of it")
		}
	}
}

// operator is the group of an agent, or the agent when the policy does not name it.
func (d *dossier) operator(agent adp.AgentID) string {
	if d.rules != nil {
		if group, ok := d.rules.policy.Group(agent); ok {
			return group
		}
	}
	return string(agent)
}

func (d *dossier) judgeAttestationLog(what string, e *adp.Envelope, p attestationProof, c tilelog.Checkpoint) {
	by, group := "", d.operator(e.Actor)
	if d.rules != nil {
		for _, t := range d.rules.settings.Trust {
			if adp.AgentID(t.Agent) == e.Actor && t.Log != "" {
				if t.Log != p.log.String() {
					d.add(resultFailed, what, "the log key of the policy", "the policy names %s for %s, and the proof is by %s", t.Log, group, p.log)
					return
				}
				by = "the log key of the policy"
			}
			v, err := cosignature.ParseVerifier(t.Cosigner)
			if by != "" || err != nil || t.Group == group || d.proven[adp.NewAgentID(v.Key())] {
				continue
			}
			if _, _, err := cosignature.Open(p.proof.Checkpoint, v); err == nil { // a cosigner signs for logs whose key it knows
				by = "cosignature of " + t.Group
			}
		}
	}
	if d.proven[adp.NewAgentID(p.log.Key())] {
		d.add(resultNote, what, group, "does not count: %s is proven to have signed two trees", p.log.Name())
	} else if by != "" {
		d.add(resultOK, what, group+", "+by, "entry %d of %d in %s", p.proof.Index, c.Size, c.Origin)
	} else {
		d.add(resultNote, what, group, "entry %d of %d in %s, if the key is the witness's: neither the policy nor another cosigner says so", p.proof.Index, c.Size, c.Origin)
	}
}
