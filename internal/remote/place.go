package remote

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

// Place is a room over HTTP, for inspect.
type Place struct {
	C *Client
	P Room
}

// Resource implements inspect.Place.
func (r Place) Resource(ctx context.Context) (*inspect.Resource, error) {
	return r.C.Resource(ctx, r.P)
}

// Records implements inspect.Place.
func (r Place) Records(ctx context.Context, after int64, limit int) ([]adp.Value, error) {
	return r.C.Events(ctx, r.P, after, limit, 0)
}

// Manifest answers nil when the host has no archive of the room.
func (r Place) Manifest(ctx context.Context) ([]byte, error) {
	v, _, err := r.C.Get(ctx, fetch.Request{URL: r.P.URL() + "/archive"})
	if Missing(err) || CodeOf(err) == adp.RoomNotActive {
		r.C.Notef("the host has no archive of this room; its records are verified alone")
		return nil, nil
	}
	return v.Raw(), err
}

// Bundle implements inspect.Place.
func (r Place) Bundle(ctx context.Context) (io.ReadCloser, error) {
	s, err := r.C.OpenBundle(ctx, r.P)
	if e, ok := errors.AsType[*Error](err); ok {
		return nil, inspect.NotGiven{Err: e}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

const archiveIdle = 30 * time.Second

// OpenBundle begins to read archive.jsonl; a status that is not 200 is an *Error.
func (c *Client) OpenBundle(ctx context.Context, p Room) (*fetch.Stream, error) {
	url := p.URL() + "/archive.jsonl"
	h := http.Header{}
	if c.SignIn {
		var err error
		if h, err = c.Token(url); err != nil {
			return nil, err
		}
	}
	s, err := c.HTTP.Stream(ctx, fetch.Request{URL: url, Header: h}, archiveIdle)
	if err != nil {
		return nil, Unreachable(err)
	}
	if s.Status != http.StatusOK {
		defer s.Close()
		body, err := io.ReadAll(io.LimitReader(s, 64<<10))
		if err != nil {
			return nil, err
		}
		return nil, Refusal(s.Status, s.Header, body, url)
	}
	return s, nil
}
