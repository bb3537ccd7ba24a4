package daemon

import (
	"context"
	"net/url"

	"github.com/witan-adp/witan/adp"
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

// Said implements page.Source. What a search of messages does not take, such as a word
// of one letter, finds none: the search of rooms has judged the query.
func (p *pages) Said(ctx context.Context, q url.Values) ([]page.Said, error) {
	if p.d.messages == nil {
		return nil, nil
	}
	found, err := p.d.messages.Search(ctx, q)
	if adp.CodeOf(err) == adp.InvalidRequest {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []page.Said
	for _, e := range found.Events {
		r, _ := p.d.index.Room(e.Origin, e.RoomID)
		out = append(out, page.Said{Authority: authority(e.Origin), RoomID: e.RoomID, Topic: r.Topic, Author: e.Author, Seq: e.Seq, At: e.ReceivedAt, Snippet: e.Snippet, Matches: e.Matches})
	}
	return out, nil
}

// unverified is the verdict of a room that is listed and not copied.
const unverified = "unverified"
