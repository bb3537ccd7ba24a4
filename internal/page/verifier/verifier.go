// Package verifier gives browsers what they need to verify a room on the reader's own machine: the program of internal/page/verifier/wasm, and
// the worker that runs it. The script of the page of a room starts the worker and shows what it found. The program is compiled by scripts/wasm.sh before the daemon is; a
// build without it is complete but for this, and says so. The package serves files, and judges nothing.
package verifier

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/web"
)

//go:embed built verify-worker.js
var embedded embed.FS

// Path is below which everything of this package is served.
const Path = "/static/verify/"

// Worker is the path of the worker.
const Worker = Path + "verify-worker.js"

// workerPolicy lets the worker run its own script and WebAssembly, and read from the daemon. The policy of the page needs none of this:
// a worker has its own.
const workerPolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"

var kinds = map[string]string{".js": "text/javascript; charset=utf-8", ".wasm": "application/wasm"}

// file is one file in memory.
type file struct {
	plain, packed       []byte // packed is nil for a file that is not worth it; plain is nil for one that is kept packed only
	plainTag, packedTag string
	size                int64 // unpacked
	kind                string
}

// Files are what is served.
type Files struct{ byName map[string]*file }

// Load reads the files of this build, once: unpacking them to see that they are whole
// takes a while.
func Load() (*Files, error) { return ofThisBuild() }

var ofThisBuild = sync.OnceValues(func() (*Files, error) { return load(embedded) })

func load(from fs.FS) (*Files, error) {
	all := &Files{byName: map[string]*file{}}
	for _, name := range []string{"verify-worker.js"} {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		all.byName[name] = &file{plain: text, plainTag: web.Tag(text), size: int64(len(text)), kind: kinds[path.Ext(name)]}
	}
	for _, name := range []string{"wasm_exec.js", "verify.wasm"} {
		packed, err := fs.ReadFile(from, "built/"+name+".gz")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f := &file{packed: packed, packedTag: web.Tag(packed), kind: kinds[path.Ext(name)]}
		f.plainTag = strings.TrimSuffix(f.packedTag, `"`) + `-plain"`
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err == nil {
			f.size, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return nil, errors.New("the verifier for browsers was not packed well (" + err.Error() + "); build again with make")
		}
		all.byName[name] = f
	}
	return all, nil
}

// Complete tells whether this build has the check in the browser.
func (all *Files) Complete() bool {
	return all.byName["verify.wasm"] != nil && all.byName["wasm_exec.js"] != nil
}

// Routes adds the files to a mux.
func (all *Files) Routes(mux *web.Mux) {
	mux.Handle("GET", Path+"{file}", func(w http.ResponseWriter, r *http.Request) error {
		f := all.byName[r.PathValue("file")]
		if f == nil {
			return adp.Errorf(adp.NotFound, "this build has no such file")
		}
		return f.serve(w, r)
	})
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", workerPolicy)
	body, tag := f.plain, f.plainTag
	if f.packed != nil {
		h.Set("Vary", "Accept-Encoding")
		if web.TakesGzip(r.Header.Values("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body, tag = f.packed, f.packedTag
		}
	}
	if web.NotModified(w, r, tag, web.CacheAsk) {
		return nil
	}
	if body != nil {
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, err := w.Write(body)
		return err
	}
	h.Set("Content-Length", strconv.FormatInt(f.size, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	z, err := gzip.NewReader(bytes.NewReader(f.packed))
	if err != nil {
		return err
	}
	_, err = io.Copy(w, z)
	return err
}
