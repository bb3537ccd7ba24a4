package adp

import (
	"crypto/sha3"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
)

// Digest walks the records of a room in seq order and keeps what an archive
// says of them: count, last hash, Merkle root, events_sha3_256. It streams:
// JCS of an array is "[", the canonical records with commas, "]".
type Digest struct {
	RoomID     string
	Genesis    string // hash of the record at seq 1
	Count      int64
	LastHash   string
	ReceivedAt int64 // greatest received_at
	Withheld   int64 // records without their envelope

	tree   Tree
	events hash.Hash
}

// Add takes the next record. Its link is the caller's to check.
func (d *Digest) Add(r *Record) {
	if d.events == nil {
		d.events = sha3.New256()
		d.RoomID, d.Genesis = r.RoomID, r.Hash
		d.events.Write([]byte{'['})
	} else {
		d.events.Write([]byte{','})
	}
	d.events.Write(r.JSON())
	d.tree.Append(r.LeafData())
	d.Count++
	d.LastHash = r.Hash
	d.ReceivedAt = max(d.ReceivedAt, r.ReceivedAt)
	if r.Redacted {
		d.Withheld++
	}
}

// Summary is what has been seen so far.
func (d *Digest) Summary() Summary {
	s := Summary{RoomID: d.RoomID, Genesis: d.Genesis, Count: d.Count, LastHash: d.LastHash, ReceivedAt: d.ReceivedAt, Withheld: d.Withheld, Root: d.tree.Root()}
	h := sha3.New256()
	if d.events == nil {
		h.Write([]byte("[]"))
	} else {
		c, err := d.events.(*sha3.SHA3).MarshalBinary()
		if err == nil {
			err = h.UnmarshalBinary(c)
		}
		if err != nil {
			panic("adp: sha3 state: " + err.Error())
		}
		h.Write([]byte{']'})
	}
	h.Sum(s.Events[:0])
	return s
}

// Summary is what the records of a room amount to.
type Summary struct {
	RoomID     string
	Genesis    string
	Count      int64 // also the last seq
	LastHash   string
	ReceivedAt int64
	// Withheld counts records without their envelope. When it is not 0, Events is
	// over what is left and cannot be compared with what a manifest says.
	Withheld int64
	Root     [32]byte // archive_root: RFC 6962 over the record hashes
	Events   [32]byte // events_sha3_256
}

// EventsCID addresses the bytes JCS(records).
func (s Summary) EventsCID() string { return NewCID(CodecJSON, s.Events) }

// Manifest is the body of GET …/archive (ADP §19).
type Manifest struct {
	Host        string
	URL         string // canonical room URL
	GeneratedAt int64
	Summary     Summary
	Room        json.RawMessage            // the final room resource
	Packs       []json.RawMessage          // every imported pack document
	Extra       map[string]json.RawMessage // beside merkle and the CIDs
}

// members are those of line 1 of archive.jsonl: the manifest less what speaks
// of that file.
func (m Manifest) members() map[string]any {
	extra := make(map[string]any, len(m.Extra)+4)
	for k, v := range m.Extra {
		extra[k] = v
	}
	extra["merkle"] = map[string]any{"tree": merkleTree, "size": m.Summary.Count}
	extra["events_cid"] = m.Summary.EventsCID()
	// these speak of the file that line 1 begins: only JSON says them
	delete(extra, "bundle_cid")
	delete(extra, "bundle_bytes")
	packs := m.Packs
	if packs == nil {
		packs = []json.RawMessage{}
	}
	return map[string]any{
		"protocol": Protocol, "type": "room.archive",
		"host": m.Host, "room_id": m.Summary.RoomID, "url": m.URL,
		"generated_at": m.GeneratedAt, "event_count": m.Summary.Count,
		"first_seq": 1, "last_seq": m.Summary.Count, "last_hash": m.Summary.LastHash,
		"events_sha3_256": Encode(m.Summary.Events[:]), "archive_root": Encode(m.Summary.Root[:]),
		"formats": map[string]string{"jsonl": m.URL + "/archive.jsonl", "markdown": m.URL + "/archive.md"},
		"room":    m.Room, "packs": packs, "extra": extra,
	}
}

// Bundle hashes archive.jsonl: line 1, then one record a line.
type Bundle struct {
	h     hash.Hash
	Bytes int64
}

// NewBundle starts with line 1 (without its line feed).
func NewBundle(line1 []byte) *Bundle {
	b := &Bundle{h: sha3.New256()}
	b.Add(line1)
	return b
}

// Add takes the next line, without its line feed.
func (b *Bundle) Add(line []byte) {
	b.h.Write(line)
	b.h.Write([]byte{'\n'})
	b.Bytes += int64(len(line)) + 1
}

// CID addresses the exact bytes of the bundle.
func (b *Bundle) CID() string {
	var sum [32]byte
	b.h.Sum(sum[:0])
	return NewCID(CodecRaw, sum)
}

// Line1 is the canonical first line of the bundle.
func (m Manifest) Line1() ([]byte, error) {
	v, err := encodeDeep(m.members())
	if err != nil {
		return nil, err
	}
	return v.Raw(), nil
}

// JSON is the canonical manifest, with the CID and size of a finished bundle.
func (m Manifest) JSON(b *Bundle) ([]byte, error) {
	members := m.members()
	extra := members["extra"].(map[string]any)
	extra["bundle_cid"], extra["bundle_bytes"] = b.CID(), b.Bytes
	v, err := encodeDeep(members)
	if err != nil {
		return nil, err
	}
	return v.Raw(), nil
}

// manifestDepth leaves room for signed parts inside a manifest's room resource.
const manifestDepth = MaxDepth + 16

func encodeDeep(x any) (Value, error) {
	b, err := json.Marshal(x)
	if err != nil {
		return Value{}, err
	}
	v, err := ScanDepth(b, manifestDepth)
	if err != nil {
		return Value{}, err
	}
	return v.Canonical()
}

// Claim is what somebody's manifest says, read strictly.
type Claim struct {
	RoomID, URL, Host string
	GeneratedAt       int64
	Count, LastSeq    int64
	LastHash          string
	EventsDigest      string
	ArchiveRoot       string
	EventsCID         string // "" when the host makes none
	BundleCID         string // "" when the host makes none
	BundleBytes       int64
	Room              Value
	value             Value
}

// ParseClaim reads the body of GET …/archive, or line 1 of a bundle.
func ParseClaim(b []byte) (*Claim, error) {
	v, err := ScanDepth(b, manifestDepth)
	if err != nil {
		return nil, err
	}
	if v, err = v.Canonical(); err != nil {
		return nil, err
	}
	if v.Kind() != Object || !v.Get("protocol").Is(Protocol) || !v.Get("type").Is("room.archive") {
		return nil, fmt.Errorf("not an archive manifest of %s", Protocol)
	}
	c := &Claim{value: v, RoomID: v.Get("room_id").Text(), URL: v.Get("url").Text(), Host: v.Get("host").Text(),
		LastHash: v.Get("last_hash").Text(), EventsDigest: v.Get("events_sha3_256").Text(), ArchiveRoot: v.Get("archive_root").Text(), Room: v.Get("room")}
	var ok [4]bool
	c.Count, ok[0] = v.Get("event_count").Int()
	c.LastSeq, ok[1] = v.Get("last_seq").Int()
	c.GeneratedAt, ok[2] = v.Get("generated_at").Int()
	first, isInt := v.Get("first_seq").Int()
	ok[3] = isInt && first == 1
	if ok != [4]bool{true, true, true, true} || !IsHash(c.LastHash) || !IsHash(c.EventsDigest) || !IsHash(c.ArchiveRoot) || !IsRoomID(c.RoomID) {
		return nil, fmt.Errorf("an archive manifest needs room_id, event_count, first_seq 1, last_seq, last_hash, events_sha3_256, archive_root and generated_at")
	}
	extra := v.Get("extra")
	c.EventsCID, c.BundleCID = extra.Get("events_cid").Text(), extra.Get("bundle_cid").Text()
	c.BundleBytes, _ = extra.Get("bundle_bytes").Int()
	return c, nil
}

// JSON is the canonical text of the claim.
func (c *Claim) JSON() []byte { return c.value.Raw() }

// Line1 is the first line of the bundle that belongs to this manifest: itself
// without bundle_cid and bundle_bytes.
func (c *Claim) Line1() ([]byte, error) {
	extra := c.value.Get("extra")
	if !extra.Get("bundle_cid").Exists() && !extra.Get("bundle_bytes").Exists() {
		return c.value.Raw(), nil
	}
	whole, rest := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for name, m := range extra.Members() {
		if name != "bundle_cid" && name != "bundle_bytes" {
			rest[name] = m.Raw()
		}
	}
	for name, m := range c.value.Members() {
		whole[name] = m.Raw()
	}
	b, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	whole["extra"] = b
	v, err := encodeDeep(whole)
	if err != nil {
		return nil, err
	}
	return v.Raw(), nil
}

// merkleTree names the tree whose root is archive_root.
const merkleTree = "rfc6962-sha256"

// treeOf tells whether extra.merkle, if it is there and tells of a tree that is
// known, tells of one over so many records.
func (c *Claim) treeOf(count int64) bool {
	m := c.value.Get("extra").Get("merkle")
	size, ok := m.Get("size").Int()
	return !m.Get("tree").Is(merkleTree) || ok && size == count
}

// Check compares the claim with what the records amount to. A manifest may
// carry archive_root == events_sha3_256 instead of the Merkle root (ADP §19).
// When envelopes are withheld, whatever covers them cannot be checked and is left
// out: events_sha3_256, events_cid, and an archive_root that is the events digest.
func (c *Claim) Check(s Summary) error {
	events, root := Encode(s.Events[:]), Encode(s.Root[:])
	unseen := s.Withheld > 0
	var wrong []string
	for _, m := range []struct {
		name string
		ok   bool
	}{
		{"room_id", c.RoomID == s.RoomID}, {"event_count", c.Count == s.Count}, {"last_seq", c.LastSeq == s.Count},
		{"last_hash", c.LastHash == s.LastHash}, {"events_sha3_256", unseen || c.EventsDigest == events},
		{"archive_root", c.ArchiveRoot == root || c.ArchiveRoot == events || unseen && c.ArchiveRoot == c.EventsDigest},
		{"extra.events_cid", unseen || c.EventsCID == "" || c.EventsCID == s.EventsCID()},
		{"extra.merkle", c.treeOf(s.Count)},
	} {
		if !m.ok {
			wrong = append(wrong, m.name)
		}
	}
	if wrong != nil {
		return fmt.Errorf("the manifest differs from the records in %s", strings.Join(wrong, ", "))
	}
	return nil
}
