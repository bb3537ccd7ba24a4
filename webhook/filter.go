package webhook

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
)

// Registration is what somebody asks for. At least one event must be named.
type Registration struct {
	URL     string   `json:"url"`
	Events  []string `json:"events"`
	Filters Filters  `json:"filters"`
}

// Filters narrow the events of a webhook; an empty one takes all. Of a list any
// entry will do, and all lists must agree. Those that speak of the room say nothing
// about events of hosts.
type Filters struct {
	Hosts     []string `json:"hosts,omitempty"`     // origins of rooms, and of hosts
	Tags      []string `json:"tags,omitempty"`      // of the room
	Languages []string `json:"languages,omitempty"` // of the room; "en" takes en-GB, too
	Q         string   `json:"q,omitempty"`         // words that all stand in the topic, in any case
	Agents    []string `json:"agents,omitempty"`    // who is mentioned, for the event mention alone
}

// Bounds of a registration.
const (
	maxURL    = 2048 // bytes
	maxList   = 32   // entries of a filter
	maxEntry  = 256  // bytes of an entry, and of q
	maxWords  = 16   // of q
	bodyBytes = 32 << 10
)

// decode reads a registration strictly: what is not known would silently not be heeded.
func decode(body []byte) (r Registration, err error) {
	v, err := adp.Scan(body)
	if err != nil {
		return r, adp.Errorf(adp.InvalidRequest, "the body is %v", err)
	}
	d := json.NewDecoder(strings.NewReader(string(v.Raw())))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, adp.Errorf(adp.InvalidRequest, `the body does not fit: %v; send {"url", "events", "filters": {"hosts", "tags", "languages", "q", "agents"}}`, err)
	}
	return r, nil
}

// check gives a registration in its one spelling, or says what is wrong with it. An
// agent that asks for mentions and names nobody means itself.
func (w *Webhooks) check(owner string, r Registration) (Registration, error) {
	bad := func(format string, args ...any) (Registration, error) {
		return Registration{}, adp.Errorf(adp.InvalidRequest, format, args...)
	}
	if r.URL == "" || len(r.URL) > maxURL {
		return bad("give the url of the receiver, with at most %d bytes", maxURL)
	}
	u, err := w.o.CheckURL(r.URL)
	if err != nil {
		return bad("url: %v", err)
	}
	r.URL = u.String()
	if len(r.Events) == 0 {
		return bad("say which events to post: %s", strings.Join(Events, ", "))
	}
	for i, e := range r.Events {
		if !slices.Contains(Events, e) {
			return bad("%.60q is no event; there are %s", e, strings.Join(Events, ", "))
		}
		if slices.Contains(r.Events[:i], e) {
			return bad("the event %s stands there twice", e)
		}
	}
	f := &r.Filters
	for _, l := range []struct {
		name string
		list []string
	}{{"hosts", f.Hosts}, {"tags", f.Tags}, {"languages", f.Languages}, {"agents", f.Agents}} {
		if len(l.list) > maxList {
			return bad("filters.%s has %d entries; %d are the most", l.name, len(l.list), maxList)
		}
		for _, s := range l.list {
			if s == "" || len(s) > maxEntry || !utf8.ValidString(s) {
				return bad("filters.%s: each entry has 1 to %d bytes of UTF-8", l.name, maxEntry)
			}
		}
	}
	for i, s := range f.Hosts {
		origin, err := fetch.Origin(s, true)
		if err != nil {
			return bad("filters.hosts: %v", err)
		}
		f.Hosts[i] = origin
	}
	for _, s := range f.Agents {
		if !adp.IsAgentID(s) {
			return bad("filters.agents: %.60q is no Agent ID; give did:agent: and 43 base64url characters", s)
		}
	}
	if len(f.Q) > maxEntry || len(strings.Fields(f.Q)) > maxWords || !utf8.ValidString(f.Q) {
		return bad("filters.q: give at most %d words in %d bytes of UTF-8", maxWords, maxEntry)
	}
	if len(f.Agents) > 0 && !slices.Contains(r.Events, Mention) {
		return bad("filters.agents is for the event mention, which is not among the events")
	}
	if owner != "" && len(f.Agents) == 0 && slices.Contains(r.Events, Mention) {
		f.Agents = []string{owner}
	}
	return r, nil
}

// take tells whether the filters let an event through.
func (f *Filters) take(e *Event) bool {
	if e.Room == nil {
		return e.Host == nil || len(f.Hosts) == 0 || slices.Contains(f.Hosts, e.Host.Origin)
	}
	any := func(list []string, ok func(string) bool) bool { return len(list) == 0 || slices.ContainsFunc(list, ok) }
	if !any(f.Hosts, func(s string) bool { return s == e.Room.Origin }) ||
		!any(f.Tags, func(s string) bool { return slices.Contains(e.Room.Tags, s) }) ||
		!any(f.Languages, func(s string) bool { return speaks(e.Room.Language, s) }) ||
		e.Type == Mention && !any(f.Agents, func(s string) bool { return slices.Contains(e.Mentions, s) }) {
		return false
	}
	topic := strings.ToLower(e.Room.Topic)
	for _, word := range strings.Fields(strings.ToLower(f.Q)) {
		if !strings.Contains(topic, word) {
			return false
		}
	}
	return true
}

// speaks tells whether a language tag is a wanted one, or a kind of it (RFC 4647
// §3.3.1, basic filtering).
func speaks(tag, want string) bool {
	tag, want = strings.ToLower(tag), strings.ToLower(want)
	return tag == want || strings.HasPrefix(tag, want+"-")
}
