package mirror

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/web"
)

// Routes adds the read API of the mirrored hosts under /m/{authority}, so that any
// ADP client can point its base URL there. All that is served is public data, the
// live stream included; writes go to the host itself.
func (m *Mirror) Routes(mux *web.Mux) {
	const base = "/m/{authority}"
	mux.Handle("GET", base+"/.well-known/agent-discourse", m.serveDiscovery)
	mux.Handle("GET", base+"/v1/rooms/public", m.serveRooms)
	for path, serve := range map[string]func(*served, http.ResponseWriter, *http.Request) error{
		"":               (*served).resource,
		"/events":        (*served).events,
		"/events/live":   (*served).live,
		"/archive":       (*served).manifest,
		"/archive.jsonl": (*served).bundle,
		"/archive.md":    (*served).markdown,
		"/agent-status":  (*served).agentStatus,
		"/proof": func(s *served, w http.ResponseWriter, req *http.Request) error {
			return s.r.ServeProof(w, req)
		},
		"/agent-status/{agent}": func(*served, http.ResponseWriter, *http.Request) error {
			return adp.Errorf(adp.AgentStatusNotFound, "agent status is not mirrored; ask the host itself")
		},
	} {
		mux.Handle("GET", base+"/v1/rooms/{room_id}"+path, func(w http.ResponseWriter, req *http.Request) error {
			s, err := m.room(req)
			if err == nil && path != "/proof" { // hashes are no content
				err = s.visible()
			}
			if err != nil {
				return err
			}
			return serve(s, &stamped{ResponseWriter: w, s: s}, req)
		})
	}
	mux.Handle("GET", base+"/v1/{path...}", func(_ http.ResponseWriter, req *http.Request) error {
		if _, _, err := m.target(req); err != nil {
			return err
		}
		return adp.Errorf(adp.NotFound, "a mirror has rooms, their events and their archives; ask the host itself for anything else")
	})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		mux.Handle(method, base+"/v1/{path...}", m.refuseWrite)
	}
}

// target finds the origin that a mirror path is about, and the absolute base of
// its API here.
func (m *Mirror) target(req *http.Request) (origin, base string, err error) {
	authority := req.PathValue("authority")
	if origin, ok := m.OriginOf(authority); ok {
		return origin, m.o.Own + "/m/" + url.PathEscape(authority) + "/v1", nil
	}
	return "", "", adp.Errorf(adp.NotFound, "this daemon mirrors no host %.100q; /federation/v1/hosts lists those that it does", authority)
}

// OriginOf finds the origin of an authority (host[:port]) that is followed, or of
// which rooms are held.
func (m *Mirror) OriginOf(authority string) (origin string, ok bool) {
	for _, scheme := range []string{"https://", "http://"} {
		origin, err := fetch.Origin(scheme+authority, m.o.AllowPrivate)
		if err != nil || fetch.Authority(origin) != authority || origin == m.o.Own {
			continue
		}
		if m.Followed(origin) || len(m.o.Replicas.Of(origin)) > 0 {
			return origin, true
		}
	}
	return "", false
}

// served is a mirrored room as one request asks for it.
type served struct {
	m    *Mirror
	r    *replica.Replica
	base string // of the API, absolute
	url  string // canonical, at the host
}

func (m *Mirror) room(req *http.Request) (*served, error) {
	origin, base, err := m.target(req)
	if err != nil {
		return nil, err
	}
	id := req.PathValue("room_id")
	r := m.verified(origin, id)
	if r == nil {
		return nil, adp.Errorf(adp.RoomNotFound, "this mirror of %s has no such room", origin)
	}
	return &served{m, r, base, m.RoomURL(origin, id)}, nil
}

// visible refuses what is held and not shown.
func (s *served) visible() error {
	if reason, hidden := s.m.Hidden(s.r); hidden {
		return adp.Errorf(adp.RoomNotFound, "this mirror holds the room and does not show it: %s", reason).With("reason", "hidden")
	}
	return nil
}

// stamped adds to an answer what is known about the room, at the moment when the
// answer begins: a long poll may have waited for that.
type stamped struct {
	http.ResponseWriter
	s     *served
	begun bool
}

func (w *stamped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *stamped) WriteHeader(status int) {
	if !w.begun {
		w.begun = true
		row, h := w.s.r.Row(), w.Header()
		h.Set("Witan-Origin", row.Origin)
		h.Set("Witan-Verified-Seq", strconv.FormatInt(row.Seq, 10))
		h.Set("Witan-Verdict", row.EffectiveVerdict())
		if w.s.m.equivocated(row.Origin) {
			h.Set("Witan-Host", replica.Equivocated)
		}
		if row.Withheld > 0 {
			h.Set("Witan-Withheld", strconv.FormatInt(row.Withheld, 10))
		}
		if at := w.s.r.SyncedAt.Load(); at > 0 {
			h.Set("Witan-Synced-At", strconv.FormatInt(at, 10))
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *stamped) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

func (s *served) resource(w http.ResponseWriter, req *http.Request) error {
	var body []byte
	if err := s.r.View(req.Context(), func(st *room.State) { body = st.Resource(s.url, s.m.o.Now()) }); err != nil {
		return err
	}
	web.WriteTagged(w, req, web.CacheAsk, body)
	return nil
}

func (s *served) events(w http.ResponseWriter, req *http.Request) error {
	if req.URL.Query().Get("wait") != "" {
		leave, err := s.m.seats.Take(req)
		if err != nil {
			return err
		}
		defer leave()
	}
	return s.r.ServeEvents(w, req, s.base+"/rooms/"+s.r.RoomID+"/events", true)
}

// live is the stream of ADP §17, open to all. It starts with what is committed
// after it begins.
func (s *served) live(w http.ResponseWriter, req *http.Request) error {
	leave, err := s.m.seats.Take(req)
	if err != nil {
		return err
	}
	defer leave()
	after, _, _ := s.r.Moved()
	stream, err := web.NewStream(w, req)
	if err != nil {
		return err
	}
	return s.r.Follow(req.Context(), after, replica.Follower{
		Send:      func(recs [][]byte) error { return stream.Send("room.event", recs) },
		Heartbeat: func() error { return stream.Comment("heartbeat") },
		Check:     func() bool { return s.goesOn(req.Context()) },
	})
}

// goesOn tells whether the room may still get records.
func (s *served) goesOn(ctx context.Context) bool {
	if _, hidden := s.m.Hidden(s.r); hidden || s.r.Row().State == replica.Complete {
		return false
	}
	var status room.Status
	if err := s.r.View(ctx, func(st *room.State) { status = st.StatusAt(s.m.o.Now()) }); err != nil {
		return false
	}
	return status == room.Scheduled || status == room.Active
}

func (s *served) manifest(w http.ResponseWriter, req *http.Request) error {
	return s.r.ServeManifest(w, req, true)
}

func (s *served) bundle(w http.ResponseWriter, req *http.Request) error {
	return s.r.ServeBundle(w, req, true)
}

func (s *served) markdown(w http.ResponseWriter, req *http.Request) error {
	return s.r.ServeMarkdown(w, req, s.url, s.m.o.Now(), true)
}

// agentStatus is empty: status is short-lived and no part of the record.
func (s *served) agentStatus(w http.ResponseWriter, _ *http.Request) error {
	web.WriteRaw(w, http.StatusOK, []byte(`{"statuses":[]}`))
	return nil
}

func (m *Mirror) serveDiscovery(w http.ResponseWriter, req *http.Request) error {
	origin, base, err := m.target(req)
	if err != nil {
		return err
	}
	w.Header().Set("Witan-Origin", origin)
	web.WriteJSON(w, http.StatusOK, map[string]any{
		"protocol": adp.Protocol, "host": fetch.Authority(origin), "features": []string{"rooms", "sse-event-stream", "archives"},
		"endpoints": map[string]string{"api": base, "sse": base},
		"mirror":    map[string]string{"of": origin, "by": m.o.Own},
	})
	return nil
}

func (m *Mirror) refuseWrite(w http.ResponseWriter, req *http.Request) error {
	origin, _, err := m.target(req)
	if err != nil {
		return err
	}
	w.Header().Set("Allow", "GET, HEAD")
	w.Header().Set("Witan-Origin", origin)
	web.WriteJSON(w, http.StatusMethodNotAllowed, map[string]any{"error": map[string]any{
		"code": adp.InvalidRequest, "message": "This is a mirror and takes no writes; send them to " + origin + ".", "data": map[string]string{"origin": origin}}})
	return nil
}
