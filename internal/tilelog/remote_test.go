package tilelog

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/adp"
)

// treeOf is a tree with as many leaves, the ones from an index on being others.
func treeOf(size, from uint64, salt string) (adp.NodeReader, func(Tile) ([]byte, error), Checkpoint) {
	leaf := func(i uint64) [32]byte {
		if i < from {
			return adp.LeafHash(fmt.Append(nil, i))
		}
		return adp.LeafHash(fmt.Append(nil, salt, i))
	}
	known := map[[2]uint64][32]byte{}
	var node adp.NodeReader
	node = func(level uint, index uint64) (out [32]byte, err error) {
		if level == 0 {
			return leaf(index), nil
		}
		at := [2]uint64{uint64(level), index}
		if h, ok := known[at]; ok {
			return h, nil
		}
		a, _ := node(level-1, 2*index)
		b, _ := node(level-1, 2*index+1)
		out, err = adp.SubtreeRoot(append(a[:], b[:]...))
		known[at] = out
		return out, err
	}
	root, err := adp.ReadRoot(node, size)
	if err != nil {
		panic(err)
	}
	return node, func(t Tile) (b []byte, err error) {
		if !t.within(size) {
			return nil, ErrNotThere
		}
		for i := range uint64(t.Width) {
			h, err := node(uint(8*t.Level), t.Index*TileWidth+i)
			if err != nil {
				return nil, err
			}
			b = append(b, h[:]...)
		}
		return b, nil
	}, Checkpoint{"log.example/x", size, root}
}

// Whatever the two sizes are, the first leaf that differs is found, and proofs that
// are made from tiles hold.
func TestRemoteFindsTheDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(1, 2000)
		m, n := size.Draw(t, "m"), size.Draw(t, "n")
		from := rapid.Uint64Range(0, 2000).Draw(t, "from")
		one, _, _ := treeOf(m, from, "one")
		_, tiles, c := treeOf(n, from, "two")
		r, err := OpenRemote(c, tiles)
		if err != nil {
			t.Fatal(err)
		}
		least := min(m, n)
		index, differs, err := Difference(one, r.Node, least)
		if err != nil || differs != (from < least) || differs && index != from {
			t.Fatalf("%d of %d and %d: %d, %v, %v", from, m, n, index, differs, err)
		}
		if i := min(from, n-1); true {
			hashes, err := adp.ProveInclusion(r.Node, i, n)
			if err != nil {
				t.Fatal(err)
			}
			leaf, _ := r.Node(0, i)
			if len(hashes) > 63 || leaf == [32]byte{} {
				t.Fatal(hashes)
			}
		}
		hashes, err := adp.ProveConsistency(r.Node, least, n)
		if err != nil {
			t.Fatal(err)
		}
		root, err := adp.ReadRoot(r.Node, least)
		if err != nil {
			t.Fatal(err)
		}
		if err := adp.VerifyConsistency(least, n, hashes, root, c.Root); err != nil {
			t.Fatal(err)
		}
	})
}

// One flipped bit in any tile is seen before anything of it is used.
func TestRemoteTrustsNoTile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 1500).Draw(t, "n")
		want, tiles, c := treeOf(n, n, "")
		index := rapid.Uint64Range(0, n-1).Draw(t, "leaf")
		bad, bit := rapid.IntRange(0, 8).Draw(t, "request"), rapid.IntRange(0, 255).Draw(t, "bit")
		asked := 0
		r, err := OpenRemote(c, func(t Tile) ([]byte, error) {
			b, err := tiles(t)
			if asked++; err == nil && asked-1 == bad {
				at := int(index) % (len(b) / 32) * 32
				b[at+bit/8] ^= 1 << (bit % 8)
			}
			return b, err
		})
		var got [32]byte
		if err == nil {
			got, err = r.Node(0, index)
		}
		if asked > bad {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("a flipped bit in request %d of %d is taken: %v", bad, asked, err)
			}
			return
		}
		leaf, _ := want(0, index)
		if err != nil || got != leaf {
			t.Fatal(err)
		}
	})
}

func FuzzRemote(f *testing.F) {
	f.Add(uint64(1), uint64(0), []byte("tile"))
	f.Add(uint64(300), uint64(299), make([]byte, 8192))
	f.Add(uint64(1)<<62, uint64(1)<<61, make([]byte, 8192))
	f.Fuzz(func(t *testing.T, size, index uint64, tile []byte) {
		c := Checkpoint{Origin: "log.example/x", Size: size >> 1, Root: adp.LeafHash(tile)}
		r, err := OpenRemote(c, func(x Tile) ([]byte, error) {
			if !x.within(c.Size) {
				t.Errorf("asked for %s of a log of %d", x.Path(), c.Size)
			}
			return tile[:min(len(tile), x.Width*32)], nil
		})
		if err != nil {
			return
		}
		if h, err := r.Node(0, index); err == nil && c.Size > 1 {
			t.Errorf("made up: %x", h)
		}
	})
}
