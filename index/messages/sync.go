package messages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/witan-adp/witan/index/text"
)

// note is what the store remembers of a room: what of it is in the index.
type note struct {
	Genesis  string `json:"genesis"`
	Seq      int64  `json:"seq"` // the records up to it were read
	Dropped  int64  `json:"dropped,omitempty"`
	Withheld string `json:"withheld,omitempty"`
	Redacted int64  `json:"redacted,omitempty"`
}

func noteName(id uint64) string { return "room " + strconv.FormatUint(id, 10) }

// floorName is the note of a time, Unix ms: what was received up to it was let go.
const floorName = "floor"

// compactName is the note of a takedown after which the files were not written anew yet.
const compactName = "compact"

const (
	batchLen   = 500
	batchBytes = 4 << 20
	gather     = 200 * time.Millisecond
	retryAfter = 10 * time.Second
	// compactEvery is the least time between two times that all files are written anew, since
	// strangers can have their rooms taken down.
	compactEvery = time.Minute
)

// Run follows the rooms until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	tick := time.NewTicker(compactEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-x.wake:
		case <-tick.C:
			if !x.mustCompact() {
				continue
			}
		}
		pause := gather
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			err := x.flush(ctx, false)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil
			}
			x.o.Log.Error("messages could not be written to the text index; what is new is not searched", "error", err)
			pause = retryAfter
		}
	}
}

func (x *Index) mustCompact() bool {
	x.syncing.Lock()
	defer x.syncing.Unlock()
	return x.compact
}

// Flush brings the index up to date with all rooms that changed, and takes what was
// taken down out of its files.
func (x *Index) Flush(ctx context.Context) error { return x.flush(ctx, true) }

func (x *Index) flush(ctx context.Context, force bool) error {
	x.syncing.Lock()
	defer x.syncing.Unlock()
	var failed error
	tried := map[uint64]struct{}{}
	for {
		id, ok := x.next(tried)
		if !ok {
			break
		}
		if err := x.follow(ctx, id); err != nil {
			if ctx.Err() != nil {
				return err
			}
			// one bad room does not stop another
			failed = cmp.Or(failed, fmt.Errorf("room number %d: %w", id, err))
			tried[id] = struct{}{}
			x.mu.Lock()
			x.dirty[id] = struct{}{}
			x.mu.Unlock()
		}
	}
	if err := x.trim(); err != nil {
		failed = cmp.Or(failed, err)
	}
	if x.compact && (force || time.Since(x.compacted) >= compactEvery) {
		if err := x.o.Store.Compact(ctx); err != nil {
			return cmp.Or(failed, err)
		}
		if err := x.o.Store.Apply(text.Change{Notes: map[string]string{compactName: ""}}); err != nil {
			return cmp.Or(failed, err)
		}
		x.compact, x.compacted = false, time.Now()
	}
	return failed
}

func (x *Index) next(but map[uint64]struct{}) (uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.dirty {
		if _, not := but[id]; !not {
			delete(x.dirty, id)
			return id, true
		}
	}
	return 0, false
}

// follow reads what one room has that the index has not, and lets go of what readers do
// not get any more.
func (x *Index) follow(ctx context.Context, id uint64) error {
	raw, err := x.o.Store.Note(noteName(id))
	if err != nil {
		return err
	}
	var n note
	if raw != "" {
		if err := json.Unmarshal([]byte(raw), &n); err != nil {
			return err
		}
	}
	r, ok, err := x.o.Look(ctx, id)
	if err != nil {
		return err
	}
	if !ok || !r.Shown {
		return x.takeDown(ctx, id)
	}
	if n.Genesis != r.Genesis || n.Withheld != r.Withheld || n.Redacted > r.Redacted {
		// another room, or some records are withheld or shown again: all is read anew
		if raw != "" {
			if err := x.takeDown(ctx, id); err != nil {
				return err
			}
		}
		n = note{}
	}
	n.Genesis, n.Withheld, n.Redacted = r.Genesis, r.Withheld, r.Redacted
	if r.Dropped > n.Dropped {
		if n.Seq > 0 {
			all, err := x.held(ctx, id, r.Dropped)
			if err == nil {
				err = x.o.Store.Apply(text.Change{Delete: all})
			}
			if err != nil {
				return err
			}
		}
		n.Dropped = r.Dropped
	}
	floor, err := x.floor()
	if err != nil {
		return err
	}
	if r.Last <= max(n.Seq, n.Dropped) {
		return x.keep(id, n, nil)
	}
	var batch []text.Document
	bytes := 0
	flush := func() error {
		err := x.keep(id, n, batch)
		batch, bytes = batch[:0], 0
		return err
	}
	err = x.o.Scan(id, max(n.Seq, n.Dropped), r.Last, func(seq int64, raw []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		m, says, err := read(id, raw)
		if err != nil {
			return fmt.Errorf("seq %d: %w", seq, err)
		}
		if n.Seq = seq; says && m.at > floor {
			batch = append(batch, m.document(r.Origin))
			bytes += len(m.text)
		}
		if len(batch) >= batchLen || bytes >= batchBytes {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

func (x *Index) keep(id uint64, n note, put []text.Document) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return x.o.Store.Apply(text.Change{Put: put, Notes: map[string]string{noteName(id): string(raw)}})
}

// takeDown takes all messages of a room out of the index, and their words out of its
// files.
func (x *Index) takeDown(ctx context.Context, id uint64) error {
	all, err := x.held(ctx, id, math.MaxInt64)
	if err != nil {
		return err
	}
	notes := map[string]string{noteName(id): ""}
	if len(all) > 0 { // else the files stay: rooms that are not shown change, too
		x.compact, notes[compactName] = true, "1"
	}
	return x.o.Store.Apply(text.Change{Delete: all, Notes: notes})
}

// held are the messages of a room up to a seq that are in the index.
func (x *Index) held(ctx context.Context, id uint64, upTo int64) (names []string, err error) {
	all, _, err := x.o.Store.Find(ctx, []string{roomTerm(id)}, math.MaxInt)
	return slices.DeleteFunc(all, func(name string) bool {
		k, ok := parseKey(name)
		return ok && k.seq > upTo
	}), err
}

func (x *Index) floor() (int64, error) {
	raw, err := x.o.Store.Note(floorName)
	if err != nil || raw == "" {
		return math.MinInt64, err
	}
	return strconv.ParseInt(raw, 10, 64)
}

// trim lets go of the oldest messages above the bound.
func (x *Index) trim() error {
	have, err := x.o.Store.Len()
	if err != nil || have <= x.o.Most {
		return err
	}
	days, err := x.o.Store.Terms("d:", "d;")
	if err != nil {
		return err
	}
	excess := have - x.o.Most
	for _, d := range days {
		names, _, err := x.o.Store.Find(context.Background(), []string{d.Term}, math.MaxInt)
		if err != nil {
			return err
		}
		slices.Sort(names) // the oldest first
		names = names[:min(int64(len(names)), excess)]
		if len(names) == 0 {
			continue
		}
		last, _ := parseKey(names[len(names)-1])
		if err := x.o.Store.Apply(text.Change{Delete: names, Notes: map[string]string{floorName: strconv.FormatInt(last.at, 10)}}); err != nil {
			return err
		}
		if excess -= int64(len(names)); excess == 0 {
			return nil
		}
	}
	return nil
}

// Rebuild drops the index and reads all rooms again, whose numbers are given. It tells
// how many messages there are then.
func (x *Index) Rebuild(ctx context.Context, rooms []uint64) (messages int64, err error) {
	x.syncing.Lock()
	err = x.o.Store.Reset()
	x.syncing.Unlock()
	if err != nil {
		return 0, err
	}
	for _, id := range rooms {
		x.Changed(id)
	}
	if err := x.Flush(ctx); err != nil {
		return 0, err
	}
	return x.o.Store.Len()
}
