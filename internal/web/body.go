package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
)

// bodyTime bounds the arrival of a whole request body.
const bodyTime = 30 * time.Second

// ReadBody reads a request body of at most max bytes within 30 s.
//
// More than max is payload_too_large: at once when Content-Length says so,
// otherwise as soon as one byte more has come. A body that comes too slowly, is
// cut, or has a Content-Encoding is invalid_request. After a refusal the
// connection is closed, since the rest of the body is still on it. A
// ResponseWriter without read deadlines (httptest.ResponseRecorder) is read
// without one.
func ReadBody(w http.ResponseWriter, r *http.Request, max int64) ([]byte, error) {
	for _, value := range r.Header.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(value, ",") {
			if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
				return nil, adp.Errorf(adp.InvalidRequest, "Content-Encoding %q is not supported; send the body as it is.", coding)
			}
		}
	}
	if r.ContentLength > max {
		return nil, tooLarge(w, max)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	// The declared length is only a claim: it reserves 64 KiB at most.
	body := make([]byte, 0, reserve(r.ContentLength, max))
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		room := body[len(body):cap(body)]
		room = room[:min(int64(len(room)), max+1-int64(len(body)))]
		n, err := r.Body.Read(room)
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > max:
			return nil, tooLarge(w, max)
		case err == io.EOF:
			// Lift the deadline: the handler may take longer than the body did.
			if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return nil, err
			}
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close")
			return nil, adp.Errorf(adp.InvalidRequest, "The request body did not arrive within %d seconds; send it again, faster.", int(bodyTime.Seconds()))
		case err != nil:
			w.Header().Set("Connection", "close")
			return nil, adp.Errorf(adp.InvalidRequest, "The request body was cut short or is malformed; send it again.")
		}
	}
}

func tooLarge(w http.ResponseWriter, max int64) error {
	w.Header().Set("Connection", "close")
	return adp.Errorf(adp.PayloadTooLarge, "The request body is larger than %d bytes; send a smaller one.", max).With("max_bytes", max)
}

// reserve is the first buffer's size. One byte more than the body, so that its
// end is seen without growing.
func reserve(declared, max int64) int64 {
	if declared < 0 {
		declared = 4 << 10
	}
	return 1 + min(declared, max, 64<<10)
}
