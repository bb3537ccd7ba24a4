// Package witness makes, keeps and passes on what is signed about the archives of
// public rooms: the statement of a host about its own ended room
// (archive.announce), the attestation of a daemon that recomputed that archive
// from its records (archive.attest), and the evidence that somebody said two
// things that cannot both be true.
//
// A Witness signs only what it has just recomputed from the bytes in its own
// store: every hash, every signature, every link, and the replay of the room.
// When anything disagrees it signs nothing and leaves an observation with both
// sides. All signing goes through one function, sign.
//
// What it signs first becomes an entry of the daemon's log (package tilelog), in
// the same commit that stores it, and gets out only once that is on the disk. When
// anything says that this store is not the newest one that the keys were used
// with, signing stops until the operator decides; see ErrRefused and NewLog.
//
// What others signed is believed as far as keys say: a statement only from a key
// that is bound to the origin it speaks of; an attestation from a key that is
// bound to an origin we follow or that the operator configured, and, about our
// own statements, from anybody, at most 64 each. Whether an attestation counts is
// another question; see State.
//
// The package has no network. Gossip and catch-up streams come in as functions;
// rooms come in as replicas. It imports no other role.
package witness

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/policy"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// Names on the network.
const (
	TopicStatements = "/witan/statements/1"
	TopicEvidence   = "/witan/evidence/1"
	ProtocolSync    = "/witan/statement-sync/1"
	ProtocolTile    = "/witan/log-tile/1"
)

// Bounds on what comes from the network, in bytes.
const (
	MaxStatement    = 64 << 10  // a statement or an attestation
	MaxEvidence     = 160 << 10 // a proof: two of them, or of checkpoints
	MaxSyncRequest  = 24 << 10
	MaxSyncResponse = 1 << 20
)

// MaxStrangers is how many attestations by unknown keys are kept for one of our
// own statements.
const MaxStrangers = 64

// Bounds on what one signer may make us keep.
const (
	maxSubjects        = 100_000 // rooms that one signer speaks of
	maxPerSubject      = 4       // statements, or attestations, of one signer about one room
	maxObservations    = 16      // of one kind about one room
	maxObservationSize = 2 << 20 // bytes of both sides
	futureSkew         = 5 * 60 * 1000
)

// defaultStatementWait is how long an attestation waits for the statement of a
// host that has a bound key.
const defaultStatementWait = 2 * time.Minute

// Trust is an agent whose attestations are kept although it is bound to no origin
// that we follow. Group is its operator.
type Trust struct {
	Agent adp.AgentID
	Group string
	Name  string
}

// Options make a Witness. Bound, BoundAt, Current, Agents, Origins, LogKeys and Cosigners are called from many
// goroutines, also under the locks of the Witness, for each message: they must be
// quick and must not call it back. None of them is called before New has returned.
type Options struct {
	Origin   string             // our own
	Key      ed25519.PrivateKey // our agent key
	Store    *store.Store
	Replicas *replica.Set

	// LogKey derives the log key of a generation, from 1 on. Nil: what is signed
	// enters no log.
	LogKey func(generation int) ed25519.PrivateKey
	// KeyFile is the seed file behind the keys. Beside it stands which store the key
	// signs with; "" leaves that out, for tests.
	KeyFile string
	// Rotation makes the payload of the key.rotate envelope that announces the log
	// key of a generation: {origin, agent, log, cosigner}. Nil: none is made.
	Rotation func(generation int) (any, error)
	// LogKeys lists the log keys that are or were bound to an origin that we follow.
	LogKeys func(origin string) []ed25519.PublicKey
	// Cosigners lists the cosigner keys that are bound to an origin that we follow, or
	// are in the policy of this daemon. Nil: none.
	Cosigners func() []ed25519.PublicKey
	// PeersFirst is how long after a start, with a log that is not empty, signing
	// waits for one peer to say what it has seen of that log.
	PeersFirst time.Duration

	// Grown is told when the log has a new checkpoint. It must return at once.
	Grown func()
	// Cosigned appends to a checkpoint of our log what witnesses have signed under it,
	// before it is served; nil: nothing.
	Cosigned func(checkpoint []byte) []byte

	// Sign is false on a loopback or private origin without
	// --allow-private-addresses: nothing is signed then; what others sign is
	// verified, kept and shown all the same.
	Sign bool
	// Witness attests mirrored rooms.
	Witness bool
	Trust   []Trust
	// Policy says which of Trust are enough; nil: any one witness is.
	Policy *policy.Policy

	// Bound tells whether a key is or was bound, for the purpose agent, to an origin
	// that is our own or that we follow: such a key has to answer for what it signed.
	Bound func(origin string, agent adp.AgentID) bool
	// BoundAt tells whether such a key can have been bound when it signed, at a time
	// in Unix ms; Current whether it is bound now. What a retired key signed before
	// stands; it says nothing new, and no head. nil: as Bound.
	BoundAt func(origin string, agent adp.AgentID, at int64) bool
	Current func(origin string, agent adp.AgentID) bool
	// Agents lists the keys that are bound to an origin, none for a plain host.
	Agents func(origin string) []adp.AgentID
	// Origins lists the origins that we follow.
	Origins func() []string

	// StatementWait is how long to wait for the statement of a host that has a
	// bound key before attesting without one; 0 means 2 minutes.
	StatementWait time.Duration

	Cursors    *web.Cursors // nil: page cursors do not outlive a restart
	Now        func() int64 // Unix ms
	Log        *slog.Logger
	Registerer prometheus.Registerer

	// Equivocated is told of each subject whose host is proven to have told two
	// stories, once and again at each start; of a proof against the log of the host,
	// or against all that it says, roomID and genesis are "". It may wait for a turn
	// of the replica; it must not call back but for State, Proven and HostEquivocated.
	Equivocated func(origin, roomID, genesis string)
	// Attested is told what State would say, whenever it may have changed, one call
	// at a time. It must not call back but for State.
	Attested func(origin, roomID string, n int64, state string)
}

// Witness is the role. Its methods are safe for concurrent use. Lock order:
// write, then mu; telling is never taken under either.
type Witness struct {
	o       Options
	self    adp.AgentID
	trusted map[adp.AgentID]Trust
	log     *slog.Logger
	metrics *metrics

	put   func(*store.Batch) error // Store.Commit
	write sync.Mutex               // held over each commit: one writer
	nonce int64                    // the last one signed with; guarded by write
	stamp []byte                   // its stored form

	mu      sync.RWMutex // guards book, met
	book    *book
	met     bool // see meet
	meeting sync.Once

	fallen    atomic.Pointer[map[string]bool] // book.hosts
	telling   sync.Mutex                      // held over each call of Attested
	rates     rates
	publisher publisher
	inbox     chan parsed
	jobs      jobs
	pulls     pulls
	journal   journal
	claims    claims
	asked     asked
	tails     tails
	rooms     sync.Mutex // held while a room checkpoint is made, and while another log begins; taken before write
}

// New reads what the store holds. Nothing is signed before Run.
func New(o Options) (*Witness, error) {
	if o.Store == nil || o.Replicas == nil || !isOrigin(o.Origin) || len(o.Key) != ed25519.PrivateKeySize {
		return nil, errors.New("witness: a store, the replicas, an origin and an agent key are needed")
	}
	if o.Bound == nil {
		o.Bound = func(string, adp.AgentID) bool { return false }
	}
	if o.BoundAt == nil {
		o.BoundAt = func(origin string, agent adp.AgentID, _ int64) bool { return o.Bound(origin, agent) }
	}
	if o.Current == nil {
		o.Current = o.Bound
	}
	if o.Agents == nil {
		o.Agents = func(string) []adp.AgentID { return nil }
	}
	if o.Origins == nil {
		o.Origins = func() []string { return nil }
	}
	if o.StatementWait == 0 {
		o.StatementWait = defaultStatementWait
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Cursors == nil {
		o.Cursors = web.NewCursors(randomKey())
	}
	w := &Witness{o: o, self: adp.NewAgentID(o.Key.Public().(ed25519.PublicKey)), trusted: map[adp.AgentID]Trust{}, log: o.Log,
		inbox: make(chan parsed, inboxSize), rates: rates{signers: map[adp.AgentID]*rate.Limiter{}}}
	for _, t := range o.Trust {
		if _, err := adp.ParseAgentID(string(t.Agent)); err != nil {
			return nil, fmt.Errorf("witness: trusted agent %q: %w", t.Name, err)
		}
		w.trusted[t.Agent] = t
	}
	w.put = o.Store.Commit
	w.publisher.queue = make(chan message, publishQueue)
	w.jobs.waiting = map[replica.Key]*job{}
	w.jobs.wake = make(chan struct{}, 1)
	w.pulls.resume = map[string]string{}
	w.claims.wake = make(chan struct{}, 1)
	var err error
	if w.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, err
	}
	if err := w.load(); err != nil {
		return nil, fmt.Errorf("witness: read what is kept: %w", err)
	}
	if err := w.openLog(); err != nil {
		return nil, fmt.Errorf("witness: read the log: %w", err)
	}
	return w, nil
}
