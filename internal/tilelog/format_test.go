package tilelog

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

var update = flag.Bool("update", false, "write the golden files")

const testName = "a.example:8443/witan"

func key(seed string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%-32.32s", seed))
}

func public(seed string) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// golden holds bytes to a file.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, got, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\n%q\nwant\n%q", name, err, got, want)
	}
	return want
}

// entries are what the golden log holds.
func entries(n int) (list [][]byte) {
	for i := range n {
		list = append(list, fmt.Appendf(nil, `{"n":%d}`, i))
	}
	return list
}

// theirs is the same log by golang.org/x/mod/sumdb/tlog.
func theirs(t testing.TB, list [][]byte) (tlog.Hash, tlog.HashReaderFunc) {
	t.Helper()
	var hashes []tlog.Hash
	read := func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, x := range indexes {
			out[i] = hashes[x]
		}
		return out, nil
	}
	for i, e := range list {
		hashes = append(hashes, must[[]tlog.Hash](t)(tlog.StoredHashes(int64(i), e, tlog.HashReaderFunc(read)))...)
	}
	return must[tlog.Hash](t)(tlog.TreeHash(int64(len(list)), tlog.HashReaderFunc(read))), read
}

func TestGoldenCheckpoint(t *testing.T) {
	root, _ := theirs(t, entries(5))
	c := Checkpoint{testName, 5, root}
	signed := golden(t, "checkpoint.txt", must[[]byte](t)(c.Sign(key("log"))))
	if got := must[Checkpoint](t)(OpenCheckpoint(signed, public("other"), public("log"))); got != c {
		t.Errorf("%+v", got)
	}
	// an implementation of notes that is not ours
	vkey := golden(t, "vkey.txt", []byte(must[string](t)(VerifierKey(testName, public("log")))))
	v := must[note.Verifier](t)(note.NewVerifier(string(vkey)))
	n := must[*note.Note](t)(note.Open(signed, note.VerifierList(v)))
	if n.Text != c.Text() || len(n.Sigs) != 1 || n.Sigs[0].Name != testName {
		t.Errorf("%+v", n)
	}
	for name, bad := range map[string]string{
		"another size":           replace(signed, "\n5\n", "\n6\n"),
		"another origin":         replace(signed, testName+"\n5", "b.example/witan\n5"),
		"the key of another":     string(must[[]byte](t)(c.Sign(key("else")))),
		"a leading zero":         replace(signed, "\n5\n", "\n05\n"),
		"a sign":                 replace(signed, "\n5\n", "\n+5\n"),
		"a root of 31 bytes":     replace(signed, base64.StdEncoding.EncodeToString(root[:]), base64.StdEncoding.EncodeToString(root[1:])),
		"a root of 33 bytes":     replace(signed, base64.StdEncoding.EncodeToString(root[:]), base64.StdEncoding.EncodeToString(append(root[:], 1))),
		"an extension line":      replace(signed, "\n\n", "\nmore\n\n"),
		"no signature":           strings.SplitAfter(string(signed), "\n\n")[0],
		"no blank line":          replace(signed, "\n\n", "\n"),
		"carriage returns":       strings.ReplaceAll(string(signed), "\n", "\r\n"),
		"an origin with a space": replace(signed, testName, "a example"),
		"an origin with a plus":  replace(signed, testName, "a+b"),
		"an empty origin":        replace(signed, testName+"\n5", "\n5"),
		"a size above int64":     replace(signed, "\n5\n", "\n9223372036854775808\n"),
		"too long":               string(signed) + strings.Repeat(" ", MaxCheckpoint),
		"nothing":                "",
	} {
		if got, err := OpenCheckpoint([]byte(bad), public("log")); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// any single flipped bit
	for i := range signed {
		for bit := range 8 {
			bad := bytes.Clone(signed)
			bad[i] ^= 1 << bit
			if got, err := OpenCheckpoint(bad, public("log")); err == nil {
				t.Errorf("byte %d, bit %d: %+v from %q", i, bit, got, bad)
			}
		}
	}
	for _, c := range []Checkpoint{{Origin: "a b"}, {Origin: ""}, {Origin: "a", Size: math.MaxInt64 + 1}, {Origin: "ä"}, {Origin: strings.Repeat("a", maxOrigin+1)}} {
		if _, err := c.Sign(key("log")); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v is signed", c)
		}
	}
}

func replace(b []byte, old, with string) string { return strings.Replace(string(b), old, with, 1) }

func TestGoldenBundle(t *testing.T) {
	var bundle []byte
	for _, e := range [][]byte{[]byte(`{"n":1}`), {}, bytes.Repeat([]byte("x"), 300)} {
		bundle = must[[]byte](t)(AppendEntry(bundle, e))
	}
	want := golden(t, "bundle.bin", bundle)
	list := must[[][]byte](t)(ParseBundle(want, 3))
	if len(list) != 3 || string(list[0]) != `{"n":1}` || len(list[1]) != 0 || len(list[2]) != 300 {
		t.Errorf("%q", list)
	}
	for name, bad := range map[string][]byte{"cut": want[:len(want)-1], "cut in a length": want[:10], "more": append(bytes.Clone(want), 0), "another entry": append(bytes.Clone(want), 0, 0), "none": nil} {
		if list, err := ParseBundle(bad, 3); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %q, %v", name, list, err)
		}
	}
	if _, err := AppendEntry(nil, make([]byte, MaxEntry)); err != nil {
		t.Error(err)
	}
	if _, err := AppendEntry(nil, make([]byte, MaxEntry+1)); err == nil {
		t.Error("an entry that has no length")
	}
}

func TestPaths(t *testing.T) {
	for path, want := range map[string]Tile{
		"tile/0/000":                                {Width: 256},
		"tile/0/000.p/1":                            {Width: 1},
		"tile/7/999.p/255":                          {Level: 7, Index: 999, Width: 255},
		"tile/1/x001/000":                           {Level: 1, Index: 1000, Width: 256},
		"tile/0/x001/x234/067.p/42":                 {Index: 1234067, Width: 42},
		"tile/entries/x001/x234/067":                {Entries: true, Index: 1234067, Width: 256},
		"tile/entries/000.p/7":                      {Entries: true, Width: 7},
		"tile/0/x009/x007/x199/x254/x740/991":       {Index: 9007199254740991, Width: 256},
		"tile/entries/x009/x007/x199/x254/x740/991": {Entries: true, Index: 9007199254740991, Width: 256},
	} {
		if got, err := ParsePath(path); err != nil || got != want || got.Path() != path {
			t.Errorf("%s: %+v, %v, %s", path, got, err, got.Path())
		}
	}
	for _, path := range []string{"", "tile", "tile/", "tile/0", "tile/0/", "tile/0/0", "tile/0/00", "tile/0/0000", "tile/00/000", "tile/8/000", "tile/-1/000", "tile/64/000",
		"tile/0/001/000", "tile/0/x000/001", "tile/0/x001/x000", "tile/0/x001", "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/000.p/", "tile/0/000.p/1/",
		"tile/0/000.p", "tile/0/000/", "tile/entry/000", "tile/data/000", "/tile/0/000", "tile/0/+00", "tile/0/0x1", "tile/0/x1/000", "tile/0/000.p/1.p/1", "tile/entries/0/000",
		"tile/0/x099/x999/x999/x999/x999/x999/999", "tile/0/" + strings.Repeat("x999/", 30) + "999", "tile/0/0０0"} {
		if got, err := ParsePath(path); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	for _, c := range []struct {
		t    Tile
		size uint64
		in   bool
	}{
		{Tile{Width: 1}, 0, false}, {Tile{Width: 1}, 1, true}, {Tile{Width: 2}, 1, false}, {Tile{Width: 256}, 255, false}, {Tile{Width: 256}, 256, true},
		{Tile{Level: 1, Width: 1}, 255, false}, {Tile{Level: 1, Width: 1}, 256, true}, {Tile{Index: 1, Width: 1}, 256, false}, {Tile{Index: 1, Width: 1}, 257, true},
		{Tile{Index: math.MaxUint64, Width: 1}, math.MaxInt64, false}, {Tile{Level: 8, Width: 1}, math.MaxInt64, false},
	} {
		if c.t.within(c.size) != c.in {
			t.Errorf("%+v in %d: %v", c.t, c.size, !c.in)
		}
	}
}

func TestGoldenProof(t *testing.T) {
	list := entries(5)
	root, read := theirs(t, list)
	hashes := must[tlog.RecordProof](t)(tlog.ProveRecord(5, 3, read))
	p := Proof{Index: 3, Checkpoint: must[[]byte](t)(Checkpoint{testName, 5, root}.Sign(key("log")))}
	for _, h := range hashes {
		p.Hashes = append(p.Hashes, h[:])
	}
	text := golden(t, "entry.tlog-proof", p.Text())
	got := must[Proof](t)(ParseProof(text))
	if c := must[Checkpoint](t)(got.Verify(list[3], public("log"))); c.Size != 5 || c.Origin != testName {
		t.Errorf("%+v", c)
	}
	if got = must[Proof](t)(ParseProof([]byte(replace(text, "\nindex", "\nextra AAEC\nindex")))); got.Index != 3 || len(got.Hashes) != len(hashes) {
		t.Errorf("with an extra line: %+v", got)
	}
	first := base64.StdEncoding.EncodeToString(hashes[0][:])
	for name, bad := range map[string]string{
		"another version": replace(text, "@v1", "@v2"), "no index": replace(text, "index 3\n", ""), "a zero before the index": replace(text, "index 3", "index 03"),
		"an index below zero": replace(text, "index 3", "index -1"), "two indexes": replace(text, "index 3", "index 3\nindex 3"), "extra that is no base64": replace(text, "\nindex", "\nextra !\nindex"),
		"extra behind the index": replace(text, "index 3", "index 3\nextra AAEC"), "a short hash": replace(text, first, first[4:]), "loose base64": replace(text, first, first[:42]+"/"+first[43:]),
		"no blank line": replace(text, "\n\n", "\n"), "no checkpoint": strings.SplitAfter(string(text), "\n\n")[0], "64 hashes": replace(text, first, strings.TrimSuffix(strings.Repeat(first+"\n", 64), "\n")),
		"nothing": "", "the header alone": proofHeader + "\n\n", "carriage returns": strings.ReplaceAll(string(text), "\n", "\r\n"), "too long": string(text) + strings.Repeat("x", 1<<20),
	} {
		if got, err := ParseProof([]byte(bad)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, bad := range map[string]string{
		"another index": replace(text, "index 3", "index 2"), "a hash less": replace(text, first+"\n", ""), "a hash twice": replace(text, first, first+"\n"+first),
		"an index behind the end": replace(text, "index 3", "index 5"), "another size": replace(text, "\n5\n", "\n6\n"),
	} {
		got, err := ParseProof([]byte(bad))
		if err == nil {
			_, err = got.Verify(list[3], public("log"))
		}
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%s verifies: %v", name, err)
		}
	}
	for name, verify := range map[string]func() (Checkpoint, error){
		"another entry": func() (Checkpoint, error) { return p.Verify(list[2], public("log")) },
		"another key":   func() (Checkpoint, error) { return p.Verify(list[3], public("else")) },
		"no key":        func() (Checkpoint, error) { return p.Verify(list[3]) },
	} {
		if _, err := verify(); !errors.Is(err, ErrFormat) {
			t.Errorf("%s verifies", name)
		}
	}
}

func FuzzCheckpoint(f *testing.F) {
	signed, err := Checkpoint{Origin: testName, Size: 5}.Sign(key("log"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add([]byte("a\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— a AAAA\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := PeekCheckpoint(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Error(err)
			}
			return
		}
		if !bytes.HasPrefix(b, []byte(c.Text()+"\n")) {
			t.Errorf("%q is read as %q", b, c.Text())
		}
		if again, err := ParseCheckpoint(c.Text()); err != nil || again != c {
			t.Errorf("%+v, %v", again, err)
		}
		if _, err := OpenCheckpoint(b, public("log")); err == nil && c != (Checkpoint{Origin: testName, Size: 5}) {
			t.Errorf("a forged checkpoint: %q", b)
		}
	})
}

func FuzzPath(f *testing.F) {
	f.Add("tile/0/x001/x234/067.p/42")
	f.Add("tile/entries/000")
	f.Add("tile/7/999.p/255")
	f.Fuzz(func(t *testing.T, path string) {
		if tile, err := ParsePath(path); err == nil && tile.Path() != path || err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %+v, %v", path, tile, err)
		}
	})
}

func FuzzBundle(f *testing.F) {
	f.Add([]byte{0, 1, 'x', 0, 0}, 2)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, width int) {
		list, err := ParseBundle(b, width)
		if err != nil {
			return
		}
		var again []byte
		for _, e := range list {
			if again, err = AppendEntry(again, e); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(again, b) || len(list) != width {
			t.Errorf("%q is read as %q", b, list)
		}
	})
}

func FuzzProof(f *testing.F) {
	signed, err := Checkpoint{Origin: testName, Size: 5}.Sign(key("log"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(Proof{Index: 3, Hashes: [][]byte{make([]byte, 32)}, Checkpoint: signed}.Text())
	f.Add([]byte(proofHeader + "\nextra AA==\nindex 0\n\n" + string(signed)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProof(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Error(err)
			}
			return
		}
		if again, err := ParseProof(p.Text()); err != nil || !bytes.Equal(again.Text(), p.Text()) {
			t.Errorf("%q, %v", p.Text(), err)
		}
		if _, err := p.Verify([]byte("x"), public("log")); err == nil {
			t.Errorf("verified: %q", b)
		}
	})
}

func FuzzCustody(f *testing.F) {
	f.Add(Custody{"AAAAAAAAAAAAAAAAAAAAAA", 1}.Text())
	f.Add([]byte("witan-store-v1 AAAAAAAAAAAAAAAAAAAAAA 02\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseCustody(b); err == nil && !bytes.Equal(c.Text(), b) || err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %+v, %v", b, c, err)
		}
	})
}
