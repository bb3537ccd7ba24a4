package room

import (
	"bytes"
	"encoding/json"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// resource is the Room resource of ADP §16, in the order of its table.
type resource struct {
	ID         string            `json:"id"`
	Status     Status            `json:"status"`
	URL        string            `json:"url"`
	Creator    adp.AgentID       `json:"creator"`
	CreatedAt  int64             `json:"created_at"`
	Topic      string            `json:"topic"`
	Agenda     string            `json:"agenda,omitempty"`
	Guidance   string            `json:"guidance,omitempty"`
	Visibility string            `json:"visibility"`
	StartTime  int64             `json:"start_time"`
	EndTime    int64             `json:"end_time"`
	Tags       []string          `json:"tags,omitempty"`
	Language   string            `json:"language,omitempty"`
	Policy     json.RawMessage   `json:"policy,omitempty"`
	Extra      json.RawMessage   `json:"extra,omitempty"`
	Types      []json.RawMessage `json:"types,omitzero"`
	Seq        int64             `json:"seq"`
	PreHash    *string           `json:"pre_hash"`
	Hash       string            `json:"hash"`
	ReceivedAt int64             `json:"received_at"`
	Head       Position          `json:"head"`
	Role       types.Role        `json:"role,omitempty"`
	Membership string            `json:"membership,omitempty"`
}

func (s *State) resource(url string, now int64) resource {
	k := s.Contract
	r := resource{
		ID: s.RoomID, Status: s.StatusAt(now), URL: url, Creator: s.Creator, CreatedAt: s.CreatedAt,
		Topic: k.Topic, Agenda: k.Agenda, Guidance: k.Guidance, Visibility: k.Visibility,
		StartTime: k.StartTime, EndTime: k.EndTime, Tags: k.Tags, Language: k.Language, Policy: k.PolicyJSON, Extra: k.Extra,
		Seq: s.Last.Seq, Hash: s.Last.Hash, ReceivedAt: s.ReceivedAt, Head: s.Head,
	}
	if s.PreHash != "" {
		r.PreHash = &s.PreHash
	}
	return r
}

// Resource is the Room resource (ADP §16) as JSON, types included. url is the
// canonical URL of the room, now is Unix ms.
func (s *State) Resource(url string, now int64) []byte {
	r := s.resource(url, now)
	r.Types = []json.RawMessage{}
	for _, d := range s.Registry.All() {
		r.Types = append(r.Types, d.JSON())
	}
	return encode(r)
}

// Contradicts names the members of a Room resource, as somebody else shows it,
// that say something else than the records. What is not there says nothing, and
// what a host may put in its own words, such as types, is not looked at.
func (s *State) Contradicts(resource adp.Value) (names []string) {
	mine, err := adp.EncodeValue(s.resource("", 0))
	if err != nil {
		panic("room: encode: " + err.Error()) // every part was JSON before
	}
	for _, name := range []string{"creator", "topic", "agenda", "guidance", "visibility", "start_time", "end_time", "tags", "language", "policy", "extra"} {
		if a, b := mine.Get(name), resource.Get(name); b.Exists() && !bytes.Equal(a.Raw(), b.Raw()) && !(blank(a) && blank(b)) {
			names = append(names, name)
		}
	}
	return names
}

// blank tells whether a value is as good as none.
func blank(v adp.Value) bool {
	switch string(v.Raw()) {
	case "", `""`, "[]", "{}", "null":
		return true
	}
	return false
}

// Listed is the Room resource without types, as lists show it.
func (s *State) Listed(url string, now int64) []byte { return encode(s.resource(url, now)) }

// ListedFor is Listed with an agent's own standing: membership is active, left,
// banned or pending (wire-facts §3.20).
func (s *State) ListedFor(url string, now int64, role types.Role, membership string) []byte {
	r := s.resource(url, now)
	r.Role, r.Membership = role, membership
	return encode(r)
}

func encode(x any) []byte {
	text, err := adp.EncodeJSON(x)
	if err != nil {
		panic("room: encode: " + err.Error()) // every part was JSON before
	}
	return text
}
