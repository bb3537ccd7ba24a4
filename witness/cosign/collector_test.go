package cosign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// asker is a Collector whose witnesses are handlers in this process.
type asker struct {
	t        *testing.T
	st       *store.Store
	log      *world
	clock    *clock
	handlers map[string]http.Handler // by host
	keys     []Asked

	mu    sync.Mutex
	size  int
	asked map[string]int
	shown [][]byte
	c     *Collector
}

func newAsker(t *testing.T, hosts ...string) *asker {
	a := &asker{t: t, st: memory(t), log: newWorld(t, "a", 100), clock: &clock{}, handlers: map[string]http.Handler{}, asked: map[string]int{}}
	a.clock.s.Store(start)
	for _, h := range hosts {
		a.add(h, memory(t))
	}
	return a
}

// add gives the log a witness that is one of ours.
func (a *asker) add(host string, st *store.Store) *Witness {
	o := options(a.t, st)
	seed := "cosigner " + host
	o.Name, o.Key, o.Now = host+Prefix, sameKey(seed), a.clock.now
	w := newWitness(a.t, o)
	mux := web.NewMux()
	w.Routes(mux)
	a.handlers[host] = mux
	a.keys = append(a.keys, Asked{"https://" + host + Prefix + "/", verifier(a.t, o.Name, cosignature.Witness, seed)})
	return w
}

// open makes the Collector anew, as a start does.
func (a *asker) open() *Collector {
	a.c = must[*Collector](a.t)(NewCollector(CollectorOptions{Witnesses: a.keys, Store: a.st, Now: a.clock.now, Do: a.do,
		Every: time.Nanosecond, RetryMin: time.Millisecond, RetryMax: 2 * time.Millisecond,
		Checkpoint: a.checkpoint,
		Prove:      func(from, to uint64) ([][]byte, error) { return a.log.proof(int(from), int(to)), nil },
		Ahead: func(note []byte) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.shown = append(a.shown, note)
		}}))
	return a.c
}

func (a *asker) checkpoint() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.size == 0 {
		return nil
	}
	return a.log.sign(a.log.at(a.size).Text())
}

func (a *asker) grow(size int) {
	a.mu.Lock()
	a.size = size
	a.mu.Unlock()
	a.c.Grown()
}

func (a *asker) do(ctx context.Context, r fetch.Request) (*fetch.Response, error) {
	host, path, _ := strings.Cut(strings.TrimPrefix(r.URL, "https://"), "/")
	a.mu.Lock()
	a.asked[host]++
	h := a.handlers[host]
	a.mu.Unlock()
	if h == nil {
		return nil, &fetch.Error{Kind: fetch.Refused, URL: r.URL, Err: errors.New("nobody is there")}
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, max(r.Method, "GET"), "/"+path, bytes.NewReader(r.Body)))
	return &fetch.Response{Status: rec.Code, Header: rec.Header(), Body: rec.Body.Bytes(), URL: r.URL}, nil
}

// run lets the Collector work until the test, or stop, ends it.
func (a *asker) run() (stop func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan struct{})
	c := a.c
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			a.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	a.t.Cleanup(stop)
	return stop
}

// cosigners are the witnesses whose cosignature a note has, all of which must hold.
func (a *asker) cosigners(signed []byte) (names []string) {
	a.t.Helper()
	for _, k := range a.keys {
		if _, _, err := cosignature.Open(signed, k.Key); err == nil {
			names = append(names, k.Key.Name())
		} else if strings.Contains(string(signed), "— "+k.Key.Name()+" ") {
			a.t.Errorf("a bad line of %s: %v in %s", k.Key.Name(), err, signed)
		}
	}
	return names
}

// patience is how long a test waits for what must come: longer than the most overloaded
// machine takes.
const patience = 3 * time.Minute

func (a *asker) until(what string, ok func() bool) {
	a.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			a.t.Fatalf("waited for %s: %+v", what, a.c.Status())
		}
		<-time.After(time.Millisecond)
	}
}

func (a *asker) served(n int) func() bool {
	return func() bool { return len(a.cosigners(a.c.Cosigned(a.checkpoint()))) == n }
}

func (a *asker) count(host string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[host]
}

func TestCollect(t *testing.T) {
	a := newAsker(t, "w1", "w2")
	a.open()
	if n := a.c.Cosigned(nil); len(n) != 0 || a.c.Newest() != nil {
		t.Error(n)
	}
	stop := a.run()
	for _, size := range []int{1, 2, 7, 64, 65} {
		a.grow(size)
		if len(a.cosigners(a.checkpoint())) != 0 {
			t.Fatal("signed already")
		}
		a.until("both witnesses", a.served(2))
		signed := a.c.Cosigned(a.checkpoint())
		c, sigs, err := cosignature.Open(signed, verifier(t, logOrigin, cosignature.Log, "log"))
		if err != nil || len(sigs) != 1 || c != a.log.at(size) {
			t.Fatal(c, sigs, err)
		}
		if newest := a.c.Newest(); !bytes.Equal(newest, signed) {
			t.Errorf("%s", newest)
		}
	}
	stop()
	// what was collected is there after a restart, and goes on from there
	asked := a.count("w1")
	a.open()
	if !a.served(2)() {
		t.Fatal("the cosignatures are gone after a restart")
	}
	for _, s := range a.c.Status() {
		if s.Size != 65 || s.Time != start || s.Error != "" {
			t.Errorf("%+v", s)
		}
	}
	a.grow(70) // before it runs: after a start each is asked once, about whatever is newest then
	a.run()
	a.until("both witnesses", a.served(2))
	if n := a.count("w1"); n != asked+1 {
		t.Errorf("asked %d times more", n-asked)
	}
}

// The store was replaced by an empty one: the witness says what it has.
func TestConflictTellsTheSize(t *testing.T) {
	a := newAsker(t, "w1")
	a.open()
	stop := a.run()
	a.grow(9)
	a.until("the witness", a.served(1))
	stop()
	a.st = memory(t)
	a.open()
	a.grow(12) // before it runs: else it may ask about the smaller log first
	a.run()
	a.until("the witness", a.served(1))
	if n := a.count("w1"); n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// A witness that is off, slow or wrong holds up nothing; once it is right again, it
// is asked for the newest checkpoint.
func TestBadWitnesses(t *testing.T) {
	another := newWorld(t, "a", 100)
	answer := func(code int, typ, body string) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { write(rw, code, typ, []byte(body)) })
	}
	line := func(name, seed string, c cosignature.Checkpoint, at int64) string {
		return must[string](t)(cosignature.Cosign(name, key(seed), c.Text(), at))
	}
	now := int64(start)
	for _, bad := range []struct {
		name string
		h    http.Handler
		want string
	}{
		{"off", nil, "nobody is there"},
		{"404", answer(404, "text/plain", "?"), "does not witness our log"},
		{"403", answer(403, "text/plain", "?"), "does not know the key"},
		{"400", answer(400, "text/plain", "?"), "does not understand"},
		{"422", answer(422, "text/plain", "?"), "does not follow"},
		{"500", answer(500, "text/plain", "?"), "status 500"},
		{"429", answer(429, "text/plain", "?"), "patience"},
		{"409 without a size", answer(409, "text/plain", "3\n"), "another tree"},
		{"409 of no number", answer(409, "text/x.tlog.size", "03\n"), "another tree"},
		{"409 of the size that was sent", answer(409, "text/x.tlog.size", "1\n"), "another tree"},
		{"409 each time", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body := must[[]byte](t)(web.ReadBody(rw, r, 1<<20))
			q := must[cosignature.Request](t)(cosignature.ParseRequest(body))
			write(rw, 409, cosignature.SizeType, cosignature.SizeText((q.Old+1)%2))
		}), "another size"},
		{"nothing", answer(200, "text/plain", ""), "is not a cosignature"},
		{"no line", answer(200, "text/plain", "yes\n"), "is not a cosignature"},
		{"by another key", answer(200, "text/plain", line("bad"+Prefix, "x", another.at(2), now)), "is not a cosignature"},
		{"of another size", answer(200, "text/plain", line("bad"+Prefix, "cosigner bad", another.at(3), now)), "is not a cosignature"},
		{"of the future", answer(200, "text/plain", line("bad"+Prefix, "cosigner bad", another.at(2), now+7200)), "clocks"},
		{"for ever", answer(200, "text/plain", strings.Repeat("—", 5000)), "is not a cosignature"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			a := newAsker(t, "good", "bad")
			right := a.handlers["bad"]
			a.open()
			a.run()
			a.grow(1)
			a.until("both", a.served(2))
			a.mu.Lock()
			a.handlers["bad"] = bad.h
			a.mu.Unlock()
			a.grow(2)
			a.until("the good one", a.served(1))
			a.until("an error", func() bool { return strings.Contains(a.c.Status()[1].Error, bad.want) })
			if names := a.cosigners(a.c.Cosigned(a.checkpoint())); len(names) != 1 || names[0] != "good"+Prefix {
				t.Error(names)
			}
			a.grow(5)
			a.until("the good one", a.served(1))
			a.mu.Lock()
			a.handlers["bad"] = right
			a.mu.Unlock()
			a.until("the bad one, made good", a.served(2))
			a.until("no error", func() bool { s := a.c.Status()[1]; return s.Error == "" && s.Size == 5 })
		})
	}
}

// A witness has seen more of our log than we hold: what it shows is handed on, and
// only that; its word alone changes nothing.
func TestAhead(t *testing.T) {
	a := newAsker(t, "w1")
	a.open()
	stop := a.run()
	a.grow(9)
	a.until("the witness", a.served(1))
	stop()

	a.st = memory(t) // an older copy
	a.open()
	a.grow(5) // before it runs: else it may ask about the newer log first
	a.run()
	a.until("what the witness shows", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.shown) > 0 })
	a.mu.Lock()
	c, _, err := cosignature.Open(a.shown[0], verifier(t, logOrigin, cosignature.Log, "log"))
	a.mu.Unlock()
	if err != nil || c != a.log.at(9) {
		t.Error(c, err)
	}
	a.until("an error", func() bool { return strings.Contains(a.c.Status()[0].Error, "an older copy") })
	if !a.served(0)() {
		t.Error("a cosignature of what was refused")
	}
}

// Another log, as after it had to begin again, begins with the witness at 0.
func TestAnotherLog(t *testing.T) {
	a := newAsker(t)
	o := options(t, memory(t))
	o.Name, o.Key, o.Now = "w1"+Prefix, sameKey("cosigner w1"), a.clock.now
	o.Logs = append(o.Logs, Log{logOrigin + "/2", verifier(t, logOrigin+"/2", cosignature.Log, "log")})
	w := newWitness(t, o)
	mux := web.NewMux()
	w.Routes(mux)
	a.handlers["w1"] = mux
	a.keys = []Asked{{"https://w1" + Prefix, verifier(t, o.Name, cosignature.Witness, "cosigner w1")}}
	a.open()
	a.run()
	a.grow(9)
	a.until("the witness", a.served(1))
	a.mu.Lock()
	a.log = newWorld(t, "b", 100)
	a.log.origin, a.size = logOrigin+"/2", 3
	a.mu.Unlock()
	a.c.Grown()
	a.until("the witness", a.served(1))
	if n := a.count("w1"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestCollectorOptions(t *testing.T) {
	a := newAsker(t, "w1")
	good := CollectorOptions{Witnesses: a.keys, Store: a.st, Do: a.do, Checkpoint: a.checkpoint, Prove: func(uint64, uint64) ([][]byte, error) { return nil, nil }}
	if _, err := NewCollector(good); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(*CollectorOptions){
		func(o *CollectorOptions) { o.Store = nil },
		func(o *CollectorOptions) { o.Witnesses = []Asked{{"https://w", nil}} },
		func(o *CollectorOptions) {
			o.Witnesses = []Asked{{"https://w", verifier(t, "w", cosignature.Log, "w")}}
		},
		func(o *CollectorOptions) { o.Witnesses = []Asked{{"w", a.keys[0].Key}} },
		func(o *CollectorOptions) { o.Witnesses = make([]Asked, MaxWitnesses+1) },
	} {
		o := good
		change(&o)
		if _, err := NewCollector(o); err == nil {
			t.Error(fmt.Sprint("options ", i, " are taken"))
		}
	}
	var b store.Batch
	b.Put(store.Meta(collectedName), []byte("{"))
	if err := a.st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := NewCollector(good); err == nil {
		t.Error("what is damaged is taken")
	}
}

// After a start each witness is asked once, although the store holds its cosignature of
// the newest checkpoint: the store may be an older copy.
func TestWitnessIsAskedAfterEachStart(t *testing.T) {
	a := newAsker(t, "w.example")
	agreed, doubts := make(chan struct{}, 100), make(chan string, 10)
	open := func() (stop func()) {
		a.open()
		a.c.o.Agreed = func(string) { agreed <- struct{}{} }
		a.c.o.Doubts = func(name, line, reason string) {
			if line != logOrigin {
				t.Error(line)
			}
			select {
			case doubts <- name + ": " + reason:
			default: // it is said again and again, as often as the witness is asked
			}
		}
		return a.run()
	}
	wait := func() {
		t.Helper()
		select {
		case <-agreed:
		case <-time.After(patience):
			t.Fatalf("nobody agreed: %+v", a.c.Status())
		}
	}
	stop := open()
	a.grow(5)
	wait()
	stop()
	var older bytes.Buffer
	if err := a.st.Backup(&older); err != nil {
		t.Fatal(err)
	}
	asked := a.count("w.example")
	stop = open()
	wait()
	if n := a.count("w.example"); n != asked+1 {
		t.Errorf("asked %d times", n-asked)
	}
	a.grow(9)
	wait()
	stop()
	a.st = memory(t)
	if err := a.st.Restore(&older); err != nil {
		t.Fatal(err)
	}
	a.size = 5 // as the restored store holds it
	handler := a.handlers["w.example"]
	stop = open()
	a.until("the checkpoint that the witness has seen", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.shown) > 0 && strings.Contains(string(a.shown[0]), "\n9\n")
	})
	if len(agreed) != 0 {
		t.Error("a witness agreed that has seen more")
	}
	if said := <-doubts; !strings.HasPrefix(said, "w.example/witness: it says that it has cosigned 9 entries of our log, and this store holds 5") {
		t.Error(said)
	}
	stop()
	a.handlers["w.example"] = nil // it is away: what it said is remembered
	for len(doubts) > 0 {
		<-doubts
	}
	stop = open()
	if said := <-doubts; !strings.Contains(said, "cosigned 9") {
		t.Error(said)
	}
	stop()
	a.mu.Lock()
	a.size = 9 // the newest store is back, and so is the witness
	a.handlers["w.example"] = handler
	a.mu.Unlock()
	open()
	wait()
}
