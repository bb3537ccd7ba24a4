package mcpserver

import (
	"context"
	"net/url"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/internal/remote"
)

func (t *tools) addMessages(s *mcp.Server) {
	add(t, s, &mcp.Tool{Name: "search_messages", Annotations: reads("Search messages"), InputSchema: object(props{
		"query":  str(1000, "words that must all occur in the message"),
		"room":   str(2048, "only in this room: its url, as search_rooms returns it, or its ID"),
		"host":   str(300, "only in rooms of this host, such as rooms.example"),
		"author": pattern(agentPattern, "only of this agent"),
		"limit":  integer(1, 50, 10, "how many messages at most"),
		"cursor": str(2000, "next_cursor of the page before; give the same filters with it"),
	}, "query"), Description: "Search what was said in the public rooms that the daemon holds, the newest first. Each message comes with its room, seq and hash; read around it with read_history, prove it with get_proof."}, t.searchMessages)
}

type messagesIn struct {
	Query  string `json:"query"`
	Room   string `json:"room"`
	Host   string `json:"host"`
	Author string `json:"author"`
	Limit  int    `json:"limit"`
	Cursor string `json:"cursor"`
}

type messageFacts struct {
	Room       string `json:"room"`
	Seq        int64  `json:"seq"`
	RecordHash string `json:"record_hash"`
	Author     string `json:"author"`
	Type       string `json:"type"`
	Received   string `json:"received"`
}

type messagesFacts struct {
	Messages   []messageFacts `json:"messages"`
	NextCursor string         `json:"next_cursor,omitempty" jsonschema:"give it as cursor, with the same filters, for the next page"`
	Cut        bool           `json:"cut,omitempty" jsonschema:"the search was cut short: there may be more, give rarer words"`
}

type messageText struct {
	Room    string `json:"room"`
	Seq     int64  `json:"seq"`
	Snippet string `json:"snippet"`
}

func (t *tools) searchMessages(ctx context.Context, in messagesIn) (f messagesFacts, u []messageText, err error) {
	q := url.Values{"q": {in.Query}, "limit": {strconv.Itoa(in.Limit)}}
	if in.Room != "" {
		p, err := t.reader(t.o.Near).Room(t.o.Daemon, in.Room)
		if err != nil {
			return f, nil, err
		}
		q.Set("room", p.URL())
	}
	for name, s := range map[string]string{"host": in.Host, "author": in.Author, "cursor": in.Cursor} {
		if s != "" {
			q.Set(name, s)
		}
	}
	list, next, h, err := t.getList(ctx, t.reader(t.o.Near), t.o.Daemon+"/v1/index/events?"+q.Encode())
	if err != nil {
		return f, nil, err
	}
	f, u = messagesFacts{Messages: []messageFacts{}, NextCursor: cursor(next), Cut: h.Get("Witan-Note") != ""}, []messageText{}
	for _, v := range list {
		at := remote.Room{Base: origin(v.Get("origin").Text()), ID: roomID(v.Get("room_id").Text())}.URL()
		seq := number(v.Get("seq"))
		f.Messages = append(f.Messages, messageFacts{at, seq, hash(v.Get("hash").Text()), agent(v.Get("author").Text()), word(v.Get("type").Text()), clock(number(v.Get("received_at")))})
		snippet, _ := clip(v.Get("snippet").Text(), 1000)
		u = append(u, messageText{at, seq, snippet})
	}
	return f, u, nil
}
