package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

const (
	pageRecords = 1000
	maxPage     = 32 << 20
	maxGeneses  = 8 // replicas of one room ID
)

func (h *host) replicaOf(v *roomView) *replica.Replica {
	h.mu.Lock()
	defer h.mu.Unlock()
	return v.r
}

// switchTo makes another replica the one that the host tells now; nil starts one.
func (h *host) switchTo(v *roomView, r *replica.Replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v.r, v.reached = r, 0
	if r != nil { // what was held before is no progress
		v.reached = r.Row().Seq
	}
}

// sync brings a room to where the host lists it, or as far as this turn goes:
// as long as nobody waits for the slot, to the end. While a page is judged and
// stored, the next one is read and its signatures are checked.
func (h *host) sync(ctx context.Context, v *roomView, l listedRoom) error {
	r := h.replicaOf(v)
	after := int64(0)
	if r != nil {
		if after = r.Row().Seq; l.seq > 0 && l.seq <= after {
			return h.compareHeld(ctx, v, r, l)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	caughtUp := false
	next := h.ahead(ctx, v, after)
	for pages, began := 0, time.Now(); h.goesOn(pages, began); pages++ {
		page := <-next
		if page.err != nil {
			return page.err
		}
		if len(page.recs) == 0 {
			caughtUp = true
			break
		}
		last := page.recs[len(page.recs)-1]
		follows := last.rec != nil && last.rec.Seq > page.after
		if follows && (l.seq == 0 || last.rec.Seq < l.seq) {
			next = h.ahead(ctx, v, last.rec.Seq)
		} else {
			next = nil
		}
		n, bad, err := h.take(ctx, v, page.recs)
		if r = h.replicaOf(v); n > 0 && r != nil { // nil: forgotten by the operator meanwhile
			h.m.o.Changed(r)
			poke(h.stir)
		}
		switch {
		case err != nil:
			return err
		case bad != nil:
			h.m.metrics.records.WithLabelValues("refused").Inc()
			return h.border(ctx, v, r, bad)
		case n == 0 && !follows: // else the relay was faster
			return fmt.Errorf("the host repeats a page of events behind seq %d", page.after)
		}
		if next == nil {
			caughtUp = true
			break
		}
	}
	switch {
	case r == nil:
		return fmt.Errorf("the host lists the room and serves no records of it")
	case !caughtUp:
		poke(h.stir)
		return nil
	}
	switch row := r.Row(); {
	case row.Seq < l.seq:
		return fmt.Errorf("the host lists seq %d and serves nothing behind seq %d", l.seq, row.Seq)
	case row.Seq == l.seq && row.Hash != l.hash:
		return h.compareHeld(ctx, v, r, l)
	}
	return h.settle(ctx, v, r, l)
}

// readPage is a page of events whose records have been checked.
type readPage struct {
	after int64
	recs  []checked
	err   error
}

// ahead reads and checks the records behind a seq.
func (h *host) ahead(ctx context.Context, v *roomView, after int64) <-chan readPage {
	out := make(chan readPage, 1)
	h.jobs.Go(func() {
		items, err := h.page(ctx, v, after)
		out <- readPage{after, h.m.checkPage(items), err}
	})
	return out
}

// page reads the records behind a seq. A page that is too large is asked for
// again with fewer records.
func (h *host) page(ctx context.Context, v *roomView, after int64) ([]element, error) {
	most, maxBytes := h.m.share()
	h.mu.Lock()
	limit := min(v.limit, most)
	h.mu.Unlock()
	for {
		if limit == 1 { // it cannot be less
			maxBytes = h.m.pageBytes
		}
		body, err := h.eventsUpTo(ctx, v.id, after, limit, maxBytes)
		if fetch.KindOf(err) == fetch.TooLarge && limit > 1 {
			limit = max(1, limit/10)
			continue
		}
		h.mu.Lock()
		v.limit = min(limit*2, pageRecords)
		h.mu.Unlock()
		return body, err
	}
}

func (h *host) events(ctx context.Context, id string, after int64, limit int) ([]element, error) {
	return h.eventsUpTo(ctx, id, after, limit, h.m.pageBytes)
}

func (h *host) eventsUpTo(ctx context.Context, id string, after int64, limit int, maxBytes int64) ([]element, error) {
	resp, err := h.get(ctx, fmt.Sprintf("%s/rooms/%s/events?after_seq=%d&limit=%d", h.api(), id, after, limit), maxBytes, apiType)
	if err != nil {
		return nil, err
	}
	items, err := split(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the events behind seq %d: %w", after, err)
	}
	return items, nil
}

// checked is one element of a page: a record whose hashes and signature are
// right, or why it is none.
type checked struct {
	raw []byte
	rec *adp.Record
	err error
}

func checkOne(e element) checked { return parseOne(e).verified() }

// parseOne is checkOne without the signature.
func parseOne(e element) checked {
	if e.err != nil {
		return checked{raw: e.raw, err: e.err}
	}
	c := checked{raw: e.raw}
	v, err := adp.ScanDepth(e.raw, adp.RecordDepth)
	if err == nil {
		c.rec, err = adp.ParseRecord(v)
	}
	if err != nil {
		c.rec, c.err = nil, err
	}
	return c
}

func (c checked) verified() checked {
	if c.err != nil {
		return c
	}
	if err := c.rec.CheckSignature(); err != nil {
		c.rec, c.err = nil, err
	}
	return c
}

// check verifies the records of a page.
func (m *Mirror) check(page []element) []checked {
	out := make([]checked, len(page))
	m.parallel(len(page), func(i int) { out[i] = checkOne(page[i]) })
	return out
}

// verify checks the signatures of records that are parsed.
func (m *Mirror) verify(page []checked) []checked {
	out := make([]checked, len(page))
	m.parallel(len(page), func(i int) { out[i] = page[i].verified() })
	return out
}

// parallel calls fn for 0 … n-1 on all cores, which all rooms share.
func (m *Mirror) parallel(n int, fn func(i int)) {
	const chunk = 32
	var wg sync.WaitGroup
	for from := 0; from < n; from += chunk {
		m.cores <- struct{}{}
		wg.Go(func() {
			defer func() { <-m.cores }()
			for i := from; i < min(from+chunk, n); i++ {
				fn(i)
			}
		})
	}
	wg.Wait()
}

// badRecord is an element that cannot stand at its place.
type badRecord struct {
	seq int64
	raw []byte
	err error
}

// take judges and stores the records of a page, in order, up to the first that
// cannot stand there. n counts what was stored.
func (h *host) take(ctx context.Context, v *roomView, page []checked) (n int, bad *badRecord, err error) {
	if reason, stopped := h.m.stopped(h.origin, v.id); stopped && !(v.recheck && takesBack(page)) { // perhaps since the look began
		return 0, nil, stuck(reason)
	}
	r := h.replicaOf(v)
	packs, err := h.fetchPacks(ctx, page)
	switch {
	case errors.Is(err, errFull) && r != nil:
		return 0, nil, h.full(r)
	case errors.Is(err, errFull):
		return 0, nil, stuck("what is allowed for this host (mirror.bytes_per_host) is used up")
	case err != nil:
		return 0, nil, err
	}
	held := int64(0)
	if r != nil {
		held = r.Row().Bytes
	} else {
		if r, bad, err = h.create(v, page[0], packs); bad != nil || err != nil {
			return 0, bad, err
		}
		h.switchTo(v, r)
		if _, ok := h.m.o.Replicas.GetKey(r.Key); !ok { // forgotten by the operator meanwhile
			h.switchTo(v, nil)
			return 0, nil, stuck("the room was forgotten while it was copied")
		}
		n, page = 1, page[1:]
	}
	before := r.Row()
	more, bad, err := h.appendAll(r, page, packs, h.space())
	if err == nil && before.State != "" {
		before.State = r.Row().State // what came is judged here, and no more
		h.m.moved(before, r.Row())
	}
	copied := r.Row().Bytes - held
	h.progress.add(int64(n+more), copied, time.Now())
	h.m.metrics.bytes.Add(float64(max(0, copied)))
	if n+more > 0 && err == nil {
		err = h.heed(ctx, v, r, page)
	}
	return n + more, bad, err
}

// create makes the replica of a room from its first record.
func (h *host) create(v *roomView, c checked, packs map[string]*types.Pack) (*replica.Replica, *badRecord, error) {
	if c.err == nil {
		c.err = c.rec.Follows(v.id, 0, "")
	}
	if c.err != nil {
		return nil, &badRecord{1, c.raw, c.err}, nil
	}
	if r, ok := h.m.o.Replicas.GetKey(replica.Key{Origin: h.origin, RoomID: v.id, Genesis: c.rec.Hash}); ok {
		return r, nil, nil
	}
	verdict, ch, err := room.New(v.id).Judge(c.rec, room.Context{Chain: &room.MemoryChain{}, Packs: packs})
	if err != nil {
		return nil, &badRecord{1, c.raw, err}, nil
	}
	if size := len(c.rec.JSON()); size > maxRecord {
		return nil, nil, stuck(tooLarge(1, size))
	}
	if ch.Contract == nil || ch.Contract.Visibility != room.Public {
		return nil, nil, stuck("the host lists the room as public, its first record says that it is not")
	}
	if old, ok := h.m.o.Replicas.Get(h.origin, v.id); ok {
		if n := h.geneses(v.id); n >= maxGeneses {
			return nil, nil, stuck(fmt.Sprintf("the host has shown %d different rooms under this ID; no more are kept", n))
		}
		reason := "seq 1: the host shows another first record under the same room ID"
		if err := h.m.observe(KindGenesis, old, 1, reason, side([]*adp.Record{c.rec})); err != nil {
			return nil, nil, err
		}
	}
	row := replica.Row{State: replica.Following, CopiedAt: h.m.o.Now()}
	h.m.count(&row, verdict)
	done := make(chan error, 1)
	var r *replica.Replica
	reason, stopped := h.m.keepings.unless(h.origin, v.id, func() {
		r, err = h.m.o.Replicas.Create(h.origin, c.rec, ch, row, nil, func(err error) { done <- err })
	})
	if stopped {
		return nil, nil, stuck(reason)
	}
	if err == nil {
		err = <-done
	}
	if err != nil {
		return nil, nil, local(err)
	}
	return r, nil, nil
}

func (h *host) geneses(id string) (n int) {
	for _, r := range h.m.o.Replicas.Of(h.origin) {
		if r.RoomID == id {
			n++
		}
	}
	return n
}

// count adds what the replay found about a record to a row, and to the metrics.
func (m *Mirror) count(row *replica.Row, v room.Verdict) {
	m.metrics.records.WithLabelValues(string(v.Outcome)).Inc()
	countInto(row, v)
}

// countInto adds what the replay found about a record to a row (federation.md,
// Mirroring a host, 4).
func countInto(row *replica.Row, v room.Verdict) {
	switch v.Outcome {
	case room.Violation:
		rules := maps.Clone(row.Rules)
		if rules == nil {
			rules = map[adp.Code]int64{}
		}
		rules[v.Rule]++
		row.Violations, row.Rules = row.Violations+1, rules
	case room.Unverifiable:
		row.Unverifiable++
	}
}

var (
	errFull    = errors.New("full")
	errArchive = errors.New("archived")
	errLarge   = errors.New("too large")
)

// maxRecord bounds a record in bytes: what the store takes at once has to hold it beside
// the room's snapshot. Hosts allow far less.
const maxRecord = 4 << 20

func tooLarge(seq int64, size int) string {
	return fmt.Sprintf("seq %d: the record has %d bytes; this mirror takes at most %d", seq, size, maxRecord)
}

// appendAll stores records in the replica's turn and waits for the last commit.
// space is how many bytes the host may still take.
func (h *host) appendAll(r *replica.Replica, page []checked, packs map[string]*types.Pack, space int64) (n int, bad *badRecord, err error) {
	done := make(chan error, len(page))
	large := ""
	err = r.Take(func(t *replica.Turn) error {
		for _, c := range page {
			row := t.Row()
			if c.rec != nil && c.rec.Seq <= row.Seq {
				if held, ok := t.HashAt(c.rec.Seq); !ok || held != c.rec.Hash || c.rec.RoomID != r.RoomID {
					bad = &badRecord{c.rec.Seq, c.raw, errors.New("the host shows another record here than before")}
					return nil
				}
				continue // seen already
			}
			if c.err == nil {
				c.err = c.rec.Follows(r.RoomID, row.Seq, row.Hash)
			}
			if c.err != nil {
				bad = &badRecord{row.Seq + 1, c.raw, c.err}
				return nil
			}
			switch size := int64(len(c.rec.JSON())); {
			case row.Archived:
				bad = &badRecord{c.rec.Seq, c.raw, nil}
				return errArchive
			case size > maxRecord:
				large = tooLarge(c.rec.Seq, int(size))
				return errLarge
			case row.Seq >= h.m.o.RecordsPerRoom || size > space:
				return errFull
			default:
				space -= size
			}
			verdict, ch, err := t.State.Judge(c.rec, room.Context{Chain: t, Packs: packs})
			if err != nil {
				bad = &badRecord{c.rec.Seq, c.raw, err}
				return nil
			}
			h.m.count(row, verdict)
			clearRow(row)
			if err := t.Append(c.rec, ch, nil, func(err error) { done <- err }); err != nil {
				return local(err)
			}
			n++
		}
		return nil
	})
	var lost error
	for range n {
		if e := <-done; e != nil && lost == nil {
			lost = e
		}
	}
	switch {
	case lost != nil:
		return 0, nil, local(lost)
	case errors.Is(err, errFull):
		return n, nil, h.full(r)
	case errors.Is(err, errLarge):
		return n, nil, h.halt(r, replica.Paused, large)
	case errors.Is(err, errArchive):
		return n, nil, h.grown(r, bad)
	case err != nil && !isLocal(err):
		err = local(err)
	}
	return n, bad, err
}

// full stops a room at a limit of the operator.
func (h *host) full(r *replica.Replica) error {
	reason := fmt.Sprintf("seq %d: what is allowed for this room (mirror.records_per_room) or host (mirror.bytes_per_host) is used up", r.Row().Seq+1)
	return h.halt(r, replica.Paused, reason)
}

// halt stops a room in a state, for a reason that a verdict stands above.
func (h *host) halt(r *replica.Replica, state, reason string) error {
	err := h.m.save(r, nil, func(row *replica.Row) bool {
		if row.State == state && row.Reason == reason {
			return false
		}
		row.State = state
		if row.Verdict == "" {
			row.Reason = reason
		}
		return true
	})
	if err != nil {
		return err
	}
	return stuck(reason)
}

// settle takes back what no longer holds now that the host and we agree, and
// goes on to the archive of a room that is over.
func (h *host) settle(ctx context.Context, v *roomView, r *replica.Replica, l listedRoom) error {
	r.SyncedAt.Store(h.m.o.Now())
	if err := h.m.save(r, nil, clearRow); err != nil {
		return err
	}
	if l.over() && r.Row().State != replica.Complete {
		return h.complete(ctx, v, r)
	}
	return nil
}
