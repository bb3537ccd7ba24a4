package adp

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha3"
	"encoding/hex"
	"slices"
	"strconv"
	"testing"
)

func testLeaves(n int) [][32]byte {
	out := make([][32]byte, n)
	for i := range out {
		out[i] = sha3.Sum256([]byte(strconv.Itoa(i)))
	}
	return out
}

// The definitions of RFC 6962 §2.1, written as the text has them.

func naiveRoot(d [][32]byte) []byte {
	switch len(d) {
	case 0:
		h := sha256.Sum256(nil)
		return h[:]
	case 1:
		h := sha256.Sum256(append([]byte{0}, d[0][:]...))
		return h[:]
	}
	k := split(len(d))
	h := sha256.Sum256(slices.Concat([]byte{1}, naiveRoot(d[:k]), naiveRoot(d[k:])))
	return h[:]
}

// split is the largest power of two below n.
func split(n int) int {
	k := 1
	for k*2 < n {
		k *= 2
	}
	return k
}

func naivePath(m int, d [][32]byte) [][]byte {
	if len(d) <= 1 {
		return nil
	}
	if k := split(len(d)); m < k {
		return append(naivePath(m, d[:k]), naiveRoot(d[k:]))
	} else {
		return append(naivePath(m-k, d[k:]), naiveRoot(d[:k]))
	}
}

func naiveProof(m int, d [][32]byte) [][]byte { return naiveSubproof(m, d, true) }

func naiveSubproof(m int, d [][32]byte, whole bool) [][]byte {
	if m == len(d) {
		if whole {
			return nil
		}
		return [][]byte{naiveRoot(d)}
	}
	if k := split(len(d)); m <= k {
		return append(naiveSubproof(m, d[:k], whole), naiveRoot(d[k:]))
	} else {
		return append(naiveSubproof(m-k, d[k:], false), naiveRoot(d[:k]))
	}
}

func sameHashes(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

func TestMerkleKnownAnswers(t *testing.T) {
	var g struct{ Roots []string }
	golden(t, "merkle.json", &g)
	for n, want := range g.Roots {
		if root := MerkleRoot(testLeaves(n)); hex.EncodeToString(root[:]) != want {
			t.Errorf("%d leaves: %x, want %s", n, root, want)
		}
	}
	if g.Roots[0] != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Error("the empty root is SHA-256 of nothing")
	}
}

const treeSizes = 40

func TestTreeGrowsLikeTheDefinition(t *testing.T) {
	leaves := testLeaves(treeSizes)
	var tree Tree
	var clones []Tree
	for n := 0; n <= treeSizes; n++ {
		root := tree.Root()
		if tree.Size() != uint64(n) || !bytes.Equal(root[:], naiveRoot(leaves[:n])) {
			t.Fatalf("size %d: root %x", tree.Size(), root)
		}
		bits := 0
		for x := n; x > 0; x &= x - 1 {
			bits++
		}
		if len(tree.Frontier()) != bits {
			t.Errorf("size %d: %d hashes in the frontier", n, len(tree.Frontier()))
		}
		clones = append(clones, tree.Clone())
		again, err := TreeFromFrontier(tree.Size(), tree.Frontier())
		if err != nil || again.Root() != root {
			t.Fatalf("size %d: %v", n, err)
		}
		if n == treeSizes {
			break
		}
		// the rebuilt tree and the clone grow alone
		other := tree.Clone()
		other.Append([32]byte{1})
		again.Append(leaves[n])
		if tree.Root() != root || tree.Size() != uint64(n) {
			t.Fatalf("size %d: a copy changed the tree", n)
		}
		tree.Append(leaves[n])
		if again.Root() != tree.Root() || other.Root() == tree.Root() {
			t.Fatalf("size %d: the rebuilt tree grows differently", n)
		}
	}
	for n := range clones {
		if root := clones[n].Root(); clones[n].Size() != uint64(n) || !bytes.Equal(root[:], naiveRoot(leaves[:n])) {
			t.Errorf("the clone of size %d changed", n)
		}
	}
}

func TestTreeFromFrontierRefuses(t *testing.T) {
	h := bytes.Repeat([]byte{1}, 32)
	for _, c := range []struct {
		size     uint64
		frontier [][]byte
	}{{1, nil}, {0, [][]byte{h}}, {2, [][]byte{h, h}}, {3, [][]byte{h}}, {3, [][]byte{h, h, h}}, {1, [][]byte{h[:31]}}, {1, [][]byte{append(h, 0)}}, {1, [][]byte{nil}}, {1<<64 - 1, [][]byte{h}}} {
		if tree, err := TreeFromFrontier(c.size, c.frontier); err == nil || tree.Size() != 0 {
			t.Errorf("size %d with %d hashes was accepted", c.size, len(c.frontier))
		}
	}
	// the caller's list is its own
	list := [][]byte{bytes.Clone(h), bytes.Clone(h)}
	tree, err := TreeFromFrontier(3, list)
	if err != nil {
		t.Fatal(err)
	}
	root := tree.Root()
	list[0], list[1] = nil, nil
	if tree.Root() != root {
		t.Error("the tree shares the list")
	}
}

// wrongProofs is a few proofs near a right one, all different from it.
func wrongProofs(p [][]byte) [][][]byte {
	h := bytes.Repeat([]byte{7}, 32)
	out := [][][]byte{append(slices.Clone(p), h), append([][]byte{h}, p...)}
	for i := range p {
		out = append(out, slices.Delete(slices.Clone(p), i, i+1))
		flipped := slices.Clone(p)
		flipped[i] = bytes.Clone(p[i])
		flipped[i][i%32] ^= 1
		out = append(out, flipped)
		if i > 0 {
			swapped := slices.Clone(p)
			swapped[i], swapped[i-1] = p[i-1], p[i]
			out = append(out, swapped)
		}
	}
	return out
}

func TestInclusionProofs(t *testing.T) {
	all := testLeaves(treeSizes + 1)
	for n := 1; n <= treeSizes; n++ {
		leaves, root := all[:n], MerkleRoot(all[:n])
		for i := range n {
			p, err := InclusionProof(leaves, uint64(i))
			if err != nil || !sameHashes(p, naivePath(i, leaves)) {
				t.Fatalf("leaf %d of %d: %x, %v", i, n, p, err)
			}
			ok := func(leaf [32]byte, index, size int, p [][]byte, root [32]byte) bool {
				return VerifyInclusion(leaf, uint64(index), uint64(size), p, root) == nil
			}
			if !ok(leaves[i], i, n, p, root) {
				t.Fatalf("leaf %d of %d does not verify", i, n)
			}
			for j := range n + 1 {
				if j != i && ok(leaves[i], j, n, p, root) {
					t.Errorf("leaf %d of %d verifies at %d", i, n, j)
				}
			}
			if ok(all[n], i, n, p, root) || ok(leaves[i], i, n, p, [32]byte{}) || ok(leaves[i], i, 0, p, root) || ok(leaves[i], i, i, p, root) {
				t.Errorf("leaf %d of %d: a wrong leaf, root or size verifies", i, n)
			}
			for _, w := range wrongProofs(p) {
				if ok(leaves[i], i, n, w, root) {
					t.Errorf("leaf %d of %d: a wrong proof verifies", i, n)
				}
			}
		}
		if _, err := InclusionProof(leaves, uint64(n)); err == nil {
			t.Errorf("a proof for leaf %d of %d", n, n)
		}
	}
	if _, err := InclusionProof(nil, 0); err == nil {
		t.Error("a proof in the empty tree")
	}
}

func TestConsistencyProofs(t *testing.T) {
	all := testLeaves(treeSizes)
	forked := testLeaves(treeSizes)
	forked[0][0] ^= 1
	roots := make([][32]byte, treeSizes+1)
	for n := range roots {
		roots[n] = MerkleRoot(all[:n])
	}
	for n := 1; n <= treeSizes; n++ {
		other := MerkleRoot(forked[:n])
		for m := 1; m <= n; m++ {
			p, err := ConsistencyProof(all[:n], uint64(m))
			if err != nil || !sameHashes(p, naiveProof(m, all[:n])) {
				t.Fatalf("%d to %d: %x, %v", m, n, p, err)
			}
			ok := func(m, n int, p [][]byte, a, b [32]byte) bool {
				return VerifyConsistency(uint64(m), uint64(n), p, a, b) == nil
			}
			if !ok(m, n, p, roots[m], roots[n]) {
				t.Fatalf("%d to %d does not verify", m, n)
			}
			if ok(m, n, p, roots[m-1], roots[n]) || ok(m, n, p, roots[m], other) || ok(m, n, p, MerkleRoot(forked[:m]), roots[n]) || ok(n+1, n, p, roots[m], roots[n]) {
				t.Errorf("%d to %d: a wrong root or size verifies", m, n)
			}
			for k := 1; k <= n; k++ {
				if k != m && ok(k, n, p, roots[m], roots[n]) {
					t.Errorf("%d to %d verifies as %d to %d", m, n, k, n)
				}
			}
			for _, w := range wrongProofs(p) {
				if ok(m, n, w, roots[m], roots[n]) {
					t.Errorf("%d to %d: a wrong proof verifies", m, n)
				}
			}
		}
		if _, err := ConsistencyProof(all[:n], uint64(n+1)); err == nil {
			t.Errorf("a proof from %d to %d", n+1, n)
		}
	}
	// the empty tree is a prefix of every tree, and has one root
	for _, n := range []int{0, 1, 7} {
		p, err := ConsistencyProof(all[:n], 0)
		if err != nil || len(p) != 0 || VerifyConsistency(0, uint64(n), p, roots[0], roots[n]) != nil {
			t.Errorf("0 to %d: %x, %v", n, p, err)
		}
		if VerifyConsistency(0, uint64(n), nil, roots[1], roots[n]) == nil || VerifyConsistency(0, 0, nil, [32]byte{}, [32]byte{}) == nil || VerifyConsistency(0, uint64(n), [][]byte{roots[0][:]}, roots[0], roots[n]) == nil {
			t.Errorf("0 to %d: a wrong empty root or proof verifies", n)
		}
	}
}
