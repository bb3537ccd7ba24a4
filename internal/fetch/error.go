package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kind says why there is no answer. The values are also metric labels, so the set is closed.
type Kind string

const (
	BadURL         Kind = "bad_url"          // the URL cannot be used; asking again is of no use
	BadRequest     Kind = "bad_request"      // the caller's request is not well formed (method, header, MaxBytes)
	Blocked        Kind = "blocked"          // every address of the host is one that may not be contacted
	Refused        Kind = "refused"          // the host answered that nothing listens there
	Unreachable    Kind = "unreachable"      // no such name, no route, connection lost before an answer
	TLS            Kind = "tls"              // the certificate or the handshake is not acceptable
	Timeout        Kind = "timeout"          // no whole answer, or nothing on a stream, in the time allowed
	Slow           Kind = "slow"             // the body came slower than MinRate
	TooLarge       Kind = "too_large"        // the header or the decoded body is over its bound
	BadRedirect    Kind = "bad_redirect"     // to another origin, too many, or without a usable target
	BadContentType Kind = "bad_content_type" // another media type or an encoding that was not asked for
	Broken         Kind = "broken"           // the answer was cut short or is not HTTP
	Canceled       Kind = "canceled"         // the caller's context ended
)

// Error is the only type of error that Do, Stream and Stream.Read return (save io.EOF from Read).
type Error struct {
	Kind       Kind
	URL        string // without query and user information
	Err        error
	RetryAfter time.Duration // what an answer that was refused asked for; 0 when it did not
}

func (e *Error) Error() string {
	what := strings.ReplaceAll(string(e.Kind), "_", " ")
	return fmt.Sprintf("fetch %s: %s: %v", e.URL, what, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error that came from this package, or "" for any other.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// classify turns whatever the transport said into an *Error. A cause that we gave the context ourselves wins: after a
// cancel the transport may report any of several things.
func classify(ctx context.Context, url string, err error) *Error {
	if cause, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		err = cause
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		e := *e // the same cause may reach several callers
		if e.URL == "" {
			e.URL = url
		}
		return &e
	}
	return &Error{Kind: kindOf(err), URL: url, Err: discreet{err}}
}

// discreet is an error of the network whose text does not name our own addresses or the resolver that we ask: what could not be
// fetched is told to strangers.
type discreet struct{ error }

func (d discreet) Error() string {
	text := d.error.Error()
	if op, ok := errors.AsType[*net.OpError](d.error); ok {
		there := op.Op
		if op.Addr != nil {
			there += " " + op.Addr.String()
		}
		text = strings.ReplaceAll(text, op.Error(), there+": "+discreet{op.Err}.Error())
	}
	if dns, ok := errors.AsType[*net.DNSError](d.error); ok {
		text = strings.ReplaceAll(text, dns.Error(), dns.Err)
	}
	return text
}

func (d discreet) Unwrap() error { return d.error }

func kindOf(err error) Kind {
	var (
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
		x1     x509.HostnameError
		x2     x509.UnknownAuthorityError
		x3     x509.CertificateInvalidError
		nerr   net.Error
		op     *net.OpError
	)
	text := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.As(err, &verify), errors.As(err, &record), errors.As(err, &x1), errors.As(err, &x2),
		errors.As(err, &x3), errors.Is(err, http.ErrSchemeMismatch), strings.HasPrefix(text, "tls: "),
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // how crypto/tls wraps an alert
		return TLS
	case errors.As(err, &nerr) && nerr.Timeout():
		return Timeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case strings.Contains(text, "response headers exceeded"), strings.Contains(text, "response header list larger"):
		return TooLarge // net/http has no type for it; TestHugeHeader notices when the text changes
	case errors.As(err, &op) && op.Op == "dial":
		return Unreachable
	}
	return Broken
}

// RetryAfter reads the Retry-After header, in seconds or as a date, and returns how long to wait from now: never less than 0
// nor more than max. It answers false when the header is absent or unreadable.
func RetryAfter(h http.Header, now time.Time, max time.Duration) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(max/time.Second) { // out of range is a long wait, too
			return max, true
		}
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	if !at.After(now) {
		return 0, true
	}
	return min(at.Sub(now), max), true
}
