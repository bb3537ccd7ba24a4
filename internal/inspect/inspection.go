package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
)

// Inspection is the verification of one archive or room, as far as it has come.
type Inspection struct {
	Source   string     // where the records come from, for people
	Claim    *adp.Claim // what the host says of the archive; nil when nothing is at hand
	Verifier *room.Verifier
	Broken   *room.Broken // where the chain ends to be authentic or linked
	Problems []string     // what does not fit the records

	BundleCID   string // of the bundle's exact bytes, where they were read
	BundleBytes int64

	// Progress is told, from any goroutine, how much work is done and how much there
	// is in all (0: not known), and how many records are done. May be nil.
	Progress func(done, total, records int64)
	// Each is handed every record that was taken, in order, after Verifier took it.
	// May be nil.
	Each func(*adp.Record)

	// Work counts the bytes that are read, for Progress; nil counts records.
	Work *Counter
	// Said is what a page says of the room, to be held against the records. May be nil.
	Said *Said
	// MoreSigned tells that more was signed about the room than CheckSigned was shown.
	MoreSigned bool

	total           int64 // records to come; 0 when not known
	signed          []Signed
	differs         bool // a problem is about the manifest
	authors         map[adp.AgentID]struct{}
	firstAt, lastAt int64
	bundle          *adp.Bundle // made of the records as they are verified, to compare with; may be nil
}

// New starts before the first record.
func New(source string) *Inspection {
	return &Inspection{Source: source, authors: map[adp.AgentID]struct{}{}}
}

// Authors counts those who signed a record.
func (in *Inspection) Authors() int { return len(in.authors) }

func (in *Inspection) problem(format string, args ...any) {
	in.Problems = append(in.Problems, fmt.Sprintf(format, args...))
}

// claimProblem is a problem with the manifest, or with the bundle that it names.
func (in *Inspection) claimProblem(format string, args ...any) {
	in.differs = true
	in.problem(format, args...)
}

// SetClaim reads a manifest and the pack documents that it carries, each checked against its digest.
func (in *Inspection) SetClaim(text []byte) (packs map[string]*types.Pack) {
	c, err := adp.ParseClaim(text)
	if err != nil {
		in.claimProblem("the manifest cannot be read: %v", err)
		return nil
	}
	in.Claim = c
	v, err := adp.ScanDepth(c.JSON(), adp.RecordDepth+24)
	if err != nil {
		in.claimProblem("the manifest cannot be read: %v", err)
		return nil
	}
	packs = map[string]*types.Pack{}
	for s := range v.Get("extra").Get("pack_sources").Elements() {
		digest := s.Get("digest").Text()
		raw, err := adp.Decode(s.Get("raw").Text())
		if err == nil {
			err = types.Digest(digest, raw)
		}
		var p *types.Pack
		if err == nil {
			p, err = types.ParsePack(raw)
		}
		if err != nil {
			in.claimProblem("the type pack %.200q of the manifest cannot be used: %v", s.Get("pack").Text(), err)
			continue
		}
		packs[digest] = p
	}
	return packs
}

// replay verifies the records that next answers. What is wrong with them ends in Broken; an error came from next, or is the cause of ctx.
func (in *Inspection) replay(ctx context.Context, roomID string, packs map[string]*types.Pack, next func() ([]byte, error)) error {
	in.Verifier = room.NewVerifier(roomID, packs)
	err := room.Pipeline{
		Progress: func(done int64) {
			switch {
			case in.Progress == nil:
			case in.Work != nil:
				in.Progress(in.Work.Done(), in.Work.Total, done)
			default:
				in.Progress(done, in.total, done)
			}
		},
		Each: func(r *adp.Record) {
			if r.Seq == 1 {
				in.firstAt = r.ReceivedAt
			}
			in.lastAt = r.ReceivedAt
			if !r.Redacted {
				in.authors[r.Envelope.Actor] = struct{}{}
			}
			if in.bundle != nil {
				in.bundle.Add(r.JSON())
			}
			if s := in.Said; s != nil && r.Seq == s.Records {
				s.at(in.Verifier.Digest.Summary())
			}
			if in.Each != nil {
				in.Each(r)
			}
		},
	}.Run(ctx, next, in.Verifier)
	var broken *room.Broken
	var bad badInput
	switch last := in.Verifier.State.Last.Seq; {
	case errors.As(err, &broken):
		in.Broken = broken
	case errors.As(err, &bad):
		in.Broken = &room.Broken{Seq: last + 1, Err: bad}
	case err == nil && last == 0:
		in.Broken = &room.Broken{Seq: 1, Err: errors.New("there are no records")}
	default:
		return err
	}
	return nil
}

// Stream verifies an archive that is read as a stream, and compares it with its manifest: the one of SetClaim, or else its own first
// line. What is wrong with the archive is a finding; an error came from r, or is the cause of ctx.
func (in *Inspection) Stream(ctx context.Context, r io.Reader) error {
	e := newExact(r)
	if err := in.stream(ctx, e); err != nil {
		return err
	}
	in.finish()
	return nil
}

// stream reads to the end. The bytes that e has seen by then are those of the bundle when a manifest stands before the records.
func (in *Inspection) stream(ctx context.Context, e *exact) error {
	src, err := openSource(e)
	var packs map[string]*types.Pack
	if err == nil {
		if packs, err = in.manifests(src.line1); err != nil {
			return err
		}
	}
	var first []byte
	if err == nil {
		first, err = src.next()
	}
	var bad badInput
	switch {
	case errors.As(err, &bad):
		in.Verifier, in.Broken = room.NewVerifier("", nil), &room.Broken{Seq: 1, Err: bad}
		return nil
	case err != nil && err != io.EOF:
		return err
	}
	roomID := ""
	if in.Claim != nil {
		roomID = in.Claim.RoomID
	} else if v, err := adp.ScanDepth(first, adp.RecordDepth); err == nil {
		roomID = v.Get("room_id").Text()
	}
	atEnd := err
	if err := in.replay(ctx, roomID, packs, func() ([]byte, error) {
		if t := first; t != nil {
			first = nil
			return t, nil
		}
		if atEnd != nil {
			return nil, atEnd
		}
		return src.next()
	}); err != nil {
		return err
	}
	if in.Broken == nil && src.line1 != nil { // all of it was read
		in.BundleCID, in.BundleBytes = e.cid(), e.n
	}
	return nil
}

// manifests takes the manifest that is at hand, or else the first line of the bundle, which must be its own.
func (in *Inspection) manifests(line1 []byte) (map[string]*types.Pack, error) {
	switch {
	case in.Claim == nil && line1 == nil:
		return nil, nil
	case in.Claim == nil:
		return in.SetClaim(line1), nil
	}
	want, err := in.Claim.Line1()
	if err != nil {
		return nil, err
	}
	if line1 != nil && !bytes.Equal(line1, want) {
		in.claimProblem("line 1 of the archive is not that of the manifest")
	}
	return in.SetClaim(in.Claim.JSON()), nil
}

// finish compares what the records amount to with what the manifest says of them.
func (in *Inspection) finish() {
	if in.Claim == nil || in.Broken != nil {
		return
	}
	if err := in.Claim.Check(in.Verifier.Digest.Summary()); err != nil {
		in.claimProblem("%v", err)
	}
	if r := in.Claim.Room; r.Kind() == adp.Object { // our own manifests have it; line 1 of an archive is what readers see first
		if wrong := in.contradicts(r); wrong != nil {
			in.claimProblem("the room in the manifest differs from the records in %s", strings.Join(wrong, ", "))
		}
	}
	if in.BundleCID == "" || in.Withheld() > 0 { // the bundle is of the records as they were
		return
	}
	if want := in.Claim.BundleCID; want != "" && want != in.BundleCID {
		in.claimProblem("the bytes of the archive are not those of bundle_cid %s", want)
	}
	if want := in.Claim.BundleBytes; want != 0 && want != in.BundleBytes {
		in.claimProblem("the archive has %d bytes, its manifest says %d", in.BundleBytes, want)
	}
}

// Withheld counts the records without their envelope.
func (in *Inspection) Withheld() int64 { return in.Verifier.Counts[room.Withheld] }

// unchecked names what cannot be checked because envelopes are withheld.
func (in *Inspection) unchecked() []string {
	switch {
	case in.Withheld() == 0:
		return nil
	case in.Claim == nil || in.Claim.BundleCID == "":
		return []string{"events_sha3_256", "events_cid"}
	}
	return []string{"events_sha3_256", "events_cid", "bundle_cid"}
}

// Verdict is the verdict in one word (federation: Mirroring a host, 5), and "unverifiable" or "withheld" where only that was found.
func (in *Inspection) Verdict() string {
	switch n := in.Verifier.Counts; {
	case in.Broken != nil:
		return "broken"
	case len(in.Problems) > 0:
		return "archive-mismatch"
	case n[room.Violation] > 0:
		return "violations"
	case n[room.Unverifiable] > 0:
		return "unverifiable"
	case n[room.Withheld] > 0:
		return "withheld"
	}
	return "verified"
}
