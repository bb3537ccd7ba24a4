package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/remote"
)

func (t *tools) addHistory(s *mcp.Server) {
	add(t, s, &mcp.Tool{Name: "read_history", Annotations: reads("Read what was said in a room"),
		InputSchema: t.room(props{
			"after_seq": props{"type": "integer", "minimum": 0, "maximum": adp.MaxInt, "description": "begin behind this seq: 0 for the start, then next_after_seq of the page before"},
			"last":      props{"type": "integer", "minimum": 1, "maximum": 100, "description": "in place of after_seq: the newest records, so many"},
			"limit":     integer(1, 100, 30, "how many records at most; an answer that grows too large ends earlier"),
		}),
		Description: "Read the records of a room in order, each checked (hash, signature, link to the one before). Whether each was allowed by the rules is for verify_room. Go on with next_after_seq until more is false."}, t.readHistory)
}

type historyIn struct {
	Room     string `json:"room"`
	From     string `json:"from"`
	AfterSeq *int64 `json:"after_seq"`
	Last     int64  `json:"last"`
	Limit    int    `json:"limit"`
}

type historyFacts struct {
	ReadFrom     string        `json:"read_from"`
	Checked      string        `json:"checked"`
	Records      []recordFacts `json:"records"`
	NextAfterSeq int64         `json:"next_after_seq" jsonschema:"give it as after_seq to go on"`
	More         bool          `json:"more" jsonschema:"there are more records behind these now"`
}

type recordFacts struct {
	Seq        int64    `json:"seq"`
	RecordHash string   `json:"record_hash"`
	EventHash  string   `json:"event_hash" jsonschema:"give it in reply_to to answer this event"`
	Type       string   `json:"type"`
	Author     string   `json:"author,omitempty"`
	Received   string   `json:"received"`
	References []string `json:"references,omitempty" jsonschema:"event hashes that it refers to"`
	Mentions   []string `json:"mentions,omitempty"`
	Withheld   bool     `json:"withheld,omitempty" jsonschema:"an operator keeps back what it says"`
}

type recordText struct {
	Seq         int64  `json:"seq"`
	ContentType string `json:"content_type,omitempty"`
	Content     string `json:"content,omitempty" jsonschema:"the text of a message"`
	Payload     any    `json:"payload,omitempty" jsonschema:"of any other event"`
	Cut         bool   `json:"cut,omitempty" jsonschema:"it is longer, and was cut here; witan room history and GET …/events have all of it"`
}

func (t *tools) readHistory(ctx context.Context, in historyIn) (f historyFacts, u []recordText, err error) {
	if in.AfterSeq != nil && in.Last > 0 {
		return f, nil, remote.Argumentf("give after_seq or last, not both")
	}
	c, p, err := t.place(in.Room, in.From == fromHost)
	if err != nil {
		return f, nil, err
	}
	r, err := c.Resource(ctx, p)
	if err != nil {
		return f, nil, err
	}
	at, limit := remote.Link{RoomID: p.ID}, in.Limit
	if in.AfterSeq != nil {
		at.Seq = *in.AfterSeq
	}
	if in.Last > 0 {
		at.Seq, limit = max(0, r.Last.Seq-in.Last), int(in.Last)
	}
	list, err := c.Events(ctx, p, at.Seq, limit, 0)
	if err != nil {
		return f, nil, err
	}
	f = historyFacts{ReadFrom: p.URL(), Checked: "hashes, signatures and links of the records below", Records: []recordFacts{}}
	u = []recordText{}
	bytes := 0
	for _, v := range list {
		seen := at
		rec, err := at.Take(v)
		if err != nil {
			return f, nil, fmt.Errorf("%w; nothing of this page is shown", err)
		}
		facts, said := told(rec)
		if bytes += size(facts) + size(said); bytes > historyBytes && len(u) > 0 {
			at = seen
			break
		}
		f.Records, u = append(f.Records, facts), append(u, said)
	}
	f.NextAfterSeq, f.More = at.Seq, at.Seq < r.Last.Seq
	return f, u, nil
}

// told takes a record apart.
func told(rec *adp.Record) (recordFacts, recordText) {
	e := rec.Envelope
	f := recordFacts{Seq: rec.Seq, RecordHash: rec.Hash, EventHash: e.Hash, Type: word(e.Type), Received: clock(rec.ReceivedAt), Withheld: rec.Redacted}
	u := recordText{Seq: rec.Seq}
	if rec.Redacted {
		return f, u
	}
	f.Author = string(e.Actor)
	for m := range e.Mentions.Elements() {
		if u.Cut = len(f.Mentions) == mostRefs; u.Cut {
			break
		}
		f.Mentions = append(f.Mentions, agent(m.Text()))
	}
	for ref := range e.Payload.Get("references").Elements() {
		if len(f.References) == mostRefs {
			u.Cut = true
			break
		}
		if h := hash(ref.Text()); h != "" {
			f.References = append(f.References, h)
		}
	}
	if content, isText := e.Payload.Get("content").Str(); isText && e.Type == room.Message {
		u.ContentType = line(e.Payload.Get("content_type").Text(), 100)
		u.add(clip(content, recordBytes))
		return f, u
	}
	if e.Payload.Len() == 0 {
		return f, u
	}
	said, cut := shownUpTo(e.Payload, recordBytes)
	if text, isText := said.(string); isText {
		u.add(text, cut)
	} else {
		u.Payload = said
	}
	return f, u
}

func (u *recordText) add(content string, cut bool) { u.Content, u.Cut = content, u.Cut || cut }
