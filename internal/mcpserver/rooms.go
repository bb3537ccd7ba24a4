package mcpserver

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/remote"
)

func (t *tools) addRooms(s *mcp.Server) {
	t.addMessages(s)
	add(t, s, &mcp.Tool{Name: "search_rooms", Annotations: reads("Search rooms"), InputSchema: searchSchema(),
		Description: "Search the rooms of all hosts that the daemon knows, the most active first. Each room comes with its url, status, verdict (did every record verify) and attestation state (did witnesses recompute it)."}, t.searchRooms)
	add(t, s, &mcp.Tool{Name: "read_room", Annotations: reads("Read a room's contract and state"), InputSchema: t.room(props{"members": flag("also list the members and their roles, by replaying the room")}),
		Description: "Read one room: its contract (topic, agenda, guidance, policy), times, status, types, verdict and attestation state. With members: true the room is replayed and its members and their roles are listed."}, t.readRoom)
}

type searchIn struct {
	Query    string `json:"query"`
	Host     string `json:"host"`
	Status   string `json:"status"`
	Tag      string `json:"tag"`
	Language string `json:"language"`
	Type     string `json:"type"`
	Creator  string `json:"creator"`
	Verdict  string `json:"verdict"`
	Attested string `json:"attested"`
	Joinable *bool  `json:"joinable"`
	Sort     string `json:"sort"`
	Limit    int    `json:"limit"`
	Cursor   string `json:"cursor"`
}

// roomFacts is a room as the index lists it.
type roomFacts struct {
	URL          string   `json:"url" jsonschema:"name the room by this in other tools"`
	RoomID       string   `json:"room_id"`
	Host         string   `json:"host"`
	Status       string   `json:"status"`
	Visibility   string   `json:"visibility"`
	Starts       string   `json:"starts"`
	Ends         string   `json:"ends"`
	LastActivity string   `json:"last_activity,omitempty"`
	Language     string   `json:"language,omitempty"`
	Creator      string   `json:"creator"`
	Members      int64    `json:"members"`
	Speakers     int64    `json:"speakers"`
	Records      int64    `json:"records"`
	Types        []string `json:"types,omitempty"`
	Verdict      string   `json:"verdict" jsonschema:"verified, violations, broken, forked, archive-mismatch, equivocated, ..."`
	Attested     string   `json:"attested" jsonschema:"unattested, partial, attested or equivocated"`
	Attestations int64    `json:"attestations"`
}

type roomText struct {
	URL      string   `json:"url"`
	Topic    string   `json:"topic"`
	Agenda   string   `json:"agenda,omitempty"`
	Guidance string   `json:"guidance,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Reason   string   `json:"reason,omitempty" jsonschema:"why the verdict is what it is"`
}

type searchFacts struct {
	Rooms      []roomFacts `json:"rooms"`
	NextCursor string      `json:"next_cursor,omitempty" jsonschema:"give it as cursor, with the same filters, for the next page"`
}

func (t *tools) searchRooms(ctx context.Context, in searchIn) (f searchFacts, u []roomText, err error) {
	q := url.Values{}
	for name, s := range map[string]string{"q": in.Query, "host": in.Host, "status": in.Status, "tag": in.Tag, "language": in.Language, "types": in.Type,
		"creator": in.Creator, "verdict": in.Verdict, "attested": in.Attested, "sort": in.Sort, "cursor": in.Cursor} {
		if s != "" {
			q.Set(name, s)
		}
	}
	if in.Joinable != nil {
		q.Set("joinable", strconv.FormatBool(*in.Joinable))
	}
	q.Set("limit", strconv.Itoa(in.Limit))
	list, next, _, err := t.getList(ctx, t.reader(t.o.Near), t.o.Daemon+"/v1/index/rooms?"+q.Encode())
	if err != nil {
		return f, nil, err
	}
	f, u = searchFacts{Rooms: []roomFacts{}, NextCursor: cursor(next)}, []roomText{}
	for _, v := range list {
		r, w := indexed(v)
		f.Rooms, u = append(f.Rooms, r), append(u, w)
	}
	return f, u, nil
}

// indexed takes an entry of the index apart.
func indexed(v value) (roomFacts, roomText) {
	at := origin(v.Get("origin").Text())
	f := roomFacts{RoomID: roomID(v.Get("room_id").Text()), Host: at, Status: word(v.Get("status").Text()), Visibility: word(v.Get("visibility").Text()),
		Starts: clock(number(v.Get("start_time"))), Ends: clock(number(v.Get("end_time"))), LastActivity: clock(number(v.Get("last_activity"))),
		Language: word(v.Get("language").Text()), Creator: agent(v.Get("creator").Text()), Members: number(v.Get("members")), Speakers: number(v.Get("speakers")),
		Records: number(v.Get("records")), Verdict: word(v.Get("verdict").Text()), Attested: word(v.Get("attested").Text()), Attestations: number(v.Get("attestations"))}
	f.URL = remote.Room{Base: at, ID: f.RoomID}.URL()
	for e := range v.Get("types").Elements() {
		f.Types = append(f.Types, word(e.Text()))
	}
	w := described(v, f.URL)
	w.Reason = line(v.Get("reason").Text(), 500)
	return f, w
}

// described is what the creator of a room says of it.
func described(v value, at string) roomText {
	w := roomText{URL: at, Topic: line(v.Get("topic").Text(), 1000)}
	w.Agenda, _ = text(v.Get("agenda").Text(), 4000)
	w.Guidance, _ = text(v.Get("guidance").Text(), 4000)
	for e := range v.Get("tags").Elements() {
		w.Tags = append(w.Tags, line(e.Text(), 100))
	}
	return w
}

type roomIn struct {
	Room    string `json:"room"`
	From    string `json:"from"`
	Members bool   `json:"members"`
}

type readFacts struct {
	URL         string        `json:"url"`
	ReadFrom    string        `json:"read_from"`
	RoomID      string        `json:"room_id"`
	Status      string        `json:"status"`
	Visibility  string        `json:"visibility"`
	Starts      string        `json:"starts"`
	Ends        string        `json:"ends"`
	Creator     string        `json:"creator"`
	Language    string        `json:"language,omitempty"`
	Records     int64         `json:"records"`
	LastHash    string        `json:"last_hash"`
	HeadSeq     int64         `json:"head_seq"`
	Types       []string      `json:"types"`
	Verdict     string        `json:"verdict,omitempty" jsonschema:"what the daemon found when it verified its copy"`
	SyncedAt    string        `json:"synced_at,omitempty" jsonschema:"when a mirror and the host last agreed"`
	Attested    string        `json:"attested,omitempty"`
	InIndex     bool          `json:"in_index"`
	Members     []memberFacts `json:"members,omitempty"`
	MembersFrom string        `json:"members_from,omitempty" jsonschema:"verdict of the replay that gave the members"`
}

type memberFacts struct {
	Agent string `json:"agent"`
	Role  string `json:"role"`
}

type readText struct {
	roomText
	Policy       any               `json:"policy,omitempty"`
	Extra        any               `json:"extra,omitempty"`
	Types        []any             `json:"types,omitempty" jsonschema:"the declarations of the types"`
	TypesCut     bool              `json:"types_cut,omitempty" jsonschema:"there are more than fit in here"`
	Perspectives map[string]string `json:"perspectives,omitempty" jsonschema:"what members say of their side, by agent"`
}

// typeBytes bounds the declarations in an answer.
const typeBytes = 48 << 10

func (t *tools) readRoom(ctx context.Context, in roomIn) (f readFacts, u readText, err error) {
	c, p, err := t.place(in.Room, in.From == fromHost)
	if err != nil {
		return f, u, err
	}
	v, h, err := c.Get(ctx, fetch.Request{URL: p.URL(), MaxBytes: maxAnswer})
	if err != nil {
		return f, u, err
	}
	r, err := inspect.ParseResource(v, p.ID)
	if err != nil {
		return f, u, err
	}
	at := p.URL()
	if host := h.Get("Witan-Origin"); host != "" {
		at = remote.Room{Base: origin(host), ID: p.ID}.URL()
	}
	f = readFacts{URL: at, ReadFrom: p.URL(), RoomID: p.ID, Status: word(r.Status), Visibility: word(r.Visibility), Starts: clock(number(v.Get("start_time"))),
		Ends: clock(r.EndTime), Creator: agent(v.Get("creator").Text()), Language: word(v.Get("language").Text()), Records: r.Last.Seq, LastHash: hash(r.Last.Hash),
		HeadSeq: r.Head.Seq, Types: []string{}, Verdict: word(h.Get("Witan-Verdict"))}
	if ms, err := strconv.ParseInt(h.Get("Witan-Synced-At"), 10, 64); err == nil {
		f.SyncedAt = clock(ms)
	}
	u = readText{roomText: described(v, f.URL)}
	if e := v.Get("policy"); e.Exists() {
		u.Policy = shown(e)
	}
	if e := v.Get("extra"); e.Exists() {
		u.Extra = shown(e)
	}
	size := 0
	for e := range v.Get("types").Elements() {
		f.Types = append(f.Types, word(e.Get("type").Text()))
		if size += len(e.Raw()); size > typeBytes {
			u.TypesCut = true
			continue
		}
		u.Types = append(u.Types, shown(e))
	}
	if in.From != fromHost {
		if err := t.readIndex(ctx, p, v, &f, &u); err != nil {
			return f, u, err
		}
	}
	if in.Members {
		err = t.readMembers(ctx, c, p, &f, &u)
	}
	return f, u, err
}

// readIndex adds what the index of the daemon says of the room.
func (t *tools) readIndex(ctx context.Context, p remote.Room, v value, f *readFacts, u *readText) error {
	host, err := remote.OriginOf(f.URL)
	if err != nil {
		return err
	}
	q := url.Values{"host": {fetch.Authority(host)}, "limit": {"200"}, "creator": {v.Get("creator").Text()},
		"starts_after": {strconv.FormatInt(number(v.Get("start_time"))-1, 10)}, "ends_before": {strconv.FormatInt(number(v.Get("end_time"))+1, 10)}}
	list, _, _, err := t.getList(ctx, t.reader(t.o.Near), t.o.Daemon+"/v1/index/rooms?"+q.Encode())
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Get("room_id").Is(p.ID) {
			found, said := indexed(e)
			f.InIndex, f.URL, f.Verdict, f.Attested = true, found.URL, found.Verdict, found.Attested
			u.URL, u.Reason = found.URL, said.Reason
		}
	}
	return nil
}

// readMembers adds the members, whom no endpoint lists: they follow from the records.
func (t *tools) readMembers(ctx context.Context, c *remote.Client, p remote.Room, f *readFacts, u *readText) error {
	in, err := t.inspect(ctx, c, p)
	if err != nil {
		return err
	}
	f.MembersFrom, f.Members, u.Perspectives = in.Verdict(), []memberFacts{}, map[string]string{}
	all := in.Verifier.State.Members
	for _, id := range slices.Sorted(maps.Keys(all)) {
		f.Members = append(f.Members, memberFacts{string(id), word(string(all[id].Role))})
		if said := all[id].Perspective; said != "" {
			u.Perspectives[string(id)] = line(said, 1000)
		}
	}
	return nil
}
