package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/rs/xid"
)

// visit is what the guard knows of one request. It belongs to the goroutine
// that serves the request.
type visit struct {
	addr  netip.Addr
	known bool // addr is that of the client, and not of a proxy that hides it
	log   *slog.Logger
	route string // the pattern that matched, "" while none has
	id    string // made when first asked for
}

type visitKey struct{}

// visitOf is the request's visit; without a guard in front, an empty one that logs to the default logger.
func visitOf(r *http.Request) *visit {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{log: slog.Default()}
}

func (v *visit) attach(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
}

// requestID names the request in the log and in a 500 answer. It is ours: a
// client cannot choose it.
func (v *visit) requestID() string {
	if v.id == "" {
		v.id = xid.New().String()
	}
	return v.id
}

// ClientAddr is the address of the client behind the trusted proxies, without
// zone and never IPv4-mapped, as Guard.Wrap found it. It is the zero Addr
// without a guard or when the connection has no IP address.
func ClientAddr(r *http.Request) netip.Addr { return visitOf(r).addr }

// Local tells whether the client is known to be on this machine or on a private
// network, whatever proxies stand between.
func Local(r *http.Request) bool {
	v := visitOf(r)
	return v.known && (v.addr.IsLoopback() || v.addr.IsPrivate())
}

// recorder remembers whether the answer has begun, and with which status.
type recorder struct {
	http.ResponseWriter
	status  int // 0 until the answer begins
	aborted bool
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls to flush.
func (w *recorder) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) begin() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// recorderOf finds the recorder under other wrappers, or nil.
func recorderOf(w http.ResponseWriter) *recorder {
	for {
		switch t := w.(type) {
		case *recorder:
			return t
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

func begun(w http.ResponseWriter) bool {
	rec := recorderOf(w)
	return rec != nil && rec.status != 0
}
