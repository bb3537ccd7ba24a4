package cli

import (
	"context"
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
	cmd.AddCommand(
		&cobra.Command{Use: "show", Short: "Print your Agent ID", Args: cobra.NoArgs, RunE: show},
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
