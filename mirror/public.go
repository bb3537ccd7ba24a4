package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/web"
)

// card is what the room list needs of a room, as of a seq, so that a list does
// not load the state of every room again.
type card struct {
	seq, at   int64 // at: received_at of the newest record
	contract  *room.Contract
	creator   adp.AgentID
	closed    bool
	cancelled bool
	clock     int64
}

type cards struct {
	mu sync.Mutex
	of map[uint64]card
}

// card reads a room, or what is remembered of it.
func (m *Mirror) card(ctx context.Context, r *replica.Replica) (card, error) {
	seq := r.Row().Seq
	m.cards.mu.Lock()
	c, ok := m.cards.of[r.ID]
	m.cards.mu.Unlock()
	if ok && c.seq == seq {
		return c, nil
	}
	err := r.View(ctx, func(s *room.State) {
		c = card{s.Last.Seq, s.ReceivedAt, brief(s.Contract), s.Creator, s.Closed, s.Cancelled, s.Clock}
	})
	if err != nil {
		return card{}, err
	}
	m.cards.mu.Lock()
	defer m.cards.mu.Unlock()
	if m.cards.of == nil {
		m.cards.of = map[uint64]card{}
	}
	m.cards.of[r.ID] = c
	return c, nil
}

// Bounds of what a card has of a contract; what is behind them is not searched.
const (
	cardText = 16 << 10 // bytes of one text
	cardTags = 256
)

// brief is what filters and order need of a contract: cards of all rooms stay in memory,
// and how large a contract is was for others to say.
func brief(k *room.Contract) *room.Contract {
	cut := func(s string) string { return strings.Clone(s[:min(len(s), cardText)]) }
	b := &room.Contract{Topic: cut(k.Topic), Agenda: cut(k.Agenda), Language: cut(k.Language), StartTime: k.StartTime, EndTime: k.EndTime}
	for _, t := range k.Tags[:min(len(k.Tags), cardTags)] {
		b.Tags = append(b.Tags, cut(t))
	}
	return b
}

func (c card) status(now int64) room.Status {
	s := room.State{Contract: c.contract, Closed: c.closed, Cancelled: c.cancelled, Clock: c.clock}
	return s.StatusAt(now)
}

// filter is the query of ADP §18 (wire-facts §3.19).
type filter struct {
	status, tag, keyword, creator, language string
	startsAfter, endsBefore                 int64 // exclusive
}

var ranks = map[room.Status]int{room.Active: 0, room.Scheduled: 1, room.Ended: 2, room.Cancelled: 3}

func readFilter(q url.Values) (f filter, err error) {
	for name, to := range map[string]*string{"status": &f.status, "tag": &f.tag, "keyword": &f.keyword, "creator": &f.creator, "language": &f.language} {
		if *to, err = web.String(q, name); err != nil {
			return f, err
		}
	}
	if _, ok := ranks[room.Status(f.status)]; !ok && f.status != "" {
		return f, adp.Errorf(adp.InvalidRequest, "status is scheduled, active, ended or cancelled").With("parameter", "status")
	}
	if f.startsAfter, err = web.Int64(q, "starts_after", 0, adp.MaxInt, -1); err != nil {
		return f, err
	}
	f.endsBefore, err = web.Int64(q, "ends_before", 0, adp.MaxInt, adp.MaxInt+1)
	return f, err
}

func (f filter) takes(c card, status room.Status) bool {
	k := c.contract
	holds := func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(f.keyword)) }
	return (f.status == "" || f.status == string(status)) &&
		(f.tag == "" || slices.Contains(k.Tags, f.tag)) &&
		(f.creator == "" || f.creator == string(c.creator)) &&
		(f.language == "" || strings.EqualFold(f.language, k.Language)) &&
		k.StartTime > f.startsAfter && k.EndTime < f.endsBefore &&
		(f.keyword == "" || holds(k.Topic) || holds(k.Agenda) || slices.ContainsFunc(k.Tags, holds))
}

// place orders the list: active rooms first, then by activity (ADP §18).
type place struct {
	Rank int    `json:"r"`
	At   int64  `json:"a"`
	ID   string `json:"i"`
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.Rank, o.Rank), cmp.Compare(o.At, p.At), cmp.Compare(p.ID, o.ID))
}

const (
	listDefault = 20
	listMax     = 100
)

// serveRooms answers GET /m/{authority}/v1/rooms/public.
func (m *Mirror) serveRooms(w http.ResponseWriter, req *http.Request) error {
	origin, base, err := m.target(req)
	if err != nil {
		return err
	}
	q, err := web.ParseQuery(req)
	if err != nil {
		return err
	}
	f, err := readFilter(q)
	if err != nil {
		return err
	}
	limit, err := web.Limit(q, listDefault, listMax)
	if err != nil {
		return err
	}
	var after *place
	kind := "mirror-rooms " + origin
	if text, err := web.String(q, "cursor"); err != nil {
		return err
	} else if text != "" {
		payload, err := m.cursors.Open(kind, text)
		if err != nil {
			return err
		}
		after = &place{}
		if err := json.Unmarshal(payload, after); err != nil {
			return err
		}
	}
	type entry struct {
		place
		r *replica.Replica
	}
	now := m.o.Now()
	var list []entry
	for _, r := range m.o.Replicas.Of(origin) {
		if m.verified(origin, r.RoomID) != r {
			continue
		}
		if _, hidden := m.Hidden(r); hidden {
			continue
		}
		c, err := m.card(req.Context(), r)
		if err != nil {
			return err
		}
		status := c.status(now)
		e := entry{place{ranks[status], c.at, r.RoomID}, r}
		if f.takes(c, status) && (after == nil || e.compare(*after) > 0) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return a.compare(b.place) })
	if len(list) > limit {
		list = list[:limit]
		last, err := json.Marshal(list[limit-1].place)
		if err != nil {
			return err
		}
		q.Set("cursor", m.cursors.Seal(kind, last))
		web.NextLink(w, base+"/rooms/public?"+q.Encode())
	}
	items := make([][]byte, 0, len(list))
	for _, e := range list {
		err := e.r.View(req.Context(), func(s *room.State) { items = append(items, s.Listed(m.RoomURL(origin, e.r.RoomID), now)) })
		if err != nil {
			return err
		}
	}
	w.Header().Set("Witan-Origin", origin)
	web.WriteArray(w, items)
	return nil
}
