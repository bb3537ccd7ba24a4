package mcpserver

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/web"
)

// Bounds of what strangers may ask of a daemon.
const (
	requestBytes    = 128 << 10
	requestsPerSec  = 5
	requestsBurst   = 40
	requestsAtATime = 8 // of one address
	callsAtATime    = 32
	verifications   = 2
	verifiedRecords = 20_000
	callTime        = 60 * time.Second
)

// HTTP is the endpoint /mcp of a daemon: streamable HTTP without sessions, and read-only, whatever the options say. The guard in
// front of it refuses foreign host names (DNS rebinding).
type HTTP struct {
	origin  string
	handler http.Handler
	pace    *web.Pace
	seats   *web.Seats
}

// NewHTTP makes the endpoint of the daemon that answers for o.Daemon through the handler api.
func NewHTTP(o Options, api http.Handler) *HTTP {
	o.Near = fetch.NewLocal(o.Daemon, api, fetch.Options{UserAgent: "witan/" + o.Version, Log: o.Log})
	o.Far, o.Key = nil, nil
	o.Calls, o.Verifications, o.MaxRecords, o.CallTime = callsAtATime, verifications, verifiedRecords, callTime
	s := New(o)
	return &HTTP{origin: o.Daemon, pace: web.NewPace(requestsPerSec, requestsBurst), seats: web.NewSeats(requestsAtATime),
		handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, Logger: o.Log, MaxRequestBodyBytes: requestBytes, PropagateRequestCancellation: true,
			DisableLocalhostProtection: true, // the guard compares the host name with the origin, behind a proxy as well
		})}
}

// Serve answers POST /mcp.
func (h *HTTP) Serve(w http.ResponseWriter, r *http.Request) error {
	// MCP, Security: a page of another origin may not use a visitor's browser to ask.
	for _, from := range r.Header.Values("Origin") {
		if from != h.origin {
			return adp.Errorf(adp.PermissionDenied, "pages of other origins do not get to use /mcp; ask it from a program, without an Origin header").With("origin", h.origin)
		}
	}
	if err := h.pace.Take(r); err != nil {
		return err
	}
	leave, err := h.seats.Take(r)
	if err != nil {
		return err
	}
	defer leave()
	body, err := web.ReadBody(w, r, requestBytes)
	if err != nil {
		return err
	}
	// one request is one message, or the bounds on requests would bound nothing (MCP has no batches since 2025-06-18)
	if start := bytes.TrimLeft(body, " \t\r\n"); len(start) > 0 && start[0] == '[' {
		return adp.Errorf(adp.InvalidRequest, "/mcp takes one message in a request, and no batches; send each by itself")
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTime)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	w.Header().Set("Cache-Control", web.CacheNever)
	h.handler.ServeHTTP(w, r)
	return nil
}
