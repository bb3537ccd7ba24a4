package witness

import "slices"

// Vouched tells how far keys of its host have signed for a room that a copy of it which
// did not come from the host can be believed: up to the end that a statement names, or
// the newest head. Nothing is vouched for when a key is proven to have told two stories
// of the room, or when two statements of it differ.
func (w *Witness) Vouched(s Subject) (seq int64, hash string, ok bool) {
	stated, one := w.stories(s)
	if !one {
		return 0, "", false
	}
	signed := stated
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

// Stated tells where a room ends by the statements about its archive that keys of its
// host signed, when they tell one story.
func (w *Witness) Stated(s Subject) (seq int64, hash string, ok bool) {
	stated, one := w.stories(s)
	if !one || len(stated) == 0 {
		return 0, "", false
	}
	return stated[0].lastSeq, stated[0].lastHash, true
}

// stories are what the statements of a room say; not one story when two of them differ, or
// a key is proven to have told two.
func (w *Witness) stories(s Subject) (list []content, one bool) {
	if w.Proven(s) {
		return nil, false
	}
	w.mu.RLock()
	if a := w.book.subjects[s]; a != nil {
		for _, it := range a.statements {
			if w.speaksFor(s.Origin, it.agent) {
				list = append(list, it.content)
			}
		}
	}
	w.mu.RUnlock()
	for _, c := range list {
		if c.differs(list[0]) {
			return nil, false
		}
	}
	return list, true
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
