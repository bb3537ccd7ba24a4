package page

import (
	"context"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
)

// Source is where the pages get what they show. It keeps the read rules: what it
// does not give, no page shows. Its errors carry codes; not_found and
// room_not_found become a page with status 404, gone one with 410, withheld 451.
// All times are Unix ms, 0 where there is none.
type Source interface {
	// Self is the daemon itself.
	Self(ctx context.Context) (Self, error)
	// Rooms is one page of the rooms that are known, with the parameters of
	// GET /v1/index/rooms.
	Rooms(ctx context.Context, q url.Values) (*RoomList, error)
	// Said finds messages in rooms that this daemon shows to everybody, the newest first,
	// with q and host of GET /v1/index/events.
	Said(ctx context.Context, q url.Values) ([]Said, error)
	// Room is a room that this daemon hosts or holds.
	Room(ctx context.Context, authority, id string) (*Room, error)
	// Hosts lists the hosts that are followed, or of which rooms are held.
	Hosts(ctx context.Context) ([]Host, error)
	// Host is one of them, with its rooms.
	Host(ctx context.Context, authority string) (*Host, error)
	// Signed is a page of statements, attestations or evidence, the kinds of
	// /v1/witness, with their parameters: JSON texts, and the cursor of the next page.
	Signed(ctx context.Context, kind string, q url.Values) (items [][]byte, next string, err error)
	// Log is where the log of this daemon stands.
	Log() (Log, error)
	// Samples is what was measured of late, the oldest first.
	Samples() []Sample
}

// Self is the daemon itself.
type Self struct {
	Origin, Authority, AgentID, Version string
	Hosts                               bool // it has rooms of its own
	Own, Mirrored, Records              int64
	Peers                               int
	Started                             int64
	Alarms                              []Alarm
}

// Alarm is a room or a host that is known to have told two stories, or whose
// records do not hold together.
type Alarm struct {
	Origin, Authority, RoomID, Topic string // RoomID and Topic are "" for a host
	Verdict, Reason                  string
}

// RoomList is one page of a search.
type RoomList struct {
	Rooms   []RoomItem
	Facets  []Facet
	Next    string // cursor of the next page, "" when there is none
	Total   int64  // rooms that match; -1: not counted
	Partial bool   // a common word was searched among the most active rooms only
}

// Facet counts the rooms of a search by the values of one field.
type Facet struct {
	Name   string // of the parameter: status, host, language, tag
	Values []FacetValue
}

// FacetValue is one value of a facet.
type FacetValue struct {
	Value string
	Count int64
}

// Said is a message that a search found.
type Said struct {
	Authority, RoomID, Topic, Author string
	Seq, At                          int64
	Snippet                          string
	Matches                          [][2]int // from, to: code points of Snippet
}

// RoomItem is a room as lists show it.
type RoomItem struct {
	Origin, Authority, ID, URL                     string
	Topic, Agenda, Language, Visibility            string
	Tags                                           []string
	Status                                         string
	StartTime, EndTime                             int64
	Members, Speakers, Records, LastActivity       int64
	Verdict, State, Reason, Attested               string
	Attestations, SyncedAt, Unverifiable, Withheld int64
	Own                                            bool
	MetadataOnly                                   bool // not held here, so there is no page of it
	Hidden                                         bool // held and not shown: Reason says why
}

// Records is the log of a room, as readers get it.
type Records interface {
	// Read gives records behind a seq in order, at most limit and about maxBytes.
	Read(after int64, limit, maxBytes int) ([][]byte, error)
	// SeqOf is where an envelope hash was accepted.
	SeqOf(envelopeHash string) (int64, bool)
}

// Room is all that the page of a room shows but its records.
type Room struct {
	Own                                 bool
	Origin, Authority, ID, Genesis, URL string
	API                                 string // absolute URL of its resource at this daemon
	Contract                            *room.Contract
	Creator                             adp.AgentID
	CreatedAt                           int64
	Status                              room.Status
	Members                             []Member
	Types                               []*types.Definition

	// Readable is false for restricted rooms: their records are for members.
	// Nothing of what stands below is shown of them then.
	Readable                           bool
	Records                            Records
	Seq                                int64
	Hash                               string
	LastActivity, SyncedAt             int64
	Dropped                            int64 // the records up to this seq are not kept any more
	Verdict, State, Reason             string
	Violations, Unverifiable, Withheld int64
	Rules                              []Count // violations by rule
	Branch                             []OtherRecord
	Archive                            *Archive // nil before it is made
	Attested                           string
	Attestations                       int64
	Checkpoint                         bool // a signed tree head is served
}

// Count is a number of something that has a name.
type Count struct {
	Name string
	N    int64
}

// OtherRecord is a record of the other story that a host told.
type OtherRecord struct {
	Seq  int64
	Hash string
	JSON []byte
}

// Member is a member as of now.
type Member struct {
	Agent       adp.AgentID
	Role        types.Role
	Perspective string
}

// Archive is what the manifest of an ended room says.
type Archive struct {
	Root, EventsCID, BundleCID, Digest string
	Bytes, GeneratedAt, Count          int64
}

// OwnHost is the state of the daemon's own host in a list of hosts: it follows nobody.
const OwnHost = "own"

// Host is a host that is followed, or was.
type Host struct {
	Origin, Authority, State, Reason, Source string
	Own                                      bool
	Since, NextTry                           int64
	Rooms, Records, Bytes, Behind            int64
	Equivocated                              bool // a key of it is proven to have signed two logs
	Verdicts                                 []Count
	Problems                                 []HostRoom // rooms that are not as they should be; of one host
	Keys                                     []HostKey  // that speak, or spoke, for it; of one host
}

// HostKey is a key that speaks, or spoke, for a host.
type HostKey struct {
	Purpose, Key        string
	FirstSeen, LastSeen int64
	Retired, Waiting    bool // Waiting: vouched for by nobody
}

// HostRoom is where a room of a host stands.
type HostRoom struct {
	ID, Topic, State, Verdict, Reason string
	Records, Behind, LastActivity     int64
	Shown                             bool // there is a page of it
}

// Log is where the log of the daemon stands.
type Log struct {
	Origin, Root, Key string // Origin is "" when no log is kept; Key is its verifier key
	Size              uint64
	Signs             bool
	Refused           string // why nothing is signed
}

// Sample is one measurement.
type Sample struct {
	At       int64     `json:"at"`
	Records  int64     `json:"records"`   // verified and stored, all rooms
	DiskUsed int64     `json:"disk_used"` // bytes; 0 when not known
	DiskFree int64     `json:"disk_free"` // bytes; 0 when not known
	Lag      []HostLag `json:"lag,omitempty"`
}

// HostLag is how far the copy of a host is behind: records that it lists and that
// are not here.
type HostLag struct {
	Authority string `json:"authority"`
	Behind    int64  `json:"behind"`
}
