package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/mirror"
)

// What the flood is held to in `make soak`; elsewhere the machine may be busy.
const (
	floodRate  = 10_000 // messages a second
	floodLeast = 1_000  // messages in all, however slow the machine is
	floodDelay = time.Second
	floodHeap  = 64 << 20 // bytes that host and mirror together may have more while it lasts
)

// floodTime is a minute in a soak, and seconds elsewhere.
func floodTime(t *testing.T) (length time.Duration, soak bool) {
	text := os.Getenv("SOAK")
	if text == "" {
		return 3 * time.Second, false
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SOAK: %v", err)
	}
	return min(length, time.Minute), true
}

// relayMessages reads how many relay messages became of a verdict, from /metrics.
func (d *running) relayMessages(verdict string) int {
	d.t.Helper()
	_, _, raw := d.call("GET", "/metrics", nil, nil)
	m := regexp.MustCompile(`witan_p2p_messages_total\{topic="` + mirror.TopicRelay + `",verdict="` + verdict + `"\} (\S+)`).FindSubmatch(raw)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return int(n)
}

// startAttack lets another process flood the relay of a peer until the returned function
// is called, which tells how many messages that one has sent.
func startAttack(t *testing.T, peer, origin, room string) (stop func() int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRelayFlood$", "-test.count=1")
	cmd.Env = append(os.Environ(), "FLOOD_ATTACK="+peer+" "+origin+" "+room)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() (sent int) {
		t.Helper()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("the attacker: %v\n%s", err, out.Bytes())
		}
		m := regexp.MustCompile(`sent (\d+)`).FindSubmatch(out.Bytes())
		if m == nil {
			t.Fatalf("the attacker does not say what it sent: %s", out.Bytes())
		}
		sent, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
}

// attackRelay is the attacker. It ends with its standard input, once it has sent enough.
func attackRelay(t *testing.T, order string) {
	var peer, origin, room string
	if _, err := fmt.Sscan(order, &peer, &origin, &room); err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	node, err := p2p.New(p2p.Options{Key: key, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Peers: []string{peer}, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	var genuine atomic.Pointer[[]byte]
	topic, err := node.Join(mirror.TopicRelay, mirror.MaxRelay, func(string, []byte) p2p.Verdict { return p2p.Accept },
		func(_ string, data []byte) { c := bytes.Clone(data); genuine.CompareAndSwap(nil, &c) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enough, stop := context.WithCancel(ctx)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	strangers := make([][]byte, 64)
	for i := range strangers {
		none := adp.Encode(make([]byte, 32))
		e, err := adp.Sign(key, adp.Draft{Protocol: adp.WitnessProtocol, Type: mirror.TypeHead, CreatedAt: time.Now().UnixMilli(), Nonce: int64(i + 1),
			Payload: mirror.Head{Origin: origin, RoomID: room, Genesis: none, Seq: int64(i + 2), Hash: none, Root: none, At: 1}})
		if err != nil {
			t.Fatal(err)
		}
		strangers[i] = fmt.Appendf(nil, `{"head":%s,"records":[]}`, e.JSON())
	}
	at := regexp.MustCompile(`"at":\d+`)
	bad := func(i int) []byte {
		switch heard := genuine.Load(); {
		case i%3 == 1 && heard != nil: // canonical, a head of the host, with another time in it
			return at.ReplaceAll(*heard, fmt.Appendf(nil, `"at":%d`, i))
		case i%3 == 2:
			return strangers[i/3%len(strangers)]
		}
		return fmt.Appendf(nil, "garbage %d %x", i, make([]byte, 200))
	}
	until(t, "the attacker is connected", func() bool { return len(node.Peers()) > 0 })
	sent := 0
	for pace := rate.NewLimiter(floodRate, floodRate/100); sent < floodLeast || enough.Err() == nil; sent++ {
		err := pace.Wait(ctx)
		if err == nil {
			err = topic.Publish(ctx, bad(sent))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	fmt.Println("sent", sent)
}

// One peer floods the relay with bad messages: garbage, heads of the host that were
// changed, heads of a host that signs with another key. The sender is graylisted, what the
// host says arrives as before, and memory stays where it was.
func TestRelayFlood(t *testing.T) {
	if order := os.Getenv("FLOOD_ATTACK"); order != "" {
		attackRelay(t, order)
		return
	}
	length, soak := floodTime(t)
	a := start(t, setup{change: func(c *config.Config) { c.Limits.MessagePerMinute = 1_000_000; c.Limits.RequestsPerSecond = 1e6 }})
	b := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1], change: func(c *config.Config) {
		c.Mirror.PollMin, c.Mirror.PollMax = config.Duration(time.Hour), config.Duration(time.Hour) // the relay or nothing
		c.Limits.RequestsPerSecond = 1e6
	}})
	creator := newAgent(t)

	id := a.create(creator, nil)
	events := "/m/" + authority(a.origin) + "/v1/rooms/" + id + "/events"
	var said atomic.Int64
	say := func() (delay time.Duration) {
		t.Helper()
		a.act(creator, id, "message.create", text("an honest word"))
		began := time.Now()
		seq := said.Add(1) + 1
		until(t, "an honest record arrives", func() bool {
			var recs []json.RawMessage
			status, _, _ := b.call("GET", fmt.Sprintf("%s?after_seq=%d&wait=1", events, seq-1), nil, &recs)
			return status == 200 && len(recs) > 0
		})
		return time.Since(began)
	}
	until(t, "the relay is up", func() bool { // what goes out before it is, nobody hears
		a.act(creator, id, "message.create", text("is anybody there?"))
		var recs []json.RawMessage
		status, _, _ := b.call("GET", fmt.Sprintf("%s?after_seq=%d&wait=1", events, said.Add(1)), nil, &recs)
		return status == 200 && len(recs) > 0
	})
	attack := startAttack(t, b.info.Peers[0], a.origin, id)
	looked := func() int { return b.relayMessages("reject") + b.relayMessages("ignore") }
	last := -1
	until(t, "no more of the flood is looked at", func() bool { // before that it can crowd out what others say
		now := looked()
		still := now == last && b.relayMessages("reject") >= 11 // so many are the end of a peer's good name
		last = now
		return still
	})

	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := heap(), uint64(0)
	var delays []time.Duration
	for began := time.Now(); time.Since(began) < length; {
		delays = append(delays, say())
		if len(delays)%20 == 0 {
			most = max(most, heap())
		}
	}
	sent := attack()
	rejected, judged := b.relayMessages("reject"), looked()
	most = max(most, heap())
	delays = append(delays, say())
	slices.Sort(delays)
	grown := int64(most) - int64(before)
	t.Logf("%v: %d bad messages, %d of them looked at, %d rejected; %d honest records, delay median %v, p99 %v, most %v; heap %d MiB, at most %+d MiB", length,
		sent, judged, rejected, len(delays), delays[len(delays)/2], delays[len(delays)*99/100], delays[len(delays)-1], before>>20, grown>>20)
	if rejected == 0 || judged > sent/2 {
		t.Errorf("%d of %d bad messages were looked at: the sender was not graylisted", judged, sent)
	}
	if grown > floodHeap {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if soak && delays[len(delays)-1] > floodDelay {
		t.Errorf("an honest record was delayed by %v", delays[len(delays)-1])
	}
}
