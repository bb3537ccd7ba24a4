package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// Event is what waits in a queue. What may be taken from view later, the records
// themselves, is not in it: they are read when the event is posted.
type Event struct {
	ID   string `json:"id"`
	Type string `json:"event"`
	At   int64  `json:"at"` // when it was noticed here, Unix ms

	Room      *Room     `json:"room,omitempty"`
	Replica   uint64    `json:"replica,omitempty"`
	Seq       int64     `json:"seq,omitempty"` // of the record that says it; 0 for none
	Mentions  []string  `json:"mentions,omitempty"`
	Verdict   string    `json:"verdict,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Attests   string    `json:"attestation,omitempty"` // hash of the envelope
	Witnesses int64     `json:"witnesses,omitempty"`
	Attested  string    `json:"attested,omitempty"`
	Host      *HostNews `json:"host,omitempty"`
	Missed    int64     `json:"missed,omitempty"`
}

// Room is a room as its contract stood when the event was noticed. Topic and tags
// are the words of strangers. Times are Unix ms.
type Room struct {
	URL       string      `json:"url"`              // at its host
	Mirror    string      `json:"mirror,omitempty"` // the copy here, of a room of another host
	Origin    string      `json:"origin"`
	RoomID    string      `json:"room_id"`
	Genesis   string      `json:"genesis"`
	Topic     string      `json:"topic"`
	Language  string      `json:"language,omitempty"`
	Tags      []string    `json:"tags"`
	Creator   string      `json:"creator"`
	StartTime int64       `json:"start_time"`
	EndTime   int64       `json:"end_time"`
	Status    room.Status `json:"status"`
}

// HostNews is a host that is in another state.
type HostNews struct {
	Origin string `json:"origin"`
	From   string `json:"from,omitempty"` // "" for a host that is new here
	State  string `json:"state"`          // as in /federation/v1/hosts, or "removed"
	Reason string `json:"reason,omitempty"`
	Since  int64  `json:"since,omitempty"`
}

// delivery is the JSON that is posted.
type delivery struct {
	ID     string `json:"id"`
	Event  string `json:"event"`
	At     int64  `json:"at"`
	Daemon string `json:"daemon"` // origin of the daemon that posts
	Hook   string `json:"webhook"`

	Challenge   string          `json:"challenge,omitempty"`
	Room        *Room           `json:"room,omitempty"`
	Record      json.RawMessage `json:"record,omitempty"`
	Mentions    []string        `json:"mentions,omitempty"`
	Verdict     string          `json:"verdict,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Stories     *stories        `json:"stories,omitempty"`
	Attestation json.RawMessage `json:"attestation,omitempty"`
	Attested    *attested       `json:"attested,omitempty"`
	Host        *HostNews       `json:"host,omitempty"`
	Missed      int64           `json:"missed,omitempty"`
}

// stories are the two records of a fork that stand at one seq.
type stories struct {
	Seq   int64           `json:"seq"`
	Held  json.RawMessage `json:"held,omitempty"`
	Other json.RawMessage `json:"other,omitempty"`
}

type attested struct {
	Witnesses int64  `json:"witnesses"`
	State     string `json:"state"`
}

// errStale: what the event speaks of is not shown any more.
var errStale = errors.New("the room is not shown any more")

// body makes the JSON of an event for a webhook, with the records as they are shown
// now. errStale: there is nothing to post any more.
func (w *Webhooks) body(h made, e *Event) ([]byte, error) {
	d := delivery{ID: e.ID, Event: e.Type, At: e.At, Daemon: w.o.Origin, Hook: h.ID, Room: e.Room, Mentions: e.Mentions, Verdict: e.Verdict, Reason: e.Reason,
		Host: e.Host, Missed: e.Missed}
	if e.Room != nil {
		r, ok := w.o.Replicas.ByID(e.Replica)
		if !ok || r.Genesis != e.Room.Genesis || r.RoomID != e.Room.RoomID || r.Origin != e.Room.Origin || w.o.Hidden(r) {
			return nil, errStale
		}
		if err := w.fill(&d, e, r); err != nil {
			return nil, err
		}
	}
	body, err := adp.EncodeJSON(d) // records go out as the bytes that were hashed
	if err != nil {
		return nil, fmt.Errorf("webhook: encode an event: %w", err)
	}
	return body, nil
}

// fill reads the records and the attestation that an event speaks of.
func (w *Webhooks) fill(d *delivery, e *Event, r *replica.Replica) (err error) {
	if e.Seq > 0 {
		if d.Record, err = shown(r, e.Seq); err != nil {
			return err
		}
	}
	switch e.Type {
	case RoomForked:
		other, err := r.Branch(1)
		if err != nil || len(other) == 0 { // two signatures alone: /v1/witness/evidence has them
			return err
		}
		v, err := adp.ScanDepth(other[0], adp.RecordDepth)
		if err != nil {
			return err
		}
		seq, _ := v.Get("seq").Int()
		d.Stories = &stories{Seq: seq}
		if d.Stories.Held, err = shown(r, seq); err != nil {
			return err
		}
		if !bytes.Contains(d.Stories.Held, []byte(`"redacted":true`)) { // else the other side would tell what is withheld
			d.Stories.Other = other[0]
		}
		return nil
	case ArchiveAttested:
		d.Attested = &attested{e.Witnesses, e.Attested}
		list, err := w.o.Attestations(r.Origin, r.RoomID)
		if err != nil {
			return err
		}
		for _, env := range list {
			if env.Hash == e.Attests {
				d.Attestation = env.JSON()
				return nil
			}
		}
		return errStale // it was withheld since
	}
	return nil
}

// shown is a record as readers get it; nil when it was let go.
func shown(r *replica.Replica, seq int64) (json.RawMessage, error) {
	raw, _, err := r.Record(seq)
	if replica.IsGone(err) {
		return nil, nil
	}
	return raw, err
}

// describe is what an event says of a room.
func (w *Webhooks) describe(r *replica.Replica, s *roomState) *Room {
	k := s.contract
	out := &Room{URL: r.Origin + "/v1/rooms/" + r.RoomID, Origin: r.Origin, RoomID: r.RoomID, Genesis: r.Genesis, Topic: k.Topic, Language: k.Language,
		Tags: append([]string{}, k.Tags...), Creator: string(s.creator), StartTime: k.StartTime, EndTime: k.EndTime, Status: s.status}
	if r.Origin != w.o.Origin {
		out.Mirror = w.o.Origin + "/m/" + url.PathEscape(fetch.Authority(r.Origin)) + "/v1/rooms/" + r.RoomID
	}
	return out
}
