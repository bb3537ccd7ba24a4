package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// counted counts as a mirror does.
func counted(row *Row, v room.Verdict) {
	switch v.Outcome {
	case room.Violation:
		row.Violations++
	case room.Unverifiable:
		row.Unverifiable++
	}
}

// copied is a replica of what a host shows, judged as a mirror does.
func copied(t *testing.T, set *Set, shown []*adp.Record) *Replica {
	t.Helper()
	verdict, ch, err := room.New(testRoom).Judge(shown[0], room.Context{Chain: &room.MemoryChain{}})
	if err != nil || verdict.Outcome != room.Allowed {
		t.Fatal(verdict, err)
	}
	done := make(chan error, len(shown))
	r, err := set.Create(testOrigin, shown[0], ch, Row{}, nil, func(err error) { done <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Take(func(turn *Turn) error {
		for _, rec := range shown[1:] {
			verdict, ch, err := turn.State.Judge(rec, room.Context{Chain: turn})
			if err != nil {
				return err
			}
			counted(turn.Row(), verdict)
			if err := turn.Append(rec, ch, nil, func(err error) { done <- err }); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wait(t, done, len(shown))
	return r
}

// redacted is what a host shows that withholds some records.
func redacted(t *testing.T, s *story, seqs ...int64) []*adp.Record {
	t.Helper()
	shown := slices.Clone(s.recs)
	for _, seq := range seqs {
		red, err := s.recs[seq-1].Redact()
		if err != nil {
			t.Fatal(err)
		}
		shown[seq-1] = red
	}
	return shown
}

func copiedCut(t *testing.T, set *Set, s *story, seqs ...int64) *Replica {
	t.Helper()
	return copied(t, set, redacted(t, s, seqs...))
}

func TestRestore(t *testing.T) {
	for name, n := range map[string]int{"in the ring": 3, "far back": 600} {
		t.Run(name, func(t *testing.T) {
			st := memory(t)
			s, seq := withSecret(t, 9, n)
			other := s.add(alice, room.Message, say("and another")).Seq
			r := copiedCut(t, openSet(t, st), s, seq, other)
			if got, err := r.KeptBack(0, 10); err != nil || !slices.Equal(got, []int64{seq, other}) {
				t.Fatalf("kept back: %v, %v", got, err)
			}
			if list, err := r.Withholdings(); err != nil || len(list) != 0 {
				t.Errorf("withheld here: %v, %v", list, err)
			}
			if err := r.Restore([]*adp.Record{s.recs[seq-1]}, counted); err != nil {
				t.Fatal(err)
			}
			if got, err := r.KeptBack(0, 10); err != nil || !slices.Equal(got, []int64{other}) {
				t.Errorf("kept back: %v, %v", got, err)
			}
			if err := r.Restore([]*adp.Record{s.recs[other-1]}, counted); err != nil {
				t.Fatal(err)
			}
			size := int64(0)
			for _, rec := range s.recs {
				size += int64(len(rec.JSON()))
			}
			again := openSet(t, st)
			reopened, _ := again.Get(testOrigin, testRoom)
			for _, r := range []*Replica{r, reopened} {
				if row := r.Row(); row.Withheld != 0 || row.Bytes != size || row.EffectiveVerdict() != Verified || row.Unverifiable != 0 {
					t.Errorf("%+v", row)
				}
				recs, err := r.Read(0, 1000, 64<<20)
				if err != nil {
					t.Fatal(err)
				}
				verifies(t, recs, s, 0)
				if err := r.View(t.Context(), func(got *room.State) {
					if b, err := got.Snapshot(); err != nil || string(b) != s.snapshot() {
						t.Error("the state is another")
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			s.upTo(len(s.recs) + 300) // it goes on
			wait(t, feed(t, reopened, s, len(s.recs)-300, len(s.recs)), 300)
		})
	}
}

// Only the original of what is kept back takes its place.
func TestRestoreRefuses(t *testing.T) {
	s, seq := withSecret(t, 9, 3)
	mine := s.add(alice, room.Message, say("what the operator withholds")).Seq
	twin := begin(t, obj{"topic": "Another room"}).upTo(12)
	set := openSet(t, memory(t))
	r := copiedCut(t, set, s, seq)
	if _, err := r.Withhold(mine, "x", 1, Seal); err != nil {
		t.Fatal(err)
	}
	cut, err := s.recs[seq-1].Redact()
	if err != nil {
		t.Fatal(err)
	}
	before := r.Row()
	for name, recs := range map[string][]*adp.Record{
		"another record":                  {twin.recs[seq-1]},
		"without its envelope":            {cut},
		"a record that is whole":          {s.recs[seq]},
		"one that the operator withholds": {s.recs[mine-1]},
		"one twice":                       {s.recs[seq-1], s.recs[seq-1]},
		"one good, one not":               {s.recs[seq-1], s.recs[seq]},
	} {
		if err := r.Restore(recs, counted); adp.CodeOf(err) != adp.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if row := r.Row(); row.Withheld != before.Withheld || row.Bytes != before.Bytes {
		t.Errorf("it changed: %+v", row)
	}
	if err := r.Restore(make([]*adp.Record, MaxRestore+1), counted); err == nil {
		t.Error("too many at once")
	}
}

// What the original turns out to be is judged as if it had been there from the start, of
// whatever type the host had said that it is.
func TestRestoreJudgesAnew(t *testing.T) {
	s := begin(t, nil).upTo(9)
	bad := s.add(bob, room.Message, say("never admitted")).Seq
	s.upTo(len(s.recs) + 2)
	closing := s.add(alice, room.Close, obj{"reason": "done"}).Seq
	shown := redacted(t, s, bad, closing)
	// the host says that the end is a message
	v, err := adp.ScanDepth([]byte(strings.Replace(string(shown[closing-1].JSON()), room.Close, room.Message, 1)), adp.RecordDepth)
	if err == nil {
		shown[closing-1], err = adp.ParseServed(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := copied(t, openSet(t, memory(t)), shown)
	status := func() (got room.Status) {
		if err := r.View(t.Context(), func(st *room.State) { got = st.StatusAt(s.now) }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if row := r.Row(); row.Violations != 0 || status() == room.Ended {
		t.Fatalf("%+v", row)
	}
	if err := r.Restore([]*adp.Record{s.recs[bad-1], s.recs[closing-1]}, counted); err != nil {
		t.Fatal(err)
	}
	if row := r.Row(); row.Violations != 1 || row.EffectiveVerdict() != Violations || status() != room.Ended {
		t.Errorf("%+v, %s", row, status())
	}
}

// Where the first records are not kept, nothing can be judged anew.
func TestRestoreBehindWhatIsDropped(t *testing.T) {
	st := memory(t)
	s, seq := withSecret(t, 300, 5)
	r := copiedCut(t, openSet(t, st), s, 7, seq)
	if _, err := r.Drop(280); err != nil {
		t.Fatal(err)
	}
	if got, err := r.KeptBack(0, 10); err != nil || !slices.Equal(got, []int64{seq}) {
		t.Errorf("kept back: %v, %v", got, err)
	}
	if err := r.Restore([]*adp.Record{s.recs[seq-1]}, counted); err != nil {
		t.Fatal(err)
	}
	if row := r.Row(); row.Unverifiable != 1 || row.Withheld != 1 {
		t.Errorf("%+v", row)
	}
	if err := r.Restore([]*adp.Record{s.recs[6]}, counted); !IsGone(err) {
		t.Errorf("restored what is dropped: %v", err)
	}
	answersProofs(t, r, s)
}

// The operator may withhold what the host withheld before: it stays so, whatever the
// host does, until the operator leaves it to the host again.
func TestWithholdWhatIsKeptBack(t *testing.T) {
	s, seq := withSecret(t, 9, 3)
	r := copiedCut(t, openSet(t, memory(t)), s, seq)
	w, err := r.Withhold(seq, "we were asked, too", 7, Seal)
	if err != nil || w.Fate != NeverHeld || w.Type != room.Message {
		t.Fatalf("%+v, %v", w, err)
	}
	if _, err := r.Withhold(seq, "again", 8, Seal); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("twice: %v", err)
	}
	if list, err := r.Withholdings(); err != nil || len(list) != 1 || list[0].Reason != "we were asked, too" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := r.Restore([]*adp.Record{s.recs[seq-1]}, counted); !errors.Is(err, errNotKeptBack) {
		t.Errorf("restored against the operator's word: %v", err)
	}
	if err := r.Release(seq); err != nil {
		t.Fatal(err)
	}
	if r.Row().Withheld != 1 {
		t.Errorf("%+v", r.Row())
	}
	if err := r.Release(seq); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("released what is not held: %v", err)
	}
	if err := r.Restore([]*adp.Record{s.recs[seq-1]}, counted); err != nil || r.Row().Withheld != 0 {
		t.Errorf("%v, %+v", err, r.Row())
	}
}

// An archive that was believed is recomputed once all of it is at hand.
func TestCheckArchive(t *testing.T) {
	for _, lie := range []bool{false, true} {
		s, seq := withSecret(t, 5, 5)
		s.add(alice, room.Close, obj{"reason": "done"})
		claimed := slices.Clone(s.recs)
		var d adp.Digest
		for _, rec := range claimed {
			d.Add(rec)
		}
		sum := d.Summary()
		if lie {
			sum.Events[0] ^= 1 // covers the envelopes: nobody can tell while one is withheld
		}
		m := adp.Manifest{Host: "h.example", URL: roomURL, GeneratedAt: 5, Summary: sum, Room: []byte(`{}`)}
		line1, err := m.Line1()
		if err != nil {
			t.Fatal(err)
		}
		bundle := adp.NewBundle(line1)
		for _, rec := range claimed {
			bundle.Add(rec.JSON())
		}
		raw, err := m.JSON(bundle)
		if err != nil {
			t.Fatal(err)
		}
		claim, err := adp.ParseClaim(raw)
		if err != nil {
			t.Fatal(err)
		}
		r := copiedCut(t, openSet(t, memory(t)), s, seq)
		if err := r.CheckArchive(t.Context()); !errors.Is(err, ErrNotEnded) {
			t.Errorf("without an archive: %v", err)
		}
		if err := r.AdoptArchive(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if err := r.CheckArchive(t.Context()); err != nil {
			t.Errorf("while withheld: %v", err)
		}
		if err := r.Restore([]*adp.Record{s.recs[seq-1]}, counted); err != nil {
			t.Fatal(err)
		}
		if err := r.CheckArchive(t.Context()); errors.Is(err, ErrMismatch) != lie {
			t.Errorf("lie %v: %v", lie, err)
		}
	}
}
