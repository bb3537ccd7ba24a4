package daemon

import (
	"context"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/feed"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/webhook"
)

// buildPush makes what tells others of events. It comes after the roles whose events
// those are, and before anything runs.
func (d *daemon) buildPush() (err error) {
	c := d.cfg.Webhook
	d.webhooks, err = webhook.New(webhook.Options{
		Origin: d.origin, Store: d.st, Replicas: d.set, Do: d.fetch.Do, Key: d.ring.Derive("webhooks", 32),
		CheckURL: d.fetch.CheckURL,
		Hidden:   d.set.Hidden, Hosts: d.hostStates, Attestations: d.witness.AttestationsOf, Attested: d.attested,
		Public: c.Public, PerOwner: c.PerAgent, Total: c.Total, Queue: c.Queue,
		Timeout: c.Timeout.D(), RetryFirst: c.Retry.D(), History: c.History.D(),
		Now: d.edges.Now, Log: d.log, Registerer: d.metrics,
	})
	if err != nil {
		return err
	}
	d.feed, err = feed.New(feed.Options{Origin: d.origin, Store: d.st, Rooms: d.index.Rooms, Open: d.openTo, Now: d.edges.Now, Log: d.log})
	return err
}

// openTo tells whether a room may take an agent, as far as its records say.
func (d *daemon) openTo(ctx context.Context, origin, roomID string, who adp.AgentID) bool {
	r, ok := d.set.Get(origin, roomID)
	if !ok {
		return true
	}
	if origin == d.origin { // the host knows who was ever in a room of ours, without reading it
		if _, was, err := d.st.Get(store.MemberRoom(string(who), r.ID)); err == nil && !was {
			return true
		}
	}
	open := true
	if err := r.View(ctx, func(s *room.State) { open = !s.Banned[who] && !s.IsMember(who) }); err != nil {
		d.log.Error("a room cannot be read", "origin", origin, "room", roomID, "error", err)
	}
	return open
}

func (d *daemon) hostStates() []webhook.Host {
	var list []webhook.Host
	for _, h := range d.mirror.States() {
		list = append(list, webhook.Host{Origin: h.Origin, State: h.State, Reason: h.Reason, Since: h.Since})
	}
	return list
}

// pushChanged says that a room may have changed. Roles call it from their first
// moment on; what changes before there are webhooks is found when they start.
func (d *daemon) pushChanged(r *replica.Replica) {
	if w := d.webhooks; w != nil {
		w.Changed(r)
	}
}

func (d *daemon) pushHosts() {
	if w := d.webhooks; w != nil {
		w.HostsChanged()
	}
}

// pushAttested follows what is said about attestations of a room.
func (d *daemon) pushAttested(origin, roomID string) {
	if r, ok := d.set.Get(origin, roomID); ok {
		d.pushChanged(r)
	}
}
