package replica

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// Whatever a cache has of a room that is over: it may use it for a minute at most, and
// when it asks after a takedown it gets nothing of what is withheld, nor is it told that
// what it has is right.
func TestTakedownReachesCaches(t *testing.T) {
	s, seq := withSecret(t, 5, 9)
	s.add(alice, room.Close, obj{"reason": "done"})
	set := openSet(t, memory(t))
	r := keep(t, set, s)
	raw, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now+5)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := adp.ParseClaim(raw)
	if err != nil {
		t.Fatal(err)
	}
	cid := func(cid string) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, req *http.Request) error {
			req.SetPathValue("cid", cid)
			return set.ServeCID(w, req)
		}
	}
	events := func(w http.ResponseWriter, req *http.Request) error { return r.ServeEvents(w, req, eventsURL, true) }
	bundle := func(w http.ResponseWriter, req *http.Request) error { return r.ServeBundle(w, req, true) }
	markdown := func(w http.ResponseWriter, req *http.Request) error {
		return r.ServeMarkdown(w, req, roomURL, s.now, true)
	}
	type copied struct {
		name, query, ranged string
		serve               func(http.ResponseWriter, *http.Request) error
		tag                 string
	}
	copies := []*copied{
		{name: "all events", serve: events},
		{name: "a full page", query: "?limit=" + strconv.FormatInt(seq, 10), serve: events},
		{name: "the record alone", query: "?limit=1&after_seq=" + strconv.FormatInt(seq-1, 10), serve: events},
		{name: "archive.jsonl", serve: bundle},
		{name: "a part of archive.jsonl", ranged: "bytes=0-999999", serve: bundle},
		{name: "archive.md", serve: markdown},
		{name: "by events_cid", serve: cid(claim.EventsCID)},
		{name: "by bundle_cid", serve: cid(claim.BundleCID)},
	}
	ask := func(c *copied) (*httptest.ResponseRecorder, error) {
		req := httptest.NewRequestWithContext(t.Context(), "GET", eventsURL+c.query, nil)
		if c.ranged != "" {
			req.Header.Set("Range", c.ranged)
		}
		if c.tag != "" {
			req.Header.Set("If-None-Match", c.tag)
		}
		w := httptest.NewRecorder()
		return w, c.serve(w, req)
	}
	age := regexp.MustCompile(`max-age=(\d+)`)
	for _, c := range copies {
		w, err := ask(c)
		if err != nil || !strings.Contains(w.Body.String(), secret) {
			t.Fatalf("%s: %v, %d", c.name, err, w.Code)
		}
		rule := w.Header().Get("Cache-Control")
		if m := age.FindStringSubmatch(rule); rule != "no-cache" && (m == nil || len(m[1]) > 2 || !strings.Contains(rule, "must-revalidate") || strings.Contains(rule, "immutable")) {
			t.Errorf("%s: Cache-Control: %s", c.name, rule)
		}
		c.tag = w.Header().Get("ETag")
	}
	if _, err := r.Withhold(seq, "a person asked", 77, Seal); err != nil {
		t.Fatal(err)
	}
	for _, c := range copies {
		w, err := ask(c)
		if w.Code == http.StatusNotModified || strings.Contains(w.Body.String(), secret) || err != nil && adp.CodeOf(err) != adp.Withheld {
			t.Errorf("%s after the takedown: %d, %v", c.name, w.Code, err)
		}
	}
}
