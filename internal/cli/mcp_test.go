package cli

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/daemon"
	"github.com/witan-adp/witan/internal/keys"
)

// runDaemon runs a daemon in this process until the test ends.
func runDaemon(t *testing.T) daemon.Info {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Data, cfg.AllowPrivateAddresses, cfg.P2P.Enabled, cfg.MinFreeDisk = t.TempDir(), true, false, 0
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan daemon.Info, 1), make(chan error, 1)
	go func() {
		ended <- daemon.Run(ctx, cfg, daemon.Edges{Version: "test", Listener: ln, Ready: func(i daemon.Info) { ready <- i }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	})
	select {
	case i := <-ready:
		return i
	case err := <-ended:
		ended <- nil
		t.Fatalf("the daemon did not start: %v", err)
	}
	panic("not reached")
}

// agentSession starts "witan mcp" as a process of its own, as the client of an agent does.
func agentSession(t *testing.T, args ...string) *mcp.ClientSession {
	t.Helper()
	cmd := exec.Command("witan", append([]string{"mcp"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=")
	cmd.Stderr = t.Output()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: patience}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("witan mcp did not end well: %v", err)
		}
	})
	return s
}

// use calls a tool; an error of it comes back as its text.
func use(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) (facts map[string]any, failed string) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if r.IsError {
		return nil, r.Content[0].(*mcp.TextContent).Text
	}
	raw, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Facts map[string]any }
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out.Facts, ""
}

// Two agents talk in a room by their tools alone, and one of them checks what came of it.
func TestAgentsTalkOverMCP(t *testing.T) {
	host := runDaemon(t)
	folder := t.TempDir()
	var files []string
	for _, name := range []string{"one", "two", "three"} {
		file := filepath.Join(folder, name)
		if _, _, err := keys.Load(file); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if status := run(t.Context(), []string{"room", "create", "--host", host.Origin, "--key", files[0], "--topic", "Retries", "--use", "reactions"}, strings.NewReader(""), t.Output(), t.Output()); status != 0 {
		t.Fatalf("room create: %d", status)
	}
	one, two, three := agentSession(t, "--daemon", host.Origin, "--key", files[0]), agentSession(t, "--daemon", host.Origin, "--key", files[1]), agentSession(t, "--daemon", host.Origin)

	found, _ := use(t, two, "search_rooms", map[string]any{"query": "retries", "joinable": true})
	rooms := found["rooms"].([]any)
	if len(rooms) != 1 {
		t.Fatalf("found %v", found)
	}
	room := rooms[0].(map[string]any)["url"].(string)
	me, _ := use(t, two, "whoami", nil)
	if _, failed := use(t, two, "send_message", map[string]any{"room": room, "text": "too early"}); !strings.Contains(failed, "permission_denied") || !strings.Contains(failed, "join_room") {
		t.Errorf("a stranger's message: %q", failed)
	}
	if joined, failed := use(t, two, "join_room", map[string]any{"room": room, "perspective": "fieldbus"}); joined["status"] != "accepted" || joined["role"] != "speaker" {
		t.Fatalf("join_room: %v %s", joined, failed)
	}
	sent, failed := use(t, two, "send_message", map[string]any{"room": room, "text": "Three tries,\nthen give up.", "markdown": true})
	if sent["status"] != "accepted" {
		t.Fatalf("send_message: %s", failed)
	}
	answer, failed := use(t, one, "send_message", map[string]any{"room": room, "text": "Agreed.", "reply_to": []string{sent["event_hash"].(string)}, "mentions": []string{me["agent"].(string)}})
	if answer["status"] != "accepted" {
		t.Fatalf("the answer: %s", failed)
	}
	history, _ := use(t, three, "read_history", map[string]any{"room": room, "last": 1})
	last := history["records"].([]any)[0].(map[string]any)
	if last["references"].([]any)[0] != sent["event_hash"] || last["mentions"].([]any)[0] != me["agent"] || last["seq"] != answer["seq"] {
		t.Errorf("the last record: %v", last)
	}
	if left, failed := use(t, two, "leave_room", map[string]any{"room": room, "reason": "done"}); left["status"] != "accepted" {
		t.Errorf("leave_room: %s", failed)
	}
	if got, failed := use(t, three, "verify_room", map[string]any{"room": room, "from": "host"}); got["verdict"] != "verified" || got["records"] != 5.0 {
		t.Errorf("verify_room: %v %s", got, failed)
	}
	if got, failed := use(t, three, "get_proof", map[string]any{"room": room, "seq": 4}); got["holds"] != true {
		t.Errorf("get_proof: %v %s", got, failed)
	}
	for tool, err := range three.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("without --key there is %s", tool.Name)
		}
	}
	if _, failed := use(t, one, "join_room", map[string]any{"room": "http://127.0.0.1:1/v1/rooms/abc"}); !strings.Contains(failed, "http is not allowed") {
		t.Errorf("a host at a private address: %q", failed)
	}
}

func TestMCPStart(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"mcp", "--daemon", "ftp://x"}, "--daemon"},
		{[]string{"mcp", "--daemon", "http://127.0.0.1:1/m/x"}, "an origin is scheme://host[:port] only"},
		{[]string{"mcp", "--key", filepath.Join(t.TempDir(), "none")}, "witan key new"},
		{[]string{"mcp", "extra"}, "unknown command"},
	} {
		var errOut strings.Builder
		if status := run(t.Context(), c.args, strings.NewReader(""), t.Output(), &errOut); status != exitUsage || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%v: %d %s", c.args, status, errOut.String())
		}
	}
	// a client that goes away at once is no failure
	if status := run(t.Context(), []string{"mcp", "--daemon", "http://127.0.0.1:1"}, strings.NewReader(""), t.Output(), t.Output()); status != exitOK {
		t.Errorf("an input that ends at once: %d", status)
	}
}
