package room

import (
	"errors"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// Outcome is what a verifier finds about a record that is authentic and linked.
type Outcome string

// The outcomes.
const (
	Allowed      Outcome = "allowed"
	Violation    Outcome = "violation"
	Unverifiable Outcome = "unverifiable"
)

// Verdict is an Outcome with its rule (an error code of ADP §20) or its reason.
type Verdict struct {
	Outcome Outcome
	Rule    adp.Code // of a violation
	Reason  string
}

// Apply judges a live write against the state. It answers with the Change that
// accepting it makes, or with a coded *adp.Error; the state stays as it is.
// ctx.Live must be set. The envelope must be authentic.
func (s *State) Apply(e *adp.Envelope, ctx Context) (*Change, error) {
	ctx.At = max(ctx.At, s.Clock)
	c := checker{s: s, e: e, ctx: ctx, p: e.Payload, ch: &Change{}}
	c.run()
	if c.err != nil {
		return nil, c.err
	}
	if c.unsure != "" {
		return nil, adp.Errorf(adp.InvalidEvent, "this host cannot judge the event: %s", c.unsure)
	}
	return c.ch, nil
}

// Judge says whether a host was allowed to accept a record, and what the record
// did to the room. The record must be authentic and linked; only the first
// record can be refused, when it does not create the room.
func (s *State) Judge(r *adp.Record, ctx Context) (Verdict, *Change, error) {
	if s.Last.Seq == 0 && r.Envelope.Type != Create {
		return Verdict{}, nil, adp.Errorf(adp.InvalidEvent, "a room starts with room.create, not with %.60q", r.Envelope.Type)
	}
	if r.Redacted {
		return s.judgeRedacted(r)
	}
	ctx.Live = nil
	ctx.At = max(r.ReceivedAt, s.Clock)
	c := checker{s: s, e: r.Envelope, ctx: ctx, p: r.Envelope.Payload, ch: &Change{}}
	c.run()
	if c.void && s.Last.Seq > 0 { // the payload says nothing that could take effect
		c.ch = &Change{Class: c.ch.Class, maybe: c.ch.maybe}
	}
	switch {
	case c.err != nil:
		return Verdict{Violation, c.err.Code, c.err.Message}, c.ch, nil
	case c.unsure != "":
		return Verdict{Unverifiable, "", c.unsure}, c.ch, nil
	}
	return Verdict{Outcome: Allowed}, c.ch, nil
}

// CheckPayload judges the closed shape of a built-in payload (wire-facts §2),
// without the room: a cheap check before the costly ones. Payloads of
// room-declared types pass; the registry judges them.
func CheckPayload(e *adp.Envelope) error {
	if shape, ok := shapes[e.Type]; ok {
		return shape(e.Payload)
	}
	return nil
}

// checker goes once through the rules for one event. The first failure is what
// counts; when replaying, it goes on, to learn what the record did.
type checker struct {
	s   *State
	e   *adp.Envelope
	ctx Context
	p   adp.Value
	ch  *Change

	err    *adp.Error
	unsure string
	void   bool
}

func (c *checker) fail(code adp.Code, format string, args ...any) {
	if c.err == nil {
		c.err = adp.Errorf(code, format, args...)
	}
}

// note keeps an error from elsewhere; what carries no code is our own fault
// and no judgement of the event.
func (c *checker) note(err error) {
	if err == nil || c.err != nil {
		return
	}
	var e *adp.Error
	if !errors.As(err, &e) {
		e = adp.Errorf(adp.Internal, "%v", err)
	}
	c.err = e
}

func (c *checker) doubt(reason string) {
	if c.unsure == "" {
		c.unsure = reason
	}
}

func (c *checker) live() bool { return c.ctx.Live != nil }

// stop tells whether a live check already knows its answer.
func (c *checker) stop() bool { return c.live() && c.err != nil }

func (c *checker) run() {
	e, s := c.e, c.s
	if c.ch.Class = builtin[e.Type]; e.Protocol != adp.Protocol {
		c.fail(adp.InvalidEvent, "event.protocol must be %q", adp.Protocol)
	}
	c.note(e.CheckShape())
	if shape, ok := shapes[e.Type]; ok {
		if err := shape(c.p); err != nil {
			c.note(err)
			c.void = true
		}
	}
	c.mentions()
	if e.Type == Create {
		c.create()
		return
	}
	if s.Last.Seq == 0 {
		c.fail(adp.InvalidEvent, "the room does not exist yet")
	}
	if e.RoomID != s.RoomID {
		c.fail(adp.InvalidEvent, "event.room_id is not the ID of this room")
	}
	if c.stop() {
		return
	}
	status := s.StatusAt(c.ctx.At)
	if c.live() && !s.MayLook(e.Actor, c.ctx.At) {
		c.outside(status)
		return
	}
	c.over(status)
	if seq, ok := c.ctx.Chain.SeqOf(e.Hash); ok {
		c.fail(adp.InvalidEvent, "this envelope was accepted before, at seq %d", seq)
	}
	def := c.class()
	if c.stop() {
		return
	}
	c.anchor()
	c.phase(status)
	if c.stop() {
		return
	}
	switch e.Type {
	case Update:
		c.manage()
		c.update(status)
	case Join:
		c.join()
	case Review:
		c.manage()
		c.review()
	case Leave:
		c.leave()
	case RoleUpdate:
		c.manage()
		c.roleUpdate()
	case Remove:
		c.manage()
		c.remove()
	case Close:
		c.manage()
		c.ch.Close = true
		c.references(false)
	case Cancel:
		c.manage()
		c.ch.Cancel = true
		c.references(false)
	case Define:
		c.manage()
		c.define([]adp.Value{c.p})
	case Message:
		c.send(func(r types.Role) bool { return Speaks(r) })
		c.references(true)
	default:
		c.custom(def)
	}
	c.size(def)
}

// over keeps ADP §8: a room that is over takes no write of any kind.
func (c *checker) over(status Status) {
	switch status {
	case Ended:
		c.fail(adp.RoomEnded, "the room has ended; its record is complete and read-only")
	case Cancelled:
		c.fail(adp.RoomNotActive, "the room was cancelled and takes no writes")
	}
}

// outside answers who may not know a private room (ADP §16). All that they send
// but a join gets one answer, whatever the room has for types, head and times.
// A join is judged by its request alone, and by whether the room is over, as a
// join request is.
func (c *checker) outside(status Status) {
	if c.e.Type == Join {
		if c.over(status); !c.stop() {
			c.join()
		}
	}
	c.fail(adp.PermissionDenied, "only members may write to this room; make a join request first")
}

// mostMentions is the MUST of ADP §6, which no host's quota can widen.
const mostMentions = 32

// mentions keeps ADP §6: at most 32. Repeats, and mentions on room.create, are
// only our choice (wire-facts §3.22).
func (c *checker) mentions() {
	m := c.e.Mentions
	if !m.Exists() {
		return
	}
	limit := mostMentions
	if c.live() {
		if l := c.ctx.Live.Limits.Mentions; l > 0 && l < limit {
			limit = l
		}
		if c.e.Type == Create {
			c.fail(adp.InvalidEvent, "room.create carries no mentions")
		}
		if repeats(m) {
			c.fail(adp.InvalidEvent, "event.mentions names an agent twice")
		}
	}
	if m.Len() > limit {
		c.fail(adp.InvalidEvent, "event.mentions may hold %d Agent IDs at most", limit)
	}
}

// class finds the class of the event's type, and its definition when the room
// declared it.
func (c *checker) class() *types.Definition {
	if IsBuiltin(c.e.Type) {
		return nil
	}
	def, ok := c.s.Registry.Get(c.e.Type)
	switch {
	case ok:
		c.ch.Class = Class(def.Kind)
	case !c.live() && c.s.Unresolved:
		c.ch.maybe = true
		c.doubt("the type may come from a pack that is not at hand")
	default:
		c.ch.maybe = true
		c.fail(adp.TypeNotDefined, "the room's registry has no type %.80q; see types in the room resource", c.e.Type)
	}
	return def
}

// anchor keeps ADP §6.1: signals refer to any accepted record, all else to the
// head.
func (c *checker) anchor() {
	e, s := c.e, c.s
	base := Position{e.BaseSeq, e.BaseHash}
	if c.ch.maybe || !c.ch.Class.MovesHead() {
		if h, ok := c.ctx.Chain.HashAt(base.Seq); !ok || h != base.Hash {
			c.fail(adp.BaseRecordMismatch, "base_hash is not the hash of the record at base_seq %d in this room", base.Seq)
		}
		return
	}
	if len(s.Maybe) > 0 && c.maybeHead(base) {
		c.doubt("the head is not known: an event before is of a type that is not")
		return
	}
	if base == s.Head {
		return
	}
	if c.err == nil {
		c.err = adp.Errorf(adp.RoomHeadMismatch, "the room head is seq %d; read what came since base_seq %d, decide again and sign a new event", s.Head.Seq, base.Seq).
			With("base_seq", base.Seq).With("base_hash", base.Hash).With("current_seq", s.Head.Seq).With("current_hash", s.Head.Hash)
	}
}

// maybeHead tells whether a record may be the head, where records of unknown
// class came after the last one that surely is. Past the bound of Maybe, every
// record since may be.
func (c *checker) maybeHead(base Position) bool {
	s := c.s
	if base == s.Head || slices.Contains(s.Maybe, base) {
		return true
	}
	if len(s.Maybe) < maxMaybe || base.Seq <= s.Maybe[maxMaybe-1].Seq {
		return false
	}
	h, ok := c.ctx.Chain.HashAt(base.Seq)
	return ok && h == base.Hash
}

// phase keeps the table of ADP §14, State restrictions.
func (c *checker) phase(status Status) {
	switch status {
	case Scheduled:
		switch c.e.Type {
		case Join, Review, RoleUpdate, Remove, Leave, Update, Define, Cancel:
		default:
			c.fail(adp.RoomNotActive, "the room has not started; it takes no %s before start_time", c.e.Type)
		}
	case Active:
		if c.e.Type == Cancel {
			c.fail(adp.RoomNotActive, "the room has started; end it with room.close")
		}
	}
}

// manage keeps the column of allowed actors in ADP §13.2 for the events of
// creators and moderators. Creator power does not rest on membership.
func (c *checker) manage() {
	if !c.s.MayManage(c.e.Actor) {
		c.fail(adp.PermissionDenied, "only the creator and moderators may send %s", c.e.Type)
	}
}

// send keeps ADP §14: membership first, then the role, which creator power
// replaces.
func (c *checker) send(may func(types.Role) bool) {
	m, ok := c.s.Members[c.e.Actor]
	switch {
	case !ok:
		c.fail(adp.PermissionDenied, "only members may send %s; join the room first", c.e.Type)
	case c.e.Actor != c.s.Creator && !may(m.Role):
		c.fail(adp.PermissionDenied, "the role %s may not send %s", m.Role, c.e.Type)
	}
}

// references keeps ADP §12: a message refers to events of its own room. For
// other built-in events the same is our own choice.
func (c *checker) references(must bool) {
	if !must && !c.live() {
		return
	}
	for ref := range c.p.Get("references").Elements() {
		if _, ok := c.ctx.Chain.SeqOf(ref.Text()); !ok {
			c.fail(adp.InvalidEvent, "references names %.50q, which is no event hash of this room", ref.Text())
			return
		}
	}
}

// custom keeps ADP §13.6 for a type that the room declared.
func (c *checker) custom(def *types.Definition) {
	if def == nil {
		if _, ok := c.s.Members[c.e.Actor]; !ok { // no type reaches a stranger (ADP §13.1)
			c.fail(adp.PermissionDenied, "only members may send %s; join the room first", c.e.Type)
		}
		return
	}
	if _, member := c.s.Members[c.e.Actor]; member && !c.live() && c.s.Unresolved {
		c.redefinable(def)
		return
	}
	if def.Status == "disabled" {
		c.fail(adp.TypeDisabled, "the type %s is disabled in this room", c.e.Type)
	}
	c.send(def.MayRole)
	c.size(def) // before the schema, whose cost grows with the payload
	if c.stop() {
		return
	}
	if err := def.Check(c.p); errors.Is(err, types.ErrUnjudged) {
		c.doubt("the schema of " + def.Type + " is outside what this verifier runs, or costs too much on a payload of this size")
	} else {
		c.note(err)
	}
}

// redefinable judges an event whose definition an import that is not at hand
// may have replaced, all but its kind: what the definition forbids is then no
// proof of a violation.
func (c *checker) redefinable(def *types.Definition) {
	role := c.s.Members[c.e.Actor].Role
	if def.Status == "disabled" || c.e.Actor != c.s.Creator && !def.MayRole(role) || def.Check(c.p) != nil {
		c.doubt("a type pack that is not at hand may have redefined " + def.Type)
	}
}

// size keeps the payload quota (ADP §21), which a type's hint moves within the
// ceiling. A quota is never a violation.
func (c *checker) size(def *types.Definition) {
	if !c.live() {
		return
	}
	l := c.ctx.Live.Limits
	limit := l.PayloadBytes
	if def != nil && def.MaxPayload > 0 {
		limit = def.MaxPayload
		if l.PayloadCeiling > 0 {
			limit = min(limit, l.PayloadCeiling)
		}
	}
	if n := int64(len(c.p.Raw())); limit > 0 && n > limit {
		c.fail(adp.PayloadTooLarge, "the canonical payload has %d bytes; %s may have %d", n, c.e.Type, limit)
	}
}

// define resolves type declarations (ADP §13.4, §13.5).
func (c *checker) define(entries []adp.Value) {
	var decls []*types.Declaration
	for _, v := range entries {
		d, err := types.ParseDeclaration(v)
		if err != nil {
			c.note(err)
			if c.live() {
				return
			}
			c.ch.Unresolved = true // as for a list that does not resolve
			continue
		}
		decls = append(decls, d)
		if id, ok := d.Registered(); ok {
			c.ch.Registered = append(c.ch.Registered, id)
		} else if ref, ok := d.Pack(); ok {
			c.ch.External = append(c.ch.External, ref)
		}
	}
	mode, limits := types.Replay, types.Limits{}
	if c.live() {
		mode, limits = types.Host, types.Limits{SchemaBytes: c.ctx.Live.Limits.SchemaBytes, Types: c.ctx.Live.Limits.Types}
	}
	defs, unresolved, err := types.Resolve(decls, c.s.Registry, c.ctx.Packs, mode, limits)
	if errors.Is(err, types.ErrTooMany) {
		c.ch.Registered, c.ch.External, c.ch.Unresolved = nil, nil, true
		c.doubt(err.Error())
		return
	}
	if err != nil {
		c.note(err)
		c.ch.Registered, c.ch.External = nil, nil
		// what the host made of it is not known: a type may be there or not
		c.ch.Unresolved = !c.live()
		return
	}
	if c.ch.Types = defs; unresolved {
		c.ch.Unresolved = true
		c.doubt("a type pack that the room imports is not at hand")
	}
}

// PacksNeeded lists the external packs that an event imports, so that the
// caller can fetch them before Apply or Judge.
func PacksNeeded(e *adp.Envelope) []types.PackRef {
	var entries []adp.Value
	switch e.Type {
	case Create:
		for v := range e.Payload.Get("types").Elements() {
			entries = append(entries, v)
		}
	case Define:
		entries = append(entries, e.Payload)
	}
	var refs []types.PackRef
	for _, v := range entries {
		if !v.Get("pack").Exists() {
			continue
		}
		if d, err := types.ParseDeclaration(v); err == nil {
			if ref, ok := d.Pack(); ok {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}
