package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
)

// resource reads a room as it stands now.
func (c *client) resource(ctx context.Context, p place) (*inspect.Resource, error) {
	v, _, err := c.get(ctx, fetch.Request{URL: p.url()})
	if err != nil {
		return nil, err
	}
	return inspect.ParseResource(v, p.id)
}

// intent is an event before it is signed.
type intent struct {
	typ      string
	payload  any
	mentions []adp.AgentID
}

// nonce is greater than every one before it in this process, and than any that a clock like ours gave (Identity, Nonces).
func (c *client) nonce() int64 {
	c.lastUsed = max(time.Now().UnixMilli(), c.lastUsed+1)
	return c.lastUsed
}

func (c *client) sign(key ed25519.PrivateKey, in intent, p place, head room.Position) (*adp.Envelope, error) {
	return adp.Sign(key, adp.Draft{Protocol: adp.Protocol, Type: in.typ, CreatedAt: time.Now().UnixMilli(), Nonce: c.nonce(), Payload: in.payload,
		RoomID: p.id, BaseSeq: head.Seq, BaseHash: head.Hash, Mentions: in.mentions})
}

// maxMoved is how often an event is signed again on a head that moved.
const maxMoved = 5

// write signs an event on the room's head and sends it. When the head has moved meanwhile it signs a new event on the new
// head, at most maxMoved times, and says so; the envelope that was refused is never sent again (ADP §6.1).
func (c *client) write(ctx context.Context, p place, in intent) (*adp.Record, error) {
	key, err := c.signer()
	if err != nil {
		return nil, err
	}
	head, err := c.resource(ctx, p)
	if err != nil {
		return nil, err
	}
	return c.writeOn(ctx, key, p, in, head)
}

func (c *client) writeOn(ctx context.Context, key ed25519.PrivateKey, p place, in intent, base *inspect.Resource) (*adp.Record, error) {
	for moved := 0; ; {
		var answer adp.Value
		e, err := c.submit(ctx, p.url(), func() (*adp.Envelope, error) { return c.sign(key, in, p, base.Head) }, &answer)
		switch {
		case err == nil:
			return ownRecord(answer, e, p.id)
		case codeOf(err) != adp.RoomHeadMismatch:
			return nil, err
		case moved == maxMoved:
			return nil, fmt.Errorf("the room is busy: its head moved %d times while this was being sent; try again (%w)", moved+1, err)
		}
		moved++
		old := base
		if base, err = c.resource(ctx, p); err != nil {
			return nil, err
		}
		c.notef("%s came in between (room head %d → %d); signing again on the new head", count(base.Last.Seq-old.Last.Seq, "record"), old.Head.Seq, base.Head.Seq)
	}
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// submit sends the envelope that make signs. An answer that got lost is asked for again with the same envelope: a host that has
// it says so, with its record. A nonce that was used elsewhere is replaced once (Identity, Nonces).
func (c *client) submit(ctx context.Context, url string, make func() (*adp.Envelope, error), answer *adp.Value) (*adp.Envelope, error) {
	e, err := make()
	if err != nil {
		return nil, err
	}
	for lost, used := false, false; ; {
		*answer, err = c.post(ctx, url, e.JSON(), false)
		refused, isRefused := errors.AsType[*apiError](err)
		switch {
		case err == nil:
			return e, nil
		case !isRefused && !lost && mayHaveArrived(err):
			lost = true
			c.notef("%v; asking again whether it arrived", err)
		case isRefused && refused.Code == adp.NonceNotGreater && refused.Data.Get("record").Get("envelope").Get("hash").Is(e.Hash):
			*answer = refused.Data.Get("record")
			return e, nil
		case isRefused && refused.Code == adp.NonceNotGreater && !used && refused.MaxSeen >= e.Nonce:
			used = true
			c.lastUsed = max(c.lastUsed, refused.MaxSeen)
			if e, err = make(); err != nil {
				return nil, err
			}
		default:
			return e, err
		}
	}
}

// mayHaveArrived tells whether the host may have taken a request whose answer we did not get.
func mayHaveArrived(err error) bool {
	switch fetch.KindOf(err) {
	case fetch.Timeout, fetch.Broken, fetch.Slow:
		return true
	}
	return false
}

// ownRecord checks that the host's answer is an authentic record of the envelope that we sent.
func ownRecord(answer adp.Value, e *adp.Envelope, roomID string) (*adp.Record, error) {
	r, err := adp.ParseRecord(answer)
	if err != nil {
		return nil, fmt.Errorf("the host took the event, but its record does not verify: %w", err)
	}
	if r.Envelope.Hash != e.Hash || r.RoomID != roomID {
		return nil, fmt.Errorf("the host answered with the record of another event, or of another room")
	}
	return r, r.CheckSignature()
}

// wrote shows an accepted record.
func (c *client) wrote(r *adp.Record) error {
	if c.json {
		_, err := fmt.Fprintf(c.out, "%s\n", r.JSON())
		return err
	}
	_, err := fmt.Fprintf(c.out, "seq %d  %s\n", r.Seq, r.Envelope.Hash)
	return err
}

func sayCommand(c *client) *cobra.Command {
	var markdown bool
	var replies, mentions []string
	cmd := &cobra.Command{Use: "say ROOM TEXT… | say ROOM -", Short: "Send a message; - takes the text from standard input", Args: cobra.MinimumNArgs(2),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			text, err := c.text(args[1:])
			if err != nil {
				return err
			}
			in := intent{typ: room.Message}
			payload := map[string]any{"content_type": "text/plain", "content": text}
			if markdown {
				payload["content_type"] = "text/markdown"
			}
			for _, h := range replies {
				if !adp.IsHash(h) {
					return usagef("--reply: %q is not the hash of an event", h)
				}
			}
			if replies != nil {
				payload["references"] = replies
			}
			if in.mentions, err = agentIDs("--mention", mentions); err != nil {
				return err
			}
			in.payload = payload
			r, err := c.write(ctx, p, in)
			if err != nil {
				return err
			}
			return c.wrote(r)
		})}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "the text is Markdown")
	cmd.Flags().StringArrayVar(&replies, "reply", nil, "hash of an event of this room that the message refers to (repeatable)")
	cmd.Flags().StringArrayVar(&mentions, "mention", nil, "Agent ID to mention (repeatable)")
	return cmd
}

// text is the words of the command line, or standard input for "-" without the line end at its end.
func (c *client) text(words []string) (string, error) {
	if len(words) != 1 || words[0] != "-" {
		text := words[0]
		for _, w := range words[1:] {
			text += " " + w
		}
		return text, nil
	}
	b, err := c.read("-")
	if err != nil {
		return "", err
	}
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return string(b), nil
}

func agentIDs(flag string, texts []string) ([]adp.AgentID, error) {
	var ids []adp.AgentID
	for _, t := range texts {
		id, err := adp.ParseAgentID(t)
		if err != nil {
			return nil, usagef("%s: %v", flag, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func sendCommand(c *client) *cobra.Command {
	var mentions []string
	cmd := &cobra.Command{Use: "send ROOM TYPE PAYLOAD.json | send ROOM TYPE -", Short: "Send an event of any type", Args: cobra.ExactArgs(3),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			if args[1] == room.Create {
				return usagef("room.create makes a new room; use: witan room create")
			}
			payload, err := c.readJSON(args[2])
			if err != nil {
				return err
			}
			if payload.Kind() != adp.Object {
				return usagef("the payload must be a JSON object, not %s", payload.Kind())
			}
			in := intent{typ: args[1], payload: payload}
			if in.mentions, err = agentIDs("--mention", mentions); err != nil {
				return err
			}
			r, err := c.write(ctx, p, in)
			if err != nil {
				return err
			}
			return c.wrote(r)
		})}
	cmd.Flags().StringArrayVar(&mentions, "mention", nil, "Agent ID to mention (repeatable)")
	return cmd
}

// leavingCommand makes leave, close and cancel, whose payload is a reason at most.
func leavingCommand(c *client, use, typ, help string) *cobra.Command {
	var why string
	cmd := &cobra.Command{Use: use + " ROOM", Short: help, Args: cobra.ExactArgs(1),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			payload := map[string]any{}
			if why != "" {
				payload["reason"] = why
			}
			r, err := c.write(ctx, p, intent{typ: typ, payload: payload})
			if err != nil {
				return err
			}
			return c.wrote(r)
		})}
	cmd.Flags().StringVar(&why, "reason", "", "why, for the record")
	return cmd
}

// postCreate sends room.create and answers with the host's answer and the room's ID and URL.
func (c *client) postCreate(ctx context.Context, base string, payload any) (answer adp.Value, p place, err error) {
	key, err := c.signer()
	if err != nil {
		return adp.Value{}, place{}, err
	}
	e, err := c.submit(ctx, base+"/v1/rooms", func() (*adp.Envelope, error) {
		return adp.Sign(key, adp.Draft{Protocol: adp.Protocol, Type: room.Create, CreatedAt: time.Now().UnixMilli(), Nonce: c.nonce(), Payload: payload})
	}, &answer)
	if err != nil {
		return adp.Value{}, place{}, err
	}
	id := answer.Get("id").Text()
	if answer.Get("envelope").Exists() { // the record, when the first answer was lost
		id = answer.Get("room_id").Text()
	}
	if !adp.IsRoomID(id) {
		return adp.Value{}, place{}, fmt.Errorf("the host made the room, but names it %q, which is no room ID", id)
	}
	at, isInt := answer.Get("received_at").Int()
	if hash, said := answer.Get("hash").Str(); said && isInt && adp.NewRecord(e, id, 1, "", at).Hash != hash {
		return adp.Value{}, place{}, fmt.Errorf("the host made room %s, but its first record is not our event", id)
	}
	return answer, place{base, id}, nil
}

// joinRequests is the URL of a room's join requests, or of one of them.
func (p place) joinRequests(id string) string {
	if id == "" {
		return p.url() + "/join-requests"
	}
	return p.url() + "/join-requests/" + id
}

// getSigned reads what nobody may read without saying who asks.
func (c *client) getSigned(ctx context.Context, url string) (adp.Value, error) {
	auth, err := c.token(url)
	if err != nil {
		return adp.Value{}, err
	}
	v, _, err := c.request(ctx, fetch.Request{Method: http.MethodGet, URL: url, Header: auth})
	return v, err
}
