package host

import (
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

const minute = 60_000

// rates counts accepted events in a sliding minute per agent, room and kind,
// and per type that has a hint (wire-facts §6).
type rates struct {
	sync.Mutex
	windows map[rateKey][]int64 // times of acceptance, ascending
}

type rateKey struct {
	room  uint64
	agent adp.AgentID
	what  string
}

// quota is one window that an event counts in.
type quota struct {
	key   rateKey
	limit int64
	name  string
}

// take counts an event in all its windows, or in none and says which is full.
func (r *rates) take(quotas []quota, now int64) error {
	r.Lock()
	defer r.Unlock()
	for _, q := range quotas {
		w := r.windows[q.key]
		for len(w) > 0 && w[0] <= now-minute {
			w = w[1:]
		}
		for i := len(w) - 1; i >= 0 && w[i] > now; i-- { // the clock was set back: a minute from now is enough
			w[i] = now
		}
		r.windows[q.key] = w
		if int64(len(w)) >= q.limit {
			wait := (w[int64(len(w))-q.limit] + minute - now + 999) / 1000
			return adp.Errorf(adp.RateLimited, "the quota %s (%d a minute) is used up; try again in %d s", q.name, q.limit, wait).
				With("limit", q.name).With("retry_after", wait)
		}
	}
	for _, q := range quotas {
		r.windows[q.key] = append(r.windows[q.key], now)
	}
	return nil
}

// sweep forgets windows in which nothing happened for a minute, and those of a clock that was far ahead.
func (r *rates) sweep(now int64) {
	r.Lock()
	defer r.Unlock()
	for k, w := range r.windows {
		if last := len(w) - 1; last < 0 || w[last] <= now-minute || w[last] > now+minute {
			delete(r.windows, k)
		}
	}
}

// quotas lists the windows of an event. Closing, cancelling and leaving are
// never rate-limited.
func (h *Host) quotas(replicaID uint64, e *adp.Envelope, s *room.State, ch *room.Change) []quota {
	l := h.opt.Limits
	var name string
	var limit int64
	switch e.Type {
	case room.Close, room.Cancel, room.Leave:
		return nil
	}
	switch ch.Class {
	case room.ClassMessage:
		name, limit = "message_per_minute", l.MessagePerMinute
	case room.ClassSignal:
		name, limit = "signal_per_minute", l.SignalPerMinute
	default: // lifecycle events and type.define count as control
		name, limit = "control_per_minute", l.ControlPerMinute
	}
	var all []quota
	if limit > 0 {
		all = append(all, quota{rateKey{replicaID, e.Actor, name}, limit, name})
	}
	if def, ok := s.Registry.Get(e.Type); ok && def.RateHint > 0 {
		all = append(all, quota{rateKey{replicaID, e.Actor, "type " + e.Type}, def.RateHint, "rate_hint of " + e.Type})
	}
	return all
}

// use is what a creator, or everybody, takes up.
type use struct{ rooms, bytes int64 }

// usage counts rooms and bytes of records, per creator and in all.
type usage struct {
	sync.Mutex
	byCreator map[adp.AgentID]use
	all       use
}

func (u *usage) add(creator adp.AgentID, rooms, bytes int64) {
	u.Lock()
	defer u.Unlock()
	u.count(creator, rooms, bytes)
}

// count keeps no creator who takes up nothing: keys cost nothing. u is locked.
func (u *usage) count(creator adp.AgentID, rooms, bytes int64) {
	c := u.byCreator[creator]
	c.rooms, c.bytes = c.rooms+rooms, c.bytes+bytes
	if u.byCreator[creator] = c; c == (use{}) {
		delete(u.byCreator, creator)
	}
	u.all.rooms, u.all.bytes = u.all.rooms+rooms, u.all.bytes+bytes
}

// take counts rooms and bytes that are about to be stored, the bytes in a room
// that holds inRoom already, or says which limit of the operator they go over.
// What is then not stored is given back with add.
func (u *usage) take(a Access, creator adp.AgentID, inRoom, rooms, bytes int64) error {
	u.Lock()
	defer u.Unlock()
	c := u.byCreator[creator]
	for _, l := range []struct {
		name, what     string
		limit, now, by int64
	}{{"rooms_per_creator", "you have", a.RoomsPerCreator, c.rooms, rooms}, {"rooms_total", "this host has", a.RoomsTotal, u.all.rooms, rooms}} {
		if l.limit > 0 && l.by > 0 && l.now+l.by > l.limit {
			return adp.Errorf(adp.RateLimited, "%s %d rooms, and no more than %d are taken (host.%s)", l.what, l.now, l.limit, l.name).With("limit", l.name).With("retry_after", 3600)
		}
	}
	for _, l := range []struct {
		name       string
		limit, now int64
	}{{"bytes_per_room", a.BytesPerRoom, inRoom}, {"bytes_per_creator", a.BytesPerCreator, c.bytes}, {"bytes_total", a.BytesTotal, u.all.bytes}} {
		if l.limit > 0 && l.now+bytes > l.limit {
			return adp.Errorf(adp.PayloadTooLarge, "the record of %d bytes would go over the limit host.%s (%d bytes, %d in use)", bytes, l.name, l.limit, l.now).With("limit", l.name)
		}
	}
	u.count(creator, rooms, bytes)
	return nil
}
