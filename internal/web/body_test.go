package web

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp"
)

func TestReadBody(t *testing.T) {
	const max = 100 << 10
	for _, tt := range []struct {
		name     string
		body     io.Reader
		length   int64
		encoding []string
		want     adp.Code
	}{
		{"empty", strings.NewReader(""), 0, nil, ""},
		{"at the bound", strings.NewReader(strings.Repeat("x", max)), max, nil, ""},
		{"over the bound, declared", unread{t}, max + 1, nil, adp.PayloadTooLarge},
		{"at the bound, undeclared", strings.NewReader(strings.Repeat("x", max)), -1, nil, ""},
		{"over the bound, undeclared", strings.NewReader(strings.Repeat("x", max+1)), -1, nil, adp.PayloadTooLarge},
		{"byte by byte", iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 10_000))), -1, nil, ""},
		{"data with EOF", iotest.DataErrReader(strings.NewReader("xyz")), 3, nil, ""},
		{"cut", io.MultiReader(strings.NewReader("xy"), iotest.ErrReader(io.ErrUnexpectedEOF)), 3, nil, adp.InvalidRequest},
		{"identity", strings.NewReader("x"), 1, []string{"Identity"}, ""},
		{"gzip", unread{t}, 1, []string{"gzip"}, adp.InvalidRequest},
		{"gzip after identity", unread{t}, 1, []string{"identity, gzip"}, adp.InvalidRequest},
		{"gzip on a second line", unread{t}, 1, []string{"identity", "br"}, adp.InvalidRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/", tt.body)
			r.ContentLength = tt.length
			r.Header["Content-Encoding"] = tt.encoding
			w := httptest.NewRecorder()
			body, err := ReadBody(w, r, max)
			if adp.CodeOf(err) != tt.want || (err != nil) != (tt.want != "") {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if tt.want == "" && tt.length >= 0 && int64(len(body)) != tt.length {
				t.Errorf("%d bytes of %d", len(body), tt.length)
			}
			if closes := w.Header().Get("Connection") == "close"; tt.want == adp.PayloadTooLarge && !closes {
				t.Error("the connection stays open with the rest of the body on it")
			}
		})
	}
	if body, err := ReadBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), max); len(body) != 0 || err != nil {
		t.Errorf("no body: %q, %v", body, err)
	}
}

func bodyMux(max int64) *Mux {
	m := NewMux()
	m.Handle("POST", "/read", func(w http.ResponseWriter, r *http.Request) error {
		body, err := ReadBody(w, r, max)
		if err != nil {
			return err
		}
		WriteJSON(w, 200, len(body))
		return nil
	})
	m.Handle("POST", "/late", func(w http.ResponseWriter, r *http.Request) error {
		if _, err := ReadBody(w, r, max); err != nil {
			return err
		}
		select { // longer than a body may take
		case <-r.Context().Done():
			return errors.New("cancelled by the body's deadline")
		case <-time.After(2 * bodyTime):
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
	m.Handle("POST", "/ignore", func(w http.ResponseWriter, r *http.Request) error {
		return adp.Errorf(adp.InvalidToken, "No.")
	})
	return m
}

func TestSlowBodyIsCut(t *testing.T) {
	for path, want := range map[string]string{"/read": "400", "/ignore": "401"} {
		synctest.Test(t, func(t *testing.T) {
			c := servePipes(t, guardedServer(&Guard{}, bodyMux(1000)))()
			start := time.Now()
			send(t, c, "POST "+path+" HTTP/1.1\nHost: example.com\nContent-Length: 100\n\nsome")
			stop := make(chan struct{})
			defer close(stop)
			go func() { // a byte every ten seconds keeps no body alive
				for {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Second):
						if _, err := c.Write([]byte("x")); err != nil {
							return
						}
					}
				}
			}()
			resp, body := receive(t, bufio.NewReader(c))
			if took := time.Since(start); took != bodyTime {
				t.Errorf("%s: answered after %v, want %v", path, took, bodyTime)
			}
			if !strings.HasPrefix(resp.Status, want) || !resp.Close {
				t.Errorf("%s: %s, close %v: %s", path, resp.Status, resp.Close, body)
			}
			if path == "/read" && !strings.Contains(body, "within 30 seconds") {
				t.Errorf("got %s", body)
			}
		})
	}
}

func TestBodyDeadlineDoesNotOutliveTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servePipes(t, guardedServer(&Guard{}, bodyMux(1000)))()
		r := bufio.NewReader(c)
		for range 2 { // also over a connection that was idle in between
			send(t, c, "POST /late HTTP/1.1\nHost: example.com\nContent-Length: 4\n\nsome")
			if resp, body := receive(t, r); resp.StatusCode != 204 {
				t.Fatalf("%s: %s", resp.Status, body)
			}
			<-time.After(100 * time.Second) // the fake clock
		}
	})
}

func TestTooLargeBodyGetsItsAnswer(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(bodyMux(512<<10), quiet())
	server.Start()
	defer server.Close()
	for _, declared := range []bool{true, false} {
		body := io.Reader(strings.NewReader(strings.Repeat(" ", 600_000)))
		if !declared {
			body = io.MultiReader(body)
		}
		resp, err := http.Post(server.URL+"/read", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 413 || !strings.Contains(string(text), strconv.Itoa(512<<10)) {
			t.Errorf("declared %v: %d %s, %v", declared, resp.StatusCode, text, err)
		}
	}
}
