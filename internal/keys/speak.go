package keys

import (
	"crypto/ed25519"
	"maps"
	"slices"

	"github.com/witan-adp/witan/adp"
)

// Three questions are asked of a key, and they are not the same. Does it speak for the origin now: Current, for what says how
// things stand (heads of rooms). Did it speak when it signed: BoundAt, for what stays true (statements, attestations). Did it
// ever: Bound, for what it has to answer for (evidence).

// Bound tells whether an agent speaks, or once spoke, for an origin.
func (b *Bindings) Bound(origin string, agent adp.AgentID) bool {
	return slices.Contains(b.Agents(origin), agent)
}

// Current tells whether an agent speaks for an origin now: the last accepted document names it, and the origin shows no other
// keys that wait for the operator.
func (b *Bindings) Current(origin string, agent adp.AgentID) bool {
	if origin == b.own {
		return agent == b.ownAgent
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.byOrigin[origin].agent(agent)
	return ok && !k.Retired && b.byOrigin[origin].pending == nil
}

// BoundAt tells whether what an agent signed at a time (Unix ms) can be of a key that spoke for the origin then: it speaks for it
// now, or was not retired yet. That a key was bound later than it signed is no objection: the origin had it before we came.
func (b *Bindings) BoundAt(origin string, agent adp.AgentID, at int64) bool {
	if origin == b.own {
		return agent == b.ownAgent
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.byOrigin[origin]
	k, ok := o.agent(agent)
	switch {
	case !ok:
		return false
	case k.Retired:
		return at <= k.RetiredAt
	case o.pending != nil:
		return at <= o.pending.Seen
	}
	return true
}

// agent is what is known of an agent key.
func (o *binding) agent(agent adp.AgentID) (boundKey, bool) {
	if o == nil {
		return boundKey{}, false
	}
	pub, err := agent.PublicKey()
	if err != nil {
		return boundKey{}, false
	}
	k, ok := o.keys[Agent][Multikey(pub)]
	return k, ok
}

// BoundSince tells since when an agent is known to speak, or to have spoken, for an origin, Unix ms.
func (b *Bindings) BoundSince(origin string, agent adp.AgentID) (at int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.byOrigin[origin]
	if o == nil {
		return 0, false
	}
	for key, k := range o.keys[Agent] {
		if pub, err := ParseMultikey(key); err == nil && adp.NewAgentID(pub) == agent {
			return k.FirstSeen, true
		}
	}
	return 0, false
}

// Agents lists the agents that an origin is or was bound to, sorted.
func (b *Bindings) Agents(origin string) []adp.AgentID {
	if origin == b.own {
		return []adp.AgentID{b.ownAgent}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var agents []adp.AgentID
	if o := b.byOrigin[origin]; o != nil {
		for key := range o.keys[Agent] {
			if pub, err := ParseMultikey(key); err == nil {
				agents = append(agents, adp.NewAgentID(pub))
			}
		}
	}
	slices.Sort(agents)
	return agents
}

// Cosigners lists the cosigner keys that any followed origin is or was bound to, sorted.
func (b *Bindings) Cosigners() []ed25519.PublicKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]bool{}
	for _, o := range b.byOrigin {
		for key := range o.keys[Cosigner] {
			all[key] = true
		}
	}
	var list []ed25519.PublicKey
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if pub, err := ParseMultikey(key); err == nil {
			list = append(list, pub)
		}
	}
	return list
}

// LogKeys lists the log keys that an origin is or was bound to, sorted.
func (b *Bindings) LogKeys(origin string) []ed25519.PublicKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.byOrigin[origin]
	if o == nil {
		return nil
	}
	var list []ed25519.PublicKey
	for _, key := range slices.Sorted(maps.Keys(o.keys[Log])) {
		if pub, err := ParseMultikey(key); err == nil {
			list = append(list, pub)
		}
	}
	return list
}

// Has tells whether an origin has a bound agent key.
func (b *Bindings) Has(origin string) bool { return len(b.Agents(origin)) > 0 }

// Rebound tells whether an origin shows keys that wait for the operator.
func (b *Bindings) Rebound(origin string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.byOrigin[origin]
	return o != nil && o.pending != nil
}
