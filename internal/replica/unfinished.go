package replica

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/witan-adp/witan/internal/store"
)

// What takes many commits begins with one that names it. A start finds these names and
// goes on where a crash stopped the work.
const (
	metaForget = "forget/" // a replica of which there may be keys left
	metaDrop   = "drop/"   // a replica of which there may be dropped records left

	// metaExpunge: something is to be taken out of the files of the store. metaReclaim:
	// space is to be given back to the disk. The value is another one each time.
	metaExpunge = "expunge"
	metaReclaim = "reclaim"
)

// Unfinished counts what Open found half done, and finished.
type Unfinished struct {
	Forgotten, Dropped int // replicas
}

func unfinished(what string, id uint64) []byte { return store.Meta(what + strconv.FormatUint(id, 10)) }

// named lists the replicas of which some work is not finished.
func (s *Set) named(what string) (ids []uint64, err error) {
	var bad error
	err = s.st.View(func(rd store.Reader) error {
		from := store.Meta(what)
		from = from[:len(from)-2] // without the end of the string
		return rd.Scan(from, store.PrefixEnd(from), func(key, _ []byte) bool {
			name, err := store.ParseMeta(key)
			if err != nil {
				bad = err
				return false
			}
			id, err := strconv.ParseUint(name[len(what):], 10, 64)
			ids, bad = append(ids, id), err
			return bad == nil
		})
	})
	return ids, errors.Join(err, bad)
}

// finish goes on where a crash stopped what was begun, and reads the number of the
// next replica.
func (s *Set) finish() error {
	forgotten, err := s.named(metaForget)
	if err != nil {
		return err
	}
	for _, id := range forgotten {
		if err := s.sweep(id); err != nil {
			return fmt.Errorf("finish what was to be forgotten: %w", err)
		}
	}
	dropped, err := s.named(metaDrop)
	if err != nil {
		return err
	}
	for _, id := range dropped {
		var upTo int64
		if r, ok := s.ByID(id); ok {
			upTo = r.Row().Dropped
		}
		if err := s.sweepDropped(id, upTo); err != nil {
			return fmt.Errorf("finish what was to be dropped: %w", err)
		}
	}
	s.Finished = Unfinished{len(forgotten), len(dropped)}
	raw, ok, err := s.st.Get(store.Meta(metaNext))
	if err != nil || !ok {
		return err
	}
	next, err := strconv.ParseUint(string(raw), 10, 64)
	s.nextID = max(s.nextID, next)
	return err
}

// GiveBack takes out of the files of the store what was erased and forgotten, and tells
// whether there was any of that; else it gives the space back of what was dropped. It is
// work in proportion to the size of the store, and what a crash cuts off is done again.
func (s *Set) GiveBack() (expunged bool, err error) {
	reclaim := s.st.Reclaim
	if expunged, err = s.due(metaExpunge, s.st.Expunge); err != nil {
		return false, fmt.Errorf("what was erased or forgotten may still be in the files of the store: %w", err)
	}
	if expunged {
		reclaim = func() error { return nil } // it was the greater work
	}
	if _, err = s.due(metaReclaim, reclaim); err != nil {
		return expunged, fmt.Errorf("the space of what was dropped was not given back: %w", err)
	}
	return expunged, nil
}

// due does what a mark asks for, takes the mark away, and tells whether there was one.
func (s *Set) due(name string, work func() error) (did bool, err error) {
	key := store.Meta(name)
	mark, ok, err := s.st.Get(key)
	if err != nil || !ok {
		return false, err
	}
	if err := work(); err != nil {
		return false, err
	}
	var b store.Batch
	b.Expect(key, mark)
	b.Delete(key)
	if err := s.st.Commit(&b); err != nil && !errors.Is(err, store.ErrConflict) { // there is more since
		return true, err
	}
	return true, nil
}

// mark asks for what due does later.
func mark(b *store.Batch, name string) { b.Put(store.Meta(name), []byte(rand.Text())) }
