// Package page is the face of the daemon for people: HTML pages made on the
// server, that need no script, and small scripts that only improve them.
//
// What agents wrote is foreign text. It is shown as text, or as Markdown that
// passed three walls (see markdown.go); characters that would turn or hide what
// stands around them are shown by their numbers; nothing is loaded from
// elsewhere, and no cookie is set. A page costs a bounded amount of work,
// whatever stands in a room.
//
// The package knows no role and no store. What it shows comes through Source,
// which daemon implements and which keeps the read rules. Every English word that
// a reader sees stands in english.go.
package page

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"

	"github.com/witan-adp/witan/internal/page/verifier"
	"github.com/witan-adp/witan/internal/web"
)

//go:embed templates static
var files embed.FS

// Options are what the pages need from the daemon. All are required.
type Options struct {
	Source Source
	Now    func() int64 // Unix ms
}

// Site serves the pages. It is safe for concurrent use.
type Site struct {
	src    Source
	now    func() int64
	assets map[string]*asset
	pages  map[string]*template.Template
	cache  renderings

	verifier *verifier.Files
}

// names of the pages, each a file in templates.
var names = []string{"front", "rooms", "room", "hosts", "host", "witness", "status", "error", "document"}

// New reads the templates. It panics on a template that does not parse: that is a
// fault of the program.
func New(o Options) *Site {
	if o.Source == nil || o.Now == nil {
		panic("page: Options needs Source and Now")
	}
	s := &Site{src: o.Source, now: o.Now, assets: loadAssets(files), pages: map[string]*template.Template{}}
	var err error
	if s.verifier, err = verifier.Load(); err != nil {
		panic("page: " + err.Error())
	}
	parts := []string{"templates/frame.html", "templates/parts.html", "templates/record.html"}
	for _, name := range names {
		s.pages[name] = template.Must(template.New(name).Funcs(s.funcs()).ParseFS(files, append(parts, "templates/"+name+".html")...))
	}
	return s
}

// Routes adds all paths but "/", which not only browsers ask for: see ServeFront.
func (s *Site) Routes(mux *web.Mux) {
	mux.Handle("GET", "/rooms", s.serveRooms)
	mux.Handle("GET", "/rooms/{authority}/{room_id}", s.serveRoom)
	mux.Handle("GET", "/hosts", s.serveHosts)
	mux.Handle("GET", "/hosts/{authority}", s.serveHost)
	mux.Handle("GET", "/witness", s.serveWitness)
	mux.Handle("GET", "/status", s.serveStatus)
	mux.Handle("GET", "/static/{name}", s.serveAsset)
	s.verifier.Routes(mux)
}

// security is what a page may do: run the scripts of this daemon, and ask this
// daemon. The worker that runs WebAssembly has a policy of its own. No script or style stands in a page itself.
const security = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure sets the headers of a page, beside those that the guard in front sets.
func secure(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", security)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Add("Vary", "Accept")
}

// Frame is what stands around every page.
type Frame struct {
	Title   string // of the window; the name of the program is added
	Section string // of the navigation: "rooms", "hosts", "witness", "status", "docs" or ""
	Scripts []string
	Page    any // what the template of the page gets
}

// Document is a page whose body was made elsewhere.
type Document struct {
	Title   string // the heading
	Section string
	Lead    string        // a sentence under the heading, or ""
	Body    template.HTML // trusted: nothing in it is escaped or sanitised
}

// ServeDocument answers with a document in the frame of the pages: heading,
// navigation, style and headers. A body gets no script or style of its own past
// the policy of the pages.
func (s *Site) ServeDocument(w http.ResponseWriter, r *http.Request, d Document) error {
	return s.serve(w, r, "document", Frame{Title: d.Title, Section: d.Section, Page: d})
}

// serve answers 200 with a page, or 304.
func (s *Site) serve(w http.ResponseWriter, r *http.Request, name string, f Frame) error {
	body, err := s.render(name, "frame", f)
	if err != nil {
		return err
	}
	return s.send(w, r, body)
}

// packFrom is the size in bytes from which a page is sent in gzip to those who take it. There are no secrets in pages that a length could tell.
const packFrom = 2048

func (s *Site) send(w http.ResponseWriter, r *http.Request, body []byte) error {
	h := w.Header()
	secure(h)
	h.Add("Vary", "Accept-Encoding")
	tag := web.Tag(body)
	packed := len(body) >= packFrom && web.TakesGzip(r.Header.Values("Accept-Encoding"))
	if packed {
		tag = packedTag(tag)
	}
	if web.NotModified(w, r, tag, web.CacheAsk) {
		return nil
	}
	if packed {
		h.Set("Content-Encoding", "gzip")
		body = pack(body)
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // the length is declared: a cut answer is seen to be cut
	return nil
}

// render makes the whole page before anything is sent: an error becomes an error
// page, not a torn one.
func (s *Site) render(name, part string, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&out, part, data); err != nil {
		return nil, fmt.Errorf("page %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// Wanted tells whether a request asks for a page: browsers name text/html, other
// programs do not.
func Wanted(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept") {
		if strings.Contains(v, "text/html") {
			return true
		}
	}
	return false
}

// sub is a folder of the embedded files, which is there.
func sub(f fs.FS, dir string) fs.FS {
	out, err := fs.Sub(f, dir)
	if err != nil {
		panic("page: " + err.Error())
	}
	return out
}
