package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
)

const defaultHost = "http://127.0.0.1:8080"

// Bounds of what one answer may hold, in bytes.
const (
	maxAnswer = 16 << 20
	maxPage   = 32 << 20
)

// client is what the commands share: where to ask, who signs, how to show.
type client struct {
	host    string
	keyFile string
	json    bool

	in       io.Reader
	out, err io.Writer
	http     *fetch.Client
	signIn   bool // reads need a token here: one was refused without
	lastUsed int64
}

// flags adds the flags of the client to a command and its children, and returns what they will set.
func (c *client) flags(cmd *cobra.Command) *cobra.Command {
	host := os.Getenv(envHost)
	if host == "" {
		host = defaultHost
	}
	cmd.PersistentFlags().StringVar(&c.host, "host", host, "the ADP host, or the address of a mirrored one; variable "+envHost)
	c.output(cmd)
	return c.key(cmd)
}

func (c *client) key(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentFlags().StringVar(&c.keyFile, "key", "", "file of the local key; variable "+envKey+" (default $XDG_CONFIG_HOME/witan/key)")
	return cmd
}

func (c *client) output(cmd *cobra.Command) {
	cmd.PersistentFlags().BoolVar(&c.json, "json", false, "write JSON for scripts")
}

// start binds the client to the streams of the command that runs. Every address is one that a person typed, so that private
// ones pass.
func (c *client) start(cmd *cobra.Command) {
	c.in, c.out, c.err = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	c.http = fetch.New(fetch.Options{AllowPrivate: true, UserAgent: "witan/" + Version})
}

// do is the RunE of a command of the client.
func (c *client) do(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.start(cmd)
		defer c.http.CloseIdle()
		return f(cmd.Context(), args)
	}
}

func (c *client) notef(format string, args ...any) {
	fmt.Fprintln(c.err, "witan: "+plain(fmt.Sprintf(format, args...)))
}

// keyPath is where the local key is.
func (c *client) keyPath() (string, error) {
	if c.keyFile != "" {
		return c.keyFile, nil
	}
	if p := os.Getenv(envKey); p != "" {
		return p, nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification wants a relative one ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("there is no home folder for the key (%v); name its file with --key", err)
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "witan", "key"), nil
}

// signer loads the local key, and makes it on first use.
func (c *client) signer() (ed25519.PrivateKey, error) {
	path, err := c.keyPath()
	if err != nil {
		return nil, err
	}
	ring, created, err := keys.Load(path)
	if err != nil {
		return nil, err
	}
	if created {
		c.notef("made a new key at %s: you are %s", path, ring.AgentID())
	}
	return ring.Key(keys.Agent), nil
}

// hasKey tells whether there is a local key: reading never makes one.
func (c *client) hasKey() bool {
	path, err := c.keyPath()
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

// place is a room at a host or at its mirror.
type place struct {
	base string // scheme://host[:port], and /m/<authority> at a mirror
	id   string
}

func (p place) url() string { return p.base + "/v1/rooms/" + p.id }

// apiBase reads --host: an origin, perhaps with the path of a mirror.
func (c *client) apiBase() (string, error) {
	u, err := c.http.CheckURL(c.host)
	if err != nil {
		return "", usagef("--host: %v", err)
	}
	if u.RawQuery != "" {
		return "", usagef("--host: %q has a query; name the host alone", c.host)
	}
	path := strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/v1")
	return u.Scheme + "://" + u.Host + path, nil
}

// place reads a room argument: a room ID at --host, or the URL of a room.
func (c *client) place(arg string) (place, error) {
	if !strings.Contains(arg, "://") {
		base, err := c.apiBase()
		if err != nil {
			return place{}, err
		}
		if !adp.IsRoomID(arg) {
			return place{}, usagef("%q is neither a room ID nor the URL of a room", arg)
		}
		return place{base, arg}, nil
	}
	u, err := c.http.CheckURL(arg)
	if err != nil {
		return place{}, usagef("%v", err)
	}
	before, rest, ok := strings.Cut(u.EscapedPath(), "/v1/rooms/")
	id, _, _ := strings.Cut(rest, "/")
	if !ok || !adp.IsRoomID(id) {
		return place{}, usagef("%q is not the URL of a room, which ends in /v1/rooms/<room ID>", arg)
	}
	return place{u.Scheme + "://" + u.Host + before, id}, nil
}

// originOf is the audience of request tokens for a URL.
func originOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	return fetch.Origin(u.Scheme+"://"+u.Host, true)
}

// apiError is a refusal by the host.
type apiError struct {
	Status  int
	Code    adp.Code
	Message string
	Data    adp.Value
	MaxSeen int64 // of the Max-Seen-Nonce header; 0 when there is none
	URL     string
}

func (e *apiError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s answered with status %d and no coded error; is this the API of an ADP host?", e.URL, e.Status)
	}
	return fmt.Sprintf("%s: %s (the host's answer, status %d)", e.Code, short(e.Message, 500), e.Status)
}

func codeOf(err error) adp.Code {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.Code
	}
	return ""
}

// missing tells that the host has no such resource, or hides it.
func missing(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.Status == http.StatusNotFound
}

func refusal(status int, h http.Header, body []byte, url string) *apiError {
	e := &apiError{Status: status, URL: url}
	if v, err := adp.ScanDepth(body, adp.RecordDepth+4); err == nil {
		e.Code, e.Message = adp.Code(short(v.Get("error").Get("code").Text(), 60)), v.Get("error").Get("message").Text()
		e.Data = v.Get("error").Get("data")
	}
	if n, err := strconv.ParseInt(h.Get("Max-Seen-Nonce"), 10, 64); err == nil && n > 0 && n < adp.MaxInt {
		e.MaxSeen = n
	}
	return e
}

// unreachable adds to a failed exchange what to do next.
func unreachable(err error) error {
	switch fetch.KindOf(err) {
	case fetch.Refused:
		return fmt.Errorf("%w; start a host there (witan serve), or name another one with --host", err)
	case fetch.Unreachable:
		return fmt.Errorf("%w; check the address and the network", err)
	}
	return err
}

// token is the header of a request that says who asks.
func (c *client) token(raw string) (http.Header, error) {
	key, err := c.signer()
	if err != nil {
		return nil, err
	}
	origin, err := originOf(raw)
	if err != nil {
		return nil, err
	}
	t, err := adp.SignToken(key, origin, time.Now().Unix(), 120)
	if err != nil {
		return nil, err
	}
	return http.Header{"Authorization": {"Bearer " + t}}, nil
}

// request sends one request and answers with its JSON; a status that is not 2xx is an *apiError.
func (c *client) request(ctx context.Context, r fetch.Request) (adp.Value, http.Header, error) {
	if r.MaxBytes == 0 {
		r.MaxBytes = maxAnswer
	}
	r.ContentType = "application/json"
	resp, err := c.http.Do(ctx, r)
	if err != nil {
		return adp.Value{}, nil, unreachable(err)
	}
	if resp.Status/100 != 2 {
		return adp.Value{}, nil, refusal(resp.Status, resp.Header, resp.Body, r.URL)
	}
	v, err := adp.ScanDepth(resp.Body, adp.RecordDepth+24)
	if err != nil {
		return adp.Value{}, nil, fmt.Errorf("the answer of %s is %w", r.URL, err)
	}
	return v, resp.Header, nil
}

// get reads without saying who asks, and once more with a token when that is refused and there is a local key.
func (c *client) get(ctx context.Context, r fetch.Request) (adp.Value, http.Header, error) {
	if !c.signIn {
		v, h, err := c.request(ctx, r)
		e, refused := errors.AsType[*apiError](err)
		if !refused || e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden && e.Status != http.StatusNotFound {
			return v, h, err
		}
		if !c.hasKey() {
			if !missing(err) {
				err = fmt.Errorf("%w; there is no local key to say who you are, make one with: witan key new", err)
			}
			return v, h, err
		}
	}
	auth, err := c.token(r.URL)
	if err != nil {
		return adp.Value{}, nil, err
	}
	r.Header = auth
	v, h, err := c.request(ctx, r)
	if err == nil {
		c.signIn = true
	}
	return v, h, err
}

// post sends a JSON body, signed in or not.
func (c *client) post(ctx context.Context, url string, body []byte, signIn bool) (adp.Value, error) {
	h := http.Header{}
	if signIn {
		var err error
		if h, err = c.token(url); err != nil {
			return adp.Value{}, err
		}
	}
	h.Set("Content-Type", "application/json")
	v, _, err := c.request(ctx, fetch.Request{Method: http.MethodPost, URL: url, Body: body, Header: h})
	return v, err
}

// list reads a bare array, following the links to its next pages until limit elements are there; 0 is no limit. Pages
// that lead to another origin, or that have no end, are refused.
func (c *client) list(ctx context.Context, url string, limit int) ([]adp.Value, error) {
	origin, err := originOf(url)
	if err != nil {
		return nil, err
	}
	var all []adp.Value
	for page := 0; ; page++ {
		v, h, err := c.get(ctx, fetch.Request{URL: url, MaxBytes: maxPage})
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
		next := nextPage(h)
		if next == "" || v.Len() == 0 || limit > 0 && len(all) >= limit {
			return all, nil
		}
		if to, err := originOf(next); err != nil || to != origin || next == url || page == 10_000 {
			return nil, fmt.Errorf("the next page of %s is %.200q, which is not followed", url, next)
		}
		url = next
	}
}

// nextPage finds the URL of rel="next" (RFC 8288).
func nextPage(h http.Header) string {
	for _, l := range h.Values("Link") {
		for link := range strings.SplitSeq(l, ",") {
			target, params, ok := strings.Cut(strings.TrimSpace(link), ">")
			if !ok || !strings.HasPrefix(target, "<") {
				continue
			}
			for p := range strings.SplitSeq(params, ";") {
				if name, value, _ := strings.Cut(strings.TrimSpace(p), "="); strings.EqualFold(name, "rel") && strings.Trim(value, `"`) == "next" {
					return target[1:]
				}
			}
		}
	}
	return ""
}

// read takes a whole input that a person gave: a file, or standard input for "-".
func (c *client) read(name string) ([]byte, error) {
	in := c.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxAnswer)
	}
	return b, err
}

// readJSON takes strict JSON that a person gave.
func (c *client) readJSON(name string) (adp.Value, error) {
	b, err := c.read(name)
	if err != nil {
		return adp.Value{}, err
	}
	v, err := adp.Scan(b)
	if err != nil {
		return adp.Value{}, fmt.Errorf("%s is %w", name, err)
	}
	return v, nil
}

func mustJSON(x any) []byte {
	b, err := json.Marshal(x)
	if err != nil {
		panic("cli: encode: " + err.Error()) // only of our own simple values
	}
	return b
}
