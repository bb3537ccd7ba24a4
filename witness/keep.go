package witness

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// nonceName is where the greatest nonce that we signed with stands.
const nonceName = "witness.nonce"

// errTold: what was to be signed, or something that contradicts it, was signed
// before.
var errTold = errors.New("witness: this has been signed before")

// parsed is a judged message: an envelope with what it says, or a proof.
type parsed struct {
	env   *adp.Envelope
	item  *item
	proof *Proof
	ours  bool // just signed here
	// the proof did not come by gossip: it is gossiped
	spread bool
}

// sign is the one way to a signature of this daemon about archives. It signs what
// it can read back, never a second story, with a nonce that is greater than every
// one before, enters it into the log, and lets the signature out only once both
// are on the disk.
func (w *Witness) sign(typ string, payload any) (*adp.Envelope, error) {
	e, after, err := w.signLocked(typ, payload)
	if err != nil {
		return nil, err
	}
	w.metrics.signed.WithLabelValues(typ).Inc()
	for _, fn := range after {
		fn()
	}
	w.publisher.put(w, TopicStatements, e.JSON())
	return e, nil
}

func (w *Witness) signLocked(typ string, payload any) (*adp.Envelope, []func(), error) {
	w.write.Lock()
	defer w.write.Unlock()
	if err := w.maySign(); err != nil {
		return nil, nil, err
	}
	now := w.o.Now()
	nonce := max(now, w.nonce+1)
	e, err := adp.Sign(w.o.Key, adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, CreatedAt: now, Nonce: nonce, Payload: payload})
	if err != nil {
		return nil, nil, err
	}
	it, err := readItem(e)
	if err != nil {
		return nil, nil, fmt.Errorf("what was to be signed does not read back: %w", err)
	}
	w.mu.RLock()
	p, _ := w.book.place(it)
	w.mu.RUnlock()
	switch p {
	case placeNew:
	case placeContradiction:
		w.log.Error("ALARM: refused to sign what contradicts an earlier signature of this daemon; compare the store with its backups",
			"type", typ, "origin", it.subject.Origin, "room", it.subject.RoomID)
		return nil, nil, errTold
	default:
		return nil, nil, errTold
	}
	var b store.Batch
	stamp := strconv.AppendInt(nil, nonce, 10)
	b.Expect(store.Meta(nonceName), w.stamp)
	b.Put(store.Meta(nonceName), stamp)
	settled, err := w.enter(&b, e)
	if err != nil {
		return nil, nil, err
	}
	after, err := w.commit(&b, []parsed{{env: e, item: it, ours: true}})
	settled(err)
	if err != nil {
		return nil, nil, err
	}
	w.nonce, w.stamp = nonce, stamp
	return e, after, nil
}

// keep stores what was judged, as one commit.
func (w *Witness) keep(batch []parsed) error {
	w.write.Lock()
	var b store.Batch
	after, err := w.commit(&b, batch)
	w.write.Unlock()
	for _, fn := range after {
		fn()
	}
	return err
}

// commit adds what is new of a batch to the book and to the store. after is what
// is to be done once no lock is held. write is held.
func (w *Witness) commit(b *store.Batch, batch []parsed) (after []func(), err error) {
	w.mu.Lock()
	for _, p := range batch {
		if p.proof != nil {
			after = append(after, w.putProof(b, p.proof, p.spread)...)
		} else {
			next := w.book.next
			after = append(after, w.putItem(b, p.env, p.item, batch)...)
			if p.env.Actor == w.self && !p.ours && w.book.next != next {
				if fn := w.foreign(b, p.env); fn != nil {
					after = append(after, fn)
				}
			}
			if p.env.Actor == w.self { // signed before a backup was restored: never sign below it
				w.nonce = max(w.nonce, p.env.Nonce)
			}
		}
	}
	w.mu.Unlock()
	if b.Size() == 0 {
		return nil, nil
	}
	if err := w.put(b); err != nil {
		// the book is ahead of the store now: read it again
		if again := w.load(); again != nil {
			w.log.Error("witness cannot read its store again after a failed commit", "err", again)
		}
		return nil, err
	}
	return after, nil
}

// putItem needs write and mu. batch is what is committed together with it.
func (w *Witness) putItem(b *store.Batch, e *adp.Envelope, it *item, batch []parsed) []func() {
	// who is a stranger is asked again: bindings change
	it.stranger = it.typ == TypeAttest && !w.attester(it.agent)
	p, against := w.book.place(it)
	s := it.subject
	switch p {
	case placeContradiction:
		proof, err := w.otherSide(against, e, batch)
		if err != nil {
			w.log.Error("witness cannot make the proof of a contradiction", "agent", it.agent, "origin", s.Origin, "room", s.RoomID, "err", err)
			return nil
		}
		return w.putProof(b, proof, true)
	case placeNew:
	default:
		return nil
	}
	it.n = w.book.next
	w.book.add(it)
	n := strconv.AppendUint(nil, it.n, 10)
	b.Put(storeKey(it.typ, it.hash), e.JSON())
	if it.typ == TypeAnnounce {
		b.Put(store.StatementByRoom(s.Origin, s.RoomID, it.hash), n)
		return []func(){func() { w.stated(s) }}
	}
	b.Put(store.AttestationByRoom(s.Origin, s.RoomID, it.hash), n)
	return []func(){func() { w.compareAttestation(it, e) }, func() { w.tell(s.Origin, s.RoomID) }}
}

// otherSide makes the proof that e contradicts an item that is kept, or that
// stands before it in the same batch.
func (w *Witness) otherSide(against *item, e *adp.Envelope, batch []parsed) (*Proof, error) {
	var other *adp.Envelope
	for _, p := range batch {
		if p.env != nil && p.env.Hash == against.hash {
			other = p.env
		}
	}
	if other == nil {
		raw, ok, err := w.o.Store.Get(storeKey(against.typ, against.hash))
		if err != nil || !ok {
			return nil, errors.Join(err, errors.New("the other side is not in the store"))
		}
		if other, err = parseEnvelope(raw); err != nil {
			return nil, err
		}
	}
	return newProof(other, e)
}

// putProof needs write and mu.
func (w *Witness) putProof(b *store.Batch, p *Proof, spread bool) []func() {
	id := p.id()
	if w.book.evidence[id] || w.book.enough(p.Agent) {
		return nil
	}
	n := w.book.next
	text, err := p.JSON()
	var m map[string]any
	if err == nil {
		m, err = p.members()
	}
	var v adp.Value
	if err == nil {
		m["seen_at"], m["observer"] = w.o.Now(), w.self
		v, err = adp.EncodeValue(m)
	}
	if err != nil {
		w.log.Error("witness cannot write a proof", "err", err)
		return nil
	}
	w.book.addProof(p, n)
	w.noteFallen()
	b.Put(store.Evidence(id), v.Raw())
	b.Put(store.EvidenceByRoom(p.Origin, p.RoomID, id), strconv.AppendUint(nil, n, 10))
	return []func(){func() {
		w.metrics.evidence.WithLabelValues(ClassProof).Inc()
		w.log.Error("ALARM: one key signed two things that cannot both hold; the proof is at /v1/witness/evidence",
			"kind", p.Kind, "agent", p.Agent, "origin", p.Origin, "room", p.RoomID)
		if spread {
			w.publisher.put(w, TopicEvidence, text)
		}
		w.tellProven(p)
	}}
}

// Observation is something that this daemon saw and nobody signed: what it holds
// and what it was told instead, as JSON texts (records, envelopes, manifests).
type Observation struct {
	Kind string // fork, archive-mismatch, stale-head, statement-mismatch, …
	Subject
	Seq    int64 // where the two sides part; 0 when that has no place
	Reason string
	Held   []json.RawMessage
	Other  []json.RawMessage
}

// Evidence keeps an observation, once: the same first difference is the same
// observation. It returns when the observation is on the disk.
func (w *Witness) Evidence(o Observation) error {
	what := []string{strconv.FormatInt(o.Seq, 10)}
	for _, side := range [][]json.RawMessage{o.Held, o.Other} {
		if len(side) > 0 {
			what = append(what, string(side[0]))
		} else {
			what = append(what, "")
		}
	}
	id := evidenceID(ClassObservation, o.Kind, o.Subject, what...)
	raw, err := w.writeObservation(o)
	if err != nil {
		return fmt.Errorf("witness: keep an observation: %w", err)
	}
	w.write.Lock()
	defer w.write.Unlock()
	w.mu.Lock()
	seen, full, n := w.book.evidence[id], w.book.observed[observedKey(o.Kind, o.Subject)] >= maxObservations, w.book.next
	w.mu.Unlock()
	if seen || full {
		return nil
	}
	var b store.Batch
	b.Put(store.Evidence(id), raw)
	b.Put(store.EvidenceByRoom(o.Origin, o.RoomID, id), strconv.AppendUint(nil, n, 10))
	if err := w.put(&b); err != nil {
		return fmt.Errorf("witness: keep an observation: %w", err)
	}
	w.mu.Lock()
	w.book.addObservation(id, o.Kind, o.Subject, n)
	w.mu.Unlock()
	w.metrics.evidence.WithLabelValues(ClassObservation).Inc()
	w.log.Warn("witness keeps an observation", "kind", o.Kind, "origin", o.Origin, "room", o.RoomID, "seq", o.Seq, "reason", o.Reason)
	return nil
}

// writeObservation cuts long sides from their ends; the first of each side is where
// the stories part, and stays.
func (w *Witness) writeObservation(o Observation) ([]byte, error) {
	size := 0
	cut := func(side []json.RawMessage, i int) []json.RawMessage {
		if i < len(side) {
			if size += len(side[i]); size > maxObservationSize && i > 0 {
				return side[:i]
			}
		}
		return side
	}
	for i := 0; i < max(len(o.Held), len(o.Other)); i++ {
		o.Held, o.Other = cut(o.Held, i), cut(o.Other, i)
	}
	if o.Held == nil {
		o.Held = []json.RawMessage{}
	}
	if o.Other == nil {
		o.Other = []json.RawMessage{}
	}
	return adp.EncodeJSON(struct {
		Class string `json:"class"`
		Kind  string `json:"kind"`
		Subject
		Seq      int64             `json:"seq,omitempty"`
		Reason   string            `json:"reason,omitempty"`
		SeenAt   int64             `json:"seen_at"`
		Observer adp.AgentID       `json:"observer"`
		Held     []json.RawMessage `json:"held"`
		Other    []json.RawMessage `json:"other"`
	}{ClassObservation, o.Kind, o.Subject, o.Seq, o.Reason, w.o.Now(), w.self, o.Held, o.Other})
}

// stated reacts to a new statement: a mirrored room that is complete is attested
// with it.
func (w *Witness) stated(s Subject) {
	r, ok := w.o.Replicas.GetKey(replica.Key(s))
	if ok && s.Origin != w.o.Origin && (r.Row().State == replica.Complete || w.waits(r.Key)) {
		w.enqueue(r.Key)
	}
	w.confrontStatement(s)
	w.tell(s.Origin, s.RoomID)
}

func storeKey(typ, hash string) []byte {
	if typ == TypeAnnounce {
		return store.Statement(hash)
	}
	return store.Attestation(hash)
}

func randomKey() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return key
}
