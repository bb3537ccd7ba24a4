package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Stream is an answer that has no end, such as server-sent events. Read and Close may be called at the same time;
// Read itself by one goroutine only.
type Stream struct {
	Status int
	Header http.Header
	URL    string // after redirects

	c      *Client
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	idle   time.Duration
	left   int64 // bytes up to the first that is too many; negative = no bound
	timer  *time.Timer
	once   sync.Once
}

// Stream sends r and returns as soon as the header of the answer is there, whatever its status. After that the stream lasts until
// Close, the end of ctx, or a Read in which nothing came for the time idle: that Read answers an *Error of kind
// Timeout. The caller must Close it, and bounds the length of lines itself.
func (c *Client) Stream(ctx context.Context, r Request, idle time.Duration) (*Stream, error) {
	start := time.Now()
	s, err := c.stream(ctx, r, idle)
	if err != nil {
		c.metrics.exchange(nil, err, time.Since(start))
		c.log.Debug("stream failed", "kind", KindOf(err), "error", err)
		return nil, err
	}
	c.metrics.exchange(&Response{Status: s.Status}, nil, time.Since(start))
	return s, nil
}

func (c *Client) stream(ctx context.Context, r Request, idle time.Duration) (_ *Stream, err error) {
	if idle <= 0 {
		return nil, &Error{Kind: BadRequest, URL: redact(r.URL), Err: fmt.Errorf("the idle time of a stream must be above 0")}
	}
	timeout := r.timeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			cancel(nil)
		}
	}()
	timer := time.AfterFunc(timeout, func() {
		cancel(&Error{Kind: Timeout, Err: fmt.Errorf("no answer within %v", timeout)})
	})
	resp, at, err := c.exchange(ctx, r, c.long, false)
	if err != nil {
		timer.Stop()
		return nil, err
	}
	err = checkType(r.ContentType, resp)
	if err == nil {
		var packed bool
		if packed, err = encoding(resp); packed {
			err = &Error{Kind: BadContentType, Err: fmt.Errorf("the stream is compressed, which was not asked for")}
		}
	}
	if err == nil && !timer.Stop() { // the time ran out between the header and here
		<-ctx.Done() // the timer's function may still be on its way
		err = context.Cause(ctx)
	}
	if err != nil {
		timer.Stop()
		resp.Body.Close()
		e := classify(ctx, redact(at.String()), err)
		e.RetryAfter, _ = RetryAfter(resp.Header, time.Now(), maxRetryAfter)
		return nil, e
	}
	s := &Stream{Status: resp.StatusCode, Header: resp.Header, URL: at.String(), c: c, ctx: ctx, cancel: cancel, body: resp.Body, idle: idle, left: -1}
	if r.MaxBytes > 0 {
		s.left = r.MaxBytes + 1
	}
	s.timer = time.AfterFunc(idle, func() {
		cancel(&Error{Kind: Timeout, Err: fmt.Errorf("nothing came for %v", idle)})
	})
	s.timer.Stop() // it runs only while a Read waits
	return s, nil
}

// Read answers io.EOF at a proper end, and otherwise an *Error.
func (s *Stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, s.tooLong()
	}
	if s.left > 0 && int64(len(p)) > s.left {
		p = p[:s.left]
	}
	s.timer.Reset(s.idle)
	n, err := s.body.Read(p)
	s.timer.Stop()
	s.c.metrics.received(int64(n))
	if s.left > 0 {
		if s.left -= int64(n); s.left == 0 { // this was the byte behind the bound
			return n - 1, s.tooLong()
		}
	}
	if err != nil && err != io.EOF {
		err = classify(s.ctx, redact(s.URL), err)
	}
	return n, err
}

func (s *Stream) tooLong() *Error {
	return &Error{Kind: TooLarge, URL: redact(s.URL), Err: errors.New("the stream is longer than its bound")}
}

// Close ends the stream, also under a Read that waits; that Read answers an *Error of kind Canceled.
func (s *Stream) Close() error {
	s.once.Do(func() {
		s.cancel(nil)
		s.timer.Stop()
		s.body.Close()
	})
	return nil
}
