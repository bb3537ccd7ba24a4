package room

import (
	"hash/maphash"

	"github.com/witan-adp/witan/adp"
)

// MemoryChain is a Chain in memory, for verifying a file or an archive. It takes
// some 75 bytes a record, so that a room of a million records fits anywhere. The
// zero MemoryChain is empty.
type MemoryChain struct {
	chunks [][]chainEntry // each of chunkSize, but for the last: growing copies nothing
	count  int64

	// slots is an open hash table from envelope hash to seq; 0 is a free slot. The
	// seed keeps others from making envelopes that all meet in one place.
	slots []uint32
	used  int
	seed  maphash.Seed
}

type chainEntry struct{ record, envelope [32]byte }

const (
	chunkSize = 1024
	maxChain  = 1<<32 - 1
)

// Add takes the next record, which must have been parsed or made by package adp.
func (m *MemoryChain) Add(r *adp.Record) {
	var e chainEntry
	var err error
	if e.record, err = adp.DecodeHash(r.Hash); err == nil {
		e.envelope, err = adp.DecodeHash(r.Envelope.Hash)
	}
	if err != nil || m.count == maxChain {
		panic("room: a record that no chain can hold") // parsing has checked both hashes
	}
	if m.count%chunkSize == 0 {
		m.chunks = append(m.chunks, make([]chainEntry, 0, chunkSize))
	}
	last := &m.chunks[len(m.chunks)-1]
	*last = append(*last, e)
	m.count++
	if (m.used+1)*4 > len(m.slots)*3 {
		m.grow()
	}
	if i, found := m.slot(e.envelope); !found {
		m.slots[i] = uint32(m.count)
		m.used++
	}
}

func (m *MemoryChain) at(seq int64) *chainEntry {
	return &m.chunks[(seq-1)/chunkSize][(seq-1)%chunkSize]
}

// slot is where an envelope hash stands, or where it would be put.
func (m *MemoryChain) slot(envelope [32]byte) (i int, found bool) {
	mask := len(m.slots) - 1
	for i = int(maphash.Bytes(m.seed, envelope[:])) & mask; m.slots[i] != 0; i = (i + 1) & mask {
		if m.at(int64(m.slots[i])).envelope == envelope {
			return i, true
		}
	}
	return i, false
}

func (m *MemoryChain) grow() {
	old := m.slots
	if old == nil {
		m.seed = maphash.MakeSeed()
	}
	m.slots = make([]uint32, max(64, 2*len(old)))
	for _, seq := range old {
		if seq != 0 {
			i, _ := m.slot(m.at(int64(seq)).envelope)
			m.slots[i] = seq
		}
	}
}

// HashAt implements Chain.
func (m *MemoryChain) HashAt(seq int64) (string, bool) {
	if seq < 1 || seq > m.count {
		return "", false
	}
	return adp.Encode(m.at(seq).record[:]), true
}

// SeqOf implements Chain: of the same envelope twice, the first.
func (m *MemoryChain) SeqOf(hash string) (int64, bool) {
	envelope, err := adp.DecodeHash(hash)
	if err != nil || m.count == 0 {
		return 0, false
	}
	i, found := m.slot(envelope)
	return int64(m.slots[i]), found
}
