package mirror

import (
	"net/url"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// Room finds a mirrored room by its URL at its host, or by its URL here.
func (m *Mirror) Room(name string) (*replica.Replica, error) {
	bad := func() error {
		return adp.Errorf(adp.RoomNotFound, "%.300q is no mirrored room; give its URL at its host, such as https://rooms.example/v1/rooms/ID, or here, %s/m/rooms.example/v1/rooms/ID", name, m.o.Own)
	}
	u, err := url.Parse(name)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, bad()
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	id := parts[len(parts)-1]
	if len(parts) < 2 || parts[len(parts)-2] != "rooms" || !adp.IsRoomID(id) {
		return nil, bad()
	}
	origin, err := fetch.Origin(u.Scheme+"://"+u.Host, true)
	if err != nil {
		return nil, bad()
	}
	candidates := []string{origin}
	if origin == m.o.Own && parts[0] == "m" {
		candidates = []string{"https://" + parts[1], "http://" + parts[1]}
	}
	for _, origin := range candidates {
		if r, ok := m.o.Replicas.Get(origin, id); ok && origin != m.o.Own && r.Row().Seq > 0 {
			return r, nil
		}
	}
	return nil, bad()
}

// Withhold takes a record of a mirrored room from the view of every reader; the
// chain stays whole. It is for the operator.
func (m *Mirror) Withhold(name string, seq int64, reason string) (replica.Withholding, error) {
	r, err := m.Room(name)
	if err != nil {
		return replica.Withholding{}, err
	}
	fate := replica.Seal
	if m.o.EraseWithheld {
		fate = replica.Erase
	}
	w, err := r.Withhold(seq, reason, m.o.Now(), fate)
	if err != nil {
		return w, err
	}
	m.log.Warn("a record is withheld by the operator", "origin", r.Origin, "room", r.RoomID, "seq", seq, "type", w.Type, "original", string(w.Fate), "reason", reason)
	m.o.Changed(r)
	return w, nil
}

// ReleaseRecord shows a record again whose original was sealed.
func (m *Mirror) ReleaseRecord(name string, seq int64) error {
	r, err := m.Room(name)
	if err != nil {
		return err
	}
	if err := r.Release(seq); err != nil {
		return err
	}
	m.log.Warn("a withheld record is shown again by the operator", "origin", r.Origin, "room", r.RoomID, "seq", seq)
	m.o.Changed(r)
	return nil
}
