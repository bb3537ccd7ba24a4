package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// secret is what must not be read any more in these tests.
const secret = "telephone 0123 456"

// withSecret is a room in which one message, somewhere in the middle, should not
// have been said; seq is its place.
func withSecret(t testing.TB, before, after int) (s *story, seq int64) {
	s = begin(t, nil).upTo(before)
	seq = s.add(alice, room.Message, say(secret)).Seq
	s.upTo(len(s.recs) + after)
	return s, seq
}

// verifies reads a room as a stranger would, from its records alone.
func verifies(t *testing.T, recs [][]byte, s *story, withheld int64) *room.Verifier {
	t.Helper()
	v := room.NewVerifier(testRoom, nil)
	i := 0
	err := room.VerifyAll(t.Context(), func() ([]byte, error) {
		if i == len(recs) {
			return nil, io.EOF
		}
		i++
		return recs[i-1], nil
	}, v, 2, nil)
	if err != nil || v.Counts[room.Withheld] != withheld || v.State.Last.Hash != s.s.Last.Hash || v.State.Head != s.s.Head {
		t.Fatalf("%v, %v, last %v of %v", err, v.Counts, v.State.Last, s.s.Last)
	}
	return v
}

func TestWithholdFromEveryReader(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int
		fate          Fate
	}{{"in the ring", 10, 3, Seal}, {"far back", 5, 600, Seal}, {"erased", 300, 10, Erase}, {"newest", 20, 0, Seal}} {
		t.Run(c.name, func(t *testing.T) {
			st := memory(t)
			s, seq := withSecret(t, c.before, c.after)
			s.add(alice, room.Close, obj{"reason": "done"})
			set := openSet(t, st)
			r := keep(t, set, s)
			w, err := r.Withhold(seq, "a person asked", 77, c.fate)
			if err != nil || w.Type != room.Message {
				t.Fatalf("%+v, %v", w, err)
			}
			if _, err := r.Withhold(seq, "again", 78, c.fate); adp.CodeOf(err) != adp.InvalidRequest {
				t.Errorf("twice: %v", err)
			}
			check := func(r *Replica) {
				t.Helper()
				var all [][]byte
				for after := int64(0); ; {
					recs, err := r.Read(after, 100, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					if len(recs) == 0 {
						break
					}
					all, after = append(all, recs...), after+int64(len(recs))
				}
				want := fmt.Sprintf(`"envelope":{"hash":%q,"redacted":true,"type":"message.create"}`, s.recs[seq-1].Envelope.Hash)
				if bytes.Contains(bytes.Join(all, nil), []byte(secret)) || !bytes.Contains(all[seq-1], []byte(want)) {
					t.Fatalf("seq %d: %s", seq, all[seq-1])
				}
				verifies(t, all, s, 1)
				if one, ok, err := r.Record(seq); err != nil || !ok || bytes.Contains(one, []byte(secret)) {
					t.Errorf("Record: %s %v", one, err)
				}
				resp, err := get(t, r, fmt.Sprintf("?after_seq=%d&limit=1&wait=5", seq-1), true)
				if err != nil || strings.Contains(resp.Body.String(), secret) || !strings.Contains(resp.Body.String(), want) {
					t.Errorf("events: %v %.300s", err, resp.Body)
				}
				if row := r.Row(); row.Withheld != 1 || row.EffectiveVerdict() != Verified {
					t.Errorf("%+v", row)
				}
				list, err := r.Withholdings()
				if err != nil || len(list) != 1 || list[0] != w {
					t.Errorf("%+v, %v", list, err)
				}
			}
			check(r)
			again, ok := openSet(t, st).Get(testOrigin, testRoom) // after a restart
			if !ok {
				t.Fatal("the room is gone")
			}
			check(again)
			if err := again.View(t.Context(), func(got *room.State) {
				if b, err := got.Snapshot(); err != nil || string(b) != s.snapshot() {
					t.Error("the state is another after a reload")
				}
			}); err != nil {
				t.Fatal(err)
			}

			err = again.Release(seq)
			if c.fate == Erase {
				if adp.CodeOf(err) != adp.InvalidRequest || again.Row().Withheld != 1 {
					t.Errorf("an erased record was released: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := again.Record(seq)
			if err != nil || !bytes.Equal(got, s.recs[seq-1].JSON()) || again.Row().Withheld != 0 {
				t.Errorf("released: %s, %v", got, err)
			}
			if err := again.Release(seq); adp.CodeOf(err) != adp.InvalidRequest {
				t.Errorf("released twice: %v", err)
			}
		})
	}
}

func TestWithholdRefuses(t *testing.T) {
	s := begin(t, nil)
	s.add(bob, room.Join, obj{"role": "speaker"})
	r := keep(t, openSet(t, memory(t)), s)
	for _, seq := range []int64{0, 1, 2, 3, -1} {
		if _, err := r.Withhold(seq, "no", 1, Seal); adp.CodeOf(err) != adp.InvalidRequest || r.Row().Withheld != 0 {
			t.Errorf("seq %d: %v", seq, err)
		}
	}
}

// The archive that was made before says what was said; what is served afterwards
// says that something is missing.
func TestWithholdAfterTheArchive(t *testing.T) {
	for _, fate := range []Fate{Seal, Erase} {
		s, seq := withSecret(t, 5, 5)
		s.add(alice, room.Close, obj{"reason": "done"})
		r := keep(t, openSet(t, memory(t)), s)
		before, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Withhold(seq, "asked", 1, fate); err != nil {
			t.Fatal(err)
		}
		if m, _, err := r.Manifest(); err != nil || !bytes.Equal(m, before) {
			t.Error("the manifest changed")
		}
		resp := httptest.NewRecorder()
		if err := r.ServeBundle(resp, httptest.NewRequest("GET", "/", nil), true); err != nil || resp.Header().Get("Witan-Withheld") != "1" || strings.Contains(resp.Body.String(), secret) {
			t.Errorf("archive.jsonl: %v %v", err, resp.Header())
		}
		claim, err := adp.ParseClaim(before)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(resp.Body.Bytes()), []byte("\n"))
		v := verifies(t, lines[1:], s, 1)
		if err := claim.Check(v.Digest.Summary()); err != nil {
			t.Errorf("the manifest against the redacted archive: %v", err)
		}
		resp = httptest.NewRecorder()
		if err := r.ServeMarkdown(resp, httptest.NewRequest("GET", "/", nil), roomURL, s.now, true); err != nil || strings.Contains(resp.Body.String(), secret) || !strings.Contains(resp.Body.String(), "This event is withheld") {
			t.Errorf("archive.md: %v", err)
		}
		sum, err := r.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if whole := sum.Withheld == 0; whole != (fate == Seal) || whole && claim.Check(sum) != nil {
			t.Errorf("%s: the summary counts %d withheld", fate, sum.Withheld)
		}
	}
}

// A room that goes on is archived as it was said; only then the original goes.
func TestEraseAfterArchive(t *testing.T) {
	s, seq := withSecret(t, 5, 5)
	s.add(alice, room.Close, obj{"reason": "done"})
	r := keep(t, openSet(t, memory(t)), s)
	if _, err := r.Withhold(seq, "asked", 1, EraseAfterArchive); err != nil {
		t.Fatal(err)
	}
	manifest, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := adp.ParseClaim(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var d adp.Digest
	for _, rec := range s.recs {
		d.Add(rec)
	}
	if err := claim.Check(d.Summary()); err != nil {
		t.Error(err)
	}
	if err := r.Release(seq); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("released after the erasure: %v", err)
	}
	if list, err := r.Withholdings(); err != nil || len(list) != 1 || list[0].Fate != Erase {
		t.Errorf("%+v, %v", list, err)
	}
}

// A mirror that never had the original takes what its host serves, and what the
// host's manifest says of it.
func TestRedactedFromTheHost(t *testing.T) {
	s, seq := withSecret(t, 5, 5)
	s.add(alice, room.Close, obj{"reason": "done"})
	var d adp.Digest
	for _, rec := range s.recs {
		d.Add(rec)
	}
	line1, err := adp.Manifest{Host: "h.example", URL: roomURL, GeneratedAt: 5, Summary: d.Summary(), Room: []byte(`{}`)}.Line1()
	if err != nil {
		t.Fatal(err)
	}
	m := adp.Manifest{Host: "h.example", URL: roomURL, GeneratedAt: 5, Summary: d.Summary(), Room: []byte(`{}`)}
	bundle := adp.NewBundle(line1)
	for _, rec := range s.recs {
		bundle.Add(rec.JSON())
	}
	manifest, err := m.JSON(bundle)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := adp.ParseClaim(manifest)
	if err != nil {
		t.Fatal(err)
	}
	red, err := s.recs[seq-1].Redact()
	if err != nil {
		t.Fatal(err)
	}
	s.recs[seq-1] = red
	r := keep(t, openSet(t, memory(t)), s)
	if r.Row().Withheld != 1 {
		t.Errorf("%+v", r.Row())
	}
	if _, err := r.MakeArchive(t.Context(), roomURL, s.now, 5); !errors.Is(err, ErrWithheld) {
		t.Errorf("an archive without the originals: %v", err)
	}
	if err := r.AdoptArchive(t.Context(), claim); err != nil {
		t.Error(err)
	}
	if err := r.Release(seq); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("released what was never held: %v", err)
	}
}

// Of two that withhold one record at the same time, one does.
func TestWithholdAtOnce(t *testing.T) {
	s, seq := withSecret(t, 5, 1)
	r := keep(t, openSet(t, memory(t)), s)
	done := make(chan error, 8)
	for range cap(done) {
		go func() { _, err := r.Withhold(seq, "x", 1, Seal); done <- err }()
	}
	good := 0
	for range cap(done) {
		if <-done == nil {
			good++
		}
	}
	if good != 1 || r.Row().Withheld != 1 {
		t.Errorf("%d did, the row counts %d", good, r.Row().Withheld)
	}
}
