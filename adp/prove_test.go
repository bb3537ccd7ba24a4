package adp

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// grown is a tree with every perfect subtree that appending told of.
type grown struct {
	tree   Tree
	leaves [][32]byte
	roots  [][32]byte // by size
	nodes  map[[2]uint64][32]byte
	reads  int
}

func grow(n int) *grown {
	g := &grown{nodes: map[[2]uint64][32]byte{}, roots: [][32]byte{MerkleRoot(nil)}}
	for i := range n {
		var leaf [32]byte
		binary.BigEndian.PutUint64(leaf[:], uint64(i)*0x9e3779b97f4a7c15)
		g.leaves = append(g.leaves, leaf)
		g.tree.AppendVisit(leaf, func(level uint, index uint64, hash []byte) {
			g.nodes[[2]uint64{uint64(level), index}] = [32]byte(hash)
		})
		g.roots = append(g.roots, g.tree.Root())
	}
	return g
}

func (g *grown) read(level uint, index uint64) ([32]byte, error) {
	g.reads++
	h, ok := g.nodes[[2]uint64{uint64(level), index}]
	if !ok {
		return h, errors.New("asked for what is no perfect subtree")
	}
	return h, nil
}

// For all m ≤ n ≤ 300, inclusion and consistency verify with an implementation
// that is not ours, and any single flipped bit fails. Which bit of each hash is
// flipped goes around, so that over the whole all of them are.
func TestProofsOfAllSizes(t *testing.T) {
	const most = 300
	g := grow(most)
	turn := 0
	flipped := func(hashes [][]byte, verify func() error) {
		for _, h := range hashes {
			turn++
			h[turn/8%32] ^= 1 << (turn % 8)
			if verify() == nil {
				t.Fatalf("verified with bit %d flipped", turn%256)
			}
			h[turn/8%32] ^= 1 << (turn % 8)
		}
	}
	for n := uint64(0); n <= most; n++ {
		if root, err := ReadRoot(g.read, n); err != nil || root != g.roots[n] || root != MerkleRoot(g.leaves[:n]) {
			t.Fatalf("root at %d: %v", n, err)
		}
		for m := uint64(0); m <= n; m++ {
			hashes, err := ProveConsistency(g.read, m, n)
			if err != nil {
				t.Fatalf("%d to %d: %v", m, n, err)
			}
			from, to := g.roots[m], g.roots[n]
			verify := func() error { return proof.VerifyConsistency(rfc6962.DefaultHasher, m, n, hashes, from[:], to[:]) }
			ours := func() error { return VerifyConsistency(m, n, hashes, from, to) }
			if err := errors.Join(verify(), ours()); err != nil {
				t.Fatalf("%d to %d: %v", m, n, err)
			}
			flipped(hashes, verify)
			if flipped([][]byte{from[:]}, ours); m > 0 { // the empty tree grows into any
				flipped([][]byte{to[:]}, ours)
			}
			if m == n {
				continue
			}
			if hashes, err = ProveInclusion(g.read, m, n); err != nil {
				t.Fatalf("%d in %d: %v", m, n, err)
			}
			leaf := rfc6962.DefaultHasher.HashLeaf(g.leaves[m][:])
			verify = func() error { return proof.VerifyInclusion(rfc6962.DefaultHasher, m, n, leaf, hashes, to[:]) }
			if err := errors.Join(verify(), VerifyInclusion(g.leaves[m], m, n, hashes, to)); err != nil {
				t.Fatalf("%d in %d: %v", m, n, err)
			}
			flipped(append([][]byte{leaf, to[:]}, hashes...), verify)
		}
	}
}

// Every bit of a few proofs, one after another.
func TestEveryBitCounts(t *testing.T) {
	g := grow(300)
	for _, c := range [][2]uint64{{1, 2}, {7, 8}, {129, 300}, {255, 256}, {299, 300}} {
		m, n := c[0], c[1]
		inclusion, err := ProveInclusion(g.read, m, n)
		if err != nil {
			t.Fatal(err)
		}
		consistency, err := ProveConsistency(g.read, m, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []struct {
			hashes [][]byte
			verify func() error
		}{
			{inclusion, func() error { return VerifyInclusion(g.leaves[m], m, n, inclusion, g.roots[n]) }},
			{consistency, func() error { return VerifyConsistency(m, n, consistency, g.roots[m], g.roots[n]) }},
		} {
			if err := p.verify(); err != nil {
				t.Fatal(err)
			}
			for i, h := range p.hashes {
				for bit := range 256 {
					h[bit/8] ^= 1 << (bit % 8)
					if p.verify() == nil {
						t.Errorf("%d, %d: hash %d verifies with bit %d flipped", m, n, i, bit)
					}
					h[bit/8] ^= 1 << (bit % 8)
				}
			}
		}
	}
}

func TestProofsReadLittleAndRefuse(t *testing.T) {
	g := grow(4096 + 77)
	n := uint64(len(g.leaves))
	for _, i := range []uint64{0, 1, 4095, 4096, n - 1} {
		g.reads = 0
		if _, err := ProveInclusion(g.read, i, n); err != nil || g.reads > 2*13 {
			t.Errorf("leaf %d: %d reads, %v", i, g.reads, err)
		}
		g.reads = 0
		if _, err := ProveConsistency(g.read, i, n); err != nil || g.reads > 2*13 {
			t.Errorf("from %d: %d reads, %v", i, g.reads, err)
		}
	}
	for _, c := range [][2]uint64{{0, 0}, {5, 5}, {6, 5}} {
		if _, err := ProveInclusion(g.read, c[0], c[1]); !errors.Is(err, ErrProofRange) {
			t.Errorf("leaf %d of %d: %v", c[0], c[1], err)
		}
	}
	if _, err := ProveConsistency(g.read, 6, 5); !errors.Is(err, ErrProofRange) {
		t.Error(err)
	}
	broken := errors.New("broken")
	fail := func(uint, uint64) ([32]byte, error) { return [32]byte{}, broken }
	if _, err := ProveInclusion(fail, 1, 9); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := ProveConsistency(fail, 1, 9); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := ReadRoot(fail, 9); !errors.Is(err, broken) {
		t.Error(err)
	}
	for _, bad := range [][]byte{nil, make([]byte, 31), make([]byte, 96)} {
		if _, err := SubtreeRoot(bad); err == nil {
			t.Errorf("%d bytes have a root", len(bad))
		}
	}
}
