package witness

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// goldenProofs is one proof of each kind, of fixed bytes.
func goldenProofs(t testing.TB) map[string]*Proof {
	nonce := int64(0)
	signed := func(k ed25519.PrivateKey, typ string, payload any) *adp.Envelope {
		nonce++
		return must[*adp.Envelope](t)(adp.Sign(k, adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, CreatedAt: t0 + nonce, Nonce: nonce, Payload: payload}))
	}
	one, two := chain(t, roomX, "one"), chain(t, roomX, "two")
	k, line, cosigner := logKeyOf(hostA), LogOrigin(hostA, 1), key("cosigner")
	log := Subject{Origin: hostA}
	a, b := treeOf("a", "b", "c").side(t, line, k, 1), treeOf("a", "x", "c", "d", "e").side(t, line, k, 1)
	for i, s := range []*Signed{&a, &b} {
		s.Note = cosigned(t, s.Note, "w.example/witness", cosigner, uint64(5+i))
	}
	return map[string]*Proof{
		KindStatements:   must[*Proof](t)(newProof(signed(key(hostA), TypeAnnounce, statement(hostA, one)), signed(key(hostA), TypeAnnounce, statement(hostA, two)))),
		KindHeads:        must[*Proof](t)(newProof(signed(key(hostA), TypeHead, head(hostA, one[:2])), signed(key(hostA), TypeHead, head(hostA, two[:2])))),
		KindAttestations: must[*Proof](t)(newProof(signed(key(hostB), TypeAttest, attestation(statement(hostA, one), "")), signed(key(hostB), TypeAttest, attestation(statement(hostA, two), "")))),
		KindCheckpoints:  must[*Proof](t)(ProveCheckpoints(log, public(k), noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 2, k))),
		KindInclusion:    must[*Proof](t)(ProveInclusion(log, public(k), a, b)),
		KindCosignatures: must[*Proof](t)(ProveCosignatures(log, public(cosigner),
			cosigned(t, noteOf(t, line, 7, 1, k), "w.example/witness", cosigner, 5), cosigned(t, noteOf(t, line, 7, 2, k), "w.example/witness", cosigner, 9))),
		KindCosignedInclusion: must[*Proof](t)(ProveCosignedInclusion(log, public(cosigner), a, b)),
	}
}

// The bytes of each kind of proof are as they were, and with any single bit flipped
// they prove nothing.
func TestEvidenceGolden(t *testing.T) {
	for kind, p := range goldenProofs(t) {
		text := must[[]byte](t)(p.JSON())
		path := filepath.Join("testdata", "evidence", kind+".json")
		if *update {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(text, want) {
			t.Fatalf("%s has changed: %v\n%s", kind, err, text)
		}
		if q, err := VerifyEvidence(want); err != nil || q.Kind != kind {
			t.Fatalf("%s: %v", kind, err)
		}
		for i := range want {
			bad := bytes.Clone(want)
			bad[i] ^= 1 << (i % 8)
			if _, err := VerifyEvidence(bad); err == nil {
				t.Errorf("%s: proves with byte %d changed: %s", kind, i, bad)
			}
		}
		for _, bad := range [][]byte{want[:len(want)-1], append(bytes.Clone(want), '\n'), append([]byte(" "), want...), nil} {
			if _, err := VerifyEvidence(bad); err == nil {
				t.Errorf("%s: proves as %q", kind, bad)
			}
		}
	}
}
