package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/remote"
)

func historyCommand(c *client) *cobra.Command {
	var after, limit int64
	cmd := &cobra.Command{Use: "history ROOM", Short: "Show the records of a room, each checked", Args: cobra.ExactArgs(1),
		Long: `Show the records of a room, oldest first. Each is checked: hashes, signature, and its link to the one before, from the first record or from the one behind --after.
Whether each event was allowed in the room is for: witan verify.`,
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			if after < 0 || limit < 0 {
				return usagef("--after and --limit are numbers of records, not negative")
			}
			l := remote.Link{RoomID: p.ID, Seq: after}
			left := limit
			if limit == 0 {
				left = adp.MaxInt
			}
			_, err = c.Page(ctx, p, &l, left, c.showOne)
			return err
		})}
	cmd.Flags().Int64Var(&after, "after", 0, "begin behind this seq")
	cmd.Flags().Int64Var(&limit, "limit", 0, "how many records at most; 0 for all")
	return cmd
}

func (c *client) showOne(r *adp.Record) error {
	if c.json {
		_, err := fmt.Fprintf(c.out, "%s\n", r.JSON())
		return err
	}
	return showRecord(c.out, r)
}
