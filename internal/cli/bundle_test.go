package cli

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
	"github.com/witan-adp/witan/internal/proofbundle"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/witness"
)

// The bytes of the file and the list are as they were: whoever reads the format by its documentation can rely on it.
func TestBundleGolden(t *testing.T) {
	file := newSample().file()
	_, text, _ := verified(t, file, policyText("require = [\"statement\", \"log\", \"cosignature\"]\n"))
	for name, got := range map[string][]byte{"good.witan": file, "good.txt": []byte(text), "policy.toml": []byte(policyText(""))} {
		path := filepath.Join("testdata", "bundle", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has changed (%v):\n%s", name, err, text)
		}
	}
}

// Each part, altered by somebody who makes the container fit again.
func TestBundleTampered(t *testing.T) {
	resign := func(s *sampleBundle, k ed25519.PrivateKey, edit func(*witness.Statement)) {
		st := s.said()
		edit(&st)
		s.statement = signedBy(k, witness.TypeAnnounce, st).JSON()
		s.log = logOf(s.statement, "host.example/witan", logKey)
	}
	attested := func(s *sampleBundle, k ed25519.PrivateKey, edit func(*witness.Attestation)) []byte {
		return signedBy(k, witness.TypeAttest, s.attest(edit)).JSON()
	}
	other := func(a *witness.Attestation) { a.LastHash, a.ArchiveRoot = a.ArchiveRoot, a.LastHash }
	proof := func(a, b *adp.Envelope) []byte {
		kind, ok := witness.Contradiction(a, b)
		if !ok {
			panic("no contradiction")
		}
		if b.Hash < a.Hash {
			a, b = b, a
		}
		v, err := adp.EncodeValue(map[string]any{"class": "proof", "kind": kind, "origin": bundleOrigin, "room_id": inspecttest.RoomID, "genesis": newSample().sum.Genesis, "agent": a.Actor,
			"sides": []json.RawMessage{a.JSON(), b.JSON()}})
		if err != nil {
			panic(err)
		}
		return v.Raw()
	}
	twoStories := func(s *sampleBundle, k ed25519.PrivateKey) []byte {
		st := s.said()
		st.LastHash = adp.Encode(make([]byte, 32))
		return proof(signedBy(k, witness.TypeAnnounce, s.said()), signedBy(k, witness.TypeAnnounce, st))
	}
	twoAttested := func(s *sampleBundle, k ed25519.PrivateKey) []byte {
		return proof(signedBy(k, witness.TypeAttest, s.attest(nil)), signedBy(k, witness.TypeAttest, s.attest(other)))
	}
	// two trees of one size under one name
	twoTrees := func(kind string, k ed25519.PrivateKey) []byte {
		var notes []string
		for i := range 2 {
			c := tilelog.Checkpoint{Origin: "host.example/witan", Size: 9, Root: [32]byte{byte(i)}}
			var note []byte
			if kind == witness.KindCosignatures {
				line, err := cosignature.Cosign("witness.example/w", k, c.Text(), inspecttest.End)
				if err != nil {
					panic(err)
				}
				note = cosignature.Append(c.Text(), line)
			} else {
				var err error
				if note, err = c.Sign(k); err != nil {
					panic(err)
				}
			}
			notes = append(notes, string(note))
		}
		slices.Sort(notes)
		v, err := adp.EncodeValue(map[string]any{"class": "proof", "kind": kind, "origin": bundleOrigin, "room_id": "", "genesis": "", "agent": idOf(k),
			"sides": []any{map[string]string{"checkpoint": notes[0]}, map[string]string{"checkpoint": notes[1]}}})
		if err != nil {
			panic(err)
		}
		return v.Raw()
	}
	_, shorter := (&inspecttest.Builder{Records: recordsOf(inspecttest.Archives()["good"])[:8]}).Seal(nil, nil)

	for name, c := range map[string]struct {
		edit   func(s *sampleBundle)
		policy string
		want   []string // "<result> <check>: <part of the detail>"; every FAILED line must be among them
		state  string
	}{
		"as it is":            {nil, "", []string{"ok policy: 2 of 3", "ok key of the host: g1, g2 saw it bound", "ok statement in the log: entry 1 of 3", "ok cosignature: witness.example/w", "note attestation: does not count"}, "attested"},
		"pinned":              {nil, pinned(hostKey, logKey), []string{"ok key of the host: ", "ok statement in the log"}, "attested"},
		"pinned, another key": {nil, pinned(strangerKey, logKey), []string{"FAILED key of the host: the policy names"}, "attested"},
		"pinned, another log": {nil, pinned(hostKey, strangerKey), []string{"FAILED statement in the log"}, "attested"},

		"a record that was changed": {func(s *sampleBundle) { s.archive = inspecttest.Archives()["tampered"] }, "", []string{"FAILED archive: seq 7"}, ""},
		"records out of order":      {func(s *sampleBundle) { s.archive = inspecttest.Archives()["reordered"] }, "", []string{"FAILED archive: seq 6"}, ""},
		"the last records cut":      {func(s *sampleBundle) { s.archive = shorter }, "", []string{"FAILED statement against archive: event_count, last_seq, last_hash, archive_root", "FAILED attestation: it saw another archive", "FAILED policy: unattested", "FAILED key of the host"}, "unattested"},
		"cut, its manifest not":     {func(s *sampleBundle) { s.archive = inspecttest.Archives()["cut"] }, "", []string{"FAILED archive's own manifest", "FAILED statement against", "FAILED attestation", "FAILED policy", "FAILED key of the host"}, "unattested"},
		"no manifest in it":         {func(s *sampleBundle) { s.archive = inspecttest.Archives()["records"] }, "", []string{"FAILED archive's own manifest: no manifest"}, "attested"},
		"another first line": {func(s *sampleBundle) {
			s.archive = bytes.Replace(s.archive, []byte(`"host":"host`), []byte(`"host":"most`), 1)
		}, "", []string{"note bytes of archive.jsonl"}, "attested"},
		"violations":   {func(s *sampleBundle) { s.archive = inspecttest.Archives()["violations"] }, "", []string{"FAILED archive: 25 violations", "FAILED attestation", "FAILED key", "FAILED statement against", "FAILED policy"}, "unattested"},
		"withheld":     {func(s *sampleBundle) { s.archive = inspecttest.Archives()["withheld"] }, "", []string{"FAILED archive: 1 withheld", "ok archive's own manifest: count, last hash and root agree; digest and CID cannot be checked: 1 withheld", "ok statement against archive: count, last hash and root agree; digest and CID cannot be checked", "ok policy"}, "attested"},
		"another room": {func(s *sampleBundle) { s.manifest.RoomID = "other" }, "", []string{"FAILED room and genesis"}, ""},
		"another host": {func(s *sampleBundle) { s.manifest.Origin = "https://evil.example" }, "", []string{"FAILED statement of the host: it is about room", "FAILED key document", "FAILED attestation: it is about room", "FAILED policy"}, "unattested"},

		"a statement with a bad signature": {func(s *sampleBundle) {
			s.statement = bytes.Replace(s.statement, []byte(`"last_seq":13`), []byte(`"last_seq":14`), 1)
		}, "", []string{"FAILED statement of the host"}, "attested"},
		"a statement of another archive": {func(s *sampleBundle) {
			resign(s, hostKey, func(st *witness.Statement) { st.ArchiveRoot = st.LastHash })
		}, "", []string{"FAILED statement against archive: archive_root"}, "attested"},
		"a statement of another genesis":  {func(s *sampleBundle) { resign(s, hostKey, func(st *witness.Statement) { st.Genesis = st.LastHash }) }, "", []string{"FAILED statement of the host: it is about room"}, "attested"},
		"an attestation as the statement": {func(s *sampleBundle) { s.statement = s.attestations[0] }, "", []string{"FAILED statement of the host"}, "attested"},
		"a statement in other spelling":   {func(s *sampleBundle) { s.statement = append([]byte(" "), s.statement...) }, "", []string{"FAILED statement of the host: canonical"}, "attested"},
		"no statement":                    {func(s *sampleBundle) { s.leave[proofbundle.Statement] = "gone" }, "require = [\"statement\"]\n", []string{"left out statement of the host: gone", "FAILED policy: statement"}, "attested"},
		"no statement, none asked for":    {func(s *sampleBundle) { s.leave[proofbundle.Statement], s.leave[proofbundle.LogProof] = "gone", "gone" }, "", []string{"left out statement of the host: gone"}, "attested"},

		"a stranger's statement": {func(s *sampleBundle) { resign(s, strangerKey, func(*witness.Statement) {}) }, "", []string{"FAILED key of the host: does not name"}, "attested"},
		"a stranger's statement and document": {func(s *sampleBundle) {
			resign(s, strangerKey, func(*witness.Statement) {})
			s.document = bundleDocument(strangerKey, logKey)
		}, "", []string{"FAILED key of the host: fewer than the policy asks for"}, "attested"},
		"a stranger's statement of a plain host": {func(s *sampleBundle) {
			s.attestations = [][]byte{attested(s, w1, func(a *witness.Attestation) { a.OriginKeys = []adp.AgentID{} }), attested(s, w2, func(a *witness.Attestation) { a.OriginKeys = []adp.AgentID{} })}
			resign(s, strangerKey, func(*witness.Statement) {})
			s.document = bundleDocument(strangerKey, strangerKey)
		}, "", []string{"FAILED key of the host: fewer than the policy asks for", "FAILED statement in the log"}, "attested"},
		"a document of another host": {func(s *sampleBundle) { s.document = strings.ReplaceAll(s.document, "host.example", "evil.example") }, "", []string{"FAILED key document of the host", "note statement in the log of the host: no log key"}, "attested"},
		"a document with another log key": {func(s *sampleBundle) {
			s.document, s.log = bundleDocument(hostKey, strangerKey), logOf(s.statement, "host.example/witan", strangerKey)
		}, "require = [\"log\"]\n", []string{"note statement in the log of the host: neither the policy nor a cosigner", "left out cosignature", "FAILED policy: log"}, "attested"},
		"no document": {func(s *sampleBundle) { s.leave[proofbundle.Document] = "gone" }, "", []string{"left out key document", "ok key of the host", "note statement in the log of the host: no log key"}, "attested"},

		"a proof of another entry":    {func(s *sampleBundle) { s.log = logOf([]byte("x"), "host.example/witan", logKey) }, "", []string{"FAILED statement in the log: not proven"}, "attested"},
		"a proof at another index":    {func(s *sampleBundle) { s.log.Index = 0 }, "", []string{"FAILED statement in the log: not proven"}, "attested"},
		"a proof with a flipped bit":  {func(s *sampleBundle) { s.log.Hashes = slices.Clone(s.log.Hashes); s.log.Hashes[0][3] ^= 1 }, "", []string{"FAILED statement in the log: not proven"}, "attested"},
		"a checkpoint of another log": {func(s *sampleBundle) { s.log = logOf(s.statement, "host.example/other", logKey) }, "", []string{"FAILED statement in the log: of the log host.example/other"}, "attested"},
		"a checkpoint of another key": {func(s *sampleBundle) { s.log = logOf(s.statement, "host.example/witan", strangerKey) }, "", []string{"FAILED statement in the log"}, "attested"},
		"a checkpoint of another size": {func(s *sampleBundle) {
			s.log.Checkpoint = bytes.Replace(s.log.Checkpoint, []byte("\n3\n"), []byte("\n4\n"), 1)
		}, "", []string{"FAILED statement in the log"}, "attested"},
		"no log":                        {func(s *sampleBundle) { s.leave[proofbundle.LogProof] = "gone" }, "require = [\"log\"]\n", []string{"left out statement in the log", "FAILED policy: log"}, "attested"},
		"no cosignature, asked for one": {func(s *sampleBundle) { s.log = logOf(s.statement, "host.example/witan", logKey) }, "require = [\"cosignature\"]\n", []string{"left out cosignature", "note statement in the log", "FAILED policy: cosignature"}, "attested"},
		"a forged cosignature": {func(s *sampleBundle) {
			s.log = logOf(s.statement, "host.example/witan", logKey)
			line, err := cosignature.Cosign("witness.example/w", cosignerKey, "other\n1\n"+adp.Encode(make([]byte, 32))+"=\n", 5)
			if err != nil {
				panic(err)
			}
			s.log.Checkpoint = append(s.log.Checkpoint, line...)
		}, "", []string{"FAILED cosignature", "note statement in the log"}, "attested"},

		"an attestation with a bad signature": {func(s *sampleBundle) {
			s.attestations[0] = bytes.Replace(s.attestations[0], []byte(`"last_seq":13`), []byte(`"last_seq":14`), 1)
		}, "", []string{"FAILED attestation", "FAILED policy: partial", "FAILED key of the host"}, "partial"},
		"a witness who saw another archive":  {func(s *sampleBundle) { s.attestations = append(s.attestations, attested(s, w3, other)) }, "", []string{"FAILED attestation: it saw another archive"}, "attested"},
		"a stranger who saw another archive": {func(s *sampleBundle) { s.attestations[2] = attested(s, strangerKey, other) }, "", []string{"note attestation: of another archive"}, "attested"},
		"one witness twice":                  {func(s *sampleBundle) { s.attestations[1] = attested(s, w1, nil) }, "", []string{"FAILED policy: partial: 1 of 3", "FAILED key of the host"}, "partial"},
		"a witness of half of it": {func(s *sampleBundle) {
			s.attestations[1] = attested(s, w2, func(a *witness.Attestation) { a.Complete, a.LastSeq = false, 5 })
		}, "", []string{"note attestation: of the first 5 records", "FAILED policy: partial", "FAILED key of the host"}, "partial"},
		"the host as a witness":            {func(s *sampleBundle) { s.attestations[1] = attested(s, hostKey, nil) }, "", []string{"note attestation: of the host itself", "FAILED policy: partial", "FAILED key of the host"}, "partial"},
		"the host's operator as a witness": {nil, pinned(w2, logKey), []string{"FAILED key of the host", "FAILED policy: partial", "note attestation: of the host itself"}, "partial"},
		"attestations of another room": {func(s *sampleBundle) {
			s.attestations[0] = attested(s, w1, func(a *witness.Attestation) { a.RoomID = "other" })
		}, "", []string{"FAILED attestation: it is about room other", "FAILED policy", "FAILED key of the host"}, "partial"},
		"no attestations":                {func(s *sampleBundle) { s.attestations, s.logged = nil, nil }, "", []string{"left out attestation", "FAILED policy: unattested", "FAILED key of the host"}, "unattested"},
		"attestations left out":          {func(s *sampleBundle) { s.leave[proofbundle.Attestations], s.logged = "gone", nil }, "", []string{"left out attestation: gone", "FAILED policy: unattested", "FAILED key of the host"}, "unattested"},
		"an attestation that is no JSON": {func(s *sampleBundle) { s.attestations[2] = []byte("{") }, "", []string{"FAILED attestation"}, "attested"},

		"no document, and a log asked for": {func(s *sampleBundle) { s.leave[proofbundle.Document] = "gone" }, "require = [\"log\"]\n", []string{"left out key document", "note statement in the log of the host: no log key", "FAILED policy: log"}, "attested"},
		"attestations in logs":             {nil, "", []string{"note attestation in the log of its witness: entry 1 of 3 in w1.example/witan, if the key is the witness's", "ok attestation in the log of its witness: entry 1 of 3 in w2.example/witan"}, "attested"},
		"an attestation in another log than the policy names": {func(s *sampleBundle) {
			s.logged = []attestationProof{s.loggedBy(2, "x.example/witan", strangerKey, ""), s.loggedBy(1, "w2.example/witan", inspecttest.Key(46), "")}
		}, "", []string{"note attestation in the log of its witness: entry 1 of 3 in x.example", "note attestation in the log of its witness: entry 1 of 3 in w2.example", "left out attestation in the log of its witness: the exporter found no proof"}, "attested"},
		"a proof of another attestation": {func(s *sampleBundle) { s.logged[0].hash = s.logged[1].hash }, "", []string{"FAILED attestation in the log of its witness: not proven"}, "attested"},
		"a proof of no attestation":      {func(s *sampleBundle) { s.logged[0].hash, s.loggedAsIs = s.sum.Genesis, true }, "", []string{"FAILED attestation in the log of its witness: of no attestation"}, "attested"},
		"an attestation's log, bit flipped": {func(s *sampleBundle) {
			s.logged[1].proof.Hashes = slices.Clone(s.logged[1].proof.Hashes)
			s.logged[1].proof.Hashes[1][31] ^= 128
		}, "", []string{"FAILED attestation in the log of its witness: not proven"}, "attested"},
		"an attestation's log, another key": {func(s *sampleBundle) { s.logged[1].log = s.logged[0].log }, "", []string{"FAILED attestation in the log of its witness: the checkpoint is of the log w2.example"}, "attested"},
		"an attestation's log, other bytes": {func(s *sampleBundle) {
			s.logged[1].proof.Checkpoint = bytes.Replace(s.logged[1].proof.Checkpoint, []byte("\n3\n"), []byte("\n4\n"), 1)
		}, "", []string{"FAILED attestation in the log of its witness"}, "attested"},
		"attestations without logs": {func(s *sampleBundle) { s.leave[proofbundle.AttestationProofs] = "gone" }, "", []string{"left out attestation in the log of its witness: gone"}, "attested"},

		"a host with two stories":        {func(s *sampleBundle) { s.evidence = [][]byte{twoStories(s, hostKey)} }, "", []string{"FAILED evidence: a key of the host signed two", "FAILED policy: equivocated"}, "equivocated"},
		"a pinned host with two stories": {func(s *sampleBundle) { s.evidence = [][]byte{twoStories(s, hostKey)} }, pinned(hostKey, logKey), []string{"FAILED evidence: a key of the host signed two", "FAILED policy: equivocated"}, "equivocated"},
		"a stranger with two stories":    {func(s *sampleBundle) { s.evidence = [][]byte{twoStories(s, strangerKey)} }, "", []string{"note evidence: statement-contradiction"}, "attested"},
		"a witness with two stories":     {func(s *sampleBundle) { s.evidence = [][]byte{twoAttested(s, w1)} }, "", []string{"note evidence: attestation-contradiction", "note attestation: proven to have attested two", "FAILED policy: partial", "FAILED key of the host"}, "partial"},
		"a host with two logs":           {func(s *sampleBundle) { s.evidence = [][]byte{twoTrees(witness.KindCheckpoints, logKey)} }, "", []string{"FAILED evidence: a key of the host signed two", "FAILED policy: equivocated"}, "equivocated"},
		"a stranger with two logs":       {func(s *sampleBundle) { s.evidence = [][]byte{twoTrees(witness.KindCheckpoints, strangerKey)} }, "", []string{"note evidence: checkpoint-contradiction"}, "attested"},
		"a cosigner of two trees":        {func(s *sampleBundle) { s.evidence = [][]byte{twoTrees(witness.KindCosignatures, cosignerKey)} }, "require = [\"cosignature\"]\n", []string{"note evidence: cosignature-contradiction", "note cosignature: does not count", "note statement in the log", "FAILED policy: cosignature"}, "attested"},
		"a forged proof": {func(s *sampleBundle) {
			s.evidence = [][]byte{bytes.Replace(twoStories(s, hostKey), []byte(`"last_seq":13`), []byte(`"last_seq":14`), 1)}
		}, "", []string{"FAILED evidence"}, "attested"},
		"a proof of another room": {func(s *sampleBundle) {
			s.evidence = [][]byte{bytes.ReplaceAll(twoStories(s, hostKey), []byte(inspecttest.RoomID), []byte("other"))}
		}, "", []string{"FAILED evidence"}, "attested"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample()
			if c.edit != nil {
				c.edit(s)
			}
			l, text, _ := verified(t, s.file(), policyText(c.policy))
			if l.State != c.state {
				t.Errorf("state %q", l.State)
			}
			matched := map[string]bool{}
			for _, line := range l.Checks {
				found := ""
				for _, w := range c.want {
					what, detail, _ := strings.Cut(w, ": ")
					if strings.HasPrefix(line.Result+" "+line.Check, what) && strings.Contains(line.Detail, detail) {
						found, matched[w] = w, true
					}
				}
				if line.Result == resultFailed && found == "" {
					t.Errorf("unexpected: %+v", line)
				}
			}
			for _, w := range c.want {
				if !matched[w] {
					t.Errorf("no line %q", w)
				}
			}
			if t.Failed() {
				t.Log("\n" + text)
			}
		})
	}
}

func recordsOf(archive []byte) (out []*adp.Record) {
	for _, line := range bytes.Split(bytes.TrimSuffix(archive, []byte("\n")), []byte("\n"))[1:] {
		v, err := adp.ScanDepth(line, adp.RecordDepth)
		if err != nil {
			panic(err)
		}
		r, err := adp.ParseRecord(v)
		if err != nil {
			panic(err)
		}
		out = append(out, r)
	}
	return out
}

// Damage to the file as it is, without making the container fit.
func TestBundleDamaged(t *testing.T) {
	file := newSample().file()
	at := bytes.Index(file, []byte("claim 4"))
	l, text, _ := verified(t, append(append(slices.Clone(file[:at]), 'C'), file[at+1:]...), policyText(""))
	if l.Checks[0].Result != resultFailed || l.Checks[0].Detail != "damaged: archive.jsonl" || l.Checks[1].Result != resultFailed {
		t.Error(text)
	}
	for _, n := range []int{512, 600, at, len(file) - 1024, len(file) - 1} {
		if l, text, _ := verified(t, file[:n], policyText("")); l.Verdict != "fails" || len(l.Checks) != 1 || !strings.Contains(l.Checks[0].Detail, "cut short") && !strings.Contains(l.Checks[0].Detail, "two blocks") {
			t.Errorf("cut at %d: %s", n, text)
		}
	}
	if l, text, _ := verified(t, append(slices.Clone(file), 0), policyText("")); l.Verdict != "fails" {
		t.Error(text)
	}
}

func FuzzAttestationProof(f *testing.F) {
	s := newSample()
	for _, p := range s.logged {
		line, err := p.json()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Add([]byte(`{"hash":"","proof":"","vkey":""}`))
	e, err := authentic(s.attestations[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		p, err := parseAttestationProof(line)
		if err != nil {
			return
		}
		again, err := p.json()
		if err != nil || !bytes.Equal(again, line) {
			t.Errorf("%q reads as %q, %v", line, again, err)
		}
		if c, err := p.verify(e); err == nil && c.Origin != p.log.Name() {
			t.Errorf("%q: proven in %s by the key of %s", line, c.Origin, p.log.Name())
		}
	})
}
