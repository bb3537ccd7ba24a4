//go:build !race

package browsertest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"

	"github.com/witan-adp/witan/internal/page/verifier"
)

// liar stands in front of a daemon and changes what it says.
func liar(t *testing.T, d *running, change func(path string, body []byte) []byte) string {
	to, err := url.Parse(d.origin)
	if err != nil {
		t.Fatal(err)
	}
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to) // and its Host, since the daemon answers for no other
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(r *http.Response) error {
			if strings.HasPrefix(r.Request.URL.Path, "/static/") || r.StatusCode != http.StatusOK {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = change(r.Request.URL.Path, body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.ContentLength = int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			r.Header.Del("ETag")
			return nil
		},
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL
}

func complete(t *testing.T) bool {
	files, err := verifier.Load()
	if err != nil {
		t.Fatal(err)
	}
	if !files.Complete() && os.Getenv("CI") != "" {
		t.Fatal("this build has no verifier for browsers: run scripts/wasm.sh first")
	}
	return files.Complete()
}

// check presses the button and waits for the result.
func (b *tab) check() (outcome, text string) {
	b.t.Helper()
	b.wait("the button", `document.getElementById('verify-start') && !document.getElementById('verify-start').hidden`)
	eval[any](b, `document.getElementById('verify-start').click()`)
	b.wait("the result of the check", `document.getElementById('verify').dataset.result`)
	return eval[string](b, `document.getElementById('verify').dataset.result`), eval[string](b, `document.getElementById('verify-result').innerText`)
}

// The check in the browser bears out an honest daemon: for an archive, a room that goes on, and a mirror's copy. It loads nothing before it is asked to.
func TestVerifyTrue(t *testing.T) {
	w := begin(t)
	if !complete(t) {
		b := open(t, w.a.origin)
		b.visit(w.modbus.page())
		b.wait("the page to say that it has no check", `document.getElementById('verify').innerText.includes('has no check in the browser')`)
		t.Skip("this build has no verifier for browsers (scripts/wasm.sh makes it); the page says so")
	}
	mirrored := func(h hosted) string { return "/rooms/" + w.a.authority() + "/" + h.id }
	for _, v := range []view{{"archive", w.a.origin, w.modbus.page(), nil}, {"live", w.a.origin, w.live.page(), nil}, {"mirrored archive", w.b.origin, mirrored(w.modbus), nil}, {"hostile", w.b.origin, mirrored(w.hostile), nil}, {"long", w.b.origin, mirrored(w.long), nil}, {"withheld", w.a.origin, w.taken.page(), nil},
		{"forked", w.b.origin, "/rooms/" + w.c.authority() + "/" + w.forked.id, nil}} {
		b := open(t, v.origin)
		b.visit(v.path)
		if b.requested("wasm") {
			t.Errorf("%s: the verifier was loaded before anybody asked", v.name)
		}
		eval[any](b, `(() => {
			window.told = [];
			const bar = document.getElementById('verify-progress');
			new MutationObserver(() => { if (!bar.hidden && bar.max > 1) window.told.push(bar.value / bar.max); }).observe(bar, {attributes: true});
		})()`)
		outcome, text := b.check()
		if v.name == "withheld" && (!strings.Contains(text, "Withheld, so that nobody can check") || strings.Contains(text, "Every record is what its author signed")) {
			t.Errorf("withheld: %s", text)
		}
		if told := eval[[]float64](b, "window.told"); v.name == "long" && (len(told) < 2 || !slices.IsSorted(told) || told[len(told)-1] < .9) {
			t.Errorf("long: the bar showed %v", told)
		}
		if eval[bool](b, `!!document.getElementById('verify-alarm')`) {
			t.Errorf("%s: an alarm over an honest page", v.name)
		}
		if v.name == "forked" && !strings.Contains(text, "warning of this daemon (forked) is about more than its copy can show") {
			t.Errorf("forked: %s", text)
		}
		if outcome != "good" {
			t.Errorf("%s: %s: %s", v.name, outcome, text)
		}
		if !b.requested("verify.wasm") && !eval[bool](b, `performance.getEntriesByType('resource').some(e => e.name.includes('verify-worker.js'))`) {
			t.Errorf("%s: what verified?", v.name)
		}
		if strings.Contains(v.name, "archive") && (!strings.Contains(text, "agree") || !strings.Contains(text, "anifest")) {
			t.Errorf("%s: %s", v.name, text)
		}
		b.audited(v.name)
		b.clean(v.name)
		if v.name == "mirrored archive" { // docs/room.png is this one
			b.shootPart("readme", &page.Viewport{Width: 1280, Height: 1120, Scale: 1})
		}
		b.shoot("verified-" + strings.ReplaceAll(v.name, " ", "-"))
	}
}

// A daemon that lies is found out, and the page says so in plain words.
func TestVerifyLies(t *testing.T) {
	w := begin(t)
	if !complete(t) {
		t.Skip("this build has no verifier for browsers (scripts/wasm.sh makes it)")
	}
	other := strings.Repeat("A", 43)
	for name, c := range map[string]struct {
		room   hosted
		change func(path string, body []byte) []byte
		want   string
	}{
		"one word of the archive": {w.modbus, func(path string, body []byte) []byte {
			if strings.HasSuffix(path, "/archive.jsonl") {
				return bytes.Replace(body, []byte("at most twice"), []byte("at most thrice"), 1)
			}
			return body
		}, "record"},
		"a record is left out": {w.modbus, func(path string, body []byte) []byte {
			if strings.HasSuffix(path, "/archive.jsonl") {
				lines := bytes.SplitAfter(body, []byte("\n"))
				return bytes.Join(append(lines[:7:7], lines[8:]...), nil)
			}
			return body
		}, "record"},
		"another root on the page": {w.modbus, func(path string, body []byte) []byte {
			if strings.HasPrefix(path, "/rooms/") {
				return bytes.Replace(body, dataOf(body, "data-root"), []byte(`data-root="`+other+`"`), 1)
			}
			return body
		}, "the root of"},
		"another newest record on the page": {w.live, func(path string, body []byte) []byte {
			if strings.HasPrefix(path, "/rooms/") {
				return bytes.Replace(body, dataOf(body, "data-hash"), []byte(`data-hash="`+other+`"`), 1)
			}
			return body
		}, "the page says that record"},
		"a message of a room that goes on": {w.live, func(path string, body []byte) []byte {
			if strings.HasSuffix(path, "/events") {
				return bytes.ReplaceAll(body, []byte("is an echo"), []byte("is a hero"))
			}
			return body
		}, "record"},
		"an archive that was cut within a record": {w.modbus, func(path string, body []byte) []byte {
			if strings.HasSuffix(path, "/archive.jsonl") {
				return body[:len(body)*2/3]
			}
			return body
		}, "only"},
		"a forged statement": {w.modbus, func(path string, body []byte) []byte {
			if strings.HasSuffix(path, "/witness/statements") {
				return bytes.Replace(body, []byte(`"event_count":`), []byte(`"event_count":1`), 1)
			}
			return body
		}, "nobody signed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, liar(t, w.a, c.change))
			b.visit(c.room.page())
			outcome, text := b.check()
			if outcome != "lied" || !strings.Contains(text, "did not tell the truth") || !strings.Contains(text, c.want) {
				t.Errorf("%s: %s", outcome, text)
			}
			// it stands above all, not only beside the button
			if alarm := eval[string](b, `(e => e && e.checkVisibility() && e.compareDocumentPosition(document.getElementById('h-contract')) & Node.DOCUMENT_POSITION_FOLLOWING ? e.innerText : '')(document.getElementById('verify-alarm'))`); !strings.Contains(alarm, "did not tell the truth") {
				t.Errorf("the alarm reads %q", alarm)
			}
			b.audited(name)
			b.clean(name)
			b.shoot("lied-" + strings.ReplaceAll(name, " ", "-"))
		})
	}
}

// dataOf finds a data attribute in a page.
func dataOf(body []byte, name string) []byte {
	i := bytes.Index(body, []byte(name+`="`))
	if i < 0 {
		return []byte("there is no " + name)
	}
	end := bytes.IndexByte(body[i+len(name)+2:], '"')
	return body[i : i+len(name)+2+end+1]
}

// A check that cannot be made says so, and is no verdict; one that is stopped leaves the page as it was.
func TestVerifyFails(t *testing.T) {
	w := begin(t)
	if !complete(t) {
		t.Skip("this build has no verifier for browsers (scripts/wasm.sh makes it)")
	}
	b := open(t, liar(t, w.a, func(path string, body []byte) []byte {
		if path == "/v1/rooms/"+w.modbus.id {
			return []byte("<!doctype html>")
		}
		return body
	}))
	b.visit(w.modbus.page())
	if outcome, text := b.check(); outcome != "failed" || !strings.Contains(text, "othing was checked") {
		t.Errorf("%s: %s", outcome, text)
	}
	b.clean("failed")
}
