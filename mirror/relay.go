package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
)

// Names on the network (federation.md, Relay), and bounds in bytes of what goes
// over it.
const (
	TopicRelay       = "/witan/relay/1"
	ProtocolRoomSync = "/witan/room-sync/1"

	MaxRelay        = 256 << 10
	MaxSyncRequest  = 2 << 10
	MaxSyncResponse = 8<<20 + 64<<10
)

const (
	inlineBytes   = 64 << 10 // of the records that we put behind a head
	inlineRecords = 256      // records behind a head that are looked at
	headMaxAge    = 5 * time.Minute

	// Heads of one signer; what is above it is left to polling.
	signerRate, signerBurst = 200, 1000
	maxSigners              = 10_000

	// What Validate has verified and Receive has not yet taken over.
	maxStash      = 256
	maxStashBytes = 16 << 20
	maxConflicts  = 64
)

// Verdict is what becomes of a message from a peer; its values are those of the
// gossip layer.
type Verdict int

const (
	Accept Verdict = iota // follow it and pass it on
	Ignore                // drop it; no harm to the peer that sent it
	Reject                // no honest peer passes this on
)

func (v Verdict) String() string { return [...]string{"accept", "ignore", "reject"}[v] }

// Network is what the relay needs of the peer-to-peer network. Its functions may
// be called from many goroutines.
type Network struct {
	// Publish sends a message to TopicRelay.
	Publish func(ctx context.Context, data []byte) error
	// Request asks a peer on ProtocolRoomSync.
	Request func(ctx context.Context, peer string, request []byte) ([]byte, error)
	// Peers lists the peers that can be asked.
	Peers func() []string
}

// Connect gives the mirror a network. It is called before Run; without it there is
// no relay, and hosts are polled.
func (m *Mirror) Connect(n Network) { m.network = n }

// news is a message of the relay: a head, and the records up to it as far as they
// came with it. A record of a live stream is news, too; nobody signed its head, but
// it came from the host itself.
type news struct {
	head  signedHead
	recs  []checked
	from  string // the peer that passed it on
	bytes int64  // of the records

	list adp.Value // the records as they came; only until they are read
}

func (n *news) first() int64 { return n.head.Seq - int64(len(n.recs)) + 1 }

// relay is the receiving side of the topic.
type relay struct {
	mu      sync.Mutex
	signers map[adp.AgentID]*rate.Limiter
	stash   map[[32]byte]*news
	order   [][32]byte // of stash, oldest first; may name what is gone
	stashed int64

	conflicts chan [2]signedHead
	seen      chan signedHead // new heads that are handed on; one that finds no place is shown again by peers
	waiting   atomic.Int64    // bytes of records that wait, see waiting.go
}

// Validate judges one message of the relay topic. It only computes: no disk, no
// network, no waiting. What it accepts it keeps for Receive.
func (m *Mirror) Validate(from string, data []byte) Verdict {
	v := m.judge(from, data)
	m.metrics.relay.WithLabelValues(v.String()).Inc()
	return v
}

func (m *Mirror) judge(from string, data []byte) Verdict {
	n, e, v := m.open(data)
	if n == nil {
		return v
	}
	if place, _ := m.heads.place(n.head); place == headOld {
		return Ignore
	}
	if age := time.Duration(m.o.Now()-e.CreatedAt) * time.Millisecond; age > headMaxAge || age < -headMaxAge {
		return Ignore
	}
	// before the rate, since anybody can name a signer
	if e.CheckSignature() != nil {
		return Reject
	}
	if !m.relay.allow(e.Actor) {
		return Ignore
	}
	if !n.readRecords() {
		return Reject
	}
	n.head.raw = bytes.Clone(n.head.raw)
	n.from = from
	switch place, other := m.heads.add(n.head); place {
	case headOld: // another copy came first
		return Ignore
	case headContradiction: // others are to see it too; it is not followed
		select {
		case m.relay.conflicts <- [2]signedHead{other, n.head}:
		default:
			m.log.Error("too many contradictions wait; one is not kept", "origin", n.head.Origin, "room", n.head.RoomID)
		}
		return Accept
	}
	m.see(n.head)
	m.relay.keep(sha256.Sum256(data), n)
	return Accept
}

// open reads the outer part of a message: everything but the signature and the
// records. n is nil when there is a verdict already.
func (m *Mirror) open(data []byte) (n *news, e *adp.Envelope, v Verdict) {
	if len(data) > MaxRelay {
		return nil, nil, Reject
	}
	msg, err := adp.ScanDepth(data, adp.RecordDepth+2)
	if err != nil || msg.Kind() != adp.Object || !msg.IsCanonical() || len(msg.Raw()) != len(data) || msg.Len() != 2 {
		return nil, nil, Reject
	}
	list := msg.Get("records")
	if list.Kind() != adp.Array || list.Len() > inlineRecords {
		return nil, nil, Reject
	}
	if e, err = adp.ParseEnvelope(msg.Get("head")); err != nil || e.CheckShape() != nil || e.Protocol != adp.WitnessProtocol {
		return nil, nil, Reject
	}
	if e.Type != TypeHead { // a later type is no offence
		return nil, nil, Ignore
	}
	h, err := ParseHead(e)
	if err != nil {
		return nil, nil, Reject
	}
	if !m.speaksFor(h.Origin, e.Actor) {
		return nil, nil, Ignore
	}
	if e.CheckHash() != nil {
		return nil, nil, Reject
	}
	return &news{head: signedHead{h, e.Actor, e.JSON()}, list: list}, e, Accept
}

// readRecords verifies the records of a message: hashes, signatures, and the chain
// up to the head. They are copied, so that one that is kept does not keep the
// message.
func (n *news) readRecords() bool {
	list := n.list
	n.list = adp.Value{}
	if list.Len() == 0 {
		return true
	}
	n.recs = make([]checked, 0, list.Len())
	seq := n.head.Seq - int64(list.Len())
	if seq < 0 {
		return false
	}
	hash := ""
	for el := range list.Elements() {
		c := parseOne(element{raw: bytes.Clone(el.Raw())})
		if c.err != nil {
			return false
		}
		if len(n.recs) == 0 {
			hash = c.rec.PreHash // what it stands on is compared when it is followed
		}
		if c.rec.Follows(n.head.RoomID, seq, hash) != nil || c.rec.Seq == 1 && c.rec.Hash != n.head.Genesis {
			return false
		}
		seq, hash = c.rec.Seq, c.rec.Hash
		n.recs, n.bytes = append(n.recs, c), n.bytes+int64(len(c.raw))
	}
	if hash != n.head.Hash {
		return false
	}
	for _, c := range n.recs { // last: it costs most
		if c.rec.CheckSignature() != nil {
			return false
		}
	}
	return true
}

func (r *relay) allow(agent adp.AgentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.signers[agent]
	if l == nil {
		if r.signers == nil || len(r.signers) >= maxSigners {
			r.signers = map[adp.AgentID]*rate.Limiter{}
		}
		l = rate.NewLimiter(signerRate, signerBurst)
		r.signers[agent] = l
	}
	return l.Allow()
}

// keep holds verified news until Receive asks for them.
func (r *relay) keep(id [32]byte, n *news) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stash == nil {
		r.stash = map[[32]byte]*news{}
	}
	for len(r.order) > 0 && (len(r.order) >= maxStash || r.stashed+n.bytes > maxStashBytes) {
		if old := r.stash[r.order[0]]; old != nil {
			r.stashed -= old.bytes
			delete(r.stash, r.order[0])
		}
		r.order = append(r.order[:0], r.order[1:]...)
	}
	r.stash[id], r.order, r.stashed = n, append(r.order, id), r.stashed+n.bytes
}

func (r *relay) take(id [32]byte) *news {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.stash[id]
	if n != nil {
		delete(r.stash, id)
		r.stashed -= n.bytes
	}
	return n
}

// Receive follows a message that Validate accepted. It does not wait for anything.
func (m *Mirror) Receive(_ string, data []byte) {
	n := m.relay.take(sha256.Sum256(data))
	if n == nil {
		return // a contradiction, or pushed out of the stash: the next head or a poll makes good for it
	}
	m.mu.Lock()
	h := m.hosts[n.head.Origin]
	m.mu.Unlock()
	if h != nil {
		h.hear(n)
	}
}

// maxSeen bounds the new heads that wait to be handed on.
const maxSeen = 256

// see hands a new head on, without waiting.
func (m *Mirror) see(h signedHead) {
	select {
	case m.relay.seen <- h:
	default:
	}
}

// tellConflicts hands on heads, and pairs of heads that cannot both hold.
func (m *Mirror) tellConflicts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-m.relay.seen:
			e, err := h.envelope()
			if err != nil {
				m.log.Error("a signed head cannot be read again", "error", err)
				continue
			}
			m.o.Head(e)
		case c := <-m.relay.conflicts:
			a, err := c[0].envelope()
			if err != nil {
				m.log.Error("a signed head cannot be read again", "error", err)
				continue
			}
			b, err := c[1].envelope()
			if err != nil {
				m.log.Error("a signed head cannot be read again", "error", err)
				continue
			}
			m.log.Warn("a key signed two heads of one room that cannot both hold", "origin", c[0].Origin, "room", c[0].RoomID, "seq", c[0].Seq, "hash", c[0].Hash, "other", c[1].Hash)
			m.o.Contradiction(a, b)
		}
	}
}
