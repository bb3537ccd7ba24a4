package cli

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/remote"
)

const defaultHost = "http://127.0.0.1:8080"

// maxAnswer bounds what a person hands in, in bytes.
const maxAnswer = 16 << 20

// client is what the commands share: where to ask, who signs, how to show.
type client struct {
	remote.Client
	host    string
	keyFile string
	json    bool

	in       io.Reader
	out, err io.Writer
}

// flags adds the flags of the client to a command and its children, and returns what they will set.
func (c *client) flags(cmd *cobra.Command) *cobra.Command {
	host := os.Getenv(envHost)
	if host == "" {
		host = defaultHost
	}
	cmd.PersistentFlags().StringVar(&c.host, "host", host, "the ADP host, or the address of a mirrored one; variable "+envHost)
	c.output(cmd)
	return c.key(cmd)
}

func (c *client) key(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentFlags().StringVar(&c.keyFile, "key", "", "file of the local key; variable "+envKey+" (default $XDG_CONFIG_HOME/witan/key)")
	return cmd
}

func (c *client) output(cmd *cobra.Command) {
	cmd.PersistentFlags().BoolVar(&c.json, "json", false, "write JSON for scripts")
}

// start binds the client to the streams of the command that runs. Every address is one that a person typed, so that private
// ones pass.
func (c *client) start(cmd *cobra.Command) {
	c.in, c.out, c.err = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	c.Client = remote.Client{HTTP: fetch.New(fetch.Options{AllowPrivate: true, UserAgent: "witan/" + Version}), Key: c.signer, HasKey: c.hasKey,
		NoKey: "there is no local key to say who you are, make one with: witan key new", Notef: c.notef}
}

// do is the RunE of a command of the client.
func (c *client) do(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.start(cmd)
		defer c.HTTP.CloseIdle()
		return f(cmd.Context(), args)
	}
}

func (c *client) notef(format string, args ...any) {
	fmt.Fprintln(c.err, "witan: "+plain(fmt.Sprintf(format, args...)))
}

// keyPath is where the local key is.
func (c *client) keyPath() (string, error) {
	if c.keyFile != "" {
		return c.keyFile, nil
	}
	if p := os.Getenv(envKey); p != "" {
		return p, nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification wants a relative one ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("there is no home folder for the key (%v); name its file with --key", err)
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "witan", "key"), nil
}

// signer loads the local key, and makes it on first use.
func (c *client) signer() (ed25519.PrivateKey, error) {
	path, err := c.keyPath()
	if err != nil {
		return nil, err
	}
	ring, created, err := keys.Load(path)
	if err != nil {
		return nil, err
	}
	if created {
		c.notef("made a new key at %s: you are %s", path, ring.AgentID())
	}
	return ring.Key(keys.Agent), nil
}

// hasKey tells whether there is a local key: reading never makes one.
func (c *client) hasKey() bool {
	path, err := c.keyPath()
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

// apiBase reads --host: an origin, perhaps with the path of a mirror.
func (c *client) apiBase() (string, error) {
	u, err := c.HTTP.CheckURL(c.host)
	if err != nil {
		return "", usagef("--host: %v", err)
	}
	if u.RawQuery != "" {
		return "", usagef("--host: %q has a query; name the host alone", c.host)
	}
	path := strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/v1")
	return u.Scheme + "://" + u.Host + path, nil
}

// place reads a room argument: a room ID at --host, or the URL of a room.
func (c *client) place(arg string) (remote.Room, error) {
	base := ""
	if !strings.Contains(arg, "://") {
		var err error
		if base, err = c.apiBase(); err != nil {
			return remote.Room{}, err
		}
	}
	return c.Room(base, arg)
}

// read takes a whole input that a person gave: a file, or standard input for "-".
func (c *client) read(name string) ([]byte, error) {
	in := c.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxAnswer)
	}
	return b, err
}

// readJSON takes strict JSON that a person gave.
func (c *client) readJSON(name string) (adp.Value, error) {
	b, err := c.read(name)
	if err != nil {
		return adp.Value{}, err
	}
	v, err := adp.Scan(b)
	if err != nil {
		return adp.Value{}, fmt.Errorf("%s is %w", name, err)
	}
	return v, nil
}
