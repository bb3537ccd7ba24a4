package witness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// Catch-up (ProtocolSync): a peer asks for everything we keep, page by page, proofs
// first. Gossip drops messages, and one that was ignored stays "seen" for a while
// although a new binding may have made it welcome; so every pull starts from the
// beginning and skips what is known by its hash.
//
//	request   {"after":"<cursor>","limit":n}    after "" at the start; limit 1 … 100
//	response  {"items":[…],"next":"<cursor>"}   next "" at the end
//
// A peer that keeps a log adds its newest checkpoint, as "checkpoint":"<note>" ("" to
// say only that it wants some). The response then has "checkpoints":["<note>",…]: the
// newest of the log of the one that answers, and the greatest that it has seen of
// the log of the one that asks. On the first page it also has "seen":[…]: signed
// heads (envelopes) and checkpoints (texts) of any origins, so that two of them
// that cannot both hold meet somewhere.
const (
	syncPage      = 100
	syncPageBytes = MaxSyncResponse - MaxEvidence - 4096
	pullPages     = 2000 // of one pull; the next goes on from there
	maxResume     = 1024 // peers whose pull was not finished
	cursorLen     = 24
)

// ErrPeer: a peer answered a pull with what no honest peer sends.
var ErrPeer = errors.New("witness: the peer does not keep to the catch-up protocol")

// position is a place in what is kept: proofs in the order of arrival, then all
// else in the order of arrival.
type position struct {
	items bool
	n     uint64
}

func (p position) String() string {
	if p.items {
		return "i" + strconv.FormatUint(p.n, 10)
	}
	return "p" + strconv.FormatUint(p.n, 10)
}

func parsePosition(s string) (p position, ok bool) {
	if s == "" {
		return p, true
	}
	n, err := strconv.ParseUint(s[1:], 10, 64)
	p = position{s[0] == 'i', n}
	return p, err == nil && p.String() == s
}

type syncAnswer struct {
	Items []json.RawMessage `json:"items"`
	Next  string            `json:"next"`

	Checkpoints []string          `json:"checkpoints,omitempty"`
	Seen        []json.RawMessage `json:"seen,omitempty"`
}

// ServeSync answers one request of a peer. All that it gives away is public.
func (w *Witness) ServeSync(ctx context.Context, from string, request []byte) ([]byte, error) {
	bad := errors.New(`the request must be {"after":"<cursor>","limit":<1 … 100>}, with or without "checkpoint":"<note>"`)
	if len(request) > MaxSyncRequest {
		return nil, bad
	}
	v, err := adp.Scan(request)
	if err != nil || v.Kind() != adp.Object {
		return nil, bad
	}
	note := v.Get("checkpoint")
	theirs, isNote := note.Str()
	if note.Exists() != isNote || note.Exists() && v.Len() != 3 || !note.Exists() && v.Len() != 2 {
		return nil, bad
	}
	after, isText := v.Get("after").Str()
	limit, isInt := v.Get("limit").Int()
	if !isText || !isInt || limit < 1 || limit > syncPage {
		return nil, bad
	}
	at, ok := parsePosition(after)
	if !ok {
		return nil, errors.New("the cursor was not made here; start again without one")
	}
	answer, err := w.page(ctx, at, int(limit))
	if err != nil {
		w.log.Error("witness cannot read what it keeps", "err", err)
		return nil, errors.New("the store cannot be read now; try again later")
	}
	if note.Exists() {
		w.shown([]byte(theirs))
		answer.Checkpoints = w.toShow([]byte(theirs))
		if after == "" {
			for _, c := range w.claims.show() {
				answer.Seen = append(answer.Seen, c.wire)
			}
		}
	}
	return adp.EncodeJSON(answer)
}

func (w *Witness) page(ctx context.Context, at position, limit int) (syncAnswer, error) {
	a := syncAnswer{Items: []json.RawMessage{}}
	type ref struct {
		at  position
		id  string
		typ string
	}
	var refs []ref
	w.mu.RLock()
	if !at.items {
		proofs := w.book.proofs
		i := sort.Search(len(proofs), func(i int) bool { return proofs[i].n > at.n })
		for ; i < len(proofs) && len(refs) <= limit; i++ {
			refs = append(refs, ref{position{false, proofs[i].n}, proofs[i].id, ""})
		}
	}
	from := uint64(0)
	if at.items {
		from = at.n
	}
	order := w.book.order
	i := sort.Search(len(order), func(i int) bool { return order[i].n > from })
	for ; i < len(order) && len(refs) <= limit; i++ {
		refs = append(refs, ref{position{true, order[i].n}, order[i].hash, order[i].typ})
	}
	w.mu.RUnlock()
	size := 0
	for i, r := range refs {
		if i == limit {
			a.Next = at.String()
			break
		}
		raw, err := w.text(r.typ, r.id)
		if err != nil {
			return a, err
		}
		if raw != nil { // nil: its commit is under way
			if size += len(raw); size > syncPageBytes {
				a.Next = at.String()
				break
			}
			a.Items = append(a.Items, raw)
		}
		if at = r.at; ctx.Err() != nil {
			return a, ctx.Err()
		}
	}
	return a, nil
}

// text reads an envelope, or a proof as it is gossiped.
func (w *Witness) text(typ, id string) ([]byte, error) {
	if typ != "" {
		if w.withheld(id) {
			return nil, nil
		}
		raw, _, err := w.o.Store.Get(storeKey(typ, id))
		return raw, err
	}
	raw, ok, err := w.o.Store.Get(store.Evidence(id))
	if err != nil || !ok {
		return nil, err
	}
	v, err := adp.Scan(raw)
	if err != nil {
		return nil, fmt.Errorf("proof %s: %w", id, err)
	}
	return ProofText(v)
}

// pulls remembers where the pulls that met their bound stopped.
type pulls struct {
	mu     sync.Mutex
	resume map[string]string
}

// Pull takes everything new from one peer, page by page. Each item is judged as if
// it had come by gossip, but for the rate. It ends with the last page, with the
// first thing that no honest peer sends (ErrPeer), or after 2,000 pages; then the
// next pull of the same peer goes on from there.
func (w *Witness) Pull(ctx context.Context, peer string, request func(ctx context.Context, request []byte) ([]byte, error)) error {
	w.pulls.mu.Lock()
	after := w.pulls.resume[peer]
	delete(w.pulls.resume, peer)
	w.pulls.mu.Unlock()
	for range pullPages {
		ask := map[string]any{"after": after, "limit": syncPage}
		if w.journal.log != nil {
			ask["checkpoint"] = string(w.ownCheckpoint())
		}
		v, err := adp.EncodeValue(ask)
		if err != nil {
			return err
		}
		raw, err := request(ctx, v.Raw())
		if err != nil {
			return fmt.Errorf("witness: catch up with a peer: %w", err)
		}
		next, err := w.take(raw)
		if err != nil {
			return err
		}
		w.askedPeer()
		if next == "" {
			return nil
		}
		if next == after {
			return fmt.Errorf("%w: its cursor stands still", ErrPeer)
		}
		after = next
	}
	w.pulls.mu.Lock()
	defer w.pulls.mu.Unlock()
	if len(w.pulls.resume) >= maxResume {
		clear(w.pulls.resume)
	}
	w.pulls.resume[peer] = after
	return nil
}

// take keeps the acceptable items of one page.
func (w *Witness) take(raw []byte) (next string, err error) {
	if len(raw) > MaxSyncResponse {
		return "", fmt.Errorf("%w: a page of %d bytes", ErrPeer, len(raw))
	}
	v, err := adp.ScanDepth(raw, adp.MaxDepth+2)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPeer, err)
	}
	items, cursor := v.Get("items"), v.Get("next")
	next, isText := cursor.Str()
	notes, members := v.Get("checkpoints"), 2
	if notes.Exists() {
		members++
	}
	seen := v.Get("seen")
	if seen.Exists() {
		members++
	}
	if v.Len() != members || notes.Exists() && (notes.Kind() != adp.Array || notes.Len() > maxShown) || items.Kind() != adp.Array || items.Len() > syncPage || !isText || len(next) > cursorLen {
		return "", fmt.Errorf("%w: a page is {\"items\":[…],\"next\":\"…\"} with at most %d items", ErrPeer, syncPage)
	}
	for n := range notes.Elements() { // before anything that it may lead us to sign
		w.shown([]byte(n.Text()))
	}
	var batch []parsed
	var bad error
	if seen.Exists() {
		if err := w.takeSeen(seen); err != nil {
			bad = fmt.Errorf("%w: %w", ErrPeer, err)
		}
	}
	for item := range items.Elements() {
		if w.knows(item) {
			continue
		}
		verdict, p := w.judge(item.Raw())
		w.metrics.judged.WithLabelValues(verdict.String()).Inc()
		if verdict == Reject {
			bad = fmt.Errorf("%w: an item that is not authentic: %.100s", ErrPeer, strings.ToValidUTF8(string(item.Raw()), "?"))
			break
		}
		if verdict == Accept {
			// A proof is passed on: it may have come over the only link between two parts
			// of the network, and who has it does not pass on the copy that gossip brings.
			p.spread = p.proof != nil
			batch = append(batch, p)
		}
	}
	if err := w.keep(batch); err != nil {
		return "", fmt.Errorf("witness: keep what a peer sent: %w", err)
	}
	return next, bad
}

// knows saves the work on envelopes that are kept already.
func (w *Witness) knows(item adp.Value) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.book.byHash[item.Get("hash").Text()] != nil
}
