package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/internal/tilelog"
)

// What the ones who ask for cosignatures are told and given, and what is served.
func TestCosigned(t *testing.T) {
	wo := newWorld()
	wo.bind(hostA, key(hostA))
	a := wo.node(t, hostA, hostB)
	grown := 0
	line := []byte("— w.example/witness AAAAAAA=\n")
	a.o.Grown = func() { grown++ }
	a.o.Cosigned = func(checkpoint []byte) []byte {
		if !bytes.Equal(checkpoint, a.w.Checkpoint()) {
			t.Errorf("asked about %s", checkpoint)
		}
		return append(bytes.Clone(checkpoint), line...)
	}
	a.again()
	a.states("room-1", "room-2", "room-3")
	if grown != 3 {
		t.Errorf("told %d times of 3 checkpoints", grown)
	}
	signed := a.w.Checkpoint()
	want := append(bytes.Clone(signed), line...)
	if got := a.fetch("/log/checkpoint"); !bytes.Equal(got, want) || bytes.Contains(signed, line) {
		t.Errorf("%s", got)
	}
	e := envelope(t, a.get("statements?room_id=room-2")[0])
	var entry logEntry
	if err := json.Unmarshal(a.fetch("/v1/witness/log-entry?hash="+e.Hash), &entry); err != nil || entry.Checkpoint != string(want) {
		t.Errorf("%v %s", err, entry.Checkpoint)
	}
	p := must[tilelog.Proof](t)(tilelog.ParseProof(a.http("/v1/witness/log-entry?hash="+e.Hash, "Accept", "text/plain").Body.Bytes()))
	must[tilelog.Checkpoint](t)(p.Verify(e.JSON(), logKeys(hostA)...))
	if !bytes.Equal(p.Checkpoint, want) {
		t.Errorf("%s", p.Checkpoint)
	}
	if hashes, err := a.w.ProveGrowth(1, 3); err != nil || len(hashes) == 0 {
		t.Error(hashes, err)
	}
	if _, err := a.w.ProveGrowth(1, 4); !errors.Is(err, tilelog.ErrNotThere) {
		t.Error(err)
	}
	// whose checkpoints are cosigned here
	if keys := a.w.KeysOf("b.example:8443/witan"); !slices.EqualFunc(keys, logKeys(hostB), func(x, y ed25519.PublicKey) bool { return x.Equal(y) }) || len(keys) == 0 {
		t.Error(keys)
	}
	for _, line := range []string{"a.example/witan", "c.example/witan", "b.example:8443", "b.example/witan", "b.example:8443/witan/1", "b.example:8443/witan/x", ""} {
		if keys := a.w.KeysOf(line); keys != nil {
			t.Errorf("%q has keys", line)
		}
	}
	// a witness has seen more of our log than an older copy of the store holds
	old := wo.nodeOn(t, backup(t, a.o.Store), hostA)
	a.states("room-4")
	old.w.Shown(signed)
	if err := old.w.MaySign(); err != nil {
		t.Fatal(err)
	}
	old.w.Shown([]byte("a.example/witan\n9\nAAAA\n\n— a.example/witan AAAA\n"))
	old.w.Shown(append(bytes.Clone(signed), "x"...))
	if err := old.w.MaySign(); err != nil {
		t.Fatal(err) // nobody can stop us by a mere word
	}
	old.w.Shown(a.fetch("/log/checkpoint"))
	if err := old.w.MaySign(); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	// a new log is told of, too
	before := grown
	a.w.refuse(0, func() string { return "a test" })
	must[LogStatus](t)(a.w.NewLog())
	if grown == before {
		t.Error("the new log was not told of")
	}
}

// What the cosigner of this daemon is shown becomes evidence, if it is of a host that
// is followed; of our own log it stops all signing.
func TestConflictingCheckpoints(t *testing.T) {
	b := follower(t)
	k := logKeyOf(hostA)
	line := LogOrigin(hostA, 1)
	b.w.Conflicting(line, noteOf(t, line, 7, 1, key("framed")), noteOf(t, line, 7, 2, key("framed"))) // nobody can frame a host
	b.w.Conflicting("log.example/x", noteOf(t, "log.example/x", 7, 1, k), noteOf(t, "log.example/x", 7, 2, k))
	b.w.Conflicting(line, noteOf(t, line, 7, 1, k), noteOf(t, line, 8, 1, k)) // no contradiction
	b.sees()
	b.w.Conflicting(line, noteOf(t, line, 7, 1, k), noteOf(t, line, 7, 2, k))
	b.sees("proof " + KindCheckpoints)
	if !b.w.HostEquivocated(hostA) || b.w.maySign() != nil {
		t.Error(b.w.maySign())
	}
	b.again()
	if !b.w.HostEquivocated(hostA) {
		t.Error("forgotten by a restart")
	}
	own := LogOrigin(hostB, 1)
	b.w.Conflicting(own, noteOf(t, own, 7, 1, logKeyOf(hostB)), noteOf(t, own, 7, 2, logKeyOf(hostB)))
	if !errors.Is(b.w.maySign(), ErrRefused) {
		t.Error(b.w.maySign())
	}
}

// A witness of the log that the operator has chosen is believed when it says that it
// has seen more: nothing is signed until it agrees, or another log begins.
func TestDoubtsOfWitness(t *testing.T) {
	a := newWorld().node(t, hostA)
	a.states("room-1")
	line := LogOrigin(hostA, 1)
	a.w.Doubted("w.example/witness", line, "it has cosigned 9 entries")
	a.w.Doubted("v.example/witness", line, "another tree")
	refused(t, a, "room-2")
	if s := must[LogStatus](t)(a.w.Log()); !strings.Contains(s.Reason, "the witness v.example/witness of our log holds against it: another tree") {
		t.Error(s.Reason)
	}
	a.w.Agreed("v.example/witness")
	refused(t, a, "room-3")
	a.w.Agreed("w.example/witness")
	if err := a.w.maySign(); err != nil {
		t.Fatal(err)
	}
	a.w.Ended(a.install(hostA, chain(t, "room-4", "one")))
	a.drain()
	if list := a.audit(1); len(list) < 2 {
		t.Errorf("%d entries", len(list))
	}
	a.w.Doubted("w.example/witness", line, "it has cosigned 9 entries")
	if s := must[LogStatus](t)(a.w.NewLog()); !s.Signs || s.Generation != 2 {
		t.Errorf("%+v", s)
	}
	a.w.Doubted("w.example/witness", line, "it has cosigned 9 entries") // the answer to a request about the log before
	if err := a.w.maySign(); err != nil {
		t.Error(err)
	}
}
