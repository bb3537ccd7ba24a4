package witness

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/tilelog"
)

// When a peer shows a checkpoint of a log that does not fit to what was read of
// that log here, the log has told two stories. What is missing for a proof are the
// tiles of the other story, and the host will not give them away: but who was shown
// that story and has read it can (ProtocolTile).
//
//	request   {"log":"<origin line>","tile":"tile/<L>/<N>[.p/<W>]"}
//	response  the bytes of the tile

// Bounds on what is asked of peers, and answered.
const (
	MaxTileRequest  = 1024
	MaxTileResponse = tilelog.TileWidth * tileHashBytes

	maxDoubted   = 1024 // checkpoints that were told of
	maxSuspects  = 64   // checkpoints that wait to be confronted
	suspectTries = 10   // rounds in which peers are asked
	confrontWith = 8    // peers in a round
)

// suspect is a checkpoint that does not fit to what was read of its log.
type suspect struct {
	origin string
	claim  claim
	tries  int
}

// doubt holds a checkpoint of a log against what was read of it, if that is as much.
func (w *Witness) doubt(s Subject, cl claim) {
	if s.RoomID != "" || s.Origin == w.o.Origin {
		return
	}
	t, err := w.tailOf(s.Origin)
	if err != nil {
		w.log.Error("witness cannot read what it holds of a log", "origin", s.Origin, "err", err)
		return
	}
	generation, size, _ := t.copy.Head()
	if of, ok := logGeneration(s.Origin, cl.c.Origin); !ok || of != generation || cl.c.Size > size {
		return
	}
	root, err := t.copy.RootAt(cl.c.Size)
	if err != nil {
		w.log.Error("witness cannot read what it holds of a log", "origin", s.Origin, "err", err)
		return
	}
	if root == cl.c.Root {
		return
	}
	w.tails.mu.Lock()
	if len(w.tails.doubted) >= maxDoubted {
		clear(w.tails.doubted)
	}
	told := w.tails.doubted[cl.c]
	if w.tails.doubted == nil {
		w.tails.doubted = map[tilelog.Checkpoint]bool{}
	}
	w.tails.doubted[cl.c] = true
	w.tails.mu.Unlock()
	if !told {
		w.log.Error("ALARM: a log has shown another tree than the one that was read", "log", cl.c.Origin, "size", cl.c.Size)
	}
	w.tails.mu.Lock()
	defer w.tails.mu.Unlock()
	known := slices.ContainsFunc(w.tails.suspects, func(x suspect) bool { return x.origin == s.Origin && x.claim.same(cl) })
	if !known && len(w.tails.suspects) < maxSuspects {
		w.tails.suspects = append(w.tails.suspects, suspect{origin: s.Origin, claim: cl})
	}
}

// suspect looks again at what was shown of the log before so much of it was read.
func (r *round) suspect() {
	s := Subject{Origin: r.t.origin}
	for _, cl := range r.w.claims.of(lineName{s, r.c.Origin}) {
		r.w.doubt(s, cl)
	}
}

// Suspects tells whether there is something to ask peers for with Confront.
func (w *Witness) Suspects() bool {
	w.tails.mu.Lock()
	defer w.tails.mu.Unlock()
	return len(w.tails.suspects) > 0
}

// Confront asks peers for the tiles of those checkpoints that do not fit to what was
// read of their logs, and keeps the proofs that come of it. It is quick when there
// are none.
func (w *Witness) Confront(ctx context.Context, peers []string, request func(ctx context.Context, peer string, request []byte) ([]byte, error)) error {
	w.tails.mu.Lock()
	list := w.tails.suspects
	w.tails.suspects = nil
	w.tails.mu.Unlock()
	var all []error
	for _, s := range list {
		done, err := w.confrontOne(ctx, s, peers, request)
		if err != nil {
			all = append(all, err)
		}
		if !done && s.tries == 0 {
			all = append(all, w.unproven(s))
		}
		if len(peers) > 0 {
			s.tries++
		}
		if !done && s.tries < suspectTries {
			w.tails.mu.Lock()
			if len(w.tails.suspects) < maxSuspects {
				w.tails.suspects = append(w.tails.suspects, s)
			}
			w.tails.mu.Unlock()
		}
	}
	return errors.Join(all...)
}

// unproven keeps the observation of a fork that no peer could prove yet.
func (w *Witness) unproven(s suspect) error {
	t, err := w.tailOf(s.origin)
	if err != nil {
		return err
	}
	_, _, held := t.copy.Head()
	return w.Evidence(Observation{Kind: "log-fork", Subject: Subject{Origin: s.origin}, Reason: "a checkpoint of the log does not fit to what was read of it; peers are asked for what is missing for a proof",
		Held: []json.RawMessage{noteText(held)}, Other: []json.RawMessage{noteText(s.claim.note)}})
}

func (w *Witness) confrontOne(ctx context.Context, s suspect, peers []string, request func(context.Context, string, []byte) ([]byte, error)) (done bool, err error) {
	subject := Subject{Origin: s.origin}
	for _, kind := range []string{KindInclusion, KindCheckpoints} {
		id := (&Proof{Kind: kind, Subject: subject, Agent: adp.NewAgentID(s.claim.key)}).id()
		w.mu.RLock()
		known := w.book.evidence[id]
		w.mu.RUnlock()
		if known { // it has two logs: one proof is enough
			return true, nil
		}
	}
	t, err := w.tailOf(s.origin)
	if err != nil {
		return false, err
	}
	// each daemon begins with another peer
	lot := sha256.Sum256([]byte(fmt.Sprint(w.self, s.tries)))
	var all []error
	for i := range min(len(peers), confrontWith) {
		peer := peers[(int(lot[0])+i)%len(peers)]
		tree, err := tilelog.OpenRemote(s.claim.c, func(x tilelog.Tile) ([]byte, error) {
			v, err := adp.EncodeValue(map[string]any{"log": s.claim.c.Origin, "tile": x.Path()})
			if err != nil {
				return nil, err
			}
			return request(ctx, peer, v.Raw())
		})
		var proofs []*Proof
		if err == nil {
			proofs, err = w.confronted(t, s.claim.key, tree, s.claim.note)
		}
		if err == nil {
			for _, p := range proofs {
				w.proveOrLog(p, nil)
			}
			return true, nil
		}
		all = append(all, fmt.Errorf("witness: ask a peer for the other story of a log: %w", err))
	}
	return false, errors.Join(all...)
}

// ServeTile answers a peer that asks for a tile of our log, or of a log that was read
// here.
func (w *Witness) ServeTile(_ context.Context, from string, request []byte) ([]byte, error) {
	bad := errors.New(`the request must be {"log":"<origin line>","tile":"tile/<L>/<N>[.p/<W>]"}`)
	if len(request) > MaxTileRequest {
		return nil, bad
	}
	v, err := adp.Scan(request)
	if err != nil || v.Kind() != adp.Object || v.Len() != 2 {
		return nil, bad
	}
	line, isLine := v.Get("log").Str()
	path, isPath := v.Get("tile").Str()
	t, err := tilelog.ParsePath(path)
	if !isLine || !isPath || err != nil || t.Entries {
		return nil, bad
	}
	out, err := w.tileOf(line, t)
	if errors.Is(err, ErrNotThere) {
		return nil, errors.New("no such tile of that log is held here")
	}
	if err != nil {
		w.log.Error("witness cannot read a tile", "log", line, "err", err)
		return nil, errors.New("the store cannot be read now; try again later")
	}
	return out, nil
}

func (w *Witness) tileOf(line string, t tilelog.Tile) ([]byte, error) {
	if generation, ok := logGeneration(w.o.Origin, line); ok {
		if len(w.ownCheckpoint()) == 0 {
			return nil, ErrNotThere
		}
		if present, _ := w.journal.log.Head(); present != generation {
			return nil, ErrNotThere
		}
		return w.journal.log.Read(t)
	}
	for _, origin := range w.o.Origins() { // two may differ in the scheme alone
		generation, ok := logGeneration(origin, line)
		if !ok {
			continue
		}
		read, err := w.tailOf(origin)
		if err != nil {
			return nil, err
		}
		if of, _, _ := read.copy.Head(); of != generation {
			continue
		}
		if b, err := read.copy.Tile(t); !errors.Is(err, ErrNotThere) {
			return b, err
		}
	}
	return nil, ErrNotThere
}
