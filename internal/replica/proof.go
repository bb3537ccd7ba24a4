package replica

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// Proofs come from what appending has left in the store: the full tiles of 256
// record hashes, and the root of each perfect subtree of 256 leaves and more. The
// hashes behind the last full tile are read from the records and remembered.

// nodeLevel is the lowest level whose nodes stand in the store: a full tile.
const nodeLevel = 8

// leaves are the hashes of the leaves behind the last full tile, as far as they
// have been read.
type leaves struct {
	mu     sync.Mutex
	tile   uint64
	hashes []byte
}

// appendLeaf adds a record to the tree, and the subtrees that it completes to the
// batch of the record. r.turn is held.
func (r *Replica) appendLeaf(b *store.Batch, hash [32]byte) {
	r.tree.AppendVisit(hash, func(level uint, index uint64, node []byte) {
		if level >= nodeLevel {
			b.Put(store.TreeNode(r.ID, uint64(level), index), node)
		}
	})
}

// prover reads nodes of the tree over the committed records.
type prover struct {
	r     *Replica
	rd    store.Reader
	size  uint64
	tile  uint64 // the full tile in hashes, when it has any
	tiled []byte
}

// node is the adp.NodeReader of the tree.
func (p *prover) node(level uint, index uint64) (out [32]byte, err error) {
	if level >= nodeLevel {
		raw, ok, err := p.rd.Get(store.TreeNode(p.r.ID, uint64(level), index))
		if err != nil {
			return out, err
		}
		if !ok || len(raw) != 32 {
			return p.missing(level, index)
		}
		return [32]byte(raw), nil
	}
	first := index << level
	tile, at, n := first/tileSize, int(first%tileSize), 1<<level
	var hashes []byte
	if tile < p.size/tileSize {
		hashes, err = p.full(tile)
	} else {
		hashes, err = p.r.tailLeaves(tile, int(p.size%tileSize))
	}
	if err != nil {
		return out, err
	}
	if (at+n)*32 > len(hashes) {
		return out, fmt.Errorf("replica %d: no leaf %d in a tree of %d", p.r.ID, first+uint64(n), p.size)
	}
	return adp.SubtreeRoot(hashes[at*32 : (at+n)*32])
}

// missing computes a node that the store does not hold: a log from before nodes
// were kept has only its tiles.
func (p *prover) missing(level uint, index uint64) (out [32]byte, err error) {
	if level == nodeLevel {
		hashes, err := p.full(index)
		if err != nil {
			return out, err
		}
		return adp.SubtreeRoot(hashes)
	}
	left, err := p.node(level-1, 2*index)
	if err != nil {
		return out, err
	}
	right, err := p.node(level-1, 2*index+1)
	if err != nil {
		return out, err
	}
	return adp.SubtreeRoot(append(left[:], right[:]...))
}

// full gives the leaf hashes of a full tile.
func (p *prover) full(tile uint64) ([]byte, error) {
	if p.tiled != nil && p.tile == tile {
		return p.tiled, nil
	}
	raw, ok, err := p.rd.Get(store.TreeTile(p.r.ID, tile))
	if err != nil {
		return nil, err
	}
	if !ok || len(raw) != tileSize*32 {
		return nil, fmt.Errorf("replica %d: tile %d is missing", p.r.ID, tile)
	}
	for i := 0; i < len(raw); i += 32 {
		h := adp.LeafHash(raw[i : i+32])
		copy(raw[i:], h[:])
	}
	p.tile, p.tiled = tile, raw
	return raw, nil
}

// tailLeaves gives the first n leaf hashes of the tile that is not full.
func (r *Replica) tailLeaves(tile uint64, n int) ([]byte, error) {
	l := &r.leaves
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tile != tile {
		l.tile, l.hashes = tile, nil
	}
	for have := len(l.hashes) / 32; have < n; have = len(l.hashes) / 32 {
		if first := int64(tile)*tileSize + int64(have); first < r.Row().Dropped { // the hashes are kept
			hash, ok, err := r.storedHash(first + 1)
			if err != nil || !ok {
				return nil, errors.Join(err, fmt.Errorf("replica %d: no hash of seq %d", r.ID, first+1))
			}
			data, err := adp.DecodeHash(hash)
			if err != nil {
				return nil, err
			}
			h := adp.LeafHash(data[:])
			l.hashes = append(l.hashes, h[:]...)
			continue
		}
		recs, err := r.Read(int64(tile)*tileSize+int64(have), n-have, 1<<20)
		if err != nil {
			return nil, err
		}
		if len(recs) == 0 {
			return nil, fmt.Errorf("replica %d: the log ends at seq %d", r.ID, int64(tile)*tileSize+int64(have))
		}
		for _, raw := range recs {
			rec, err := parseStored(raw)
			if err != nil {
				return nil, fmt.Errorf("replica %d: %w", r.ID, err)
			}
			data := rec.LeafData()
			h := adp.LeafHash(data[:])
			l.hashes = append(l.hashes, h[:]...)
		}
	}
	return l.hashes[: n*32 : n*32], nil
}

// prove gives fn the reader of the tree over the committed records.
func (r *Replica) prove(fn func(adp.NodeReader) error) error {
	size := uint64(r.Row().Seq) // before the snapshot, which has at least as much
	return r.set.st.View(func(rd store.Reader) error {
		p := &prover{r: r, rd: rd, size: size}
		return fn(p.node)
	})
}

// RootAt is the Merkle root over the first size records.
func (r *Replica) RootAt(size int64) (root [32]byte, err error) {
	row := r.Row()
	if size < 0 || size > row.Seq {
		return root, fmt.Errorf("replica %d: %w: size %d of %d", r.ID, adp.ErrProofRange, size, row.Seq)
	}
	if size == row.Seq {
		t, err := adp.TreeFromFrontier(uint64(size), row.Frontier)
		if err != nil {
			return root, fmt.Errorf("replica %d: %w", r.ID, err)
		}
		return t.Root(), nil
	}
	err = r.prove(func(read adp.NodeReader) error {
		root, err = adp.ReadRoot(read, uint64(size))
		return err
	})
	return root, err
}

// Proof proves one record, or that one size of the room grew into another.
type Proof struct {
	RoomID   string   `json:"room_id"`
	Genesis  string   `json:"genesis"`
	Seq      int64    `json:"seq,omitempty"`       // of an inclusion proof; the leaf is seq − 1
	LeafHash string   `json:"leaf_hash,omitempty"` // record hash, the data of the leaf
	From     *int64   `json:"from,omitempty"`      // of a consistency proof
	FromRoot string   `json:"from_root,omitempty"` // the root at from
	Size     int64    `json:"size"`
	Root     string   `json:"root"`   // the root at size
	Hashes   []string `json:"hashes"` // RFC 6962 §2.1.1, §2.1.2
}

// Inclusion proves the record at a seq in the room of a size. 1 ≤ seq ≤ size, and
// size is no more than what is committed.
func (r *Replica) Inclusion(seq, size int64) (p Proof, err error) {
	if size > r.Row().Seq || seq < 1 || seq > size {
		return p, fmt.Errorf("replica %d: %w: seq %d in %d", r.ID, adp.ErrProofRange, seq, size)
	}
	hash, ok, err := r.storedHash(seq) // the record may be dropped
	if err != nil || !ok {
		return p, errors.Join(err, fmt.Errorf("replica %d: no record at seq %d", r.ID, seq))
	}
	leaf, err := adp.DecodeHash(hash)
	if err != nil {
		return p, fmt.Errorf("replica %d: seq %d: %w", r.ID, seq, err)
	}
	root, err := r.RootAt(size)
	if err != nil {
		return p, err
	}
	var hashes [][]byte
	err = r.prove(func(read adp.NodeReader) error {
		hashes, err = adp.ProveInclusion(read, uint64(seq-1), uint64(size))
		return err
	})
	if err == nil { // what is served has been verified: it costs a few hashes
		err = adp.VerifyInclusion(leaf, uint64(seq-1), uint64(size), hashes, root)
	}
	if err != nil {
		return p, fmt.Errorf("replica %d: prove seq %d of %d: %w", r.ID, seq, size, err)
	}
	return Proof{RoomID: r.RoomID, Genesis: r.Genesis, Seq: seq, LeafHash: hash, Size: size, Root: adp.Encode(root[:]), Hashes: encodeAll(hashes)}, nil
}

// Consistency proves that the room of one size grew into that of another. 0 ≤ from
// ≤ to, and to is no more than what is committed.
func (r *Replica) Consistency(from, to int64) (p Proof, err error) {
	if to > r.Row().Seq || from < 0 || from > to {
		return p, fmt.Errorf("replica %d: %w: from %d to %d", r.ID, adp.ErrProofRange, from, to)
	}
	before, err := r.RootAt(from)
	if err != nil {
		return p, err
	}
	root, err := r.RootAt(to)
	if err != nil {
		return p, err
	}
	var hashes [][]byte
	err = r.prove(func(read adp.NodeReader) error {
		hashes, err = adp.ProveConsistency(read, uint64(from), uint64(to))
		return err
	})
	if err == nil {
		err = adp.VerifyConsistency(uint64(from), uint64(to), hashes, before, root)
	}
	if err != nil {
		return p, fmt.Errorf("replica %d: prove %d to %d: %w", r.ID, from, to, err)
	}
	return Proof{RoomID: r.RoomID, Genesis: r.Genesis, From: &from, FromRoot: adp.Encode(before[:]), Size: to, Root: adp.Encode(root[:]), Hashes: encodeAll(hashes)}, nil
}

func encodeAll(hashes [][]byte) []string {
	out := make([]string, len(hashes))
	for i, h := range hashes {
		out[i] = adp.Encode(h)
	}
	return out
}

// ServeProof answers GET …/proof: ?seq=N[&size=M] proves a record, ?from=M&to=N
// that the room only grew. Who may read the records may read it.
func (r *Replica) ServeProof(w http.ResponseWriter, req *http.Request) error {
	q, err := web.ParseQuery(req)
	if err != nil {
		return err
	}
	last := r.Row().Seq
	inclusion, consistency := q.Has("seq"), q.Has("from") || q.Has("to")
	var p Proof
	switch {
	case inclusion && !consistency:
		size, err := ranged(q, "size", 1, last, last)
		if err != nil {
			return err
		}
		seq, err := ranged(q, "seq", 1, size, 0)
		if err != nil {
			return err
		}
		p, err = r.Inclusion(seq, size)
		if err != nil {
			return err
		}
	case q.Has("from") && q.Has("to") && !inclusion && !q.Has("size"):
		to, err := ranged(q, "to", 0, last, 0)
		if err != nil {
			return err
		}
		from, err := ranged(q, "from", 0, to, 0)
		if err != nil {
			return err
		}
		if p, err = r.Consistency(from, to); err != nil {
			return err
		}
	default:
		return adp.Errorf(adp.InvalidRequest, "Ask for ?seq=N, with &size=M if wanted (the record at seq N is in the room), or for ?from=M&to=N (the room only grew).")
	}
	web.WriteJSON(w, http.StatusOK, p)
	return nil
}

// ranged is an integer parameter, and what it may be.
func ranged(q url.Values, name string, least, most, def int64) (int64, error) {
	if most < least {
		return 0, adp.Errorf(adp.InvalidRequest, "The room has no records yet.").With("parameter", name)
	}
	return web.Int64(q, name, least, most, def)
}
