package tilelog

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/witan-adp/witan/internal/store"
)

func memory(t testing.TB) *store.Store {
	t.Helper()
	st := must[*store.Store](t)(store.Open(store.Options{InMemory: true}))
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func nameOf(generation int) string {
	if generation == 1 {
		return testName
	}
	return fmt.Sprint(testName, "/", generation)
}

func keyOf(generation int) ed25519.PrivateKey { return key(fmt.Sprint("log ", generation)) }

func open(t testing.TB, st *store.Store) *Log {
	t.Helper()
	return must[*Log](t)(Open(st, nameOf, keyOf))
}

// put appends entries in one batch and publishes.
func put(t testing.TB, st *store.Store, l *Log, list ...[]byte) {
	t.Helper()
	var b store.Batch
	p := must[*Pending](t)(l.Append(&b, named(list)...))
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	l.Publish(p)
}

func named(list [][]byte) (out []Entry) {
	for _, e := range list {
		out = append(out, Entry{"name of " + string(e), e})
	}
	return out
}

// tiles lets the reader of golang.org/x/mod/sumdb/tlog read a log.
type tiles struct {
	t    testing.TB
	read func(path string) ([]byte, error)
}

func (r tiles) Height() int { return 8 }

func (r tiles) ReadTiles(list []tlog.Tile) (out [][]byte, err error) {
	for _, x := range list {
		b, err := r.read(strings.Replace(x.Path(), "tile/8/", "tile/", 1))
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func (r tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// audit reads a whole log from outside: the checkpoint, every entry, a proof for
// some, all hashes from tiles that are checked against the root.
func audit(t testing.TB, signed []byte, pub ed25519.PublicKey, read func(path string) ([]byte, error)) (list [][]byte) {
	t.Helper()
	c := must[Checkpoint](t)(PeekCheckpoint(signed))
	v := must[note.Verifier](t)(note.NewVerifier(must[string](t)(VerifierKey(c.Origin, pub))))
	must[*note.Note](t)(note.Open(signed, note.VerifierList(v)))
	n := int64(c.Size)
	for at := int64(0); at < n; at += TileWidth {
		tile := Tile{Entries: true, Index: uint64(at / TileWidth), Width: int(min(TileWidth, n-at))}
		list = append(list, must[[][]byte](t)(ParseBundle(must[[]byte](t)(read(tile.Path())), tile.Width))...)
	}
	if n == 0 {
		return nil
	}
	hashes := tlog.TileHashReader(tlog.Tree{N: n, Hash: c.Root}, tiles{t, read})
	step := max(1, n/50)
	var stored []tlog.Hash
	for i := int64(0); i < n; i++ {
		if i%TileWidth == 0 {
			var indexes []int64
			for k := i; k < min(i+TileWidth, n); k++ {
				indexes = append(indexes, tlog.StoredHashIndex(0, k))
			}
			stored = must[[]tlog.Hash](t)(hashes.ReadHashes(indexes))
		}
		if stored[i%TileWidth] != tlog.RecordHash(list[i]) {
			t.Fatalf("entry %d is not the one in the tree", i)
		}
		if i%step == 0 || i == n-1 {
			p := must[tlog.RecordProof](t)(tlog.ProveRecord(n, i, hashes))
			if err := tlog.CheckRecord(p, n, c.Root, i, tlog.RecordHash(list[i])); err != nil {
				t.Fatal(err)
			}
		}
	}
	return list
}

func (l *Log) path(path string) ([]byte, error) {
	t, err := ParsePath(path)
	if err != nil {
		return nil, err
	}
	return l.Read(t)
}

func TestLogGrows(t *testing.T) {
	st := memory(t)
	l := open(t, st)
	if list := audit(t, l.Checkpoint(), public("log 1"), l.path); len(list) != 0 {
		t.Fatal("an empty log has entries")
	}
	list := entries(1100)
	var notes [][]byte
	at := 0
	for _, n := range []int{1, 2, 3, 5, 255, 256, 257, 511, 512, 513, 1024, 1100} {
		put(t, st, l, list[at:n]...)
		at = n
		notes = append(notes, l.Checkpoint())
		_, head := l.Head()
		root, read := theirs(t, list[:n])
		if head != (Checkpoint{testName, uint64(n), root}) {
			t.Fatalf("head %+v", head)
		}
		got := audit(t, l.Checkpoint(), public("log 1"), l.path)
		if len(got) != n || !bytes.Equal(got[n-1], list[n-1]) {
			t.Fatalf("%d entries", len(got))
		}
		for _, i := range []int{0, n / 2, n - 1} {
			index, ok, err := l.Find("name of " + string(list[i]))
			if err != nil || !ok || index != uint64(i) {
				t.Fatalf("entry %d is at %d, %v, %v", i, index, ok, err)
			}
			p, size, err := l.Prove(index)
			if err != nil || size != uint64(n) {
				t.Fatal(size, err)
			}
			if c := must[Checkpoint](t)(must[Proof](t)(ParseProof(p.Text())).Verify(list[i], public("log 1"))); c != head {
				t.Fatalf("%+v", c)
			}
		}
		// every checkpoint before is of the same log
		for _, old := range notes {
			c := must[Checkpoint](t)(OpenCheckpoint(old, public("log 1")))
			if root := must[[32]byte](t)(l.RootAt(c.Size)); root != c.Root {
				t.Fatalf("at %d the root was another", c.Size)
			}
			p := must[tlog.TreeProof](t)(tlog.ProveTree(int64(n), int64(c.Size), read))
			if err := tlog.CheckTree(p, int64(n), root, int64(c.Size), c.Root); err != nil {
				t.Fatal(err)
			}
		}
		// what is not in it
		if _, ok, err := l.Find("x"); ok || err != nil {
			t.Error(ok, err)
		}
		if _, _, err := l.Prove(uint64(n)); !errors.Is(err, ErrNotThere) {
			t.Error(err)
		}
		if _, err := l.RootAt(uint64(n) + 1); !errors.Is(err, ErrNotThere) {
			t.Error(err)
		}
		for _, x := range []Tile{{Index: uint64(n / 256), Width: n%256 + 1}, {Entries: true, Index: uint64(n / 256), Width: n%256 + 1}, {Level: 1, Width: n/256 + 1}, {Level: 2, Width: 1}} {
			if b, err := l.Read(x); !errors.Is(err, ErrNotThere) {
				t.Errorf("%s of %d: %d bytes, %v", x.Path(), n, len(b), err)
			}
		}
		if n == 300 || n%2 == 0 {
			l = open(t, st) // a restart in between
		}
	}
	for _, x := range []Tile{{Width: 256}, {Level: 1, Width: 4}, {Index: 4, Width: 1100 - 1024}, {Entries: true, Index: 4, Width: 7}} {
		golden(t, strings.ReplaceAll(strings.TrimPrefix(x.Path(), "tile/"), "/", "-")+".tile", must[[]byte](t)(l.Read(x)))
	}
	// an older partial tile is the beginning of a newer one
	if a, b := must[[]byte](t)(l.Read(Tile{Width: 5})), must[[]byte](t)(l.Read(Tile{Width: 256})); !bytes.HasPrefix(b, a) || len(a) != 5*32 {
		t.Error("another partial tile")
	}
}

// A log of three levels, by many entries to a batch.
func TestLogOfThreeLevels(t *testing.T) {
	if testing.Short() {
		t.Skip("many entries")
	}
	st := memory(t)
	l := open(t, st)
	list := entries(256*256 + 300)
	for at := 0; at < len(list); at += 3000 {
		put(t, st, l, list[at:min(at+3000, len(list))]...)
	}
	for _, l := range []*Log{l, open(t, st)} {
		if got := audit(t, l.Checkpoint(), public("log 1"), l.path); len(got) != len(list) {
			t.Fatal(len(got))
		}
		if b := must[[]byte](t)(l.Read(Tile{Level: 2, Width: 1})); len(b) != 32 {
			t.Error(len(b))
		}
		p, _, err := l.Prove(65_000)
		if err != nil {
			t.Fatal(err)
		}
		must[Checkpoint](t)(p.Verify(list[65_000], public("log 1")))
	}
}

// A batch that is not committed leaves nothing; one that is committed and not
// published is found by the next start; and of two for one size only one can be.
func TestCompareAndSwap(t *testing.T) {
	st := memory(t)
	l := open(t, st)
	list := entries(300)
	put(t, st, l, list[:254]...)
	before := l.Checkpoint()

	var dropped store.Batch
	must[*Pending](t)(l.Append(&dropped, named(list[254:290])...)) // fills a tile, and is not committed
	if !bytes.Equal(l.Checkpoint(), before) || len(audit(t, before, public("log 1"), l.path)) != 254 {
		t.Error("what is not committed shows")
	}
	var a, b store.Batch
	pa, pb := must[*Pending](t)(l.Append(&a, named(list[254:290])...)), must[*Pending](t)(l.Append(&b, Entry{"other", []byte("other")}))
	if err := st.Commit(&a); err != nil {
		t.Fatal(err)
	}
	if err := st.Commit(&b); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("two heads of one size: %v", err)
	}
	_ = pb
	if !bytes.Equal(l.Checkpoint(), before) {
		t.Error("published before Publish")
	}
	if _, ok, err := l.Find("name of " + string(list[260])); ok || err != nil {
		t.Error("found before Publish", err)
	}
	again := open(t, st) // as after a crash between commit and publish
	if list := audit(t, again.Checkpoint(), public("log 1"), again.path); len(list) != 290 {
		t.Error(len(list))
	}
	l.Publish(pa)
	if !bytes.Equal(l.Checkpoint(), again.Checkpoint()) {
		t.Error("two checkpoints of one state")
	}
	put(t, st, l, list[290:]...)
	var late store.Batch // made from a head that is no more
	must[*Pending](t)(again.Append(&late, Entry{"late", []byte("late")}))
	if err := st.Commit(&late); !errors.Is(err, store.ErrConflict) {
		t.Error(err)
	}
	var more, renewed store.Batch // to go on, and to begin again
	must[*Pending](t)(l.Append(&more, Entry{"more", []byte("more")}))
	must[*Pending](t)(l.Renew(&renewed, 2))
	if err := st.Commit(&renewed); err != nil {
		t.Fatal(err)
	}
	if err := st.Commit(&more); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the old log goes on beside the new one: %v", err)
	}
	if _, err := l.Append(&store.Batch{}, Entry{"x", make([]byte, MaxEntry+1)}); err == nil {
		t.Error("an entry without a length")
	}
}

func TestDamagedLog(t *testing.T) {
	for name, harm := range map[string]func(*store.Batch){
		"no head":            func(b *store.Batch) { b.Put(store.Meta(headName), []byte("{}")) },
		"no JSON":            func(b *store.Batch) { b.Put(store.Meta(headName), []byte("x")) },
		"no edge":            func(b *store.Batch) { b.Delete(store.LogTile(1, 0, 1)) },
		"another edge":       func(b *store.Batch) { b.Put(store.LogTile(1, 0, 1), make([]byte, 44*32)) },
		"another upper edge": func(b *store.Batch) { b.Put(store.LogTile(1, 1, 0), make([]byte, 32)) },
	} {
		st := memory(t)
		put(t, st, open(t, st), entries(300)...)
		var b store.Batch
		harm(&b)
		if err := st.Commit(&b); err != nil {
			t.Fatal(err)
		}
		l, err := Open(st, nameOf, keyOf)
		if !errors.Is(err, ErrDamaged) || len(l.Checkpoint()) != 0 {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := l.Read(Tile{Width: 1}); !errors.Is(err, ErrNotThere) {
			t.Errorf("%s: %v", name, err)
		}
		renew(t, st, l, 2)
		put(t, st, l, []byte("first"))
		if got := audit(t, open(t, st).Checkpoint(), public("log 2"), l.path); len(got) != 1 {
			t.Errorf("%s: after renewal %q", name, got)
		}
	}
	st := memory(t)
	put(t, st, open(t, st), entries(3)...)
	if _, err := Open(st, nameOf, func(int) ed25519.PrivateKey { return key("else") }); !errors.Is(err, ErrDamaged) {
		t.Error("another key goes on with the log", err)
	}
	if _, err := Open(st, func(int) string { return "b.example/witan" }, keyOf); !errors.Is(err, ErrDamaged) {
		t.Error("another origin goes on with the log", err)
	}
	l := open(t, st)
	for what, key := range map[string][]byte{"tile": store.LogTile(1, 0, 0), "entry": store.LogEntry(1, 1)} {
		var b store.Batch
		b.Delete(key)
		if err := st.Commit(&b); err != nil {
			t.Fatal(err)
		}
		for _, x := range []Tile{{Width: 2}, {Entries: true, Width: 3}} {
			if _, err := l.Read(x); x.Entries == (what == "entry") && !errors.Is(err, ErrDamaged) {
				t.Errorf("no %s: %v", what, err)
			}
		}
	}
}

func renew(t testing.TB, st *store.Store, l *Log, generation int) {
	t.Helper()
	var b store.Batch
	p := must[*Pending](t)(l.Renew(&b, generation))
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	l.Publish(p)
}

func TestRenew(t *testing.T) {
	st := memory(t)
	l := open(t, st)
	put(t, st, l, entries(300)...)
	for _, g := range []int{0, 1} {
		if _, err := l.Renew(&store.Batch{}, g); err == nil {
			t.Errorf("generation %d after 1", g)
		}
	}
	renew(t, st, l, 3)
	for _, l := range []*Log{l, open(t, st)} {
		if g, head := l.Head(); g != 3 || head.Size != 0 || head.Origin != testName+"/3" {
			t.Errorf("%d, %+v", g, head)
		}
		if _, ok, err := l.Find(`name of {"n":1}`); ok || err != nil {
			t.Error("an entry of the log before", err)
		}
	}
	put(t, st, l, entries(5)...)
	if got := audit(t, open(t, st).Checkpoint(), public("log 3"), l.path); len(got) != 5 {
		t.Error(len(got))
	}
}

func TestCustody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	st := memory(t)
	claim := func(st *store.Store, generation int, size uint64) string {
		t.Helper()
		return must[string](t)(Claim(file, st, generation, size))
	}
	if r := claim(st, 1, 0); r != "" {
		t.Fatal("the very first start: ", r)
	}
	info := must[os.FileInfo](t)(os.Stat(CustodyFile(file)))
	if info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
	c := must[Custody](t)(ReadCustody(file))
	if name := must[string](t)(StoreName(st)); c != (Custody{name, 1}) || len(name) != nameLength {
		t.Errorf("%+v", c)
	}
	if r := claim(st, 1, 7); r != "" {
		t.Error("the same store: ", r)
	}
	for what, r := range map[string]string{"an empty store": claim(memory(t), 1, 0), "a later generation in the store": claim(st, 2, 0)} {
		if r == "" || !strings.Contains(r, CustodyFile(file)) {
			t.Errorf("%s: %q", what, r)
		}
	}
	other := memory(t)
	must[string](t)(NameStore(other))
	if r := claim(other, 1, 0); r == "" {
		t.Error("another store may sign")
	}
	for _, text := range []string{"", "x", string(c.Text()) + "x", "witan-store-v1 " + c.Store + " 0\n", "witan-store-v1 " + c.Store + " 01\n", "witan-store-v1 " + c.Store[1:] + " 1\n", strings.TrimSpace(string(c.Text()))} {
		if err := os.WriteFile(CustodyFile(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := claim(st, 1, 0); r == "" {
			t.Errorf("%q lets it sign", text)
		}
	}
	if err := os.Remove(CustodyFile(file)); err != nil {
		t.Fatal(err)
	}
	if r := claim(st, 1, 7); r == "" {
		t.Error("without the file, with a log, it may sign")
	}
	if r := claim(st, 1, 0); r != "" { // a crash after the store was named
		t.Error(r)
	}
	if again := must[Custody](t)(ReadCustody(file)); again != c {
		t.Errorf("%+v", again)
	}
	if err := (Custody{c.Store, 9}).Write(file); err != nil {
		t.Fatal(err)
	}
	if r := claim(st, 1, 7); r == "" {
		t.Error("an older generation may sign")
	}
	if err := c.Write(filepath.Join(file, "no", "folder")); err == nil {
		t.Error("written to nowhere")
	}
}
