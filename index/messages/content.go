package messages

import (
	"strconv"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/index/text"
)

// maxText is how much of a message is searched, in bytes.
const maxText = 32 << 10

// message is a record that says something.
type message struct {
	key
	typ, author, hash string // hash of the record
	text              string
}

// read gives what a record says; ok is false when that is nothing: it is withheld, or
// is no event of an agent that has words.
func read(id uint64, raw []byte) (m message, ok bool, err error) {
	v, err := adp.ScanDepth(raw, adp.RecordDepth)
	if err != nil {
		return m, false, err
	}
	rec, err := adp.ParseServed(v)
	if err != nil {
		return m, false, err
	}
	e := rec.Envelope
	if rec.Redacted || !room.CanBeWithheld(e.Type) { // what cannot be withheld is not what agents say
		return m, false, nil
	}
	m = message{key{rec.ReceivedAt, id, rec.Seq}, e.Type, string(e.Actor), rec.Hash, ""}
	var b strings.Builder
	if e.Type == room.Message {
		words(&b, e.Payload.Get("content"))
	} else {
		words(&b, e.Payload)
	}
	m.text = b.String()
	return m, m.text != "", nil
}

// words collects the texts of a payload, one below the other, up to maxText. Hashes and
// names of agents are no words.
func words(b *strings.Builder, v adp.Value) {
	switch v.Kind() {
	case adp.String:
		s := v.Text()
		if b.Len() >= maxText || strings.TrimSpace(s) == "" || adp.IsHash(s) || adp.IsAgentID(s) {
			return
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if room := maxText - b.Len(); len(s) > room {
			s = strings.ToValidUTF8(s[:max(room, 0)], "")
		}
		b.WriteString(s)
	case adp.Object:
		for _, m := range v.Members() {
			words(b, m)
		}
	case adp.Array:
		for m := range v.Elements() {
			words(b, m)
		}
	}
}

// Beside its words, a message has terms for what it can be filtered by. No word holds a
// colon.
func roomTerm(id uint64) string       { return "r:" + strconv.FormatUint(id, 36) }
func hostTerm(origin string) string   { return "h:" + origin }
func authorTerm(author string) string { return "a:" + author }

// Days and hours are terms that sort by time, so that the newest of many can be found.
const (
	day  = 24 * 60 * 60 * 1000 // ms
	hour = day / 24
)

func timeTerm(prefix string, n int64) string {
	s := strconv.FormatInt(n, 10)
	return prefix + strings.Repeat("0", max(0, 16-len(s))) + s
}

func dayTerm(at int64) string  { return timeTerm("d:", at/day) }
func hourTerm(at int64) string { return timeTerm("t:", at/hour) }

func (m *message) document(origin string) text.Document {
	return text.Document{ID: m.key.String(), Terms: append(text.Terms(text.Fold(m.text)),
		roomTerm(m.room), hostTerm(origin), authorTerm(m.author), dayTerm(m.at), hourTerm(m.at))}
}
