package host

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/web"
)

// Routes adds the endpoints of ADP §16–§19.
func (h *Host) Routes(mux *web.Mux) {
	const rooms, one = "/v1/rooms", "/v1/rooms/{room_id}"
	mux.Handle("GET", "/.well-known/agent-discourse", h.serveDiscovery)
	mux.Handle("POST", rooms, h.serveCreate)
	mux.Handle("GET", rooms+"/public", h.servePublic)
	mux.Handle("GET", "/v1/me/rooms", h.serveMine)
	mux.Handle("POST", one, h.serveWrite)
	mux.Handle("GET", one, h.serveRoom)
	mux.Handle("GET", one+"/events", h.serveEvents)
	mux.Handle("GET", one+"/events/live", h.serveLive)
	mux.Handle("POST", one+"/join-requests", h.serveRequestJoin)
	mux.Handle("GET", one+"/join-requests", h.serveRequests)
	mux.Handle("GET", one+"/join-requests/{request_id}", h.serveRequest)
	mux.Handle("GET", one+"/agent-status", h.serveStatuses)
	mux.Handle("PUT", one+"/agent-status", h.servePutStatus)
	mux.Handle("GET", one+"/agent-status/{agent_id}", h.serveStatus)
	mux.Handle("GET", one+"/archive", h.serveArchive)
	mux.Handle("GET", one+"/archive.jsonl", h.serveArchive)
	mux.Handle("GET", one+"/archive.md", h.serveArchive)
	mux.Handle("GET", one+"/proof", h.serveProof)
	if h.opt.Checkpoint != nil {
		mux.Handle("GET", one+"/checkpoint", h.serveCheckpoint)
	}
}

// caller is who signed the request token, "" without one. A token that does
// not verify is refused before anything is looked up.
func (h *Host) caller(req *http.Request) (adp.AgentID, error) {
	return web.Caller(req, h.opt.Origin, h.now()/1000)
}

// identified is caller, and demands one.
func (h *Host) identified(req *http.Request) (adp.AgentID, error) {
	return web.Identified(req, h.opt.Origin, h.now()/1000)
}

// sight is what a caller may see of a room.
type sight struct {
	r        *replica.Replica
	who      adp.AgentID
	public   bool
	visible  bool // the room resource
	readable bool // events, statuses, archives
	member   bool
	manages  bool
	status   room.Status
}

// look finds the room of a request and what its caller may see. A private room
// that the caller may not see is not found.
func (h *Host) look(req *http.Request) (sight, error) {
	who, err := h.caller(req)
	if err != nil {
		return sight{}, err
	}
	s, err := h.glance(req, who)
	if err == nil && !s.visible {
		err = noRoom()
	}
	return s, err
}

// glance is look for requests that answer strangers too.
func (h *Host) glance(req *http.Request, who adp.AgentID) (sight, error) {
	r, err := h.find(req.PathValue("room_id"))
	if err != nil {
		return sight{}, err
	}
	v := sight{r: r, who: who}
	now := h.now()
	err = r.View(req.Context(), func(s *room.State) {
		v.public = s.Contract.Visibility == room.Public
		v.readable = s.MayRead(who)
		v.member = s.IsMember(who)
		v.manages = who != "" && s.MayManage(who)
		v.status = s.StatusAt(now)
		v.visible = s.MayLook(who, now)
	})
	if err != nil {
		return sight{}, h.unavailable(err)
	}
	return v, nil
}

// reader is look for what only readers get (ADP §16).
func (h *Host) reader(req *http.Request) (sight, error) {
	s, err := h.look(req)
	if err == nil && !s.readable {
		err = notReadable(s.who)
	}
	return s, err
}

func notReadable(who adp.AgentID) error {
	if who == "" {
		return web.NoToken()
	}
	return adp.Errorf(adp.MembershipRequired, "only members read this; join the room first")
}

func (h *Host) serveCreate(w http.ResponseWriter, req *http.Request) error {
	body, err := web.ReadBody(w, req, h.opt.Limits.BodyBytes)
	if err != nil {
		return err
	}
	r, rec, err := h.CreateRoom(req.Context(), body)
	if err != nil {
		return err
	}
	var status room.Status
	if err := r.View(req.Context(), func(s *room.State) { status = s.StatusAt(h.now()) }); err != nil {
		return h.unavailable(err)
	}
	seen(w, rec)
	w.Header().Set("Location", h.roomURL(r.RoomID))
	web.WriteJSON(w, http.StatusCreated, struct {
		ID         string      `json:"id"`
		Status     room.Status `json:"status"`
		URL        string      `json:"url"`
		Seq        int64       `json:"seq"`
		PreHash    *string     `json:"pre_hash"`
		Hash       string      `json:"hash"`
		ReceivedAt int64       `json:"received_at"`
	}{r.RoomID, status, h.roomURL(r.RoomID), rec.Seq, nil, rec.Hash, rec.ReceivedAt})
	return nil
}

func (h *Host) serveWrite(w http.ResponseWriter, req *http.Request) error {
	body, err := web.ReadBody(w, req, h.opt.Limits.BodyBytes)
	if err != nil {
		return err
	}
	rec, err := h.Write(req.Context(), req.PathValue("room_id"), body)
	if err != nil {
		return err
	}
	seen(w, rec)
	web.WriteRaw(w, http.StatusOK, rec.JSON())
	return nil
}

// seen tells the writer its greatest nonce (Identity, Live writes).
func seen(w http.ResponseWriter, rec *adp.Record) {
	n, err := json.Marshal(rec.Envelope.Nonce)
	if err == nil {
		w.Header().Set("Max-Seen-Nonce", string(n))
	}
}

func (h *Host) serveRoom(w http.ResponseWriter, req *http.Request) error {
	s, err := h.look(req)
	if err != nil {
		return err
	}
	var body []byte
	if err := s.r.View(req.Context(), func(st *room.State) { body = st.Resource(h.roomURL(s.r.RoomID), h.now()) }); err != nil {
		return h.unavailable(err)
	}
	cache := web.CacheAsk
	if !s.public {
		cache = web.CacheNever
	}
	web.WriteTagged(w, req, cache, body)
	return nil
}

func (h *Host) serveEvents(w http.ResponseWriter, req *http.Request) error {
	s, err := h.reader(req)
	if err != nil {
		return err
	}
	if req.URL.Query().Get("wait") != "" {
		leave, err := h.seats.Take(req)
		if err != nil {
			return err
		}
		defer leave()
	}
	return s.r.ServeEvents(w, req, h.roomURL(s.r.RoomID)+"/events", s.public)
}

func (h *Host) serveArchive(w http.ResponseWriter, req *http.Request) error {
	s, err := h.reader(req)
	if err != nil {
		return err
	}
	switch s.status {
	case room.Ended:
	case room.Cancelled:
		return adp.Errorf(adp.RoomNotActive, "the room was cancelled: it has no archive; its records stay under events")
	default:
		return adp.Errorf(adp.RoomNotActive, "the room has not ended: there is no archive yet")
	}
	if !s.r.Row().Archived {
		if _, err := h.archive(req.Context(), s.r); err != nil {
			return h.unavailable(err)
		}
	}
	switch {
	case strings.HasSuffix(req.URL.Path, ".jsonl"):
		return s.r.ServeBundle(w, req, s.public)
	case strings.HasSuffix(req.URL.Path, ".md"):
		return s.r.ServeMarkdown(w, req, h.roomURL(s.r.RoomID), h.now(), s.public)
	}
	return s.r.ServeManifest(w, req, s.public)
}

// serveProof answers with a Merkle proof over the room's records, to those who
// may read them.
func (h *Host) serveProof(w http.ResponseWriter, req *http.Request) error {
	s, err := h.reader(req)
	if err != nil {
		return err
	}
	return s.r.ServeProof(w, req)
}

// serveCheckpoint answers with the signed head of a public room's tree. Nothing
// is signed about other rooms.
func (h *Host) serveCheckpoint(w http.ResponseWriter, req *http.Request) error {
	s, err := h.reader(req)
	if err != nil {
		return err
	}
	if !s.public {
		return adp.Errorf(adp.NotFound, "checkpoints are signed for public rooms only; proofs are at …/proof")
	}
	return h.opt.Checkpoint(w, req, s.r)
}

func (h *Host) serveLive(w http.ResponseWriter, req *http.Request) error {
	s, err := h.look(req)
	if err != nil {
		return err
	}
	if s.who == "" {
		return web.NoToken()
	}
	if !s.member {
		return adp.Errorf(adp.MembershipRequired, "the live stream is for members; join the room first")
	}
	if s.status == room.Ended || s.status == room.Cancelled {
		return adp.Errorf(adp.RoomEnded, "the room has ended: nothing more will come; read its events or its archive")
	}
	leave, err := h.seats.Take(req)
	if err != nil {
		return err
	}
	defer leave()
	// the cursors come before the header: what is accepted from here on is sent
	after, _, _ := s.r.Moved()
	_, next, _ := h.statuses.since(s.r.ID, 0)
	stream, err := web.NewStream(w, req)
	if err != nil {
		return err
	}
	ctx := req.Context()
	standing := func() (member, manages bool) {
		err := s.r.View(ctx, func(st *room.State) {
			status := st.StatusAt(h.now())
			member = st.IsMember(s.who) && status != room.Ended && status != room.Cancelled
			manages = st.MayManage(s.who)
		})
		return member && err == nil, manages && err == nil
	}
	return s.r.Follow(ctx, after, replica.Follower{
		Send:      func(recs [][]byte) error { return stream.Send("room.event", recs) },
		Heartbeat: func() error { return stream.Comment("heartbeat") },
		Check:     func() bool { m, _ := standing(); return m },
		Other: func() (<-chan struct{}, error) {
			items, end, signal := h.statuses.since(s.r.ID, next)
			next = end
			for _, it := range items {
				if it.reviewers {
					if _, manages := standing(); !manages {
						continue
					}
				}
				if err := stream.Send(it.kind, [][]byte{it.data}); err != nil {
					return nil, err
				}
			}
			return signal, nil
		},
	})
}

func (h *Host) serveRequestJoin(w http.ResponseWriter, req *http.Request) error {
	who, err := h.identified(req)
	if err != nil {
		return err
	}
	s, err := h.glance(req, who) // a private room answers here as a restricted one does
	if err != nil {
		return err
	}
	body, err := web.ReadBody(w, req, h.opt.Limits.BodyBytes)
	if err != nil {
		return err
	}
	q, err := h.RequestJoin(req.Context(), s.r, who, body)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusCreated, q.render(h.now()))
	return nil
}

func (h *Host) serveRequests(w http.ResponseWriter, req *http.Request) error {
	s, err := h.look(req)
	if err != nil {
		return err
	}
	if s.who == "" {
		return web.NoToken()
	}
	if !s.manages {
		return adp.Errorf(adp.PermissionDenied, "only the creator and moderators list join requests")
	}
	q, err := h.listQuery(req, "join-requests", "pending", "approved", "rejected", "expired")
	if err != nil {
		return err
	}
	all, err := h.requests(s.r.ID)
	if err != nil {
		return h.unavailable(err)
	}
	now := h.now()
	list, after := []any{}, q.after
	for _, row := range all {
		id := row.id()
		if id <= after || q.status != "" && row.statusAt(now) != q.status {
			continue
		}
		if len(list) == q.limit {
			web.NextLink(w, h.roomURL(s.r.RoomID)+"/join-requests?"+q.next(after))
			break
		}
		list, after = append(list, row.render(now)), id
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

func (h *Host) serveRequest(w http.ResponseWriter, req *http.Request) error {
	who, err := h.caller(req)
	if err != nil {
		return err
	}
	s, err := h.glance(req, who)
	if err != nil {
		return err
	}
	q, ok, err := h.requestRow(s.r.ID, req.PathValue("request_id"))
	if err != nil {
		return h.unavailable(err)
	}
	mine := ok && who != "" && q.Applicant == who
	switch {
	case !s.visible && !mine:
		return noRoom()
	case who == "":
		return web.NoToken()
	case !ok || !mine && !s.manages:
		return adp.Errorf(adp.JoinRequestNotFound, "there is no such join request here, or you may not read it")
	}
	web.WriteJSON(w, http.StatusOK, q.render(h.now()))
	return nil
}

func (h *Host) serveStatuses(w http.ResponseWriter, req *http.Request) error {
	s, err := h.reader(req)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, map[string]any{"statuses": h.statuses.current(s.r.ID, h.now())})
	return nil
}

func (h *Host) serveStatus(w http.ResponseWriter, req *http.Request) error {
	s, err := h.reader(req)
	if err != nil {
		return err
	}
	body, ok := h.statuses.of(s.r.ID, adp.AgentID(req.PathValue("agent_id")), h.now())
	if !ok {
		return adp.Errorf(adp.AgentStatusNotFound, "the agent has no current status in this room")
	}
	web.WriteJSON(w, http.StatusOK, map[string]any{"status": json.RawMessage(body)})
	return nil
}

func (h *Host) servePutStatus(w http.ResponseWriter, req *http.Request) error {
	who, err := h.identified(req)
	if err != nil {
		return err
	}
	s, err := h.glance(req, who)
	if err != nil {
		return err
	}
	var role types.Role
	if err := s.r.View(req.Context(), func(st *room.State) { role = st.Members[who].Role }); err != nil {
		return h.unavailable(err)
	}
	if !room.Speaks(role) { // ADP §17.4; creator power does not help (wire-facts §3.15)
		return adp.Errorf(adp.PermissionDenied, "only members in the role moderator or speaker write an agent status")
	}
	if err := h.mayWrite(who); err != nil {
		return err
	}
	switch s.status {
	case room.Ended:
		return adp.Errorf(adp.RoomEnded, "the room has ended")
	case room.Cancelled:
		return adp.Errorf(adp.RoomNotActive, "the room was cancelled")
	}
	body, err := web.ReadBody(w, req, h.opt.Limits.BodyBytes)
	if err != nil {
		return err
	}
	now := h.now()
	entry, err := parseStatus(body, s.r.RoomID, who, now, h.opt.AgentStatusTTL)
	if err != nil {
		return err
	}
	if err := h.rates.take([]quota{{rateKey{s.r.ID, who, "agent status"}, statusPerMinute, "agent status"}}, now); err != nil {
		return err
	}
	h.statuses.set(s.r.ID, who, entry)
	// what ended it meanwhile may have cleared it before it was set
	over := true
	err = s.r.View(req.Context(), func(st *room.State) {
		status := st.StatusAt(now)
		over = !room.Speaks(st.Members[who].Role) || status == room.Ended || status == room.Cancelled
	})
	if err != nil || over {
		h.statuses.clear(s.r.ID, who)
	}
	web.WriteRaw(w, http.StatusOK, entry.body)
	return nil
}
