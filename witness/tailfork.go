package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/tilelog"
)

// unlogged looks for what the origin has signed and does not have in its log, which
// was read to its end. What is missing twice is shown: between two rounds a log
// that had to begin again takes up what was signed before.
func (r *round) unlogged(mark uint64) error {
	w, t := r.w, r.t
	var look []*item
	w.mu.RLock()
	for hash := range t.missing {
		if it := w.book.byHash[hash]; it != nil && it.n < t.checked {
			look = append(look, it)
		}
	}
	order := w.book.order // by n
	for i := sort.Search(len(order), func(i int) bool { return order[i].n >= t.checked }); i < len(order) && order[i].n < mark; i++ {
		look = append(look, order[i])
	}
	w.mu.RUnlock()
	missing := map[string]bool{}
	for _, it := range look {
		if !w.speaksFor(t.origin, it.agent) {
			continue
		}
		_, ok, err := t.copy.Find(it.hash)
		if err != nil {
			return err
		}
		if ok || !t.missing[it.hash] && len(missing) >= maxMissing {
			continue
		}
		if !t.missing[it.hash] {
			missing[it.hash] = true
			continue
		}
		raw, found, err := w.o.Store.Get(storeKey(it.typ, it.hash))
		if err != nil || !found {
			return err
		}
		err = w.Evidence(Observation{Kind: "unlogged", Subject: it.subject, Reason: "the log of " + t.origin + ", which was read to its end, does not have it",
			Held: []json.RawMessage{noteText(r.note)}, Other: []json.RawMessage{raw}})
		if err != nil {
			return err
		}
	}
	t.checked, t.missing = mark, missing
	return nil
}

func noteText(note []byte) json.RawMessage {
	text, err := json.Marshal(string(note))
	if err != nil {
		panic("witness: encode: " + err.Error()) // a string can always be written
	}
	return text
}

// observe keeps an observation about the log.
func (r *round) observe(kind, reason string, held, other []byte) error {
	o := Observation{Kind: kind, Subject: Subject{Origin: r.t.origin}, Reason: reason, Other: []json.RawMessage{other}}
	if held != nil {
		o.Held = []json.RawMessage{noteText(held)}
	}
	return r.w.Evidence(o)
}

// stale is for a checkpoint that was outgrown: a restored backup, or an answer of a
// cache. It is no contradiction.
func (r *round) stale(held []byte) error {
	return errors.Join(ErrLogStale, r.observe("stale-log", "the log shows less than it has shown before", held, noteText(r.note)))
}

// broken is for tiles and entries that are not what the checkpoint says; what
// could not be read for another reason passes.
func (r *round) broken(err error) error {
	if !errors.Is(err, tilelog.ErrFormat) {
		return err
	}
	return errors.Join(fmt.Errorf("%w: %w", ErrLogBroken, err), r.observe("log-broken", err.Error(), nil, noteText(r.note)))
}

// odd is for an entry that is no envelope, or none that holds. It stays an entry.
func (r *round) odd(index uint64, raw []byte) error {
	text, err := json.Marshal(base64.StdEncoding.EncodeToString(raw[:min(len(raw), MaxStatement)]))
	if err != nil {
		return err
	}
	return r.observe("log-entry", fmt.Sprintf("entry %d of the log is not an authentic statement or attestation", index), r.note, text)
}

// forked keeps the proofs of a fork, or what there is of it.
func (r *round) forked(held []byte, proofs []*Proof, err error) error {
	r.w.log.Error("ALARM: a log shows another tree than the one that was read", "log", r.c.Origin, "size", r.c.Size)
	if err == nil {
		for _, p := range proofs {
			r.w.proveOrLog(p, nil)
		}
		return ErrLogForked
	}
	if !errors.Is(err, errUnprovable) { // what could not be read now may be read later
		return r.broken(err)
	}
	return errors.Join(ErrLogForked, r.observe("log-fork", err.Error(), held, noteText(r.note)))
}

// confronted makes the proofs that a tree, under a checkpoint of the same log, is not
// the one that was read: both checkpoints, and the first leaf at which they differ.
// The first is against the log, others against cosigners of both.
func (w *Witness) confronted(t *tail, key ed25519.PublicKey, tree *tilelog.Remote, note []byte) (proofs []*Proof, err error) {
	_, _, held := t.copy.Head()
	if !t.copy.Whole() {
		return nil, errNoLeaves
	}
	var sides [2]Signed
	err = t.copy.Read(func(size uint64, node adp.NodeReader) error {
		least := min(size, tree.Checkpoint().Size)
		index, ok, err := tilelog.Difference(node, tree.Node, least)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: the first %d entries are the same", errNoLeaves, least)
		}
		for i, side := range []struct {
			note []byte
			size uint64
			read adp.NodeReader
		}{{held, size, node}, {note, tree.Checkpoint().Size, tree.Node}} {
			in := &Inclusion{Index: int64(index)}
			if in.Leaf, err = side.read(0, index); err != nil {
				return err
			}
			if in.Hashes, err = adp.ProveInclusion(side.read, index, side.size); err != nil {
				return err
			}
			sides[i] = Signed{Note: bytes.Clone(side.note), Inclusion: in}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := Subject{Origin: t.origin}
	p, err := ProveInclusion(s, key, sides[0], sides[1])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnprovable, err)
	}
	proofs = append(proofs, p)
	for _, witness := range w.cosigners() {
		if p, err := ProveCosignedInclusion(s, witness, sides[0], sides[1]); err == nil { // else it has not signed both
			proofs = append(proofs, p)
		}
	}
	return proofs, nil
}
