package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/fetch"
)

// meter counts what was read; another goroutine may ask how much.
type meter struct {
	r io.Reader
	n atomic.Int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n.Add(int64(n))
	return n, err
}

func (m *meter) read() int64 { return m.n.Load() }

// inspectRoom verifies a room at a host or a mirror: all records up to the one that its resource names, the resource against them, and once
// it has ended its manifest and the exact bytes of its archive.
func (c *client) inspectRoom(ctx context.Context, p place) (*inspection, error) {
	r, err := c.resource(ctx, p)
	if err != nil {
		return nil, err
	}
	in := newInspection(p.url())
	var packs map[string]*types.Pack
	manifest, err := c.manifest(ctx, p, r)
	if err != nil {
		return nil, err
	}
	if manifest != nil {
		packs = in.setClaim(manifest)
	}
	if in.claim != nil && in.claim.BundleCID != "" {
		line1, err := in.claim.Line1()
		if err != nil {
			return nil, err
		}
		in.bundle = adp.NewBundle(line1)
	}
	in.bar = newProgress(c.err, "verifying", r.last.Seq)
	if err := in.replay(ctx, p.id, packs, c.pager(ctx, p, r.last.Seq), nil); err != nil {
		return nil, err
	}
	if in.broken == nil {
		in.compare(r)
	}
	if in.bundle != nil && in.broken == nil {
		if err := c.exactBundle(ctx, p, in); err != nil {
			return nil, err
		}
	}
	in.finish()
	return in, nil
}

// manifest reads the manifest of a room that has ended; nil when there is none yet.
func (c *client) manifest(ctx context.Context, p place, r *resource) ([]byte, error) {
	if r.status != string(room.Ended) {
		return nil, nil
	}
	v, _, err := c.get(ctx, fetch.Request{URL: p.url() + "/archive"})
	if missing(err) || codeOf(err) == adp.RoomNotActive {
		c.notef("the host has no archive of this room; its records are verified alone")
		return nil, nil
	}
	return v.Raw(), err
}

// pager reads the records of a room, page by page, up to a seq.
func (c *client) pager(ctx context.Context, p place, until int64) func() ([]byte, error) {
	var page []adp.Value
	after := int64(0)
	return func() ([]byte, error) {
		if after == until {
			return nil, io.EOF
		}
		if len(page) == 0 {
			var err error
			if page, err = c.events(ctx, p, after, int(min(pageRecords, until-after)), 0); err != nil {
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
func (in *inspection) compare(r *resource) {
	s := in.verifier.State
	if s.Last.Seq < r.last.Seq {
		in.problem("the host says that the room has %s, but shows only %d", count(r.last.Seq, "record"), s.Last.Seq)
		return
	}
	if s.Last.Hash != r.last.Hash {
		in.problem("the newest record is %s, the room resource says %s", s.Last.Hash, r.last.Hash)
	}
	if s.Head != r.head && !s.Unresolved {
		in.problem("the room head is seq %d, the room resource says seq %d", s.Head.Seq, r.head.Seq)
	}
	v := r.value
	start, _ := v.Get("start_time").Int()
	var wrong []string
	for _, m := range []struct {
		name string
		ok   bool
	}{
		{"creator", v.Get("creator").Is(string(s.Creator))}, {"topic", v.Get("topic").Is(s.Contract.Topic)}, {"visibility", v.Get("visibility").Is(s.Contract.Visibility)},
		{"start_time", start == s.Contract.StartTime}, {"end_time", r.endTime == s.Contract.EndTime},
	} {
		if !m.ok {
			wrong = append(wrong, m.name)
		}
	}
	if wrong != nil && in.verifier.Counts[room.Violation] == 0 { // after a violation it is open what the host made of it
		in.problem("the room resource differs from the records in %s", strings.Join(wrong, ", "))
	}
}

// exactBundle reads archive.jsonl and compares its exact bytes with the bundle that the verified records make.
func (c *client) exactBundle(ctx context.Context, p place, in *inspection) error {
	s, err := c.openBundle(ctx, p)
	if e, ok := errors.AsType[*apiError](err); ok {
		in.claimProblem("the manifest has a bundle_cid, but the host does not give out archive.jsonl: %v", e)
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
	if in.bundleCID, in.bundleBytes = e.cid(), e.n; in.bundle.CID() != in.bundleCID {
		in.claimProblem("archive.jsonl does not hold the records that the host shows")
	}
	return nil
}

const archiveIdle = 30 * time.Second

// openBundle begins to read archive.jsonl; a status that is not 200 is an *apiError.
func (c *client) openBundle(ctx context.Context, p place) (*fetch.Stream, error) {
	url := p.url() + "/archive.jsonl"
	h := http.Header{}
	if c.signIn {
		var err error
		if h, err = c.token(url); err != nil {
			return nil, err
		}
	}
	s, err := c.http.Stream(ctx, fetch.Request{URL: url, Header: h}, archiveIdle)
	if err != nil {
		return nil, unreachable(err)
	}
	if s.Status != http.StatusOK {
		defer s.Close()
		body, err := io.ReadAll(io.LimitReader(s, 64<<10))
		if err != nil {
			return nil, err
		}
		return nil, refusal(s.Status, s.Header, body, url)
	}
	return s, nil
}
