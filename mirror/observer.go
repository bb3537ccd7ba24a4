package mirror

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// A host whose operator-given option says so is observed: the mirror joins its
// rooms once, as an observer with the perspective "mirror", and follows their live
// streams (federation.md, Mirroring a host, 2). That leaves a record in each room,
// so it is off by default, and a mirror that was removed does not come back by
// itself.

const (
	perspective = "mirror"
	maxStreams  = 64  // of one host; its other rooms are polled
	maxSeats    = 256 // rooms of one host of which it is remembered that we joined

	streamIdle   = 60 * time.Second // hosts send a heartbeat about every 15 s
	maxStreamBuf = 1 << 20          // bytes of one line
	leaveTime    = 10 * time.Second // for all rooms of a host that is removed
	maxJoinTries = 3                // when the head of the room moves under a join
)

// What is remembered of a room that we joined.
const (
	seatJoined = "joined"
	seatOut    = "out" // we were removed, or not let in: not again before Retry
)

// errNotHeld: the operator has forgotten the room.
var errNotHeld = errors.New("the room is no longer held")

// canObserve tells whether there are means to. Row is read under h.mu.
func (h *host) canObserve() bool {
	o := &h.m.o
	return h.row.Observe && !h.row.Paused && o.Event != nil && o.Token != nil && o.Agent != ""
}

// wantsStream tells whether a room that the host and we agree on should be followed
// live from now on, and takes a place for it. h.mu is held.
func (h *host) wantsStream(v *roomView, l listedRoom, now int64) bool {
	if !h.canObserve() || h.live == nil || v.streaming || v.r == nil || l.status != string(room.Active) || now < max(v.streamAt, h.streamHeld) ||
		h.row.Seats[v.id] == seatOut || h.streaming >= maxStreams {
		return false
	}
	v.streaming = true
	h.streaming++
	return true
}

// observe joins a room if need be and follows its stream until that ends.
func (h *host) observe(v *roomView) {
	h.mu.Lock()
	if h.live == nil || !h.canObserve() { // paused since the look that wanted it, perhaps
		v.streaming = false
		h.streaming--
		h.mu.Unlock()
		return
	}
	if h.streams == nil {
		h.streams, h.endStreams = context.WithCancel(h.live)
	}
	ctx := h.streams
	h.jobs.Go(func() {
		began := time.Now()
		err := h.attend(ctx, v)
		h.mu.Lock()
		v.streaming = false
		h.streaming--
		if time.Since(began) > h.m.o.PollMax { // it worked for a while
			v.streamFails = 0
		}
		wait := min(h.m.o.PollMin<<min(v.streamFails, 20), max(h.m.o.PollMax, h.m.o.PollMin))
		if wait <= 0 {
			wait = h.m.o.PollMax
		}
		v.streamFails++
		v.streamAt = h.m.o.Now() + jitter(wait).Milliseconds()
		h.heard = 0 // polling takes over
		h.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		h.m.log.Info("a live stream ended; the room is polled", "origin", h.origin, "room", v.id, "reason", err)
		poke(h.stir)
	})
	h.mu.Unlock()
}

// stopStreams ends the live streams of the host.
func (h *host) stopStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.endStreams != nil {
		h.endStreams()
		h.streams, h.endStreams = nil, nil
	}
}

// attend is observe without the book-keeping.
func (h *host) attend(ctx context.Context, v *roomView) error {
	for try := 1; ; try++ {
		in, err := h.seat(ctx, v)
		if err != nil {
			return err
		}
		if in {
			break
		}
		err = h.join(ctx, v)
		var s *statusError
		if errors.As(err, &s) && (s.code == string(adp.RoomHeadMismatch) || s.code == string(adp.BaseRecordMismatch)) && try < maxJoinTries {
			err = h.catchUp(ctx, v)
		}
		if err == nil && try >= maxJoinTries {
			err = errors.New("the host took the join and shows no record of it")
		}
		if err != nil {
			return err
		}
	}
	return h.stream(ctx, v)
}

// seat tells whether we are an observer of the room by the records that we hold,
// and otherwise whether we may become one: an error says why not.
func (h *host) seat(ctx context.Context, v *roomView) (in bool, err error) {
	if err := h.catchUp(ctx, v); err != nil {
		return false, err
	}
	me := h.m.o.Agent
	var banned, closed bool
	var status room.Status
	r := h.replicaOf(v)
	if r == nil {
		return false, errNotHeld
	}
	err = r.View(ctx, func(s *room.State) {
		in, banned, closed, status = s.IsMember(me), s.Banned[me], s.Contract.Policy.NoObservers || s.Contract.Visibility != room.Public, s.StatusAt(h.m.o.Now())
	})
	if err != nil {
		return false, local(err)
	}
	h.mu.Lock()
	seat := h.row.Seats[v.id]
	h.mu.Unlock()
	switch {
	case status != room.Active:
		return false, errors.New("the room is not active")
	case in:
		return true, nil
	case seat == seatJoined || banned:
		return false, h.keepOut(v, "this mirror was removed from the room; `retry` lets it join again")
	case closed:
		return false, h.keepOut(v, "the room takes no observers")
	}
	return false, nil
}

// keepOut remembers that a room is not to be joined, and gives the reason back.
func (h *host) keepOut(v *roomView, reason string) error {
	if err := h.setSeat(v.id, seatOut); err != nil {
		return err
	}
	return errors.New(reason)
}

func (h *host) setSeat(id, seat string) error {
	full := false
	err := h.update(func(row *hostRow) {
		seats := maps.Clone(row.Seats)
		if seats == nil {
			seats = map[string]string{}
		}
		if _, known := seats[id]; !known && len(seats) >= maxSeats {
			full = true
			return
		}
		seats[id] = seat
		row.Seats = seats
	})
	if err == nil && full {
		err = fmt.Errorf("this mirror has joined %d rooms of the host; the others are polled", maxSeats)
	}
	return err
}

// readmit forgets which rooms are not to be joined, when the operator says so.
func (h *host) readmit() error {
	h.mu.Lock()
	n := 0
	for _, seat := range h.row.Seats {
		if seat == seatOut {
			n++
		}
	}
	h.mu.Unlock()
	if n == 0 {
		return nil
	}
	return h.update(func(row *hostRow) {
		row.Seats = maps.Clone(row.Seats)
		maps.DeleteFunc(row.Seats, func(_, seat string) bool { return seat == seatOut })
	})
}

// join asks for the seat. Whether an answer that got lost was a yes, the records
// tell: they are read again before another try.
func (h *host) join(ctx context.Context, v *roomView) error {
	e, err := h.event(ctx, v, room.Join, map[string]any{"role": "observer", "perspective": perspective})
	if err != nil {
		return err
	}
	err = h.post(ctx, h.api()+"/rooms/"+v.id, e.JSON())
	var s *statusError
	switch {
	case errors.As(err, &s) && s.status/100 == 4 && s.status != http.StatusTooManyRequests && s.status != http.StatusRequestTimeout &&
		s.code != string(adp.RoomHeadMismatch) && s.code != string(adp.BaseRecordMismatch):
		return errors.Join(h.setSeat(v.id, seatOut), fmt.Errorf("the host does not let this mirror in: %w", err))
	case err != nil:
		return err
	}
	if err := h.setSeat(v.id, seatJoined); err != nil {
		return err
	}
	h.m.log.Info("joined a room as an observer", "origin", h.origin, "room", v.id)
	return nil
}

// event signs a room event on the present head.
func (h *host) event(ctx context.Context, v *roomView, typ string, payload any) (*adp.Envelope, error) {
	var head room.Position
	r := h.replicaOf(v)
	if r == nil {
		return nil, errNotHeld
	}
	if err := r.View(ctx, func(s *room.State) { head = s.Head }); err != nil {
		return nil, local(err)
	}
	return h.m.o.Event(adp.Draft{Protocol: adp.Protocol, Type: typ, RoomID: v.id, BaseSeq: head.Seq, BaseHash: head.Hash, Payload: payload})
}

const maxAnswer = 1 << 20

// post sends an event to the host.
func (h *host) post(ctx context.Context, url string, body []byte) error {
	if err := h.limiter.Wait(ctx); err != nil {
		return err
	}
	resp, err := h.m.o.Fetch.Do(ctx, fetch.Request{Method: http.MethodPost, URL: url, Body: body, MaxBytes: maxAnswer, Header: http.Header{"Content-Type": {apiType}}})
	if err != nil {
		return err
	}
	h.holdStreams(resp.Status, resp.Header)
	return h.refusal(http.MethodPost, url, resp.Status, resp.Body)
}

// holdStreams keeps a Retry-After of a host that has no more seats or streams to give.
// Polling goes on: the look at the list tells whether all of it wants to be left alone.
func (h *host) holdStreams(status int, header http.Header) {
	if d := h.retryAfter(status, header); d > 0 {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.streamHeld = max(h.streamHeld, h.m.o.Now()+d.Milliseconds())
	}
}

// catchUp reads what the host has behind what we hold.
func (h *host) catchUp(ctx context.Context, v *roomView) error {
	h.mu.Lock()
	for v.busy {
		if v.freed == nil {
			v.freed = make(chan struct{})
		}
		freed := v.freed
		h.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
		h.mu.Lock()
	}
	v.busy = true
	h.mu.Unlock()
	err := h.inSlot(ctx, func() error {
		return h.sync(ctx, v, listedRoom{id: v.id, visibility: room.Public, status: string(room.Active)})
	})
	if ctx.Err() != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.giveBack(v)
		return ctx.Err()
	}
	h.finish(v, listedRoom{}, err)
	return err
}

// stream follows the live stream. It subscribes first and then reads the history
// behind our place, so that nothing falls in between (ADP §17).
func (h *host) stream(ctx context.Context, v *roomView) error {
	token, err := h.m.o.Token(h.origin)
	if err != nil {
		return err
	}
	url := h.api() + "/rooms/" + v.id + "/events/live"
	if err := h.limiter.Wait(ctx); err != nil {
		return err
	}
	s, err := h.m.o.Fetch.Stream(ctx, fetch.Request{URL: url, Header: http.Header{"Authorization": {"Bearer " + token}, "Accept": {"text/event-stream"}}}, streamIdle)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Status != http.StatusOK {
		h.holdStreams(s.Status, s.Header)
		body, err := io.ReadAll(io.LimitReader(s, 64<<10))
		if err != nil {
			return err
		}
		return h.refusal(http.MethodGet, url, s.Status, body)
	}
	if err := h.catchUp(ctx, v); err != nil {
		return err
	}
	h.m.metrics.relay.WithLabelValues("stream_opened").Inc()
	err = streamItems(s, func(event string, data []byte) error {
		if event != "room.event" {
			return nil
		}
		return h.live1(v, data)
	})
	if err == nil {
		err = errors.New("the host ended it")
	}
	return err
}

// live1 hands one record of a stream to the way that all records take. One that
// cannot be read ends the stream: what the host serves as history decides.
func (h *host) live1(v *roomView, data []byte) error {
	c := checkServed(element{raw: data})
	if c.err != nil {
		h.m.metrics.records.WithLabelValues("refused").Inc()
		return fmt.Errorf("the stream holds something that is no authentic record: %w", c.err)
	}
	if c.rec.RoomID != v.id {
		return fmt.Errorf("the stream holds a record of another room")
	}
	r := h.replicaOf(v)
	if r == nil {
		return errNotHeld
	}
	h.hear(&news{recs: []checked{c}, bytes: int64(len(data)), head: signedHead{Head: Head{Origin: h.origin, RoomID: v.id, Genesis: r.Genesis, Seq: c.rec.Seq, Hash: c.rec.Hash}}})
	return nil
}

// streamItems reads server-sent events until the stream or take ends. data is take's
// own.
func streamItems(r io.Reader, take func(event string, data []byte) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 16<<10), maxStreamBuf)
	event, data, some := "", []byte(nil), false
	for sc.Scan() {
		line := sc.Bytes()
		if len(line) == 0 {
			if some {
				if err := take(event, data); err != nil {
					return err
				}
			}
			event, data, some = "", nil, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			event = string(value)
		case "data":
			if some {
				data = append(data, '\n')
			}
			if len(data)+len(value) > maxStreamBuf {
				return fmt.Errorf("an item of the stream is longer than %d bytes", maxStreamBuf)
			}
			data, some = append(data, value...), true
		}
	}
	return sc.Err()
}

// leaveRooms gives up the seats of a host that is removed. It tries each once: a
// host that is gone has nobody to tell.
func (h *host) leaveRooms() {
	h.mu.Lock()
	seats := maps.Clone(h.row.Seats)
	views := map[string]*roomView{}
	for id, v := range h.rooms {
		views[id] = v
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	for id, seat := range seats {
		v := views[id]
		if seat != seatJoined || v == nil {
			continue
		}
		r := h.replicaOf(v)
		if r == nil || r.Row().State == replica.Complete {
			continue
		}
		in := false
		if err := r.View(ctx, func(s *room.State) { in = s.IsMember(h.m.o.Agent) }); err != nil || !in {
			continue
		}
		e, err := h.event(ctx, v, room.Leave, map[string]any{})
		if err == nil {
			err = h.post(ctx, h.api()+"/rooms/"+id, e.JSON())
		}
		if err != nil {
			h.m.log.Warn("a room could not be left", "origin", h.origin, "room", id, "error", err)
		}
	}
}
