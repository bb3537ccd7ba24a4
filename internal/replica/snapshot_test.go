package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// A state too large for one commit goes without a snapshot; the room goes on.
func TestLargeState(t *testing.T) {
	st, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	s := begin(t, nil)
	perspective := strings.Repeat("p", 60_000)
	for i := range 90 {
		s.add(key(byte(100+i)), room.Join, obj{"role": "observer", "perspective": perspective})
	}
	s.upTo(700)
	if n := len(s.snapshot()); n <= maxSnapshot {
		t.Fatalf("a snapshot of %d bytes proves nothing", n)
	}
	r := keep(t, openSet(t, st), s)
	same(t, r, s)
	if row := r.Row(); row.Snapshot != 0 {
		t.Errorf("snapshot at %d", row.Snapshot)
	}
	if r.later < 1000 { // each try costs as much as the state is large
		t.Errorf("the next snapshot is tried at seq %d", r.later)
	}
	again, _ := openSet(t, st).Get(testOrigin, testRoom)
	same(t, again, s)
}

// In a room whose packs are not to be had, each import could make the whole state be written.
func TestSnapshotsOfUnresolvedImports(t *testing.T) {
	s := begin(t, nil)
	for i := range 10 {
		s.add(key(byte(100+i)), room.Join, obj{"role": "observer", "perspective": strings.Repeat("p", 60_000)})
	}
	const imports = 150
	first := len(s.recs)
	for i := range imports {
		s.add(alice, "type.define", obj{"pack": fmt.Sprintf("https://x.example/%d", i), "digest": "sha256:" + adp.Encode(make([]byte, 32))})
	}
	st := memory(t)
	set := openSet(t, st)
	r := create(t, set, s)
	wait(t, feed(t, r, s, 1, first), first-1)
	snapshots, last := 0, int64(0)
	for i := first; i < len(s.recs); i++ {
		wait(t, feed(t, r, s, i, i+1), 1)
		if at := r.Row().Snapshot; at != last {
			snapshots, last = snapshots+1, at
		}
	}
	if size := len(s.snapshot()); size < 500_000 || snapshots < 1 || snapshots > 5 {
		t.Errorf("a state of %d bytes was written %d times", size, snapshots)
	}
	same(t, r, s)
	again, _ := openSet(t, st).Get(testOrigin, testRoom)
	same(t, again, s)
}
