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
	add(t, s, &mcp.Tool{Name: "read_room", Annotations: reads("Read a room's contract and state"), InputSchema: t.room(props{
		"members":      flag("also list the members and their roles, by replaying the room"),
		"after_type":   str(200, "go on with the event types behind this one: next_after_type of the answer before"),
		"after_member": pattern(agentPattern, "with members: go on behind this one, next_after_member of the answer before"),
	}), Description: "Read one room: its contract (topic, agenda, guidance, policy), times, status, event types with their schemas, verdict and attestation state. With members: true the room is replayed and its members and their roles are listed. Long lists go on at next_after_type and next_after_member."}, t.readRoom)
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
	Types        []string `json:"types,omitempty" jsonschema:"the first event types that the room declared; read_room has all"`
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
	Cut      bool     `json:"cut,omitempty" jsonschema:"a text or the tags are longer; of a list, read_room has more"`
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
		r, w := indexed(v, listBytes/len(list))
		f.Rooms, u = append(f.Rooms, r), append(u, w)
	}
	return f, u, nil
}

// indexed takes an entry of the index apart; its texts, and the names of its types, get so many bytes.
func indexed(v value, bytes int) (roomFacts, roomText) {
	at := origin(v.Get("origin").Text())
	f := roomFacts{RoomID: roomID(v.Get("room_id").Text()), Host: at, Status: word(v.Get("status").Text()), Visibility: word(v.Get("visibility").Text()),
		Starts: clock(number(v.Get("start_time"))), Ends: clock(number(v.Get("end_time"))), LastActivity: clock(number(v.Get("last_activity"))),
		Language: word(v.Get("language").Text()), Creator: agent(v.Get("creator").Text()), Members: number(v.Get("members")), Speakers: number(v.Get("speakers")),
		Records: number(v.Get("records")), Verdict: word(v.Get("verdict").Text()), Attested: word(v.Get("attested").Text()), Attestations: number(v.Get("attestations"))}
	f.URL = remote.Room{Base: at, ID: f.RoomID}.URL()
	left := bytes / 2
	for e := range v.Get("types").Elements() {
		name := word(e.Text())
		if left -= len(name); left < 0 {
			break
		}
		f.Types = append(f.Types, name)
	}
	w := described(v, f.URL, min(bytes/4, topicBytes), min(bytes/4, longBytes))
	w.Reason = line(v.Get("reason").Text(), 200)
	return f, w
}

// described is what the creator of a room says of it, the topic in so many bytes, and agenda, guidance and tags in so many each.
func described(v value, at string, topic, long int) roomText {
	w := roomText{URL: at}
	clipped := func(s string, n int) string {
		shown, cut := clip(s, n)
		w.Cut = w.Cut || cut
		return shown
	}
	w.Topic = clipped(v.Get("topic").Text(), topic)
	w.Agenda = clipped(v.Get("agenda").Text(), long)
	w.Guidance = clipped(v.Get("guidance").Text(), long)
	left := long
	for e := range v.Get("tags").Elements() {
		tag := clipped(e.Text(), tagBytes)
		if left -= len(tag); left < 0 || len(w.Tags) == mostTags {
			w.Cut = true
			break
		}
		w.Tags = append(w.Tags, tag)
	}
	return w
}

type roomIn struct {
	Room    string `json:"room"`
	From    string `json:"from"`
	Members bool   `json:"members"`

	AfterType   string `json:"after_type"`
	AfterMember string `json:"after_member"`
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
	Types       []string      `json:"types" jsonschema:"event types that the room declared"`
	NextType    string        `json:"next_after_type,omitempty" jsonschema:"there are more types: give it as after_type"`
	Verdict     string        `json:"verdict,omitempty" jsonschema:"what the daemon found when it verified its copy"`
	SyncedAt    string        `json:"synced_at,omitempty" jsonschema:"when a mirror and the host last agreed"`
	Attested    string        `json:"attested,omitempty"`
	InIndex     bool          `json:"in_index"`
	Members     []memberFacts `json:"members,omitempty"`
	NextMember  string        `json:"next_after_member,omitempty" jsonschema:"there are more members: give it as after_member"`
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
	Perspectives map[string]string `json:"perspectives,omitempty" jsonschema:"what members say of their side, by agent"`
}

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
	u = readText{roomText: described(v, f.URL, topicBytes, longBytes)}
	for name, to := range map[string]*any{"policy": &u.Policy, "extra": &u.Extra} {
		if e := v.Get(name); e.Exists() {
			said, cut := shownUpTo(e, longBytes)
			*to, u.Cut = said, u.Cut || cut
		}
	}
	if err := readTypes(v, in.AfterType, &f, &u); err != nil {
		return f, u, err
	}
	if in.From != fromHost {
		if err := t.readIndex(ctx, p, v, &f, &u); err != nil {
			return f, u, err
		}
	}
	if in.Members {
		err = t.readMembers(ctx, c, p, in.AfterMember, &f, &u)
	}
	return f, u, err
}

// readTypes adds one page of the types of the room, in their order.
func readTypes(v value, after string, f *readFacts, u *readText) error {
	skip, bytes := after != "", 0
	for e := range v.Get("types").Elements() {
		if name := e.Get("type").Text(); skip {
			skip = name != after
			continue
		}
		said, _ := shownUpTo(e, longBytes)
		if bytes += size(said); len(f.Types) > 0 && (bytes > typeBytes || len(f.Types) == mostTypes) {
			f.NextType = f.Types[len(f.Types)-1]
			return nil
		}
		f.Types, u.Types = append(f.Types, word(e.Get("type").Text())), append(u.Types, said)
	}
	if skip {
		return remote.Argumentf("the room has no type %q to go on behind; leave after_type out to begin anew", after)
	}
	return nil
}

// readIndex adds what the index of the daemon says of the room. There is no filter for one room; those of its creator with its times
// are few.
func (t *tools) readIndex(ctx context.Context, p remote.Room, v value, f *readFacts, u *readText) error {
	host, err := remote.OriginOf(f.URL)
	if err != nil {
		return err
	}
	q := url.Values{"host": {fetch.Authority(host)}, "limit": {"20"}, "creator": {v.Get("creator").Text()},
		"starts_after": {strconv.FormatInt(number(v.Get("start_time"))-1, 10)}, "ends_before": {strconv.FormatInt(number(v.Get("end_time"))+1, 10)}}
	for range 10 {
		list, next, _, err := t.getList(ctx, t.reader(t.o.Near), t.o.Daemon+"/v1/index/rooms?"+q.Encode())
		if err != nil {
			return err
		}
		for _, e := range list {
			if e.Get("room_id").Is(p.ID) {
				found, said := indexed(e, listBytes)
				f.InIndex, f.URL, f.Verdict, f.Attested = true, found.URL, found.Verdict, found.Attested
				u.URL, u.Reason = found.URL, said.Reason
				return nil
			}
		}
		if next == "" {
			return nil
		}
		q.Set("cursor", next)
	}
	return nil
}

// readMembers adds one page of the members, whom no endpoint lists: they follow from the records.
func (t *tools) readMembers(ctx context.Context, c *remote.Client, p remote.Room, after string, f *readFacts, u *readText) error {
	in, err := t.inspect(ctx, c, p)
	if err != nil {
		return err
	}
	f.MembersFrom, f.Members, u.Perspectives = in.Verdict(), []memberFacts{}, map[string]string{}
	all := in.Verifier.State.Members
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if string(id) <= after {
			continue
		}
		if len(f.Members) == mostMembers {
			f.NextMember = f.Members[mostMembers-1].Agent
			break
		}
		f.Members = append(f.Members, memberFacts{string(id), word(string(all[id].Role))})
		if said, _ := clip(all[id].Perspective, sideBytes); said != "" {
			u.Perspectives[string(id)] = said
		}
	}
	return nil
}
