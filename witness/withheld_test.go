package witness

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/witan-adp/witan/internal/replica"
)

// Evidence quotes records; what is withheld since is not quoted any more.
func TestEvidenceOfWithheldRecords(t *testing.T) {
	b := newWorld().node(t, hostB, hostA)
	recs, other := chain(t, roomX, "a secret", "more"), chain(t, roomX, "another story")
	r := b.install(hostA, recs)
	seq := int64(2)
	for recs[seq-1].Envelope.Type != "message.create" {
		seq++
	}
	err := b.w.Evidence(Observation{Kind: "fork", Subject: Subject{hostA, roomX, recs[0].Hash}, Seq: seq, Reason: "seq: another record",
		Held: []json.RawMessage{recs[seq-1].JSON(), recs[seq].JSON()}, Other: []json.RawMessage{other[seq-1].JSON()}})
	if err != nil {
		t.Fatal(err)
	}
	before := string(b.get("evidence")[0])
	if !strings.Contains(before, "a secret") {
		t.Fatalf("%s", before)
	}
	if _, err := r.Withhold(seq, "asked", 1, replica.Seal); err != nil {
		t.Fatal(err)
	}
	after := string(b.get("evidence")[0])
	if strings.Contains(after, "a secret") || !strings.Contains(after, `"redacted":true`) || !strings.Contains(after, `"content":"more"`) || !strings.Contains(after, "another story") {
		t.Errorf("%s", after)
	}
	if err := r.Release(seq); err != nil {
		t.Fatal(err)
	}
	if again := string(b.get("evidence")[0]); again != before {
		t.Errorf("released: %s", again)
	}
}

func TestPending(t *testing.T) {
	b := newWorld().node(t, hostB, hostA)
	r := b.install(hostA, chain(t, roomX, "one"))
	if !b.w.Pending(r) {
		t.Error("nothing is pending before the attestation")
	}
	b.run()
	b.w.Completed(r)
	if envelope(t, b.next().data).Type != TypeAttest {
		t.Fatal("no attestation")
	}
	if b.w.Pending(r) {
		t.Error("it is pending after the attestation")
	}
}

// What cannot be recomputed as a whole is not attested, and not waited for.
func TestDroppedRoomIsNotAttested(t *testing.T) {
	b := newWorld().node(t, hostB, hostA)
	r := b.install(hostA, chain(t, roomX, "one"))
	if _, err := r.Drop(1); err != nil {
		t.Fatal(err)
	}
	if b.w.Pending(r) {
		t.Error("an attestation is pending that can never come")
	}
	if _, err := b.w.recompute(t.Context(), r); err == nil || !strings.Contains(err.Error(), "not kept any more") {
		t.Errorf("%v", err)
	}
}
