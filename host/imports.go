package host

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// Bounds of what one event makes us fetch. The batch that keeps the packs has to
// fit into one commit beside the room's snapshot.
const (
	packsAtOnce     = 8
	packBytesAtOnce = 4 << 20
)

// imports are the external packs of an event. What had to be fetched goes into
// the commit of the event: a refused write stores nothing.
type imports struct {
	packs   map[string]*types.Pack // by digest
	fetched map[string][]byte
}

func (i imports) keep(b *store.Batch) {
	for digest, raw := range i.fetched {
		b.Put(store.Pack(digest), raw)
	}
}

// imports gets the external packs that an event needs: from the store, else
// through the guarded client.
func (h *Host) imports(ctx context.Context, e *adp.Envelope) (imports, error) {
	have, missing := h.set.PacksFor(room.PacksNeeded(e))
	in := imports{have, map[string][]byte{}}
	if len(missing) > packsAtOnce {
		return in, adp.Errorf(adp.PackUnavailable, "the event imports %d external packs that this host does not have; it fetches %d at most at once", len(missing), packsAtOnce)
	}
	total := 0
	for _, ref := range missing {
		if in.fetched[ref.Digest] != nil {
			continue
		}
		raw, p, err := h.fetchPack(ctx, ref)
		if err != nil {
			return in, err
		}
		if total += len(raw); total > packBytesAtOnce {
			return in, adp.Errorf(adp.PackUnavailable, "the external packs of one event may have %d bytes together", packBytesAtOnce)
		}
		if in.packs == nil {
			in.packs = map[string]*types.Pack{}
		}
		in.packs[ref.Digest], in.fetched[ref.Digest] = p, raw
	}
	return in, nil
}

// mayImport tells whether it is worth fetching packs for an event: for those
// who may define types, in a room that goes on. The state machine decides.
func (h *Host) mayImport(ctx context.Context, r *replica.Replica, e *adp.Envelope) (ok bool, err error) {
	if len(room.PacksNeeded(e)) == 0 {
		return false, nil
	}
	err = r.View(ctx, func(s *room.State) {
		status := s.StatusAt(h.now())
		ok = s.MayManage(e.Actor) && (status == room.Scheduled || status == room.Active)
	})
	return ok, err
}

// Bounds of what all events make us fetch: anybody has a key, and an event that is
// refused for its pack can be sent again. Nobody is to be flooded by means of this host,
// and who answers slowly holds few of its connections.
const (
	fetchesAtOnce = 16
	fetchesPerSec = 5
	fetchesBurst  = 64
	failureKept   = 30_000 // ms for which a pack that was not to be had is not asked for again
	failuresKept  = 4096
)

// fetches keeps these bounds.
type fetches struct {
	seats chan struct{}
	pace  *rate.Limiter

	mu     sync.Mutex
	failed map[[sha256.Size]byte]int64 // by failure, until when, Unix ms
}

func newFetches() fetches {
	return fetches{seats: make(chan struct{}, fetchesAtOnce), pace: rate.NewLimiter(fetchesPerSec, fetchesBurst), failed: map[[sha256.Size]byte]int64{}}
}

// failure names a pack, whose URI may be long.
func failure(ref types.PackRef) [sha256.Size]byte {
	return sha256.Sum256([]byte(ref.Digest + " " + ref.URI))
}

// take lets one fetch pass, or says why not.
func (f *fetches) take(ref types.PackRef, now int64) (leave func(), err error) {
	f.mu.Lock()
	until := f.failed[failure(ref)]
	f.mu.Unlock()
	if until > now {
		return nil, adp.Errorf(adp.PackUnavailable, "the pack %.200q was not to be had a moment ago; it is asked for again in %d s", ref.URI, (until-now+999)/1000)
	}
	busy := adp.Errorf(adp.RateLimited, "this host is fetching as many type packs as it may; send the event again in a while").With("retry_after", 5)
	select {
	case f.seats <- struct{}{}:
	default:
		return nil, busy
	}
	if !f.pace.AllowN(time.UnixMilli(now), 1) {
		<-f.seats
		return nil, busy
	}
	return func() { <-f.seats }, nil
}

// fail remembers a pack that was not to be had.
func (f *fetches) fail(ref types.PackRef, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) >= failuresKept {
		clear(f.failed) // the pace bounds how often
	}
	f.failed[failure(ref)] = now + failureKept
}

// fetchPack gets one external pack from where it is said to be, and checks it.
func (h *Host) fetchPack(ctx context.Context, ref types.PackRef) ([]byte, *types.Pack, error) {
	leave, err := h.fetches.take(ref, h.now())
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	raw, err := h.opt.Packs.FetchPack(ctx, ref.URI)
	if err != nil {
		err = adp.Errorf(adp.PackUnavailable, "the pack %.200q could not be fetched: %v", ref.URI, err)
	} else {
		err = types.Digest(ref.Digest, raw)
	}
	var p *types.Pack
	if err == nil {
		if p, err = types.ParsePack(raw); err != nil {
			err = adp.Errorf(adp.PackUnavailable, "%.200q is not a pack document: %v", ref.URI, err)
		}
	}
	if err != nil && ctx.Err() == nil { // else the caller has gone, and nothing is known of the pack
		h.fetches.fail(ref, h.now())
	}
	return raw, p, err
}
