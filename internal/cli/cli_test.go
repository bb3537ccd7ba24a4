package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/witan-adp/witan/internal/inspect/inspecttest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The scripts run the command itself, in a process of its own, against a small ADP host in the process of the test.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"witan": func() {
		status := Main()
		leavePeak()
		os.Exit(status)
	}})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			h := newFakeHost()
			e.Defer(h.close)
			e.Values["host"] = h
			e.Setenv("WITAN_HOST", h.url())
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "conf"))
			e.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// fixture NAME FILE writes an archive that was made for the test
			"fixture": func(ts *testscript.TestScript, _ bool, args []string) {
				text, ok := inspecttest.Archives()[args[0]]
				if !ok {
					ts.Fatalf("no fixture %q", args[0])
				}
				ts.Check(os.WriteFile(ts.MkAbs(args[1]), text, 0o644))
			},
			// host FAULT [N] lets the host fail that way, N times
			"host": func(ts *testscript.TestScript, _ bool, args []string) {
				n := 1
				if len(args) > 1 {
					var err error
					n, err = strconv.Atoi(args[1])
					ts.Check(err)
				}
				ts.Value("host").(*fakeHost).fail(args[0], n)
			},
			// asked PATH waits until the host was asked for something that contains PATH since the last time
			"asked": func(ts *testscript.TestScript, _ bool, args []string) {
				if err := ts.Value("host").(*fakeHost).asked(args[0]); err != nil {
					ts.Fatalf("%v", err)
				}
			},
			// forget makes asked wait for what comes from now on
			"forget": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Value("host").(*fakeHost).forget() },
			// capture NAME BEFORE sets NAME to the word behind BEFORE in the last output
			"capture": func(ts *testscript.TestScript, _ bool, args []string) {
				out := ts.ReadFile("stdout")
				_, rest, ok := strings.Cut(out, args[1])
				if !ok {
					ts.Fatalf("%q is not in %q", args[1], out)
				}
				ts.Setenv(args[0], strings.Fields(rest)[0])
			},
			// mode FILE OCTAL wants the permissions of a file
			"mode": func(ts *testscript.TestScript, _ bool, args []string) {
				info, err := os.Stat(ts.MkAbs(args[0]))
				ts.Check(err)
				if got := fmt.Sprintf("%o", info.Mode().Perm()); got != args[1] {
					ts.Fatalf("%s has mode %s", args[0], got)
				}
			},
		},
	})
}
