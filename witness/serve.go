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
	origin, err := web.String(q, "origin")
	if err != nil {
		return err
	}
	roomID, err := web.String(q, "room_id")
	if err != nil {
		return err
	}
	cursor, err := web.String(q, "cursor")
	if err != nil {
		return err
	}
	limit, err := web.Limit(q, defaultList, maxList)
	if err != nil {
		return err
	}
	if origin != "" && !isOrigin(origin) {
		return adp.Errorf(adp.InvalidRequest, "origin must be scheme://host[:port], in lower case and without a path").With("parameter", "origin")
	}
	if roomID != "" && !adp.IsRoomID(roomID) {
		return adp.Errorf(adp.InvalidRequest, "room_id is not the ID of a room").With("parameter", "room_id")
	}
	filter := url.Values{}
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
			return err
		}
		from = append(last, 0) // the least key behind it
	}
	items, last, err := w.listed(l, from, to, roomID, limit)
	if err != nil {
		return err
	}
	if last != nil {
		filter.Set("limit", q.Get("limit"))
		if !q.Has("limit") {
			filter.Del("limit")
		}
		filter.Set("cursor", w.o.Cursors.Seal(kind, last))
		web.NextLink(rw, w.o.Origin+"/v1/witness/"+l.name+"?"+filter.Encode())
	}
	if l.name == "evidence" {
		for i := range items {
			items[i] = w.unsaid(items[i])
		}
	}
	web.WriteArray(rw, items)
	return nil
}

// listed reads one page; last is its last key when more follows.
func (w *Witness) listed(l list, from, to []byte, roomID string, limit int) (items [][]byte, last []byte, err error) {
	size, more := 0, false
	err = w.o.Store.View(func(rd store.Reader) error {
		var bad error
		err := rd.Keys(from, to, func(key []byte) bool {
			_, room, hash, err := store.ParseNamed(key)
			if err != nil {
				bad = err
				return false
			}
			if roomID != "" && room != roomID || w.withheld(hash) { // a filter without origin
				return true
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
