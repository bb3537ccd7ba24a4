package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/daemon"
)

// operatorTime bounds most commands, longTime those that go through the whole store, of any size that one disk holds.
const (
	operatorTime = 30 * time.Second
	longTime     = 12 * time.Hour
)

// operator sends one command to the admin socket of a running daemon.
func operator(ctx context.Context, data, method, path string, body any) ([]byte, error) {
	return operatorWithin(ctx, operatorTime, data, method, path, body)
}

// operatorWithin is operator for what may take longer.
func operatorWithin(ctx context.Context, timeout time.Duration, data, method, path string, body any) ([]byte, error) {
	silent := func(err error) error {
		return fmt.Errorf("no daemon answers for the data folder %s (%w); start it with: witan serve --data %[1]s", data, err)
	}
	socket, err := daemon.AdminSocket(data)
	if err != nil {
		return nil, silent(err)
	}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	defer client.CloseIdleConnections()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://daemon"+path, content)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return nil, fmt.Errorf("the daemon took longer than %s; what it was asked to do may still go on: see its log", timeout)
	}
	if err != nil {
		return nil, silent(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		var refused struct {
			Error struct{ Code, Message string } `json:"error"`
		}
		if json.Unmarshal(answer, &refused) == nil && refused.Error.Message != "" {
			return nil, fmt.Errorf("%s: %s", refused.Error.Code, refused.Error.Message)
		}
		return nil, fmt.Errorf("the daemon answered %d", resp.StatusCode)
	}
	return answer, nil
}

// dataFlag adds --data, which finds the daemon.
func dataFlag(c *cobra.Command) *string {
	def := os.Getenv("WITAN_DATA")
	if def == "" {
		def = config.Default().Data
	}
	return c.PersistentFlags().String("data", def, "data folder of the daemon")
}

func indented(out io.Writer, raw []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(out)
	return err
}

// hostCommand is for the operator of a host.
func hostCommand() *cobra.Command {
	c := &cobra.Command{Use: "host", Short: "Say who may use this host, and what of it is shown (for its operator, while it runs)"}
	data := dataFlag(c)
	c.AddCommand(&cobra.Command{
		Use: "access", Short: "Show who may use the host", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := operator(cmd.Context(), *data, "GET", "/host/access", nil)
			if err != nil {
				return err
			}
			return indented(cmd.OutOrStdout(), raw)
		},
	})
	change := func(use, short string, args cobra.PositionalArgs, body func(args []string) map[string]any) {
		c.AddCommand(&cobra.Command{
			Use: use, Short: short, Args: args,
			RunE: func(cmd *cobra.Command, args []string) error {
				raw, err := operator(cmd.Context(), *data, "POST", "/host/access", body(args))
				if err != nil {
					return err
				}
				return indented(cmd.OutOrStdout(), raw)
			},
		})
	}
	list := func(name string) func([]string) map[string]any {
		return func(args []string) map[string]any { return map[string]any{name: args} }
	}
	change("creation open|allow_list|closed", "Say who may create rooms", cobra.ExactArgs(1),
		func(args []string) map[string]any { return map[string]any{"room_creation": args[0]} })
	change("allow AGENT…", "Allow agents to create rooms", cobra.MinimumNArgs(1), list("allow"))
	change("disallow AGENT…", "Take agents off the list of allowed creators", cobra.MinimumNArgs(1), list("disallow"))
	change("ban AGENT…", "Refuse every write of these agents", cobra.MinimumNArgs(1), list("ban"))
	change("unban AGENT…", "Lift a ban", cobra.MinimumNArgs(1), list("unban"))
	limits := map[string]*int64{}
	set := &cobra.Command{
		Use: "limit", Short: "Set limits on rooms and bytes (0 = none)",
		Example: `  witan host limit --rooms-per-creator 10 --bytes-total 50000000000`, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body := map[string]any{}
			for name, v := range limits {
				if cmd.Flags().Changed(name) {
					body[underscored(name)] = *v
				}
			}
			if len(body) == 0 {
				return fmt.Errorf("say which limit to set, for example --rooms-per-creator 10; see witan host limit --help")
			}
			raw, err := operator(cmd.Context(), *data, "POST", "/host/access", body)
			if err != nil {
				return err
			}
			return indented(cmd.OutOrStdout(), raw)
		},
	}
	for _, name := range []string{"rooms-per-creator", "rooms-total", "bytes-per-room", "bytes-per-creator", "bytes-total"} {
		limits[name] = set.Flags().Int64(name, 0, "see host."+underscored(name)+" in witan config default")
	}
	c.AddCommand(set)
	withholdCommands(c, data, "host", "ROOM")
	hostRelease(c, data)
	return c
}

func underscored(name string) string {
	return string(bytes.ReplaceAll([]byte(name), []byte("-"), []byte("_")))
}
