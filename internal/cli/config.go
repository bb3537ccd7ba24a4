package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/config"
)

// Variables of the client. They are no settings of the daemon.
const (
	envHost = "WITAN_HOST"
	envKey  = "WITAN_KEY"
)

// settingsEnv is the environment less what is no setting.
func settingsEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(clientEnv, name)
	})
}

func configCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "config", Short: "Settings of the daemon"})
	c.AddCommand(&cobra.Command{
		Use: "default", Short: "Print the default settings file, which explains every key", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(config.DefaultText())
			return err
		},
	}, &cobra.Command{
		Use: "check [FILE]", Short: "Check a settings file, and the WITAN_ variables of the environment over it", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, what := config.Default(), "the defaults"
			if len(args) == 1 {
				var err error
				if cfg, err = config.Load(args[0]); err != nil {
					return err
				}
				what = args[0]
			}
			err := config.ApplyEnv(&cfg, settingsEnv())
			if err == nil {
				err = cfg.Validate()
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), plain(what)+": good")
			return err
		},
	})
	return c
}
