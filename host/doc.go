// Package host keeps our own rooms: the one write path, join requests, agent
// status, the schedule and the quotas, and the HTTP face of ADP §16–§19.
//
// A write goes: cheap checks → signature (on all cores) → the room's turn →
// state machine → one durable commit of record, state, nonce and tree hashes →
// signal to readers. An answer means that it is on disk.
//
// Lock order: a room's turn, then an actor's nonce, then quotas. No lock is
// held over network I/O.
package host

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"

	"net/http"
	"net/url"
)

// Limits are the quotas of ADP §21, under the names of the discovery document.
// Zero means no limit.
type Limits struct {
	MessagePerMinute    int64 `json:"message_per_minute"`
	SignalPerMinute     int64 `json:"signal_per_minute"`
	ControlPerMinute    int64 `json:"control_per_minute"`
	PayloadBytes        int64 `json:"payload_bytes"`
	PayloadBytesCeiling int64 `json:"payload_bytes_ceiling"`
	Mentions            int64 `json:"mentions"`
	SchemaBytes         int64 `json:"schema_bytes"`
	TypesPerRoom        int64 `json:"types_per_room"`
	RoomMinMS           int64 `json:"room_min_ms"`
	RoomMaxMS           int64 `json:"room_max_ms"`
	SpeakersPerRoom     int64 `json:"speakers_per_room"`
	ObserversPerRoom    int64 `json:"observers_per_room"`
	BodyBytes           int64 `json:"body_bytes"`
}

func (l Limits) room() room.Limits {
	return room.Limits{PayloadBytes: l.PayloadBytes, PayloadCeiling: l.PayloadBytesCeiling, Mentions: int(l.Mentions), SchemaBytes: int(l.SchemaBytes),
		Types: int(l.TypesPerRoom), RoomMin: l.RoomMinMS, RoomMax: l.RoomMaxMS, Speakers: l.SpeakersPerRoom, Observers: l.ObserversPerRoom}
}

// Directory answers GET /v1/rooms/public: the IDs of own rooms that match the
// query of ADP §18, in order, and the cursor of the next page.
type Directory interface {
	Public(q url.Values) (ids []string, next string, err error)
}

// PackFetcher fetches an external type pack through the guarded client.
type PackFetcher interface {
	FetchPack(ctx context.Context, uri string) ([]byte, error)
}

// Options are what a Host is made of.
type Options struct {
	Origin   string // scheme://host[:port], the audience of request tokens
	Replicas *replica.Set
	Limits   Limits
	Access   Access // as configured; runtime changes are kept in the store
	// JoinRequestTTL and AgentStatusTTL in ms.
	JoinRequestTTL, AgentStatusTTL int64
	// EraseWithheld deletes the original of a record that the operator withholds; else
	// it is sealed.
	EraseWithheld bool
	Directory     Directory
	Packs         PackFetcher
	Cursors       *web.Cursors
	Seats         *web.Seats  // of the live streams and long polls of each address; nil: 256
	AgentID       adp.AgentID // of the daemon, shown in discovery
	Version       string
	Now           func() int64 // Unix ms
	Log           *slog.Logger
	// Changed is called after a commit, before the writer is answered.
	Changed func(*replica.Replica)
	// Checkpoint answers for the signed head of a public room's Merkle tree; nil
	// when nothing signs.
	Checkpoint func(w http.ResponseWriter, req *http.Request, r *replica.Replica) error
	// Ended is called once the archive of an ended room is made, one time in the
	// life of this process.
	Ended func(*replica.Replica)
}

// Host serves our own rooms.
type Host struct {
	opt    Options
	set    *replica.Set
	st     *store.Store
	verify chan struct{} // one token for each core

	nonces   nonces
	rates    rates
	usage    usage
	access   access
	statuses statuses
	schedule schedule
	ended    sync.Map // replica IDs that Ended has been told
	flying   sync.Map // join requests whose change is not on disk yet
	asks     asks
	fetches  fetches // of type packs
	seats    *web.Seats
}

// New opens the host over the replicas of its origin.
func New(opt Options) (*Host, error) {
	if opt.Seats == nil {
		opt.Seats = web.NewSeats(web.StreamsPerAddress)
	}
	h := &Host{opt: opt, seats: opt.Seats, set: opt.Replicas, st: opt.Replicas.Store(), verify: make(chan struct{}, runtime.GOMAXPROCS(0))}
	h.nonces.st = h.st
	h.fetches = newFetches()
	h.rates.windows = map[rateKey][]int64{}
	h.statuses.rooms = map[uint64]*board{}
	h.schedule.init()
	if err := h.access.load(h.st, opt.Access); err != nil {
		return nil, fmt.Errorf("read the access policy: %w", err)
	}
	h.usage.byCreator = map[adp.AgentID]use{}
	for _, r := range h.set.Of(opt.Origin) {
		row := r.Row()
		h.usage.add(row.Creator, 1, row.Bytes)
	}
	return h, nil
}

// Run keeps time for the rooms until ctx ends: rooms that ended while the
// daemon slept are finished first.
func (h *Host) Run(ctx context.Context) error {
	for _, r := range h.set.Of(h.opt.Origin) {
		if r.Row().Archived {
			continue
		}
		if err := h.reschedule(ctx, r); err != nil {
			h.opt.Log.Error("a room cannot be read", "room", r.RoomID, "error", err)
		}
	}
	return h.schedule.run(ctx, h.opt.Now, func(r *replica.Replica) { h.transition(ctx, r) })
}

// roomURL is the canonical URL of a room (ADP §7.2).
func (h *Host) roomURL(id string) string { return h.opt.Origin + "/v1/rooms/" + id }

func (h *Host) authority() string {
	_, a, _ := strings.Cut(h.opt.Origin, "://")
	return a
}

func (h *Host) now() int64 { return h.opt.Now() }

func noRoom() error {
	return adp.Errorf(adp.RoomNotFound, "there is no such room here, or you may not read it")
}

// find is one of our own rooms.
func (h *Host) find(id string) (*replica.Replica, error) {
	r, ok := h.set.Get(h.opt.Origin, id)
	if !ok {
		return nil, noRoom()
	}
	return r, nil
}

func (h *Host) changed(r *replica.Replica) {
	if h.opt.Changed != nil {
		h.opt.Changed(r)
	}
}
