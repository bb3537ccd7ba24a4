package index

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/web"
)

// order is how a list is sorted.
type order uint8

const (
	byActivity order = iota // status, latest activity first, URL
	byStart                 // earliest start first, URL
	byID                    // status, latest activity first, room ID
)

// status is the status of a room by its rank in lists (ADP §18: active before
// scheduled).
type status uint8

const (
	active status = iota
	scheduled
	ended
	cancelled
	hidden // held and not shown: it has no status to show
)

var statuses = []string{string(room.Active), string(room.Scheduled), string(room.Ended), string(room.Cancelled)}

// statusAt is room.State.StatusAt over columns: ADP §8, and time never runs
// back behind the newest record (wire-facts §3.4).
func statusAt(bits uint32, start, end, activity, t int64) status {
	t = max(t, activity)
	switch {
	case bits&isHidden != 0:
		return hidden
	case bits&isCancelled != 0:
		return cancelled
	case bits&isClosed != 0:
		return ended
	case t < start:
		return scheduled
	case t < end:
		return active
	}
	return ended
}

func (r *row) statusAt(t int64) string {
	d := &r.doc
	s := statusAt(bitsOf(d), d.StartTime, d.EndTime, d.LastActivity, t)
	if s == hidden {
		return ""
	}
	return statuses[s]
}

// room is the row as it is shown.
func (r *row) room(now int64) Room {
	d := &r.doc
	return Room{
		URL: d.URL, Origin: d.Origin, RoomID: d.RoomID, Genesis: d.Genesis,
		Topic: d.Topic, Agenda: d.Agenda, Guidance: d.Guidance, Visibility: d.Visibility,
		StartTime: d.StartTime, EndTime: d.EndTime, Tags: d.Tags, Language: d.Language, Policy: d.Policy,
		Creator: d.Creator, CreatedAt: d.CreatedAt, Status: r.statusAt(now),
		Members: d.Members, Speakers: d.Speakers, Records: d.Records, LastActivity: d.LastActivity,
		Verdict: d.Verdict, State: d.State, Reason: d.Reason, Unverifiable: d.Unverifiable, Withheld: d.Withheld,
		Attested: d.Attested, Attestations: d.Attestations, SyncedAt: d.SyncedAt, Types: d.Types, Packs: d.Packs,
		Own: d.Own, Hidden: d.Hidden,
	}
}

// A cursor holds the place in the order after which a page begins, whether a
// room still stands there or not. Texts are cut, so that a host with endless
// URLs cannot make cursors that fit in no request; tie parts what is equal then.
const (
	maxPlaceText = 512
	tieLen       = 16
)

// place is where a room stands in a list: by rank, number, text, tie.
type place struct {
	rank   status // active when the order has no rank
	number int64
	text   string
	tie    [tieLen]byte
}

func tieOf(d *Doc) (tie [tieLen]byte) {
	h := sha256.New()
	for _, s := range []string{d.URL, d.Origin, d.RoomID} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	copy(tie[:], h.Sum(nil))
	return tie
}

func (o order) number(start, activity int64) int64 {
	if o == byStart {
		return start
	}
	return ^activity // the latest first
}

func (o order) text(r *row) string {
	s := r.doc.URL
	if o == byID {
		s = r.doc.RoomID
	}
	return s[:min(len(s), maxPlaceText)]
}

func (p *place) compare(q *place) int {
	if c := p.outer(q.rank, q.number); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(p.text, q.text), bytes.Compare(p.tie[:], q.tie[:]))
}

// outer compares with the part of a place that stands in the columns.
func (p *place) outer(rank status, number int64) int {
	if p.rank != rank {
		return cmp.Compare(p.rank, rank)
	}
	return cmp.Compare(p.number, number)
}

// cursor is what goes into the opaque text. at is the time by which the list is
// ordered: that of its first page, so that a room whose status changes with
// time alone keeps its place.
type cursor struct {
	at    int64
	place place
}

const cursorVersion = 1

func sealCursor(c *web.Cursors, list string, at int64, p place) string {
	b := []byte{cursorVersion, byte(p.rank)}
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = binary.BigEndian.AppendUint64(b, uint64(p.number))
	b = append(b, p.tie[:]...)
	return c.Seal(list, append(b, p.text...))
}

func openCursor(c *web.Cursors, list, text string) (*cursor, error) {
	b, err := c.Open(list, text)
	if err != nil {
		return nil, err
	}
	const fixed = 2 + 8 + 8 + tieLen
	if len(b) < fixed || b[0] != cursorVersion {
		return nil, adp.Errorf(adp.InvalidRequest, "The cursor is of another version of this server; start again without \"cursor\".").With("parameter", "cursor")
	}
	out := &cursor{at: int64(binary.BigEndian.Uint64(b[2:])), place: place{
		rank: status(b[1]), number: int64(binary.BigEndian.Uint64(b[10:])), text: string(b[fixed:]),
	}}
	copy(out.place.tie[:], b[18:])
	return out, nil
}
