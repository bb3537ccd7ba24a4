package host_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/childtest"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// childVar makes the test binary a host on the folder that it names.
const childVar = "WITAN_HOST_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVar); dir != "" {
		hostUntilKilled(dir)
	}
	os.Exit(m.Run())
}

const (
	crashActors = 6
	crashRooms  = 3
)

func crashActor(i int) *agent {
	a := withKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(100 + i)}, 32)))
	a.nonce.Store(time.Now().UnixMicro())
	return a
}

func realClock(o *host.Options) {
	o.Now, o.Limits = func() int64 { return time.Now().UnixMilli() }, roomy
}

// hostUntilKilled writes with several actors into several rooms and prints each
// answered write.
func hostUntilKilled(dir string) {
	w := over(childtest.TB{}, openStore(childtest.TB{}, store.Options{Dir: dir, MinFree: 1}), realClock)
	actors := make([]*agent, crashActors)
	for i := range actors {
		actors[i] = crashActor(i)
	}
	var out sync.Mutex
	tell := func(id string, env []byte, rec adp.Value) {
		out.Lock()
		defer out.Unlock()
		if _, err := fmt.Println(id, num(rec.Get("seq")), rec.Get("hash").Text(), adp.Encode(env)); err != nil {
			os.Exit(1)
		}
	}
	var ids []string
	for _, r := range w.set.Of(origin) {
		ids = append(ids, r.RoomID)
	}
	for len(ids) < crashRooms {
		env := w.event(actors[0], room.Create, w.contract(obj{"types": []any{typeDecl(nil)}}), at{}, nil)
		v := w.post("/v1/rooms", env).ok(201)
		ids = append(ids, v.Get("id").Text())
		tell(ids[len(ids)-1], env, v)
	}
	for i, a := range actors {
		go func() {
			for n := i; ; n++ {
				id := ids[n%len(ids)]
				typ, p := "a.b", any(obj{"text": strings.Repeat("x", n%700)})
				if n%5 == 0 {
					typ, p = room.Message, say(strconv.Itoa(n))
				}
				env := w.event(a, typ, p, w.headOf(id), nil)
				got := w.post("/v1/rooms/"+id, env)
				switch {
				case got.status == 200:
					tell(id, env, got.v)
				case got.code() == adp.PermissionDenied: // not a member yet
					env = w.event(a, room.Join, obj{"role": "speaker"}, w.headOf(id), nil)
					tell(id, env, w.post("/v1/rooms/"+id, env).ok(200))
				case got.code() != adp.RoomHeadMismatch:
					childtest.TB{}.Fatalf("%d %s", got.status, got.body)
				}
			}
		}()
	}
	select {}
}

// answered is a write that the child was told of.
type answered struct {
	room string
	seq  int64
	hash string
	env  []byte
}

func parseAnswered(t *testing.T, line string) answered {
	t.Helper()
	f := strings.Fields(line)
	if len(f) != 4 {
		t.Fatalf("the child said %q", line)
	}
	seq, err := strconv.ParseInt(f[1], 10, 64)
	env, err2 := adp.Decode(f[3])
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return answered{f[0], seq, f[2], env}
}

// killOne runs a child until it has answered so many writes, kills it, and gives
// all that it said.
func killOne(t *testing.T, dir string, enough int) (all []answered) {
	t.Helper()
	childtest.KillWhen(t, func(line string) bool {
		all = append(all, parseAnswered(t, line))
		return len(all) >= enough
	}, childVar+"="+dir)
	return all
}

// TestKill kills a host that writes, again and again. What was answered is there,
// the chain holds, and nonces do.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	replayed := map[string]*replayedRoom{}
	for round := range rounds {
		said := killOne(t, dir, 1+rand.IntN(120)+round%2*20) // early, too, and enough in all
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), realClock)
			for _, r := range w.set.Of(origin) {
				if replayed[r.RoomID] == nil {
					replayed[r.RoomID] = &replayedRoom{v: room.NewVerifier(r.RoomID, nil), hashes: []string{""}}
				}
				replayed[r.RoomID].check(t, w.st, r)
			}
			last := map[adp.AgentID]answered{}
			for _, a := range said {
				if hashes := replayed[a.room].hashes; a.seq >= int64(len(hashes)) || hashes[a.seq] != a.hash {
					t.Fatalf("seq %d of %s was answered and is lost; the room has %d records", a.seq, a.room, len(hashes)-1)
				}
				if e := envelopeOf(t, a.env); last[e.Actor].env == nil || envelopeOf(t, last[e.Actor].env).Nonce < e.Nonce {
					last[e.Actor] = a
				}
			}
			for i := range crashActors {
				actor := crashActor(i)
				a, ok := last[actor.id]
				if !ok {
					continue
				}
				path := "/v1/rooms/" + a.room
				if e := envelopeOf(t, a.env); e.Type == room.Create {
					path = "/v1/rooms"
				}
				got := w.post(path, a.env).refused(409, adp.NonceNotGreater)
				if rec := got.data().Get("record"); num(rec.Get("seq")) != a.seq || !rec.Get("hash").Is(a.hash) {
					t.Errorf("a replay gets %s", got.body)
				}
				for _, back := range []int64{0, 1} {
					w.on(w.headOf(a.room), actor, room.Message, say("old"), obj{"nonce": envelopeOf(t, a.env).Nonce - back}).refused(409, adp.NonceNotGreater)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	total := 0
	for _, r := range replayed {
		total += len(r.hashes) - 1
	}
	if len(replayed) != crashRooms || total < 10*rounds {
		t.Errorf("%d records in %d rooms are too few to prove anything", total, len(replayed))
	}
}

func envelopeOf(t *testing.T, env []byte) *adp.Envelope {
	t.Helper()
	v, err := adp.Scan(env)
	if err != nil {
		t.Fatal(err)
	}
	e, err := adp.ParseEnvelope(v)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// replayedRoom is what a room was when it was last looked at.
type replayedRoom struct {
	v      *room.Verifier
	tree   adp.Tree
	hashes []string // by seq
}

// check replays what is new, and compares what hangs on the log with it.
func (p *replayedRoom) check(t *testing.T, st *store.Store, r *replica.Replica) {
	t.Helper()
	row := r.Row()
	err := r.Scan(0, row.Seq, func(seq int64, raw []byte) error {
		v, err := adp.ScanDepth(bytes.Clone(raw), adp.RecordDepth)
		if err != nil {
			return err
		}
		if seq < int64(len(p.hashes)) {
			if !v.Get("hash").Is(p.hashes[seq]) {
				return fmt.Errorf("seq %d is another record than before", seq)
			}
			return nil
		}
		rec := verified(t, v)
		if err := p.v.Add(rec); err != nil {
			return err
		}
		if at, ok := r.SeqOf(rec.Envelope.Hash); !ok || at != seq {
			return fmt.Errorf("the index leads from the envelope of seq %d to %d", seq, at)
		}
		p.tree.Append(rec.LeafData())
		p.hashes = append(p.hashes, rec.Hash)
		return nil
	})
	if err != nil {
		t.Fatalf("room %s: %v", r.RoomID, err)
	}
	tree, err := adp.TreeFromFrontier(uint64(row.Seq), row.Frontier)
	if err != nil || tree.Root() != p.tree.Root() || row.Seq != int64(len(p.hashes)-1) || row.Hash != p.hashes[row.Seq] || p.v.Counts[room.Violation] != 0 {
		t.Fatalf("room %s: the row says seq %d, the log has %d: %v %+v", r.RoomID, row.Seq, len(p.hashes)-1, err, p.v.Findings())
	}
	if raw, ok, err := st.Get(store.Record(r.ID, row.Seq+1)); ok || err != nil {
		t.Fatalf("room %s: there is a record behind the end: %v %.200s", r.RoomID, err, raw)
	}
	if err := r.View(context.Background(), func(s *room.State) {
		if s.Last.Seq != row.Seq || len(s.Members) != len(p.v.State.Members) || s.Head != p.v.State.Head {
			t.Errorf("room %s: the state is another than the log's", r.RoomID)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
