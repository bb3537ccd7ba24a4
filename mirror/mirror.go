// Package mirror follows the public rooms of other hosts: it finds them, reads
// them from the first record on, checks every record again, keeps what is
// authentic and linked, and says what was wrong with the rest. It needs nothing
// but plain ADP on the other side (federation.md, "Mirroring a host").
//
// Records come by three ways: polling, live streams of rooms that it joined as an
// observer, and the relay, on which hosts publish signed heads of their rooms. All
// take the same way into the store. What a peer or another mirror says of a host
// counts only as far as a key that is bound to that host has signed for it.
//
// It contacts only origins that the operator named, save for the type packs that
// a room imports by URI. It never writes to a host, save to join and leave rooms
// where the operator wants it to observe. It never serves a record that it did not
// verify, and never overwrites one: a host that tells another story gets a verdict,
// and both stories are kept. One bad room never stops another, and one bad host
// never stops another.
//
// The package has no network of its own for the relay: Connect hands it one, and
// Publish, Validate, Receive and ServeRoomSync are what that network calls.
//
// What the rest of the daemon needs to know goes out through the functions in
// Options; the package knows no other role.
package mirror

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// Options say what to work with. Own, Replicas, Store and Fetch are required;
// zero numbers take the defaults of the configuration.
type Options struct {
	Own          string // own origin: never mirrored
	Replicas     *replica.Set
	Store        *store.Store
	Fetch        *fetch.Client
	Bindings     *keys.Bindings // nil: no did:web document is read
	AllowPrivate bool

	PollMin, PollMax       time.Duration // pace of polling: after news, and when quiet
	BackoffMin, BackoffMax time.Duration // of a host that fails
	ConcurrencyPerHost     int
	RequestsPerSecond      float64 // per host
	RoomsPerHost           int
	RecordsPerRoom         int64
	BytesPerHost           int64 // of records and of the packs that they import; 0 = no limit
	// Retention says what is let go of the rooms of a host; nil keeps all.
	Retention func(origin string) Retention
	// Pending tells whether the archive of a complete room is still to be attested here;
	// nil: nothing is attested.
	Pending func(r *replica.Replica) bool
	// Equivocated tells whether a key of a host is proven to have signed two logs, or so
	// much besides that nothing it says is believed; nil: nothing is known of any. It must
	// be quick.
	Equivocated   func(origin string) bool
	EraseWithheld bool // delete the original of what the operator withholds; else it is sealed

	Seats *web.Seats // of the live streams and long polls of each address; nil: 256

	Now        func() int64 // Unix ms
	Log        *slog.Logger
	Registerer prometheus.Registerer // may be nil

	// The functions may be nil. They are called from the goroutines of the
	// mirror, never in a replica's turn, and should not block for long.

	// Changed: records were committed, or verdict or state changed.
	Changed func(r *replica.Replica)
	// Listed: a host lists a room of which only that may be kept, or did so before the
	// start: New tells of those, Relist of all. Unlisted: it does so no more. They are
	// called under a lock, and may ask nothing but SeenAt and the standing of a room.
	Listed   func(origin string, room Listed)
	Unlisted func(origin, roomID string)
	// Completed: the room has ended, all its records are verified, and its
	// archive is adopted or made. At least once for a room.
	Completed func(r *replica.Replica)
	// Bound: the keys that an origin is bound to may have changed.
	Bound func(origin string)
	// Contradiction: two room.head envelopes of one key, for one room and seq, that
	// cannot both hold. The first is what we follow.
	Contradiction func(a, b *adp.Envelope)
	// HostChanged: a host is followed, is followed no more, or may be in another state. It
	// may be called under a lock, and must not call back.
	HostChanged func()
	// Head is told of each new signed head of another host, one at a time.
	Head func(*adp.Envelope)
	// Vouched tells how far a bound key has signed for a room by other means than a
	// head, such as the statement about its archive.
	Vouched func(k replica.Key) (seq int64, hash string, ok bool)
	// Stated tells where a room ends by a statement about its archive that a bound key
	// signed. nil: nobody knows.
	Stated func(k replica.Key) (seq int64, hash string, ok bool)
	// VouchedRooms lists rooms of an origin, at most limit, that Vouched may know
	// something of and that are wanted. wanted is quick and may be called under locks.
	VouchedRooms func(origin string, limit int, wanted func(roomID, genesis string) bool) []replica.Key

	// Sign makes an agent-witness/1.0 envelope of our own agent key, with a nonce
	// greater than all before. nil: this daemon signs nothing, so that there are no
	// heads of its rooms.
	Sign func(typ string, payload any) (*adp.Envelope, error)

	// What it takes to observe rooms (HostOptions.Observe): our own agent, its room
	// events, whose draft lacks created_at, nonce and actor, and its request tokens.
	Agent adp.AgentID
	Event func(d adp.Draft) (*adp.Envelope, error)
	Token func(origin string) (string, error)

	// Observed: something that others may want to see. At least once, with the
	// same content, before the verdict is stored.
	Observed func(o Observation)
}

func (o *Options) fill() {
	set := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	set(&o.PollMin, time.Second)
	set(&o.PollMax, time.Minute)
	set(&o.BackoffMin, time.Minute)
	set(&o.BackoffMax, 7*24*time.Hour)
	o.PollMax, o.BackoffMax = max(o.PollMin, o.PollMax), max(o.BackoffMin, o.BackoffMax)
	if o.ConcurrencyPerHost <= 0 {
		o.ConcurrencyPerHost = 4
	}
	if o.RequestsPerSecond <= 0 {
		o.RequestsPerSecond = 20
	}
	if o.RoomsPerHost <= 0 {
		o.RoomsPerHost = 100_000
	}
	if o.RecordsPerRoom <= 0 {
		o.RecordsPerRoom = 10_000_000
	}
	if o.Seats == nil {
		o.Seats = web.NewSeats(web.StreamsPerAddress)
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(*replica.Replica) {}
	}
	if o.Listed == nil {
		o.Listed = func(string, Listed) {}
	}
	if o.Unlisted == nil {
		o.Unlisted = func(string, string) {}
	}
	if o.Completed == nil {
		o.Completed = func(*replica.Replica) {}
	}
	if o.Bound == nil {
		o.Bound = func(string) {}
	}
	if o.HostChanged == nil {
		o.HostChanged = func() {}
	}
	if o.Head == nil {
		o.Head = func(*adp.Envelope) {}
	}
	if o.Contradiction == nil {
		o.Contradiction = func(_, _ *adp.Envelope) {}
	}
	if o.Vouched == nil {
		o.Vouched = func(replica.Key) (int64, string, bool) { return 0, "", false }
	}
	if o.Stated == nil {
		o.Stated = func(replica.Key) (int64, string, bool) { return 0, "", false }
	}
	if o.VouchedRooms == nil {
		o.VouchedRooms = func(string, int, func(string, string) bool) []replica.Key { return nil }
	}
	if o.Observed == nil {
		o.Observed = func(Observation) {}
	}
}

// Mirror follows hosts. It is safe for concurrent use.
type Mirror struct {
	o       Options
	log     *slog.Logger
	metrics *metrics
	cursors *web.Cursors
	seats   *web.Seats
	cores   chan struct{} // bounds signature checks to the cores of the machine
	work    *pool         // rooms in work, see work.go
	slow    *pool         // rooms in work of hosts that are slow
	packs   packMisses
	cards   cards

	network   Network // set before Run
	heads     heads
	keepings  keepings
	retaining sync.Mutex // taken before all others
	relay     relay
	publisher publisher

	// roomRetry is how long a room that is stuck waits when nothing changes at
	// its host; packWait bounds the fetching of packs for one page.
	roomRetry, packWait time.Duration
	mendEvery           time.Duration // see mend.go
	slowAfter           time.Duration // an exchange that takes so long makes a host a slow one
	pageBytes           int64         // of a page of events

	mu    sync.Mutex
	hosts map[string]*host
	// unwanted are hosts that the configuration names and the operator removed, with
	// what names them: config or flag
	unwanted map[string]string
	running  context.Context // nil before Run
	loops    sync.WaitGroup
}

// New reads the hosts that the store holds. They are followed once Run runs.
func New(o Options) (*Mirror, error) {
	o.fill()
	m := &Mirror{o: o, log: o.Log, metrics: newMetrics(o.Registerer), cores: make(chan struct{}, runtime.GOMAXPROCS(0)), work: newPool(maxWork), slow: newPool(maxSlowWork), slowAfter: slowAfter,
		roomRetry: 10 * time.Minute, packWait: 10 * time.Second, mendEvery: mendEvery, pageBytes: maxPage, hosts: map[string]*host{}, unwanted: map[string]string{}}
	m.relay.seen = make(chan signedHead, maxSeen)
	m.relay.conflicts, m.publisher.wake = make(chan [2]signedHead, maxConflicts), make(chan struct{}, 1)
	key, err := m.cursorKey()
	if err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	m.cursors, m.seats = web.NewCursors(key), o.Seats
	if o.Registerer != nil {
		m.registerOwed(o.Registerer)
	}
	if err := m.keepings.load(o.Store); err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	err = o.Store.View(func(r store.Reader) error {
		from, to := store.HostRange()
		var bad error
		err := r.Scan(from, to, func(key, value []byte) bool {
			var row hostRow
			if bad = json.Unmarshal(value, &row); bad != nil {
				bad = fmt.Errorf("host row %q: %w", key, bad)
				return false
			}
			if row.Origin != o.Own {
				h := m.newHost(row)
				h.stored = bytes.Clone(value)
				m.hosts[row.Origin] = h
			}
			return true
		})
		return errors.Join(err, bad)
	})
	if err != nil {
		return nil, fmt.Errorf("mirror: read the hosts: %w", err)
	}
	if err := m.loadListed(); err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(collector{m})
	}
	return m, nil
}

// cursorKey makes list cursors outlive a restart.
func (m *Mirror) cursorKey() ([]byte, error) {
	name := store.Meta("mirror-cursor-key")
	key, ok, err := m.o.Store.Get(name)
	if err != nil || ok {
		return key, err
	}
	key = make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	var b store.Batch
	b.Put(name, key)
	return key, m.o.Store.Commit(&b)
}

// Run follows the hosts until ctx ends, and returns when nothing of it runs any
// more. It is called once.
func (m *Mirror) Run(ctx context.Context) error {
	if err := m.finishForgetting(); err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	m.mu.Lock()
	m.running = ctx
	for _, h := range m.hosts {
		m.start(h)
	}
	m.mu.Unlock()
	m.loops.Go(func() { m.tellConflicts(ctx) })
	m.loops.Go(func() { m.publisher.run(ctx, m) })
	<-ctx.Done()
	m.loops.Wait()
	return nil
}

// start begins the loop of a host. m.mu is held.
func (m *Mirror) start(h *host) {
	if m.running == nil || m.running.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.running)
	h.stop, h.stopped = cancel, make(chan struct{})
	m.loops.Go(func() {
		defer close(h.stopped)
		h.run(ctx)
	})
}

// HostOptions are what the operator chose for one host.
type HostOptions struct {
	Observe bool     // join its rooms as an observer for their live streams; leaves a record in each
	Via     []string // mirrors of the host, as the URL under which they serve /m/…, to ask when it is gone
}

// Add follows a host from now on, and after restarts. source says who asked:
// flag, config or runtime. Adding a host again changes only its source.
func (m *Mirror) Add(origin, source string) error { return m.add(origin, source, nil) }

// AddWith is Add with options, which it also changes for a host that is followed
// already.
func (m *Mirror) AddWith(origin, source string, o HostOptions) error {
	via := make([]string, 0, len(o.Via))
	for _, raw := range o.Via {
		base, err := m.viaBase(raw)
		if err != nil {
			return fmt.Errorf("mirror: via %s: %w", raw, err)
		}
		via = append(via, base)
	}
	o.Via = via
	return m.add(origin, source, &o)
}

func (m *Mirror) add(origin, source string, o *HostOptions) error {
	origin, err := fetch.Origin(origin, m.o.AllowPrivate)
	if err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	if origin == m.o.Own {
		return fmt.Errorf("mirror: %s is this daemon itself", origin)
	}
	if again, err := m.maybeAdd(origin, source); !again || err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	set := func(row *hostRow) {
		if source == runtimeSource {
			row.Runtime = true
		}
		row.Source = source
		if o != nil {
			row.Observe, row.Via = o.Observe, o.Via
		}
	}
	if h, ok := m.hosts[origin]; ok {
		h.configure(source)
		if err := h.update(set); err != nil {
			return err
		}
		if o != nil && !o.Observe { // now that no other one is opened
			h.stopStreams()
		}
		return nil
	}
	row := hostRow{Origin: origin, State: Following, Since: m.o.Now()}
	set(&row)
	h := m.newHost(row)
	h.configure(source)
	if err := h.update(func(*hostRow) {}); err != nil {
		return err
	}
	m.hosts[origin] = h
	m.start(h)
	m.o.HostChanged()
	return nil
}

// drop follows a host no more, and leaves the rooms that were joined to observe
// them.
func (m *Mirror) drop(origin string) error {
	m.mu.Lock()
	h, ok := m.hosts[origin]
	delete(m.hosts, origin)
	m.mu.Unlock()
	if !ok {
		return fmt.Errorf("%s: %w", origin, ErrUnknownHost)
	}
	m.o.HostChanged()
	if h.stop != nil {
		h.stop()
		<-h.stopped
	}
	h.leaveRooms()
	m.heads.drop(origin)
	return h.forget()
}

func (m *Mirror) with(origin string, fn func(*host) error) error {
	m.mu.Lock()
	h, ok := m.hosts[origin]
	m.mu.Unlock()
	if !ok {
		return fmt.Errorf("%s: %w", origin, ErrUnknownHost)
	}
	return fn(h)
}

// Followed tells whether a host is followed, paused or not.
func (m *Mirror) Followed(origin string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.hosts[origin]
	return ok
}

// followed are the hosts that are followed now, by origin.
func (m *Mirror) followed() map[string]*host {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.hosts)
}

// Hosts lists the followed hosts by origin.
func (m *Mirror) Hosts() []HostStatus {
	hosts := m.followed()
	rooms, records := map[string]int64{}, map[string]int64{}
	for _, r := range m.o.Replicas.All() {
		if _, ok := hosts[r.Origin]; ok {
			rooms[r.Origin]++
			records[r.Origin] += r.Row().Seq
		}
	}
	list := m.States()
	for i := range list {
		list[i].Rooms, list[i].Records = rooms[list[i].Origin], records[list[i].Origin]
	}
	return list
}

// States is Hosts without the numbers of rooms and records, which take a look at
// every replica.
func (m *Mirror) States() []HostStatus {
	hosts := m.followed()
	list := make([]HostStatus, 0, len(hosts))
	for _, origin := range slices.Sorted(maps.Keys(hosts)) {
		list = append(list, hosts[origin].status())
	}
	return list
}

// RoomURL is the canonical URL of a room at its host, as far as the host's
// discovery document has told.
func (m *Mirror) RoomURL(origin, roomID string) string {
	m.mu.Lock()
	h, ok := m.hosts[origin]
	m.mu.Unlock()
	if !ok {
		return origin + "/v1/rooms/" + roomID
	}
	return h.api() + "/rooms/" + roomID
}
