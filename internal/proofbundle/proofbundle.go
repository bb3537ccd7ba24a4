// Package proofbundle writes and reads .witan files: everything that somebody
// needs to check the archive of one room without a network.
//
// Such a file is a ustar archive of a fixed form (docs/witness.md): first
// manifest.json, which names each part with its size and SHA-256 and says what was
// left out and why; then the parts in the order of Names, archive.jsonl at the
// end, so that a reader knows everything else before the records stream by. There
// is one sequence of bytes for the same content, and nothing else is read.
//
// The digests find damage; they prove nothing, since who changes a part can change
// them as well. What the parts say is not judged here. The package has no network
// and no clock, and holds nothing but the manifest in memory.
package proofbundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/witan-adp/witan/adp"
)

// Format is the first thing that a manifest says.
const Format = "witan-proof-bundle/1"

// The parts, in their order.
const (
	Document     = "did.json"             // the did:web document of the origin as the exporter saw it
	Statement    = "statement.json"       // JCS(envelope), type archive.announce
	LogProof     = "statement.tlog-proof" // C2SP tlog-proof of the statement in the log of the origin
	Attestations = "attestations.jsonl"   // JCS(envelope), type archive.attest, one a line
	// that attestations stand in the logs of their witnesses: JCS({hash, proof, vkey}), one a line
	AttestationProofs = "attestation-proofs.jsonl"

	Evidence = "evidence.jsonl" // proofs of contradictions, one a line
	Archive  = "archive.jsonl"  // the bundle of the room, never left out
)

const manifestName = "manifest.json"

// limits of the parts, in bytes. A ustar header has room for 8 GiB less one.
var limits = []struct {
	name string
	max  int64
}{{Document, 64 << 10}, {Statement, 64 << 10}, {LogProof, 128 << 10}, {Attestations, 16 << 20}, {AttestationProofs, 16 << 20}, {Evidence, 16 << 20}, {Archive, 1<<33 - 1}}

const maxManifest = 64 << 10

// Names lists the parts in their order.
func Names() (names []string) {
	for _, l := range limits {
		names = append(names, l.name)
	}
	return names
}

// Limit is the greatest size of a part; -1 for a name that is none.
func Limit(name string) int64 {
	for _, l := range limits {
		if l.name == name {
			return l.max
		}
	}
	return -1
}

// ErrFormat: the bytes are not a file of this form.
var ErrFormat = errors.New("not a proof bundle")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

// Part is a part of a file.
type Part struct {
	Name   string
	Size   int64
	SHA256 [32]byte
}

// Omission is a part that the file does not have.
type Omission struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Manifest says what a file is about and what it holds. Each of Names stands in
// Parts or in LeftOut, in order.
type Manifest struct {
	Origin, RoomID, Genesis string
	Source                  string // URL of the room, where it was fetched
	ExportedAt              int64  // Unix ms
	Parts                   []Part
	LeftOut                 []Omission
}

func (m Manifest) json() ([]byte, error) {
	type part struct {
		Name   string `json:"name"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	parts := []part{}
	for _, p := range m.Parts {
		parts = append(parts, part{p.Name, p.Size, hex.EncodeToString(p.SHA256[:])})
	}
	left := m.LeftOut
	if left == nil {
		left = []Omission{}
	}
	v, err := adp.EncodeValue(map[string]any{"format": Format, "origin": m.Origin, "room_id": m.RoomID, "genesis": m.Genesis, "source": m.Source,
		"exported_at": m.ExportedAt, "parts": parts, "left_out": left})
	return v.Raw(), err
}

func (m Manifest) check() error {
	i, j := 0, 0
	for _, l := range limits {
		switch {
		case i < len(m.Parts) && m.Parts[i].Name == l.name:
			if n := m.Parts[i].Size; n < 0 || n > l.max {
				return malformed("%s has %d bytes; %d is the limit", l.name, n, l.max)
			}
			i++
		case j < len(m.LeftOut) && m.LeftOut[j].Name == l.name && l.name != Archive:
			j++
		default:
			return malformed("the manifest has to say of %s, in its place, what it is or why it was left out", l.name)
		}
	}
	if i != len(m.Parts) || j != len(m.LeftOut) {
		return malformed("the manifest names parts that it does not have")
	}
	if !adp.IsRoomID(m.RoomID) || !adp.IsHash(m.Genesis) || m.Origin == "" || m.ExportedAt < 0 {
		return malformed("the manifest needs an origin, a room_id, the genesis of the room and exported_at")
	}
	return nil
}

// parseManifest takes the one text that json gives a manifest.
func parseManifest(text []byte) (m Manifest, err error) {
	v, err := adp.Scan(text)
	if err != nil {
		return m, malformed("the manifest is %w", err)
	}
	if !v.Get("format").Is(Format) {
		return m, malformed("its format is %.60q, and not %s", v.Get("format").Raw(), Format)
	}
	m = Manifest{Origin: v.Get("origin").Text(), RoomID: v.Get("room_id").Text(), Genesis: v.Get("genesis").Text(), Source: v.Get("source").Text()}
	m.ExportedAt, _ = v.Get("exported_at").Int()
	for p := range v.Get("parts").Elements() {
		part := Part{Name: p.Get("name").Text()}
		part.Size, _ = p.Get("size").Int()
		sum, err := hex.DecodeString(p.Get("sha256").Text())
		if err != nil || len(sum) != 32 {
			return m, malformed("the sha256 of %.60q", part.Name)
		}
		copy(part.SHA256[:], sum)
		m.Parts = append(m.Parts, part)
	}
	for o := range v.Get("left_out").Elements() {
		m.LeftOut = append(m.LeftOut, Omission{o.Get("name").Text(), o.Get("reason").Text()})
	}
	if again, err := m.json(); err != nil || !bytes.Equal(again, text) { // no member is missing, extra or of another kind
		return m, malformed("the manifest is not in its one form")
	}
	return m, m.check()
}

// Write makes a file. open gives the bytes of each part of the manifest, in order;
// they must be what the manifest says.
func Write(w io.Writer, m Manifest, open func(name string) (io.Reader, error)) error {
	if err := m.check(); err != nil {
		return err
	}
	text, err := m.json()
	if err != nil {
		return err
	}
	if len(text) > maxManifest {
		return malformed("the manifest has %d bytes; %d is the limit", len(text), maxManifest)
	}
	if err := writeMember(w, manifestName, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	for _, p := range m.Parts {
		r, err := open(p.Name)
		if err != nil {
			return err
		}
		h := sha256.New()
		if err := writeMember(w, p.Name, p.Size, io.TeeReader(io.LimitReader(r, p.Size+1), h)); err != nil {
			return err
		}
		if [32]byte(h.Sum(nil)) != p.SHA256 {
			return fmt.Errorf("%s is not what its manifest says", p.Name)
		}
	}
	_, err = w.Write(make([]byte, 2*block))
	return err
}

func writeMember(w io.Writer, name string, size int64, r io.Reader) error {
	h := header(name, size)
	if _, err := w.Write(h[:]); err != nil {
		return err
	}
	n, err := io.Copy(w, r)
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("%s has not the size that its manifest says", name)
	}
	_, err = w.Write(make([]byte, padding(size)))
	return err
}

// Reader reads a file from its beginning to its end.
type Reader struct {
	Manifest Manifest

	r       io.Reader
	next    int
	body    *body // of the part that was given last
	damaged []string
}

// body is the part that is being read.
type body struct {
	r    io.LimitedReader
	h    hash.Hash
	part Part
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.h.Write(p[:n])
	if err == io.EOF && b.r.N > 0 {
		err = cut(err)
	}
	return n, err
}

// NewReader reads the manifest.
func NewReader(r io.Reader) (*Reader, error) {
	size, err := readHeader(r, manifestName)
	if err != nil {
		return nil, err
	}
	if size > maxManifest {
		return nil, malformed("the manifest has %d bytes; %d is the limit", size, maxManifest)
	}
	text := make([]byte, size)
	if err := readFull(r, text); err != nil {
		return nil, err
	}
	if err := skipPadding(r, size); err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	return &Reader{Manifest: m, r: r}, err
}

// Next gives the next part; what was not read of the one before is read first.
// io.EOF says that the file was well formed up to its end.
func (r *Reader) Next() (Part, io.Reader, error) {
	if b := r.body; b != nil {
		if _, err := io.Copy(io.Discard, b); err != nil {
			return Part{}, nil, err
		}
		if err := skipPadding(r.r, b.part.Size); err != nil {
			return Part{}, nil, err
		}
		if [32]byte(b.h.Sum(nil)) != b.part.SHA256 {
			r.damaged = append(r.damaged, b.part.Name)
		}
		r.body = nil
	}
	if r.next == len(r.Manifest.Parts) {
		return Part{}, nil, r.end()
	}
	p := r.Manifest.Parts[r.next]
	size, err := readHeader(r.r, p.Name)
	if err != nil {
		return Part{}, nil, err
	}
	if size != p.Size {
		return Part{}, nil, malformed("%s has %d bytes, its manifest says %d", p.Name, size, p.Size)
	}
	r.next++
	r.body = &body{io.LimitedReader{R: r.r, N: size}, sha256.New(), p}
	return p, r.body, nil
}

func (r *Reader) end() error {
	var tail [2*block + 1]byte
	n, err := io.ReadFull(r.r, tail[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	if n != 2*block || slices.ContainsFunc(tail[:n], func(b byte) bool { return b != 0 }) {
		return malformed("it ends with two blocks of zeros, and nothing stands behind them")
	}
	return io.EOF
}

// Damaged names the parts, among those that were read to their end, whose bytes
// are not of the digest in the manifest.
func (r *Reader) Damaged() []string { return r.damaged }
