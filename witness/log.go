package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// What the store keeps of the log beside the log itself.
const (
	refusedName  = "log.refused"  // why nothing is signed any more
	renewedName  = "log.renewed"  // the nonce of the rotation: own envelopes below it are of an earlier log
	rotationName = "log.rotation" // the envelope that announces the present log key
)

// TypeRotate announces other keys of an origin; it stands in its did:web document.
const TypeRotate = "key.rotate"

// ErrRefused: this daemon signs nothing about archives, since a signature could
// contradict one that it has given out. Everything else goes on.
var ErrRefused = errors.New("witness: nothing is signed")

// errAsking: a peer may know more of our log than we do, and none was asked yet.
var errAsking = errors.New("witness: no peer was asked yet what it has seen of our log")

const refusalHelp = "; put the newest store and key files back, or, when they are lost, begin a new log with: witan log new"

// journal is the daemon's log, and whether it may grow.
type journal struct {
	log *tilelog.Log // nil: no log is kept

	mu        sync.Mutex
	refusal   refusal
	doubts    map[string]string // by the names of witnesses of the log: what they hold against it
	lowest    int64             // own envelopes with a smaller nonce are of an earlier log
	rotation  []byte            // the envelope that announces the present log key
	askBefore time.Time         // until then a peer has to be asked first
	asked     bool
	held      map[string]bool   // own envelopes that may or may not be on the disk: not shown
	seen      map[string][]byte // origin → greatest checkpoint of its log that was shown here
}

type refusal struct {
	Reason     string `json:"reason"`
	Generation int    `json:"generation"` // the latest that has been seen
}

// authorityOf is host[:port] of an origin.
func authorityOf(origin string) string { _, a, _ := strings.Cut(origin, "://"); return a }

// LogOrigin is the origin line of an origin's log. A log that had to begin again
// is another log, and has its generation in its name: who witnessed the one before
// would refuse a shorter one of the same name.
func LogOrigin(origin string, generation int) string {
	name := authorityOf(origin) + "/witan"
	if generation > 1 {
		name += "/" + strconv.Itoa(generation)
	}
	return name
}

// logGeneration reads the generation from the origin line of an origin's log.
func logGeneration(origin, line string) (generation int, ok bool) {
	rest, ok := strings.CutPrefix(line, authorityOf(origin)+"/witan")
	if !ok || rest == "" {
		return 1, ok
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "/"))
	return n, err == nil && n > 1 && n <= 1<<20 && LogOrigin(origin, n) == line
}

// openLog reads the log and finds out whether it may grow.
func (w *Witness) openLog() error {
	j := &w.journal
	j.held, j.seen = map[string]bool{}, map[string][]byte{}
	if w.o.LogKey == nil {
		if w.o.Sign {
			w.log.Warn("witness keeps no log of what it signs: it has no log key")
		}
		return nil
	}
	l, err := tilelog.Open(w.o.Store, func(g int) string { return LogOrigin(w.o.Origin, g) }, w.o.LogKey)
	if errors.Is(err, tilelog.ErrDamaged) {
		j.refusal.Reason = err.Error()
	} else if err != nil {
		return err
	}
	j.log = l
	generation, head := l.Head()
	if err := w.loadJournal(); err != nil {
		return err
	}
	if j.refusal.Reason == "" && w.o.Sign && w.o.KeyFile != "" {
		if j.refusal.Reason, err = tilelog.Claim(w.o.KeyFile, w.o.Store, generation, head.Size); err != nil {
			return err
		}
	}
	if j.refusal.Reason != "" && w.o.Sign {
		w.log.Error("ALARM: nothing is signed about archives: "+j.refusal.Reason+refusalHelp, "log", head.Origin)
	}
	if head.Size > 0 && w.o.PeersFirst > 0 {
		j.askBefore = time.Now().Add(w.o.PeersFirst)
	}
	return w.logMetrics()
}

func (w *Witness) loadJournal() error {
	j := &w.journal
	return w.o.Store.View(func(r store.Reader) error {
		raw, ok, err := r.Get(store.Meta(refusedName))
		if err == nil && ok {
			err = json.Unmarshal(raw, &j.refusal)
		}
		if err != nil {
			return err
		}
		if raw, ok, err = r.Get(store.Meta(renewedName)); err == nil && ok {
			j.lowest, err = strconv.ParseInt(string(raw), 10, 64)
		}
		if err != nil {
			return err
		}
		if j.rotation, _, err = r.Get(store.Meta(rotationName)); err != nil {
			return err
		}
		from, to := store.SeenLogRange()
		var bad error
		err = r.Scan(from, to, func(key, note []byte) bool {
			var origin string
			origin, bad = store.ParseSeenLog(key)
			j.seen[origin] = bytes.Clone(note)
			return bad == nil
		})
		return errors.Join(err, bad)
	})
}

func (w *Witness) logMetrics() error {
	if w.o.Registerer == nil {
		return nil
	}
	for _, g := range []prometheus.GaugeFunc{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "witan_log_entries", Help: "Entries of the daemon's log."}, func() float64 {
			_, head := w.journal.log.Head()
			return float64(head.Size)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "witan_log_refusing", Help: "1 when nothing is signed for fear of a contradiction."}, func() float64 {
			if w.refusing() != "" {
				return 1
			}
			return 0
		}),
	} {
		if err := w.o.Registerer.Register(g); err != nil {
			return fmt.Errorf("witness: register metrics: %w", err)
		}
	}
	return nil
}

func (w *Witness) refusing() string {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	return w.journal.reason()
}

// reason is why nothing may be signed; "" for none. mu is held.
func (j *journal) reason() string {
	for _, name := range slices.Sorted(maps.Keys(j.doubts)) {
		if j.refusal.Reason == "" {
			return "the witness " + name + " of our log holds against it: " + j.doubts[name] + "; when that witness is wrong, take it out of the settings ([[log.witness]])"
		}
	}
	return j.refusal.Reason
}

// maySign tells why nothing may be signed now: not at all (ErrRefused), or not
// before a peer was asked (errAsking).
func (w *Witness) maySign() error {
	if !w.o.Sign {
		return errors.New("witness: this daemon signs nothing: its origin is private")
	}
	j := &w.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if reason := j.reason(); reason != "" {
		return fmt.Errorf("%w: %s%s", ErrRefused, reason, refusalHelp)
	}
	if !j.asked && time.Now().Before(j.askBefore) {
		return errAsking
	}
	return nil
}

func (w *Witness) askedPeer() {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	w.journal.asked = true
}

// refuse stops all signing, for good: also after a restart, until NewLog. It is on
// the disk when refuse returns, unless the store failed, and then nothing can be
// signed with it either. why is asked when nothing else is written: a new log that has
// begun meanwhile has nothing to do with what was found about the one before, and "" is
// no reason.
func (w *Witness) refuse(generation int, why func() string) {
	w.write.Lock()
	defer w.write.Unlock()
	reason := why()
	if reason == "" {
		return
	}
	var b store.Batch
	w.refuseIn(&b, reason, generation)
	if b.Size() == 0 {
		return
	}
	if err := w.put(&b); err != nil {
		w.log.Error("witness cannot remember that nothing may be signed", "err", err)
	}
}

// refuseIn is refuse in a batch of the caller, who holds write.
func (w *Witness) refuseIn(b *store.Batch, reason string, generation int) {
	j := &w.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refusal.Reason != "" && generation <= j.refusal.Generation {
		return
	}
	j.refusal = refusal{reason, max(generation, j.refusal.Generation)}
	raw, err := json.Marshal(j.refusal)
	if err != nil {
		w.log.Error("witness cannot write why nothing is signed", "err", err)
		return
	}
	b.Put(store.Meta(refusedName), raw)
	w.log.Error("ALARM: from now on nothing is signed about archives: " + reason + refusalHelp)
}

// enter puts an envelope of ours into the log, in the batch that stores it. Until
// settled it is not shown: only what is surely on the disk may get out.
func (w *Witness) enter(b *store.Batch, entries ...*adp.Envelope) (settled func(error), err error) {
	j := &w.journal
	var pending *tilelog.Pending
	if j.log != nil {
		list := make([]tilelog.Entry, len(entries))
		for i, e := range entries {
			list[i] = tilelog.Entry{Name: e.Hash, Data: e.JSON()}
		}
		if pending, err = j.log.Append(b, list...); err != nil {
			return nil, err
		}
	}
	hold := func(on bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, e := range entries {
			if on {
				j.held[e.Hash] = true
			} else {
				delete(j.held, e.Hash)
			}
		}
	}
	hold(true)
	return func(err error) {
		switch {
		case err == nil:
			if pending != nil {
				j.log.Publish(pending)
				w.grown()
			}
			hold(false)
		case !errors.Is(err, store.ErrFailed): // nothing was written
			hold(false)
		}
	}, nil
}

// withheld tells whether an envelope must not be shown.
func (w *Witness) withheld(hash string) bool {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	return w.journal.held[hash]
}

// foreign judges an envelope of our own key that came from outside and is not in
// our log: either it is of the log before, or this store is not the newest.
func (w *Witness) foreign(b *store.Batch, e *adp.Envelope) (after func()) {
	j := &w.journal
	if j.log == nil || !w.o.Sign {
		return nil
	}
	if _, ok, err := j.log.Find(e.Hash); ok || err != nil {
		return nil
	}
	j.mu.Lock()
	old := e.Nonce < j.lowest
	j.mu.Unlock()
	if old {
		return func() {
			if err := w.enterOld(); err != nil {
				w.log.Error("witness cannot put an earlier envelope into its log", "hash", e.Hash, "err", err)
			}
		}
	}
	w.refuseIn(b, "a peer has an envelope of our own key that is not in our log ("+e.Hash+"): this store is an older copy, or the key is in use elsewhere", 0)
	return nil
}

// LogStatus is the state of the daemon's log, for its operator.
type LogStatus struct {
	Origin      string `json:"origin"`
	VerifierKey string `json:"vkey"`
	Generation  int    `json:"generation"`
	Size        uint64 `json:"size"`
	Root        string `json:"root"` // base64url
	Signs       bool   `json:"signs"`
	Reason      string `json:"reason,omitempty"` // why nothing is signed
}

// Log tells the state of the log; the zero LogStatus when none is kept.
func (w *Witness) Log() (LogStatus, error) {
	l := w.journal.log
	if l == nil {
		return LogStatus{}, nil
	}
	generation, head := l.Head()
	vkey, err := tilelog.VerifierKey(head.Origin, w.logKey(generation))
	s := LogStatus{Origin: head.Origin, VerifierKey: vkey, Generation: generation, Size: head.Size, Root: adp.Encode(head.Root[:])}
	if may := w.maySign(); may != nil {
		s.Reason = may.Error()
	} else {
		s.Signs = true
	}
	return s, err
}

func (w *Witness) logKey(generation int) ed25519.PublicKey {
	return w.o.LogKey(generation).Public().(ed25519.PublicKey)
}

// Rotation is the envelope by which our agent key vouches for the present log
// key, nil in the first generation. It belongs into the did:web document.
func (w *Witness) Rotation() json.RawMessage {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	return w.journal.rotation
}
