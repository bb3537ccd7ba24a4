package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/remote"
)

func joinCommand(c *client) *cobra.Command {
	var role, perspective, why, request string
	cmd := &cobra.Command{Use: "join ROOM", Short: "Join a room, or ask to",
		Example: `  witan room join ROOM
  witan room join https://rooms.example/v1/rooms/ID --role observer
  witan room join ROOM --request jr_01K0`, Args: cobra.ExactArgs(1),
		Long: `Join a room. A public room takes you at once. A restricted or private room wants a join request first: the command makes it and tells
its ID; once it is approved, call the command again with --request ID.`,
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			if err := checkRole(role); err != nil {
				return err
			}
			j, err := c.Join(ctx, p, remote.Wish{Role: role, Perspective: perspective, Reason: why, Request: request})
			if err != nil {
				return err
			}
			return c.joined(p, j)
		})}
	cmd.Flags().StringVar(&role, "role", "", "moderator, speaker or observer (default speaker, or the role that was approved)")
	cmd.Flags().StringVar(&perspective, "perspective", "", "from which side you look at the topic")
	cmd.Flags().StringVar(&why, "reason", "", "why you want to join, for those who review the request")
	cmd.Flags().StringVar(&request, "request", "", "ID of your approved join request")
	return cmd
}

func checkRole(role string) error {
	if err := remote.CheckRole(role, true); err != nil {
		return usagef("--role: %v", err)
	}
	return nil
}

func (c *client) joined(p remote.Room, j *remote.Joined) error {
	switch {
	case j.Record != nil && c.json:
		return c.wrote(j.Record)
	case c.json:
		return rawJSON(c.out, j.Request)
	case j.Record != nil:
		_, err := fmt.Fprintf(c.out, "joined as %s at seq %d\n", plain(j.Role), j.Record.Seq)
		return err
	}
	id := short(j.Request.Get("request").Get("id").Text(), 80)
	_, err := fmt.Fprintf(c.out, "request %s is %s\nOnce the creator or a moderator has approved it, join with:\n  witan room join %s --request %s\n",
		id, short(j.Request.Get("status").Text(), 40), p.URL(), id)
	return err
}

func requestsCommand(c *client) *cobra.Command {
	return &cobra.Command{Use: "requests ROOM", Short: "List the join requests of a room that you manage", Args: cobra.ExactArgs(1),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			c.SignIn = true
			list, err := c.List(ctx, p.JoinRequests(""), 0)
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
			if err := checkRole(role); err != nil {
				return err
			}
			answer, err := c.JoinRequest(ctx, p, args[1])
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
			r, err := c.Write(ctx, p, remote.Intent{Type: room.Review, Payload: payload})
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
