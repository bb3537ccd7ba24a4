package witness

import "crypto/ed25519"

// What the log and its witnesses, and the witness of other logs, need of this
// package (see package cosign): they have the network and the cosigner key, which
// this package has not.

// grown tells whoever asks for cosignatures.
func (w *Witness) grown() {
	if w.o.Grown != nil {
		w.o.Grown()
	}
}

// cosigned is a checkpoint of our log with the cosignatures that there are.
func (w *Witness) cosigned(checkpoint []byte) []byte {
	if w.o.Cosigned == nil {
		return checkpoint
	}
	return w.o.Cosigned(checkpoint)
}

// Checkpoint is the newest checkpoint of our log, signed by its key alone; nil when
// there is none to show.
func (w *Witness) Checkpoint() []byte { return w.ownCheckpoint() }

// ProveGrowth proves that our log at the size to has grown from what it was at the
// size from.
func (w *Witness) ProveGrowth(from, to uint64) ([][]byte, error) {
	if w.journal.log == nil {
		return nil, noLog()
	}
	return w.journal.log.ProveGrowth(from, to)
}

// Shown takes a checkpoint that somebody shows who is not believed. When it is one
// of our own log that this store does not hold, nothing is signed any more.
func (w *Witness) Shown(checkpoint []byte) { w.shown(checkpoint) }

// Conflicting takes two checkpoints of one log, of one size and with different roots,
// that were shown to the cosigner of this daemon. Of a log of an origin that we follow
// they become a proof against it; of our own they mean that nothing may be signed.
func (w *Witness) Conflicting(line string, held, shown []byte) {
	if _, ok := logGeneration(w.o.Origin, line); ok {
		w.shown(held)
		w.shown(shown)
		return
	}
	w.meet()
	s, _, key, ok := w.attribute(shown)
	if !ok {
		w.log.Warn("a log that no followed host has told two stories; the operator of this daemon has named it", "log", line)
		return
	}
	w.proveOrLog(ProveCheckpoints(s, key, held, shown))
	for _, witness := range w.cosigners() {
		if p, err := ProveCosignatures(s, witness, held, shown); err == nil { // else it has not signed both
			w.proveOrLog(p, nil)
		}
	}
}

// Agreed says that a witness of our log has seen no more of it than we hold: signing
// need not wait for a peer.
func (w *Witness) Agreed(witness string) {
	w.journal.mu.Lock()
	delete(w.journal.doubts, witness)
	w.journal.mu.Unlock()
	w.askedPeer()
}

// Doubted says that a witness holds something against our log that has this origin line.
// While it does, nothing is signed: the operator has chosen that witness. What it says of
// a log before the present one may come when that has begun, and is no matter.
func (w *Witness) Doubted(witness, line, reason string) {
	j := &w.journal
	if j.log == nil {
		return
	}
	j.mu.Lock()
	if _, head := j.log.Head(); head.Origin != line { // renew publishes first, and forgets doubts then
		j.mu.Unlock()
		return
	}
	_, told := j.doubts[witness]
	if j.doubts == nil {
		j.doubts = map[string]string{}
	}
	j.doubts[witness] = reason
	j.mu.Unlock()
	if !told {
		w.log.Error("ALARM: nothing is signed about archives: a witness of our log holds something against it"+refusalHelp, "witness", witness, "reason", reason)
	}
}

// MaySign tells why nothing may be signed now about logs and archives.
func (w *Witness) MaySign() error { return w.maySign() }

// KeysOf lists the log keys that are or were bound to the followed origin whose log
// has this origin line; none for any other line.
func (w *Witness) KeysOf(line string) []ed25519.PublicKey {
	origin, ok := w.logOf(line)
	if !ok || w.o.LogKeys == nil {
		return nil
	}
	return w.o.LogKeys(origin)
}
