// Package cosignature writes and reads what a log and its witnesses say to each
// other: cosignatures (C2SP tlog-cosignature, version 1), the keys that make them
// (C2SP signed-note verifier keys), and the messages of C2SP tlog-witness.
//
// A cosignature says: at this time, the consistent tree of this log with the most
// entries that I had seen was this one. It is a line beside the signature of the
// log in the same signed note.
//
// The package only turns bytes into values and back, and checks signatures. It has
// no clock, no store and no network, and it does not decide who is trusted; package
// witness/cosign does all that. What it reads it reads strictly: every number and every hash
// has one spelling.
package cosignature

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrFormat: a text is not of the form that C2SP says.
var ErrFormat = errors.New("cosignature: malformed")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

// maxName bounds a key name and an origin line, in bytes.
const maxName = 500

// validName tells whether a text can be a key name: not empty, no space, no plus.
func validName(s string) bool {
	return s != "" && len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r == '+' || r < ' ' || unicode.IsSpace(r) })
}
