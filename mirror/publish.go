package mirror

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
)

// headPace is how often a head of one room is published at most.
const headPace = 50 * time.Millisecond

// keptPublished bounds the rooms whose last head is remembered though nothing
// happens in them.
const keptPublished = 4096

// publisher sends signed heads of our own public rooms.
type publisher struct {
	wake chan struct{}

	mu    sync.Mutex
	due   map[uint64]*replica.Replica
	rooms map[uint64]*published
}

// published is the last head of a room that was signed.
type published struct {
	head signedHead
	at   time.Time // signed
	sent int64     // seq up to which records went out
}

// Publish tells the relay that there are new records in one of our own rooms. It
// does not wait for anything; several calls within 50 ms make one message.
func (m *Mirror) Publish(r *replica.Replica) {
	if r.Origin != m.o.Own || m.o.Sign == nil || m.network.Publish == nil {
		return
	}
	p := &m.publisher
	p.mu.Lock()
	if p.due == nil {
		p.due = map[uint64]*replica.Replica{}
	}
	p.due[r.ID] = r
	p.mu.Unlock()
	poke(p.wake)
}

func (p *publisher) run(ctx context.Context, m *Mirror) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.wake:
		}
		timer.Reset(p.flush(ctx, m))
	}
}

// flush publishes what is due, and says when it is to be called again.
func (p *publisher) flush(ctx context.Context, m *Mirror) time.Duration {
	next := time.Hour
	p.mu.Lock()
	due := maps.Clone(p.due)
	for id := range due {
		if known := p.rooms[id]; known != nil {
			if wait := time.Until(known.at.Add(headPace)); wait > 0 {
				next = min(next, wait)
				delete(due, id)
				continue
			}
		}
		delete(p.due, id)
	}
	p.mu.Unlock()
	for _, r := range due {
		if ctx.Err() != nil {
			break
		}
		if err := p.publish(ctx, m, r); err != nil && ctx.Err() == nil {
			m.log.Warn("a head was not published; others will find the records by polling", "room", r.RoomID, "error", err)
		}
		next = min(next, headPace)
	}
	return next
}

func (p *publisher) publish(ctx context.Context, m *Mirror, r *replica.Replica) error {
	row := r.Row()
	public, err := isPublic(ctx, r)
	if err != nil || !public {
		return err
	}
	p.mu.Lock()
	known := p.rooms[r.ID]
	sent := row.Seq - 1
	if known != nil {
		if sent = known.sent; row.Seq <= sent {
			p.mu.Unlock()
			return nil
		}
	}
	p.mu.Unlock()
	head, err := p.sign(m, r, row, row.Seq)
	if err != nil {
		return err
	}
	last := head.Seq // a peer that asked meanwhile may have got a newer head: the records must lead up to that one
	recs, err := r.Read(sent, int(min(last-sent, inlineRecords)), inlineBytes)
	if err != nil {
		return err
	}
	size := 0
	for _, rec := range recs {
		size += len(rec)
	}
	if int64(len(recs)) < last-sent || size > inlineBytes || slices.ContainsFunc(recs, replica.IsRedacted) {
		recs = nil // more than is inlined: they are asked for
	}
	m.metrics.relay.WithLabelValues("published").Inc()
	return m.network.Publish(ctx, relayMessage(head.raw, recs))
}

// sign makes the head of a row of ours, and remembers it.
func (p *publisher) sign(m *Mirror, r *replica.Replica, row replica.Row, sent int64) (signedHead, error) {
	tree, err := adp.TreeFromFrontier(uint64(row.Seq), row.Frontier)
	if err != nil {
		return signedHead{}, err
	}
	root := tree.Root()
	h := Head{Origin: r.Origin, RoomID: r.RoomID, Genesis: r.Genesis, Seq: row.Seq, Hash: row.Hash, Root: adp.Encode(root[:]), At: m.o.Now()}
	e, err := m.o.Sign(TypeHead, h)
	if err != nil {
		return signedHead{}, err
	}
	head := signedHead{h, e.Actor, e.JSON()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rooms == nil {
		p.rooms = map[uint64]*published{}
	}
	if len(p.rooms) >= keptPublished {
		maps.DeleteFunc(p.rooms, func(_ uint64, k *published) bool { return time.Since(k.at) > time.Minute })
	}
	if k := p.rooms[r.ID]; k != nil { // a peer may have asked for one meanwhile
		sent = max(sent, k.sent)
		if k.head.Seq > head.Seq {
			head = k.head
		}
	}
	p.rooms[r.ID] = &published{head, time.Now(), sent}
	return head, nil
}

// headNow is the newest head of one of our own rooms, signed when there is none of
// its newest record. There is none when we sign nothing.
func (p *publisher) headNow(m *Mirror, r *replica.Replica) (signedHead, error) {
	row := r.Row()
	p.mu.Lock()
	known := p.rooms[r.ID]
	p.mu.Unlock()
	switch {
	case m.o.Sign == nil:
		return signedHead{}, nil
	case known != nil && (known.head.Seq >= row.Seq || time.Since(known.at) < headPace):
		return known.head, nil
	case known != nil:
		return p.sign(m, r, row, known.sent)
	}
	return p.sign(m, r, row, row.Seq-1)
}
