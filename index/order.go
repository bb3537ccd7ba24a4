package index

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/web"
)

// order is how a list is sorted.
type order uint8

const (
	byActivity  order = iota // status, latest activity first, URL
	byStart                  // earliest start first, URL
	byID                     // status, latest activity first, room ID
	byRelevance              // best match first, then byActivity
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

// room is the row as it is shown.
func (r *row) room(now int64) Room {
	d := r.unpack()
	shown := ""
	if s := statusAt(bitsOf(&d), d.StartTime, d.EndTime, d.LastActivity, now); s != hidden {
		shown = statuses[s]
	}
	return Room{
		URL: d.URL, Origin: d.Origin, RoomID: d.RoomID, Genesis: d.Genesis,
		Topic: d.Topic, Agenda: d.Agenda, Guidance: d.Guidance, Visibility: d.Visibility,
		StartTime: d.StartTime, EndTime: d.EndTime, Tags: d.Tags, Language: d.Language, Policy: d.Policy,
		Creator: d.Creator, CreatedAt: d.CreatedAt, Status: shown,
		Members: d.Members, Speakers: d.Speakers, Records: d.Records, LastActivity: d.LastActivity,
		Verdict: d.Verdict, State: d.State, Reason: d.Reason, Unverifiable: d.Unverifiable, Withheld: d.Withheld,
		Attested: d.Attested, Attestations: d.Attestations, SyncedAt: d.SyncedAt, Types: d.Types, Packs: d.Packs,
		Own: d.Own, Hidden: d.Hidden, NoticedAt: r.noticed,
	}
}

// A cursor holds the place in the order after which a page begins, whether a
// room still stands there or not. Texts are cut, so that a host with endless
// URLs cannot make cursors that fit in no request; tie parts what is equal then.
const (
	maxPlaceText = 512
)

// place is where a room stands in a list: by score, rank, number, text, tie.
type place struct {
	score  int64  // the greatest first; 0 but for relevance
	rank   status // active when the order has no rank
	number int64
	text   string
	tie    id
}

func (o order) number(start, activity int64) int64 {
	if o == byStart {
		return start
	}
	return ^activity // the latest first
}

func (o order) text(r *row) string {
	at := atURL
	if o == byID {
		at = atRoomID
	}
	s := r.part(at)
	return s[:min(len(s), maxPlaceText)]
}

func (p *place) compare(q *place) int {
	if c := cmp.Compare(q.score, p.score); c != 0 {
		return c
	}
	if c := p.outer(q.rank, q.number); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(p.text, q.text), bytes.Compare(p.tie[:], q.tie[:]))
}

// outer compares with the part of a place that stands in the columns, of equal scores.
func (p *place) outer(rank status, number int64) int {
	if p.rank != rank {
		return cmp.Compare(p.rank, rank)
	}
	return cmp.Compare(p.number, number)
}

// cursor is what goes into the opaque text. at is the time by which the list is
// ordered: that of its first page, so that a room whose status changes with
// time alone keeps its place. view is the version of the snapshot of that page.
type cursor struct {
	at    int64
	view  uint64
	place place
}

const cursorVersion = 2

func (c *cursor) seal(by *web.Cursors, list string) string { return by.Seal(list, c.bytes()) }

func (c *cursor) bytes() []byte {
	p := &c.place
	b := []byte{cursorVersion, byte(p.rank)}
	for _, n := range []uint64{uint64(c.at), c.view, uint64(p.score), uint64(p.number)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, p.tie[:]...)
	return append(b, p.text...)
}

func openCursor(c *web.Cursors, list, text string) (*cursor, error) {
	b, err := c.Open(list, text)
	if err != nil {
		return nil, err
	}
	const numbers = 2 + 4*8
	if len(b) < numbers+len(id{}) || b[0] != cursorVersion {
		return nil, adp.Errorf(adp.InvalidRequest, "The cursor is of another version of this server; start again without \"cursor\".").With("parameter", "cursor")
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[2+8*i:]) }
	out := &cursor{at: int64(n(0)), view: n(1), place: place{score: int64(n(2)), rank: status(b[1]), number: int64(n(3))}}
	out.place.text = string(b[numbers+copy(out.place.tie[:], b[numbers:]):])
	return out, nil
}
