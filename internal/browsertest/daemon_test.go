//go:build !race

package browsertest

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
	"strings"
	"syscall"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/daemon"
)

// patience is how long a test waits for what must come: longer than the most overloaded machine takes.
const patience = 3 * time.Minute

// running is a daemon in this process.
type running struct {
	origin string
	data   string
	port   int
	info   daemon.Info
	cancel context.CancelFunc
	ended  chan error

	stopped bool
}

// start runs a daemon on a port of loopback; 0 is a free one. One that a daemon had before can be somebody else's for a moment.
func start(data string, port int, change func(*config.Config)) (*running, error) {
	var ln net.Listener
	var failed error
	if err := until(fmt.Sprintf("port %d to be free", port), func() bool {
		ln, failed = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return !errors.Is(failed, syscall.EADDRINUSE)
	}); err != nil || failed != nil {
		return nil, errors.Join(err, failed)
	}
	cfg := config.Default()
	cfg.Data, cfg.AllowPrivateAddresses, cfg.P2P.Listen, cfg.MinFreeDisk = data, true, []string{"/ip4/127.0.0.1/tcp/0"}, 0
	cfg.Limits.RequestsPerSecond, cfg.Limits.RequestsBurst = 10_000, 10_000 // one reader opens many pages here
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &running{data: data, port: ln.Addr().(*net.TCPAddr).Port, cancel: cancel, ended: make(chan error, 1)}
	ready := make(chan daemon.Info, 1)
	go func() {
		d.ended <- daemon.Run(ctx, cfg, daemon.Edges{Version: "test", Listener: ln, Ready: func(i daemon.Info) { ready <- i }})
	}()
	select {
	case d.info = <-ready:
		d.origin = d.info.Origin
		return d, nil
	case err := <-d.ended:
		cancel()
		return nil, fmt.Errorf("the daemon did not start: %w", err)
	case <-time.After(patience):
		cancel()
		return nil, errors.New("the daemon is not ready")
	}
}

// stop ends the daemon; a second time it does nothing.
func (d *running) stop() error {
	if d.stopped {
		return nil
	}
	d.stopped = true
	d.cancel()
	select {
	case err := <-d.ended:
		return err
	case <-time.After(patience):
		return errors.New("the daemon does not stop")
	}
}

func (d *running) authority() string { _, a, _ := strings.Cut(d.origin, "://"); return a }

func nowMS() int64 { return time.Now().UnixMilli() }

// get asks for a path and decodes the answer into out.
func (d *running) get(path string, out any) error {
	r, err := http.Get(d.origin + path)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %.300s", path, r.StatusCode, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, out)
}

// operate sends a command to the admin socket.
func (d *running) operate(path string, body any) error {
	socket, err := daemon.AdminSocket(d.data)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer c.CloseIdleConnections()
	r, err := c.Post("http://witan"+path, "application/json", bytes.NewReader(raw))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if answer, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %d %.300s %w", path, r.StatusCode, answer, err)
	}
	return nil
}

// agent signs with a key of its own.
type agent struct {
	key   ed25519.PrivateKey
	id    adp.AgentID
	nonce int64
}

func newAgent(seed byte) *agent {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	return &agent{key: key, id: adp.NewAgentID(key.Public().(ed25519.PublicKey))}
}

// post sends an event and answers with the hash of its envelope.
func (a *agent) post(url, typ string, payload any, draft adp.Draft, want int, out any) (string, error) {
	now := nowMS()
	a.nonce = max(a.nonce+1, now)
	draft.Protocol, draft.Type, draft.CreatedAt, draft.Nonce, draft.Payload = adp.Protocol, typ, now, a.nonce, payload
	e, err := adp.Sign(a.key, draft)
	if err != nil {
		return "", err
	}
	r, err := http.Post(url, "application/json", bytes.NewReader(e.JSON()))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != want {
		err = fmt.Errorf("%s: %d %.500s", typ, r.StatusCode, body)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(body, out)
	}
	return e.Hash, err
}

// hosted is a room at a daemon.
type hosted struct {
	at *running
	id string
}

func (h hosted) page() string { return "/rooms/" + h.at.authority() + "/" + h.id }
func (h hosted) api() string  { return h.at.origin + "/v1/rooms/" + h.id }

func (d *running) create(a *agent, payload map[string]any) (hosted, error) {
	now := nowMS()
	whole := map[string]any{"visibility": "public", "start_time": now - 1000, "end_time": now + 3600_000}
	for k, v := range payload {
		whole[k] = v
	}
	var made struct{ ID string }
	_, err := a.post(d.origin+"/v1/rooms", "room.create", whole, adp.Draft{}, http.StatusCreated, &made)
	return hosted{d, made.ID}, err
}

// send adds an event to a room, on its head, and answers with the hash of its envelope.
func (h hosted) send(a *agent, typ string, payload any, mentions ...adp.AgentID) (string, error) {
	var r struct {
		Head struct {
			Seq  int64
			Hash string
		}
	}
	if err := h.at.get("/v1/rooms/"+h.id, &r); err != nil {
		return "", err
	}
	return a.post(h.api(), typ, payload, adp.Draft{RoomID: h.id, BaseSeq: r.Head.Seq, BaseHash: r.Head.Hash, Mentions: mentions}, http.StatusOK, nil)
}

// until waits for a condition.
func until(what string, ok func() bool) error {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("not within %v: %s", patience, what)
		}
	}
	return nil
}
