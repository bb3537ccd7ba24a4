package store

import (
	"bytes"
	"fmt"
	"time"
)

// MaxKey is the greatest length of a key in bytes.
const MaxKey = 60_000

// reservedByte begins the keys that the store keeps for itself.
const reservedByte = 0x00

// entryOverhead is what the engine adds to key and value in its own count of a transaction: version and flags.
const entryOverhead = 12

// engineReserved begins the keys that the engine keeps for itself.
var engineReserved = []byte("!badger!")

// A Batch is a set of writes that happens as a whole or not at all, and the conditions under which it may. The zero
// value is an empty batch. A Batch is not for concurrent use, and after Submit it and every slice given to it belong to the
// store: build a new one for the next write.
//
// Of several writes to one key the last one counts.
type Batch struct {
	writes []write
	checks []check
	size   int
	widest int   // length of the longest value
	bad    error // the first write that can never be stored
}

type write struct {
	key, value []byte
	expires    uint64 // unix seconds; 0 = never
	del        bool
}

type check struct {
	key, value []byte // an Expect when fn is nil
	fn         func(get getFunc) error
}

type getFunc = func(key []byte) ([]byte, bool, error)

// Put sets key to value. A nil value is stored as an empty one.
func (b *Batch) Put(key, value []byte) { b.add(write{key: key, value: value}) }

// PutTTL sets key to value until ttl from now has passed; then the key is absent for readers and for checks. The engine
// counts in whole seconds of the wall clock and the end is rounded up, so that a key never goes before its time and is
// gone less than a second after it. With a ttl of zero or less the key is deleted.
func (b *Batch) PutTTL(key, value []byte, ttl time.Duration) {
	if ttl <= 0 {
		b.Delete(key)
		return
	}
	end := time.Now().Add(ttl)
	at := end.Unix()
	if end.Nanosecond() > 0 {
		at++
	}
	b.add(write{key: key, value: value, expires: uint64(at)})
}

// Delete removes key. Deleting an absent key is not an error.
func (b *Batch) Delete(key []byte) { b.add(write{key: key, del: true}) }

func (b *Batch) add(w write) {
	if b.bad == nil {
		b.bad = keyError(w.key)
	}
	b.size += len(w.key) + len(w.value)
	b.widest = max(b.widest, len(w.value))
	b.writes = append(b.writes, w)
}

// Expect makes the batch fail with ErrConflict unless key holds exactly value when the batch's turn comes. A nil value means
// that the key must be absent; an empty value that is not nil means present and empty.
func (b *Batch) Expect(key, value []byte) { b.checks = append(b.checks, check{key: key, value: value}) }

// Check makes the batch fail with fn's error. fn runs in the committer goroutine just before the batch's writes, and get
// sees everything that was submitted and accepted before, also when it is not on the disk yet; values from get are the
// caller's own. While fn runs no other write proceeds, so it must be quick, must not block and must not call Commit.
// Conditions are tried in the order in which they were added.
func (b *Batch) Check(fn func(get func(key []byte) ([]byte, bool, error)) error) {
	b.checks = append(b.checks, check{fn: fn})
}

// Size is the sum of the lengths of all keys and values to be written, in bytes.
func (b *Batch) Size() int { return b.size }

// cost is what the batch takes of a transaction's limits.
func (b *Batch) cost() cost {
	return cost{bytes: int64(b.size + len(b.writes)*entryOverhead), entries: int64(len(b.writes))}
}

// verify tries the conditions against what get shows.
func (b *Batch) verify(get getFunc) error {
	for _, c := range b.checks {
		if c.fn != nil {
			if err := c.fn(get); err != nil {
				return err
			}
			continue
		}
		value, found, err := get(c.key)
		switch {
		case err != nil:
			return err
		case c.value == nil && found:
			return fmt.Errorf("%w: key %q exists and was expected to be absent", ErrConflict, c.key)
		case c.value != nil && !found:
			return fmt.Errorf("%w: key %q is absent and was expected to exist", ErrConflict, c.key)
		case c.value != nil && !bytes.Equal(value, c.value):
			return fmt.Errorf("%w: key %q has another value than expected", ErrConflict, c.key)
		}
	}
	return nil
}

func keyError(key []byte) error {
	switch {
	case len(key) == 0:
		return fmt.Errorf("%w: empty", ErrBadKey)
	case len(key) > MaxKey:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrBadKey, len(key), MaxKey)
	case key[0] == reservedByte || bytes.HasPrefix(key, engineReserved):
		return fmt.Errorf("%w: %q is of a range that the store keeps for itself", ErrBadKey, key)
	}
	return nil
}

type cost struct{ bytes, entries int64 }

func (c cost) plus(d cost) cost     { return cost{c.bytes + d.bytes, c.entries + d.entries} }
func (c cost) within(lim cost) bool { return c.bytes < lim.bytes && c.entries < lim.entries }
