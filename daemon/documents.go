package daemon

import (
	"context"
	"slices"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/mirror"
)

// document is a replica as the index shows it.
func (d *daemon) document(ctx context.Context, r *replica.Replica) (index.Doc, error) {
	row := r.Row()
	own := r.Origin == d.origin
	doc := index.Doc{Origin: r.Origin, RoomID: r.RoomID, Genesis: r.Genesis, URL: r.Origin + "/v1/rooms/" + r.RoomID, Own: own,
		Verdict: row.EffectiveVerdict(), State: row.State, Reason: row.Reason, Unverifiable: row.Unverifiable, Withheld: row.Withheld, SyncedAt: r.SyncedAt.Load(), FoundAt: row.CopiedAt}
	if !own {
		doc.State, doc.Reason = d.mirror.Standing(r)
		_, doc.Hidden = d.mirror.Hidden(r)
	}
	err := r.View(ctx, func(s *room.State) {
		k := s.Contract
		doc.Topic, doc.Agenda, doc.Guidance, doc.Visibility, doc.Language = k.Topic, k.Agenda, k.Guidance, k.Visibility, k.Language
		doc.Creator, doc.Tags, doc.StartTime, doc.EndTime, doc.CreatedAt = string(s.Creator), k.Tags, k.StartTime, k.EndTime, s.CreatedAt
		doc.Policy, doc.Extra, doc.Closed, doc.Cancelled = k.PolicyJSON, k.Extra, s.Closed, s.Cancelled
		doc.Members, doc.Speakers, doc.Observers = int64(len(s.Members)), s.Speakers(), s.Observers()
		doc.Records, doc.LastActivity = s.Last.Seq, s.ReceivedAt
		for _, t := range s.Registry.All() {
			doc.Types, doc.Titles = append(doc.Types, t.Type), append(doc.Titles, t.Title)
		}
		doc.Packs = slices.Clone(s.Registered)
		for _, p := range s.External {
			if !slices.Contains(doc.Packs, p.URI) {
				doc.Packs = append(doc.Packs, p.URI)
			}
		}
		if own && doc.State == "" {
			doc.State = replica.Following
			if st := s.StatusAt(d.edges.Now()); st == room.Ended || st == room.Cancelled {
				doc.State = replica.Complete
			}
		}
	})
	return doc, err
}

// reindex shows the index what a replica is now.
func (d *daemon) reindex(r *replica.Replica) {
	if d.showDocument(r) {
		d.messagesChanged(r)
		d.pushChanged(r)
	}
}

// showDocument tells whether the replica is the one that is served of its room.
func (d *daemon) showDocument(r *replica.Replica) bool {
	done, shown, leave := d.order.takeWhole(r)
	defer leave()
	if served, ok := d.set.Get(r.Origin, r.RoomID); !ok || served != r {
		return false
	}
	if done {
		return true
	}
	doc, err := d.document(context.Background(), r)
	if err != nil {
		d.log.Error("a room could not be indexed", "origin", r.Origin, "room", r.RoomID, "error", err)
		return false
	}
	doc.Attestations, doc.Attested = d.attested(r.Origin, r.RoomID)
	d.index.Put(doc)
	shown()
	return true
}

// showAttested shows the index what is now said about attestations of a room.
func (d *daemon) showAttested(origin, roomID string) {
	defer d.order.take(origin, roomID)()
	n, state := d.attested(origin, roomID)
	d.index.SetAttested(origin, roomID, n, state)
}

// unlisted takes a room of which nothing is known any more out of the index.
func (d *daemon) unlisted(origin, roomID string) {
	defer d.order.take(origin, roomID)()
	if r, ok := d.set.Get(origin, roomID); !ok || r.Row().Seq == 0 { // else it has come meanwhile
		d.index.Remove(origin, roomID)
	}
}

// listed shows what another host says about a room that is not copied, which is all that
// is kept of it. Nothing of it is verified.
func (d *daemon) listed(origin string, l mirror.Listed) {
	doc := index.Doc{Origin: origin, RoomID: l.RoomID, URL: origin + "/v1/rooms/" + l.RoomID, MetadataOnly: true, Visibility: l.Visibility,
		Topic: l.Topic, Agenda: l.Agenda, Guidance: l.Guidance, Language: l.Language, Creator: l.Creator, Tags: l.Tags, Policy: l.Policy,
		StartTime: l.StartTime, EndTime: l.EndTime, CreatedAt: l.CreatedAt, Records: l.Seq, LastActivity: l.ReceivedAt,
		Closed: l.Status == string(room.Ended), Cancelled: l.Status == string(room.Cancelled),
		Verdict: "unverified", State: replica.Following, SyncedAt: l.SeenAt, FoundAt: l.FoundAt}
	switch {
	case l.Reason != "":
		doc.State, doc.Reason = replica.Paused, l.Reason
	case l.Visibility == room.Public:
		doc.Reason = "nothing of it has been verified yet; witan mirror status " + origin + " says why"
	}
	defer d.order.take(origin, l.RoomID)()
	d.index.Put(doc)
}
