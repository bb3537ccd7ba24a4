package witness

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// What hosts signed last is written soon after it was heard, many lines in one
// commit: a head comes several times a second from each busy room. So a restart
// forgets nothing, and a crash the last second.
const (
	claimsEvery  = time.Second
	claimsCommit = 512 // lines in one commit
)

func (n lineName) key() []byte { return store.Claim(n.Origin, n.RoomID, n.Genesis, n.checkpoints) }

// changed notes that a line is to be written, or to be deleted.
// t.mu is held.
func (t *claims) changed(name lineName, gone bool) {
	if t.unwritten == nil {
		t.unwritten = map[lineName]bool{}
	}
	t.unwritten[name] = gone
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// unsaved takes up to claimsCommit lines that are to be written, nil for one to be
// deleted.
func (t *claims) unsaved() map[lineName][]json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[lineName][]json.RawMessage{}
	for name := range t.unwritten {
		if len(out) == claimsCommit {
			break
		}
		delete(t.unwritten, name)
		out[name] = nil
		if at := t.lines[name]; at != nil {
			for _, c := range at.Value.(*claimLine).recent {
				out[name] = append(out[name], c.wire)
			}
		}
	}
	return out
}

// remember writes what hosts signed last until ctx ends, and once more then.
func (w *Witness) remember(ctx context.Context) error {
	for {
		select {
		case <-w.claims.wake:
		case <-ctx.Done():
			return w.saveClaims()
		}
		if err := w.saveClaims(); err != nil {
			w.log.Error("witness cannot write what hosts signed last; it is tried again", "err", err)
		}
		timer := time.NewTimer(claimsEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// saveClaims writes all lines that have changed.
func (w *Witness) saveClaims() error {
	for {
		lines := w.claims.unsaved()
		if len(lines) == 0 {
			return nil
		}
		var b store.Batch
		var err error
		for name, wires := range lines {
			if wires == nil {
				b.Delete(name.key())
				continue
			}
			var text []byte
			if text, err = adp.EncodeJSON(wires); err != nil {
				return err
			}
			b.Put(name.key(), text)
		}
		w.write.Lock()
		err = w.put(&b)
		w.write.Unlock()
		if err != nil {
			w.claims.mu.Lock()
			for name := range lines {
				w.claims.changed(name, w.claims.lines[name] == nil)
			}
			w.claims.mu.Unlock()
			return err
		}
	}
}

// recallClaims reads what was written, of origins that are still followed. Who signed
// a head was verified before it was written.
func (w *Witness) recallClaims() error {
	followed := append(slices.Clone(w.o.Origins()), w.o.Origin)
	return w.o.Store.View(func(r store.Reader) error {
		from, to := store.ClaimRange("")
		var bad error
		err := r.Scan(from, to, func(key, value []byte) bool {
			origin, roomID, genesis, line, err := store.ParseClaim(key)
			name := lineName{Subject{origin, roomID, genesis}, line}
			var wires []json.RawMessage
			if err == nil {
				err = json.Unmarshal(value, &wires)
			}
			if err != nil {
				bad = err
				return false
			}
			if !slices.Contains(followed, origin) {
				w.claims.mu.Lock()
				w.claims.changed(name, true)
				w.claims.mu.Unlock()
				return true
			}
			for _, wire := range slices.Backward(wires) {
				if c, ok := w.readClaim(name, wire); ok {
					w.claims.add(name, c)
				}
			}
			w.claims.mu.Lock()
			if w.claims.lines[name] != nil {
				delete(w.claims.unwritten, name)
			}
			w.claims.mu.Unlock()
			return true
		})
		return errors.Join(err, bad)
	})
}

// readClaim reads a claim as it was written; ok is false when nobody that we know has
// signed it.
func (w *Witness) readClaim(name lineName, wire json.RawMessage) (c claim, ok bool) {
	if name.checkpoints == "" {
		e, err := parseEnvelope(wire)
		return claim{head: e, wire: wire}, err == nil && w.speaksFor(name.Origin, e.Actor)
	}
	var note string
	if err := json.Unmarshal(wire, &note); err != nil {
		return c, false
	}
	s, head, signer, ok := w.attribute([]byte(note))
	if !ok || s != name.Subject || head.Origin != name.checkpoints {
		return c, false
	}
	c, err := w.newClaim([]byte(note), head, signer)
	return c, err == nil
}
