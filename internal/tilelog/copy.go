package tilelog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// Copy is what this daemon has read of the log of another origin: the hashes of
// all entries so far, so that it can tell whether any other checkpoint of that log
// fits, prove where one does not, and prove what is in the log although its host
// may be gone. The entries themselves are the reader's.
//
// Extend and Publish are for one caller at a time; all else is safe for concurrent
// use, and sees what is published.
type Copy struct {
	st     *store.Store
	origin string
	public atomic.Pointer[head]
}

// OpenCopy reads what the store holds of the log of an origin, nothing at first.
// What does not add up is ErrDamaged, beside a Copy that begins again.
func OpenCopy(st *store.Store, origin string) (*Copy, error) {
	c := &Copy{st: st, origin: origin}
	h := &head{}
	err := c.load(h)
	if errors.Is(err, ErrDamaged) {
		h = &head{json: h.json}
	} else if err != nil {
		return nil, err
	}
	h.key = c.keys(h.Generation)
	c.public.Store(h)
	return c, err
}

func (c *Copy) keys(generation int) func(level, index uint64) []byte {
	return func(level, index uint64) []byte { return store.TailTile(c.origin, uint64(generation), level, index) }
}

func (c *Copy) load(h *head) error {
	err := c.st.View(func(r store.Reader) error {
		raw, ok, err := r.Get(store.TailHead(c.origin))
		if err != nil || !ok {
			return err
		}
		h.json = raw
		if err := json.Unmarshal(raw, h); err != nil || h.Size>>63 != 0 {
			return fmt.Errorf("%w: the head of the copy of %s is %.200q", ErrDamaged, c.origin, raw)
		}
		h.key = c.keys(h.Generation)
		return h.readEdges(r)
	})
	if err != nil {
		return err
	}
	if h.root, err = adp.ReadRoot(h.node(nil), h.Size); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if h.json == nil {
		return nil
	}
	at, err := PeekCheckpoint(h.Checkpoint)
	if err != nil || at.Size < h.Size || at.Size == h.Size && at.Root != h.root {
		return fmt.Errorf("%w: the copy of the log of %s is not what its checkpoint says (%v)", ErrDamaged, c.origin, err)
	}
	return nil
}

// Head tells how many entries were read, of which generation, and up to which
// signed checkpoint they are proven; that is nil while nothing was read, and may be
// of more entries than were read yet.
func (c *Copy) Head() (generation int, size uint64, checkpoint []byte) {
	h := c.public.Load()
	return h.Generation, h.Size, bytes.Clone(h.Checkpoint)
}

// Whole tells whether everything under the checkpoint was read.
func (c *Copy) Whole() bool {
	h := c.public.Load()
	at, err := PeekCheckpoint(h.Checkpoint)
	return err == nil && at.Size == h.Size
}

// Extend puts entries that follow those that were read into a batch, which is
// refused with store.ErrConflict when the stored head is another one. They must be
// proven under the checkpoint. A later generation begins again from nothing.
func (c *Copy) Extend(b *store.Batch, generation int, checkpoint []byte, entries ...Entry) (*Pending, error) {
	old := c.public.Load()
	next := &head{Generation: old.Generation, Size: old.Size, edges: old.cloneEdges(), Checkpoint: checkpoint}
	if generation != old.Generation {
		if generation < old.Generation {
			return nil, fmt.Errorf("tilelog: generation %d of a log comes before %d", generation, old.Generation)
		}
		next = &head{Generation: generation, Checkpoint: checkpoint}
	}
	next.key = c.keys(generation)
	for _, e := range entries {
		if e.Name != "" {
			b.Put(store.TailIndex(c.origin, e.Name), fmt.Appendf(nil, "%d %d", generation, next.Size))
		}
		if err := next.add(b, adp.LeafHash(e.Data)); err != nil {
			return nil, err
		}
	}
	next.putEdges(b)
	var err error
	if next.root, err = adp.ReadRoot(next.node(nil), next.Size); err != nil {
		return nil, err
	}
	if next.json, err = json.Marshal(next); err != nil {
		return nil, err
	}
	b.Expect(store.TailHead(c.origin), old.json)
	b.Put(store.TailHead(c.origin), next.json)
	return &Pending{next}, nil
}

// Publish makes the head of a batch that is on the disk the one that is used.
func (c *Copy) Publish(p *Pending) { c.public.Store(p.next) }

// Read lets fn look at one state of the copy.
func (c *Copy) Read(fn func(size uint64, node adp.NodeReader) error) error {
	h := c.public.Load()
	return c.st.View(func(r store.Reader) error { return fn(h.Size, h.node(r)) })
}

// RootAt is the root of the first size entries.
func (c *Copy) RootAt(size uint64) (root [32]byte, err error) {
	err = c.Read(func(have uint64, node adp.NodeReader) error {
		if size > have {
			return ErrNotThere
		}
		root, err = adp.ReadRoot(node, size)
		return err
	})
	return root, err
}

// Find is the index of an entry by its name.
func (c *Copy) Find(name string) (index uint64, ok bool, err error) {
	h := c.public.Load()
	raw, ok, err := c.st.Get(store.TailIndex(c.origin, name))
	if err != nil || !ok {
		return 0, false, err
	}
	generation, place, _ := strings.Cut(string(raw), " ")
	if generation != strconv.Itoa(h.Generation) { // of the log before
		return 0, false, nil
	}
	if index, err = strconv.ParseUint(place, 10, 64); err != nil {
		return 0, false, fmt.Errorf("%w: the place of %.60q", ErrDamaged, name)
	}
	return index, index < h.Size, nil
}

// Prove proves an entry under the checkpoint; ErrNotThere while not all under it
// was read.
func (c *Copy) Prove(index uint64) (p Proof, size uint64, err error) {
	h := c.public.Load()
	at, err := PeekCheckpoint(h.Checkpoint)
	if err != nil || at.Size != h.Size || index >= h.Size {
		return p, 0, ErrNotThere
	}
	p = Proof{Index: index, Checkpoint: bytes.Clone(h.Checkpoint)}
	err = c.st.View(func(r store.Reader) error {
		p.Hashes, err = adp.ProveInclusion(h.node(r), index, h.Size)
		return err
	})
	return p, h.Size, err
}

// Tile gives the bytes of a tile of hashes.
func (c *Copy) Tile(t Tile) (out []byte, err error) {
	h := c.public.Load()
	if t.Entries || !t.within(h.Size) {
		return nil, ErrNotThere
	}
	err = c.st.View(func(r store.Reader) error {
		out, err = readTile(r, h.key, t)
		return err
	})
	return out, err
}
