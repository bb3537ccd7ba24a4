package adp

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/oasisprotocol/curve25519-voi/curve"
	"github.com/oasisprotocol/curve25519-voi/curve/scalar"
)

// sameVerdict holds VerifySignature against crypto/ed25519 and the rules that
// come before it, and returns their verdict.
func sameVerdict(t testing.TB, pub, message, sig []byte) bool {
	t.Helper()
	want := len(pub) == ed25519.PublicKeySize && checkPoint(pub) && len(sig) == ed25519.SignatureSize && checkPoint(sig[:32]) &&
		ed25519.Verify(pub, message, sig)
	if got := VerifySignature(pub, message, sig) == nil; got != want {
		t.Fatalf("key %x, message %x, signature %x: accepted is %v, crypto/ed25519 says %v", pub, message, sig, got, want)
	}
	return want
}

// torsion are the eight points that the cofactor removes, the identity first.
func torsion(t testing.TB) (out [8]curve.EdwardsPoint) {
	var generator curve.EdwardsPoint
	if _, err := generator.SetCompressedY((*curve.CompressedEdwardsY)(&smallOrder[3])); err != nil {
		t.Fatal(err)
	}
	out[0].Identity()
	for i := 1; i < 8; i++ {
		out[i].Add(&out[i-1], &generator)
	}
	if !out[7].Add(&out[7], &generator).IsIdentity() {
		t.Fatal("the point is not of order eight")
	}
	out[7].Sub(&out[7], &generator)
	return out
}

// mixed makes a key a·B + at and a signature of it whose R is r·B + rt. The
// equation without the cofactor holds when rt is -k·at, k being the hash.
func mixed(t testing.TB, rng *rand.ChaCha8, at, rt *curve.EdwardsPoint, message []byte) (pub, sig []byte) {
	var a, r, k, s scalar.Scalar
	for _, x := range []*scalar.Scalar{&a, &r} {
		if _, err := x.SetRandom(rng); err != nil {
			t.Fatal(err)
		}
	}
	encode := func(x *scalar.Scalar, t *curve.EdwardsPoint) []byte {
		var p curve.EdwardsPoint
		p.Add(p.MulBasepoint(curve.ED25519_BASEPOINT_TABLE, x), t)
		var c curve.CompressedEdwardsY
		c.SetEdwardsPoint(&p)
		return c[:]
	}
	pub, sig = encode(&a, at), encode(&r, rt)
	h := sha512.New()
	h.Write(sig)
	h.Write(pub)
	h.Write(message)
	if _, err := k.SetBytesModOrderWide(h.Sum(nil)); err != nil {
		t.Fatal(err)
	}
	s.Add(&r, s.Mul(&k, &a))
	sig = append(sig, make([]byte, 32)...)
	if err := s.ToBytes(sig[32:]); err != nil {
		t.Fatal(err)
	}
	return pub, sig
}

// Keys and signatures with a part of small order are where implementations part
// company: all must give the one verdict of the equation without the cofactor.
func TestPartsOfSmallOrder(t *testing.T) {
	points := torsion(t)
	rng := rand.NewChaCha8([32]byte{1})
	var accepted, refused int
	for range 8 {
		for i := range points {
			for j := range points {
				message := binary.LittleEndian.AppendUint64(nil, rng.Uint64())
				pub, sig := mixed(t, rng, &points[i], &points[j], message)
				good := sameVerdict(t, pub, message, sig)
				switch {
				case i == 0 && good != (j == 0):
					t.Fatalf("a key of prime order, R with part %d: accepted is %v", j, good)
				case i > 0 && good:
					accepted++
				case i > 0:
					refused++
				}
			}
		}
	}
	if accepted == 0 || refused == 0 {
		t.Errorf("of keys with a part of small order %d signatures were accepted and %d refused: both must occur", accepted, refused)
	}
}

// FuzzSignature changes the parts of good signatures, of keys with and without
// a part of small order, and of what is no key at all.
func FuzzSignature(f *testing.F) {
	points := torsion(f)
	f.Add(uint64(1), uint8(0), uint8(0), uint16(0), []byte("message"))
	f.Add(uint64(2), uint8(1), uint8(7), uint16(0), []byte{})
	f.Add(uint64(3), uint8(0), uint8(0), uint16(512), make([]byte, 32))
	f.Add(uint64(4), uint8(0), uint8(0), uint16(300), make([]byte, 32))
	f.Add(uint64(5), uint8(4), uint8(4), uint16(760), make([]byte, 200))
	f.Fuzz(func(t *testing.T, seed uint64, i, j uint8, flip uint16, message []byte) {
		var from [32]byte
		binary.LittleEndian.PutUint64(from[:], seed)
		pub, sig := mixed(t, rand.NewChaCha8(from), &points[i%8], &points[j%8], message)
		sameVerdict(t, pub, message, sig)
		for _, part := range [][]byte{pub, sig} {
			at := int(flip) % (len(part) * 8)
			part[at/8] ^= 1 << (at % 8)
			sameVerdict(t, pub, message, sig)
		}
		sameVerdict(t, sig[:32], message, append(pub, sig[32:]...)) // any bytes as key and as R
		if len(message) >= 96 {
			sameVerdict(t, message[:32], message[32:], message[32:96])
		}
	})
}
