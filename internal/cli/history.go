package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
)

// events reads one page of records behind a seq, unchecked. wait is for how long the host may hold the answer back until there
// is one; a host that does not know it answers at once.
func (c *client) events(ctx context.Context, p place, after int64, limit int, wait time.Duration) ([]adp.Value, error) {
	u := fmt.Sprintf("%s/events?after_seq=%d&limit=%d", p.url(), after, limit)
	r := fetch.Request{URL: u, MaxBytes: maxPage}
	if wait > 0 {
		r.URL += fmt.Sprintf("&wait=%d", int(wait.Seconds()))
		r.Timeout, r.MinRate = wait+30*time.Second, -1
	}
	v, _, err := c.get(ctx, r)
	if err != nil {
		return nil, err
	}
	if v.Kind() != adp.Array {
		return nil, fmt.Errorf("%s answered %s where a list of records belongs; is this the API of an ADP host?", u, v.Kind())
	}
	list := make([]adp.Value, 0, v.Len())
	for e := range v.Elements() {
		list = append(list, e)
	}
	return list, nil
}

// link is a place in the chain of a room, behind which the next record must stand.
type link struct {
	roomID string
	seq    int64
	hash   string // "" at a place that was only named: the next record shows it
}

// take checks the next record: hashes, signature, link.
func (l *link) take(v adp.Value) (*adp.Record, error) {
	r, err := adp.ParseServed(v)
	if err == nil && !r.Redacted { // what is withheld shows as such
		err = r.CheckSignature()
	}
	if err == nil {
		if l.seq > 0 && l.hash == "" {
			l.hash = r.PreHash
		}
		err = r.Follows(l.roomID, l.seq, l.hash)
	}
	if err != nil {
		return nil, fmt.Errorf("record %d does not verify: %w", l.seq+1, err)
	}
	l.seq, l.hash = r.Seq, r.Hash
	return r, nil
}

func historyCommand(c *client) *cobra.Command {
	var after, limit int64
	cmd := &cobra.Command{Use: "history ROOM", Short: "Show the records of a room, each checked", Args: cobra.ExactArgs(1),
		Long: `Show the records of a room, oldest first. Each is checked: hashes, signature, and its link to the one before, from the first record or from the one behind --after.
Whether each event was allowed in the room is for: witan verify.`,
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			if after < 0 || limit < 0 {
				return usagef("--after and --limit are numbers of records, not negative")
			}
			l := link{roomID: p.id, seq: after}
			left := limit
			if limit == 0 {
				left = adp.MaxInt
			}
			_, err = c.page(ctx, p, &l, left, c.showOne)
			return err
		})}
	cmd.Flags().Int64Var(&after, "after", 0, "begin behind this seq")
	cmd.Flags().Int64Var(&limit, "limit", 0, "how many records at most; 0 for all")
	return cmd
}

func (c *client) showOne(r *adp.Record) error {
	if c.json {
		_, err := fmt.Fprintf(c.out, "%s\n", r.JSON())
		return err
	}
	return showRecord(c.out, r)
}

// page reads what stands behind a place, at most limit records, and hands out each once it is checked. It answers how many.
func (c *client) page(ctx context.Context, p place, l *link, limit int64, show func(*adp.Record) error) (n int64, err error) {
	for n < limit {
		recs, err := c.events(ctx, p, l.seq, int(min(limit-n, inspect.PageRecords)), 0)
		if err != nil {
			return n, err
		}
		if len(recs) == 0 {
			return n, nil
		}
		for _, v := range recs {
			r, err := l.take(v)
			if err != nil {
				return n, err
			}
			if err := show(r); err != nil {
				return n, err
			}
			if n++; n == limit {
				return n, nil
			}
		}
	}
	return n, nil
}
