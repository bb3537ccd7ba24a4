package fetch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener is a network inside one process, so that synctest can own its time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// inBubble runs fn with a client whose only network is a server with the handler h, in fake time.
func inBubble(t *testing.T, h http.HandlerFunc, fn func(t *testing.T, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		s := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }}
		go s.Serve(l)
		c := New(Options{AllowPrivate: true})
		c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			near, far := net.Pipe()
			select {
			case l.conns <- far:
				return near, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		fn(t, c)
		cancel()
		c.CloseIdle()
		s.Close()
	})
}

// drip writes n bytes every pause until the reader goes.
func drip(w http.ResponseWriter, r *http.Request, n int, pause time.Duration) {
	data := make([]byte, n)
	for {
		if _, err := w.Write(data); err != nil {
			return
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(pause):
		}
	}
}

func TestDrippingBody(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) { drip(w, r, 10, time.Second) }
	inBubble(t, h, func(t *testing.T, c *Client) {
		start := time.Now()
		_, err := c.Do(context.Background(), Request{URL: "http://127.0.0.1/", MaxBytes: 1 << 20, Timeout: time.Hour})
		if wantKind(t, err, Slow); time.Since(start) != rateWindow {
			t.Errorf("cut after %v", time.Since(start))
		}
		// Fast enough for a lower bound, so the timeout of the whole exchange is what ends it.
		start = time.Now()
		_, err = c.Do(context.Background(), Request{URL: "http://127.0.0.1/", MaxBytes: 1 << 20, Timeout: time.Minute, MinRate: 9})
		if wantKind(t, err, Timeout); time.Since(start) != time.Minute {
			t.Errorf("timed out after %v", time.Since(start))
		}
		_, err = c.Do(context.Background(), Request{URL: "http://127.0.0.1/", MaxBytes: 100, Timeout: time.Hour, MinRate: -1})
		wantKind(t, err, TooLarge)
	})
}

func TestSilentServer(t *testing.T) {
	h := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	inBubble(t, h, func(t *testing.T, c *Client) {
		start := time.Now()
		_, err := c.Do(context.Background(), Request{URL: "http://127.0.0.1/", MaxBytes: 1})
		if wantKind(t, err, Timeout); time.Since(start) != defaultTimeout {
			t.Errorf("timed out after %v", time.Since(start))
		}
		start = time.Now()
		_, err = c.Stream(context.Background(), Request{URL: "http://127.0.0.1/", Timeout: 3 * time.Second}, time.Minute)
		if wantKind(t, err, Timeout); time.Since(start) != 3*time.Second {
			t.Errorf("the stream timed out after %v", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = c.Do(ctx, Request{URL: "http://127.0.0.1/", MaxBytes: 1})
		if wantKind(t, err, Timeout); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is no DeadlineExceeded", err)
		}
	})
}

// An address that takes no connection costs its share of the dial's time only.
func TestSilentAddress(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *Client) {
		c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		start := time.Now()
		_, err := c.Do(context.Background(), Request{URL: "http://127.0.0.1/", MaxBytes: 1})
		if wantKind(t, err, Timeout); time.Since(start) != addressTimeout {
			t.Errorf("timed out after %v", time.Since(start))
		}
	})
}

func TestStream(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("Accept-Encoding %q", got)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 100 {
			fmt.Fprintf(w, "data: %d\n", i)
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			pause := 50 * time.Second
			if i == 99 {
				pause = time.Hour
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
	}
	inBubble(t, h, func(t *testing.T, c *Client) {
		// Streams and a Timeout far below the life of the stream: it bounds the time to the header only.
		s, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1/", ContentType: "text/event-stream", Timeout: time.Second}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if s.Status != 200 || s.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", s.Status, s.Header)
		}
		start := time.Now()
		lines := bufio.NewScanner(s)
		n := 0
		for ; lines.Scan(); n++ {
			if want := fmt.Sprintf("data: %d", n); lines.Text() != want {
				t.Fatalf("line %q, want %q", lines.Text(), want)
			}
		}
		if wantKind(t, lines.Err(), Timeout); n != 100 {
			t.Fatalf("%d lines", n)
		}
		if d, want := time.Since(start), 99*50*time.Second+time.Minute; d != want {
			t.Errorf("ended after %v, want %v", d, want)
		}
	})
}

// The idle time counts only while a Read waits: a reader that thinks for long loses nothing.
func TestStreamSlowReader(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "abc") }
	inBubble(t, h, func(t *testing.T, c *Client) {
		s, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1/"}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		<-time.After(time.Hour)
		if b, err := io.ReadAll(s); err != nil || string(b) != "abc" {
			t.Fatalf("%q, %v", b, err)
		}
	})
}

// A header that comes when the time for it is over gives a stream or an error, and never a stream that ends by that time.
func TestStreamAtTheLastMoment(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		<-time.After(time.Second)
		io.WriteString(w, "abc")
		http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(time.Second):
			io.WriteString(w, "def")
		}
	}
	inBubble(t, h, func(t *testing.T, c *Client) {
		for range 200 {
			s, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1/", Timeout: time.Second}, time.Minute)
			if err != nil {
				wantKind(t, err, Timeout)
				continue
			}
			if b, err := io.ReadAll(s); err != nil || string(b) != "abcdef" {
				t.Errorf("%q, %v", b, err)
			}
			s.Close()
		}
	})
}

func TestStreamBounds(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
		case "/404":
			w.WriteHeader(404)
		}
		io.WriteString(w, "0123456789")
	}
	inBubble(t, h, func(t *testing.T, c *Client) {
		for _, tt := range []struct {
			max  int64
			want string
			kind Kind
		}{{0, "0123456789", ""}, {10, "0123456789", ""}, {9, "012345678", TooLarge}, {1, "0", TooLarge}} {
			s, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1/404", MaxBytes: tt.max, ContentType: "text/event-stream"}, time.Second)
			if err != nil || s.Status != 404 {
				t.Fatal(s, err)
			}
			b, err := io.ReadAll(s)
			if string(b) != tt.want || KindOf(err) != tt.kind {
				t.Errorf("bound %d: %q, %v", tt.max, b, err)
			}
			s.Close()
		}
		_, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1/", ContentType: "text/event-stream"}, time.Second)
		wantKind(t, err, BadContentType)
		_, err = c.Stream(context.Background(), Request{URL: "http://127.0.0.1/gzip"}, time.Second)
		wantKind(t, err, BadContentType)
		_, err = c.Stream(context.Background(), Request{URL: "http://127.0.0.1/"}, 0)
		wantKind(t, err, BadRequest)
	})
}

func TestStreamCloseUnderRead(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	inBubble(t, h, func(t *testing.T, c *Client) {
		s, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1/"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			_, err := s.Read(make([]byte, 1))
			got <- err
		}()
		synctest.Wait()
		s.Close()
		wantKind(t, <-got, Canceled)
		s.Close()
	})
}

// Open streams take no connection from Do.
func TestStreamsLeaveRoomForDo(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		if r.URL.Path == "/stream" {
			<-r.Context().Done()
		}
	}
	inBubble(t, h, func(t *testing.T, c *Client) {
		for range connsPerHost + 1 {
			s, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1/stream"}, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		if _, err := c.Do(context.Background(), Request{URL: "http://127.0.0.1/do", MaxBytes: 1}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"", 0, false}, {"0", 0, true}, {"5", 5 * time.Second, true}, {" 5 ", 5 * time.Second, true}, {"3600", time.Hour, true}, {"3601", time.Hour, true},
		{"99999999999999999999999", time.Hour, true}, {"-1", 0, false}, {"1.5", 0, false}, {"soon", 0, false},
		{"Fri, 02 Jan 2026 03:05:05 GMT", time.Minute, true}, {"Fri, 02 Jan 2026 03:00:00 GMT", 0, true}, {"Sat, 03 Jan 2026 03:00:00 GMT", time.Hour, true},
	} {
		h := http.Header{}
		if tt.value != "" {
			h.Set("Retry-After", tt.value)
		}
		if got, ok := RetryAfter(h, now, time.Hour); got != tt.want || ok != tt.ok {
			t.Errorf("RetryAfter(%q) = %v, %v; want %v, %v", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}
