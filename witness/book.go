package witness

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// item is what the book remembers of a statement or an attestation; the envelope
// itself is in the store.
type item struct {
	n         uint64 // order of arrival, from 1
	hash      string
	typ       string
	agent     adp.AgentID
	subject   Subject
	statement string // the statement that is attested; "" for none
	content   content
	stranger  bool // an attestation that is kept only because it is of our own statement
}

func readItem(e *adp.Envelope) (*item, error) {
	it := &item{hash: e.Hash, typ: e.Type, agent: e.Actor}
	if e.Type == TypeHead {
		h, err := ParseHead(e)
		if err != nil {
			return nil, err
		}
		it.subject, it.content = h.Subject, h.content()
		return it, nil
	}
	if e.Type == TypeAttest {
		a, err := ParseAttestation(e)
		if err != nil {
			return nil, err
		}
		it.subject, it.content = a.Subject, a.content()
		if a.Statement != nil {
			it.statement = *a.Statement
		}
		return it, nil
	}
	s, err := ParseStatement(e)
	if err != nil {
		return nil, err
	}
	it.subject, it.content = s.Subject, s.content()
	return it, nil
}

// about is all that is known of one subject.
type about struct {
	statements   []*item
	attestations []*item
	proven       map[[2]string]bool // (kind of proof, agent)
	equivocated  bool               // a key of the host is proven to have told two stories
}

func (a *about) of(typ string) []*item {
	if typ == TypeAnnounce {
		return a.statements
	}
	return a.attestations
}

type proofRef struct {
	n  uint64
	id string
}

// book is the index over what the store holds; derived data.
type book struct {
	next     uint64 // order of the next arrival
	byHash   map[string]*item
	subjects map[Subject]*about
	rooms    map[[2]string][]Subject // (origin, room) → its geneses
	signers  map[adp.AgentID]int     // subjects that a signer speaks of
	order    []*item
	proofs   []proofRef
	evidence map[string]bool
	observed map[string]int // observations by kind and room
	provenBy map[adp.AgentID]int
	hosts    map[string]bool // origins whose log is proven to have told two stories
	lost     map[string]bool // origins of a key with maxProofs proofs: nothing of them is believed
}

// maxProofs is how many proofs are kept against one key. Who makes more of them
// against itself, to fill our disk or to have the one that counts not be kept, is
// believed nowhere any more: all rooms of that origin show as equivocated.
const maxProofs = 1024

// enough tells whether no more proofs against a key are kept.
func (b *book) enough(key adp.AgentID) bool { return b.provenBy[key] >= maxProofs }

func newBook() *book {
	return &book{next: 1, byHash: map[string]*item{}, subjects: map[Subject]*about{}, rooms: map[[2]string][]Subject{},
		signers: map[adp.AgentID]int{}, evidence: map[string]bool{}, observed: map[string]int{},
		provenBy: map[adp.AgentID]int{}, hosts: map[string]bool{}, lost: map[string]bool{}}
}

func (b *book) about(s Subject) *about {
	a := b.subjects[s]
	if a == nil {
		a = &about{proven: map[[2]string]bool{}}
		b.subjects[s] = a
		room := [2]string{s.Origin, s.RoomID}
		b.rooms[room] = append(b.rooms[room], s)
	}
	return a
}

// placement says what becomes of an item.
type placement int

const (
	placeNew placement = iota
	placeKnown
	placeFull // enough is kept of this signer, or of strangers
	placeContradiction
)

// place judges an item against what is kept; against is the other side of a
// contradiction.
func (b *book) place(it *item) (p placement, against *item) {
	if b.byHash[it.hash] != nil {
		return placeKnown, nil
	}
	a, kind, mine, strangers := b.subjects[it.subject], KindStatements, 0, 0
	if it.typ == TypeAttest {
		kind = KindAttestations
	}
	if a == nil {
		a = &about{}
	}
	if a.proven[[2]string{kind, string(it.agent)}] {
		return placeFull, nil
	}
	again := false
	for _, old := range a.of(it.typ) {
		if old.stranger && old.statement == it.statement {
			strangers++
		}
		if old.agent != it.agent {
			continue
		}
		if old.content.differs(it.content) {
			return placeContradiction, old
		}
		mine++
		again = again || it.typ == TypeAttest && old.statement == it.statement
	}
	if again || mine >= maxPerSubject || it.stranger && strangers >= MaxStrangers || mine == 0 && !it.stranger && b.signers[it.agent] >= maxSubjects {
		return placeFull, nil
	}
	return placeNew, nil
}

func (b *book) add(it *item) {
	a := b.about(it.subject)
	if !it.stranger && !slices.ContainsFunc(a.of(it.typ), func(o *item) bool { return o.agent == it.agent }) {
		b.signers[it.agent]++
	}
	if it.typ == TypeAnnounce {
		a.statements = append(a.statements, it)
	} else {
		a.attestations = append(a.attestations, it)
	}
	b.byHash[it.hash] = it
	b.order = append(b.order, it)
	b.next = max(b.next, it.n+1)
}

func (b *book) addProof(p *Proof, n uint64) {
	if p.RoomID != "" {
		a := b.about(p.Subject)
		a.proven[[2]string{p.Kind, string(p.Agent)}] = true
		a.equivocated = a.equivocated || against(p.Kind)
	}
	b.provenBy[p.Agent]++
	if against(p.Kind) {
		b.hosts[p.Origin] = b.hosts[p.Origin] || p.RoomID == "" || b.enough(p.Agent)
		b.lost[p.Origin] = b.lost[p.Origin] || b.enough(p.Agent)
	}
	b.evidence[p.id()] = true
	b.proofs = append(b.proofs, proofRef{n, p.id()})
	b.next = max(b.next, n+1)
}

func observedKey(kind string, s Subject) string { return kind + " " + s.Origin + " " + s.RoomID }

func (b *book) addObservation(id, kind string, s Subject, n uint64) {
	b.evidence[id] = true
	b.observed[observedKey(kind, s)]++
	b.next = max(b.next, n+1)
}

// load builds the book from the store.
func (w *Witness) load() error {
	b := newBook()
	var stamp []byte
	nonce := int64(0)
	err := w.o.Store.View(func(r store.Reader) error {
		var err error
		if stamp, _, err = r.Get(store.Meta(nonceName)); err != nil {
			return err
		}
		for _, kind := range []struct {
			span func(string, string) ([]byte, []byte)
			key  func(string) []byte
		}{{store.StatementByRoomRange, store.Statement}, {store.AttestationByRoomRange, store.Attestation}} {
			err := eachByRoom(r, kind.span, kind.key, func(n uint64, hash string, raw []byte) error {
				e, err := parseEnvelope(raw)
				if err != nil {
					return err
				}
				it, err := readItem(e)
				if err != nil {
					return err
				}
				it.n = n
				b.add(it)
				if e.Actor == w.self {
					nonce = max(nonce, e.Nonce)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return eachByRoom(r, store.EvidenceByRoomRange, store.Evidence, func(n uint64, id string, raw []byte) error {
			var e struct {
				Class, Kind string
				Subject
				Agent adp.AgentID
			}
			if err := json.Unmarshal(raw, &e); err != nil {
				return err
			}
			if e.Class == ClassProof {
				b.addProof(&Proof{Kind: e.Kind, Subject: e.Subject, Agent: e.Agent}, n)
			} else {
				b.addObservation(id, e.Kind, e.Subject, n)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if stamp != nil {
		last, err := strconv.ParseInt(string(stamp), 10, 64)
		if err != nil {
			return fmt.Errorf("the nonce that was signed with last: %w", err)
		}
		nonce = max(nonce, last)
	}
	sort.Slice(b.order, func(i, j int) bool { return b.order[i].n < b.order[j].n })
	sort.Slice(b.proofs, func(i, j int) bool { return b.proofs[i].n < b.proofs[j].n })
	w.nonce, w.stamp = nonce, stamp
	w.mu.Lock()
	w.book = b
	w.noteFallen()
	if w.met {
		w.markStrangers()
	}
	w.mu.Unlock()
	return nil
}

// meet finds out, once, which of what was kept is by strangers. New does not: who
// knows the bindings may not be there yet.
func (w *Witness) meet() {
	w.meeting.Do(func() {
		if err := w.recallClaims(); err != nil {
			w.log.Error("witness cannot read what hosts signed last", "err", err)
		}
		w.recallLogs()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.met = true
		w.markStrangers()
	})
}

// markStrangers needs mu.
func (w *Witness) markStrangers() {
	for _, it := range w.book.order {
		it.stranger = it.typ == TypeAttest && !w.attester(it.agent)
	}
}

func eachByRoom(r store.Reader, span func(string, string) ([]byte, []byte), key func(string) []byte, fn func(n uint64, hash string, raw []byte) error) error {
	from, to := span("", "")
	var bad error
	err := r.Scan(from, to, func(k, v []byte) bool {
		_, _, hash, err := store.ParseNamed(k)
		var n uint64
		if err == nil {
			n, err = strconv.ParseUint(string(v), 10, 64)
		}
		var raw []byte
		found := false
		if err == nil {
			raw, found, err = r.Get(key(hash))
		}
		if err == nil && !found {
			err = errors.New("its text is missing")
		}
		if err == nil {
			err = fn(n, hash, raw)
		}
		if err != nil {
			bad = fmt.Errorf("%s: %w", hash, err)
		}
		return err == nil
	})
	return errors.Join(err, bad)
}

func parseEnvelope(raw []byte) (*adp.Envelope, error) {
	v, err := adp.Scan(raw)
	if err != nil {
		return nil, err
	}
	return adp.ParseEnvelope(v)
}
