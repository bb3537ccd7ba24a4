package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/witness/cosign/cosigntest"
)

// end makes a room and closes it: one more entry of the log.
func (d *running) end(t *testing.T) {
	t.Helper()
	a := newAgent(t)
	id := d.create(a, nil)
	d.act(a, id, "room.close", map[string]any{"reason": "done"})
}

func (d *running) keys(t *testing.T) Keys {
	t.Helper()
	var k Keys
	if status, _, raw := d.call("GET", "/federation/v1/self", nil, &k); status != 200 {
		t.Fatalf("%d %s", status, raw)
	}
	return k
}

// checkpoint waits until the log has a size and all of its witnesses have cosigned that.
func (d *running) checkpoint(t *testing.T, size uint64, witnesses ...*cosignature.Verifier) (signed []byte) {
	t.Helper()
	log := parseKey(t, d.keys(t).Log)
	until(t, "a cosigned checkpoint", func() bool {
		_, _, signed = d.call("GET", "/log/checkpoint", nil, nil)
		c, _, err := cosignature.Open(signed, log)
		if err != nil {
			t.Fatalf("%v: %s", err, signed)
		}
		return c.Size == size && !slices.ContainsFunc(witnesses, func(w *cosignature.Verifier) bool {
			_, _, err := cosignature.Open(signed, w)
			return err != nil
		})
	})
	return signed
}

func parseKey(t *testing.T, vkey string) *cosignature.Verifier {
	t.Helper()
	v, err := cosignature.ParseVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func alone(c *config.Config) { c.P2P.Enabled = false }

// One daemon witnesses the log of another, as the operator says, and of one that it
// follows.
func TestDaemonsCosign(t *testing.T) {
	w := start(t, setup{change: alone})
	host := start(t, setup{change: alone})
	log, cosigner := parseKey(t, host.keys(t).Log), parseKey(t, w.keys(t).Cosigner)
	if log.Kind() != cosignature.Log || cosigner.Kind() != cosignature.Witness || cosigner.Name() != authority(w.origin)+"/witness" {
		t.Error(log, cosigner)
	}
	ask := func(c *config.Config) {
		alone(c)
		c.Log.Witnesses = []config.LogWitness{{URL: w.origin + "/witness", VerifierKey: cosigner.String()}}
	}
	again := func(d *running, change func(*config.Config), mirrors ...string) *running {
		t.Helper()
		port := d.port()
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		return start(t, setup{data: d.data, port: port, change: change, mirrors: mirrors})
	}
	host = again(host, ask)
	w = again(w, func(c *config.Config) {
		alone(c)
		c.Witness.Logs = []config.WitnessLog{{Origin: log.Name(), VerifierKey: log.String()}}
	})
	host.end(t)
	host.checkpoint(t, 1, cosigner)
	// no longer by its settings, but because it follows the host
	w = again(w, alone, host.origin)
	host.end(t)
	signed := host.checkpoint(t, 2, cosigner)
	_, header, shown := w.call("GET", "/witness"+cosignature.MonitorPath(log.Name()), nil, nil)
	if string(shown) != string(signed) || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		t.Errorf("the witness shows %s, the log %s", shown, signed)
	}
	// the witness holds up nothing
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	host.end(t)
	host.checkpoint(t, 3)
}

// Witnesses that others wrote cosign the log of a daemon while rooms end and after a
// restart, and not when an older copy of its data goes another way.
func TestInteropDaemon(t *testing.T) {
	bin := cosigntest.Programs(t)
	d := start(t, setup{change: alone})
	log := parseKey(t, d.keys(t).Log)
	lite, omni := cosigntest.Litewitness(t, bin, log), cosigntest.Omniwitness(t, bin, log)
	both := []*cosignature.Verifier{lite.Key, omni.Key}
	ask := func(c *config.Config) {
		alone(c)
		for _, w := range []*cosigntest.Witness{lite, omni} {
			c.Log.Witnesses = append(c.Log.Witnesses, config.LogWitness{URL: w.URL, VerifierKey: w.Key.String()})
		}
	}
	lite.Start(t)
	omni.Start(t)
	port := d.port()
	data := d.data
	again := func(data string) *running {
		t.Helper()
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		return start(t, setup{data: data, port: port, change: ask})
	}
	d = again(data)
	for n := range 3 {
		d.end(t)
		d.checkpoint(t, uint64(n)+1, both...)
	}
	d = again(data)
	t.Logf("after a restart:\n%s", d.checkpoint(t, 3, both...))
	d.end(t)
	t.Logf("and one more room:\n%s", d.checkpoint(t, 4, both...))
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	backup := t.TempDir()
	copyFolder(t, data, backup)
	d = again(data)
	d.end(t)
	d.end(t)
	t.Logf("before the fork:\n%s", d.checkpoint(t, 6, both...))

	refusals := func() (all []string) {
		for _, s := range d.collector(t) {
			if s.Error == "" {
				return nil
			}
			all = append(all, s.Witness+": "+s.Error)
		}
		return all
	}
	d = again(backup) // the older copy signs nothing, by what the witnesses say
	d.end(t)
	until(t, "both witnesses to say that they have seen more", func() bool { return len(refusals()) == 2 })
	d.end(t)
	t.Logf("the older copy, with 4 entries, signs nothing:\n%s", strings.Join(refusals(), "\n"))
	if status, text := d.operate("GET", "/log", nil, nil); status != 200 || !strings.Contains(text, `"signs":false`) || !strings.Contains(text, "holds against it") {
		t.Errorf("%d %s", status, text)
	}
	d.checkpoint(t, 4)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = start(t, setup{data: backup, port: port, change: alone}) // nobody is there who could say so: it goes another way
	d.end(t)
	d.end(t)
	d.checkpoint(t, 8) // with the two rooms that waited
	d = again(backup)
	until(t, "both witnesses to refuse the fork", func() bool {
		all := refusals()
		return len(all) == 2 && strings.Contains(all[0], "does not follow") && strings.Contains(all[1], "does not follow")
	})
	t.Logf("the fork is refused:\n%s", strings.Join(refusals(), "\n"))
	_, _, signed := d.call("GET", "/log/checkpoint", nil, nil)
	for _, w := range both {
		if _, _, err := cosignature.Open(signed, w); !errors.Is(err, cosignature.ErrSignature) {
			t.Errorf("%v: the fork has a cosignature: %s", err, signed)
		}
	}
	d = again(data)
	d.end(t)
	t.Logf("the log of before goes on:\n%s", d.checkpoint(t, 7, both...))
}

type witnessStatus struct{ Witness, Error string }

func (d *running) collector(t *testing.T) (all []witnessStatus) {
	t.Helper()
	if status, text := d.operate("GET", "/log/witnesses", nil, &all); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	return all
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
