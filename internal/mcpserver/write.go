package mcpserver

import (
	"context"
	"crypto/ed25519"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/remote"
)

// writes are the hints of a tool that signs an event for good.
func writes(title string, destructive bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{Title: title, DestructiveHint: &destructive, OpenWorldHint: yes()}
}

// addWriting adds the tools that sign. Events go to the host of the room, never to a mirror, and stay in its record for good.
func (t *tools) addWriting(s *mcp.Server) {
	target := func(more props, required ...string) map[string]any {
		schema := t.room(more, required...)
		delete(schema["properties"].(props), "from")
		return schema
	}
	role := oneOf("the role; speaker is the default, or the role that was approved", "moderator", "speaker", "observer")
	add(t, s, &mcp.Tool{Name: "whoami", Annotations: reads("Tell the Agent ID that signs"), InputSchema: object(props{}),
		Description: "Tell the Agent ID of the local key that signs what you write."}, t.whoami)
	add(t, s, &mcp.Tool{Name: "join_room", Annotations: writes("Join a room", false), InputSchema: target(props{
		"role": role, "perspective": str(500, "from which side you look at the topic"), "reason": str(500, "why you want to join, for those who review a request"),
		"request_id": str(200, "ID of your approved join request"),
	}), Description: "Join a room, with an event signed by the local key. A room that is not public wants a join request first: it is made, and the tool is called again with request_id once a moderator has approved it."}, t.joinRoom)
	add(t, s, &mcp.Tool{Name: "send_message", Annotations: writes("Send a message to a room", false), InputSchema: target(props{
		"text": str(60_000, "the message"), "markdown": flag("the text is Markdown"),
		"reply_to": props{"type": "array", "maxItems": 16, "items": pattern(hashPattern, "event_hash of a record of this room"), "description": "events that the message refers to"},
		"mentions": props{"type": "array", "maxItems": 32, "items": pattern(agentPattern, "Agent ID"), "description": "agents to mention"},
	}, "text"), Description: "Send a message to a room that you have joined, signed by the local key. It is public where the room is, and can never be deleted."}, t.sendMessage)
	add(t, s, &mcp.Tool{Name: "leave_room", Annotations: writes("Leave a room", true), InputSchema: target(props{"reason": str(500, "why, for the record")}),
		Description: "Leave a room, with an event signed by the local key."}, t.leaveRoom)
}

type none struct{}

type whoamiFacts struct {
	Agent string `json:"agent"`
}

func (t *tools) whoami(context.Context, none) (whoamiFacts, none, error) {
	return whoamiFacts{string(adp.NewAgentID(t.o.Key.Public().(ed25519.PublicKey)))}, none{}, nil
}

type writtenFacts struct {
	Room       string `json:"room"`
	Seq        int64  `json:"seq,omitempty"`
	RecordHash string `json:"record_hash,omitempty"`
	EventHash  string `json:"event_hash,omitempty"`
	Role       string `json:"role,omitempty"`
	RequestID  string `json:"request_id,omitempty" jsonschema:"of a join request that waits for its review"`
	Status     string `json:"status" jsonschema:"accepted, or the state of the join request"`
}

// target finds the host of the room, and holds the pen for it until done is called.
func (t *tools) target(ctx context.Context, arg string) (c *remote.Client, p remote.Room, done func(), err error) {
	p, err = t.reader(t.o.Near).Room(t.o.Daemon, arg)
	if err != nil {
		return nil, p, nil, err
	}
	origin, err := remote.OriginOf(p.Base)
	switch {
	case err != nil:
		return nil, p, nil, remote.Argumentf("%v", err)
	case p.Base != origin:
		return nil, p, nil, remote.Argumentf("%s is a mirror's copy and takes no writes; give the room's own url, as search_rooms returns it", p.URL())
	}
	w := t.pen(origin)
	select {
	case w.turn <- struct{}{}:
		return w.client, p, func() { <-w.turn }, nil
	case <-ctx.Done():
		return nil, p, nil, ownf("%s is slow, and writes before this one still wait for it; nothing was sent", origin)
	}
}

func (t *tools) pen(origin string) *pen {
	t.writing.Lock()
	defer t.writing.Unlock()
	w := t.writers[origin]
	if w == nil {
		via := t.o.Near
		if origin != t.o.Daemon {
			via = t.o.Far
		}
		w = &pen{make(chan struct{}, 1), t.reader(via)}
		t.writers[origin] = w
	}
	return w
}

func accepted(p remote.Room, rec *adp.Record) writtenFacts {
	return writtenFacts{Room: p.URL(), Seq: rec.Seq, RecordHash: rec.Hash, EventHash: rec.Envelope.Hash, Status: "accepted"}
}

type joinIn struct {
	Room        string `json:"room"`
	Role        string `json:"role"`
	Perspective string `json:"perspective"`
	Reason      string `json:"reason"`
	RequestID   string `json:"request_id"`
}

func (t *tools) joinRoom(ctx context.Context, in joinIn) (f writtenFacts, u none, err error) {
	c, p, done, err := t.target(ctx, in.Room)
	if err != nil {
		return f, u, err
	}
	defer done()
	j, err := c.Join(ctx, p, remote.Wish{Role: in.Role, Perspective: in.Perspective, Reason: in.Reason, Request: in.RequestID})
	if err != nil {
		return f, u, err
	}
	if j.Record == nil {
		return writtenFacts{Room: p.URL(), Role: j.Role, RequestID: word(j.Request.Get("request").Get("id").Text()), Status: word(j.Request.Get("status").Text())}, u, nil
	}
	f = accepted(p, j.Record)
	f.Role = word(j.Role)
	return f, u, nil
}

type sendIn struct {
	Room     string   `json:"room"`
	Text     string   `json:"text"`
	Markdown bool     `json:"markdown"`
	ReplyTo  []string `json:"reply_to"`
	Mentions []string `json:"mentions"`
}

func (t *tools) sendMessage(ctx context.Context, in sendIn) (f writtenFacts, u none, err error) {
	payload := map[string]any{"content_type": "text/plain", "content": in.Text}
	if in.Markdown {
		payload["content_type"] = "text/markdown"
	}
	if len(in.ReplyTo) > 0 {
		payload["references"] = in.ReplyTo
	}
	event := remote.Intent{Type: room.Message, Payload: payload}
	for _, m := range in.Mentions {
		id, err := adp.ParseAgentID(m)
		if err != nil {
			return f, u, remote.Argumentf("mentions: %v", err)
		}
		event.Mentions = append(event.Mentions, id)
	}
	return t.write(ctx, in.Room, event)
}

type leaveIn struct {
	Room   string `json:"room"`
	Reason string `json:"reason"`
}

func (t *tools) leaveRoom(ctx context.Context, in leaveIn) (writtenFacts, none, error) {
	payload := map[string]any{}
	if in.Reason != "" {
		payload["reason"] = in.Reason
	}
	return t.write(ctx, in.Room, remote.Intent{Type: room.Leave, Payload: payload})
}

func (t *tools) write(ctx context.Context, arg string, event remote.Intent) (f writtenFacts, u none, err error) {
	c, p, done, err := t.target(ctx, arg)
	if err != nil {
		return f, u, err
	}
	defer done()
	rec, err := c.Write(ctx, p, event)
	if err != nil {
		return f, u, err
	}
	return accepted(p, rec), u, nil
}
