package witness

import (
	"bytes"
	linked "container/list"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// Bounds on what is remembered of signed heads and checkpoints, to hold others
// against it.
const (
	claimsPerLine  = 4 // of one log or one room
	linesPerOrigin = 1024
	linesInAll     = 16384
	maxHeard       = 8192 // texts of checkpoints that need not be looked at again
	seenBytes      = 96 << 10
	seenItems      = 256 // in a page of catch-up
	seenOutOfTurn  = 128 // of them the newest; the others by turns
)

// claim is a signed head of a room, or a checkpoint of a log or a room.
type claim struct {
	key  ed25519.PublicKey // of a checkpoint
	note []byte            // with no signatures but those that count
	wire []byte            // as it is shown: JSON
	c    tilelog.Checkpoint
	head *adp.Envelope
}

func (c claim) same(d claim) bool {
	if c.head != nil || d.head != nil {
		return c.head != nil && d.head != nil && c.head.Hash == d.head.Hash
	}
	return c.c == d.c && c.key.Equal(d.key)
}

// lineName is the sequence that a claim is one of: the heads of a room, its
// checkpoints, or those of a log of one generation.
type lineName struct {
	Subject
	checkpoints string // the origin line; "" for heads
}

type claimLine struct {
	name   lineName
	recent []claim // the newest first
}

// claims remembers what hosts signed last, over restarts. It is shown to peers, so
// that a host that shows two stories to two of them is found out although neither
// of the two has ended.
type claims struct {
	mu      sync.Mutex
	lines   map[lineName]*linked.Element // of *claimLine
	order   linked.List                  // the one heard of last in front
	turn    *linked.Element              // where showing goes on
	origins map[string]int
	heard   map[[32]byte]bool

	unwritten map[lineName]bool // lines that the store does not have so; true: not any more
	wake      chan struct{}
}

// hear tells whether the text of a checkpoint was taken before; take says that it
// was. Peers show the same again and again.
func (t *claims) hear(note []byte, take bool) bool {
	sum := sha256.Sum256(note)
	t.mu.Lock()
	defer t.mu.Unlock()
	if take {
		if t.heard == nil || len(t.heard) >= maxHeard {
			t.heard = map[[32]byte]bool{}
		}
		t.heard[sum] = true
	}
	return t.heard[sum]
}

// add remembers a verified claim and gives what was known of its line; known when
// it is among that.
func (t *claims) add(name lineName, c claim) (others []claim, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines, t.origins = map[lineName]*linked.Element{}, map[string]int{}
	}
	at := t.lines[name]
	if at == nil {
		if t.origins[name.Origin] >= linesPerOrigin {
			t.forget(name.Origin)
		} else if len(t.lines) >= linesInAll {
			t.forget("")
		}
		at = t.order.PushFront(&claimLine{name: name})
		t.lines[name] = at
		t.origins[name.Origin]++
	}
	l := at.Value.(*claimLine)
	if slices.ContainsFunc(l.recent, c.same) {
		return nil, true
	}
	others = slices.Clone(l.recent)
	l.recent = append([]claim{c}, l.recent[:min(len(l.recent), claimsPerLine-1)]...)
	t.leave(at)
	t.order.MoveToFront(at)
	t.changed(name, false)
	return others, false
}

// has tells whether a claim is known; it makes no line.
func (t *claims) has(name lineName, c claim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.lines[name]
	return at != nil && slices.ContainsFunc(at.Value.(*claimLine).recent, c.same)
}

func (t *claims) of(name lineName) []claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.lines[name]; at != nil {
		return slices.Clone(at.Value.(*claimLine).recent)
	}
	return nil
}

// leave takes the turn away from a line that moves. t.mu is held.
func (t *claims) leave(at *linked.Element) {
	if t.turn == at {
		t.turn = at.Next()
	}
}

// forget drops the line of an origin, or of any, that was heard of least lately.
// t.mu is held.
func (t *claims) forget(origin string) {
	for at := t.order.Back(); at != nil; at = at.Prev() {
		name := at.Value.(*claimLine).name
		if origin != "" && name.Origin != origin {
			continue
		}
		t.leave(at)
		t.order.Remove(at)
		delete(t.lines, name)
		t.changed(name, true)
		if t.origins[name.Origin]--; t.origins[name.Origin] == 0 {
			delete(t.origins, name.Origin)
		}
		return
	}
}

// show picks what a peer is shown: the lines heard of last, then others by turns,
// so that all have been shown after a while.
func (t *claims) show() (shown []claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size, taken := 0, map[*linked.Element]bool{}
	take := func(at *linked.Element, most int) bool {
		if taken[at] {
			return true
		}
		l := at.Value.(*claimLine)
		more := 0
		for _, c := range l.recent {
			more += len(c.wire) + 1
		}
		if len(shown)+len(l.recent) > most || size+more > seenBytes*most/seenItems {
			return false
		}
		shown, size, taken[at] = append(shown, l.recent...), size+more, true
		return true
	}
	at := t.order.Front()
	for ; at != nil && take(at, seenOutOfTurn); at = at.Next() {
	}
	for range t.order.Len() {
		if t.turn == nil {
			if t.turn = t.order.Front(); t.turn == nil {
				break
			}
		}
		if !take(t.turn, seenItems) {
			break
		}
		t.turn = t.turn.Next()
	}
	return shown
}

// Head takes a signed head (room.head) of a room, from whatever source. It is kept
// in memory and held against others and against the statements of its signer. A
// contradiction is proven and gossiped, and waited for as Heads says. It tells
// whether the head is authentic; a head of a key that speaks now for nobody we know
// is not looked at.
func (w *Witness) Head(e *adp.Envelope) (authentic bool) {
	h, err := ParseHead(e)
	if err != nil {
		return false
	}
	name := lineName{Subject: h.Subject}
	own := h.Origin == w.o.Origin && e.Actor == w.self
	if !own && !w.o.Current(h.Origin, e.Actor) || w.claims.has(name, claim{head: e}) {
		return true
	}
	if e.CheckHash() != nil || e.CheckSignature() != nil {
		return false
	}
	if e, err = parseEnvelope(slices.Clone(e.JSON())); err != nil { // of a page that need not be kept whole
		return false
	}
	others, _ := w.claims.add(name, claim{head: e, wire: e.JSON()})
	for _, o := range others {
		if _, ok := Contradiction(o.head, e); ok {
			w.Heads(o.head, e)
		}
	}
	w.confront(h.Subject, e)
	return true
}

// confront holds a head against the statements about its room.
func (w *Witness) confront(s Subject, head *adp.Envelope) {
	it, err := readItem(head)
	if err != nil {
		return
	}
	w.mu.RLock()
	var other *item
	if a := w.book.subjects[s]; a != nil {
		for _, st := range a.statements {
			if st.agent == it.agent && st.content.differs(it.content) {
				other = st
			}
		}
	}
	w.mu.RUnlock()
	if other == nil {
		return
	}
	raw, ok, err := w.o.Store.Get(storeKey(other.typ, other.hash))
	if err == nil && !ok {
		return // its commit is under way, and ends with the same comparison
	}
	var st *adp.Envelope
	if err == nil {
		st, err = parseEnvelope(raw)
	}
	if err != nil {
		w.log.Error("witness cannot read a statement", "hash", other.hash, "err", err)
		return
	}
	w.Heads(st, head)
}

// confrontStatement holds the heads of a room against its statements.
func (w *Witness) confrontStatement(s Subject) {
	for _, c := range w.claims.of(lineName{Subject: s}) {
		w.confront(s, c.head)
	}
}

// attribute finds the log key that signed a checkpoint, of our own or of an origin
// that we follow, and what it is about.
func (w *Witness) attribute(note []byte) (s Subject, c tilelog.Checkpoint, key ed25519.PublicKey, ok bool) {
	c, err := tilelog.PeekCheckpoint(note)
	if err != nil {
		return s, c, nil, false
	}
	for _, origin := range append(slices.Clone(w.o.Origins()), w.o.Origin) { // two may differ in the scheme alone
		s, ok := subjectOf(c.Origin, []string{origin})
		if !ok {
			continue
		}
		for _, key := range w.logKeys(origin) {
			if _, _, err := openNote(note, key, algNote); err == nil {
				return s, c, key, true
			}
		}
	}
	return s, c, nil, false
}

// newClaim makes what is remembered of a checkpoint: with its own signature and
// those of cosigners that we know. Anybody can add other lines.
func (w *Witness) newClaim(note []byte, c tilelog.Checkpoint, key ed25519.PublicKey) (claim, error) {
	_, kept, err := openNote(note, key, algNote)
	if err != nil {
		return claim{}, err
	}
	if len(kept) < len(note) {
		for _, cosigner := range w.cosigners() {
			_, single, err := openNote(note, cosigner, algCosign)
			if line := bytes.TrimPrefix(single, []byte(c.Text()+"\n")); err == nil && len(kept)+len(line) <= tilelog.MaxCheckpoint {
				kept = append(kept, line...)
			}
		}
	}
	wire, err := json.Marshal(string(kept))
	return claim{key: key, note: kept, wire: wire, c: c}, err
}

// saw takes a checkpoint of the log, or of a room, of an origin that we
// follow, from whatever source. It is remembered and held against others; a
// contradiction is proven and gossiped.
func (w *Witness) saw(note []byte) {
	if w.claims.hear(note, false) {
		return
	}
	s, c, key, ok := w.attribute(note)
	if !ok {
		return
	}
	cl, err := w.newClaim(note, c, key)
	if err != nil {
		return // attribute has read it
	}
	w.claims.hear(note, true)
	if s.RoomID == "" && s.Origin != w.o.Origin {
		w.keepSeen(s.Origin, cl.note, c)
	}
	others, _ := w.claims.add(lineName{s, c.Origin}, cl)
	w.doubt(s, cl)
	for _, o := range others {
		if o.c.Size != c.Size || o.c.Root == c.Root {
			continue
		}
		if o.key.Equal(key) {
			w.proveOrLog(ProveCheckpoints(s, key, o.note, cl.note))
		}
		for _, witness := range w.cosigners() {
			p, err := ProveCosignatures(s, witness, o.note, cl.note)
			if err == nil { // else that witness has not signed both
				w.proveOrLog(p, nil)
			}
		}
	}
}

// recallLogs remembers the checkpoints that were kept over a restart.
func (w *Witness) recallLogs() {
	w.journal.mu.Lock()
	var notes [][]byte
	for _, note := range w.journal.seen {
		notes = append(notes, note)
	}
	w.journal.mu.Unlock()
	for _, note := range notes {
		if s, c, key, ok := w.attribute(note); ok {
			if cl, err := w.newClaim(note, c, key); err == nil {
				w.claims.add(lineName{s, c.Origin}, cl)
			}
		}
	}
}

// keepSeen keeps the greatest checkpoint of an origin's log, to be shown to that
// origin should it forget.
func (w *Witness) keepSeen(origin string, note []byte, c tilelog.Checkpoint) {
	w.write.Lock()
	defer w.write.Unlock()
	j := &w.journal
	j.mu.Lock()
	old := j.seen[origin]
	j.mu.Unlock()
	if old != nil {
		was, err := tilelog.PeekCheckpoint(old)
		if err != nil {
			w.log.Error("witness cannot read a checkpoint that it kept", "origin", origin, "err", err)
			return
		}
		before, _ := logGeneration(origin, was.Origin)
		now, _ := logGeneration(origin, c.Origin)
		if now < before || now == before && c.Size <= was.Size {
			return
		}
	}
	var b store.Batch
	b.Put(store.SeenLog(origin), note)
	if err := w.put(&b); err != nil {
		w.log.Error("witness cannot keep a checkpoint", "origin", origin, "err", err)
		return
	}
	j.mu.Lock()
	j.seen[origin] = note
	j.mu.Unlock()
}

var errSeen = errors.New("seen must be an array of checkpoints, as texts, and of heads, as envelopes")

// takeSeen takes what a peer has seen.
func (w *Witness) takeSeen(list adp.Value) error {
	if list.Kind() != adp.Array || list.Len() > seenItems {
		return errSeen
	}
	for v := range list.Elements() {
		if note, ok := v.Str(); ok {
			w.shown([]byte(note)) // one of a key that we do not know is no offence
			continue
		}
		e, err := adp.ParseEnvelope(v)
		if err != nil || !w.Head(e) {
			return errSeen
		}
	}
	return nil
}
