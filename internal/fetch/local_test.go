package fetch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLocal(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Host", r.Host)
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "q="+r.URL.Query().Get("q"))
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	mux.HandleFunc("GET /empty", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /early", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("GET /cut", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "half"); panic("no") })
	c := NewLocal("http://127.0.0.1:1", mux, Options{})
	get := func(path string) (*Response, error) {
		return c.Do(t.Context(), Request{URL: "http://127.0.0.1:1" + path, MaxBytes: 10})
	}
	r, err := get("/list?q=a%20b")
	if err != nil || r.Status != http.StatusTeapot || string(r.Body) != "q=a b" || r.Header.Get("X-Host") != "127.0.0.1:1" {
		t.Errorf("list: %+v, %v", r, err)
	}
	if r, err := c.Do(t.Context(), Request{Method: "POST", URL: "http://127.0.0.1:1/echo", Body: []byte("hi"), MaxBytes: 10}); err != nil || string(r.Body) != "hi" {
		t.Errorf("echo: %+v, %v", r, err)
	}
	if r, err := get("/empty"); err != nil || r.Status != http.StatusOK || len(r.Body) != 0 {
		t.Errorf("empty: %+v, %v", r, err)
	}
	if r, err := get("/early"); KindOf(err) != Broken {
		t.Errorf("a handler that gave up: %+v, %v", r, err)
	}
	if r, err := get("/cut"); err == nil {
		t.Errorf("a half answer was taken for a whole one: %+v", r)
	}
	if _, err := c.Do(t.Context(), Request{Method: "POST", URL: "http://127.0.0.1:1/echo", Body: []byte(strings.Repeat("x", 11)), MaxBytes: 10}); KindOf(err) != TooLarge {
		t.Errorf("an answer over its bound: %v", err)
	}
	for _, other := range []string{"http://127.0.0.1:2/list", "https://127.0.0.1:1/list", "https://example.com/list"} {
		if _, err := c.Do(t.Context(), Request{URL: other, MaxBytes: 10}); KindOf(err) != Blocked {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// A handler that hangs is left when the time is over, and a stream that nobody reads ends with its reader.
func TestLocalEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		c := NewLocal("http://127.0.0.1:1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hang" {
				<-r.Context().Done()
				return
			}
			for {
				if _, ended = w.Write([]byte("more\n")); ended != nil {
					return
				}
			}
		}), Options{})
		if _, err := c.Do(t.Context(), Request{URL: "http://127.0.0.1:1/hang", MaxBytes: 10, Timeout: time.Second}); KindOf(err) != Timeout {
			t.Errorf("hang: %v", err)
		}
		s, err := c.Stream(context.Background(), Request{URL: "http://127.0.0.1:1/more"}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		s.Close()
		synctest.Wait()
		if ended == nil || errors.Is(ended, context.Canceled) {
			t.Errorf("the handler was told %v", ended)
		}
	})
}
