package replica

import (
	"testing"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/store/storetest"
)

// A crash between the steps of a Drop leaves no record that nobody would delete.
func TestDropGoesOnAfterACrash(t *testing.T) {
	st := memory(t)
	s := begin(t, nil).upTo(600)
	r := keep(t, openSet(t, st), s)
	var b store.Batch
	err := r.change(func(tn *Turn, b *store.Batch) error { return r.letGo(tn, b, 300, 1) }) // the first step
	if err != nil {
		t.Fatal(err)
	}
	b.Delete(store.Record(r.ID, 7)) // and a part of the second
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	set := openSet(t, st)
	if set.Finished != (Unfinished{Dropped: 1}) {
		t.Errorf("finished: %+v", set.Finished)
	}
	n := 0
	if err := st.View(func(rd store.Reader) error {
		from, to := store.RecordsOf(r.ID)
		return rd.Keys(from, to, func([]byte) bool { n++; return true })
	}); err != nil {
		t.Fatal(err)
	}
	if n != 300 {
		t.Errorf("%d records are left, want 300", n)
	}
	again, _ := set.GetKey(r.Key)
	if again.Row().Dropped != 300 {
		t.Errorf("%+v", again.Row())
	}
	answersProofs(t, again, s)
	if set = openSet(t, st); set.Finished != (Unfinished{}) {
		t.Errorf("finished once more: %+v", set.Finished)
	}
	for _, due := range []bool{true, false} { // the space is still to be given back, once
		if _, ok, err := st.Get(store.Meta(metaReclaim)); err != nil || ok != due {
			t.Errorf("to be given back: %v, %v, want %v", ok, err, due)
		}
		if expunged, err := set.GiveBack(); err != nil || expunged {
			t.Errorf("%v, %v", expunged, err)
		}
	}
}

func TestExpunge(t *testing.T) {
	if raceDetector {
		t.Skip("the garbage collection of the store's engine races with itself")
	}
	dir := t.TempDir()
	st, err := store.Open(store.Options{Dir: dir, LogFile: 1 << 20, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	set := openSet(t, st)
	expunge := func(want bool) {
		t.Helper()
		if did, err := set.GiveBack(); err != nil || did != want {
			t.Fatalf("expunged: %v, %v", did, err)
		}
	}
	expunge(false)
	s, seq := withSecret(t, 30, 3)
	s.add(alice, room.Close, obj{"reason": "done"})
	r := keep(t, set, s)
	if _, err := r.Withhold(seq, "asked", 1, EraseAfterArchive); err != nil {
		t.Fatal(err)
	}
	expunge(false)
	if storetest.FilesWith(t, dir, secret) == nil {
		t.Fatal("the test looks at the wrong bytes")
	}
	if _, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now); err != nil {
		t.Fatal(err)
	}
	expunge(true)
	if in := storetest.FilesWith(t, dir, secret); in != nil {
		t.Errorf("what was erased with the archive is in %v", in)
	}
	expunge(false)

	other := begin(t, obj{"topic": "Another room"}).upTo(30)
	seq = other.add(alice, room.Message, say(secret)).Seq
	r2 := keep(t, set, other)
	if _, err := r2.Withhold(seq, "asked", 1, Erase); err != nil {
		t.Fatal(err)
	}
	expunge(true)
	if in := storetest.FilesWith(t, dir, secret); in != nil {
		t.Errorf("what was erased is in %v", in)
	}
	if storetest.FilesWith(t, dir, r.RoomID) == nil {
		t.Fatal("the first room is not in the files")
	}
	if err := set.Forget(r); err != nil {
		t.Fatal(err)
	}
	expunge(true)
	if in := storetest.FilesWith(t, dir, s.recs[1].Envelope.Hash); in != nil {
		t.Errorf("what was forgotten is in %v", in)
	}
}
