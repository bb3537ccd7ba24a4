package cli

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

func joinCommand(c *client) *cobra.Command {
	var role, perspective, why, request string
	cmd := &cobra.Command{Use: "join ROOM", Short: "Join a room, or ask to", Args: cobra.ExactArgs(1),
		Long: `Join a room. A public room takes you at once. A restricted or private room wants a join request first: the command makes it and tells
its ID; once it is approved, call the command again with --request ID.`,
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			if err := checkRole(role, true); err != nil {
				return err
			}
			if request != "" {
				if perspective != "" || why != "" {
					return usagef("--request takes the perspective and the reason of the request; leave --perspective and --reason out")
				}
				return c.joinApproved(ctx, p, request, role)
			}
			if role == "" {
				role = "speaker"
			}
			if _, err := c.signer(); err != nil { // a private room shows itself only to those who are known
				return err
			}
			r, err := c.resource(ctx, p)
			if err != nil && !missing(err) && codeOf(err) != adp.MembershipRequired && codeOf(err) != adp.PermissionDenied {
				return err
			}
			if err == nil && r.Visibility == room.Public {
				payload := map[string]any{"role": role}
				if perspective != "" {
					payload["perspective"] = perspective
				}
				return c.join(ctx, p, payload)
			}
			return c.askToJoin(ctx, p, role, perspective, why)
		})}
	cmd.Flags().StringVar(&role, "role", "", "moderator, speaker or observer (default speaker, or the role that was approved)")
	cmd.Flags().StringVar(&perspective, "perspective", "", "from which side you look at the topic")
	cmd.Flags().StringVar(&why, "reason", "", "why you want to join, for those who review the request")
	cmd.Flags().StringVar(&request, "request", "", "ID of your approved join request")
	return cmd
}

func checkRole(role string, optional bool) error {
	switch role {
	case "moderator", "speaker", "observer":
		return nil
	case "":
		if optional {
			return nil
		}
	}
	return usagef("--role: %q is not one of moderator, speaker, observer", role)
}

func (c *client) join(ctx context.Context, p place, payload map[string]any) error {
	rec, err := c.write(ctx, p, intent{typ: room.Join, payload: payload})
	if err != nil {
		return err
	}
	if c.json {
		return c.wrote(rec)
	}
	_, err = fmt.Fprintf(c.out, "joined as %s at seq %d\n", payload["role"], rec.Seq)
	return err
}

func (c *client) joinApproved(ctx context.Context, p place, id, role string) error {
	if role == "" {
		answer, err := c.joinRequest(ctx, p, id)
		if err != nil {
			return err
		}
		switch status := answer.Get("status").Text(); status {
		case "approved":
			role = answer.Get("approved_role").Text()
		case "pending":
			return fmt.Errorf("the request %s is not reviewed yet; the creator or a moderator approves it with: witan room approve %s %s", id, p.url(), id)
		default:
			return fmt.Errorf("the request %s is %s; make a new one with: witan room join %s", id, short(status, 40), p.url())
		}
		if err := checkRole(role, false); err != nil {
			return fmt.Errorf("the host says no role that was approved; name it with --role")
		}
	}
	return c.join(ctx, p, map[string]any{"role": role, "request_id": id})
}

// joinRequest reads one join request, with its state.
func (c *client) joinRequest(ctx context.Context, p place, id string) (adp.Value, error) {
	answer, err := c.getSigned(ctx, p.joinRequests(url.PathEscape(id)))
	if err == nil && !answer.Get("request").Get("id").Is(id) {
		err = fmt.Errorf("the host answered with another join request than %s", id)
	}
	return answer, err
}

func (c *client) askToJoin(ctx context.Context, p place, role, perspective, why string) error {
	body := map[string]any{"role": role}
	if perspective != "" {
		body["perspective"] = perspective
	}
	if why != "" {
		body["reason"] = why
	}
	answer, err := c.post(ctx, p.joinRequests(""), mustJSON(body), true)
	if err != nil {
		return err
	}
	id := answer.Get("request").Get("id").Text()
	switch {
	case id == "":
		return fmt.Errorf("the host took the join request, but does not tell its ID")
	case answer.Get("status").Is("approved"):
		return c.joinApproved(ctx, p, id, answer.Get("approved_role").Text())
	case c.json:
		return rawJSON(c.out, answer)
	}
	_, err = fmt.Fprintf(c.out, "request %s is %s\nOnce the creator or a moderator has approved it, join with:\n  witan room join %s --request %s\n",
		short(id, 80), short(answer.Get("status").Text(), 40), p.url(), short(id, 80))
	return err
}

func requestsCommand(c *client) *cobra.Command {
	return &cobra.Command{Use: "requests ROOM", Short: "List the join requests of a room that you manage", Args: cobra.ExactArgs(1),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			c.signIn = true
			list, err := c.list(ctx, p.joinRequests(""), 0)
			if err != nil {
				return err
			}
			if c.json {
				return arrayJSON(c.out, list)
			}
			rows := [][]string{{"REQUEST", "STATUS", "ROLE", "APPLICANT", "PERSPECTIVE", "REASON"}}
			for _, v := range list {
				q := v.Get("request")
				rows = append(rows, []string{short(q.Get("id").Text(), 80), short(v.Get("status").Text(), 20), short(q.Get("role").Text(), 20),
					plain(q.Get("applicant").Text()), short(q.Get("perspective").Text(), 40), short(q.Get("reason").Text(), 80)})
			}
			return table(c.out, rows)
		})}
}

// reviewCommand makes approve and reject: a signed room.join.review that carries the request as it stands (ADP §11).
func reviewCommand(c *client, decision, help string) *cobra.Command {
	var role, why string
	cmd := &cobra.Command{Use: decision + " ROOM REQUEST", Short: help, Args: cobra.ExactArgs(2),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			if err := checkRole(role, true); err != nil {
				return err
			}
			answer, err := c.joinRequest(ctx, p, args[1])
			if err != nil {
				return err
			}
			q := answer.Get("request")
			payload := map[string]any{"request": q, "decision": decision}
			if decision == "approve" {
				if payload["role"] = role; role == "" {
					payload["role"] = q.Get("role").Text()
				}
			}
			if why != "" {
				payload["reason"] = why
			}
			r, err := c.write(ctx, p, intent{typ: room.Review, payload: payload})
			if err != nil {
				return err
			}
			return c.wrote(r)
		})}
	if decision == "approve" {
		cmd.Flags().StringVar(&role, "role", "", "the role to approve (default the one that was asked for)")
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, for the record")
	return cmd
}
