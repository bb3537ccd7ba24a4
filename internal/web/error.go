package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/witan-adp/witan/adp"
)

// statuses is the only place where an error code becomes an HTTP status.
var statuses = map[adp.Code]int{
	adp.InvalidRequest:       http.StatusBadRequest,
	adp.InvalidEvent:         http.StatusBadRequest,
	adp.InvalidEventHash:     http.StatusBadRequest,
	adp.InvalidSignature:     http.StatusBadRequest,
	adp.InvalidActor:         http.StatusBadRequest,
	adp.TimestampOutOfWindow: http.StatusBadRequest,

	adp.InvalidToken: http.StatusUnauthorized,

	adp.PermissionDenied:       http.StatusForbidden,
	adp.MembershipRequired:     http.StatusForbidden,
	adp.MemberBanned:           http.StatusForbidden,
	adp.ApprovalRequired:       http.StatusForbidden,
	adp.RoleNotAllowed:         http.StatusForbidden,
	adp.JoinRequestNotApproved: http.StatusForbidden,

	adp.NotFound:            http.StatusNotFound,
	adp.RoomNotFound:        http.StatusNotFound,
	adp.JoinRequestNotFound: http.StatusNotFound,
	adp.AgentStatusNotFound: http.StatusNotFound,

	adp.RoomHeadMismatch:        http.StatusConflict,
	adp.BaseRecordMismatch:      http.StatusConflict,
	adp.NonceNotGreater:         http.StatusConflict,
	adp.RoomNotActive:           http.StatusConflict,
	adp.RoomEnded:               http.StatusConflict,
	adp.MaxSpeakersExceeded:     http.StatusConflict,
	adp.JoinRequestRoleMismatch: http.StatusConflict,
	adp.JoinRequestExpired:      http.StatusConflict,

	adp.Gone:     http.StatusGone,
	adp.Withheld: http.StatusUnavailableForLegalReasons,

	adp.PayloadTooLarge: http.StatusRequestEntityTooLarge,

	adp.PayloadSchemaViolation: http.StatusUnprocessableEntity,
	adp.TypeNotDefined:         http.StatusUnprocessableEntity,
	adp.TypeDisabled:           http.StatusUnprocessableEntity,
	adp.PackUnavailable:        http.StatusUnprocessableEntity,

	adp.RateLimited: http.StatusTooManyRequests,

	adp.Internal: http.StatusInternalServerError,
}

// Status is the HTTP status of an error code; 500 for a code without a row.
func Status(code adp.Code) int {
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

const internalMessage = "The server failed on this request. Try again later; if it persists, tell its operator the request_id."

// unavailable is an error that an operator can mend, such as a full disk, and what a client may know of it.
type unavailable interface {
	error
	Unavailable() string
}

// unavailableFor is how long to wait after such an error, in seconds.
const unavailableFor = 60

type errorBody struct {
	Error errorMember `json:"error"`
}

type errorMember struct {
	Code    adp.Code       `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

// WriteError answers with {"error":{"code","message","data"}} (ADP §20).
//
// An *adp.Error anywhere in the chain of err gives code, message and data;
// what is wrapped around it stays inside. Data["retry_after"], a number of seconds or
// a time.Duration, is answered as whole seconds, at least 1, which rate_limited
// carries as Retry-After, too; nonce_not_greater carries
// Max-Seen-Nonce from Data["max_seen_nonce"]. Any other error, and one whose
// code is `internal` or has no status, answers 500 with a fixed message; the
// error itself is logged under the request id that is also in data.request_id.
// An error anywhere in the chain that has the method Unavailable() string
// answers 503 with that text.
//
// When the answer has already begun it cannot become an error any more:
// WriteError then cuts the connection (it panics with http.ErrAbortHandler), so
// that nobody takes a part for the whole.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	writeError(w, r, err, 0)
}

// writeError uses the given status instead of the table's unless it is 0.
func writeError(w http.ResponseWriter, r *http.Request, err error, status int) {
	if begun(w) {
		if errors.Is(err, http.ErrBodyNotAllowed) {
			return // a stream asked for with HEAD: the headers were all of it
		}
		v := visitOf(r)
		if r.Context().Err() != nil || clientFault(err) {
			v.log.Debug("answer cut short", "method", r.Method, "path", r.URL.Path, "error", err)
		} else {
			v.log.Error("answer failed after it had begun", "request_id", v.requestID(), "method", r.Method, "path", r.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	if e, ok := errors.AsType[unavailable](err); ok {
		v := visitOf(r)
		v.log.Error("nothing can be done at the moment", "request_id", v.requestID(), "method", r.Method, "path", r.URL.Path, "error", err)
		cleanHeader(w)
		w.Header().Set("Retry-After", strconv.Itoa(unavailableFor))
		WriteJSON(w, http.StatusServiceUnavailable, errorBody{errorMember{adp.Internal, e.Unavailable(), map[string]any{"retry_after": unavailableFor}}})
		return
	}
	var coded *adp.Error
	if !errors.As(err, &coded) || coded.Code == adp.Internal || statuses[coded.Code] == 0 {
		failed(w, r, err)
		return
	}
	body := errorBody{errorMember{coded.Code, coded.Message, coded.Data}}
	if body.Error.Data == nil {
		body.Error.Data = map[string]any{}
	}
	after := retryAfter(coded.Data["retry_after"])
	if _, said := body.Error.Data["retry_after"]; said { // the same there, whatever counted it: seconds, or a time.Duration
		body.Error.Data = maps.Clone(body.Error.Data)
		body.Error.Data["retry_after"] = after
	}
	encoded, encodeErr := adp.EncodeJSON(body)
	if encodeErr != nil {
		failed(w, r, fmt.Errorf("encode error data of %q: %w", coded.Code, encodeErr))
		return
	}
	if status == 0 {
		status = Status(coded.Code)
	}
	cleanHeader(w)
	switch coded.Code {
	case adp.RateLimited:
		w.Header().Set("Retry-After", strconv.FormatInt(after, 10))
	case adp.NonceNotGreater:
		// ADP §20: the answer MUST carry Max-Seen-Nonce.
		if nonce, ok := decimal(coded.Data["max_seen_nonce"]); ok {
			w.Header().Set("Max-Seen-Nonce", nonce)
		} else {
			visitOf(r).log.Error("nonce_not_greater without a usable max_seen_nonce", "method", r.Method, "path", r.URL.Path)
		}
	}
	WriteRaw(w, status, encoded)
}

// failed logs err and answers 500 without a word of it.
func failed(w http.ResponseWriter, r *http.Request, err error) {
	v := visitOf(r)
	level := v.log.Error
	if r.Context().Err() != nil {
		level = v.log.Debug // the client left, or the daemon stops
	}
	level("request failed", "request_id", v.requestID(), "method", r.Method, "path", r.URL.Path, "error", err)
	writeInternal(w, v.requestID())
}

func writeInternal(w http.ResponseWriter, requestID string) {
	cleanHeader(w)
	WriteJSON(w, http.StatusInternalServerError, errorBody{errorMember{
		adp.Internal, internalMessage, map[string]any{"request_id": requestID},
	}})
}

// cleanHeader drops what a handler said about the answer it did not give.
func cleanHeader(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Disposition", "Etag", "Last-Modified", "Link"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
}

// clientFault says that a write failed because of the reader, not of us.
func clientFault(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// retryAfter is whole seconds, rounded up, at least 1.
func retryAfter(v any) int64 {
	var seconds float64
	switch n := v.(type) {
	case int:
		seconds = float64(n)
	case int64:
		seconds = float64(n)
	case float64:
		seconds = n
	case time.Duration:
		seconds = n.Seconds()
	}
	const day = 86_400 // a longer wait helps nobody, and bounds the conversion
	if !(seconds > 1) {
		return 1
	}
	return int64(math.Ceil(min(seconds, day)))
}

// decimal writes an integer of any of the types that JSON data comes in.
func decimal(v any) (string, bool) {
	switch n := v.(type) {
	case int:
		return strconv.Itoa(n), true
	case int64:
		return strconv.FormatInt(n, 10), true
	case uint64:
		return strconv.FormatUint(n, 10), true
	case float64:
		if n == math.Trunc(n) && math.Abs(n) <= 1<<53 {
			return strconv.FormatFloat(n, 'f', 0, 64), true
		}
	case json.Number:
		if _, err := n.Int64(); err == nil {
			return n.String(), true
		}
	}
	return "", false
}
