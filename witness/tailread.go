package witness

import (
	"errors"
	"fmt"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// grow reads the entries behind the first size of them.
func (r *round) grow(size uint64, held []byte) (uint64, error) {
	tree, err := r.open()
	if err != nil {
		return size, err
	}
	if held != nil {
		if err := r.follows(tree, size, held); err != nil {
			return size, err
		}
	}
	for n := 0; n < tailBundles && size < r.c.Size; n++ {
		if size >= maxTail {
			return size, ErrLogFull
		}
		b := tilelog.Tile{Entries: true, Index: size / tilelog.TileWidth}
		b.Width = int(min(tilelog.TileWidth, r.c.Size-b.Index*tilelog.TileWidth))
		raw, err := r.bundle(b)
		if err != nil {
			return size, err
		}
		entries, err := tree.Entries(b, raw)
		if err != nil {
			return size, r.broken(err)
		}
		if err := r.take(size, entries[size%tilelog.TileWidth:]); err != nil {
			return size, err
		}
		_, size, _ = r.t.copy.Head()
	}
	return size, nil
}

// follows tells whether the tree has grown from what was read, and from the
// checkpoint by which that was read.
func (r *round) follows(tree *tilelog.Remote, size uint64, held []byte) error {
	differs := false
	err := r.t.copy.Read(func(_ uint64, node adp.NodeReader) (err error) {
		_, differs, err = tilelog.Difference(node, tree.Node, size)
		return err
	})
	if err != nil {
		return r.broken(err)
	}
	if differs {
		proofs, err := r.w.confronted(r.t, r.key, tree, r.note)
		return r.forked(held, proofs, err)
	}
	was, err := tilelog.PeekCheckpoint(held)
	if err != nil {
		return err
	}
	root, err := adp.ReadRoot(tree.Node, was.Size)
	if err != nil {
		return r.broken(err)
	}
	if root != was.Root { // of which not all was read: there are no leaves to show
		return r.forked(held, nil, errNoLeaves)
	}
	return nil
}

// errUnprovable: a log was seen to fork, and nothing at hand proves it to others.
var (
	errUnprovable = errors.New("witness: the fork of a log cannot be proven")
	errNoLeaves   = fmt.Errorf("%w: not all of it was read when it changed, so that there is nothing to show where", errUnprovable)
)

// open reads the tree under the checkpoint.
func (r *round) open() (*tilelog.Remote, error) {
	tree, err := tilelog.OpenRemote(r.c, func(t tilelog.Tile) ([]byte, error) {
		b, err := r.read(t.Path(), int64(t.Width)*tileHashBytes)
		if errors.Is(err, ErrNotThere) && t.Width < tilelog.TileWidth { // a log need not keep partial tiles (tlog-tiles)
			t, width := tilelog.Tile{Level: t.Level, Index: t.Index, Width: tilelog.TileWidth}, t.Width
			b, err = r.read(t.Path(), tilelog.TileWidth*tileHashBytes)
			return b[:min(len(b), width*tileHashBytes)], err
		}
		return b, err
	})
	if err != nil {
		return nil, r.broken(err)
	}
	return tree, nil
}

// bundle reads entries.
func (r *round) bundle(t tilelog.Tile) ([]byte, error) {
	b, err := r.read(t.Path(), bundleMost)
	if !errors.Is(err, ErrNotThere) || t.Width == tilelog.TileWidth {
		return b, err
	}
	full := t
	full.Width = tilelog.TileWidth
	if b, err = r.read(full.Path(), bundleMost); err != nil {
		return nil, err
	}
	entries, err := tilelog.ParseBundle(b, full.Width)
	if err != nil {
		return nil, r.broken(err)
	}
	b = nil
	for _, e := range entries[:t.Width] {
		if b, err = tilelog.AppendEntry(b, e); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// take keeps what entries say, as if a peer had sent them, and then that they were
// read: after a crash in between they are read again, and known.
func (r *round) take(first uint64, entries [][]byte) error {
	w := r.w
	var batch []parsed
	size := 0
	flush := func() error {
		err := w.keep(batch)
		batch, size = nil, 0
		return err
	}
	read := make([]tilelog.Entry, len(entries))
	for i, raw := range entries {
		read[i] = tilelog.Entry{Data: raw}
		verdict, p := w.judge(slices.Clone(raw))
		w.metrics.judged.WithLabelValues(verdict.String()).Inc()
		if verdict == Reject {
			if err := r.odd(first+uint64(i), raw); err != nil {
				return err
			}
			continue
		}
		if e, err := parseEnvelope(raw); err == nil && e.CheckHash() == nil {
			read[i].Name = e.Hash
		}
		if verdict == Accept {
			batch = append(batch, p)
			if size += len(raw); len(batch) == tailCommit || size > tailBytes {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return r.commit(read)
}

// commit notes that entries were read, under the checkpoint of this round.
func (r *round) commit(entries []tilelog.Entry) error {
	w := r.w
	w.write.Lock()
	defer w.write.Unlock()
	var b store.Batch
	pending, err := r.t.copy.Extend(&b, r.generation, r.note, entries...)
	if err != nil {
		return err
	}
	if err := w.put(&b); err != nil {
		// it may be on the disk all the same: the next round reads what is there
		w.tails.mu.Lock()
		delete(w.tails.of, r.t.origin)
		w.tails.mu.Unlock()
		return fmt.Errorf("witness: keep how far a log was read: %w", err)
	}
	r.t.copy.Publish(pending)
	return nil
}
