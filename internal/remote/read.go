package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
)

// Events reads one page of records behind a seq, unchecked. wait is for how long the host may hold the answer back until there
// is one; a host that does not know it answers at once.
func (c *Client) Events(ctx context.Context, p Room, after int64, limit int, wait time.Duration) ([]adp.Value, error) {
	u := fmt.Sprintf("%s/events?after_seq=%d&limit=%d", p.URL(), after, limit)
	r := fetch.Request{URL: u, MaxBytes: maxPage}
	if wait > 0 {
		r.URL += fmt.Sprintf("&wait=%d", int(wait.Seconds()))
		r.Timeout, r.MinRate = wait+30*time.Second, -1
	}
	v, _, err := c.Get(ctx, r)
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

// Link is a place in the chain of a room, behind which the next record must stand.
type Link struct {
	RoomID string
	Seq    int64
	Hash   string // "" at a place that was only named: the next record shows it
}

// Take checks the next record: hashes, signature, link.
func (l *Link) Take(v adp.Value) (*adp.Record, error) {
	r, err := adp.ParseServed(v)
	if err == nil && !r.Redacted { // what is withheld shows as such
		err = r.CheckSignature()
	}
	if err == nil {
		if l.Seq > 0 && l.Hash == "" {
			l.Hash = r.PreHash
		}
		err = r.Follows(l.RoomID, l.Seq, l.Hash)
	}
	if err != nil {
		return nil, fmt.Errorf("record %d does not verify: %w", l.Seq+1, err)
	}
	l.Seq, l.Hash = r.Seq, r.Hash
	return r, nil
}

// Page reads what stands behind a place, at most limit records, and hands out each once it is checked. It answers how many.
func (c *Client) Page(ctx context.Context, p Room, l *Link, limit int64, show func(*adp.Record) error) (n int64, err error) {
	for n < limit {
		recs, err := c.Events(ctx, p, l.Seq, int(min(limit-n, inspect.PageRecords)), 0)
		if err != nil {
			return n, err
		}
		if len(recs) == 0 {
			return n, nil
		}
		for _, v := range recs {
			r, err := l.Take(v)
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

// Newest checks the record that a Room resource names as its newest, where we may read it, and answers how that went.
func (c *Client) Newest(ctx context.Context, p Room, r *inspect.Resource) (string, error) {
	recs, err := c.Events(ctx, p, r.Last.Seq-1, 1, 0)
	if code := CodeOf(err); code == adp.MembershipRequired || code == adp.PermissionDenied || code == adp.InvalidToken {
		return "for members only, not checked", nil
	}
	if err != nil {
		return "", err
	}
	if len(recs) == 0 {
		return "", fmt.Errorf("the host says that the room has %s, but does not show the newest", count(r.Last.Seq, "record"))
	}
	l := Link{RoomID: p.ID, Seq: r.Last.Seq - 1}
	rec, err := l.Take(recs[0])
	if err != nil {
		return "", err
	}
	if rec.Hash != r.Last.Hash {
		return "", fmt.Errorf("record %d is not the one that the host's room resource names", rec.Seq)
	}
	return "verified", nil
}
