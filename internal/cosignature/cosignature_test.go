package cosignature

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// The examples of https://c2sp.org/tlog-cosignature and tlog-witness.
const (
	sofaText = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
	sofaNote = sofaText + `
— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
`
	sofaRequest = `old 20852014
PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=
jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=
5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=
/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=

` + sofaText + `
— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— example.com/behind-the-sofa opLqBQsREYCgu6xQkYQwJr9fo45a62DN9EdmHXnZdXNqlcVGlCum2Wks+49/V6267UEjw6QUXTS5Rovnzv++qbSzm9Q=
`
)

// What filippo.io/torchwood v0.6.1 made of this seed and the text above.
const (
	theirSeed = "a witness for the known answers."
	theirName = "witness.example/w1"
	theirVkey = "witness.example/w1+3d29dbe4+BFYZvXqt54w3ixzNg8B/LMydP8mbvDehig7BCssfGVLL"
	theirLine = "— witness.example/w1 PSnb5AAAAABrDOALTNVLO8gZpcJINHHNEQQqx5eNdhvGlaakdMhFBeC3kyc+6z134OZHxWSFDI21YHEmiv9vHXHt5gkqEIY43BgaCg==\n"
	theirTime = 0x6b0ce00b
)

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func key(seed string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(seed + strings.Repeat(" ", 32-len(seed))))
}

func public(seed string) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

func TestCosignatureKnownAnswer(t *testing.T) {
	v := must[*Verifier](t)(ParseVerifier(theirVkey))
	if v.Name() != theirName || v.Kind() != Witness || v.KeyHash() != 0x3d29dbe4 || !v.Key().Equal(public(theirSeed)) || v.String() != theirVkey {
		t.Errorf("%+v", v)
	}
	if made := must[*Verifier](t)(NewVerifier(theirName, Witness, public(theirSeed))); made.String() != theirVkey {
		t.Errorf("our key is %s", made)
	}
	if line := must[string](t)(Cosign(theirName, key(theirSeed), sofaText, theirTime)); line != theirLine {
		t.Errorf("our line is %s", line)
	}
	c, sigs, err := Open(Append(sofaText, theirLine), v)
	if err != nil || len(sigs) != 1 || c.Origin != "example.com/behind-the-sofa" || c.Size != 20852163 || c.Text() != sofaText {
		t.Fatal(c, sigs, err)
	}
	if at := must[int64](t)(Time(sigs[0])); at != theirTime {
		t.Errorf("time %x", at)
	}
	// any flipped bit
	signed := Append(sofaText, theirLine)
	for i := range signed {
		for bit := range 8 {
			bad := bytes.Clone(signed)
			bad[i] ^= 1 << bit
			if _, _, err := Open(bad, v); err == nil {
				t.Errorf("byte %d, bit %d: %q", i, bit, bad)
			}
		}
	}
	// a cosignature is no signature of a log by the same key, nor the other way round
	asLog := must[*Verifier](t)(NewVerifier(theirName, Log, public(theirSeed)))
	if _, _, err := Open(signed, asLog); !errors.Is(err, ErrSignature) {
		t.Error(err)
	}
	raw := must[[]byte](t)(base64.StdEncoding.DecodeString(strings.Fields(theirLine)[2]))
	if asLog.Verify([]byte(sofaText), raw[4+timeSize:]) || v.Verify([]byte(sofaText), ed25519.Sign(key(theirSeed), []byte(sofaText))) {
		t.Error("one taken for the other")
	}
	if v.Verify([]byte("not a checkpoint\n"), raw[4:]) {
		t.Error("a cosignature of something else")
	}
}

func TestSpecExamples(t *testing.T) {
	c, sigs, err := Open([]byte(sofaNote))
	if !errors.Is(err, ErrSignature) || sigs != nil || c.Size != 20852163 {
		t.Error(c, err)
	}
	n, err := note.Open([]byte(sofaNote), note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if n != nil || !errors.As(err, &unverified) {
		t.Fatal(err)
	}
	if at := must[int64](t)(Time(unverified.Note.UnverifiedSigs[1])); at != 1679315147 {
		t.Error(at)
	}
	if _, err := Time(unverified.Note.UnverifiedSigs[0]); !errors.Is(err, ErrFormat) {
		t.Error("a time in the signature of a log", err)
	}
	r := must[Request](t)(ParseRequest([]byte(sofaRequest)))
	if r.Old != 20852014 || len(r.Proof) != 4 || r.Checkpoint.Text() != sofaText || string(r.Text()) != sofaRequest {
		t.Errorf("%+v", r)
	}
	if p := MonitorPath("example.com/behind-the-sofa"); p != "/"+OriginHash("example.com/behind-the-sofa")+"/checkpoint" || len(p) != 1+64+11 {
		t.Error(p)
	}
}

func TestVerifierStrict(t *testing.T) {
	log := must[*Verifier](t)(NewVerifier("a.example", Log, public("k"))).String()
	theirs := must[string](t)(note.NewEd25519VerifierKey("a.example", public("k")))
	if log != theirs {
		t.Errorf("%s, by x/mod %s", log, theirs)
	}
	b64 := func(kind byte, key []byte) string {
		return base64.StdEncoding.EncodeToString(append([]byte{kind}, key...))
	}
	for name, bad := range map[string]string{
		"nothing":            "",
		"one part":           "a.example",
		"two parts":          "a.example+" + log[10:18],
		"no name":            log[9:],
		"a space":            strings.Replace(log, "a.", "a .", 1),
		"another ID":         strings.Replace(log, "+", "+0", 1),
		"a capital ID":       strings.ToUpper(log[:18]) + log[18:],
		"another name":       "b" + log[1:],
		"another type":       "a.example+00000000+" + b64(2, public("k")),
		"a short key":        "a.example+00000000+" + b64(1, public("k")[1:]),
		"a long key":         "a.example+00000000+" + b64(1, append(public("k"), 0)),
		"a key of low order": "a.example+00000000+" + b64(1, make([]byte, 32)),
		"no key":             "a.example+00000000+AQ==",
		"empty":              "a.example+00000000+",
		"behind it":          log + " ",
		"line feed":          log + "\n",
		"not base64":         log[:19] + "!" + log[20:],
		"loose base64":       log[:len(log)-1] + "=",
	} {
		if v, err := ParseVerifier(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	for _, name := range []string{"", "a b", "a+b", "a\u00a0b", "a\nb", "a\x00", "\xff", strings.Repeat("a", maxName+1)} {
		if v, err := NewVerifier(name, Log, public("k")); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, %v", name, v, err)
		}
		if line, err := Cosign(name, key("k"), sofaText, 1); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, %v", name, line, err)
		}
	}
	for _, at := range []int64{0, -1, math.MinInt64} {
		if line, err := Cosign("a", key("k"), sofaText, at); !errors.Is(err, ErrFormat) {
			t.Errorf("%d: %v, %v", at, line, err)
		}
	}
	if line, err := Cosign("a", key("k"), "no checkpoint\n", 1); !errors.Is(err, ErrFormat) {
		t.Error(line, err)
	}
}

func TestCheckpointStrict(t *testing.T) {
	root := strings.Split(sofaText, "\n")[2]
	for _, good := range []string{sofaText, "go.sum database tree\n0\n" + root + "\n", sofaText + "more\n", sofaText + "a\nb\n", "ä\n9223372036854775807\n" + root + "\n"} {
		if c := must[Checkpoint](t)(ParseCheckpoint(good)); c.Text() != good {
			t.Errorf("%q became %q", good, c.Text())
		}
	}
	for name, bad := range map[string]string{
		"nothing": "", "one line": "a\n", "two lines": "a\n1\n", "no last line feed": "a\n1\n" + root,
		"no origin": "\n1\n" + root + "\n", "a control character": "a\x01\n1\n" + root + "\n", "a carriage return": strings.ReplaceAll(sofaText, "\n", "\r\n"),
		"a leading zero": "a\n01\n" + root + "\n", "a sign": "a\n+1\n" + root + "\n", "a negative size": "a\n-1\n" + root + "\n", "no size": "a\n\n" + root + "\n",
		"a size above int64": "a\n9223372036854775808\n" + root + "\n", "a hex size": "a\n0x1\n" + root + "\n",
		"a root of 31 bytes": "a\n1\n" + base64.StdEncoding.EncodeToString(make([]byte, 31)) + "\n", "a root of 33 bytes": "a\n1\n" + base64.StdEncoding.EncodeToString(make([]byte, 33)) + "\n",
		"a loose root": "a\n1\n" + root[:42] + "J=\n", "a root without padding": "a\n1\n" + root[:43] + "\n", "a root in base64url": "a\n1\n" + strings.ReplaceAll(root, "/", "_") + "\n",
		"an empty extension": sofaText + "\n", "an empty line between": sofaText + "a\n\nb\n", "an open extension": sofaText + "a",
		"not UTF-8": "\xff\n1\n" + root + "\n",
	} {
		if c, err := ParseCheckpoint(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// What is read as the checkpoint must be what the signature is over.
func TestOneTextOnly(t *testing.T) {
	longer := sofaText + "\nmore\n" // a text that note.Open takes, with a checkpoint as its beginning
	v := must[*Verifier](t)(NewVerifier("l", Log, public("l")))
	sig := append([]byte{byte(v.hash >> 24), byte(v.hash >> 16), byte(v.hash >> 8), byte(v.hash)}, ed25519.Sign(key("l"), []byte(longer))...)
	signed := Append(longer, signatureLine(note.Signature{Name: "l", Base64: base64.StdEncoding.EncodeToString(sig)}))
	if _, err := note.Open(signed, note.VerifierList(v)); err != nil {
		t.Fatal(err)
	}
	if c, _, err := Open(signed, v); !errors.Is(err, ErrFormat) {
		t.Errorf("%+v, %v", c, err)
	}
	if text := Text(signed); text != "" {
		t.Errorf("%q", text)
	}
}

func TestRequestStrict(t *testing.T) {
	line := strings.SplitAfter(sofaRequest, "\n")[1]
	change := func(old, new string) string {
		t.Helper()
		if !strings.Contains(sofaRequest, old) {
			t.Fatalf("%q is not in the request", old)
		}
		return strings.Replace(sofaRequest, old, new, 1)
	}
	for name, bad := range map[string]string{
		"nothing":                  "",
		"no old":                   change("old 20852014\n", ""),
		"another word":             change("old", "size"),
		"a capital":                change("old", "Old"),
		"two spaces":               change("old ", "old  "),
		"a tab":                    change("old ", "old\t"),
		"a leading zero":           change("old ", "old 0"),
		"a sign":                   change("old ", "old +"),
		"a negative size":          change("old ", "old -"),
		"a space behind":           change("20852014", "20852014 "),
		"carriage returns":         strings.ReplaceAll(sofaRequest, "\n", "\r\n"),
		"above int64":              change("20852014", "9223372036854775808"),
		"old above new":            change("20852014", "20852164"),
		"no proof line feed":       change("PlRN", "\nPlRN"),
		"a hash of 31 bytes":       change(line, base64.StdEncoding.EncodeToString(make([]byte, 31))+"\n"),
		"a hash of 33 bytes":       change(line, base64.StdEncoding.EncodeToString(make([]byte, 33))+"\n"),
		"a loose hash":             change("pkaw=", "pkax="),
		"a hash in hex":            change(line, strings.Repeat("ab", 32)+"\n"),
		"a hash with a space":      change("PlRN", " PlRN"),
		"64 hashes":                change(line, strings.Repeat(line, 61)),
		"no empty line":            strings.ReplaceAll(sofaRequest, "\n\n", "\n"),
		"no signature":             strings.Split(sofaRequest, "\n\n—")[0] + "\n",
		"an open signature line":   strings.TrimSuffix(sofaRequest, "\n"),
		"something behind":         sofaRequest + "x\n",
		"an empty line behind":     sofaRequest + "\n",
		"a size with leading zero": change("\n20852163", "\n020852163"),
		"too long":                 sofaRequest + strings.Repeat(" ", MaxRequest),
	} {
		if r, err := ParseRequest([]byte(bad)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if r := must[Request](t)(ParseRequest([]byte(change(line, strings.Repeat(line, 60))))); len(r.Proof) != MaxProof {
		t.Error("63 hashes", len(r.Proof))
	}
	if r := must[Request](t)(ParseRequest([]byte(change("20852014", "0")))); r.Old != 0 {
		t.Error(r.Old)
	}
}

func TestSize(t *testing.T) {
	for _, n := range []uint64{0, 1, 20852163, math.MaxInt64} {
		if got := must[uint64](t)(ParseSize(SizeText(n))); got != n {
			t.Error(got)
		}
	}
	for _, bad := range []string{"", "\n", "1", "01\n", "1\n\n", " 1\n", "-1\n", "9223372036854775808\n", "1\r\n"} {
		if n, err := ParseSize([]byte(bad)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %d, %v", bad, n, err)
		}
	}
}

func FuzzParseVerifier(f *testing.F) {
	f.Add(theirVkey)
	f.Add("sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseVerifier(s); err == nil && v.String() != s {
			t.Fatalf("%q became %q", s, v)
		} else if err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(sofaNote))
	f.Add(Append(sofaText, theirLine))
	v, err := ParseVerifier(theirVkey)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, signed []byte) {
		c, sigs, err := Open(signed, v)
		switch {
		case err == nil:
			if len(sigs) == 0 || c.Text() != Text(signed) {
				t.Fatalf("%+v, %v", c, sigs)
			}
			for _, s := range sigs {
				_, _ = Time(s)
			}
		case !errors.Is(err, ErrFormat) && !errors.Is(err, ErrSignature):
			t.Fatal(err)
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(sofaRequest))
	f.Add([]byte("old 0\n\n" + sofaNote))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(body)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(r.Text(), body) || r.Old > r.Checkpoint.Size || len(r.Proof) > MaxProof {
			t.Fatalf("%q became %q", body, r.Text())
		}
	})
}

func FuzzParseSize(f *testing.F) {
	f.Add([]byte("12\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if n, err := ParseSize(body); err == nil && !bytes.Equal(SizeText(n), body) {
			t.Fatalf("%q became %d", body, n)
		}
	})
}
