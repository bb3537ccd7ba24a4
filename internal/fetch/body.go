package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// readBody reads the body of resp into out under the bounds of r. cancel ends the exchange from the watch on its rate.
func (c *Client) readBody(cancel context.CancelCauseFunc, r Request, resp *http.Response, out *Response) error {
	if err := checkType(r.ContentType, resp); err != nil {
		return err
	}
	if resp.Request.Method == http.MethodHead || resp.StatusCode == http.StatusNotModified || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	ok := resp.StatusCode/100 == 2
	packed, err := encoding(resp)
	if err != nil {
		return err
	}
	if ok && !packed && resp.ContentLength > r.MaxBytes { // before a byte of it is read
		return tooLarge(r.MaxBytes)
	}
	wire := &counter{r: resp.Body}
	defer func() { c.metrics.received(wire.n.Load()) }()
	stop := c.watchRate(r.MinRate, wire, cancel)
	defer stop()

	var body io.Reader = wire
	if packed {
		// The coded bytes have a bound of their own: empty gzip members decode to nothing for ever.
		coded := &io.LimitedReader{R: wire, N: 2*r.MaxBytes + 64<<10}
		unpacked, err := gzip.NewReader(coded)
		if err != nil {
			return fmt.Errorf("the body is not gzip as its header says: %w", err)
		}
		body = &boundedGzip{unpacked, coded, r.MaxBytes}
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(max(resp.ContentLength, 512), r.MaxBytes, 1<<20)+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(body, r.MaxBytes+1))
	if err != nil {
		return err
	}
	if n > r.MaxBytes {
		if ok {
			return tooLarge(r.MaxBytes)
		}
		buf.Truncate(int(r.MaxBytes))
		out.Truncated = true
	}
	out.Body = buf.Bytes()
	return nil
}

// encoding says whether the body is gzip, and refuses every coding that was not asked for.
func encoding(resp *http.Response) (packed bool, err error) {
	switch e := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ",")); e {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		return true, nil
	default:
		return false, &Error{Kind: BadContentType, Err: fmt.Errorf("the answer has Content-Encoding %.100q, which was not asked for", e)}
	}
}

func tooLarge(bound int64) *Error {
	return &Error{Kind: TooLarge, Err: fmt.Errorf("the body is longer than %d bytes", bound)}
}

// boundedGzip tells the end of the coded bound apart from a body that was cut on the way.
type boundedGzip struct {
	*gzip.Reader
	coded *io.LimitedReader
	bound int64
}

func (b *boundedGzip) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF && b.coded.N <= 0 {
		err = tooLarge(b.bound)
	}
	return n, err
}

// counter counts what came over the wire.
type counter struct {
	r io.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// watchRate cancels the exchange at the end of the first window in which fewer than rate bytes a second came. The returned
// function ends the watch.
func (c *Client) watchRate(rate int64, wire *counter, cancel context.CancelCauseFunc) (stop func()) {
	if rate < 0 {
		return func() {}
	}
	if rate == 0 {
		rate = defaultMinRate
	}
	need := int64(float64(rate) * c.window.Seconds())
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(c.window)
		defer tick.Stop()
		var before int64
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				now := wire.n.Load()
				if now-before < need {
					cancel(&Error{Kind: Slow, Err: fmt.Errorf("%d bytes of the body within %v, and at least %d bytes/s are wanted", now-before, c.window, rate)})
					return
				}
				before = now
			}
		}
	}()
	return func() { close(done) }
}
