package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/p2p"
)

// running is a daemon in this process.
type running struct {
	t      *testing.T
	origin string
	data   string
	info   Info
	stop   func() error // ends it and gives what Run answered
}

type setup struct {
	data    string
	port    int
	now     func() int64
	mirrors []string
	peers   []string
	flags   []string // of mirrors, those named on the command line
	change  func(*config.Config)
}

// patience is how long a test waits for what must come: longer than the most overloaded
// machine takes.
const patience = 3 * time.Minute

// listenAt listens at an address. One that was given back a moment ago somebody else may
// have for a moment.
func listenAt(t *testing.T, addr string) (ln net.Listener) {
	t.Helper()
	until(t, addr+" is free", func() (ok bool) {
		var err error
		if ln, err = net.Listen("tcp", addr); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
		return err == nil
	})
	return ln
}

// start runs a daemon on loopback until the test ends.
func start(t *testing.T, s setup) *running {
	t.Helper()
	if s.data == "" {
		s.data = t.TempDir()
	}
	ln := listenAt(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	cfg := config.Default()
	cfg.Data, cfg.AllowPrivateAddresses, cfg.P2P.Listen, cfg.P2P.Peers = s.data, true, []string{"/ip4/127.0.0.1/tcp/0"}, s.peers
	cfg.MinFreeDisk = 0
	for _, m := range s.mirrors {
		cfg.Mirror.Hosts = append(cfg.Mirror.Hosts, config.MirrorHost{URL: m})
	}
	if s.change != nil {
		s.change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan Info, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, Edges{Version: "test", Listener: ln, Now: s.now, FlagMirrors: s.flags, Ready: func(i Info) { ready <- i }})
	}()
	d := &running{t: t, data: s.data}
	stopped := false
	d.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		defer http.DefaultClient.CloseIdleConnections() // who comes next at this address knows nothing of them
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("the daemon does not stop")
		}
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	select {
	case d.info = <-ready:
	case err := <-ended:
		stopped = true
		t.Fatalf("the daemon did not start: %v", err)
	case <-time.After(patience):
		t.Fatal("the daemon is not ready")
	}
	d.origin = d.info.Origin
	return d
}

func (d *running) port() int {
	_, p, err := net.SplitHostPort(authority(d.origin))
	if err != nil {
		d.t.Fatal(err)
	}
	var n int
	fmt.Sscan(p, &n)
	return n
}

// agent signs with a key of its own.
type agent struct {
	key   ed25519.PrivateKey
	id    adp.AgentID
	nonce int64
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &agent{key: key, id: adp.NewAgentID(pub)}
}

func (a *agent) event(t *testing.T, typ string, payload any, room map[string]any) []byte {
	t.Helper()
	now := time.Now().UnixMilli()
	a.nonce = max(a.nonce+1, now)
	d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: now, Nonce: a.nonce, Payload: payload}
	if room != nil {
		head := room["head"].(map[string]any)
		d.RoomID, d.BaseSeq, d.BaseHash = room["id"].(string), int64(head["seq"].(float64)), head["hash"].(string)
	}
	e, err := adp.Sign(a.key, d)
	if err != nil {
		t.Fatal(err)
	}
	return e.JSON()
}

// call asks for a path and decodes the answer into out, when it is not nil.
func (d *running) call(method, path string, body []byte, out any) (int, http.Header, []byte) {
	d.t.Helper()
	req, err := http.NewRequest(method, d.origin+path, bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if out != nil && resp.StatusCode < 300 {
		if err := json.Unmarshal(raw, out); err != nil {
			d.t.Fatalf("%s %s: %d %.300s: %v", method, path, resp.StatusCode, raw, err)
		}
	}
	return resp.StatusCode, resp.Header, raw
}

func (d *running) room(id string) map[string]any {
	d.t.Helper()
	var room map[string]any
	if status, _, raw := d.call("GET", "/v1/rooms/"+id, nil, &room); status != 200 {
		d.t.Fatalf("room %s: %d %s", id, status, raw)
	}
	return room
}

func (d *running) act(a *agent, id, typ string, payload any) {
	d.t.Helper()
	if status, _, raw := d.call("POST", "/v1/rooms/"+id, a.event(d.t, typ, payload, d.room(id)), nil); status != 200 {
		d.t.Fatalf("%s: %d %s", typ, status, raw)
	}
}

func (d *running) create(a *agent, over map[string]any) string {
	d.t.Helper()
	now := time.Now().UnixMilli()
	payload := map[string]any{"topic": "Quorum of mirrors", "visibility": "public", "start_time": now - 1000, "end_time": now + 3600_000, "tags": []string{"federation"}}
	for k, v := range over {
		payload[k] = v
	}
	var made struct{ ID string }
	if status, _, raw := d.call("POST", "/v1/rooms", a.event(d.t, "room.create", payload, nil), &made); status != 201 {
		d.t.Fatalf("room.create: %d %s", status, raw)
	}
	return made.ID
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

func text(s string) map[string]any { return map[string]any{"content_type": "text/plain", "content": s} }

// operate sends a command to the admin socket and decodes the answer into out,
// when it is not nil.
func (d *running) operate(method, path string, body, out any) (int, string) {
	d.t.Helper()
	socket, err := AdminSocket(d.data)
	if err != nil {
		d.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			d.t.Fatal(err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://daemon"+path, content)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if out != nil && resp.StatusCode == 200 {
		if err := json.Unmarshal(raw, out); err != nil {
			d.t.Fatalf("%s %s: %s: %v", method, path, raw, err)
		}
	}
	return resp.StatusCode, string(raw)
}

// peer is a peer of a daemon until the test ends, and no daemon itself. prepare is called
// before it runs.
func (d *running) peer(t *testing.T, prepare func(*p2p.Node)) *p2p.Node {
	t.Helper()
	n, err := p2p.New(p2p.Options{Key: newAgent(t).key, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Peers: d.info.Peers[:1], AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	prepare(n)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}
