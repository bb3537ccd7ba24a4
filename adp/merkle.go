package adp

import (
	"errors"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// Tree is the RFC 6962 SHA-256 Merkle tree over the record hashes of a room, in
// seq order, kept as its compact frontier: appending costs no look back. Leaf
// i is the record at seq i+1. The zero Tree is empty.
type Tree struct{ r *compact.Range }

var ranges = compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// Append adds the raw hash of the next record.
func (t *Tree) Append(leaf [32]byte) {
	if t.r == nil {
		t.r = ranges.NewEmptyRange(0)
	}
	if err := t.r.Append(rfc6962.DefaultHasher.HashLeaf(leaf[:]), nil); err != nil {
		panic("adp: merkle append: " + err.Error()) // a range from 0 can always grow
	}
}

// Size is the number of leaves.
func (t *Tree) Size() uint64 {
	if t.r == nil {
		return 0
	}
	return t.r.End()
}

// Root is the tree hash of what has been appended.
func (t *Tree) Root() (out [32]byte) {
	if t.Size() == 0 {
		copy(out[:], rfc6962.DefaultHasher.EmptyRoot())
		return out
	}
	root, err := t.r.GetRootHash(nil)
	if err != nil {
		panic("adp: merkle root: " + err.Error())
	}
	copy(out[:], root)
	return out
}

// Clone is an independent copy.
func (t *Tree) Clone() Tree {
	c, err := TreeFromFrontier(t.Size(), t.Frontier())
	if err != nil {
		panic("adp: merkle clone: " + err.Error())
	}
	return c
}

// Frontier is the state of the tree: one hash for each bit set in Size, the
// largest subtree first. Not to be changed.
func (t *Tree) Frontier() [][]byte {
	if t.r == nil {
		return nil
	}
	return t.r.Hashes()
}

// TreeFromFrontier rebuilds a tree from Size and Frontier.
func TreeFromFrontier(size uint64, frontier [][]byte) (Tree, error) {
	for _, h := range frontier {
		if len(h) != 32 {
			return Tree{}, errors.New("a frontier hash is not 32 bytes long")
		}
	}
	r, err := ranges.NewRange(0, size, append([][]byte(nil), frontier...))
	if err != nil {
		return Tree{}, fmt.Errorf("frontier: %w", err)
	}
	return Tree{r}, nil
}

// MerkleRoot is the root over a list of record hashes.
func MerkleRoot(leaves [][32]byte) [32]byte {
	var t Tree
	for _, l := range leaves {
		t.Append(l)
	}
	return t.Root()
}

// InclusionProof proves the leaf at index in the tree over leaves (RFC 6962
// §2.1.1).
func InclusionProof(leaves [][32]byte, index uint64) ([][]byte, error) {
	nodes, err := proof.Inclusion(index, uint64(len(leaves)))
	if err != nil {
		return nil, err
	}
	return nodeHashes(leaves, nodes)
}

// ConsistencyProof proves that the tree over the first `size` leaves is a
// prefix of the tree over all of them (RFC 6962 §2.1.2).
func ConsistencyProof(leaves [][32]byte, size uint64) ([][]byte, error) {
	nodes, err := proof.Consistency(size, uint64(len(leaves)))
	if err != nil {
		return nil, err
	}
	return nodeHashes(leaves, nodes)
}

func nodeHashes(leaves [][32]byte, nodes proof.Nodes) ([][]byte, error) {
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		from := id.Index << id.Level
		to := min(from+1<<id.Level, uint64(len(leaves)))
		root := MerkleRoot(leaves[from:to])
		hashes[i] = root[:]
	}
	return nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
}

// VerifyInclusion checks an inclusion proof of a record hash against a root.
func VerifyInclusion(leaf [32]byte, index, size uint64, hashes [][]byte, root [32]byte) error {
	return proof.VerifyInclusion(rfc6962.DefaultHasher, index, size, rfc6962.DefaultHasher.HashLeaf(leaf[:]), hashes, root[:])
}

// VerifyConsistency checks that root1 over size1 leaves is a prefix of root2
// over size2. An empty tree has one root, which is that of the zero Tree.
func VerifyConsistency(size1, size2 uint64, hashes [][]byte, root1, root2 [32]byte) error {
	// package proof lets anything pass as the root of an empty tree
	if empty := MerkleRoot(nil); size1 == 0 && root1 != empty || size2 == 0 && root2 != empty {
		return errors.New("not the root of an empty tree")
	}
	return proof.VerifyConsistency(rfc6962.DefaultHasher, size1, size2, hashes, root1[:], root2[:])
}

// NodeReader gives the hash of one perfect subtree: the 2^level leaves from
// index·2^level on, level 0 being the hashes of the leaves themselves. It is
// asked only for subtrees that lie wholly inside the tree.
type NodeReader func(level uint, index uint64) ([32]byte, error)

// ErrProofRange: an index or a size is not in the tree.
var ErrProofRange = errors.New("no such index or size in the tree")

// AppendVisit is Append, and tells of every perfect subtree that the leaf
// completes, the leaf itself included. hash is not to be changed.
func (t *Tree) AppendVisit(leaf [32]byte, visit func(level uint, index uint64, hash []byte)) {
	if t.r == nil {
		t.r = ranges.NewEmptyRange(0)
	}
	err := t.r.Append(rfc6962.DefaultHasher.HashLeaf(leaf[:]), func(id compact.NodeID, hash []byte) { visit(id.Level, id.Index, hash) })
	if err != nil {
		panic("adp: merkle append: " + err.Error()) // a range from 0 can always grow
	}
}

// LeafHash is the hash of a leaf (RFC 6962 §2.1).
func LeafHash(data []byte) (out [32]byte) {
	copy(out[:], rfc6962.DefaultHasher.HashLeaf(data))
	return out
}

// SubtreeRoot is the root of a perfect subtree over node hashes of one level that
// stand side by side, 32 bytes each; their number must be a power of two.
func SubtreeRoot(hashes []byte) (out [32]byte, err error) {
	n := len(hashes) / 32
	if len(hashes) != n*32 || n == 0 || n&(n-1) != 0 {
		return out, fmt.Errorf("%d bytes are not the hashes of a perfect subtree", len(hashes))
	}
	row := make([][]byte, n)
	for i := range row {
		row[i] = hashes[i*32 : i*32+32]
	}
	for ; len(row) > 1; row = row[:len(row)/2] {
		for i := range len(row) / 2 {
			row[i] = rfc6962.DefaultHasher.HashChildren(row[2*i], row[2*i+1])
		}
	}
	copy(out[:], row[0])
	return out, nil
}

// ReadRoot is the root of the tree over the first size leaves.
func ReadRoot(read NodeReader, size uint64) (out [32]byte, err error) {
	t := Tree{ranges.NewEmptyRange(0)}
	if size > 0 {
		ids := compact.RangeNodes(0, size, nil)
		hashes := make([][]byte, len(ids))
		for i, id := range ids {
			h, err := read(id.Level, id.Index)
			if err != nil {
				return out, err
			}
			hashes[i] = h[:]
		}
		if t, err = TreeFromFrontier(size, hashes); err != nil {
			return out, err
		}
	}
	return t.Root(), nil
}

// ProveInclusion proves the leaf at index in the tree over the first size leaves
// (RFC 6962 §2.1.1). It reads O(log size) nodes.
func ProveInclusion(read NodeReader, index, size uint64) ([][]byte, error) {
	if index >= size {
		return nil, fmt.Errorf("%w: index %d of %d", ErrProofRange, index, size)
	}
	nodes, err := proof.Inclusion(index, size)
	if err != nil {
		return nil, err
	}
	return readNodes(read, nodes)
}

// ProveConsistency proves that the tree over the first from leaves is a prefix of
// that over the first to (RFC 6962 §2.1.2). The proof from 0, and that from a
// size to itself, is empty.
func ProveConsistency(read NodeReader, from, to uint64) ([][]byte, error) {
	if from > to {
		return nil, fmt.Errorf("%w: from %d to %d", ErrProofRange, from, to)
	}
	nodes, err := proof.Consistency(from, to)
	if err != nil {
		return nil, err
	}
	return readNodes(read, nodes)
}

func readNodes(read NodeReader, nodes proof.Nodes) ([][]byte, error) {
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		h, err := read(id.Level, id.Index)
		if err != nil {
			return nil, err
		}
		hashes[i] = h[:]
	}
	return nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
}
