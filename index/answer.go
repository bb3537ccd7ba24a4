package index

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/witan-adp/witan/internal/web"
)

// answer is one room of GET /v1/index/rooms (federation: Answers of these
// endpoints). It has the contract under the names of the Room resource.
type answer struct {
	URL          string          `json:"url"`
	Origin       string          `json:"origin"`
	RoomID       string          `json:"room_id"`
	Genesis      string          `json:"genesis"`
	Topic        string          `json:"topic"`
	Agenda       string          `json:"agenda,omitempty"`
	Guidance     string          `json:"guidance,omitempty"`
	Visibility   string          `json:"visibility"`
	StartTime    int64           `json:"start_time"`
	EndTime      int64           `json:"end_time"`
	Tags         []string        `json:"tags,omitempty"`
	Language     string          `json:"language,omitempty"`
	Policy       json.RawMessage `json:"policy,omitempty"`
	Creator      string          `json:"creator"`
	CreatedAt    int64           `json:"created_at"`
	Status       string          `json:"status"`
	Members      int64           `json:"members"`
	Speakers     int64           `json:"speakers"`
	Records      int64           `json:"records"`
	LastActivity int64           `json:"last_activity"`
	Verdict      string          `json:"verdict"`
	State        string          `json:"state"`
	Reason       string          `json:"reason,omitempty"`
	Unverifiable int64           `json:"unverifiable"`
	Withheld     int64           `json:"withheld"`
	Attested     string          `json:"attested"`
	Attestations int64           `json:"attestations"`
	SyncedAt     int64           `json:"synced_at,omitempty"`
	Types        []string        `json:"types,omitempty"`
}

func (r *row) answer(now int64) answer {
	d := &r.doc
	return answer{
		URL: d.URL, Origin: d.Origin, RoomID: d.RoomID, Genesis: d.Genesis,
		Topic: d.Topic, Agenda: d.Agenda, Guidance: d.Guidance, Visibility: d.Visibility,
		StartTime: d.StartTime, EndTime: d.EndTime, Tags: d.Tags, Language: d.Language, Policy: d.Policy,
		Creator: d.Creator, CreatedAt: d.CreatedAt, Status: r.statusAt(now),
		Members: d.Members, Speakers: d.Speakers, Records: d.Records, LastActivity: d.LastActivity,
		Verdict: d.Verdict, State: d.State, Reason: d.Reason, Unverifiable: d.Unverifiable, Withheld: d.Withheld,
		Attested: d.Attested, Attestations: d.Attestations, SyncedAt: d.SyncedAt, Types: d.Types,
	}
}

// ServeRooms answers GET /v1/index/rooms: a bare array, with a Link to the next
// page.
//
// Filters, each once and none empty: host or origin (an origin, or an
// authority), tag, status, language ("en" is also en-GB), q (all words in
// topic, agenda, guidance or tags), keyword (ADP §18), creator, visibility,
// verdict, state, attested, joinable (true or false: public and not over),
// types (one type name), starts_after and ends_before (Unix ms, exclusive).
// sort is activity (active, scheduled, ended, cancelled; in each the latest
// activity first; then the URL), or start (the earliest first). limit is 20,
// and 200 at most. What is not understood is invalid_request, with
// data.parameter; unknown parameters are ignored.
func (x *Index) ServeRooms(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	f, err := parseRooms(q, x.opts.Cursors)
	if err != nil {
		return err
	}
	now := x.opts.Now()
	page, next, err := x.page(r.Context(), f, now)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	ends := make([]int, len(page))
	for i, found := range page {
		if err := encoder.Encode(found.row.answer(now)); err != nil {
			return fmt.Errorf("index: encode room %s of %s: %w", found.row.doc.RoomID, found.row.doc.Origin, err)
		}
		ends[i] = out.Len()
	}
	items := make([][]byte, len(page))
	from := 0
	for i, end := range ends {
		items[i] = out.Bytes()[from : end-1] // less the line feed
		from = end
	}
	if next != "" {
		f.kept.Set("cursor", next)
		web.NextLink(w, x.opts.Own+"/v1/index/rooms?"+f.kept.Encode())
	}
	web.WriteArray(w, items)
	return nil
}

// Public is for GET /v1/rooms/public (ADP §18): the IDs of our own public and
// restricted rooms that match q, in order, and the cursor of the next page, ""
// when this is the last. The order is active, scheduled, ended, cancelled; in
// each the latest activity first; then the ID.
//
// It reads status, tag, keyword, creator, starts_after, ends_before, language,
// limit (20, and 100 at most) and cursor, as ServeRooms does.
func (x *Index) Public(q url.Values) (ids []string, next string, err error) {
	f, err := parsePublic(q, x.opts.Cursors)
	if err != nil {
		return nil, "", err
	}
	page, next, err := x.page(context.Background(), f, x.opts.Now())
	if err != nil {
		return nil, "", err
	}
	ids = make([]string, len(page))
	for i, found := range page {
		ids[i] = found.row.doc.RoomID
	}
	return ids, next, nil
}

// page is what find found, and the cursor of the next page.
func (x *Index) page(ctx context.Context, f *filter, now int64) (page []found, next string, err error) {
	page, at, err := x.find(ctx, f, now)
	if err != nil {
		return nil, "", err
	}
	if len(page) > f.limit {
		page = page[:f.limit]
		next = sealCursor(x.opts.Cursors, f.list, at, page[f.limit-1].place)
	}
	return page, next, nil
}
