package witness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

type requestFunc = func(context.Context, []byte) ([]byte, error)

// line is a wire from one node to another that counts what goes over it.
func line(to *node, requests *[]string) requestFunc {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		*requests = append(*requests, string(request))
		return to.w.ServeSync(ctx, "peer", request)
	}
}

// full is a node that keeps many rooms' statements and attestations and a proof.
func full(t *testing.T, wo *world, rooms int) *node {
	t.Helper()
	wo.bind(hostA, key(hostA))
	wo.bind(hostB, key(hostB))
	n := wo.node(t, hostB, hostA)
	recs := chain(t, roomX, "one", "two")
	for i := range rooms {
		st := statement(hostA, recs)
		st.RoomID = fmt.Sprintf("room-%03d", i)
		e := seal(t, key(hostA), TypeAnnounce, st)
		if n.hear(e.JSON()) != Accept || n.hear(seal(t, key(hostB), TypeAttest, attestation(st, e.Hash)).JSON()) != Accept {
			t.Fatal("refused")
		}
	}
	if rooms > 0 {
		st := statement(hostA, recs[:3])
		st.RoomID = "room-000"
		n.hear(seal(t, key(hostA), TypeAnnounce, st).JSON())
	}
	return n
}

func TestLateJoiner(t *testing.T) {
	wo := newWorld()
	b := full(t, wo, 170)
	late := wo.node(t, hostC, hostA, hostB)
	var requests []string
	if err := late.w.Pull(t.Context(), "b", line(b, &requests)); err != nil {
		t.Fatal(err)
	}
	if len(requests) != 4 { // 1 + 340 items, a hundred a page
		t.Errorf("%d requests: %q", len(requests), requests)
	}
	for _, l := range []string{"statements", "attestations"} {
		n := 0
		link := ""
		for path := l + "?limit=200"; path != ""; {
			list, next := late.page(path)
			n += len(list)
			if path = ""; next != "" {
				path = strings.TrimPrefix(strings.TrimSuffix(next, `>; rel="next"`), "<"+hostC+"/v1/witness/")
				link = next
			}
		}
		// the proof came first: of its room no second word of that key is kept
		if want := map[string]int{"statements": 169, "attestations": 170}[l]; n != want {
			t.Errorf("%d %s, last link %s", n, l, link)
		}
	}
	if late.state(hostA, "room-000") != "1 equivocated" || late.state(hostA, "room-001") != "1 attested" || len(late.get("evidence")) != 1 {
		t.Error(late.state(hostA, "room-000"), late.state(hostA, "room-001"))
	}
	// evidence goes first
	page := must[[]byte](t)(b.w.ServeSync(t.Context(), "c", []byte(`{"after":"","limit":1}`)))
	if !strings.HasPrefix(string(page), `{"items":[{"agent":`) || !strings.Contains(string(page), `"next":"p`) {
		t.Errorf("%.200s", page)
	}
	// what is known is not stored again
	before := b.o.Store.Stats().Commits + late.o.Store.Stats().Commits
	if err := late.w.Pull(t.Context(), "b", line(b, &requests)); err != nil {
		t.Fatal(err)
	}
	if now := b.o.Store.Stats().Commits + late.o.Store.Stats().Commits; now != before {
		t.Errorf("%d commits", now-before)
	}
	// every page size gives the same, in the same order, each once
	read := func(limit int) (all []string) {
		after := ""
		for {
			raw := must[[]byte](t)(b.w.ServeSync(t.Context(), "c", fmt.Appendf(nil, `{"after":%q,"limit":%d}`, after, limit)))
			var a syncAnswer
			if err := json.Unmarshal(raw, &a); err != nil || len(a.Items) > limit {
				t.Fatal(err, len(a.Items))
			}
			for _, i := range a.Items {
				all = append(all, string(i))
			}
			if after = a.Next; after == "" {
				return all
			}
		}
	}
	whole := read(100)
	for _, limit := range []int{1, 7, 99} {
		if got := read(limit); !slices.Equal(got, whole) || len(got) != 341 {
			t.Errorf("limit %d: %d items", limit, len(got))
		}
	}
	// the order of arrival outlives a restart
	b.again()
	if !slices.Equal(read(100), whole) {
		t.Error("another order after a restart")
	}
}

// An item that was ignored before its key was bound is taken by a later pull.
func TestPullAfterANewBinding(t *testing.T) {
	wo := newWorld()
	b := full(t, wo, 1)
	late := newWorld()
	c := late.node(t, hostC, hostA)
	var requests []string
	if err := c.w.Pull(t.Context(), "b", line(b, &requests)); err != nil || len(c.get("evidence")) != 0 {
		t.Fatal(err)
	}
	late.bind(hostA, key(hostA))
	if err := c.w.Pull(t.Context(), "b", line(b, &requests)); err != nil || len(c.get("evidence")) != 1 {
		t.Error(err, len(c.get("evidence")))
	}
}

func TestPullFromABadPeer(t *testing.T) {
	wo := newWorld()
	b := full(t, wo, 1)
	c := wo.node(t, hostC, hostA, hostB)
	good := b.get("statements")[0]
	answer := func(items, next string) string { return `{"items":[` + items + `],"next":"` + next + `"}` }
	for name, page := range map[string]string{
		"not JSON": "x", "no object": "[]", "another member": `{"items":[],"next":"","x":1}`, "no items": `{"next":"","x":1}`, "a cursor that is a number": `{"items":[],"next":1}`,
		"a long cursor": answer("", strings.Repeat("x", 100)), "too many items": answer("1"+strings.Repeat(",1", syncPage), ""),
		"a forgery": answer(string(replaced(good, `"bundle_bytes":7`, `"bundle_bytes":9`)), ""), "a number": answer("1", ""),
		"too long": answer(strings.Repeat(" ", MaxSyncResponse), ""),
	} {
		err := c.w.Pull(t.Context(), "x", func(context.Context, []byte) ([]byte, error) { return []byte(page), nil })
		if !errors.Is(err, ErrPeer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("broken")
	if err := c.w.Pull(t.Context(), "x", func(context.Context, []byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) || errors.Is(err, ErrPeer) {
		t.Error(err)
	}
	// a cursor that stands still, and one that never ends
	if err := c.w.Pull(t.Context(), "x", func(context.Context, []byte) ([]byte, error) { return []byte(answer("", "p1")), nil }); !errors.Is(err, ErrPeer) {
		t.Error(err)
	}
	n := 0
	endless := func(_ context.Context, request []byte) ([]byte, error) {
		n++
		if n == pullPages+1 && !bytes.Contains(request, fmt.Appendf(nil, `"after":"p%d"`, pullPages)) {
			t.Errorf("the next pull begins with %s", request)
		}
		return []byte(answer("", fmt.Sprint("p", n))), nil
	}
	for i := range 2 {
		if err := c.w.Pull(t.Context(), "x", endless); err != nil || n != (i+1)*pullPages {
			t.Error(err, n)
		}
	}
	// what came before the forgery is kept
	page := answer(string(good)+","+string(replaced(good, `"bundle_bytes":7`, `"bundle_bytes":9`)), "")
	if err := c.w.Pull(t.Context(), "x", func(context.Context, []byte) ([]byte, error) { return []byte(page), nil }); !errors.Is(err, ErrPeer) || len(c.get("statements")) != 1 {
		t.Error(err, len(c.get("statements")))
	}
}

func TestServeSyncRefuses(t *testing.T) {
	b := full(t, newWorld(), 1)
	for _, request := range []string{"", "x", "[]", `{}`, `{"after":""}`, `{"after":"","limit":0}`, `{"after":"","limit":101}`, `{"after":"","limit":1.5}`,
		`{"after":1,"limit":1}`, `{"after":"x","limit":1}`, `{"after":"p","limit":1}`, `{"after":"p01","limit":1}`, `{"after":"p-1","limit":1}`, `{"after":"q1","limit":1}`,
		`{"after":"","limit":1,"x":1}`, `{"after":"","limit":1,"limit":1}`, `{"after":"` + strings.Repeat("x", MaxSyncRequest) + `","limit":1}`} {
		if raw, err := b.w.ServeSync(t.Context(), "x", []byte(request)); err == nil {
			t.Errorf("%.80s: %s", request, raw)
		}
	}
	if raw, err := b.w.ServeSync(t.Context(), "x", []byte(`{"after":"i9999","limit":1}`)); err != nil || string(raw) != `{"items":[],"next":""}` {
		t.Errorf("behind the end: %s, %v", raw, err)
	}
}

func TestLists(t *testing.T) {
	b := full(t, newWorld(), 5)
	if l := b.get("statements?origin=" + hostC); len(l) != 0 {
		t.Errorf("%s", l)
	}
	if l := b.get("attestations?room_id=room-003"); len(l) != 1 || !strings.Contains(string(l[0]), "room-003") {
		t.Errorf("%s", l)
	}
	var seen []string
	pages := 0
	for path := "statements?limit=2&origin=" + hostA; path != ""; pages++ {
		list, link := b.page(path)
		for _, raw := range list {
			seen = append(seen, envelope(t, raw).Hash)
		}
		if path = ""; link != "" {
			path = strings.TrimPrefix(strings.TrimSuffix(link, `>; rel="next"`), "<"+hostB+"/v1/witness/")
			if !strings.Contains(path, "limit=2") || !strings.Contains(path, "origin=") {
				t.Fatal(link)
			}
		}
	}
	if all := b.get("statements"); pages != 3 || len(seen) != 5 || len(all) != 5 {
		t.Error(pages, len(seen), len(all))
	}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != 5 {
		t.Error("a statement came twice")
	}
	_, link := b.page("statements?limit=2")
	cursor := link[strings.Index(link, "cursor=") : strings.Index(link, ">")-len("&limit=2")]
	for _, path := range []string{"?limit=0", "?limit=x", "?origin=a.example", "?origin=" + hostA + "/x", "?room_id=a%2Fb", "?origin=" + hostA + "&origin=" + hostA,
		"?cursor=x", "?limit=2&room_id=room-001&" + cursor, "?%zz"} {
		err := b.w.ServeStatements(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/witness/statements", nil))
		r := httptest.NewRequest("GET", "/v1/witness/statements", nil)
		r.URL.RawQuery = path[1:]
		if err = errors.Join(err, b.w.ServeStatements(httptest.NewRecorder(), r)); adp.CodeOf(err) != adp.InvalidRequest {
			t.Errorf("%s: %v", path, err)
		}
	}
	r := httptest.NewRequest("GET", "/v1/witness/attestations?limit=2&"+cursor, nil)
	if err := b.w.ServeAttestations(httptest.NewRecorder(), r); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("the cursor of another list: %v", err)
	}
	if list, _ := b.page("statements?limit=2&" + cursor); len(list) != 2 {
		t.Error("the cursor of the same list")
	}
}

func fuzzNode(f *testing.F) (*node, [][]byte) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	b := wo.node(f, hostB, hostA)
	recs := chain(f, roomX, "one", "two")
	x, y := seal(f, key(hostA), TypeAnnounce, statement(hostA, recs)), seal(f, key(hostA), TypeAnnounce, statement(hostA, recs[:3]))
	p := must[*Proof](f)(newProof(x, y))
	seeds := [][]byte{x.JSON(), seal(f, key(hostA), TypeAttest, attestation(statement(hostA, recs), x.Hash)).JSON(), must[[]byte](f)(p.JSON())}
	for _, p := range noteProofs(f) {
		seeds = append(seeds, must[[]byte](f)(p.JSON()))
	}
	return b, seeds
}

func FuzzValidate(f *testing.F) {
	b, seeds := fuzzNode(f)
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, p := b.w.judge(data)
		if v == Accept && (p.proof == nil) == (p.env == nil) {
			t.Fatal("accepted nothing")
		}
		if v == Accept && p.env != nil && (p.env.CheckHash() != nil || p.env.CheckSignature() != nil || !bytes.Equal(p.env.JSON(), data)) {
			t.Fatalf("accepted %s", data)
		}
		if b.w.Validate("peer", data) == Accept && v != Accept {
			t.Fatal("two verdicts")
		}
	})
}

func FuzzVerifyEvidence(f *testing.F) {
	_, seeds := fuzzNode(f)
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := VerifyEvidence(data)
		if err != nil {
			return
		}
		if again, err := p.JSON(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%s reads as %s, %v", data, again, err)
		}
		if byNote(p.Kind) {
			return
		}
		if kind, ok := Contradiction(p.Sides[0].Envelope, p.Sides[1].Envelope); !ok || kind != p.Kind {
			t.Fatal("a proof of nothing")
		}
	})
}

func FuzzServeSync(f *testing.F) {
	b, seeds := fuzzNode(f)
	for _, s := range seeds {
		v, p := b.w.judge(s)
		if v != Accept {
			continue // a cosigner that is in no policy
		}
		if err := b.w.keep([]parsed{p}); err != nil {
			f.Fatal(err)
		}
	}
	for _, s := range []string{`{"after":"","limit":1}`, `{"after":"p1","limit":100}`, `{"after":"i2","limit":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := b.w.ServeSync(t.Context(), "peer", data)
		if err != nil {
			return
		}
		var a syncAnswer
		if err := json.Unmarshal(raw, &a); err != nil || len(a.Items) > syncPage || len(raw) > MaxSyncResponse {
			t.Fatalf("%s: %v", raw, err)
		}
	})
}

func FuzzPage(f *testing.F) {
	b, seeds := fuzzNode(f)
	for _, s := range seeds {
		f.Add(append(append([]byte(`{"items":[`), s...), `],"next":"p1"}`...))
	}
	h := seal(f, key(hostA), TypeHead, head(hostA, chain(f, roomX, "one")))
	f.Add(fmt.Appendf(nil, `{"items":[],"next":"","seen":[%s,%q]}`, h.JSON(), noteOf(f, LogOrigin(hostA, 1), 3, 1, logKeyOf(hostA))))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := b.w.take(data); err != nil && !errors.Is(err, ErrPeer) {
			t.Fatal(err)
		}
	})
}

// What is signed goes out as it was signed. Characters that encoding/json escapes made a peer
// that passes an envelope on look like one that forges it, and kept all behind it from everybody.
func TestPullOfTextThatNeedsNoEscape(t *testing.T) {
	wo := newWorld()
	b := full(t, wo, 1)
	st := statement(hostA, chain(t, roomX, "one"))
	st.RoomID, st.Revision = "odd", "<&>\u2028"
	odd := seal(t, key(hostA), TypeAnnounce, st)
	st.RoomID, st.Revision = "behind", Revision
	behind := seal(t, key(hostA), TypeAnnounce, st)
	for _, e := range []*adp.Envelope{odd, behind} {
		if b.hear(e.JSON()) != Accept {
			t.Fatal("refused")
		}
	}
	late := wo.node(t, hostC, hostA, hostB)
	var requests []string
	if err := late.w.Pull(t.Context(), "b", line(b, &requests)); err != nil {
		t.Error(err)
	}
	for _, e := range []*adp.Envelope{odd, behind} {
		if raw, ok, err := late.o.Store.Get(storeKey(TypeAnnounce, e.Hash)); err != nil || !ok || !bytes.Equal(raw, e.JSON()) {
			t.Errorf("%s: %s, %v", e.Hash, raw, err)
		}
	}
}

// Who asks for one room without saying whose goes past entries of others, so many in a page and no more.
func TestListOfOneRoomAmongMany(t *testing.T) {
	b := full(t, newWorld(), 3)
	for from := 0; from < 2*maxSkipped; from += 5000 {
		var batch store.Batch
		for i := from; i < from+5000; i++ {
			batch.Put(store.StatementByRoom("http://a.example", fmt.Sprint("other-", i), fmt.Sprint(i)), []byte("1"))
		}
		if err := b.o.Store.Commit(&batch); err != nil {
			t.Fatal(err)
		}
	}
	found, pages := 0, 0
	for path := "statements?room_id=room-001"; path != ""; pages++ {
		list, link := b.page(path)
		found += len(list)
		if pages == 0 && len(list) != 0 {
			t.Error("the first page went past all others")
		}
		if path = ""; link != "" {
			path = strings.TrimPrefix(strings.TrimSuffix(link, `>; rel="next"`), "<"+hostB+"/v1/witness/")
		}
	}
	if found != 1 || pages != 3 {
		t.Errorf("%d found in %d pages", found, pages)
	}
}
