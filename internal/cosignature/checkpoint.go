package cosignature

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"
)

// MaxNote bounds a signed checkpoint, in bytes: 16 signatures, which everybody must
// take, of up to 5 KiB each (signed-note, "Format").
const MaxNote = 96 << 10

// Checkpoint is the text of a checkpoint (C2SP tlog-checkpoint).
type Checkpoint struct {
	Origin    string // names the log
	Size      uint64 // at most 2^63 - 1
	Root      [32]byte
	Extension string // lines that only the log vouches for, each with its line feed
}

// ParseCheckpoint reads the text of a signed note.
func ParseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.SplitN(text, "\n", 4)
	if len(text) > MaxNote || len(lines) != 4 || !utf8.ValidString(text) {
		return c, malformed("a checkpoint has three lines at least: origin, size, root")
	}
	if c.Origin = lines[0]; c.Origin == "" || len(c.Origin) > maxName || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' }) {
		return Checkpoint{}, malformed("the origin line %.80q, or a control character", lines[0])
	}
	if c.Size, err = number(lines[1]); err != nil {
		return Checkpoint{}, err
	}
	if c.Root, err = hash(lines[2]); err != nil {
		return Checkpoint{}, err
	}
	c.Extension = lines[3]
	if c.Extension != "" && (c.Extension[0] == '\n' || !strings.HasSuffix(c.Extension, "\n") || strings.Contains(c.Extension, "\n\n")) {
		return Checkpoint{}, malformed("an extension line is not empty and ends with a line feed")
	}
	return c, nil
}

// Text is the text of the checkpoint, as it is signed.
func (c Checkpoint) Text() string {
	return c.Origin + "\n" + strconv.FormatUint(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n" + c.Extension
}

// Text is the text of a signed checkpoint, without its signatures; "" when it is not
// one. A note may have empty lines, a checkpoint may not: else what is read up to
// the first would not be what is signed up to the last.
func Text(signed []byte) string {
	text, sigs, ok := strings.Cut(string(signed), "\n\n")
	if !ok || strings.Contains("\n"+sigs, "\n\n") {
		return ""
	}
	return text + "\n"
}

// Open reads a signed checkpoint. sigs are the signature lines of the known keys,
// all of which hold; what others have signed is dropped. When none of the known keys
// has signed, or a signature under the name and the ID of one does not hold, the
// error is ErrSignature; when it is not a signed note at all, ErrFormat.
func Open(signed []byte, known ...*Verifier) (c Checkpoint, sigs []note.Signature, err error) {
	if len(signed) > MaxNote {
		return c, nil, malformed("a note of %d bytes; %d is the limit", len(signed), MaxNote)
	}
	if c, err = ParseCheckpoint(Text(signed)); err != nil {
		return Checkpoint{}, nil, err
	}
	list := make([]note.Verifier, 0, len(known))
	for _, v := range known {
		list = append(list, v)
	}
	n, err := note.Open(signed, note.VerifierList(list...))
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified), errors.As(err, &invalid):
		return c, nil, errors.Join(ErrSignature, err)
	case err != nil:
		return Checkpoint{}, nil, malformed("%v", err)
	}
	for _, s := range n.Sigs { // package note lets the last bits of the base64 be anything
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return Checkpoint{}, nil, malformed("the signature of %.80q: %v", s.Name, err)
		}
	}
	return c, n.Sigs, nil
}

// ErrSignature: no known key has signed a note, or one that is named in it has not.
var ErrSignature = errors.New("cosignature: not signed by a known key")

// Append makes one signed note of a text and its signature lines.
func Append(text string, lines ...string) []byte {
	return []byte(text + "\n" + strings.Join(lines, ""))
}

// Lines are the signature lines of what Open returns.
func Lines(sigs []note.Signature) (lines []string) {
	for _, s := range sigs {
		lines = append(lines, signatureLine(s))
	}
	return lines
}

// number reads a decimal without leading zeros that an int64 holds.
func number(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, malformed("the number %.40q", s)
	}
	return n, nil
}

// hash reads the one base64 text of 32 bytes.
func hash(s string) (out [32]byte, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 32 || base64.StdEncoding.EncodeToString(b) != s {
		return out, malformed("the hash %.60q is not 32 bytes in base64", s)
	}
	return [32]byte(b), nil
}
