package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/internal/keys"
)

func keyCommand() *cobra.Command {
	c := &client{}
	show := c.do(func(context.Context, []string) error {
		path, err := c.keyPath()
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return fmt.Errorf("there is no key at %s yet; make one with: witan key new", path)
		}
		return c.showKey(path)
	})
	cmd := &cobra.Command{Use: "key", Short: "The local key that signs what you write", Args: cobra.NoArgs, RunE: show,
		Long: `The local key that signs what you write: one seed file that only you may read. Whoever has the file is you; keep a copy of it.

Commands that sign make the key on first use, and say so.`}
	var data string
	showCmd := &cobra.Command{Use: "show", Short: "Print your Agent ID, or with --data the public keys of a running daemon", Args: cobra.NoArgs,
		Long: `Print your Agent ID.

With --data it prints the public keys of the daemon that runs with this data folder: its Agent ID, and as verifier keys (C2SP signed-note)
that of its log, which witnesses of the log are configured with, and that of its witness, which logs and policies are configured with.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if data == "" {
				return show(cmd, args)
			}
			return c.do(func(ctx context.Context, _ []string) error { return c.showDaemonKeys(ctx, data) })(cmd, args)
		}}
	showCmd.Flags().StringVar(&data, "data", "", "data folder of a running daemon")
	cmd.AddCommand(showCmd,
		&cobra.Command{Use: "new", Short: "Make a new key, where there is none yet", Args: cobra.NoArgs,
			RunE: c.do(func(context.Context, []string) error {
				path, err := c.keyPath()
				if err != nil {
					return err
				}
				if _, err := os.Lstat(path); err == nil {
					return fmt.Errorf("there is a key at %s already; move it away first, or name another file with --key", path)
				}
				if _, err := c.signer(); err != nil {
					return err
				}
				return c.showKey(path)
			})})
	c.output(cmd)
	return c.key(cmd)
}

func (c *client) showKey(path string) error {
	ring, _, err := keys.Load(path)
	if err != nil {
		return err
	}
	if c.json {
		return asJSON(c.out, map[string]string{"agent_id": ring.AgentID(), "file": path})
	}
	_, err = fmt.Fprintln(c.out, ring.AgentID())
	return err
}

// showDaemonKeys prints what the daemon of a data folder says of its keys.
func (c *client) showDaemonKeys(ctx context.Context, data string) error {
	raw, err := operator(ctx, data, "GET", "/keys", nil)
	if err != nil {
		return err
	}
	var k struct {
		AgentID  string `json:"agent_id"`
		Log      string `json:"log"`
		Cosigner string `json:"cosigner"`
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		return fmt.Errorf("the daemon answers %.100q: %w", raw, err)
	}
	if c.json {
		return asJSON(c.out, k)
	}
	_, err = fmt.Fprintf(c.out, "agent     %s\nlog       %s\ncosigner  %s\n", k.AgentID, k.Log, k.Cosigner)
	return err
}
