package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/robfig/cron/v3"
	"golang.org/x/time/rate"

	"net/http"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/feed"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/index/messages"
	words "github.com/witan-adp/witan/index/text"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/internal/page"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
	"github.com/witan-adp/witan/mirror"
	"github.com/witan-adp/witan/webhook"
	"github.com/witan-adp/witan/witness"
	"github.com/witan-adp/witan/witness/cosign"
)

// daemon is one running daemon.
type daemon struct {
	cfg     config.Config
	edges   Edges
	log     *slog.Logger
	origin  string
	ring    *keys.Ring
	st      *store.Store
	set     *replica.Set
	metrics *prometheus.Registry
	signs   bool
	cert    *certificate // nil: plain http
	ready   atomic.Bool

	fetch     *fetch.Client
	seats     *web.Seats
	bindings  *keys.Bindings
	index     *index.Index
	order     order           // in which it is shown rooms
	messages  *messages.Index // nil when it is off
	words     []*words.Store
	host      *host.Host // nil when the role is off
	mirror    *mirror.Mirror
	witness   *witness.Witness
	webhooks  *webhook.Webhooks
	feed      *feed.Feed
	collector *cosign.Collector
	cosigner  *cosign.Witness // nil when the role is off, or nothing is signed
	node      *p2p.Node       // nil when p2p is off
	askPeers  chan struct{}
	tails     tailing
	pages     *pages
	site      *page.Site
	peers     peerLists
	book      []p2p.KnownPeer // of the last run
}

// build makes the roles and hands each what it asked for.
func (d *daemon) build() (err error) {
	cursors := web.NewCursors(d.ring.Derive("cursors", 32))
	d.fetch = fetch.New(fetch.Options{AllowPrivate: d.cfg.AllowPrivateAddresses, UserAgent: "witan/" + d.edges.Version, Log: d.log, Registerer: d.metrics})
	if d.bindings, err = keys.NewBindings(d.st, d.origin, d.ring); err != nil {
		return err
	}
	if err := errors.Join(d.readMeta(metaPeerLists, &d.peers.added), d.readMeta(metaPeerBook, &d.book)); err != nil {
		return err
	}
	d.seats = web.NewSeats(d.cfg.Limits.StreamsPerAddress)
	if err := d.buildIndex(cursors); err != nil {
		return err
	}
	if err := d.buildWitness(cursors); err != nil {
		return err
	}
	if err := d.buildCosign(); err != nil {
		return err
	}
	if d.cfg.Host.Enabled {
		if d.host, err = host.New(d.hostOptions(cursors)); err != nil {
			return err
		}
	}
	if err := d.buildMirror(); err != nil {
		return err
	}
	d.set.Hidden = func(r *replica.Replica) bool {
		_, hidden := d.mirror.Hidden(r)
		return hidden
	}
	d.set.Forgotten = func(r *replica.Replica) { d.messagesChanged(r) }
	if err := d.buildPush(); err != nil {
		return err
	}
	if d.cfg.P2P.Enabled {
		if err := d.buildNode(); err != nil {
			return err
		}
	}
	d.pages = &pages{d: d, started: d.edges.Now()}
	if err := d.pages.recall(); err != nil {
		return err
	}
	d.site = page.New(page.Options{Source: d.pages, Now: d.edges.Now})
	for _, r := range d.set.All() {
		d.reindex(r)
		r.Unload(d.edges.Now()/1000 + 60) // all are idle now; the first use loads them again
	}
	d.index.Loaded()
	return nil
}

func agents(ids []string) []adp.AgentID {
	out := make([]adp.AgentID, len(ids))
	for i, id := range ids {
		out[i] = adp.AgentID(id)
	}
	return out
}

func (d *daemon) hostOptions(cursors *web.Cursors) host.Options {
	c, l := d.cfg.Host, d.cfg.Limits
	return host.Options{
		Origin: d.origin, Replicas: d.set, Directory: d.index, Packs: packs{d.fetch}, Cursors: cursors, Seats: d.seats,
		AgentID: adp.AgentID(d.ring.AgentID()), Version: d.edges.Version, Now: d.edges.Now, Log: d.log,
		EraseWithheld: c.Withheld == config.WithheldErase, JoinRequestTTL: c.JoinRequestTTL.D().Milliseconds(), AgentStatusTTL: c.AgentStatusTTL.D().Milliseconds(),
		Access: host.Access{RoomCreation: c.RoomCreation, AllowedCreators: agents(c.AllowedCreators), BannedAgents: agents(c.BannedAgents),
			RoomsPerCreator: int64(c.RoomsPerCreator), RoomsTotal: int64(c.RoomsTotal), BytesPerRoom: int64(c.BytesPerRoom),
			BytesPerCreator: int64(c.BytesPerCreator), BytesTotal: int64(c.BytesTotal)},
		Limits: host.Limits{MessagePerMinute: int64(l.MessagePerMinute), SignalPerMinute: int64(l.SignalPerMinute), ControlPerMinute: int64(l.ControlPerMinute),
			PayloadBytes: int64(l.PayloadBytes), PayloadBytesCeiling: int64(l.PayloadBytesCeiling), Mentions: int64(l.Mentions), SchemaBytes: int64(l.SchemaBytes),
			TypesPerRoom: int64(l.TypesPerRoom), RoomMinMS: l.RoomMinMs, RoomMaxMS: l.RoomMaxMs, SpeakersPerRoom: int64(l.SpeakersPerRoom),
			ObserversPerRoom: int64(l.ObserversPerRoom), BodyBytes: int64(l.BodyBytes)},
		Checkpoint: d.witness.ServeRoomCheckpoint,
		Changed:    d.hosted,
		Ended:      d.ended,
	}
}

// ended announces the archive of an own room that is public.
func (d *daemon) ended(r *replica.Replica) {
	d.reindex(r)
	if d.isPublic(r) {
		d.witness.Ended(r)
	}
}

// packs fetches external type packs through the guarded client.
type packs struct{ c *fetch.Client }

const packBytes = 1 << 20

// FetchPack implements host.PackFetcher.
func (p packs) FetchPack(ctx context.Context, uri string) ([]byte, error) {
	r, err := p.c.Do(ctx, fetch.Request{URL: uri, MaxBytes: packBytes, Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	if r.Status != http.StatusOK {
		return nil, fmt.Errorf("it answered %d", r.Status)
	}
	return r.Body, nil
}

func (d *daemon) buildNode() (err error) {
	d.node, err = p2p.New(p2p.Options{Key: d.ring.Key(keys.P2P), Listen: d.cfg.P2P.Listen, Peers: d.cfg.P2P.Peers,
		MaxPeers: d.cfg.P2P.MaxPeers, Lists: d.lists(), Known: d.book, Keep: d.keepBook,
		AllowPrivate: d.cfg.AllowPrivateAddresses, Log: d.log, Registerer: d.metrics})
	if err != nil {
		return fmt.Errorf("p2p: %w", err)
	}
	if err := d.connectRelay(); err != nil {
		return err
	}
	return d.connectWitness()
}

// runners are the loops that run as long as the daemon does.
func (d *daemon) runners() []func(context.Context) error {
	all := []func(context.Context) error{d.witness.Run, d.collector.Run, d.mirror.Run, d.webhooks.Run, d.index.Run, d.runPulls, d.runTails, d.runPeriodic, d.pages.run}
	if d.host != nil {
		all = append(all, d.host.Run)
	}
	if d.messages != nil {
		all = append(all, d.messages.Run)
	}
	if d.node != nil {
		all = append(all, d.node.Run)
	}
	return all
}

// runPeriodic is the work that only needs to happen now and then.
func (d *daemon) runPeriodic(ctx context.Context) error {
	c := cron.New(cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger)))
	add := func(spec, what string, work func() error) error {
		_, err := c.AddFunc(spec, func() {
			if err := work(); err != nil && ctx.Err() == nil {
				d.log.Error("periodic work failed", "work", what, "error", err)
			}
		})
		return err
	}
	jobs := []struct {
		spec, what string
		work       func() error
	}{
		{"@every 10m", "value log", d.st.GC},
		{"@every 1m", "idle rooms", func() error {
			for _, r := range d.set.All() {
				r.Unload(d.edges.Now()/1000 - 600)
			}
			return nil
		}},
		{"@every 30s", "peers", func() error { d.pullSoon(); return nil }},
		{"17 4 * * *", "retention", func() error { return d.mirror.Retain(ctx, d.edges.Now()) }},
	}
	if d.host != nil {
		jobs = append(jobs, struct {
			spec, what string
			work       func() error
		}{"@every 1m", "host", d.host.Sweep})
	}
	for _, j := range jobs {
		if err := add(j.spec, j.what, j.work); err != nil {
			return err
		}
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

func (d *daemon) close() { d.fetch.CloseIdle() }

func (d *daemon) peerAddrs() []string {
	if d.node == nil {
		return []string{}
	}
	return d.node.Addrs()
}

// handler is the public HTTP face.
func (d *daemon) handler() http.Handler {
	mux := web.NewMux()
	if d.host != nil {
		d.host.Routes(mux)
	}
	d.mirror.Routes(mux)
	mux.Handle("GET", "/v1/index/rooms", d.index.ServeRooms)
	if d.messages != nil {
		mux.Handle("GET", "/v1/index/events", d.messages.ServeEvents)
	}
	mux.Handle("GET", "/v1/witness/statements", d.witness.ServeStatements)
	mux.Handle("GET", "/v1/witness/attestations", d.witness.ServeAttestations)
	mux.Handle("GET", "/v1/witness/evidence", d.witness.ServeEvidence)
	d.witness.Routes(mux)
	if d.cosigner != nil {
		d.cosigner.Routes(mux)
	}
	mux.Handle("GET", "/cid/{cid}", d.set.ServeCID)
	d.webhooks.Routes(mux)
	d.feed.Routes(mux)
	d.routes(mux)
	d.agentRoutes(mux)
	d.routesOfPages(mux)
	metrics := promhttp.HandlerFor(d.metrics, promhttp.HandlerOpts{})
	mux.Handle("GET", "/metrics", func(w http.ResponseWriter, r *http.Request) error {
		if !web.Local(r) {
			return adp.Errorf(adp.NotFound, "metrics are shown on the local network only")
		}
		w.Header().Del("Access-Control-Allow-Origin") // a browser on that network shows pages from everywhere
		w.Header().Set("Cache-Control", web.CacheNever)
		metrics.ServeHTTP(w, r)
		return nil
	})
	d.describe(mux)
	guard := &web.Guard{Origin: d.origin, TrustedProxies: d.cfg.TrustedProxies, Rate: rate.Limit(d.cfg.Limits.RequestsPerSecond),
		Burst: d.cfg.Limits.RequestsBurst, Log: d.log, Registerer: d.metrics, ExemptHost: []string{"/healthz", "/readyz", "/metrics"}}
	return guard.Wrap(d.site.Errors(mux))
}

// key is a derived key in its usual form.
func (d *daemon) key(p keys.Purpose) ed25519.PrivateKey { return d.ring.Key(p) }

func authority(origin string) string { _, a, _ := strings.Cut(origin, "://"); return a }
