package mirror

import "github.com/witan-adp/witan/internal/replica"

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
