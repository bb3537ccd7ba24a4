package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
)

// Resource reads a room as it stands now.
func (c *Client) Resource(ctx context.Context, p Room) (*inspect.Resource, error) {
	v, _, err := c.Get(ctx, fetch.Request{URL: p.URL()})
	if err != nil {
		return nil, err
	}
	return inspect.ParseResource(v, p.ID)
}

// Intent is an event before it is signed.
type Intent struct {
	Type     string
	Payload  any
	Mentions []adp.AgentID
}

// nonce is greater than every one before it in this process, and than any that a clock like ours gave (Identity, Nonces).
func (c *Client) nonce() int64 {
	c.lastNonce = max(time.Now().UnixMilli(), c.lastNonce+1)
	return c.lastNonce
}

func (c *Client) sign(key ed25519.PrivateKey, in Intent, p Room, head room.Position) (*adp.Envelope, error) {
	return adp.Sign(key, adp.Draft{Protocol: adp.Protocol, Type: in.Type, CreatedAt: time.Now().UnixMilli(), Nonce: c.nonce(), Payload: in.Payload,
		RoomID: p.ID, BaseSeq: head.Seq, BaseHash: head.Hash, Mentions: in.Mentions})
}

// maxMoved is how often an event is signed again on a head that moved.
const maxMoved = 5

// Write signs an event on the room's head and sends it. When the head has moved meanwhile it signs a new event on the new
// head, at most maxMoved times, and says so; the envelope that was refused is never sent again (ADP §6.1).
func (c *Client) Write(ctx context.Context, p Room, in Intent) (*adp.Record, error) {
	key, err := c.Key()
	if err != nil {
		return nil, err
	}
	head, err := c.Resource(ctx, p)
	if err != nil {
		return nil, err
	}
	return c.writeOn(ctx, key, p, in, head)
}

func (c *Client) writeOn(ctx context.Context, key ed25519.PrivateKey, p Room, in Intent, base *inspect.Resource) (*adp.Record, error) {
	for moved := 0; ; {
		var answer adp.Value
		e, err := c.submit(ctx, p.URL(), func() (*adp.Envelope, error) { return c.sign(key, in, p, base.Head) }, &answer)
		switch {
		case err == nil:
			return ownRecord(answer, e, p.ID)
		case CodeOf(err) != adp.RoomHeadMismatch:
			return nil, err
		case moved == maxMoved:
			return nil, fmt.Errorf("the room is busy: its head moved %d times while this was being sent; try again (%w)", moved+1, err)
		}
		moved++
		old := base
		if base, err = c.Resource(ctx, p); err != nil {
			return nil, err
		}
		c.Notef("%s came in between (room head %d → %d); signing again on the new head", count(base.Last.Seq-old.Last.Seq, "record"), old.Head.Seq, base.Head.Seq)
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
func (c *Client) submit(ctx context.Context, url string, make func() (*adp.Envelope, error), answer *adp.Value) (*adp.Envelope, error) {
	e, err := make()
	if err != nil {
		return nil, err
	}
	for lost, used := false, false; ; {
		*answer, err = c.Post(ctx, url, e.JSON(), false)
		refused, isRefused := errors.AsType[*Error](err)
		switch {
		case err == nil:
			return e, nil
		case !isRefused && !lost && mayHaveArrived(err):
			lost = true
			c.Notef("%v; asking again whether it arrived", err)
		case isRefused && refused.Code == adp.NonceNotGreater && refused.Data.Get("record").Get("envelope").Get("hash").Is(e.Hash):
			*answer = refused.Data.Get("record")
			return e, nil
		case isRefused && refused.Code == adp.NonceNotGreater && !used && refused.MaxSeen >= e.Nonce:
			used = true
			c.lastNonce = max(c.lastNonce, refused.MaxSeen)
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

// Create sends room.create and answers with the host's answer and the room's ID and URL.
func (c *Client) Create(ctx context.Context, base string, payload any) (answer adp.Value, p Room, err error) {
	key, err := c.Key()
	if err != nil {
		return adp.Value{}, Room{}, err
	}
	e, err := c.submit(ctx, base+"/v1/rooms", func() (*adp.Envelope, error) {
		return adp.Sign(key, adp.Draft{Protocol: adp.Protocol, Type: room.Create, CreatedAt: time.Now().UnixMilli(), Nonce: c.nonce(), Payload: payload})
	}, &answer)
	if err != nil {
		return adp.Value{}, Room{}, err
	}
	id := answer.Get("id").Text()
	if answer.Get("envelope").Exists() { // the record, when the first answer was lost
		id = answer.Get("room_id").Text()
	}
	if !adp.IsRoomID(id) {
		return adp.Value{}, Room{}, fmt.Errorf("the host made the room, but names it %q, which is no room ID", id)
	}
	at, isInt := answer.Get("received_at").Int()
	if hash, said := answer.Get("hash").Str(); said && isInt && adp.NewRecord(e, id, 1, "", at).Hash != hash {
		return adp.Value{}, Room{}, fmt.Errorf("the host made room %s, but its first record is not our event", id)
	}
	return answer, Room{base, id}, nil
}

// JoinRequests is the URL of a room's join requests, or of one of them.
func (p Room) JoinRequests(id string) string {
	if id == "" {
		return p.URL() + "/join-requests"
	}
	return p.URL() + "/join-requests/" + id
}

// GetSigned reads what nobody may read without saying who asks.
func (c *Client) GetSigned(ctx context.Context, url string) (adp.Value, error) {
	auth, err := c.Token(url)
	if err != nil {
		return adp.Value{}, err
	}
	v, _, err := c.Request(ctx, fetch.Request{Method: http.MethodGet, URL: url, Header: auth})
	return v, err
}
