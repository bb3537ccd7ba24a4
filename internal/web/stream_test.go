package web

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStream(t *testing.T) {
	m := NewMux()
	m.Handle("GET", "/live", func(w http.ResponseWriter, r *http.Request) error {
		s, err := NewStream(w, r)
		if err != nil {
			return err
		}
		for _, bad := range []error{
			s.Send("a\nb", [][]byte{[]byte("1")}), s.Send("a", [][]byte{[]byte("1"), []byte("{\n}")}),
			s.Send("a", [][]byte{[]byte("1\r")}), s.Comment("a\nb"),
		} {
			if bad == nil {
				t.Error("a line break was sent")
			}
		}
		return errors.Join(
			s.Send("room.event", [][]byte{[]byte(`{"seq":1}`), []byte(`{"seq":2}`)}),
			s.Comment("ping"), s.Send("none", nil), s.Send("", [][]byte{[]byte("3")}),
		)
	})
	server := httptest.NewUnstartedServer(nil)
	g := &Guard{Origin: "http://" + server.Listener.Addr().String(), Log: quiet()}
	server.Config = NewServer(g.Wrap(m), quiet())
	server.Start()
	defer server.Close()

	resp, err := http.Get(server.URL + "/live")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	const want = ": open\n\nevent: room.event\ndata: {\"seq\":1}\n\nevent: room.event\ndata: {\"seq\":2}\n\n: ping\n\ndata: 3\n\n"
	if err != nil || string(body) != want {
		t.Errorf("got %q, %v", body, err)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}

	head, err := http.Head(server.URL + "/live")
	if err != nil {
		t.Fatal(err)
	}
	head.Body.Close()
	if head.StatusCode != 200 || head.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %s %v", head.Status, head.Header)
	}
}

func TestStreamNeedsDeadlines(t *testing.T) {
	w := httptest.NewRecorder()
	if _, err := NewStream(w, httptest.NewRequest("GET", "/", nil)); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("got %v", err)
	}
	if w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Error("the answer has begun")
	}
}

// pump is a handler that sends an event every second and reports how it ended.
func pump(ended chan<- error) *Mux {
	m := NewMux()
	m.Handle("GET", "/live", func(w http.ResponseWriter, r *http.Request) error {
		s, err := NewStream(w, r)
		for err == nil {
			select {
			case <-r.Context().Done():
				ended <- nil
				return nil
			case <-time.After(time.Second):
				err = s.Send("e", [][]byte{[]byte("1")})
			}
		}
		if s != nil && s.Comment("more") != err {
			err = errors.Join(errors.New("the stream went on after an error"), err)
		}
		ended <- err
		return err
	})
	return m
}

func TestStreamHeadersGoOutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		c := servePipes(t, guardedServer(&Guard{}, pump(ended)))()
		start := time.Now()
		send(t, c, "GET /live HTTP/1.1\nHost: example.com\n\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		if err != nil || line != ": open\n" || time.Since(start) != 0 {
			t.Errorf("after %v: %q, %v", time.Since(start), line, err)
		}
		c.Close()
		if err := <-ended; err != nil {
			t.Errorf("a reader that leaves: %v", err)
		}
	})
}

func TestSlowStreamReaderIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		c := servePipes(t, guardedServer(&Guard{}, pump(ended)))()
		send(t, c, "GET /live HTTP/1.1\nHost: example.com\n\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		// Read for 5 minutes, which no timeout of the server may end, then stall.
		lines := bufio.NewReader(resp.Body)
		for range 300 {
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if line == "data: 1\n" {
					break
				}
			}
		}
		stalled := time.Now()
		err = <-ended
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(stalled); took < streamWriteTime || took > streamWriteTime+2*time.Second {
			t.Errorf("cut after %v, want %v", took, streamWriteTime)
		}
		synctest.Wait()
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("the connection was not closed: %v", err)
		}
	})
}

func TestStreamWithAnUnfinishedBodyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		c := servePipes(t, guardedServer(&Guard{}, pump(ended)))()
		start := time.Now()
		send(t, c, "GET /live HTTP/1.1\nHost: example.com\nContent-Length: 200\n\n{}")
		resp, body := receive(t, bufio.NewReader(c))
		if resp.StatusCode != 400 || time.Since(start) != bodyTime {
			t.Errorf("after %v: %s %s", time.Since(start), resp.Status, body)
		}
		if err := <-ended; err == nil {
			t.Error("the stream began")
		}
	})
}

func TestStreamIgnoresTheBodyDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		c := servePipes(t, guardedServer(&Guard{}, pump(ended)))()
		start := time.Now()
		send(t, c, "GET /live HTTP/1.1\nHost: example.com\nContent-Length: 2\n\n{}")
		lines := bufio.NewReader(c)
		for time.Since(start) < 2*bodyTime {
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
		}
		c.Close()
		<-ended
	})
}

func TestStalledReaderOfAnAnswerIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		m := NewMux()
		m.Handle("GET", "/big", func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
			ended <- err
			return err
		})
		dial := servePipes(t, guardedServer(&Guard{}, m))

		// Slow but steady: 2 KiB a second takes minutes and is let finish.
		c := dial()
		send(t, c, "GET /big HTTP/1.1\nHost: example.com\nConnection: close\n\n")
		start, total := time.Now(), 0
		buf := make([]byte, 4<<10)
		for {
			n, err := io.ReadFull(c, buf)
			total += n
			if err != nil {
				break
			}
			<-time.After(time.Second) // the fake clock
		}
		if err := <-ended; err != nil || total < 1<<20 {
			t.Errorf("after %v: %d bytes, %v", time.Since(start), total, err)
		}
		if took := time.Since(start); took < 3*time.Minute {
			t.Errorf("took only %v", took)
		}

		c = dial()
		send(t, c, "GET /big HTTP/1.1\nHost: example.com\n\n")
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(start); took != writeTime {
			t.Errorf("cut after %v, want %v", took, writeTime)
		}
	})
}

func TestServerLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := servePipes(t, guardedServer(&Guard{}, testMux()))
		c := dial()
		start := time.Now()
		send(t, c, "GET / HTTP/1.1\nHost:")
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("half a header was waited for %v", took)
		}
		c = dial()
		r := bufio.NewReader(c)
		send(t, c, "OPTIONS * HTTP/1.1\nHost: example.com\n\n")
		if resp, _ := receive(t, r); resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("OPTIONS *: %s", resp.Status)
		}
		start = time.Now()
		if _, err := r.ReadByte(); err != io.EOF {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 120*time.Second {
			t.Errorf("an idle connection was kept %v", took)
		}
	})
}
