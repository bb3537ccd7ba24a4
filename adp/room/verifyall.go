package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/witan-adp/witan/adp"
)

// Broken says where a chain stops being authentic or linked, and why.
type Broken struct {
	Seq int64
	Err error
}

// Error names the seq and the reason.
func (b *Broken) Error() string { return fmt.Sprintf("seq %d: %v", b.Seq, b.Err) }

// Unwrap is the reason.
func (b *Broken) Unwrap() error { return b.Err }

// Pipeline verifies the records of one room: what costs most (strict parse,
// hashes, signature) on many cores, link and rules in order. Memory is bounded by a
// few batches and by the Verifier's index of the chain.
type Pipeline struct {
	Workers  int                 // 0: one for each core
	Progress func(done int64)    // after each batch, with the seq reached; may be nil
	Each     func(r *adp.Record) // after each record that was taken, in order; may be nil
}

// Bounds of one batch: a worker's turn costs a few ms, and little is held.
const (
	batchRecords = 64
	batchBytes   = 1 << 20
)

// batch travels to a worker and, in order, to the replay.
type batch struct {
	raw  [][]byte
	recs []*adp.Record
	bad  error         // why the text behind recs is no authentic record
	end  error         // what next answered behind this batch: io.EOF, an error, or nil
	done chan struct{} // closed when the worker is through
}

// VerifyAll takes the texts of a room's records from next, in seq order until
// io.EOF, and replays them into v, as Pipeline.Run does. workers 0 is one for each
// core; progress may be nil.
func VerifyAll(ctx context.Context, next func() ([]byte, error), v *Verifier, workers int, progress func(done int64)) error {
	return Pipeline{Workers: workers, Progress: progress}.Run(ctx, next, v)
}

// Run takes the texts of a room's records from next, in seq order until io.EOF,
// and replays them into v. next is called by this goroutine only; the bytes that it
// answers are not to be changed afterwards.
//
// nil means that every record is linked, and authentic as far as its envelope is
// not withheld (v.Counts[Withheld]); whether each was allowed stands in v. A *Broken says where that ends: v then holds all before it. Another
// error came from next, with all before it replayed, or is the cause of ctx.
func (p Pipeline) Run(ctx context.Context, next func() ([]byte, error), v *Verifier) error {
	workers := p.Workers
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, ordered := make(chan *batch), make(chan *batch, 2*workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for b := range work {
				b.authenticate()
				close(b.done)
			}
		})
	}
	result := make(chan error, 1)
	wg.Go(func() {
		err := p.replay(ctx, ordered, v)
		cancel(err) // the reader need not go on
		result <- err
	})
	read(ctx, next, work, ordered)
	close(work)
	close(ordered)
	wg.Wait()
	return <-result
}

// read fills batches until next or ctx ends.
func read(ctx context.Context, next func() ([]byte, error), work, ordered chan<- *batch) {
	for {
		b := &batch{done: make(chan struct{})}
		for size := 0; b.end == nil && len(b.raw) < batchRecords && size < batchBytes; {
			raw, err := next()
			if b.end = err; err == nil {
				b.raw = append(b.raw, raw)
				size += len(raw)
			}
			if ctx.Err() != nil {
				return
			}
		}
		for _, to := range []chan<- *batch{work, ordered} {
			select {
			case to <- b:
			case <-ctx.Done():
				return
			}
		}
		if b.end != nil {
			return
		}
	}
}

// authenticate stops at the first text that is no authentic record.
func (b *batch) authenticate() {
	b.recs = make([]*adp.Record, 0, len(b.raw))
	for _, raw := range b.raw {
		v, err := adp.ScanDepth(raw, adp.RecordDepth)
		if err != nil {
			b.bad = err
			return
		}
		r, err := adp.ParseServed(v)
		if err == nil && !r.Redacted { // Verifier.Counts counts those
			err = r.CheckSignature()
		}
		if err != nil {
			b.bad = err
			return
		}
		b.recs = append(b.recs, r)
	}
}

func (p Pipeline) replay(ctx context.Context, ordered <-chan *batch, v *Verifier) error {
	for b := range ordered {
		select {
		case <-b.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, r := range b.recs {
			seq := v.State.Last.Seq + 1
			if err := v.Add(r); err != nil {
				return &Broken{seq, reason(err)}
			}
			if p.Each != nil {
				p.Each(r)
			}
		}
		if b.bad != nil {
			return &Broken{v.State.Last.Seq + 1, b.bad}
		}
		if p.Progress != nil {
			p.Progress(v.State.Last.Seq)
		}
		switch {
		case b.end == io.EOF:
			return nil
		case b.end != nil:
			return b.end
		}
	}
	return context.Cause(ctx) // the reader gave up
}

// reason is an error of Verifier.Add without the seq that stands before it.
func reason(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
