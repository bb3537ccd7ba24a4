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
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unique"

	"github.com/witan-adp/witan/adp/room"
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
	Attestations                                           int64
	Attested                                               string // "" is "unattested"
	Own                                                    bool
	MetadataOnly                                           bool // a restricted room of another host: listed, not copied
	// Hidden: the room is held and not shown. Only its name, URL, verdict, state, reason
	// and attestations are kept, whatever else is in the Doc.
	Hidden bool
}

// The words of the filters (federation: Mirroring a host, 5; Statements). A
// word's code is its place here plus one; 0 is any other word, which is shown
// but cannot be asked for.
var (
	visibilities = []string{room.Public, room.Restricted}
	verdicts     = []string{"verified", "violations", "broken", "forked", "archive-mismatch", "equivocated"}
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

	visibilityAt = 4 * (iota - 1)
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
	return isLive | bit(isOwn, d.Own) | bit(isClosed, d.Closed) | bit(isCancelled, d.Cancelled) | bit(isHidden, d.Hidden) |
		code(visibilities, d.Visibility, visibilityAt) | code(verdicts, d.Verdict, verdictAt) |
		code(states, d.State, stateAt) | code(attesteds, d.Attested, attestedAt)
}

// row is a Doc as the index keeps it. It never changes.
type row struct {
	doc      Doc
	text     string // what q and keyword search, see text.go
	keywords int    // keyword sees text[:keywords]
	language string // lower case
	tie      [tieLen]byte
}

// share makes equal strings of many rooms one in memory, and frees them from
// the record that they were cut out of.
func share(s string) string { return unique.Make(s).Value() }

func shareAll(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = share(s)
	}
	return out
}

// newRow copies d. It takes the search text of the row that was there before
// when the words are the same, as they are when only a message came.
func newRow(d Doc, before *row) *row {
	if d.Hidden {
		d = Doc{Origin: d.Origin, RoomID: d.RoomID, Genesis: d.Genesis, URL: d.URL, Visibility: d.Visibility, Verdict: d.Verdict, State: d.State,
			Reason: d.Reason, Attested: d.Attested, Attestations: d.Attestations, Own: d.Own, Hidden: true}
	}
	d.Origin, d.Creator, d.Language = share(d.Origin), share(d.Creator), share(d.Language)
	d.Visibility, d.Verdict, d.State = share(d.Visibility), share(d.Verdict), share(d.State)
	d.Reason = strings.Clone(d.Reason)
	if d.Attested == "" {
		d.Attested = attesteds[0]
	}
	d.Attested = share(d.Attested)
	d.Types, d.Titles, d.Packs = shareAll(d.Types), shareAll(d.Titles), shareAll(d.Packs)
	d.Extra, d.Observers = nil, 0
	if d.Policy = bytes.Clone(d.Policy); !json.Valid(d.Policy) { // it would spoil the whole list
		d.Policy = nil
	}

	r := &row{doc: d, tie: tieOf(&d)}
	if b := before; b != nil && b.doc.Topic == d.Topic && b.doc.Agenda == d.Agenda && b.doc.Guidance == d.Guidance &&
		b.doc.URL == d.URL && b.doc.RoomID == d.RoomID && b.doc.Genesis == d.Genesis && slices.Equal(b.doc.Tags, d.Tags) && slices.Equal(b.doc.Titles, d.Titles) {
		r.doc.Topic, r.doc.Agenda, r.doc.Guidance, r.doc.Tags = b.doc.Topic, b.doc.Agenda, b.doc.Guidance, b.doc.Tags
		r.doc.URL, r.doc.RoomID, r.doc.Genesis = b.doc.URL, b.doc.RoomID, b.doc.Genesis
		r.text, r.keywords = b.text, b.keywords
	} else {
		r.doc.Topic, r.doc.Agenda, r.doc.Guidance = strings.Clone(d.Topic), strings.Clone(d.Agenda), strings.Clone(d.Guidance)
		r.doc.URL, r.doc.RoomID, r.doc.Genesis = strings.Clone(d.URL), strings.Clone(d.RoomID), strings.Clone(d.Genesis)
		r.doc.Tags = shareAll(d.Tags)
		r.text, r.keywords = searchText(&r.doc)
	}
	r.language = share(strings.ToLower(r.doc.Language))
	return r
}

// Options are what the index needs from the daemon. All are required.
type Options struct {
	Cursors *web.Cursors
	Own     string       // own origin, for the Link to the next page
	Now     func() int64 // Unix ms
}

// Index is safe for concurrent use. Queries work on a snapshot and hold no lock
// while they look.
type Index struct {
	opts Options
	rows table
}

// New makes an empty index.
func New(opts Options) *Index {
	if opts.Cursors == nil || opts.Now == nil || opts.Own == "" {
		panic("index: Options needs Cursors, Own and Now")
	}
	return &Index{opts: opts, rows: table{slots: map[name]int{}}}
}

// Put lists a room, in place of what (Origin, RoomID) was before. It is seen by
// every query that starts afterwards. A room that is neither public nor
// restricted is not listed, and no longer listed if it was (ADP §9.2).
func (x *Index) Put(d Doc) {
	if !slices.Contains(visibilities, d.Visibility) {
		x.Remove(d.Origin, d.RoomID)
		return
	}
	n := nameOf(d.Origin, d.RoomID)
	r := newRow(d, x.rows.get(n)) // outside of the lock: folding a long text takes a while
	n.room = r.doc.RoomID
	x.rows.put(n, r)
}

// Remove takes a room out of the list, if it is there.
func (x *Index) Remove(origin, roomID string) { x.rows.remove(nameOf(origin, roomID)) }

// Len is the number of listed rooms.
func (x *Index) Len() int { return x.rows.len() }

// SetAttested changes only what is said about attestations of a room, if it is
// listed.
func (x *Index) SetAttested(origin, roomID string, n int64, state string) {
	x.rows.change(nameOf(origin, roomID), func(r *row) *row {
		changed := *r
		changed.doc.Attestations, changed.doc.Attested = n, share(state)
		return &changed
	})
}
