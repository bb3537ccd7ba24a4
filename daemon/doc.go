// Package daemon puts the roles together: it opens the store, builds host,
// mirror, index and witness, connects them, serves, and stops all of it in
// order. It is the only place that knows all roles; they do not know one
// another.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// Edges are what the daemon takes from the outside, so that tests can put
// something else there.
type Edges struct {
	Version  string
	Log      *slog.Logger
	Listener net.Listener // nil: listen on cfg.Listen
	Now      func() int64 // Unix ms; nil: the wall clock
	// FlagMirrors are those of the configured mirror hosts that the command line named.
	FlagMirrors []string
	// Ready is called once, when requests are answered.
	Ready func(Info)
}

// Info is what a person wants to know of a daemon that has started.
type Info struct {
	Origin  string
	AgentID string
	Data    string
	Peers   []string // multiaddrs that others can give to --peer
	NewKey  bool
	Signs   bool // it signs statements and attestations
}

// stopTime bounds an orderly stop.
const stopTime = 10 * time.Second

// Run starts the daemon and returns when ctx ends and everything has stopped,
// or when something that it cannot do without fails.
func Run(ctx context.Context, cfg config.Config, edges Edges) (err error) {
	if edges.Log == nil {
		edges.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if edges.Now == nil {
		edges.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return fmt.Errorf("the data folder cannot be made: %w", err)
	}
	ln := edges.Listener
	if ln == nil {
		if ln, err = net.Listen("tcp", cfg.Listen); err != nil {
			return fmt.Errorf("cannot listen on %s: %w; choose another address with --listen", cfg.Listen, err)
		}
	}
	defer ln.Close()
	origin, err := resolveOrigin(cfg, ln.Addr())
	if err != nil {
		return err
	}
	var cert *certificate
	if cfg.TLSCert != "" {
		cert, err = loadCertificate(cfg.TLSCert, cfg.TLSKey, func(err error) {
			edges.Log.Error("the renewed certificate cannot be read; the old one stays in use", "error", err)
		})
		if err != nil {
			return err
		}
	}
	ring, created, err := keys.Load(filepath.Join(cfg.Data, "key"))
	if err != nil {
		return err
	}
	st, err := store.Open(store.Options{Dir: filepath.Join(cfg.Data, "store"), MinFree: uint64(cfg.MinFreeDisk), Log: edges.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }() // last: everything else has ended
	if err := fixOrigin(st, origin, ring.AgentID()); err != nil {
		return err
	}
	set, err := replica.Open(st)
	if err != nil {
		return err
	}
	if n := set.Finished; n != (replica.Unfinished{}) {
		edges.Log.Warn("the last stop cut off what was being deleted; it is deleted now", "rooms_forgotten", n.Forgotten, "rooms_with_old_records", n.Dropped)
	}
	d := &daemon{cfg: cfg, edges: edges, origin: origin, ring: ring, st: st, set: set, log: edges.Log, cert: cert, metrics: prometheus.NewRegistry(), askPeers: make(chan struct{}, 1), tails: newTailing()}
	d.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	d.signs = cfg.AllowPrivateAddresses
	if _, err := fetch.Origin(origin, false); err == nil {
		d.signs = true
	}
	defer func() { err = errors.Join(err, d.closeIndex()) }()
	if err := d.build(); err != nil {
		return err
	}
	return d.run(ctx, ln, created)
}

// run serves until ctx ends, then stops in order: no new connections, streams
// end, requests drain, roles end. The store is closed by the caller.
func (d *daemon) run(ctx context.Context, ln net.Listener, newKey bool) error {
	defer d.close()
	admin, err := d.listenAdmin() // before the roles make files: for a moment the process has another umask
	if err != nil {
		return err
	}
	defer admin.Close()
	// roles outlive the HTTP server: what it is still answering needs them
	roles, stopRoles := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRoles()
	streams, endStreams := context.WithCancel(roles)
	defer endStreams()

	group, failed := errgroup.WithContext(roles)
	for _, run := range d.runners() {
		group.Go(func() error { return run(failed) })
	}
	ln = web.Connections{All: min(d.cfg.Limits.Connections, openFiles()/2), PerAddress: d.cfg.Limits.ConnectionsPerAddress,
		Trusted: d.cfg.TrustedProxies, Registerer: d.metrics}.Listen(ln)
	servers := []*http.Server{web.NewServer(d.handler(), d.log), web.NewServer(d.adminMux(), d.log)}
	for i, l := range []net.Listener{ln, admin} {
		s := servers[i]
		s.BaseContext = func(net.Listener) context.Context { return streams }
		group.Go(func() error {
			var err error
			if i == 0 && d.cert != nil {
				s.TLSConfig = d.cert.config()
				err = s.ServeTLS(l, "", "")
			} else {
				err = s.Serve(l)
			}
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		})
	}
	d.ready.Store(true)
	if d.edges.Ready != nil {
		d.edges.Ready(Info{Origin: d.origin, AgentID: d.ring.AgentID(), Data: d.cfg.Data, Peers: d.peerAddrs(), NewKey: newKey, Signs: d.signs})
	}
	select {
	case <-ctx.Done():
		d.log.Info("stopping")
	case <-failed.Done():
	}
	d.ready.Store(false)
	drain, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	stopped := make(chan error, len(servers))
	for _, s := range servers {
		go func() { stopped <- s.Shutdown(drain) }() // listeners close at once
	}
	endStreams() // handlers that would go on for ever end now
	for range servers {
		if err := <-stopped; err != nil {
			d.log.Warn("requests were cut off", "error", err)
		}
	}
	for _, s := range servers {
		s.Close()
	}
	stopRoles()
	return group.Wait()
}
