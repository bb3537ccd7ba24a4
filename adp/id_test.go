package adp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"testing"
)

type identityFile struct {
	SeedHex    string `json:"seed_hex"`
	AgentID    string `json:"agent_id"`
	Event      json.RawMessage
	Hash       string
	Signature  string
	Signatures []struct {
		Why, Message, Signature string
		PublicKey               string `json:"public_key"`
		Code                    Code
	}
	AgentIDs []struct {
		ID   string
		Code Code
	} `json:"agent_ids"`
}

func mustDecode(t testing.TB, s string) []byte {
	t.Helper()
	b, err := Decode(s)
	if err != nil {
		t.Fatalf("decode %q: %v", s, err)
	}
	return b
}

func TestIdentityKnownAnswers(t *testing.T) {
	var g identityFile
	golden(t, "identity.json", &g)
	seed, err := hex.DecodeString(g.SeedHex)
	if err != nil {
		t.Fatal(err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	pub := key.Public().(ed25519.PublicKey)
	if id := NewAgentID(pub); string(id) != g.AgentID {
		t.Errorf("Agent ID %s, want %s", id, g.AgentID)
	}
	if got, err := AgentID(g.AgentID).PublicKey(); err != nil || !bytes.Equal(got, pub) {
		t.Errorf("public key %x, %v", got, err)
	}
	var d Draft
	if err := json.Unmarshal(g.Event, &d); err != nil {
		t.Fatal(err)
	}
	e := mustSign(t, key, d)
	if e.Hash != g.Hash || e.Signature != g.Signature {
		t.Errorf("hash %s, signature %s", e.Hash, e.Signature)
	}
	// the same from the text as it stands in the file, white space and all
	text := fmt.Sprintf(`{"signature":%q,"event":%s,"hash":%q}`, g.Signature, g.Event, g.Hash)
	e, err = ParseEnvelope(mustScan(t, text))
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"shape": e.CheckShape(), "hash": e.CheckHash(), "signature": e.CheckSignature()} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := VerifySignature(pub, mustDecode(t, g.Hash), mustDecode(t, g.Signature)); err != nil {
		t.Error(err)
	}
	for _, s := range g.Signatures {
		if err := VerifySignature(mustDecode(t, s.PublicKey), mustDecode(t, s.Message), mustDecode(t, s.Signature)); CodeOf(err) != s.Code {
			t.Errorf("%s: %v, want %s", s.Why, err, s.Code)
		}
	}
	for _, a := range g.AgentIDs {
		id, err := ParseAgentID(a.ID)
		if CodeOf(err) != a.Code || err == nil && string(id) != a.ID {
			t.Errorf("%q: %q, %v, want %q", a.ID, id, err, a.Code)
		}
		if IsAgentID(a.ID) != (a.Code == "") {
			t.Errorf("%q: IsAgentID disagrees with ParseAgentID", a.ID)
		}
		if pub, err := AgentID(a.ID).PublicKey(); CodeOf(err) != a.Code || (err == nil) != (len(pub) == 32) {
			t.Errorf("%q: public key %x, %v", a.ID, pub, err)
		}
	}
}

func TestDecodeAgainstStdlib(t *testing.T) {
	for n := range 70 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*37 + n)
		}
		s := Encode(b)
		if got, err := Decode(s); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes: %x, %v", n, got, err)
		}
		// every other last character, and every other byte at a few places
		for _, at := range []int{0, len(s) / 2, len(s) - 1} {
			for c := range 256 {
				if at < 0 || at >= len(s) {
					continue
				}
				x := s[:at] + string([]byte{byte(c)}) + s[at+1:]
				got, err := Decode(x)
				want, wantErr := base64.RawURLEncoding.Strict().DecodeString(x)
				if c == '\r' || c == '\n' {
					if err == nil {
						t.Fatalf("%q: a line end was accepted", x)
					}
					continue
				}
				if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
					t.Fatalf("%q: %x, %v; the standard library says %x, %v", x, got, err, want, wantErr)
				}
			}
		}
		for _, x := range []string{s + "=", s + "==", s + "\n", "\r" + s, s + " ", s + "A"[:min(1, n%3)] + "\n"} {
			if _, err := Decode(x); CodeOf(err) != InvalidEvent {
				t.Fatalf("%q was accepted: %v", x, err)
			}
		}
	}
	for _, x := range []string{"A", "AAAAA", "AB", "AAB", "A+", "A/"} {
		if _, err := Decode(x); err == nil {
			t.Errorf("%q was accepted", x)
		}
	}
}

func TestFixedLengths(t *testing.T) {
	hash, sig := Encode(bytes.Repeat([]byte{0xfb}, 32)), Encode(bytes.Repeat([]byte{0xfb}, 64))
	if len(hash) != HashLen || len(sig) != SignatureLen || !IsHash(hash) || IsHash(sig) {
		t.Fatal("lengths")
	}
	if h, err := DecodeHash(hash); err != nil || h[31] != 0xfb {
		t.Error(err)
	}
	if s, err := DecodeSignature(sig); err != nil || s[63] != 0xfb {
		t.Error(err)
	}
	for _, bad := range []string{"", hash[1:], hash + "A", hash[:42] + "=", hash[:42] + "t", hash[:42] + "\n", "\n" + hash[1:], hash[:20] + "." + hash[21:], sig} {
		if h, err := DecodeHash(bad); err == nil || h != [32]byte{} || IsHash(bad) {
			t.Errorf("hash %q was accepted", bad)
		}
	}
	for _, bad := range []string{"", sig[1:], sig + "A", sig[:85] + "=", sig[:85] + "x", "\r" + sig[1:], hash} {
		if s, err := DecodeSignature(bad); err == nil || s != [64]byte{} {
			t.Errorf("signature %q was accepted", bad)
		}
	}
}

var (
	fieldPrime = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	groupOrder = func() *big.Int {
		n, _ := new(big.Int).SetString("27742317777372353535851937790883648493", 10)
		return n.Add(n, new(big.Int).Lsh(big.NewInt(1), 252))
	}()
)

func littleEndian(n *big.Int) []byte {
	b := n.FillBytes(make([]byte, 32))
	for i, j := 0, 31; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return b
}

// refusedPoints is every encoding that rules 1 and 2 refuse: y of a point of
// small order or y >= p, each with both sign bits.
func refusedPoints(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	add := func(name string, b []byte) {
		for _, sign := range []byte{0, 0x80} {
			c := bytes.Clone(b)
			c[31] |= sign
			out[fmt.Sprintf("%s, sign %d", name, sign>>7)] = c
		}
	}
	add("y = 1", littleEndian(big.NewInt(1)))
	add("y = 0", littleEndian(big.NewInt(0)))
	add("y = -1", littleEndian(new(big.Int).Sub(fieldPrime, big.NewInt(1))))
	for _, h := range []string{"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"} {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		add("order 8, y = "+h[:6], b)
	}
	for i := int64(0); i < 19; i++ {
		add(fmt.Sprintf("y = p+%d", i), littleEndian(new(big.Int).Add(fieldPrime, big.NewInt(i))))
	}
	return out
}

func TestRefusedPoints(t *testing.T) {
	key := seedKey(7)
	pub := key.Public().(ed25519.PublicKey)
	message := bytes.Repeat([]byte{9}, 32)
	good := ed25519.Sign(key, message)
	points := refusedPoints(t)
	if len(points) != 2*(5+19) {
		t.Fatalf("%d points", len(points))
	}
	for name, p := range points {
		if err := CheckPublicKey(p); CodeOf(err) != InvalidActor {
			t.Errorf("%s as a key: %v", name, err)
		}
		if err := VerifySignature(p, message, good); CodeOf(err) != InvalidActor {
			t.Errorf("%s as a key: %v", name, err)
		}
		// what crypto/ed25519 takes for A = R of small order and S = 0
		forged := append(bytes.Clone(p), make([]byte, 32)...)
		if err := VerifySignature(p, message, forged); CodeOf(err) != InvalidActor {
			t.Errorf("%s as key and R: %v", name, err)
		}
		if err := VerifySignature(pub, message, append(bytes.Clone(p), good[32:]...)); CodeOf(err) != InvalidSignature {
			t.Errorf("%s as R: %v", name, err)
		}
	}
	// the neighbours of the refused ranges are not refused as encodings
	for _, n := range []*big.Int{big.NewInt(2), big.NewInt(18), new(big.Int).Sub(fieldPrime, big.NewInt(2)), new(big.Int).Lsh(big.NewInt(1), 254)} {
		if err := CheckPublicKey(littleEndian(n)); err != nil {
			t.Errorf("y = %x: %v", n, err)
		}
	}
	for _, n := range []int{0, 1, 31, 33, 64} {
		if err := VerifySignature(make([]byte, n), message, good); CodeOf(err) != InvalidActor {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
}

// TestSmallOrderAcceptedByTheEquation: with the identity as key and R, and
// S = 0, the equation holds for every message; rule 2 is what refuses it.
func TestSmallOrderAcceptedByTheEquation(t *testing.T) {
	identity := littleEndian(big.NewInt(1))
	message := bytes.Repeat([]byte{9}, 32)
	forged := append(bytes.Clone(identity), make([]byte, 32)...)
	if !ed25519.Verify(identity, message, forged) {
		t.Fatal("crypto/ed25519 refuses this by itself now; the rule needs another witness")
	}
	if err := VerifySignature(identity, message, forged); err == nil {
		t.Fatal("a signature that anybody can make was accepted")
	}
}

func TestScalarMustBeReduced(t *testing.T) {
	key := seedKey(7)
	pub := key.Public().(ed25519.PublicKey)
	message := bytes.Repeat([]byte{9}, 32)
	good := ed25519.Sign(key, message)
	if err := VerifySignature(pub, message, good); err != nil {
		t.Fatal(err)
	}
	le := bytes.Clone(good[32:])
	for i, j := 0, 31; i < j; i, j = i+1, j-1 {
		le[i], le[j] = le[j], le[i]
	}
	s := new(big.Int).SetBytes(le)
	for k := int64(1); ; k++ {
		x := new(big.Int).Add(s, new(big.Int).Mul(groupOrder, big.NewInt(k)))
		if x.BitLen() > 256 {
			break
		}
		if err := VerifySignature(pub, message, append(bytes.Clone(good[:32]), littleEndian(x)...)); CodeOf(err) != InvalidSignature {
			t.Errorf("S + %d·L: %v", k, err)
		}
	}
	for bit := range 512 {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if err := VerifySignature(pub, message, bad); CodeOf(err) != InvalidSignature {
			t.Errorf("bit %d of the signature: %v", bit, err)
		}
	}
	for bit := range 256 {
		bad := bytes.Clone(message)
		bad[bit/8] ^= 1 << (bit % 8)
		if err := VerifySignature(pub, bad, good); CodeOf(err) != InvalidSignature {
			t.Errorf("bit %d of the message: %v", bit, err)
		}
		bad = bytes.Clone(pub)
		bad[bit/8] ^= 1 << (bit % 8)
		if VerifySignature(bad, message, good) == nil {
			t.Errorf("bit %d of the key", bit)
		}
	}
	for _, n := range []int{0, 63, 65} {
		if err := VerifySignature(pub, message, make([]byte, n)); CodeOf(err) != InvalidSignature {
			t.Errorf("a signature of %d bytes: %v", n, err)
		}
	}
}

func TestErrors(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", Errorf(RoomEnded, "the room ended at %d", 5).With("at", 5))
	if CodeOf(err) != RoomEnded || CodeOf(nil) != "" || CodeOf(fmt.Errorf("x")) != "" {
		t.Error("CodeOf")
	}
	e := Errorf(RoomEnded, "a")
	if !e.Is(&Error{Code: RoomEnded}) || !e.Is(Errorf(RoomEnded, "a")) || e.Is(Errorf(RoomEnded, "b")) || e.Is(&Error{Code: Internal}) || e.Is(fmt.Errorf("x")) {
		t.Error("Is")
	}
	if e.Error() != "room_ended: a" || e.With("x", 1).With("y", 2) != e || len(e.Data) != 2 {
		t.Error("With")
	}
	// one refusal does not carry the data of another
	_, one := Decode("=")
	_, two := Decode("=")
	one.(*Error).With("mine", true)
	if two.(*Error).Data != nil {
		t.Error("two refusals share their data")
	}
}
