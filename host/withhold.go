package host

import (
	"context"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// own finds one of our rooms by its ID or by its URL.
func (h *Host) own(name string) (*replica.Replica, error) {
	id := strings.TrimPrefix(strings.TrimSuffix(name, "/"), h.opt.Origin+"/v1/rooms/")
	if strings.Contains(id, "/") {
		return nil, adp.Errorf(adp.RoomNotFound, "%.200q is no room of this host; give its ID, or its URL %s/v1/rooms/ID", name, h.opt.Origin)
	}
	r, ok := h.set.Get(h.opt.Origin, id)
	if !ok {
		return nil, adp.Errorf(adp.RoomNotFound, "this host has no room %.200q", name)
	}
	return r, nil
}

// Withhold takes a record of one of our rooms, named by ID or URL, from the view of
// every reader; the chain stays whole. It is for the operator.
//
// Where originals are to be erased, that waits for the archive in a room that has
// none yet: what its digests cover has to be there when they are made.
func (h *Host) Withhold(ctx context.Context, name string, seq int64, reason string) (replica.Withholding, error) {
	r, err := h.own(name)
	if err != nil {
		return replica.Withholding{}, err
	}
	fate := replica.Seal
	if h.opt.EraseWithheld {
		var status room.Status
		if err := r.View(ctx, func(s *room.State) { status = s.StatusAt(h.now()) }); err != nil {
			return replica.Withholding{}, h.unavailable(err)
		}
		if fate = replica.EraseAfterArchive; status == room.Cancelled { // no archive will be made
			fate = replica.Erase
		}
	}
	before := r.Row()
	w, err := r.Withhold(seq, reason, h.now(), fate)
	if err != nil {
		return w, err
	}
	if w.Fate == replica.Erase {
		h.usage.add(before.Creator, 0, r.Row().Bytes-before.Bytes)
	}
	h.opt.Log.Warn("a record is withheld by the operator", "room", r.RoomID, "seq", seq, "type", w.Type, "original", string(w.Fate), "reason", reason)
	h.changed(r)
	return w, nil
}

// Release shows a record of one of our rooms again whose original was sealed.
func (h *Host) Release(name string, seq int64) error {
	r, err := h.own(name)
	if err != nil {
		return err
	}
	if err := r.Release(seq); err != nil {
		return err
	}
	h.opt.Log.Warn("a withheld record is shown again by the operator", "room", r.RoomID, "seq", seq)
	h.changed(r)
	return nil
}

// Withheld lists what the operator withholds in one of our rooms.
func (h *Host) Withheld(name string) ([]replica.Withholding, error) {
	r, err := h.own(name)
	if err != nil {
		return nil, err
	}
	return r.Withholdings()
}
