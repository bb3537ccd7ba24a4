// Package index is the one list of rooms that the daemon knows: its own and
// those of every host that it mirrors. It answers GET /v1/index/rooms, and
// gives the host the rooms for its GET /v1/rooms/public.
//
// The index is derived data in memory. It can be dropped and built again from
// the replicas, so nothing may rest on it: it decides no permission and keeps
// no evidence. Whoever changes a room puts it here again.
//
// It lists public rooms and the metadata of restricted ones. A private room
// never gets in: Put takes it as a removal, so that no query has to remember
// to leave it out.
//
// It may not import another role, the store or the replicas; it is told what
// it lists.
package index

import (
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/index/text"
	"github.com/witan-adp/witan/internal/web"
)

// Doc is one room as one host told it. Times are Unix ms. (Origin, RoomID)
// names it; another genesis under the same name takes its place.
//
// The status at a time follows from StartTime, EndTime, Closed and Cancelled
// (ADP §8). Policy, when there, is a JSON object. The index does not keep Extra
// and Observers: its answers have no place for them.
type Doc struct {
	Origin, RoomID, Genesis, URL                           string
	Topic, Agenda, Guidance, Visibility, Language, Creator string
	Tags                                                   []string
	StartTime, EndTime, CreatedAt                          int64
	Policy, Extra                                          json.RawMessage
	Closed, Cancelled                                      bool
	Members, Speakers, Observers, Records                  int64
	LastActivity                                           int64    // received_at of the newest record
	Types                                                  []string // type names in the registry
	Titles                                                 []string // and the titles of these types
	Packs                                                  []string // imported: IDs of registered packs, URIs of others
	Verdict, State, Reason                                 string
	Unverifiable, Withheld                                 int64
	SyncedAt                                               int64 // 0 for own rooms
	FoundAt                                                int64 // when a room of another host was first stored here; not kept
	Attestations                                           int64
	Attested                                               string // "" is "unattested"
	Own                                                    bool
	MetadataOnly                                           bool // a room of another host that is listed and not copied
	// Hidden: the room is held and not shown. Only its name, URL, verdict, state, reason
	// and attestations are kept, whatever else is in the Doc.
	Hidden bool

	full bool // it takes nobody any more
}

// The words of the filters (federation: Mirroring a host, 5; Statements). A
// word's code is its place here plus one; 0 is any other word, which is shown
// but cannot be asked for.
var (
	visibilities = []string{room.Public, room.Restricted}
	verdicts     = []string{"verified", "violations", "broken", "forked", "archive-mismatch", "equivocated", "unverified"} // the last one: listed and not copied
	states       = []string{"following", "behind", "complete", "paused", "gone", "quarantined"}
	attesteds    = []string{"unattested", "partial", "attested", "equivocated"}
)

// What a row says in one word of bits, so that most filters are one comparison.
const (
	isLive uint32 = 1 << iota
	isOwn
	isClosed
	isCancelled
	isHidden
	hasMoreTags // than stand in the columns
	isFull      // takes neither speakers nor observers

	visibilityAt = 4 * (iota - 3)
	verdictAt
	stateAt
	attestedAt

	field = 0xf // each of the four has four bits
)

func code(words []string, word string, at int) uint32 {
	return uint32(slices.Index(words, word)+1) << at
}

func bit(b uint32, on bool) uint32 {
	if on {
		return b
	}
	return 0
}

func bitsOf(d *Doc) uint32 {
	return isLive | bit(isOwn, d.Own) | bit(isClosed, d.Closed) | bit(isCancelled, d.Cancelled) | bit(isHidden, d.Hidden) | bit(hasMoreTags, len(d.Tags) > tagColumns) | bit(isFull, d.full) |
		code(visibilities, d.Visibility, visibilityAt) | code(verdicts, d.Verdict, verdictAt) |
		code(states, d.State, stateAt) | code(attesteds, d.Attested, attestedAt)
}

// takesNobody tells whether a room takes neither speakers nor observers any more
// (ADP §9.3).
func (d *Doc) takesNobody() bool {
	if len(d.Policy) == 0 {
		return false
	}
	p, err := adp.Scan(d.Policy)
	if err != nil {
		return false
	}
	most, bounded := p.Get("max_speakers").Int()
	observers, said := p.Get("observer_allowed").Bool()
	return bounded && d.Speakers >= most && said && !observers
}

// Options are what the index needs from the daemon.
type Options struct {
	Cursors *web.Cursors
	Own     string       // own origin, for the Link to the next page
	Now     func() int64 // Unix ms
	// Text finds rooms by words. nil: words are looked for in one room after the other.
	Text *text.Store
	// SyncedAt is when a room was compared with its host last, which changes all the time
	// and is not put for that; 0: as it was put. nil: always so.
	SyncedAt func(origin, roomID string) int64
	Log      *slog.Logger // nil: nowhere
}
