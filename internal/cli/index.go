package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/daemon"
)

// indexMessagesCommand searches what was said.
func indexMessagesCommand(c *client) *cobra.Command {
	var limit int
	var hostFilter string
	cmd := &cobra.Command{Use: "messages WORD…", Short: "Search messages of public rooms; all words must occur",
		Example: `  witan index messages modbus retry --limit 5`, Args: cobra.MinimumNArgs(1)}
	set := queryFlags(cmd, "room", "only in this room: its URL", "author", "only by this agent: its Agent ID", "since", "only received later: Unix ms", "until", "only received earlier: Unix ms")
	cmd.Flags().StringVar(&hostFilter, "host-filter", "", "only in rooms of this host: its origin or authority")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many messages at most; 0 for all")
	cmd.RunE = c.do(func(ctx context.Context, words []string) error {
		base, err := c.apiBase()
		if err != nil {
			return err
		}
		q := url.Values{"q": {strings.Join(words, " ")}}
		set(q)
		if hostFilter != "" {
			q.Set("host", hostFilter)
		}
		return c.showList(ctx, base+"/v1/index/events", q, limit, 100, []string{"RECEIVED", "AUTHOR", "SEQ", "ROOM", "TEXT"}, func(v adp.Value) []string {
			at, _ := v.Get("received_at").Int()
			seq, _ := v.Get("seq").Int()
			return []string{utc(at), short(v.Get("author").Text(), 24), number(seq), plain(v.Get("room").Text()), short(v.Get("snippet").Text(), 100)}
		})
	})
	return cmd
}

// indexRebuildCommand is for the operator of a daemon.
func indexRebuildCommand() *cobra.Command {
	var inJSON bool
	cmd := &cobra.Command{Use: "rebuild", Short: "Drop the index and build it again from the records, while the daemon runs (for its operator)", Args: cobra.NoArgs,
		Long: `Drop all that the running daemon derived for searching, and derive it again from its records. Lists and filters go on
meanwhile; searches for words look at rooms one after the other, and messages are found as they are read again.`}
	data := dataFlag(cmd)
	cmd.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		raw, err := operatorWithin(cmd.Context(), longTime, *data, "POST", "/index/rebuild", nil)
		if err != nil {
			return err
		}
		if inJSON {
			return indented(cmd.OutOrStdout(), raw)
		}
		var did daemon.Rebuilt
		if err := json.Unmarshal(raw, &did); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s listed, %d that are not held any more removed; the words of %s and of %s written again in %s\n",
			count(int64(did.Rooms), "room"), did.Removed, count(int64(did.Texts), "room"), count(did.Messages, "message"), (time.Duration(did.TookMS) * time.Millisecond).String())
		return err
	}
	return cmd
}
