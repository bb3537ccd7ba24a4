package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/plaintext"
)

// Wish is how an agent would join a room.
type Wish struct {
	Role        string // "" = speaker, or the role that was approved
	Perspective string
	Reason      string // for those who review a join request
	Request     string // ID of an approved join request
}

// Joined is what came of a Wish: the record of a join, or a join request that waits for a review.
type Joined struct {
	Record  *adp.Record // nil while a request waits
	Role    string
	Request adp.Value // the join request with its state, when Record is nil
}

// Unapproved is a join request that does not let anybody in (yet).
type Unapproved struct {
	Request string
	Status  string // pending, rejected or expired
	Room    Room
}

// Error implements error.
func (e Unapproved) Error() string {
	if e.Status == "pending" {
		return fmt.Sprintf("the request %s is not reviewed yet; the creator or a moderator approves it with: witan room approve %s %[1]s", e.Request, e.Room.URL())
	}
	return fmt.Sprintf("the request %s is %s; make a new one with: witan room join %s", e.Request, e.Status, e.Room.URL())
}

// CheckRole refuses what is no role.
func CheckRole(role string, optional bool) error {
	switch types.Role(role) {
	case types.Moderator, types.Speaker, types.Observer:
		return nil
	case "":
		if optional {
			return nil
		}
	}
	return Argumentf("the role %q is not one of moderator, speaker, observer", role)
}

// Join joins a public room at once. A room that is not public wants a join request first, which is made when w names none
// (ADP §11).
func (c *Client) Join(ctx context.Context, p Room, w Wish) (*Joined, error) {
	if err := CheckRole(w.Role, true); err != nil {
		return nil, err
	}
	if w.Request != "" {
		if w.Perspective != "" || w.Reason != "" {
			return nil, Argumentf("an approved request has its own perspective and reason; leave both out when you name one")
		}
		return c.joinApproved(ctx, p, w.Request, w.Role)
	}
	if w.Role == "" {
		w.Role = string(types.Speaker)
	}
	if _, err := c.Key(); err != nil { // a private room shows itself only to those who are known
		return nil, err
	}
	r, err := c.Resource(ctx, p)
	if err != nil && !Missing(err) && CodeOf(err) != adp.MembershipRequired && CodeOf(err) != adp.PermissionDenied {
		return nil, err
	}
	if err == nil && r.Visibility == room.Public {
		payload := map[string]any{"role": w.Role}
		if w.Perspective != "" {
			payload["perspective"] = w.Perspective
		}
		return c.join(ctx, p, w.Role, payload)
	}
	return c.askToJoin(ctx, p, w)
}

func (c *Client) join(ctx context.Context, p Room, role string, payload map[string]any) (*Joined, error) {
	rec, err := c.Write(ctx, p, Intent{Type: room.Join, Payload: payload})
	if err != nil {
		return nil, err
	}
	return &Joined{Record: rec, Role: role}, nil
}

func (c *Client) joinApproved(ctx context.Context, p Room, id, role string) (*Joined, error) {
	if role == "" {
		answer, err := c.JoinRequest(ctx, p, id)
		if err != nil {
			return nil, err
		}
		switch status := answer.Get("status").Text(); status {
		case "approved":
			role = answer.Get("approved_role").Text()
		case "pending", "rejected", "expired":
			return nil, Unapproved{id, status, p}
		default:
			return nil, fmt.Errorf("the host calls the request %s %q, which is no state of one", id, plaintext.Short(status, 40))
		}
		if err := CheckRole(role, false); err != nil {
			return nil, fmt.Errorf("the host says no role that was approved; say which one you want")
		}
	}
	return c.join(ctx, p, role, map[string]any{"role": role, "request_id": id})
}

// JoinRequest reads one join request, with its state.
func (c *Client) JoinRequest(ctx context.Context, p Room, id string) (adp.Value, error) {
	answer, err := c.GetSigned(ctx, p.JoinRequests(url.PathEscape(id)))
	if err == nil && !answer.Get("request").Get("id").Is(id) {
		err = fmt.Errorf("the host answered with another join request than %s", id)
	}
	return answer, err
}

func (c *Client) askToJoin(ctx context.Context, p Room, w Wish) (*Joined, error) {
	body := map[string]string{"role": w.Role}
	if w.Perspective != "" {
		body["perspective"] = w.Perspective
	}
	if w.Reason != "" {
		body["reason"] = w.Reason
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	answer, err := c.Post(ctx, p.JoinRequests(""), text, true)
	if err != nil {
		return nil, err
	}
	switch id := answer.Get("request").Get("id").Text(); {
	case id == "":
		return nil, fmt.Errorf("the host took the join request, but does not tell its ID")
	case answer.Get("status").Is("approved"):
		return c.joinApproved(ctx, p, id, answer.Get("approved_role").Text())
	}
	return &Joined{Role: w.Role, Request: answer}, nil
}
