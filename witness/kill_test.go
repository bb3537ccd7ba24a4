package witness

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/childtest"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// What a child is told by its environment.
const (
	childFolder = "WITAN_WITNESS_TEST_CHILD" // makes the test binary a witness on a folder
	childDeath  = "WITAN_WITNESS_TEST_DEATH" // "before 7": it kills itself before its 7th commit, or "after" it
	childPeer   = "WITAN_WITNESS_TEST_PEER"  // a file with a checkpoint that a peer shows
	childRenew  = "WITAN_WITNESS_TEST_RENEW" // the operator begins a new log
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		signUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// onDisk is a node over a store in a folder, with a clock by which a room checkpoint
// is due all the time.
func onDisk(t testing.TB, dir string) *node {
	t.Helper()
	st := must[*store.Store](t)(store.Open(store.Options{Dir: filepath.Join(dir, "store"), MinFree: 1}))
	t.Cleanup(func() { _ = st.Close() })
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	n := wo.nodeOn(t, st, hostA, hostC)
	n.o.KeyFile = filepath.Join(dir, "key")
	n.o.Now = func() int64 { return time.Now().UnixMilli() * 1000 }
	n.again()
	return n
}

// signUntilKilled signs statements, attestations and checkpoints, and prints
// everything that gets out.
func signUntilKilled(dir string) {
	n := onDisk(childtest.TB{}, dir)
	var out sync.Mutex
	say := func(what string, text []byte) {
		out.Lock()
		defer out.Unlock()
		if _, err := fmt.Println(what, adp.Encode(text)); err != nil {
			os.Exit(1)
		}
	}
	if file := os.Getenv(childPeer); file != "" {
		n.o.PeersFirst = time.Hour
		n.again()
		note := must[[]byte](childtest.TB{})(os.ReadFile(file))
		page := must[[]byte](childtest.TB{})(json.Marshal(syncAnswer{Items: []json.RawMessage{}, Checkpoints: []string{string(note)}}))
		go func() {
			if err := n.w.Pull(context.Background(), "peer", func(context.Context, []byte) ([]byte, error) { return page, nil }); err != nil {
				childtest.TB{}.Fatal(err)
			}
			say("heard", note)
		}()
	}
	if word, count, ok := strings.Cut(os.Getenv(childDeath), " "); ok {
		at, put := must[int](childtest.TB{})(strconv.Atoi(count)), n.w.put
		var commits atomic.Int64
		n.w.put = func(b *store.Batch) error {
			if commits.Add(1) < int64(at) {
				return put(b)
			}
			if word == "after" {
				_ = put(b)
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	n.w.SetPublisher(func(_ context.Context, b []byte) error { say("envelope", b); return nil }, func(context.Context, []byte) error { return nil })
	go func() { _ = n.w.Run(context.Background()) }()
	if os.Getenv(childRenew) != "" {
		must[LogStatus](childtest.TB{})(n.w.NewLog())
	}
	go func() { // the log as others see it, who leave it some time to work
		last := ""
		for {
			if note := n.w.ownCheckpoint(); string(note) != last {
				last = string(note)
				say("log", note)
			}
			<-time.After(100 * time.Microsecond)
		}
	}()
	// rooms that end, and rooms that go on
	for i := 0; ; i++ {
		id := fmt.Sprintf("room-%d-%d", os.Getpid(), i)
		switch i % 3 {
		case 0:
			n.w.Ended(n.install(hostA, chain(childtest.TB{}, id, "one")))
		case 1:
			n.w.Completed(n.install(hostC, chain(childtest.TB{}, id, "one")))
		case 2:
			recs := chain(childtest.TB{}, id, "one", "two", "three")
			r := n.install(hostA, recs[:2])
			for k := 2; k < 4; k++ {
				if note, err := n.w.roomCheckpoint(r); err == nil {
					say("room", note)
				}
				n.grow(r, recs[k:k+1])
			}
		}
		say("made", []byte(id))
	}
}

// said is all that ever got out, over all lives.
type said struct {
	logs, rooms, envelopes map[string]bool
	last                   tilelog.Checkpoint // of the log, that was said last
	made, heard            int
}

// live runs a child until it has said so much, kills it, and adds what it said.
func (s *said) live(t *testing.T, dir string, enough int, env ...string) {
	t.Helper()
	n := 0
	s.liveUntil(t, dir, func() bool { n++; return n >= enough }, env...)
}

// liveUntil runs a child until something is so after one of its lines, and kills it.
func (s *said) liveUntil(t *testing.T, dir string, enough func() bool, env ...string) {
	t.Helper()
	childtest.KillWhen(t, func(line string) bool {
		what, text, _ := strings.Cut(line, " ")
		body := string(must[[]byte](t)(adp.Decode(text)))
		switch what {
		case "log":
			s.logs[body] = true
			s.last = must[tilelog.Checkpoint](t)(tilelog.PeekCheckpoint([]byte(body)))
		case "room":
			s.rooms[body] = true
		case "envelope":
			s.envelopes[body] = true
		case "made":
			s.made++
		case "heard":
			s.heard++
		default:
			t.Fatalf("the child said %q", line)
		}
		return enough()
	}, append([]string{childFolder + "=" + dir}, env...)...)
}

// check holds all that ever got out of a generation of the log against the store.
func (s *said) check(t *testing.T, dir string, generation int) {
	t.Helper()
	n := onDisk(t, dir)
	defer func() {
		if err := n.o.Store.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := n.w.maySign(); err != nil {
		t.Error(err)
	}
	for note := range s.logs {
		c := must[tilelog.Checkpoint](t)(tilelog.OpenCheckpoint([]byte(note), logKeys(hostA)...))
		if g, _ := logGeneration(hostA, c.Origin); g != generation {
			continue
		}
		if root, err := n.w.journal.log.RootAt(c.Size); err != nil || root != c.Root {
			t.Errorf("a checkpoint got out that the log does not hold: %v\n%s", err, note)
		}
	}
	contents := map[string]string{}
	for raw := range s.envelopes {
		e := envelope(t, []byte(raw))
		if _, ok, err := n.w.journal.log.Find(e.Hash); !ok || err != nil {
			t.Errorf("got out, and is not in the log: %v %s", err, raw)
		}
		it := must[*item](t)(readItem(e))
		what := fmt.Sprint(it.typ, it.subject)
		if other, ok := contents[what]; ok && other != fmt.Sprint(it.content) {
			t.Errorf("two stories of %s", what)
		}
		contents[what] = fmt.Sprint(it.content)
	}
	for note := range s.rooms {
		c := must[tilelog.Checkpoint](t)(tilelog.OpenCheckpoint([]byte(note), logKeys(hostA)...))
		subject, _ := subjectOf(c.Origin, []string{hostA})
		r, ok := n.set.GetKey(replica.Key(subject))
		if !ok {
			t.Errorf("a checkpoint of a room that is lost: %s", note)
			continue
		}
		if root, err := r.RootAt(int64(c.Size)); err != nil || root != c.Root {
			t.Errorf("a checkpoint of other records than those of its room: %v\n%s", err, note)
		}
	}
}

// TestKill kills a daemon that signs, at random and just before and after its
// commits. Nothing ever gets out that contradicts what got out before; all that got
// out is in the log. An older copy of the store signs nothing once a peer has shown
// what it has seen, also after more deaths, until the operator begins a new log.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	older := filepath.Join(t.TempDir(), "store")
	rounds := 14
	if testing.Short() {
		rounds = 4
	}
	s := &said{logs: map[string]bool{}, rooms: map[string]bool{}, envelopes: map[string]bool{}}
	var held tilelog.Checkpoint // by the older copy of the store
	for round := range rounds {
		var env []string
		if round%2 == 1 {
			env = []string{childDeath + fmt.Sprintf("=%s %d", [...]string{"before", "after"}[rand.IntN(2)], 1+rand.IntN(12))}
		}
		s.live(t, dir, 1+rand.IntN(60), env...)
		s.check(t, dir, 1)
		if t.Failed() {
			return
		}
		if round == rounds/2 {
			known := len(s.envelopes) // the copy of an empty log is no older copy
			s.liveUntil(t, dir, func() bool { return len(s.envelopes) > known })
			var note []byte
			note, held = headOf(t, filepath.Join(dir, "store"))
			s.logs[string(note)] = true // a life may end before it says so, and the copy shows it again
			if err := os.CopyFS(older, os.DirFS(filepath.Join(dir, "store"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.liveUntil(t, dir, func() bool { // so that there is something to contradict
		return s.last.Size > held.Size && len(s.envelopes) >= rounds && len(s.rooms) >= rounds/2
	})
	s.check(t, dir, 1)
	t.Logf("%d lives: %d envelopes, %d checkpoints of the log, %d of rooms", rounds, len(s.envelopes), len(s.logs), len(s.rooms))

	// the older copy
	peer := filepath.Join(t.TempDir(), "checkpoint")
	for note := range s.logs {
		if must[tilelog.Checkpoint](t)(tilelog.PeekCheckpoint([]byte(note))) == s.last {
			if err := os.WriteFile(peer, []byte(note), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "store")), os.CopyFS(filepath.Join(dir, "store"), os.DirFS(older))); err != nil {
		t.Fatal(err)
	}
	logs, rooms, envelopes, made := len(s.logs), len(s.rooms), len(s.envelopes), s.made
	for life := range 3 {
		if life == 0 { // the peer is there only once
			s.liveUntil(t, dir, func() bool { return s.heard > 0 && s.made >= made+8 }, childPeer+"="+peer)
		} else {
			s.live(t, dir, 25)
		}
		if len(s.logs) != logs || len(s.rooms) != rooms || len(s.envelopes) != envelopes {
			t.Fatal("an older copy of the store has signed")
		}
	}
	// the operator begins a new log
	*s = said{logs: map[string]bool{}, rooms: map[string]bool{}, envelopes: map[string]bool{}}
	s.live(t, dir, 40, childRenew+"=1")
	for range 3 {
		s.live(t, dir, 1+rand.IntN(60))
		s.check(t, dir, 2)
	}
	s.liveUntil(t, dir, func() bool { return len(s.envelopes) > 0 }) // it signs again
	s.check(t, dir, 2)
}

// headOf is the newest checkpoint of the log in a store, which is left as it is.
func headOf(t *testing.T, from string) (note []byte, head tilelog.Checkpoint) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "store"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	st := must[*store.Store](t)(store.Open(store.Options{Dir: filepath.Join(dir, "store"), MinFree: 1}))
	defer func() { _ = st.Close() }()
	l := must[*tilelog.Log](t)(tilelog.Open(st, func(g int) string { return LogOrigin(hostA, g) },
		func(g int) ed25519.PrivateKey { return key(fmt.Sprint("log ", g, " ", hostA)) }))
	_, head = l.Head()
	return l.Checkpoint(), head
}
