package inspect

import (
	"errors"
	"fmt"

	"github.com/witan-adp/witan/adp"
)

// Said is what a page says of a room as it stood at one record. It may be older than what is verified: a live room has moved on.
type Said struct {
	Records  int64  `json:"records"` // 0: the page says nothing of the records
	LastHash string `json:"last_hash"`
	Root     string `json:"archive_root"` // of as many records; "" when not said
	Verdict  string `json:"verdict"`      // "" when not said

	met  bool // the record was reached
	hash string
	root string
}

func (s *Said) at(sum adp.Summary) {
	s.met, s.hash, s.root = true, sum.LastHash, adp.Encode(sum.Root[:])
}

// untrue lists what the page says and the records do not bear out. A page that says worse things of a room than its records show may
// know more than they do (another story of the same host, say), and is not contradicted by them.
func (in *Inspection) untrue() []string {
	s := in.Said
	if s == nil {
		return nil
	}
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	switch n := in.Verifier.State.Last.Seq; {
	case s.Records > 0 && !s.met:
		add("the page says that there are %s; only %d of them can be verified", records(s.Records), n)
	case s.Records > 0:
		if s.LastHash != "" && s.LastHash != s.hash {
			add("the page says that record %d is %.64s; it is %s", s.Records, s.LastHash, s.hash)
		}
		if s.Root != "" && s.Root != s.root {
			add("the page says that the root of %s is %.64s; it is %s", records(s.Records), s.Root, s.root)
		}
	}
	switch found := in.Verdict(); {
	case s.Verdict != "verified":
	case found == "broken" || found == "violations" || found == "archive-mismatch":
		add("the page says verified; what was found here is: %s", found)
	}
	for _, g := range in.signed {
		if g.Forged {
			add("the daemon shows what nobody signed (%s): %s", g.Type, g.Reason)
		}
	}
	return wrong
}

// Signed is what somebody signed about the archive, held against the records.
type Signed struct {
	Type    string      `json:"type"` // archive.announce: by the host; archive.attest: by a witness
	Signer  adp.AgentID `json:"signer,omitempty"`
	Agrees  bool        `json:"agrees"`
	Reason  string      `json:"reason,omitempty"`  // why it does not agree
	Forged  bool        `json:"forged,omitempty"`  // the signature is not that of the signer
	Partial bool        `json:"partial,omitempty"` // it is about fewer or more records, and was not compared
}

// CheckSigned holds one envelope about the archive of this room against the verified records: its own hash and signature, then genesis, last
// record, root and CID. Whose key it is, and whether the signer counts, is not known here. A forgery contradicts who shows it, and so Said.
func (in *Inspection) CheckSigned(v adp.Value) Signed {
	s := in.checkSigned(v)
	in.signed = append(in.signed, s)
	return s
}

func (in *Inspection) checkSigned(v adp.Value) Signed {
	s := Signed{Type: v.Get("type").Text()}
	e, err := adp.ParseEnvelope(v)
	if err == nil {
		err = e.CheckShape()
	}
	if err == nil && e.Protocol != adp.WitnessProtocol {
		err = errors.New("it is not an envelope of " + adp.WitnessProtocol)
	}
	if err == nil {
		err = e.CheckHash()
	}
	if err == nil {
		err = e.CheckSignature()
	}
	if err != nil {
		s.Forged, s.Reason = true, err.Error()
		return s
	}
	s.Signer = e.Actor
	if in.Broken != nil {
		s.Reason = "the records are broken"
		return s
	}
	p, sum := e.Payload, in.Verifier.Digest.Summary()
	if seq, ok := p.Get("last_seq").Int(); ok && seq != sum.Count {
		s.Partial, s.Reason = true, fmt.Sprintf("it is about %s", records(seq))
		return s
	}
	for _, m := range []struct {
		name, have string
		skip       bool
	}{
		{"room_id", sum.RoomID, false}, {"genesis", sum.Genesis, false}, {"last_hash", sum.LastHash, false}, {"archive_root", adp.Encode(sum.Root[:]), false},
		{"events_cid", sum.EventsCID(), sum.Withheld > 0},
	} {
		if !m.skip && !p.Get(m.name).Is(m.have) {
			s.Reason = fmt.Sprintf("%s is %.100q, the records have %s", m.name, p.Get(m.name).Text(), m.have)
			return s
		}
	}
	s.Agrees = true
	return s
}
