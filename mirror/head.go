package mirror

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// TypeHead is the type of the agent-witness/1.0 envelope in which a host says
// how far one of its public rooms is (federation.md, Relay).
const TypeHead = "room.head"

// Head is the payload of a room.head envelope.
type Head struct {
	Origin  string `json:"origin"`
	RoomID  string `json:"room_id"`
	Genesis string `json:"genesis"` // record hash at seq 1
	Seq     int64  `json:"seq"`
	Hash    string `json:"hash"` // record hash at Seq
	Root    string `json:"root"` // RFC 6962 root over the record hashes up to Seq
	At      int64  `json:"at"`   // Unix ms
}

// Key names the replica that the head is of.
func (h Head) Key() replica.Key {
	return replica.Key{Origin: h.Origin, RoomID: h.RoomID, Genesis: h.Genesis}
}

const maxOrigin = 300

// ParseHead reads the payload of a room.head envelope. The signature, and whether
// the signer may speak for the origin, are not looked at.
func ParseHead(e *adp.Envelope) (Head, error) {
	if err := e.CheckShape(); err != nil {
		return Head{}, err
	}
	if e.Protocol != adp.WitnessProtocol || e.Type != TypeHead {
		return Head{}, adp.Errorf(adp.InvalidEvent, "not a %s event of %s", TypeHead, adp.WitnessProtocol)
	}
	p := e.Payload
	h := Head{Origin: p.Get("origin").Text(), RoomID: p.Get("room_id").Text(), Genesis: p.Get("genesis").Text(), Hash: p.Get("hash").Text(), Root: p.Get("root").Text()}
	var okSeq, okAt bool
	h.Seq, okSeq = p.Get("seq").Int()
	h.At, okAt = p.Get("at").Int()
	switch {
	case p.Len() != 7:
		return Head{}, adp.Errorf(adp.InvalidEvent, "the payload of a head has exactly origin, room_id, genesis, seq, hash, root and at")
	case h.Origin == "" || len(h.Origin) > maxOrigin:
		return Head{}, adp.Errorf(adp.InvalidEvent, "origin must be an origin")
	case !adp.IsRoomID(h.RoomID):
		return Head{}, adp.Errorf(adp.InvalidEvent, "room_id is not a room ID")
	case !adp.IsHash(h.Genesis) || !adp.IsHash(h.Hash) || !adp.IsHash(h.Root):
		return Head{}, adp.Errorf(adp.InvalidEvent, "genesis, hash and root must be the text of 32 bytes")
	case !okSeq || h.Seq < 1 || !okAt || h.At < 0:
		return Head{}, adp.Errorf(adp.InvalidEvent, "seq must be an integer from 1, at must be Unix milliseconds")
	case h.Seq == 1 && h.Hash != h.Genesis:
		return Head{}, adp.Errorf(adp.InvalidEvent, "at seq 1 hash must be genesis")
	}
	return h, nil
}

// signedHead is a head with who signed it, and its envelope as canonical text.
type signedHead struct {
	Head
	by  adp.AgentID
	raw []byte
}

func (s signedHead) envelope() (*adp.Envelope, error) {
	v, err := adp.Scan(s.raw)
	if err != nil {
		return nil, err
	}
	return adp.ParseEnvelope(v)
}

// readHead parses the envelope of a head into text of its own.
func readHead(v adp.Value) (signedHead, *adp.Envelope, error) {
	e, err := adp.ParseEnvelope(v)
	if err != nil {
		return signedHead{}, nil, err
	}
	h, err := ParseHead(e)
	if err != nil {
		return signedHead{}, e, err
	}
	return signedHead{h, e.Actor, e.JSON()}, e, nil
}

// errNotBound: the key of a head does not speak for its origin, as far as we know.
var errNotBound = errors.New("its key is not bound to the origin")

// verifiedHead reads a head that did not come by gossip, and whose age therefore
// does not matter: it must be authentic, and of a key that speaks for its origin.
// The error is errNotBound when that alone is missing.
func verifiedHead(v adp.Value, speaks func(origin string, agent adp.AgentID) bool) (signedHead, error) {
	h, e, err := readHead(v)
	if err != nil {
		return signedHead{}, err
	}
	if err := e.CheckHash(); err != nil {
		return signedHead{}, err
	}
	if !speaks(h.Origin, e.Actor) {
		return h, fmt.Errorf("%w: %s, %s", errNotBound, e.Actor, h.Origin)
	}
	if err := e.CheckSignature(); err != nil {
		return signedHead{}, err
	}
	h.raw = bytes.Clone(h.raw)
	return h, nil
}

// speaksFor tells whether a key speaks now for an origin that is followed. What was
// retired signs no new heads: who got hold of it could go on with a room.
func (m *Mirror) speaksFor(origin string, agent adp.AgentID) bool {
	return m.o.Bindings != nil && origin != m.o.Own && m.Followed(origin) && m.o.Bindings.Current(origin, agent)
}

// spokeFor is speaksFor for a head that was taken while its key was bound.
func (m *Mirror) spokeFor(origin string, agent adp.AgentID) bool {
	return m.o.Bindings != nil && origin != m.o.Own && m.Followed(origin) && m.o.Bindings.Bound(origin, agent)
}

// Bounds of what is remembered of the heads that hosts signed.
const (
	headsPerRoom   = 3 // the newest, and some before it to hold others against
	headsPerOrigin = 2048
	headsInAll     = 16384 // rooms
)

// headPlace is where a head stands beside those that are known.
type headPlace int

const (
	headNew           headPlace = iota // newer than all
	headOld                            // known, or too old to tell anything
	headContradiction                  // the same key signed another hash at this seq
)

// heads remembers the newest heads of the rooms of other hosts. A room is
// forgotten when its origin, or all together, have too many; then the oldest one
// of the origin that has most.
type heads struct {
	mu      sync.Mutex
	rooms   map[replica.Key]*headRoom
	origins map[string]*list.List // of *headRoom, the one heard of last in front
}

type headRoom struct {
	key    replica.Key
	at     *list.Element
	recent []signedHead // newest first
	told   bool         // a contradiction was told; one for a room is enough
}

// place tells where a head stands. other is the head that it contradicts.
func (t *heads) place(h signedHead) (p headPlace, other signedHead) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rooms[h.Key()].place(h)
}

func (r *headRoom) place(h signedHead) (headPlace, signedHead) {
	if r == nil || h.Seq > r.recent[0].Seq || h.by != r.recent[0].by { // of the new key of a host, whatever the old one said
		return headNew, signedHead{}
	}
	for _, known := range r.recent {
		if known.Seq == h.Seq && known.by == h.by && (known.Hash != h.Hash || known.Root != h.Root) && !r.told {
			return headContradiction, known
		}
	}
	return headOld, signedHead{}
}

// add remembers a verified head.
func (t *heads) add(h signedHead) (p headPlace, other signedHead) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rooms[h.Key()]
	switch p, other = r.place(h); p {
	case headContradiction:
		r.told = true
		return p, other
	case headOld:
		return p, other
	}
	if r == nil {
		r = t.room(h.Key())
	}
	t.origins[h.Origin].MoveToFront(r.at)
	r.recent = slices.Insert(r.recent, 0, h)
	if len(r.recent) > headsPerRoom {
		r.recent[headsPerRoom] = signedHead{}
		r.recent = r.recent[:headsPerRoom]
	}
	return headNew, other
}

// room makes a place for a room. t.mu is held.
func (t *heads) room(k replica.Key) *headRoom {
	if t.rooms == nil {
		t.rooms, t.origins = map[replica.Key]*headRoom{}, map[string]*list.List{}
	}
	of := t.origins[k.Origin]
	if of == nil {
		of = list.New()
		t.origins[k.Origin] = of
	}
	if of.Len() >= headsPerOrigin {
		t.forget(of)
	} else if len(t.rooms) >= headsInAll {
		largest := of
		for _, o := range t.origins {
			if o.Len() > largest.Len() {
				largest = o
			}
		}
		t.forget(largest)
	}
	r := &headRoom{key: k}
	r.at = of.PushFront(r)
	t.rooms[k] = r
	return r
}

func (t *heads) forget(of *list.List) {
	last := of.Back()
	of.Remove(last)
	delete(t.rooms, last.Value.(*headRoom).key)
}

// newest is the newest head that is known of a replica.
func (t *heads) newest(k replica.Key) (signedHead, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rooms[k]
	if r == nil {
		return signedHead{}, false
	}
	return r.recent[0], true
}

// drop forgets what an origin said.
func (t *heads) drop(origin string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of := t.origins[origin]; of != nil {
		for e := of.Front(); e != nil; e = e.Next() {
			delete(t.rooms, e.Value.(*headRoom).key)
		}
		delete(t.origins, origin)
	}
}

// newestHead is the newest head of a replica, also from before a restart.
func (m *Mirror) newestHead(k replica.Key) (signedHead, bool) {
	if h, ok := m.heads.newest(k); ok {
		return h, true
	}
	raw, ok, err := m.o.Store.Get(headKey(k))
	if err != nil || !ok {
		return signedHead{}, false
	}
	v, err := adp.Scan(raw)
	if err != nil {
		return signedHead{}, false
	}
	h, err := verifiedHead(v, m.spokeFor) // it was taken, but the host may have been removed and added since
	if err != nil || h.Key() != k {
		return signedHead{}, false
	}
	return h, true
}

// headKey is where the newest head of a room is kept over a restart, so that what
// peers hold of a dead host can still be covered.
func headKey(k replica.Key) []byte { return store.HostRoom(k.Origin, k.RoomID) }
