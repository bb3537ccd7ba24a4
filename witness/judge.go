package witness

import (
	"encoding/json"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/policy"
	"github.com/witan-adp/witan/internal/replica"
)

// Attestation states of a room.
const (
	Unattested  = policy.Unattested
	Partial     = policy.Partial
	Attested    = policy.Attested
	Equivocated = policy.Equivocated
)

// State says how many witnesses count for a room, and what they make of it:
// attested when there are enough by Options.Policy, partial when some are missing,
// equivocated, for good, once a key of the host is proven to have signed two
// stories of it: in statements, heads or checkpoints. Without a policy each witness
// counts and one is enough; with one n is the number of operator groups that count.
//
// A witness counts once, if it attested the whole archive, is no key of the
// room's own host and of no operator group of those keys, has not been proven to
// have attested two archives, and agrees with the host's statement and with the
// records here, as far as these are at hand.
func (w *Witness) State(origin, roomID string) (n int64, state string) {
	s, ok := w.served(origin, roomID)
	held, isHeld := holding{}, false
	if ok {
		held, isHeld = w.held(s)
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	a := w.book.subjects[s]
	switch lost := w.book.lost[origin]; {
	case a == nil && lost:
		return 0, Equivocated
	case a == nil:
		return 0, Unattested
	}
	var counted []adp.AgentID
	for _, it := range a.attestations {
		if !slices.Contains(counted, it.agent) && w.counts(a, it) && (!isHeld || !held.parts(it.content)) {
			counted = append(counted, it.agent)
		}
	}
	if p := w.o.Policy; p != nil {
		own := w.o.Agents(origin)
		if origin == w.o.Origin {
			own = append(slices.Clone(own), w.self)
		}
		o := p.Evaluate(counted, own, a.equivocated || w.book.lost[origin])
		return int64(len(o.Counted)), o.State
	}
	switch n = int64(len(counted)); {
	case a.equivocated || w.book.lost[origin]:
		return n, Equivocated
	case n > 0:
		return n, Attested
	}
	return 0, Unattested
}

// counts needs mu.
func (w *Witness) counts(a *about, it *item) bool {
	if !it.content.complete || w.speaksFor(it.subject.Origin, it.agent) || a.proven[[2]string{KindAttestations, string(it.agent)}] {
		return false
	}
	if group := w.trusted[it.agent].Group; group != "" {
		for _, key := range w.o.Agents(it.subject.Origin) {
			if w.trusted[key].Group == group {
				return false
			}
		}
	}
	st := w.book.byHash[it.statement]
	return st == nil || st.typ == TypeAnnounce && st.subject == it.subject && !st.content.differs(it.content)
}

// served is the subject that stands for a room: the replica that is served, or,
// of a room that is not held, the one spoken of first.
func (w *Witness) served(origin, roomID string) (Subject, bool) {
	if r, ok := w.o.Replicas.Get(origin, roomID); ok {
		return Subject(r.Key), true
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	geneses := w.book.rooms[[2]string{origin, roomID}]
	if len(geneses) == 0 {
		return Subject{}, false
	}
	return geneses[0], true
}

// tell hands the present state on.
func (w *Witness) tell(origin, roomID string) {
	if w.o.Attested != nil {
		w.telling.Lock() // an older answer must not come last
		defer w.telling.Unlock()
		n, state := w.State(origin, roomID)
		w.o.Attested(origin, roomID, n, state)
	}
}

// speaksFor tells whether a key is bound to an origin, ours included.
func (w *Witness) speaksFor(origin string, agent adp.AgentID) bool {
	return origin == w.o.Origin && agent == w.self || w.o.Bound(origin, agent)
}

// spokeFor tells whether a key can have spoken for an origin at a time (Unix ms).
func (w *Witness) spokeFor(origin string, agent adp.AgentID, at int64) bool {
	return origin == w.o.Origin && agent == w.self || w.o.BoundAt(origin, agent, at)
}

// attester tells whether the attestations of a key are kept about any room.
func (w *Witness) attester(agent adp.AgentID) bool {
	if _, ok := w.trusted[agent]; ok || agent == w.self {
		return true
	}
	return slices.ContainsFunc(w.o.Origins(), func(o string) bool { return w.o.Bound(o, agent) })
}

// attesterAt is attester for what a key signed at a time (Unix ms).
func (w *Witness) attesterAt(agent adp.AgentID, at int64) bool {
	if _, ok := w.trusted[agent]; ok || agent == w.self {
		return true
	}
	return slices.ContainsFunc(w.o.Origins(), func(o string) bool { return w.o.BoundAt(o, agent, at) })
}

// holding is what is held of the archive of a subject.
type holding struct {
	seq        int64
	hash, root string
}

// parts tells whether a complete content is of other records.
func (h holding) parts(c content) bool {
	return c.lastSeq != h.seq || c.lastHash != h.hash || c.root != h.root
}

// held is the end of our own copy, if that is whole: a room of ours that has its
// archive, or a mirrored one that is complete.
func (w *Witness) held(s Subject) (holding, bool) {
	r, ok := w.o.Replicas.GetKey(replica.Key(s))
	if !ok {
		return holding{}, false
	}
	row := r.Row()
	if !row.Archived || s.Origin != w.o.Origin && row.State != replica.Complete {
		return holding{}, false
	}
	tree, err := adp.TreeFromFrontier(uint64(row.Seq), row.Frontier)
	if err != nil {
		w.log.Error("witness cannot read the tree of a room", "origin", s.Origin, "room", s.RoomID, "err", err)
		return holding{}, false
	}
	root := tree.Root()
	return holding{row.Seq, row.Hash, adp.Encode(root[:])}, true
}

// compareAttestation leaves an observation when a witness attested another archive
// than the one that is held here.
func (w *Witness) compareAttestation(it *item, e *adp.Envelope) {
	h, ok := w.held(it.subject)
	if !ok || it.stranger || !it.content.complete || !h.parts(it.content) {
		return
	}
	w.log.Error("ALARM: a witness attested another archive than ours", "agent", it.agent, "origin", it.subject.Origin, "room", it.subject.RoomID)
	ours, err := adp.EncodeValue(map[string]any{"last_seq": h.seq, "last_hash": h.hash, "archive_root": h.root})
	if err == nil {
		err = w.Evidence(Observation{Kind: "attestation-mismatch", Subject: it.subject, Seq: min(h.seq, it.content.lastSeq),
			Reason: "a witness attested another archive than the one held here", Held: []json.RawMessage{ours.Raw()}, Other: []json.RawMessage{e.JSON()}})
	}
	if err != nil {
		w.log.Error("witness cannot keep an observation", "err", err)
	}
}
