package mirror

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/adp/room"
)

// fleet is many ADP hosts behind one listener. They are told apart by address: all
// of 127.0.0.0/8 is this machine, so that host n is 127.1.x.y with the fleet's port.
type fleet struct {
	t    testing.TB
	port int
	srv  *http.Server
	// before is called before a request is answered; may be nil
	before func(h *fleetHost, r *http.Request)

	mu    sync.Mutex
	hosts map[string]*fleetHost // by authority

	present, peak atomic.Int64 // requests in work
}

// fleetHost serves rooms that do not change. Rooms may be shared by hosts: nothing
// in a record names its host.
type fleetHost struct {
	name  string // authority
	list  []byte // the whole room list
	rooms map[string][][]byte
	stall func(done <-chan struct{}) // before events are answered; may be nil

	mu            sync.Mutex
	asked         int
	present, most int // requests in work, at a time
	last          string
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, port: ln.Addr().(*net.TCPAddr).Port, hosts: map[string]*fleetHost{}}
	f.srv = &http.Server{Handler: f}
	served := make(chan error, 1)
	go func() { served <- f.srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = f.srv.Close()
		<-served
	})
	return f
}

// add makes host n with rooms.
func (f *fleet) add(n int, stories ...*story) *fleetHost {
	h := &fleetHost{name: fmt.Sprintf("127.1.%d.%d:%d", n/250, n%250+1, f.port), rooms: map[string][][]byte{}}
	var list [][]byte
	for _, s := range stories {
		last := s.recs[len(s.recs)-1]
		h.rooms[s.id] = s.texts()
		list = append(list, fmt.Appendf(nil, `{"hash":%q,"id":%q,"seq":%d,"status":"active","topic":"t","visibility":%q}`, last.Hash, s.id, last.Seq, room.Public))
	}
	h.list = append(append([]byte{'['}, bytes.Join(list, []byte(","))...), ']')
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[h.name] = h
	return h
}

func (h *fleetHost) origin() string { return "http://" + h.name }

func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	h := f.hosts[r.Host]
	f.mu.Unlock()
	if h == nil {
		refuse(w, 404, "not_found")
		return
	}
	for n := f.present.Add(1); ; {
		old := f.peak.Load()
		if n <= old || f.peak.CompareAndSwap(old, n) {
			break
		}
	}
	defer f.present.Add(-1)
	h.begin(r.RequestURI)
	defer h.end()
	if f.before != nil {
		f.before(h, r)
	}
	h.serve(w, r)
}

func (h *fleetHost) begin(uri string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	h.present++
	h.most = max(h.most, h.present)
	h.last = uri
}

func (h *fleetHost) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.present--
}

func (h *fleetHost) requests() (n, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked, h.most
}

func (h *fleetHost) serve(w http.ResponseWriter, r *http.Request) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/rooms/"), "/")
	w.Header().Set("Content-Type", apiType)
	switch {
	case r.URL.Path == "/.well-known/agent-discourse":
		fmt.Fprintf(w, `{"protocol":"agent-discourse/1.0","endpoints":{"api":"http://%s/v1"}}`, h.name)
	case r.URL.Path == "/v1/rooms/public":
		_, _ = w.Write(h.list)
	case rest == "events" && h.rooms[id] != nil:
		if h.stall != nil {
			if h.stall(r.Context().Done()); r.URL.Query().Get("after_seq") == "0" {
				refuse(w, 503, "internal")
				return
			}
		}
		after, _ := strconv.Atoi(r.URL.Query().Get("after_seq"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		texts := h.rooms[id]
		texts = texts[min(after, len(texts)):]
		fmt.Fprintf(w, "[%s]", bytes.Join(texts[:min(len(texts), limit)], []byte(",")))
	default:
		refuse(w, 404, "not_found")
	}
}
