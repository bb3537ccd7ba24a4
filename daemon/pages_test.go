package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/page"
	"github.com/witan-adp/witan/internal/store"
)

// browse asks as a browser does.
func (d *running) browse(path string) (status int, header http.Header, body string) {
	d.t.Helper()
	req, err := http.NewRequest("GET", d.origin+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,*/*;q=0.8")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func pageOf(origin, id string) string { return "/rooms/" + authority(origin) + "/" + id }

// Pages give a stranger what the API gives, and nothing else: of own rooms and of
// mirrored ones, hidden ones included.
func TestPagesKeepTheReadRules(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}})
	ada := newAgent(t)
	ids := map[string]string{}
	for _, visibility := range []string{"public", "restricted", "private"} {
		ids[visibility] = a.create(ada, obj{"topic": "Topic of the " + visibility + " room", "visibility": visibility})
		if visibility != "private" { // to write one needs a token for the head
			a.act(ada, ids[visibility], "message.create", text("words of the "+visibility+" room"))
		}
	}
	until(t, "the mirror to hold the public room and to list the restricted one", func() bool {
		_, _, found := b.browse("/rooms")
		status, _, body := b.browse(pageOf(a.origin, ids["public"]))
		return status == 200 && strings.Contains(body, "words of the public room") && strings.Contains(found, "Topic of the restricted room")
	})

	for visibility, id := range ids {
		status, _, body := a.browse(pageOf(a.origin, id))
		api, _, _ := a.call("GET", "/v1/rooms/"+id, nil, nil)
		if status != api {
			t.Errorf("%s: the page answers %d, the API %d", visibility, status, api)
		}
		events, _, _ := a.call("GET", "/v1/rooms/"+id+"/events", nil, nil)
		if shown := strings.Contains(body, "words of the"); shown != (events == 200) {
			t.Errorf("%s: the page shows what was said: %v; the API answers %d", visibility, shown, events)
		}
		fragment, _, body := a.browse(pageOf(a.origin, id) + "?after=0&fragment=1")
		if (fragment == 200) != (events == 200) || strings.Contains(body, "words of the") != (events == 200) {
			t.Errorf("%s: the fragment answers %d, the API %d", visibility, fragment, events)
		}
		mirrored, _, body := b.browse(pageOf(a.origin, id))
		api, _, _ = b.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+id, nil, nil)
		if mirrored != api || strings.Contains(body, "words of the") != (api == 200) {
			t.Errorf("%s, mirrored: the page answers %d, the API %d", visibility, mirrored, api)
		}
	}
	for _, d := range []*running{a, b} {
		for _, path := range []string{"/", "/rooms", "/rooms?q=private", "/hosts", "/hosts/" + authority(a.origin), "/witness", "/status"} {
			status, _, body := d.browse(path)
			if status != 200 || strings.Contains(body, "private room") || strings.Contains(body, ids["private"]) {
				t.Errorf("%s%s: %d, or it names the private room", d.origin, path, status)
			}
		}
	}

	until(t, "what was said to be found", func() bool {
		_, _, body := b.browse("/rooms?q=words")
		return strings.Contains(body, "<mark>words</mark> of the public room") && !strings.Contains(body, "of the restricted room")
	})

	b.command("/mirror/quarantine", obj{"origin": a.origin + "/v1/rooms/" + ids["public"], "reason": "a complaint"})
	status, _, body := b.browse(pageOf(a.origin, ids["public"]))
	if status != 404 || strings.Contains(body, "words of the") || !strings.Contains(body, "quarantine") {
		t.Errorf("in quarantine: %d %s", status, body)
	}
	if _, _, body := b.browse("/rooms?q=words"); strings.Contains(body, "of the public room") {
		t.Error("the search shows what was said in a room in quarantine")
	}
	if _, _, body := b.browse("/hosts/" + authority(a.origin)); strings.Contains(body, "Topic of the public room") {
		t.Error("the page of the host names a room in quarantine by its topic")
	}
	for _, path := range []string{pageOf("https://nobody.example", ids["public"]), "/hosts/nobody.example", pageOf(a.origin, "nothing"), "/rooms/x"} {
		if status, header, _ := b.browse(path); status != 404 || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", path, status, header.Get("Content-Type"))
		}
	}
}

// The first page is for people in browsers; other programs get plain text, and
// errors as the protocol says.
func TestFrontForEverybody(t *testing.T) {
	d := start(t, setup{})
	_, header, body := d.browse("/")
	if !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(header.Get("Content-Security-Policy"), "script-src 'self'") || !strings.Contains(body, "<h1>") {
		t.Errorf("browsers get %v", header)
	}
	_, header, raw := d.call("GET", "/", nil, nil)
	if !strings.HasPrefix(header.Get("Content-Type"), "text/plain") || !strings.HasPrefix(string(raw), "witan ") || header.Get("Vary") != "Accept" {
		t.Errorf("others get %v %.60q", header, raw)
	}
	status, _, raw := d.call("GET", pageOf(d.origin, "nothing"), nil, nil)
	if status != 404 || !strings.HasPrefix(string(raw), `{"error":{"code":"room_not_found"`) {
		t.Errorf("others get the error %d %s", status, raw)
	}
	if status, header, _ := d.browse("/cid/" + url.PathEscape("nothing")); status < 400 || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		t.Errorf("an error of the API in a browser: %d %s", status, header.Get("Content-Type"))
	}
}

// A search that the form sends with all of its fields empty is the whole list; one
// that the index does not understand says which field it is.
func TestSearchPage(t *testing.T) {
	d := start(t, setup{})
	ada := newAgent(t)
	d.create(ada, obj{"topic": "Owls at noon", "tags": []string{"birds"}, "language": "en"})
	d.create(ada, obj{"topic": "Rivers", "language": "zh"})
	for query, want := range map[string][2]bool{"": {true, true}, "?q=&status=&verdict=&attested=&joinable=&sort=&host=&language=&tag=&types=": {true, true}, "?q=owls": {true, false}, "?language=zh": {false, true},
		"?tag=birds&status=active&sort=start": {true, false}, "?host=" + url.QueryEscape(authority(d.origin)): {true, true}, "?status=ended": {false, false}} {
		status, _, body := d.browse("/rooms" + query)
		if got := [2]bool{strings.Contains(body, "Owls at noon"), strings.Contains(body, "Rivers")}; status != 200 || got != want {
			t.Errorf("%s: %d, found %v, want %v", query, status, got, want)
		}
	}
	if status, _, body := d.browse("/rooms?status=asleep"); status != 400 || !strings.Contains(body, "status") {
		t.Errorf("a status that there is not: %d", status)
	}
	if _, _, body := d.browse("/rooms"); !strings.Contains(body, "2 rooms") || !strings.Contains(body, `href="/rooms?tag=birds"`) {
		t.Error("the page counts no facets")
	}
}

// What is measured is kept within bounds.
func TestSamplesAreBounded(t *testing.T) {
	p := &pages{}
	for i := range 3 * maxSamples {
		p.keep(page.Sample{At: int64(i)})
	}
	got := p.Samples()
	if len(got) != maxSamples || got[0].At != 2*maxSamples || got[maxSamples-1].At != 3*maxSamples-1 {
		t.Errorf("%d samples, from %d to %d", len(got), got[0].At, got[len(got)-1].At)
	}
}

// What was measured is still there after a restart, as far as it is not too old; the size of the data is known from the first time on.
func TestSamplesOutliveARestart(t *testing.T) {
	now := time.Now().UnixMilli()
	var moved atomic.Int64
	s := setup{data: t.TempDir(), now: func() int64 { return now + moved.Load() }}
	d := start(t, s)
	if _, _, body := d.browse("/status"); strings.Contains(body, "Disk in use") && strings.Contains(body, ">0 B<") {
		t.Error("the data take nothing")
	}
	stored := func() (n int) {
		err := d.stop()
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(store.Options{Dir: filepath.Join(s.data, "store")})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		from, to := store.SampleRange()
		if err := st.View(func(r store.Reader) error {
			return r.Scan(from, to, func(_, value []byte) bool {
				var x page.Sample
				if err := json.Unmarshal(value, &x); err != nil || x.At == 0 || x.DiskUsed == 0 || x.DiskFree == 0 {
					t.Errorf("%v: %s", err, value)
				}
				n++
				return true
			})
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := stored()
	if first == 0 {
		t.Fatal("nothing was stored")
	}
	s.port = d.port()
	moved.Store(time.Minute.Milliseconds())
	d = start(t, s)
	until(t, "the plots of both runs", func() bool {
		_, _, body := d.browse("/status")
		return strings.Contains(body, `<svg class="plot"`)
	})
	if n := stored(); n <= first {
		t.Errorf("%d samples after the second run, %d after the first", n, first)
	}
	moved.Store(4 * time.Hour.Milliseconds())
	d = start(t, s)
	if _, _, body := d.browse("/status"); strings.Contains(body, `<svg class="plot"`) {
		t.Error("a measurement of four hours ago is shown")
	}
}
