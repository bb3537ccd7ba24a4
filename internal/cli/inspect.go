package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
)

// inspection is the verification of one archive or room, as far as it has come.
type inspection struct {
	source   string
	claim    *adp.Claim // what the host says of the archive; nil when nothing is at hand
	verifier *room.Verifier
	broken   *room.Broken // where the chain ends to be authentic or linked
	problems []string     // what does not fit the records
	differs  bool         // one of them is about the manifest

	authors         map[adp.AgentID]struct{}
	firstAt, lastAt int64
	bundleCID       string // of the bundle's exact bytes, where they were read
	bundleBytes     int64
	bundle          *adp.Bundle // made of the records as they are verified, to compare with; may be nil
	bar             *progress
}

func newInspection(source string) *inspection {
	return &inspection{source: source, authors: map[adp.AgentID]struct{}{}}
}

func (in *inspection) problem(format string, args ...any) {
	in.problems = append(in.problems, fmt.Sprintf(format, args...))
}

// claimProblem is a problem with the manifest, or with the bundle that it names.
func (in *inspection) claimProblem(format string, args ...any) {
	in.differs = true
	in.problem(format, args...)
}

// setClaim reads a manifest and the pack documents that it carries, each checked against its digest.
func (in *inspection) setClaim(text []byte) (packs map[string]*types.Pack) {
	c, err := adp.ParseClaim(text)
	if err != nil {
		in.claimProblem("the manifest cannot be read: %v", err)
		return nil
	}
	in.claim = c
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

// replay verifies the records that next answers. units counts the work done for the bar; nil counts records. What is wrong with the
// records ends in broken; an error is a failure of ours.
func (in *inspection) replay(ctx context.Context, roomID string, packs map[string]*types.Pack, next func() ([]byte, error), units func() int64) error {
	in.verifier = room.NewVerifier(roomID, packs)
	err := room.Pipeline{
		Progress: func(done int64) {
			n := done
			if units != nil {
				n = units()
			}
			in.bar.at(n, done)
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
		},
	}.Run(ctx, next, in.verifier)
	in.bar.end()
	var broken *room.Broken
	var bad badInput
	switch last := in.verifier.State.Last.Seq; {
	case errors.As(err, &broken):
		in.broken = broken
	case errors.As(err, &bad):
		in.broken = &room.Broken{Seq: last + 1, Err: bad}
	case err == nil && last == 0:
		in.broken = &room.Broken{Seq: 1, Err: errors.New("there are no records")}
	default:
		return err
	}
	return nil
}

// stream verifies an archive that is read as a stream. The bytes that e has seen at its end are those of the bundle when a
// manifest stands before the records.
func (in *inspection) stream(ctx context.Context, e *exact, units func() int64) error {
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
		in.verifier, in.broken = room.NewVerifier("", nil), &room.Broken{Seq: 1, Err: bad}
		return nil
	case err != nil && err != io.EOF:
		return err
	}
	roomID := ""
	if in.claim != nil {
		roomID = in.claim.RoomID
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
	}, units); err != nil {
		return err
	}
	if in.broken == nil && src.line1 != nil { // all of it was read
		in.bundleCID, in.bundleBytes = e.cid(), e.n
	}
	return nil
}

// manifests takes the manifest that is at hand, or else the first line of the bundle, which must be its own.
func (in *inspection) manifests(line1 []byte) (map[string]*types.Pack, error) {
	switch {
	case in.claim == nil && line1 == nil:
		return nil, nil
	case in.claim == nil:
		return in.setClaim(line1), nil
	}
	want, err := in.claim.Line1()
	if err != nil {
		return nil, err
	}
	if line1 != nil && !bytes.Equal(line1, want) {
		in.claimProblem("line 1 of the archive is not that of the manifest")
	}
	return in.setClaim(in.claim.JSON()), nil
}

// finish compares what the records amount to with what the manifest says of them.
func (in *inspection) finish() {
	if in.claim == nil || in.broken != nil {
		return
	}
	if err := in.claim.Check(in.verifier.Digest.Summary()); err != nil {
		in.claimProblem("%v", err)
	}
	if in.bundleCID == "" || in.withheld() > 0 { // the bundle is of the records as they were
		return
	}
	if want := in.claim.BundleCID; want != "" && want != in.bundleCID {
		in.claimProblem("the bytes of the archive are not those of bundle_cid %s", want)
	}
	if want := in.claim.BundleBytes; want != 0 && want != in.bundleBytes {
		in.claimProblem("the archive has %d bytes, its manifest says %d", in.bundleBytes, want)
	}
}

// withheld counts the records without their envelope.
func (in *inspection) withheld() int64 { return in.verifier.Counts[room.Withheld] }

// unchecked names what cannot be checked because envelopes are withheld.
func (in *inspection) unchecked() []string {
	switch {
	case in.withheld() == 0:
		return nil
	case in.claim == nil || in.claim.BundleCID == "":
		return []string{"events_sha3_256", "events_cid"}
	}
	return []string{"events_sha3_256", "events_cid", "bundle_cid"}
}

// verdict is the verdict in one word (federation: Mirroring a host, 5), and "unverifiable" or "withheld" where only that was found.
func (in *inspection) verdict() string {
	switch n := in.verifier.Counts; {
	case in.broken != nil:
		return "broken"
	case len(in.problems) > 0:
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
