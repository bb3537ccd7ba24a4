package cosign

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
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// foreign is a witness that is not ours, as a process.
type foreign struct {
	name    string
	url     string
	command func() *exec.Cmd
	process *exec.Cmd
	output  bytes.Buffer
}

func freePort(t *testing.T) string {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

func (f *foreign) start(t *testing.T) {
	t.Helper()
	f.process = f.command()
	f.process.Stdout, f.process.Stderr = &f.output, &f.output
	f.process.WaitDelay = time.Second
	if err := f.process.Start(); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(f.url, "http://")
	for end := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen: %v\n%s", f.name, err, &f.output)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (f *foreign) stop(t *testing.T) {
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

// litewitness is filippo.io/torchwood/cmd/litewitness. Its key is with an ssh-agent, which this is.
func litewitness(t *testing.T, bin string, log *cosignature.Verifier) *foreign {
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
	hash := sha256.Sum256(public("litewitness"))
	return &foreign{name: "litewitness", url: "http://" + address, command: func() *exec.Cmd {
		return exec.Command(filepath.Join(bin, "litewitness"), "-name", "lite.example/w", "-db", db, "-ssh-agent", socket, "-listen", address,
			"-key", hex.EncodeToString(hash[:]))
	}}
}

// omniwitness is github.com/transparency-dev/witness/cmd/omniwitness.
func omniwitness(t *testing.T, bin string, log *cosignature.Verifier) *foreign {
	dir := t.TempDir()
	db, logs, keyFile, address := filepath.Join(dir, "omni.db"), filepath.Join(dir, "logs.yaml"), filepath.Join(dir, "key"), freePort(t)
	v := verifier(t, "omni.example/w", cosignature.Log, "omniwitness") // its key is written as that of a log, and signs as a witness
	secret := fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", v.Name(), v.KeyHash(), base64.StdEncoding.EncodeToString(append([]byte{1}, key("omniwitness").Seed()...)))
	config := fmt.Sprintf("Logs:\n  - Origin: %s\n    PublicKey: %s\n    URL: http://127.0.0.1:1/\n", log.Name(), log)
	if err := errors.Join(os.WriteFile(keyFile, []byte(secret), 0o600), os.WriteFile(logs, []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	return &foreign{name: "omniwitness", url: "http://" + address, command: func() *exec.Cmd {
		return exec.Command(filepath.Join(bin, "omniwitness"), "--listen", address, "--metrics_listen", "", "--db_file", db, "--additional_logs", logs, "--private_key_path", keyFile, "--logtostderr")
	}}
}

// ours is a log of ours on a disk, with its Collector.
type ours struct {
	*asker
	dir  string
	log  *tilelog.Log
	http *fetch.Client
	end  func()
}

// open opens the log, makes it grow, and lets the Collector work.
func (o *ours) open(t *testing.T, story string, n int) {
	t.Helper()
	o.st = must[*store.Store](t)(store.Open(store.Options{Dir: o.dir}))
	o.log = must[*tilelog.Log](t)(tilelog.Open(o.st, func(int) string { return logOrigin }, func(int) ed25519.PrivateKey { return key("log") }))
	c := must[*Collector](t)(NewCollector(CollectorOptions{Witnesses: o.keys, Store: o.st, Do: o.http.Do, Checkpoint: o.log.Checkpoint, Prove: o.log.ProveGrowth,
		Every: time.Millisecond, RetryMin: 100 * time.Millisecond, RetryMax: time.Second}))
	o.c = c
	o.append(t, story, n)
	stop := o.run()
	o.end = func() {
		stop()
		if err := o.st.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (o *ours) append(t *testing.T, story string, n int) {
	t.Helper()
	for range n {
		_, head := o.log.Head()
		var b store.Batch
		entry := fmt.Appendf(nil, `{"story":%q,"entry":%d}`, story, head.Size)
		p := must[*tilelog.Pending](t)(o.log.Append(&b, tilelog.Entry{Name: string(entry), Data: entry}))
		if err := o.st.Commit(&b); err != nil {
			t.Fatal(err)
		}
		o.log.Publish(p)
	}
	o.c.Grown()
}

// cosigned waits until both have cosigned the newest checkpoint.
func (o *ours) cosigned(t *testing.T, when string) {
	t.Helper()
	o.until("both witnesses "+when, func() bool { return len(o.cosigners(o.c.Cosigned(o.log.Checkpoint()))) == len(o.keys) })
	t.Logf("%s:\n%s", when, o.c.Cosigned(o.log.Checkpoint()))
}

// Two witnesses that others wrote cosign a log of ours while it grows, after either
// side was started again, and refuse a fork. `make interop` installs them.
func TestInterop(t *testing.T) {
	bin := os.Getenv("WITAN_INTEROP")
	if bin == "" {
		t.Skip("make interop installs the witnesses of others and runs this")
	}
	logKey := verifier(t, logOrigin, cosignature.Log, "log")
	witnesses := []*foreign{litewitness(t, bin, logKey), omniwitness(t, bin, logKey)}
	for _, f := range witnesses {
		f.start(t)
		t.Cleanup(func() { f.stop(t) })
	}
	client := fetch.New(fetch.Options{AllowPrivate: true})
	t.Cleanup(client.CloseIdle)
	keys := []Asked{{witnesses[0].url, verifier(t, "lite.example/w", cosignature.Witness, "litewitness")}, {witnesses[1].url, verifier(t, "omni.example/w", cosignature.Witness, "omniwitness")}}
	newOurs := func(dir string) *ours {
		return &ours{asker: &asker{t: t, keys: keys, asked: map[string]int{}}, dir: dir, http: client}
	}
	o := newOurs(t.TempDir())
	o.open(t, "a", 1)
	o.cosigned(t, "the first entry")
	for _, n := range []int{1, 5, 250, 300} {
		o.append(t, "a", n)
		o.cosigned(t, fmt.Sprintf("%d more entries", n))
	}
	o.end()
	o.open(t, "a", 0)
	if names := o.cosigners(o.c.Cosigned(o.log.Checkpoint())); len(names) != 2 {
		t.Errorf("after a restart the cosignatures are those of %v", names)
	}
	o.append(t, "a", 3)
	o.cosigned(t, "after a restart of ours")
	for _, f := range witnesses {
		f.stop(t)
		f.start(t)
	}
	o.append(t, "a", 4)
	o.cosigned(t, "after a restart of theirs")
	_, head := o.log.Head()
	o.end()

	// the same key signs another story: longer, as long, and shorter
	for what, n := range map[string]int{"a longer fork": 5, "a fork of the same size": 0, "a shorter fork": -5} {
		fork := newOurs(t.TempDir())
		fork.open(t, "b", int(head.Size)+n)
		fork.until("both witnesses to refuse "+what, func() bool {
			all := fork.c.Status()
			return all[0].Error != "" && all[1].Error != ""
		})
		if names := fork.cosigners(fork.c.Cosigned(fork.log.Checkpoint())); len(names) != 0 {
			t.Errorf("%s is cosigned by %v", what, names)
		}
		for _, s := range fork.c.Status() {
			t.Logf("%s is refused by %s: %s", what, s.Witness, s.Error)
		}
		fork.end()
	}

	// and what they cosigned goes on
	o.open(t, "a", 2)
	o.cosigned(t, "after the forks")
	o.end()
}
