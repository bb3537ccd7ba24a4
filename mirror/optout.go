package mirror

import (
	"context"
	"fmt"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// A room or a host may ask not to be mirrored. The wish alone is enough to stop
// copying: it is heeded as soon as the contract of a room says
// policy.extra.mirror = false, or the discovery document of a host "mirror": false.
//
// What was copied before is taken from view only when the wish is signed by who may
// speak for it: the creator of the room, or a key that was bound to the host when the
// copy began. Whoever buys a dead domain cannot erase what it once said. Roots,
// statements and proofs stay in any case.

// The signed wish of a host, a member of its discovery document: an envelope of
// agent-witness/1.0 whose payload is {"origin"}.
const (
	OptOutMember = "witan:optout"
	TypeOptOut   = "mirror.optout"
)

const (
	roomOptsOut = "the room asks not to be mirrored (policy.extra.mirror is false)"
	hostOptsOut = "the host asks not to be mirrored (its discovery document says so)"
)

// optsOut tells whether a policy asks not to be mirrored.
func optsOut(policy adp.Value) bool {
	mirror, ok := policy.Get("extra").Get("mirror").Bool()
	return ok && !mirror
}

// heed looks, once records were stored, whether the contract of a room now asks not
// to be mirrored, or does so no more.
func (h *host) heed(ctx context.Context, v *roomView, r *replica.Replica, page []checked) error {
	relevant := !v.heeded
	for _, c := range page {
		relevant = relevant || c.rec != nil && (c.rec.Envelope.Type == room.Create || c.rec.Envelope.Type == room.Update)
	}
	if !relevant {
		return nil
	}
	out := false
	var creator adp.AgentID
	var bad error
	err := r.View(ctx, func(s *room.State) {
		creator = s.Creator
		if s.Contract == nil || s.Contract.PolicyJSON == nil {
			return
		}
		var policy adp.Value
		if policy, bad = adp.Scan(s.Contract.PolicyJSON); bad == nil {
			out = optsOut(policy)
		}
	})
	if err != nil || bad != nil {
		return local(firstOf(err, bad))
	}
	v.heeded = true
	k := h.m.keepings.get(h.origin, r.RoomID)
	if !out && k.OptOut == "" {
		return nil
	}
	signed := false
	if out {
		author, err := policyAuthor(r)
		if err != nil {
			return local(err)
		}
		signed = author == creator || k.Withdrawn // a wish of the creator holds as long as it stands
	}
	err = h.m.decide(h.origin, r.RoomID, func(k *keeping) {
		if k.OptOut, k.Withdrawn = "", false; out {
			k.OptOut, k.Withdrawn = roomOptsOut, signed
		}
	})
	if err != nil {
		return local(err)
	}
	if after := h.m.keepings.get(h.origin, r.RoomID); after.OptOut != k.OptOut || after.Withdrawn != k.Withdrawn {
		h.m.log.Info("a room changed its wish about mirrors", "origin", h.origin, "room", r.RoomID, "mirror", !out, "withdrawn", after.Withdrawn)
	}
	return nil
}

// policyAuthor is who signed the policy in force: of the last record that carries one.
func policyAuthor(r *replica.Replica) (author adp.AgentID, err error) {
	row := r.Row()
	err = r.Scan(row.Dropped, row.Seq, func(_ int64, raw []byte) error {
		v, err := adp.ScanDepth(raw, adp.RecordDepth)
		if err != nil {
			return err
		}
		event := v.Get("envelope").Get("event")
		if t := event.Get("type").Text(); (t == room.Create || t == room.Update) && event.Get("payload").Get("policy").Exists() {
			author = adp.AgentID(event.Get("actor").Text())
		}
		return nil
	})
	return author, err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// mayReturn tells whether a room that asked not to be mirrored may have changed its
// mind: its host lists it without the wish, and with records that we do not hold, in
// which the change must stand.
func (h *host) mayReturn(v *roomView, l listedRoom) bool {
	both := h.m.keepings.both(h.origin, l.id)
	if _, stopped := both[0].stops(); stopped || v == nil || v.r == nil {
		return false
	}
	k := both[1]
	k.OptOut = ""
	_, stopped := k.stops()
	return !stopped && !l.optOut && l.seq > v.r.Row().Seq
}

// takesBack tells whether a page holds the record that gives a room another policy
// than one that asks not to be mirrored. Nothing is copied to find that out.
func takesBack(page []checked) bool {
	for _, c := range page {
		if c.rec == nil || c.rec.Envelope.Type != room.Update {
			continue
		}
		if policy := c.rec.Envelope.Payload.Get("policy"); policy.Kind() == adp.Object && !optsOut(policy) {
			return true
		}
	}
	return false
}

// heedHost reads what the discovery document says about mirrors.
func (h *host) heedHost(document adp.Value) error {
	mirror, ok := document.Get("mirror").Bool()
	out := ok && !mirror
	since, signed := int64(0), false
	if out {
		since, signed = h.signedOptOut(document.Get(OptOutMember))
	}
	before := h.m.keepings.get(h.origin, "")
	if !out && h.m.o.Bindings != nil && h.m.o.Bindings.Rebound(h.origin) {
		return nil // who answers there now may be somebody else
	}
	err := h.m.decide(h.origin, "", func(k *keeping) {
		if !out {
			k.OptOut, k.Withdrawn, k.BoundSince = "", false, 0
			return
		}
		k.OptOut = hostOptsOut
		if signed && (!k.Withdrawn || since < k.BoundSince) { // once signed, it stands as long as the wish does
			k.Withdrawn, k.BoundSince = true, since
		}
	})
	if err != nil {
		return local(err)
	}
	if after := h.m.keepings.get(h.origin, ""); after.OptOut != before.OptOut || after.Withdrawn != before.Withdrawn {
		h.m.log.Info("a host changed its wish about mirrors", "origin", h.origin, "mirror", !out, "signed", after.Withdrawn)
	}
	return nil
}

// signedOptOut checks the signed wish of a host. since is when its key was first seen.
func (h *host) signedOptOut(v adp.Value) (since int64, ok bool) {
	if !v.Exists() || h.m.o.Bindings == nil {
		return 0, false
	}
	err := func() error {
		e, err := adp.ParseEnvelope(v)
		if err != nil {
			return err
		}
		if err := e.CheckShape(); err != nil {
			return err
		}
		if e.Protocol != adp.WitnessProtocol || e.Type != TypeOptOut || e.Payload.Len() != 1 || !e.Payload.Get("origin").Is(h.origin) {
			return fmt.Errorf("it is not a %s of %s for %s", TypeOptOut, adp.WitnessProtocol, h.origin)
		}
		if since, ok = h.m.o.Bindings.BoundSince(h.origin, e.Actor); !ok {
			return fmt.Errorf("%s is not bound to the host", e.Actor)
		}
		if err := e.CheckHash(); err != nil {
			return err
		}
		return e.CheckSignature()
	}()
	if err != nil {
		h.remark(fmt.Sprintf("%s of the discovery document does not count: %v", OptOutMember, err))
		return 0, false
	}
	return since, true
}
