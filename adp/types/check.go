package types

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/witan-adp/witan/adp"
)

// ErrUnjudged: the schema, or this payload under it, is beyond what we run. On
// our own host that is a reason to refuse the event; in somebody else's room it
// makes the payload unverifiable, not wrong (wire-facts §3.2).
var ErrUnjudged = errors.New("the payload cannot be judged within our bounds")

const (
	// maxWork and maxScanned bound one check: evaluations (about 0.7 µs) and
	// pattern steps (about 0.02 µs), each half a second to a second on one core at worst.
	maxWork    = 1 << 19
	maxScanned = 1 << 25
	// Behind heavyWork or heavyScanned checks go one at a time, because a failing
	// one keeps some hundred bytes for each evaluation, and run only once.
	heavyWork    = 1 << 16
	heavyScanned = 1 << 22

	maxMessage = 300
)

var heavy sync.Mutex

// check runs the schema on a payload. Numbers are judged by their nearest
// double (wire-facts §3.17), which canonical text spells.
func (s *schema) check(payload adp.Value) error {
	p, err := payload.Canonical()
	if err != nil {
		return adp.Errorf(adp.InvalidEvent, "the payload has no canonical form: %v", err)
	}
	// a value or a member name takes two bytes or more, with its comma or bracket
	values := len(p.Raw())/2 + 1
	if s.weight*values > heavyWork {
		values = countValues(p)
	}
	work := s.weight * values
	if work > maxWork {
		return fmt.Errorf("%w: %d values under a schema of weight %d", ErrUnjudged, values, s.weight)
	}
	scanned := s.scan * len(p.Raw())
	if scanned > maxScanned {
		return fmt.Errorf("%w: %d bytes under patterns of size %d", ErrUnjudged, len(p.Raw()), s.scan)
	}
	big := work > heavyWork || scanned > heavyScanned
	if big {
		heavy.Lock()
		defer heavy.Unlock()
	}
	x := p.Any()
	if s.verdict.Validate(x) == nil {
		return nil
	}
	if big {
		return adp.Errorf(adp.PayloadSchemaViolation, "the payload does not satisfy the schema of its type; it is too large to say where")
	}
	if err := s.full.Validate(x); err != nil {
		return &adp.Error{Code: adp.PayloadSchemaViolation, Message: explain(err)}
	}
	return adp.Errorf(adp.Internal, "two runs of one schema disagree")
}

// countValues counts the values and the member names below v, and v.
func countValues(v adp.Value) int {
	n := 1
	for e := range v.Elements() {
		n += countValues(e)
	}
	for _, m := range v.Members() {
		n += 1 + countValues(m)
	}
	return n
}

// explain names one failing place by its JSON pointer, and the reason, in at
// most maxMessage bytes.
func explain(err error) string {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return clip(err.Error(), maxMessage)
	}
	v = failure(v)
	var at strings.Builder
	for _, token := range v.InstanceLocation {
		at.WriteString("/" + escapeToken(token))
	}
	return clip(clip(fmt.Sprintf("at %q", at.String()), 150)+": "+reason(v.ErrorKind), maxMessage)
}

// failure goes down to a place where something is wrong: among alternatives to
// the one that got furthest, else to the first in order.
func failure(v *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(v.Causes) > 0 {
		alternatives := false
		switch v.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf:
			alternatives = true
		}
		v = slices.MinFunc(v.Causes, func(a, b *jsonschema.ValidationError) int {
			if alternatives {
				if d := deepest(b) - deepest(a); d != 0 {
					return d
				}
			}
			return slices.Compare(a.InstanceLocation, b.InstanceLocation)
		})
	}
	return v
}

func deepest(v *jsonschema.ValidationError) int {
	n := len(v.InstanceLocation)
	for _, c := range v.Causes {
		n = max(n, deepest(c))
	}
	return n
}

func reason(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.AdditionalProperties: // the library lists them in no order
		return fmt.Sprintf("the member %.64q is not known here", slices.Min(k.Properties))
	case *kind.FalseSchema:
		return "nothing may stand here"
	case *kind.Pattern: // the library would quote the whole text first
		return fmt.Sprintf("does not match the pattern %.100s", k.Want)
	case *kind.Not:
		return "what stands here is excluded"
	}
	text := (&jsonschema.ValidationError{ErrorKind: k}).Error()
	return strings.TrimPrefix(text, "at '': ")
}

// clip shortens valid UTF-8 to at most n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const dots = "…"
	return strings.ToValidUTF8(s[:n-len(dots)], "") + dots
}
