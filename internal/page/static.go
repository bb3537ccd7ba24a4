package page

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/web"
)

// asset is one file of /static.
type asset struct {
	body    []byte
	packed  []byte // in gzip; nil when that is not shorter
	typ     string
	tag     string
	version string
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
		if typ, ok := contentTypes[path.Ext(e.Name())]; ok {
			sum := sha256.Sum256(body)
			a := &asset{body: body, typ: typ, tag: web.Tag(body), version: hex.EncodeToString(sum[:6])}
			if p := pack(body); len(p) < len(body) {
				a.packed = p
			}
			all[e.Name()] = a
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
	if a.packed != nil {
		h.Set("Vary", "Accept-Encoding")
		if web.TakesGzip(r.Header.Values("Accept-Encoding")) {
			body, tag = a.packed, packedTag(a.tag)
		}
	}
	if web.NotModified(w, r, tag, cache) {
		return nil
	}
	if tag != a.tag {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
	return nil
}
