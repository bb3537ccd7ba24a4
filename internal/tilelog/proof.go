package tilelog

import (
	"crypto/ed25519"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

const proofHeader = "c2sp.org/tlog-proof@v1"

// maxProof is the number of hashes that an inclusion proof can have.
const maxProof = 63

// Proof says that a log has an entry at an index, by a checkpoint and what leads
// up to its root (C2SP tlog-proof).
type Proof struct {
	Index      uint64
	Hashes     [][]byte
	Checkpoint []byte // the signed note
}

// Text is the content of a .tlog-proof file.
func (p Proof) Text() []byte {
	var b strings.Builder
	b.WriteString(proofHeader + "\nindex " + strconv.FormatUint(p.Index, 10) + "\n")
	for _, h := range p.Hashes {
		b.WriteString(base64.StdEncoding.EncodeToString(h) + "\n")
	}
	b.WriteString("\n")
	b.Write(p.Checkpoint)
	return []byte(b.String())
}

// ParseProof reads a .tlog-proof file. What stands in an extra line is dropped:
// nothing vouches for it.
func ParseProof(text []byte) (p Proof, err error) {
	if len(text) > MaxCheckpoint+(maxProof+4)*64+MaxEntry {
		return p, malformed("a proof of %d bytes", len(text))
	}
	head, checkpoint, ok := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	if !ok || lines[0] != proofHeader {
		return p, malformed("a proof begins with %q", proofHeader)
	}
	lines = lines[1:]
	if len(lines) > 0 {
		if extra, ok := strings.CutPrefix(lines[0], "extra "); ok {
			if _, err := base64.StdEncoding.Strict().DecodeString(extra); err != nil {
				return p, malformed("the extra line")
			}
			lines = lines[1:]
		}
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") || len(lines) > maxProof+1 {
		return p, malformed("a proof has an index line and at most %d hashes", maxProof)
	}
	if p.Index, err = number(strings.TrimPrefix(lines[0], "index ")); err != nil {
		return Proof{}, err
	}
	for _, line := range lines[1:] {
		h, err := hash(line)
		if err != nil {
			return Proof{}, err
		}
		p.Hashes = append(p.Hashes, h[:])
	}
	p.Checkpoint = []byte(checkpoint)
	if _, err := PeekCheckpoint(p.Checkpoint); err != nil {
		return Proof{}, err
	}
	return p, nil
}

// Verify checks the signature of one of keys on the checkpoint, and that the
// entry is in the tree.
func (p Proof) Verify(entry []byte, keys ...ed25519.PublicKey) (Checkpoint, error) {
	c, err := OpenCheckpoint(p.Checkpoint, keys...)
	if err != nil {
		return c, err
	}
	leaf := rfc6962.DefaultHasher.HashLeaf(entry)
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, p.Index, c.Size, leaf, p.Hashes, c.Root[:]); err != nil {
		return Checkpoint{}, malformed("the entry is not proven: %v", err)
	}
	return c, nil
}
