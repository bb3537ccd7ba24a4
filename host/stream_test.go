package host_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/web"
)

// pipes is a listener whose connections are net.Pipe: nothing is buffered between
// the two ends, and all of it follows the fake clock.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// listen serves the world over pipes until the test ends, and gives a client.
func (w *world) listen() *http.Client {
	w.t.Helper()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := web.NewServer(w.handler, quiet)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-l.done:
			return nil, net.ErrClosed
		}
	}}
	w.t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			w.t.Error(err)
		}
		<-ended
	})
	return &http.Client{Transport: tr}
}

// stream is one reader of a live stream; items and the end are collected.
type stream struct {
	sync.Mutex
	resp  *http.Response
	got   map[string][]string // data by event
	ended bool
	err   error
	stop  context.CancelFunc
}

// live opens a stream and reads it as it comes.
func (w *world) live(c *http.Client, id string, a *agent, query string) *stream {
	w.t.Helper()
	s := w.unread(c, id, a, query)
	if s.resp.StatusCode == http.StatusOK {
		go s.read()
	}
	return s
}

// unread opens a stream and reads none of it.
func (w *world) unread(c *http.Client, id string, a *agent, query string) *stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", origin+"/v1/rooms/"+id+"/events/live"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if a != nil {
		req.Header.Set("Authorization", "Bearer "+w.token(a))
	}
	resp, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &stream{resp: resp, got: map[string][]string{}, stop: cancel}
	w.t.Cleanup(func() { cancel(); resp.Body.Close() })
	return s
}

func (s *stream) read() {
	lines := bufio.NewReader(s.resp.Body)
	event := ""
	for {
		line, err := lines.ReadString('\n')
		s.Lock()
		switch data, ok := strings.CutPrefix(line, "data: "); {
		case err != nil:
			s.ended, s.err = true, err
			s.Unlock()
			return
		case strings.HasPrefix(line, "event: "):
			event = strings.TrimSpace(line[7:])
		case ok:
			s.got[event] = append(s.got[event], strings.TrimSpace(data))
		}
		s.Unlock()
	}
}

func (s *stream) items(event string) []string {
	s.Lock()
	defer s.Unlock()
	return append([]string(nil), s.got[event]...)
}

func (s *stream) over() bool {
	s.Lock()
	defer s.Unlock()
	return s.ended
}

// inStreams runs a test on the fake clock, with the host behind pipes.
func inStreams(t *testing.T, test func(t *testing.T, w *world, c *http.Client)) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *world, _ *ended) { test(t, w, w.listen()) })
}

func TestLive(t *testing.T) {
	inStreams(t, func(t *testing.T, w *world, client *http.Client) {
		c, id := w.open(nil)
		listener := w.member(id, "observer")
		for a, want := range map[*agent]int{nil: 401, newAgent(t): 403} {
			if s := w.live(client, id, a, ""); s.resp.StatusCode != want {
				t.Errorf("status %d, want %d", s.resp.StatusCode, want)
			}
		}
		if s := w.live(client, nowhere, listener, ""); s.resp.StatusCode != 404 {
			t.Errorf("status %d", s.resp.StatusCode)
		}
		s := w.live(client, id, listener, "?last_seq=0")
		if s.resp.StatusCode != 200 || !strings.HasPrefix(s.resp.Header.Get("Content-Type"), "text/event-stream") {
			t.Fatalf("%d %v", s.resp.StatusCode, s.resp.Header)
		}
		synctest.Wait()
		if len(s.items("room.event")) != 0 {
			t.Error("history was replayed")
		}
		sent := w.act(c, id, room.Message, say("live")).ok(200)
		status := w.put("/v1/rooms/"+id+"/agent-status", c, obj{"state": "drafting", "seen_seq": 1}).ok(200)
		synctest.Wait()
		if got := s.items("room.event"); len(got) != 1 || got[0] != string(sent.Raw()) {
			t.Errorf("got %v", got)
		}
		if got := s.items("room.agent_status"); len(got) != 1 || got[0] != string(status.Raw()) {
			t.Errorf("got %v", got)
		}
		after(5 * time.Minute) // heartbeats keep it open
		if s.over() {
			t.Error("an idle stream ended")
		}
		s.stop()
		synctest.Wait()
	})
}

// A stream ends with what gave the right to it; what ended it is sent.
func TestLiveEnds(t *testing.T) {
	inStreams(t, func(t *testing.T, w *world, client *http.Client) {
		for _, c := range []struct {
			name  string
			over  obj
			last  string // type of the last record on the stream, "" when time ended it
			end   func(creator, a *agent, id string)
			after time.Duration
		}{
			{"leave", nil, room.Leave, func(_, a *agent, id string) { w.act(a, id, room.Leave, obj{}).ok(200) }, 0},
			{"removal", nil, room.Remove, func(c, a *agent, id string) { w.act(c, id, room.Remove, obj{"member": a.id}).ok(200) }, 0},
			{"ban", nil, room.Remove, func(c, a *agent, id string) { w.act(c, id, room.Remove, obj{"member": a.id, "ban": true}).ok(200) }, 0},
			{"close", nil, room.Close, func(c, _ *agent, id string) { w.act(c, id, room.Close, obj{}).ok(200) }, 0},
			{"cancel", obj{"start_time": w.now() + 30*minute, "end_time": w.now() + 60*minute}, room.Cancel, func(c, _ *agent, id string) { w.act(c, id, room.Cancel, obj{}).ok(200) }, 0},
			{"time", obj{"end_time": w.now() + 2*minute}, "", func(_, _ *agent, _ string) {}, 2 * time.Minute},
			{"an end that moved", nil, room.Update, func(c, _ *agent, id string) { w.act(c, id, room.Update, obj{"end_time": w.now() + 2}).ok(200) }, 2 * time.Millisecond},
		} {
			creator, id := w.open(c.over)
			a, stays := w.member(id, "speaker"), w.member(id, "observer")
			s, other := w.live(client, id, a, ""), w.live(client, id, stays, "")
			synctest.Wait()
			c.end(creator, a, id)
			after(c.after)
			if !s.over() {
				t.Errorf("%s: the stream goes on", c.name)
				s.stop()
				continue
			}
			if s.err.Error() != "EOF" {
				t.Errorf("%s: the stream broke off: %v", c.name, s.err)
			}
			got := s.items("room.event")
			if want := c.last; want != "" && (len(got) != 1 || !strings.Contains(got[0], `"type":"`+want+`"`)) || want == "" && len(got) != 0 {
				t.Errorf("%s: the last record is not there: %v", c.name, got)
			}
			gone := c.name != "leave" && c.name != "removal" && c.name != "ban"
			if other.over() != gone {
				t.Errorf("%s: the other's stream: ended %v", c.name, other.over())
			}
			if again := w.live(client, id, a, ""); again.resp.StatusCode < 400 {
				t.Errorf("%s: a new stream was opened", c.name)
			}
			other.stop()
			synctest.Wait()
		}
		// another role is no end
		creator, id := w.open(nil)
		a := w.member(id, "speaker")
		s := w.live(client, id, a, "")
		w.act(creator, id, room.RoleUpdate, obj{"member": a.id, "role": "observer"}).ok(200)
		w.act(creator, id, room.Message, say("x")).ok(200)
		synctest.Wait()
		if s.over() || len(s.items("room.event")) != 2 {
			t.Errorf("ended %v, %d records", s.over(), len(s.items("room.event")))
		}
		s.stop()
		synctest.Wait()
	})
}

func TestReviewersOnly(t *testing.T) {
	inStreams(t, func(t *testing.T, w *world, client *http.Client) {
		c, id := w.open(obj{"visibility": "restricted"})
		speaker := w.admit(c, id, "speaker")
		mine, other := w.live(client, id, c, ""), w.live(client, id, speaker, "")
		synctest.Wait()
		made := w.ask(id, newAgent(t), obj{"role": "speaker"}).ok(201).Get("request")
		w.act(c, id, room.Message, say("after it")).ok(200)
		synctest.Wait()
		got := mine.items("room.join_request")
		if len(got) != 1 || !strings.Contains(got[0], made.Get("id").Text()) || strings.Contains(got[0], `"hash"`) || strings.Contains(got[0], `"envelope"`) {
			t.Errorf("got %v", got)
		}
		if len(other.items("room.event")) != 1 || len(other.items("room.join_request")) != 0 {
			t.Errorf("a speaker heard %v", other.got)
		}
		w.act(c, id, room.RoleUpdate, obj{"member": speaker.id, "role": "moderator"}).ok(200)
		w.ask(id, newAgent(t), obj{"role": "speaker"}).ok(201)
		synctest.Wait()
		if n := len(other.items("room.join_request")); n != 1 {
			t.Errorf("a new moderator heard of %d requests, want 1", n)
		}
		mine.stop()
		other.stop()
		synctest.Wait()
	})
}

// Two hundred readers each get every record once and in order, under a burst.
func TestManyReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *ended) {
		const readers, writers, each = 200, 8, 25
		client := w.listen()
		c, id := w.open(obj{"types": []any{typeDecl(nil)}})
		var all []*stream
		for range readers {
			all = append(all, w.live(client, id, c, ""))
		}
		agents := make([]*agent, writers)
		for i := range agents {
			agents[i] = w.member(id, "observer")
		}
		head := w.headOf(id)
		parallel(writers, func(i int) (none struct{}) {
			for range each {
				w.on(head, agents[i], "a.b", obj{"text": strings.Repeat("x", 500)}, nil).ok(200)
			}
			return none
		})
		synctest.Wait()
		recs := w.records(id, nil)[1:]
		for n, s := range all {
			got := s.items("room.event")
			if len(got) != len(recs) {
				t.Fatalf("reader %d has %d records, want %d", n, len(got), len(recs))
			}
			for i, r := range recs {
				if got[i] != string(r.JSON()) {
					t.Fatalf("reader %d: record %d is another", n, i)
				}
			}
			s.stop()
		}
		synctest.Wait()
	})
}

// A reader that does not read is cut, and no writer waits for it.
func TestSlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *ended) {
		client := w.listen()
		c, id := w.open(obj{"types": []any{typeDecl(nil)}})
		slow, quick := w.unread(client, id, c, ""), w.live(client, id, c, "")
		a := w.member(id, "observer")
		start := time.Now()
		for range 50 {
			w.act(a, id, "a.b", obj{"text": strings.Repeat("x", 10_000)}).ok(200)
		}
		if d := time.Since(start); d != 0 { // the fake clock moves only when somebody waits
			t.Errorf("the writer waited %v", d)
		}
		synctest.Wait()
		if n := len(quick.items("room.event")); n != 51 {
			t.Errorf("the other reader has %d records, want 51", n)
		}
		after(30 * time.Second)
		slow.read() // what is left in between, and then the cut
		if n := len(slow.items("room.event")); slow.err == nil || slow.err.Error() == "EOF" || n >= 51 {
			t.Errorf("the slow reader got %d records, and then %v", n, slow.err)
		}
		if quick.over() {
			t.Error("the other reader was cut too")
		}
		quick.stop()
		synctest.Wait()
	})
}

// Long polls end with the wait, on the fake clock.
func TestLongPollEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *ended) {
		_, id := w.open(nil)
		for wait, want := range map[string]time.Duration{"3": 3 * time.Second, "25": 25 * time.Second, "9000": 25 * time.Second} {
			start := time.Now()
			if n := w.get(fmt.Sprintf("/v1/rooms/%s/events?after_seq=1&wait=%s", id, wait), nil).ok(200).Len(); n != 0 {
				t.Errorf("%d records", n)
			}
			if d := time.Since(start); d != want {
				t.Errorf("wait=%s took %v", wait, d)
			}
		}
	})
}

// A reader that falls behind loses hints, never a record.
func TestStatusBurst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *ended) {
		client := w.listen()
		c, id := w.open(nil)
		agents := make([]*agent, 10)
		for i := range agents {
			agents[i] = w.member(id, "speaker")
		}
		behind := w.unread(client, id, c, "")
		for i := range 500 {
			w.put("/v1/rooms/"+id+"/agent-status", agents[i%10], obj{"state": "working", "summary": fmt.Sprint(i)}).ok(200)
		}
		sent := w.act(c, id, room.Message, say("x")).ok(200)
		go behind.read()
		synctest.Wait()
		if got := behind.items("room.event"); len(got) != 1 || got[0] != string(sent.Raw()) {
			t.Errorf("got %v", got)
		}
		if n := len(behind.items("room.agent_status")); n < 200 || n > 500 {
			t.Errorf("%d hints", n)
		}
		if err := w.h.Sweep(); err != nil {
			t.Error(err)
		}
		if err := w.h.Sweep(); err != nil {
			t.Error(err)
		}
		w.put("/v1/rooms/"+id+"/agent-status", c, obj{"state": "last"}).ok(200)
		synctest.Wait()
		if got := behind.items("room.agent_status"); !strings.Contains(got[len(got)-1], `"last"`) {
			t.Errorf("after a sweep nothing comes: %s", got[len(got)-1])
		}
		behind.stop()
		synctest.Wait()
	})
}

// Streams and long polls of one address are bounded together, here as at a mirror.
func TestStreamsOfOneAddressAreBounded(t *testing.T) {
	inStreams(t, func(t *testing.T, w *world, client *http.Client) {
		_, id := w.open(nil)
		a := w.member(id, "observer")
		var streams []*stream
		for i := range web.StreamsPerAddress {
			s := w.live(client, id, a, "")
			if s.resp.StatusCode != 200 {
				t.Fatalf("stream %d: %s", i, s.resp.Status)
			}
			streams = append(streams, s)
		}
		get := func(path string) int {
			t.Helper()
			resp, err := client.Get(origin + "/v1/rooms/" + id + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode == 429 && resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", path)
			}
			return resp.StatusCode
		}
		if s := w.live(client, id, a, ""); s.resp.StatusCode != 429 {
			t.Errorf("one more stream: %s", s.resp.Status)
		}
		if code := get("/events?after_seq=99&wait=25"); code != 429 {
			t.Errorf("a long poll: %d", code)
		}
		if code := get("/events"); code != 200 {
			t.Errorf("what does not wait: %d", code)
		}
		streams[0].stop()
		synctest.Wait()
		if code := get("/events?after_seq=99&wait=1"); code != 200 {
			t.Errorf("a long poll in the place of a stream: %d", code)
		}
		if code := get("/events?after_seq=99&wait=1"); code != 200 {
			t.Errorf("its seat is not free again: %d", code)
		}
	})
}
