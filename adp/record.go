package adp

import (
	"crypto/sha3"
	"strconv"
)

// Record is an envelope as a host accepted it (ADP §15).
type Record struct {
	RoomID     string
	Seq        int64
	PreHash    string // "" stands for null, at seq 1 only
	Hash       string
	ReceivedAt int64 // Unix ms, the host's own assertion
	Envelope   *Envelope

	// Redacted: whoever served the record keeps its envelope back. Of the
	// envelope only hash and type are known, and no signature can be checked;
	// the record hash still can.
	Redacted bool

	raw []byte
}

// RecordDepth is how deep a record may nest: its envelope, one level down.
const RecordDepth = MaxDepth + 1

// IsRoomID tells whether s can be the ID of a room. ADP §7.1 asks for
// uniqueness and recommends Xid; we take any 1 to 128 characters that need no
// escape in JSON or in a URL path, except the dot segments and "public",
// which names another resource.
func IsRoomID(s string) bool {
	if s == "" || len(s) > 128 || s == "public" || s == "." || s == ".." {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '~') {
			return false
		}
	}
	return true
}

// ParseRecord reads a record from a scanned value and recomputes both hashes.
// The signature is left to CheckSignature, which costs ten times as much, and
// the link to Follows.
func ParseRecord(v Value) (*Record, error) { return parseRecord(v, ParseEnvelope) }

func parseRecord(v Value, parseEnvelope func(Value) (*Envelope, error)) (*Record, error) {
	if v.Kind() != Object {
		return nil, Errorf(InvalidEvent, "a record is an object, not %s", v.Kind())
	}
	v, err := v.Canonical()
	if err != nil {
		return nil, err
	}
	r := &Record{raw: v.Raw()}
	env, preHash := v.Get("envelope"), v.Get("pre_hash")
	var okSeq, okAt bool
	r.Seq, okSeq = v.Get("seq").Int()
	r.ReceivedAt, okAt = v.Get("received_at").Int()
	r.RoomID, r.Hash, r.PreHash = v.Get("room_id").Text(), v.Get("hash").Text(), preHash.Text()
	switch {
	case v.Len() != 6 || !env.Exists() || !preHash.Exists():
		return nil, Errorf(InvalidEvent, "a record has exactly room_id, seq, pre_hash, hash, received_at and envelope")
	case !IsRoomID(r.RoomID):
		return nil, Errorf(InvalidEvent, "room_id is not a room ID")
	case !okSeq || r.Seq < 1:
		return nil, Errorf(InvalidEvent, "seq must be an integer from 1 to 2^53-1")
	case !okAt || r.ReceivedAt < 0:
		return nil, Errorf(InvalidEvent, "received_at must be Unix milliseconds")
	case !IsHash(r.Hash):
		return nil, Errorf(InvalidEvent, "hash must be the 43 base64url characters of 32 bytes")
	case r.Seq == 1 && preHash.Kind() != Null:
		return nil, Errorf(InvalidEvent, "pre_hash must be null at seq 1")
	case r.Seq > 1 && !IsHash(r.PreHash):
		return nil, Errorf(InvalidEvent, "pre_hash must be the hash of the record before")
	}
	if r.Envelope, err = parseEnvelope(env); err != nil {
		return nil, err
	}
	if r.Redacted = r.Envelope.redacted; r.Redacted {
		r.Envelope.RoomID = r.RoomID
	} else if err := r.Envelope.CheckHash(); err != nil {
		return nil, err
	}
	if claimed, err := DecodeHash(r.Hash); err != nil || claimed != r.computeHash() {
		return nil, Errorf(InvalidEventHash, "the record hash does not match room_id, seq, pre_hash, envelope hash and received_at")
	}
	if r.Envelope.Protocol != Protocol { // signed for something else than a room
		return nil, Errorf(InvalidEvent, "the event is of protocol %.60q, not of %s", r.Envelope.Protocol, Protocol)
	}
	// the signed room_id binds an event to one room; in another it is a forgery
	if e := r.Envelope; e.Type != "room.create" && e.RoomID != r.RoomID {
		return nil, Errorf(InvalidEvent, "the event was signed for room %.40q, not for this one", e.RoomID)
	}
	return r, nil
}

// NewRecord accepts an envelope at a place in a chain. preHash is "" at seq 1.
func NewRecord(e *Envelope, roomID string, seq int64, preHash string, receivedAt int64) *Record {
	r := &Record{RoomID: roomID, Seq: seq, PreHash: preHash, ReceivedAt: receivedAt, Envelope: e}
	hash := r.computeHash()
	r.Hash = Encode(hash[:])
	r.raw = r.encode()
	return r
}

// encode writes the canonical text.
func (r *Record) encode() []byte {
	e := r.Envelope
	b := make([]byte, 0, len(e.JSON())+256)
	b = append(b, `{"envelope":`...)
	b = append(b, e.JSON()...)
	b = append(b, `,"hash":"`...)
	b = append(b, r.Hash...)
	b = append(b, `","pre_hash":`...)
	b = appendHashOrNull(b, r.PreHash)
	b = append(b, `,"received_at":`...)
	b = strconv.AppendInt(b, r.ReceivedAt, 10)
	b = append(b, `,"room_id":`...)
	b = AppendString(b, r.RoomID)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, r.Seq, 10)
	return append(b, '}')
}

func appendHashOrNull(b []byte, hash string) []byte {
	if hash == "" {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = append(b, hash...)
	return append(b, '"')
}

// computeHash is SHA3-256(JCS(record_hash_payload)) of ADP §15. No
// member can hold a character that JCS escapes.
func (r *Record) computeHash() [32]byte {
	var buf [384]byte
	b := append(buf[:0], `{"envelope_hash":"`...)
	b = append(b, r.Envelope.Hash...)
	b = append(b, `","pre_hash":`...)
	b = appendHashOrNull(b, r.PreHash)
	b = append(b, `,"received_at":`...)
	b = strconv.AppendInt(b, r.ReceivedAt, 10)
	b = append(b, `,"room_id":"`...)
	b = append(b, r.RoomID...)
	b = append(b, `","seq":`...)
	b = strconv.AppendInt(b, r.Seq, 10)
	b = append(b, '}')
	return sha3.Sum256(b)
}

// CheckSignature verifies the signature of the envelope.
func (r *Record) CheckSignature() error { return r.Envelope.CheckSignature() }

// Follows tells whether the record stands directly behind (seq, hash) in the
// chain of a room; behind (0, "") stands only a first record.
func (r *Record) Follows(roomID string, seq int64, hash string) error {
	switch {
	case r.RoomID != roomID:
		return Errorf(InvalidEvent, "the record belongs to room %.40q", r.RoomID)
	case r.Seq != seq+1:
		return Errorf(InvalidEvent, "expected seq %d, found seq %d", seq+1, r.Seq)
	case r.PreHash != hash:
		return Errorf(InvalidEvent, "pre_hash is not the hash of the record before")
	}
	return nil
}

// JSON is the canonical text of the record: what is stored, sent and archived.
func (r *Record) JSON() []byte { return r.raw }

// LeafData is the raw record hash: the leaf of the room's Merkle tree.
func (r *Record) LeafData() [32]byte {
	h, err := DecodeHash(r.Hash)
	if err != nil {
		panic("adp: a record without a hash: " + err.Error())
	}
	return h
}
