package adp

import (
	"bytes"
	"fmt"
	"testing"
)

func TestRedactKeepsTheChain(t *testing.T) {
	recs := chain(t, 5)
	var whole, cut Digest
	hash := ""
	for i, r := range recs {
		whole.Add(r)
		if i == 2 {
			red, err := r.Redact()
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf(`"envelope":{"hash":%q,"redacted":true,"type":"message.create"}`, r.Envelope.Hash)
			if !bytes.Contains(red.JSON(), []byte(want)) || red.Hash != r.Hash {
				t.Fatalf("%s", red.JSON())
			}
			served, err := ParseServed(mustScan(t, string(red.JSON())))
			if err != nil || !served.Redacted || served.Hash != r.Hash || served.Envelope.Type != "message.create" || !bytes.Equal(served.JSON(), red.JSON()) {
				t.Fatalf("%+v, %v", served, err)
			}
			if served.CheckSignature() == nil || served.Envelope.CheckHash() == nil || served.Envelope.CheckShape() == nil {
				t.Error("a redacted envelope passes for an authentic one")
			}
			if _, err := ParseRecord(mustScan(t, string(red.JSON()))); err == nil {
				t.Error("ParseRecord takes a redacted record")
			}
			r = served
		}
		if err := r.Follows(sampleRoom, int64(i), hash); err != nil {
			t.Fatal(err)
		}
		hash = r.Hash
		cut.Add(r)
	}
	a, b := whole.Summary(), cut.Summary()
	if a.Root != b.Root || a.LastHash != b.LastHash || a.Events == b.Events || b.Withheld != 1 || a.Withheld != 0 {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestClaimOfWithheldRecords(t *testing.T) {
	var whole, cut Digest
	for i, r := range chain(t, 4) {
		whole.Add(r)
		if i == 3 {
			r, _ = r.Redact()
		}
		cut.Add(r)
	}
	line1, err := Manifest{Host: "h.example", URL: "https://h.example/v1/rooms/x", Summary: whole.Summary(), Room: []byte(`{}`)}.Line1()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseClaim(line1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(cut.Summary()); err != nil {
		t.Error(err)
	}
	s := cut.Summary()
	s.Root[0] ^= 1
	if c.Check(s) == nil {
		t.Error("another root passes when envelopes are withheld")
	}
	if s = cut.Summary(); true {
		s.Withheld = 0
	}
	if c.Check(s) == nil {
		t.Error("another events digest passes although nothing is withheld")
	}
}

func TestParseServedRefuses(t *testing.T) {
	r, err := chain(t, 2)[1].Redact()
	if err != nil {
		t.Fatal(err)
	}
	good := string(r.Envelope.JSON())
	for name, env := range map[string]string{
		"false":       fmt.Sprintf(`{"hash":%q,"redacted":false,"type":"message.create"}`, r.Envelope.Hash),
		"a number":    fmt.Sprintf(`{"hash":%q,"redacted":1,"type":"message.create"}`, r.Envelope.Hash),
		"no type":     fmt.Sprintf(`{"hash":%q,"redacted":true}`, r.Envelope.Hash),
		"empty type":  fmt.Sprintf(`{"hash":%q,"redacted":true,"type":""}`, r.Envelope.Hash),
		"more":        fmt.Sprintf(`{"actor":"x","hash":%q,"redacted":true,"type":"message.create"}`, r.Envelope.Hash),
		"no hash":     `{"hash":"x","redacted":true,"type":"message.create"}`,
		"other hash":  fmt.Sprintf(`{"hash":%q,"redacted":true,"type":"message.create"}`, chain(t, 1)[0].Envelope.Hash),
		"not redated": `{"hash":"x","type":"message.create"}`,
	} {
		text := bytes.Replace(r.JSON(), []byte(good), []byte(env), 1)
		if _, err := ParseServed(mustScan(t, string(text))); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	// another spelling of the same record comes out canonical
	text := bytes.Replace(r.JSON(), []byte(good), []byte(fmt.Sprintf(`{"type":"message.create", "redacted":true,"hash":%q}`, r.Envelope.Hash)), 1)
	if got, err := ParseServed(mustScan(t, string(text))); err != nil || !bytes.Equal(got.JSON(), r.JSON()) {
		t.Errorf("%v", err)
	}
}

func FuzzParseServed(f *testing.F) {
	r, _ := chain(f, 2)[1].Redact()
	f.Add(r.JSON())
	f.Add(chain(f, 2)[1].JSON())
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ScanDepth(b, RecordDepth)
		if err != nil {
			return
		}
		r, err := ParseServed(v)
		if err != nil {
			return
		}
		if r.Redacted && r.CheckSignature() == nil {
			t.Fatal("a redacted record has a good signature")
		}
		v, err = ScanDepth(r.JSON(), RecordDepth)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseServed(v); err != nil || !bytes.Equal(again.JSON(), r.JSON()) {
			t.Fatalf("%v", err)
		}
	})
}
