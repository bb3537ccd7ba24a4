package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// withholding is a record that the operator keeps from view.
type withholding struct {
	Seq    int64  `json:"seq"`
	Type   string `json:"type"`
	Reason string `json:"reason"`
	At     int64  `json:"at"`
	Fate   string `json:"fate"`
}

func showWithheld(out io.Writer, raw []byte, asJSON bool) error {
	if asJSON {
		return indented(out, raw)
	}
	var list []withholding
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "nothing is withheld in this room by this daemon")
		return err
	}
	rows := [][]string{{"SEQ", "TYPE", "WITHHELD", "ORIGINAL", "REASON"}}
	for _, w := range list {
		original := map[string]string{"seal": "sealed", "erase": "erased", "erase-after-archive": "sealed until the archive is made"}[w.Fate]
		rows = append(rows, []string{strconv.FormatInt(w.Seq, 10), short(w.Type, 80), clock(w.At), original, short(w.Reason, 100)})
	}
	return table(out, rows)
}

// withholdCommands are the operator's takedown, for own rooms (role host) and for mirrored ones (role mirror).
func withholdCommands(parent *cobra.Command, data *string, role, room string) {
	var seq int64
	var reason string
	var inJSON bool
	withhold := &cobra.Command{Use: "withhold " + room + " --seq N --reason TEXT", Short: "Take one record from the view of every reader; the chain stays whole", Args: cobra.ExactArgs(1),
		Long: `Take one record from the view of every reader. They get its hash and type in place of what was said: chain and Merkle root still verify, the result
says how many records are withheld, and the digests of the archive that cover the record cannot be checked any more. Only messages and
events of types that the room declared can be withheld.

What becomes of the original says ` + role + `.withheld in the configuration: sealed, so that it can be shown again, or erased.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if seq < 1 || reason == "" {
				return usagef("say which record and why: --seq N --reason TEXT")
			}
			raw, err := operator(cmd.Context(), *data, "POST", "/"+role+"/withhold", map[string]any{"room": args[0], "seq": seq, "reason": reason})
			if err != nil {
				return err
			}
			return showWithheld(cmd.OutOrStdout(), raw, inJSON)
		}}
	withhold.Flags().Int64Var(&seq, "seq", 0, "seq of the record")
	withhold.Flags().StringVar(&reason, "reason", "", "why; kept for the operator, not shown to readers")
	withhold.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	withheld := &cobra.Command{Use: "withheld " + room, Short: "List the records of a room that are withheld here, and why", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := operator(cmd.Context(), *data, "GET", "/"+role+"/withheld?room="+url.QueryEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return showWithheld(cmd.OutOrStdout(), raw, inJSON)
		}}
	withheld.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	parent.AddCommand(withhold, withheld)
}

// hostRelease undoes withhold for own rooms.
func hostRelease(parent *cobra.Command, data *string) {
	var seq int64
	var inJSON bool
	c := &cobra.Command{Use: "release ROOM --seq N", Short: "Show a withheld record again, while its original is sealed", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if seq < 1 {
				return usagef("say which record: --seq N")
			}
			raw, err := operator(cmd.Context(), *data, "POST", "/host/show", map[string]any{"room": args[0], "seq": seq})
			if err != nil {
				return err
			}
			return showWithheld(cmd.OutOrStdout(), raw, inJSON)
		}}
	c.Flags().Int64Var(&seq, "seq", 0, "seq of the record")
	c.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	parent.AddCommand(c)
}
