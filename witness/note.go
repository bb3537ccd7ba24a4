package witness

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/witan-adp/witan/internal/tilelog"
)

// The kinds of signature in a C2SP signed note.
const (
	algNote   = 0x01 // the log itself: Ed25519 over the text
	algCosign = 0x04 // a witness: cosignature/v1, over a time and the text
)

// maxSignatures is how many signatures in one note are tried with one key. Anybody can add
// lines that look like its own.
const maxSignatures = 8

// noteKeyHash is what stands before a signature, to find its key by.
func noteKeyHash(name string, alg byte, key ed25519.PublicKey) uint32 {
	h := sha256.New()
	h.Write([]byte(name + "\n"))
	h.Write([]byte{alg})
	h.Write(key)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// openNote reads a checkpoint that a key signed, in one of the two ways. single is
// the note with that signature alone. Of a log the name of the key is the origin
// line.
func openNote(signed []byte, key ed25519.PublicKey, alg byte) (c tilelog.Checkpoint, single []byte, err error) {
	if c, err = tilelog.PeekCheckpoint(signed); err != nil {
		return c, nil, err
	}
	text := c.Text()
	rest, ok := strings.CutPrefix(string(signed), text+"\n")
	if !ok || !strings.HasSuffix(rest, "\n") {
		return c, nil, errors.New("a signed note is its text, a blank line, and its signatures, a line each")
	}
	tried := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\n"), "\n") {
		name, sig, ok := readSignature(line)
		if !ok {
			return c, nil, fmt.Errorf("%.80q is no signature of a note", line)
		}
		if alg == algNote && name != c.Origin || binary.BigEndian.Uint32(sig) != noteKeyHash(name, alg, key) {
			continue
		}
		if tried++; tried > maxSignatures {
			break
		}
		msg, sig := text, sig[4:]
		if alg == algCosign {
			if len(sig) != 8+ed25519.SignatureSize {
				continue
			}
			msg = "cosignature/v1\ntime " + strconv.FormatUint(binary.BigEndian.Uint64(sig), 10) + "\n" + text
			sig = sig[8:]
		}
		if len(sig) == ed25519.SignatureSize && ed25519.Verify(key, []byte(msg), sig) {
			return c, []byte(text + "\n" + line + "\n"), nil
		}
	}
	return c, nil, errors.New("the key has not signed this checkpoint")
}

// readSignature takes "— <name> <base64>" apart; sig has at least the hash of its
// key.
func readSignature(line string) (name string, sig []byte, ok bool) {
	rest, ok := strings.CutPrefix(line, "— ")
	name, text, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || name == "" || strings.ContainsAny(name, "+") {
		return "", nil, false
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(text)
	return name, sig, err == nil && len(sig) > 4
}

// lineOf tells whether an origin line is that of the log (no room), or of the room
// checkpoints, of a subject.
func lineOf(s Subject, line string) bool {
	if s.RoomID != "" {
		return line == RoomOrigin(s)
	}
	_, ok := logGeneration(s.Origin, line)
	return ok
}

// subjectOf reads what a checkpoint of one of these origins is about.
func subjectOf(line string, origins []string) (Subject, bool) {
	for _, o := range origins {
		if _, ok := logGeneration(o, line); ok {
			return Subject{Origin: o}, true
		}
		rest, ok := strings.CutPrefix(line, authorityOf(o)+"/witan/rooms/")
		if !ok {
			continue
		}
		id, genesis, ok := strings.Cut(rest, "/")
		if s := (Subject{o, id, genesis}); ok && isRoom(s) && RoomOrigin(s) == line {
			return s, true
		}
	}
	return Subject{}, false
}
