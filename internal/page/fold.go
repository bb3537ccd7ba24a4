package page

import (
	"fmt"

	"github.com/witan-adp/witan/adp"
)

// Bounds of one page of a transcript.
const (
	pageRecords = 100
	pageBytes   = 512 << 10
	aheadMost   = 2000 // records behind the page that are looked through for reactions and votes
	aheadBytes  = 1 << 20
	liveMost    = 400 // records that a page grows to while it is read
)

// Bounds of what is folded into one record.
const (
	maxWords  = 24 // different reactions
	maxNamed  = 12 // agents that are named for each
	maxVoters = 5000
)

// reaction is a word, and who reacted with it.
type reaction struct {
	Word  string
	N     int
	Who   []string // at most maxNamed
	known map[string]bool
}

// poll is a poll with its votes as far as they were counted.
type poll struct {
	Options  []option
	ClosesAt int64
	Most     int // options that one may choose
	Voters   int
	Counted  int64 // up to this seq
	Complete bool  // that is all there are
	votes    map[string][]string
}

type option struct {
	ID, Label, About string
	N                int
	Share            int // of the voters, per cent
}

func newPoll(p adp.Value) *poll {
	out := &poll{Most: 1, votes: map[string][]string{}}
	out.ClosesAt, _ = p.Get("closes_at").Int()
	if n, ok := p.Get("max_choices").Int(); ok {
		out.Most = int(min(n, maxItems))
	}
	for o := range p.Get("options").Elements() {
		if len(out.Options) < maxItems {
			out.Options = append(out.Options, option{ID: o.Get("id").Text(), Label: o.Get("label").Text(), About: o.Get("description").Text()})
		}
	}
	return out
}

// vote takes a vote. The latest of an agent replaces those before; one after the
// end, or for something that is no option, is none (ADP, appendix A.2).
func (p *poll) vote(actor string, at int64, ids adp.Value) {
	if p.ClosesAt > 0 && at > p.ClosesAt || len(p.votes) >= maxVoters && p.votes[actor] == nil {
		return
	}
	var chosen []string
	for id := range ids.Elements() {
		name := id.Text()
		for _, o := range p.Options {
			if o.ID == name && len(chosen) < p.Most {
				chosen = append(chosen, name)
				break
			}
		}
	}
	if len(chosen) > 0 {
		p.votes[actor] = chosen
	}
}

// count adds the votes up.
func (p *poll) count(to int64, complete bool) {
	p.Voters, p.Counted, p.Complete = len(p.votes), to, complete
	for i := range p.Options {
		o := &p.Options[i]
		o.N = 0
		for _, ids := range p.votes {
			for _, id := range ids {
				if id == o.ID {
					o.N++
				}
			}
		}
		if p.Voters > 0 {
			o.Share = (o.N*100 + p.Voters/2) / p.Voters
		}
	}
}

// react takes a reaction, each word of an agent once.
func (en *entry) react(actor, word string) {
	word = clip(oneLine(word), 64)
	for i := range en.Notes {
		if r := &en.Notes[i]; r.Word == word {
			if !r.known[actor] && len(r.known) < maxVoters {
				r.known[actor] = true
				if r.N++; len(r.Who) < maxNamed {
					r.Who = append(r.Who, actor)
				}
			}
			return
		}
	}
	if len(en.Notes) < maxWords {
		en.Notes = append(en.Notes, reaction{Word: word, N: 1, Who: []string{actor}, known: map[string]bool{actor: true}})
	}
}

// fold puts a reaction or a vote into the record that it is about, when that one
// stands on the page. seen is what the reader has already.
func (tr *transcript) fold(typ, actor string, seq, at int64, payload adp.Value, seen int64) bool {
	var target string
	switch typ {
	case "reaction.create":
		target = payload.Get("event_id").Text()
	case "poll.vote":
		target = payload.Get("poll_event_id").Text()
	default:
		return false
	}
	en, ok := tr.here[target]
	if !ok || en.Seq >= seq || typ == "poll.vote" && en.Poll == nil {
		return false
	}
	if typ == "poll.vote" {
		en.Poll.vote(actor, at, payload.Get("option_ids"))
	} else {
		en.react(actor, payload.Get("reaction").Text())
	}
	en.touched = en.touched || seq > seen
	return true
}

// read makes the entries of a page: those behind a seq, with the reactions and
// votes about them folded in, also from records behind the page, as far as that is
// bounded. seen is what the reader has already.
func (tr *transcript) read(after int64, limit int, seen int64) ([]*entry, error) {
	raws, err := tr.room.Records.Read(after, limit, pageBytes)
	if err != nil {
		return nil, err
	}
	tr.first, tr.last = after+1, after+int64(len(raws))
	var entries []*entry
	for _, raw := range raws {
		rec, err := parse(raw)
		if err != nil {
			return nil, err
		}
		e := rec.Envelope
		if !rec.Redacted && tr.fold(e.Type, string(e.Actor), rec.Seq, rec.ReceivedAt, e.Payload, seen) {
			continue
		}
		entries = append(entries, tr.entry(rec))
	}
	counted := tr.last
	if tr.last < tr.room.Seq && len(raws) > 0 {
		if counted, err = tr.ahead(seen); err != nil {
			return nil, err
		}
	}
	for _, en := range entries {
		if en.Poll != nil {
			en.Poll.count(counted, counted >= tr.room.Seq)
		}
	}
	return entries, nil
}

func parse(raw []byte) (*adp.Record, error) {
	v, err := adp.ScanDepth(raw, adp.RecordDepth)
	if err != nil {
		return nil, err
	}
	return adp.ParseServed(v)
}

// ahead looks through the records behind the page, and tells how far.
func (tr *transcript) ahead(seen int64) (counted int64, err error) {
	raws, err := tr.room.Records.Read(tr.last, aheadMost, aheadBytes)
	if err != nil {
		return 0, err
	}
	for i, raw := range raws {
		v, err := adp.ScanDepth(raw, adp.RecordDepth)
		if err != nil {
			return 0, fmt.Errorf("record %d: %w", tr.last+int64(i)+1, err)
		}
		event := v.Get("envelope").Get("event")
		if typ := event.Get("type").Text(); typ == "reaction.create" || typ == "poll.vote" {
			seq, _ := v.Get("seq").Int()
			at, _ := v.Get("received_at").Int()
			tr.fold(typ, event.Get("actor").Text(), seq, at, event.Get("payload"), seen)
		}
	}
	return tr.last + int64(len(raws)), nil
}
