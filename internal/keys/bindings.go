package keys

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// What Observe found about a did:web document (federation.md, "Binding").
const (
	BindingNew     = "new"     // the first document of this origin: its keys are trusted from now on
	BindingSame    = "same"    // the keys that are bound already
	BindingVouched = "vouched" // other keys, vouched for by a bound agent key: bound from now on
	BindingRebound = "rebound" // other keys that nobody vouched for, or the host has changed them too often: not bound until Approve
)

// maxKeys is how many keys, of all purposes, an origin can have had before each further change waits
// for the operator: all of them are kept, and tried on what it signed.
const maxKeys = 128

// RotationMember is the member of a did:web document that vouches for a change: an envelope of type RotationType, signed by
// a bound agent key, whose payload {origin, agent, log, cosigner} holds the Multikeys of the new document.
const (
	RotationMember = "witan:rotation"
	RotationType   = "key.rotate"
)

// pendingPurpose is where the store keeps a document that waits for the operator; no key has this purpose.
const pendingPurpose = "pending"

// purposes that a document can bind.
var purposes = []Purpose{Agent, Log, Cosigner}

// Bindings says which keys speak for which origin. It does not fetch: documents come from who fetched them over verified
// TLS. A key that was once bound stays known for what it signed (BoundAt); only the present ones can vouch for others, and
// say what is so now (Current).
//
// It is safe for concurrent use.
type Bindings struct {
	st       *store.Store
	own      string
	ownAgent adp.AgentID

	mu       sync.Mutex
	byOrigin map[string]*binding
}

type binding struct {
	keys    map[Purpose]map[string]boundKey // by Multikey
	pending *pending
}

type boundKey struct {
	FirstSeen int64  `json:"first_seen"` // Unix ms
	LastSeen  int64  `json:"last_seen"`
	Digest    string `json:"digest"`               // SHA-256 of the document that said so last
	Retired   bool   `json:"retired,omitempty"`    // a later document no longer names it
	RetiredAt int64  `json:"retired_at,omitempty"` // since when, Unix ms
}

type pending struct {
	Keys   map[Purpose]string `json:"keys"`
	Digest string             `json:"digest"`
	Seen   int64              `json:"seen"`
}

// NewBindings reads what the store holds. The keys of the own origin are those of the ring and are never observed.
func NewBindings(st *store.Store, own string, ring *Ring) (*Bindings, error) {
	b := &Bindings{st: st, own: own, ownAgent: adp.AgentID(ring.AgentID()), byOrigin: map[string]*binding{}}
	err := st.View(func(r store.Reader) error {
		from, to := store.BindingRange("", "")
		var bad error
		err := r.Scan(from, to, func(key, value []byte) bool {
			bad = b.load(key, value)
			return bad == nil
		})
		return errors.Join(err, bad)
	})
	if err != nil {
		return nil, fmt.Errorf("read the key bindings: %w", err)
	}
	return b, nil
}

func (b *Bindings) load(key, value []byte) error {
	origin, purpose, text, err := store.ParseNamed(key)
	if err != nil {
		return err
	}
	o := b.of(origin)
	if purpose == pendingPurpose {
		o.pending = &pending{}
		err = json.Unmarshal(value, o.pending)
	} else {
		var k boundKey
		err = json.Unmarshal(value, &k)
		o.put(Purpose(purpose), text, k)
	}
	if err != nil {
		return fmt.Errorf("binding of %s: %w", origin, err)
	}
	return nil
}

func (b *Bindings) of(origin string) *binding {
	o := b.byOrigin[origin]
	if o == nil {
		o = &binding{keys: map[Purpose]map[string]boundKey{}}
		b.byOrigin[origin] = o
	}
	return o
}

func (o *binding) put(p Purpose, key string, k boundKey) {
	if o.keys[p] == nil {
		o.keys[p] = map[string]boundKey{}
	}
	o.keys[p][key] = k
}

// count is how many keys are or were bound.
func (o *binding) count() (n int) {
	for _, keys := range o.keys {
		n += len(keys)
	}
	return n
}

// present are the keys that the last accepted document named.
func (o *binding) present() map[Purpose]string {
	now := map[Purpose]string{}
	for p, keys := range o.keys {
		for key, k := range keys {
			if !k.Retired {
				now[p] = key
			}
		}
	}
	return now
}

func (d *Document) multikeys() map[Purpose]string {
	m := map[Purpose]string{}
	for p, key := range map[Purpose]ed25519.PublicKey{Agent: d.Agent, Log: d.Log, Cosigner: d.Cosigner} {
		if key != nil {
			m[p] = Multikey(key)
		}
	}
	return m
}

func sameKeys(a, b map[Purpose]string) bool {
	for _, p := range purposes {
		if a[p] != b[p] {
			return false
		}
	}
	return true
}

// Observe takes the did:web document that an origin shows now (Unix ms) and says what it means for the binding. Any
// difference in the keys of the three purposes is a change. An error means that the document cannot be used, or that the
// store failed; the binding is then as before.
func (b *Bindings) Observe(origin string, document []byte, now int64) (state string, err error) {
	if origin == b.own {
		return "", fmt.Errorf("%s is this daemon: its keys come from the seed file", origin)
	}
	doc, err := ParseDocument(origin, document)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(document)
	said := pending{Keys: doc.multikeys(), Digest: adp.Encode(sum[:]), Seen: now}

	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.byOrigin[origin]
	if old == nil {
		old = &binding{}
	}
	present := old.present()
	switch {
	case len(present) == 0:
		state = BindingNew
	case sameKeys(present, said.Keys):
		state = BindingSame
	case old.count() < maxKeys && vouched(origin, present[Agent], said.Keys, document):
		state = BindingVouched
	default:
		return BindingRebound, b.wait(origin, said)
	}
	return state, b.bind(origin, said)
}

// wait keeps a document for the operator. b.mu is held.
func (b *Bindings) wait(origin string, said pending) error {
	o := b.of(origin)
	if o.pending != nil && o.pending.Digest == said.Digest {
		return nil
	}
	value, err := json.Marshal(said)
	if err != nil {
		return err
	}
	var batch store.Batch
	batch.Put(store.Binding(origin, pendingPurpose, ""), value)
	if err := b.st.Commit(&batch); err != nil {
		return fmt.Errorf("keep the changed keys of %s: %w", origin, err)
	}
	o.pending = &said
	return nil
}

// bind makes the keys of a document the present ones. b.mu is held.
func (b *Bindings) bind(origin string, said pending) error {
	next := &binding{keys: map[Purpose]map[string]boundKey{}}
	var batch store.Batch
	put := func(p Purpose, key string, k boundKey) error {
		value, err := json.Marshal(k)
		batch.Put(store.Binding(origin, string(p), key), value)
		next.put(p, key, k)
		return err
	}
	var bad error
	if old := b.byOrigin[origin]; old != nil {
		for p, keys := range old.keys {
			for key, k := range keys {
				if !k.Retired { // put again below when the document still names it
					k.Retired, k.RetiredAt = true, said.Seen
				}
				bad = errors.Join(bad, put(p, key, k))
			}
		}
	}
	for p, key := range said.Keys {
		k, known := next.keys[p][key]
		if !known {
			k.FirstSeen = said.Seen
		}
		k.LastSeen, k.Digest, k.Retired, k.RetiredAt = said.Seen, said.Digest, false, 0
		bad = errors.Join(bad, put(p, key, k))
	}
	batch.Delete(store.Binding(origin, pendingPurpose, ""))
	if bad == nil {
		bad = b.st.Commit(&batch)
	}
	if bad != nil {
		return fmt.Errorf("keep the keys of %s: %w", origin, bad)
	}
	b.byOrigin[origin] = next
	return nil
}

// vouched tells whether the document carries a rotation to its own keys, signed by the agent key that is bound now.
func vouched(origin, agent string, said map[Purpose]string, document []byte) bool {
	bound, err := ParseMultikey(agent)
	if err != nil {
		return false
	}
	v, err := adp.Scan(document)
	if err != nil {
		return false
	}
	e, err := adp.ParseEnvelope(v.Get(RotationMember))
	if err != nil || e.CheckShape() != nil || e.CheckHash() != nil {
		return false
	}
	if e.Protocol != adp.WitnessProtocol || e.Type != RotationType || e.Actor != adp.NewAgentID(bound) {
		return false
	}
	members := 1
	for _, p := range purposes {
		m := e.Payload.Get(string(p))
		if m.Exists() {
			members++
		}
		if said[p] == "" && (m.Exists() && m.Kind() != adp.Null) || said[p] != "" && !m.Is(said[p]) {
			return false
		}
	}
	return e.Payload.Get("origin").Is(origin) && e.Payload.Len() == members && e.CheckSignature() == nil
}

// ErrNothingPending: Approve was asked for an origin whose keys did not change.
var ErrNothingPending = errors.New("the origin shows no keys that wait for approval")

// Approve binds the keys that a rebound origin showed last: the operator has made sure of them by other means.
func (b *Bindings) Approve(origin string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.byOrigin[origin]
	if o == nil || o.pending == nil {
		return fmt.Errorf("approve %s: %w", origin, ErrNothingPending)
	}
	return b.bind(origin, *o.pending)
}
