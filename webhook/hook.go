package webhook

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/xid"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// States of a webhook.
const (
	Active = "active"
	Paused = "paused" // events wait, up to the bound of its queue
)

// made is what a webhook is registered with; it never changes.
type made struct {
	ID        string   `json:"id"`
	Owner     string   `json:"owner,omitempty"` // Agent ID; "" is the operator
	URL       string   `json:"url"`
	Events    []string `json:"events"`
	Filters   Filters  `json:"filters"`
	CreatedAt int64    `json:"created_at"` // Unix ms
}

// standing is how it does.
type standing struct {
	State       string `json:"state"`
	Reason      string `json:"reason,omitempty"` // why it is paused
	Attempts    int    `json:"attempts"`         // tries of the event that is first in the queue
	NextTry     int64  `json:"next_try,omitempty"`
	LastError   string `json:"last_error,omitempty"`
	DeliveredAt int64  `json:"delivered_at,omitempty"`
	Delivered   int64  `json:"delivered"`
	Missed      int64  `json:"missed"` // events dropped since the queue was full, of which the receiver was not told yet
}

// row is what the store keeps of a webhook. First is the number of the event that is
// first in its queue.
type row struct {
	made
	standing
	First uint64 `json:"first"`
}

// Hook is a webhook as its owner sees it. Times are Unix ms.
type Hook struct {
	made
	standing
	Waiting int64  `json:"waiting"`          // events in the queue
	Secret  string `json:"secret,omitempty"` // in the answer to its registration alone
}

// hook is a webhook in memory.
type hook struct {
	w *Webhooks
	made
	wake chan struct{}

	mu      sync.Mutex
	now     standing
	first   uint64 // of the queue
	next    uint64 // behind its last event
	removed bool
	stop    context.CancelFunc // nil before its worker runs
}

func compareRows(a, b *made) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

func (w *Webhooks) newHook(r row, next uint64) *hook {
	return &hook{w: w, made: r.made, now: r.standing, first: r.First, next: next, wake: make(chan struct{}, 1)}
}

// secret is what signs the deliveries of a webhook. It stands in no file: it follows
// from the key of the daemon.
func (w *Webhooks) secret(id string) string {
	m := hmac.New(sha256.New, w.o.Key)
	m.Write([]byte("webhook " + id))
	return "whsec_" + adp.Encode(m.Sum(nil))
}

// load reads the webhooks, each with the ends of its queue.
func (w *Webhooks) load() error {
	return w.o.Store.View(func(r store.Reader) error {
		var bad error
		from, to := store.WebhookRange()
		err := r.Scan(from, to, func(key, value []byte) bool {
			var k row
			if bad = json.Unmarshal(value, &k); bad != nil {
				bad = fmt.Errorf("webhook row %q: %w", key, bad)
				return false
			}
			next := k.First
			qFrom, qTo := store.WebhookQueueRange(k.ID)
			bad = r.ScanReverse(qFrom, qTo, func(key, _ []byte) bool {
				_, n, err := store.ParseWebhookQueue(key)
				bad = err
				next = n + 1
				return false
			})
			w.hooks[k.ID] = w.newHook(k, next)
			return bad == nil
		})
		return errors.Join(err, bad)
	})
}

// encode is the row of a webhook with another standing.
func (h *hook) encode(s standing, first uint64) ([]byte, error) {
	return json.Marshal(row{h.made, s, first})
}

var errRemoved = errors.New("the webhook was removed")

// update changes the standing of a webhook and stores it, with what else changes in
// the same commit. change gets the first number of the queue to move.
func (h *hook) update(change func(s *standing, first *uint64), more func(b *store.Batch)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed {
		return errRemoved
	}
	s, first := h.now, h.first
	change(&s, &first)
	value, err := h.encode(s, first)
	if err != nil {
		return err
	}
	var b store.Batch
	b.Put(store.Webhook(h.ID), value)
	if more != nil {
		more(&b)
	}
	if err := h.w.o.Store.Commit(&b); err != nil {
		return fmt.Errorf("webhook %s: %w", h.ID, err)
	}
	h.now, h.first = s, first
	return nil
}

// isRemoved waits for a removal that is under way.
func (h *hook) isRemoved() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removed
}

func (h *hook) show() Hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Hook{made: h.made, standing: h.now, Waiting: int64(h.next - h.first)}
}

// find is a webhook of an owner; "" may see all.
func (w *Webhooks) find(id, owner string) (*hook, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.hooks[id]
	if h == nil || owner != "" && h.Owner != owner {
		return nil, adp.Errorf(adp.NotFound, "there is no webhook %.60q of yours; the list has their IDs", id)
	}
	return h, nil
}

// List are the webhooks of an owner, of all for "", the oldest first.
func (w *Webhooks) List(owner string) []Hook {
	list := []Hook{}
	for _, h := range w.all() {
		if owner == "" || h.Owner == owner {
			list = append(list, h.show())
		}
	}
	return list
}

// Show is one webhook of an owner. Owner "" is the operator, here and below, who may
// see and change all.
func (w *Webhooks) Show(id, owner string) (Hook, error) {
	h, err := w.find(id, owner)
	if err != nil {
		return Hook{}, err
	}
	return h.show(), nil
}

// Add registers a webhook: it challenges the receiver, and answers with the secret
// that will sign the deliveries, which is shown this once.
func (w *Webhooks) Add(ctx context.Context, owner string, r Registration) (Hook, error) {
	r, err := w.check(owner, r)
	if err != nil {
		return Hook{}, err
	}
	if err := w.room(owner); err != nil { // before anybody is bothered
		return Hook{}, err
	}
	m := made{ID: "wh_" + xid.New().String(), Owner: owner, URL: r.URL, Events: r.Events, Filters: r.Filters, CreatedAt: w.o.Now()}
	if err := w.challenge(ctx, m, owner != ""); err != nil {
		return Hook{}, err
	}
	w.turn.Lock()
	defer w.turn.Unlock()
	if err := w.room(owner); err != nil {
		return Hook{}, err
	}
	h := w.newHook(row{made: m, standing: standing{State: Active}, First: 1}, 1)
	value, err := h.encode(h.now, h.first)
	if err != nil {
		return Hook{}, err
	}
	var b store.Batch
	first := !w.base.On
	if err := w.begin(ctx, &b); err != nil {
		return Hook{}, err
	}
	b.Put(store.Webhook(h.ID), value)
	if err := w.o.Store.Commit(&b); err != nil {
		return Hook{}, err
	}
	w.base.On = true
	w.watching.Store(true)
	if first { // what changed while it was noted how everything stands
		w.lookAtAll()
	}
	w.mu.Lock()
	w.hooks[h.ID] = h
	w.start(h)
	w.mu.Unlock()
	w.log.Info("webhook registered", "webhook", h.ID, "owner", owner, "events", h.Events)
	out := h.show()
	out.Secret = w.secret(h.ID)
	return out, nil
}

// room refuses one webhook too many of an agent, or of all agents.
func (w *Webhooks) room(owner string) error {
	if owner == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	own, all := 0, 0
	for _, h := range w.hooks {
		if h.Owner == owner {
			own++
		}
		if h.Owner != "" {
			all++
		}
	}
	switch {
	case own >= w.o.PerOwner:
		return adp.Errorf(adp.RateLimited, "you have %d webhooks here, which is as many as one agent may have; remove one first", own).With("max_webhooks", w.o.PerOwner)
	case all >= w.o.Total:
		return adp.Errorf(adp.RateLimited, "this daemon has as many webhooks as it takes; ask its operator, or try again another day").With("retry_after", 3600)
	}
	return nil
}

// Pause stops the deliveries of a webhook. Its events wait.
func (w *Webhooks) Pause(id, owner string) (Hook, error) {
	return w.set(id, owner, func(s *standing) {
		if s.State == Active { // else the reason why it is paused stays
			s.State, s.Reason = Paused, "paused by its owner"
			if owner == "" {
				s.Reason = "paused by the operator"
			}
		}
	})
}

// Resume goes on with the first event that waits, at once and with all tries.
func (w *Webhooks) Resume(id, owner string) (Hook, error) {
	return w.set(id, owner, func(s *standing) { s.State, s.Reason, s.Attempts, s.NextTry = Active, "", 0, 0 })
}

func (w *Webhooks) set(id, owner string, change func(*standing)) (Hook, error) {
	h, err := w.find(id, owner)
	if err != nil {
		return Hook{}, err
	}
	if err := h.update(func(s *standing, _ *uint64) { change(s) }, nil); err != nil {
		if errors.Is(err, errRemoved) {
			err = adp.Errorf(adp.NotFound, "%v", err)
		}
		return Hook{}, err
	}
	poke(h.wake)
	return h.show(), nil
}

// Remove forgets a webhook with all that waits for it.
func (w *Webhooks) Remove(id, owner string) error {
	w.turn.Lock()
	defer w.turn.Unlock()
	h, err := w.find(id, owner)
	if err != nil {
		return err
	}
	w.mu.Lock()
	last := len(w.hooks) == 1
	w.mu.Unlock()
	if err := h.remove(last); err != nil {
		return err
	}
	w.mu.Lock()
	delete(w.hooks, h.ID)
	w.mu.Unlock()
	w.log.Info("webhook removed", "webhook", h.ID)
	if last {
		return w.end()
	}
	return nil
}

// remove deletes a webhook from the store and ends its worker.
func (h *hook) remove(last bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b store.Batch
	b.Delete(store.Webhook(h.ID))
	for n := h.first; n < h.next; n++ {
		b.Delete(store.WebhookQueue(h.ID, n))
	}
	if last {
		b.Delete(store.Meta(baseName))
	}
	if err := h.w.o.Store.Commit(&b); err != nil {
		return err
	}
	h.removed = true
	if h.stop != nil {
		h.stop()
	}
	return nil
}

// Test challenges the receiver of a webhook again, and changes nothing.
func (w *Webhooks) Test(ctx context.Context, id, owner string) (Hook, error) {
	h, err := w.find(id, owner)
	if err != nil {
		return Hook{}, err
	}
	if err := w.challenge(ctx, h.made, owner != ""); err != nil {
		return Hook{}, err
	}
	return h.show(), nil
}

// wants tells whether a webhook asked for an event.
func (h *hook) wants(e *Event) bool {
	return e.Type == Gap || slices.Contains(h.Events, e.Type) && h.Filters.take(e)
}
