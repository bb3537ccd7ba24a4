package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// mirrorOperatorCommands change what a running daemon mirrors, and say where it stands.
func mirrorOperatorCommands(parent *cobra.Command) {
	data := dataFlag(parent)
	withholdCommands(parent, data, "mirror", "URL")
	for _, m := range []struct{ name, args, short string }{
		{"add", "ORIGIN", "Mirror another host from now on"},
		{"remove", "ORIGIN", "Stop mirroring a host, whatever the configuration says; what is held stays"},
		{"pause", "ORIGIN|URL", "Stop copying a host or a room"},
		{"resume", "ORIGIN|URL", "Go on with a host or a room that is paused or forgotten"},
		{"retry", "ORIGIN|URL", "Try a host or a room again at once"},
		{"approve", "ORIGIN", "Accept the new keys of a host that is shown as rebound"},
	} {
		var inJSON bool
		c := &cobra.Command{Use: m.name + " " + m.args, Short: m.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return hostsAfter(cmd, *data, m.name, map[string]any{"origin": args[0]}, inJSON)
			}}
		c.Flags().BoolVar(&inJSON, "json", false, "write JSON")
		parent.AddCommand(c)
	}
	parent.AddCommand(quarantineCommand(data), releaseCommand(data), forgetCommand(data), retentionCommand(data), statusCommand(data))
}

// hostsAfter sends a command and shows the hosts as they are then.
func hostsAfter(cmd *cobra.Command, data, command string, body map[string]any, inJSON bool) error {
	raw, err := operator(cmd.Context(), data, "POST", "/mirror/"+command, body)
	if err != nil {
		return err
	}
	if inJSON {
		return indented(cmd.OutOrStdout(), raw)
	}
	var hosts []hostReport
	if err := json.Unmarshal(raw, &hosts); err != nil {
		return err
	}
	if err := showHosts(cmd.OutOrStdout(), hosts, false); err != nil {
		return err
	}
	return showRooms(cmd.OutOrStdout(), hosts)
}

func quarantineCommand(data *string) *cobra.Command {
	var reason string
	var inJSON bool
	c := &cobra.Command{Use: "quarantine ORIGIN|URL", Short: "Keep what is held of a host or a room from every reader, and copy no more of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hostsAfter(cmd, *data, "quarantine", map[string]any{"origin": args[0], "reason": reason}, inJSON)
		}}
	c.Flags().StringVar(&reason, "reason", "", "why; shown in the status")
	c.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	return c
}

func releaseCommand(data *string) *cobra.Command {
	var seq int64
	var inJSON bool
	c := &cobra.Command{Use: "release ORIGIN|URL", Short: "End a quarantine; with --seq, show a withheld record again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("seq") {
				return hostsAfter(cmd, *data, "release", map[string]any{"origin": args[0]}, inJSON)
			}
			raw, err := operator(cmd.Context(), *data, "POST", "/mirror/show", map[string]any{"room": args[0], "seq": seq})
			if err != nil {
				return err
			}
			return showWithheld(cmd.OutOrStdout(), raw, inJSON)
		}}
	c.Flags().Int64Var(&seq, "seq", 0, "seq of a withheld record whose original is sealed")
	c.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	return c
}

func forgetCommand(data *string) *cobra.Command {
	var yes, inJSON bool
	c := &cobra.Command{Use: "forget ORIGIN|URL", Short: "Drop what is held of a host or a room; tells what that is, and does it only with --yes", Args: cobra.ExactArgs(1),
		Long: `Drop what is held of a host or a room. Without --yes it tells what would be dropped, and drops nothing. Statements, attestations and evidence stay.

What is forgotten is not copied again before: witan mirror resume.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := operatorWithin(cmd.Context(), longTime, *data, "POST", "/mirror/forget", map[string]any{"origin": args[0], "yes": yes})
			if err != nil {
				return err
			}
			if inJSON {
				return indented(cmd.OutOrStdout(), raw)
			}
			var f struct {
				Done                          bool
				Rooms, Records, Bytes, Listed int64
				URLs                          []string
			}
			if err := json.Unmarshal(raw, &f); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, u := range f.URLs {
				fmt.Fprintln(out, plain(u))
			}
			if more := f.Rooms - int64(len(f.URLs)); more > 0 {
				fmt.Fprintf(out, "… and %d more\n", more)
			}
			what := fmt.Sprintf("%s, %s, %s", count(f.Rooms, "room"), count(f.Records, "record"), amount(f.Bytes))
			if f.Listed > 0 {
				what += fmt.Sprintf(" (and %s of which nothing is held)", count(f.Listed, "listed room"))
			}
			if !f.Done {
				_, err = fmt.Fprintf(out, "%s would be dropped; nothing was. Do it with --yes\n", what)
				return err
			}
			_, err = fmt.Fprintf(out, "dropped: %s\n", what)
			return err
		}}
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	c.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	return c
}

func retentionCommand(data *string) *cobra.Command {
	var dry, inJSON bool
	c := &cobra.Command{Use: "retention", Short: "Let go of the records that mirror.retention no longer keeps, now and not at the next daily run", Args: cobra.NoArgs,
		Long: `Let go of the records that mirror.retention no longer keeps, give their space back to the disk, and take out of the files of the
database what was erased (withhold) or forgotten. The same is done once a day. It may take minutes, in proportion to the size of the database.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := operatorWithin(cmd.Context(), longTime, *data, "POST", "/mirror/retention", map[string]any{"dry_run": dry})
			if err != nil {
				return err
			}
			if inJSON {
				return indented(cmd.OutOrStdout(), raw)
			}
			var r struct {
				Done, Expunged          bool
				Records, Bytes, Pending int64
				Rooms                   []struct {
					URL                      string
					From, To, Records, Bytes int64
					Rule, Error              string
				}
			}
			if err := json.Unmarshal(raw, &r); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if len(r.Rooms) > 0 {
				rows := [][]string{{"ROOM", "FROM SEQ", "TO SEQ", "SIZE", "RULE"}}
				for _, d := range r.Rooms {
					rows = append(rows, []string{plain(d.URL), number(d.From), number(d.To), amount(d.Bytes), strings.TrimSpace(d.Rule + " " + short(d.Error, 200))})
				}
				if err := table(out, rows); err != nil {
					return err
				}
			}
			verb := "dropped"
			if !r.Done {
				verb = "would be dropped; nothing was"
			}
			fmt.Fprintf(out, "%s of %s, %s: %s\n", count(r.Records, "record"), count(int64(len(r.Rooms)), "room"), amount(r.Bytes), verb)
			if r.Expunged {
				fmt.Fprintln(out, "what was erased or forgotten is out of the files of the database")
			}
			if r.Pending > 0 {
				fmt.Fprintf(out, "in %s more waits for the attestation of the archive, at most until it is 30 days old\n", count(r.Pending, "room"))
			}
			return nil
		}}
	c.Flags().BoolVar(&dry, "dry-run", false, "only tell what would go")
	c.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	return c
}

// hostReport is a host as the daemon reports it.
type hostReport struct {
	Origin   string
	State    string
	Since    int64
	NextTry  int64 `json:"next_try"`
	Reason   string
	Source   string
	Rooms    int64
	Records  int64
	Bytes    int64
	Behind   int64
	Claimed  int64
	Verdicts map[string]int64

	Equivocated bool
	Progress    struct {
		Records, Bytes, Pending int64
		RecordsPerSecond        float64 `json:"records_per_second"`
		BytesPerSecond          float64 `json:"bytes_per_second"`
		ETA                     int64   `json:"eta_seconds"`
	}
	RoomList []struct {
		RoomID                             string `json:"room_id"`
		State, Verdict, Reason             string
		Seq, Behind, Bytes                 int64
		Violations, Unverifiable, Withheld int64
		Hidden, Held                       bool
	} `json:"room_list"`
}

func statusCommand(data *string) *cobra.Command {
	var watch, inJSON bool
	var every time.Duration
	c := &cobra.Command{Use: "status [ORIGIN]", Short: "Say where each host stands and why; of one host, each room", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/mirror/status"
			if len(args) > 0 {
				path += "?origin=" + url.QueryEscape(args[0])
			}
			if every < 100*time.Millisecond {
				return usagef("--every is 100ms or more")
			}
			out := cmd.OutOrStdout()
			for {
				raw, err := operator(cmd.Context(), *data, "GET", path, nil)
				if err != nil {
					return err
				}
				if err := showStatus(out, raw, inJSON, watch && !inJSON && isTerminal(out)); err != nil || !watch {
					return err
				}
				if err := pause(cmd.Context(), every); err != nil {
					return nil // the operator has seen enough
				}
			}
		}}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again, until interrupted")
	c.Flags().DurationVar(&every, "every", 2*time.Second, "with --watch, how often")
	c.Flags().BoolVar(&inJSON, "json", false, "write JSON; with --watch, one line each time")
	return c
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func showStatus(out io.Writer, raw []byte, inJSON, again bool) error {
	if inJSON {
		_, err := fmt.Fprintf(out, "%s\n", strings.TrimSpace(string(raw)))
		return err
	}
	var hosts []hostReport
	if err := json.Unmarshal(raw, &hosts); err != nil {
		return err
	}
	if again {
		fmt.Fprint(out, "\x1b[H\x1b[2J") // from the top of an empty screen
	}
	if err := showHosts(out, hosts, true); err != nil {
		return err
	}
	return showRooms(out, hosts)
}

// showRooms writes a table for each host that came with rooms.
func showRooms(out io.Writer, hosts []hostReport) error {
	for _, h := range hosts {
		if len(h.RoomList) == 0 {
			continue
		}
		rows := [][]string{{"ROOM", "STATE", "VERDICT", "SEQ", "BEHIND", "SIZE", "VIOLATIONS", "UNVERIFIABLE", "WITHHELD", "REASON"}}
		for _, r := range h.RoomList {
			state := r.State
			if r.Hidden {
				state += " (not shown)"
			}
			if !r.Held {
				rows = append(rows, []string{short(r.RoomID, 128), state, "", "", "", "", "", "", "", short(r.Reason, 160)})
				continue
			}
			rows = append(rows, []string{short(r.RoomID, 128), state, short(r.Verdict, 20), number(r.Seq), number(r.Behind), amount(r.Bytes),
				number(r.Violations), number(r.Unverifiable), number(r.Withheld), short(r.Reason, 160)})
		}
		fmt.Fprintln(out)
		if err := table(out, rows); err != nil {
			return err
		}
	}
	return nil
}

// twoLogs is what is said of a host that is proven to have told two stories.
const twoLogs = "EQUIVOCATED: it is proven to have signed two logs"

// showHosts writes one line for each host; whole adds what only the status knows.
func showHosts(out io.Writer, hosts []hostReport, whole bool) error {
	head := []string{"HOST", "STATE", "SOURCE", "ROOMS", "RECORDS"}
	if whole {
		head = append(head, "BEHIND", "SIZE", "COPYING")
	}
	rows := [][]string{append(head, "REASON")}
	var rooms, records int64
	for _, h := range hosts {
		rooms, records = rooms+h.Rooms, records+h.Records
		row := []string{plain(h.Origin), short(h.State, 20), short(h.Source, 20), number(h.Rooms), number(h.Records)}
		if whole {
			row = append(row, h.behind(), amount(h.Bytes), h.copying())
		}
		var why []string
		if h.Equivocated {
			why = append(why, twoLogs)
		}
		if h.Reason != "" {
			why = append(why, short(h.Reason, 160))
		}
		for _, v := range []string{"violations", "broken", "forked", "archive-mismatch", "equivocated"} {
			if n := h.Verdicts[v]; n > 0 {
				why = append(why, fmt.Sprintf("%d %s", n, v))
			}
		}
		if h.NextTry > 0 {
			why = append(why, "next try "+clock(h.NextTry))
		}
		rows = append(rows, append(row, strings.Join(why, "; ")))
	}
	if err := table(out, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s, %s, %s\n", count(int64(len(hosts)), "host"), count(rooms, "room"), count(records, "record"))
	return err
}

// behind says how many records are to come, and after a + how many the host merely lists.
func (h hostReport) behind() string {
	if h.Claimed == 0 {
		return number(h.Behind)
	}
	return number(h.Behind) + " +" + number(h.Claimed)
}

// copying says how a backfill goes.
func (h hostReport) copying() string {
	p := h.Progress
	if p.RecordsPerSecond == 0 {
		return "-"
	}
	s := fmt.Sprintf("%s, %s; %.0f records/s, %s/s", count(p.Records, "record"), amount(p.Bytes), p.RecordsPerSecond, amount(int64(p.BytesPerSecond)))
	const year = 365 * 24 * 3600
	switch {
	case p.ETA > year: // of what the host merely lists, mostly
		s += ", done in more than a year"
	case p.ETA > 0:
		s += ", done in about " + (time.Duration(p.ETA) * time.Second).String()
	}
	return s
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// amount is a number of bytes for people.
func amount(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
