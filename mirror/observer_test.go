package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

const observer = 8 // the mirror's own agent

// stage is a fake host that takes events of one room and streams them to members.
type stage struct {
	*fakeHost
	s *story

	mu      sync.Mutex
	refuse  string         // code with which joins are refused
	joins   []adp.Value    // payloads
	leaves  int            // events
	readers map[int]func() // ends the streams
	opened  int            // streams so far
	moved   chan struct{}  // closed and replaced when there is news
	spoil   []byte         // goes out on the streams once, in place of a record
}

func newStage(t *testing.T) *stage {
	st := &stage{fakeHost: newFakeHost(t), s: talk(t, "room", 4), readers: map[int]func(){}, moved: make(chan struct{})}
	st.srv.Config.Handler = st
	st.put(st.s)
	t.Cleanup(st.hangUp)
	return st
}

// tell changes the room and shows it.
func (st *stage) tell(fn func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	fn()
	st.put(st.s)
	close(st.moved)
	st.moved = make(chan struct{})
}

// hangUp ends all streams.
func (st *stage) hangUp() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, end := range st.readers {
		end()
	}
}

func (st *stage) reading() int { st.mu.Lock(); defer st.mu.Unlock(); return len(st.readers) }

// streams counts those that were opened so far, and those of them that have ended: one may
// end and be opened again between two looks at how many there are.
func (st *stage) streams() (opened, ended int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.opened, st.opened - len(st.readers)
}

// opens waits until do has led to another stream, which is the only one.
func (st *stage) opens(t *testing.T, what string, do func()) {
	t.Helper()
	before, _ := st.streams()
	do()
	until(t, what, func() bool { opened, ended := st.streams(); return opened > before && ended == opened-1 })
}

func (st *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/rooms/room":
		st.post(w, r)
	case r.URL.Path == "/v1/rooms/room/events/live":
		st.live(w, r)
	default:
		st.fakeHost.ServeHTTP(w, r)
	}
}

func (st *stage) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, 400, "invalid_request")
		return
	}
	v, err := adp.Scan(body)
	var e *adp.Envelope
	if err == nil {
		e, err = adp.ParseEnvelope(v)
	}
	if err = errors.Join(err); err != nil || e.CheckShape() != nil || e.CheckHash() != nil || e.CheckSignature() != nil {
		refuse(w, 400, "invalid_event")
		return
	}
	st.mu.Lock()
	code := st.refuse
	if e.Type == room.Join {
		st.joins = append(st.joins, e.Payload)
	} else if e.Type == room.Leave {
		st.leaves++
	}
	st.mu.Unlock()
	if code != "" {
		refuse(w, 403, code)
		return
	}
	if e.BaseSeq != st.s.head.Seq || e.BaseHash != st.s.head.Hash {
		refuse(w, 409, string(adp.RoomHeadMismatch))
		return
	}
	st.tell(func() {
		last := st.s.recs[len(st.s.recs)-1]
		st.s.recs = append(st.s.recs, adp.NewRecord(e, "room", last.Seq+1, last.Hash, last.ReceivedAt+1))
	})
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(st.s.recs[len(st.s.recs)-1].JSON())
}

func (st *stage) live(w http.ResponseWriter, r *http.Request) {
	who, err := adp.VerifyToken(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), st.origin(), time.Now().Unix())
	if err != nil || who != agent(observer) {
		refuse(w, 401, "invalid_token")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	over := make(chan struct{})
	st.mu.Lock()
	st.opened++
	id, at := st.opened, len(st.s.recs)
	st.readers[id] = sync.OnceFunc(func() { close(over) })
	st.mu.Unlock()
	defer func() { st.mu.Lock(); defer st.mu.Unlock(); delete(st.readers, id) }()
	fmt.Fprint(w, ": open\n\n")
	for {
		_ = http.NewResponseController(w).Flush()
		st.mu.Lock()
		var out [][]byte
		for _, rec := range st.s.recs[min(at, len(st.s.recs)):] {
			out = append(out, rec.JSON())
		}
		at += len(out)
		if st.spoil != nil {
			out, st.spoil = append(out, st.spoil), nil
		}
		moved := st.moved
		st.mu.Unlock()
		for _, raw := range out {
			fmt.Fprintf(w, "event: room.event\ndata: %s\n\n", raw)
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-moved:
		case <-over:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// observes gives a mirror the means to observe.
func observes(o *Options) {
	var mu sync.Mutex
	nonce := int64(0)
	o.Agent = agent(observer)
	o.Token = func(origin string) (string, error) {
		return adp.SignToken(key(observer), origin, time.Now().Unix(), 60)
	}
	o.Event = func(d adp.Draft) (*adp.Envelope, error) {
		mu.Lock()
		defer mu.Unlock()
		nonce = max(nonce+1, time.Now().UnixMilli())
		d.CreatedAt, d.Nonce = time.Now().UnixMilli(), nonce
		return adp.Sign(key(observer), d)
	}
}

func (g *rig) observe(st *stage) *rig {
	g.t.Helper()
	if err := g.m.AddWith(st.origin(), "config", HostOptions{Observe: true}); err != nil {
		g.t.Fatal(err)
	}
	return g
}

func TestObserver(t *testing.T) {
	st := newStage(t)
	store := memory(t)
	// the first look joins; polling is slow from then on, so that what comes is live
	slow := func(o *Options) { observes(o); o.PollMin, o.PollMax = 20*time.Millisecond, time.Hour }
	g := start(t, store, slow).observe(st)
	until(t, "it reads the stream", func() bool { return st.reading() == 1 })
	if len(st.joins) != 1 || !st.joins[0].Get("role").Is("observer") || !st.joins[0].Get("perspective").Is("mirror") || st.joins[0].Len() != 2 {
		t.Errorf("joined with %v", st.joins)
	}
	g.holds(st.fakeHost, st.s)
	st.tell(func() { st.s.say(member, "the first") })
	g.holds(st.fakeHost, st.s)
	until(t, "polling is slow", func() bool { return g.quiet(st.fakeHost) > time.Minute })
	for range 5 {
		st.tell(func() { st.s.say(member, "live") })
		g.holds(st.fakeHost, st.s)
	}
	if row := g.row(st.fakeHost, "room"); row.EffectiveVerdict() != replica.Verified {
		t.Errorf("%+v", row)
	}
	// the stream drops: what comes meanwhile is polled, and it is opened again
	st.opens(t, "it reads the stream again", func() {
		st.hangUp()
		st.tell(func() { st.s.say(member, "polled") })
		g.holds(st.fakeHost, st.s)
	})
	// an item that is no record ends the stream, and no more
	_, before := st.streams()
	st.tell(func() { st.spoil = []byte(`{"seq":1}`) })
	until(t, "it hangs up", func() bool { _, ended := st.streams(); return ended > before })
	st.tell(func() { st.s.say(member, "after the lie") })
	g.holds(st.fakeHost, st.s)
	// a restart finds its seat
	g.stop()
	until(t, "it has gone", func() bool { return st.reading() == 0 })
	st.opens(t, "it reads the stream after the restart", func() { g = start(t, store, slow) })
	// a pause ends the stream, resume opens it
	if err := g.m.Pause(st.origin()); err != nil {
		t.Fatal(err)
	}
	until(t, "it pauses", func() bool { return st.reading() == 0 })
	st.opens(t, "it reads the stream after the pause", func() {
		g.must(g.m.Resume(st.origin()))
		g.must(g.m.Retry(st.origin())) // not to wait for the next try
	})
	st.mu.Lock()
	if len(st.joins) != 1 || st.leaves != 0 {
		t.Errorf("it joined %d times and left %d times", len(st.joins), st.leaves)
	}
	st.mu.Unlock()
	if err := g.m.Remove(st.origin()); err != nil {
		t.Fatal(err)
	}
	if st.mu.Lock(); st.leaves != 1 {
		t.Errorf("it left %d times", st.leaves)
	}
	st.mu.Unlock()
}

// A look may want a stream and be overtaken by a pause: it is not opened behind that.
func TestPauseGoesBeforeAStream(t *testing.T) {
	st := newStage(t)
	g := start(t, memory(t), observes).observe(st)
	until(t, "it reads the stream", func() bool { return st.reading() == 1 })
	g.must(g.m.Pause(st.origin()))
	h := g.m.host(st.origin())
	streaming := func() int { h.mu.Lock(); defer h.mu.Unlock(); return h.streaming }
	until(t, "it pauses", func() bool { return streaming() == 0 })
	h.mu.Lock()
	v := h.rooms["room"]
	v.streaming = true
	h.streaming++
	h.mu.Unlock()
	h.observe(v) // as the look does
	if n := streaming(); n != 0 || v.streaming {
		t.Errorf("%d streams of a host that is paused", n)
	}
	st.opens(t, "it reads the stream after the pause", func() {
		g.must(g.m.Resume(st.origin()))
		g.must(g.m.Retry(st.origin()))
	})
}

func TestObserverThatIsPutOut(t *testing.T) {
	st := newStage(t)
	g := start(t, memory(t), observes).observe(st)
	until(t, "it reads the stream", func() bool { return st.reading() == 1 })
	st.tell(func() { st.s.add(creator, room.Remove, map[string]any{"member": agent(observer)}) })
	st.hangUp()
	seat := func() string {
		g.m.mu.Lock()
		h := g.m.hosts[st.origin()]
		g.m.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.row.Seats["room"]
	}
	until(t, "it knows that it is out", func() bool { return seat() == seatOut })
	g.holds(st.fakeHost, st.s)
	st.tell(func() { st.s.say(member, "without it") })
	g.holds(st.fakeHost, st.s) // polled
	g.looks(st.fakeHost, 3)
	if st.mu.Lock(); len(st.joins) != 1 {
		t.Errorf("it came back by itself: %d joins", len(st.joins))
	}
	st.mu.Unlock()
	st.opens(t, "it reads the stream again", func() { g.must(g.m.Retry(st.origin())) })
}

func TestObserverThatIsNotLetIn(t *testing.T) {
	for name, prepare := range map[string]func(st *stage){
		"no observers": func(st *stage) {
			st.s = newStory(st.t, "room", map[string]any{"policy": map[string]any{"observer_allowed": false}})
			st.put(st.s)
		},
		"refused": func(st *stage) { st.refuse = string(adp.PermissionDenied) },
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t)
			prepare(st)
			g := start(t, memory(t), observes).observe(st)
			g.holds(st.fakeHost, st.s)
			g.looks(st.fakeHost, 4)
			st.mu.Lock()
			defer st.mu.Unlock()
			if most := map[string]int{"refused": 1}[name]; len(st.joins) > most || len(st.readers) > 0 {
				t.Errorf("%d joins, %d streams", len(st.joins), len(st.readers))
			}
		})
	}
}

// Without the option, or without the means, no host sees a record of ours.
func TestObserverIsOffByDefault(t *testing.T) {
	st := newStage(t)
	g := start(t, memory(t), observes).follow(st.fakeHost)
	g.holds(st.fakeHost, st.s)
	bare := start(t, memory(t), nil).observe(st)
	bare.holds(st.fakeHost, st.s)
	g.looks(st.fakeHost, 4)
	if len(st.joins) != 0 {
		t.Error("it joined")
	}
}

func TestStreamItems(t *testing.T) {
	var got []string
	take := func(event string, data []byte) error { got = append(got, event+"="+string(data)); return nil }
	err := streamItems(strings.NewReader(": open\n\nevent: a\ndata: 1\n\ndata:2\ndata: 3\n\nid: 7\n\nevent: b\n\ndata: x\r\n\ndata: cut"), take)
	if want := "a=1|=2\n3|=x"; err != nil || strings.Join(got, "|") != want {
		t.Errorf("%v %q, want %q", err, got, want)
	}
	for name, text := range map[string]io.Reader{
		"a line without end": io.MultiReader(strings.NewReader("data: "), bytes.NewReader(make([]byte, 2*maxStreamBuf))),
		"lines without end":  strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", maxStreamBuf/1000+10)),
	} {
		if err := streamItems(text, take); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
