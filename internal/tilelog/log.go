package tilelog

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// headName is where the head of the present log stands.
const headName = "log.head"

// ErrNotThere: the log has no such tile, entry or size (yet).
var ErrNotThere = errors.New("tilelog: the log has no such part")

// ErrDamaged: what the store holds of the log does not add up.
var ErrDamaged = errors.New("tilelog: the stored log is damaged")

// head is the stored state of a log. Its tiles stand beside it.
type head struct {
	Generation int    `json:"generation"`
	Size       uint64 `json:"size"`
	Checkpoint []byte `json:"checkpoint"` // signed

	root  [32]byte
	json  []byte                           // as stored, nil while nothing is
	edges [maxLevel + 1]edgeTile           // the tiles at the right edge, by level
	key   func(level, index uint64) []byte // where a tile is stored
}

// ownTiles tells where the tiles of a generation of our own log are stored.
func ownTiles(generation int) func(level, index uint64) []byte {
	return func(level, index uint64) []byte { return store.LogTile(uint64(generation), level, index) }
}

// edgeTile is the tile of a level that is not full, hashes side by side.
type edgeTile struct {
	index  uint64
	hashes []byte
}

// Log is one log in a store. Append and Publish are for one caller at a time; all
// else is safe for concurrent use, and sees what is published.
type Log struct {
	st     *store.Store
	name   func(generation int) string
	key    func(generation int) ed25519.PrivateKey
	public atomic.Pointer[head]
}

// Open reads the log that a store holds: that of the last generation it was used
// with, or an empty one of the first. name is the origin line of a generation, key
// its signing key. Whatever does not add up is ErrDamaged, beside a Log that shows
// nothing and can only be renewed.
func Open(st *store.Store, name func(generation int) string, key func(generation int) ed25519.PrivateKey) (*Log, error) {
	l := &Log{st: st, name: name, key: key}
	h := &head{Generation: 1}
	err := l.load(h)
	if errors.Is(err, ErrDamaged) {
		h = &head{Generation: max(h.Generation, 1), json: h.json}
		h.key = ownTiles(h.Generation)
	} else if err != nil {
		return nil, err
	}
	l.public.Store(h)
	return l, err
}

func (l *Log) load(h *head) error {
	h.key = ownTiles(h.Generation)
	err := l.st.View(func(r store.Reader) error {
		raw, ok, err := r.Get(store.Meta(headName))
		if err != nil || !ok {
			return err
		}
		h.json = raw
		if err := json.Unmarshal(raw, h); err != nil || h.Generation < 1 || h.Size>>63 != 0 {
			return fmt.Errorf("%w: its head is %.200q", ErrDamaged, raw)
		}
		h.key = ownTiles(h.Generation)
		return h.readEdges(r)
	})
	if err != nil {
		return err
	}
	if h.root, err = adp.ReadRoot(h.node(nil), h.Size); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if h.json == nil { // nothing can contradict the head of an empty log
		if h.Checkpoint, err = l.sign(h.Generation, 0, h.root); err != nil {
			return err
		}
	}
	// the stored note is what was given out: it must be ours, and of this tree
	c, err := OpenCheckpoint(h.Checkpoint, l.verifier(h.Generation))
	if err != nil || c != (Checkpoint{l.name(h.Generation), h.Size, h.root}) {
		return fmt.Errorf("%w: its checkpoint is not of this key, this origin and these tiles (%v)", ErrDamaged, err)
	}
	return nil
}

func (l *Log) verifier(generation int) ed25519.PublicKey {
	return l.key(generation).Public().(ed25519.PublicKey)
}

func (l *Log) sign(generation int, size uint64, root [32]byte) ([]byte, error) {
	return Checkpoint{l.name(generation), size, root}.Sign(l.key(generation))
}

// Head is the published head.
func (l *Log) Head() (generation int, c Checkpoint) {
	h := l.public.Load()
	return h.Generation, Checkpoint{l.name(h.Generation), h.Size, h.root}
}

// Checkpoint is the published head, signed.
func (l *Log) Checkpoint() []byte { return bytes.Clone(l.public.Load().Checkpoint) }

// Entry is what is appended: its bytes, and the name under which Find finds it.
type Entry struct {
	Name string
	Data []byte
}

// Pending is a head that has been put into a batch.
type Pending struct{ next *head }

// Append puts entries and the signed head over them into a batch, which is
// refused with store.ErrConflict when the stored head is not the published one.
// Once the batch is committed, Publish makes the new head the one that is served;
// after a failure the Pending is dropped, and what was signed for it is gone.
func (l *Log) Append(b *store.Batch, entries ...Entry) (*Pending, error) {
	old := l.public.Load()
	next := &head{Generation: old.Generation, Size: old.Size, edges: old.cloneEdges(), key: old.key}
	gen := uint64(next.Generation)
	for _, e := range entries {
		if len(e.Data) > MaxEntry {
			return nil, fmt.Errorf("tilelog: an entry of %d bytes; %d is the limit", len(e.Data), MaxEntry)
		}
		b.Expect(store.LogEntry(gen, next.Size), nil)
		b.Put(store.LogEntry(gen, next.Size), e.Data)
		b.Put(store.LogIndex(gen, e.Name), strconv.AppendUint(nil, next.Size, 10))
		leaf := adp.LeafHash(e.Data)
		if err := next.add(b, leaf); err != nil {
			return nil, err
		}
	}
	return l.finish(b, old, next)
}

// readEdges reads the tiles at the right edge.
func (h *head) readEdges(r store.Reader) (err error) {
	for level := range h.edges {
		count := h.Size >> (8 * level)
		e := &h.edges[level]
		if e.index = count / TileWidth; count%TileWidth == 0 {
			continue
		}
		if e.hashes, err = readTile(r, h.key, Tile{Level: level, Index: e.index, Width: int(count % TileWidth)}); err != nil {
			return err
		}
	}
	return nil
}

// cloneEdges: readers have the old ones.
func (h *head) cloneEdges() [maxLevel + 1]edgeTile {
	edges := h.edges
	for i := range edges {
		edges[i].hashes = slices.Clone(edges[i].hashes)
	}
	return edges
}

func (h *head) putEdges(b *store.Batch) {
	for level, e := range h.edges {
		if len(e.hashes) > 0 {
			b.Put(h.key(uint64(level), e.index), slices.Clone(e.hashes))
		}
	}
}

func (l *Log) finish(b *store.Batch, old, next *head) (p *Pending, err error) {
	next.putEdges(b)
	if next.root, err = adp.ReadRoot(next.node(nil), next.Size); err != nil {
		return nil, err
	}
	if next.Checkpoint, err = l.sign(next.Generation, next.Size, next.root); err != nil {
		return nil, err
	}
	if next.json, err = json.Marshal(next); err != nil {
		return nil, err
	}
	b.Expect(store.Meta(headName), old.json)
	b.Put(store.Meta(headName), next.json)
	return &Pending{next}, nil
}

// add appends a leaf to the tiles at the edge; one that is full goes into the
// batch and gives a hash to the level above.
func (h *head) add(b *store.Batch, leaf [32]byte) error {
	h.Size++
	for level := range h.edges {
		e := &h.edges[level]
		e.hashes = append(e.hashes, leaf[:]...)
		if len(e.hashes) < TileWidth*32 {
			return nil
		}
		b.Put(h.key(uint64(level), e.index), e.hashes)
		root, err := adp.SubtreeRoot(e.hashes)
		if err != nil {
			return err
		}
		leaf = root
		*e = edgeTile{index: e.index + 1}
	}
	return errors.New("tilelog: the log is full")
}

// Publish serves the head of a batch that is on the disk.
func (l *Log) Publish(p *Pending) { l.public.Store(p.next) }

// Renew puts an empty log of a later generation into a batch, for Publish as
// after Append. What the store has of the log before stays there.
func (l *Log) Renew(b *store.Batch, generation int) (*Pending, error) {
	old := l.public.Load()
	if generation <= old.Generation {
		return nil, fmt.Errorf("tilelog: generation %d does not come after %d", generation, old.Generation)
	}
	return l.finish(b, old, &head{Generation: generation, key: ownTiles(generation)})
}

// node reads the hashes that Open and finish need: all of them stand in the tiles
// at the edge, the others are read with r.
func (h *head) node(r store.Reader) adp.NodeReader {
	return func(level uint, index uint64) (out [32]byte, err error) {
		t, at, n := place(level, index)
		count := h.Size >> (8 * t.Level)
		t.Width = int(min(TileWidth, count-min(count, t.Index*TileWidth)))
		hashes := h.edges[t.Level].hashes
		if t.Index != h.edges[t.Level].index {
			if r == nil {
				return out, ErrNotThere
			}
			if hashes, err = readTile(r, h.key, t); err != nil {
				return out, err
			}
		}
		if (at+n)*32 > len(hashes) {
			return out, ErrNotThere
		}
		return adp.SubtreeRoot(hashes[at*32 : (at+n)*32])
	}
}

// place tells in which tile the hashes under a node are, from where on, and how
// many.
func place(level uint, index uint64) (t Tile, at, n int) {
	t.Level, n = int(level/8), 1<<(level%8)
	first := index << (level % 8)
	t.Index = first / TileWidth
	return t, int(first % TileWidth), n
}

func readTile(r store.Reader, key func(level, index uint64) []byte, t Tile) ([]byte, error) {
	raw, ok, err := r.Get(key(uint64(t.Level), t.Index))
	if err != nil {
		return nil, err
	}
	if !ok || len(raw) < t.Width*32 {
		return nil, fmt.Errorf("%w: %s is missing", ErrDamaged, t.Path())
	}
	return raw[:t.Width*32], nil
}

// Read gives the bytes of a tile or a bundle that the published log has.
func (l *Log) Read(t Tile) (out []byte, err error) {
	h := l.public.Load()
	if !t.within(h.Size) {
		return nil, ErrNotThere
	}
	err = l.st.View(func(r store.Reader) error {
		if !t.Entries {
			out, err = readTile(r, h.key, t)
			return err
		}
		var bad error
		want := t.Index * TileWidth
		from, to := store.LogEntryRange(uint64(h.Generation), want, want+uint64(t.Width))
		err := r.Scan(from, to, func(key, entry []byte) bool {
			var index uint64
			if _, index, bad = store.ParseLogEntry(key); bad == nil && index != want {
				bad = fmt.Errorf("%w: entry %d is missing", ErrDamaged, want)
			}
			if bad == nil {
				out, bad = AppendEntry(out, entry)
			}
			want++
			return bad == nil
		})
		if err == nil && bad == nil && want != t.Index*TileWidth+uint64(t.Width) {
			bad = fmt.Errorf("%w: entry %d is missing", ErrDamaged, want)
		}
		return errors.Join(err, bad)
	})
	return out, err
}

// Find is the index of an entry by its name.
func (l *Log) Find(name string) (index uint64, ok bool, err error) {
	h := l.public.Load()
	raw, ok, err := l.st.Get(store.LogIndex(uint64(h.Generation), name))
	if err != nil || !ok {
		return 0, false, err
	}
	if index, err = strconv.ParseUint(string(raw), 10, 64); err != nil {
		return 0, false, fmt.Errorf("%w: the place of %.60q", ErrDamaged, name)
	}
	return index, index < h.Size, nil // its commit may be under way
}

// Prove proves an entry under the published checkpoint.
func (l *Log) Prove(index uint64) (p Proof, size uint64, err error) {
	h := l.public.Load()
	p = Proof{Index: index, Checkpoint: bytes.Clone(h.Checkpoint)}
	err = l.st.View(func(r store.Reader) error {
		p.Hashes, err = adp.ProveInclusion(h.node(r), index, h.Size)
		return err
	})
	if errors.Is(err, adp.ErrProofRange) {
		err = ErrNotThere
	}
	return p, h.Size, err
}

// ProveGrowth proves that the published log at the size to has grown from what it
// was at the size from (RFC 6962 §2.1.2).
func (l *Log) ProveGrowth(from, to uint64) (hashes [][]byte, err error) {
	h := l.public.Load()
	if from > to || to > h.Size {
		return nil, ErrNotThere
	}
	err = l.st.View(func(r store.Reader) error {
		hashes, err = adp.ProveConsistency(h.node(r), from, to)
		return err
	})
	return hashes, err
}

// RootAt is the root that the published log had at a size.
func (l *Log) RootAt(size uint64) (root [32]byte, err error) {
	h := l.public.Load()
	if size > h.Size {
		return root, ErrNotThere
	}
	err = l.st.View(func(r store.Reader) error {
		root, err = adp.ReadRoot(h.node(r), size)
		return err
	})
	return root, err
}
