package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/internal/web"
)

// http asks the node for a path.
func (n *node) http(path string, header ...string) *httptest.ResponseRecorder {
	mux := web.NewMux()
	n.w.Routes(mux)
	rec := httptest.NewRecorder()
	req := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	mux.ServeHTTP(rec, req)
	return rec
}

func (n *node) fetch(path string) []byte {
	n.t.Helper()
	rec := n.http(path)
	if rec.Code != 200 {
		n.t.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
	}
	return rec.Body.Bytes()
}

// overHTTP lets the reader of golang.org/x/mod/sumdb/tlog read the log of a node.
type overHTTP struct{ n *node }

func (r overHTTP) Height() int { return 8 }

func (r overHTTP) ReadTiles(list []tlog.Tile) (out [][]byte, err error) {
	for _, x := range list {
		rec := r.n.http("/log/" + strings.Replace(x.Path(), "tile/8/", "tile/", 1))
		if rec.Code != 200 {
			return nil, fmt.Errorf("%s: %d", x.Path(), rec.Code)
		}
		out = append(out, rec.Body.Bytes())
	}
	return out, nil
}

func (r overHTTP) SaveTiles([]tlog.Tile, [][]byte) {}

// audit reads the whole log of a node from outside and checks all of it: the
// signature, every entry against the tree, and each entry as an envelope of the
// node's own key.
func (n *node) audit(generation int) (list []*adp.Envelope) {
	t := n.t
	t.Helper()
	signed := n.fetch("/log/checkpoint")
	origin := LogOrigin(n.o.Origin, generation)
	pub := n.o.LogKey(generation).Public().(ed25519.PublicKey)
	v := must[note.Verifier](t)(note.NewVerifier(must[string](t)(note.NewEd25519VerifierKey(origin, pub))))
	text := must[*note.Note](t)(note.Open(signed, note.VerifierList(v))).Text
	var size int64
	var root string
	if _, err := fmt.Sscanf(text, origin+"\n%d\n%s\n", &size, &root); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	head := tlog.Tree{N: size, Hash: must[tlog.Hash](t)(tlog.ParseHash(root))}
	hashes := tlog.TileHashReader(head, overHTTP{n})
	for at := int64(0); at < size; at += 256 {
		tile := tilelog.Tile{Entries: true, Index: uint64(at / 256), Width: int(min(256, size-at))}
		for _, raw := range must[[][]byte](t)(tilelog.ParseBundle(n.fetch("/log/"+tile.Path()), tile.Width)) {
			i := int64(len(list))
			proof := must[tlog.RecordProof](t)(tlog.ProveRecord(size, i, hashes))
			if err := tlog.CheckRecord(proof, size, head.Hash, i, tlog.RecordHash(raw)); err != nil {
				t.Fatalf("entry %d: %v", i, err)
			}
			e := envelope(t, raw)
			if !bytes.Equal(e.JSON(), raw) || e.CheckHash() != nil || e.CheckSignature() != nil || e.Actor != n.w.self {
				t.Fatalf("entry %d: %s", i, raw)
			}
			list = append(list, e)
		}
	}
	return list
}

// states makes a node sign a statement about each of some own rooms.
func (n *node) states(rooms ...string) {
	n.t.Helper()
	for _, id := range rooms {
		n.w.Ended(n.install(n.o.Origin, chain(n.t, id, "one")))
	}
	n.drain()
}

func names(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("room-%04d", i))
	}
	return list
}

// Everything that is signed is in the log before it is anywhere else, in order,
// and the log is what outside tools can read.
func TestWhatIsSignedIsLogged(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	a, b := wo.node(t, hostA), wo.node(t, hostB, hostA)
	if len(a.audit(1)) != 0 {
		t.Error("the log does not begin empty")
	}
	if s := must[LogStatus](t)(a.w.Log()); !s.Signs || s.Size != 0 || s.Origin != "a.example/witan" || !strings.HasPrefix(s.VerifierKey, "a.example/witan+") {
		t.Errorf("%+v", s)
	}
	a.states(names(0, 300)...)
	recs := chain(t, "room-0000", "one")
	e := envelope(t, a.w.publisher.next(t))
	if v := b.hear(e.JSON()); v != Accept {
		t.Fatal(v)
	}
	b.w.Completed(b.install(hostA, recs))
	b.drain()
	if list := b.audit(1); len(list) != 1 || list[0].Type != TypeAttest {
		t.Fatalf("%d entries", len(list))
	}
	for range 2 {
		list := a.audit(1)
		if len(list) != 300 {
			t.Fatalf("%d entries", len(list))
		}
		if !slices.IsSortedFunc(list, func(x, y *adp.Envelope) int { return int(x.Nonce - y.Nonce) }) {
			t.Error("not in the order of signing")
		}
		logged := map[string]bool{}
		for _, e := range list {
			logged[e.Hash] = true
		}
		for link := "statements?limit=200"; link != ""; {
			var said []json.RawMessage
			said, link = a.page(link)
			_, link, _ = strings.Cut(strings.TrimSuffix(link, `>; rel="next"`), "/v1/witness/")
			for _, raw := range said {
				if e := envelope(t, raw); !logged[e.Hash] {
					t.Fatalf("said and not logged: %s", raw)
				}
			}
		}
		a.again() // and so after a restart
	}
	// the proof of one envelope
	var got logEntry
	if err := json.Unmarshal(a.fetch("/v1/witness/log-entry?hash="+e.Hash), &got); err != nil || got.Size != 300 || got.Checkpoint != string(a.fetch("/log/checkpoint")) {
		t.Fatalf("%+v, %v", got, err)
	}
	p := tilelog.Proof{Index: got.Index, Checkpoint: []byte(got.Checkpoint)}
	for _, h := range got.Hashes {
		p.Hashes = append(p.Hashes, must[[]byte](t)(base64.StdEncoding.DecodeString(h)))
	}
	must[tilelog.Checkpoint](t)(p.Verify(e.JSON(), logKeys(hostA)[0]))
	text := a.http("/v1/witness/log-entry?hash="+e.Hash, "Accept", "text/plain")
	if !bytes.Equal(text.Body.Bytes(), p.Text()) || !strings.HasPrefix(text.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("%v %s", text.Header(), text.Body)
	}
	for path, want := range map[string]int{"/v1/witness/log-entry": 400, "/v1/witness/log-entry?hash=x": 400, "/v1/witness/log-entry?hash=" + adp.Encode(make([]byte, 32)): 404,
		"/log/tile/0/000": 200, "/log/tile/0/001.p/44": 200, "/log/tile/0/001.p/45": 404, "/log/tile/0/001": 404, "/log/tile/1/000.p/1": 200, "/log/tile/1/000": 404,
		"/log/tile/2/000": 404, "/log/tile/entries/001.p/44": 200, "/log/tile/entries/002": 404, "/log/tile/x": 404, "/log/tile/0/00": 404, "/log": 404} {
		if rec := a.http(path); rec.Code != want {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
}

// next is what was published first and not yet sent.
func (p *publisher) next(t testing.TB) []byte {
	t.Helper()
	select {
	case m := <-p.queue:
		return m.data
	default:
		t.Fatal("nothing was published")
		return nil
	}
}

// A daemon that signs nothing shows no log, and says so.
func TestNoLogWithoutSigning(t *testing.T) {
	wo := newWorld()
	a := wo.node(t, hostA)
	a.o.Sign = false
	a.again()
	a.states("room-1")
	for _, path := range []string{"/log/checkpoint", "/log/tile/0/000.p/1", "/v1/witness/log-entry?hash=" + adp.Encode(make([]byte, 32))} {
		if rec := a.http(path); rec.Code != 404 || !strings.Contains(rec.Body.String(), "signs nothing") {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
	if _, err := a.w.NewLog(); err == nil {
		t.Error("a new log of nothing")
	}
	a.o.LogKey = nil
	a.again()
	if s, err := a.w.Log(); err != nil || s != (LogStatus{}) {
		t.Error(s, err)
	}
	if rec := a.http("/log/checkpoint"); rec.Code != 404 {
		t.Error(rec.Code)
	}
}

// shows collects all that anybody outside can see of what a node has signed.
func (n *node) shows() (all []string) {
	n.t.Helper()
	for link := "statements?limit=200"; link != ""; {
		var list []json.RawMessage
		list, link = n.page(link)
		_, link, _ = strings.Cut(strings.TrimSuffix(link, `>; rel="next"`), "/v1/witness/")
		for _, raw := range list {
			all = append(all, string(raw))
		}
	}
	for after := ""; ; {
		var a syncAnswer
		ask := fmt.Appendf(nil, `{"after":%q,"checkpoint":"","limit":100}`, after)
		if err := json.Unmarshal(must[[]byte](n.t)(n.w.ServeSync(n.t.Context(), "p", ask)), &a); err != nil {
			n.t.Fatal(err)
		}
		for _, raw := range a.Items {
			all = append(all, string(raw))
		}
		all = append(all, a.Checkpoints...)
		if after = a.Next; after == "" {
			break
		}
	}
	for len(n.w.publisher.queue) > 0 {
		all = append(all, string((<-n.w.publisher.queue).data))
	}
	all = append(all, string(n.fetch("/log/checkpoint")))
	slices.Sort(all)
	return slices.Compact(all)
}

// faults are the ways in which the store fails a commit.
var faults = map[string]func(n *node) func(*store.Batch) error{
	"failed": func(*node) func(*store.Batch) error {
		return func(*store.Batch) error { return fmt.Errorf("%w: injected", store.ErrFailed) }
	},
	"failed, but persisted": func(n *node) func(*store.Batch) error {
		return func(b *store.Batch) error {
			return errors.Join(n.o.Store.Commit(b), fmt.Errorf("%w: injected", store.ErrFailed))
		}
	},
	"refused, nothing written": func(*node) func(*store.Batch) error {
		return func(*store.Batch) error { return fmt.Errorf("%w: injected", store.ErrDiskFull) }
	},
}

// Whatever happens between signing, storing and publishing: nothing gets out that
// is not surely on the disk, and no two things that ever got out contradict each
// other, across restarts at each point.
func TestFaultsBetweenSignStorePublish(t *testing.T) {
	for name, fault := range faults {
		for _, before := range []int{0, 1, 255} { // 255: the commit fills a tile
			t.Run(fmt.Sprintf("%s, %d before", name, before), func(t *testing.T) {
				wo := newWorld()
				a := wo.node(t, hostA)
				a.states(names(0, before)...)
				seen := a.shows()
				a.w.put = fault(a)
				a.w.Ended(a.install(hostA, chain(t, "room-x", "one")))
				a.drain()
				for range 2 {
					for _, text := range a.shows() {
						if !slices.Contains(seen, text) {
							t.Fatalf("got out although the commit failed: %.300s", text)
						}
					}
					if err := a.w.load(); err != nil { // whatever else reads the store again
						t.Fatal(err)
					}
				}
				// the process dies here; the next one goes on from the disk
				a.again()
				a.w.resume()
				a.drain()
				list := a.audit(1)
				if len(list) != before+1 {
					t.Fatalf("%d entries, want %d", len(list), before+1)
				}
				said := map[string]string{}
				for _, e := range list {
					s := must[*Statement](t)(ParseStatement(e))
					if other := said[s.RoomID]; other != "" {
						t.Errorf("%s was signed twice: %s, %s", s.RoomID, other, e.Hash)
					}
					said[s.RoomID] = e.Hash
				}
				// every checkpoint that ever got out is of this log
				for _, text := range append(seen, a.shows()...) {
					if !strings.HasPrefix(text, "a.example/witan\n") {
						continue
					}
					c := must[tilelog.Checkpoint](t)(tilelog.OpenCheckpoint([]byte(text), logKeys(hostA)[0]))
					if root := must[[32]byte](t)(a.w.journal.log.RootAt(c.Size)); root != c.Root {
						t.Errorf("a checkpoint of size %d that does not hold got out", c.Size)
					}
				}
				if a.w.refusing() != "" {
					t.Error(a.w.refusing())
				}
			})
		}
	}
}

// A crash after the commit and before the gossip: peers get it by catch-up.
func TestPublishedAfterACrash(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	a, b := wo.node(t, hostA), wo.node(t, hostB, hostA)
	a.states("room-1")
	a.again() // what was queued for gossip is gone
	a.w.resume()
	a.drain()
	var requests []string
	if err := b.w.Pull(t.Context(), "a", line(a, &requests)); err != nil || len(b.get("statements")) != 1 || len(a.audit(1)) != 1 {
		t.Error(err)
	}
}
