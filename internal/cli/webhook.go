package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// hookReport is a webhook as the daemon shows it.
type hookReport struct {
	ID      string   `json:"id"`
	Owner   string   `json:"owner"`
	URL     string   `json:"url"`
	Events  []string `json:"events"`
	State   string   `json:"state"`
	Reason  string   `json:"reason"`
	Secret  string   `json:"secret"`
	Filters struct {
		Hosts, Tags, Languages, Agents []string
		Q                              string
	} `json:"filters"`
	CreatedAt   int64  `json:"created_at"`
	Attempts    int    `json:"attempts"`
	NextTry     int64  `json:"next_try"`
	LastError   string `json:"last_error"`
	DeliveredAt int64  `json:"delivered_at"`
	Delivered   int64  `json:"delivered"`
	Missed      int64  `json:"missed"`
	Waiting     int64  `json:"waiting"`
}

// webhookCommand posts events to URLs; see docs/webhooks.md.
func webhookCommand() *cobra.Command {
	c := &cobra.Command{Use: "webhook", Short: "Post events of rooms and hosts to URLs (for the operator, while the daemon runs)"}
	data := dataFlag(c)
	c.AddCommand(webhookAdd(data))
	var inJSON bool
	list := &cobra.Command{Use: "list", Short: "List the webhooks, those of agents included", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := operator(cmd.Context(), *data, "GET", "/webhooks", nil)
			if err != nil {
				return err
			}
			if inJSON {
				return indented(cmd.OutOrStdout(), raw)
			}
			var hooks []hookReport
			if err := json.Unmarshal(raw, &hooks); err != nil {
				return err
			}
			rows := [][]string{{"WEBHOOK", "STATE", "WAITING", "DELIVERED", "EVENTS", "URL", "REASON"}}
			for _, h := range hooks {
				why := h.Reason
				if why == "" {
					why = h.LastError
				}
				rows = append(rows, []string{h.ID, h.State, strconv.FormatInt(h.Waiting, 10), strconv.FormatInt(h.Delivered, 10), strings.Join(h.Events, ","), short(h.URL, 80), short(why, 100)})
			}
			return table(cmd.OutOrStdout(), rows)
		}}
	list.Flags().BoolVar(&inJSON, "json", false, "write JSON")
	c.AddCommand(list)
	for _, m := range []struct{ name, method, path, short string }{
		{"show", "GET", "", "Show one webhook: what waits, what failed, and why it is paused"},
		{"pause", "POST", "/pause", "Hold the deliveries of a webhook; its events wait"},
		{"resume", "POST", "/resume", "Go on with a webhook that is paused, at once and with all tries"},
		{"remove", "DELETE", "", "Forget a webhook and all that waits for it"},
		{"test", "POST", "/test", "Challenge the receiver of a webhook again; changes nothing"},
	} {
		var inJSON bool
		one := &cobra.Command{Use: m.name + " WEBHOOK", Short: m.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				raw, err := operator(cmd.Context(), *data, m.method, "/webhooks/"+url.PathEscape(args[0])+m.path, nil)
				if err != nil {
					return err
				}
				if inJSON {
					return indented(cmd.OutOrStdout(), raw)
				}
				switch m.name {
				case "remove":
					_, err = fmt.Fprintln(cmd.OutOrStdout(), "removed "+plain(args[0]))
					return err
				case "test":
					_, err = fmt.Fprintln(cmd.OutOrStdout(), "the receiver passed the challenge")
					return err
				}
				return showHook(cmd.OutOrStdout(), raw)
			}}
		one.Flags().BoolVar(&inJSON, "json", false, "write JSON")
		c.AddCommand(one)
	}
	return group(c)
}

func webhookAdd(data *string) *cobra.Command {
	var events, hosts, tags, languages, agents []string
	var q string
	var inJSON bool
	c := &cobra.Command{Use: "add URL --event EVENT…", Short: "Post events to a URL from now on; prints the secret that signs them, once",
		Example: `  witan webhook add https://hooks.example/witan --event room.ended --event mention --tag federation`, Args: cobra.ExactArgs(1),
		Long: `Post events to a URL from now on. The receiver is challenged first: it must answer POST {"event": "ping", "challenge": C} with 200 and {"challenge": C}.

Events: room.discovered, room.started, room.ended, mention, archive.attested, room.forked, host.state. Only public rooms are told of. The secret that
signs the deliveries is printed once; docs/webhooks.md says how a receiver checks them.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(events) == 0 {
				return usagef("say what to post: --event room.discovered, for example; see witan webhook add --help")
			}
			filters := map[string]any{}
			for name, list := range map[string][]string{"hosts": hosts, "tags": tags, "languages": languages, "agents": agents} {
				if len(list) > 0 {
					filters[name] = list
				}
			}
			if q != "" {
				filters["q"] = q
			}
			raw, err := operator(cmd.Context(), *data, "POST", "/webhooks", map[string]any{"url": args[0], "events": events, "filters": filters})
			if err != nil {
				return err
			}
			if inJSON {
				return indented(cmd.OutOrStdout(), raw)
			}
			return showHook(cmd.OutOrStdout(), raw)
		}}
	f := c.Flags()
	f.StringSliceVar(&events, "event", nil, "event to post; repeatable")
	f.StringSliceVar(&hosts, "host", nil, "only of rooms of this origin, and of this host; repeatable")
	f.StringSliceVar(&tags, "tag", nil, "only of rooms with this tag; repeatable")
	f.StringSliceVar(&languages, "language", nil, "only of rooms in this language; repeatable")
	f.StringSliceVar(&agents, "agent", nil, "only mentions of this agent; repeatable")
	f.StringVar(&q, "q", "", "only of rooms with all these words in their topic")
	f.BoolVar(&inJSON, "json", false, "write JSON")
	return c
}

func showHook(out io.Writer, raw []byte) error {
	var h hookReport
	if err := json.Unmarshal(raw, &h); err != nil {
		return err
	}
	moment := func(ms int64) string {
		if ms == 0 {
			return ""
		}
		return clock(ms)
	}
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	list := func(l []string) string { return plain(strings.Join(l, ", ")) }
	f := h.Filters
	err := fields(out, "webhook", h.ID, "secret", h.Secret, "url", plain(h.URL), "owner", h.Owner, "events", list(h.Events), "hosts", list(f.Hosts), "tags", list(f.Tags),
		"languages", list(f.Languages), "agents", list(f.Agents), "q", plain(f.Q), "state", h.State, "reason", plain(h.Reason), "created", moment(h.CreatedAt),
		"delivered", number(h.Delivered), "last one", moment(h.DeliveredAt), "waiting", number(h.Waiting), "tries", number(int64(h.Attempts)),
		"next try", moment(h.NextTry), "last error", plain(h.LastError), "missed", number(h.Missed))
	if err != nil || h.Secret == "" {
		return err
	}
	_, err = fmt.Fprintln(out, "\nKeep the secret: it is not shown again, and whoever has it can sign as this daemon does.")
	return err
}
