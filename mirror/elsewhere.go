package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// Rooms of a host that cannot be asked are read from peers that mirror it, and from
// the mirrors that the operator named for it (via). What these say is hearsay: a
// record counts only as far as a head or a statement of a key that is bound to the
// host covers it (federation.md, Origins). The chain of hashes leads back from what
// is signed, so that one signature covers all before it.

const (
	peersAsked    = 4   // for one room, one after the other
	elsewhereEach = 256 // rooms of one host that are looked for at each look that fails
)

// source gives records behind a seq, at most limit.
type source struct {
	name string
	read func(ctx context.Context, k replica.Key, after int64, limit int) ([]element, error)
}

// sources lists whom to ask for a room, best first.
func (h *host) sources(from string) (list []source) {
	if n := h.m.network; n.Request != nil && n.Peers != nil {
		peers := n.Peers()
		rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
		if i := slices.Index(peers, from); i > 0 { // who told us may well have it
			peers[0], peers[i] = peers[i], peers[0]
		}
		for _, p := range peers[:min(len(peers), peersAsked)] {
			list = append(list, source{"peer " + p, func(ctx context.Context, k replica.Key, after int64, limit int) ([]element, error) {
				return h.askPeer(ctx, p, k, after, limit)
			}})
		}
	}
	h.mu.Lock()
	via := h.row.Via
	h.mu.Unlock()
	for _, base := range via {
		list = append(list, source{"via " + base, func(ctx context.Context, k replica.Key, after int64, limit int) ([]element, error) {
			return h.askMirror(ctx, base, k, after, limit)
		}})
	}
	return list
}

// askMirror reads a page of events from another mirror of the host. The mirror is
// another origin, with a pace of its own.
func (h *host) askMirror(ctx context.Context, base string, k replica.Key, after int64, limit int) ([]element, error) {
	if err := h.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	at := fmt.Sprintf("%s/m/%s/v1/rooms/%s/events?after_seq=%d&limit=%d", base, url.PathEscape(fetch.Authority(k.Origin)), k.RoomID, after, limit)
	resp, err := h.m.o.Fetch.Do(ctx, fetch.Request{URL: at, MaxBytes: MaxSyncResponse, ContentType: apiType})
	if err != nil {
		return nil, err
	}
	if resp.Status/100 != 2 {
		return nil, &statusError{path: at, status: resp.Status}
	}
	return split(resp.Body)
}

// viaBase reads the URL of a mirror: an origin, perhaps with a path before /m.
func (m *Mirror) viaBase(raw string) (string, error) {
	u, err := m.o.Fetch.CheckURL(raw)
	if err != nil {
		return "", err
	}
	if u.RawQuery != "" || u.ForceQuery {
		return "", errors.New("it has a query; name the mirror alone")
	}
	return u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"), nil
}

// errNobody: there is nobody else to ask, or nobody had more.
var errNobody = errors.New("nobody else has more of this room that is signed for")

// fromElsewhere brings a room as far as others have it and a bound key has signed
// for it. It answers nil when that is further than before.
func (h *host) fromElsewhere(ctx context.Context, v *roomView, genesis, from string) error {
	now := h.m.o.Now()
	h.mu.Lock()
	waits := now < v.askAt
	h.mu.Unlock()
	if waits {
		return errNotNow
	}
	k := replica.Key{Origin: h.origin, RoomID: v.id, Genesis: genesis}
	var all []error
	sources := h.sources(from)
	if len(sources) == 0 { // the first that comes is asked at once
		return errNobody
	}
	for _, s := range sources {
		ok, err := h.fromSource(ctx, v, k, s)
		if ctx.Err() != nil || isLocal(err) {
			return err
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", s.name, err))
			h.m.log.Debug("a room was not to be had elsewhere", "origin", h.origin, "room", v.id, "source", s.name, "error", err)
		}
		if ok {
			h.m.metrics.relay.WithLabelValues("elsewhere").Inc()
			return nil
		}
	}
	h.mu.Lock()
	v.askAt = now + jitter(h.m.o.PollMin*8).Milliseconds()
	h.mu.Unlock()
	return errors.Join(append(all, errNobody)...)
}

// signedFor is how far a bound key has signed for a room.
func (m *Mirror) signedFor(k replica.Key) (to position) {
	if head, ok := m.newestHead(k); ok {
		to = position{head.Seq, head.Hash}
	}
	if seq, hash, ok := m.o.Vouched(k); ok && seq > to.seq {
		to = position{seq, hash}
	}
	return to
}

// fromSource reads a room from one source. A gap of one page is stored from
// memory. A longer one is read twice: first for its hashes alone, up to what is
// signed; then, with the end of each page known, page by page into the store.
func (h *host) fromSource(ctx context.Context, v *roomView, k replica.Key, s source) (added bool, err error) {
	start := position{}
	if r := h.replicaOf(v); r != nil {
		if r.Genesis != k.Genesis {
			return false, errors.New("the host now shows another room under this ID")
		}
		row := r.Row()
		start = position{row.Seq, row.Hash}
	}
	first, err := h.links(ctx, k, start, pageRecords, s)
	if err != nil {
		return false, err
	}
	size := int64(0)
	for _, c := range first {
		size += int64(len(c.raw))
	}
	if !h.m.relay.claim(size) {
		return false, errors.New("too many records of other rooms wait in memory")
	}
	defer h.m.relay.waiting.Add(-size)
	to := h.m.signedFor(k) // a peer may have told a newer head on the way
	if to.seq <= start.seq || len(first) == 0 {
		if len(first) > 0 {
			h.unsigned(v, fmt.Sprintf("seq %d and on are to be had from %s, and no key of the host has signed for them: they wait, and do not count", start.seq+1, s.name))
		}
		h.holdNew(v, first)
		return false, nil
	}
	h.unsigned(v, "")
	marks, page := []position{}, first
	at := start
	for {
		last := page[len(page)-1].rec
		if last.Seq >= to.seq {
			if c := page[to.seq-at.seq-1].rec; c.Hash != to.hash {
				return false, fmt.Errorf("seq %d: its record is not the one that was signed", to.seq)
			}
			marks = append(marks, to)
			break
		}
		at = position{last.Seq, last.Hash}
		marks = append(marks, at)
		if int64(len(marks)) > 64+(to.seq-start.seq)/100 {
			return false, errors.New("its pages are too short to go on with")
		}
		if page, err = h.links(ctx, k, at, pageRecords, s); err != nil {
			return false, err
		}
		if len(page) == 0 {
			return false, fmt.Errorf("it has nothing behind seq %d, and seq %d was signed", at.seq, to.seq)
		}
	}
	at = start
	for i, mark := range marks {
		page = first
		if i > 0 {
			if page, err = h.links(ctx, k, at, int(mark.seq-at.seq), s); err != nil {
				return added, err
			}
		}
		if n := mark.seq - at.seq; int64(len(page)) < n || page[n-1].rec.Hash != mark.hash {
			return added, fmt.Errorf("seq %d: it shows another record than a moment ago", mark.seq)
		}
		n := int(mark.seq - at.seq)
		verified := verifiedPrefix(h.m, page[:n])
		ok, err := h.store(ctx, v, k.Genesis, verified)
		if added = added || ok; err != nil {
			return added, err
		}
		if len(verified) < n {
			return added, fmt.Errorf("seq %d: the signature is not valid", at.seq+int64(len(verified))+1)
		}
		if i == len(marks)-1 && len(page) > n {
			h.holdBack(v, verifiedPrefix(h.m, page[n:]))
		}
		at = mark
	}
	return added, nil
}

// links reads a page whose hashes are right and that is a chain behind a place.
func (h *host) links(ctx context.Context, k replica.Key, after position, limit int, s source) ([]checked, error) {
	items, err := s.read(ctx, k, after.seq, limit)
	if err != nil {
		return nil, err
	}
	page := make([]checked, 0, len(items))
	for _, e := range items[:min(len(items), limit)] {
		c := parseOne(e)
		if c.err == nil {
			c.err = c.rec.Follows(k.RoomID, after.seq, after.hash)
		}
		if c.err == nil && c.rec.Seq == 1 && c.rec.Hash != k.Genesis {
			c.err = errors.New("the first record is of another room")
		}
		if c.err != nil {
			return nil, fmt.Errorf("seq %d: %w", after.seq+1, c.err)
		}
		after = position{c.rec.Seq, c.rec.Hash}
		page = append(page, c)
	}
	return page, nil
}

// verifiedPrefix checks signatures on all cores and gives the records up to the
// first that has none.
func verifiedPrefix(m *Mirror, page []checked) []checked {
	out := m.verify(page)
	for i, c := range out {
		if c.err != nil {
			return out[:i]
		}
	}
	return out
}

// holdNew holds records that nobody signed for, unless they are held already.
func (h *host) holdNew(v *roomView, page []checked) {
	if len(page) == 0 {
		return
	}
	h.mu.Lock()
	n := len(v.held)
	same := n > 0 && n == min(len(page), waitRecords) && v.held[n-1].rec.Hash == page[n-1].rec.Hash
	h.mu.Unlock()
	if !same {
		h.holdBack(v, verifiedPrefix(h.m, page))
	}
}
