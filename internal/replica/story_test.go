package replica

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/store"
)

const (
	testOrigin = "https://h.example"
	testRoom   = "d8ftedhpqhsusbg001tg"
	t0         = int64(1_790_000_000_000)
	hour       = int64(3_600_000)
)

type obj = map[string]any

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
}

func id(k ed25519.PrivateKey) adp.AgentID { return adp.NewAgentID(k.Public().(ed25519.PublicKey)) }

var alice, bob = key(1), key(2)

// story is a room as a host tells it: records, and the state that an
// independent replay comes to.
type story struct {
	t     testing.TB
	s     *room.State
	chain room.MemoryChain
	recs  []*adp.Record
	chs   []*room.Change
	packs map[string]*types.Pack
	now   int64
}

func begin(t testing.TB, over obj) *story {
	s := &story{t: t, s: room.New(testRoom), now: t0}
	payload := obj{"topic": "Quorum", "visibility": "public", "start_time": t0 - 1, "end_time": t0 + hour, "policy": obj{"extra": obj{"k": "v"}},
		"types": []any{obj{"use": "adp:reactions/1.0"}, obj{"type": "a.sign", "kind": "signal", "title": "Sign", "schema": obj{}}}}
	for k, v := range over {
		payload[k] = v
	}
	s.add(alice, room.Create, payload)
	return s
}

// add appends what an agent said, at the present head.
func (s *story) add(k ed25519.PrivateKey, typ string, payload any) *adp.Record {
	return s.on(k, typ, payload, s.s.Head)
}

func (s *story) on(k ed25519.PrivateKey, typ string, payload any, base room.Position) *adp.Record {
	s.t.Helper()
	d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: s.now, Nonce: s.s.Last.Seq + 1, Payload: payload}
	if typ != room.Create {
		d.RoomID, d.BaseSeq, d.BaseHash = testRoom, base.Seq, base.Hash
	}
	e, err := adp.Sign(k, d)
	if err != nil {
		s.t.Fatal(err)
	}
	r := adp.NewRecord(e, testRoom, s.s.Last.Seq+1, s.s.Last.Hash, s.now)
	_, ch, err := s.s.Judge(r, room.Context{Chain: &s.chain, Packs: s.packs})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.s.Advance(r, ch); err != nil {
		s.t.Fatal(err)
	}
	s.chain.Add(r)
	s.recs, s.chs = append(s.recs, r), append(s.chs, ch)
	s.now += 10
	return r
}

func say(text string) obj { return obj{"content_type": "text/plain", "content": text} }

// upTo goes on until there are n records: messages at the head, signals on
// records far back.
func (s *story) upTo(n int) *story {
	s.t.Helper()
	for i := len(s.recs); i < n; i++ {
		if i%3 == 0 {
			base := s.recs[(i*7)%len(s.recs)]
			s.on(alice, "a.sign", obj{"i": i}, room.Position{Seq: base.Seq, Hash: base.Hash})
		} else {
			s.add(alice, room.Message, say(fmt.Sprintf("%d %s", i, strings.Repeat("Each claim rests on a record. ", 25))))
		}
	}
	return s
}

func (s *story) snapshot() string {
	s.t.Helper()
	b, err := s.s.Snapshot()
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

func memory(t testing.TB) *store.Store {
	t.Helper()
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func openSet(t testing.TB, st *store.Store) *Set {
	t.Helper()
	s, err := Open(st)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// create stores the first record and waits for it.
func create(t testing.TB, set *Set, s *story) *Replica {
	t.Helper()
	done := make(chan error, 1)
	r, err := set.Create(testOrigin, s.recs[0], s.chs[0], Row{}, nil, func(err error) { done <- err })
	if err == nil {
		err = <-done
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// feed judges records [from, to) of the story as a mirror does, in one turn, and
// queues them. The channel gets what the store answers, one for each.
func feed(t testing.TB, r *Replica, s *story, from, to int) <-chan error {
	t.Helper()
	done := make(chan error, to-from)
	err := r.Take(func(turn *Turn) error {
		for _, rec := range s.recs[from:to] {
			if err := rec.Follows(turn.State.RoomID, turn.State.Last.Seq, turn.State.Last.Hash); err != nil {
				return err
			}
			v, ch, err := turn.State.Judge(rec, room.Context{Chain: turn, Packs: s.packs})
			if err != nil {
				return err
			}
			if v.Outcome == room.Violation {
				return fmt.Errorf("seq %d: %+v", rec.Seq, v)
			}
			if err := turn.Append(rec, ch, nil, func(err error) { done <- err }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func wait(t testing.TB, done <-chan error, n int) {
	t.Helper()
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// keep makes a replica of the whole story.
func keep(t testing.TB, set *Set, s *story) *Replica {
	t.Helper()
	r := create(t, set, s)
	wait(t, feed(t, r, s, 1, len(s.recs)), len(s.recs)-1)
	return r
}

// hold stops the committer until the returned function is called: whatever is
// submitted meanwhile is in flight.
func hold(t testing.TB, st *store.Store) (release func()) {
	t.Helper()
	gate, entered := make(chan struct{}), make(chan struct{})
	var b store.Batch
	b.Check(func(func([]byte) ([]byte, bool, error)) error { close(entered); <-gate; return nil })
	st.Submit(&b, func(error) {})
	<-entered
	return func() { close(gate) }
}

// same holds a replica to the story: row, state, hashes, envelopes, records.
func same(t *testing.T, r *Replica, s *story) {
	t.Helper()
	last := s.recs[len(s.recs)-1]
	var snap string
	if err := r.View(t.Context(), func(st *room.State) {
		b, err := st.Snapshot()
		if err != nil {
			t.Error(err)
		}
		snap = string(b)
	}); err != nil {
		t.Fatal(err)
	}
	if snap != s.snapshot() {
		t.Errorf("the state differs:\n%s\n%s", snap, s.snapshot())
	}
	var d adp.Digest
	var size int64
	for _, rec := range s.recs {
		d.Add(rec)
		size += int64(len(rec.JSON()))
	}
	row := r.Row()
	if row.Seq != last.Seq || row.Hash != last.Hash || row.Genesis != s.recs[0].Hash || row.Bytes != size || row.Creator != id(alice) {
		t.Errorf("row %+v", row)
	}
	want := d.Summary()
	tree, err := adp.TreeFromFrontier(uint64(row.Seq), row.Frontier)
	if err != nil || tree.Root() != want.Root {
		t.Errorf("the frontier is not that of the records: %v", err)
	}
	if sum, err := r.Summary(t.Context()); err != nil || sum != want {
		t.Errorf("summary %+v, %v", sum, err)
	}
	looks(t, r, s)
	for _, rec := range s.recs {
		raw, ok, err := r.Record(rec.Seq)
		if err != nil || !ok || !bytes.Equal(raw, rec.JSON()) {
			t.Fatalf("record %d: %s, %v, %v", rec.Seq, raw, ok, err)
		}
	}
}

// looks asks a turn for every hash and every envelope of the story.
func looks(t *testing.T, r *Replica, s *story) {
	t.Helper()
	err := r.Take(func(turn *Turn) error {
		for _, rec := range s.recs {
			if h, ok := turn.HashAt(rec.Seq); !ok || h != rec.Hash {
				return fmt.Errorf("hash at %d: %q, %v", rec.Seq, h, ok)
			}
			if seq, ok := turn.SeqOf(rec.Envelope.Hash); !ok || seq != rec.Seq {
				return fmt.Errorf("envelope of %d: at %d, %v", rec.Seq, seq, ok)
			}
		}
		for _, seq := range []int64{-1, 0, int64(len(s.recs)) + 1} {
			if h, ok := turn.HashAt(seq); ok {
				return fmt.Errorf("hash at %d: %q", seq, h)
			}
		}
		if seq, ok := turn.SeqOf(adp.Encode(make([]byte, 32))); ok {
			return fmt.Errorf("an unknown envelope is at %d", seq)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
