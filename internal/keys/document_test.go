package keys

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/multiformats/go-multibase"
)

func TestMultikey(t *testing.T) {
	// From the Multikey examples of the W3C text "Data Integrity EdDSA Cryptosuites v1.0", B.1.
	const example = "z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2"
	pub, err := ParseMultikey(example)
	if err != nil || Multikey(pub) != example {
		t.Fatal(pub, err)
	}
	r := FromSeed(testSeed(), 1)
	for _, p := range []Purpose{Agent, Log, Cosigner, P2P} {
		s := Multikey(r.Public(p))
		got, err := ParseMultikey(s)
		if err != nil || !got.Equal(r.Public(p)) || !strings.HasPrefix(s, "z6Mk") {
			t.Errorf("%s: %q gives %x, %v", p, s, got, err)
		}
	}
}

func encode(t *testing.T, base multibase.Encoding, raw []byte) string {
	t.Helper()
	s, err := multibase.Encode(base, raw)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseMultikeyRefuses(t *testing.T) {
	good := FromSeed(testSeed(), 1).Public(Agent)
	text := Multikey(good)
	key := func(h string) string { return Multikey(unhex(t, h)) }
	for name, s := range map[string]string{
		"empty": "", "prefix only": "z", "cut": text[:47], "long": text + "1", "leading zero": "z1" + text[1:], "space": " " + text[1:],
		"alphabet":    text[:47] + "0",
		"base16":      encode(t, multibase.Base16, append([]byte{0xed, 1}, good...)),
		"base64url":   encode(t, multibase.Base64url, append([]byte{0xed, 1}, good...)),
		"flickr":      encode(t, multibase.Base58Flickr, append([]byte{0xed, 1}, good...)),
		"x25519":      encode(t, multibase.Base58BTC, append([]byte{0xec, 1}, good...)),
		"private key": encode(t, multibase.Base58BTC, append([]byte{0x80, 0x26}, good...)),
		"short key":   encode(t, multibase.Base58BTC, append([]byte{0xed, 1}, good[:31]...)),
		"long key":    encode(t, multibase.Base58BTC, append(append([]byte{0xed, 1}, good...), 0)),
		"no header":   encode(t, multibase.Base58BTC, good),
		"identity":    key("0100000000000000000000000000000000000000000000000000000000000000"),
		"zero":        key("0000000000000000000000000000000000000000000000000000000000000000"),
		"order 8":     key("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
		"order 8, -":  key("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
		"y = p":       key("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
		"y = p + 1":   key("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
	} {
		if pub, err := ParseMultikey(s); err == nil {
			t.Errorf("%s: %q gave %x", name, s, pub)
		}
	}
}

func TestDID(t *testing.T) {
	for origin, want := range map[string]string{
		"https://example.com":      "did:web:example.com",
		"https://example.com:8443": "did:web:example.com%3A8443",
		"http://127.0.0.1:8080":    "did:web:127.0.0.1%3A8080",
		"https://[2a00::1]:8443":   "did:web:%5B2a00%3A%3A1%5D%3A8443",
		"https://Example.com":      "", "https://example.com/": "", "https://example.com/a": "", "https://u@example.com": "", "example.com": "", "": "",
		"ftp://example.com": "", "https://": "", "https://example.com?": "", "https://example.com#": "",
	} {
		got, err := DID(origin)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("DID(%q) = %q, %v; want %q", origin, got, err, want)
		}
	}
}

const testOrigin = "https://example.com:8443"

func TestRenderedDocumentIsRead(t *testing.T) {
	r := FromSeed(testSeed(), 1)
	for _, origin := range []string{testOrigin, "http://127.0.0.1:80", "https://[2a00::1]"} {
		body, err := RenderDocument(origin, r)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := ParseDocument(origin, body)
		if err != nil {
			t.Fatalf("%s\n%v", body, err)
		}
		if !doc.Agent.Equal(r.Public(Agent)) || !doc.Log.Equal(r.Public(Log)) || !doc.Cosigner.Equal(r.Public(Cosigner)) {
			t.Errorf("%s: other keys", body)
		}
	}
	body, err := RenderDocument(testOrigin, r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	const did = "did:web:example.com%3A8443"
	if got["id"] != did || fmt.Sprint(got["assertionMethod"]) != fmt.Sprintf("[%s#agent %s#log %s#cosigner]", did, did, did) {
		t.Errorf("document %s", body)
	}
	if first := got["verificationMethod"].([]any)[0].(map[string]any); first["id"] != did+"#agent" || first["controller"] != did || first["type"] != "Multikey" {
		t.Errorf("method %v", first)
	}
	for _, secret := range [][]byte{r.seed[:], r.Key(Agent).Seed()} {
		if strings.Contains(string(body), hex.EncodeToString(secret)) || bytes.Contains(body, secret) {
			t.Error("a secret is in the document")
		}
	}
	if _, err := RenderDocument("https://EXAMPLE.com", r); err == nil {
		t.Error("an origin that is not normal was rendered")
	}
}

func TestParseDocument(t *testing.T) {
	r := FromSeed(testSeed(), 1)
	const did = "did:web:example.com%3A8443"
	vm := func(id string, key ed25519.PublicKey) string {
		return fmt.Sprintf(`{"id":%q,"type":"Multikey","controller":%q,"publicKeyMultibase":%q}`, id, did, Multikey(key))
	}
	agent, log, cosigner := vm(did+"#agent", r.Public(Agent)), vm(did+"#log", r.Public(Log)), vm(did+"#cosigner", r.Public(Cosigner))
	doc := func(methods ...string) string {
		return fmt.Sprintf(`{"id":%q,"verificationMethod":[%s]}`, did, strings.Join(methods, ","))
	}
	foreign := `{"id":"` + did + `#key-1","type":"JsonWebKey2020","controller":"x","publicKeyJwk":{}}`
	for _, tt := range []struct{ name, body, keys string }{
		{"all", doc(agent, log, cosigner), "agent log cosigner"},
		{"agent only", doc(agent), "agent"},
		{"any order", doc(cosigner, agent), "agent cosigner"},
		{"relative", doc(vm("#agent", r.Public(Agent))), "agent"},
		{"foreign entry", doc(foreign, agent), "agent"},
		{"of another subject", doc(vm("did:web:example.com#agent", r.Public(Log)), agent), "agent"},
	} {
		got, err := ParseDocument(testOrigin, []byte(tt.body))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var keys []string
		for _, k := range []struct {
			p   Purpose
			pub ed25519.PublicKey
		}{{Agent, got.Agent}, {Log, got.Log}, {Cosigner, got.Cosigner}} {
			if k.pub != nil {
				keys = append(keys, string(k.p))
				if !k.pub.Equal(r.Public(k.p)) {
					t.Errorf("%s: another key for %s", tt.name, k.p)
				}
			}
		}
		if want := strings.Fields(tt.keys); !slices.Equal(keys, want) {
			t.Errorf("%s: %v, want %v", tt.name, keys, want)
		}
	}
	small := vm(did+"#agent", unhex(t, "0100000000000000000000000000000000000000000000000000000000000000"))
	for _, tt := range []struct{ name, body, want string }{
		{"another origin", strings.Replace(doc(agent), `"id":"`+did, `"id":"did:web:evil.example`, 1), "its id is"},
		{"port as a path", strings.Replace(doc(agent), `"id":"`+did, `"id":"did:web:example.com:8443`, 1), "its id is"},
		{"no id", `{"verificationMethod":[` + agent + `]}`, "its id is"},
		{"no agent", doc(log, cosigner), "has no key"},
		{"no methods", `{"id":"` + did + `"}`, "no verificationMethod array"},
		{"twice", doc(agent, log, agent), "twice"},
		{"twice, once relative", doc(agent, vm("#agent", r.Public(Log))), "twice"},
		{"foreign twice", doc(agent, foreign, foreign), "twice"},
		{"entry is a string", doc(agent, `"`+did+`#log"`), "has no id"},
		{"wrong type", doc(strings.Replace(agent, "Multikey", "Ed25519VerificationKey2020", 1)), "type Multikey"},
		{"wrong controller", doc(strings.Replace(agent, `"controller":"`+did, `"controller":"did:web:evil.example`, 1)), "controller"},
		{"small order", doc(small), `the key "agent"`},
		{"bad log", doc(agent, strings.Replace(log, "z6Mk", "z6Ml", 1)), `the key "log"`},
		{"no key text", doc(agent, `{"id":"#log","type":"Multikey","controller":"`+did+`"}`), `the key "log"`},
		{"duplicate member", strings.Replace(doc(agent), `"type":"Multikey"`, `"type":"Multikey","type":"Multikey"`, 1), "did:web document"},
		{"trailing bytes", doc(agent) + "{}", "did:web document"},
		{"array", "[]", "not a JSON object"},
		{"html", "<html>", "did:web document"},
		{"empty", "", "did:web document"},
		{"too long", doc(agent) + strings.Repeat(" ", MaxDocument), "longer than"},
	} {
		got, err := ParseDocument(testOrigin, []byte(tt.body))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v; want an error with %q", tt.name, got, err, tt.want)
		}
	}
	if _, err := ParseDocument("https://example.com:8443/", []byte(doc(agent))); err == nil {
		t.Error("an origin that is not normal was taken")
	}
}

func FuzzParseMultikey(f *testing.F) {
	f.Add(Multikey(FromSeed(testSeed(), 1).Public(Agent)))
	f.Add("z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2")
	f.Add("z")
	f.Add(strings.Repeat("z", multikeyLength))
	f.Fuzz(func(t *testing.T, s string) {
		pub, err := ParseMultikey(s)
		if err == nil && (len(pub) != ed25519.PublicKeySize || Multikey(pub) != s) {
			t.Fatalf("%q gives %x", s, pub)
		}
	})
}

func FuzzParseDocument(f *testing.F) {
	r := FromSeed(testSeed(), 1)
	body, err := RenderDocument(testOrigin, r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"id":"did:web:example.com%3A8443","verificationMethod":[]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, err := ParseDocument(testOrigin, body)
		if err != nil {
			if doc != nil {
				t.Fatal("a document beside an error")
			}
			return
		}
		for i, k := range []ed25519.PublicKey{doc.Agent, doc.Log, doc.Cosigner} {
			if k == nil && i > 0 {
				continue
			}
			if again, err := ParseMultikey(Multikey(k)); err != nil || !again.Equal(k) {
				t.Fatalf("key %x: %v", k, err)
			}
		}
	})
}
