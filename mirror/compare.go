package mirror

import (
	"cmp"
	"context"
	"time"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// roomView is what we know of a public room of a host beside its replica. It is
// guarded by host.mu; a job owns the room while busy.
type roomView struct {
	id       string
	r        *replica.Replica // the one that the host tells now; nil before the first record
	busy     bool
	again    bool       // the operator asked for a retry while it was busy
	task     task       // what it stands in line for, see line.go
	as       listedRoom // as it was listed then
	signed   bool       // a key of the host signed for it
	reached  int64      // seq after the last look
	failedAt int64      // of the last look that failed, Unix ms
	tried    string     // sig of the last look
	stuck    bool       // it ended with a conclusion
	problem  string
	unsigned string // what others show of it and nobody has signed for, see hearsay.go
	failures int
	next     int64 // not before, Unix ms
	look     int64 // while it is not listed: not looked up before
	retryAt  int64 // when a stuck room is looked at again though nothing changed
	limit    int   // records a page
	archive  int   // looks for an archive that was not there
	listed   int64 // seq as listed last
	heeded   bool  // its contract was looked at for a wish about mirrors
	recheck  bool  // it may have taken that wish back
	mendAt   int64 // not before is asked for originals that the host withheld, see mend.go; 0: not decided
	mendFrom int64 // seq behind which it is

	// The relay, see feed.go and waiting.go.
	feed      []*news   // news that nobody has looked at yet, in order
	feedRecs  int       // records in it
	feedBytes int64     // of them
	queued    bool      // it is in host.feeding
	fedAt     int64     // when the relay last brought records, Unix ms
	held      []checked // records behind what is stored that nobody signed for
	heldBytes int64
	toKeep    []byte // a signed head that is newer than the stored one
	odd       string // hash of a signed head that is not of our chain, and was told
	askAt     int64  // nobody else is asked before, Unix ms

	// The live stream, see observer.go.
	streaming   bool
	streamFails int           // in a row
	streamAt    int64         // no stream before, Unix ms
	freed       chan struct{} // closed when the room is no longer busy; nil when nobody waits
}

// trouble says why the room cannot be followed now; what others show of it matters only
// while the host cannot be asked. host.mu is held.
func (v *roomView) trouble(h *host) string {
	if v.problem == "" && h.down.Load() {
		return v.unsigned
	}
	return v.problem
}

// rowEvery is how often the store learns that nothing is new at a host.
const rowEvery = time.Minute

// compare calls every room into line that is not as the host lists it. news tells
// whether one came that has shown records before, or one of which nothing is known
// while no such room waited: what a host merely claims does not make us ask it hotly.
func (h *host) compare(ctx context.Context, listed listing, began int64) (news bool, err error) {
	now := h.m.o.Now()
	rooms, synced := listed.rooms, listed.whole
	if err := h.settleListed(listed, began); err != nil {
		return false, err
	}
	var work []func()
	h.mu.Lock()
	waiting, crowded := h.line.n > 0, 0
	for id, l := range rooms {
		if l.visibility != room.Public {
			continue
		}
		v := h.rooms[id]
		if _, stopped := h.m.stopped(h.origin, id); stopped || l.optOut && (v == nil || v.r == nil) {
			if !h.mayReturn(v, l) || v.busy {
				continue
			}
			v.recheck = true
		} else if v != nil && !v.busy { // a job owns a busy room
			v.recheck = false
		}
		if v == nil {
			if len(h.rooms) >= h.m.o.RoomsPerHost && crowded == 0 {
				h.makeRoom(rooms)
			}
			if len(h.rooms) >= h.m.o.RoomsPerHost {
				crowded++
				continue
			}
			v = &roomView{id: id, limit: pageRecords}
			h.rooms[id] = v
		}
		v.listed = l.seq
		need, fresh, same := v.needs(l, now, began)
		synced = synced && same
		if need {
			called := h.standInLine(ctx, v, syncTask, l)
			news = news || called && fresh && (v.r != nil || !waiting)
		} else if same && v.r != nil && h.mends(v, now) {
			h.standInLine(ctx, v, mendTask, l)
		}
		if same && !v.busy && h.wantsStream(v, l, now) {
			work = append(work, func() { h.observe(v) })
		}
	}
	if listed.whole || listed.crowded {
		for id, v := range h.rooms {
			if l, ok := rooms[id]; ok && l.visibility == room.Public || v.busy || v.task != noTask || len(v.feed) > 0 {
				continue
			}
			if _, stopped := h.m.stopped(h.origin, id); stopped {
				continue
			}
			if v.r == nil {
				delete(h.rooms, id)
				continue
			}
			if now >= max(v.next, v.look) && v.r.Row().State != replica.Complete {
				h.standInLine(ctx, v, lookUpTask, listedRoom{})
			}
		}
	}
	lastSync := h.row.SyncedAt
	h.crowd = listed.crowded
	h.mu.Unlock()
	if crowded > 0 {
		listed.note = cmp.Or(listed.note, h.crowded())
	}
	h.remark(listed.note)
	for _, do := range work {
		do()
	}
	if synced && now-lastSync >= rowEvery.Milliseconds() {
		if err := h.update(func(row *hostRow) { row.SyncedAt = now }); err != nil {
			return news, local(err)
		}
	}
	return news, nil
}

// makeRoom forgets rooms of which nothing was seen and that the host does not list
// now. host.mu is held.
func (h *host) makeRoom(listed map[string]listedRoom) {
	gone := map[*roomView]bool{}
	for id, v := range h.rooms {
		if _, ok := listed[id]; !ok && v.r == nil && !v.busy && len(v.feed) == 0 {
			gone[v] = true
			delete(h.rooms, id)
		}
	}
	h.line.drop(gone)
}

// needs tells whether a room wants work, whether the host shows something new,
// and whether the host and we agree. host.mu is held.
func (v *roomView) needs(l listedRoom, now, began int64) (need, fresh, same bool) {
	changed := l.sig() != v.tried
	waits := v.busy || now < v.next || v.stuck && !changed && now < v.retryAt
	if v.r == nil {
		return !waits, !waits && changed, false
	}
	row := v.r.Row()
	if row.Seq > l.seq && l.seq > 0 && v.fedAt >= began { // the relay was faster than the list
		return false, false, true
	}
	if row.Seq == 0 || row.Seq != l.seq || row.Hash != l.hash {
		return !waits, !waits && changed, false
	}
	if row.Verdict != replica.Forked {
		v.r.SyncedAt.Store(now)
	}
	dirty := row.Verdict == replica.Broken || row.State != replica.Following && row.State != replica.Complete || row.Verdict == "" && row.Reason != ""
	pending := l.over() && row.State != replica.Complete
	return !waits && (dirty || pending), !waits && pending, true
}
