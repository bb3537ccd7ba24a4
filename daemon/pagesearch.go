package daemon

import (
	"context"
	"net/url"

	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/internal/page"
)

// Rooms implements page.Source.
func (p *pages) Rooms(ctx context.Context, q url.Values) (*page.RoomList, error) {
	found, err := p.d.index.Rooms(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &page.RoomList{Next: found.Next.Get("cursor"), Partial: found.Note != ""}
	for _, r := range found.Rooms {
		out.Rooms = append(out.Rooms, roomItem(&r))
	}
	for _, name := range []string{"status", "host", "language", "tag"} {
		f := page.Facet{Name: name}
		for _, c := range found.Facets[name] {
			f.Values = append(f.Values, page.FacetValue{Value: c.Value, Count: c.Count})
			if name == "status" { // each room has one
				out.Total += c.Count
			}
		}
		out.Facets = append(out.Facets, f)
	}
	if found.Facets == nil {
		out.Total = -1
	}
	return out, nil
}

func roomItem(r *index.Room) page.RoomItem {
	return page.RoomItem{Origin: r.Origin, Authority: authority(r.Origin), ID: r.RoomID, URL: r.URL, Topic: r.Topic, Agenda: r.Agenda, Language: r.Language,
		Visibility: r.Visibility, Tags: r.Tags, Status: r.Status, StartTime: r.StartTime, EndTime: r.EndTime, Members: r.Members, Speakers: r.Speakers,
		Records: r.Records, LastActivity: r.LastActivity, Verdict: r.Verdict, State: r.State, Reason: r.Reason, Attested: r.Attested, Attestations: r.Attestations,
		SyncedAt: r.SyncedAt, Unverifiable: r.Unverifiable, Withheld: r.Withheld, Own: r.Own, Hidden: r.Hidden, MetadataOnly: r.Verdict == unverified}
}

// unverified is the verdict of a room that is listed and not copied.
const unverified = "unverified"
