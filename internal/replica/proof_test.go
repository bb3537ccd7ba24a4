package replica

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

var update = flag.Bool("update", false, "write the golden files")

// ask sends a request for a proof and gives status and body.
func ask(r *Replica, query string) (int, []byte) {
	mux := web.NewMux()
	mux.Handle("GET", "/proof", r.ServeProof)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/proof?"+query, nil))
	return rec.Code, rec.Body.Bytes()
}

// proven reads a proof and checks it with nothing but what it says.
func proven(raw []byte) (p Proof, err error) {
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, err
	}
	root, err := adp.DecodeHash(p.Root)
	var hashes [][]byte
	for _, h := range p.Hashes {
		b, bad := adp.DecodeHash(h)
		err = errors.Join(err, bad)
		hashes = append(hashes, b[:])
	}
	if err != nil {
		return p, err
	}
	if p.From != nil {
		from, err := adp.DecodeHash(p.FromRoot)
		if err != nil {
			return p, err
		}
		return p, adp.VerifyConsistency(uint64(*p.From), uint64(p.Size), hashes, from, root)
	}
	leaf, err := adp.DecodeHash(p.LeafHash)
	if err != nil {
		return p, err
	}
	return p, adp.VerifyInclusion(leaf, uint64(p.Seq-1), uint64(p.Size), hashes, root)
}

// check holds a proof of the replica to the records of the story.
func check(t *testing.T, r *Replica, s *story, query string, seq, from, size int) {
	t.Helper()
	code, raw := ask(r, query)
	if code != 200 {
		t.Fatalf("%s: %d %s", query, code, raw)
	}
	p, err := proven(raw)
	if err != nil {
		t.Fatalf("%s: %v in %s", query, err, raw)
	}
	root := rootOf(s, size)
	if p.Size != int64(size) || p.Root != root || p.RoomID != testRoom || p.Genesis != s.recs[0].Hash {
		t.Fatalf("%s: %s", query, raw)
	}
	if seq > 0 && (p.Seq != int64(seq) || p.LeafHash != s.recs[seq-1].Hash || p.From != nil) {
		t.Fatalf("%s: %s", query, raw)
	}
	if from >= 0 && (p.From == nil || *p.From != int64(from) || p.FromRoot != rootOf(s, from)) {
		t.Fatalf("%s: %s", query, raw)
	}
}

func rootOf(s *story, size int) string {
	var tree adp.Tree
	for _, rec := range s.recs[:size] {
		tree.Append(rec.LeafData())
	}
	root := tree.Root()
	return adp.Encode(root[:])
}

func TestProofsWhileTheRoomGrows(t *testing.T) {
	s := begin(t, nil).upTo(1100)
	set := openSet(t, memory(t))
	r := create(t, set, s)
	at := 1
	for _, n := range []int{2, 3, 255, 256, 257, 300, 512, 513, 1024, 1100} {
		wait(t, feed(t, r, s, at, n), n-at)
		at = n
		for _, seq := range []int{1, 2, n / 2, n - 1, n} {
			if seq > 0 {
				check(t, r, s, fmt.Sprintf("seq=%d", seq), seq, -1, n)
			}
		}
		for _, m := range []int{0, 1, 255, 256, 300, n / 3, n - 1, n} {
			if m <= n {
				check(t, r, s, fmt.Sprintf("from=%d&to=%d", m, n), 0, m, n)
			}
			if m > 0 && m <= n { // a size of the past
				check(t, r, s, fmt.Sprintf("seq=%d&size=%d", (m+1)/2, m), (m+1)/2, -1, m)
			}
		}
	}
	// the same after a restart, when nothing is in memory
	again, ok := openSet(t, set.Store()).Get(testOrigin, testRoom)
	if !ok {
		t.Fatal("the room is gone")
	}
	check(t, again, s, "seq=1100", 1100, -1, 1100)
	check(t, again, s, "from=700&to=1099", 0, 700, 1099)
	check(t, again, s, "seq=1&size=1025", 1, -1, 1025)
}

// A proof reads the tiles that it touches, and a node for each other subtree: with
// all other tiles gone it is still made.
func TestProofsReadFewKeys(t *testing.T) {
	s := begin(t, nil).upTo(1400)
	set := openSet(t, memory(t))
	r := keep(t, set, s)
	var b store.Batch
	for tile := range uint64(5) {
		if tile != 2 {
			b.Delete(store.TreeTile(r.ID, tile))
		}
	}
	if err := set.Store().Commit(&b); err != nil {
		t.Fatal(err)
	}
	check(t, r, s, "seq=600", 600, -1, 1400)
	check(t, r, s, "from=700&to=1400", 0, 700, 1400)
	if code, _ := ask(r, "seq=1"); code != 500 {
		t.Errorf("a proof without its tile: %d", code)
	}
	// and without the nodes, from the tiles alone, as in a store from before they were kept
	other := openSet(t, memory(t))
	r = keep(t, other, s)
	var c store.Batch
	n := 0
	from, to := store.TreeNodeRange(r.ID)
	err := other.Store().View(func(rd store.Reader) error {
		return rd.Keys(from, to, func(key []byte) bool {
			c.Delete(append([]byte(nil), key...))
			n++
			return true
		})
	})
	if err = errors.Join(err, other.Store().Commit(&c)); err != nil || n != 5+2+1 {
		t.Fatalf("%d nodes, %v", n, err)
	}
	check(t, r, s, "seq=600", 600, -1, 1400)
	check(t, r, s, "from=511&to=1399", 0, 511, 1399)
}

// A damaged node is never served in a proof.
func TestDamageIsNotProven(t *testing.T) {
	s := begin(t, nil).upTo(600)
	set := openSet(t, memory(t))
	r := keep(t, set, s)
	var b store.Batch
	b.Put(store.TreeNode(r.ID, 8, 1), make([]byte, 32))
	if err := set.Store().Commit(&b); err != nil {
		t.Fatal(err)
	}
	if code, raw := ask(r, "seq=1"); code != 500 {
		t.Errorf("%d %s", code, raw)
	}
}

func TestProofRequestsOutOfRange(t *testing.T) {
	s := begin(t, nil).upTo(10)
	r := keep(t, openSet(t, memory(t)), s)
	for _, query := range []string{"", "seq=0", "seq=-1", "seq=11", "seq=x", "seq=1&size=0", "seq=1&size=11", "seq=6&size=5", "seq=1&seq=2", "size=5", "from=1",
		"to=5", "from=6&to=5", "from=-1&to=5", "from=0&to=11", "seq=1&from=1&to=2", "seq=1&to=2", "from=1&to=2&size=3", "seq=9223372036854775808", "from=1&to=1e1", "seq=%zz"} {
		code, raw := ask(r, query)
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(raw, &e); err != nil || code != 400 || e.Error.Code != string(adp.InvalidRequest) || e.Error.Message == "" {
			t.Errorf("%q: %d %s", query, code, raw)
		}
	}
	check(t, r, s, "from=0&to=0", 0, 0, 0)
	if _, err := r.RootAt(11); !errors.Is(err, adp.ErrProofRange) {
		t.Error(err)
	}
}

// The shape of a proof, byte for byte, and variants of it that fail.
func TestGoldenProofs(t *testing.T) {
	s := begin(t, nil).upTo(300)
	r := keep(t, openSet(t, memory(t)), s)
	for name, query := range map[string]string{"inclusion": "seq=200&size=299", "consistency": "from=130&to=300"} {
		code, raw := ask(r, query)
		path := filepath.Join("testdata", "proof-"+name+".json")
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, raw, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || code != 200 || string(raw) != string(want) {
			t.Errorf("%s: %d %s, %v", name, code, raw, err)
		}
		var m map[string]any
		if err := json.Unmarshal(want, &m); err != nil {
			t.Fatal(err)
		}
		if _, err := proven(want); err != nil {
			t.Fatal(err)
		}
		hashes := m["hashes"].([]any)
		for what, change := range map[string]func(){
			// of another shape; the size itself is bound by who signed it, with its root
			"another size":  func() { m["size"] = 256 },
			"another root":  func() { m["root"] = rootOf(s, 100) },
			"one hash less": func() { m["hashes"] = hashes[1:] },
			"one hash more": func() { m["hashes"] = append(append([]any{}, hashes...), hashes[0]) },
			"hashes turned": func() { h := append([]any{}, hashes...); h[0], h[1] = h[1], h[0]; m["hashes"] = h },
			"a hash cut":    func() { h := append([]any{}, hashes...); h[0] = h[0].(string)[1:]; m["hashes"] = h },
			"another seq": func() {
				m["seq"], m["from"] = 201, 131
				delete(m, map[bool]string{true: "from", false: "seq"}[name == "inclusion"])
			},
			"another subject": func() { m["leaf_hash"], m["from_root"] = s.recs[3].Hash, rootOf(s, 3) },
		} {
			if err := json.Unmarshal(want, &m); err != nil {
				t.Fatal(err)
			}
			change()
			bad, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := proven(bad); err == nil {
				t.Errorf("%s with %s verifies: %s", name, what, bad)
			}
		}
	}
}
