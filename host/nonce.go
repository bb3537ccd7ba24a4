package host

import (
	"strconv"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// nonceTTL is how long a greatest nonce is kept after the actor's last write.
// Twice the live window would do: what is older is refused by its time.
const nonceTTL = 24 * time.Hour

// nonces keeps the greatest accepted nonce of each actor (Identity, Live
// writes). What is in memory may run ahead of the disk; the commit itself
// compares again, so that a failed commit leaves nothing behind.
type nonces struct {
	st     *store.Store
	shards [256]nonceShard
}

type nonceShard struct {
	sync.Mutex
	ahead map[adp.AgentID]int64 // only while a commit is in flight
}

func (n *nonces) shard(a adp.AgentID) *nonceShard {
	var h uint32 = 2166136261
	for i := range len(a) {
		h = (h ^ uint32(a[i])) * 16777619
	}
	return &n.shards[h%256]
}

// greatest reads the greatest nonce; the shard is locked.
func (n *nonces) greatest(s *nonceShard, a adp.AgentID) (int64, error) {
	if v, ok := s.ahead[a]; ok {
		return v, nil
	}
	raw, ok, err := n.st.Get(store.Nonce(string(a)))
	if err != nil || !ok {
		return 0, err
	}
	return strconv.ParseInt(string(raw), 10, 64)
}

// peek is the greatest nonce as far as it is known.
func (n *nonces) peek(a adp.AgentID) (int64, error) {
	s := n.shard(a)
	s.Lock()
	defer s.Unlock()
	return n.greatest(s, a)
}

func notGreater(max int64) *adp.Error {
	return adp.Errorf(adp.NonceNotGreater, "the nonce must be greater than %d, the greatest that was accepted from you; sign a new event", max).With("max_seen_nonce", max)
}

// use holds the actor while fn decides; when fn accepts, the nonce is taken.
// fn gets what has to go into the commit, and after it landed.
func (n *nonces) use(a adp.AgentID, nonce int64, fn func(b *store.Batch, landed func(error)) error) error {
	s := n.shard(a)
	s.Lock()
	defer s.Unlock()
	max, err := n.greatest(s, a)
	if err != nil {
		return err
	}
	if nonce <= max {
		return notGreater(max)
	}
	b := &store.Batch{}
	key := store.Nonce(string(a))
	b.Check(func(get func([]byte) ([]byte, bool, error)) error {
		raw, ok, err := get(key)
		if err != nil || !ok {
			return err
		}
		if v, err := strconv.ParseInt(string(raw), 10, 64); err != nil || v >= nonce {
			return notGreater(v)
		}
		return nil
	})
	b.PutTTL(key, strconv.AppendInt(nil, nonce, 10), nonceTTL)
	landed := func(error) { // stored, or never: the disk is the truth again
		s.Lock()
		defer s.Unlock()
		if s.ahead[a] == nonce {
			delete(s.ahead, a)
		}
	}
	if err := fn(b, landed); err != nil {
		return err
	}
	if s.ahead == nil {
		s.ahead = map[adp.AgentID]int64{}
	}
	s.ahead[a] = nonce
	return nil
}
