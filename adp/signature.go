package adp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"
	"github.com/oasisprotocol/curve25519-voi/primitives/ed25519/extra/cache"
)

// smallOrder holds the encodings, sign bit cleared, of the points whose order
// divides eight (Identity, Signature verification, rule 2).
var smallOrder = func() (out [5][32]byte) {
	for i, h := range []string{
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	} {
		b, err := hex.DecodeString(h)
		if err != nil {
			panic(err)
		}
		copy(out[i][:], b)
	}
	return out
}()

// checkPoint refuses what two verifiers could judge differently: an encoding
// with y >= 2^255-19, and a point of small order (Identity, rules 1 and 2).
func checkPoint(p []byte) bool {
	var c [32]byte
	copy(c[:], p)
	c[31] &= 0x7f
	if c[31] == 0x7f && c[0] >= 0xed {
		all := true
		for _, b := range c[1:31] {
			if b != 0xff {
				all = false
				break
			}
		}
		if all {
			return false
		}
	}
	for i := range smallOrder {
		if bytes.Equal(c[:], smallOrder[i][:]) {
			return false
		}
	}
	return true
}

// CheckPublicKey refuses keys that are not 32 bytes, not canonical, or of
// small order, with invalid_actor. Whether the bytes lie on the curve is only
// known when a signature is verified.
func CheckPublicKey(pub []byte) error {
	if len(pub) != ed25519.PublicKeySize || !checkPoint(pub) {
		return Errorf(InvalidActor, "the public key is not a canonical Ed25519 point of large order")
	}
	return nil
}

// equation asks for what crypto/ed25519 computes: S < L, and R byte for byte
// what the equation without the cofactor gives. This library does it in less
// time; the tests hold the two against each other, also where implementations
// are known to differ. The points are judged before, by checkPoint.
var equation = &voi.Options{Verify: voi.VerifyOptionsStdLib}

// expandedKeys keeps what is computed of a key alone, for the keys used last: a
// room has few authors. Some 2 KiB a key.
var expandedKeys = cache.NewVerifier(cache.NewLRUCache(1024))

// VerifySignature is the one verdict of Identity, "Signature verification":
// canonical A and R, no small order, S < L, the cofactorless equation.
func VerifySignature(pub, message, sig []byte) error {
	if err := CheckPublicKey(pub); err != nil {
		return err
	}
	if len(sig) != ed25519.SignatureSize || !checkPoint(sig[:32]) || !expandedKeys.VerifyWithOptions(pub, message, sig, equation) {
		return Errorf(InvalidSignature, "the signature does not verify: sign the 32 raw bytes of the event hash with the key of event.actor")
	}
	return nil
}
