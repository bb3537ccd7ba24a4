package replica

import (
	"bytes"
	"context"
	"crypto/sha3"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// archived makes a room of n records that has ended, with its archive.
func archived(t testing.TB, set *Set, over obj, n int) (*story, *adp.Claim) {
	t.Helper()
	s := begin(t, over).upTo(n - 1)
	s.add(alice, room.Close, obj{})
	r := keep(t, set, s)
	raw, err := r.MakeArchive(t.Context(), testOrigin+"/v1/rooms/"+testRoom, s.now, s.now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := adp.ParseClaim(raw)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// texts are the two contents of the archive of a story.
func texts(t testing.TB, s *story, c *adp.Claim) (events, bundle []byte) {
	t.Helper()
	line1, err := c.Line1()
	if err != nil {
		t.Fatal(err)
	}
	lines := [][]byte{line1}
	var recs [][]byte
	for _, rec := range s.recs {
		recs = append(recs, rec.JSON())
	}
	lines = append(lines, recs...)
	return fmt.Appendf(nil, "[%s]", bytes.Join(recs, []byte(","))), append(bytes.Join(lines, []byte("\n")), '\n')
}

func getCID(set *Set, cid string, header ...string) *httptest.ResponseRecorder {
	mux := web.NewMux()
	mux.Handle("GET", "/cid/{cid}", set.ServeCID)
	req := httptest.NewRequest("GET", "/cid/"+cid, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, req)
	return rec
}

func cidOf(codec uint64, b []byte) string { return adp.NewCID(codec, sha3.Sum256(b)) }

func TestContentByCID(t *testing.T) {
	st := memory(t)
	set := openSet(t, st)
	s, c := archived(t, set, nil, 1500) // more than one part of a stream
	events, bundle := texts(t, s, c)
	if cidOf(adp.CodecJSON, events) != c.EventsCID || cidOf(adp.CodecRaw, bundle) != c.BundleCID || len(bundle) < MaxContentResponse+1000 {
		t.Fatal("the test is wrong about the bytes")
	}
	for _, set := range []*Set{set, openSet(t, st)} {
		for _, x := range []struct {
			cid, typ string
			want     []byte
		}{{c.EventsCID, "application/json", events}, {c.BundleCID, "application/jsonl; charset=utf-8", bundle}} {
			rec := getCID(set, x.cid)
			if rec.Code != 200 || !bytes.Equal(rec.Body.Bytes(), x.want) || rec.Header().Get("Content-Type") != x.typ ||
				rec.Header().Get("Content-Length") != fmt.Sprint(len(x.want)) {
				t.Errorf("%s: %d, %d of %d bytes, %v", x.cid, rec.Code, rec.Body.Len(), len(x.want), rec.Header())
			}
			n := len(x.want)
			for _, part := range [][2]int{{0, 0}, {1, 5}, {n / 3, n / 2}, {n - 300_001, n - 2}, {n - 1, n - 1}, {0, n - 1}, {200_000, 200_000}, {5, 1_100_000}} {
				rec := getCID(set, x.cid, "Range", fmt.Sprintf("bytes=%d-%d", part[0], part[1]))
				if rec.Code != 206 || !bytes.Equal(rec.Body.Bytes(), x.want[part[0]:part[1]+1]) {
					t.Errorf("%s, %v: %d, %d bytes", x.cid, part, rec.Code, rec.Body.Len())
				}
			}
			if rec := getCID(set, x.cid, "Range", fmt.Sprintf("bytes=%d-", n)); rec.Code != http.StatusRequestedRangeNotSatisfiable {
				t.Errorf("behind the end: %d", rec.Code)
			}
			if rec := getCID(set, x.cid, "If-None-Match", `"`+x.cid+`"`); rec.Code != http.StatusNotModified {
				t.Errorf("known already: %d", rec.Code)
			}
			// over the stream, in parts, checked by the receiver
			var got bytes.Buffer
			requests := 0
			line := func(ctx context.Context, request []byte) ([]byte, error) {
				requests++
				return set.ServeContent(ctx, "peer", request)
			}
			if err := FetchContent(t.Context(), x.cid, int64(n), &got, line); err != nil || !bytes.Equal(got.Bytes(), x.want) || requests != n/MaxContentResponse+1 {
				t.Errorf("%s: %v, %d bytes by %d requests", x.cid, err, got.Len(), requests)
			}
			if err := FetchContent(t.Context(), x.cid, int64(n)-1, &bytes.Buffer{}, line); err == nil {
				t.Error("more than was allowed is taken")
			}
			for name, spoil := range map[string]func(part []byte) []byte{
				"a flipped bit": func(p []byte) []byte { p[len(p)/2] ^= 1; return p },
				"a byte less":   func(p []byte) []byte { return p[:len(p)-1] },
				"a byte more":   func(p []byte) []byte { return append(p, 'x') },
				"nothing":       func([]byte) []byte { return nil },
			} {
				err := FetchContent(t.Context(), x.cid, 1<<30, &bytes.Buffer{}, func(ctx context.Context, request []byte) ([]byte, error) {
					part, err := set.ServeContent(ctx, "peer", request)
					if err == nil {
						part = spoil(append([]byte(nil), part...))
					}
					return part, err
				})
				if !errors.Is(err, ErrContent) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	broken := errors.New("broken")
	if err := FetchContent(t.Context(), c.EventsCID, 1<<30, &bytes.Buffer{}, func(context.Context, []byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := FetchContent(t.Context(), "x", 1, &bytes.Buffer{}, nil); err == nil {
		t.Error("fetched by no CID")
	}
}

// From every offset; what a host adds to a room that has ended is not in its
// archive.
func TestContentEndsWithTheArchive(t *testing.T) {
	set := openSet(t, memory(t))
	s, c := archived(t, set, nil, 20)
	events, bundle := texts(t, s, c)
	r, _ := set.Get(testOrigin, testRoom)
	late := s.add(alice, room.Message, say("too late"))
	done := make(chan error, 1)
	err := r.Take(func(turn *Turn) error {
		_, ch, err := turn.State.Judge(late, room.Context{Chain: turn})
		if err != nil {
			return err
		}
		return turn.Append(late, ch, nil, func(err error) { done <- err })
	})
	if err == nil {
		err = <-done
	}
	if err != nil || r.Row().Seq != 21 {
		t.Fatal(err, r.Row().Seq)
	}
	for cid, want := range map[string][]byte{c.EventsCID: events, c.BundleCID: bundle} {
		for at := range len(want) + 2 { // from every offset
			part, err := set.ServeContent(t.Context(), "p", fmt.Appendf(nil, `{"cid":%q,"limit":7,"offset":%d}`, cid, at))
			if end := min(at+7, len(want)); err != nil || string(part) != string(want[min(at, end):end]) {
				t.Fatalf("at %d: %q, %v", at, part, err)
			}
		}
	}
}

func TestContentThatIsNotShown(t *testing.T) {
	set := openSet(t, memory(t))
	_, private := archived(t, set, obj{"visibility": "private"}, 5)
	other := openSet(t, memory(t))
	s := begin(t, nil).upTo(9) // it has not ended
	keep(t, other, s)
	unknown := cidOf(adp.CodecRaw, []byte("x"))
	for name, cid := range map[string]string{"private events": private.EventsCID, "a private bundle": private.BundleCID, "unknown": unknown} {
		for _, set := range []*Set{set, other} {
			if rec := getCID(set, cid); rec.Code != 404 || !strings.Contains(rec.Body.String(), `"not_found"`) {
				t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
			}
			if part, err := set.ServeContent(t.Context(), "p", fmt.Appendf(nil, `{"cid":%q,"limit":7,"offset":0}`, cid)); !errors.Is(err, errUnknownContent) {
				t.Errorf("%s: %q, %v", name, part, err)
			}
		}
	}
	for _, cid := range []string{"x", "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", strings.Repeat("b", 200), strings.ToUpper(unknown)} {
		if rec := getCID(set, cid); rec.Code != 400 {
			t.Errorf("%s: %d %s", cid, rec.Code, rec.Body)
		}
	}
	for _, request := range []string{"", "[]", "{}", `{"cid":"x","limit":1,"offset":0}`, `{"cid":"` + unknown + `","limit":0,"offset":0}`,
		`{"cid":"` + unknown + `","limit":1048577,"offset":0}`, `{"cid":"` + unknown + `","limit":1,"offset":-1}`, `{"cid":"` + unknown + `","limit":1}`,
		`{"cid":"` + unknown + `","limit":1,"offset":0,"x":1}`, strings.Repeat(" ", MaxContentRequest+1)} {
		if part, err := set.ServeContent(t.Context(), "p", []byte(request)); err == nil || errors.Is(err, errUnknownContent) {
			t.Errorf("%.90s: %q, %v", request, part, err)
		}
	}
}

// The contents that are remembered do not grow without bound.
func TestContentsAreBounded(t *testing.T) {
	set := openSet(t, memory(t))
	_, c := archived(t, set, nil, 5)
	for i := range 2 * maxContents {
		set.contents.list = append(set.contents.list, &content{cid: fmt.Sprint(i)})
	}
	if rec := getCID(set, c.EventsCID); rec.Code != 200 {
		t.Fatal(rec.Code)
	}
	if n := len(set.contents.list); n != 2*maxContents || set.contents.list[n-1].cid != c.EventsCID || set.contents.list[0].cid != "1" {
		t.Errorf("%d are remembered", n)
	}
}

// What is withheld is not to be had by CID either, nor anything else in its place.
func TestContentOfWithheldRecords(t *testing.T) {
	set := openSet(t, memory(t))
	s, c := archived(t, set, nil, 700)
	events, _ := texts(t, s, c)
	r, _ := set.Get(testOrigin, testRoom)
	whole := func() bool {
		rec := getCID(set, c.EventsCID)
		var got bytes.Buffer
		err := FetchContent(t.Context(), c.EventsCID, 1<<30, &got, func(ctx context.Context, request []byte) ([]byte, error) { return set.ServeContent(ctx, "p", request) })
		if (rec.Code == 200) != (err == nil) || rec.Code != 200 && (rec.Code != 451 || !errors.Is(err, errCut)) {
			t.Fatalf("%d %.200s, %v", rec.Code, rec.Body, err)
		}
		return rec.Code == 200 && bytes.Equal(rec.Body.Bytes(), events) && bytes.Equal(got.Bytes(), events)
	}
	if !whole() {
		t.Fatal("not whole to begin with")
	}
	stale := set.contents.list[0] // in the hands of a reader
	var seq int64
	for _, rec := range s.recs[300:] {
		if rec.Envelope.Type == room.Message {
			seq = rec.Seq
			break
		}
	}
	if _, err := r.Withhold(seq, "asked", 1, Seal); err != nil {
		t.Fatal(err)
	}
	if whole() {
		t.Error("withheld, and shown")
	}
	stale.places = nil
	if part, err := stale.read(t.Context(), stale.size-10, 5); !errors.Is(err, errCut) {
		t.Errorf("%q, %v", part, err)
	}
	check(t, r, s, fmt.Sprintf("seq=%d", seq), int(seq), -1, 700) // chain and tree are as they were
	if err := r.Release(seq); err != nil || !whole() {
		t.Error("not whole again", err)
	}
	set.Hidden = func(other *Replica) bool { return other == r }
	if rec := getCID(set, c.EventsCID); rec.Code != 404 {
		t.Errorf("of a room that is not shown: %d", rec.Code)
	}
	set.Hidden = nil
	if !whole() {
		t.Error("not whole once it is shown again")
	}
	if _, err := r.Drop(10); err != nil {
		t.Fatal(err)
	}
	if rec := getCID(set, c.EventsCID); rec.Code != 410 {
		t.Errorf("of records that are dropped: %d %s", rec.Code, rec.Body)
	}
	if _, err := r.Withhold(seq, "asked", 1, Erase); err != nil || whole() {
		t.Error("erased, and shown", err)
	}
}

func FuzzServeContent(f *testing.F) {
	set := openSet(f, memory(f))
	s, c := archived(f, set, nil, 5)
	events, _ := texts(f, s, c)
	f.Add(fmt.Appendf(nil, `{"cid":%q,"limit":7,"offset":0}`, c.EventsCID))
	f.Add(fmt.Appendf(nil, `{"cid":%q,"limit":1048576,"offset":9007199254740991}`, c.BundleCID))
	f.Add([]byte(`{"cid":"","limit":1,"offset":-0}`))
	f.Fuzz(func(t *testing.T, request []byte) {
		part, err := set.ServeContent(t.Context(), "p", request)
		if err == nil && len(part) > MaxContentResponse || err == nil && bytes.Contains(request, []byte(c.EventsCID)) && !bytes.Contains(events, part) {
			t.Errorf("%q gives %q", request, part)
		}
	})
}

// While a record is withheld, what a manifest says of its bytes can only be believed. It must fit into the
// store, and, once it is known to be wrong, takes the place of nobody else's archive.
func TestManifestThatNamesSomebodyElsesCID(t *testing.T) {
	set := openSet(t, memory(t))
	s, seq := withSecret(t, 5, 1)
	s.add(alice, room.Close, obj{"reason": "done"})
	liar := copiedCut(t, set, s, seq)
	other, truth := archived(t, set, obj{"topic": "Another"}, 8)
	_, want := texts(t, other, truth)
	var d adp.Digest
	for _, rec := range s.recs {
		d.Add(rec)
	}
	m := adp.Manifest{Host: "h.example", URL: roomURL, GeneratedAt: 5, Summary: d.Summary(), Room: []byte(`{}`)}
	line1, err := m.Line1()
	if err != nil {
		t.Fatal(err)
	}
	bundle := adp.NewBundle(line1)
	raw, err := m.JSON(bundle)
	if err != nil {
		t.Fatal(err)
	}
	says := func(cid string) *adp.Claim {
		c, err := adp.ParseClaim(bytes.Replace(raw, []byte(bundle.CID()), []byte(cid), 1))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, cid := range []string{strings.Repeat("x", store.MaxKey), "x", "", truth.EventsCID} {
		if err := liar.AdoptArchive(t.Context(), says(cid)); !errors.Is(err, ErrMismatch) {
			t.Errorf("%.20q: %v", cid, err)
		}
	}
	if err := liar.AdoptArchive(t.Context(), says(truth.BundleCID)); err != nil {
		t.Fatal(err)
	}
	serves := func(when string) {
		t.Helper()
		if rec := getCID(set, truth.BundleCID); rec.Code != 200 || !bytes.Equal(rec.Body.Bytes(), want) {
			t.Errorf("%s: %d, %d bytes of %d", when, rec.Code, rec.Body.Len(), len(want))
		}
	}
	serves("while it is withheld")
	if err := liar.Restore([]*adp.Record{s.recs[seq-1]}, func(*Row, room.Verdict) {}); err != nil {
		t.Fatal(err)
	}
	if err := liar.CheckArchive(t.Context()); !errors.Is(err, ErrMismatch) {
		t.Fatalf("%v", err)
	}
	done := make(chan error, 1)
	if err := liar.Take(func(turn *Turn) error {
		turn.Row().Verdict = ArchiveMismatch
		return turn.Save(nil, func(err error) { done <- err })
	}); err != nil {
		t.Fatal(err)
	}
	wait(t, done, 1)
	serves("once it is found out")
}

// A part far into a large archive can take long to find: who has gone is not looked for.
func TestContentForWhoHasGone(t *testing.T) {
	set := openSet(t, memory(t))
	_, c := archived(t, set, nil, 20)
	found, err := set.content(t.Context(), c.BundleCID)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if part, err := found.read(gone, found.size-1, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", len(part), err)
	}
	if part, err := found.read(t.Context(), found.size-1, 1); err != nil || string(part) != "\n" {
		t.Errorf("%q, %v", part, err)
	}
}
