package witness

import (
	"fmt"

	"github.com/witan-adp/witan/internal/tilelog"
)

// maxShown bounds the checkpoints in one page of catch-up.
const maxShown = 4

// ownCheckpoint is the signed head of our log; nil when there is none to show.
func (w *Witness) ownCheckpoint() []byte {
	l := w.journal.log
	if l == nil || !w.o.Sign {
		return nil
	}
	return l.Checkpoint()
}

// shown takes a checkpoint that a peer shows. One of our own log tells whether
// this store is the newest: a log that is longer than ours, or another one, means
// that it is not, and then nothing may be signed. Those of others go to saw.
func (w *Witness) shown(note []byte) {
	c, err := tilelog.PeekCheckpoint(note)
	if err != nil || w.journal.log == nil {
		return
	}
	if generation, ok := logGeneration(w.o.Origin, c.Origin); ok {
		w.shownOwn(note, generation)
		return
	}
	w.saw(note)
}

func (w *Witness) shownOwn(note []byte, generation int) {
	c, err := tilelog.OpenCheckpoint(note, w.logKey(generation))
	if err != nil || !w.o.Sign {
		return // not ours, whatever it says
	}
	if w.against(c, generation) != "" {
		w.refuse(generation, func() string { return w.against(c, generation) })
	}
}

// against is what a checkpoint of our log says against going on with this store; "" for
// nothing.
func (w *Witness) against(c tilelog.Checkpoint, generation int) string {
	present, head := w.journal.log.Head()
	switch {
	case generation < present:
		return ""
	case generation > present:
		return fmt.Sprintf("a peer has seen generation %d of our log, and this store holds generation %d", generation, present)
	case c.Size > head.Size:
		return fmt.Sprintf("a peer has seen %d entries of our log, and this store holds %d: it is an older copy, or the key is in use elsewhere", c.Size, head.Size)
	}
	root, err := w.journal.log.RootAt(c.Size)
	if err != nil {
		w.log.Error("witness cannot compare its log with what a peer has seen", "err", err)
	} else if root != c.Root {
		return fmt.Sprintf("a peer has seen another log of ours at size %d: the key has signed two", c.Size)
	}
	return ""
}

// logOf is the followed origin that an origin line is of.
func (w *Witness) logOf(line string) (origin string, ok bool) {
	for _, o := range w.o.Origins() {
		if _, ok := logGeneration(o, line); ok {
			return o, true
		}
	}
	return "", false
}

// toShow is what a peer that shows its own checkpoint gets: ours, and the
// greatest that we have seen of its log.
func (w *Witness) toShow(theirs []byte) (notes []string) {
	if own := w.ownCheckpoint(); own != nil {
		notes = append(notes, string(own))
	}
	c, err := tilelog.PeekCheckpoint(theirs)
	if err != nil {
		return notes
	}
	if origin, ok := w.logOf(c.Origin); ok {
		w.journal.mu.Lock()
		if kept := w.journal.seen[origin]; kept != nil {
			notes = append(notes, string(kept))
		}
		w.journal.mu.Unlock()
	}
	return notes
}
