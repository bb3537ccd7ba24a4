package store

import (
	"bytes"
	"errors"

	"github.com/dgraph-io/badger/v4"
)

// A Reader is a consistent snapshot. It is valid only inside the View that made it. Several goroutines may use it at once.
type Reader interface {
	// Get returns a copy that the caller owns, and whether the key is there.
	Get(key []byte) ([]byte, bool, error)

	// Scan calls fn for each key in [from, to) in order until fn returns false. A nil to means up to the end. key and value
	// are valid only in fn and must not be changed.
	Scan(from, to []byte, fn func(key, value []byte) bool) error

	// ScanReverse is Scan with the greatest key first. The range is the same: from is in, to is out.
	ScanReverse(from, to []byte, fn func(key, value []byte) bool) error

	// Keys is Scan without reading values.
	Keys(from, to []byte, fn func(key []byte) bool) error
}

// View calls fn with a snapshot of everything that was committed before the call. It returns fn's error. A snapshot
// keeps old versions alive, so fn should not wait for a slow peer; Close waits for fn.
func (s *Store) View(fn func(r Reader) error) error {
	if !s.enter() {
		return ErrClosed
	}
	defer s.leave()
	defer s.reading()()
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	return fn(reader{txn})
}

// Get reads one key from the present state: a copy that the caller owns, and whether the key is there.
func (s *Store) Get(key []byte) (value []byte, found bool, err error) {
	err = s.View(func(r Reader) error {
		value, found, err = r.Get(key)
		return err
	})
	return value, found, err
}

// PrefixEnd returns the least key that is greater than every key with the prefix, for use as the end of a range; nil, which
// means the end of all keys, if there is none.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

type reader struct{ txn *badger.Txn }

func (r reader) Get(key []byte) ([]byte, bool, error) {
	if len(key) == 0 {
		return nil, false, nil
	}
	item, err := r.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return nil, false, err
	}
	if value == nil {
		value = []byte{} // present and empty; nil would look like absent to a caller that forgets the flag
	}
	return value, true, nil
}

func (r reader) Scan(from, to []byte, fn func(key, value []byte) bool) error {
	return r.scan(from, to, false, func(item *badger.Item) (bool, error) { return withValue(item, fn) })
}

func (r reader) ScanReverse(from, to []byte, fn func(key, value []byte) bool) error {
	return r.scan(from, to, true, func(item *badger.Item) (bool, error) { return withValue(item, fn) })
}

func (r reader) Keys(from, to []byte, fn func(key []byte) bool) error {
	return r.scan(from, to, false, func(item *badger.Item) (bool, error) { return fn(item.Key()), nil })
}

func withValue(item *badger.Item, fn func(key, value []byte) bool) (more bool, err error) {
	err = item.Value(func(value []byte) error {
		more = fn(item.Key(), value)
		return nil
	})
	return more, err
}

func (r reader) scan(from, to []byte, reverse bool, fn func(*badger.Item) (bool, error)) error {
	if to != nil && bytes.Compare(from, to) >= 0 {
		return nil
	}
	opts := badger.DefaultIteratorOptions
	// Prefetching starts a goroutine for each item, which costs more than it saves when values lie beside their keys.
	opts.PrefetchValues = false
	opts.Reverse = reverse
	if to != nil {
		opts.Prefix = commonPrefix(from, to) // lets the engine leave out tables that cannot hold a key of the range
	}
	it := r.txn.NewIterator(opts)
	defer it.Close()

	switch {
	case !reverse:
		it.Seek(from)
	case to == nil:
		it.Rewind()
	default:
		it.Seek(to)
		if it.Valid() && bytes.Equal(it.Item().Key(), to) {
			it.Next()
		}
	}
	for ; it.Valid(); it.Next() {
		item := it.Item()
		key := item.Key()
		if reverse && bytes.Compare(key, from) < 0 || !reverse && to != nil && bytes.Compare(key, to) >= 0 {
			return nil
		}
		if key[0] == reservedByte {
			continue
		}
		more, err := fn(item)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func commonPrefix(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
