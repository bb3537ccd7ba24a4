package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// backup copies the store of a node.
func backup(t testing.TB, st *store.Store) *store.Store {
	t.Helper()
	var buf bytes.Buffer
	if err := st.Backup(&buf); err != nil {
		t.Fatal(err)
	}
	out := memory(t)
	if err := out.Restore(&buf); err != nil {
		t.Fatal(err)
	}
	return out
}

func refused(t *testing.T, n *node, room string) {
	t.Helper()
	size := len(n.w.publisher.queue)
	before := string(n.fetch("/log/checkpoint"))
	n.w.Ended(n.install(n.o.Origin, chain(t, room, "after")))
	n.drain()
	if _, err := n.w.sign(TypeAnnounce, statement(n.o.Origin, chain(t, room+"-x", "one"))); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "witan log new") {
		t.Errorf("signing: %v", err)
	}
	if len(n.w.publisher.queue) != size || string(n.fetch("/log/checkpoint")) != before {
		t.Error("something was signed")
	}
	if s := must[LogStatus](t)(n.w.Log()); s.Signs || s.Reason == "" {
		t.Errorf("%+v", s)
	}
	if n.alarms.Load() == 0 {
		t.Error("no alarm")
	}
}

// An older copy of the store signs nothing once a peer has shown a greater
// checkpoint of its log, goes on with everything else, and signs again in a new
// log.
func TestRestoredBackup(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	wo.bind(hostB, key(hostB))
	a, b := wo.node(t, hostA, hostB), wo.node(t, hostB, hostA)
	a.o.KeyFile = filepath.Join(t.TempDir(), "key")
	a.again()
	a.states("room-1", "room-2")
	old := backup(t, a.o.Store)
	a.states("room-3")
	var requests []string
	if err := a.w.Pull(t.Context(), "b", line(b, &requests)); err != nil { // a tells b its checkpoint by asking
		t.Fatal(err)
	}
	if c := must[tilelog.Checkpoint](t)(tilelog.PeekCheckpoint(b.w.journal.seen[hostA])); c.Size != 3 || c.Origin != "a.example/witan" {
		t.Fatalf("%+v", c)
	}
	b.again() // what was seen outlives a restart
	newest := a.o.Store

	restored := wo.nodeOn(t, old, hostA, hostB)
	restored.o.KeyFile, restored.o.PeersFirst = a.o.KeyFile, time.Hour
	var rotated int
	restored.o.Rotation = func(g int) (any, error) {
		if restored.w.rooms.TryLock() {
			t.Error("a room checkpoint can be begun with one log key and end when another one is in use")
			restored.w.rooms.Unlock()
		}
		rotated = g
		return map[string]any{"origin": hostA, "log": fmt.Sprint("key ", g)}, nil
	}
	restored.again()
	restored.w.Ended(restored.install(hostA, chain(t, "room-3", "another")))
	restored.drain()
	if len(restored.w.publisher.queue) != 0 || !errors.Is(restored.w.maySign(), errAsking) {
		t.Fatal("signed before a peer was asked")
	}
	if err := restored.w.Pull(t.Context(), "b", line(b, &requests)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(requests[len(requests)-1], "a.example/witan") {
		t.Errorf("asked without a checkpoint: %s", requests[len(requests)-1])
	}
	refused(t, restored, "room-4")
	restored.again() // also after a restart, without a peer
	if restored.w.refusing() == "" {
		t.Fatal("forgotten by a restart")
	}
	refused(t, restored, "room-5")
	// all else goes on: what others say is kept, and lists are served
	recs := chain(t, roomX, "one")
	if v := restored.hear(seal(t, key(hostB), TypeAnnounce, statement(hostB, recs)).JSON()); v != Accept || len(restored.get("statements")) != 3 {
		t.Error(v, len(restored.get("statements")))
	}
	// the newest store is put back: nothing to complain of
	back := wo.nodeOn(t, newest, hostA, hostB)
	back.o.KeyFile = a.o.KeyFile
	back.again()
	if err := back.w.Pull(t.Context(), "b", line(b, &requests)); err != nil || back.w.maySign() != nil {
		t.Error(err, back.w.maySign())
	}
	// or it is lost, and the operator begins a new log
	s := must[LogStatus](t)(restored.w.NewLog())
	if !s.Signs || s.Generation != 2 || s.Origin != "a.example/witan/2" || rotated != 2 {
		t.Errorf("%+v, %d", s, rotated)
	}
	e := envelope(t, restored.w.Rotation())
	if e.Type != TypeRotate || e.CheckSignature() != nil || e.Actor != agentOf(key(hostA)) || !e.Payload.Get("log").Is("key 2") {
		t.Errorf("%s", e.JSON())
	}
	restored.drain()
	// two from before, and three rooms that waited
	if list := restored.audit(2); len(list) != 5 {
		t.Errorf("%d entries", len(list))
	}
	restored.again()
	if err := restored.w.Pull(t.Context(), "b", line(b, &requests)); err != nil || restored.w.maySign() != nil || restored.w.Rotation() == nil {
		t.Error(err, restored.w.maySign())
	}
	if c := must[tilelog.Checkpoint](t)(tilelog.PeekCheckpoint(b.w.journal.seen[hostA])); c.Origin != "a.example/witan/2" || c.Size != 5 {
		t.Errorf("the peer keeps %+v", c)
	}
	// and the newest store of before is now the older one: by its key file, and by peers
	back.again()
	refused(t, back, "room-6")
	back.o.KeyFile = ""
	back.again()
	if err := back.w.Pull(t.Context(), "b", line(b, &requests)); err != nil {
		t.Fatal(err)
	}
	refused(t, back, "room-7")
	if s := must[LogStatus](t)(back.w.NewLog()); s.Generation != 3 {
		t.Errorf("generation %d is used twice", s.Generation)
	}
}

// Peers go on showing what they have seen of the log before while another one begins:
// that is no reason against the new one.
func TestNewLogWhilePeersShowTheOldOne(t *testing.T) {
	a := newWorld().node(t, hostA)
	a.states("room-1")
	newer := must[[]byte](t)(tilelog.Checkpoint{Origin: LogOrigin(hostA, 1), Size: 9}.Sign(a.o.LogKey(1)))
	a.w.shown(newer)
	refused(t, a, "room-2")
	var peers sync.WaitGroup
	put := a.w.put
	a.w.put = func(b *store.Batch) error {
		a.w.put = put
		read := make(chan struct{}, 8) // each peer's note was read, and is about the present log
		key := a.o.LogKey
		a.w.o.LogKey = func(g int) ed25519.PrivateKey { read <- struct{}{}; return key(g) }
		for range cap(read) {
			peers.Go(func() { a.w.shown(newer) })
		}
		for range cap(read) {
			<-read
		}
		return put(b)
	}
	s := must[LogStatus](t)(a.w.NewLog())
	peers.Wait()
	if err := a.w.maySign(); err != nil || s.Generation != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A peer that has an envelope of ours that we do not know of says the same.
func TestOwnEnvelopeFromOutside(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	a := wo.node(t, hostA)
	a.states("room-1")
	old := backup(t, a.o.Store)
	a.states("room-2")
	lost := a.get("statements?room_id=room-2")[0]
	restored := wo.nodeOn(t, old, hostA)
	if v := restored.hear(a.get("statements?room_id=room-1")[0]); v != Ignore || restored.w.maySign() != nil {
		t.Fatal("what is known is no news")
	}
	if v := restored.hear(lost); v != Accept {
		t.Fatal(v)
	}
	refused(t, restored, "room-3")
	restored.again()
	refused(t, restored, "room-4")
	must[LogStatus](t)(restored.w.NewLog())
	restored.drain()
	// another one of before turns up later: it enters the new log
	a.o.Now = func() int64 { return t0 + 50_000 }
	late := must[*adp.Envelope](t)(adp.Sign(key(hostA), adp.Draft{Protocol: adp.WitnessProtocol, Type: TypeAnnounce, CreatedAt: t0, Nonce: t0,
		Payload: statement(hostA, chain(t, "room-9", "one"))}))
	if v, p := restored.w.judge(late.JSON()); v != Accept {
		t.Fatal(v)
	} else if err := restored.w.keep([]parsed{p}); err != nil || restored.w.maySign() != nil {
		t.Fatal(err, restored.w.maySign())
	}
	list := restored.audit(2)
	if len(list) != 5 || list[4].Hash != late.Hash {
		t.Errorf("%d entries", len(list))
	}
	// one that was signed since is no memory of before
	late = must[*adp.Envelope](t)(adp.Sign(key(hostA), adp.Draft{Protocol: adp.WitnessProtocol, Type: TypeAnnounce, CreatedAt: t0, Nonce: t0 + 1_000_000,
		Payload: statement(hostA, chain(t, "room-10", "one"))}))
	restored.hear(late.JSON())
	refused(t, restored, "room-11")
}

// The key file names its store.
func TestStoreOfAnotherKey(t *testing.T) {
	wo := newWorld()
	a := wo.node(t, hostA)
	a.o.KeyFile = filepath.Join(t.TempDir(), "key")
	a.again()
	a.states("room-1")
	a.again()
	if a.w.maySign() != nil {
		t.Fatal(a.w.maySign())
	}
	other := wo.node(t, hostA)
	other.o.KeyFile = a.o.KeyFile
	other.again()
	refused(t, other, "room-1")
	other.again()
	s := must[LogStatus](t)(other.w.NewLog())
	other.drain()
	if s.Generation != 2 || len(other.audit(2)) != 1 {
		t.Errorf("%+v", s)
	}
	a.again() // the key now signs with the other store
	refused(t, a, "room-2")
}

func TestFaultsOfNewLog(t *testing.T) {
	for name, fault := range faults {
		wo := newWorld()
		a := wo.node(t, hostA)
		a.o.KeyFile = filepath.Join(t.TempDir(), "key")
		a.again()
		a.states("room-1", "room-2")
		a.w.put = fault(a)
		if _, err := a.w.NewLog(); err == nil {
			t.Fatalf("%s: no error", name)
		}
		if err := a.w.maySign(); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: signs in which log? %v", name, err)
		}
		a.again()
		persisted := strings.Contains(name, "persisted")
		if may := a.w.maySign() == nil; may != persisted {
			t.Errorf("%s: may sign after a restart: %v", name, may)
		}
		s := must[LogStatus](t)(a.w.NewLog())
		if s.Generation != 3 || len(a.audit(3)) != 2 {
			t.Errorf("%s: %+v", name, s)
		}
		a.states("room-3")
		a.again()
		if len(a.audit(3)) != 3 || a.w.maySign() != nil {
			t.Errorf("%s: %v", name, a.w.maySign())
		}
	}
}

// A checkpoint of another tree at a size that we have: the key signed two logs.
func TestAnotherLogOfOurs(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	a := wo.node(t, hostA)
	a.states("room-1", "room-2", "room-3")
	mine := a.w.ownCheckpoint()
	sign := func(c tilelog.Checkpoint, g int) []byte { return must[[]byte](t)(c.Sign(a.o.LogKey(g))) }
	root := must[[32]byte](t)(a.w.journal.log.RootAt(2))
	for name, harmless := range map[string][]byte{
		"our own": mine, "an older one": sign(tilelog.Checkpoint{Origin: "a.example/witan", Size: 2, Root: root}, 1),
		"a forged one": bytes.Replace(mine, []byte("\n3\n"), []byte("\n4\n"), 1), "nothing": nil, "another's": must[[]byte](t)(tilelog.Checkpoint{Origin: "b.example/witan", Size: 9}.Sign(key("x"))),
		"of another key": must[[]byte](t)(tilelog.Checkpoint{Origin: "a.example/witan", Size: 9}.Sign(key("x"))), "of a generation by the wrong key": sign(tilelog.Checkpoint{Origin: "a.example/witan/2", Size: 9}, 1),
		"of a name alike": must[[]byte](t)(tilelog.Checkpoint{Origin: "a.example/witan/02", Size: 9}.Sign(a.o.LogKey(2))), "of a room": sign(tilelog.Checkpoint{Origin: "a.example/witan/rooms/x/y", Size: 9}, 1),
	} {
		if a.w.shown(harmless); a.w.maySign() != nil {
			t.Fatalf("%s: %v", name, a.w.maySign())
		}
	}
	for name, c := range map[string]struct {
		tilelog.Checkpoint
		generation int
	}{
		"another root":     {tilelog.Checkpoint{Origin: "a.example/witan", Size: 2, Root: [32]byte{1}}, 1},
		"a longer log":     {tilelog.Checkpoint{Origin: "a.example/witan", Size: 4}, 1},
		"a later log":      {tilelog.Checkpoint{Origin: "a.example/witan/2", Size: 0, Root: adp.MerkleRoot(nil)}, 2},
		"a much later log": {tilelog.Checkpoint{Origin: "a.example/witan/7", Size: 2, Root: root}, 7},
	} {
		n := wo.nodeOn(t, backup(t, a.o.Store), hostA)
		n.w.shown(sign(c.Checkpoint, c.generation))
		if n.w.refusing() == "" {
			t.Error(name)
		}
		refused(t, n, "room-9")
	}
}

// What peers show of others' logs is kept only with a key that is bound to them,
// the greatest, once.
func TestSeenLogs(t *testing.T) {
	wo := newWorld()
	b := wo.node(t, hostB, hostA, hostC)
	sign := func(origin string, size uint64, k ed25519.PrivateKey) []byte {
		return must[[]byte](t)(tilelog.Checkpoint{Origin: origin, Size: size}.Sign(k))
	}
	kA := key(fmt.Sprint("log 1 ", hostA))
	kA2 := key(fmt.Sprint("log 2 ", hostA))
	size := func() (s string) {
		if note := b.w.journal.seen[hostA]; note != nil {
			c := must[tilelog.Checkpoint](t)(tilelog.PeekCheckpoint(note))
			s = fmt.Sprint(c.Origin, " ", c.Size)
		}
		return s
	}
	for _, step := range []struct {
		note []byte
		want string
	}{
		{sign("a.example/witan", 5, key("x")), ""}, {sign("d.example/witan", 5, kA), ""}, {sign("c.example/witan", 5, kA), ""},
		{sign("a.example/witan", 5, kA), "a.example/witan 5"}, {sign("a.example/witan", 4, kA), "a.example/witan 5"}, {sign("a.example/witan", 6, kA), "a.example/witan 6"},
		{sign("a.example/witan/2", 1, kA2), "a.example/witan/2 1"}, {sign("a.example/witan", 9, kA), "a.example/witan/2 1"}, {[]byte("x"), "a.example/witan/2 1"},
	} {
		if b.w.shown(step.note); size() != step.want {
			t.Fatalf("%s: kept %q, want %q", step.note, size(), step.want)
		}
	}
	if len(b.w.journal.seen) != 1 {
		t.Errorf("%d logs", len(b.w.journal.seen))
	}
	alarms := b.alarms.Load()
	other := must[[]byte](t)(tilelog.Checkpoint{Origin: "a.example/witan/2", Size: 1, Root: [32]byte{1}}.Sign(kA2))
	if b.w.shown(other); b.alarms.Load() != alarms+1 {
		t.Error("two checkpoints of one size are no alarm")
	}
	// who asks gets ours, and what was seen of its own
	ask := func(note string) (a syncAnswer) {
		v := must[adp.Value](t)(adp.EncodeValue(map[string]any{"after": "", "limit": 1, "checkpoint": note}))
		if err := json.Unmarshal(must[[]byte](t)(b.w.ServeSync(t.Context(), "p", v.Raw())), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	own := string(b.w.ownCheckpoint())
	if a := ask(""); !slices.Equal(a.Checkpoints, []string{own}) {
		t.Errorf("%q", a.Checkpoints)
	}
	if a := ask(string(sign("a.example/witan", 1, kA))); len(a.Checkpoints) != 2 || a.Checkpoints[0] != own || !strings.HasPrefix(a.Checkpoints[1], "a.example/witan/2\n1\n") {
		t.Errorf("%q", a.Checkpoints)
	}
	for _, bad := range []string{`{"after":"","limit":1,"checkpoint":1}`, `{"after":"","limit":1,"checkpoint":null}`, `{"after":"","checkpoint":"","x":1}`} {
		if _, err := b.w.ServeSync(t.Context(), "p", []byte(bad)); err == nil {
			t.Errorf("%s is answered", bad)
		}
	}
	for _, bad := range []string{`{"items":[],"next":"","checkpoints":1}`, `{"items":[],"next":"","checkpoints":["","","","",""]}`} {
		if _, err := b.w.take([]byte(bad)); !errors.Is(err, ErrPeer) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzShown(f *testing.F) {
	wo := newWorld()
	a := wo.node(f, hostA, hostB)
	f.Add(a.w.ownCheckpoint())
	f.Add([]byte("a.example/witan/2\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— a.example/witan/2 AAAA\n"))
	f.Fuzz(func(t *testing.T, note []byte) {
		if a.w.shown(note); a.w.refusing() != "" || len(a.w.journal.seen) != 0 {
			t.Errorf("believed: %q", note)
		}
	})
}

// Evidence is in every backup made since; one that is older gets it back from the first
// peer. The copy still names the store that the key signs with, so that what stops it
// from signing is what peers have seen.
func TestEvidenceSurvivesRestore(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	wo.bind(hostB, key(hostB))
	peer, b := wo.node(t, hostC, hostA, hostB), wo.node(t, hostB, hostA)
	b.o.KeyFile = filepath.Join(t.TempDir(), "key")
	b.again()
	b.states("room-1")
	before := backup(t, b.o.Store)
	recs, twin := chain(t, roomX, "one"), chain(t, roomX, "two")
	line1, k := LogOrigin(hostA, 1), logKeyOf(hostA)
	for _, n := range []*node{peer, b} {
		n.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, recs)).JSON())
		n.hear(seal(t, key(hostA), TypeAnnounce, statement(hostA, twin[:2])).JSON())
		n.w.saw(noteOf(t, line1, 7, 1, k))
		n.w.saw(noteOf(t, line1, 7, 2, k))
	}
	after := backup(t, b.o.Store)
	b.states("room-2")
	peer.w.saw(b.w.ownCheckpoint())
	want := b.evidence()
	if len(want) != 2 || !b.w.HostEquivocated(hostA) || b.state(hostA, roomX) != "0 "+Equivocated {
		t.Fatal(want, b.state(hostA, roomX))
	}
	for name, st := range map[string]*store.Store{"of before": before, "of since": after} {
		restored := wo.nodeOn(t, st, hostB, hostA)
		restored.o.KeyFile = filepath.Join(t.TempDir(), "key")
		if err := must[tilelog.Custody](t)(tilelog.ReadCustody(b.o.KeyFile)).Write(restored.o.KeyFile); err != nil {
			t.Fatal(err)
		}
		restored.again()
		if name == "of since" {
			restored.sees(want...)
		}
		if err := restored.w.maySign(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var requests []string
		if err := restored.w.Pull(t.Context(), "peer", line(peer, &requests)); err != nil {
			t.Fatal(err)
		}
		restored.sees(want...)
		if !restored.w.HostEquivocated(hostA) || restored.state(hostA, roomX) != "0 "+Equivocated {
			t.Error(name, restored.state(hostA, roomX))
		}
		refused(t, restored, "room-"+strings.ReplaceAll(name, " ", "-"))
		must[LogStatus](t)(restored.w.NewLog())
		restored.again()
		restored.sees(want...)
	}
}
