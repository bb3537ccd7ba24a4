package web

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/witan-adp/witan/adp"
	"golang.org/x/time/rate"
)

// Guard stands in front of all handlers of a face. Set its fields, then Wrap.
type Guard struct {
	// Origin is what this face answers for, such as "https://adp.example". A
	// request whose Host is another authority gets 421.
	Origin string
	// TrustedProxies may say in X-Forwarded-For or Forwarded whom they speak
	// for. Nobody else is believed.
	TrustedProxies []netip.Prefix
	// Rate and Burst bound requests of any kind per client address (IPv6: per
	// /64). Rate 0 means 500 a second, Burst 0 means four seconds of Rate;
	// rate.Inf switches the bound off.
	Rate  rate.Limit
	Burst int
	// Log takes panics and internal errors; nil means the default logger.
	Log *slog.Logger
	// Registerer takes the metrics; nil means none.
	Registerer prometheus.Registerer
	// ExemptHost lists paths that answer under any Host: probes and metrics,
	// which are asked by address.
	ExemptHost []string
}

const (
	defaultRate    = 500
	clientsTracked = 65_536
)

// Wrap puts the guard before next. Every answer gets the security and CORS
// headers and is counted; a request is then refused with 429 over its client's
// rate, before any of its body is read, and with 421 for a foreign Host;
// OPTIONS is answered here; a panic of next becomes 500. Wrap panics when
// Origin is not an http or https origin.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	origin, err := url.Parse(g.Origin)
	if err != nil || origin.Host == "" || origin.Scheme != "http" && origin.Scheme != "https" {
		panic(fmt.Sprintf("web: Guard.Origin %q is not an origin such as https://adp.example", g.Origin))
	}
	in := &guarded{
		next:      next,
		log:       g.Log,
		origin:    origin.Scheme + "://" + origin.Host,
		scheme:    origin.Scheme,
		authority: authority(origin.Host, origin.Scheme),
		exempt:    make(map[string]bool, len(g.ExemptHost)),
		proxies:   newProxies(g.TrustedProxies),
		metrics:   newMetrics(g.Registerer),
	}
	if in.log == nil {
		in.log = slog.Default()
	}
	for _, path := range g.ExemptHost {
		in.exempt[path] = true
	}
	limit, burst := g.Rate, g.Burst
	if limit == 0 {
		limit = defaultRate
	}
	if burst == 0 {
		burst = max(1, int(min(4*limit, 1<<30)))
	}
	in.buckets = newBuckets(limit, burst, clientsTracked)
	return in
}

type guarded struct {
	next      http.Handler
	log       *slog.Logger
	origin    string
	scheme    string
	authority string
	exempt    map[string]bool
	proxies   proxies
	buckets   *buckets
	metrics   *metrics
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	v := &visit{log: g.log}
	v.addr, v.known = g.proxies.client(r)
	rec := &recorder{ResponseWriter: w}
	r = v.attach(r)
	defer func() { g.metrics.observe(r.Method, v.route, rec, time.Since(start)) }()
	defer rescue(rec, r, v)

	h := rec.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	// Credentials are tokens in Authorization, never cookies: a page of another
	// origin can do nothing here that its own server could not do.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Header.Get("Authorization") != "" {
		h.Set("Cache-Control", CacheNever) // until a handler says that everybody gets the same
	}

	if wait := g.buckets.take(v.addr, start); wait > 0 {
		seconds := retryAfter(wait)
		WriteError(rec, r, adp.Errorf(adp.RateLimited, "Too many requests from your address; wait %d s and send fewer.", seconds).
			With("retry_after", seconds))
		return
	}
	if !g.exempt[r.URL.Path] && authority(r.Host, g.scheme) != g.authority {
		// Also the defence against DNS rebinding.
		writeError(rec, r, adp.Errorf(adp.InvalidRequest, "This server answers for %s only; send the request there, with that Host.", g.origin).
			With("origin", g.origin), http.StatusMisdirectedRequest)
		return
	}
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-None-Match, If-Range, Range")
		h.Set("Access-Control-Max-Age", "86400")
		rec.WriteHeader(http.StatusNoContent)
		return
	}
	g.next.ServeHTTP(rec, r)
}

// rescue turns a panic into a 500, or into a cut connection when the answer has begun.
func rescue(rec *recorder, r *http.Request, v *visit) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		rec.aborted = true
		panic(http.ErrAbortHandler)
	}
	v.log.Error("handler panicked", "request_id", v.requestID(), "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if rec.status != 0 {
		rec.aborted = true
		panic(http.ErrAbortHandler)
	}
	writeInternal(rec, v.requestID())
}

// authority brings a host and port to the form in which they are compared:
// lower case, without the scheme's default port.
func authority(host, scheme string) string {
	host = strings.ToLower(host)
	if scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return strings.TrimSuffix(host, ":")
}
