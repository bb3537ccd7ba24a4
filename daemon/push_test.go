package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/childtest"
	"github.com/witan-adp/witan/webhook"
)

// childVar makes the test binary a daemon: data folder and port.
const childVar = "WITAN_DAEMON_TEST_CHILD"

func TestMain(m *testing.M) {
	if where := os.Getenv(childVar); where != "" {
		data, port, _ := strings.Cut(where, "|")
		fmt.Fprintln(os.Stderr, runChild(data, port))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// runChild is a daemon until it is killed. It prints a line when it answers.
func runChild(data, port string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	for end := time.Now().Add(patience); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		<-time.After(20 * time.Millisecond) // somebody else has it for a moment
		ln, err = net.Listen("tcp", "127.0.0.1:"+port)
	}
	if err != nil {
		return err
	}
	cfg := config.Default()
	cfg.Data, cfg.AllowPrivateAddresses, cfg.P2P.Enabled, cfg.MinFreeDisk = data, true, false, 0
	cfg.Limits.MessagePerMinute, cfg.Limits.SignalPerMinute, cfg.Limits.ControlPerMinute = 1_000_000, 1_000_000, 1_000_000
	cfg.Webhook.Retry = config.Duration(5 * time.Millisecond)
	return Run(context.Background(), cfg, Edges{Version: "test", Listener: ln, Ready: func(Info) { fmt.Println("ready") }})
}

// startChild starts a daemon in a process of its own; kill ends it at once.
func startChild(t *testing.T, data string, port int) (d *running, kill func()) {
	t.Helper()
	child := childtest.Start(t, childVar+"="+data+"|"+strconv.Itoa(port))
	line, ok := child.Line()
	if !ok {
		child.Died() // which says why
	}
	if line != "ready" {
		t.Fatalf("the daemon did not start: it says %q", line)
	}
	return &running{t: t, origin: "http://127.0.0.1:" + strconv.Itoa(port), data: data}, func() {
		child.Kill()
		http.DefaultClient.CloseIdleConnections() // who comes next at this address knows nothing of them
	}
}

// listener is a receiver of webhooks that can be stopped and started at one address.
type listener struct {
	t      *testing.T
	addr   string
	s      *httptest.Server
	answer func(http.ResponseWriter, *http.Request) // before it is taken; nil: take it

	mu  sync.Mutex
	got []posted
}

type posted struct {
	ID      string
	Event   string
	Webhook string
	Room    *struct {
		RoomID string `json:"room_id"`
		Origin string
		Mirror string
	}
	Record      json.RawMessage
	Attestation json.RawMessage
	Host        *struct{ Origin, From, State string }
	Challenge   string
}

func listen(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *listener {
	l := &listener{t: t, answer: answer, addr: "127.0.0.1:0"}
	l.start()
	t.Cleanup(func() { l.s.Close() })
	return l
}

func (l *listener) start() {
	l.t.Helper()
	ln := listenAt(l.t, l.addr)
	l.addr = ln.Addr().String()
	l.s = httptest.NewUnstartedServer(http.HandlerFunc(l.serve))
	l.s.Listener.Close()
	l.s.Listener = ln
	l.s.Start()
}

func (l *listener) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var p posted
	if err := json.Unmarshal(raw, &p); err != nil {
		l.t.Errorf("%v: %s", err, raw)
	}
	if p.Event == webhook.Ping {
		_ = json.NewEncoder(w).Encode(map[string]string{"challenge": p.Challenge})
		return
	}
	l.mu.Lock()
	l.got = append(l.got, p) // what is not answered was received all the same
	l.mu.Unlock()
	if l.answer != nil {
		l.answer(w, r)
	}
}

// events are the first arrivals.
func (l *listener) events() (list []posted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for _, p := range l.got {
		if !seen[p.ID] {
			seen[p.ID] = true
			list = append(list, p)
		}
	}
	return list
}

func seqOf(t *testing.T, record []byte) int64 {
	t.Helper()
	v, err := adp.ScanDepth(record, adp.RecordDepth)
	if err != nil {
		t.Fatalf("%v: %s", err, record)
	}
	r, err := adp.ParseRecord(v)
	if err == nil {
		err = r.Envelope.CheckSignature()
	}
	if err != nil {
		t.Fatalf("a delivered record does not verify: %v: %s", err, record)
	}
	return r.Seq
}

// TestKillWebhooks kills a daemon that delivers, again and again, while rooms are
// written to and receivers are slow, failing and away. What is in the rooms in the
// end was delivered to each of them, at least once, in the order of its room.
func TestKillWebhooks(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	good := listen(t, nil)
	slow := listen(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(15 * time.Millisecond): // its way of being: not a wait of the test
		case <-r.Context().Done():
		}
	})
	failing := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		switch rand.IntN(8) {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			panic(http.ErrAbortHandler)
		}
	})
	away := listen(t, nil)
	all := []*listener{good, slow, failing, away}

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	data := filepath.Join(t.TempDir(), "data")
	d, kill := startChild(t, data, port)
	for _, l := range all {
		if status, _ := d.operate("POST", "/webhooks", map[string]any{"url": "http://" + l.addr, "events": []string{webhook.RoomDiscovered, webhook.Mention, webhook.RoomEnded}}, nil); status != 200 {
			t.Fatal(status)
		}
	}
	me := newAgent(t)
	rooms := []string{}
	for round := range rounds {
		if round%3 == 1 {
			away.s.Close()
		} else if round%3 == 2 {
			away.start()
		}
		writes := 10 + rand.IntN(40)
		rooms = append(rooms, d.create(me, nil))
		for n := range writes {
			id := rooms[rand.IntN(len(rooms))]
			if n == writes/2 {
				id = rooms[len(rooms)-1] // the new one has some, too
			}
			d.mention(me, id, fmt.Sprintf("%d of round %d", n, round))
		}
		if round%4 == 3 {
			d.act(me, rooms[0], "room.close", map[string]any{})
			rooms = rooms[1:]
		}
		kill()
		d, kill = startChild(t, data, port)
	}
	if rounds%3 == 2 {
		away.start()
	}
	want := map[string][]int64{} // seqs of the mentions of each room
	var list []struct{ ID string }
	d.call("GET", "/v1/rooms/public?limit=100", nil, &list)
	total := 0
	for _, r := range list {
		var records []struct {
			Seq      int64
			Envelope struct{ Event struct{ Mentions []string } }
		}
		d.call("GET", "/v1/rooms/"+r.ID+"/events?limit=1000", nil, &records)
		want[r.ID] = []int64{}
		for _, rec := range records {
			if len(rec.Envelope.Event.Mentions) > 0 {
				want[r.ID] = append(want[r.ID], rec.Seq)
				total++
			}
		}
	}
	if len(want) != rounds || total < 10*rounds {
		t.Fatalf("%d mentions in %d rooms", total, len(want))
	}
	for i, l := range all {
		got := func() (mentions map[string][]int64, found, ended map[string]int) {
			mentions, found, ended = map[string][]int64{}, map[string]int{}, map[string]int{}
			for _, p := range l.events() {
				seq := seqOf(t, p.Record)
				switch p.Event {
				case webhook.RoomDiscovered:
					found[p.Room.RoomID]++
				case webhook.RoomEnded:
					ended[p.Room.RoomID]++
				case webhook.Mention:
					mentions[p.Room.RoomID] = append(mentions[p.Room.RoomID], seq)
				}
			}
			return mentions, found, ended
		}
		until(t, fmt.Sprintf("all events at receiver %d", i), func() bool {
			var hooks []struct{ ID, State, Reason string }
			d.operate("GET", "/webhooks", nil, &hooks)
			for _, h := range hooks {
				if h.State == webhook.Paused { // after five faults in a row its owner goes on
					d.operate("POST", "/webhooks/"+h.ID+"/resume", nil, nil)
				}
			}
			mentions, found, ended := got()
			n := 0
			for _, seqs := range mentions {
				n += len(seqs)
			}
			return n >= total && len(found) == len(want) && len(ended) == rounds-len(rooms)
		})
		mentions, _, _ := got()
		for id, seqs := range want {
			if !slices.Equal(mentions[id], seqs) && len(seqs) > 0 {
				t.Errorf("receiver %d, room %s: got %v, want %v", i, id, mentions[id], seqs)
			}
		}
	}
}

// mention says something to somebody.
func (d *running) mention(a *agent, id, text string) {
	d.t.Helper()
	head := d.room(id)["head"].(map[string]any)
	now := time.Now().UnixMilli()
	a.nonce = max(a.nonce+1, now)
	e, err := adp.Sign(a.key, adp.Draft{Protocol: adp.Protocol, Type: "message.create", CreatedAt: now, Nonce: a.nonce, RoomID: id, BaseSeq: int64(head["seq"].(float64)),
		BaseHash: head["hash"].(string), Payload: map[string]any{"content_type": "text/plain", "content": text}, Mentions: []adp.AgentID{a.id}})
	if err != nil {
		d.t.Fatal(err)
	}
	if status, _, raw := d.call("POST", "/v1/rooms/"+id, e.JSON(), nil); status != 200 {
		d.t.Fatalf("%d %s", status, raw)
	}
}

// A bot at a mirror, registered by an agent, hears of another host's rooms: that one was
// found, who is mentioned, that it ended and was attested; and of the host itself.
func TestWebhooksOfAMirror(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{peers: a.info.Peers[:1], change: func(c *config.Config) {
		c.Webhook.Public = true
		c.Mirror.BackoffMin, c.Mirror.PollMax = config.Duration(50*time.Millisecond), config.Duration(time.Second)
	}})
	bot, owner := listen(t, nil), newAgent(t)
	token, err := adp.SignToken(owner.key, b.origin, time.Now().Unix(), 60)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"url": "http://" + bot.addr, "events": webhook.Events, "filters": map[string]any{"hosts": []string{a.origin}}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("POST", b.origin+"/v1/webhooks", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatal(resp.Status)
	}
	if status, _ := b.operate("POST", "/mirror/add", map[string]string{"origin": a.origin}, nil); status != 200 {
		t.Fatal(status)
	}
	b.create(owner, nil) // of another host than the filter names
	id := a.create(owner, nil)
	first := func(event string) *posted {
		for _, p := range bot.events() {
			if p.Event == event {
				return &p
			}
		}
		return nil
	}
	for i, event := range []string{webhook.RoomDiscovered, webhook.Mention, webhook.RoomEnded} {
		switch event {
		case webhook.Mention:
			a.mention(owner, id, "to myself")
		case webhook.RoomEnded:
			a.act(owner, id, "room.close", map[string]any{})
		}
		until(t, event, func() bool { return first(event) != nil })
		p := first(event)
		if seq := seqOf(t, p.Record); seq != int64(i+1) || p.Room.RoomID != id || p.Room.Origin != a.origin || p.Room.Mirror != b.origin+"/m/"+authority(a.origin)+"/v1/rooms/"+id {
			t.Errorf("%s: seq %d of %+v", event, seq, p.Room)
		}
		if status, _, _ := b.call("GET", strings.TrimPrefix(p.Room.Mirror, b.origin), nil, nil); status != 200 {
			t.Errorf("the copy is not at %s: %d", p.Room.Mirror, status)
		}
	}
	until(t, webhook.ArchiveAttested, func() bool { return first(webhook.ArchiveAttested) != nil })
	v, err := adp.Scan(first(webhook.ArchiveAttested).Attestation)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := adp.ParseEnvelope(v); err != nil || e.CheckHash() != nil || e.CheckSignature() != nil || string(e.Actor) != b.info.AgentID {
		t.Errorf("the attestation is not that of the mirror: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	until(t, "the host that is away", func() bool {
		return slices.ContainsFunc(bot.events(), func(p posted) bool {
			return p.Event == webhook.HostState && p.Host.Origin == a.origin && p.Host.From == "following" && p.Host.State == "backing-off"
		})
	})
	for _, p := range bot.events() {
		if p.Room != nil && p.Room.Origin != a.origin {
			t.Errorf("the filter let through %+v", p)
		}
	}
}
