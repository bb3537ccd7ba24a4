package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// keysUnder lists the keys whose second part is the number of a replica.
func keysUnder(t *testing.T, st *store.Store, id uint64) (keys []string) {
	t.Helper()
	want := binary.BigEndian.AppendUint64(nil, id)
	err := st.View(func(r store.Reader) error {
		return r.Keys([]byte{1}, []byte{0xff}, func(key []byte) bool {
			if len(key) >= 9 && bytes.Equal(key[1:9], want) {
				keys = append(keys, fmt.Sprintf("%q", key))
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestForget(t *testing.T) {
	st := memory(t)
	set := openSet(t, st)
	s, seq := withSecret(t, 300, 3)
	s.add(alice, room.Close, obj{"reason": "done"})
	r := keep(t, set, s)
	if _, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Withhold(seq, "asked", 1, Seal); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	r.PutBranch(&b, s.recs[:3])
	b.Put(store.Statement("x"), []byte("stays"))
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	if len(keysUnder(t, st, r.ID)) < 600 {
		t.Fatal("the test looks at the wrong keys")
	}
	losses := r.losses.Load()
	if err := set.Forget(r); err != nil {
		t.Fatal(err)
	}
	if left := keysUnder(t, st, r.ID); len(left) > 0 {
		t.Errorf("%d keys are left, the first is %s", len(left), left[0])
	}
	from, to := store.ContentRange("")
	if err := st.View(func(rd store.Reader) error {
		return rd.Keys(from, to, func(key []byte) bool { t.Errorf("%q is left", key); return true })
	}); err != nil {
		t.Error(err)
	}
	if _, ok, err := st.Get(store.Statement("x")); !ok || err != nil {
		t.Error("what others keep went too")
	}
	if _, ok := set.Get(testOrigin, testRoom); ok {
		t.Error("the set still has it")
	}
	// a View that saw a record waits no more for its commit
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.settle(over, 1, losses); !errors.Is(err, ErrLost) {
		t.Errorf("a View waits for what is forgotten: %v", err)
	}
	if err := r.View(t.Context(), func(*room.State) {}); !errors.Is(err, ErrLost) {
		t.Errorf("a View of what is forgotten: %v", err)
	}
	// whoever had it in hand cannot bring it back
	if err := r.Take(func(tn *Turn) error { return tn.Save(nil, nil) }); !errors.Is(err, ErrLost) {
		t.Errorf("a write after the end: %v", err)
	}
	if recs, err := r.Read(0, 10, 1<<20); err != nil || len(recs) != 0 {
		t.Errorf("read %d records, %v", len(recs), err)
	}
	if left := keysUnder(t, st, r.ID); len(left) > 0 {
		t.Errorf("%d keys came back", len(left))
	}
	again := keep(t, set, s)
	if again.ID == r.ID {
		t.Error("a number is used twice")
	}
	same(t, again, s)
}

// A crash between the steps leaves no half of a room, and no number to be used
// again.
func TestForgetGoesOnAfterACrash(t *testing.T) {
	st := memory(t)
	set := openSet(t, st)
	s := begin(t, nil).upTo(20)
	r := keep(t, set, s)
	var b store.Batch // what the first step commits
	b.Delete(store.ReplicaByName(r.Origin, r.RoomID, r.Genesis))
	b.Delete(store.ReplicaRow(r.ID))
	b.Put(unfinished(metaForget, r.ID), nil)
	b.Put(store.Meta(metaNext), fmt.Append(nil, r.ID+1))
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	set = openSet(t, st)
	if left := keysUnder(t, st, r.ID); len(left) > 0 || len(set.All()) > 0 {
		t.Errorf("%d keys are left", len(left))
	}
	if again := keep(t, set, s); again.ID == r.ID {
		t.Error("a number is used twice")
	}
	if _, ok, _ := st.Get(unfinished(metaForget, r.ID)); ok {
		t.Error("it would be forgotten again at each start")
	}
}

func TestForgetWhileWriting(t *testing.T) {
	st := memory(t)
	set := openSet(t, st)
	s := begin(t, nil).upTo(200)
	r := create(t, set, s)
	_, _, moved := r.Moved() // before the first write: there may be no other after it
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; i < len(s.recs); i++ {
			err := r.Take(func(tn *Turn) error { return tn.Append(s.recs[i], s.chs[i], nil, func(error) {}) })
			if err != nil {
				return
			}
		}
	}()
	<-moved
	err := set.Forget(r)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if left := keysUnder(t, st, r.ID); len(left) > 0 {
		t.Errorf("%d keys are left, the first is %s", len(left), left[0])
	}
}
