package witness

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/witan-adp/witan/adp"
)

// The envelope types of agent-witness/1.0 that this package makes and reads.
const (
	TypeAnnounce = "archive.announce"
	TypeAttest   = "archive.attest"
)

// Revision is the revision of the protocol text whose rules are replayed, and
// RulesVersion counts the changes of our reading of it.
const (
	Revision     = "2026-07-04"
	RulesVersion = 1
)

// Subject is what a statement or an attestation speaks of: one room as one host
// told it.
type Subject struct {
	Origin  string `json:"origin"`
	RoomID  string `json:"room_id"`
	Genesis string `json:"genesis"` // record hash at seq 1
}

// Statement is the payload of archive.announce: what a host says about the
// archive of its own ended room.
type Statement struct {
	Subject
	Revision     string `json:"revision"`
	EventCount   int64  `json:"event_count"`
	LastSeq      int64  `json:"last_seq"`
	LastHash     string `json:"last_hash"`
	ArchiveRoot  string `json:"archive_root"` // RFC 6962 root over the record hashes
	EventsDigest string `json:"events_sha3_256"`
	EventsCID    string `json:"events_cid"`
	BundleCID    string `json:"bundle_cid"`
	BundleBytes  int64  `json:"bundle_bytes"`
	GeneratedAt  int64  `json:"generated_at"` // Unix ms
}

// Rules say by which rules a witness replayed.
type Rules struct {
	Revision string `json:"revision"`
	Version  int64  `json:"version"`
}

// Attestation is the payload of archive.attest: what a witness recomputed.
type Attestation struct {
	Statement *string `json:"statement"` // hash of the host's statement; nil when it made none
	Subject
	Complete    bool          `json:"complete"` // the room has ended and all of it was there
	LastSeq     int64         `json:"last_seq"`
	LastHash    string        `json:"last_hash"`
	ArchiveRoot string        `json:"archive_root"`
	EventsCID   string        `json:"events_cid"`
	Source      string        `json:"source"`      // where the records were fetched
	OriginKeys  []adp.AgentID `json:"origin_keys"` // keys that were bound to the origin
	Rules       Rules         `json:"rules"`
	VerifiedAt  int64         `json:"verified_at"` // Unix ms
}

const (
	maxOrigin     = 300
	maxOriginKeys = 16
	maxWord       = 64
)

// fields reads a closed object: every member is asked for once, and none is left.
type fields struct {
	v    adp.Value
	seen int
	err  error
}

func (f *fields) fail(name, want string) {
	if f.err == nil {
		f.err = adp.Errorf(adp.InvalidEvent, "%s must be %s", name, want)
	}
}

func (f *fields) get(name string) adp.Value {
	m := f.v.Get(name)
	if m.Exists() {
		f.seen++
	} else {
		f.fail(name, "there")
	}
	return m
}

func (f *fields) end() error {
	if f.err == nil && (f.v.Kind() != adp.Object || f.v.Len() != f.seen) {
		f.err = adp.Errorf(adp.InvalidEvent, "the payload holds a member that its type does not define")
	}
	return f.err
}

func (f *fields) text(name, want string, ok func(string) bool) string {
	s, isText := f.get(name).Str()
	if !isText || !ok(s) {
		f.fail(name, want)
	}
	return s
}

func (f *fields) integer(name string, least int64) int64 {
	n, ok := f.get(name).Int()
	if !ok || n < least {
		f.fail(name, fmt.Sprintf("an integer, %d or greater", least))
	}
	return n
}

func (f *fields) hash(name string) string { return f.text(name, "the text of 32 bytes", adp.IsHash) }

func (f *fields) cid(name string, codec uint64) string {
	return f.text(name, "a CID of the codec in use", func(s string) bool {
		c, _, err := adp.ParseCID(s)
		return err == nil && c == codec
	})
}

func (f *fields) word(name string) string {
	return f.text(name, "a short text", func(s string) bool { return s != "" && len(s) <= maxWord })
}

func (f *fields) subject() Subject {
	return Subject{f.text("origin", "an origin", isOrigin), f.text("room_id", "a room ID", adp.IsRoomID), f.hash("genesis")}
}

// isOrigin tells whether s is scheme://host[:port] in its one spelling, as far as
// the text alone shows.
func isOrigin(s string) bool {
	if len(s) > maxOrigin || strings.ToLower(s) != s {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.Scheme+"://"+u.Host == s
}

// ParseStatement reads the payload of an archive.announce envelope, whose
// signature is not looked at.
func ParseStatement(e *adp.Envelope) (*Statement, error) {
	if err := ofType(e, TypeAnnounce); err != nil {
		return nil, err
	}
	f := fields{v: e.Payload}
	s := &Statement{Subject: f.subject(), Revision: f.word("revision"), EventCount: f.integer("event_count", 1), LastSeq: f.integer("last_seq", 1),
		LastHash: f.hash("last_hash"), ArchiveRoot: f.hash("archive_root"), EventsDigest: f.hash("events_sha3_256"),
		EventsCID: f.cid("events_cid", adp.CodecJSON), BundleCID: f.cid("bundle_cid", adp.CodecRaw), BundleBytes: f.integer("bundle_bytes", 1),
		GeneratedAt: f.integer("generated_at", 0)}
	if err := f.end(); err != nil {
		return nil, err
	}
	if s.EventCount != s.LastSeq {
		return nil, adp.Errorf(adp.InvalidEvent, "event_count must be last_seq: a room begins at seq 1 and has no gap")
	}
	if digest, err := adp.DecodeHash(s.EventsDigest); err != nil || adp.NewCID(adp.CodecJSON, digest) != s.EventsCID {
		return nil, adp.Errorf(adp.InvalidEvent, "events_cid must be the CID of events_sha3_256")
	}
	return s, nil
}

// ParseAttestation reads the payload of an archive.attest envelope, whose
// signature is not looked at.
func ParseAttestation(e *adp.Envelope) (*Attestation, error) {
	if err := ofType(e, TypeAttest); err != nil {
		return nil, err
	}
	f := fields{v: e.Payload}
	a := &Attestation{Subject: f.subject(), LastSeq: f.integer("last_seq", 1), LastHash: f.hash("last_hash"), ArchiveRoot: f.hash("archive_root"),
		EventsCID: f.cid("events_cid", adp.CodecJSON), Source: f.text("source", "an origin", isOrigin), VerifiedAt: f.integer("verified_at", 0)}
	if v := f.get("statement"); v.Kind() != adp.Null {
		s := v.Text()
		if a.Statement = &s; !adp.IsHash(s) {
			f.fail("statement", "the hash of a statement, or null")
		}
	}
	var ok bool
	if a.Complete, ok = f.get("complete").Bool(); !ok {
		f.fail("complete", "true or false")
	}
	keys := f.get("origin_keys")
	if keys.Kind() != adp.Array || keys.Len() > maxOriginKeys {
		f.fail("origin_keys", "an array of Agent IDs")
	}
	for k := range keys.Elements() {
		if !adp.IsAgentID(k.Text()) {
			f.fail("origin_keys", "an array of Agent IDs")
			break
		}
		a.OriginKeys = append(a.OriginKeys, adp.AgentID(k.Text()))
	}
	rules := fields{v: f.get("rules")}
	a.Rules = Rules{rules.word("revision"), rules.integer("version", 1)}
	if err := rules.end(); err != nil {
		f.fail("rules", "an object with revision and version")
	}
	return a, f.end()
}

func ofType(e *adp.Envelope, typ string) error {
	if err := e.CheckShape(); err != nil {
		return err
	}
	if e.Protocol != adp.WitnessProtocol || e.Type != typ {
		return adp.Errorf(adp.InvalidEvent, "not a %s event of %s", typ, adp.WitnessProtocol)
	}
	return nil
}

// content is what a statement or an attestation says about the records: the part
// that two of them cannot say differently.
type content struct {
	complete bool
	lastSeq  int64
	lastHash string
	root     string
	events   string // events_cid; a head has none
}

func (s *Statement) content() content {
	return content{true, s.LastSeq, s.LastHash, s.ArchiveRoot, s.EventsCID}
}

func (a *Attestation) content() content {
	return content{a.Complete, a.LastSeq, a.LastHash, a.ArchiveRoot, a.EventsCID}
}

func contentOf(s adp.Summary) content {
	return content{true, s.Count, s.LastHash, adp.Encode(s.Root[:]), s.EventsCID()}
}

// differs tells whether two contents cannot both hold of one chain. A complete
// archive has one end; one that is not complete is a prefix of it.
func (c content) differs(d content) bool {
	switch {
	case c.lastSeq == d.lastSeq:
		return c.lastHash != d.lastHash || c.root != d.root || c.events != "" && d.events != "" && c.events != d.events
	case c.complete && d.complete:
		return true
	case c.complete:
		return d.lastSeq > c.lastSeq
	case d.complete:
		return c.lastSeq > d.lastSeq
	}
	return false
}
