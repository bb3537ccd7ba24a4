package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
)

// What the fake host answers to those who read.

func (h *fakeHost) show(w http.ResponseWriter, r *http.Request) {
	f, ok := h.enter(w, r, false)
	if !ok {
		return
	}
	defer h.mu.Unlock()
	raw := f.state.Resource(h.url()+"/v1/rooms/"+f.state.RoomID, time.Now().UnixMilli())
	if h.fails("lie-head") {
		raw = bytes.ReplaceAll(raw, []byte(f.state.Last.Hash), []byte(adp.Encode(make([]byte, 32))))
	}
	answer(w, 200, json.RawMessage(raw))
}

func (h *fakeHost) public(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []json.RawMessage{}
	for i := 1; i <= len(h.rooms); i++ { // a page holds one room
		id := fmt.Sprintf("room-%d", i)
		if f := h.rooms[id]; f.state.Contract.Visibility == room.Public && r.URL.Query().Get("cursor") < id {
			if list = append(list, f.state.Listed(h.url()+"/v1/rooms/"+id, time.Now().UnixMilli())); i < len(h.rooms) {
				next := h.url()
				if h.fails("foreign-link") {
					next = "http://127.0.0.2"
				}
				w.Header().Set("Link", fmt.Sprintf(`<%s/v1/rooms/public?cursor=%s>; rel="next"`, next, id))
			}
			break
		}
	}
	answer(w, 200, list)
}

func (h *fakeHost) events(w http.ResponseWriter, r *http.Request) {
	f, ok := h.enter(w, r, true)
	if !ok {
		return
	}
	defer h.mu.Unlock()
	after, _ := strconv.Atoi(r.URL.Query().Get("after_seq"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if h.fails("down") {
		refuse(w, 503, adp.Errorf(adp.Internal, "down for a moment"))
		return
	}
	if r.URL.Query().Has("wait") {
		until := time.After(25 * time.Second)
		for after >= len(f.records) && f.state.StatusAt(time.Now().UnixMilli()) == room.Active && r.Context().Err() == nil {
			moved := h.moved
			h.mu.Unlock()
			select {
			case <-moved:
			case <-until:
			case <-r.Context().Done():
			}
			h.mu.Lock()
		}
	}
	list := []json.RawMessage{}
	for i := after; i < len(f.records) && len(list) < limit; i++ {
		text := f.records[i].JSON()
		if n := h.faults["lie"]; n > 0 && i+1 >= n {
			text = bytes.Replace(text, []byte("text/plain"), []byte("text/plane"), 1)
		}
		list = append(list, text)
	}
	answer(w, 200, list)
}

func (h *fakeHost) live(w http.ResponseWriter, r *http.Request) {
	who := h.caller(r)
	f, ok := h.enter(w, r, true)
	if !ok {
		return
	}
	defer h.mu.Unlock()
	if !f.state.IsMember(who) {
		refuse(w, 403, adp.Errorf(adp.MembershipRequired, "members only"))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(200)
	fmt.Fprint(w, ": hello\n\nevent: room.agent_status\ndata: {}\n\n")
	seq := max(0, len(f.records)-1) // one again that the history has
	for cut := h.fails("cut"); ; {
		for ; seq < len(f.records); seq++ {
			fmt.Fprintf(w, "event: room.event\r\ndata: %s\r\n\r\n", f.records[seq].JSON())
		}
		w.(http.Flusher).Flush()
		if cut || f.state.StatusAt(time.Now().UnixMilli()) != room.Active {
			return
		}
		moved := h.moved
		h.mu.Unlock()
		select {
		case <-moved:
		case <-r.Context().Done():
		}
		h.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}

func (h *fakeHost) archive(w http.ResponseWriter, r *http.Request) {
	f, ok := h.enter(w, r, true)
	if !ok {
		return
	}
	defer h.mu.Unlock()
	switch {
	case f.manifest == nil || h.faults["no-archive"] > 0:
		refuse(w, 404, adp.Errorf(adp.NotFound, "no archive"))
	case strings.HasSuffix(r.URL.Path, ".jsonl"):
		if h.faults["no-bundle"] > 0 {
			refuse(w, 404, adp.Errorf(adp.NotFound, "no bundle"))
			return
		}
		text := f.bundle
		if h.fails("other-bytes") { // another spelling of the same records
			text = bytes.Replace(text, []byte(`{"envelope"`), []byte(`{ "envelope"`), 1)
		}
		if h.fails("cut-bundle") {
			text = text[:len(text)-100]
		}
		_, _ = w.Write(text)
	default:
		answer(w, 200, json.RawMessage(f.manifest))
	}
}

func (h *fakeHost) joinRequests(w http.ResponseWriter, r *http.Request) {
	who := h.caller(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.rooms[r.PathValue("id")]
	if f == nil || who == "" {
		refuse(w, 401, adp.Errorf(adp.InvalidToken, "who asks?"))
		return
	}
	render := func(q *room.JoinRequest) map[string]any {
		m := map[string]any{"request": q.Object, "status": q.Status}
		if q.ApprovedRole != "" {
			m["approved_role"] = q.ApprovedRole
		}
		return m
	}
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			refuse(w, 400, err)
			return
		}
		var m map[string]any
		if err := json.Unmarshal(body, &m); err != nil {
			refuse(w, 400, err)
			return
		}
		now, id := time.Now().UnixMilli(), fmt.Sprintf("jr_%d", len(f.requests)+1)
		m["id"], m["room_id"], m["applicant"], m["created_at"], m["expires_at"] = id, f.state.RoomID, who, now, now+3600_000
		v, err := adp.EncodeValue(m)
		if err != nil {
			refuse(w, 400, err)
			return
		}
		f.requests[id] = &room.JoinRequest{Object: v, Applicant: who, Perspective: v.Get("perspective").Text(), Status: "pending", ApprovedRole: types.Role(""), ExpiresAt: now + 3600_000}
		answer(w, 201, render(f.requests[id]))
		return
	}
	if id := r.PathValue("request"); id != "" {
		q := f.requests[id]
		if q == nil {
			refuse(w, 404, adp.Errorf(adp.JoinRequestNotFound, "no such request"))
			return
		}
		answer(w, 200, render(q))
		return
	}
	if !f.state.MayManage(who) {
		refuse(w, 403, adp.Errorf(adp.PermissionDenied, "not yours"))
		return
	}
	list := []any{}
	for i := 1; i <= len(f.requests); i++ {
		list = append(list, render(f.requests[fmt.Sprintf("jr_%d", i)]))
	}
	answer(w, 200, list)
}

func (h *fakeHost) index(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	answer(w, 200, []any{map[string]any{"url": "https://far.example/v1/rooms/x", "status": "active", "verdict": q.Get("verdict"), "records": 7, "attested": "unattested",
		"topic": fmt.Sprintf("q=%s host=%s tag=%s limit=%s", q.Get("q"), q.Get("host"), q.Get("tag"), q.Get("limit"))}})
}

func (h *fakeHost) attestations(w http.ResponseWriter, _ *http.Request) {
	make := func(protocol string) json.RawMessage {
		e, err := adp.Sign(inspecttest.Key(5), adp.Draft{Protocol: protocol, Type: "archive.attest", CreatedAt: 1779753600000, Nonce: 1, Payload: map[string]any{
			"statement": nil, "origin": "https://far.example", "room_id": "x", "last_seq": 7, "archive_root": adp.Encode(make([]byte, 32)), "verified_at": 1779753600000}})
		if err != nil {
			panic(err)
		}
		return e.JSON()
	}
	list := []json.RawMessage{make(adp.WitnessProtocol)}
	if h.faults["forged"] > 0 {
		list = append(list, bytes.Replace(make(adp.WitnessProtocol), []byte("far.example"), []byte("fat.example"), 1), make("other/1.0"))
	}
	answer(w, 200, list)
}
