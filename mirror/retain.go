package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
)

// Retention says what is let go of, the oldest records first. Zero sets no bound.
type Retention struct {
	Age                  time.Duration // since the host received the record
	Bytes, Count         int64         // of one room
	HostBytes, HostCount int64         // of all rooms of one host
}

// pendingTime is for how long records are kept, whatever the bounds say, while the
// archive of their room is not attested by us.
const pendingTime = 30 * 24 * time.Hour

// Dropping is what retention lets go of in one room, or would.
type Dropping struct {
	Origin  string `json:"origin"`
	RoomID  string `json:"room_id"`
	URL     string `json:"url"`
	From    int64  `json:"from"` // the first seq that goes
	To      int64  `json:"to"`   // the last
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	Rule    string `json:"rule"` // the bound that reaches furthest: age, count, bytes, host_count or host_bytes
	Error   string `json:"error,omitempty"`

	r *replica.Replica
}

// RetentionReport is what a run of retention did, or would do.
type RetentionReport struct {
	Done    bool       `json:"done"`
	Rooms   []Dropping `json:"rooms"`
	Records int64      `json:"records"`
	Bytes   int64      `json:"bytes"`
	Pending int64      `json:"pending"` // rooms of which more would go if they were attested
	// Expunged: what was erased and forgotten since the last run is out of the files of
	// the store.
	Expunged bool `json:"expunged"`
}

// Retain lets go of what the bounds of retention no longer keep, gives the space back
// to the disk, and takes out of the files of the store what was erased or forgotten. It
// is for once a day.
func (m *Mirror) Retain(ctx context.Context, now int64) error {
	report, err := m.retain(ctx, now, true)
	if err != nil {
		return err
	}
	var failed error
	for _, d := range report.Rooms {
		if d.Error != "" && failed == nil {
			failed = fmt.Errorf("mirror: room %s of %s: %s", d.RoomID, d.Origin, d.Error)
		}
	}
	return failed
}

// RetainNow is Retain with a report, or only the report when do is false.
func (m *Mirror) RetainNow(ctx context.Context, do bool) (RetentionReport, error) {
	return m.retain(ctx, m.o.Now(), do)
}

func (m *Mirror) retain(ctx context.Context, now int64, do bool) (RetentionReport, error) {
	m.retaining.Lock() // one run at a time
	defer m.retaining.Unlock()
	out := RetentionReport{Done: do, Rooms: []Dropping{}}
	hosts := map[string][]*replica.Replica{}
	for _, r := range m.o.Replicas.All() {
		if r.Origin != m.o.Own && r.Row().Seq > 0 {
			hosts[r.Origin] = append(hosts[r.Origin], r)
		}
	}
	for origin, rooms := range hosts {
		bounds := m.bounds(origin)
		if bounds == (Retention{}) {
			continue
		}
		plan, pending, err := m.plan(ctx, rooms, bounds, now)
		if err != nil {
			return out, err
		}
		out.Rooms, out.Pending = append(out.Rooms, plan...), out.Pending+pending
	}
	slices.SortFunc(out.Rooms, func(a, b Dropping) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.RoomID, b.RoomID), cmp.Compare(a.To, b.To))
	})
	for i := range out.Rooms {
		d := &out.Rooms[i]
		if do {
			if err := ctx.Err(); err != nil {
				return out, err
			}
			freed, err := d.r.Drop(d.To)
			if err != nil {
				d.Error = err.Error()
				continue
			}
			d.Bytes = freed
			m.log.Info("records are no longer kept", "origin", d.Origin, "room", d.RoomID, "to", d.To, "records", d.Records, "bytes", d.Bytes, "rule", d.Rule)
			m.o.Changed(d.r)
		}
		out.Records, out.Bytes = out.Records+d.Records, out.Bytes+d.Bytes
	}
	if !do {
		return out, nil
	}
	var err error
	if out.Expunged, err = m.o.Replicas.GiveBack(); err != nil {
		return out, fmt.Errorf("mirror: %w", err)
	}
	if out.Expunged {
		m.log.Info("what was erased or forgotten is out of the files of the store")
	}
	return out, nil
}

// bounds are those of one host.
func (m *Mirror) bounds(origin string) Retention {
	if m.o.Retention == nil {
		return Retention{}
	}
	return m.o.Retention(origin)
}

// kept is a room under retention.
type kept struct {
	r     *replica.Replica
	row   replica.Row
	least int64 // seq up to which records may go at all
	to    int64 // seq up to which they go
	bytes int64 // of those
	rule  string
}

// plan says what goes in the rooms of one host.
func (m *Mirror) plan(ctx context.Context, rooms []*replica.Replica, b Retention, now int64) (out []Dropping, pending int64, err error) {
	var all []*kept
	for _, r := range rooms {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		row := r.Row()
		k := &kept{r: r, row: row, least: row.Seq, to: row.Dropped}
		if m.awaits(r, row) { // nothing young goes before it is attested
			if k.least, err = before(r, now-pendingTime.Milliseconds()); err != nil {
				return nil, 0, err
			}
		}
		wants := row.Dropped
		want := func(seq int64, rule string) {
			wants = max(wants, seq)
			if seq = min(seq, k.least); seq > k.to {
				k.to, k.rule = seq, rule
			}
		}
		if b.Age > 0 {
			seq, err := before(r, now-b.Age.Milliseconds())
			if err != nil {
				return nil, 0, err
			}
			want(seq, "age")
		}
		if b.Count > 0 {
			want(row.Seq-b.Count, "count")
		}
		if b.Bytes > 0 && row.Bytes > b.Bytes {
			seq, err := m.excess(r, row, row.Bytes-b.Bytes)
			if err != nil {
				return nil, 0, err
			}
			want(seq, "bytes")
		}
		if wants > k.least {
			pending++
		}
		if k.bytes, err = sizeOf(r, row.Dropped, k.to); err != nil {
			return nil, 0, err
		}
		all = append(all, k)
	}
	more, err := m.planHost(all, b)
	if err != nil {
		return nil, 0, err
	}
	pending += more
	for _, k := range all {
		if k.to > k.row.Dropped {
			out = append(out, Dropping{Origin: k.r.Origin, RoomID: k.r.RoomID, URL: m.RoomURL(k.r.Origin, k.r.RoomID), From: k.row.Dropped + 1, To: k.to,
				Records: k.to - k.row.Dropped, Bytes: k.bytes, Rule: k.rule, r: k.r})
		}
	}
	return out, pending, nil
}

// planHost adds what goes for the sake of the host's bounds: of the rooms whose
// newest record is the oldest first.
func (m *Mirror) planHost(all []*kept, b Retention) (pending int64, err error) {
	var count, bytes int64
	for _, k := range all {
		count += k.row.Seq - k.to
		bytes += k.row.Bytes - k.bytes
	}
	slices.SortFunc(all, func(x, y *kept) int { return cmp.Or(cmp.Compare(x.row.At, y.row.At), cmp.Compare(x.r.ID, y.r.ID)) })
	for _, k := range all {
		overCount, overBytes := int64(0), int64(0)
		if b.HostCount > 0 {
			overCount = max(0, count-b.HostCount)
		}
		if b.HostBytes > 0 {
			overBytes = max(0, bytes-b.HostBytes)
		}
		if overCount == 0 && overBytes == 0 {
			break
		}
		seq, rule := k.to+overCount, "host_count"
		if overBytes > 0 {
			at, err := m.excess(k.r, k.row, k.bytes+overBytes)
			if err != nil {
				return pending, err
			}
			if at > seq {
				seq, rule = at, "host_bytes"
			}
		}
		if seq = min(seq, k.row.Seq); seq > k.least {
			pending++
			seq = k.least
		}
		if seq <= k.to {
			continue
		}
		freed, err := sizeOf(k.r, k.row.Dropped, seq)
		if err != nil {
			return pending, err
		}
		count, bytes = count-(seq-k.to), bytes-(freed-k.bytes)
		k.to, k.bytes, k.rule = seq, freed, rule
	}
	return pending, nil
}

// awaits tells whether an attestation of ours is still to be made: of a room that
// goes on, or that we have not attested yet.
func (m *Mirror) awaits(r *replica.Replica, row replica.Row) bool {
	if m.o.Pending == nil {
		return false
	}
	return row.State != replica.Complete || m.o.Pending(r)
}

// before is the last seq whose records, all up to it, were received before a time,
// as far as received_at grows in the log, as it must.
func before(r *replica.Replica, at int64) (int64, error) {
	row := r.Row()
	lo, hi := row.Dropped, row.Seq+1 // lo is before, hi is not
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		raw, ok, err := r.Record(mid)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, fmt.Errorf("room %s of %s: no record at seq %d", r.RoomID, r.Origin, mid)
		}
		v, err := adp.ScanDepth(raw, adp.RecordDepth)
		if err != nil {
			return 0, err
		}
		if t, _ := v.Get("received_at").Int(); t < at {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// excess is the seq up to which the records of a room that are kept have at least
// so many bytes, or all of them.
func (m *Mirror) excess(r *replica.Replica, row replica.Row, bytes int64) (seq int64, err error) {
	if seq = row.Dropped; bytes <= 0 {
		return seq, nil
	}
	err = r.Scan(row.Dropped, row.Seq, func(at int64, raw []byte) error {
		seq = at
		if bytes -= int64(len(raw)); bytes <= 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return seq, err
}

// sizeOf is how many bytes the records behind a seq, up to another, have.
func sizeOf(r *replica.Replica, after, to int64) (n int64, err error) {
	if to <= after {
		return 0, nil
	}
	err = r.Scan(after, to, func(_ int64, raw []byte) error {
		n += int64(len(raw))
		return nil
	})
	return n, err
}

var errEnough = errors.New("enough")
