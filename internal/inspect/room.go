package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
)

// PageRecords is how many records are asked for at once.
const PageRecords = 1000

// Place is a room as its host or a mirror serves it.
type Place interface {
	// Resource is GET of the room, as it stands now.
	Resource(ctx context.Context) (*Resource, error)
	// Manifest is the body of GET …/archive; nil when there is none.
	Manifest(ctx context.Context) ([]byte, error)
	// Records is one page of records behind a seq, unchecked.
	Records(ctx context.Context, after int64, limit int) ([]adp.Value, error)
	// Bundle begins to read archive.jsonl; a NotGiven when it is refused.
	Bundle(ctx context.Context) (io.ReadCloser, error)
}

// NotGiven is the error of a Place that answers, but does not give out what was asked for.
type NotGiven struct{ Err error }

func (e NotGiven) Error() string { return e.Err.Error() }
func (e NotGiven) Unwrap() error { return e.Err }

// Resource is what is needed of a Room resource (ADP §16).
type Resource struct {
	Value      adp.Value
	Status     string
	Visibility string
	EndTime    int64
	Last, Head room.Position
}

// ParseResource reads a Room resource, which must be that of room id.
func ParseResource(v adp.Value, id string) (*Resource, error) {
	r := &Resource{Value: v, Status: v.Get("status").Text(), Visibility: v.Get("visibility").Text()}
	r.EndTime, _ = v.Get("end_time").Int()
	ok := v.Get("id").Is(id)
	for _, p := range []struct {
		to *room.Position
		v  adp.Value
	}{{&r.Last, v}, {&r.Head, v.Get("head")}} {
		seq, isInt := p.v.Get("seq").Int()
		*p.to = room.Position{Seq: seq, Hash: p.v.Get("hash").Text()}
		ok = ok && isInt && seq >= 1 && adp.IsHash(p.to.Hash)
	}
	if !ok {
		return nil, fmt.Errorf("the host's room resource is not that of room %s, or lacks seq, hash or head", id)
	}
	return r, nil
}

// Over tells whether the room takes no more writes.
func (r *Resource) Over() bool {
	return r.Status == string(room.Ended) || r.Status == string(room.Cancelled)
}

// Counter counts what is read through it; another goroutine may ask how much.
type Counter struct {
	R     io.Reader
	Total int64 // bytes to come in all; 0 when not known
	n     atomic.Int64
}

// Read passes on what R has.
func (c *Counter) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Done is how many bytes were read.
func (c *Counter) Done() int64 { return c.n.Load() }

// Room verifies the room id at a place: all records up to the one that its resource names, the resource against them, and once it has
// ended its manifest and the exact bytes of its archive. An error is one of the place, never a finding.
func (in *Inspection) Room(ctx context.Context, p Place, id string) error {
	r, packs, err := in.begin(ctx, p)
	if err != nil {
		return err
	}
	return in.records(ctx, p, id, r, packs)
}

// Archive verifies the same with one download less: the records are read from archive.jsonl, once there is one. A room that has none is
// verified as Room does.
func (in *Inspection) Archive(ctx context.Context, p Place, id string) error {
	r, packs, err := in.begin(ctx, p)
	if err != nil {
		return err
	}
	if in.Claim == nil {
		return in.records(ctx, p, id, r, packs)
	}
	body, err := p.Bundle(ctx)
	var no NotGiven
	if errors.As(err, &no) {
		return in.records(ctx, p, id, r, packs) // which says so, if there should be one
	}
	if err != nil {
		return err
	}
	defer body.Close()
	in.Work = &Counter{R: body, Total: in.Claim.BundleBytes}
	if in.Work.Total > 0 {
		in.Work.R = io.LimitReader(body, in.Work.Total+1)
	}
	if in.Claim.RoomID != id {
		in.claimProblem("the manifest is of room %.200q", in.Claim.RoomID)
	}
	if err := in.Stream(ctx, in.Work); err != nil {
		return err
	}
	if in.Broken == nil {
		in.compare(r)
	}
	return nil
}

// begin reads the resource of a room, and its manifest once it has ended.
func (in *Inspection) begin(ctx context.Context, p Place) (*Resource, map[string]*types.Pack, error) {
	r, err := p.Resource(ctx)
	if err != nil || r.Status != string(room.Ended) {
		return r, nil, err
	}
	manifest, err := p.Manifest(ctx)
	if err != nil || manifest == nil {
		return r, nil, err
	}
	return r, in.SetClaim(manifest), nil
}

func (in *Inspection) records(ctx context.Context, p Place, id string, r *Resource, packs map[string]*types.Pack) error {
	if in.Claim != nil && in.Claim.BundleCID != "" {
		line1, err := in.Claim.Line1()
		if err != nil {
			return err
		}
		in.bundle = adp.NewBundle(line1)
	}
	in.total = r.Last.Seq
	if err := in.replay(ctx, id, packs, pager(ctx, p, r.Last.Seq)); err != nil {
		return err
	}
	if in.Broken == nil {
		in.compare(r)
	}
	if in.bundle != nil && in.Broken == nil {
		if err := in.exactBundle(ctx, p); err != nil {
			return err
		}
	}
	in.finish()
	return nil
}

// pager reads the records of a room, page by page, up to a seq.
func pager(ctx context.Context, p Place, until int64) func() ([]byte, error) {
	var page []adp.Value
	after := int64(0)
	return func() ([]byte, error) {
		if after == until {
			return nil, io.EOF
		}
		if len(page) == 0 {
			var err error
			if page, err = p.Records(ctx, after, int(min(PageRecords, until-after))); err != nil {
				return nil, err
			}
			if len(page) == 0 {
				return nil, io.EOF
			}
		}
		text := page[0].Raw()
		page, after = page[1:], after+1
		return text, nil
	}
}

// compare holds the room resource against the records.
func (in *Inspection) compare(r *Resource) {
	s := in.Verifier.State
	if s.Last.Seq < r.Last.Seq {
		in.problem("the host says that the room has %s, but shows only %d", records(r.Last.Seq), s.Last.Seq)
		return
	}
	if s.Last.Hash != r.Last.Hash {
		in.problem("the newest record is %s, the room resource says %s", s.Last.Hash, r.Last.Hash)
	}
	if s.Head != r.Head && !s.Unresolved {
		in.problem("the room head is seq %d, the room resource says seq %d", s.Head.Seq, r.Head.Seq)
	}
	wrong := in.contradicts(r.Value)
	for _, name := range []string{"creator", "topic", "visibility", "start_time", "end_time"} {
		if !r.Value.Get(name).Exists() {
			wrong = append(wrong, name)
		}
	}
	if wrong != nil {
		in.problem("the room resource differs from the records in %s", strings.Join(wrong, ", "))
	}
}

// contradicts names what a room resource says otherwise than the records. After a violation it is open what the host made of it.
func (in *Inspection) contradicts(resource adp.Value) []string {
	if in.Verifier.Counts[room.Violation] > 0 {
		return nil
	}
	canonical, err := resource.Canonical()
	if err != nil {
		return []string{"its text"}
	}
	return in.Verifier.State.Contradicts(canonical)
}

// exactBundle reads archive.jsonl and compares its exact bytes with the bundle that the verified records make.
func (in *Inspection) exactBundle(ctx context.Context, p Place) error {
	s, err := p.Bundle(ctx)
	var no NotGiven
	if errors.As(err, &no) {
		in.claimProblem("the manifest has a bundle_cid, but the host does not give out archive.jsonl: %v", no.Err)
		return nil
	}
	if err != nil {
		return err
	}
	defer s.Close()
	e := newExact(io.LimitReader(s, in.bundle.Bytes+1))
	if _, err := io.Copy(io.Discard, e); err != nil {
		return err
	}
	if in.BundleCID, in.BundleBytes = e.cid(), e.n; in.bundle.CID() != in.BundleCID {
		in.claimProblem("archive.jsonl does not hold the records that the host shows")
	}
	return nil
}

// CheckCID compares with a CID that the caller trusts.
func (in *Inspection) CheckCID(want string) {
	codec, _, err := adp.ParseCID(want)
	switch {
	case err != nil || in.Broken != nil:
	case in.Withheld() > 0:
		in.problem("%s withheld, so that nothing here can be compared with %s", records(in.Withheld()), want)
	case codec == adp.CodecJSON && in.Verifier.Digest.Summary().EventsCID() != want:
		in.problem("the records are not those of %s", want)
	case codec == adp.CodecRaw && in.BundleCID == "":
		in.problem("there is no archive.jsonl here to compare with %s", want)
	case codec == adp.CodecRaw && in.BundleCID != want:
		in.problem("the bytes of the archive are not those of %s", want)
	}
}

func records(n int64) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}
