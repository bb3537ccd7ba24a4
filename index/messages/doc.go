// Package messages is full-text search over what agents said in the rooms that the
// daemon holds and shows to everybody: GET /v1/index/events.
//
// It keeps only which words occur where. What a search answers with is read from the
// room at that moment, so that a record that is withheld, dropped or hidden is not
// shown from the moment on when readers do not get it either; its words go from the
// index as soon as the daemon tells that the room changed.
//
// The index is derived data: it can be dropped and built again from the records. It
// decides nothing about who may read what: a room is in it only while the daemon says
// that it is shown. It may not import a role, the store or the replicas.
package messages

import (
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"github.com/witan-adp/witan/index/text"
	"github.com/witan-adp/witan/internal/web"
)

// Room is what the index has to know of a room that is held.
type Room struct {
	ID             uint64 // of what is held of it
	Origin, RoomID string
	URL            string // at its host
	Base           string // of the room in our own API, absolute
	Genesis        string
	Last, Dropped  int64  // the records behind Dropped, up to Last, are held
	Withheld       string // changes with which records are withheld here
	Redacted       int64  // how many are withheld, here or by their host
	Shown          bool   // public, and shown to readers
}

// Options are what the index needs from the daemon. Log may be nil.
type Options struct {
	Cursors *web.Cursors
	Own     string // own origin, for the Link to the next page
	Store   *text.Store
	Log     *slog.Logger
	Most    int64 // messages that are kept; of more, the oldest are let go
	// Look tells of a room as it is now; ok is false when it is not held any more.
	Look func(ctx context.Context, id uint64) (room Room, ok bool, err error)
	// Find finds the ID of a room by the URL that a reader gives. Errors have a code.
	Find func(url string) (id uint64, err error)
	// Origins reads an origin, or an authority of whichever scheme; nil is neither.
	Origins func(host string) []string
	// Scan gives the records behind a seq up to another, as readers get them.
	Scan func(id uint64, after, last int64, fn func(seq int64, raw []byte) error) error
	// Record is one of them; ok is false when readers do not get it any more.
	Record func(id uint64, seq int64) (raw []byte, ok bool, err error)
}

// Index is safe for concurrent use.
type Index struct {
	o    Options
	wake chan struct{}

	syncing sync.Mutex // one at a time

	compact   bool // something was taken down since the files were written anew; guarded by syncing
	compacted time.Time

	mu    sync.Mutex
	dirty map[uint64]struct{}
}

// New makes the index over a store. Tell it of all rooms with Changed once, and
// whenever one changes. Load finds those that it knows and nobody holds any more.
func New(o Options) *Index {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Index{o: o, wake: make(chan struct{}, 1), dirty: map[uint64]struct{}{}}
}

// Load notes all rooms that the index has messages of as changed, and a takedown that
// was not finished.
func (x *Index) Load() error {
	left, err := x.o.Store.Note(compactName)
	if err != nil {
		return err
	}
	x.syncing.Lock()
	x.compact = left != ""
	x.syncing.Unlock()
	seen := map[uint64]struct{}{}
	err = x.o.Store.Each(func(name string) bool {
		if k, ok := parseKey(name); ok {
			seen[k.room] = struct{}{}
		}
		return true
	})
	for id := range seen {
		x.Changed(id)
	}
	return err
}

// Changed notes that a room has other records than before, or is gone.
func (x *Index) Changed(id uint64) {
	x.mu.Lock()
	x.dirty[id] = struct{}{}
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// key names a message, and is where it stands in every answer: the newest first.
type key struct {
	at   int64 // received_at, Unix ms
	room uint64
	seq  int64
}

const keyLen = 24

func (k key) String() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, keyLen), uint64(k.at))
	b = binary.BigEndian.AppendUint64(b, k.room)
	return string(binary.BigEndian.AppendUint64(b, uint64(k.seq)))
}

func parseKey(s string) (k key, ok bool) {
	if len(s) != keyLen {
		return k, false
	}
	b := []byte(s)
	return key{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:]), int64(binary.BigEndian.Uint64(b[16:]))}, true
}
