package tilelog

import (
	"bytes"
	"fmt"

	"github.com/witan-adp/witan/adp"
)

// maxRemoteTiles bounds the tiles that a Remote holds: 8 KiB each.
const maxRemoteTiles = 64

// Remote reads the tree under a checkpoint of somebody else's log, tile by tile.
// Whoever serves the tiles need not be trusted: a tile is used only once the path
// from the root of the checkpoint down to it has been recomputed.
type Remote struct {
	c     Checkpoint
	fetch func(Tile) ([]byte, error)
	edge  [maxLevel + 1][]byte // the tiles that are not full, by level
	full  map[Tile][]byte
}

// OpenRemote reads the right edge of the tree and checks that it amounts to the
// root. fetch gives the bytes of a tile of hashes; ErrFormat when they are not of
// this tree.
func OpenRemote(c Checkpoint, fetch func(Tile) ([]byte, error)) (*Remote, error) {
	r := &Remote{c: c, fetch: fetch, full: map[Tile][]byte{}}
	for level := range r.edge {
		count := c.Size >> (8 * level)
		if count%TileWidth == 0 {
			continue
		}
		t := Tile{Level: level, Index: count / TileWidth, Width: int(count % TileWidth)}
		var err error
		if r.edge[level], err = r.get(t); err != nil {
			return nil, err
		}
	}
	root, err := adp.ReadRoot(r.peak, c.Size)
	if err != nil {
		return nil, err
	}
	if root != c.Root {
		return nil, malformed("the tiles at the edge of the log do not amount to the root of its checkpoint")
	}
	return r, nil
}

// Checkpoint is the one that the tree is under.
func (r *Remote) Checkpoint() Checkpoint { return r.c }

func (r *Remote) get(t Tile) ([]byte, error) {
	b, err := r.fetch(t)
	if err != nil {
		return nil, err
	}
	if len(b) != t.Width*32 {
		return nil, malformed("%s has %d bytes, not %d", t.Path(), len(b), t.Width*32)
	}
	return b, nil
}

// peak reads one of the perfect subtrees that a tree of this size is made of: all
// of them stand in the tiles at the edge.
func (r *Remote) peak(level uint, index uint64) (out [32]byte, err error) {
	t, at, n := place(level, index)
	if (at+n)*32 > len(r.edge[t.Level]) {
		return out, malformed("no such subtree at the edge")
	}
	return adp.SubtreeRoot(r.edge[t.Level][at*32 : (at+n)*32])
}

// tile gives a proven tile.
func (r *Remote) tile(level int, index uint64) ([]byte, error) {
	count := r.c.Size >> (8 * level)
	if index == count/TileWidth {
		return r.edge[level], nil // proven when it was opened; empty when there is none
	}
	t := Tile{Level: level, Index: index, Width: TileWidth}
	if level >= maxLevel || !t.within(r.c.Size) {
		return nil, ErrNotThere
	}
	if b := r.full[t]; b != nil {
		return b, nil
	}
	above, err := r.tile(level+1, index/TileWidth)
	if err != nil {
		return nil, err
	}
	b, err := r.get(t)
	if err != nil {
		return nil, err
	}
	root, err := adp.SubtreeRoot(b)
	if err != nil {
		return nil, err
	}
	if at := int(index%TileWidth) * 32; at+32 > len(above) || !bytes.Equal(above[at:at+32], root[:]) {
		return nil, malformed("%s is not of this tree", t.Path())
	}
	if len(r.full) >= maxRemoteTiles {
		clear(r.full)
	}
	r.full[t] = b
	return b, nil
}

// Node is an adp.NodeReader over the tree.
func (r *Remote) Node(level uint, index uint64) (out [32]byte, err error) {
	t, at, n := place(level, index)
	b, err := r.tile(t.Level, t.Index)
	if err != nil {
		return out, err
	}
	if (at+n)*32 > len(b) {
		return out, ErrNotThere
	}
	return adp.SubtreeRoot(b[at*32 : (at+n)*32])
}

// Entries takes the bytes of a bundle apart; they must be what the tree has there.
func (r *Remote) Entries(t Tile, bundle []byte) ([][]byte, error) {
	entries, err := ParseBundle(bundle, t.Width)
	if err != nil {
		return nil, err
	}
	hashes := make([]byte, 0, t.Width*32)
	for _, e := range entries {
		h := adp.LeafHash(e)
		hashes = append(hashes, h[:]...)
	}
	if !t.within(r.c.Size) || !t.Entries {
		return nil, ErrNotThere
	}
	same := false
	if t.Width == TileWidth {
		want, err := r.Node(8, t.Index)
		if err != nil {
			return nil, err
		}
		got, err := adp.SubtreeRoot(hashes)
		if err != nil {
			return nil, err
		}
		same = got == want
	} else {
		want, err := r.tile(0, t.Index)
		if err != nil {
			return nil, err
		}
		same = len(want) >= len(hashes) && bytes.Equal(want[:len(hashes)], hashes)
	}
	if !same {
		return nil, malformed("the entries of %s are not those of this tree", t.Path())
	}
	return entries, nil
}

// Difference is the first leaf at which two trees of at least size leaves are not
// the same; ok is false when their first size leaves are.
func Difference(a, b adp.NodeReader, size uint64) (index uint64, ok bool, err error) {
	equal := func(level uint, index uint64) (bool, error) {
		x, err := a(level, index)
		if err != nil {
			return false, err
		}
		y, err := b(level, index)
		return x == y, err
	}
	done := uint64(0)
	for level := 63; level >= 0; level-- {
		if size>>level&1 == 0 {
			continue
		}
		at := done >> level
		done += 1 << level
		same, err := equal(uint(level), at)
		if err != nil {
			return 0, false, err
		}
		if same {
			continue
		}
		for l := level; l > 0; l-- {
			at *= 2
			if same, err = equal(uint(l-1), at); err != nil {
				return 0, false, err
			}
			if same {
				at++
			}
		}
		// both children of a node may not be as they were given above it: then the reader is not of one tree
		if same, err = equal(0, at); err != nil || same {
			return 0, false, fmt.Errorf("tilelog: the hashes of a tree do not fit together: %w", err)
		}
		return at, true, nil
	}
	return 0, false, nil
}
