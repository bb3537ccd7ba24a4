package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/daemon"
)

// p2pCommand is for the peers of a running daemon.
func p2pCommand() *cobra.Command {
	c := &cobra.Command{Use: "p2p", Short: "The peers of this daemon, and who may be one (for its operator, while it runs)",
		Long: `The peers of this daemon, and who may be one. A peer is named by its ID, which stands behind /p2p/ in its addresses.

Nobody is dialled but the configured peers (p2p.peers, --peer) and those of the allow list whose addresses are known from earlier.
Who is on the block list is neither dialled nor let in. When the allow list is not empty, nobody is let in but who stands there
and the configured peers. What is changed here holds over restarts.`}
	data := dataFlag(c)
	inJSON := c.PersistentFlags().Bool("json", false, "write JSON")
	do := func(use, short, list string, remove bool) *cobra.Command {
		args, method, path := cobra.ExactArgs(1), "POST", "/p2p/"+list
		if list == "" {
			args, method, path = cobra.NoArgs, "GET", "/p2p/peers"
		}
		return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			var body any
			if len(args) > 0 {
				body = map[string]any{"peer": args[0], "remove": remove}
			}
			raw, err := operator(cmd.Context(), *data, method, path, body)
			if err != nil {
				return err
			}
			if *inJSON {
				return indented(cmd.OutOrStdout(), raw)
			}
			return showPeers(cmd.OutOrStdout(), raw)
		}}
	}
	c.AddCommand(do("peers", "List the peers: connected, configured, known from earlier, or on a list", "", false),
		do("allow PEER", "Put a peer on the allow list: nobody else is let in but those there and the configured ones", "allow", false),
		do("disallow PEER", "Take a peer off the allow list", "allow", true),
		do("block PEER", "Hang up on a peer and let it in no more", "block", false),
		do("unblock PEER", "Take a peer off the block list", "block", true))
	return c
}

func showPeers(out io.Writer, raw []byte) error {
	var p daemon.Peers
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	rows := [][]string{{"PEER", "STATE", "LAST SEEN", "ADDRESSES"}}
	connected := int64(0)
	for _, s := range p.Peers {
		var state []string
		for _, word := range []struct {
			is   bool
			name string
		}{{s.Connected, "connected"}, {s.Blocked, "blocked"}, {s.Configured, "configured"}, {s.Allowed, "allowed"}} {
			if word.is {
				state = append(state, word.name)
			}
		}
		if s.Connected {
			connected++
		}
		seen := ""
		if s.Seen > 0 {
			seen = clock(s.Seen)
		}
		rows = append(rows, []string{plain(s.ID), strings.Join(append(state, "known")[:max(1, len(state))], ", "), seen, short(strings.Join(s.Addrs, " "), 200)})
	}
	if err := table(out, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s, %d connected; %d allowed, %d blocked\n", count(int64(len(p.Peers)), "peer"), connected, len(p.Allow), len(p.Block))
	return err
}
