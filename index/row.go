package index

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/witan-adp/witan/index/text"
)

// id names a room: a digest of its origin and its room ID.
type id [16]byte

func idOf(origin, roomID string) (out id) {
	h := sha256.New()
	h.Write([]byte(origin))
	h.Write([]byte{0})
	h.Write([]byte(roomID))
	var sum [sha256.Size]byte
	copy(out[:], h.Sum(sum[:0]))
	return out
}

// row is a Doc as the index keeps it: one string, from which parts are read when they
// are wanted. It never changes.
type row struct {
	id       id
	hash     uint64 // of the search text; never 0
	doc      string // see pack
	kinds    string // types, their titles and packs, which many rooms have in common
	folded   string // the search text where it is not doc in lower case
	keywords int32  // keyword sees search text[:keywords]
	noticed  int64  // when the newest of it came here, Unix ms; FoundAt before it is listed
}

// The order of the strings in a packed Doc. What the order of a list and the search
// read comes first.
const (
	atURL = iota
	atRoomID
	atTopic
	atAgenda
	atTags // joined by listEnd
	atGuidance
	atOrigin
	atGenesis
	atVisibility
	atLanguage
	atCreator
	atVerdict
	atState
	atReason
	atAttested
	atPolicy
	textParts
)

// listEnd ends each item of a list in a packed Doc; it is no UTF-8.
const listEnd = "\xfe"

func joined(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, listEnd) + listEnd
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s[:len(s)-len(listEnd)], listEnd)
}

// pack writes a Doc: sixteen strings, each behind its length, then the numbers.
func pack(d *Doc) string {
	parts := [textParts]string{atURL: d.URL, atRoomID: d.RoomID, atTopic: d.Topic, atAgenda: d.Agenda, atTags: joined(d.Tags), atGuidance: d.Guidance,
		atOrigin: d.Origin, atGenesis: d.Genesis, atVisibility: d.Visibility, atLanguage: d.Language, atCreator: d.Creator, atVerdict: d.Verdict,
		atState: d.State, atReason: d.Reason, atAttested: d.Attested, atPolicy: string(d.Policy)}
	size := 120
	for _, s := range parts {
		size += len(s) + 3
	}
	b := make([]byte, 0, size)
	for _, s := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, n := range []int64{d.StartTime, d.EndTime, d.CreatedAt, d.Members, d.Speakers, d.Records, d.LastActivity, d.Unverifiable, d.Withheld, d.SyncedAt, d.Attestations} {
		b = binary.AppendVarint(b, n)
	}
	var flags byte
	for i, on := range []bool{d.Closed, d.Cancelled, d.Own, d.MetadataOnly, d.Hidden, d.full} {
		if on {
			flags |= 1 << i
		}
	}
	return string(append(b, flags))
}

// next reads the string at the start of a packed text, and what is behind it.
func next(s string) (part, rest string) {
	n, size := uint64(0), 0
	for shift := 0; ; shift += 7 {
		c := s[size]
		size++
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			break
		}
	}
	return s[size : size+int(n)], s[size+int(n):]
}

// part is one of the strings.
func (r *row) part(at int) (s string) {
	rest := r.doc
	for range at + 1 {
		s, rest = next(rest)
	}
	return s
}

// unpack gives the Doc back. Its strings share memory with the row.
func (r *row) unpack() (d Doc) {
	rest := r.doc
	var tags, policy string
	for _, to := range [textParts]*string{&d.URL, &d.RoomID, &d.Topic, &d.Agenda, &tags, &d.Guidance, &d.Origin, &d.Genesis, &d.Visibility,
		&d.Language, &d.Creator, &d.Verdict, &d.State, &d.Reason, &d.Attested, &policy} {
		*to, rest = next(rest)
	}
	d.Tags = split(tags)
	if policy != "" {
		d.Policy = json.RawMessage(policy)
	}
	b := []byte(rest)
	for _, to := range []*int64{&d.StartTime, &d.EndTime, &d.CreatedAt, &d.Members, &d.Speakers, &d.Records, &d.LastActivity, &d.Unverifiable, &d.Withheld, &d.SyncedAt, &d.Attestations} {
		n, size := binary.Varint(b)
		*to, b = n, b[size:]
	}
	for i, to := range []*bool{&d.Closed, &d.Cancelled, &d.Own, &d.MetadataOnly, &d.Hidden, &d.full} {
		*to = b[0]&(1<<i) != 0
	}
	d.Types, d.Titles, d.Packs = splitKinds(r.kinds)
	return d
}

// kindsOf joins what rooms with the same packs have in common.
func kindsOf(d *Doc) string {
	if len(d.Types)+len(d.Packs) == 0 {
		return ""
	}
	return joined(d.Types) + text.Between + joined(d.Titles) + text.Between + joined(d.Packs)
}

func splitKinds(kinds string) (types, titles, packs []string) {
	if kinds == "" {
		return nil, nil, nil
	}
	t, rest, _ := strings.Cut(kinds, text.Between)
	n, p, _ := strings.Cut(rest, text.Between)
	return split(t), split(n), split(p)
}

func clean(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func cleanAll(list []string) []string {
	if !slices.ContainsFunc(list, func(s string) bool { return !utf8.ValidString(s) }) {
		return list
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = clean(s)
	}
	return out
}

// newRow makes a row of d. It takes the search text of the row that was there before
// when the words are the same, as they are when only a message came.
func newRow(d Doc, before *row) *row {
	if d.Hidden {
		d = Doc{Origin: d.Origin, RoomID: d.RoomID, Genesis: d.Genesis, URL: d.URL, Visibility: d.Visibility, Verdict: d.Verdict, State: d.State,
			Reason: d.Reason, Attested: d.Attested, Attestations: d.Attestations, Own: d.Own, Hidden: true}
	}
	if d.Attested == "" {
		d.Attested = attesteds[0]
	}
	if !json.Valid(d.Policy) { // it would spoil the whole list
		d.Policy = nil
	}
	d.full = d.takesNobody()
	d.Tags, d.Types, d.Titles, d.Packs = cleanAll(d.Tags), cleanAll(d.Types), cleanAll(d.Titles), cleanAll(d.Packs)
	r := &row{id: idOf(d.Origin, d.RoomID), doc: pack(&d), kinds: kindsOf(&d), noticed: d.FoundAt}
	if before != nil && before.kinds == r.kinds && before.words() == r.words() {
		r.hash, r.keywords, r.folded, r.kinds = before.hash, before.keywords, before.folded, before.kinds
		return r
	}
	folded, keywords, plain := searchText(&d)
	r.hash, r.keywords = hashText(folded), int32(keywords)
	if !plain {
		r.folded = folded
	}
	return r
}

// words is the beginning of a packed Doc, which has all that search text is made of.
func (r *row) words() string {
	rest := r.doc
	for range atGuidance + 1 {
		_, rest = next(rest)
	}
	return r.doc[:len(r.doc)-len(rest)]
}

// hashText tells search texts apart, also after a restart.
func hashText(s string) uint64 {
	sum := sha256.Sum256([]byte(s))
	return binary.BigEndian.Uint64(sum[:]) | 1
}

// creatorMark is a number for an Agent ID, the same for as long as the program runs.
func creatorMark(s string) uint64 { return maphash.String(seed, s) }

var seed = maphash.MakeSeed()

// searchText is what keyword sees (ADP §18: topic, agenda, tags), up to the length
// that is also returned, and behind it what only q sees. plain tells that it is the
// same without its case folded by Unicode's rules.
func searchText(d *Doc) (folded string, keywords int, plain bool) {
	var b strings.Builder
	plain = true
	add := func(s string) {
		plain = plain && isASCII(s)
		b.WriteString(text.Fold(s))
		b.WriteString(text.Between)
	}
	add(d.Topic)
	add(d.Agenda)
	for _, tag := range d.Tags {
		add(tag)
	}
	keywords = b.Len()
	add(d.Guidance)
	for _, title := range d.Titles {
		add(title)
	}
	return b.String(), keywords, plain
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// search is the search text of a row. It uses buf, and may be part of it: it is good
// until buf is used again.
func (r *row) search(buf *[]byte) (folded string) {
	if r.folded != "" {
		return r.folded
	}
	b := (*buf)[:0]
	add := func(s string) {
		b = appendLower(b, s)
		b = append(b, text.Between...)
	}
	rest := r.doc
	var s string
	for at := range atGuidance + 1 {
		switch s, rest = next(rest); at {
		case atTopic, atAgenda, atGuidance:
			add(s)
		case atTags:
			for tag := range strings.SplitSeq(strings.TrimSuffix(s, listEnd), listEnd) {
				if s != "" {
					add(tag)
				}
			}
		}
	}
	if r.kinds != "" {
		_, titles, _ := splitKinds(r.kinds)
		for _, title := range titles {
			add(title)
		}
	}
	*buf = b
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func appendLower(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}
