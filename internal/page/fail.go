package page

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// maxError bounds the body of an error that becomes a page.
const maxError = 64 << 10

// Errors gives browsers a page where other programs get an error as JSON: same
// status, same reason. It stands around the router, and touches only answers to
// requests that ask for text/html.
func (s *Site) Errors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Wanted(r) || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		c := &catcher{ResponseWriter: w}
		next.ServeHTTP(c, r)
		if c.status != 0 {
			s.fail(w, c.status, c.body.Bytes())
		}
	})
}

// catcher holds back an answer that is an error in JSON.
type catcher struct {
	http.ResponseWriter
	begun  bool
	status int // of the error; 0: the answer went through
	body   bytes.Buffer
}

func (c *catcher) WriteHeader(status int) {
	if c.begun {
		return
	}
	if status < 200 {
		c.ResponseWriter.WriteHeader(status)
		return
	}
	c.begun = true
	if status >= 400 && strings.HasPrefix(c.Header().Get("Content-Type"), "application/json") {
		c.status = status
		return
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *catcher) Write(b []byte) (int, error) {
	if !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	if c.status == 0 {
		return c.ResponseWriter.Write(b)
	}
	if c.body.Len()+len(b) <= maxError {
		c.body.Write(b)
	}
	return len(b), nil
}

// FlushError is what http.ResponseController calls to flush.
func (c *catcher) FlushError() error {
	if !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	if c.status != 0 {
		return nil
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (c *catcher) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// failure is what the page of an error shows.
type failure struct {
	Status              int
	Code, Reason, Title string
	Next                string // what to do, or ""
	RequestID           string
}

func (s *Site) fail(w http.ResponseWriter, status int, body []byte) {
	var said struct {
		Error struct {
			Code, Message string
			Data          struct {
				RequestID string `json:"request_id"`
			}
		}
	}
	f := failure{Status: status}
	if json.Unmarshal(body, &said) == nil {
		f.Code, f.Reason, f.RequestID = said.Error.Code, said.Error.Message, said.Error.Data.RequestID
	}
	key := "error." + strconv.Itoa(status)
	if _, known := english[key]; !known {
		key = "error.other"
	}
	f.Title = t(key)
	f.Next = english[key+".next"]
	page, err := s.render("error", "frame", Frame{Title: f.Title, Page: f})
	if err != nil { // the reason still gets out, as it was
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return
	}
	secure(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page)
}
