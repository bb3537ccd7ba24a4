package index

import "strings"

// dict gives words that many rooms have in common short numbers, for columns. It
// counts who uses a word, and forgets one that nobody does; its number is not given to
// another word before every snapshot that may hold it is gone. 0 is no word.
type dict struct {
	of    map[string]*entry
	names []string // by number; "" is free
	free  []freed
}

type entry struct {
	number uint32
	users  int
	word   string // the one copy of it
}

type freed struct {
	number uint32
	at     int64 // Unix ms
}

// reuseAfter is longer than any snapshot is held, or any query takes, in ms.
const reuseAfter = snapshotAge + 5*60_000

func newDict() dict { return dict{of: map[string]*entry{}, names: []string{""}} }

// use takes one use of a word, and gives its number and the copy to keep.
func (d *dict) use(word string, now int64) (uint32, string) {
	if word == "" {
		return 0, ""
	}
	e, ok := d.of[word]
	if !ok {
		e = &entry{word: strings.Clone(word)} // it may be part of a row
		if len(d.free) > 0 && now-d.free[0].at > reuseAfter {
			e.number, d.free = d.free[0].number, d.free[1:]
			d.names[e.number] = e.word
		} else {
			e.number = uint32(len(d.names))
			d.names = append(d.names, e.word)
		}
		d.of[word] = e
	}
	e.users++
	return e.number, e.word
}

// leave gives one use back.
func (d *dict) leave(number uint32, now int64) {
	if number == 0 {
		return
	}
	e := d.of[d.names[number]]
	if e.users--; e.users == 0 {
		delete(d.of, e.word)
		d.names[number] = ""
		d.free = append(d.free, freed{number, now})
	}
}

// number is that of a word that is in use, else 0.
func (d *dict) number(word string) uint32 {
	if e, ok := d.of[word]; ok {
		return e.number
	}
	return 0
}
