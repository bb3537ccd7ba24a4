package cli

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/witness"
)

// evidenceFiles are one proof by envelopes and one by checkpoints.
func evidenceFiles(t *testing.T) (heads, checkpoints []byte) {
	t.Helper()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", 32)))
	hash := func(b byte) string { return adp.Encode(bytes.Repeat([]byte{b}, 32)) }
	var sides []json.RawMessage
	var order []string
	for n := range byte(2) {
		e, err := adp.Sign(key, adp.Draft{Protocol: adp.WitnessProtocol, Type: witness.TypeHead, CreatedAt: 5, Nonce: int64(n) + 1,
			Payload: map[string]any{"origin": "https://a.example", "room_id": "r", "genesis": hash(1), "seq": 7, "hash": hash(2 + n), "root": hash(4), "at": 5}})
		if err != nil {
			t.Fatal(err)
		}
		sides, order = append(sides, e.JSON()), append(order, e.Hash)
	}
	if order[1] < order[0] {
		sides[0], sides[1] = sides[1], sides[0]
	}
	v, err := adp.EncodeValue(map[string]any{"class": "proof", "kind": witness.KindHeads, "origin": "https://a.example", "room_id": "r", "genesis": hash(1),
		"agent": adp.NewAgentID(key.Public().(ed25519.PublicKey)), "sides": sides})
	if err != nil {
		t.Fatal(err)
	}
	var notes [2][]byte
	for n := range notes {
		if notes[n], err = (tilelog.Checkpoint{Origin: "a.example/witan", Size: 9, Root: [32]byte{byte(n)}}).Sign(key); err != nil {
			t.Fatal(err)
		}
	}
	p, err := witness.ProveCheckpoints(witness.Subject{Origin: "https://a.example"}, key.Public().(ed25519.PublicKey), notes[0], notes[1])
	if err != nil {
		t.Fatal(err)
	}
	if checkpoints, err = p.JSON(); err != nil {
		t.Fatal(err)
	}
	return v.Raw(), checkpoints
}

// witnessRun calls the command by itself and returns its exit status.
func witnessRun(t *testing.T, args []string, in io.Reader, out, errw io.Writer) int {
	t.Helper()
	c := group(witnessCommand())
	started := false
	c.SilenceUsage, c.SilenceErrors = true, true
	c.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	c.SetArgs(args)
	c.SetIn(in)
	c.SetOut(out)
	c.SetErr(errw)
	err := c.ExecuteContext(t.Context())
	switch {
	case err == nil:
		return exitOK
	case !started:
		return exitUsage
	case !errors.Is(err, errReported):
		complain(errw, err)
	}
	return exitFailed
}

func TestVerifyEvidence(t *testing.T) {
	heads, checkpoints := evidenceFiles(t)
	shown := append([]byte(`{ "seen_at": 7, "observer": "x",`), heads[1:]...) // as the daemon shows it, and not in canonical form
	list := func(items ...[]byte) []byte {
		return append(append([]byte{'['}, bytes.Join(items, []byte{','})...), ']')
	}
	observation := []byte(`{"class":"observation","kind":"fork\u001b[2J","origin":"https://a.example","room_id":"r","genesis":"x"}`)
	for name, c := range map[string]struct {
		text   []byte
		status int
		out    []string
	}{
		"heads":          {heads, exitOK, []string{"proven: the host", "kind     head-contradiction", "room     r\n", "last seq 7"}},
		"checkpoints":    {checkpoints, exitOK, []string{"proven: the host", "kind    checkpoint-contradiction", "size 9"}},
		"shown":          {shown, exitOK, []string{"head-contradiction"}},
		"list":           {list(shown, checkpoints), exitOK, []string{"head-contradiction", "checkpoint-contradiction"}},
		"observation":    {observation, exitFailed, []string{"not proven: an observation", `fork\u001b[2J`}},
		"one does not":   {list(heads, observation), exitFailed, []string{"proven: the host", "not proven: an observation"}},
		"forged":         {bytes.Replace(heads, []byte(`"seq":7`), []byte(`"seq":8`), 1), exitFailed, []string{"not proven: side 0"}},
		"one side twice": {bytes.Replace(checkpoints, []byte(`9\nAAAA`), []byte(`8\nAAAA`), 1), exitFailed, []string{"not proven: side"}},
		"a number":       {[]byte("1"), exitFailed, []string{"not proven: a piece of evidence is a JSON object"}},
		"no JSON":        {[]byte("x"), exitFailed, nil},
		"nothing":        {[]byte("[]"), exitFailed, nil},
	} {
		file := filepath.Join(t.TempDir(), "evidence.json")
		if err := os.WriteFile(file, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{file, "-"} {
			var out, errw bytes.Buffer
			if status := witnessRun(t, []string{"verify-evidence", from}, bytes.NewReader(c.text), &out, &errw); status != c.status {
				t.Errorf("%s: status %d, %s%s", name, status, out.String(), errw.String())
			}
			for _, want := range c.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: %q is not in\n%s", name, want, out.String())
				}
			}
			if c.out == nil && errw.Len() == 0 {
				t.Errorf("%s: nothing is said", name)
			}
		}
	}
	var out, errw bytes.Buffer
	status := witnessRun(t, []string{"verify-evidence", "--json", "-"}, bytes.NewReader(list(checkpoints, observation)), &out, &errw)
	var got []evidenceReport
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || status != exitFailed || len(got) != 2 || !got[0].Proven || got[0].Against != "host" || got[1].Proven || len(got[0].Sides) != 2 {
		t.Errorf("%d, %v: %s", status, err, out.String())
	}
	if status := witnessRun(t, []string{"verify-evidence"}, nil, &out, &errw); status != exitUsage {
		t.Error(status)
	}
	if status := witnessRun(t, []string{"verify-evidence", "--json", filepath.Join(t.TempDir(), "none")}, nil, &out, &errw); status != exitFailed {
		t.Error(status)
	}
}
