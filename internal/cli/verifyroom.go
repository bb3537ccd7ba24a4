package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
)

// inspectRoom verifies a room at a host or a mirror.
func (c *client) inspectRoom(ctx context.Context, p place) (*inspect.Inspection, error) {
	in := inspect.New(p.url())
	bar := newProgress(c.err, "verifying")
	in.Progress = bar.at
	err := in.Room(ctx, remote{c, p}, p.id)
	bar.end()
	return in, err
}

// stream verifies an archive of size bytes (0: not known) that is read from r.
func (c *client) stream(ctx context.Context, in *inspect.Inspection, doing string, r io.Reader, size int64) error {
	bar := newProgress(c.err, doing)
	in.Progress, in.Work = bar.at, &inspect.Counter{R: r, Total: size}
	err := in.Stream(ctx, in.Work)
	bar.end()
	return err
}

// remote is a room over HTTP.
type remote struct {
	c *client
	p place
}

func (r remote) Resource(ctx context.Context) (*inspect.Resource, error) {
	return r.c.resource(ctx, r.p)
}

func (r remote) Records(ctx context.Context, after int64, limit int) ([]adp.Value, error) {
	return r.c.events(ctx, r.p, after, limit, 0)
}

// Manifest answers nil when the host has no archive of the room.
func (r remote) Manifest(ctx context.Context) ([]byte, error) {
	v, _, err := r.c.get(ctx, fetch.Request{URL: r.p.url() + "/archive"})
	if missing(err) || codeOf(err) == adp.RoomNotActive {
		r.c.notef("the host has no archive of this room; its records are verified alone")
		return nil, nil
	}
	return v.Raw(), err
}

func (r remote) Bundle(ctx context.Context) (io.ReadCloser, error) {
	s, err := r.c.openBundle(ctx, r.p)
	if e, ok := errors.AsType[*apiError](err); ok {
		return nil, inspect.NotGiven{Err: e}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
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
