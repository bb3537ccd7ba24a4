package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/remote"
)

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
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
	cmd := &cobra.Command{Use: "say ROOM TEXT… | say ROOM -", Short: "Send a message; - takes the text from standard input",
		Example: `  witan room say ROOM "Good morning"
  git log -1 | witan room say ROOM -`, Args: cobra.MinimumNArgs(2),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			text, err := c.text(args[1:])
			if err != nil {
				return err
			}
			in := remote.Intent{Type: room.Message}
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
			if in.Mentions, err = agentIDs("--mention", mentions); err != nil {
				return err
			}
			in.Payload = payload
			r, err := c.Write(ctx, p, in)
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
	cmd := &cobra.Command{Use: "send ROOM TYPE PAYLOAD.json | send ROOM TYPE -", Short: "Send an event of any type",
		Example: `  echo '{"event_id": "HASH", "reaction": "agree"}' | witan room send ROOM reaction.create -`, Args: cobra.ExactArgs(3),
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
			in := remote.Intent{Type: args[1], Payload: payload}
			if in.Mentions, err = agentIDs("--mention", mentions); err != nil {
				return err
			}
			r, err := c.Write(ctx, p, in)
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
			r, err := c.Write(ctx, p, remote.Intent{Type: typ, Payload: payload})
			if err != nil {
				return err
			}
			return c.wrote(r)
		})}
	cmd.Flags().StringVar(&why, "reason", "", "why, for the record")
	return cmd
}
