package adp

import (
	"crypto/ed25519"
	"crypto/sha3"
)

// Envelope is a signed event (Identity, Envelope): {"hash","event","signature"}.
// Its fields are those of the canonical text that was hashed.
//
// Parsing proves only what authenticity needs: the closed outer shape, a
// well-formed hash, signature and actor. CheckShape judges the event itself,
// since a verifier has to keep, and count, an authentic event that no host
// should have accepted.
type Envelope struct {
	Hash      string
	Signature string

	Protocol  string
	Type      string
	Actor     AgentID
	CreatedAt int64 // Unix ms; -1 when it is not a time
	Nonce     int64 // 0 when it is not a nonce
	Payload   Value

	// Room events only (ADP §6).
	RoomID   string
	BaseSeq  int64
	BaseHash string
	Mentions Value

	event    Value // canonical
	value    Value // canonical, the whole envelope
	shape    error
	redacted bool // see ParseServed
}

// ParseEnvelope reads an envelope from a scanned value. Errors are
// invalid_event, or invalid_actor for an actor that is no Agent ID.
func ParseEnvelope(v Value) (*Envelope, error) {
	if v.Kind() != Object {
		return nil, Errorf(InvalidEvent, "an envelope is an object with hash, event and signature, not %s", v.Kind())
	}
	v, err := v.Canonical()
	if err != nil {
		return nil, err
	}
	e := &Envelope{value: v, CreatedAt: -1}
	hash, signature := v.Get("hash"), v.Get("signature")
	e.event = v.Get("event")
	if v.Len() != 3 || e.event.Kind() != Object || hash.Kind() != String || signature.Kind() != String {
		return nil, Errorf(InvalidEvent, "an envelope has exactly three members: hash (string), event (object) and signature (string)")
	}
	e.Hash, e.Signature = hash.Text(), signature.Text()
	if !IsHash(e.Hash) {
		return nil, Errorf(InvalidEvent, "hash must be the 43 unpadded base64url characters of 32 bytes")
	}
	if _, err := DecodeSignature(e.Signature); err != nil {
		return nil, Errorf(InvalidEvent, "signature must be the 86 unpadded base64url characters of 64 bytes")
	}
	actor := e.read()
	if actor.Kind() != String {
		return nil, Errorf(InvalidEvent, "event.actor must be an Agent ID")
	}
	if e.Actor, err = ParseAgentID(actor.Text()); err != nil {
		return nil, err
	}
	return e, nil
}

// read takes the members of the event and remembers what is wrong with them. It
// returns the actor as it stands.
func (e *Envelope) read() (actor Value) {
	bad := func(format string, args ...any) {
		if e.shape == nil {
			e.shape = Errorf(InvalidEvent, format, args...)
		}
	}
	d, at, roomMembers := e.event.d, e.event.i+1, false
	for range e.event.Len() {
		name, m := d.text(at), Value{d, at + 1}
		at = d.nodes[at+1].next
		switch string(name) {
		case "protocol":
			if m.Is(Protocol) {
				e.Protocol = Protocol
			} else {
				e.Protocol = m.Text()
			}
		case "type":
			e.Type = m.Text()
		case "actor":
			actor = m
		case "created_at":
			if t, ok := m.Int(); ok && t >= 0 {
				e.CreatedAt = t
			}
		case "nonce":
			if n, ok := m.Int(); ok && n >= 1 {
				e.Nonce = n
			}
		case "payload":
			e.Payload = m
		case "room_id":
			e.RoomID, roomMembers = m.Text(), true
		case "base_seq":
			if n, ok := m.Int(); ok && n >= 1 {
				e.BaseSeq = n
			}
			roomMembers = true
		case "base_hash":
			e.BaseHash, roomMembers = m.Text(), true
		case "mentions":
			e.Mentions, roomMembers = m, true
		default:
			bad("event has a member %.60q that its protocol does not define", name)
		}
	}
	switch {
	case e.Protocol == "":
		bad("event.protocol must be a string")
	case e.Type == "":
		bad("event.type must be a non-empty string")
	case e.CreatedAt < 0:
		bad("event.created_at must be Unix milliseconds")
	case e.Nonce == 0:
		bad("event.nonce must be an integer from 1 to 2^53-1")
	case e.Payload.Kind() != Object:
		bad("event.payload must be an object")
	case e.Protocol != Protocol && roomMembers:
		bad("only events of %s carry room_id, base_seq, base_hash and mentions", Protocol)
	}
	if e.Protocol == Protocol && e.shape == nil {
		e.shape = e.roomShape()
	}
	return actor
}

// roomShape keeps ADP §6: what a room event carries at the top level.
func (e *Envelope) roomShape() error {
	if e.Type == "room.create" {
		if e.event.Get("room_id").Exists() || e.event.Get("base_seq").Exists() || e.event.Get("base_hash").Exists() {
			return Errorf(InvalidEvent, "room.create carries no room_id, base_seq or base_hash")
		}
	} else {
		switch {
		case e.RoomID == "":
			return Errorf(InvalidEvent, "event.room_id must be the ID of the room")
		case e.BaseSeq == 0:
			return Errorf(InvalidEvent, "event.base_seq must be the seq of an accepted record, 1 or greater")
		case !IsHash(e.BaseHash):
			return Errorf(InvalidEvent, "event.base_hash must be the hash of the record at base_seq")
		}
	}
	if !e.Mentions.Exists() {
		return nil
	}
	if e.Mentions.Kind() != Array {
		return Errorf(InvalidEvent, "event.mentions must be an array of Agent IDs")
	}
	for m := range e.Mentions.Elements() {
		if m.Kind() != String || !isAgentID(m.d.text(m.i)) {
			return Errorf(InvalidEvent, "event.mentions holds something that is no Agent ID")
		}
	}
	return nil
}

// CheckShape tells what is wrong with the event apart from its authenticity:
// a missing or malformed member, or one that the protocol does not define
// (ADP §6). Payloads are judged in adp/room.
func (e *Envelope) CheckShape() error { return e.shape }

// CheckHash recomputes the event hash: SHA3-256 over the canonical event.
func (e *Envelope) CheckHash() error {
	if e.redacted {
		return errRedacted
	}
	sum := sha3.Sum256(e.event.Raw())
	if claimed, err := DecodeHash(e.Hash); err != nil || claimed != sum {
		return Errorf(InvalidEventHash, "hash is not base64url(SHA3-256(JCS(event)))")
	}
	return nil
}

// CheckSignature verifies the signature over the 32 raw bytes of the hash.
func (e *Envelope) CheckSignature() error {
	if e.redacted {
		return errRedacted
	}
	pub, err := e.Actor.PublicKey()
	if err != nil {
		return err
	}
	hash, err := DecodeHash(e.Hash)
	if err != nil {
		return err
	}
	sig, err := DecodeSignature(e.Signature)
	if err != nil {
		return err
	}
	return VerifySignature(pub, hash[:], sig[:])
}

// JSON is the canonical text of the envelope.
func (e *Envelope) JSON() []byte { return e.value.Raw() }

// Event is the canonical event.
func (e *Envelope) Event() Value { return e.event }

// Draft is an event to be signed. Empty room members are left out.
type Draft struct {
	Protocol  string `json:"protocol"`
	Type      string `json:"type"`
	CreatedAt int64  `json:"created_at"`
	Nonce     int64  `json:"nonce"`
	Payload   any    `json:"payload"`

	RoomID   string    `json:"room_id,omitempty"`
	BaseSeq  int64     `json:"base_seq,omitempty"`
	BaseHash string    `json:"base_hash,omitempty"`
	Mentions []AgentID `json:"mentions,omitempty"`

	Actor AgentID `json:"actor"` // set by Sign
}

// Sign seals a draft: canonical event, hash, signature over the raw hash.
func Sign(key ed25519.PrivateKey, d Draft) (*Envelope, error) {
	d.Actor = NewAgentID(key.Public().(ed25519.PublicKey))
	event, err := EncodeValue(d)
	if err != nil {
		return nil, err
	}
	sum := sha3.Sum256(event.Raw())
	b := append([]byte(`{"event":`), event.Raw()...)
	b = append(b, `,"hash":"`...)
	b = append(b, Encode(sum[:])...)
	b = append(b, `","signature":"`...)
	b = append(b, Encode(ed25519.Sign(key, sum[:]))...)
	b = append(b, `"}`...)
	v, err := Scan(b)
	if err != nil {
		return nil, err
	}
	return ParseEnvelope(v)
}
