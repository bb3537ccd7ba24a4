// Package room is an ADP room as a pure state machine: what a chain of records
// amounts to, and whether one more event is allowed.
//
// The same rules serve a live write (Apply: a coded error, or a Change), and a
// verifier that replays what another host accepted (Judge: allowed, violation
// or unverifiable, and the Change that the record made all the same). What
// differs is only the policy around them: quotas, durations and other stricter
// choices of a host are asked for in Live, and never make a violation.
//
// The package has no clock and no I/O: time and the log come in with Context.
package room

import (
	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// Built-in event types (ADP §13.2).
const (
	Create     = "room.create"
	Update     = "room.update"
	Join       = "room.join"
	Review     = "room.join.review"
	Leave      = "room.leave"
	RoleUpdate = "room.member.role.update"
	Remove     = "room.member.remove"
	Close      = "room.close"
	Cancel     = "room.cancel"
	Define     = "type.define"
	Message    = "message.create"
)

// Class is the freshness and quota class of an event type (ADP §6.1, §13.2).
type Class string

// The classes. Lifecycle events move the head like messages and controls.
const (
	ClassLifecycle Class = "lifecycle"
	ClassMessage   Class = "message"
	ClassSignal    Class = "signal"
	ClassControl   Class = "control"
)

// MovesHead tells whether accepted events of the class become the room head.
func (c Class) MovesHead() bool { return c != ClassSignal }

var builtin = map[string]Class{
	Create: ClassLifecycle, Update: ClassLifecycle, Close: ClassLifecycle, Cancel: ClassLifecycle,
	Join: ClassSignal, Review: ClassSignal, Leave: ClassSignal, RoleUpdate: ClassSignal, Remove: ClassSignal,
	Define: ClassControl, Message: ClassMessage,
}

// IsBuiltin tells whether a type is one of the eleven of the kernel.
func IsBuiltin(typ string) bool { _, ok := builtin[typ]; return ok }

// Chain looks up what the log of the room holds before the event in question,
// so that state does not grow with the room.
type Chain interface {
	// HashAt is the record hash at a seq.
	HashAt(seq int64) (string, bool)
	// SeqOf is where an envelope hash was accepted.
	SeqOf(envelopeHash string) (int64, bool)
}

// Context is what the state machine is told about the outside.
type Context struct {
	At    int64 // received_at of the record, Unix ms
	Chain Chain
	Packs map[string]*types.Pack // external pack documents by digest
	Live  *Live                  // nil when replaying
}

// Live is the policy around a live write.
type Live struct {
	Limits Limits
	// Request is a join request as the HTTP resource knows it.
	Request func(id string) (JoinRequest, bool)
}

// Limits are the quotas of ADP §21 that the state machine applies. Zero means
// no limit.
type Limits struct {
	PayloadBytes, PayloadCeiling int64 // bytes of JCS(payload)
	Mentions                     int
	SchemaBytes, Types           int
	RoomMin, RoomMax             int64 // ms
	Speakers, Observers          int64
}

// JoinRequest is a join request (ADP §11) with what has become of it.
type JoinRequest struct {
	Object       adp.Value // the immutable request object, canonical
	Applicant    adp.AgentID
	Perspective  string
	Status       string // pending, approved, rejected
	ApprovedRole types.Role
	ExpiresAt    int64
	Consumed     bool
}
