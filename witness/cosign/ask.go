package cosign

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/fetch"
)

// Bounds on what a witness may answer, and how long it may take.
const (
	maxAnswer     = 64 << 10 // bytes
	answerTime    = 20 * time.Second
	futureSkew    = 60 * 60 // s by which the clock of a witness may be before ours
	maxRetryAfter = time.Hour
)

// Run asks until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	var all sync.WaitGroup
	head, err := cosignature.ParseCheckpoint(cosignature.Text(c.o.Checkpoint()))
	for _, p := range c.peers {
		if err == nil && p.kept.Doubt != "" && p.kept.Origin == head.Origin && c.o.Doubts != nil {
			c.o.Doubts(p.Key.Name(), head.Origin, p.kept.Doubt)
		}
		all.Go(func() { c.follow(ctx, p) })
	}
	all.Wait()
	return nil
}

// follow asks one witness: after each time that the log has grown, and again after a
// failure, always for the newest checkpoint.
func (c *Collector) follow(ctx context.Context, p *peer) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = c.o.RetryMin, c.o.RetryMax
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return
		}
		err := c.ask(ctx, p)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		told := p.err != nil && err != nil && p.err.Error() == err.Error()
		p.err = err
		c.mu.Unlock()
		wait := c.o.Every
		switch {
		case err == nil:
			pause.Reset()
		default:
			wait = max(wait, pause.NextBackOff(), retryAfter(err))
			level := c.log.Warn
			if told {
				level = c.log.Debug
			}
			level("a witness gave no cosignature of our log", "witness", p.Key.Name(), "retry_in", wait, "err", err)
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// answerError is an answer that brings no cosignature.
type answerError struct {
	status int
	text   string
	after  time.Duration
}

func (e *answerError) Error() string {
	why := map[int]string{
		http.StatusBadRequest:          "it does not understand the request",
		http.StatusForbidden:           "it does not know the key of our log; give it the log's verifier key (witan key show --data)",
		http.StatusNotFound:            "it does not witness our log, or there is no witness at this URL",
		http.StatusConflict:            "it has cosigned another tree of our log with as many entries",
		http.StatusUnprocessableEntity: "it says that our log does not follow from what it cosigned last",
		http.StatusTooManyRequests:     "it asks for patience",
	}[e.status]
	if why == "" {
		why = "it failed"
	}
	return fmt.Sprintf("%s (status %d: %.200q)", why, e.status, e.text)
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*answerError](err); ok {
		return e.after
	}
	if e, ok := errors.AsType[*fetch.Error](err); ok {
		return min(e.RetryAfter, maxRetryAfter)
	}
	return 0
}

// ask shows a witness the newest checkpoint, unless it has cosigned that one.
func (c *Collector) ask(ctx context.Context, p *peer) error {
	signed := c.o.Checkpoint()
	text := cosignature.Text(signed)
	if text == "" {
		return nil
	}
	head, err := cosignature.ParseCheckpoint(text)
	if err != nil {
		return err
	}
	c.mu.Lock()
	kept := p.kept
	c.mu.Unlock()
	// the first time it is asked all the same: it may have seen more than this store
	if cosignature.Text(kept.Note) == text && p.met {
		return nil
	}
	old := kept.Size
	if kept.Origin != head.Origin {
		old = 0 // another log, of which it knows nothing
	}
	outcome := "failed"
	defer func() { c.asked.WithLabelValues(outcome).Inc() }()
	// at most once more, with the size that it names
	for range 2 {
		if old > head.Size {
			return c.ahead(ctx, p, head, old)
		}
		resp, err := c.send(ctx, p, signed, old, head.Size)
		if err != nil {
			return err
		}
		if resp.Status == http.StatusOK {
			got, err := c.read(p, signed, resp.Body)
			if err != nil {
				return err
			}
			got.Origin, got.Size = head.Origin, head.Size
			c.keep(p, got)
			outcome = "cosigned"
			if p.met = true; c.o.Agreed != nil {
				c.o.Agreed(p.Key.Name())
			}
			return nil
		}
		media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		size, err := cosignature.ParseSize(resp.Body)
		if resp.Status != http.StatusConflict || media != cosignature.SizeType || err != nil || size == old {
			outcome = "refused"
			after, _ := fetch.RetryAfter(resp.Header, time.UnixMilli(c.o.Now()), maxRetryAfter)
			refusal := &answerError{resp.Status, strings.TrimSpace(string(resp.Body)), after}
			if resp.Status == http.StatusConflict || resp.Status == http.StatusUnprocessableEntity {
				c.doubt(p, head, refusal)
			}
			return refusal
		}
		old = size
	}
	outcome = "refused"
	return fmt.Errorf("it names another size of our log each time, now %d", old)
}

func (c *Collector) send(ctx context.Context, p *peer, signed []byte, old, size uint64) (*fetch.Response, error) {
	r := cosignature.Request{Old: old, Note: signed}
	if old > 0 && old < size {
		var err error
		if r.Proof, err = c.o.Prove(old, size); err != nil {
			return nil, fmt.Errorf("prove that our log has grown from %d to %d: %w", old, size, err)
		}
	}
	return c.o.Do(ctx, fetch.Request{Method: http.MethodPost, URL: p.URL + cosignature.AddCheckpoint, Body: r.Text(), MaxBytes: maxAnswer, Timeout: answerTime,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}})
}

// read takes the cosignature of the witness from its answer. Lines of other keys are
// dropped.
func (c *Collector) read(p *peer, signed, lines []byte) (got collected, err error) {
	text := cosignature.Text(signed)
	_, sigs, err := cosignature.Open(cosignature.Append(text, string(lines)), p.Key)
	if err != nil {
		return got, fmt.Errorf("its answer is not a cosignature by the key in the settings: %w", err)
	}
	if got.Time, err = cosignature.Time(sigs[0]); err != nil {
		return got, err
	}
	if now := c.o.Now() / 1000; got.Time <= 0 || got.Time > now+futureSkew {
		return got, fmt.Errorf("its cosignature is of the time %d, and now is %d; one of the clocks is wrong", got.Time, now)
	}
	got.Note, got.Lines = signed, strings.Join(cosignature.Lines(sigs), "")
	return got, nil
}

// ahead is what a witness says that has cosigned more of our log than we hold. It is
// asked to show it: only the signature of our own log would prove that.
func (c *Collector) ahead(ctx context.Context, p *peer, head cosignature.Checkpoint, size uint64) error {
	c.log.Error("ALARM: a witness says that it has cosigned more of our log than this store holds", "witness", p.Key.Name(), "cosigned", size, "held", head.Size)
	resp, err := c.o.Do(ctx, fetch.Request{URL: p.URL + cosignature.MonitorPath(head.Origin), MaxBytes: maxAnswer, Timeout: answerTime})
	switch {
	case err != nil:
	case resp.Status != http.StatusOK:
		err = fmt.Errorf("status %d", resp.Status)
	case c.o.Ahead != nil:
		c.o.Ahead(resp.Body)
	}
	claim := fmt.Errorf("it says that it has cosigned %d entries of our log, and this store holds %d: it is an older copy, or the key is in use elsewhere, or the witness is wrong", size, head.Size)
	c.doubt(p, head, claim)
	return errors.Join(claim, err)
}

// doubt hands on, and remembers, what a witness holds against our log: few of them show
// what they have cosigned where they are asked, so that it may be all there is.
func (c *Collector) doubt(p *peer, head cosignature.Checkpoint, why error) {
	if c.o.Doubts != nil {
		c.o.Doubts(p.Key.Name(), head.Origin, why.Error())
	}
	c.mu.Lock()
	kept := p.kept
	c.mu.Unlock()
	if kept.Doubt == "" || kept.Origin != head.Origin {
		kept.Doubt, kept.Origin = why.Error(), head.Origin
		c.keep(p, kept)
	}
}
