package witness

import (
	"github.com/witan-adp/witan/adp"
)

// TypeHead is the type of the agent-witness/1.0 envelope in which a host says how
// far one of its public rooms is (federation: Relay).
const TypeHead = "room.head"

// Head is the payload of room.head. Here it matters only as one side of a
// contradiction; heads are not kept as statements are.
type Head struct {
	Subject
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"` // record hash at Seq
	Root string `json:"root"` // RFC 6962 root over the record hashes up to Seq
	At   int64  `json:"at"`   // Unix ms
}

// ParseHead reads the payload of a room.head envelope, whose signature is not
// looked at.
func ParseHead(e *adp.Envelope) (*Head, error) {
	if err := ofType(e, TypeHead); err != nil {
		return nil, err
	}
	f := fields{v: e.Payload}
	h := &Head{Subject: f.subject(), Seq: f.integer("seq", 1), Hash: f.hash("hash"), Root: f.hash("root"), At: f.integer("at", 0)}
	if err := f.end(); err != nil {
		return nil, err
	}
	return h, nil
}

// content is what a head says: a prefix of the room.
func (h *Head) content() content { return content{false, h.Seq, h.Hash, h.Root, ""} }
