package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/plaintext"
)

// ArgumentError is a call that cannot be meant.
type ArgumentError struct{ error }

// Argumentf makes an ArgumentError.
func Argumentf(format string, args ...any) error { return ArgumentError{fmt.Errorf(format, args...)} }

// Error is a refusal by the host.
type Error struct {
	Status  int
	Code    adp.Code
	Message string
	Data    adp.Value
	MaxSeen int64 // of the Max-Seen-Nonce header; 0 when there is none
	URL     string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s answered with status %d and no coded error; is this the API of an ADP host?", e.URL, e.Status)
	}
	return fmt.Sprintf("%s: %s (the host's answer, status %d)", e.Code, plaintext.Short(e.Message, 500), e.Status)
}

// CodeOf is the code of a refusal by the host, "" of any other error.
func CodeOf(err error) adp.Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Missing tells that the host has no such resource, or hides it.
func Missing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound
}

// Refusal reads an answer whose status is not 2xx.
func Refusal(status int, h http.Header, body []byte, url string) *Error {
	e := &Error{Status: status, URL: url}
	if v, err := adp.ScanDepth(body, adp.RecordDepth+4); err == nil {
		e.Code, e.Message = adp.Code(plaintext.Short(v.Get("error").Get("code").Text(), 60)), v.Get("error").Get("message").Text()
		e.Data = v.Get("error").Get("data")
	}
	if n, err := strconv.ParseInt(h.Get("Max-Seen-Nonce"), 10, 64); err == nil && n > 0 && n < adp.MaxInt {
		e.MaxSeen = n
	}
	return e
}

// Unreachable adds to a failed exchange what to do next.
func Unreachable(err error) error {
	switch fetch.KindOf(err) {
	case fetch.Refused:
		return fmt.Errorf("%w; start a host there (witan serve), or name another one with --host", err)
	case fetch.Unreachable:
		return fmt.Errorf("%w; check the address and the network", err)
	}
	return err
}
