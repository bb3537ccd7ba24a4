package adp

import (
	"errors"
	"fmt"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// The two codecs of the CIDs that this protocol uses.
const (
	CodecJSON uint64 = 0x0200 // json: the bytes are JCS(records)
	CodecRaw  uint64 = 0x55   // raw: the bytes are archive.jsonl
)

// NewCID is the text of a CIDv1 with a sha3-256 multihash, base32.
func NewCID(codec uint64, digest [32]byte) string {
	mh, err := multihash.Encode(digest[:], multihash.SHA3_256)
	if err != nil {
		panic("adp: multihash: " + err.Error()) // 32 bytes are always encodable
	}
	return cid.NewCidV1(codec, mh).String()
}

// ParseCID reads a CID of one of the two tuples in use (CIDv1, json or raw,
// sha3-256, base32) and refuses every other text.
func ParseCID(s string) (codec uint64, digest [32]byte, err error) {
	if len(s) > 100 {
		return 0, digest, errors.New("not a CID: too long")
	}
	c, err := cid.Decode(s)
	if err != nil {
		return 0, digest, fmt.Errorf("not a CID: %w", err)
	}
	p := c.Prefix()
	if p.Version != 1 || p.Codec != CodecJSON && p.Codec != CodecRaw || p.MhType != multihash.SHA3_256 || p.MhLength != 32 || c.String() != s {
		return 0, digest, errors.New("only CIDv1, json or raw, sha3-256, base32 are in use here")
	}
	mh, err := multihash.Decode(c.Hash())
	if err != nil {
		return 0, digest, fmt.Errorf("not a CID: %w", err)
	}
	copy(digest[:], mh.Digest)
	return p.Codec, digest, nil
}
