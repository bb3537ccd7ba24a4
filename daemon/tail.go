package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/mirror"
	"github.com/witan-adp/witan/witness"
)

// Bounds on reading the logs of the hosts that are followed.
const (
	tailsAtOnce  = 4
	tailTimeout  = 20 * time.Second // of one answer
	tailTime     = 2 * time.Minute  // of one round
	tailPauseMax = time.Hour        // after a log failed again and again
)

// tailing is when the log of each host is looked at next.
type tailing struct {
	wake chan struct{}
	mu   sync.Mutex
	next map[string]time.Time
	wait map[string]time.Duration
	soon map[string]bool // there was a reason to look while it was being looked at
}

func newTailing() tailing {
	return tailing{wake: make(chan struct{}, 1), next: map[string]time.Time{}, wait: map[string]time.Duration{}, soon: map[string]bool{}}
}

// tailSoon lets the log of a host be looked at now: a key was bound.
func (d *daemon) tailSoon(origin string) { d.tails.now(origin) }

func (t *tailing) now(origin string) {
	t.mu.Lock()
	delete(t.next, origin)
	delete(t.wait, origin)
	t.soon[origin] = true
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// runTails reads what is new in the logs of the hosts that are followed, each as often
// as a quiet room is asked for news, and less often while it fails.
func (d *daemon) runTails(ctx context.Context) error {
	every := d.cfg.Mirror.PollMax.D()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		d.tailAll(ctx, every)
		select {
		case <-tick.C:
		case <-d.tails.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *daemon) tailAll(ctx context.Context, every time.Duration) {
	var g errgroup.Group
	g.SetLimit(tailsAtOnce)
	followed := map[string]bool{}
	for _, h := range d.mirror.Hosts() {
		followed[h.Origin] = true
		if h.State == mirror.Paused || h.State == mirror.Blocked || !d.tails.due(h.Origin) {
			continue
		}
		g.Go(func() error {
			err := d.tail(ctx, h.Origin)
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, witness.ErrLogKey) { // it may have begun a new log
				d.mirror.ReadKeys(h.Origin)
			}
			if pause, first := d.tails.done(h.Origin, every, err); err != nil && !errors.Is(err, witness.ErrNotThere) {
				level := d.log.Debug
				if first {
					level = d.log.Warn
				}
				level("the log of a host could not be read", "origin", h.Origin, "retry_in", pause, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // each host is told of by itself
	d.tails.forget(followed)
	if d.witness.Suspects() {
		d.pullSoon()
	}
}

// due tells whether the log of a host is to be looked at now.
func (t *tailing) due(origin string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.next[origin]) {
		return false
	}
	delete(t.soon, origin)
	return true
}

// done notes the outcome of a look; first tells that it failed and the one before did
// not. A host without a log, or without a bound key, is asked again as soon as there
// is a reason to, which may have come while it was looked at.
func (t *tailing) done(origin string, every time.Duration, err error) (pause time.Duration, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || errors.Is(err, witness.ErrNotThere) || t.soon[origin] {
		delete(t.next, origin)
		delete(t.wait, origin)
		return 0, false
	}
	pause = t.wait[origin]
	first = pause == 0
	pause = min(max(2*pause, every), max(tailPauseMax, every))
	t.wait[origin], t.next[origin] = pause, time.Now().Add(pause)
	return pause, first
}

func (t *tailing) forget(but map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, known := range []iter.Seq[string]{maps.Keys(t.wait), maps.Keys(t.soon)} {
		for origin := range known {
			if !but[origin] {
				delete(t.next, origin)
				delete(t.wait, origin)
				delete(t.soon, origin)
			}
		}
	}
}

// tail reads the log of one host to its end, or as far as its time goes.
func (d *daemon) tail(ctx context.Context, origin string) error {
	ctx, cancel := context.WithTimeout(ctx, tailTime)
	defer cancel()
	read := func(ctx context.Context, path string, most int64) ([]byte, error) {
		r, err := d.fetch.Do(ctx, fetch.Request{URL: origin + "/log/" + path, MaxBytes: most, Timeout: tailTimeout})
		switch {
		case err != nil:
			return nil, err
		case r.Status == http.StatusNotFound:
			return nil, witness.ErrNotThere
		case r.Status != http.StatusOK:
			return nil, fmt.Errorf("/log/%s: status %d", path, r.Status)
		}
		return r.Body, nil
	}
	for {
		more, err := d.witness.Tail(ctx, origin, read)
		if err != nil || !more {
			return err
		}
	}
}
