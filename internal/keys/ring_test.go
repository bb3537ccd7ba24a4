package keys

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf" // the other implementation, on purpose
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func testSeed() (seed [32]byte) {
	for i := range seed {
		seed[i] = byte(i)
	}
	return seed
}

func TestDerivation(t *testing.T) {
	seed := testSeed()
	for gen := 1; gen <= 2; gen++ {
		r := FromSeed(seed, gen)
		for _, p := range []Purpose{Agent, Log, Cosigner, P2P} {
			want, err := hkdf.Key(sha256.New, seed[:], nil, fmt.Sprintf("witan/1/%s/%d", p, gen), 32)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Key(p); !bytes.Equal(got.Seed(), want) {
				t.Errorf("%s of generation %d: seed %x, want %x", p, gen, got.Seed(), want)
			}
		}
	}
	// A known answer: the derivation never changes, or every daemon loses its identity.
	r := FromSeed(seed, 1)
	if got, want := hex.EncodeToString(r.Public(Agent)), knownAgent; got != want {
		t.Errorf("agent key %s, want %s", got, want)
	}
	if got, want := r.AgentID(), "did:agent:"+adp.Encode(r.Public(Agent)); got != want || !adp.IsAgentID(got) {
		t.Errorf("AgentID %q, want %q", got, want)
	}
}

func TestKeysAreDistinct(t *testing.T) {
	r := FromSeed(testSeed(), 1)
	seen := map[string]string{string(r.seed[:]): "seed"}
	add := func(name string, secret []byte) {
		if other, ok := seen[string(secret)]; ok {
			t.Errorf("%s equals %s", name, other)
		}
		seen[string(secret)] = name
	}
	for _, ring := range []*Ring{r, r.At(2), FromSeed([32]byte{1}, 1)} {
		for _, p := range []Purpose{Agent, Log, Cosigner, P2P} {
			add(fmt.Sprint(ring, ring.Generation(), p), ring.Key(p).Seed())
		}
		add("cursor", ring.Derive("cursor", 32))
		add("agent label", ring.Derive("agent", 32))
	}
	if got := r.Derive("cursor", 7); len(got) != 7 {
		t.Errorf("%d bytes", len(got))
	}
	if !bytes.Equal(r.At(2).At(1).Derive("cursor", 32), r.Derive("cursor", 32)) {
		t.Error("equal labels give different bytes")
	}
}

func TestUnknownPurposePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	FromSeed(testSeed(), 1).Key("secret/cursor")
}

func TestNothingPrintsTheSeed(t *testing.T) {
	var seed [32]byte
	copy(seed[:], bytes.Repeat([]byte{0xab}, 32))
	r := FromSeed(seed, 1)
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%t", "%T"} {
		fmt.Fprintf(&out, verb+"\n", r)
		fmt.Fprintf(&out, verb+"\n", *r)
		fmt.Fprintf(&out, verb+"\n", struct{ R *Ring }{r})
		fmt.Fprintf(&out, verb+"\n", []Ring{*r})
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "ring", r, "copy", *r)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "ring", r, "copy", *r)
	j, err := json.Marshal(map[string]any{"ring": r, "copy": *r})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(j)
	for _, secret := range []string{"abab", "ABAB", "171 171", "0xab", adp.Encode(seed[:])[:10], "q6urq6"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("printed %q:\n%s", secret, out.String())
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "seed")
	r, created, err := Load(path)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if info, err = os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("folder mode %v, %v", info.Mode(), err)
	}
	again, created, err := Load(path)
	if err != nil || created || again.AgentID() != r.AgentID() || again.Generation() != FirstGeneration {
		t.Fatal(again, created, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "witan-seed-v1 "+adp.Encode(r.seed[:])+"\n" {
		t.Fatalf("text %q, %v", text, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".seed-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	other, _, err := Load(filepath.Join(t.TempDir(), "seed"))
	if err != nil || other.AgentID() == r.AgentID() {
		t.Fatal("two seeds are equal", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	good := seedPrefix + strings.Repeat("A", 43) + "\n"
	for name, tt := range map[string]struct {
		text string
		mode fs.FileMode
		want string
	}{
		"group":         {good, 0o640, "chmod 600"},
		"others":        {good, 0o604, "chmod 600"},
		"writable":      {good, 0o622, "chmod 600"},
		"empty":         {"", 0o600, "not one line"},
		"cut":           {good[:20], 0o600, "not one line"},
		"no line feed":  {good[:len(good)-1], 0o600, "not one line"},
		"long":          {good + "x", 0o600, "not one line"},
		"huge":          {strings.Repeat(good, 10000), 0o600, "not one line"},
		"other version": {strings.Replace(good, "v1", "v2", 1), 0o600, "not one line"},
		"crlf":          {good[:len(good)-2] + "\r\n", 0o600, "canonical"},
		"bits":          {seedPrefix + strings.Repeat("A", 42) + "B\n", 0o600, "canonical"},
		"alphabet":      {seedPrefix + strings.Repeat("A", 42) + "+\n", 0o600, "canonical"},
		"newline":       {seedPrefix + strings.Repeat("A", 20) + "\n" + strings.Repeat("A", 22) + "\n", 0o600, "canonical"},
	} {
		path := filepath.Join(t.TempDir(), "seed")
		if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		_, created, err := Load(path)
		if err == nil || created || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want a text with %q", name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%s: the error shows the seed: %v", name, err)
		}
		if text, _ := os.ReadFile(path); string(text) != tt.text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	dir := t.TempDir()
	if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(pipe); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("pipe: %v", err)
	}
	if _, created, err := Load(filepath.Join(pipe, "seed")); err == nil || created || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path below a file: %v, %v", created, err)
	}
}

func TestLoadOwnReadOnlyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(path, []byte(seedPrefix+strings.Repeat("A", 43)+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	r, created, err := Load(path)
	if err != nil || created || r.AgentID() != FromSeed([32]byte{}, 1).AgentID() {
		t.Fatal(r, created, err)
	}
}

// Many creators of one file: exactly one made it, and all have its seed.
func TestLoadRace(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "d", "seed")
		const n = 16
		var wg sync.WaitGroup
		var ids [n]string
		var made [n]bool
		start := make(chan struct{})
		for i := range n {
			wg.Go(func() {
				<-start
				r, created, err := Load(path)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i], made[i] = r.AgentID(), created
			})
		}
		close(start)
		wg.Wait()
		count := 0
		for i := range n {
			if ids[i] != ids[0] {
				t.Fatalf("two identities: %s, %s", ids[0], ids[i])
			}
			if made[i] {
				count++
			}
		}
		if count != 1 {
			t.Fatalf("%d creators", count)
		}
	}
}

func TestLoadCleansUpWhenItCannotCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "seed")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), path); err != nil { // absent to read, present to link
		t.Fatal(err)
	}
	if _, created, err := Load(path); err == nil || created {
		t.Fatal(created, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".seed-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestPublicIsTheKeysOwn(t *testing.T) {
	r := FromSeed(testSeed(), 1)
	sig := ed25519.Sign(r.Key(Log), []byte("x"))
	if !ed25519.Verify(r.Public(Log), []byte("x"), sig) || ed25519.Verify(r.Public(Agent), []byte("x"), sig) {
		t.Error("Public is not the key's own")
	}
}

// knownAgent was computed apart from this package: HKDF by its RFC from the bytes 0 … 31, and the public key by another library.
const knownAgent = "2cb8785862cbccaed751fb6267951fabe65f60756e411828feeed83b97260257"
