package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/daemon"
)

// patience is how long a test waits for what must come: longer than the most overloaded
// machine takes.
const patience = 3 * time.Minute

// The scripts of operators run the command itself against daemons in the process of the test.
func TestOperatorScripts(t *testing.T) {
	var stops sync.Map // folder → func()
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", "operator"),
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "conf"))
			e.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// daemon NAME [keep=N] [p2p] [peer=ADDRESS] [ORIGIN…] runs a daemon on the folder NAME that mirrors the origins, N records of each
			// room, and sets $NAME to its own origin and $NAME_p2p to its peer-to-peer address
			"daemon": func(ts *testscript.TestScript, _ bool, args []string) {
				addr := ts.Getenv(args[0] + "_authority") // of the same name before: its folder belongs to that origin
				if addr == "" {
					addr = "127.0.0.1:0"
				}
				ln, err := net.Listen("tcp", addr)
				for end := time.Now().Add(patience); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
					<-time.After(20 * time.Millisecond) // somebody else has it for a moment
					ln, err = net.Listen("tcp", addr)
				}
				ts.Check(err)
				cfg := config.Default()
				cfg.Data, cfg.AllowPrivateAddresses, cfg.P2P.Enabled, cfg.MinFreeDisk = ts.MkAbs(args[0]), true, false, 0
				cfg.Mirror.PollMin, cfg.Mirror.PollMax = config.Duration(20*time.Millisecond), config.Duration(100*time.Millisecond)
				for _, origin := range args[1:] {
					if n, ok := strings.CutPrefix(origin, "keep="); ok {
						count, err := strconv.ParseInt(n, 10, 64)
						ts.Check(err)
						cfg.Mirror.Retention.Count, cfg.Witness.Enabled = count, false
						continue
					}
					if address, ok := strings.CutPrefix(origin, "peer="); ok {
						cfg.P2P.Peers, origin = []string{address}, "p2p"
					}
					if origin == "p2p" {
						cfg.P2P.Enabled, cfg.P2P.Listen = true, []string{"/ip4/127.0.0.1/tcp/0"}
						continue
					}
					cfg.Mirror.Hosts = append(cfg.Mirror.Hosts, config.MirrorHost{URL: origin})
				}
				ctx, cancel := context.WithCancel(context.Background())
				ready, ended := make(chan daemon.Info, 1), make(chan error, 1)
				go func() {
					ended <- daemon.Run(ctx, cfg, daemon.Edges{Version: "test", Listener: ln, Ready: func(i daemon.Info) { ready <- i }})
				}()
				var once sync.Once
				stop := func() {
					once.Do(func() {
						cancel()
						<-ended
					})
				}
				stops.Store(ts.MkAbs(args[0]), stop)
				ts.Defer(stop)
				select {
				case i := <-ready:
					ts.Setenv(args[0], i.Origin)
					_, authority, _ := strings.Cut(i.Origin, "://")
					ts.Setenv(args[0]+"_authority", authority)
					ts.Setenv(args[0]+"_agent", i.AgentID)
					if len(i.Peers) > 0 {
						ts.Setenv(args[0]+"_p2p", i.Peers[0])
					}
				case err := <-ended:
					ended <- err
					ts.Fatalf("the daemon did not start: %v", err)
				}
			},
			"receiver": receiverCmd,
			// halt NAME ends a daemon
			"halt": func(ts *testscript.TestScript, _ bool, args []string) {
				stop, ok := stops.Load(filepath.Join(ts.Getenv("WORK"), args[0]))
				if !ok {
					ts.Fatalf("no daemon %s", args[0])
				}
				stop.(func())()
			},
			// until REGEXP COMMAND… runs the command until its output matches
			"until": func(ts *testscript.TestScript, _ bool, args []string) {
				want := regexp.MustCompile("(?m)" + args[0])
				limit := time.After(patience)
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for {
					_ = ts.Exec(args[1], args[2:]...)
					out := ts.ReadFile("stdout")
					if want.MatchString(out) {
						return
					}
					select {
					case <-tick.C:
					case <-limit:
						ts.Fatalf("never: %s in\n%s", args[0], out)
					}
				}
			},
			// capture NAME REGEXP sets NAME to the first group of what matches in the last output
			"capture": func(ts *testscript.TestScript, _ bool, args []string) {
				found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
				if len(found) < 2 {
					ts.Fatalf("%s is not in the output", args[1])
				}
				ts.Setenv(args[0], found[1])
			},
		},
	})
}

// shortFolder is a data folder whose path leaves room for a socket, wherever temporary files are.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "witan-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A daemon that works for long is not taken for one that does not run.
func TestOperatorTellsOfASlowDaemon(t *testing.T) {
	data := shortFolder(t)
	socket, err := daemon.AdminSocket(data)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = operatorWithin(t.Context(), time.Millisecond, data, "GET", "/mirror/status", nil)
	if err == nil || !strings.Contains(err.Error(), "longer than 1ms") {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{data, filepath.Join(data, strings.Repeat("long", 30))} {
		_, err = operatorWithin(t.Context(), time.Minute, data, "GET", "/mirror/status", nil)
		if err == nil || !strings.Contains(err.Error(), "witan serve --data "+data) {
			t.Errorf("%v", err)
		}
	}
}
