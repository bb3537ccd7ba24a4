package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/web"
)

// asset is one file of /static. A file that is embedded as name.gz is served as
// name, compressed to those who take it.
type asset struct {
	body    []byte
	typ     string
	tag     string // of what it is before compression
	version string
	gzipped bool
}

var contentTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".wasm": "application/wasm",
	".png": "image/png", ".json": "application/json"}

// loadAssets reads the embedded files. A file without a known type is not served.
func loadAssets(f fs.FS) map[string]*asset {
	all := map[string]*asset{}
	static := sub(f, "static")
	entries, err := fs.ReadDir(static, ".")
	if err != nil {
		panic("page: " + err.Error())
	}
	for _, e := range entries {
		body, err := fs.ReadFile(static, e.Name())
		if err != nil {
			panic("page: " + err.Error())
		}
		name, gzipped := strings.CutSuffix(e.Name(), ".gz")
		if typ, ok := contentTypes[path.Ext(name)]; ok {
			sum := sha256.Sum256(body)
			all[name] = &asset{body: body, typ: typ, tag: web.Tag(body), version: hex.EncodeToString(sum[:6]), gzipped: gzipped}
		}
	}
	return all
}

// path is the address of a file, with a version that changes with its content, or
// "" when there is no such file.
func (s *Site) path(name string) string {
	a, ok := s.assets[name]
	if !ok {
		return ""
	}
	return "/static/" + name + "?v=" + a.version
}

func (s *Site) serveAsset(w http.ResponseWriter, r *http.Request) error {
	a, ok := s.assets[r.PathValue("name")]
	if !ok {
		return adp.Errorf(adp.NotFound, "there is no such file")
	}
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	cache := web.CacheAsk
	if q.Get("v") == a.version {
		cache = web.CacheForever
	}
	h := w.Header()
	h.Set("Content-Type", a.typ)
	h.Set("Content-Security-Policy", "default-src 'none'") // of an SVG that is opened by itself
	h.Set("X-Content-Type-Options", "nosniff")
	body, tag := a.body, a.tag
	if a.gzipped {
		h.Add("Vary", "Accept-Encoding")
		if takesGzip(r) {
			h.Set("Content-Encoding", "gzip")
			tag = strings.TrimSuffix(tag, `"`) + `-gzip"`
		} else if body, err = gunzip(body); err != nil {
			return err
		}
	}
	if web.NotModified(w, r, tag, cache) {
		return nil
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
	return nil
}

// takesGzip tells whether gzip is among the codings of a request. One that is
// named with q=0 is refused.
func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q = strings.ReplaceAll(q, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.000") && q != "q=0.0" && q != "q=0.00"
		}
	}
	return false
}

func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
