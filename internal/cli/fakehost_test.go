package cli

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
)

// fakeHost is a small ADP host in memory that fails in the ways that a script asks for.
type fakeHost struct {
	srv *httptest.Server

	mu     sync.Mutex
	rooms  map[string]*fakeRoom
	nonces map[adp.AgentID]int64
	faults map[string]int
	paths  []string
	moved  chan struct{} // closed, and replaced, at whatever happens
	rival  ed25519.PrivateKey
}

type fakeRoom struct {
	state    *room.State
	chain    room.MemoryChain
	records  []*adp.Record
	requests map[string]*room.JoinRequest
	bundle   []byte
	manifest []byte
}

func newFakeHost() *fakeHost {
	h := &fakeHost{rooms: map[string]*fakeRoom{}, nonces: map[adp.AgentID]int64{}, faults: map[string]int{}, moved: make(chan struct{}), rival: inspecttest.Key(77)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/rooms", h.create)
	mux.HandleFunc("POST /v1/rooms/{id}", h.write)
	mux.HandleFunc("GET /v1/rooms/public", h.public)
	mux.HandleFunc("GET /v1/rooms/{id}", h.show)
	mux.HandleFunc("GET /v1/rooms/{id}/events", h.events)
	mux.HandleFunc("GET /v1/rooms/{id}/events/live", h.live)
	mux.HandleFunc("GET /v1/rooms/{id}/archive", h.archive)
	mux.HandleFunc("GET /v1/rooms/{id}/archive.jsonl", h.archive)
	mux.HandleFunc("/v1/rooms/{id}/join-requests", h.joinRequests)
	mux.HandleFunc("GET /v1/rooms/{id}/join-requests/{request}", h.joinRequests)
	mux.HandleFunc("GET /v1/index/rooms", h.index)
	mux.HandleFunc("GET /federation/v1/hosts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, []any{map[string]any{"origin": "https://good.example", "state": "following", "since": 1779753600000, "rooms": 2, "records": 40},
			map[string]any{"origin": "https://gone.example", "state": "backing-off", "since": 1779753600000, "rooms": 1, "records": 2, "reason": "refused\u001b[2J", "next_try": 1779753660000}})
	})
	mux.HandleFunc("GET /v1/witness/attestations", h.attestations)
	h.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.paths = append(h.paths, r.Method+" "+r.URL.RequestURI())
		h.signal()
		h.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	h.srv.Start() // sets its URL before the first request
	return h
}

func (h *fakeHost) url() string { return h.srv.URL }

func (h *fakeHost) close() { h.srv.CloseClientConnections(); h.srv.Close() }

func (h *fakeHost) signal() { close(h.moved); h.moved = make(chan struct{}) }

func (h *fakeHost) fail(fault string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[fault] = n
}

// fails takes one failure of a kind; h.mu is held.
func (h *fakeHost) fails(fault string) bool {
	if h.faults[fault] == 0 {
		return false
	}
	h.faults[fault]--
	return true
}

// forget makes asked wait for what comes from now on.
func (h *fakeHost) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paths = nil
}

// asked waits for a request, and forgets it and those before.
func (h *fakeHost) asked(part string) error {
	limit := time.After(patience)
	for {
		h.mu.Lock()
		moved := h.moved
		for i, p := range h.paths {
			if strings.Contains(p, part) {
				h.paths = h.paths[i+1:]
				h.mu.Unlock()
				return nil
			}
		}
		h.mu.Unlock()
		select {
		case <-moved:
		case <-limit:
			return fmt.Errorf("nobody asked for %q", part)
		}
	}
}

func answer(w http.ResponseWriter, status int, x any) {
	b, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func refuse(w http.ResponseWriter, status int, err error) {
	var e *adp.Error
	if !errors.As(err, &e) {
		e = adp.Errorf(adp.Internal, "%v", err)
	}
	if n, ok := e.Data["max_seen_nonce"].(int64); ok {
		w.Header().Set("Max-Seen-Nonce", strconv.FormatInt(n, 10))
	}
	answer(w, status, map[string]any{"error": map[string]any{"code": e.Code, "message": e.Message, "data": e.Data}})
}

func (h *fakeHost) caller(r *http.Request) adp.AgentID {
	id, _ := adp.VerifyToken(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), h.url(), time.Now().Unix())
	return id
}

// enter finds the room of a request and locks the host. A room that the caller may not see answers 404.
func (h *fakeHost) enter(w http.ResponseWriter, r *http.Request, members bool) (*fakeRoom, bool) {
	who := h.caller(r)
	h.mu.Lock()
	f := h.rooms[r.PathValue("id")]
	if f == nil || f.state.Contract.Visibility == room.Private && !f.state.MayRead(who) && !f.approved(who) {
		h.mu.Unlock()
		refuse(w, 404, adp.Errorf(adp.RoomNotFound, "there is no such room here"))
		return nil, false
	}
	if members && !f.state.MayRead(who) {
		h.mu.Unlock()
		if who == "" {
			refuse(w, 401, adp.Errorf(adp.InvalidToken, "this needs a token"))
		} else {
			refuse(w, 403, adp.Errorf(adp.MembershipRequired, "members only"))
		}
		return nil, false
	}
	return f, true
}

// approved tells whether an applicant may read the room in order to join it (ADP §11).
func (f *fakeRoom) approved(who adp.AgentID) bool {
	for _, q := range f.requests {
		if q.Applicant == who && q.Status == "approved" {
			return true
		}
	}
	return false
}

// accept judges an envelope and appends its record; h.mu is held.
func (h *fakeHost) accept(f *fakeRoom, e *adp.Envelope) (*adp.Record, error) {
	if seq, ok := f.chain.SeqOf(e.Hash); ok {
		return nil, adp.Errorf(adp.NonceNotGreater, "accepted before").With("max_seen_nonce", h.nonces[e.Actor]).With("record", json.RawMessage(f.records[seq-1].JSON()))
	}
	if h.fails("nonce") {
		h.nonces[e.Actor] = e.Nonce + 5000
	}
	if e.Nonce <= h.nonces[e.Actor] {
		return nil, adp.Errorf(adp.NonceNotGreater, "the nonce must be greater").With("max_seen_nonce", h.nonces[e.Actor])
	}
	now := max(time.Now().UnixMilli(), f.state.ReceivedAt)
	ch, err := f.state.Apply(e, room.Context{At: now, Chain: &f.chain, Live: &room.Live{Request: func(id string) (room.JoinRequest, bool) {
		q, ok := f.requests[id]
		if !ok {
			return room.JoinRequest{}, false
		}
		return *q, true
	}}})
	if err != nil {
		return nil, err
	}
	rec := adp.NewRecord(e, f.state.RoomID, f.state.Last.Seq+1, f.state.Last.Hash, now)
	if err := f.state.Advance(rec, ch); err != nil {
		return nil, err
	}
	f.chain.Add(rec)
	f.records = append(f.records, rec)
	h.nonces[e.Actor] = e.Nonce
	if q := f.requests[ch.RequestID]; q != nil {
		q.Consumed, q.ApprovedRole, q.Status = ch.Request.Consumed, ch.Request.Role, "approved"
		if q.ApprovedRole == "" {
			q.Status = "rejected"
		}
	}
	if ch.Close {
		h.bundle(f)
	}
	h.signal()
	return rec, nil
}

func (h *fakeHost) bundle(f *fakeRoom) {
	var d adp.Digest
	for _, r := range f.records {
		d.Add(r)
	}
	url := h.url() + "/v1/rooms/" + f.state.RoomID
	now := time.Now().UnixMilli()
	m := adp.Manifest{Host: strings.TrimPrefix(h.url(), "http://"), URL: url, GeneratedAt: now, Summary: d.Summary(), Room: f.state.Resource(url, now)}
	f.manifest, f.bundle = inspecttest.SealManifest(m, f.records)
}

func readEnvelope(r *http.Request) (*adp.Envelope, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	v, err := adp.Scan(body)
	if err != nil {
		return nil, err
	}
	e, err := adp.ParseEnvelope(v)
	if err == nil {
		err = errors.Join(e.CheckShape(), e.CheckHash(), e.CheckSignature())
	}
	return e, err
}

// lost cuts the connection in place of an answer.
func (h *fakeHost) lost(w http.ResponseWriter) bool {
	if !h.fails("lose") {
		return false
	}
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		err = c.Close()
	}
	return err == nil
}

func (h *fakeHost) create(w http.ResponseWriter, r *http.Request) {
	e, err := readEnvelope(r)
	if err != nil {
		refuse(w, 400, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var rec *adp.Record
	for _, f := range h.rooms { // the same envelope again
		if f.records[0].Envelope.Hash == e.Hash {
			_, err := h.accept(f, e)
			refuse(w, 409, err)
			return
		}
	}
	id := fmt.Sprintf("room-%d", len(h.rooms)+1)
	f := &fakeRoom{state: room.New(id), requests: map[string]*room.JoinRequest{}}
	if rec, err = h.accept(f, e); err != nil {
		refuse(w, 400, err)
		return
	}
	h.rooms[id] = f
	if h.lost(w) {
		return
	}
	hash := rec.Hash
	if h.fails("other-record") {
		hash = adp.Encode(make([]byte, 32))
	}
	answer(w, 201, map[string]any{"id": id, "status": f.state.StatusAt(rec.ReceivedAt), "url": h.url() + "/v1/rooms/" + id, "seq": 1, "pre_hash": nil, "hash": hash, "received_at": rec.ReceivedAt})
}

func (h *fakeHost) write(w http.ResponseWriter, r *http.Request) {
	e, err := readEnvelope(r)
	if err != nil {
		refuse(w, 400, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.rooms[r.PathValue("id")]
	if f == nil {
		refuse(w, 404, adp.Errorf(adp.RoomNotFound, "there is no such room here"))
		return
	}
	if h.fails("race") {
		h.rivalSays(f)
	}
	rec, err := h.accept(f, e)
	switch {
	case h.lost(w):
	case err != nil:
		refuse(w, 409, err)
	case h.fails("other-record"):
		answer(w, 200, json.RawMessage(f.records[0].JSON()))
	default:
		answer(w, 200, json.RawMessage(rec.JSON()))
	}
}

// rivalSays lets another member be faster.
func (h *fakeHost) rivalSays(f *fakeRoom) {
	say := func(typ string, payload any) {
		id := adp.NewAgentID(h.rival.Public().(ed25519.PublicKey))
		e, err := adp.Sign(h.rival, adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: time.Now().UnixMilli(), Nonce: max(h.nonces[id]+1, time.Now().UnixMilli()),
			Payload: payload, RoomID: f.state.RoomID, BaseSeq: f.state.Head.Seq, BaseHash: f.state.Head.Hash})
		if err == nil {
			_, err = h.accept(f, e)
		}
		if err != nil {
			panic(err)
		}
	}
	if !f.state.IsMember(adp.NewAgentID(h.rival.Public().(ed25519.PublicKey))) {
		say(room.Join, map[string]any{"role": "speaker"})
	}
	say(room.Message, map[string]any{"content_type": "text/plain", "content": "me first"})
}
