package host_test

import (
	"bytes"
	"context"
	"crypto/sha3"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

func TestArchive(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"types": []any{obj{"use": "adp:reactions/1.0"}}})
	path := "/v1/rooms/" + id
	for _, p := range []string{"/archive", "/archive.jsonl", "/archive.md"} {
		w.get(path+p, nil).refused(409, adp.RoomNotActive)
	}
	speaker := w.member(id, "speaker")
	said := w.act(speaker, id, room.Message, obj{"content_type": "text/markdown", "content": "# Hi\n<script>alert(1)</script> 😀"}).ok(200)
	w.act(c, id, "reaction.create", obj{"event_id": said.Get("envelope").Get("hash").Text(), "reaction": "agree"}).ok(200)
	w.act(speaker, id, room.Close, obj{}).refused(403, adp.PermissionDenied)
	w.act(c, id, room.Close, obj{"reason": "done"}).ok(200)
	w.act(speaker, id, room.Message, say("late")).refused(409, adp.RoomEnded)
	if r := w.resource(id, nil); !r.Get("status").Is("ended") {
		t.Errorf("got %s", r.Raw())
	}
	first := w.get(path+"/archive", nil)
	m := first.ok(200)
	var digest adp.Digest
	recs := w.records(id, nil)
	var lines [][]byte
	for _, rec := range recs {
		digest.Add(rec)
		lines = append(lines, rec.JSON())
	}
	claim, err := adp.ParseClaim(first.body)
	if err != nil {
		t.Fatal(err)
	}
	if err := claim.Check(digest.Summary()); err != nil {
		t.Error(err)
	}
	all := sha3.Sum256(append(append([]byte("["), bytes.Join(lines, []byte(","))...), ']'))
	if !m.Get("type").Is("room.archive") || num(m.Get("event_count")) != 5 || num(m.Get("first_seq")) != 1 || num(m.Get("last_seq")) != 5 ||
		!m.Get("last_hash").Is(recs[4].Hash) || !m.Get("events_sha3_256").Is(adp.Encode(all[:])) || !bytes.Contains(m.Get("packs").Raw(), []byte("reaction.create")) {
		t.Errorf("manifest %s", m.Raw())
	}
	if !m.Get("room").Get("id").Is(id) || !m.Get("room").Get("status").Is("ended") || string(m.Get("extra").Get("merkle").Raw()) != `{"size":5,"tree":"rfc6962-sha256"}` {
		t.Errorf("manifest %s", m.Raw())
	}
	bundle := w.get(path+"/archive.jsonl", nil)
	bundle.ok(200)
	sum := sha3.Sum256(bundle.body)
	if !m.Get("extra").Get("bundle_cid").Is(adp.NewCID(0x55, sum)) || num(m.Get("extra").Get("bundle_bytes")) != int64(len(bundle.body)) {
		t.Errorf("the bundle is not the one of the manifest: %s", m.Get("extra").Raw())
	}
	got := bytes.Split(bytes.TrimSuffix(bundle.body, []byte("\n")), []byte("\n"))
	if len(got) != 6 || !bytes.Equal(bytes.Join(got[1:], nil), bytes.Join(lines, nil)) {
		t.Errorf("the bundle has %d lines", len(got))
	}
	line1, err := adp.Scan(got[0])
	if err != nil || line1.Get("extra").Get("bundle_cid").Exists() || line1.Len() != m.Len() || !line1.Get("archive_root").Is(m.Get("archive_root").Text()) {
		t.Errorf("line 1: %v %s", err, got[0])
	}
	md := w.get(path+"/archive.md", nil)
	md.ok(200)
	if !strings.HasPrefix(md.head.Get("Content-Type"), "text/markdown") || !strings.Contains(md.head.Get("Content-Security-Policy"), "default-src 'none'") ||
		!bytes.Contains(md.body, []byte("> <script>alert(1)</script> 😀")) {
		t.Errorf("%v %s", md.head, md.body)
	}
	w.clock.Add(hour)
	if again := w.get(path+"/archive", nil); !bytes.Equal(again.body, first.body) {
		t.Error("the archive was made anew")
	}
	w.ask(id, newAgent(t), obj{"role": "speaker"}).refused(409, adp.RoomEnded)
	w.put(path+"/agent-status", c, obj{"state": "idle"}).refused(409, adp.RoomEnded)
}

func TestHistory(t *testing.T) {
	w := newWorld(t, nil)
	_, id := w.open(nil)
	for range 12 {
		w.member(id, "observer")
	}
	path := "/v1/rooms/" + id + "/events"
	seqs := func(q string) (got []int64, link string) {
		t.Helper()
		a := w.get(path+q, nil)
		for r := range a.ok(200).Elements() {
			got = append(got, num(r.Get("seq")))
		}
		return got, a.head.Get("Link")
	}
	got, link := seqs("?after_seq=3&limit=4")
	if fmt.Sprint(got) != "[4 5 6 7]" || !regexp.MustCompile(`^<`+origin+path+`\?[^>]+>; ?rel="next"$`).MatchString(link) {
		t.Errorf("%v, Link %q", got, link)
	}
	if _, link = seqs("?after_seq=9&limit=4"); link != "" {
		t.Errorf("the last page has the Link %q", link)
	}
	if got, link = seqs("?after_seq=13"); len(got) != 0 || link != "" {
		t.Errorf("behind the end: %v, Link %q", got, link)
	}
	if got, _ = seqs("?limit=100000"); len(got) != 13 {
		t.Errorf("%d records", len(got))
	}
	for next, n := path+"?limit=5", 0; next != ""; n++ {
		a := w.get(next, nil)
		if a.ok(200); n > 3 {
			t.Fatal("the pages never end")
		}
		next = nextPage(a)
	}
	for _, q := range []string{"limit=0", "limit=-1", "limit=x", "after_seq=-1", "after_seq=1.5", "cursor=%00nonsense", "wait=x", "limit=1&limit=2"} {
		w.get(path+"?"+q, nil).refused(400, adp.InvalidRequest)
	}
}

// nextPage is path and query of the Link of an answer.
func nextPage(a answer) string {
	link, ok := strings.CutPrefix(a.head.Get("Link"), "<"+origin)
	if !ok {
		return ""
	}
	next, _, _ := strings.Cut(link, ">")
	return next
}

func TestLongPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *ended) {
		c, id := w.open(nil)
		restricted := newAgent(t)
		rid := w.create(restricted, obj{"visibility": "restricted"}).ok(201).Get("id").Text()
		w.get("/v1/rooms/"+rid+"/events?wait=5", restricted).refused(400, adp.InvalidRequest)
		path := "/v1/rooms/" + id + "/events"
		if n := w.get(path+"?wait=25", nil).ok(200).Len(); n != 1 { // there is something: no waiting
			t.Errorf("%d records", n)
		}
		begun := time.Now()
		answered := make(chan answer)
		for range 20 {
			go func() { answered <- w.get(path+"?after_seq=1&wait=25", nil) }()
		}
		synctest.Wait()
		sent := w.act(c, id, room.Message, say("x")).ok(200)
		for range 20 {
			if v := (<-answered).ok(200); v.Len() != 1 || string(firstOf(v).Raw()) != string(sent.Raw()) {
				t.Errorf("got %s", v.Raw())
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { answered <- w.sendContext(ctx, path+"?after_seq=2&wait=25") }()
		synctest.Wait()
		cancel() // who leaves is let go
		if v := (<-answered).ok(200); v.Len() != 0 {
			t.Errorf("got %s", v.Raw())
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

func firstOf(v adp.Value) adp.Value {
	for e := range v.Elements() {
		return e
	}
	return adp.Value{}
}
