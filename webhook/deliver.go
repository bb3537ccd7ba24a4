package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/store"
)

// Headers of a delivery.
const (
	HeaderEvent     = "Witan-Event"
	HeaderDelivery  = "Witan-Delivery"  // ID of the event, the same in each try
	HeaderWebhook   = "Witan-Webhook"   // ID of the webhook
	HeaderSignature = "Witan-Signature" // t=<Unix s>,v1=<hex HMAC-SHA256 of t.body>
)

// maxAnswer bounds the answer to a challenge, in bytes. That to a delivery is not read.
const maxAnswer = 64 << 10

// maxRetryAfter bounds how long a receiver can put a try off.
const maxRetryAfter = time.Hour

// Sign is the signature header of a body: the hex HMAC-SHA256, keyed with the secret
// as it was shown, of the time, a dot and the body.
func Sign(secret string, unix int64, body []byte) string {
	t := strconv.FormatInt(unix, 10)
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(t + "."))
	m.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(m.Sum(nil))
}

// post sends a body to the receiver of a webhook, and reads what it answers if that matters.
func (w *Webhooks) post(ctx context.Context, m made, event, id string, body []byte, timeout time.Duration, read bool) (*fetch.Response, error) {
	start := time.Now()
	resp, err := w.o.Do(ctx, fetch.Request{Method: http.MethodPost, URL: m.URL, Body: body, MaxBytes: maxAnswer, Timeout: timeout, NoRedirect: true, NoBody: !read,
		Header: http.Header{"Content-Type": {"application/json"}, HeaderEvent: {event}, HeaderDelivery: {id}, HeaderWebhook: {m.ID},
			HeaderSignature: {Sign(w.secret(m.ID), w.o.Now()/1000, body)}}})
	w.metrics.seconds.Observe(time.Since(start).Seconds())
	return resp, err
}

// refusal is an answer that is not 2xx.
type refusal struct {
	status int
	after  time.Duration
}

func (e *refusal) Error() string {
	switch {
	case e.status/100 == 3:
		return fmt.Sprintf("the receiver answered %d, a redirect, which is not followed; register the final URL", e.status)
	case e.status == http.StatusGone:
		return "the receiver answered 410: it wants no more events"
	}
	return fmt.Sprintf("the receiver answered %d", e.status)
}

// judge is nil for an answer that takes an event off the queue.
func judge(resp *fetch.Response, err error, now time.Time) error {
	if err != nil || resp.Status/100 == 2 {
		return err
	}
	after, _ := fetch.RetryAfter(resp.Header, now, maxRetryAfter)
	return &refusal{status: resp.Status, after: after}
}

// start runs the worker of a webhook. w.mu is held.
func (w *Webhooks) start(h *hook) {
	if w.running == nil || w.running.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(w.running)
	h.mu.Lock()
	h.stop = cancel
	h.mu.Unlock()
	w.workers.Go(func() {
		defer cancel()
		h.work(ctx)
	})
}

// work posts what waits, one event after the other, until ctx ends.
func (h *hook) work(ctx context.Context) {
	for ctx.Err() == nil {
		h.mu.Lock()
		s, first, waiting := h.now, h.first, h.next > h.first
		h.mu.Unlock()
		wait := time.Duration(-1) // until there is something new
		if s.State == Active && waiting {
			wait = min(max(0, time.Duration(s.NextTry-h.w.o.Now())*time.Millisecond), time.Minute) // clocks are set
		}
		if wait != 0 {
			h.sleep(ctx, wait)
			continue
		}
		if err := h.try(ctx, first); err != nil && !errors.Is(err, errRemoved) && ctx.Err() == nil {
			h.w.log.Error("what became of a delivery could not be stored; it is made again", "webhook", h.ID, "error", err)
			pause(ctx, watchRetry)
		}
	}
}

// sleep waits for a time, for ever when it is negative, or until it is woken.
func (h *hook) sleep(ctx context.Context, d time.Duration) {
	var end <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-end:
	case <-h.wake:
	case <-ctx.Done():
	}
}

// try posts the first event of the queue and stores what became of it.
func (h *hook) try(ctx context.Context, n uint64) error {
	w, key := h.w, store.WebhookQueue(h.ID, n)
	raw, ok, err := w.o.Store.Get(key)
	if err != nil {
		return err
	}
	var e Event
	if !ok {
		if h.isRemoved() { // its queue went with it
			return errRemoved
		}
		err = fmt.Errorf("event %d is not in the store", n)
	} else if err = json.Unmarshal(raw, &e); err != nil {
		err = fmt.Errorf("event %d: %w", n, err)
	}
	if err != nil { // it will not come back: the others are not held up
		w.log.Error("an event is lost", "webhook", h.ID, "error", err)
		return h.done(key, "lost")
	}
	body, err := w.body(h.made, &e)
	if errors.Is(err, errStale) {
		return h.done(key, "withdrawn")
	}
	if err != nil { // of one room; it may be read in a while
		return h.failed(err)
	}
	resp, err := w.post(ctx, h.made, e.Type, e.ID, body, w.o.Timeout, false)
	err = judge(resp, err, time.UnixMilli(w.o.Now()))
	switch {
	case ctx.Err() != nil: // we stop: that is no try
		return nil
	case err == nil:
		return h.done(key, "delivered")
	}
	return h.failed(err)
}

// done takes the first event off the queue.
func (h *hook) done(key []byte, outcome string) error {
	h.w.metrics.deliveries.WithLabelValues(outcome).Inc()
	return h.update(func(s *standing, first *uint64) {
		*first++
		s.Attempts, s.NextTry, s.LastError = 0, 0, ""
		if outcome == "delivered" {
			s.DeliveredAt = h.w.o.Now()
			s.Delivered++
		}
	}, func(b *store.Batch) { b.Delete(key) })
}

// failed puts the next try off, or pauses the webhook after the last one. One that was resumed
// while the try was under way has all tries from there on.
func (h *hook) failed(why error) error {
	h.w.metrics.deliveries.WithLabelValues("failed").Inc()
	var r *refusal
	gone := errors.As(why, &r) && r.status == http.StatusGone
	paused, attempts := "", 0
	err := h.update(func(s *standing, _ *uint64) {
		attempts = s.Attempts + 1
		s.Attempts, s.LastError = attempts, why.Error()
		s.NextTry = h.w.o.Now() + h.w.backoff(attempts, why).Milliseconds()
		switch {
		case s.State != Active: // paused meanwhile, for another reason
		case gone:
			s.State, s.Reason, paused = Paused, why.Error(), "gone"
		case attempts >= Tries:
			s.State, s.Reason, paused = Paused, fmt.Sprintf("%d tries failed, the last one with: %v", attempts, why), "failed"
		}
		if s.State == Paused {
			s.NextTry = 0
		}
	}, nil)
	if err == nil && paused != "" {
		h.w.metrics.paused.WithLabelValues(paused).Inc()
		h.w.log.Warn("webhook paused", "webhook", h.ID, "attempts", attempts, "error", why)
	}
	return err
}

// backoff is the pause after so many tries: each one is 8 times the one before, with
// a tenth of chance, and not shorter than the receiver asks for.
func (w *Webhooks) backoff(attempts int, why error) time.Duration {
	d := w.o.RetryFirst
	for range min(attempts, Tries) - 1 {
		d *= 8
	}
	d = d*9/10 + rand.N(d/5+1)
	var asked time.Duration
	if r := (*refusal)(nil); errors.As(why, &r) {
		asked = r.after
	}
	return max(d, asked)
}
