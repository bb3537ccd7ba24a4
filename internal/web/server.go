package web

import (
	"log/slog"
	"net/http"
	"time"
)

const (
	writeTime = 30 * time.Second // for each chunk of an answer
	writeSize = 64 << 10         // the chunk: a reader slower than this per writeTime is cut
)

// NewServer makes a server that no client can hold for ever: 10 s for the
// headers (32 KiB), 30 s for a body, 30 s for each write of an answer, 120 s
// idle. There is no limit for a whole answer, which would end every stream.
// The caller sets nothing but the listener; log takes net/http's complaints.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.Default()
	}
	return &http.Server{
		Handler:                      timed{h},
		ReadHeaderTimeout:            10 * time.Second,
		IdleTimeout:                  120 * time.Second,
		MaxHeaderBytes:               32 << 10,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true, // "OPTIONS *" passes the guard like the rest
	}
}

// timed gives every request its deadlines.
type timed struct {
	next http.Handler
}

func (t timed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tw := &timedWriter{ResponseWriter: w, rc: http.NewResponseController(w), time: writeTime}
	if r.Body != nil && r.Body != http.NoBody {
		// For handlers that never read the body: net/http reads it off the
		// connection before it answers, and would wait for it without end.
		if err := tw.rc.SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
			panic(http.ErrAbortHandler) // the connection is gone
		}
		tw.time += bodyTime // a write may have to wait for that reading first
	}
	t.next.ServeHTTP(tw, r)
	tw.owned = false
	tw.arm() // what is still buffered goes out after the handler
}

// timedWriter gives each write its own deadline, until the handler sets one
// itself (a Stream does).
type timedWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	time  time.Duration // for each write
	owned bool          // the handler sets the deadlines
}

func (w *timedWriter) arm() {
	if !w.owned {
		// Fails only on a connection that is gone, as the write after it will tell.
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.time))
	}
}

func (w *timedWriter) WriteHeader(status int) {
	w.arm()
	w.ResponseWriter.WriteHeader(status)
}

// Write splits what is large: the deadline is for steady progress, not for the
// size of an answer.
func (w *timedWriter) Write(p []byte) (written int, err error) {
	for !w.owned && len(p) > writeSize {
		w.arm()
		n, err := w.ResponseWriter.Write(p[:writeSize])
		written += n
		if err != nil {
			return written, err
		}
		p = p[writeSize:]
	}
	w.arm()
	n, err := w.ResponseWriter.Write(p)
	return written + n, err
}

// FlushError is what http.ResponseController calls to flush.
func (w *timedWriter) FlushError() error {
	w.arm()
	return w.rc.Flush()
}

// SetWriteDeadline hands the deadline over to the handler.
func (w *timedWriter) SetWriteDeadline(t time.Time) error {
	w.owned = true
	return w.rc.SetWriteDeadline(t)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
