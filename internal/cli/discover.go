package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
)

func indexCommand() *cobra.Command {
	c := &client{}
	cmd := c.flags(group(&cobra.Command{Use: "index", Short: "The room index of a daemon, over its own and its mirrored rooms"}))
	var limit int
	var hostFilter string
	search := &cobra.Command{Use: "search [WORD…]", Short: "Search rooms; all words must occur in topic, agenda, guidance, tags or titles of types",
		Example: `  witan index search modbus retries --status active --joinable true
  witan index search --host-filter rooms.example --verdict forked`}
	set := queryFlags(search, "status", "scheduled, active, ended or cancelled", "tag", "only rooms with this tag", "types", "only rooms that have this type or pack", "since", "only with activity later than this: Unix ms", "language", "only rooms in this language",
		"verdict", "verified, violations, broken, forked, archive-mismatch, equivocated or unverified", "attested", "attested, partial, unattested or equivocated", "joinable", "true: only public rooms that are neither over nor full", "creator", "Agent ID of the creator", "sort", "activity, start or relevance")
	search.Flags().StringVar(&hostFilter, "host-filter", "", "only rooms of this host: its origin or authority")
	search.Flags().IntVar(&limit, "limit", 20, "how many rooms at most; 0 for all")
	search.RunE = c.do(func(ctx context.Context, words []string) error {
		base, err := c.apiBase()
		if err != nil {
			return err
		}
		q := url.Values{}
		set(q)
		if len(words) > 0 {
			q.Set("q", strings.Join(words, " "))
		}
		if hostFilter != "" {
			q.Set("host", hostFilter)
		}
		return c.showList(ctx, base+"/v1/index/rooms", q, limit, 200, []string{"STATUS", "VERDICT", "RECORDS", "ATTESTED", "TOPIC", "URL"}, func(v adp.Value) []string {
			n, _ := v.Get("records").Int()
			return []string{short(v.Get("status").Text(), 20), short(v.Get("verdict").Text(), 20), number(n),
				short(v.Get("attested").Text(), 20), short(v.Get("topic").Text(), 60), plain(v.Get("url").Text())}
		})
	})
	cmd.AddCommand(search, indexMessagesCommand(c), indexRebuildCommand())
	return cmd
}

// mirrorCommand holds what is about mirrored hosts.
func mirrorCommand() *cobra.Command {
	c := &client{}
	cmd := group(&cobra.Command{Use: "mirror", Short: "The hosts that a daemon mirrors"})
	mirrorOperatorCommands(cmd)
	cmd.AddCommand(c.flags(&cobra.Command{Use: "list", Short: "List the hosts that the daemon follows", Args: cobra.NoArgs,
		RunE: c.do(func(ctx context.Context, _ []string) error {
			base, err := c.apiBase()
			if err != nil {
				return err
			}
			list, err := c.List(ctx, base+"/federation/v1/hosts", 0)
			if err != nil {
				return err
			}
			if c.json {
				return arrayJSON(c.out, list)
			}
			rows := [][]string{{"HOST", "STATE", "ROOMS", "RECORDS", "SINCE", "REASON"}}
			var rooms, records int64
			for _, v := range list {
				n, _ := v.Get("rooms").Int()
				m, _ := v.Get("records").Int()
				rooms, records = rooms+n, records+m
				since := ""
				if ms, ok := v.Get("since").Int(); ok {
					since = clock(ms)
				}
				why := short(v.Get("reason").Text(), 100)
				if yes, _ := v.Get("equivocated").Bool(); yes {
					why = strings.TrimSpace(twoLogs + " " + why)
				}
				if ms, ok := v.Get("next_try").Int(); ok && ms > 0 {
					why = strings.TrimSpace(why + " (next try " + clock(ms) + ")")
				}
				rows = append(rows, []string{plain(v.Get("origin").Text()), short(v.Get("state").Text(), 20), strconv.FormatInt(n, 10), strconv.FormatInt(m, 10), since, why})
			}
			if err := table(c.out, rows); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.out, "%s, %s, %s\n", count(int64(len(list)), "host"), count(rooms, "room"), count(records, "record"))
			return err
		})}))
	return cmd
}

func attestationsCommand() *cobra.Command {
	c := &client{}
	cmd := c.flags(&cobra.Command{Use: "attestations", Short: "List attestations of archives, and check who signed them", Args: cobra.NoArgs,
		Long: `List the attestations that a daemon holds. The signature of each is checked here; whether its signer is somebody that you trust is for you to say.`})
	var origin, roomID string
	var limit int
	cmd.Flags().StringVar(&origin, "origin", "", "only of rooms of this origin")
	cmd.Flags().StringVar(&roomID, "room", "", "only of the room with this ID")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most; 0 for all")
	cmd.RunE = c.do(func(ctx context.Context, _ []string) error {
		base, err := c.apiBase()
		if err != nil {
			return err
		}
		q := url.Values{}
		if origin != "" {
			if origin, err = fetch.Origin(origin, true); err != nil {
				return usagef("--origin: %v", err)
			}
			q.Set("origin", origin)
		}
		if roomID != "" {
			q.Set("room_id", roomID)
		}
		at := base + "/v1/witness/attestations"
		if len(q) > 0 {
			at += "?" + q.Encode()
		}
		list, err := c.List(ctx, at, limit)
		if err != nil {
			return err
		}
		rows, bad := [][]string{{"SIGNATURE", "WITNESS", "ROOM", "RECORDS", "ROOT", "VERIFIED AT"}}, 0
		for _, v := range list {
			row, err := attestationRow(v, origin, roomID)
			if err != nil {
				bad++
				row = []string{"BAD: " + short(err.Error(), 120), plain(v.Get("event").Get("actor").Text())}
			}
			rows = append(rows, row)
		}
		if c.json {
			err = arrayJSON(c.out, list)
		} else {
			err = table(c.out, rows)
		}
		if err == nil && bad > 0 {
			err = fmt.Errorf("%s of %d cannot be relied upon", count(int64(bad), "attestation"), len(list))
		}
		return err
	})
	return cmd
}

// attestationRow checks one attestation by itself and renders it.
func attestationRow(v adp.Value, origin, roomID string) ([]string, error) {
	e, err := adp.ParseEnvelope(v)
	if err == nil {
		err = e.CheckShape()
	}
	if err == nil {
		err = e.CheckHash()
	}
	if err == nil {
		err = e.CheckSignature()
	}
	if err != nil {
		return nil, err
	}
	p := e.Payload
	switch {
	case e.Protocol != adp.WitnessProtocol || e.Type != "archive.attest":
		return nil, fmt.Errorf("it is no attestation but %s of %s", e.Type, e.Protocol)
	case origin != "" && !p.Get("origin").Is(origin) || roomID != "" && !p.Get("room_id").Is(roomID):
		return nil, fmt.Errorf("it is about another room than was asked for")
	}
	last, _ := p.Get("last_seq").Int()
	at, _ := p.Get("verified_at").Int()
	return []string{"good", plain(string(e.Actor)), plain(p.Get("origin").Text() + "/v1/rooms/" + p.Get("room_id").Text()), strconv.FormatInt(last, 10),
		short(p.Get("archive_root").Text(), 50), utc(at)}, nil
}
