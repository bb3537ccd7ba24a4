package witness

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// maxReenter bounds what goes into one commit when a new log takes up what was
// signed before.
const (
	maxReenter      = 256
	maxReenterBytes = 1 << 20
)

// NewLog begins a new log under the log key of a later generation, for a daemon
// whose log is lost: after a store was replaced or an old copy restored. What our
// agent key has signed and this store knows of enters the new log again; the
// change of the log key is vouched for by a rotation envelope (see Rotation).
// Then signing goes on.
//
// Only the operator may call for it: it is the promise that the old store is
// gone and will sign no more.
func (w *Witness) NewLog() (LogStatus, error) {
	if w.journal.log == nil || !w.o.Sign {
		return LogStatus{}, errors.New("witness: this daemon keeps no log: it signs nothing")
	}
	if err := w.renew(); err != nil {
		return LogStatus{}, err
	}
	if err := w.enterOld(); err != nil {
		return LogStatus{}, fmt.Errorf("witness: the new log has begun, but what was signed before is not all in it yet: %w", err)
	}
	w.resume()
	return w.Log()
}

func (w *Witness) renew() error {
	j := &w.journal
	w.rooms.Lock() // or a room checkpoint that has begun is signed with the key of the log before, which may not be
	defer w.rooms.Unlock()
	w.write.Lock()
	defer w.write.Unlock()
	generation, _ := j.log.Head()
	j.mu.Lock()
	generation = max(generation, j.refusal.Generation)
	j.mu.Unlock()
	if w.o.KeyFile != "" {
		c, err := tilelog.ReadCustody(w.o.KeyFile)
		if err != nil && !errors.Is(err, tilelog.ErrFormat) {
			return err
		}
		generation = max(generation, c.Generation)
	}
	generation++

	var b store.Batch
	pending, err := j.log.Renew(&b, generation)
	if err != nil {
		return err
	}
	now := w.o.Now()
	nonce := max(now, w.nonce+1)
	var rotation []byte
	if w.o.Rotation != nil {
		payload, err := w.o.Rotation(generation)
		if err != nil {
			return err
		}
		e, err := adp.Sign(w.o.Key, adp.Draft{Protocol: adp.WitnessProtocol, Type: TypeRotate, CreatedAt: now, Nonce: nonce, Payload: payload})
		if err != nil {
			return err
		}
		rotation = e.JSON()
		b.Put(store.Meta(rotationName), rotation)
	}
	stamp := strconv.AppendInt(nil, nonce, 10)
	b.Expect(store.Meta(nonceName), w.stamp)
	b.Put(store.Meta(nonceName), stamp)
	b.Put(store.Meta(renewedName), stamp)
	b.Delete(store.Meta(refusedName))
	if w.o.KeyFile != "" {
		// first the file: after a crash in between it names a generation that this
		// store does not have, and nothing is signed until NewLog is called again
		name, err := tilelog.NameStore(w.o.Store)
		if err == nil {
			err = tilelog.Custody{Store: name, Generation: generation}.Write(w.o.KeyFile)
		}
		if err != nil {
			return fmt.Errorf("witness: write beside the key file: %w", err)
		}
	}
	if err := w.put(&b); err != nil {
		j.mu.Lock() // as the next start would find it
		j.refusal.Reason, j.refusal.Generation = "a new log was begun and could not be stored", generation
		j.mu.Unlock()
		return err
	}
	w.nonce, w.stamp = nonce, stamp
	j.log.Publish(pending)
	w.grown()
	j.mu.Lock()
	j.refusal, j.lowest, j.rotation = refusal{}, nonce, rotation
	j.doubts = nil // they were about another log
	j.asked = true // no peer has seen anything of this log
	j.mu.Unlock()
	w.log.Warn("a new log has begun", "log", LogOrigin(w.o.Origin, generation), "generation", generation)
	return nil
}

// enterOld puts envelopes of our own into the log that it does not have yet: what
// was signed for an earlier log.
func (w *Witness) enterOld() error {
	w.write.Lock()
	defer w.write.Unlock()
	w.mu.RLock()
	var own []*item
	for _, it := range w.book.order {
		if it.agent == w.self {
			own = append(own, it)
		}
	}
	w.mu.RUnlock()
	var list []*adp.Envelope
	size := 0
	flush := func() error {
		if len(list) == 0 {
			return nil
		}
		if err := w.maySign(); err != nil { // a checkpoint is a signature
			return err
		}
		var b store.Batch
		settled, err := w.enter(&b, list...)
		if err != nil {
			return err
		}
		err = w.put(&b)
		settled(err)
		list, size = nil, 0
		return err
	}
	for _, it := range own {
		if _, ok, err := w.journal.log.Find(it.hash); err != nil {
			return err
		} else if ok {
			continue
		}
		raw, ok, err := w.o.Store.Get(storeKey(it.typ, it.hash))
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("the envelope %s is not in the store", it.hash))
		}
		e, err := parseEnvelope(raw)
		if err != nil {
			return err
		}
		list, size = append(list, e), size+len(raw)
		if len(list) == maxReenter || size > maxReenterBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
