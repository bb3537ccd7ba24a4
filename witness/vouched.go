package witness

import "slices"

// Vouched tells how far keys of its host have signed for a room that a copy of it which
// did not come from the host can be believed: up to the end that a statement names, or
// the newest head. Nothing is vouched for when a key is proven to have told two stories
// of the room, or when two statements of it differ.
func (w *Witness) Vouched(s Subject) (seq int64, hash string, ok bool) {
	if w.Proven(s) {
		return 0, "", false
	}
	var signed []content
	w.mu.RLock()
	if a := w.book.subjects[s]; a != nil {
		for _, it := range a.statements {
			if w.speaksFor(s.Origin, it.agent) {
				signed = append(signed, it.content)
			}
		}
	}
	w.mu.RUnlock()
	for i, c := range signed {
		if i > 0 && c.differs(signed[0]) {
			return 0, "", false
		}
	}
	for _, c := range w.claims.of(lineName{Subject: s}) {
		if h, err := ParseHead(c.head); err == nil && w.speaksFor(s.Origin, c.head.Actor) {
			signed = append(signed, h.content())
		}
	}
	for _, c := range signed {
		if c.lastSeq > seq {
			seq, hash, ok = c.lastSeq, c.lastHash, true
		}
	}
	return seq, hash, ok
}

// VouchedRooms lists rooms of a host of which Vouched may know something and that are
// wanted, at most limit, in no order.
func (w *Witness) VouchedRooms(origin string, limit int, wanted func(roomID, genesis string) bool) (list []Subject) {
	known := map[Subject]bool{}
	w.mu.RLock()
	for s, a := range w.book.subjects {
		if s.Origin == origin && len(a.statements) > 0 {
			known[s] = true
		}
	}
	w.mu.RUnlock()
	for _, s := range w.claims.rooms(origin) {
		known[s] = true
	}
	for s := range known {
		if len(list) == limit {
			break
		}
		if wanted(s.RoomID, s.Genesis) {
			list = append(list, s)
		}
	}
	return list
}

// rooms lists the rooms of an origin of which there are heads.
func (t *claims) rooms(origin string) (list []Subject) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, at := range t.lines {
		if name.Origin == origin && slices.ContainsFunc(at.Value.(*claimLine).recent, func(c claim) bool { return c.head != nil }) {
			list = append(list, name.Subject)
		}
	}
	return list
}
