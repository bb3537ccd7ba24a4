package replica

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// answersProofs asks for proofs of every part of a room and verifies them against
// the records of the story.
func answersProofs(t *testing.T, r *Replica, s *story) {
	t.Helper()
	var tree adp.Tree
	roots := [][32]byte{{}}
	for _, rec := range s.recs {
		tree.Append(rec.LeafData())
		roots = append(roots, tree.Root())
	}
	size := int64(len(s.recs))
	for _, seq := range []int64{1, 2, size / 2, size - 1, size} {
		seq = min(max(seq, 1), size)
		p, err := r.Inclusion(seq, size)
		if err != nil || p.LeafHash != s.recs[seq-1].Hash || p.Root != adp.Encode(roots[size][:]) {
			t.Fatalf("inclusion of seq %d: %+v, %v", seq, p, err)
		}
	}
	for _, from := range []int64{1, max(1, size/3), max(1, size-1)} {
		p, err := r.Consistency(from, size)
		if err != nil || p.FromRoot != adp.Encode(roots[from][:]) {
			t.Fatalf("consistency from %d: %v", from, err)
		}
	}
	err := r.Take(func(tn *Turn) error {
		for i, rec := range s.recs {
			if h, ok := tn.HashAt(int64(i + 1)); !ok || h != rec.Hash {
				t.Fatalf("the hash of seq %d is %s", i+1, h)
			}
			if seq, ok := tn.SeqOf(rec.Envelope.Hash); !ok || seq != int64(i+1) {
				t.Fatalf("the envelope of seq %d is at %d", i+1, seq)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDrop(t *testing.T) {
	for _, c := range []struct{ n, upTo int }{{600, 1}, {600, 255}, {600, 256}, {600, 300}, {600, 512}, {600, 599}, {600, 600}, {100, 50}, {100, 100}, {512, 512}, {256, 256}, {1, 1}} {
		t.Run(fmt.Sprintf("%d of %d", c.upTo, c.n), func(t *testing.T) {
			st := memory(t)
			set := openSet(t, st)
			s := begin(t, nil).upTo(c.n)
			r := keep(t, set, s)
			size := r.Row().Bytes
			freed, err := r.Drop(int64(c.upTo))
			if err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			for _, rec := range s.recs[:c.upTo] {
				want += int64(len(rec.JSON()))
			}
			if row := r.Row(); freed != want || row.Bytes != size-want || row.Dropped != int64(c.upTo) || row.Seq != int64(c.n) {
				t.Errorf("freed %d of %d: %+v", freed, want, row)
			}
			check := func(r *Replica) {
				t.Helper()
				if err := r.View(t.Context(), func(got *room.State) {
					if b, err := got.Snapshot(); err != nil || string(b) != s.snapshot() {
						t.Error("the state is another")
					}
				}); err != nil {
					t.Fatal(err)
				}
				answersProofs(t, r, s)
				for _, after := range []int{0, c.upTo - 1} {
					_, err := get(t, r, fmt.Sprintf("?after_seq=%d", after), true)
					if adp.CodeOf(err) != adp.Gone || !IsGone(err) {
						t.Errorf("events after %d: %v", after, err)
					}
				}
				recs, err := r.Read(int64(c.upTo), 1000, 64<<20)
				if err != nil || len(recs) != len(s.recs)-c.upTo {
					t.Fatalf("%d records are left: %v", len(recs), err)
				}
				for i, raw := range recs {
					if !bytes.Equal(raw, s.recs[c.upTo+i].JSON()) {
						t.Fatalf("seq %d is another", c.upTo+i+1)
					}
				}
				left := 0
				if err := st.View(func(rd store.Reader) error {
					from, to := store.RecordsOf(r.ID)
					return rd.Keys(from, to, func([]byte) bool { left++; return true })
				}); err != nil || left != len(s.recs)-c.upTo {
					t.Errorf("%d records are stored: %v", left, err)
				}
			}
			check(r)
			r, _ = openSet(t, st).Get(testOrigin, testRoom)
			check(r)
			if freed, err := r.Drop(int64(c.upTo)); freed != 0 || err != nil {
				t.Errorf("again: %d, %v", freed, err)
			}
			// the room goes on, before and after a reload
			s.upTo(c.n + 5)
			wait(t, feed(t, r, s, c.n, c.n+5), 5)
			check(r)
			r, _ = openSet(t, st).Get(testOrigin, testRoom)
			check(r)
			s.upTo(c.n + 300)
			wait(t, feed(t, r, s, c.n+5, c.n+300), 295)
			check(r)
			r, _ = openSet(t, st).Get(testOrigin, testRoom)
			check(r)
		})
	}
}

func TestDropAnArchivedRoom(t *testing.T) {
	s := ended(t)
	st := memory(t)
	r := keep(t, openSet(t, st), s)
	manifest, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Drop(r.Row().Seq + 1); err == nil {
		t.Error("more was dropped than there is")
	}
	if _, err := r.Drop(r.Row().Seq); err != nil {
		t.Fatal(err)
	}
	resp := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "/", nil)
	if err := r.ServeManifest(resp, req, true); err != nil || !bytes.Equal(bytes.TrimSpace(resp.Body.Bytes()), manifest) {
		t.Errorf("the manifest: %v", err)
	}
	for name, serve := range map[string]func(w http.ResponseWriter) error{
		"jsonl": func(w http.ResponseWriter) error { return r.ServeBundle(w, req, true) },
		"md":    func(w http.ResponseWriter) error { return r.ServeMarkdown(w, req, roomURL, s.now, true) },
	} {
		if err := serve(httptest.NewRecorder()); adp.CodeOf(err) != adp.Gone {
			t.Errorf("archive.%s: %v", name, err)
		}
	}
	if _, err := r.Summary(t.Context()); !IsGone(err) {
		t.Errorf("a summary of what is not there: %v", err)
	}
	if _, err := r.Withhold(1, "x", 1, Seal); !IsGone(err) {
		t.Errorf("withheld what is not there: %v", err)
	}
	// without the snapshot nothing can stand for the log: it is said, not guessed
	var b store.Batch
	b.Delete(store.Snapshot(r.ID))
	if err := st.Commit(&b); err != nil {
		t.Fatal(err)
	}
	again, _ := openSet(t, st).Get(testOrigin, testRoom)
	if err := again.View(t.Context(), func(*room.State) {}); err == nil || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("%v", err)
	}
}
