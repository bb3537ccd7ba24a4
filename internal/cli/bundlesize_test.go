package cli

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
	"github.com/witan-adp/witan/internal/proofbundle"
)

// Bounds of the memory that verifying takes, in bytes: of the process, so that it stays under 256 MiB for a million records.
const (
	memoryFixed     = 64 << 20
	memoryPerRecord = 160
)

// A long archive streams by. WITAN_TEST_RECORDS=1000000 verifies one of full size.
func TestBundleStreams(t *testing.T) {
	n := 20_000
	if s := os.Getenv("WITAN_TEST_RECORDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		t.Skip("20,000 records are signed and verified")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "long.witan")
	writeLong(t, file, n)
	policy := filepath.Join(dir, "policy.toml")
	if err := os.WriteFile(policy, []byte(policyText("")), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// the command in a process of its own, see TestMain
	var out, errw bytes.Buffer
	cmd := exec.Cmd{Path: self, Args: []string{"witan", "verify", file, "--policy", policy}, Stdout: &out, Stderr: &errw, Env: []string{"HOME=" + dir, peakFile + "=" + filepath.Join(dir, "peak")}}
	began := time.Now()
	if err := cmd.Run(); err == nil {
		t.Error("nobody has attested the archive, and it holds")
	}
	took := time.Since(began)
	most, err := peak(filepath.Join(dir, "peak"))
	if err != nil {
		t.Skip("this system does not say how much memory a process took: ", err)
	}
	t.Logf("%d records in %v: at most %d MiB", n, took, most>>20)
	if !strings.Contains(out.String(), fmt.Sprintf("%d allowed, 0 violations", n)) {
		t.Fatalf("%s%s", out.String(), errw.String())
	}
	if limit := memoryFactor * (memoryFixed + n*memoryPerRecord); most > limit {
		t.Errorf("verifying %d records took %d bytes, %d is the limit", n, most, limit)
	}
}

// peakFile names the variable by which a command of a test is asked to leave what the system says of its process.
const peakFile = "TEST_PEAK_FILE"

func leavePeak() {
	if name := os.Getenv(peakFile); name != "" {
		if status, err := os.ReadFile("/proc/self/status"); err == nil {
			_ = os.WriteFile(name, status, 0o600) // who reads it sees that it is not there
		}
	}
}

// peak reads the most memory that such a process held, in bytes.
func peak(name string) (n int, err error) {
	status, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscanf(rest, "%d kB", &n)
	return n << 10, err
}

// writeLong writes a proof bundle with an archive of n records, without ever holding them.
func writeLong(t *testing.T, file string, n int) {
	t.Helper()
	spool, err := os.Create(file + ".archive")
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	records, err := os.Create(file + ".records")
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	w := bufio.NewWriterSize(records, 1<<20)
	v := room.NewVerifier(inspecttest.RoomID, nil)
	author := []ed25519.PrivateKey{inspecttest.Key(1), inspecttest.Key(2)}
	pre, head, seq := "", adp.Record{}, int64(0)
	body := strings.Repeat("many words of no great weight, ", 8)
	add := func(key ed25519.PrivateKey, typ string, payload any) {
		seq++
		d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: inspecttest.Start + seq, Nonce: seq, Payload: payload}
		if seq > 1 {
			d.RoomID, d.BaseSeq, d.BaseHash = inspecttest.RoomID, head.Seq, head.Hash
		}
		e, err := adp.Sign(key, d)
		if err != nil {
			t.Fatal(err)
		}
		r := adp.NewRecord(e, inspecttest.RoomID, seq, pre, inspecttest.Start+seq)
		if err := v.Add(r); err != nil {
			t.Fatal(err)
		}
		if pre = r.Hash; typ != room.Join {
			head = adp.Record{Seq: r.Seq, Hash: r.Hash}
		}
		if _, err := w.Write(append(r.JSON(), '\n')); err != nil {
			t.Fatal(err)
		}
	}
	add(author[0], room.Create, map[string]any{"topic": "Long", "visibility": "public", "start_time": inspecttest.Start, "end_time": inspecttest.End})
	add(author[1], room.Join, map[string]any{"role": "speaker"})
	for i := range n - 3 {
		add(author[i%2], room.Message, map[string]any{"content_type": "text/plain", "content": body + strconv.Itoa(i)})
	}
	add(author[0], room.Close, map[string]any{})
	m := adp.Manifest{Host: "host.example", URL: inspecttest.URL, GeneratedAt: inspecttest.End, Summary: v.Digest.Summary(), Room: v.State.Resource(inspecttest.URL, inspecttest.End)}
	line1, err := m.Line1()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	to := io.MultiWriter(spool, h)
	if _, err := to.Write(append(line1, '\n')); err != nil {
		t.Fatal(err)
	}
	if _, err := records.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	size, err := io.Copy(to, records)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	b := proofbundle.Manifest{Origin: bundleOrigin, RoomID: inspecttest.RoomID, Genesis: v.Digest.Genesis, Source: inspecttest.URL, ExportedAt: inspecttest.End,
		Parts: []proofbundle.Part{{Name: proofbundle.Archive, Size: size + int64(len(line1)) + 1, SHA256: [32]byte(h.Sum(nil))}}}
	for _, name := range proofbundle.Names() {
		if name != proofbundle.Archive {
			b.LeftOut = append(b.LeftOut, proofbundle.Omission{Name: name, Reason: "none was made"})
		}
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := proofbundle.Write(f, b, func(string) (io.Reader, error) { return spool, nil }); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
