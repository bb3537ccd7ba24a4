package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/store"
)

// Around the edges of tiles and snapshots: in flight, committed, read back.
func TestAppendAndReload(t *testing.T) {
	for _, n := range []int{1, 2, 255, 256, 257, 511, 512, 513, 600, 1100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s, st := begin(t, nil).upTo(n), memory(t)
			r := create(t, openSet(t, st), s)
			release := hold(t, st)
			done := feed(t, r, s, 1, n) // all of it ahead of the disk, in one turn
			if row := r.Row(); row.Seq != 1 {
				t.Errorf("readers see seq %d before it is committed", row.Seq)
			}
			looks(t, r, s)
			release()
			wait(t, done, n-1)
			same(t, r, s)
			again, ok := openSet(t, st).Get(testOrigin, testRoom)
			if !ok {
				t.Fatal("the replica is gone after a restart")
			}
			same(t, again, s)
			if !again.Unload(math.MaxInt64) {
				t.Error("it would not unload")
			}
			same(t, again, s)
			// and on from there
			s.upTo(n + 3)
			wait(t, feed(t, again, s, n, n+3), 3)
			same(t, again, s)
			third, _ := openSet(t, st).GetKey(again.Key)
			same(t, third, s)
		})
	}
}

func TestAppendOneByOne(t *testing.T) {
	s, st := begin(t, nil).upTo(300), memory(t)
	r := create(t, openSet(t, st), s)
	for i := 1; i < 300; i++ {
		wait(t, feed(t, r, s, i, i+1), 1)
	}
	same(t, r, s)
	if row := r.Row(); row.Snapshot != 256 {
		t.Errorf("snapshot at %d", row.Snapshot)
	}
}

// The row that a commit replaces is compared: what was written behind our back
// fails it, and all that was built on it.
func TestConflictingCommit(t *testing.T) {
	s, st := begin(t, nil).upTo(20), memory(t)
	r := create(t, openSet(t, st), s)
	wait(t, feed(t, r, s, 1, 10), 9)
	row := r.Row()
	row.Reason = "changed by another"
	raw, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	release := hold(t, st)
	var b store.Batch
	b.Put(store.ReplicaRow(r.ID), raw)
	st.Submit(&b, ignore)
	done := feed(t, r, s, 10, 15)
	// a view of what ran ahead is taken back
	var seen []int64
	viewed := make(chan error, 1)
	started := make(chan struct{}, 3)
	go func() {
		viewed <- r.View(context.Background(), func(st *room.State) { seen = append(seen, st.Last.Seq); started <- struct{}{} })
	}()
	<-started
	release()
	for range 5 {
		if err := <-done; !errors.Is(err, store.ErrConflict) {
			t.Errorf("commit: %v", err)
		}
	}
	if err := <-viewed; err != nil {
		t.Errorf("view: %v", err)
	}
	if len(seen) < 2 || seen[0] != 15 || seen[len(seen)-1] != 10 {
		t.Errorf("the view saw %v", seen)
	}
	for seq := int64(11); seq <= 15; seq++ {
		if _, ok, err := st.Get(store.Record(r.ID, seq)); ok || err != nil {
			t.Errorf("record %d was kept (%v)", seq, err)
		}
		if h, err := adp.DecodeHash(s.recs[seq-1].Envelope.Hash); err != nil {
			t.Error(err)
		} else if _, ok, err := st.Get(store.EnvelopeSeq(r.ID, h)); ok || err != nil {
			t.Errorf("envelope %d was kept (%v)", seq, err)
		}
	}
	if seq, ok := r.SeqOf(s.recs[12].Envelope.Hash); ok {
		t.Errorf("an envelope that was lost is at %d", seq)
	}
	wait(t, feed(t, r, s, 10, 20), 10) // the next turn works
	same(t, r, s)
	if got := r.Row().Reason; got != row.Reason {
		t.Errorf("reason %q", got)
	}
}

func ignore(error) {}

// A turn that holds what was lost meanwhile builds nothing on it.
func TestFailureInsideATurn(t *testing.T) {
	s, st := begin(t, nil).upTo(6), memory(t)
	r := create(t, openSet(t, st), s)
	failed := make(chan error, 1)
	err := r.Take(func(turn *Turn) error {
		var b store.Batch
		b.Check(func(func([]byte) ([]byte, bool, error)) error { return errors.New("no") })
		if err := turn.Append(s.recs[1], s.chs[1], &b, func(err error) { failed <- err }); err != nil {
			return err
		}
		if err := <-failed; err == nil || err.Error() != "no" {
			t.Errorf("commit: %v", err)
		}
		if err := turn.Save(nil, nil); !errors.Is(err, ErrLost) {
			t.Errorf("save: %v", err)
		}
		return turn.Append(s.recs[2], s.chs[2], nil, nil)
	})
	if !errors.Is(err, ErrLost) {
		t.Errorf("append: %v", err)
	}
	wait(t, feed(t, r, s, 1, 6), 5)
	same(t, r, s)
}

// Many turns wait for the same failure: the first reads the state again, the
// others go on from what it has queued.
func TestManyTurnsAfterAFailure(t *testing.T) {
	for range 10 {
		s, st := begin(t, nil), memory(t)
		r := create(t, openSet(t, st), s)
		answers := make(chan error, 16)
		answer := func(err error) { answers <- err }
		n := 0
		save := func(b *store.Batch) error {
			return r.Take(func(turn *Turn) error {
				n++
				turn.Row().Reason = fmt.Sprint("write ", n) // each builds on the one before
				return turn.Save(b, answer)
			})
		}
		gate, failing := make(chan struct{}), make(chan struct{})
		release := hold(t, st) // both in flight before either fails
		var first, second store.Batch
		first.Check(func(func([]byte) ([]byte, bool, error)) error { return errors.New("no") })
		if err := errors.Join(save(&first), save(&second)); err != nil {
			t.Fatal(err)
		}
		r.pending.Add(1) // and one more that is not answered yet
		release()
		for range 2 {
			if err := <-answers; err == nil {
				t.Fatal("a failing batch was committed")
			}
		}
		var wg sync.WaitGroup
		var once sync.Once
		for range 8 {
			wg.Go(func() {
				var b store.Batch
				once.Do(func() { close(failing) })
				b.Check(func(func([]byte) ([]byte, bool, error)) error { <-gate; return nil }) // until all have had their turn
				if err := save(&b); err != nil {
					t.Errorf("turn: %v", err)
				}
			})
		}
		<-failing
		r.moved.Lock()
		r.pending.Add(-1)
		r.broadcast()
		r.moved.Unlock()
		turns := make(chan struct{})
		go func() { wg.Wait(); close(turns) }()
		select {
		case <-turns:
		case <-time.After(3 * time.Minute):
			t.Error("a turn waits for what another has queued")
		}
		close(gate)
		wg.Wait()
		for range 8 {
			if err := <-answers; err != nil {
				t.Errorf("a write after the failure: %v", err)
			}
		}
		if got := r.Row().Reason; got != "write 10" {
			t.Errorf("the row is of %s", got)
		}
	}
}

func TestClosedStore(t *testing.T) {
	s, st := begin(t, nil).upTo(4), memory(t)
	r := create(t, openSet(t, st), s)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	// a look-up that the store cannot answer is no answer to judge by
	err := r.Take(func(turn *Turn) error {
		if _, ok := turn.SeqOf(s.recs[1].Envelope.Hash); ok {
			t.Error("found in a closed store")
		}
		return turn.Append(s.recs[1], s.chs[1], nil, nil)
	})
	if !errors.Is(err, store.ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if err := r.Take(func(*Turn) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("next turn: %v", err)
	}
	if err := r.View(t.Context(), func(*room.State) {}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("view: %v", err)
	}
	if r.Row().Seq != 1 {
		t.Errorf("row %+v", r.Row())
	}
	if _, err := Open(st); !errors.Is(err, store.ErrClosed) {
		t.Errorf("open: %v", err)
	}
}

// View answers once all that it saw is on disk, or when the caller gives up.
func TestViewWaitsForTheCommit(t *testing.T) {
	s, st := begin(t, nil).upTo(3), memory(t)
	r := create(t, openSet(t, st), s)
	release := hold(t, st)
	done := feed(t, r, s, 1, 3)
	ctx, cancel := context.WithCancel(t.Context())
	saw := make(chan struct{}, 2)
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- r.View(ctx, func(*room.State) { saw <- struct{}{} }) }()
	<-saw
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("view: %v", err)
	}
	var released atomic.Bool
	viewed := make(chan error, 1)
	go func() {
		err := r.View(context.Background(), func(*room.State) { saw <- struct{}{} })
		if !released.Load() {
			err = errors.New("answered before the commit")
		}
		viewed <- err
	}()
	<-saw
	released.Store(true)
	release()
	if err := <-viewed; err != nil {
		t.Error(err)
	}
	if r.Row().Seq != 3 {
		t.Errorf("committed seq %d", r.Row().Seq)
	}
	wait(t, done, 2)
}

func TestSaveAndVerdicts(t *testing.T) {
	s, st := begin(t, nil).upTo(2), memory(t)
	r := keep(t, openSet(t, st), s)
	if v := r.Row().EffectiveVerdict(); v != Verified {
		t.Errorf("verdict %s", v)
	}
	save := func(change func(*Row)) {
		t.Helper()
		done := make(chan error, 1)
		if err := r.Take(func(turn *Turn) error { change(turn.Row()); return turn.Save(nil, func(err error) { done <- err }) }); err != nil {
			t.Fatal(err)
		}
		wait(t, done, 1)
	}
	save(func(row *Row) { row.Violations, row.Rules = 2, map[adp.Code]int64{adp.RoomEnded: 2} })
	if v := r.Row().EffectiveVerdict(); v != Violations {
		t.Errorf("verdict %s", v)
	}
	save(func(row *Row) {
		row.Verdict, row.Reason, row.BadBytes, row.State = Broken, "seq 3: x", []byte("{"), Gone
	})
	again, _ := openSet(t, st).Get(testOrigin, testRoom)
	if row := again.Row(); row.EffectiveVerdict() != Broken || row.Reason != "seq 3: x" || string(row.BadBytes) != "{" || row.State != Gone || row.Rules[adp.RoomEnded] != 2 || row.Seq != 2 {
		t.Errorf("row %+v", row)
	}
}

func TestCreateTwice(t *testing.T) {
	s, other, st := begin(t, nil).upTo(5), begin(t, obj{"topic": "Another genesis"}).upTo(3), memory(t)
	set := openSet(t, st)
	first := keep(t, set, s)
	if _, err := set.Create(testOrigin, s.recs[0], s.chs[0], Row{}, nil, nil); !errors.Is(err, ErrExists) {
		t.Errorf("the same again: %v", err)
	}
	second := keep(t, set, other) // another genesis under the same ID
	for _, set := range []*Set{set, openSet(t, st)} {
		if r, ok := set.Get(testOrigin, testRoom); !ok || r.ID != first.ID {
			t.Error("the first is not what is served")
		}
		if r, ok := set.GetKey(second.Key); !ok || r.ID != second.ID {
			t.Error("the second is not there")
		}
		if r, ok := set.ByID(second.ID); !ok || r.Genesis != other.recs[0].Hash {
			t.Error("the second has no number")
		}
		if n, of := len(set.All()), len(set.Of(testOrigin)); n != 2 || of != 2 || len(set.Of("https://other.example")) != 0 {
			t.Errorf("%d replicas, %d of the origin", n, of)
		}
		a, _ := set.GetKey(first.Key)
		b, _ := set.GetKey(second.Key)
		same(t, a, s)
		same(t, b, other)
	}
}

// A first record that could not be stored leaves nothing, and lets the one
// behind it be served.
func TestCreateFails(t *testing.T) {
	s, other, st := begin(t, nil).upTo(3), begin(t, obj{"topic": "Another genesis"}), memory(t)
	set := openSet(t, st)
	release := hold(t, st)
	var b store.Batch
	b.Check(func(func([]byte) ([]byte, bool, error)) error { return errors.New("no") })
	failed, stored := make(chan error, 1), make(chan error, 1)
	if _, err := set.Create(testOrigin, s.recs[0], s.chs[0], Row{}, &b, func(err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	var number uint64
	second, err := set.CreateWith(testOrigin, other.recs[0], other.chs[0], Row{}, nil, func(id uint64, b *store.Batch) { number = id; b.Put([]byte("x"), []byte("more")) }, func(err error) { stored <- err })
	if err != nil {
		t.Fatal(err)
	}
	release()
	if err := <-failed; err == nil {
		t.Error("the failing record was stored")
	}
	wait(t, stored, 1)
	if r, ok := set.Get(testOrigin, testRoom); !ok || r != second || r.ID != number {
		t.Error("the second is not served")
	}
	if raw, ok, err := st.Get([]byte("x")); string(raw) != "more" || !ok || err != nil {
		t.Errorf("what came with it: %q, %v", raw, err)
	}
	if _, ok := set.GetKey(Key{testOrigin, testRoom, s.recs[0].Hash}); ok || len(set.All()) != 1 {
		t.Error("the failed one is there")
	}
	keep(t, set, s) // and may be tried again
	if n := len(openSet(t, st).All()); n != 2 {
		t.Errorf("%d replicas after a restart", n)
	}
}

// What the log alone does not replay to is in a snapshot at once.
func TestExternalPackAndRequestsSurviveAReload(t *testing.T) {
	raw := []byte(`{"protocol":"agent-discourse/1.0","packs":[{"id":"ext/1.0","title":"Ext","types":[{"type":"ext.note","kind":"signal","title":"Note","schema":{}}]}]}`)
	digest := sha256Digest(raw)
	p, err := types.ParsePack(raw)
	if err != nil {
		t.Fatal(err)
	}
	st := memory(t)
	set := openSet(t, st)
	ref := types.PackRef{URI: "https://x.example/p.json", Digest: digest}
	if _, missing := set.PacksFor([]types.PackRef{ref}); len(missing) != 1 {
		t.Errorf("missing %v", missing)
	}
	if err := set.KeepPack(digest, raw); err != nil {
		t.Fatal(err)
	}
	have, missing := set.PacksFor([]types.PackRef{ref})
	if have[digest] == nil || missing != nil {
		t.Errorf("have %v, missing %v", have, missing)
	}
	if src, ok := set.PackSource(digest); !ok || string(src) != string(raw) {
		t.Errorf("source %q", src)
	}
	s := begin(t, nil)
	s.packs = map[string]*types.Pack{digest: p}
	s.add(alice, "type.define", obj{"pack": ref.URI, "digest": digest})
	s.add(alice, "ext.note", obj{})
	s.add(bob, room.Join, obj{"role": "observer", "request_id": "jr_1"}) // unverifiable
	r := keep(t, set, s)
	same(t, r, s)
	if row := r.Row(); row.Snapshot != 2 {
		t.Errorf("snapshot at %d", row.Snapshot)
	}
	again, _ := openSet(t, st).Get(testOrigin, testRoom)
	same(t, again, s)
	// a pack whose bytes are not those of its digest is not taken
	if err := set.KeepPack("sha256:"+adp.Encode(make([]byte, 32)), raw); err != nil {
		t.Fatal(err)
	}
	if _, ok := set.Pack("sha256:" + adp.Encode(make([]byte, 32))); ok {
		t.Error("a pack of another digest was taken")
	}
}

func TestUnload(t *testing.T) {
	s, st := begin(t, nil).upTo(3), memory(t)
	r := create(t, openSet(t, st), s)
	if r.Unload(0) {
		t.Error("unloaded though it was just used")
	}
	release := hold(t, st)
	done := feed(t, r, s, 1, 3)
	if r.Unload(math.MaxInt64) {
		t.Error("unloaded while commits are in flight")
	}
	release()
	wait(t, done, 2)
	if !r.Unload(math.MaxInt64) || r.Unload(math.MaxInt64) {
		t.Error("it unloads once")
	}
	same(t, r, s)
}

// A broken row or log is told, not served.
func TestOpenTellsWhatIsBroken(t *testing.T) {
	s, st := begin(t, nil).upTo(5), memory(t)
	r := keep(t, openSet(t, st), s)
	var b store.Batch
	b.Delete(store.Record(r.ID, 4))
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	again, _ := openSet(t, st).Get(testOrigin, testRoom)
	if err := again.View(t.Context(), func(*room.State) {}); err == nil {
		t.Error("a log with a hole was loaded")
	}
	var bad store.Batch
	bad.Put(store.ReplicaRow(r.ID), []byte("{"))
	if err := st.Commit(&bad); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(st); err == nil {
		t.Error("a row that is no JSON was read")
	}
}
