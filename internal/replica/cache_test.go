package replica

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/witan-adp/witan/internal/web"
)

// request answers a request by one of the replica's handlers.
func request(t *testing.T, serve func(http.ResponseWriter, *http.Request) error, method, query string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, eventsURL+query, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	if err := serve(w, req); err != nil {
		t.Fatalf("%s %v: %v", query, header, err)
	}
	return w
}

func TestPagesAreCached(t *testing.T) {
	s := begin(t, nil).upTo(7)
	r := keep(t, openSet(t, memory(t)), s)
	public := func(w http.ResponseWriter, req *http.Request) error { return r.ServeEvents(w, req, eventsURL, true) }
	private := func(w http.ResponseWriter, req *http.Request) error { return r.ServeEvents(w, req, eventsURL, false) }
	tags := map[string]string{}
	for query, want := range map[string]string{
		"?limit=3":             web.CacheFinal,
		"?after_seq=3&limit=4": web.CacheFinal,
		"?after_seq=4&limit=4": web.CacheAsk,
		"?after_seq=4":         web.CacheAsk,
		"?after_seq=7":         web.CacheAsk,
		"?after_seq=99":        web.CacheAsk,
	} {
		w := request(t, public, "GET", query)
		if got := w.Header().Get("Cache-Control"); got != want {
			t.Errorf("%s: Cache-Control %q, not %q", query, got, want)
		}
		if got := request(t, private, "GET", query).Header().Get("Cache-Control"); got != web.CacheNever {
			t.Errorf("%s: Cache-Control %q of a room that is not public", query, got)
		}
		tag := w.Header().Get("ETag")
		if empty := w.Body.String() == "[]"; empty != (tag == "") {
			t.Errorf("%s: tag %q of %.20s", query, tag, w.Body)
		}
		if tag == "" {
			continue
		}
		if old := tags[tag]; old != "" && old != w.Body.String() {
			t.Errorf("%s: the tag %s is that of another page", query, tag)
		}
		tags[tag] = w.Body.String()
		again := request(t, public, "GET", query, "If-None-Match", `"x", `+tag)
		if again.Code != 304 || again.Body.Len() > 0 || again.Header().Get("ETag") != tag || again.Header().Get("Link") != w.Header().Get("Link") {
			t.Errorf("%s: %d %v", query, again.Code, again.Header())
		}
		if other := request(t, public, "GET", query, "If-None-Match", `"x"`); other.Code != 200 || other.Body.String() != w.Body.String() {
			t.Errorf("%s: %d", query, other.Code)
		}
	}
	if len(tags) != 3 { // two queries give the same records
		t.Errorf("%d tags", len(tags))
	}

	// what grows, and what is withheld, gets another tag
	page := request(t, public, "GET", "?after_seq=4")
	wait(t, feed(t, r, s.upTo(8), 7, 8), 1)
	if grown := request(t, public, "GET", "?after_seq=4", "If-None-Match", page.Header().Get("ETag")); grown.Code != 200 {
		t.Errorf("the page has grown: %d", grown.Code)
	}
	page = request(t, public, "GET", "?after_seq=4")
	var seen []string
	for seq := int64(5); seq <= 8; seq++ {
		if _, err := r.Withhold(seq, "test", s.now, Seal); err != nil {
			continue // no message
		}
		cut := request(t, public, "GET", "?after_seq=4", "If-None-Match", page.Header().Get("ETag"))
		if cut.Code != 200 || bytes.Equal(cut.Body.Bytes(), page.Body.Bytes()) {
			t.Errorf("seq %d is withheld: %d", seq, cut.Code)
		}
		seen = append(seen, cut.Header().Get("ETag"))
		if err := r.Release(seq); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) < 2 || seen[0] == seen[1] {
		t.Errorf("tags of pages with another record withheld: %q", seen)
	}
	if back := request(t, public, "GET", "?after_seq=4", "If-None-Match", page.Header().Get("ETag")); back.Code != 304 {
		t.Errorf("after the release: %d", back.Code)
	}
}

func TestArchivesAreCachedAndComeInParts(t *testing.T) {
	s := ended(t)
	r := keep(t, openSet(t, memory(t)), s)
	if _, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now+5); err != nil {
		t.Fatal(err)
	}
	bundle := func(w http.ResponseWriter, req *http.Request) error { return r.ServeBundle(w, req, true) }
	manifest := func(w http.ResponseWriter, req *http.Request) error { return r.ServeManifest(w, req, true) }
	events := func(w http.ResponseWriter, req *http.Request) error { return r.ServeEvents(w, req, eventsURL, true) }
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request) error{"archive.jsonl": bundle, "archive": manifest, "events": events} {
		w := request(t, serve, "GET", "")
		tag := w.Header().Get("ETag")
		if w.Header().Get("Cache-Control") != web.CacheFinal || tag == "" {
			t.Errorf("%s: %v", name, w.Header())
		}
		if again := request(t, serve, "GET", "", "If-None-Match", tag); again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s: %d", name, again.Code)
		}
	}
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"archive.jsonl": func(w http.ResponseWriter, req *http.Request) error { return r.ServeBundle(w, req, false) },
		"archive":       func(w http.ResponseWriter, req *http.Request) error { return r.ServeManifest(w, req, false) },
		"part": func(w http.ResponseWriter, req *http.Request) error {
			req.Header.Set("Range", "bytes=0-9")
			return r.ServeBundle(w, req, false)
		},
		"archive.md": func(w http.ResponseWriter, req *http.Request) error {
			return r.ServeMarkdown(w, req, roomURL, s.now, false)
		},
	} {
		if got := request(t, serve, "GET", "").Header().Get("Cache-Control"); got != web.CacheNever {
			t.Errorf("%s of a room that is not public: %q", name, got)
		}
	}

	whole := request(t, bundle, "GET", "")
	all, tag := whole.Body.Bytes(), whole.Header().Get("ETag")
	if n := whole.Header().Get("Content-Length"); n != strconv.Itoa(len(all)) || whole.Header().Get("Accept-Ranges") != "bytes" {
		t.Errorf("%d bytes, declared are %s", len(all), n)
	}
	if head := request(t, bundle, "HEAD", ""); head.Body.Len() > 0 || head.Header().Get("Content-Length") != strconv.Itoa(len(all)) || head.Header().Get("ETag") != tag {
		t.Errorf("HEAD: %v", head.Header())
	}
	n := len(all)
	for _, c := range []struct {
		spec     string
		from, to int // to is behind the last
	}{
		{"bytes=0-0", 0, 1}, {"bytes=0-", 0, n}, {"bytes=5-99", 5, 100}, {"bytes=-1", n - 1, n}, {"bytes=-700", n - 700, n},
		{fmt.Sprintf("bytes=%d-%d", n/2, n/2+2000), n / 2, min(n, n/2+2001)}, {fmt.Sprintf("bytes=%d-%d", n-3, n+50), n - 3, n},
	} {
		w := request(t, bundle, "GET", "", "Range", c.spec, "If-Range", tag)
		if w.Code != http.StatusPartialContent || !bytes.Equal(w.Body.Bytes(), all[c.from:c.to]) || w.Header().Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", c.from, c.to-1, n) {
			t.Errorf("%s: %d, %s, %d bytes", c.spec, w.Code, w.Header().Get("Content-Range"), w.Body.Len())
		}
	}
	if w := request(t, bundle, "GET", "", "Range", fmt.Sprintf("bytes=%d-", n)); w.Code != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("behind the end: %d", w.Code)
	}
	if w := request(t, bundle, "GET", "", "Range", "bytes=5-9", "If-Range", `"other"`); w.Code != 200 || !bytes.Equal(w.Body.Bytes(), all) {
		t.Errorf("If-Range of another file: %d, %d bytes", w.Code, w.Body.Len())
	}

	// with a record withheld these are other bytes, of another length
	for seq := int64(2); ; seq++ {
		if _, err := r.Withhold(seq, "test", s.now, Seal); err == nil {
			break
		} else if seq > int64(len(s.recs)) {
			t.Fatal(err)
		}
	}
	w := request(t, bundle, "GET", "", "Range", "bytes=0-9", "If-None-Match", tag)
	if w.Code != 200 || w.Body.Len() >= n || w.Header().Get("ETag") != "" || w.Header().Get("Cache-Control") != web.CacheAsk {
		t.Errorf("withheld: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
}
