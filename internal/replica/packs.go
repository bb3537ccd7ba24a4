package replica

import (
	"container/list"
	"sync"

	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/store"
)

// maxPackBytes bounds the documents whose packs are kept in memory: which packs
// there are is for rooms of others to say.
const maxPackBytes = 16 << 20

// packs remembers the external packs that were looked at last.
type packs struct {
	mu    sync.Mutex
	most  int // bytes
	bytes int
	order list.List // of *keptPack, the one used last in front
	of    map[string]*list.Element
}

type keptPack struct {
	digest string
	pack   *types.Pack
	size   int
}

func (p *packs) get(digest string) (*types.Pack, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.of[digest]
	if e == nil {
		return nil, false
	}
	p.order.MoveToFront(e)
	return e.Value.(*keptPack).pack, true
}

func (p *packs) add(digest string, pack *types.Pack, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[digest] != nil {
		return
	}
	if p.of == nil {
		p.of = map[string]*list.Element{}
	}
	p.of[digest] = p.order.PushFront(&keptPack{digest, pack, size})
	for p.bytes += size; p.bytes > p.most && p.order.Len() > 1; {
		last := p.order.Remove(p.order.Back()).(*keptPack)
		delete(p.of, last.digest)
		p.bytes -= last.size
	}
}

// Pack is an external pack document that the store holds.
func (s *Set) Pack(digest string) (*types.Pack, bool) {
	if p, ok := s.packs.get(digest); ok {
		return p, true
	}
	raw, ok, err := s.st.Get(store.Pack(digest))
	if err != nil || !ok || types.Digest(digest, raw) != nil {
		return nil, false
	}
	p, err := types.ParsePack(raw)
	if err != nil {
		return nil, false
	}
	s.packs.add(digest, p, len(raw))
	return p, true
}

// PackSource is the raw bytes of an external pack document.
func (s *Set) PackSource(digest string) ([]byte, bool) {
	raw, ok, err := s.st.Get(store.Pack(digest))
	return raw, ok && err == nil
}

// KeepPack stores an external pack document whose digest has been checked.
func (s *Set) KeepPack(digest string, raw []byte) error {
	var b store.Batch
	b.Put(store.Pack(digest), raw)
	return s.st.Commit(&b)
}

// PacksFor collects the external packs that an event imports, as far as the
// store holds them; missing names the others.
func (s *Set) PacksFor(refs []types.PackRef) (have map[string]*types.Pack, missing []types.PackRef) {
	for _, ref := range refs {
		p, ok := s.Pack(ref.Digest)
		if !ok {
			missing = append(missing, ref)
			continue
		}
		if have == nil {
			have = map[string]*types.Pack{}
		}
		have[ref.Digest] = p
	}
	return have, missing
}
