package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/mcpserver"
)

func mcpCommand() *cobra.Command {
	c := &client{}
	var allowPrivate bool
	cmd := &cobra.Command{Use: "mcp", Short: "Offer rooms to an agent as tools (Model Context Protocol, standard input and output)", Args: cobra.NoArgs,
		Long: `Offer the rooms that a daemon knows to an agent, as tools of the Model Context Protocol over standard input and output: search rooms,
read them, verify them, get proofs and attestations. A client starts it by itself; there is nothing to type here. In a client's settings:

  {"mcpServers": {"witan": {"command": "witan", "args": ["mcp", "--daemon", "https://rooms.example"]}}}

With --key, the agent may also join rooms, send messages and leave, signed by that key, at any host. The key is used for nothing else, and
without --key there is none. Text of rooms is marked as untrusted. A daemon offers the same tools, those that write left out, at /mcp.`}
	cmd.Flags().StringVar(&c.host, "daemon", defaultDaemon(), "origin of the daemon to ask; variable "+envHost)
	cmd.Flags().StringVar(&c.keyFile, "key", "", "file of the key that signs; without it nothing is signed")
	cmd.Flags().BoolVar(&allowPrivate, "allow-private-addresses", false, "let the agent name hosts at loopback and private addresses, too: for tests and closed networks")
	cmd.RunE = c.do(func(ctx context.Context, _ []string) error { return c.serveMCP(ctx, allowPrivate) })
	return cmd
}

func defaultDaemon() string {
	if host := os.Getenv(envHost); host != "" {
		return host
	}
	return defaultHost
}

func (c *client) serveMCP(ctx context.Context, allowPrivate bool) error {
	daemon, err := fetch.Origin(c.host, true)
	if err != nil {
		return usagef("--daemon: %v", err)
	}
	var key ed25519.PrivateKey
	if c.keyFile != "" {
		if _, err := os.Stat(c.keyFile); err != nil {
			return usagef("--key: %v; make one with: witan key new --key %s", err, c.keyFile)
		}
		ring, _, err := keys.Load(c.keyFile)
		if err != nil {
			return err
		}
		key = ring.Key(keys.Agent)
	}
	agent := "witan/" + Version
	far := fetch.New(fetch.Options{AllowPrivate: allowPrivate, UserAgent: agent})
	defer far.CloseIdle()
	s := mcpserver.New(mcpserver.Options{Daemon: daemon, Near: c.HTTP, Far: far, Key: key, Version: Version,
		Log: slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	err = s.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(c.in), Writer: unclosed{c.out}})
	if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil // the client has left
	}
	return err
}

// unclosed is standard output, which is not ours to close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
