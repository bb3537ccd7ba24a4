package mirror

// Records that came and cannot be stored yet wait in memory, unserved and bounded:
// those behind a signed head that do not reach back to what we hold, and those
// that a peer or another mirror sent and that no head of a bound key covers
// (federation.md, Origins).
const (
	waitRecords = 1000
	waitBytes   = 8 << 20  // of one room
	waitInAll   = 64 << 20 // of all rooms
	waitNews    = 64       // messages of the relay for one room
)

// queue adds news to a room. What is over a bound is dropped: of its records first,
// since the head alone is enough to ask for them. host.mu is held.
func (v *roomView) queue(m *Mirror, n *news) {
	if v.feedRecs+len(n.recs) > waitRecords || v.feedBytes+n.bytes > waitBytes || !m.relay.claim(n.bytes) {
		m.metrics.relay.WithLabelValues("records_dropped").Inc()
		n.recs, n.bytes = nil, 0
	}
	if len(v.feed) == waitNews { // only the newest head matters of those that wait
		last := v.feed[waitNews-1]
		m.relay.waiting.Add(-last.bytes)
		v.feedRecs, v.feedBytes = v.feedRecs-len(last.recs), v.feedBytes-last.bytes
		v.feed = v.feed[:waitNews-1]
	}
	v.feed = append(v.feed, n)
	v.feedRecs, v.feedBytes = v.feedRecs+len(n.recs), v.feedBytes+n.bytes
}

// unqueue takes the news of a room out. host.mu is held.
func (v *roomView) unqueue(m *Mirror) []*news {
	list := v.feed
	m.relay.waiting.Add(-v.feedBytes)
	v.feed, v.feedRecs, v.feedBytes = nil, 0, 0
	return list
}

// claim asks for room for bytes that wait.
func (r *relay) claim(n int64) bool {
	if r.waiting.Add(n) > waitInAll {
		r.waiting.Add(-n)
		return false
	}
	return true
}

// holdBack keeps records that nobody vouches for yet, in place of those held before.
func (h *host) holdBack(v *roomView, recs []checked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v.unhold(h.m)
	total := int64(0)
	for i, c := range recs {
		n := int64(len(c.raw))
		if i == waitRecords || total+n > waitBytes || !h.m.relay.claim(n) {
			h.m.metrics.relay.WithLabelValues("records_dropped").Inc()
			recs = recs[:i]
			break
		}
		total += n
	}
	v.held, v.heldBytes = recs[:len(recs):len(recs)], total
}

// unhold gives up what is held. host.mu is held.
func (v *roomView) unhold(m *Mirror) []checked {
	recs := v.held
	m.relay.waiting.Add(-v.heldBytes)
	v.held, v.heldBytes = nil, 0
	return recs
}

// covered takes out of what is held the records behind a place up to a head, when
// they are a chain from the one to the other. What is behind the head is held on.
func (h *host) covered(v *roomView, after position, head position) []checked {
	h.mu.Lock()
	held := v.unhold(h.m)
	h.mu.Unlock()
	for i, c := range held {
		if c.rec.Seq != after.seq+1 {
			continue
		}
		for j := i; j < len(held); j++ {
			if held[j].rec.Seq == head.seq {
				if held[j].rec.Hash != head.hash || c.rec.PreHash != after.hash {
					return nil // another story than the one that is signed
				}
				h.holdBack(v, held[j+1:])
				return held[i : j+1]
			}
		}
		h.holdBack(v, held[i:])
		return nil
	}
	return nil
}

// position is a place in a chain; hash is "" at seq 0.
type position struct {
	seq  int64
	hash string
}
