package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/daemon"
)

// clientEnv are variables of the client commands and of --config, which are no
// settings of the daemon.
var clientEnv = []string{"WITAN_CONFIG", "WITAN_KEY", "WITAN_HOST"}

// serveFlags are the settings that a command line can give.
type serveFlags struct {
	config, data, listen, origin string
	tlsCert, tlsKey, logLevel    string
	mirrors, peers, p2pListen    []string
	allowPrivate                 bool
	check                        bool
}

func serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon: host, mirror, index and witness",
		Example: `  witan serve
  witan serve --origin https://rooms.example --data /var/lib/witan
  witan serve --origin https://mirror.example --mirror https://rooms.example`,
		Long: `Run the daemon. It needs no configuration: it makes its key and its data
folder, listens on 127.0.0.1:8080, and prints what to try next.

Settings come from the defaults, then the file of --config, then the
environment (WITAN_…), then these flags. "witan config default" prints a file
that explains every one of them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load(cmd, os.Environ())
			if err != nil {
				return err
			}
			if f.check {
				fmt.Fprintln(cmd.OutOrStdout(), "the configuration is good")
				return nil
			}
			return serve(cmd.Context(), cfg, f.mirrors, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration file (TOML; also WITAN_CONFIG)")
	fl.StringVar(&f.data, "data", "", "data folder (default ./witan-data)")
	fl.StringVar(&f.listen, "listen", "", "address to listen on (default 127.0.0.1:8080)")
	fl.StringVar(&f.origin, "origin", "", "scheme://host[:port] under which others reach this daemon; fixed at the first start")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "certificate file, to serve https")
	fl.StringVar(&f.tlsKey, "tls-key", "", "key file of the certificate")
	fl.StringArrayVar(&f.mirrors, "mirror", nil, "origin of a host to mirror (repeatable)")
	fl.StringArrayVar(&f.peers, "peer", nil, "multiaddr with /p2p/… of a peer to keep connected (repeatable)")
	fl.StringArrayVar(&f.p2pListen, "p2p-listen", nil, "multiaddr to listen on for peers (repeatable)")
	fl.BoolVar(&f.allowPrivate, "allow-private-addresses", false, "contact loopback and private addresses too, and sign for such an origin: for tests and closed networks")
	fl.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error")
	fl.BoolVar(&f.check, "check", false, "check the configuration and exit")
	return c
}

// load puts the settings together.
func (f *serveFlags) load(cmd *cobra.Command, environ []string) (config.Config, error) {
	cfg := config.Default()
	file := f.config
	if file == "" {
		file = os.Getenv("WITAN_CONFIG")
	}
	if file != "" {
		var err error
		if cfg, err = config.Load(file); err != nil {
			return cfg, err
		}
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(clientEnv, name)
	})
	if err := config.ApplyEnv(&cfg, environ); err != nil {
		return cfg, err
	}
	given := cmd.Flags().Changed
	for name, set := range map[string]func(){
		"data":                    func() { cfg.Data = f.data },
		"listen":                  func() { cfg.Listen = f.listen },
		"origin":                  func() { cfg.Origin = f.origin },
		"tls-cert":                func() { cfg.TLSCert = f.tlsCert },
		"tls-key":                 func() { cfg.TLSKey = f.tlsKey },
		"log-level":               func() { cfg.LogLevel = f.logLevel },
		"p2p-listen":              func() { cfg.P2P.Listen = f.p2pListen },
		"peer":                    func() { cfg.P2P.Peers = append(cfg.P2P.Peers, f.peers...) },
		"allow-private-addresses": func() { cfg.AllowPrivateAddresses = f.allowPrivate },
		"mirror": func() {
			for _, url := range f.mirrors {
				cfg.Mirror.Hosts = append(cfg.Mirror.Hosts, config.MirrorHost{URL: url})
			}
		},
	} {
		if given(name) {
			set()
		}
	}
	return cfg, cfg.Validate()
}

func serve(ctx context.Context, cfg config.Config, mirrors []string, out, errOut io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return fmt.Errorf("log_level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(errOut, options)
	if cfg.LogFormat == "json" {
		handler = slog.NewJSONHandler(errOut, options)
	}
	err := daemon.Run(ctx, cfg, daemon.Edges{Version: Version, Log: slog.New(handler), FlagMirrors: mirrors, Ready: func(i daemon.Info) { banner(out, i) }})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// banner says what is running and what to try next.
func banner(out io.Writer, i daemon.Info) {
	data := i.Data
	if abs, err := filepath.Abs(data); err == nil {
		data = abs
	}
	made := ""
	if i.NewKey {
		made = "  (new; its key file is readable by you alone)"
	}
	peer := "none (p2p is off)"
	if len(i.Peers) > 0 {
		peer = i.Peers[0]
	}
	fmt.Fprintf(out, `witan %s is running

  address  %s
  agent    %s
  peer     %s
  data     %s%s
`, Version, i.Origin, i.AgentID, peer, data, made)
	if !i.Signs {
		fmt.Fprint(out, `
  This origin is a private address: rooms work, but no archive statement is
  signed for it. On a loopback network, --allow-private-addresses changes that.
`)
	}
	host := ""
	if i.Origin != defaultHost {
		host = " --host " + i.Origin
	}
	me := "witan"
	if strings.ContainsRune(os.Args[0], filepath.Separator) { // not found by PATH
		me = os.Args[0]
	}
	fmt.Fprintf(out, `
Try next, in another terminal:
  %[1]s room create%[2]s --topic "Hello, agents"
  %[1]s room list%[2]s
  %[1]s index search%[2]s hello
Stop with Ctrl-C.
`, me, host)
}
