package web

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
)

const jsonType = "application/json"

// WriteJSON encodes v and answers with it. A value that JSON cannot hold is a
// fault of the program and panics before anything is sent; the guard answers 500.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := adp.EncodeJSON(v)
	if err != nil {
		panic(fmt.Errorf("web: answer of type %T cannot be encoded: %w", v, err))
	}
	WriteRaw(w, status, body)
}

// WriteRaw answers with a body that is JSON already, byte for byte.
func WriteRaw(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the length is declared: a cut answer is seen to be cut
}

// arrayWriters hold the 32 KiB through which a list goes out, so that a page of
// many small items costs few writes and is never copied as a whole.
var arrayWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 32<<10) }}

// WriteArray answers 200 with a bare JSON array of values that are JSON already.
func WriteArray(w http.ResponseWriter, items [][]byte) {
	length := 2 + max(0, len(items)-1)
	for _, item := range items {
		length += len(item)
	}
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(http.StatusOK)

	out := arrayWriters.Get().(*bufio.Writer)
	out.Reset(w)
	defer func() {
		out.Reset(io.Discard) // keep no request alive from the pool
		arrayWriters.Put(out)
	}()
	_ = out.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if _, err := out.Write(item); err != nil {
			return // the reader is gone; the declared length shows the cut
		}
	}
	_ = out.WriteByte(']')
	_ = out.Flush()
}

var linkEscaper = strings.NewReplacer("<", "%3C", ">", "%3E", "\r", "%0D", "\n", "%0A")

// NextLink announces the next page of a list (RFC 8288). Call it before the
// body is written; absoluteURL has scheme and authority.
func NextLink(w http.ResponseWriter, absoluteURL string) {
	w.Header().Set("Link", "<"+linkEscaper.Replace(absoluteURL)+`>; rel="next"`)
}
