// Package webhook tells others what happens: it posts events of public rooms and
// of followed hosts to the URLs that somebody registered.
//
// Nothing that happened is lost between the change and the queue. What was told of
// each room, and of each host, is stored beside the queues; events are found by
// comparing that with what the replicas hold, so that a crash at any point, or time
// that passed while the daemon was off, is made up for at the next start. The
// events of a webhook and the new "told" go to the disk in one commit.
//
// Each webhook has a queue of its own, which is bounded, and a worker of its own,
// which posts one event at a time: events come in order, at least once, and a
// receiver that is slow or dead holds up no other. An event leaves the queue when
// the receiver has answered 2xx.
//
// The package reaches others through one function that it is given (fetch.Client.Do),
// so that every URL stands behind the guard of that client. It knows public rooms
// only; it reads records and changes none. It imports no other role.
package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// The events.
const (
	RoomDiscovered  = "room.discovered"  // a public room was created here or found at a host
	RoomStarted     = "room.started"     // its start time has come
	RoomEnded       = "room.ended"       // its end time has come, or it was closed or cancelled
	Mention         = "mention"          // a record mentions agents
	ArchiveAttested = "archive.attested" // a witness has recomputed its archive and signed that
	RoomForked      = "room.forked"      // its host told two stories of it
	HostState       = "host.state"       // a followed host is in another state
)

// What is sent beside them, to every webhook.
const (
	Ping = "ping"        // the challenge
	Gap  = "webhook.gap" // events before this one were dropped, since too many waited
)

// Events are all that can be asked for.
var Events = []string{RoomDiscovered, RoomStarted, RoomEnded, Mention, ArchiveAttested, RoomForked, HostState}

// Host is where a followed host stands.
type Host struct {
	Origin, State, Reason string
	Since                 int64 // Unix ms
}

// Options say what to work with. What has no comment about a default is required.
type Options struct {
	Origin   string // own origin: rooms of it are ours, request tokens are for it
	Store    *store.Store
	Replicas *replica.Set
	// Do sends a request, CheckURL judges a URL before and gives its one spelling: those of
	// fetch.Client.
	Do       func(context.Context, fetch.Request) (*fetch.Response, error)
	CheckURL func(raw string) (*url.URL, error)
	// Key is what the secrets of webhooks are derived from, 32 bytes that outlive a restart.
	Key []byte

	// Hidden tells of replicas that are held and not shown; nil: none is.
	Hidden func(*replica.Replica) bool
	// Hosts lists the followed hosts; nil: there are none.
	Hosts func() []Host
	// Attestations are the attestation envelopes that are shown of a room, and Attested
	// how many witnesses count and what they make of it; nil: there are none.
	Attestations func(origin, roomID string) ([]*adp.Envelope, error)
	Attested     func(origin, roomID string) (n int64, state string)

	Public   bool // agents may register webhooks over HTTP
	PerOwner int  // webhooks of one agent; 0 means 5
	Total    int  // webhooks of all agents; 0 means 1000. The operator's are not counted
	Queue    int  // events that may wait for one receiver; 0 means 10000

	// Timeout bounds one delivery, 0 means 10 s. RetryFirst is the pause after the first try that
	// failed, each further one is 8 times as long; 0 means 2 min, so that the fifth try is
	// within a day. History is how old a mention, the start or the end of a room may
	// be to be told of, when the room was just found; 0 means a day.
	Timeout, RetryFirst, History time.Duration

	Now        func() int64 // Unix ms; nil: the wall clock
	Log        *slog.Logger // nil: none
	Registerer prometheus.Registerer
}

// Tries is how often an event is posted before its webhook is paused.
const Tries = 5

// Webhooks is safe for concurrent use.
type Webhooks struct {
	o        Options
	log      *slog.Logger
	metrics  *metrics
	pings    pings
	watching atomic.Bool // there are webhooks, so that changes matter
	base     base        // turn guards it
	due      due

	// turn is held by whoever queues events or changes the set of webhooks. Lock order:
	// turn, mu, hook.mu (several only under turn).
	turn sync.Mutex

	mu      sync.Mutex
	hooks   map[string]*hook
	running context.Context // nil before and after Run
	workers sync.WaitGroup

	dirtyMu    sync.Mutex
	dirty      map[uint64]bool // replicas to look at
	dirtyHosts bool
	wake       chan struct{}
}

// New reads the webhooks that the store holds. Nothing is sent before Run.
func New(o Options) (*Webhooks, error) {
	if o.Store == nil || o.Replicas == nil || o.Do == nil || o.CheckURL == nil || len(o.Key) < 32 || o.Origin == "" {
		return nil, errors.New("webhook: Options needs Origin, Store, Replicas, Do, CheckURL and a Key of 32 bytes")
	}
	o.fill()
	w := &Webhooks{o: o, log: o.Log, hooks: map[string]*hook{}, dirty: map[uint64]bool{}, wake: make(chan struct{}, 1), pings: newPings()}
	if err := w.load(); err != nil {
		return nil, err
	}
	if err := w.loadBase(); err != nil {
		return nil, err
	}
	w.watching.Store(w.base.On)
	var err error
	if w.metrics, err = newMetrics(o.Registerer, w); err != nil {
		return nil, err
	}
	if w.base.On {
		if err := w.lookAgain(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (o *Options) fill() {
	for _, n := range []struct {
		to  *int
		def int
	}{{&o.PerOwner, 5}, {&o.Total, 1000}, {&o.Queue, 10_000}} {
		if *n.to <= 0 {
			*n.to = n.def
		}
	}
	for _, d := range []struct {
		to  *time.Duration
		def time.Duration
	}{{&o.Timeout, 10 * time.Second}, {&o.RetryFirst, 2 * time.Minute}, {&o.History, 24 * time.Hour}} {
		if *d.to <= 0 {
			*d.to = d.def
		}
	}
	if o.Hidden == nil {
		o.Hidden = func(*replica.Replica) bool { return false }
	}
	if o.Hosts == nil {
		o.Hosts = func() []Host { return nil }
	}
	if o.Attestations == nil {
		o.Attestations = func(string, string) ([]*adp.Envelope, error) { return nil, nil }
	}
	if o.Attested == nil {
		o.Attested = func(string, string) (int64, string) { return 0, "unattested" }
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Run finds events and posts them until ctx ends.
func (w *Webhooks) Run(ctx context.Context) error {
	w.mu.Lock()
	w.running = ctx
	for _, h := range w.hooks {
		w.start(h)
	}
	w.mu.Unlock()
	w.watch(ctx)
	w.mu.Lock()
	w.running = nil // no more workers
	w.mu.Unlock()
	w.workers.Wait()
	return nil
}

// Changed says that a replica may have changed: its records, its verdict, its
// attestations. It does not wait, and costs nothing while there are no webhooks.
func (w *Webhooks) Changed(r *replica.Replica) {
	if !w.watching.Load() {
		return
	}
	w.dirtyMu.Lock()
	w.dirty[r.ID] = true
	w.dirtyMu.Unlock()
	poke(w.wake)
}

// HostsChanged says that a host may be in another state. It does not wait.
func (w *Webhooks) HostsChanged() {
	if !w.watching.Load() {
		return
	}
	w.dirtyMu.Lock()
	w.dirtyHosts = true
	w.dirtyMu.Unlock()
	poke(w.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// all are the webhooks, the oldest first.
func (w *Webhooks) all() []*hook {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]*hook, 0, len(w.hooks))
	for _, h := range w.hooks {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b *hook) int { return compareRows(&a.made, &b.made) })
	return list
}
