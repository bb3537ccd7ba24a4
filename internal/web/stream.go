package web

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// streamWriteTime bounds each write of a stream: who takes longer to read it is
// cut, never waited for and never buffered (a slow reader never slows a writer).
const streamWriteTime = 10 * time.Second

const streamBodyMax = 4 << 10

// Stream writes server-sent events to one reader. It belongs to the goroutine
// of its handler; heartbeats go out from that same goroutine.
type Stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error // of the first write that failed; the stream is over
}

// NewStream begins the answer: headers and a first comment go out at once. Its
// errors are for the handler to return. It refuses a ResponseWriter that cannot
// bound its writes. To HEAD it sends the headers and returns
// http.ErrBodyNotAllowed, which the mux takes as the end.
func NewStream(w http.ResponseWriter, r *http.Request) (*Stream, error) {
	// net/http reads an unread body before it sends headers. One on a stream has
	// no meaning; it is taken off first, under its own bounds.
	if _, err := ReadBody(w, r, streamBodyMax); err != nil {
		return nil, err
	}
	s := &Stream{w: w, rc: http.NewResponseController(w)}
	if err := s.arm(); err != nil {
		return nil, err
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil, http.ErrBodyNotAllowed
	}
	if err := s.Comment("open"); err != nil {
		return nil, err
	}
	return s, nil
}

// Send writes one event for each element of data, all in one write and one
// flush, within 10 s. Each element is one line (JSON without line breaks); event
// is the event's name, "" for the default. After an error the stream is over.
func (s *Stream) Send(event string, data [][]byte) error {
	if strings.ContainsAny(event, "\r\n") {
		return fmt.Errorf("stream: event name %q has a line break", event)
	}
	for i, d := range data {
		if bytes.IndexByte(d, '\n') >= 0 || bytes.IndexByte(d, '\r') >= 0 {
			return fmt.Errorf("stream: %s item %d has a line break", event, i)
		}
	}
	if len(data) == 0 {
		return s.err
	}
	return s.write(func(b []byte) []byte {
		for _, d := range data {
			if event != "" {
				b = append(append(append(b, "event: "...), event...), '\n')
			}
			b = append(append(append(b, "data: "...), d...), "\n\n"...)
		}
		return b
	})
}

// Comment writes a comment line, which readers ignore: the heartbeat that keeps
// proxies from closing an idle stream and finds out who is gone.
func (s *Stream) Comment(text string) error {
	if strings.ContainsAny(text, "\r\n") {
		return errors.New("stream: comment has a line break")
	}
	return s.write(func(b []byte) []byte {
		return append(append(append(b, ": "...), text...), "\n\n"...)
	})
}

// streamBuffers are shared by all streams: an idle reader holds none.
var streamBuffers = sync.Pool{New: func() any { return new([]byte) }}

const streamBufferKept = 256 << 10

func (s *Stream) write(fill func([]byte) []byte) error {
	if s.err != nil {
		return s.err
	}
	buf := streamBuffers.Get().(*[]byte)
	*buf = fill((*buf)[:0])
	err := s.arm()
	if err == nil {
		_, err = s.w.Write(*buf)
	}
	if err == nil {
		err = s.rc.Flush()
	}
	if cap(*buf) <= streamBufferKept {
		streamBuffers.Put(buf)
	}
	if err != nil {
		s.err = fmt.Errorf("stream: %w", err)
	}
	return s.err
}

func (s *Stream) arm() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(streamWriteTime)); err != nil {
		return fmt.Errorf("stream: set write deadline: %w", err)
	}
	return nil
}
