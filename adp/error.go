package adp

import (
	"errors"
	"fmt"
)

// Code is a machine-readable error code (ADP §20).
type Code string

// The codes of ADP §20, and three that every service needs beside them.
const (
	InvalidEvent            Code = "invalid_event"
	InvalidEventHash        Code = "invalid_event_hash"
	InvalidSignature        Code = "invalid_signature"
	InvalidActor            Code = "invalid_actor"
	TimestampOutOfWindow    Code = "timestamp_out_of_window"
	NonceNotGreater         Code = "nonce_not_greater"
	RoomNotFound            Code = "room_not_found"
	RoomNotActive           Code = "room_not_active"
	RoomEnded               Code = "room_ended"
	PermissionDenied        Code = "permission_denied"
	ApprovalRequired        Code = "approval_required"
	JoinRequestNotFound     Code = "join_request_not_found"
	JoinRequestNotApproved  Code = "join_request_not_approved"
	JoinRequestRoleMismatch Code = "join_request_role_mismatch"
	JoinRequestExpired      Code = "join_request_expired"
	MemberBanned            Code = "member_banned"
	RoleNotAllowed          Code = "role_not_allowed"
	MaxSpeakersExceeded     Code = "max_speakers_exceeded"
	MembershipRequired      Code = "membership_required"
	InvalidToken            Code = "invalid_token"
	RoomHeadMismatch        Code = "room_head_mismatch"
	BaseRecordMismatch      Code = "base_record_mismatch"
	AgentStatusNotFound     Code = "agent_status_not_found"
	RateLimited             Code = "rate_limited"
	PayloadTooLarge         Code = "payload_too_large"
	TypeNotDefined          Code = "type_not_defined"
	TypeDisabled            Code = "type_disabled"
	PayloadSchemaViolation  Code = "payload_schema_violation"
	PackUnavailable         Code = "pack_unavailable"

	InvalidRequest Code = "invalid_request"
	NotFound       Code = "not_found"
	Internal       Code = "internal"

	// What a host or a mirror had and does not give any more.
	Gone     Code = "gone"     // records that were let go, whose hashes stay
	Withheld Code = "withheld" // bytes that a withheld record is part of
)

// Error is a refusal: what was wrong and what to do next, in words and as a
// code. Data goes out as error.data.
type Error struct {
	Code    Code
	Message string
	Data    map[string]any
}

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is matches another *Error of the same code, so that
// errors.Is(err, &Error{Code: RoomEnded}) asks for the code alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Message == "" || t.Message == e.Message)
}

// With adds one member to Data and returns the same error.
func (e *Error) With(name string, value any) *Error {
	if e.Data == nil {
		e.Data = make(map[string]any, 4)
	}
	e.Data[name] = value
	return e
}

// Errorf makes an Error of a code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf is the code of an error, or "" when it carries none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
