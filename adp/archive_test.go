package adp

import (
	"bytes"
	"crypto/sha3"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
)

func TestDigestStreamsLikeOneArray(t *testing.T) {
	records := chain(t, 12)
	var d Digest
	for n := 0; n <= len(records); n++ {
		s := d.Summary()
		var parts [][]byte
		var leaves [][32]byte
		for _, r := range records[:n] {
			parts = append(parts, shuffled(t, mustScan(t, string(r.JSON())), rand.New(rand.NewPCG(1, uint64(n)))))
			leaves = append(leaves, r.LeafData())
		}
		// the oracle canonicalises the whole array, written in another order
		canonical, err := jcs.Transform([]byte("[ " + string(bytes.Join(parts, []byte(" , "))) + " ]"))
		if err != nil {
			t.Fatal(err)
		}
		if s.Events != sha3.Sum256(canonical) || s.Root != MerkleRoot(leaves) || s.Count != int64(n) {
			t.Fatalf("%d records: %+v", n, s)
		}
		if codec, digest, err := ParseCID(s.EventsCID()); err != nil || codec != CodecJSON || digest != s.Events {
			t.Errorf("%s: %v", s.EventsCID(), err)
		}
		if n > 0 && (s.RoomID != sampleRoom || s.Genesis != records[0].Hash || s.LastHash != records[n-1].Hash || s.ReceivedAt != records[n-1].ReceivedAt) {
			t.Errorf("%d records: %+v", n, s)
		}
		if d.Summary() != s {
			t.Error("a second Summary differs")
		}
		if n < len(records) {
			d.Add(records[n])
		}
	}
	// received_at may step back; the greatest counts
	var back Digest
	for _, at := range []int64{5, 9, 7} {
		back.Add(NewRecord(records[0].Envelope, sampleRoom, 1, "", at))
	}
	if back.Summary().ReceivedAt != 9 {
		t.Error("received_at is not the greatest")
	}
}

func sampleManifest(t testing.TB, records []*Record) Manifest {
	t.Helper()
	var d Digest
	for _, r := range records {
		d.Add(r)
	}
	return Manifest{Host: "relay.example", URL: "https://relay.example/v1/rooms/" + sampleRoom, GeneratedAt: 1779760810000, Summary: d.Summary(),
		Room: json.RawMessage(`{"topic":"<Proofs> & \ufb33 😀","id":"` + sampleRoom + `"}`), Packs: []json.RawMessage{json.RawMessage(`{"protocol":"agent-discourse/1.0","packs":[]}`)},
		Extra: map[string]json.RawMessage{"mirror_of": json.RawMessage(`"al.ink"`)}}
}

func bundle(t testing.TB, line1 []byte, records []*Record) (*Bundle, []byte) {
	t.Helper()
	b := NewBundle(line1)
	text := append(bytes.Clone(line1), '\n')
	for _, r := range records {
		b.Add(r.JSON())
		text = append(append(text, r.JSON()...), '\n')
	}
	return b, text
}

func TestManifestRoundTrip(t *testing.T) {
	records := chain(t, 5)
	m := sampleManifest(t, records)
	line1, err := m.Line1()
	if err != nil {
		t.Fatal(err)
	}
	b, text := bundle(t, line1, records)
	sum := sha3.Sum256(text)
	if b.Bytes != int64(len(text)) || b.CID() != NewCID(CodecRaw, sum) {
		t.Errorf("%d bytes, %s", b.Bytes, b.CID())
	}
	whole, err := m.JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{line1, whole} {
		if want, err := jcs.Transform(text); err != nil || !bytes.Equal(want, text) || bytes.ContainsRune(text, '\n') {
			t.Errorf("not canonical: %s, %v", text, err)
		}
	}
	c, err := ParseClaim(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(m.Summary); err != nil {
		t.Error(err)
	}
	if c.RoomID != sampleRoom || c.Host != m.Host || c.URL != m.URL || c.GeneratedAt != m.GeneratedAt || c.Count != 5 || c.LastSeq != 5 || c.LastHash != records[4].Hash || c.EventsCID != m.Summary.EventsCID() || c.BundleCID != b.CID() || c.BundleBytes != b.Bytes || c.Room.Get("topic").Text() != "<Proofs> & \ufb33 😀" || !bytes.Equal(c.JSON(), whole) {
		t.Errorf("%+v", c)
	}
	again, err := c.Line1()
	if err != nil || !bytes.Equal(again, line1) {
		t.Errorf("line 1 of the claim: %s, %v, want %s", again, err, line1)
	}
	// the manifest in any order of members is the same claim
	mixed, err := ParseClaim(shuffled(t, mustScan(t, string(whole)), rand.New(rand.NewPCG(5, 6))))
	if err != nil || !bytes.Equal(mixed.JSON(), whole) {
		t.Error(err)
	}
	first, err := ParseClaim(line1)
	if err != nil || first.BundleCID != "" || first.Check(m.Summary) != nil {
		t.Errorf("line 1 as a claim: %v", err)
	}
	if l, err := first.Line1(); err != nil || !bytes.Equal(l, line1) {
		t.Error("line 1 of line 1")
	}
	var shape map[string]json.RawMessage
	if err := json.Unmarshal(line1, &shape); err != nil || string(shape["first_seq"]) != "1" || string(shape["type"]) != `"room.archive"` || !strings.Contains(string(shape["extra"]), `"merkle":{"size":5,"tree":"rfc6962-sha256"}`) || !strings.Contains(string(shape["formats"]), "/archive.jsonl") {
		t.Errorf("%s", line1)
	}
	// nobody's extra speaks for us
	m.Extra = map[string]json.RawMessage{"merkle": json.RawMessage("0"), "events_cid": json.RawMessage(`"x"`), "bundle_cid": json.RawMessage(`"x"`), "bundle_bytes": json.RawMessage("1"), "mirror_of": json.RawMessage(`"al.ink"`)}
	if l, err := m.Line1(); err != nil || !bytes.Equal(l, line1) {
		t.Errorf("extra overrode a member: %s, %v", l, err)
	}
	for name, bad := range map[string]Manifest{"a room that is no JSON": {Room: json.RawMessage("{")}, "a room that names a member twice": {Room: json.RawMessage(`{"a":1,"a":2}`)},
		"a pack out of range": {Packs: []json.RawMessage{json.RawMessage("1e400")}}} {
		if _, err := bad.Line1(); err == nil {
			t.Errorf("%s makes a line 1", name)
		}
		if _, err := bad.JSON(NewBundle(nil)); err == nil {
			t.Errorf("%s makes a manifest", name)
		}
	}
}

func TestClaimCheck(t *testing.T) {
	m := sampleManifest(t, chain(t, 3))
	line1, err := m.Line1()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"room_id", "event_count", "last_seq", "last_hash", "events_sha3_256", "archive_root", "extra.events_cid"} {
		c, err := ParseClaim(line1)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "room_id":
			c.RoomID = "other"
		case "event_count":
			c.Count++
		case "last_seq":
			c.LastSeq--
		case "last_hash":
			c.LastHash = goodHash
		case "events_sha3_256":
			c.EventsDigest = goodHash
		case "archive_root":
			c.ArchiveRoot = goodHash
		case "extra.events_cid":
			c.EventsCID = NewCID(CodecRaw, m.Summary.Events)
		}
		if err := c.Check(m.Summary); err == nil || !strings.HasSuffix(err.Error(), "differs from the records in "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := ParseClaim(line1)
	if err != nil {
		t.Fatal(err)
	}
	c.ArchiveRoot, c.EventsCID = c.EventsDigest, "" // a host without a Merkle tree and without CIDs
	if err := c.Check(m.Summary); err != nil {
		t.Error(err)
	}
	c.Count, c.LastSeq = 9, 9
	if err := c.Check(m.Summary); err == nil || !strings.Contains(err.Error(), "event_count, last_seq") {
		t.Error(err)
	}
}

func TestParseClaimRefuses(t *testing.T) {
	line1, err := sampleManifest(t, chain(t, 1)).Line1()
	if err != nil {
		t.Fatal(err)
	}
	good := string(line1)
	for _, c := range [][2]string{
		{`"protocol":"agent-discourse/1.0","room":`, `"protocol":"agent-discourse/1.1","room":`}, {`"room.archive"`, `"room.Archive"`},
		{`"event_count":1`, `"event_count":"1"`}, {`"event_count":1`, `"event_count":1.5`}, {`"event_count":1,`, ""}, {`"first_seq":1`, `"first_seq":2`}, {`"first_seq":1,`, ""},
		{`"last_seq":1,`, ""}, {`"generated_at":1779760810000,`, ""}, {`"last_hash":"`, `"last_hash":"A`}, {`"events_sha3_256":"`, `"events_sha3_256":"A`}, {`"archive_root":"`, `"archive_root":"A`},
		{`"room_id":"` + sampleRoom, `"room_id":"a/b`}, {`"room_id":"` + sampleRoom + `",`, ""}, {`{`, `{"archive_root":1,`}, {`}`, ``}, {good, "null"}, {good, "[]"}, {good, "{}"}, {good, ""}, {good, good + good},
		{`"room":`, `"room":` + strings.Repeat(`{"a":`, manifestDepth) + "1" + strings.Repeat("}", manifestDepth) + `,"roam":`},
	} {
		bad := strings.Replace(good, c[0], c[1], 1)
		if bad == good {
			t.Fatalf("%q is not in %s", c[0], good)
		}
		if claim, err := ParseClaim([]byte(bad)); err == nil || claim != nil {
			t.Errorf("%q for %q was accepted", c[1], c[0])
		}
	}
}
