package mirror

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/internal/store"
)

// States of a host.
const (
	Following  = "following"
	BackingOff = "backing-off"
	Paused     = "paused"
	Blocked    = "blocked"
	Gone       = "gone"
	Rebound    = "rebound"
)

// hostRow is what the store keeps of a host.
type hostRow struct {
	Origin   string `json:"origin"`
	Source   string `json:"source"`            // that named it last
	Runtime  bool   `json:"runtime,omitempty"` // the operator added it while the daemon ran
	State    string `json:"state"`
	Since    int64  `json:"since"`
	Reason   string `json:"reason,omitempty"`
	NextTry  int64  `json:"next_try,omitempty"`
	Failures int    `json:"failures,omitempty"` // looks in a row
	Held     int64  `json:"held,omitempty"`     // Unix ms until which the host asked not to be asked
	Paused   bool   `json:"paused,omitempty"`
	SyncedAt int64  `json:"synced_at,omitempty"`
	ListedAt int64  `json:"listed_at,omitempty"` // when its list was read that is the newest in the store
	API      string `json:"api,omitempty"`       // as its discovery document says
	// PackBytes is how large the type packs are that were fetched for its rooms.
	PackBytes int64 `json:"pack_bytes,omitempty"`

	Observe bool              `json:"observe,omitempty"` // join its rooms for the live stream
	Seats   map[string]string `json:"seats,omitempty"`   // rooms that were joined, or not to be
	Via     []string          `json:"via,omitempty"`     // other mirrors of the host, to ask when it is gone
}

// host is one origin that is followed.
type host struct {
	m        *Mirror
	origin   string
	limiter  *rate.Limiter
	slots    chan struct{} // rooms in work
	wake     chan struct{} // look again now
	stir     chan struct{} // there is news: look again soon
	look     chan struct{} // the relay told of something that only the room list explains
	turned   chan struct{} // the line may go on
	signed   chan struct{} // somebody signed for a room: others may have it
	down     atomic.Bool   // the last look failed
	keysSoon atomic.Bool   // the did:web document is to be read at the next look
	anew     atomic.Bool   // the discovery document, too
	wait     atomic.Int64  // nanoseconds from the last look to the next
	waiting  atomic.Int64  // rooms that wait for a slot
	slowTill atomic.Int64  // Unix ns until which the host counts as slow
	progress progress
	jobs     sync.WaitGroup

	complaints *rate.Limiter // of rooms that showed nothing

	stop    context.CancelFunc // nil before the loop runs; set under Mirror.mu
	stopped chan struct{}

	// only the loop
	quiet      time.Duration // present pause between looks
	failures   int           // in a row
	discovered int64         // when discovery is due again
	keysDue    int64         // when the did:web document is
	keysNote   string        // what is wrong with it
	listCost   time.Duration // the least pause after a look at its list, see atLeast

	meta       sync.Mutex // for one change at a time of what is stored of rooms that are only listed; before mu
	mu         sync.Mutex // after Mirror.mu, before any replica
	row        hostRow
	stored     []byte // row as it is in the store
	configured string // config or flag, when one of them names the host at this start
	rooms      map[string]*roomView
	listed     map[string]seen // rooms that are only listed, see listed.go
	held       int64           // Unix ms until which the host asked not to be asked
	heard      int64           // Unix ms of the last news by the relay
	viaListed  int64           // Unix ms until which the lists of other mirrors are not read again
	live       context.Context // of the loop; nil while it does not run
	line       line            // rooms that wait for their turn
	serving    bool            // somebody gives them their turns
	unsure     int             // of them in work of which it is not known whether they answer
	untold     int             // rooms that cannot be followed and were not logged
	feeding    []*roomView     // rooms with news that wait for a worker
	feeders    int             // workers
	streaming  int             // live streams
	streams    context.Context // of them; nil when there were none since the last pause
	endStreams context.CancelFunc
	streamHeld int64  // Unix ms until which the host asked not to be asked for streams
	crowd      bool   // it lists more rooms than are followed, so that some that are held may be missing
	note       string // what is odd without being a failure
}

func (m *Mirror) newHost(row hostRow) *host {
	burst := max(1, int(m.o.RequestsPerSecond))
	h := &host{m: m, origin: row.Origin, limiter: rate.NewLimiter(rate.Limit(m.o.RequestsPerSecond), burst), row: row,
		slots: make(chan struct{}, m.o.ConcurrencyPerHost), wake: make(chan struct{}, 1), stir: make(chan struct{}, 1), look: make(chan struct{}, 1), signed: make(chan struct{}, 1), turned: make(chan struct{}, 1),
		complaints: rate.NewLimiter(rate.Every(time.Minute), 20),
		rooms:      map[string]*roomView{}, listed: map[string]seen{}, quiet: m.o.PollMin,
		failures: row.Failures, held: min(row.Held, m.o.Now()+m.o.BackoffMax.Milliseconds())}
	for _, r := range m.o.Replicas.Of(row.Origin) {
		v := h.rooms[r.RoomID]
		if v == nil {
			v = &roomView{id: r.RoomID, limit: pageRecords}
			h.rooms[r.RoomID] = v
		}
		if v.r == nil || r.ID > v.r.ID { // the newest is the one that the host tells now
			v.r = r
		}
		if row.SyncedAt >= r.Row().At {
			r.SyncedAt.Store(row.SyncedAt)
		}
	}
	return h
}

// update changes the row and stores it, unless it is stored already: a daemon starts with the hosts that it had, on a full disk, too.
func (h *host) update(change func(*hostRow)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.row
	change(&next)
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if bytes.Equal(value, h.stored) {
		h.row = next
		return nil
	}
	var b store.Batch
	b.Put(store.Host(h.origin), value)
	if err := h.m.o.Store.Commit(&b); err != nil {
		return fmt.Errorf("mirror: keep the state of %s: %w", h.origin, err)
	}
	h.row, h.stored = next, value
	return nil
}

func (h *host) forget() error {
	if err := h.delist(""); err != nil {
		return err
	}
	var b store.Batch
	b.Delete(store.Host(h.origin))
	if err := h.m.o.Store.Commit(&b); err != nil {
		return fmt.Errorf("mirror: forget %s: %w", h.origin, err)
	}
	return nil
}

func (h *host) pause(on bool) error {
	err := h.update(func(row *hostRow) {
		row.Paused = on
		if row.State, row.Reason, row.NextTry = Following, "", 0; on {
			row.State = Paused
		}
		row.Since = h.m.o.Now()
	})
	h.m.o.HostChanged()
	if on {
		h.stopStreams()
	}
	poke(h.wake)
	return err
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (h *host) api() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.row.API != "" {
		return h.row.API
	}
	return h.origin + "/v1"
}

func (h *host) status() HostStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := HostStatus{Origin: h.origin, State: h.row.State, Since: h.row.Since, NextTry: h.row.NextTry, Reason: h.row.Reason, Source: h.source(),
		Equivocated: h.m.equivocated(h.origin)}
	if s.Reason == "" {
		s.Reason = h.note
	}
	if reason, stopped := h.m.keepings.get(h.origin, "").stops(); stopped {
		s.State, s.Reason = Paused, reason
	}
	for _, v := range h.rooms {
		if reason := v.trouble(h); reason != "" {
			s.Problems = append(s.Problems, RoomProblem{v.id, reason})
		}
		if len(s.Problems) == 2*maxProblems { // there may be very many
			s.Problems = firstProblems(s.Problems)
		}
	}
	s.Problems = firstProblems(s.Problems)
	return s
}

const maxProblems = 20

func firstProblems(of []RoomProblem) []RoomProblem {
	slices.SortFunc(of, func(a, b RoomProblem) int { return strings.Compare(a.RoomID, b.RoomID) })
	return of[:min(len(of), maxProblems)]
}

// run looks at the host again and again until ctx ends.
func (h *host) run(ctx context.Context) {
	h.mu.Lock()
	h.live = ctx
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.live = nil // no more news are taken
		if h.endStreams != nil {
			h.endStreams()
		}
		h.mu.Unlock()
		h.jobs.Wait()
		h.mu.Lock()
		for _, v := range h.rooms { // what waits counts for all hosts
			v.unqueue(h.m)
			v.unhold(h.m)
		}
		h.mu.Unlock()
		if err := h.keepHeads(); err != nil {
			h.m.log.Warn("heads were not stored", "origin", h.origin, "error", err)
		}
	}()
	timer := time.NewTimer(rand.N(min(time.Second, h.m.o.PollMin) + 1))
	defer timer.Stop()
	var due, looked time.Time
	var gap time.Duration // between looks that the relay asks for
	for asked := false; ; asked = false {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-h.wake:
			h.failures, h.quiet = 0, h.m.o.PollMin
		case <-h.stir:
			if h.inLine() { // it stirs again when the last of them had its turn
				continue
			}
			h.quiet = h.m.o.PollMin
			if soon := time.Now().Add(h.atLeast(h.quiet)); h.failures == 0 && soon.Before(due) {
				due = soon
				timer.Reset(time.Until(soon))
			}
			continue
		case <-h.signed:
			h.mu.Lock()
			paused := h.row.Paused
			h.mu.Unlock()
			if h.failures > 0 && !paused {
				h.lookElsewhere(ctx)
			}
			continue
		case <-h.look:
			if h.failures > 0 {
				continue
			}
			if soon := looked.Add(h.atLeast(max(gap, h.m.o.PollMin))); time.Now().Before(soon) {
				if soon.Before(due) {
					due = soon
					timer.Reset(time.Until(soon))
				}
				continue
			}
			asked = true
		}
		h.mu.Lock()
		paused := h.row.Paused
		h.mu.Unlock()
		wait := time.Duration(1 << 62)
		if !paused {
			looked = time.Now()
			news, err := h.poll(ctx)
			if ctx.Err() != nil {
				return
			}
			if wait = h.pace(news, err); news || !asked {
				gap = 0
			} else { // what was told of is not listed: the relay must not make us ask hotly
				gap = min(max(2*gap, h.m.o.PollMin), h.m.o.PollMax)
			}
			if err != nil && h.failures > 0 {
				h.lookElsewhere(ctx)
			}
			if err := h.keepHeads(); err != nil {
				h.m.log.Error("heads were not stored", "origin", h.origin, "error", err)
			}
		}
		h.wait.Store(int64(wait))
		due = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// pace takes the result of a look and says when the next one is due.
func (h *host) pace(news bool, err error) time.Duration {
	o := &h.m.o
	if err == nil {
		h.m.metrics.polls.WithLabelValues("ok").Inc()
		h.failures = 0
		h.down.Store(false)
		switch h.quiet = min(2*h.quiet, o.PollMax); {
		case news:
			h.quiet = o.PollMin
		case h.hears(): // the relay brings what there is; polling is for what it drops
			h.quiet = o.PollMax
		}
		state, reason := Following, ""
		if o.Bindings != nil && o.Bindings.Rebound(h.origin) {
			state, reason = Rebound, "its did:web document shows other keys that nobody vouched for; approve them or ask its operator"
		}
		h.enter(state, reason, 0)
		return max(h.atLeast(jitter(h.quiet)), h.heldFor())
	}
	h.m.metrics.polls.WithLabelValues("failed").Inc()
	if isLocal(err) {
		h.m.log.Error("mirroring waits: the store does not take writes", "origin", h.origin, "error", err)
		return jitter(o.PollMax)
	}
	h.failures++
	h.down.Store(true)
	h.mu.Lock()
	h.heard = 0 // it may come back without its peers
	h.mu.Unlock()
	h.discovered, h.keysDue = 0, 0 // the host may have become another one
	if h.failures <= 2 && h.heldFor() <= o.PollMax {
		h.m.log.Debug("a look at a host failed", "origin", h.origin, "error", err)
		return max(jitter(o.PollMin), h.heldFor())
	}
	wait := o.BackoffMax
	if n := max(0, h.failures-3); n < 32 && o.BackoffMin<<n>>n == o.BackoffMin {
		wait = min(o.BackoffMin<<n, o.BackoffMax)
	}
	wait = max(jitter(wait), h.heldFor())
	h.enter(stateOf(err), err.Error(), o.Now()+wait.Milliseconds())
	return wait
}

// atLeast makes a pause longer when the list is long or slow to read, within the interval:
// whoever reads a list of 16 MiB each second pays for it.
func (h *host) atLeast(pause time.Duration) time.Duration {
	return max(pause, min(h.listCost, h.m.o.PollMax))
}

// hears tells whether the relay has brought news within one interval, and still
// has somebody to bring more.
func (h *host) hears() bool {
	if peers := h.m.network.Peers; peers != nil && len(peers()) == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard > 0 && h.m.o.Now()-h.heard <= h.m.o.PollMax.Milliseconds()
}

// enter changes the state of the host, stores it and logs it once.
func (h *host) enter(state, reason string, nextTry int64) {
	h.mu.Lock()
	old := h.row
	h.mu.Unlock()
	if old.State == state && old.Reason == reason && old.NextTry == nextTry {
		return
	}
	err := h.update(func(row *hostRow) {
		if row.Paused { // paused meanwhile: the operator's word stands
			return
		}
		if row.State != state {
			row.Since = h.m.o.Now()
		}
		row.State, row.Reason, row.NextTry, row.Failures, row.Held = state, reason, nextTry, h.failures, 0
		if nextTry > 0 {
			row.Held = h.held
		}
	})
	if err != nil {
		h.m.log.Error("the state of a host was not stored", "origin", h.origin, "error", err)
	}
	if old.State != state {
		h.m.o.HostChanged()
		h.m.metrics.moves.WithLabelValues("host", state).Inc()
		rooms, records := 0, int64(0)
		for _, r := range h.m.o.Replicas.Of(h.origin) {
			rooms, records = rooms+1, records+r.Row().Seq
		}
		h.m.log.Info("a host changed its state", "origin", h.origin, "from", old.State, "to", state, "reason", reason,
			"rooms", rooms, "records", records, "failures", h.failures, "next_try", nextTry)
	}
}

// jitter is a time of four fifths of d and more, so that not all come at once, and never
// more than d: what is promised within an interval comes within it.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/5+1) }

// poll looks once at the host, and sets work on its rooms going.
func (h *host) poll(ctx context.Context) (news bool, err error) {
	now := h.m.o.Now()
	if h.anew.Swap(false) {
		h.discovered, h.keysDue = 0, 0
	}
	if now >= h.discovered {
		if err := h.discover(ctx); err != nil {
			return false, err
		}
		h.discovered = now + time.Hour.Milliseconds()
	}
	if h.keysSoon.Swap(false) || now >= h.keysDue {
		h.readKeys(ctx, now)
	}
	began := h.m.o.Now()
	listed, err := h.list(ctx, began)
	if err != nil {
		return false, err
	}
	listed.note = cmp.Or(listed.note, h.keysNote)
	return h.compare(ctx, listed, began)
}
