package fetch

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	defaultTimeout = 30 * time.Second
	defaultMinRate = 128
	rateWindow     = 10 * time.Second
	maxRedirects   = 5
	maxHeader      = 64 << 10 // bytes of an answer's header
	connsPerHost   = 16       // of Do; a stream holds a connection of its own, bounded by streamsPerHost
	streamsPerHost = 256
)

// Options configures New. The zero value is a strict client.
type Options struct {
	AllowPrivate bool   // let loopback and private addresses pass, and http to them
	UserAgent    string // "witan/<version>"
	Log          *slog.Logger
	Registerer   prometheus.Registerer // may be nil
	// Resolver takes the place of net.DefaultResolver when it is not nil.
	Resolver func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Client is safe for concurrent use.
type Client struct {
	allowPrivate bool
	userAgent    string
	log          *slog.Logger
	metrics      *metrics
	resolve      func(ctx context.Context, host string) ([]netip.Addr, error)
	dial         dialFunc      // connects to an address that was judged
	window       time.Duration // over which MinRate is measured
	short, long  transports    // of Do and of Stream, so that open streams take no connection from Do
}

type transports struct {
	http, https *http.Transport
	local       http.RoundTripper // in place of both, see NewLocal
}

func (t transports) of(scheme string) http.RoundTripper {
	if t.local != nil {
		return t.local
	}
	if scheme == "http" {
		return t.http
	}
	return t.https
}

// New returns a client. Call CloseIdle when it is no longer needed.
func New(o Options) *Client {
	c := &Client{allowPrivate: o.AllowPrivate, userAgent: o.UserAgent, log: o.Log, metrics: newMetrics(o.Registerer), resolve: o.Resolver,
		dial: (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext, window: rateWindow}
	if c.userAgent == "" {
		c.userAgent = "witan"
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.resolve == nil {
		c.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	c.short = transports{http: c.transport(true, connsPerHost), https: c.transport(false, connsPerHost)}
	c.long = transports{http: c.transport(true, streamsPerHost), https: c.transport(false, streamsPerHost)}
	return c
}

func (c *Client) transport(plain bool, perHost int) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a proxy would dial addresses that nobody judged
		DialContext:            c.guard(plain),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true, // decoded here, where the decoded bytes are counted
		MaxIdleConns:           128,
		MaxIdleConnsPerHost:    4,
		MaxConnsPerHost:        perHost,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true,
	}
}

// CloseIdle closes the connections that nobody uses now.
func (c *Client) CloseIdle() {
	for _, t := range []transports{c.short, c.long} {
		t.http.CloseIdleConnections()
		t.https.CloseIdleConnections()
	}
}

// Request is one exchange. Only URL and MaxBytes are required.
type Request struct {
	Method      string // "" = GET
	URL         string
	Header      http.Header
	Body        []byte
	MaxBytes    int64         // of the decoded body; for Stream 0 means no bound
	Timeout     time.Duration // of the whole exchange, for Stream up to the header; 0 = 30 s
	MinRate     int64         // bytes/s under which a body is cut, measured over 10 s; 0 = 128, negative = no bound
	ContentType string        // the media type that a 2xx answer with a body must have, parameters ignored; "" = any
	IfNoneMatch string        // the entity tag that is held already; 304 then has no body
	NoRedirect  bool          // a redirect is the answer, and is not followed
	NoBody      bool          // only status and header matter: what follows them cannot make it fail
}

// Response is an answer with any status. Body is decoded.
type Response struct {
	Status    int
	Header    http.Header
	Body      []byte
	Truncated bool   // the body of an answer that is not 2xx was cut at MaxBytes
	URL       string // after redirects
}

// Do sends r and reads the whole answer. A status of any kind is a Response; every error is an *Error.
//
// A 2xx body over MaxBytes is an error; any other is cut there, since its status is what matters.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	start := time.Now()
	resp, err := c.do(ctx, r)
	c.metrics.exchange(resp, err, time.Since(start))
	if err != nil {
		c.log.Debug("fetch failed", "kind", KindOf(err), "error", err)
	}
	return resp, err
}

func (c *Client) do(ctx context.Context, r Request) (*Response, error) {
	if r.MaxBytes <= 0 {
		return nil, &Error{Kind: BadRequest, URL: redact(r.URL), Err: errors.New("Request.MaxBytes must be above 0")}
	}
	timeout := r.timeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(timeout, func() {
		cancel(&Error{Kind: Timeout, Err: fmt.Errorf("no whole answer within %v", timeout)})
	})
	defer timer.Stop()

	resp, at, err := c.exchange(ctx, r, c.short, true)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := &Response{Status: resp.StatusCode, Header: resp.Header, URL: at.String()}
	if r.NoBody {
		if resp.ContentLength <= shortBody {
			spare(resp)
		}
		return out, nil
	}
	if err := c.readBody(cancel, r, resp, out); err != nil {
		e := classify(ctx, redact(out.URL), err)
		e.RetryAfter, _ = RetryAfter(resp.Header, time.Now(), maxRetryAfter)
		return nil, e
	}
	return out, nil
}

// maxRetryAfter bounds Error.RetryAfter; what a caller does with it is the caller's policy.
const maxRetryAfter = 7 * 24 * time.Hour

func (r *Request) timeout() time.Duration {
	if r.Timeout > 0 {
		return r.Timeout
	}
	return defaultTimeout
}

// exchange sends the request, follows redirects, and returns the last answer with its body unread.
func (c *Client) exchange(ctx context.Context, r Request, via transports, gzip bool) (*http.Response, *url.URL, error) {
	at, err := c.CheckURL(r.URL)
	if err != nil {
		return nil, nil, err
	}
	method, body := r.Method, r.Body
	if method == "" {
		method = http.MethodGet
	}
	for hop := 0; ; hop++ {
		req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
		if err != nil {
			return nil, nil, &Error{Kind: BadRequest, URL: redact(r.URL), Err: err}
		}
		for k, v := range r.Header {
			req.Header[http.CanonicalHeaderKey(k)] = v
		}
		req.Header.Set("User-Agent", c.userAgent)
		req.Header.Set("Accept-Encoding", "identity")
		if gzip {
			req.Header.Set("Accept-Encoding", "gzip")
		}
		if r.ContentType != "" && req.Header.Get("Accept") == "" {
			req.Header.Set("Accept", r.ContentType)
		}
		if r.IfNoneMatch != "" {
			req.Header.Set("If-None-Match", r.IfNoneMatch)
		}
		resp, err := via.of(at.Scheme).RoundTrip(req)
		if err != nil {
			return nil, nil, classify(ctx, redact(at.String()), err)
		}
		location := resp.Header.Get("Location")
		if r.NoRedirect || !isRedirect(resp.StatusCode) || location == "" {
			return resp, at, nil
		}
		spare(resp)
		resp.Body.Close()
		next, why := c.redirect(at, location)
		switch {
		case why != "":
		case hop == maxRedirects:
			why = fmt.Sprintf("more than %d redirects", maxRedirects)
		case resp.StatusCode == http.StatusSeeOther && method != http.MethodHead:
			method, body = http.MethodGet, nil
		case resp.StatusCode <= http.StatusFound && method != http.MethodGet && method != http.MethodHead:
			why = fmt.Sprintf("status %d does not say whether a %s is to be sent again", resp.StatusCode, method)
		}
		if why != "" {
			return nil, nil, &Error{Kind: BadRedirect, URL: redact(at.String()), Err: fmt.Errorf("to %s: %s", redact(location), why)}
		}
		at = next
	}
}

const shortBody = 4 << 10

// spare reads a short body that nobody wants to its end, which lets the connection be used again.
func spare(resp *http.Response) { _, _ = io.CopyN(io.Discard, resp.Body, shortBody) }

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirect checks the target of a redirect, and returns it or why it is refused. Only the same origin will do: a record is
// attributed to the origin that was asked.
func (c *Client) redirect(from *url.URL, location string) (next *url.URL, why string) {
	to, err := from.Parse(location)
	if err != nil {
		return nil, "the target is not a URL"
	}
	to.Fragment, to.RawFragment = "", ""
	next, err = c.CheckURL(to.String())
	if err != nil {
		return nil, errors.Unwrap(err).Error()
	}
	if next.Scheme != from.Scheme || next.Host != from.Host {
		return nil, "another origin; if the host has moved, configure its new origin"
	}
	return next, ""
}

// checkType holds a 2xx answer against the media type that the caller wants.
func checkType(want string, resp *http.Response) error {
	if want == "" || resp.StatusCode/100 != 2 || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	got := resp.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(got)
	if (err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter)) || !strings.EqualFold(media, want) {
		return &Error{Kind: BadContentType, Err: fmt.Errorf("the answer is %.100q, not %s; is this the API of the host?", got, want)}
	}
	return nil
}
