package room

import (
	"bytes"

	"github.com/witan-adp/witan/adp"
)

// create keeps ADP §9: the contract, the creator's membership, the first types.
func (c *checker) create() {
	if c.s.Last.Seq != 0 {
		c.fail(adp.InvalidEvent, "room.create makes a new room; send it to POST /v1/rooms")
		c.void = true
		return
	}
	k := &Contract{Visibility: Private}
	c.ch.Creator, c.ch.Contract = c.e.Actor, k
	c.ch.Members = []MemberChange{{Agent: c.e.Actor, Member: &Member{Role: "moderator"}, How: "joined"}}
	k.take(c.p)
	if v := c.p.Get("visibility").Text(); v == Public || v == Restricted {
		k.Visibility = v
	}
	if e := c.p.Get("extra"); e.Kind() == adp.Object {
		k.Extra = bytes.Clone(e.Raw()) // the text may be lent, and a state lives on
	}
	if k.StartTime >= k.EndTime {
		c.fail(adp.InvalidEvent, "start_time must be earlier than end_time")
	}
	if c.live() {
		c.duration(k)
		if k.EndTime <= c.ctx.At {
			c.fail(adp.InvalidEvent, "end_time has passed already")
		}
		c.size(nil)
	}
	if c.stop() {
		return
	}
	var entries []adp.Value
	for v := range c.p.Get("types").Elements() {
		entries = append(entries, v)
	}
	c.define(entries)
}

// duration keeps the quotas of ADP §21, which only a host applies.
func (c *checker) duration(k *Contract) {
	l := c.ctx.Live.Limits
	d := k.EndTime - k.StartTime
	if l.RoomMin > 0 && d < l.RoomMin {
		c.fail(adp.InvalidEvent, "a room here lasts at least %d ms (limits.room_min_ms)", l.RoomMin)
	}
	if l.RoomMax > 0 && d > l.RoomMax {
		c.fail(adp.InvalidEvent, "a room here lasts at most %d ms (limits.room_max_ms)", l.RoomMax)
	}
}

// take reads the members that are there and of the right kind; the shape has
// already been judged. An empty value clears (ADP §9.4).
func (k *Contract) take(p adp.Value) {
	str := func(name string, to *string) {
		if s, ok := p.Get(name).Str(); ok {
			*to = s
		}
	}
	num := func(name string, to *int64) {
		if n, ok := p.Get(name).Int(); ok {
			*to = n
		}
	}
	str("topic", &k.Topic)
	str("agenda", &k.Agenda)
	str("guidance", &k.Guidance)
	str("language", &k.Language)
	num("start_time", &k.StartTime)
	num("end_time", &k.EndTime)
	if v := p.Get("tags"); v.Kind() == adp.Array {
		k.Tags = nil
		for t := range v.Elements() {
			if s, ok := t.Str(); ok {
				k.Tags = append(k.Tags, s)
			}
		}
	}
	if v := p.Get("policy"); v.Kind() == adp.Object {
		k.setPolicy(v)
	}
}

func (k *Contract) setPolicy(v adp.Value) {
	k.Policy, k.PolicyJSON = Policy{}, nil
	if v.Len() == 0 {
		return
	}
	k.PolicyJSON = bytes.Clone(v.Raw())
	for m := range v.Get("moderator_agent_ids").Elements() {
		if id, err := adp.ParseAgentID(m.Text()); err == nil {
			k.Policy.Moderators = append(k.Policy.Moderators, id)
		}
	}
	if n, ok := v.Get("max_speakers").Int(); ok && n > 0 {
		k.Policy.MaxSpeakers = n
	}
	if allowed, ok := v.Get("observer_allowed").Bool(); ok {
		k.Policy.NoObservers = !allowed
	}
}

// update keeps ADP §9.4. Fields that are there replace the value as a whole.
func (c *checker) update(status Status) {
	k := *c.s.Contract
	k.take(c.p)
	if c.p.Get("start_time").Exists() && status == Active {
		c.fail(adp.InvalidEvent, "start_time cannot change once the room is active")
	}
	if k.StartTime >= k.EndTime {
		c.fail(adp.InvalidEvent, "start_time must stay earlier than end_time")
	}
	if status == Active && k.EndTime <= c.ctx.At {
		c.fail(adp.InvalidEvent, "end_time has passed; end the room at once with room.close")
	}
	if c.live() {
		if c.p.Get("start_time").Exists() || c.p.Get("end_time").Exists() {
			c.duration(&k)
		}
		if k.EndTime <= c.ctx.At {
			c.fail(adp.InvalidEvent, "end_time has passed already")
		}
	}
	c.ch.Contract = &k
}
