package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
)

// statusError is an answer that is not 2xx.
type statusError struct {
	method    string // "" = GET
	path      string
	status    int
	code      string // error.code of ADP §20, when the answer has one
	discovery bool
}

func (e *statusError) Error() string {
	s := fmt.Sprintf(cmp.Or(e.method, http.MethodGet)+" %s answers %d %s", e.path, e.status, http.StatusText(e.status))
	if e.code != "" {
		s += " (" + e.code + ")"
	}
	return s
}

// stuckError is a conclusion about a room: asking again is of no use before the
// host shows something else, or some time has passed.
type stuckError string

func (e stuckError) Error() string { return string(e) }

func stuck(reason string) error { return stuckError(reason) }

// localError is a fault on our side, not of the host.
type localError struct{ err error }

func (e localError) Error() string { return e.err.Error() }
func (e localError) Unwrap() error { return e.err }

func local(err error) error { return localError{err} }

func isLocal(err error) bool {
	var e localError
	return errors.As(err, &e)
}

// heldFor is how long the host asked not to be asked.
func (h *host) heldFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, time.Duration(h.held-h.m.o.Now())*time.Millisecond)
}

// get asks the host, at the pace that it is allowed. Every status but 2xx is an
// error; Retry-After holds back all requests to the host.
func (h *host) get(ctx context.Context, url string, maxBytes int64, contentType string) (*fetch.Response, error) {
	path := strings.TrimPrefix(url, h.origin)
	if d := h.heldFor(); d > 0 {
		return nil, fmt.Errorf("GET %s waits: the host asked not to be asked for %v", path, d.Round(time.Second))
	}
	if err := h.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	resp, err := h.m.o.Fetch.Do(ctx, fetch.Request{URL: url, MaxBytes: maxBytes, ContentType: contentType})
	h.timed(time.Since(began))
	if err != nil {
		var fe *fetch.Error
		if errors.As(err, &fe) && fe.RetryAfter > 0 {
			h.hold(fe.RetryAfter)
		}
		return nil, err
	}
	if resp.Status/100 == 2 {
		return resp, nil
	}
	if d := h.retryAfter(resp.Status, resp.Header); d > 0 {
		h.hold(d)
	}
	return nil, h.refusal(http.MethodGet, url, resp.Status, resp.Body)
}

// retryAfter is how long a host that refuses asks to be left alone, within the cap.
func (h *host) retryAfter(status int, header http.Header) time.Duration {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0
	}
	d, _ := fetch.RetryAfter(header, time.Now(), h.m.o.BackoffMax)
	return d
}

// refusal is the error of an answer, nil for one of 2xx.
func (h *host) refusal(method, url string, status int, body []byte) error {
	if status/100 == 2 {
		return nil
	}
	e := &statusError{method: method, path: strings.TrimPrefix(url, h.origin), status: status}
	if v, err := adp.Scan(body); err == nil {
		if e.code = v.Get("error").Get("code").Text(); len(e.code) > 64 {
			e.code = ""
		}
	}
	return e
}

func (h *host) hold(d time.Duration) {
	d = min(d, h.m.o.BackoffMax)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = max(h.held, h.m.o.Now()+d.Milliseconds())
}
