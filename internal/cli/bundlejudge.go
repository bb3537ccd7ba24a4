package cli

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/policy"
	"github.com/witan-adp/witan/internal/proofbundle"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/witness"
)

// rules are what a person trusts: the policy file of verify.
type rules struct {
	settings *config.Witness
	policy   *policy.Policy
}

func (r *rules) origin(origin string) (o config.PolicyOrigin, ok bool) {
	if r == nil {
		return o, false
	}
	i := slices.IndexFunc(r.settings.Policy.Origins, func(o config.PolicyOrigin) bool { return o.Origin == origin })
	if i < 0 {
		return o, false
	}
	return r.settings.Policy.Origins[i], true
}

// dossier is a proof bundle while it is judged: its parts, its archive as far as that was verified, and what is known so far. It
// asks nobody.
type dossier struct {
	*checklist
	manifest proofbundle.Manifest
	parts    map[string][]byte   // all but the archive
	archive  *inspect.Inspection // nil when it was not reached
	rules    *rules              // nil: nobody is trusted, and no policy is judged

	document  *keys.Document // of the file; nil when it has none that can be read
	statement *adp.Envelope  // signed by whom it says; nil otherwise
	said      *witness.Statement
	signers   []adp.AgentID            // of attestations of just this archive
	counted   []*adp.Envelope          // those attestations
	attested  map[string]*adp.Envelope // all that are authentic, by hash
	confirm   []adp.AgentID            // those that know the signer of the statement as a key of the host
	proven    map[adp.AgentID]bool
}

// leftOut tells, and adds to the list, that the file does not have a part.
func (d *dossier) leftOut(part, what string) bool {
	if _, there := d.parts[part]; there {
		return false
	}
	reason := "the file has none"
	for _, o := range d.manifest.LeftOut {
		if o.Name == part {
			reason = o.Reason
		}
	}
	d.add(resultLeftOut, what, part, "%s", reason)
	return true
}

// judge checks everything that can be said of the parts, in the order in which one stands on the other.
func (d *dossier) judge(f verifyFlags) {
	d.Origin, d.RoomID, d.Genesis = d.manifest.Origin, d.manifest.RoomID, d.manifest.Genesis
	d.proven, d.attested = map[adp.AgentID]bool{}, map[string]*adp.Envelope{}
	if !d.judgeArchive(f) {
		return
	}
	d.readStatement()
	d.readDocument()
	d.readEvidence()
	d.readAttestations()
	d.judgeKey()
	d.judgeStatement()
	d.judgeLog()
	d.judgeAttestationLogs()
	d.judgePolicy()
}

func (d *dossier) judgeArchive(f verifyFlags) bool {
	in := d.archive
	by := "full replay, rules of " + witness.Revision
	if in == nil {
		d.add(resultFailed, "archive", by, "it was not reached")
		return false
	}
	if in.Broken != nil {
		d.add(resultFailed, "archive", by, "seq %d: %v", in.Broken.Seq, in.Broken.Err)
		return false
	}
	n := in.Verifier.Counts
	said := fmt.Sprintf("%s by %s: hashes, signatures, links, and %d allowed, %s, %d unverifiable, %d withheld", count(in.Verifier.State.Last.Seq, "record"),
		count(int64(in.Authors()), "author"), n[room.Allowed], count(n[room.Violation], "violation"), n[room.Unverifiable], n[room.Withheld])
	bad := n[room.Violation] > 0 || n[room.Unverifiable] > 0 && !f.allowUnverifiable || n[room.Withheld] > 0 && !f.allowWithheld
	d.add(map[bool]string{true: resultFailed, false: resultOK}[bad], "archive", by, "%s", said)
	d.Records, d.Topic = in.Verifier.State.Last.Seq, in.Verifier.State.Contract.Topic
	var err error
	if len(in.Problems) > 0 {
		err = errors.New(strings.Join(in.Problems, "; "))
	} else if in.Claim == nil {
		err = errors.New("it has no manifest in its first line")
	}
	d.want(err, "archive's own manifest", "the records", "%s", d.agreed())
	err = nil
	if s := in.Verifier.Digest.Summary(); s.RoomID != d.RoomID || s.Genesis != d.Genesis {
		err = fmt.Errorf("the archive is of room %s, genesis %s", s.RoomID, s.Genesis)
	}
	return d.want(err, "room and genesis", "the first record", "as the file says")
}

// agreed says what of a manifest the records bear out.
func (d *dossier) agreed() string {
	if n := d.archive.Verifier.Counts[room.Withheld]; n > 0 {
		return fmt.Sprintf("count, last hash and root agree; digest and CID cannot be checked: %d withheld", n)
	}
	return "count, last hash, root, digest and CID agree"
}

// authentic reads an envelope and checks its hash and its signature.
func authentic(raw []byte) (*adp.Envelope, error) {
	v, err := adp.Scan(raw)
	if err != nil {
		return nil, err
	}
	e, err := adp.ParseEnvelope(v)
	if err == nil {
		err = e.CheckHash()
	}
	if err == nil {
		err = e.CheckSignature()
	}
	if err == nil && !bytes.Equal(e.JSON(), raw) {
		err = errors.New("it is not in its canonical form")
	}
	return e, err
}

func (d *dossier) subject() witness.Subject {
	return witness.Subject{Origin: d.Origin, RoomID: d.RoomID, Genesis: d.Genesis}
}

func (d *dossier) readStatement() {
	if d.leftOut(proofbundle.Statement, "statement of the host") {
		return
	}
	e, err := authentic(d.parts[proofbundle.Statement])
	var s *witness.Statement
	if err == nil {
		s, err = witness.ParseStatement(e)
	}
	if err == nil && s.Subject != d.subject() {
		err = fmt.Errorf("it is about room %s of %s, genesis %s", s.RoomID, s.Origin, s.Genesis)
	}
	if err == nil {
		d.statement, d.said = e, s
		d.add(resultOK, "statement of the host", "signature of "+string(e.Actor), "made %s", utc(e.CreatedAt))
		return
	}
	d.add(resultFailed, "statement of the host", "its signature", "%v", err)
}

func (d *dossier) readDocument() {
	if d.leftOut(proofbundle.Document, "key document of the host") {
		return
	}
	doc, err := keys.ParseDocument(d.Origin, d.parts[proofbundle.Document])
	if err != nil {
		d.add(resultFailed, "key document of the host", proofbundle.Document, "%v", err)
		return
	}
	d.document = doc
}

// own are the keys that speak for the host, by the policy, or else as far as the file says. Of what is held against the host all are
// believed, of what is held for it only those that judgeKey finds good.
func (d *dossier) own() (own []adp.AgentID) {
	if o, ok := d.rules.origin(d.Origin); ok {
		own = append(own, adp.AgentID(o.Agent))
		if v, err := cosignature.ParseVerifier(o.Log); err == nil {
			own = append(own, adp.NewAgentID(v.Key()))
		}
		return own
	}
	if d.document != nil {
		own = append(own, adp.NewAgentID(d.document.Agent))
		if d.document.Log != nil {
			own = append(own, adp.NewAgentID(d.document.Log))
		}
	}
	if d.statement != nil {
		own = append(own, d.statement.Actor)
	}
	return own
}

// judgeKey: whose key is it that made the statement? What the file says by itself anybody can have written; so either the policy
// names the key, or as many witnesses as the policy asks for saw it bound to the host.
func (d *dossier) judgeKey() {
	if d.statement == nil {
		return
	}
	const what = "key of the host"
	actor := d.statement.Actor
	if o, ok := d.rules.origin(d.Origin); ok {
		var err error
		if adp.AgentID(o.Agent) != actor {
			err = fmt.Errorf("the statement is by %s, the policy names %s", actor, o.Agent)
		}
		d.want(err, what, "the policy", "named there")
		return
	}
	if d.document != nil && adp.NewAgentID(d.document.Agent) != actor {
		d.add(resultFailed, what, proofbundle.Document, "it does not name %s, which made the statement", actor)
		return
	}
	if d.rules == nil {
		if d.document != nil {
			d.add(resultNote, what, proofbundle.Document, "as the exporter saw it; a file cannot vouch for itself")
		}
		return
	}
	if o := d.rules.policy.Evaluate(d.confirm, d.own(), false); o.State == policy.Attested {
		d.add(resultOK, what, "witnesses", "%s saw it bound to the host", strings.Join(o.Counted, ", "))
		return
	}
	d.add(resultFailed, what, "witnesses", "fewer than the policy asks for saw %s bound to the host; if you know its key, name it in [[witness.policy.origin]]", actor)
}

func (d *dossier) judgeStatement() {
	if d.said == nil {
		return
	}
	s, a := d.said, d.archive.Verifier.Digest.Summary()
	var wrong []string
	for _, m := range []struct {
		name string
		ok   bool
	}{
		{"event_count", s.EventCount == a.Count}, {"last_seq", s.LastSeq == a.Count}, {"last_hash", s.LastHash == a.LastHash}, {"archive_root", s.ArchiveRoot == adp.Encode(a.Root[:])},
		{"events_sha3_256", a.Withheld > 0 || s.EventsDigest == adp.Encode(a.Events[:])}, {"events_cid", a.Withheld > 0 || s.EventsCID == a.EventsCID()},
	} {
		if !m.ok {
			wrong = append(wrong, m.name)
		}
	}
	var err error
	if wrong != nil {
		err = fmt.Errorf("they differ in %s", strings.Join(wrong, ", "))
	}
	if d.want(err, "statement against archive", "the records", "%s", d.agreed()) && s.BundleCID != d.archive.BundleCID {
		d.add(resultNote, "bytes of archive.jsonl", "bundle_cid", "not those that the host signed: the records are, the first line is of whoever made the file")
	}
}

func (d *dossier) judgeLog() {
	if d.statement == nil {
		return
	}
	const what = "statement in the log of the host"
	if d.leftOut(proofbundle.LogProof, what) {
		return
	}
	p, err := tilelog.ParseProof(d.parts[proofbundle.LogProof])
	if err != nil {
		d.add(resultFailed, what, proofbundle.LogProof, "%v", err)
		return
	}
	key, by, vouched := ed25519.PublicKey(nil), "", false
	if o, ok := d.rules.origin(d.Origin); ok && o.Log != "" {
		v, err := cosignature.ParseVerifier(o.Log)
		if err != nil {
			d.add(resultFailed, what, "the policy", "%v", err)
			return
		}
		key, by, vouched = v.Key(), "the log key of the policy", true
	} else if d.document != nil && d.document.Log != nil {
		key, by = d.document.Log, "the log key of "+proofbundle.Document
	} else {
		d.add(resultNote, what, "", "no log key of the host is known, so that nothing rests on it; name it in [[witness.policy.origin]]")
		return
	}
	c, err := p.Verify(d.statement.JSON(), key)
	if err == nil && !witness.IsLogOrigin(d.Origin, c.Origin) {
		err = fmt.Errorf("the checkpoint is of the log %s", c.Origin)
	}
	if err != nil {
		d.add(resultFailed, what, by, "%v", err)
		return
	}
	cosigned := d.cosignatures(p.Checkpoint)
	for _, line := range cosigned { // a cosigner signs for logs whose key it knows
		vouched = vouched || line.Result == resultOK
	}
	if vouched {
		d.add(resultOK, what, by, "entry %d of %d in %s", p.Index, c.Size, c.Origin)
	} else {
		d.add(resultNote, what, by, "entry %d of %d in %s, if the key is the host's: neither the policy nor a cosigner says so", p.Index, c.Size, c.Origin)
	}
	d.Checks = append(d.Checks, cosigned...)
}

// cosignatures looks for the cosigners of the policy on a checkpoint.
func (d *dossier) cosignatures(signed []byte) []check {
	if d.rules == nil {
		return nil
	}
	var l checklist
	for _, t := range d.rules.settings.Trust {
		if t.Cosigner == "" {
			continue
		}
		v, err := cosignature.ParseVerifier(t.Cosigner)
		var sigs []note.Signature
		if err == nil {
			_, sigs, err = cosignature.Open(signed, v)
		}
		at := int64(0)
		if err == nil {
			at, err = cosignature.Time(sigs[0])
		}
		switch {
		case err == nil && d.proven[adp.NewAgentID(v.Key())]:
			l.add(resultNote, "cosignature", t.Group, "does not count: %s is proven to have signed two trees", v.Name())
		case err == nil:
			l.add(resultOK, "cosignature", t.Group, "%s saw the log so at %s", v.Name(), utc(1000*at))
		case errors.Is(err, cosignature.ErrSignature) && !bytes.Contains(signed, []byte("\n— "+v.Name()+" ")):
			l.add(resultLeftOut, "cosignature", t.Group, "%s has not signed the checkpoint in this file", v.Name())
		default:
			l.add(resultFailed, "cosignature", t.Group, "%v", err)
		}
	}
	return l.Checks
}

func (d *dossier) judgePolicy() {
	if d.rules == nil {
		return
	}
	o := d.rules.policy.Evaluate(d.signers, d.own(), d.State == policy.Equivocated)
	d.State = o.State
	var err error
	if o.State != policy.Attested {
		err = fmt.Errorf("%s: %d of %d are met, %d are asked for (counted: %s)", o.State, o.Met, o.Of, o.Threshold, strings.Join(append(o.Counted, "nobody")[:max(1, len(o.Counted))], ", "))
	}
	d.want(err, "policy", "the policy", "%d of %d are met, %d are asked for: %s", o.Met, o.Of, o.Threshold, strings.Join(o.Counted, ", "))
	has := func(what string) bool {
		return slices.ContainsFunc(d.Checks, func(c check) bool { return c.Check == what && c.Result == resultOK })
	}
	for _, r := range d.rules.settings.Policy.Require {
		what := map[string]string{config.RequireStatement: "statement against archive", config.RequireLog: "statement in the log of the host", config.RequireCosignature: "cosignature"}[r]
		if !has(what) {
			d.add(resultFailed, "policy", "require", "it asks for the %s, which this file does not show", r)
		}
	}
}
