package verifier

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/witan-adp/witan/internal/web"
)

func pack(t *testing.T, text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A client gets the program as it takes it, says so what it is, and asks again without getting it twice.
func TestServe(t *testing.T) {
	program := bytes.Repeat([]byte("\x00asm"), 5000)
	files := fstest.MapFS{"verify-worker.js": {Data: []byte("w()")}, "built/verify.wasm.gz": {Data: pack(t, program)}, "built/wasm_exec.js.gz": {Data: pack(t, []byte("Go"))}}
	all, err := load(files)
	if err != nil || !all.Complete() {
		t.Fatal(err)
	}
	mux := web.NewMux()
	all.Routes(mux)
	tags := map[string]bool{}
	for _, c := range []struct {
		method, file, accept string
		kind, coding         string
		want                 []byte
	}{
		{"GET", "verify.wasm", "gzip, deflate, br, zstd", "application/wasm", "gzip", program},
		{"GET", "verify.wasm", "", "application/wasm", "", program},
		{"GET", "verify.wasm", "br", "application/wasm", "", program},
		{"GET", "verify.wasm", "gzip;q=0", "application/wasm", "", program},
		{"GET", "verify.wasm", "gzip;q=0, *", "application/wasm", "", program},
		{"GET", "verify.wasm", "*", "application/wasm", "gzip", program},
		{"GET", "verify.wasm", "x-gzip ; q=0.5", "application/wasm", "gzip", program},
		{"HEAD", "verify.wasm", "", "application/wasm", "", nil},
		{"GET", "wasm_exec.js", "gzip", "text/javascript; charset=utf-8", "gzip", []byte("Go")},
		{"GET", "verify-worker.js", "gzip", "text/javascript; charset=utf-8", "", []byte("w()")},
	} {
		ask := func(tag string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(c.method, Path+c.file, nil)
			if c.accept != "" {
				r.Header.Set("Accept-Encoding", c.accept)
			}
			if tag != "" {
				r.Header.Set("If-None-Match", tag)
			}
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			return w
		}
		w := ask("")
		h := w.Header()
		got := w.Body.Bytes()
		if h.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if w.Code != 200 || h.Get("Content-Type") != c.kind || h.Get("Content-Encoding") != c.coding || c.method == "GET" && !bytes.Equal(got, c.want) || c.method == "HEAD" && w.Body.Len() > 0 {
			t.Errorf("%s %s for %q: %d %v, %d bytes", c.method, c.file, c.accept, w.Code, h, len(got))
		}
		if p := h.Get("Content-Security-Policy"); !strings.Contains(p, "'wasm-unsafe-eval'") || strings.Contains(p, "'unsafe-eval'") {
			t.Errorf("policy %q", p)
		}
		tag := h.Get("ETag")
		tags[c.file+c.coding+tag] = true
		if w := ask(tag); w.Code != 304 || w.Body.Len() > 0 {
			t.Errorf("%s %s asked again: %d", c.method, c.file, w.Code)
		}
	}
	if len(tags) != 4 { // one for each file and coding
		t.Errorf("tags: %v", tags)
	}
}

// A build without the program says so, and serves the rest; one with a torn program does not start.
func TestIncompleteBuild(t *testing.T) {
	all, err := load(fstest.MapFS{"verify-worker.js": {Data: []byte("w()")}})
	if err != nil || all.Complete() {
		t.Fatalf("%v, complete %v", err, all.Complete())
	}
	mux := web.NewMux()
	all.Routes(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", Path+"verify.wasm", nil))
	if w.Code != 404 {
		t.Errorf("status %d", w.Code)
	}
	torn := pack(t, []byte("program"))
	if _, err := load(fstest.MapFS{"verify-worker.js": {Data: []byte("w()")}, "built/verify.wasm.gz": {Data: torn[:len(torn)-6]}}); err == nil || !strings.Contains(err.Error(), "make") {
		t.Errorf("torn: %v", err)
	}
	if _, err := Load(); err != nil {
		t.Error(err)
	}
}
