package inspecttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// Served is a room as a host gives it out. Whoever changes a part makes the host a liar.
type Served struct {
	Resource []byte
	Records  [][]byte
	Manifest []byte // nil: there is none
	Bundle   []byte // nil: it is not given out
	Signed   []byte // what /v1/witness/statements lists

	SignedMore [][]byte // its further pages
}

// Room is a room in the way of most: two who talk. It has ended when over is true.
func Room(messages int, over bool) *Builder {
	b := &Builder{}
	b.Create()
	b.Add(Key(2), room.Join, map[string]any{"role": "speaker"})
	for i := range messages {
		b.Say(Key(byte(1+i%2)), fmt.Sprintf("claim %d", i))
	}
	if over {
		b.Add(Key(1), room.Close, map[string]any{})
	}
	return b
}

// Serve is the room as an honest host serves it.
func (b *Builder) Serve() *Served {
	v := room.NewVerifier(RoomID, nil)
	s := &Served{Signed: []byte("[]")}
	for _, r := range b.Records {
		if err := v.Add(r); err != nil {
			panic(err)
		}
		s.Records = append(s.Records, r.JSON())
	}
	at := Start + 1000*int64(len(b.Records))
	s.Resource = v.State.Resource(URL, at)
	if v.State.StatusAt(at) == room.Ended {
		s.Manifest, s.Bundle = b.Seal(nil, nil)
	}
	return s
}

// Sum is what the records amount to.
func (b *Builder) Sum() adp.Summary {
	var d adp.Digest
	for _, r := range b.Records {
		d.Add(r)
	}
	return d.Summary()
}

// Announce is the host's statement about its archive, signed by key; payload members in change are replaced.
func (b *Builder) Announce(key byte, change map[string]any) []byte {
	sum := b.Sum()
	payload := map[string]any{"origin": "https://host.example", "room_id": RoomID, "genesis": sum.Genesis, "last_seq": sum.Count, "last_hash": sum.LastHash,
		"archive_root": adp.Encode(sum.Root[:]), "events_cid": sum.EventsCID()}
	for name, v := range change {
		payload[name] = v
	}
	e, err := adp.Sign(Key(key), adp.Draft{Protocol: adp.WitnessProtocol, Type: "archive.announce", CreatedAt: End, Nonce: End, Payload: payload})
	if err != nil {
		panic(err)
	}
	return e.JSON()
}

// ServeHTTP answers the read API of the room below any path.
func (s *Served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, kind := []byte(nil), "application/json"
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/events"):
		after, _ := strconv.Atoi(r.URL.Query().Get("after_seq"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		after = min(after, len(s.Records))
		page := s.Records[after:min(len(s.Records), after+max(limit, 0))]
		body = append(append([]byte{'['}, bytes.Join(page, []byte{','})...), ']')
	case strings.HasSuffix(path, "/archive.jsonl"):
		body, kind = s.Bundle, "application/x-ndjson"
	case strings.HasSuffix(path, "/archive"):
		body = s.Manifest
	case strings.HasSuffix(path, "/v1/witness/statements"):
		page, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		if body = s.Signed; page > 0 && page <= len(s.SignedMore) {
			body = s.SignedMore[page-1]
		}
		if page < len(s.SignedMore) { // absolute, as hosts write it: a reader may have come by another name
			w.Header().Set("Link", fmt.Sprintf(`<https://host.example%s?cursor=%d>; rel="next"`, path, page+1))
		}
	case strings.HasSuffix(path, "/v1/witness/attestations"):
		body = []byte("[]")
	case strings.HasSuffix(path, "/v1/rooms/"+RoomID):
		body = s.Resource
	}
	if body == nil {
		body, kind = []byte(`{"error":{"code":"not_found","message":"there is no such thing here"}}`), "application/json"
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(http.StatusNotFound)
	} else {
		w.Header().Set("Content-Type", kind)
	}
	_, _ = w.Write(body) // a client that left wants no answer
}

// Faults are ways in which a host can serve a room wrongly, by name; each gets a fresh honest room to spoil.
var Faults = map[string]struct {
	Over  bool // the room has ended
	Spoil func(*Served)
}{
	"a message in the archive was changed":     {true, func(s *Served) { s.Bundle = bytes.Replace(s.Bundle, []byte("claim 4"), []byte("claim 5"), 1) }},
	"a message in the records was changed":     {false, func(s *Served) { s.Records[6] = bytes.Replace(s.Records[6], []byte("claim 4"), []byte("claim 5"), 1) }},
	"a record is missing in the middle":        {true, func(s *Served) { s.Bundle = dropLine(s.Bundle, 6) }},
	"the last record is missing":               {true, func(s *Served) { s.Bundle = dropLine(s.Bundle, bytes.Count(s.Bundle, []byte("\n"))-1) }},
	"the archive is cut within a record":       {true, func(s *Served) { s.Bundle = s.Bundle[:len(s.Bundle)-40] }},
	"the archive is spelled in another way":    {true, func(s *Served) { s.Bundle = bytes.ReplaceAll(s.Bundle, []byte("\n{"), []byte("\n{ ")) }},
	"the archive goes on behind its end":       {true, func(s *Served) { s.Bundle = append(bytes.Clone(s.Bundle), "{}\n"...) }},
	"the archive is not JSON":                  {true, func(s *Served) { s.Bundle = []byte("<!doctype html>") }},
	"the archive is empty":                     {true, func(s *Served) { s.Bundle = []byte{} }},
	"the archive is not given out":             {true, func(s *Served) { s.Bundle = nil }},
	"the records are fewer than the host says": {false, func(s *Served) { s.Records = s.Records[:5] }},
	"the records come in another order":        {false, func(s *Served) { s.Records[5], s.Records[6] = s.Records[6], s.Records[5] }},
	"there are no records":                     {false, func(s *Served) { s.Records = nil }},
	"the manifest has another root":            {true, func(s *Served) { s.Manifest = another(s.Manifest, "archive_root") }},
	"the manifest has another last hash":       {true, func(s *Served) { s.Manifest = another(s.Manifest, "last_hash") }},
	"the manifest is no manifest":              {true, func(s *Served) { s.Manifest = []byte(`{"protocol":"x"}`) }},
	"the resource has another topic":           {true, func(s *Served) { s.Resource = bytes.Replace(s.Resource, []byte("Proofs"), []byte("Proven"), 1) }},
	"the resource has another newest record":   {false, func(s *Served) { s.Resource = another(s.Resource, "hash") }},
}

func dropLine(text []byte, n int) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(append(append([][]byte(nil), lines[:n]...), lines[n+1:]...), nil)
}

// another puts another hash in place of one.
func another(object []byte, member string) []byte {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(object, &m); err != nil {
		panic(err)
	}
	b, err := json.Marshal(adp.Encode(bytes.Repeat([]byte{7}, 32)))
	if err != nil {
		panic(err)
	}
	m[member] = b
	if object, err = json.Marshal(m); err != nil {
		panic(err)
	}
	return object
}
