package replica

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// ringBytes bounds the recent records that a replica keeps in memory.
const ringBytes = 256 << 10

// ring holds the newest records without a gap.
type ring struct {
	first   int64 // seq of items[0]
	items   [][]byte
	bytes   int
	dropped int // items before this one are gone
}

func (g *ring) add(seq int64, rec []byte) {
	if n := int64(len(g.items)); n == 0 || g.first+n != seq {
		g.first, g.items, g.bytes, g.dropped = seq, nil, 0, 0
	}
	g.items = append(g.items, rec)
	g.bytes += len(rec)
	for g.bytes > ringBytes && g.dropped < len(g.items)-1 {
		g.bytes -= len(g.items[g.dropped])
		g.items[g.dropped] = nil
		g.dropped++
	}
	if g.dropped > 64 && g.dropped > len(g.items)/2 {
		g.items = append([][]byte(nil), g.items[g.dropped:]...)
		g.first, g.dropped = g.first+int64(g.dropped), 0
	}
}

// after gives the records behind a seq, when the ring has all of them. The
// slice is the caller's: add drops records in place.
func (g *ring) after(seq int64, limit, maxBytes int) ([][]byte, bool) {
	from := seq + 1 - g.first
	if len(g.items) == 0 || from < int64(g.dropped) || from > int64(len(g.items)) {
		return nil, false
	}
	part := g.items[from:]
	if len(part) > limit {
		part = part[:limit]
	}
	total := 0
	for i, rec := range part {
		if total += len(rec); total > maxBytes && i > 0 {
			return slices.Clone(part[:i]), true
		}
	}
	return slices.Clone(part), true
}

// Read gives committed records behind a seq, in order, at most limit of them
// and about maxBytes (one at least). The bytes are the canonical records and
// not to be changed.
func (r *Replica) Read(after int64, limit, maxBytes int) ([][]byte, error) {
	after = max(after, 0)
	r.moved.Lock()
	last := r.committed.Seq
	if after >= last {
		r.moved.Unlock()
		return nil, nil
	}
	if after < r.committed.Dropped {
		defer r.moved.Unlock()
		return nil, gone(r.committed)
	}
	recs, ok := r.ring.after(after, limit, maxBytes)
	r.moved.Unlock()
	if ok {
		return recs, nil
	}
	total := 0
	err := r.scan(after, last, func(_ int64, raw []byte) error {
		if total += len(raw); len(recs) == limit || total > maxBytes && len(recs) > 0 {
			return errStop
		}
		recs = append(recs, append([]byte(nil), raw...))
		return nil
	})
	return recs, err
}

// Record is one committed record.
func (r *Replica) Record(seq int64) ([]byte, bool, error) {
	if seq < 1 {
		return nil, false, nil
	}
	recs, err := r.Read(seq-1, 1, 1)
	if err != nil || len(recs) == 0 {
		return nil, false, err
	}
	return recs[0], true, nil
}

// Scan gives every committed record behind a seq up to another. raw is valid
// only in fn.
func (r *Replica) Scan(after, last int64, fn func(seq int64, raw []byte) error) error {
	row := r.Row()
	if after < row.Dropped {
		return gone(row)
	}
	return r.scan(after, min(last, row.Seq), fn)
}

var errStop = errors.New("enough")

// scan gives the records behind a seq up to another, all of which must be there.
func (r *Replica) scan(after, last int64, fn func(seq int64, raw []byte) error) error {
	if after >= last {
		return nil
	}
	var stop error
	err := r.set.st.View(func(rd store.Reader) error {
		from, to := store.RecordRange(r.ID, after+1, last+1)
		want := after
		err := rd.Scan(from, to, func(key, value []byte) bool {
			want++
			_, seq, err := store.ParseRecord(key)
			if err == nil && seq != want {
				err = fmt.Errorf("replica %d: no record at seq %d", r.ID, want)
			}
			if stop = err; stop == nil {
				stop = fn(want, value)
			}
			return stop == nil
		})
		if err == nil && stop == nil && want < last {
			err = fmt.Errorf("replica %d: the log ends at seq %d of %d", r.ID, want, last)
		}
		return err
	})
	if errors.Is(stop, errStop) {
		stop = nil
	}
	return errors.Join(err, stop)
}

// SeqOf is where an envelope hash was accepted, committed or not.
func (r *Replica) SeqOf(h string) (int64, bool) {
	r.turn.Lock()
	defer r.turn.Unlock()
	return r.seqOf(h)
}

// seqOf looks at what is in flight, then at the store. r.turn is held.
func (r *Replica) seqOf(h string) (int64, bool) {
	if seq, ok := r.flying[h]; ok {
		return seq, true
	}
	return r.storedSeq(h)
}

func (r *Replica) storedSeq(h string) (int64, bool) {
	env, err := adp.DecodeHash(h)
	if err != nil {
		return 0, false
	}
	raw, ok, err := r.set.st.Get(store.EnvelopeSeq(r.ID, env))
	var seq int64
	if err == nil && ok {
		seq, err = strconv.ParseInt(string(raw), 10, 64)
	}
	r.note(err)
	return seq, ok && err == nil
}

// note keeps an error that a Chain has no way to tell; sound tells it.
func (r *Replica) note(err error) {
	if r.unread == nil {
		r.unread = err
	}
}

// hashAt finds a record hash: in the tail, in a tile. r.turn is held.
func (r *Replica) hashAt(seq int64) (string, bool) {
	last := r.row.Seq
	if seq < 1 || seq > last {
		return "", false
	}
	tileStart := last / tileSize * tileSize
	if seq > tileStart {
		return r.tail[seq-tileStart-1], true
	}
	h, ok, err := r.tileHash(seq)
	r.note(err)
	return h, ok && err == nil
}

func (r *Replica) tileHash(seq int64) (string, bool, error) {
	index := (seq - 1) / tileSize
	t := r.cached
	for _, f := range r.fresh {
		if f.index == index {
			t = f
		}
	}
	if t.hashes == nil || t.index != index {
		raw, ok, err := r.set.st.Get(store.TreeTile(r.ID, uint64(index)))
		if err != nil {
			return "", false, err
		}
		if !ok || len(raw) != tileSize*32 { // not full yet
			return r.storedHash(seq)
		}
		t = tile{index, raw}
		r.cached = t
	}
	at := (seq - 1) % tileSize * 32
	return adp.Encode(t.hashes[at : at+32]), true, nil
}

// tile is 256 record hashes side by side.
type tile struct {
	index  int64
	hashes []byte
}

func (r *Replica) recordHash(seq int64) (string, bool, error) {
	raw, ok, err := r.set.st.Get(store.Record(r.ID, seq))
	if err != nil || !ok {
		return "", false, err
	}
	rec, err := parseStored(raw)
	if err != nil {
		return "", false, fmt.Errorf("seq %d: %w", seq, err)
	}
	return rec.Hash, true, nil
}

func parseStored(raw []byte) (*adp.Record, error) {
	v, err := adp.ScanDepth(raw, adp.RecordDepth)
	if err != nil {
		return nil, err
	}
	return adp.ParseServed(v)
}

func joinHashes(hashes []string) []byte {
	out := make([]byte, 0, len(hashes)*32)
	for _, h := range hashes {
		b, err := adp.DecodeHash(h)
		if err != nil {
			panic("replica: a record without a hash: " + err.Error())
		}
		out = append(out, b[:]...)
	}
	return out
}

// storedChain looks only at what the store holds before a seq.
type storedChain struct {
	r      *Replica
	before int64
}

func (c storedChain) HashAt(seq int64) (string, bool) {
	if seq < 1 || seq >= c.before {
		return "", false
	}
	h, ok, err := c.r.tileHash(seq)
	c.r.note(err)
	return h, ok && err == nil
}

func (c storedChain) SeqOf(h string) (int64, bool) {
	seq, ok := c.r.storedSeq(h)
	return seq, ok && seq < c.before
}
