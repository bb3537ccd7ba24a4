package store

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// The format of a backup, which knows nothing of the engine:
//
//	backupMagic
//	entry*      uvarint key length (≥ 1), uvarint value length, uvarint expiry (unix seconds, 0 = never), key, value
//	end         uvarint 0, uvarint count of entries, SHA-256 of everything before the sum
//
// The end makes a stream that was cut, at whatever place, different from a whole one.
const backupMagic = "witan-store-backup 1\n"

// maxBackupValue bounds what a damaged length can make Restore allocate. It is above the transaction limit.
const maxBackupValue = 64 << 20

// restoring is there while a restore is under way, so that a store of which the restore was interrupted is not taken for a
// whole one.
var restoring = []byte{reservedByte, 'r'}

// Backup writes a consistent snapshot of all keys to w. Writes go on meanwhile.
func (s *Store) Backup(w io.Writer) error {
	return s.View(func(r Reader) error {
		sum := sha256.New()
		buf := bufio.NewWriterSize(w, 256<<10)
		out := io.MultiWriter(buf, sum)
		if _, err := io.WriteString(out, backupMagic); err != nil {
			return err
		}
		var count uint64
		var head, value []byte
		err := r.(reader).scan(nil, nil, false, func(item *badger.Item) (bool, error) {
			var err error
			if value, err = item.ValueCopy(value); err != nil {
				return false, err
			}
			key := item.Key()
			head = binary.AppendUvarint(head[:0], uint64(len(key)))
			head = binary.AppendUvarint(head, uint64(len(value)))
			head = binary.AppendUvarint(head, item.ExpiresAt())
			for _, part := range [][]byte{head, key, value} {
				if _, err := out.Write(part); err != nil {
					return false, err
				}
			}
			count++
			return true, nil
		})
		if err != nil {
			return fmt.Errorf("store: backup: %w", err)
		}
		head = binary.AppendUvarint(head[:0], 0)
		head = binary.AppendUvarint(head, count)
		if _, err := out.Write(head); err != nil {
			return err
		}
		if _, err := buf.Write(sum.Sum(nil)); err != nil {
			return err
		}
		return buf.Flush()
	})
}

// Restore loads a backup into this store, which must be empty (ErrNotEmpty). A backup that is cut or damaged is refused with
// ErrBadBackup and leaves the store empty. Batches that are submitted meanwhile wait until it is done. If the process dies on
// the way, the store does not open again until its folder is removed.
func (s *Store) Restore(r io.Reader) error {
	if !s.enter() {
		return ErrClosed
	}
	defer s.leave()
	s.writeMu.Lock()
	defer s.writeMu.Unlock()

	if cause := s.failure(); cause != nil {
		return fmt.Errorf("%w (%v)", ErrFailed, cause)
	}
	if first, err := s.someKeys(1); err != nil {
		return err
	} else if len(first) > 0 {
		return ErrNotEmpty
	}
	if err := s.apply([]write{{key: restoring}}, 0); err != nil {
		return err
	}
	if err := s.load(r); err != nil {
		if wipeErr := s.wipe(); wipeErr != nil {
			s.fail(wipeErr)
			return errors.Join(err, fmt.Errorf("store: empty the store after a failed restore: %w", wipeErr))
		}
		return err
	}
	return s.apply([]write{{key: restoring, del: true}}, 0)
}

// wipe deletes all keys, the mark of a restore last. The engine has a faster way, which does not bear readers beside it.
func (s *Store) wipe() error {
	for {
		keys, err := s.someKeys(10_000)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return s.apply([]write{{key: restoring, del: true}}, 0)
		}
		var writes []write
		var sum cost
		for _, key := range keys {
			c := cost{bytes: int64(len(key) + entryOverhead), entries: 1}
			if sum = sum.plus(c); !sum.within(s.limit) {
				break
			}
			writes = append(writes, write{key: key, del: true})
		}
		if err := s.apply(writes, sum.bytes); err != nil {
			return err
		}
	}
}

// someKeys returns the first keys of the store, at most n. Unlike View it works while Close waits for Restore.
func (s *Store) someKeys(n int) (keys [][]byte, err error) {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	err = reader{txn}.Keys(nil, nil, func(key []byte) bool {
		keys = append(keys, bytes.Clone(key))
		return len(keys) < n
	})
	return keys, err
}

func (s *Store) refuseUnfinishedRestore() error {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	_, found, err := reader{txn}.Get(restoring)
	if err == nil && found {
		return fmt.Errorf("store: %s holds a restore that was interrupted; remove the folder and restore again", s.dir)
	}
	return err
}

// load reads the stream and writes its entries, in transactions as large as they may be.
func (s *Store) load(r io.Reader) error {
	in := &summedReader{in: bufio.NewReaderSize(r, 256<<10), sum: sha256.New()}
	magic := make([]byte, len(backupMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != backupMagic {
		return fmt.Errorf("%w: the stream does not begin as a backup", ErrBadBackup)
	}
	var (
		count  uint64
		last   []byte
		writes []write
		sum    cost
	)
	for {
		w, end, err := in.entry()
		if err != nil {
			return err
		}
		if end {
			break
		}
		if bytes.Compare(w.key, last) <= 0 {
			return fmt.Errorf("%w: entry %d is out of order", ErrBadBackup, count)
		}
		last = w.key
		if s.inMemory && len(w.value) > maxInMemoryValue {
			return fmt.Errorf("%w: a value of %d bytes; in memory, %d is the limit", ErrTooBig, len(w.value), maxInMemoryValue)
		}
		count++
		if w.expires != 0 && w.expires <= uint64(time.Now().Unix()) {
			continue
		}
		c := cost{bytes: int64(len(w.key) + len(w.value) + entryOverhead), entries: 1}
		if !c.within(s.limit) {
			return fmt.Errorf("%w: an entry of %d bytes", ErrBadBackup, c.bytes)
		}
		if !sum.plus(c).within(s.limit) {
			if err := s.apply(writes, sum.bytes); err != nil {
				return err
			}
			writes, sum = nil, cost{}
		}
		writes, sum = append(writes, w), sum.plus(c)
	}
	if err := in.verifyEnd(count); err != nil {
		return err
	}
	return s.apply(writes, sum.bytes)
}

// apply writes outside of the committer; the caller holds writeMu.
func (s *Store) apply(writes []write, size int64) error {
	if err := s.roomFor(size); err != nil {
		return err
	}
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	for _, w := range writes {
		if err := put(txn, w); err != nil {
			return fmt.Errorf("store: restore: %w", err)
		}
	}
	err := s.commitTxn(txn)
	if err == nil {
		err = s.log.syncFailure()
	}
	if err != nil {
		s.fail(err)
		return fmt.Errorf("%w (%w)", ErrFailed, err)
	}
	return nil
}

// summedReader reads a backup and keeps the sum of what was read.
type summedReader struct {
	in  *bufio.Reader
	sum hash.Hash
	one [1]byte
	err error // of in, when ReadByte met one
}

func (r *summedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.sum.Write(p[:n])
	return n, err
}

func (r *summedReader) ReadByte() (byte, error) {
	b, err := r.in.ReadByte()
	r.err = err
	if err == nil {
		r.one[0] = b
		r.sum.Write(r.one[:])
	}
	return b, err
}

func (r *summedReader) number() (uint64, error) {
	n, err := binary.ReadUvarint(r)
	switch {
	case err == nil:
		return n, nil
	case r.err == nil:
		return 0, fmt.Errorf("%w: a number is damaged", ErrBadBackup)
	}
	return 0, cut(err)
}

func (r *summedReader) entry() (w write, end bool, err error) {
	var klen, vlen uint64
	if klen, err = r.number(); err != nil || klen == 0 {
		return w, err == nil, err
	}
	if vlen, err = r.number(); err != nil {
		return w, false, err
	}
	if w.expires, err = r.number(); err != nil {
		return w, false, err
	}
	if klen > MaxKey || vlen > maxBackupValue {
		return w, false, fmt.Errorf("%w: an entry of %d + %d bytes", ErrBadBackup, klen, vlen)
	}
	both := make([]byte, klen+vlen)
	if _, err := io.ReadFull(r, both); err != nil {
		return w, false, cut(err)
	}
	w.key, w.value = both[:klen:klen], both[klen:]
	if err := keyError(w.key); err != nil {
		return w, false, fmt.Errorf("%w: %w", ErrBadBackup, err)
	}
	return w, false, nil
}

func (r *summedReader) verifyEnd(count uint64) error {
	said, err := r.number()
	if err != nil {
		return err
	}
	if said != count {
		return fmt.Errorf("%w: %d entries, its end says %d", ErrBadBackup, count, said)
	}
	want := r.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r.in, got); err != nil {
		return cut(err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: the checksum is wrong", ErrBadBackup)
	}
	switch _, err := r.in.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: bytes after its end", ErrBadBackup)
	case err != io.EOF:
		return fmt.Errorf("store: restore: %w", err)
	}
	return nil
}

// cut turns the end of the stream in the middle of something into ErrBadBackup; other read errors stay what they are.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", ErrBadBackup)
	}
	return fmt.Errorf("store: restore: %w", err)
}
