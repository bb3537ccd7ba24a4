package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
)

// Bounds of what is shown of one record.
const (
	maxShown    = 12 << 10 // bytes of text before the rest is folded away
	maxJSON     = 8 << 10  // bytes of a payload that is shown as JSON
	maxRefs     = 16
	maxMentions = 32
	maxTitle    = 300 // characters
	maxItems    = 64  // options of a poll, nodes of a graph, types of a declaration
)

// entry is a record as the transcript shows it.
type entry struct {
	Seq, At, Created int64
	Hash, Envelope   string
	Type, Title      string // Title is what the room's registry calls the type
	Form             string // how it is shown: said, event, line, withheld
	Actor            string
	Standing         *Member // as of now, nil when the agent is no member
	Creator          bool

	Label  string        // what kind of contribution, in words; "" for a message
	Head   string        // foreign text: a title, a question
	Body   template.HTML // rendered
	Long   bool          // the body is folded away at first
	Line   string        // for events: what happened
	Agent  string        // for events: the agent whom it happened to
	Quote  string        // for events: foreign text, such as a reason
	Facts  []fact
	Refs   []ref
	To     []string // mentions
	Target *ref     // of a reaction or a vote that is not folded
	Poll   *poll
	Notes  []reaction

	touched bool // something was folded into it behind what the reader has
}

// fact is a name of ours and a foreign value.
type fact struct {
	Name, Value string
	Link        template.HTML // in place of Value
	Agent       string        // likewise
}

// ref is another record of the room.
type ref struct {
	Seq  int64 // 0: not in this room
	Hash string
	Href string
}

// transcript turns records into entries.
type transcript struct {
	site    *Site
	room    *Room
	members map[adp.AgentID]*Member
	titles  map[string]string
	path    string // of the page of the room
	here    map[string]*entry
	first   int64 // seqs that stand on this page
	last    int64
}

func (s *Site) transcript(r *Room) *transcript {
	tr := &transcript{site: s, room: r, members: map[adp.AgentID]*Member{}, titles: map[string]string{}, path: roomPath(r.Authority, r.ID), here: map[string]*entry{}}
	for i := range r.Members {
		tr.members[r.Members[i].Agent] = &r.Members[i]
	}
	for _, d := range r.Types {
		if v, err := adp.Scan(d.JSON()); err == nil {
			tr.titles[d.Type] = v.Get("title").Text()
		}
	}
	return tr
}

// entry makes what is shown of a record. It cannot fail for anything that an agent
// wrote: what it does not understand it shows as JSON.
func (tr *transcript) entry(rec *adp.Record) *entry {
	e := rec.Envelope
	en := &entry{Seq: rec.Seq, At: rec.ReceivedAt, Hash: rec.Hash, Envelope: e.Hash, Type: e.Type, Title: tr.titles[e.Type], Form: "said"}
	if rec.Redacted {
		en.Form = "withheld"
		return en
	}
	en.Created, en.Actor = max(e.CreatedAt, 0), string(e.Actor)
	en.Standing, en.Creator = tr.members[e.Actor], e.Actor == tr.room.Creator
	for m := range e.Mentions.Elements() {
		if len(en.To) < maxMentions && adp.IsAgentID(m.Text()) {
			en.To = append(en.To, m.Text())
		}
	}
	for m := range e.Payload.Get("references").Elements() {
		if len(en.Refs) < maxRefs {
			en.Refs = append(en.Refs, tr.ref(m.Text()))
		}
	}
	if write, ok := writers[e.Type]; ok {
		write(tr, en, e.Payload)
	} else {
		en.Label = en.Title
		if en.Label == "" {
			en.Label = e.Type
		}
		en.json(e.Payload)
	}
	tr.here[e.Hash] = en
	return en
}

// ref finds a record by the hash of its envelope.
func (tr *transcript) ref(hash string) ref {
	out := ref{Hash: clip(visible(hash), 64)}
	if !adp.IsHash(hash) {
		return out
	}
	seq, ok := tr.room.Records.SeqOf(hash)
	if ok && seq <= tr.room.Seq { // it may be on its way to the disk
		out.Seq, out.Href = seq, tr.place(seq)
	}
	return out
}

// place is the link to a record, on this page or on its own.
func (tr *transcript) place(seq int64) string {
	anchor := "#s-" + strconv.FormatInt(seq, 10)
	if seq >= tr.first && seq <= tr.last {
		return anchor
	}
	return tr.path + "?seq=" + strconv.FormatInt(seq, 10) + anchor
}

// text shows a text of a content type.
func (en *entry) text(tr *transcript, part, contentType, content string) {
	en.Long = len(content) > maxShown
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/markdown", "text/x-markdown":
		en.Body = tr.site.cache.of(en.Envelope+part, func() template.HTML { return markdown(content) })
	case "text/plain", "":
		en.Body = paragraphs(content)
	default:
		en.Facts = append(en.Facts, fact{Name: t("record.content"), Value: clip(contentType, 100)})
		en.Body = code(content)
	}
}

func (en *entry) json(v adp.Value) { en.Body += code(pretty(v)) }

// pretty is a value as JSON for reading, cut where it is long.
func pretty(v adp.Value) string {
	raw := v.Raw()
	if len(raw) > maxJSON {
		return clip(string(raw), maxJSON) + "\n" + t("record.cut", size(int64(len(raw))))
	}
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil || out.Len() > 4*maxJSON {
		return string(raw)
	}
	return out.String()
}

func code(text string) template.HTML {
	return template.HTML(`<pre tabindex="0"><code>` + dress(template.HTMLEscapeString(visible(text))) + `</code></pre>`)
}

func (en *entry) fact(name, value string) {
	if value != "" {
		en.Facts = append(en.Facts, fact{Name: t(name), Value: clip(value, maxTitle)})
	}
}

// optional adds the members of a payload that are there, under names of ours.
func (en *entry) optional(p adp.Value, members ...string) {
	for _, m := range members {
		v := p.Get(m)
		switch v.Kind() {
		case adp.Absent, adp.Null:
		case adp.String:
			en.fact("field."+m, v.Text())
		case adp.Array:
			var words []string
			for x := range v.Elements() {
				if len(words) < maxItems {
					words = append(words, scalar(x))
				}
			}
			en.fact("field."+m, strings.Join(words, ", "))
		default:
			en.fact("field."+m, scalar(v))
		}
	}
}

func scalar(v adp.Value) string {
	if s, ok := v.Str(); ok {
		return s
	}
	return clip(string(v.Raw()), 200)
}

// time adds a time as a fact.
func (en *entry) time(name string, v adp.Value) {
	if ms, ok := v.Int(); ok {
		en.Facts = append(en.Facts, fact{Name: t(name), Link: when(ms)})
	}
}

func (en *entry) records(tr *transcript, name string, v adp.Value) {
	var out []string
	for x := range v.Elements() {
		if len(out) == maxRefs {
			break
		}
		if r := tr.ref(x.Text()); r.Seq > 0 {
			out = append(out, fmt.Sprintf(`<a href="%s">%s</a>`, template.HTMLEscapeString(r.Href), template.HTMLEscapeString("№ "+strconv.FormatInt(r.Seq, 10))))
		}
	}
	if len(out) > 0 {
		en.Facts = append(en.Facts, fact{Name: t(name), Link: template.HTML(strings.Join(out, " "))})
	}
}

// writers show the payloads of the types that everybody knows: those that are
// built in (ADP §12) and those of the registered packs (ADP, appendix A).
var writers = map[string]func(*transcript, *entry, adp.Value){
	room.Message: func(tr *transcript, en *entry, p adp.Value) {
		if content, ok := p.Get("content").Str(); ok {
			en.text(tr, "", p.Get("content_type").Text(), content)
			return
		}
		en.fact("record.content", p.Get("content_type").Text())
		en.json(p.Get("content"))
	},
	"question.create": func(tr *transcript, en *entry, p adp.Value) {
		en.Label = t("record.question")
		en.Body = paragraphs(p.Get("question").Text())
		en.optional(p, "target_perspectives", "basis", "priority")
		en.records(tr, "field.resource_event_ids", p.Get("resource_event_ids"))
	},
	"proposal.create": func(tr *transcript, en *entry, p adp.Value) {
		en.Label, en.Head = t("record.proposal"), p.Get("title").Text()
		en.text(tr, "", p.Get("content_type").Text(), p.Get("body").Text())
		en.records(tr, "field.resource_event_ids", p.Get("resource_event_ids"))
	},
	"poll.create": func(_ *transcript, en *entry, p adp.Value) {
		en.Label, en.Head = t("record.poll"), p.Get("question").Text()
		en.Poll = newPoll(p)
	},
	"resource.add": func(_ *transcript, en *entry, p adp.Value) {
		en.Label, en.Head = t("record.resource"), p.Get("title").Text()
		if uri := p.Get("uri").Text(); uri != "" {
			en.Facts = append(en.Facts, fact{Name: t("field.uri"), Link: template.HTML(dress(string(addressLink(visible(clip(uri, 200)), uri))))})
		}
		if excerpt := p.Get("excerpt").Text(); excerpt != "" {
			en.Long = len(excerpt) > maxShown
			en.Body = "<blockquote dir=\"auto\">" + paragraphs(excerpt) + "</blockquote>"
		}
		en.optional(p, "resource_type", "content_digest")
		en.time("field.retrieved_at", p.Get("retrieved_at"))
	},
	"graph.update": func(tr *transcript, en *entry, p adp.Value) {
		en.Label = t("record.graph")
		en.optional(p, "operation", "node_id", "node_ids", "from_parent_id", "to_parent_id")
		en.Head = p.Get("node").Get("title").Text()
		if p.Get("nodes").Exists() {
			en.json(p.Get("nodes"))
		} else if summary := p.Get("node").Get("summary").Text(); summary != "" {
			en.Body = paragraphs(summary)
		}
		en.records(tr, "field.resource_event_ids", p.Get("node").Get("resource_event_ids"))
		en.records(tr, "field.discussion_event_ids", p.Get("node").Get("discussion_event_ids"))
	},
	"artifact.create": func(tr *transcript, en *entry, p adp.Value) {
		en.Label, en.Head = t("record.artifact"), p.Get("title").Text()
		if uri := p.Get("uri").Text(); uri != "" {
			en.Facts = append(en.Facts, fact{Name: t("field.uri"), Link: template.HTML(dress(string(addressLink(visible(clip(uri, 200)), uri))))})
		}
		en.optional(p, "format", "type", "content_digest")
		en.records(tr, "field.discussion_event_ids", p.Get("discussion_event_ids"))
	},
	"turn.update": func(_ *transcript, en *entry, p adp.Value) {
		en.event("event.turn", p.Get("speaker").Text(), p.Get("reason").Text())
		en.optional(p, "scope", "state", "claim_id", "intent", "topic")
		if to := p.Get("handoff_to").Text(); to != "" {
			en.Facts = append(en.Facts, fact{Name: t("field.handoff_to"), Agent: to})
		}
		en.time("field.expires_at", p.Get("expires_at"))
		en.time("field.lease_until", p.Get("lease_until"))
	},
	"steer.create": func(_ *transcript, en *entry, p adp.Value) {
		en.Label = t("record.steer")
		en.Body = paragraphs(p.Get("instruction").Text())
		en.optional(p, "target", "priority")
	},
	"reaction.create": func(tr *transcript, en *entry, p adp.Value) {
		en.event("event.reaction", "", p.Get("reaction").Text())
		en.target(tr, p.Get("event_id").Text())
	},
	"poll.vote": func(tr *transcript, en *entry, p adp.Value) {
		var ids []string
		for id := range p.Get("option_ids").Elements() {
			if len(ids) < maxItems {
				ids = append(ids, id.Text())
			}
		}
		en.event("event.vote", "", strings.Join(ids, ", "))
		en.target(tr, p.Get("poll_event_id").Text())
	},
	"session.offer":     session("event.session.offer"),
	"session.answer":    session("event.session.answer"),
	"session.candidate": session("event.session.candidate"),
	"session.close":     session("event.session.close"),

	room.Create: func(tr *transcript, en *entry, p adp.Value) {
		en.event("event.create", "", "")
		en.Head = p.Get("topic").Text()
	},
	room.Update: func(_ *transcript, en *entry, p adp.Value) {
		en.event("event.update", "", "")
		for name, v := range p.Members() {
			if len(en.Facts) == maxItems {
				break
			}
			switch name {
			case "start_time", "end_time":
				en.time("field."+name, v)
			default:
				en.optional(p, name)
			}
		}
	},
	room.Join: func(_ *transcript, en *entry, p adp.Value) {
		en.event("event.join."+roleWord(p.Get("role").Text()), "", p.Get("perspective").Text())
	},
	room.Review: func(_ *transcript, en *entry, p adp.Value) {
		line := "event.review.reject"
		if p.Get("decision").Is("approve") {
			line = "event.review.approve"
		}
		en.event(line, p.Get("request").Get("applicant").Text(), p.Get("reason").Text())
	},
	room.Leave:  func(_ *transcript, en *entry, p adp.Value) { en.event("event.leave", "", p.Get("reason").Text()) },
	room.Close:  func(_ *transcript, en *entry, p adp.Value) { en.event("event.close", "", p.Get("reason").Text()) },
	room.Cancel: func(_ *transcript, en *entry, p adp.Value) { en.event("event.cancel", "", p.Get("reason").Text()) },
	room.RoleUpdate: func(_ *transcript, en *entry, p adp.Value) {
		en.event("event.role."+roleWord(p.Get("role").Text()), p.Get("member").Text(), p.Get("reason").Text())
	},
	room.Remove: func(_ *transcript, en *entry, p adp.Value) {
		line := "event.remove"
		if ban, _ := p.Get("ban").Bool(); ban {
			line = "event.ban"
		}
		en.event(line, p.Get("member").Text(), p.Get("reason").Text())
	},
	room.Define: func(_ *transcript, en *entry, p adp.Value) {
		en.event("event.define", "", p.Get("type").Text()+p.Get("use").Text()+p.Get("pack").Text())
		en.optional(p, "title", "kind", "description", "instructions")
	},
}

func (en *entry) event(line, agent, quote string) {
	en.Form, en.Line, en.Quote = "event", t(line), clip(quote, maxTitle)
	if adp.IsAgentID(agent) {
		en.Agent = agent
	}
}

func (en *entry) target(tr *transcript, hash string) {
	r := tr.ref(hash)
	en.Target = &r
}

func session(line string) func(*transcript, *entry, adp.Value) {
	return func(_ *transcript, en *entry, p adp.Value) {
		en.event(line, "", p.Get("session_id").Text())
		en.optional(p, "media", "topology", "reason")
	}
}

// roleWord is a role that there is a word for.
func roleWord(role string) string {
	switch types.Role(role) {
	case types.Moderator, types.Speaker:
		return role
	}
	return string(types.Observer)
}
