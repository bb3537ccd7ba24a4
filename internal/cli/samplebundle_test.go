package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/proofbundle"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/witness"
)

const bundleOrigin = "https://host.example"

// The keys of the sample: of the host, of its log, of three witnesses, of a cosigner, and of nobody.
var (
	hostKey, logKey, cosignerKey, strangerKey = inspecttest.Key(40), inspecttest.Key(41), inspecttest.Key(50), inspecttest.Key(60)
	w1, w2, w3                                = inspecttest.Key(42), inspecttest.Key(43), inspecttest.Key(44)
)

func idOf(k ed25519.PrivateKey) adp.AgentID { return adp.NewAgentID(k.Public().(ed25519.PublicKey)) }

// sampleBundle is what a file is made of; a test changes what it wants to.
type sampleBundle struct {
	manifest     proofbundle.Manifest
	archive      []byte
	document     string
	statement    []byte
	log          tilelog.Proof
	attestations [][]byte
	logged       []attestationProof // those of attestations that are not there any more are left out,
	loggedAsIs   bool               // but for this
	evidence     [][]byte
	leave        map[string]string // part → why it is left out

	sum adp.Summary
}

func signedBy(k ed25519.PrivateKey, typ string, payload any) *adp.Envelope {
	e, err := adp.Sign(k, adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, CreatedAt: inspecttest.End, Nonce: 1, Payload: payload})
	if err != nil {
		panic(err)
	}
	return e
}

func summaryOf(archive []byte) (s adp.Summary, bundleCID string) {
	lines := bytes.Split(bytes.TrimSuffix(archive, []byte("\n")), []byte("\n"))
	b := adp.NewBundle(lines[0])
	var d adp.Digest
	for _, line := range lines[1:] {
		b.Add(line)
		v, err := adp.ScanDepth(line, adp.RecordDepth)
		if err != nil {
			panic(err)
		}
		r, err := adp.ParseRecord(v)
		if err != nil {
			panic(err)
		}
		d.Add(r)
	}
	return d.Summary(), b.CID()
}

func (s *sampleBundle) subject() witness.Subject {
	return witness.Subject{Origin: bundleOrigin, RoomID: s.sum.RoomID, Genesis: s.sum.Genesis}
}

func (s *sampleBundle) said() witness.Statement {
	sum, cid := summaryOf(s.archive)
	return witness.Statement{Subject: s.subject(), Revision: witness.Revision, EventCount: sum.Count, LastSeq: sum.Count, LastHash: sum.LastHash, ArchiveRoot: adp.Encode(sum.Root[:]),
		EventsDigest: adp.Encode(sum.Events[:]), EventsCID: sum.EventsCID(), BundleCID: cid, BundleBytes: int64(len(s.archive)), GeneratedAt: inspecttest.End}
}

func (s *sampleBundle) attest(edit func(a *witness.Attestation)) witness.Attestation {
	st := s.said()
	a := witness.Attestation{Subject: st.Subject, Complete: true, LastSeq: st.LastSeq, LastHash: st.LastHash, ArchiveRoot: st.ArchiveRoot, EventsCID: st.EventsCID,
		Source: bundleOrigin, OriginKeys: []adp.AgentID{idOf(hostKey)}, Rules: witness.Rules{Revision: witness.Revision, Version: witness.RulesVersion}, VerifiedAt: inspecttest.End + 60_000}
	if edit != nil {
		edit(&a)
	}
	return a
}

func bundleDocument(agent, log ed25519.PrivateKey) string {
	method := func(name string, k ed25519.PrivateKey) string {
		return fmt.Sprintf(`{"id":"did:web:host.example#%s","type":"Multikey","controller":"did:web:host.example","publicKeyMultibase":%q}`, name, keys.Multikey(k.Public().(ed25519.PublicKey)))
	}
	return `{"id":"did:web:host.example","verificationMethod":[` + method("agent", agent) + "," + method("log", log) + `]}`
}

// logOf puts a statement into a log of three entries.
func logOf(entry []byte, line string, key ed25519.PrivateKey) tilelog.Proof {
	leaves := [][32]byte{adp.LeafHash([]byte("one")), adp.LeafHash(entry), adp.LeafHash([]byte("three"))}
	read := func(level uint, index uint64) ([32]byte, error) {
		var row []byte
		for _, l := range leaves[index<<level : (index+1)<<level] {
			row = append(row, l[:]...)
		}
		return adp.SubtreeRoot(row)
	}
	root, err := adp.ReadRoot(read, 3)
	if err != nil {
		panic(err)
	}
	hashes, err := adp.ProveInclusion(read, 1, 3)
	if err != nil {
		panic(err)
	}
	signed, err := tilelog.Checkpoint{Origin: line, Size: 3, Root: root}.Sign(key)
	if err != nil {
		panic(err)
	}
	return tilelog.Proof{Index: 1, Hashes: hashes, Checkpoint: signed}
}

func newSample() *sampleBundle {
	s := &sampleBundle{archive: inspecttest.Archives()["good"], document: bundleDocument(hostKey, logKey), leave: map[string]string{}}
	s.sum, _ = summaryOf(s.archive)
	s.manifest = proofbundle.Manifest{Origin: bundleOrigin, RoomID: s.sum.RoomID, Genesis: s.sum.Genesis, Source: inspecttest.URL, ExportedAt: inspecttest.End}
	st := signedBy(hostKey, witness.TypeAnnounce, s.said())
	s.statement = st.JSON()
	s.log = logOf(s.statement, "host.example/witan", logKey)
	line, err := cosignature.Cosign("witness.example/w", cosignerKey, cosignature.Text(s.log.Checkpoint), inspecttest.End/1000)
	if err != nil {
		panic(err)
	}
	s.log.Checkpoint = append(s.log.Checkpoint, line...)
	for _, k := range []ed25519.PrivateKey{w1, w2, strangerKey} {
		s.attestations = append(s.attestations, signedBy(k, witness.TypeAttest, s.attest(func(a *witness.Attestation) { a.Statement = &st.Hash })).JSON())
	}
	s.logged = []attestationProof{s.loggedBy(0, "w1.example/witan", inspecttest.Key(45), ""), s.loggedBy(1, "w2.example/witan", inspecttest.Key(46), "witness.example/w")}
	return s
}

// loggedBy proves an attestation in a log, cosigned or not.
func (s *sampleBundle) loggedBy(attestation int, line string, k ed25519.PrivateKey, cosigner string) attestationProof {
	e, err := authentic(s.attestations[attestation])
	if err != nil {
		panic(err)
	}
	v, err := cosignature.NewVerifier(line, cosignature.Log, k.Public().(ed25519.PublicKey))
	if err != nil {
		panic(err)
	}
	p := attestationProof{e.Hash, logOf(e.JSON(), line, k), v}
	if cosigner != "" {
		line, err := cosignature.Cosign(cosigner, cosignerKey, cosignature.Text(p.proof.Checkpoint), inspecttest.End/1000)
		if err != nil {
			panic(err)
		}
		p.proof.Checkpoint = append(p.proof.Checkpoint, line...)
	}
	return p
}

func (s *sampleBundle) loggedLines() (b []byte) {
	for _, p := range s.logged {
		if !s.loggedAsIs && !slices.ContainsFunc(s.attestations, func(raw []byte) bool { e, err := authentic(raw); return err == nil && e.Hash == p.hash }) {
			continue
		}
		line, err := p.json()
		if err != nil {
			panic(err)
		}
		b = append(append(b, line...), '\n')
	}
	return b
}

func jsonLines(list [][]byte) []byte {
	var b []byte
	for _, l := range list {
		b = append(append(b, l...), '\n')
	}
	return b
}

// file makes the file.
func (s *sampleBundle) file() []byte {
	parts := map[string][]byte{proofbundle.Document: []byte(s.document), proofbundle.Statement: s.statement, proofbundle.LogProof: s.log.Text(),
		proofbundle.Attestations: jsonLines(s.attestations), proofbundle.AttestationProofs: s.loggedLines(), proofbundle.Evidence: jsonLines(s.evidence), proofbundle.Archive: s.archive}
	m := s.manifest
	for _, name := range proofbundle.Names() {
		if why, out := s.leave[name]; out {
			m.LeftOut = append(m.LeftOut, proofbundle.Omission{Name: name, Reason: why})
			continue
		}
		m.Parts = append(m.Parts, proofbundle.Part{Name: name, Size: int64(len(parts[name])), SHA256: sha256.Sum256(parts[name])})
	}
	var b bytes.Buffer
	if err := proofbundle.Write(&b, m, func(name string) (io.Reader, error) { return bytes.NewReader(parts[name]), nil }); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// policyText asks for two of three operators.
func policyText(more string) string {
	text := "[witness.policy]\nthreshold = 2\n" + more
	for i, k := range []ed25519.PrivateKey{w1, w2, w3} {
		text += fmt.Sprintf("[[witness.trust]]\nagent = %q\ngroup = \"g%d\"\n", idOf(k), i+1)
		if i == 0 {
			v, err := cosignature.NewVerifier("witness.example/w", cosignature.Witness, cosignerKey.Public().(ed25519.PublicKey))
			if err != nil {
				panic(err)
			}
			text += fmt.Sprintf("cosigner = %q\n", v)
		}
	}
	return text
}

func pinned(agent, log ed25519.PrivateKey) string {
	vkey, err := tilelog.VerifierKey("host.example/witan", log.Public().(ed25519.PublicKey))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("[[witness.policy.origin]]\norigin = %q\nagent = %q\nlog = %q\n", bundleOrigin, idOf(agent), vkey)
}

// verified runs verify on a file.
func verified(t *testing.T, file []byte, policy string, args ...string) (*checklist, string, int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string][]byte{"x.witan": file, "policy.toml": []byte(policy)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errw bytes.Buffer
	args = append([]string{"verify", filepath.Join(dir, "x.witan"), "--policy", filepath.Join(dir, "policy.toml")}, args...)
	status := run(context.Background(), append(args, "--json"), strings.NewReader(""), &out, &errw)
	var l checklist
	if err := json.Unmarshal(out.Bytes(), &l); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), errw.String())
	}
	var text bytes.Buffer
	l.Source = "x.witan"
	if err := l.show(&text); err != nil {
		t.Fatal(err)
	}
	if (status == 0) != (l.Verdict == "holds") {
		t.Errorf("%s, status %d", l.Verdict, status)
	}
	return &l, text.String(), status
}
