package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
)

// Bounds of what one answer may hold, in bytes.
const (
	maxAnswer = 16 << 20
	maxPage   = 32 << 20
)

// Client asks one or more hosts on behalf of one agent. Its methods are for one goroutine.
type Client struct {
	HTTP   *fetch.Client
	Key    func() (ed25519.PrivateKey, error) // the key that signs; it may be made by the call
	HasKey func() bool                        // whether there is one: reading never makes one
	NoKey  string                             // what to do when a read is refused and there is none
	Notef  func(format string, args ...any)   // says what a person who waits wants to know

	SignIn    bool // reads need a token here: one was refused without
	lastNonce int64
}

// Room is a room at a host or at its mirror.
type Room struct {
	Base string // scheme://host[:port], and /m/<authority> at a mirror
	ID   string
}

// URL is the address of the room resource.
func (p Room) URL() string { return p.Base + "/v1/rooms/" + p.ID }

// Room reads what a person or a program names a room by: a room ID at base, or the URL of a room.
func (c *Client) Room(base, arg string) (Room, error) {
	if !strings.Contains(arg, "://") {
		if !adp.IsRoomID(arg) {
			return Room{}, Argumentf("%q is neither a room ID nor the URL of a room", arg)
		}
		return Room{base, arg}, nil
	}
	u, err := c.HTTP.CheckURL(arg)
	if err != nil {
		return Room{}, Argumentf("%v", err)
	}
	before, rest, ok := strings.Cut(u.EscapedPath(), "/v1/rooms/")
	id, _, _ := strings.Cut(rest, "/")
	if !ok || !adp.IsRoomID(id) {
		return Room{}, Argumentf("%q is not the URL of a room, which ends in /v1/rooms/<room ID>", arg)
	}
	return Room{u.Scheme + "://" + u.Host + before, id}, nil
}

// OriginOf is the audience of request tokens for a URL.
func OriginOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	return fetch.Origin(u.Scheme+"://"+u.Host, true)
}

// Token is the header of a request that says who asks.
func (c *Client) Token(raw string) (http.Header, error) {
	key, err := c.Key()
	if err != nil {
		return nil, err
	}
	origin, err := OriginOf(raw)
	if err != nil {
		return nil, err
	}
	t, err := adp.SignToken(key, origin, time.Now().Unix(), 120)
	if err != nil {
		return nil, err
	}
	return http.Header{"Authorization": {"Bearer " + t}}, nil
}

// Request sends one request and answers with its JSON; a status that is not 2xx is an *Error.
func (c *Client) Request(ctx context.Context, r fetch.Request) (adp.Value, http.Header, error) {
	if r.MaxBytes == 0 {
		r.MaxBytes = maxAnswer
	}
	r.ContentType = "application/json"
	resp, err := c.HTTP.Do(ctx, r)
	if err != nil {
		return adp.Value{}, nil, Unreachable(err)
	}
	if resp.Status/100 != 2 {
		return adp.Value{}, nil, Refusal(resp.Status, resp.Header, resp.Body, r.URL)
	}
	v, err := adp.ScanDepth(resp.Body, adp.RecordDepth+24)
	if err != nil {
		return adp.Value{}, nil, fmt.Errorf("the answer of %s is %w", r.URL, err)
	}
	return v, resp.Header, nil
}

// Get reads without saying who asks, and once more with a token when that is refused and there is a local key.
func (c *Client) Get(ctx context.Context, r fetch.Request) (adp.Value, http.Header, error) {
	if !c.SignIn {
		v, h, err := c.Request(ctx, r)
		e, refused := errors.AsType[*Error](err)
		if !refused || e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden && e.Status != http.StatusNotFound {
			return v, h, err
		}
		if !c.HasKey() {
			if !Missing(err) {
				err = fmt.Errorf("%w; %s", err, c.NoKey)
			}
			return v, h, err
		}
	}
	auth, err := c.Token(r.URL)
	if err != nil {
		return adp.Value{}, nil, err
	}
	r.Header = auth
	v, h, err := c.Request(ctx, r)
	if err == nil {
		c.SignIn = true
	}
	return v, h, err
}

// Post sends a JSON body, signed in or not.
func (c *Client) Post(ctx context.Context, url string, body []byte, signIn bool) (adp.Value, error) {
	h := http.Header{}
	if signIn {
		var err error
		if h, err = c.Token(url); err != nil {
			return adp.Value{}, err
		}
	}
	h.Set("Content-Type", "application/json")
	v, _, err := c.Request(ctx, fetch.Request{Method: http.MethodPost, URL: url, Body: body, Header: h})
	return v, err
}

// List reads a bare array, following the links to its next pages until limit elements are there; 0 is no limit. Pages
// that lead to another origin, or that have no end, are refused.
func (c *Client) List(ctx context.Context, url string, limit int) ([]adp.Value, error) {
	origin, err := OriginOf(url)
	if err != nil {
		return nil, err
	}
	var all []adp.Value
	for page := 0; ; page++ {
		v, h, err := c.Get(ctx, fetch.Request{URL: url, MaxBytes: maxPage})
		if err != nil {
			return nil, err
		}
		if v.Kind() != adp.Array {
			return nil, fmt.Errorf("%s answered %s where a list belongs; is this the API of an ADP host?", url, v.Kind())
		}
		for e := range v.Elements() {
			if limit > 0 && len(all) == limit {
				return all, nil
			}
			all = append(all, e)
		}
		next := NextPage(h)
		if next == "" || v.Len() == 0 || limit > 0 && len(all) >= limit {
			return all, nil
		}
		if to, err := OriginOf(next); err != nil || to != origin || next == url || page == 10_000 {
			return nil, fmt.Errorf("the next page of %s is %.200q, which is not followed", url, next)
		}
		url = next
	}
}

// NextPage finds the URL of rel="next" (RFC 8288).
func NextPage(h http.Header) string { return adp.NextPage(h.Values("Link")...) }
