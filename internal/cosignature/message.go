package cosignature

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// Paths under the prefix of a witness, and the type of the answer that tells a size
// (tlog-witness, "HTTP Interface").
const (
	AddCheckpoint = "/add-checkpoint"
	SizeType      = "text/x.tlog.size"
)

// MaxProof is the number of hashes that a consistency proof can have.
const MaxProof = 63

// MaxRequest bounds the body of an add-checkpoint request, in bytes.
const MaxRequest = MaxNote + 4<<10

// OriginHash names a log in the path of the monitoring call: the hex SHA-256 of its
// origin line.
func OriginHash(origin string) string {
	h := sha256.Sum256([]byte(origin))
	return hex.EncodeToString(h[:])
}

// MonitorPath is the path under the prefix of a witness where it shows the last
// checkpoint of a log that it cosigned.
func MonitorPath(origin string) string { return "/" + OriginHash(origin) + "/checkpoint" }

// Request is the body of an add-checkpoint request.
type Request struct {
	Old        uint64 // size of the checkpoint that the witness is thought to have cosigned last
	Proof      [][]byte
	Checkpoint Checkpoint // the text of Note
	Note       []byte     // the signed checkpoint
}

// ParseRequest reads the body of an add-checkpoint request: "old <size>", the hashes
// of the proof, an empty line, the signed checkpoint. No signature is looked at.
func ParseRequest(body []byte) (r Request, err error) {
	head, signed, ok := strings.Cut(string(body), "\n\n")
	if !ok || len(body) > MaxRequest {
		return r, malformed("a request has an empty line before its checkpoint, and at most %d bytes", MaxRequest)
	}
	lines := strings.Split(head, "\n")
	size, ok := strings.CutPrefix(lines[0], "old ")
	if !ok {
		return r, malformed("a request begins with \"old <size>\"")
	}
	if r.Old, err = number(size); err != nil {
		return Request{}, err
	}
	if len(lines)-1 > MaxProof {
		return Request{}, malformed("a proof of %d hashes; %d is the limit", len(lines)-1, MaxProof)
	}
	for _, line := range lines[1:] {
		h, err := hash(line)
		if err != nil {
			return Request{}, err
		}
		r.Proof = append(r.Proof, h[:])
	}
	r.Note = []byte(signed)
	if r.Checkpoint, _, err = Open(r.Note); err != nil && !errors.Is(err, ErrSignature) {
		return Request{}, err
	}
	if r.Old > r.Checkpoint.Size {
		return Request{}, malformed("the old size %d is above the size %d of the checkpoint", r.Old, r.Checkpoint.Size)
	}
	return r, nil
}

// Text is the body of the request. Checkpoint is not used: it is in Note.
func (r Request) Text() []byte {
	var b strings.Builder
	b.WriteString("old " + strconv.FormatUint(r.Old, 10) + "\n")
	for _, h := range r.Proof {
		b.WriteString(base64.StdEncoding.EncodeToString(h) + "\n")
	}
	b.WriteString("\n")
	b.Write(r.Note)
	return []byte(b.String())
}

// SizeText is the body of an answer that tells the size of the checkpoint that was
// cosigned last.
func SizeText(size uint64) []byte { return append(strconv.AppendUint(nil, size, 10), '\n') }

// ParseSize reads what SizeText writes.
func ParseSize(body []byte) (uint64, error) {
	text, ok := strings.CutSuffix(string(body), "\n")
	if !ok {
		return 0, malformed("the size %.40q", body)
	}
	return number(text)
}
