// Package cli is the command line of witan: a client for people and scripts that signs with a local key, the verifier of
// archives and rooms, and, in serve.go, the daemon.
//
// A command writes its result to standard output, as aligned text or with --json as JSON, and all else to standard error. What
// others wrote is shown with its control characters escaped. The exit status is 0 when the command did all that was asked
// and all that it read is verified, 2 when it was called wrongly, else 1.
//
// The client trusts no host: records are checked as they are read. Only serve.go may import the daemon.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/remote"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a call that cannot be meant.
type usageError = remote.ArgumentError

func usagef(format string, args ...any) error { return remote.Argumentf(format, args...) }

// errReported ends a command with exitFailed when its output has said why.
var errReported = errors.New("see above")

// Main runs the command line of the process and returns its exit status. Interrupt and termination end the context of
// the command.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

func run(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	root := rootCommand()
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case !started || errors.As(err, &usage):
		fmt.Fprintf(errw, "witan: %s\nRun '%s --help' for how to call it.\n", plain(err.Error()), cmd.CommandPath())
		return exitUsage
	case errors.Is(err, errReported):
	case errors.Is(err, context.Canceled) && ctx.Err() != nil, fetch.KindOf(err) == fetch.Canceled && ctx.Err() != nil:
		fmt.Fprintln(errw, "witan: interrupted")
	default:
		complain(errw, err)
	}
	return exitFailed
}

// rootCommand makes the command line, with all commands.
func rootCommand() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "witan",
		Short: "Federation relay, mirror and archive witness for rooms of the Agent Discourse Protocol",
		Long: `witan hosts rooms of the Agent Discourse Protocol, mirrors and verifies the public rooms of other hosts, and attests their archives.

Exit status: 0 when all was done and all that was read is verified, 1 when not, 2 when the command was called wrongly.`,
		SilenceUsage: true, SilenceErrors: true,
	})
	root.AddCommand(serveCommand(), group(hostCommand()), group(logCommand()), group(p2pCommand()), keyCommand(), roomCommand(), verifyCommand(), exportCommand(), proofCommand(), indexCommand(), mirrorCommand(), attestationsCommand(), group(witnessCommand()), mcpCommand(), webhookCommand(),
		configCommand(), versionCommand())
	return root
}

// complain writes an error, each line of one that joins several behind the name of the program.
func complain(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(w, "witan: "+plain(line))
	}
}

// group makes a command that only holds others: called by itself it shows its help, and a name that it does not hold is an
// error, which cobra leaves unsaid below the root.
func group(c *cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// release is set by the linker for releases.
var release string

// Version is the version of this build: of the release, else of the module or of the commit that it was built from.
var Version = buildVersion()

func buildVersion() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version of this build", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "witan", Version)
			return err
		}}
}
