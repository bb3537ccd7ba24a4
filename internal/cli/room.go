package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

func roomCommand() *cobra.Command {
	c := &client{}
	cmd := c.flags(group(&cobra.Command{Use: "room", Short: "Rooms of a host: create, read, write",
		Long: `Rooms of a host. ROOM is the ID of a room at --host, or the full URL of a room; for reading, that of a mirror's copy does too.

What is read is checked: hashes, signatures and links of records. What you write is signed with the local key (witan key).`}))
	cmd.AddCommand(createCommand(c), showCommand(c), listCommand(c), joinCommand(c), requestsCommand(c),
		reviewCommand(c, "approve", "Approve a join request"), reviewCommand(c, "reject", "Reject a join request"),
		leavingCommand(c, "leave", room.Leave, "Leave a room"), sayCommand(c), sendCommand(c), historyCommand(c), watchCommand(c),
		leavingCommand(c, "close", room.Close, "End a room for good"), leavingCommand(c, "cancel", room.Cancel, "Cancel a room that has not started"),
		archiveCommand(c))
	return cmd
}

type createFlags struct {
	topic, agenda, guidance, language string
	visibility                        string
	start, end                        string
	length                            time.Duration
	tags, use, typeFiles, moderators  []string
	policyFile                        string
	maxSpeakers                       int64
	noObservers                       bool
}

func createCommand(c *client) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{Use: "create --topic TOPIC", Short: "Create a room",
		Example: `  witan room create --topic "Quorum" --tag federation --for 2h --use reactions`, Args: cobra.NoArgs,
		RunE: c.do(func(ctx context.Context, _ []string) error {
			payload, err := c.creation(f, time.Now())
			if err != nil {
				return err
			}
			base, err := c.apiBase()
			if err != nil {
				return err
			}
			answer, p, err := c.Create(ctx, base, payload)
			if err != nil {
				return err
			}
			if c.json {
				return rawJSON(c.out, answer)
			}
			at := p.URL()
			if u := answer.Get("url").Text(); u != "" {
				at = u
			}
			return fields(c.out, "id", p.ID, "url", plain(at), "status", short(answer.Get("status").Text(), 40))
		})}
	fl := cmd.Flags()
	fl.StringVar(&f.topic, "topic", "", "what the room is about (required)")
	fl.StringVar(&f.agenda, "agenda", "", "what is to be done")
	fl.StringVar(&f.guidance, "guidance", "", "how to take part")
	fl.StringVar(&f.visibility, "visibility", room.Public, "public, restricted or private")
	fl.StringVar(&f.start, "start", "now", "start: now, +10m, 2026-07-04T10:00:00Z, or a local time such as \"2026-07-04 10:00\"")
	fl.StringVar(&f.end, "end", "", "end, in the same forms")
	fl.DurationVar(&f.length, "for", time.Hour, "length of the room, where --end is not given")
	fl.StringArrayVar(&f.tags, "tag", nil, "tag (repeatable)")
	fl.StringVar(&f.language, "language", "", "language, such as en or zh-CN")
	fl.Int64Var(&f.maxSpeakers, "max-speakers", 0, "how many members may speak")
	fl.BoolVar(&f.noObservers, "no-observers", false, "let nobody in who only watches")
	fl.StringArrayVar(&f.moderators, "moderator", nil, "Agent ID that may join as moderator (repeatable)")
	fl.StringArrayVar(&f.use, "use", nil, "registered type pack, such as reactions or adp:reactions/1.0 (repeatable)")
	fl.StringArrayVar(&f.typeFiles, "type", nil, "JSON file with a type declaration, or with a list of them (repeatable)")
	fl.StringVar(&f.policyFile, "policy", "", "JSON file with a room policy")
	cmd.MarkFlagsMutuallyExclusive("end", "for")
	return cmd
}

// creation is the payload of room.create (ADP §9.1).
func (c *client) creation(f createFlags, now time.Time) (map[string]any, error) {
	if strings.TrimSpace(f.topic) == "" {
		return nil, usagef("say what the room is about with --topic")
	}
	start, err := parseTime(f.start, now, now)
	if err != nil {
		return nil, usagef("--start: %v", err)
	}
	end := start.Add(f.length)
	if f.end != "" {
		if end, err = parseTime(f.end, now, start); err != nil {
			return nil, usagef("--end: %v", err)
		}
	}
	if !end.After(start) {
		return nil, usagef("the room would end before it starts")
	}
	payload := map[string]any{"topic": f.topic, "visibility": f.visibility, "start_time": start.UnixMilli(), "end_time": end.UnixMilli()}
	for name, text := range map[string]string{"agenda": f.agenda, "guidance": f.guidance, "language": f.language} {
		if text != "" {
			payload[name] = text
		}
	}
	if f.tags != nil {
		payload["tags"] = f.tags
	}
	types := make([]any, 0, len(f.use)+len(f.typeFiles))
	for _, pack := range f.use {
		if !strings.Contains(pack, ":") {
			pack = "adp:" + pack + "/1.0"
		}
		types = append(types, map[string]string{"use": pack})
	}
	for _, name := range f.typeFiles {
		v, err := c.readJSON(name)
		if err != nil {
			return nil, err
		}
		if v.Kind() != adp.Array {
			types = append(types, v)
		}
		for e := range v.Elements() {
			types = append(types, e)
		}
	}
	if len(types) > 0 {
		payload["types"] = types
	}
	policy := map[string]any{}
	if f.policyFile != "" {
		v, err := c.readJSON(f.policyFile)
		if err != nil {
			return nil, err
		}
		if v.Kind() != adp.Object {
			return nil, usagef("--policy: %s must hold a JSON object", f.policyFile)
		}
		for name, m := range v.Members() {
			policy[name] = m
		}
	}
	if f.maxSpeakers != 0 {
		policy["max_speakers"] = f.maxSpeakers
	}
	if f.noObservers {
		policy["observer_allowed"] = false
	}
	if f.moderators != nil {
		if policy["moderator_agent_ids"], err = agentIDs("--moderator", f.moderators); err != nil {
			return nil, err
		}
	}
	if len(policy) > 0 {
		payload["policy"] = policy
	}
	return payload, nil
}

// parseTime reads a time as people write it; "+2h" counts from base.
func parseTime(text string, now, base time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	if rest, ok := strings.CutPrefix(text, "+"); ok {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is not a length of time such as +90m", text)
		}
		return base.Add(d), nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 {
		return time.UnixMilli(ms), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time; write now, +10m, 2026-07-04T10:00:00Z, \"2026-07-04 10:00\", or Unix milliseconds", text)
}

func showCommand(c *client) *cobra.Command {
	return &cobra.Command{Use: "show ROOM", Short: "Show a room as it stands, and check its newest record", Args: cobra.ExactArgs(1),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			r, err := c.Resource(ctx, p)
			if err != nil {
				return err
			}
			newest, err := c.Newest(ctx, p, r)
			if err != nil {
				return err
			}
			if c.json {
				return rawJSON(c.out, r.Value)
			}
			v := r.Value
			var tags, types []string
			for t := range v.Get("tags").Elements() {
				tags = append(tags, short(t.Text(), 40))
			}
			for t := range v.Get("types").Elements() {
				types = append(types, short(t.Get("type").Text(), 80))
			}
			start, _ := v.Get("start_time").Int()
			return fields(c.out, "topic", short(v.Get("topic").Text(), 500), "status", short(r.Status, 40), "id", p.ID, "url", plain(v.Get("url").Text()),
				"agenda", short(v.Get("agenda").Text(), 2000), "guidance", short(v.Get("guidance").Text(), 2000), "visibility", short(r.Visibility, 40),
				"time", clock(start)+" – "+clock(r.EndTime), "creator", plain(v.Get("creator").Text()), "tags", strings.Join(tags, ", "),
				"language", short(v.Get("language").Text(), 40), "policy", short(string(v.Get("policy").Raw()), 500), "types", strings.Join(types, ", "),
				"head", fmt.Sprintf("%d %s", r.Head.Seq, r.Head.Hash), "newest", fmt.Sprintf("%d %s (%s)", r.Last.Seq, r.Last.Hash, newest))
		})}
}

func listCommand(c *client) *cobra.Command {
	q := url.Values{}
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "List the public rooms of a host", Args: cobra.NoArgs}
	set := queryFlags(cmd, "status", "scheduled, active, ended or cancelled", "tag", "only rooms with this tag", "keyword", "text in topic, agenda or tags",
		"language", "only rooms in this language", "creator", "Agent ID of the creator")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many rooms at most; 0 for all")
	cmd.RunE = c.do(func(ctx context.Context, _ []string) error {
		base, err := c.apiBase()
		if err != nil {
			return err
		}
		set(q)
		return c.showList(ctx, base+"/v1/rooms/public", q, limit, 100, []string{"ROOM", "STATUS", "RECORDS", "ENDS", "TOPIC"}, func(v adp.Value) []string {
			seq, _ := v.Get("seq").Int()
			end, _ := v.Get("end_time").Int()
			return []string{short(v.Get("id").Text(), 128), short(v.Get("status").Text(), 20), number(seq), clock(end), short(v.Get("topic").Text(), 80)}
		})
	})
	return cmd
}

// showList gets a list, by pages of at most so many entries, and shows one row of each entry, or all of them as JSON.
func (c *client) showList(ctx context.Context, list string, q url.Values, limit, most int, head []string, row func(adp.Value) []string) error {
	pageSize(q, limit, most)
	entries, err := c.List(ctx, list+"?"+q.Encode(), limit)
	if err != nil {
		return err
	}
	if c.json {
		return arrayJSON(c.out, entries)
	}
	rows := [][]string{head}
	for _, v := range entries {
		rows = append(rows, row(v))
	}
	return table(c.out, rows)
}

// queryFlags adds flags that go into a query under their own names, and returns what puts those in that were given.
func queryFlags(cmd *cobra.Command, pairs ...string) (set func(url.Values)) {
	values := map[string]*string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = cmd.Flags().String(pairs[i], "", pairs[i+1])
	}
	return func(q url.Values) {
		for name, v := range values {
			if *v != "" {
				q.Set(name, *v)
			}
		}
	}
}

// pageSize asks for pages no larger than they need be.
func pageSize(q url.Values, limit, most int) {
	if limit <= 0 || limit > most {
		limit = most
	}
	q.Set("limit", strconv.Itoa(limit))
}
