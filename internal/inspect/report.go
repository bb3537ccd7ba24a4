package inspect

import (
	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// maxShown bounds the findings that a report lists.
const maxShown = 20

// Report is what was found, as JSON.
type Report struct {
	Source       string                 `json:"source"`
	Verdict      string                 `json:"verdict"`
	Broken       *BrokenAt              `json:"broken,omitempty"`
	Problems     []string               `json:"problems,omitempty"`
	Untrue       []string               `json:"untrue,omitempty"` // what a page says (Said) and the records do not bear out
	RoomID       string                 `json:"room_id,omitempty"`
	Host         string                 `json:"host,omitempty"`
	URL          string                 `json:"url,omitempty"`
	Topic        string                 `json:"topic,omitempty"`
	Manifest     string                 `json:"manifest"` // none, matches, differs, unchecked, partly
	Records      int64                  `json:"records"`
	Withheld     int64                  `json:"withheld"`
	Unchecked    []string               `json:"unchecked,omitempty"` // what cannot be checked because of that
	Authors      int                    `json:"authors"`
	FirstAt      int64                  `json:"first_received_at,omitempty"`
	LastAt       int64                  `json:"last_received_at,omitempty"`
	Counts       map[room.Outcome]int64 `json:"counts"`
	Rules        map[adp.Code]int       `json:"rules,omitempty"`
	Genesis      string                 `json:"genesis,omitempty"`
	LastHash     string                 `json:"last_hash,omitempty"`
	ArchiveRoot  string                 `json:"archive_root,omitempty"`
	EventsDigest string                 `json:"events_sha3_256,omitempty"`
	EventsCID    string                 `json:"events_cid,omitempty"`
	BundleCID    string                 `json:"bundle_cid,omitempty"`
	BundleBytes  int64                  `json:"bundle_bytes,omitempty"`
	Signed       []Signed               `json:"signed,omitempty"`      // what others signed about the archive
	MoreSigned   bool                   `json:"more_signed,omitempty"` // there is more than was looked at
	Findings     []room.Finding         `json:"findings,omitempty"`
}

// BrokenAt is the first record that is not authentic or not linked.
type BrokenAt struct {
	Seq    int64  `json:"seq"`
	Reason string `json:"reason"`
}

// Report is what has been found.
func (in *Inspection) Report() Report {
	v := in.Verifier
	r := Report{Source: in.Source, Verdict: in.Verdict(), Problems: in.Problems, Untrue: in.untrue(), Signed: in.signed, MoreSigned: in.MoreSigned, Records: v.State.Last.Seq, Authors: len(in.authors), FirstAt: in.firstAt, LastAt: in.lastAt,
		Counts: map[room.Outcome]int64{}, Rules: v.Rules(), BundleCID: in.BundleCID, BundleBytes: in.BundleBytes, RoomID: v.State.RoomID, Findings: v.Findings(), Manifest: "none"}
	for _, o := range []room.Outcome{room.Allowed, room.Violation, room.Unverifiable} {
		r.Counts[o] = v.Counts[o]
	}
	if in.Broken != nil {
		r.Broken = &BrokenAt{in.Broken.Seq, in.Broken.Err.Error()}
	}
	if c := in.Claim; c != nil {
		r.Host, r.URL = c.Host, c.URL
		r.Manifest = "matches"
	}
	switch {
	case in.differs:
		r.Manifest = "differs"
	case in.Claim != nil && in.Broken != nil:
		r.Manifest = "unchecked"
	case in.Claim != nil && in.Withheld() > 0:
		r.Manifest = "partly"
	}
	if r.Records > 0 {
		s := v.Digest.Summary()
		r.Topic, r.Genesis, r.LastHash, r.EventsCID = v.State.Contract.Topic, s.Genesis, s.LastHash, s.EventsCID()
		r.ArchiveRoot, r.EventsDigest = adp.Encode(s.Root[:]), adp.Encode(s.Events[:])
		if r.Withheld, r.Unchecked = in.Withheld(), in.unchecked(); r.Withheld > 0 { // these would be of something else
			r.EventsDigest, r.EventsCID, r.BundleCID, r.BundleBytes = "", "", "", 0
		}
	}
	if len(r.Findings) > maxShown {
		r.Findings = r.Findings[:maxShown]
	}
	return r
}
