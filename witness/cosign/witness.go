package cosign

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/store"
)

// Why a checkpoint is not cosigned. A request that is malformed, or whose old size is
// above the new one, is cosignature.ErrFormat; one that no known key has signed is
// cosignature.ErrSignature.
var (
	ErrUnknownLog = errors.New("cosign: this log is not witnessed here")
	ErrProof      = errors.New("cosign: the proof does not lead to this checkpoint from the one that was cosigned last")
	ErrRefused    = errors.New("cosign: nothing is signed now")
)

// Conflict says that another checkpoint of the log was cosigned last.
type Conflict struct {
	Size uint64 // of that checkpoint
	Root bool   // the size is the same and the root another
}

func (c *Conflict) Error() string {
	if c.Root {
		return fmt.Sprintf("cosign: another tree of %d entries was cosigned", c.Size)
	}
	return fmt.Sprintf("cosign: the checkpoint that was cosigned last has %d entries", c.Size)
}

// cosigned is what the store holds of a log.
type cosigned struct {
	Size uint64 `json:"size"`
	Root []byte `json:"root"`
	Time int64  `json:"time"` // of the cosignature, Unix seconds
	Note []byte `json:"note"` // as the log and this witness have signed it
}

// read gives what is stored of a log, the empty tree when there is nothing. raw is the
// stored form, nil for nothing.
func (w *Witness) read(origin [32]byte) (last cosigned, raw []byte, err error) {
	raw, found, err := w.o.Store.Get(store.Cosigned(origin))
	if err != nil {
		return last, nil, err
	}
	if !found {
		empty := adp.MerkleRoot(nil)
		return cosigned{Root: empty[:]}, nil, nil
	}
	if err := json.Unmarshal(raw, &last); err != nil || len(last.Root) != 32 {
		return last, nil, fmt.Errorf("cosign: what is stored of a log cannot be read, and nothing is signed for it: %.80q: %v", raw, err)
	}
	return last, raw, nil
}

// verifiers are the keys of a log, none for one that is not known.
func (w *Witness) verifiers(line string) (known []*cosignature.Verifier) {
	type id struct {
		name string
		hash uint32
	}
	seen := map[id]bool{} // two keys of one name and ID are ambiguous in a note
	add := func(v *cosignature.Verifier) {
		if k := (id{v.Name(), v.KeyHash()}); !seen[k] {
			seen[k] = true
			known = append(known, v)
		}
	}
	for _, l := range w.o.Logs {
		if l.Origin == line {
			add(l.Key)
		}
	}
	for _, key := range w.o.Bound(line) {
		v, err := cosignature.NewVerifier(line, cosignature.Log, key)
		if err != nil {
			w.log.Warn("a bound log key cannot be used", "log", line, "err", err)
			continue
		}
		add(v)
	}
	return known
}

// Add answers the body of an add-checkpoint request: the signature line of this
// witness, or the reason why it does not sign.
func (w *Witness) Add(body []byte) (line string, err error) {
	r, err := cosignature.ParseRequest(body)
	if err != nil {
		return "", err
	}
	c := r.Checkpoint
	known := w.verifiers(c.Origin)
	if len(known) == 0 {
		return "", ErrUnknownLog
	}
	_, sigs, err := cosignature.Open(r.Note, known...)
	if err != nil {
		return "", err
	}
	signed := cosignature.Append(c.Text(), cosignature.Lines(sigs)...)
	if w.o.Seen != nil {
		w.o.Seen(signed)
	}
	id := sha256.Sum256([]byte(c.Origin))
	last, raw, err := w.read(id)
	if err != nil {
		return "", err
	}
	same := bytes.Equal(c.Root[:], last.Root)
	if raw != nil && c.Size == last.Size && !same {
		w.log.Error("ALARM: a log shows another tree of the size that was cosigned", "log", c.Origin, "size", c.Size)
		if w.o.Contradicted != nil {
			w.o.Contradicted(c.Origin, last.Note, signed)
		}
	}
	if r.Old != last.Size {
		return "", &Conflict{Size: last.Size}
	}
	if raw != nil && c.Size == last.Size && !same {
		return "", &Conflict{last.Size, true}
	}
	if err := adp.VerifyConsistency(r.Old, c.Size, r.Proof, [32]byte(last.Root), c.Root); err != nil {
		w.log.Error("ALARM: a log shows a checkpoint that does not follow from the one that was cosigned", "log", c.Origin, "old", r.Old, "size", c.Size, "err", err)
		return "", fmt.Errorf("%w: %v", ErrProof, err)
	}
	if err := w.o.MaySign(); err != nil {
		return "", fmt.Errorf("%w: %v", ErrRefused, err)
	}
	return w.sign(c, cosignature.Lines(sigs), id, last, raw)
}

// sign puts the checkpoint into the place of the one before, and only then lets the
// signature out.
func (w *Witness) sign(c cosignature.Checkpoint, by []string, id [32]byte, last cosigned, raw []byte) (string, error) {
	// a later signature never bears an earlier time, whatever the clock does
	at := max(w.o.Now()/1000, last.Time)
	line, err := cosignature.Cosign(w.o.Name, w.o.Key(), c.Text(), at)
	if err != nil {
		return "", err
	}
	next, err := json.Marshal(cosigned{c.Size, c.Root[:], at, cosignature.Append(c.Text(), append(by, line)...)})
	if err != nil {
		return "", err
	}
	var b store.Batch
	b.Expect(store.Cosigned(id), raw)
	b.Put(store.Cosigned(id), next)
	err = w.put(&b)
	if errors.Is(err, store.ErrConflict) { // another request was first
		if last, _, err = w.read(id); err != nil {
			return "", err
		}
		return "", &Conflict{Size: last.Size}
	}
	if err != nil {
		return "", err
	}
	return line, nil
}

// Last is the last checkpoint of a log that was cosigned, with the signatures of the
// log and of this witness; nil when there is none. origin is the SHA-256 of its
// origin line.
func (w *Witness) Last(origin [32]byte) ([]byte, error) {
	last, _, err := w.read(origin)
	return last.Note, err
}
