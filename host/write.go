package host

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/rs/xid"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// window is how far an event's time may lie from ours (Identity, Live writes).
const window = 300_000

// unavailable is the answer when the store did not take a write.
func (h *Host) unavailable(err error) error {
	var e *adp.Error
	switch {
	case errors.As(err, &e), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // the caller has gone
		return err
	case errors.Is(err, store.ErrDiskFull): // the table of errors has an answer of its own for it
		return err
	}
	h.opt.Log.Error("a write could not be stored", "error", err)
	return adp.Errorf(adp.Internal, "the write could not be stored; try the same again later")
}

// parse does the cheap checks of an envelope: strict text, shape, time and
// hash. The signature, which costs most, comes after all of them.
func parse(body []byte) (*adp.Envelope, error) {
	v, err := adp.Scan(body)
	if err != nil {
		return nil, adp.Errorf(adp.InvalidRequest, "the body is %v", err)
	}
	e, err := adp.ParseEnvelope(v)
	if err != nil {
		return nil, err
	}
	if err := e.CheckShape(); err != nil {
		return nil, err
	}
	if e.Protocol != adp.Protocol {
		return nil, adp.Errorf(adp.InvalidEvent, "event.protocol must be %q here", adp.Protocol)
	}
	return e, nil
}

// authenticate checks payload shape, hash and signature; signatures run on as
// many cores as there are.
func (h *Host) authenticate(ctx context.Context, e *adp.Envelope) error {
	if err := room.CheckPayload(e); err != nil {
		return err
	}
	if err := e.CheckHash(); err != nil {
		return err
	}
	select {
	case h.verify <- struct{}{}:
		defer func() { <-h.verify }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return e.CheckSignature()
}

// fresh does what is left of the checks outside of the room's turn.
func (h *Host) fresh(e *adp.Envelope) error {
	if d := h.now() - e.CreatedAt; d > window || d < -window {
		return adp.Errorf(adp.TimestampOutOfWindow, "event.created_at is %d ms away from this host's clock; %d are allowed", max(d, -d), window).With("now", h.now())
	}
	if max, err := h.nonces.peek(e.Actor); err != nil {
		return h.unavailable(err)
	} else if e.Nonce <= max {
		return notGreater(max)
	}
	return h.mayWrite(e.Actor)
}

// accepted answers for an envelope that is in the room already: the same
// refusal as for any used nonce, with the record, so that a client that lost
// the answer recovers (wire-facts §3.16).
func (h *Host) accepted(ctx context.Context, r *replica.Replica, e *adp.Envelope, seq int64) error {
	greatest, err := h.nonces.peek(e.Actor)
	if err != nil {
		return h.unavailable(err)
	}
	if err := r.View(ctx, func(*room.State) {}); err != nil { // it may be on its way to the disk
		return h.unavailable(err)
	}
	raw, ok, err := r.Record(seq)
	if err != nil || !ok {
		return h.unavailable(errors.Join(err, replica.ErrLost))
	}
	v, err := adp.ScanDepth(raw, adp.RecordDepth)
	if err != nil || !v.Get("envelope").Get("hash").Is(e.Hash) { // its commit failed, and another record took the place
		return h.unavailable(errors.Join(err, replica.ErrLost))
	}
	return adp.Errorf(adp.NonceNotGreater, "this event was accepted before, at seq %d; its record is in data.record", seq).
		With("max_seen_nonce", max(greatest, e.Nonce)).With("record", json.RawMessage(raw))
}

// errAccepted stops a turn in which the envelope turned out to be in the room.
type errAccepted int64

func (e errAccepted) Error() string { return "accepted at seq " + strconv.FormatInt(int64(e), 10) }

// Write accepts one event into a room, and answers once it is on disk.
func (h *Host) Write(ctx context.Context, roomID string, body []byte) (*adp.Record, error) {
	e, err := parse(body)
	if err != nil {
		return nil, err
	}
	if e.Type == room.Create {
		return nil, adp.Errorf(adp.InvalidEvent, "room.create makes a new room; send it to POST /v1/rooms")
	}
	if e.RoomID != roomID {
		return nil, adp.Errorf(adp.InvalidEvent, "event.room_id is %.40q, the path names room %.40q", e.RoomID, roomID)
	}
	r, err := h.find(roomID)
	if err != nil {
		return nil, err
	}
	if err := h.authenticate(ctx, e); err != nil {
		return nil, err
	}
	if seq, ok := r.SeqOf(e.Hash); ok {
		return nil, h.accepted(ctx, r, e, seq)
	}
	if err := h.fresh(e); err != nil {
		return nil, err
	}
	var in imports
	if may, err := h.mayImport(ctx, r, e); err != nil {
		return nil, h.unavailable(err)
	} else if may {
		if in, err = h.imports(ctx, e); err != nil {
			return nil, err
		}
	}
	var rec *adp.Record
	var ch *room.Change
	done := make(chan error, 1)
	err = r.Take(func(t *replica.Turn) error {
		if seq, ok := t.SeqOf(e.Hash); ok {
			return errAccepted(seq)
		}
		return h.nonces.use(e.Actor, e.Nonce, func(b *store.Batch, landed func(error)) error {
			var err error
			rec, ch, err = h.judge(r, t, e, in.packs)
			if err != nil {
				return err
			}
			in.keep(b)
			creator, size := t.State.Creator, int64(len(rec.JSON()))
			settled, err := h.follow(b, r.ID, e, ch)
			if err != nil {
				h.usage.add(creator, 0, -size)
				return err
			}
			err = t.Append(rec, ch, b, func(err error) {
				landed(err)
				settled(err)
				if err != nil {
					h.usage.add(creator, 0, -size)
				}
				done <- err
			})
			if err != nil {
				settled(err)
				h.usage.add(creator, 0, -size)
			}
			return err
		})
	})
	var before errAccepted
	if errors.As(err, &before) {
		return nil, h.accepted(ctx, r, e, int64(before))
	}
	if err == nil {
		err = <-done
	}
	if err != nil {
		return nil, h.unavailable(err)
	}
	h.after(ctx, r, ch)
	return rec, nil
}

// judge runs the state machine and the quotas inside the room's turn. The bytes
// of the record it answers are counted; who does not store it gives them back.
func (h *Host) judge(r *replica.Replica, t *replica.Turn, e *adp.Envelope, packs map[string]*types.Pack) (*adp.Record, *room.Change, error) {
	s := t.State
	now := max(h.now(), s.ReceivedAt) // received_at never steps back
	ch, err := s.Apply(e, room.Context{At: now, Chain: t, Packs: packs, Live: &room.Live{
		Limits: h.opt.Limits.room(), Request: func(id string) (room.JoinRequest, bool) { return h.request(r.ID, id) }}})
	if err != nil {
		var refused *adp.Error
		if errors.As(err, &refused) && refused.Code == adp.RoomHeadMismatch {
			refused.With("events_url", h.roomURL(s.RoomID)+"/events?after_seq="+strconv.FormatInt(e.BaseSeq, 10))
		}
		return nil, nil, err
	}
	rec := adp.NewRecord(e, s.RoomID, s.Last.Seq+1, s.Last.Hash, now)
	size, limits := int64(len(rec.JSON())), h.Access()
	if ch.Close || ch.Cancel || e.Type == room.Leave { // a full room can be ended and left
		limits = Access{}
	}
	if err := h.usage.take(limits, s.Creator, t.Row().Bytes, 0, size); err != nil {
		return nil, nil, err
	}
	if err := h.rates.take(h.quotas(r.ID, e, s, ch), h.now()); err != nil { // received_at may stand still, quotas go on
		h.usage.add(s.Creator, 0, -size)
		return nil, nil, err
	}
	return rec, ch, nil
}

// CreateRoom accepts a room.create and answers once the room is on disk.
func (h *Host) CreateRoom(ctx context.Context, body []byte) (*replica.Replica, *adp.Record, error) {
	e, err := parse(body)
	if err != nil {
		return nil, nil, err
	}
	if e.Type != room.Create {
		return nil, nil, adp.Errorf(adp.InvalidEvent, "POST /v1/rooms takes room.create; send %.60q to POST /v1/rooms/{room_id}", e.Type)
	}
	if err := h.authenticate(ctx, e); err != nil {
		return nil, nil, err
	}
	if err := h.created(ctx, e); err != nil {
		return nil, nil, err
	}
	if err := h.fresh(e); err != nil {
		return nil, nil, err
	}
	if err := h.mayCreate(e.Actor); err != nil {
		return nil, nil, err
	}
	in, err := h.imports(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	var r *replica.Replica
	var rec *adp.Record
	done := make(chan error, 1)
	err = h.nonces.use(e.Actor, e.Nonce, func(b *store.Batch, landed func(error)) error {
		id, now := xid.New().String(), h.now()
		s := room.New(id)
		ch, err := s.Apply(e, room.Context{At: now, Packs: in.packs, Live: &room.Live{Limits: h.opt.Limits.room()}})
		if err != nil {
			return err
		}
		rec = adp.NewRecord(e, id, 1, "", now)
		size := int64(len(rec.JSON()))
		if err := h.usage.take(h.Access(), e.Actor, 0, 1, size); err != nil {
			return err
		}
		in.keep(b)
		b.Expect(createdKey(e.Hash), nil)
		b.Put(createdKey(e.Hash), []byte(id))
		more := func(id uint64, b *store.Batch) { h.standing(b, id, ch) }
		r, err = h.set.CreateWith(h.opt.Origin, rec, ch, replica.Row{}, b, more, func(err error) {
			landed(err)
			if err != nil {
				h.usage.add(e.Actor, -1, -size)
			}
			done <- err
		})
		if err != nil {
			h.usage.add(e.Actor, -1, -size)
			return err
		}
		return h.rates.take(h.quotas(r.ID, e, s, ch), now)
	})
	if err == nil {
		err = <-done
	}
	if err != nil {
		if again := h.created(ctx, e); again != nil { // the same envelope, at the same time
			return nil, nil, again
		}
		return nil, nil, h.unavailable(err)
	}
	h.after(ctx, r, &room.Change{Contract: &room.Contract{}})
	return r, rec, nil
}

// createdKey leads from the envelope hash of a room.create to its room.
func createdKey(envelopeHash string) []byte { return store.Meta("created/" + envelopeHash) }

// created refuses a room.create that has made its room already.
func (h *Host) created(ctx context.Context, e *adp.Envelope) error {
	id, ok, err := h.st.Get(createdKey(e.Hash))
	if err != nil {
		return h.unavailable(err)
	}
	if !ok {
		return nil
	}
	r, err := h.find(string(id))
	if err != nil {
		return err
	}
	return h.accepted(ctx, r, e, 1)
}

// after does what follows a commit, before the writer is answered.
func (h *Host) after(ctx context.Context, r *replica.Replica, ch *room.Change) {
	for _, m := range ch.Members {
		if m.Member == nil || m.Member.Role == "observer" {
			h.statuses.clear(r.ID, m.Agent)
		}
	}
	h.changed(r)
	if ch.Contract != nil || ch.Close || ch.Cancel {
		if err := h.reschedule(context.WithoutCancel(ctx), r); err != nil { // the writer may have gone
			h.opt.Log.Error("a room could not be scheduled", "room", r.RoomID, "error", err)
		}
	}
}
