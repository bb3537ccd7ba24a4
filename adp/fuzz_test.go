package adp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// Seeds are in code and in testdata; whatever a fuzzer finds becomes a row of
// a table.

func seedJSON(f *testing.F) {
	for _, c := range jsonCases(f) {
		f.Add([]byte(c.Text))
	}
	f.Add([]byte("1" + strings.Repeat("0", 800) + "e-800"))
	f.Add([]byte("0." + strings.Repeat("0", 9999) + "1e10000"))
	f.Add([]byte(strings.Repeat(`[{"a":`, 32) + "1" + strings.Repeat("}]", 32)))
	f.Add([]byte(strings.Repeat("[", 65) + strings.Repeat("]", 65)))
	r := chain(f, 2)
	f.Add(r[0].JSON())
	f.Add(shuffled(f, mustScan(f, string(r[1].JSON())), rand.New(rand.NewPCG(1, 1))))
}

func FuzzScan(f *testing.F) {
	seedJSON(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		checkAgainstOracles(t, text)
		if !bytes.Equal(before, text) {
			t.Fatal("the scanned text was changed")
		}
	})
}

// FuzzCanonical puts the text inside a value, where the order of members and a
// second spelling must not matter.
func FuzzCanonical(f *testing.F) {
	seedJSON(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Scan(text)
		if err != nil {
			return
		}
		c, err := v.Canonical()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		a, err := ScanDepth([]byte(`{"b":`+string(text)+`,"a":[1.0,`+string(text)+`]}`), MaxDepth+2)
		if err != nil {
			t.Fatalf("%q inside: %v", text, err)
		}
		ca, err := a.Canonical()
		if want := `{"a":[1,` + string(c.Raw()) + `],"b":` + string(c.Raw()) + `}`; err != nil || string(ca.Raw()) != want {
			t.Fatalf("%q inside: %q, %v, want %q", text, ca.Raw(), err, want)
		}
		mixed := shuffled(t, c, rand.New(rand.NewPCG(uint64(len(text)), 1)))
		m, err := Scan(mixed)
		if err != nil {
			t.Fatalf("%q: %v", mixed, err)
		}
		if cm, err := m.Canonical(); err != nil || !bytes.Equal(cm.Raw(), c.Raw()) {
			t.Fatalf("%q: %q, %v, want %q", mixed, cm.Raw(), err, c.Raw())
		}
	})
}

func seedEnvelopes(f *testing.F) {
	for _, r := range chain(f, 2) {
		f.Add(r.Envelope.JSON())
		f.Add(r.JSON())
	}
	var g recordsFile
	golden(f, "records.json", &g)
	for _, a := range g.Alterations {
		var r struct{ Envelope json.RawMessage }
		if json.Unmarshal(a.Record, &r) == nil {
			f.Add([]byte(r.Envelope))
		}
		f.Add([]byte(a.Record))
	}
}

func FuzzParseEnvelope(f *testing.F) {
	seedEnvelopes(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Scan(text)
		if err != nil {
			return
		}
		e, err := ParseEnvelope(v)
		if err != nil {
			if c := CodeOf(err); c != InvalidEvent && c != InvalidActor {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !IsHash(e.Hash) || !IsAgentID(string(e.Actor)) || len(e.Signature) != SignatureLen || e.value.Len() != 3 {
			t.Fatalf("%q: %+v", text, e)
		}
		again, err := ParseEnvelope(mustScan(t, string(e.JSON())))
		if err != nil || again.Hash != e.Hash || !bytes.Equal(again.JSON(), e.JSON()) || (again.CheckShape() == nil) != (e.CheckShape() == nil) || (again.CheckHash() == nil) != (e.CheckHash() == nil) {
			t.Fatalf("%q reads differently a second time: %v", text, err)
		}
		if e.CheckShape() != nil {
			return
		}
		if e.Protocol == "" || e.Type == "" || e.CreatedAt < 0 || e.Nonce < 1 || e.Payload.Kind() != Object {
			t.Fatalf("%q: no fault found in %+v", text, e)
		}
		if e.Protocol == Protocol && (e.Type == "room.create") != (e.RoomID == "" && e.BaseSeq == 0 && e.BaseHash == "") {
			t.Fatalf("%q: anchors of %s", text, e.Type)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	seedEnvelopes(f)
	originals := map[string][]byte{}
	for _, r := range chain(f, 2) {
		originals[r.Hash] = r.JSON()
	}
	var g recordsFile
	golden(f, "records.json", &g)
	for _, text := range g.Records {
		r, err := ParseRecord(mustScan(f, string(text)))
		if err != nil {
			f.Fatal(err)
		}
		originals[r.Hash] = r.JSON()
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ScanDepth(text, RecordDepth)
		if err != nil {
			return
		}
		r, err := ParseRecord(v)
		if err != nil {
			if CodeOf(err) == "" {
				t.Fatalf("%q: a refusal without a code: %v", text, err)
			}
			return
		}
		if made := NewRecord(r.Envelope, r.RoomID, r.Seq, r.PreHash, r.ReceivedAt); made.Hash != r.Hash || !bytes.Equal(made.JSON(), r.JSON()) {
			t.Fatalf("%q is not what NewRecord makes: %s", text, made.JSON())
		}
		if want, known := originals[r.Hash]; known && r.CheckSignature() == nil && !bytes.Equal(want, r.JSON()) {
			t.Fatalf("%q is another record with the hash of %s", text, want)
		}
	})
}

func FuzzVerifyToken(f *testing.F) {
	const origin, now = "https://relay.example", 1779753700
	var g struct{ Tokens []struct{ Token, Why string } }
	golden(f, "tokens.json", &g)
	accepted := map[string]bool{}
	for _, c := range g.Tokens {
		f.Add(c.Token)
		accepted[c.Token] = c.Why == ""
	}
	signed := NewAgentID(seedKey(7).Public().(ed25519.PublicKey))
	f.Fuzz(func(t *testing.T, token string) {
		id, err := VerifyToken(token, origin, now)
		switch {
		case err != nil && (CodeOf(err) != InvalidToken || id != ""):
			t.Fatalf("%q: %q, %v", token, id, err)
		case err == nil && id == signed && !accepted[token]:
			t.Fatalf("%q was not signed by %s", token, id)
		case err == nil && strings.Count(token, ".") != 2:
			t.Fatalf("%q is no token", token)
		}
	})
}

func FuzzParseCID(f *testing.F) {
	var g struct {
		CIDs []struct{ Text string } `json:"cids"`
	}
	golden(f, "cids.json", &g)
	for _, c := range g.CIDs {
		f.Add(c.Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		codec, digest, err := ParseCID(text)
		if err == nil && NewCID(codec, digest) != text {
			t.Fatalf("%q is another text of %s", text, NewCID(codec, digest))
		}
		if err == nil && codec != CodecJSON && codec != CodecRaw {
			t.Fatalf("%q has codec %#x", text, codec)
		}
	})
}

func FuzzParseClaim(f *testing.F) {
	records := chain(f, 3)
	m := sampleManifest(f, records)
	line1, err := m.Line1()
	if err != nil {
		f.Fatal(err)
	}
	b, _ := bundle(f, line1, records)
	whole, err := m.JSON(b)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range [][]byte{line1, whole, bytes.Replace(whole, []byte(`"extra":{`), []byte(`"extra":{"bundle_\u0063id2":null,`), 1), []byte("{}"), bytes.Replace(whole, []byte(`"bundle_bytes":`), []byte(`"bundle_bytes":-`), 1)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseClaim(text)
		if err != nil {
			return
		}
		again, err := ParseClaim(c.JSON())
		if err != nil || !bytes.Equal(again.JSON(), c.JSON()) {
			t.Fatalf("%q: %v", text, err)
		}
		first, err := c.Line1()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		l, err := ParseClaim(first)
		if err != nil || l.BundleCID != "" || l.BundleBytes != 0 || l.EventsCID != c.EventsCID || l.LastHash != c.LastHash {
			t.Fatalf("%q: line 1 is %q, %v", text, first, err)
		}
		if second, err := l.Line1(); err != nil || !bytes.Equal(second, first) {
			t.Fatalf("%q: line 1 of line 1 is %q, %v", text, second, err)
		}
	})
}

func FuzzDecodeHash(f *testing.F) {
	for _, s := range []string{goodHash, goodHash[:42] + "B", goodHash[:42] + "=", goodHash[:41] + "\n\n", "", strings.Repeat("A", 86), strings.Repeat("_", 43)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, stdlib := base64.RawURLEncoding.Strict().DecodeString(text)
		ok := stdlib == nil && !strings.ContainsAny(text, "\r\n")
		b, err := Decode(text)
		if (err == nil) != ok || ok && (!bytes.Equal(b, want) || Encode(b) != text) {
			t.Fatalf("%q: %x, %v; the standard library says %x, %v", text, b, err, want, stdlib)
		}
		h, err := DecodeHash(text)
		if (err == nil) != (ok && len(want) == 32) || err == nil && !bytes.Equal(h[:], want) || IsHash(text) != (err == nil) {
			t.Fatalf("%q: hash %x, %v", text, h, err)
		}
		s, err := DecodeSignature(text)
		if (err == nil) != (ok && len(want) == 64) || err == nil && !bytes.Equal(s[:], want) {
			t.Fatalf("%q: signature %x, %v", text, s, err)
		}
	})
}

func FuzzParseAgentID(f *testing.F) {
	var g identityFile
	golden(f, "identity.json", &g)
	for _, a := range g.AgentIDs {
		f.Add(a.ID)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseAgentID(text)
		if (err == nil) != IsAgentID(text) || err != nil && (id != "" || CodeOf(err) != InvalidActor) {
			t.Fatalf("%q: %q, %v", text, id, err)
		}
		if err != nil {
			return
		}
		pub, err := id.PublicKey()
		if err != nil || string(NewAgentID(pub)) != text {
			t.Fatalf("%q is another text of %s: %v", text, NewAgentID(pub), err)
		}
		// no key is so odd that verifying panics
		if VerifySignature(pub, pub, append(bytes.Clone(pub), pub...)) == nil {
			t.Fatalf("%q signed by chance", text)
		}
	})
}

func FuzzTreeFromFrontier(f *testing.F) {
	var tree Tree
	for _, l := range testLeaves(9) {
		f.Add(tree.Size(), bytes.Join(tree.Frontier(), nil), 32)
		tree.Append(l)
	}
	f.Add(uint64(1<<64-1), make([]byte, 64*32), 32)
	f.Add(uint64(3), make([]byte, 62), 31)
	f.Fuzz(func(t *testing.T, size uint64, flat []byte, width int) {
		if width < 1 {
			return
		}
		var frontier [][]byte
		for rest := flat; len(rest) > 0; {
			n := min(width, len(rest))
			frontier, rest = append(frontier, rest[:n:n]), rest[n:]
		}
		tree, err := TreeFromFrontier(size, frontier)
		if err != nil {
			return
		}
		if tree.Size() != size || !sameHashes(tree.Frontier(), frontier) {
			t.Fatalf("size %d became %d", size, tree.Size())
		}
		c := tree.Clone()
		if c.Root() != tree.Root() {
			t.Fatal("the clone has another root")
		}
		if size == 1<<64-1 {
			return // no room is that long
		}
		root := tree.Root()
		c.Append([32]byte{1})
		if c.Size() != size+1 || tree.Root() != root {
			t.Fatalf("size %d: appending to the clone made %d leaves, root %s", size, c.Size(), hex.EncodeToString(root[:]))
		}
	})
}
