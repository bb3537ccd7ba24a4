package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/web"
	"github.com/witan-adp/witan/mirror"
	"github.com/witan-adp/witan/witness"
	"github.com/witan-adp/witan/witness/cosign"
)

// routes adds what speaks of the daemon itself.
func (d *daemon) routes(mux *web.Mux) {
	mux.Handle("GET", "/federation/v1/self", func(w http.ResponseWriter, _ *http.Request) error {
		k, err := d.keys()
		if err != nil {
			return err
		}
		self := map[string]any{"agent_id": k.AgentID, "origin": d.origin, "version": d.edges.Version, "p2p": d.peerAddrs(), "log": k.Log, "cosigner": k.Cosigner}
		if d.witness.HostEquivocated(d.origin) {
			self["equivocated"] = true
		}
		if d.cosigner != nil {
			self["witness"] = d.origin + cosign.Prefix
		}
		web.WriteJSON(w, http.StatusOK, self)
		return nil
	})
	mux.Handle("GET", "/federation/v1/hosts", func(w http.ResponseWriter, _ *http.Request) error {
		type host struct {
			mirror.HostStatus
			Log *witness.TailStatus `json:"log,omitempty"` // how far its log was read
		}
		list := []host{}
		for _, h := range d.mirror.Hosts() {
			shown := host{HostStatus: h}
			if s, ok := d.witness.Tailed(h.Origin); ok {
				shown.Log = &s
			}
			list = append(list, shown)
		}
		web.WriteJSON(w, http.StatusOK, list)
		return nil
	})
	mux.Handle("GET", "/.well-known/did.json", func(w http.ResponseWriter, _ *http.Request) error {
		doc, err := keys.RenderRotated(d.origin, d.ring, d.logRing(), d.witness.Rotation())
		if err != nil {
			return err
		}
		web.WriteRaw(w, http.StatusOK, doc)
		return nil
	})
	mux.Handle("GET", "/healthz", func(w http.ResponseWriter, _ *http.Request) error {
		web.WriteJSON(w, http.StatusOK, map[string]any{"status": "ok"})
		return nil
	})
	mux.Handle("GET", "/readyz", func(w http.ResponseWriter, _ *http.Request) error {
		status, code := "ready", http.StatusOK
		if !d.ready.Load() {
			status, code = "not ready", http.StatusServiceUnavailable
		}
		web.WriteJSON(w, code, map[string]any{"status": status})
		return nil
	})
}

// isPublic tells whether the room of a replica is public.
func (d *daemon) isPublic(r *replica.Replica) bool {
	public := false
	err := r.View(context.Background(), func(s *room.State) { public = s.Contract.Visibility == room.Public })
	if err != nil {
		d.log.Error("a room cannot be read", "origin", r.Origin, "room", r.RoomID, "error", err)
	}
	return public
}

// peersFirstTime is how long signing waits after a start for a peer, or a witness of
// our log, to say what it has seen of our log: a restored backup may not sign before.
// It is over with the first answer, and none is waited for when nobody is known.
const peersFirstTime = 20 * time.Second

func (d *daemon) keyFile() string { return filepath.Join(d.cfg.Data, "key") }

// logRing is the generation of keys whose log key is in use.
func (d *daemon) logRing() *keys.Ring {
	status, err := d.witness.Log()
	if err != nil || status.Generation < keys.FirstGeneration {
		return d.ring
	}
	return d.ring.At(status.Generation)
}

// rotation is what the agent key vouches for when the log key changes.
func (d *daemon) rotation(generation int) (any, error) {
	return map[string]string{"origin": d.origin, "agent": keys.Multikey(d.ring.Public(keys.Agent)),
		"log": keys.Multikey(d.ring.At(generation).Public(keys.Log)), "cosigner": keys.Multikey(d.ring.Public(keys.Cosigner))}, nil
}

func (d *daemon) buildWitness(cursors *web.Cursors) (err error) {
	var peersFirst time.Duration
	if d.cfg.P2P.Enabled && len(d.cfg.P2P.Peers)+len(d.book) > 0 || len(d.cfg.Log.Witnesses) > 0 {
		peersFirst = peersFirstTime // else there is nobody to ask
	}
	var trust []witness.Trust
	var cosigners []ed25519.PublicKey
	for _, t := range d.cfg.Witness.Trust {
		trust = append(trust, witness.Trust{Agent: adp.AgentID(t.Agent), Group: t.Group, Name: t.Name})
		if t.Cosigner != "" {
			v, err := cosignature.ParseVerifier(t.Cosigner)
			if err != nil {
				return fmt.Errorf("witness.trust %s: cosigner: %w", t.Name, err)
			}
			cosigners = append(cosigners, v.Key())
		}
	}
	rules, err := d.cfg.Witness.Rules()
	if err != nil {
		return err
	}
	d.witness, err = witness.New(witness.Options{
		Origin: d.origin, Key: d.key(keys.Agent), Store: d.st, Replicas: d.set, Sign: d.signs, Witness: d.cfg.Witness.Enabled, Trust: trust, Policy: rules,
		Bound: func(origin string, agent adp.AgentID) bool {
			return (origin == d.origin || d.mirror.Followed(origin)) && d.bindings.Bound(origin, agent)
		},
		BoundAt: func(origin string, agent adp.AgentID, at int64) bool {
			return (origin == d.origin || d.mirror.Followed(origin)) && d.bindings.BoundAt(origin, agent, at)
		},
		Current: func(origin string, agent adp.AgentID) bool {
			return (origin == d.origin || d.mirror.Followed(origin)) && d.bindings.Current(origin, agent)
		},
		Agents:  d.bindings.Agents,
		LogKeys: d.bindings.LogKeys,
		LogKey:  func(generation int) ed25519.PrivateKey { return d.ring.At(generation).Key(keys.Log) },
		KeyFile: d.keyFile(), Rotation: d.rotation, PeersFirst: peersFirst,
		Origins: d.followed,
		Grown:   d.grown, Cosigned: d.cosigned,
		Cursors: cursors, Now: d.edges.Now, Log: d.log, Registerer: d.metrics,
		Attested: func(origin, roomID string, _ int64, _ string) {
			if d.witness != nil { // else it is being opened, and the index is filled after that
				d.showAttested(origin, roomID)
			}
			d.pushAttested(origin, roomID)
			if d.mirror != nil {
				d.mirror.SignedFor(origin)
			}
		},
		Equivocated: d.equivocated, Cosigners: func() []ed25519.PublicKey { return append(d.bindings.Cosigners(), cosigners...) },
	})
	return err
}

func (d *daemon) followed() []string {
	var origins []string
	for _, h := range d.mirror.Hosts() {
		origins = append(origins, h.Origin)
	}
	return origins
}

// attested is what the index says about attestations of a room. Where a key of the
// host is proven to have signed two logs, no statement of it says anything.
func (d *daemon) attested(origin, roomID string) (int64, string) {
	n, state := d.witness.State(origin, roomID)
	if d.witness.HostEquivocated(origin) {
		state = witness.Equivocated
	}
	return n, state
}

// connectWitness joins the topics and answers catch-up streams.
func (d *daemon) connectWitness() error {
	verdict := func(v witness.Verdict) p2p.Verdict {
		switch v {
		case witness.Accept:
			return p2p.Accept
		case witness.Reject:
			return p2p.Reject
		}
		return p2p.Ignore
	}
	validate := func(from string, data []byte) p2p.Verdict { return verdict(d.witness.Validate(from, data)) }
	statements, err := d.node.Join(witness.TopicStatements, witness.MaxStatement, validate, d.witness.Receive)
	if err != nil {
		return err
	}
	evidence, err := d.node.Join(witness.TopicEvidence, witness.MaxEvidence, validate, d.witness.Receive)
	if err != nil {
		return err
	}
	d.witness.SetPublisher(statements.Publish, evidence.Publish)
	d.node.HandleStream(witness.ProtocolSync, witness.MaxSyncRequest, witness.MaxSyncResponse, d.witness.ServeSync)
	d.node.HandleStream(witness.ProtocolTile, witness.MaxTileRequest, witness.MaxTileResponse, d.witness.ServeTile)
	d.node.OnPeer(func(string) { d.pullSoon() })
	return nil
}

// pullSoon asks all peers again: what was ignored before a key was bound, gossip
// does not bring twice.
func (d *daemon) pullSoon() {
	select {
	case d.askPeers <- struct{}{}:
	default:
	}
}

// runPulls asks the peers when there is a reason to.
func (d *daemon) runPulls(ctx context.Context) error {
	for {
		select {
		case <-d.askPeers:
			if err := d.pullAll(ctx); err != nil && ctx.Err() == nil {
				d.log.Debug("peers gave no statements", "error", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *daemon) pullAll(ctx context.Context) error {
	if d.node == nil {
		return d.witness.Confront(ctx, nil, nil) // with nobody to ask, what was seen is kept
	}
	ask := func(protocol string, most int) func(context.Context, string, []byte) ([]byte, error) {
		return func(ctx context.Context, peer string, request []byte) ([]byte, error) {
			return d.node.Request(ctx, peer, protocol, request, most)
		}
	}
	err := d.witness.CatchUp(ctx, d.node.Peers(), ask(witness.ProtocolSync, witness.MaxSyncResponse))
	return errors.Join(err, d.witness.Confront(ctx, d.node.Peers(), ask(witness.ProtocolTile, witness.MaxTileResponse)))
}

// equivocated marks a room whose host is proven to have told two stories of it.
func (d *daemon) equivocated(origin, roomID, genesis string) {
	if roomID == "" { // the list of hosts asks the witness; its rooms say so as attested: equivocated
		for _, r := range d.set.Of(origin) {
			d.showAttested(origin, r.RoomID)
		}
		return
	}
	r, ok := d.set.GetKey(replica.Key{Origin: origin, RoomID: roomID, Genesis: genesis})
	if !ok || r.Row().Verdict == replica.Equivocated {
		return
	}
	done := make(chan error, 1)
	err := r.Take(func(t *replica.Turn) error {
		t.Row().Verdict, t.Row().Reason = replica.Equivocated, "a key of the host signed two things about this room that cannot both hold: see /v1/witness/evidence"
		return t.Save(nil, func(err error) { done <- err })
	})
	if err == nil {
		err = <-done
	}
	if err != nil {
		d.log.Error("a room could not be marked as equivocated", "origin", origin, "room", roomID, "error", err)
		return
	}
	d.reindex(r)
}

// vouchedRooms lists rooms of an origin that its keys have signed for.
func (d *daemon) vouchedRooms(origin string, limit int, wanted func(roomID, genesis string) bool) (list []replica.Key) {
	for _, s := range d.witness.VouchedRooms(origin, limit, wanted) {
		list = append(list, replica.Key(s))
	}
	return list
}

// observed keeps what the mirror saw with the witness, which shows it.
func (d *daemon) observed(o mirror.Observation) {
	err := d.witness.Evidence(witness.Observation{Kind: o.Kind, Subject: witness.Subject{Origin: o.Origin, RoomID: o.RoomID, Genesis: o.Genesis},
		Seq: o.Seq, Reason: o.Reason, Held: o.Ours, Other: o.Theirs})
	if err != nil {
		d.log.Error("an observation could not be kept", "kind", o.Kind, "origin", o.Origin, "room", o.RoomID, "error", err)
	}
}

func (d *daemon) buildMirror() (err error) {
	m := d.cfg.Mirror
	signer, err := newSigner(d)
	if err != nil {
		return err
	}
	var sign func(string, any) (*adp.Envelope, error) // nil: no heads of our rooms
	if d.signs {
		sign = signer.head
	}
	d.mirror, err = mirror.New(mirror.Options{
		Own: d.origin, Replicas: d.set, Store: d.st, Fetch: d.fetch, Bindings: d.bindings, AllowPrivate: d.cfg.AllowPrivateAddresses,
		PollMin: m.PollMin.D(), PollMax: m.PollMax.D(), BackoffMin: m.BackoffMin.D(), BackoffMax: m.BackoffMax.D(),
		ConcurrencyPerHost: m.ConcurrencyPerHost, RequestsPerSecond: m.RequestsPerSecond, RoomsPerHost: m.RoomsPerHost,
		RecordsPerRoom: m.RecordsPerRoom, Seats: d.seats, BytesPerHost: int64(m.BytesPerHost), EraseWithheld: m.Withheld == config.WithheldErase,
		Now: d.edges.Now, Log: d.log, Registerer: d.metrics,
		Retention:     d.retention(),
		Pending:       d.witness.Pending,
		Equivocated:   d.witness.HostEquivocated,
		Changed:       d.reindex,
		Listed:        d.listed,
		Bound:         func(origin string) { d.pullSoon(); d.tailSoon(origin) },
		Unlisted:      d.unlisted,
		HostChanged:   d.pushHosts,
		Completed:     func(r *replica.Replica) { d.reindex(r); d.witness.Completed(r) },
		Observed:      d.observed,
		Contradiction: d.contradicted,
		Head:          func(e *adp.Envelope) { d.witness.Head(e) },
		Vouched:       func(k replica.Key) (int64, string, bool) { return d.witness.Vouched(witness.Subject(k)) },
		Stated:        func(k replica.Key) (int64, string, bool) { return d.witness.Stated(witness.Subject(k)) },
		VouchedRooms:  d.vouchedRooms,
		Sign:          sign,
		Agent:         adp.AgentID(d.ring.AgentID()),
		Event:         signer.event,
		Token:         signer.token,
	})
	if err != nil {
		return err
	}
	for _, h := range m.Hosts {
		source := "config"
		if slices.Contains(d.edges.FlagMirrors, h.URL) {
			source = "flag"
		}
		if err := d.mirror.AddWith(h.URL, source, mirror.HostOptions{Observe: h.Observe, Via: h.Via}); err != nil {
			return err
		}
	}
	return nil
}
