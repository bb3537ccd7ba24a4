package fetch

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// NewLocal returns a client for one origin, which h answers for in this process: there is no socket, and no other origin can be
// reached. The bounds of a Request hold as ever. h sees requests without a client address, and no deadlines on its ResponseWriter.
func NewLocal(origin string, h http.Handler, o Options) *Client {
	o.AllowPrivate = true // whatever the origin is, nothing is dialled
	c := New(o)
	c.short.local = local{origin, h}
	c.long.local = c.short.local
	return c
}

// local is a http.RoundTripper that calls a handler.
type local struct {
	origin  string
	handler http.Handler
}

func (t local) RoundTrip(req *http.Request) (*http.Response, error) {
	if at, err := Origin(req.URL.Scheme+"://"+req.URL.Host, true); err != nil || at != t.origin {
		return nil, &Error{Kind: Blocked, Err: fmt.Errorf("only %s can be asked here", t.origin)}
	}
	in := req.Clone(req.Context())
	in.Host, in.RequestURI, in.Proto, in.ProtoMajor, in.ProtoMinor = req.URL.Host, req.URL.RequestURI(), "HTTP/1.1", 1, 1
	body, out := io.Pipe()
	w := &localWriter{header: http.Header{}, out: out, began: make(chan struct{})}
	go func() {
		err := io.EOF
		defer func() {
			if p := recover(); p != nil { // as net/http does with a connection: what was sent is cut
				err = errors.New("the answer was cut")
			}
			if !w.sent {
				if err != io.EOF {
					w.failed = err
					close(w.began)
					return
				}
				w.WriteHeader(http.StatusOK)
			}
			out.CloseWithError(err)
		}()
		t.handler.ServeHTTP(w, in)
	}()
	select {
	case <-w.began:
	case <-req.Context().Done():
		body.CloseWithError(req.Context().Err()) // the handler's next write fails
		return nil, req.Context().Err()
	}
	if w.failed != nil {
		return nil, &Error{Kind: Broken, Err: w.failed}
	}
	return &http.Response{StatusCode: w.status, Header: w.first, Body: body, ContentLength: -1, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req}, nil
}

// localWriter is the ResponseWriter of a call. began is closed when status and first are there.
type localWriter struct {
	header http.Header
	out    *io.PipeWriter
	began  chan struct{}
	sent   bool
	status int
	first  http.Header // as it stood when the answer began
	failed error
}

func (w *localWriter) Header() http.Header { return w.header }

func (w *localWriter) WriteHeader(status int) {
	if w.sent || status < 200 {
		return
	}
	w.sent, w.status, w.first = true, status, w.header.Clone()
	close(w.began)
}

func (w *localWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(p)
}
