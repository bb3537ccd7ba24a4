package store

import (
	"encoding/binary"
	"fmt"
)

// The key layout of the daemon. Each kind of key begins with a letter of its own, then come its parts:
//
//   - a number takes 8 bytes, big-endian, signed ones with the sign bit flipped, so that byte order is numeric order;
//   - a hash takes its 32 bytes;
//   - a string is followed by 00 01, and a 00 in it is written 00 FF, so that byte order is string order, and no key is the
//     beginning of another whatever the strings hold.
//
// Each kind has a function for one key and a …Range function for the [from, to) of a scan.
const (
	kindMeta              = 'M'
	kindReplicaRow        = 'R'
	kindReplicaByName     = 'N'
	kindRecord            = 'r'
	kindEnvelopeSeq       = 'e'
	kindTreeTile          = 't'
	kindSnapshot          = 's'
	kindNonce             = 'n'
	kindJoinRequest       = 'j'
	kindMemberRoom        = 'm'
	kindArchive           = 'a'
	kindStatement         = 'S'
	kindStatementByRoom   = 'T'
	kindAttestation       = 'A'
	kindAttestationByRoom = 'B'
	kindEvidence          = 'E'
	kindEvidenceByRoom    = 'F'
	kindHost              = 'H'
	kindHostRoom          = 'I'
	kindBranch            = 'b'
	kindBinding           = 'k'
	kindPack              = 'p'
	kindPolicy            = 'P'
	kindTreeNode          = 'u'
	kindContent           = 'c'
	kindRoomCheckpoint    = 'K'
	kindLogEntry          = 'L'
	kindLogTile           = 'l'
	kindLogIndex          = 'i'
	kindSeenLog           = 'G'
)

func appendNumber(b []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(b, n) }

func appendSigned(b []byte, n int64) []byte { return appendNumber(b, uint64(n)^1<<63) }

func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		b = append(b, s[i])
		if s[i] == 0x00 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0x00, 0x01)
}

func stringsKey(kind byte, parts ...string) []byte {
	n := 1
	for _, p := range parts {
		n += len(p) + 2
	}
	b := append(make([]byte, 0, n), kind)
	for _, p := range parts {
		b = appendString(b, p)
	}
	return b
}

func numberKey(kind byte, n uint64) []byte { return appendNumber(append(make([]byte, 0, 9), kind), n) }

func seqKey(kind byte, id uint64, seq int64) []byte {
	return appendSigned(appendNumber(append(make([]byte, 0, 17), kind), id), seq)
}

func under(prefix []byte) (from, to []byte) { return prefix, PrefixEnd(prefix) }

// underStrings is the range of the keys with these leading parts; the first empty part and what follows are left open.
func underStrings(kind byte, parts ...string) (from, to []byte) {
	for i, p := range parts {
		if p == "" {
			parts = parts[:i]
			break
		}
	}
	return under(stringsKey(kind, parts...))
}

// Meta is a value of the daemon itself, such as the next replica id.
func Meta(name string) []byte            { return stringsKey(kindMeta, name) }
func MetaRange() (from, to []byte)       { return under([]byte{kindMeta}) }
func Policy(name string) []byte          { return stringsKey(kindPolicy, name) }
func PolicyRange() (from, to []byte)     { return under([]byte{kindPolicy}) }
func Pack(digest string) []byte          { return stringsKey(kindPack, digest) }
func PackRange() (from, to []byte)       { return under([]byte{kindPack}) }
func ReplicaRow(id uint64) []byte        { return numberKey(kindReplicaRow, id) }
func ReplicaRowRange() (from, to []byte) { return under([]byte{kindReplicaRow}) }

// ReplicaByName leads from what a replica is, (origin, room, genesis hash), to its id.
func ReplicaByName(origin, roomID, genesis string) []byte {
	return stringsKey(kindReplicaByName, origin, roomID, genesis)
}

// ReplicaByNameRange holds the replicas of a room at an origin; an empty room, or origin, means all.
func ReplicaByNameRange(origin, roomID string) (from, to []byte) {
	return underStrings(kindReplicaByName, origin, roomID)
}

// Record is one record of a replica's log.
func Record(id uint64, seq int64) []byte { return seqKey(kindRecord, id, seq) }

// RecordRange holds the records with fromSeq ≤ seq < toSeq.
func RecordRange(id uint64, fromSeq, toSeq int64) (from, to []byte) {
	return Record(id, fromSeq), Record(id, toSeq)
}

// RecordsOf holds all records of a replica.
func RecordsOf(id uint64) (from, to []byte) { return under(numberKey(kindRecord, id)) }

// Branch is one record of the other story of a fork.
func Branch(id uint64, seq int64) []byte { return seqKey(kindBranch, id, seq) }

// BranchRange holds the branch records with fromSeq ≤ seq < toSeq.
func BranchRange(id uint64, fromSeq, toSeq int64) (from, to []byte) {
	return Branch(id, fromSeq), Branch(id, toSeq)
}

// BranchesOf holds all branch records of a replica.
func BranchesOf(id uint64) (from, to []byte) { return under(numberKey(kindBranch, id)) }

// EnvelopeSeq leads from an envelope hash to the seq of its record.
func EnvelopeSeq(id uint64, envelopeHash [32]byte) []byte {
	return append(appendNumber(append(make([]byte, 0, 41), kindEnvelopeSeq), id), envelopeHash[:]...)
}
func EnvelopeSeqRange(id uint64) (from, to []byte) { return under(numberKey(kindEnvelopeSeq, id)) }

// TreeTile is a full tile of a replica's Merkle tree.
func TreeTile(id uint64, tile uint64) []byte {
	return appendNumber(appendNumber(append(make([]byte, 0, 17), kindTreeTile), id), tile)
}
func TreeTileRange(id uint64) (from, to []byte) { return under(numberKey(kindTreeTile, id)) }

// TreeNode is the root of a perfect subtree of a replica's Merkle tree, 2^level leaves from index·2^level on.
func TreeNode(id, level, index uint64) []byte {
	return appendNumber(appendNumber(appendNumber(append(make([]byte, 0, 25), kindTreeNode), id), level), index)
}
func TreeNodeRange(id uint64) (from, to []byte) { return under(numberKey(kindTreeNode, id)) }

// Content leads from a CID to a replica whose archive has it.
func Content(cid string, id uint64) []byte { return appendNumber(stringsKey(kindContent, cid), id) }

// ContentRange holds the replicas of one CID, or of all for an empty one.
func ContentRange(cid string) (from, to []byte) { return underStrings(kindContent, cid) }

// RoomCheckpoint is the checkpoint that was signed last for the room of a replica.
func RoomCheckpoint(id uint64) []byte        { return numberKey(kindRoomCheckpoint, id) }
func RoomCheckpointRange() (from, to []byte) { return under([]byte{kindRoomCheckpoint}) }

// LogEntry is one entry of the daemon's log of a key generation.
func LogEntry(generation, index uint64) []byte {
	return appendNumber(numberKey(kindLogEntry, generation), index)
}

// LogEntryRange holds the entries with fromIndex ≤ index < toIndex.
func LogEntryRange(generation, fromIndex, toIndex uint64) (from, to []byte) {
	return LogEntry(generation, fromIndex), LogEntry(generation, toIndex)
}

// LogTile is a tile of the daemon's log, as far as it is filled.
func LogTile(generation, level, index uint64) []byte {
	return appendNumber(appendNumber(numberKey(kindLogTile, generation), level), index)
}
func LogTileRange(generation uint64) (from, to []byte) {
	return under(numberKey(kindLogTile, generation))
}

// LogIndex leads from the hash of an envelope to its place in the log of a key generation.
func LogIndex(generation uint64, hash string) []byte {
	return appendString(numberKey(kindLogIndex, generation), hash)
}
func LogIndexRange(generation uint64) (from, to []byte) {
	return under(numberKey(kindLogIndex, generation))
}

// SeenLog is the greatest checkpoint of an origin's log that was shown here.
func SeenLog(origin string) []byte    { return stringsKey(kindSeenLog, origin) }
func SeenLogRange() (from, to []byte) { return under([]byte{kindSeenLog}) }

// Snapshot is the latest snapshot of a room's state; it can be rebuilt.
func Snapshot(id uint64) []byte        { return numberKey(kindSnapshot, id) }
func SnapshotRange() (from, to []byte) { return under([]byte{kindSnapshot}) }

// Nonce is the greatest nonce of an agent.
func Nonce(agent string) []byte     { return stringsKey(kindNonce, agent) }
func NonceRange() (from, to []byte) { return under([]byte{kindNonce}) }

// JoinRequest is a request to join a hosted room.
func JoinRequest(id uint64, requestID string) []byte {
	return appendString(numberKey(kindJoinRequest, id), requestID)
}
func JoinRequestRange(id uint64) (from, to []byte) { return under(numberKey(kindJoinRequest, id)) }

// MemberRoom says that an agent is or was in the room of a replica.
func MemberRoom(agent string, id uint64) []byte {
	return appendNumber(stringsKey(kindMemberRoom, agent), id)
}

// MemberRoomRange holds the rooms of one agent, or of all for an empty one.
func MemberRoomRange(agent string) (from, to []byte) { return underStrings(kindMemberRoom, agent) }

// Archive is a part of a replica's archive.
func Archive(id uint64, part string) []byte    { return appendString(numberKey(kindArchive, id), part) }
func ArchiveRange(id uint64) (from, to []byte) { return under(numberKey(kindArchive, id)) }

// Statement is a witness statement by its hash, StatementByRoom an index entry for it.
func Statement(hash string) []byte      { return stringsKey(kindStatement, hash) }
func StatementRange() (from, to []byte) { return under([]byte{kindStatement}) }
func StatementByRoom(origin, roomID, hash string) []byte {
	return stringsKey(kindStatementByRoom, origin, roomID, hash)
}

// StatementByRoomRange holds the statements about a room; an empty room, or origin, means all.
func StatementByRoomRange(origin, roomID string) (from, to []byte) {
	return underStrings(kindStatementByRoom, origin, roomID)
}

// Attestation is an attestation by its hash, AttestationByRoom an index entry for it.
func Attestation(hash string) []byte      { return stringsKey(kindAttestation, hash) }
func AttestationRange() (from, to []byte) { return under([]byte{kindAttestation}) }
func AttestationByRoom(origin, roomID, hash string) []byte {
	return stringsKey(kindAttestationByRoom, origin, roomID, hash)
}

// AttestationByRoomRange holds the attestations of a room; an empty room, or origin, means all.
func AttestationByRoomRange(origin, roomID string) (from, to []byte) {
	return underStrings(kindAttestationByRoom, origin, roomID)
}

// Evidence is a piece of evidence, never deleted; EvidenceByRoom an index entry for it.
func Evidence(id string) []byte        { return stringsKey(kindEvidence, id) }
func EvidenceRange() (from, to []byte) { return under([]byte{kindEvidence}) }
func EvidenceByRoom(origin, roomID, id string) []byte {
	return stringsKey(kindEvidenceByRoom, origin, roomID, id)
}

// EvidenceByRoomRange holds the evidence about a room; an empty room, or origin, means all.
func EvidenceByRoomRange(origin, roomID string) (from, to []byte) {
	return underStrings(kindEvidenceByRoom, origin, roomID)
}

// Host is what is known of another host, with the cursor into its room list.
func Host(origin string) []byte    { return stringsKey(kindHost, origin) }
func HostRange() (from, to []byte) { return under([]byte{kindHost}) }

// HostRoom is the newest head that a host signed of one of its rooms.
func HostRoom(origin, roomID string) []byte { return stringsKey(kindHostRoom, origin, roomID) }

// HostRoomRange holds the rooms of one host, or of all for an empty origin.
func HostRoomRange(origin string) (from, to []byte) { return underStrings(kindHostRoom, origin) }

// Binding is a key that an origin is bound to for a purpose.
func Binding(origin, purpose, key string) []byte {
	return stringsKey(kindBinding, origin, purpose, key)
}

// BindingRange holds the keys of an origin for a purpose; an empty purpose, or origin, means all.
func BindingRange(origin, purpose string) (from, to []byte) {
	return underStrings(kindBinding, origin, purpose)
}

// ParseReplicaRow returns the parts of a ReplicaRow key.
func ParseReplicaRow(key []byte) (id uint64, err error) {
	p := parse(key, kindReplicaRow)
	id = p.number()
	return id, p.end()
}

// ParseRecord returns the parts of a Record key.
func ParseRecord(key []byte) (id uint64, seq int64, err error) {
	p := parse(key, kindRecord)
	id, seq = p.number(), p.signed()
	return id, seq, p.end()
}

// ParseBranch returns the parts of a Branch key.
func ParseBranch(key []byte) (id uint64, seq int64, err error) {
	p := parse(key, kindBranch)
	id, seq = p.number(), p.signed()
	return id, seq, p.end()
}

// ParseMemberRoom returns the parts of a MemberRoom key.
func ParseMemberRoom(key []byte) (agent string, id uint64, err error) {
	p := parse(key, kindMemberRoom)
	agent, id = p.text(), p.number()
	return agent, id, p.end()
}

// ParseContent returns the parts of a Content key.
func ParseContent(key []byte) (cid string, id uint64, err error) {
	p := parse(key, kindContent)
	cid, id = p.text(), p.number()
	return cid, id, p.end()
}

// ParseSeenLog returns the part of a SeenLog key.
func ParseSeenLog(key []byte) (origin string, err error) {
	p := parse(key, kindSeenLog)
	origin = p.text()
	return origin, p.end()
}

// ParseLogEntry returns the parts of a LogEntry key.
func ParseLogEntry(key []byte) (generation, index uint64, err error) {
	p := parse(key, kindLogEntry)
	generation, index = p.number(), p.number()
	return generation, index, p.end()
}

// ParseJoinRequest returns the parts of a JoinRequest key.
func ParseJoinRequest(key []byte) (id uint64, requestID string, err error) {
	p := parse(key, kindJoinRequest)
	id, requestID = p.number(), p.text()
	return id, requestID, p.end()
}

// ParseHost returns the part of a Host key.
func ParseHost(key []byte) (origin string, err error) {
	p := parse(key, kindHost)
	origin = p.text()
	return origin, p.end()
}

// ParseHostRoom returns the parts of a HostRoom key.
func ParseHostRoom(key []byte) (origin, roomID string, err error) {
	p := parse(key, kindHostRoom)
	origin, roomID = p.text(), p.text()
	return origin, roomID, p.end()
}

// ParseNamed returns the parts of a ReplicaByName, StatementByRoom, AttestationByRoom, EvidenceByRoom or Binding key, which
// are three strings each.
func ParseNamed(key []byte) (first, second, third string, err error) {
	if len(key) == 0 {
		return "", "", "", fmt.Errorf("%w: empty", ErrBadKey)
	}
	switch key[0] {
	case kindReplicaByName, kindStatementByRoom, kindAttestationByRoom, kindEvidenceByRoom, kindBinding:
	default:
		return "", "", "", fmt.Errorf("%w: %q is not of a kind with three names", ErrBadKey, key)
	}
	p := parse(key, key[0])
	first, second, third = p.text(), p.text(), p.text()
	return first, second, third, p.end()
}

// keyParser takes a key apart. After the first thing that does not fit, every part is empty and end says so.
type keyParser struct {
	key, rest []byte
	kind      byte
	bad       bool
}

func parse(key []byte, kind byte) keyParser {
	p := keyParser{key: key, kind: kind}
	if len(key) == 0 || key[0] != kind {
		p.bad = true
		return p
	}
	p.rest = key[1:]
	return p
}

func (p *keyParser) number() uint64 {
	if p.bad || len(p.rest) < 8 {
		p.bad = true
		return 0
	}
	n := binary.BigEndian.Uint64(p.rest)
	p.rest = p.rest[8:]
	return n
}

func (p *keyParser) signed() int64 {
	n := p.number()
	if p.bad {
		return 0
	}
	return int64(n ^ 1<<63)
}

func (p *keyParser) text() string {
	var s []byte
	for i := 0; !p.bad && i+1 < len(p.rest); i++ {
		c := p.rest[i]
		if c != 0x00 {
			s = append(s, c)
			continue
		}
		i++
		switch p.rest[i] {
		case 0x01:
			p.rest = p.rest[i+1:]
			return string(s)
		case 0xff:
			s = append(s, 0x00)
		default:
			p.bad = true
		}
	}
	p.bad = true
	return ""
}

func (p *keyParser) end() error {
	if p.bad || len(p.rest) != 0 {
		return fmt.Errorf("%w: %q is not a key of kind %q", ErrBadKey, p.key, p.kind)
	}
	return nil
}
