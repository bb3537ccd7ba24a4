package mirror

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

func key(b byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, 32)) }

func agent(b byte) adp.AgentID { return adp.NewAgentID(key(b).Public().(ed25519.PublicKey)) }

// story builds the records of one room, as an honest host would accept them. It
// holds them by value of their text, so that tests can tamper with a copy.
type story struct {
	t    testing.TB
	id   string
	recs []*adp.Record
	head adp.Record
	at   int64
}

const (
	creator = 1
	member  = 2
	foreign = 3
)

// stories makes each story another one.
var stories atomic.Int64

// newStory creates a room that began an hour ago and lasts another hour.
func newStory(t testing.TB, id string, over map[string]any) *story {
	t.Helper()
	s := &story{t: t, id: id, at: time.Now().UnixMilli() - 600_000}
	payload := map[string]any{"topic": fmt.Sprintf("Room %s, %d", id, stories.Add(1)), "visibility": "public", "start_time": s.at - 1000, "end_time": s.at + 4_200_000}
	for k, v := range over {
		payload[k] = v
	}
	s.add(creator, room.Create, payload)
	return s
}

func (s *story) add(by byte, typ string, payload any) *adp.Record {
	s.t.Helper()
	s.at++
	d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: s.at, Nonce: s.at, Payload: payload}
	pre := ""
	if len(s.recs) > 0 {
		d.RoomID, d.BaseSeq, d.BaseHash = s.id, s.head.Seq, s.head.Hash
		pre = s.recs[len(s.recs)-1].Hash
	}
	e, err := adp.Sign(key(by), d)
	if err != nil {
		s.t.Fatal(err)
	}
	r := adp.NewRecord(e, s.id, int64(len(s.recs)+1), pre, s.at)
	s.recs = append(s.recs, r)
	if movesHead(typ) {
		s.head = *r
	}
	return r
}

// movesHead tells of the events that the tests make (ADP §6.1).
func movesHead(typ string) bool { return typ != room.Join && typ != room.Leave && typ != room.Remove }

func (s *story) say(by byte, text string) {
	s.add(by, room.Message, map[string]any{"content_type": "text/plain", "content": text})
}

// talk makes a room with a member and messages, n records in all.
func talk(t testing.TB, id string, n int) *story {
	t.Helper()
	s := newStory(t, id, nil)
	s.add(member, room.Join, map[string]any{"role": "speaker"})
	for len(s.recs) < n {
		s.say(member, fmt.Sprintf("message %d", len(s.recs)))
	}
	return s
}

// cut is the same story up to a seq, to go on in another way.
func (s *story) cut(n int) *story {
	c := &story{t: s.t, id: s.id, recs: slices.Clone(s.recs[:n]), at: s.at + 1000}
	for _, r := range c.recs {
		if movesHead(r.Envelope.Type) {
			c.head = *r
		}
	}
	return c
}

func (s *story) texts() (out [][]byte) {
	for _, r := range s.recs {
		out = append(out, r.JSON())
	}
	return out
}

// fakeRoom is what a fake host says of a room: whatever a test wants.
type fakeRoom struct {
	visibility, status string
	texts              [][]byte
	seq                int64 // as listed
	hash               string
	manifest           []byte
	unlisted           bool
}

func public(s *story) *fakeRoom {
	last := s.recs[len(s.recs)-1]
	return &fakeRoom{visibility: room.Public, status: string(room.Active), texts: s.texts(), seq: last.Seq, hash: last.Hash}
}

// fakeHost is a plain ADP host made of data, which a test may change or take
// over request by request.
type fakeHost struct {
	t   testing.TB
	srv *httptest.Server

	mu       sync.Mutex
	rooms    map[string]*fakeRoom
	asked    map[string]int // requests by path and query
	pageSize int            // of events
	listSize int
	did      []byte
	answer   func(w http.ResponseWriter, r *http.Request) bool
}

func newFakeHost(t testing.TB) *fakeHost {
	h := &fakeHost{t: t, rooms: map[string]*fakeRoom{}, asked: map[string]int{}, pageSize: 1000, listSize: 100}
	h.srv = httptest.NewServer(h)
	t.Cleanup(h.srv.Close)
	return h
}

func (h *fakeHost) origin() string { return h.srv.URL }

func (h *fakeHost) authority() string { return strings.TrimPrefix(h.srv.URL, "http://") }

// set changes the host between two requests.
func (h *fakeHost) set(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn()
}

func (h *fakeHost) put(rooms ...*story) {
	h.set(func() {
		for _, s := range rooms {
			h.rooms[s.id] = public(s)
		}
	})
}

// putAs is put with other records than those of the story, in one step: what is shown for a
// moment between two may be copied.
func (h *fakeHost) putAs(s *story, texts [][]byte) {
	shown := public(s)
	shown.texts = texts
	h.set(func() { h.rooms[s.id] = shown })
}

func (h *fakeHost) takeOver(fn func(w http.ResponseWriter, r *http.Request) bool) {
	h.set(func() { h.answer = fn })
}

// count tells how often a path (with its query, if given) was asked for.
func (h *fakeHost) count(path string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uri, k := range h.asked {
		if uri == path || strings.HasPrefix(uri, path+"?") {
			n += k
		}
	}
	return n
}

func (h *fakeHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked[r.RequestURI]++
	if h.answer != nil && h.answer(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch path := r.URL.Path; {
	case path == "/.well-known/agent-discourse":
		fmt.Fprintf(w, `{"protocol":"agent-discourse/1.0","endpoints":{"api":%q}}`, h.srv.URL+"/v1")
	case path == "/.well-known/did.json" && h.did != nil:
		_, _ = w.Write(h.did)
	case path == "/v1/rooms/public":
		h.list(w, r)
	case strings.HasPrefix(path, "/v1/rooms/"):
		id, rest, _ := strings.Cut(strings.TrimPrefix(path, "/v1/rooms/"), "/")
		if room := h.rooms[id]; room != nil {
			h.room(w, r, id, rest, room)
			return
		}
		refuse(w, 404, "room_not_found")
	default:
		refuse(w, 404, "not_found")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":"no","data":{}}}`, code)
}

func (h *fakeHost) resource(id string, room *fakeRoom) []byte {
	b, err := json.Marshal(map[string]any{"id": id, "visibility": room.visibility, "status": room.status, "topic": "t", "seq": room.seq, "hash": room.hash})
	if err != nil {
		h.t.Error(err)
	}
	return b
}

func (h *fakeHost) list(w http.ResponseWriter, r *http.Request) {
	var ids []string
	for id, room := range h.rooms {
		if !room.unlisted && id > r.URL.Query().Get("cursor") {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if len(ids) > h.listSize {
		ids = ids[:h.listSize]
		w.Header().Set("Link", fmt.Sprintf(`<%s/v1/rooms/public?cursor=%s>; rel="next"`, h.srv.URL, ids[len(ids)-1]))
	}
	var items [][]byte
	for _, id := range ids {
		items = append(items, h.resource(id, h.rooms[id]))
	}
	fmt.Fprintf(w, "[%s]", bytes.Join(items, []byte(",")))
}

func (h *fakeHost) room(w http.ResponseWriter, r *http.Request, id, rest string, room *fakeRoom) {
	switch rest {
	case "":
		_, _ = w.Write(h.resource(id, room))
	case "events":
		after, _ := strconv.Atoi(r.URL.Query().Get("after_seq"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		texts := room.texts[min(after, len(room.texts)):]
		fmt.Fprintf(w, "[%s]", bytes.Join(texts[:min(len(texts), limit, h.pageSize)], []byte(",")))
	case "archive":
		if room.manifest == nil {
			refuse(w, 409, "room_not_active")
			return
		}
		_, _ = w.Write(room.manifest)
	default:
		refuse(w, 404, "not_found")
	}
}
