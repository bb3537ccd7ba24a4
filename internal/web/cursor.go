package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/witan-adp/witan/adp"
)

// cursorTag is the length of the truncated HMAC-SHA256 behind a payload. A
// forged cursor could only misplace a reader in a list it may read anyway.
const cursorTag = 12

// Cursors makes and opens the opaque page cursors of lists. A cursor is
// base64url(payload ‖ tag); the tag also covers the kind of list, so that a
// cursor of one list does not open in another. The payload is not encrypted:
// put nothing in it that the reader may not know.
type Cursors struct {
	key []byte
}

// NewCursors takes a secret of at least 16 bytes, and panics on a shorter one.
// With the same key, cursors outlive a restart.
func NewCursors(key []byte) *Cursors {
	if len(key) < 16 {
		panic("web: a cursor key has at least 16 bytes")
	}
	return &Cursors{key: append([]byte(nil), key...)}
}

// Seal makes the cursor of a list of this kind.
func (c *Cursors) Seal(kind string, payload []byte) string {
	sealed := append(append(make([]byte, 0, len(payload)+cursorTag), payload...), c.tag(kind, payload)...)
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// Open gives the payload back. A text that Seal did not make for this kind is
// invalid_request.
func (c *Cursors) Open(kind, text string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	// The decoder skips CR and LF and takes stray last bits; a cursor has one spelling.
	if err == nil && len(sealed) >= cursorTag && base64.RawURLEncoding.EncodeToString(sealed) == text {
		payload := sealed[:len(sealed)-cursorTag]
		if hmac.Equal(sealed[len(payload):], c.tag(kind, payload)) {
			return payload, nil
		}
	}
	return nil, adp.Errorf(adp.InvalidRequest, "The cursor was not made by this server for this list; start again without \"cursor\" and follow the Link header.").
		With("parameter", "cursor")
}

func (c *Cursors) tag(kind string, payload []byte) []byte {
	mac := hmac.New(sha256.New, c.key)
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(kind))) // kind and payload cannot trade bytes
	mac.Write(size[:])
	mac.Write([]byte(kind))
	mac.Write(payload)
	return mac.Sum(nil)[:cursorTag]
}
