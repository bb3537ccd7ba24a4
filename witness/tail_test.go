package witness

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// hostLog is the log of a host, kept by its key, as it serves it.
type hostLog struct {
	t     testing.TB
	l     *tilelog.Log
	st    *store.Store
	paths []string                              // that were asked for
	lie   func(path string, body []byte) []byte // what is served instead
}

func newLog(t testing.TB, origin string, entries ...[]byte) *hostLog {
	t.Helper()
	x := &hostLog{t: t, st: memory(t)}
	x.l = must[*tilelog.Log](t)(tilelog.Open(x.st, func(g int) string { return LogOrigin(origin, g) },
		func(g int) ed25519.PrivateKey { return key(fmt.Sprint("log ", g, " ", origin)) }))
	return x.add(entries...)
}

func (x *hostLog) add(entries ...[]byte) *hostLog {
	x.t.Helper()
	for len(entries) > 0 {
		var b store.Batch
		var list []tilelog.Entry
		for _, e := range entries[:min(len(entries), 1000)] {
			sum := adp.LeafHash(e)
			list = append(list, tilelog.Entry{Name: adp.Encode(sum[:]), Data: e})
		}
		p := must[*tilelog.Pending](x.t)(x.l.Append(&b, list...))
		if err := x.st.Commit(&b); err != nil {
			x.t.Fatal(err)
		}
		x.l.Publish(p)
		entries = entries[len(list):]
	}
	return x
}

func (x *hostLog) renew(generation int) {
	x.t.Helper()
	var b store.Batch
	p := must[*tilelog.Pending](x.t)(x.l.Renew(&b, generation))
	if err := x.st.Commit(&b); err != nil {
		x.t.Fatal(err)
	}
	x.l.Publish(p)
}

// read is a LogReader.
func (x *hostLog) read(ctx context.Context, path string, most int64) ([]byte, error) {
	x.paths = append(x.paths, path)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	body := x.l.Checkpoint()
	if path != "checkpoint" {
		t, err := tilelog.ParsePath(path)
		if err == nil {
			body, err = x.l.Read(t)
		}
		if err != nil {
			return nil, err
		}
	}
	if x.lie != nil {
		if body = x.lie(path, bytes.Clone(body)); body == nil {
			return nil, ErrNotThere
		}
	}
	if int64(len(body)) > most {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, len(body), most)
	}
	return body, nil
}

// tail reads a log until there is no more.
func (n *node) tail(origin string, x *hostLog) error {
	n.t.Helper()
	for range 100 {
		more, err := n.w.Tail(n.t.Context(), origin, x.read)
		if err != nil || !more {
			return err
		}
	}
	n.t.Fatal("there is always more")
	return nil
}

func (n *node) tailed(origin string) string {
	s, ok := n.w.Tailed(origin)
	return fmt.Sprintf("%s %d/%d %v", s.Log, s.Read, s.Size, ok)
}

// evidence lists what is kept, as class and kind.
func (n *node) evidence() (kinds []string) {
	n.t.Helper()
	for _, raw := range n.get("evidence") {
		var e struct{ Class, Kind string }
		if err := json.Unmarshal(raw, &e); err != nil {
			n.t.Fatal(err)
		}
		kinds = append(kinds, e.Class+" "+e.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

func (n *node) sees(want ...string) {
	n.t.Helper()
	if got := n.evidence(); !slices.Equal(got, want) {
		n.t.Errorf("evidence %q, want %q", got, want)
	}
}

// sealed are statements of a host about some rooms.
func sealed(t testing.TB, origin string, from, to int) (entries [][]byte) {
	t.Helper()
	recs := chain(t, roomX, "one")
	for _, id := range names(from, to) {
		st := statement(origin, recs)
		st.RoomID = id
		entries = append(entries, seal(t, key(origin), TypeAnnounce, st).JSON())
	}
	return entries
}

func follower(t testing.TB) *node {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	return wo.node(t, hostB, hostA)
}

// A statement that the host keeps from us is found in its log, together with what
// contradicts it; reading goes on where it ended, also after a restart.
func TestTailReadsTheWholeLog(t *testing.T) {
	b := follower(t)
	entries := sealed(t, hostA, 0, 300)
	x := newLog(t, hostA, entries[:250]...)
	if err := b.tail(hostA, x); err != nil || b.tailed(hostA) != "a.example/witan 250/250 true" {
		t.Fatal(err, b.tailed(hostA))
	}
	if len(b.w.book.order) != 250 {
		t.Errorf("%d statements", len(b.w.book.order))
	}
	b.again()
	x.paths = nil
	if err := b.tail(hostA, x); err != nil || !slices.Equal(x.paths, []string{"checkpoint"}) {
		t.Errorf("%v: asked for %q again", err, x.paths)
	}
	x.add(entries[250:]...)
	x.paths = nil
	if err := b.tail(hostA, x); err != nil || b.tailed(hostA) != "a.example/witan 300/300 true" || len(b.w.book.order) != 300 {
		t.Fatal(err, b.tailed(hostA), len(b.w.book.order))
	}
	if len(x.paths) > 6 {
		t.Errorf("asked for %q", x.paths)
	}
	b.sees()
	// another announcement of a room, which only somebody else was shown
	st := statement(hostA, chain(t, roomX, "another story"))
	st.RoomID = "room-0280"
	other := seal(t, key(hostA), TypeAnnounce, st)
	if v := b.hear(other.JSON()); v != Accept {
		t.Fatal(v)
	}
	b.sees("proof statement-contradiction")
	// what was read can be proven to others
	e := envelope(t, entries[280])
	var got logEntry
	if err := json.Unmarshal(b.fetch("/v1/witness/log-entry?hash="+e.Hash), &got); err != nil || got.Index != 280 || got.Size != 300 {
		t.Fatalf("%+v, %v", got, err)
	}
	p := must[tilelog.Proof](t)(tilelog.ParseProof(b.http("/v1/witness/log-entry?hash="+e.Hash, "Accept", "text/plain").Body.Bytes()))
	must[tilelog.Checkpoint](t)(p.Verify(e.JSON(), logKeys(hostA)[0]))
}

// The same the other way round: what contradicts came first.
func TestTailFindsTheOtherAnnouncement(t *testing.T) {
	b := follower(t)
	st := statement(hostA, chain(t, roomX, "another story"))
	st.RoomID = "room-0001"
	if v := b.hear(seal(t, key(hostA), TypeAnnounce, st).JSON()); v != Accept {
		t.Fatal(v)
	}
	if err := b.tail(hostA, newLog(t, hostA, sealed(t, hostA, 0, 3)...)); err != nil {
		t.Fatal(err)
	}
	b.sees("proof statement-contradiction")
	text := b.w.publisher.next(t)
	p, err := VerifyEvidence(text)
	if err != nil || p.Against() != "host" || p.RoomID != "room-0001" {
		t.Errorf("%v: gossiped %s", err, text)
	}
}

// One round has a bound, and what is no envelope is seen and does not stop reading.
func TestTailIsBounded(t *testing.T) {
	b := follower(t)
	var entries [][]byte
	for i := range 256*(tailBundles+2) + 7 {
		entries = append(entries, fmt.Appendf(nil, `{"no":"envelope %d"}`, i))
	}
	last := sealed(t, hostA, 0, 1)[0]
	x := newLog(t, hostA, append(entries, last)...)
	more, err := b.w.Tail(t.Context(), hostA, x.read)
	if err != nil || !more || b.tailed(hostA) != fmt.Sprintf("a.example/witan %d/%d true", 256*tailBundles, len(entries)+1) {
		t.Fatal(more, err, b.tailed(hostA))
	}
	if len(x.paths) > 2*tailBundles {
		t.Errorf("%d requests", len(x.paths))
	}
	if rec := b.http("/v1/witness/log-entry?hash=" + envelope(t, last).Hash); rec.Code != 404 {
		t.Errorf("%d: proven before it was read", rec.Code)
	}
	b.again()
	if err := b.tail(hostA, x); err != nil || len(b.w.book.order) != 1 {
		t.Fatal(err, len(b.w.book.order))
	}
	if kinds := b.evidence(); len(kinds) != maxObservations || kinds[0] != "observation log-entry" {
		t.Errorf("%q", kinds)
	}
	if b.w.HostEquivocated(hostA) {
		t.Error("an observation is no proof")
	}
}

// A log that forks is proven to, whatever the sizes of its trees are.
func TestTailProvesForks(t *testing.T) {
	common := sealed(t, hostA, 0, 3)
	for name, c := range map[string]struct {
		one, two int // entries of either story behind the common ones
		want     string
	}{
		"longer":  {2, 4, "proof inclusion-contradiction"},
		"shorter": {4, 2, "proof inclusion-contradiction"},
		"equal":   {3, 3, "proof checkpoint-contradiction"},
		"large":   {300, 700, "proof inclusion-contradiction"},
	} {
		t.Run(name, func(t *testing.T) {
			b := follower(t)
			one := newLog(t, hostA, append(slices.Clone(common), sealed(t, hostA, 10, 10+c.one)...)...)
			two := newLog(t, hostA, append(slices.Clone(common), sealed(t, hostA, 1000, 1000+c.two)...)...)
			if err := b.tail(hostA, one); err != nil {
				t.Fatal(err)
			}
			known := len(b.w.book.order)
			if err := b.tail(hostA, two); !errors.Is(err, ErrLogForked) {
				t.Fatal(err)
			}
			b.sees(c.want)
			if !b.w.HostEquivocated(hostA) || len(b.w.book.order) != known {
				t.Error(b.w.HostEquivocated(hostA), len(b.w.book.order))
			}
			p, err := VerifyEvidence(b.w.publisher.next(t))
			if err != nil || p.Against() != "host" || p.Origin != hostA {
				t.Error(err)
			}
			b.again() // sticky, and seen again
			if err := b.tail(hostA, two); !errors.Is(err, ErrLogForked) || !b.w.HostEquivocated(hostA) {
				t.Error(err, b.w.HostEquivocated(hostA))
			}
			if err := b.tail(hostA, one.add(sealed(t, hostA, 2000, 2001)...)); err != nil {
				t.Errorf("the story that was read first: %v", err)
			}
			b.sees(c.want)
		})
	}
}

// A log that shows less than before, but the same, is no contradiction: it is what a
// restored backup shows. When it then goes on differently, it is one.
func TestTailOfRestoredBackup(t *testing.T) {
	b := follower(t)
	entries := sealed(t, hostA, 0, 5)
	if err := b.tail(hostA, newLog(t, hostA, entries...)); err != nil {
		t.Fatal(err)
	}
	x := newLog(t, hostA, entries[:3]...)
	for range 2 {
		if err := b.tail(hostA, x); !errors.Is(err, ErrLogStale) {
			t.Fatal(err)
		}
	}
	b.sees("observation stale-log")
	if b.w.HostEquivocated(hostA) {
		t.Error("taken for a proof")
	}
	// an honest host begins a new log, and takes up what it knows of
	x.renew(2)
	if err := b.tail(hostA, x); err != nil {
		t.Fatal(err)
	}
	x.add(entries[:3]...)
	if err := b.tail(hostA, x); err != nil || b.tailed(hostA) != "a.example/witan/2 3/3 true" {
		t.Fatal(err, b.tailed(hostA))
	}
	if err := b.tail(hostA, newLog(t, hostA, entries...)); !errors.Is(err, ErrLogStale) {
		t.Errorf("the log before: %v", err)
	}
	b.again()
	if b.tailed(hostA) != "a.example/witan/2 3/3 true" {
		t.Error(b.tailed(hostA))
	}
	// a dishonest one goes on
	c := follower(t)
	if err := c.tail(hostA, newLog(t, hostA, entries...)); err != nil {
		t.Fatal(err)
	}
	if err := c.tail(hostA, newLog(t, hostA, append(slices.Clone(entries[:3]), sealed(t, hostA, 50, 60)...)...)); !errors.Is(err, ErrLogForked) {
		t.Fatal(err)
	}
	c.sees("proof inclusion-contradiction")
}

// Nothing is taken from a log that is not under its checkpoint, whatever is wrong
// with it; as soon as it is honest again it is read.
func TestTailOfLyingLog(t *testing.T) {
	entries := sealed(t, hostA, 0, 520)
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[(len(b)+at)%len(b)] ^= 1; return b }
	}
	foreign := newLog(t, hostA, sealed(t, hostA, 900, 1420)...)
	for name, lie := range map[string]struct {
		on  string // the paths that are lied about begin so
		how func([]byte) []byte
		odd bool // it is seen
	}{
		"checkpoint of nobody":  {"checkpoint", flip(-5), false},
		"checkpoint of another": {"checkpoint", func([]byte) []byte { return noteOf(t, LogOrigin(hostC, 1), 3, 1, logKeyOf(hostC)) }, false},
		"checkpoint is a page":  {"checkpoint", func([]byte) []byte { return []byte("<html>") }, false},
		"hashes at the edge":    {"tile/0/002.p/8", flip(3), true},
		"hashes above":          {"tile/1/000.p/2", flip(40), true},
		"hashes are missing":    {"tile/0/002", func([]byte) []byte { return nil }, false},
		"hashes are short":      {"tile/0/002", func(b []byte) []byte { return b[:32] }, true},
		"an entry is changed":   {"tile/entries/000", flip(700), true},
		"an entry is missing":   {"tile/entries/000", func(b []byte) []byte { return b[2+int(b[0])<<8+int(b[1]):] }, true},
		"entries of another log": {"tile/entries/001", func([]byte) []byte {
			return must[[]byte](t)(foreign.l.Read(tilelog.Tile{Entries: true, Index: 1, Width: 256}))
		}, true},
		"an endless bundle": {"tile/entries/000", func(b []byte) []byte { return append(b, make([]byte, bundleMost)...) }, false},
		"an endless tile":   {"tile/1", func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := follower(t)
			x := newLog(t, hostA, entries...)
			x.lie = func(path string, body []byte) []byte {
				if strings.HasPrefix(path, lie.on) {
					return lie.how(body)
				}
				return body
			}
			err := b.tail(hostA, x)
			if err == nil {
				t.Fatal("taken")
			}
			if lie.odd != errors.Is(err, ErrLogBroken) && !strings.HasPrefix(lie.on, "checkpoint") {
				t.Error(err)
			}
			if lie.odd {
				b.sees("observation log-broken")
			} else {
				b.sees()
			}
			for _, it := range b.w.book.order { // of whole bundles before the lie
				if !slices.ContainsFunc(entries, func(raw []byte) bool { return strings.Contains(string(raw), it.hash) }) {
					t.Errorf("took %s", it.hash)
				}
			}
			x.lie = nil
			if err := b.tail(hostA, x); err != nil || len(b.w.book.order) != 520 {
				t.Error(err, len(b.w.book.order))
			}
		})
	}
}

// A log that answers no more keeps what was read.
func TestTailOfSlowLog(t *testing.T) {
	b := follower(t)
	x := newLog(t, hostA, sealed(t, hostA, 0, 600)...)
	ctx, cancel := context.WithCancel(t.Context())
	slow := func(ctx context.Context, path string, most int64) ([]byte, error) {
		if path == "tile/entries/001" {
			cancel() // its time is over
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return x.read(ctx, path, most)
	}
	if _, err := b.w.Tail(ctx, hostA, slow); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if b.tailed(hostA) != "a.example/witan 256/600 true" {
		t.Error(b.tailed(hostA))
	}
	b.sees()
	if err := b.tail(hostA, x); err != nil || b.tailed(hostA) != "a.example/witan 600/600 true" {
		t.Error(err, b.tailed(hostA))
	}
}

// A log that keeps no partial tiles, as C2SP lets it, is read by its full ones.
func TestTailWithoutPartialTiles(t *testing.T) {
	b := follower(t)
	x := newLog(t, hostA, sealed(t, hostA, 0, 512)...)
	shown := newLog(t, hostA, func() (list [][]byte) {
		for i := range uint64(300) {
			raw := must[[]byte](t)(x.l.Read(tilelog.Tile{Entries: true, Index: i / 256, Width: 256}))
			list = append(list, must[[][]byte](t)(tilelog.ParseBundle(raw, 256))[i%256])
		}
		return list
	}()...)
	x.lie = func(path string, body []byte) []byte {
		switch {
		case path == "checkpoint":
			return shown.l.Checkpoint() // it grows meanwhile
		case strings.HasPrefix(path, "tile/0/001.p/"), strings.HasPrefix(path, "tile/entries/001.p/"):
			return nil
		}
		return body
	}
	if err := b.tail(hostA, x); err != nil || b.tailed(hostA) != "a.example/witan 300/300 true" {
		t.Error(err, b.tailed(hostA))
	}
	b.sees()
}

// Whatever fails between keeping and noting, nothing is lost and nothing is read
// twice into the tree.
func TestTailOverFaults(t *testing.T) {
	for name, fault := range faults {
		b := follower(t)
		x := newLog(t, hostA, sealed(t, hostA, 0, 300)...)
		put := b.w.put
		for step := 1; ; step++ { // the fault at each commit in turn
			n := 0
			b.w.put = func(batch *store.Batch) error {
				if n++; n == step {
					return fault(b)(batch)
				}
				return put(batch)
			}
			err := b.tail(hostA, x)
			if n < step {
				if err != nil {
					t.Fatal(name, err)
				}
				break
			}
			if err == nil && step > 1 { // the first is of what was shown, which is no part of reading
				t.Fatalf("%s at commit %d is not told", name, step)
			}
			if step%2 == 0 {
				b.again()
				put = b.w.put
			}
		}
		if len(b.w.book.order) != 300 || b.tailed(hostA) != "a.example/witan 300/300 true" {
			t.Error(name, len(b.w.book.order), b.tailed(hostA))
		}
		b.again()
		b.w.put = put
		if err := b.tail(hostA, x); err != nil || len(b.w.book.order) != 300 {
			t.Error(name, err)
		}
	}
}

// What a host signed and has not in its log is seen, once it was missing twice.
func TestTailMissesWhatIsNotLogged(t *testing.T) {
	b := follower(t)
	entries := sealed(t, hostA, 0, 3)
	x := newLog(t, hostA, entries[:2]...)
	b.hear(entries[0])
	b.hear(entries[2])
	if err := b.tail(hostA, x); err != nil {
		t.Fatal(err)
	}
	b.sees()
	late := sealed(t, hostA, 5, 6)[0]
	b.hear(late)
	x.add(late)
	for range 3 {
		if err := b.tail(hostA, x); err != nil {
			t.Fatal(err)
		}
		b.sees("observation unlogged")
	}
}

func TestTailOfNobody(t *testing.T) {
	b := follower(t)
	x := newLog(t, hostC, sealed(t, hostC, 0, 1)...)
	for _, origin := range []string{hostC, hostB} { // not followed; our own
		if _, err := b.w.Tail(t.Context(), origin, x.read); !errors.Is(err, ErrNotThere) {
			t.Errorf("%s: %v", origin, err)
		}
	}
	if len(x.paths) != 0 {
		t.Errorf("asked for %q", x.paths)
	}
}
