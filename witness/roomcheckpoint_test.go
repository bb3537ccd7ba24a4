package witness

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/internal/web"
)

var update = flag.Bool("update", false, "write the golden files")

// grow adds records to a room that has not ended.
func (n *node) grow(r *replica.Replica, recs []*adp.Record) {
	n.t.Helper()
	done := make(chan error, len(recs))
	for _, rec := range recs {
		err := r.Take(func(t *replica.Turn) error {
			_, ch, err := t.State.Judge(rec, room.Context{Chain: t})
			if err != nil {
				return err
			}
			return t.Append(rec, ch, nil, func(err error) { done <- err })
		})
		if err == nil {
			err = <-done
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *node) roomHead(r *replica.Replica) *httptest.ResponseRecorder {
	mux := web.NewMux()
	mux.Handle("GET", "/checkpoint", func(w http.ResponseWriter, req *http.Request) error { return n.w.ServeRoomCheckpoint(w, req, r) })
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/checkpoint", nil))
	return rec
}

// head is the checkpoint of a room, which must be signed and of its very records.
func (n *node) head(r *replica.Replica, recs []*adp.Record) int {
	n.t.Helper()
	rec := n.roomHead(r)
	if rec.Code != 200 || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain") {
		n.t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	c := must[tilelog.Checkpoint](n.t)(tilelog.OpenCheckpoint(rec.Body.Bytes(), logKeys(n.o.Origin)...))
	var tree adp.Tree
	for _, rec := range recs[:c.Size] {
		tree.Append(rec.LeafData())
	}
	if c.Root != tree.Root() || c.Origin != "a.example/witan/rooms/"+r.RoomID+"/"+recs[0].Hash {
		n.t.Fatalf("%s", rec.Body)
	}
	return int(c.Size)
}

func contents(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint("say ", i))
	}
	return list
}

func TestRoomCheckpoints(t *testing.T) {
	wo := newWorld()
	a := wo.node(t, hostA)
	now := int64(t0 + 100_000)
	a.o.Now = func() int64 { return now }
	a.again()
	recs := chain(t, roomX, contents(600)...)
	r := a.install(hostA, recs[:3])
	note := a.roomHead(r).Body.String()
	if a.head(r, recs) != 3 {
		t.Error(note)
	}
	path := filepath.Join("testdata", "room-checkpoint.txt")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(note), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || note != string(want) {
		t.Errorf("%v: %s, want %s", err, note, want)
	}
	for _, step := range []struct {
		to, wait int64
		want     int
	}{{3, 60_000, 3}, {4, 0, 4}, {5, 29_999, 4}, {5, 1, 5}, {260, 0, 5}, {261, 0, 261}, {300, 10, 261}, {300, 29_990, 300}, {300, 1 << 40, 300}} {
		a.grow(r, recs[r.Row().Seq:step.to])
		now += step.wait
		if got := a.head(r, recs); got != step.want {
			t.Errorf("%+v: signed at %d", step, got)
		}
		if step.to%2 == 0 {
			a.again()
		}
	}
	commits := a.o.Store.Stats().Commits
	if a.head(r, recs); a.o.Store.Stats().Commits != commits {
		t.Error("signed again although nothing changed")
	}
	// a new log key signs anew
	must[LogStatus](t)(a.w.NewLog())
	if got := a.roomHead(r).Body.String(); a.head(r, recs) != 300 || got == note {
		t.Error(got)
	}
}

func TestRoomCheckpointsAreNotForAll(t *testing.T) {
	wo := newWorld()
	a := wo.node(t, hostA, hostB)
	for name, r := range map[string]*replica.Replica{
		"restricted": a.install(hostA, chainOf(t, room.Restricted, "room-r", "one")[:2]), "private": a.install(hostA, chainOf(t, room.Private, "room-p", "one")[:2]),
		"mirrored": a.install(hostB, chain(t, "room-m", "one")[:2]),
	} {
		if rec := a.roomHead(r); rec.Code != 404 {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
	}
	r := a.install(hostA, chain(t, "room-o", "one")[:2])
	for _, change := range []func(*Options){func(o *Options) { o.Sign = false }, func(o *Options) { o.LogKey = nil }} {
		change(&a.o)
		a.again()
		if rec := a.roomHead(r); rec.Code != 404 || !strings.Contains(rec.Body.String(), "signs nothing") {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	}
}

// Two room checkpoints that contradict each other never get out: not over a commit
// that fails in either way, and not over records that were lost.
func TestRoomCheckpointsNeverContradict(t *testing.T) {
	for name, fault := range faults {
		wo := newWorld()
		a := wo.node(t, hostA)
		now := int64(t0 + 100_000)
		a.o.Now = func() int64 { return now }
		a.again()
		recs := chain(t, roomX, contents(5)...)
		r := a.install(hostA, recs[:3])
		first := a.roomHead(r).Body.String()
		a.grow(r, recs[3:5])
		now += checkpointEvery
		a.w.put = fault(a)
		if rec := a.roomHead(r); rec.Code == 200 && rec.Body.String() != first {
			t.Errorf("%s: got out: %s", name, rec.Body)
		}
		a.again()
		if a.head(r, recs) != 5 {
			t.Errorf("%s: not signed after a restart", name)
		}
	}
	for _, records := range []int{3, 6} { // a shorter room, and a longer one of another story
		wo := newWorld()
		a := wo.node(t, hostA)
		recs := chain(t, roomX, contents(8)...)
		r := a.install(hostA, recs[:2])
		old := backup(t, a.o.Store)
		a.grow(r, recs[2:5])
		first := a.roomHead(r).Body.String()
		raw, _, err := a.o.Store.Get(store.RoomCheckpoint(r.ID))
		if err != nil {
			t.Fatal(err)
		}
		var b store.Batch // the records are lost, the checkpoint is not
		b.Put(store.RoomCheckpoint(r.ID), raw)
		if err := old.Commit(&b); err != nil {
			t.Fatal(err)
		}
		lost := wo.nodeOn(t, old, hostA)
		lost.o.Now = func() int64 { return t0 + 1<<30 }
		lost.again()
		r, _ = lost.set.Get(hostA, roomX)
		lost.grow(r, otherEnd(t, recs[:2], records))
		if got := lost.roomHead(r); got.Code != 200 || got.Body.String() != first {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		refused(t, lost, "room-1")
	}
}

// otherEnd goes on with a room in another way, up to a number of records.
func otherEnd(t testing.TB, recs []*adp.Record, upTo int) (more []*adp.Record) {
	t.Helper()
	last := recs[len(recs)-1]
	for last.Seq < int64(upTo) {
		n := last.Seq + 1
		e := must[*adp.Envelope](t)(adp.Sign(key("creator of "+last.RoomID), adp.Draft{Protocol: adp.Protocol, Type: room.Message, CreatedAt: t0 + 1000 + n, Nonce: 1000 + n,
			RoomID: last.RoomID, BaseSeq: last.Seq, BaseHash: last.Hash, Payload: map[string]any{"content_type": "text/plain", "content": "another story"}}))
		last = adp.NewRecord(e, last.RoomID, n, last.Hash, t0+50_000+n)
		more = append(more, last)
	}
	return more
}
