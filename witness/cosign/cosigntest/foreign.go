// Package cosigntest runs witnesses that others wrote, for tests that a log of ours
// is cosigned by more than our own code.
//
// It is for tests only, and needs the programs installed: scripts/interop.sh does that.
package cosigntest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh/agent"

	"github.com/witan-adp/witan/internal/cosignature"
)

// Programs is the folder where the programs are; the test is skipped when there is none.
func Programs(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("WITAN_INTEROP")
	if bin == "" {
		t.Skip("make interop installs the witnesses of others and runs this")
	}
	return bin
}

// Witness is a witness that is not ours, as a process.
type Witness struct {
	URL string
	Key *cosignature.Verifier

	command func() *exec.Cmd
	process *exec.Cmd
	output  bytes.Buffer
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func key(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%-32.32s", name))
}

func verifier(t *testing.T, name string, kind cosignature.Kind, seed string) *cosignature.Verifier {
	t.Helper()
	return must[*cosignature.Verifier](t)(cosignature.NewVerifier(name, kind, key(seed).Public().(ed25519.PublicKey)))
}

func freePort(t *testing.T) string {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// patience is how long it may take to listen: longer than the most overloaded machine takes.
const patience = 3 * time.Minute

// Start runs it until Stop, or the end of the test.
func (f *Witness) Start(t *testing.T) {
	t.Helper()
	f.process = f.command()
	f.process.Stdout, f.process.Stderr = &f.output, &f.output
	f.process.WaitDelay = time.Second
	if err := f.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Stop(t) })
	address := strings.TrimPrefix(f.URL, "http://")
	for end := time.Now().Add(patience); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen: %v\n%s", f.Key.Name(), err, &f.output)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Stop kills it. What it has stored stays.
func (f *Witness) Stop(t *testing.T) {
	t.Helper()
	if f.process == nil {
		return
	}
	if err := f.process.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = f.process.Wait() // it was killed
	f.process = nil
}

// Litewitness is filippo.io/torchwood/cmd/litewitness. Its key is with an ssh-agent, which this is.
func Litewitness(t *testing.T, bin string, log *cosignature.Verifier) *Witness {
	t.Helper()
	dir := t.TempDir()
	db, socket, address := filepath.Join(dir, "lite.db"), filepath.Join(dir, "agent"), freePort(t)
	ring := agent.NewKeyring()
	k := key("litewitness")
	if err := ring.Add(agent.AddedKey{PrivateKey: &k}); err != nil {
		t.Fatal(err)
	}
	l := must[net.Listener](t)(net.Listen("unix", socket))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, c) }()
		}
	}()
	for _, args := range [][]string{{"add-log", "-db", db, "-origin", log.Name()}, {"add-key", "-db", db, "-origin", log.Name(), "-key", log.String()}} {
		if out, err := exec.Command(filepath.Join(bin, "witnessctl"), args...).CombinedOutput(); err != nil {
			t.Fatalf("witnessctl %v: %v\n%s", args, err, out)
		}
	}
	hash := sha256.Sum256(k.Public().(ed25519.PublicKey))
	return &Witness{URL: "http://" + address, Key: verifier(t, "lite.example/w", cosignature.Witness, "litewitness"), command: func() *exec.Cmd {
		return exec.Command(filepath.Join(bin, "litewitness"), "-name", "lite.example/w", "-db", db, "-ssh-agent", socket, "-listen", address,
			"-key", hex.EncodeToString(hash[:]))
	}}
}

// Omniwitness is github.com/transparency-dev/witness/cmd/omniwitness.
func Omniwitness(t *testing.T, bin string, log *cosignature.Verifier) *Witness {
	t.Helper()
	dir := t.TempDir()
	db, logs, keyFile, address := filepath.Join(dir, "omni.db"), filepath.Join(dir, "logs.yaml"), filepath.Join(dir, "key"), freePort(t)
	v := verifier(t, "omni.example/w", cosignature.Log, "omniwitness") // its key is written as that of a log, and signs as a witness
	secret := fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", v.Name(), v.KeyHash(), base64.StdEncoding.EncodeToString(append([]byte{1}, key("omniwitness").Seed()...)))
	config := fmt.Sprintf("Logs:\n  - Origin: %s\n    PublicKey: %s\n    URL: http://127.0.0.1:1/\n", log.Name(), log)
	if err := errors.Join(os.WriteFile(keyFile, []byte(secret), 0o600), os.WriteFile(logs, []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	return &Witness{URL: "http://" + address, Key: verifier(t, "omni.example/w", cosignature.Witness, "omniwitness"), command: func() *exec.Cmd {
		return exec.Command(filepath.Join(bin, "omniwitness"), "--listen", address, "--metrics_listen", "", "--db_file", db, "--additional_logs", logs, "--private_key_path", keyFile, "--logtostderr")
	}}
}
