package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rs/xid"
	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
)

// pingTime bounds the answer to a challenge.
const pingTime = 5 * time.Second

// Bounds on challenges that agents can make us send: anybody has an agent key, and
// nobody else may be knocked at with it.
const (
	pingsAtOnce  = 16
	pingsKnown   = 4096 // authorities with a rate of their own
	pingsBurst   = 3    // to one authority,
	pingsEvery   = 10 * time.Second
	pingsOfAll   = 5 // a second
	pingsOfBurst = 20
)

type pings struct {
	busy chan struct{}
	all  *rate.Limiter

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	swept time.Time // of what is full again
}

func newPings() pings {
	return pings{busy: make(chan struct{}, pingsAtOnce), all: rate.NewLimiter(pingsOfAll, pingsOfBurst), of: map[string]*rate.Limiter{}}
}

// take lets a challenge pass, or says how long to wait.
func (p *pings) take(authority string, now time.Time) (leave func(), wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of[authority]
	if l == nil {
		if len(p.of) >= pingsKnown { // what is full again is worth no memory
			if now.Sub(p.swept) >= pingsEvery {
				p.swept = now
				for name, old := range p.of {
					if old.TokensAt(now) >= pingsBurst {
						delete(p.of, name)
					}
				}
			}
			if len(p.of) >= pingsKnown {
				return nil, pingsEvery
			}
		}
		l = rate.NewLimiter(rate.Every(pingsEvery), pingsBurst)
		p.of[authority] = l
	}
	if !l.AllowN(now, 1) {
		return nil, pingsEvery
	}
	if !p.all.AllowN(now, 1) {
		return nil, time.Second
	}
	select {
	case p.busy <- struct{}{}:
		return func() { <-p.busy }, 0
	default:
		return nil, time.Second
	}
}

// challenge sends a random text that the receiver must send back, so that nobody gets
// deliveries who does not want them. A receiver that only mirrors what it gets does
// not pass: the answer must have the text and nothing else.
func (w *Webhooks) challenge(ctx context.Context, m made, stranger bool) error {
	if stranger {
		u, err := url.Parse(m.URL)
		if err != nil {
			return adp.Errorf(adp.InvalidRequest, "url: %v", err)
		}
		leave, wait := w.pings.take(u.Host, time.UnixMilli(w.o.Now()))
		if wait > 0 {
			return adp.Errorf(adp.RateLimited, "too many receivers are being challenged; try again in a while").With("retry_after", wait.Seconds())
		}
		defer leave()
	}
	text := rand.Text()
	id := xid.New().String()
	body, err := json.Marshal(delivery{ID: id, Event: Ping, At: w.o.Now(), Daemon: w.o.Origin, Hook: m.ID, Challenge: text})
	if err != nil {
		return err
	}
	timeout := min(pingTime, w.o.Timeout)
	resp, err := w.post(ctx, m, Ping, id, body, timeout, true)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err = judge(resp, err, time.UnixMilli(w.o.Now())); err == nil && resp.Status != http.StatusOK {
		err = &refusal{status: resp.Status}
	}
	if err != nil {
		w.metrics.pings.WithLabelValues("failed").Inc()
		return adp.Errorf(adp.InvalidRequest, `the receiver did not pass the challenge: %v. It must answer POST {"event": "ping", "challenge": C} within %v with 200 and {"challenge": C}`, err, timeout)
	}
	v, err := adp.Scan(resp.Body)
	if err != nil || v.Kind() != adp.Object || v.Len() != 1 || !v.Get("challenge").Is(text) {
		w.metrics.pings.WithLabelValues("wrong").Inc()
		return adp.Errorf(adp.InvalidRequest, `the receiver did not pass the challenge: it answered %d with something else than {"challenge": C}, where C is the text of the ping`, resp.Status)
	}
	w.metrics.pings.WithLabelValues("passed").Inc()
	return nil
}
