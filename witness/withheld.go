package witness

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
)

// unsaid takes out of an observation what is withheld here since it was made: it
// quotes records, and what no other reader gets it must not give away either. The
// stored evidence stays as it is.
func (w *Witness) unsaid(item []byte) []byte {
	var members map[string]json.RawMessage
	var s struct {
		Origin  string `json:"origin"`
		RoomID  string `json:"room_id"`
		Genesis string `json:"genesis"`
	}
	if json.Unmarshal(item, &members) != nil || json.Unmarshal(item, &s) != nil {
		return item
	}
	r, ok := w.o.Replicas.GetKey(replica.Key{Origin: s.Origin, RoomID: s.RoomID, Genesis: s.Genesis})
	if !ok || r.Row().Withheld == 0 {
		return item
	}
	changed := false
	for _, side := range []string{"held", "other"} {
		var records []json.RawMessage
		if json.Unmarshal(members[side], &records) != nil {
			continue
		}
		for i, raw := range records {
			if cut, ok := redacted(r, raw); ok {
				records[i], changed = cut, true
			}
		}
		if len(records) > 0 {
			members[side] = slices.Concat([]byte{'['}, bytes.Join(raws(records), []byte{','}), []byte{']'})
		}
	}
	if !changed {
		return item
	}
	out, err := adp.EncodeJSON(members)
	if err != nil {
		panic("witness: encode: " + err.Error()) // every part was JSON before
	}
	return out
}

// redacted is a record as readers get it, when that is without its envelope.
func redacted(r *replica.Replica, raw []byte) ([]byte, bool) {
	v, err := adp.ScanDepth(raw, adp.RecordDepth)
	if err != nil {
		return nil, false
	}
	seq, ok := v.Get("seq").Int()
	if !ok {
		return nil, false
	}
	served, ok, err := r.Record(seq)
	if err != nil || !ok || !replica.IsRedacted(served) {
		return nil, false
	}
	own, err := adp.ScanDepth(served, adp.RecordDepth)
	if err != nil || !own.Get("hash").Is(v.Get("hash").Text()) {
		return nil, false
	}
	return served, true
}

func raws(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out
}
