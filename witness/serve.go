package witness

import (
	"bytes"
	"net/http"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

const (
	defaultList  = 50
	maxList      = 200
	maxListBytes = 8 << 20
	maxSkipped   = 20_000 // entries of other rooms that one page goes past
)

type list struct {
	name string
	span func(origin, roomID string) (from, to []byte)
	text func(hash string) []byte
}

// ServeStatements answers GET /v1/witness/statements: envelopes, filtered by origin
// and room_id.
func (w *Witness) ServeStatements(rw http.ResponseWriter, r *http.Request) error {
	return w.serve(rw, r, list{"statements", store.StatementByRoomRange, store.Statement})
}

// ServeAttestations answers GET /v1/witness/attestations, likewise.
func (w *Witness) ServeAttestations(rw http.ResponseWriter, r *http.Request) error {
	return w.serve(rw, r, list{"attestations", store.AttestationByRoomRange, store.Attestation})
}

// AttestationsOf are the envelopes that ServeAttestations shows of one room, in no
// order, at most 200 of them.
func (w *Witness) AttestationsOf(origin, roomID string) ([]*adp.Envelope, error) {
	from, to := store.AttestationByRoomRange(origin, roomID)
	items, _, err := w.listed(list{"attestations", store.AttestationByRoomRange, store.Attestation}, from, to, roomID, maxList)
	if err != nil {
		return nil, err
	}
	out := make([]*adp.Envelope, 0, len(items))
	for _, item := range items {
		v, err := adp.Scan(item)
		if err != nil {
			return nil, err
		}
		e, err := adp.ParseEnvelope(v)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// ServeEvidence answers GET /v1/witness/evidence: {class, kind, origin, room_id,
// genesis, seen_at, observer, …}; a proof has agent and sides (two envelopes), an
// observation held and other (records, envelopes or manifests).
func (w *Witness) ServeEvidence(rw http.ResponseWriter, r *http.Request) error {
	return w.serve(rw, r, list{"evidence", store.EvidenceByRoomRange, store.Evidence})
}

func (w *Witness) serve(rw http.ResponseWriter, r *http.Request, l list) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	items, filter, err := w.query(l, q)
	if err != nil {
		return err
	}
	if filter.Has("cursor") {
		web.NextLink(rw, w.o.Origin+"/v1/witness/"+l.name+"?"+filter.Encode())
	}
	web.WriteArray(rw, items)
	return nil
}

// Signed is one page of what GET /v1/witness/{kind} lists, for statements,
// attestations and evidence, with the parameters of that path. next is the
// cursor of the next page, "" when there is none.
func (w *Witness) Signed(kind string, q url.Values) (items [][]byte, next string, err error) {
	for _, l := range []list{{"statements", store.StatementByRoomRange, store.Statement}, {"attestations", store.AttestationByRoomRange, store.Attestation},
		{"evidence", store.EvidenceByRoomRange, store.Evidence}} {
		if l.name == kind {
			items, filter, err := w.query(l, q)
			return items, filter.Get("cursor"), err
		}
	}
	return nil, "", adp.Errorf(adp.NotFound, "there is no list of %.40q", kind)
}

// query reads a page of a list, and gives the parameters of the next one: they
// have a cursor when there is one.
func (w *Witness) query(l list, q url.Values) (items [][]byte, filter url.Values, err error) {
	origin, err := web.String(q, "origin")
	if err != nil {
		return nil, nil, err
	}
	roomID, err := web.String(q, "room_id")
	if err != nil {
		return nil, nil, err
	}
	cursor, err := web.String(q, "cursor")
	if err != nil {
		return nil, nil, err
	}
	limit, err := web.Limit(q, defaultList, maxList)
	if err != nil {
		return nil, nil, err
	}
	if origin != "" && !isOrigin(origin) {
		return nil, nil, adp.Errorf(adp.InvalidRequest, "origin must be scheme://host[:port], in lower case and without a path").With("parameter", "origin")
	}
	if roomID != "" && !adp.IsRoomID(roomID) {
		return nil, nil, adp.Errorf(adp.InvalidRequest, "room_id is not the ID of a room").With("parameter", "room_id")
	}
	filter = url.Values{}
	for name, value := range map[string]string{"origin": origin, "room_id": roomID} {
		if value != "" {
			filter.Set(name, value)
		}
	}
	kind := "witness/" + l.name + "?" + filter.Encode() // a cursor is for one list with one filter
	from, to := l.span(origin, roomID)
	if cursor != "" {
		last, err := w.o.Cursors.Open(kind, cursor)
		if err != nil {
			return nil, nil, err
		}
		from = append(last, 0) // the least key behind it
	}
	items, last, err := w.listed(l, from, to, roomID, limit)
	if err != nil {
		return nil, nil, err
	}
	if last != nil {
		if q.Has("limit") {
			filter.Set("limit", q.Get("limit"))
		}
		filter.Set("cursor", w.o.Cursors.Seal(kind, last))
	}
	if l.name == "evidence" {
		for i := range items {
			items[i] = w.unsaid(items[i])
		}
	}
	return items, filter, nil
}

// listed reads one page; last is its last key when more follows. A page that has gone past
// many entries that are not asked for ends early, perhaps with none.
func (w *Witness) listed(l list, from, to []byte, roomID string, limit int) (items [][]byte, last []byte, err error) {
	size, skipped, more := 0, 0, false
	err = w.o.Store.View(func(rd store.Reader) error {
		var bad error
		err := rd.Keys(from, to, func(key []byte) bool {
			_, room, hash, err := store.ParseNamed(key)
			if err != nil {
				bad = err
				return false
			}
			if roomID != "" && room != roomID || w.withheld(hash) { // a filter without origin
				if skipped++; skipped == maxSkipped {
					more, last = true, bytes.Clone(key)
				}
				return !more
			}
			if len(items) == limit || size > maxListBytes {
				more = true
				return false
			}
			text, ok, err := rd.Get(l.text(hash))
			if err != nil || !ok {
				bad = err
				return err == nil
			}
			items, last, size = append(items, text), bytes.Clone(key), size+len(text)
			return true
		})
		if err != nil {
			return err
		}
		return bad
	})
	if !more {
		last = nil
	}
	return items, last, err
}
