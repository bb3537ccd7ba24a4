package proofbundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/witan-adp/witan/adp"
)

var update = flag.Bool("update", false, "write the golden file anew")

func sample() (Manifest, map[string]string) {
	parts := map[string]string{Document: "{}", Statement: strings.Repeat("s", 511), Attestations: "", AttestationProofs: "p\n", Evidence: strings.Repeat("e", 512), Archive: "a\nb\n"}
	m := Manifest{Origin: "https://host.example", RoomID: "room", Genesis: adp.Encode(make([]byte, 32)), Source: "https://host.example/v1/rooms/room", ExportedAt: 5,
		LeftOut: []Omission{{LogProof, "it \"was\" away"}}}
	for _, name := range Names() {
		if text, ok := parts[name]; ok {
			m.Parts = append(m.Parts, Part{name, int64(len(text)), sha256.Sum256([]byte(text))})
		}
	}
	return m, parts
}

func write(m Manifest, parts map[string]string) ([]byte, error) {
	var b bytes.Buffer
	err := Write(&b, m, func(name string) (io.Reader, error) { return strings.NewReader(parts[name]), nil })
	return b.Bytes(), err
}

// readAll reads a file as a verifier would.
func readAll(r io.Reader) (m Manifest, parts map[string]string, damaged []string, err error) {
	rd, err := NewReader(r)
	if err != nil {
		return m, nil, nil, err
	}
	parts = map[string]string{}
	for {
		p, body, err := rd.Next()
		if err == io.EOF {
			return rd.Manifest, parts, rd.Damaged(), nil
		}
		if err != nil {
			return rd.Manifest, parts, rd.Damaged(), err
		}
		text, err := io.ReadAll(body)
		if err != nil {
			return rd.Manifest, parts, nil, err
		}
		parts[p.Name] = string(text)
	}
}

func TestWriteAndRead(t *testing.T) {
	m, parts := sample()
	file, err := write(m, parts)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "sample.witan")
	if *update {
		if err := os.WriteFile(golden, file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(file, want) {
		t.Fatalf("the bytes of the file have changed (%v)", err)
	}
	if !Is(file) || Is(file[:511]) || Is(bytes.Replace(file, []byte("manifest"), []byte("manifesT"), 1)) {
		t.Error("Is")
	}
	for _, r := range []io.Reader{bytes.NewReader(file), iotest.OneByteReader(bytes.NewReader(file))} {
		got, back, damaged, err := readAll(r)
		if err != nil || damaged != nil || len(back) != len(parts) || got.Source != m.Source || got.LeftOut[0] != m.LeftOut[0] {
			t.Fatal(got, damaged, err)
		}
		for name, text := range parts {
			if back[name] != text {
				t.Errorf("%s: %q", name, back[name])
			}
		}
	}
	// nothing has to be read of a part to come to the next
	rd, err := NewReader(bytes.NewReader(file))
	for n := 0; err == nil; n++ {
		if _, _, err = rd.Next(); err == io.EOF && n != 6 {
			t.Error(n)
		}
	}
	if err != io.EOF || rd.Damaged() != nil {
		t.Error(err)
	}
	// any tar opens it
	tr := tar.NewReader(bytes.NewReader(file))
	var names []string
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil || h.Name != manifestName && string(text) != parts[h.Name] || h.Format&tar.FormatUSTAR == 0 {
			t.Errorf("%+v %v", h, err)
		}
		names = append(names, h.Name)
	}
	if strings.Join(names, " ") != "manifest.json did.json statement.json attestations.jsonl attestation-proofs.jsonl evidence.jsonl archive.jsonl" {
		t.Error(names)
	}
}

// Every byte counts: each single one that is changed is seen, as is each cut.
func TestDamage(t *testing.T) {
	file, err := write(sample())
	if err != nil {
		t.Fatal(err)
	}
	m, _ := sample()
	text, err := m.json()
	if err != nil {
		t.Fatal(err)
	}
	for i := range file {
		bad := bytes.Clone(file)
		bad[i] ^= 1
		if _, _, damaged, err := readAll(bytes.NewReader(bad)); err == nil && damaged == nil {
			// what the manifest tells of the file is under no digest
			if i < block || i >= block+len(text) {
				t.Fatalf("byte %d: %q for %q", i, bad[i], file[i])
			}
		}
		if _, _, _, err := readAll(bytes.NewReader(file[:i])); !errors.Is(err, ErrFormat) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, _, _, err := readAll(bytes.NewReader(append(file, 0))); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if _, _, _, err := readAll(iotest.TimeoutReader(bytes.NewReader(file))); !errors.Is(err, iotest.ErrTimeout) {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	for name, edit := range map[string]func(m *Manifest, parts map[string]string){
		"a part that is not what it says": func(_ *Manifest, p map[string]string) { p[Archive] = "a\nc\n" },
		"a longer part":                   func(_ *Manifest, p map[string]string) { p[Archive] += "c" },
		"a shorter part":                  func(_ *Manifest, p map[string]string) { p[Archive] = "a\n" },
		"no archive":                      func(m *Manifest, _ map[string]string) { m.Parts = m.Parts[:4] },
		"an archive that is left out": func(m *Manifest, _ map[string]string) {
			m.Parts, m.LeftOut = m.Parts[:4], append(m.LeftOut, Omission{Archive, "x"})
		},
		"a part of which nothing is said":   func(m *Manifest, _ map[string]string) { m.LeftOut = nil },
		"another order":                     func(m *Manifest, _ map[string]string) { m.Parts[0], m.Parts[1] = m.Parts[1], m.Parts[0] },
		"an unknown part":                   func(m *Manifest, _ map[string]string) { m.Parts[0].Name = "../../etc/passwd" },
		"a part twice":                      func(m *Manifest, _ map[string]string) { m.Parts = append(m.Parts, m.Parts[4]) },
		"a part that is there and left out": func(m *Manifest, _ map[string]string) { m.LeftOut = append(m.LeftOut, Omission{Archive, "x"}) },
		"too long":                          func(m *Manifest, _ map[string]string) { m.Parts[0].Size = 1 << 20 },
		"no room":                           func(m *Manifest, _ map[string]string) { m.RoomID = "" },
		"no genesis":                        func(m *Manifest, _ map[string]string) { m.Genesis = "" },
		"a long reason":                     func(m *Manifest, _ map[string]string) { m.LeftOut[0].Reason = strings.Repeat("x", maxManifest) },
	} {
		m, parts := sample()
		edit(&m, parts)
		if _, err := write(m, parts); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	failed := errors.New("failed")
	m, _ := sample()
	if err := Write(io.Discard, m, func(string) (io.Reader, error) { return nil, failed }); err != failed {
		t.Error(err)
	}
}

func FuzzReader(f *testing.F) {
	file, err := write(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[:block*3])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, parts, damaged, err := readAll(bytes.NewReader(b))
		if err != nil || damaged != nil {
			return
		}
		again, err := write(m, parts)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("two spellings of one file (%v)", err)
		}
	})
}
