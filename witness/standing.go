package witness

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/witan-adp/witan/adp"
)

// ErrUnanswerable: a proof is against a key that speaks for nobody whom we know,
// or there is enough against that key already. Such proofs are not kept.
var ErrUnanswerable = errors.New("witness: the proof is not against a key of interest")

// Prove keeps a proof that was made here and gossips it. One that is known
// already is no error.
func (w *Witness) Prove(p *Proof) error {
	text, err := p.JSON()
	if err != nil {
		return err
	}
	w.mu.RLock()
	known := w.book.evidence[p.id()]
	w.mu.RUnlock()
	if known {
		return nil
	}
	switch v, judged := w.judge(text); v {
	case Accept:
		judged.spread = true
		return w.keep([]parsed{judged})
	case Reject:
		_, err := VerifyEvidence(text)
		return fmt.Errorf("witness: the proof does not hold: %w", err)
	}
	w.mu.RLock()
	known = w.book.evidence[p.id()]
	w.mu.RUnlock()
	if known {
		return nil
	}
	return fmt.Errorf("%w: %s of %s", ErrUnanswerable, p.Kind, p.Agent)
}

// proveOrLog is Prove where nobody waits for the result.
func (w *Witness) proveOrLog(p *Proof, err error) {
	if err == nil {
		err = w.Prove(p)
	}
	switch {
	case errors.Is(err, ErrUnanswerable):
		w.log.Debug("a contradiction of a key that is of no interest", "err", err)
	case err != nil:
		w.log.Error("witness cannot keep the proof of a contradiction", "err", err)
	}
}

// Heads takes two signed heads (room.head) of one key that cannot both hold. It
// waits for the disk and for Equivocated: not to be called in a turn of a replica.
func (w *Witness) Heads(a, b *adp.Envelope) { w.proveOrLog(newProof(a, b)) }

// Proven tells whether a key of the host is proven to have told two stories of a
// room, or so many of others that nothing it says is believed.
func (w *Witness) Proven(s Subject) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	a := w.book.subjects[s]
	return a != nil && a.equivocated || w.book.lost[s.Origin]
}

// HostEquivocated tells whether a log key of an origin is proven to have signed two
// logs, or its keys so many contradictions that nothing it says is believed.
// It takes no lock: who lists the origins for us may ask.
func (w *Witness) HostEquivocated(origin string) bool { return (*w.fallen.Load())[origin] }

// noteFallen needs mu.
func (w *Witness) noteFallen() {
	hosts := maps.Clone(w.book.hosts)
	w.fallen.Store(&hosts)
}

// Contradicted tells whether there is any proof against a key: of an agent, of a
// log, or of a cosigner.
func (w *Witness) Contradicted(key adp.AgentID) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.book.provenBy[key] > 0
}

// tellProven hands on what a new proof changes.
func (w *Witness) tellProven(p *Proof) {
	w.mu.RLock()
	lost, rooms := against(p.Kind) && w.book.lost[p.Origin], [][2]string{{p.Origin, p.RoomID}}
	if lost {
		rooms = w.roomsOf(p.Origin)
	}
	w.mu.RUnlock()
	for _, room := range rooms {
		if room[1] != "" {
			w.tell(room[0], room[1])
		}
	}
	if against(p.Kind) {
		w.equivocated(p.Subject)
		if lost {
			w.equivocated(Subject{Origin: p.Origin})
		}
	}
}

// roomsOf needs mu.
func (w *Witness) roomsOf(origin string) (rooms [][2]string) {
	for room := range w.book.rooms {
		if room[0] == origin {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

// equivocated hands on that a host told two stories.
func (w *Witness) equivocated(s Subject) {
	if w.o.Equivocated != nil {
		w.telling.Lock()
		defer w.telling.Unlock()
		w.o.Equivocated(s.Origin, s.RoomID, s.Genesis)
	}
}

// remind tells again of a room that came here after the proof against it.
func (w *Witness) remind(s Subject) {
	if w.Proven(s) {
		w.equivocated(s)
	}
}

func (w *Witness) tellAllProven() {
	w.mu.RLock()
	var all []Subject
	for s, a := range w.book.subjects {
		if a.equivocated {
			all = append(all, s)
		}
	}
	for origin, is := range w.book.hosts {
		if is {
			all = append(all, Subject{Origin: origin})
		}
	}
	w.mu.RUnlock()
	for _, s := range all {
		w.equivocated(s)
	}
}

// logKeys are the log keys that answer for an origin: of one that we follow, and
// our own of every generation so far.
func (w *Witness) logKeys(origin string) (keys []ed25519.PublicKey) {
	if origin == w.o.Origin {
		if w.o.LogKey == nil || w.journal.log == nil {
			return nil
		}
		generation, _ := w.journal.log.Head()
		for g := 1; g <= generation; g++ {
			keys = append(keys, w.logKey(g))
		}
		return keys
	}
	if w.o.LogKeys == nil || !slices.Contains(w.o.Origins(), origin) {
		return nil
	}
	return w.o.LogKeys(origin)
}

func (w *Witness) cosigners() []ed25519.PublicKey {
	if w.o.Cosigners == nil {
		return nil
	}
	return w.o.Cosigners()
}
