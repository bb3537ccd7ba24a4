package page

import (
	"compress/gzip"
	"io"
	"net/http/httptest"
	"slices"
	"testing"
)

// Who takes gzip gets the same page in fewer bytes, under a tag of its own; who does not, gets it plain.
func TestPacked(t *testing.T) {
	w := full(t)
	ask := func(path, accept, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Accept", "text/html")
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		out := httptest.NewRecorder()
		w.handler().ServeHTTP(out, r)
		return out
	}
	for _, path := range []string{thePlace, "/rooms", "/status", "/static/page.css", "/static/page.js"} {
		plain, packed := ask(path, "", ""), ask(path, "br, gzip", "")
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		length := packed.Body.Len()
		got, err := io.ReadAll(z)
		if err != nil || string(got) != plain.Body.String() || length >= len(got)*2/3 {
			t.Errorf("%s: %v, %d bytes for %d", path, err, length, len(got))
		}
		tags := [2]string{plain.Header().Get("ETag"), packed.Header().Get("ETag")}
		if packed.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Encoding") != "" || tags[0] == tags[1] || !slices.Contains(plain.Header().Values("Vary"), "Accept-Encoding") {
			t.Errorf("%s: %v and %v", path, plain.Header(), packed.Header())
		}
		for i, accept := range []string{"", "gzip"} {
			if again := ask(path, accept, tags[i]); again.Code != 304 || again.Body.Len() > 0 {
				t.Errorf("%s with %q again: %d", path, accept, again.Code)
			}
		}
		if other := ask(path, "gzip;q=0", tags[1]); other.Code != 200 || other.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s for one who takes no gzip: %d %v", path, other.Code, other.Header())
		}
	}
}
