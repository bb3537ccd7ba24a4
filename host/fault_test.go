package host_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/store"
)

// spoil makes the next commit to a room fail: the stored row is not the one that
// it builds on any more. What the row says stays the same.
func (w *world) spoil(id string) {
	w.t.Helper()
	key := store.ReplicaRow(w.replica(id).ID)
	for {
		raw, ok, err := w.st.Get(key)
		if err != nil || !ok {
			w.t.Errorf("no row: %v", err)
			return
		}
		var b store.Batch
		b.Expect(key, raw)
		b.Put(key, append(bytes.Clone(raw), ' '))
		if err := w.st.Commit(&b); err == nil {
			return
		} else if !errors.Is(err, store.ErrConflict) { // a writer was faster
			w.t.Error(err)
			return
		}
	}
}

func (w *world) bytesInUse() int64 {
	w.t.Helper()
	// the limit that a refusal names says what is in use
	w.change(host.AccessChange{BytesTotal: ptr(int64(1))})
	defer w.change(host.AccessChange{BytesTotal: ptr(int64(0))})
	got := w.create(newAgent(w.t), nil).refused(413, adp.PayloadTooLarge)
	_, after, _ := strings.Cut(got.v.Get("error").Get("message").Text(), "bytes, ")
	var n int64
	for _, c := range after {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// A failed commit leaves nothing behind, and the room goes on.
func TestFailedCommit(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "restricted"})
	path := "/v1/rooms/" + id
	a, applicant := w.admit(c, id, "speaker"), newAgent(t)
	req := w.ask(id, applicant, obj{"role": "observer"}).ok(201).Get("request")
	rid := req.Get("id").Text()
	before, used := len(w.records(id, c)), w.bytesInUse()
	fails := func(who *agent, typ string, p any) []byte {
		t.Helper()
		env := w.event(who, typ, p, w.headOf(id), nil)
		w.spoil(id)
		got := w.post(path, env)
		if got.status != 500 || got.code() != adp.Internal {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		if n := len(w.records(id, c)); n != before {
			t.Fatalf("%d records, want %d", n, before)
		}
		if n := w.bytesInUse(); n != used {
			t.Fatalf("%d bytes are counted, want %d", n, used)
		}
		return env
	}
	accept := func(env []byte) {
		t.Helper()
		w.post(path, env).ok(200) // the very same: neither nonce nor hash were used
		before++
		if n := len(w.records(id, c)); n != before {
			t.Fatalf("%d records, want %d", n, before)
		}
		used = w.bytesInUse()
	}
	accept(fails(a, room.Message, say("x")))
	accept(fails(c, room.Update, obj{"agenda": "x"}))
	env := fails(c, room.Review, obj{"request": req, "decision": "approve", "role": "observer"})
	if q := w.get(path+"/join-requests/"+rid, applicant).ok(200); !q.Get("status").Is("pending") {
		t.Errorf("the review that failed left %s", q.Raw())
	}
	accept(env)
	env = fails(applicant, room.Join, obj{"role": "observer", "request_id": rid})
	w.get(path+"/events", applicant).refused(403, adp.MembershipRequired)
	accept(env)
	env = fails(applicant, room.Leave, obj{})
	w.get(path+"/events", applicant).ok(200)
	accept(env)
	env = fails(c, room.Close, obj{})
	if r := w.resource(id, c); !r.Get("status").Is("active") {
		t.Errorf("the close that failed left the room %s", r.Get("status").Raw())
	}
	accept(env)
}

// Of writers that come while a commit fails, those that were told of a record
// have it.
func TestFailedCommitAmongMany(t *testing.T) {
	w := newWorld(t, func(o *host.Options) { o.Limits = roomy })
	_, id := w.open(obj{"types": []any{typeDecl(nil)}})
	agents := make([]*agent, 30)
	for i := range agents {
		agents[i] = w.member(id, "observer")
	}
	head := w.headOf(id)
	accepted := map[string]bool{}
	for range 10 {
		envs := make([][]byte, len(agents))
		for i, a := range agents {
			envs[i] = w.event(a, "a.b", obj{}, head, nil)
		}
		all := parallel(len(agents)+1, func(i int) answer {
			if i == len(agents) {
				w.spoil(id)
				return answer{}
			}
			return w.post("/v1/rooms/"+id, envs[i])
		})
		for i, x := range all[:len(agents)] {
			switch {
			case x.status == 200:
				accepted[x.v.Get("hash").Text()] = true
			case x.status == 500 && x.code() == adp.Internal: // again, as a client would
				again := w.post("/v1/rooms/"+id, envs[i])
				if again.status == 500 { // what spoiled it came after all others
					again = w.post("/v1/rooms/"+id, envs[i])
				}
				if again.status == 409 { // an answer can fail although the record is there
					accepted[again.data().Get("record").Get("hash").Text()] = true
					continue
				}
				accepted[again.ok(200).Get("hash").Text()] = true
			default:
				t.Fatalf("got %d %s", x.status, x.body)
			}
		}
	}
	recs := w.records(id, nil)
	if len(accepted) != 300 || len(recs) != 1+30+300 {
		t.Errorf("%d were accepted, the room has %d records", len(accepted), len(recs))
	}
	for _, r := range recs {
		delete(accepted, r.Hash)
	}
	if len(accepted) > 0 {
		t.Errorf("%d accepted records are lost", len(accepted))
	}
}

func TestClosedStore(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	env := w.event(a, room.Message, say("x"), w.headOf(id), nil)
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, got := range []answer{w.post("/v1/rooms/"+id, env), w.create(newAgent(t), nil), w.ask(id, newAgent(t), obj{"role": "speaker"})} {
		if got.status != 500 || got.code() != adp.Internal || strings.Contains(string(got.body), "closed") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if _, err := w.h.ChangeAccess(host.AccessChange{RoomCreation: ptr(host.CreationClosed)}); err == nil || w.h.Access().RoomCreation != host.CreationOpen {
		t.Errorf("a change that was not kept holds: %v", err)
	}
	if n := len(w.set.All()); n != 1 {
		t.Errorf("%d rooms", n)
	}
}

// A full disk is told as such, and what was refused goes through once there is
// space.
func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	c, a := newAgent(t), newAgent(t)
	var id string
	var env, genesis []byte
	t.Run("space", func(t *testing.T) {
		w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), nil)
		id = w.create(c, nil).ok(201).Get("id").Text()
		w.act(a, id, room.Join, obj{"role": "speaker"}).ok(200)
	})
	t.Run("full", func(t *testing.T) {
		w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1 << 62}), nil)
		env, genesis = w.event(a, room.Message, say("x"), w.headOf(id), nil), w.event(c, room.Create, w.contract(nil), at{}, nil)
		for name, got := range map[string]answer{"write": w.post("/v1/rooms/"+id, env), "create": w.post("/v1/rooms", genesis),
			"join request": w.ask(id, newAgent(t), obj{"role": "speaker"})} {
			got.t = t
			got.refused(503, adp.Internal)
			if !strings.Contains(got.v.Get("error").Get("message").Text(), "disk of this host is full") || got.head.Get("Retry-After") == "" {
				t.Errorf("%s: %s", name, got.body)
			}
		}
		if n := len(w.records(id, nil)); n != 2 || len(w.set.All()) != 1 {
			t.Errorf("%d records, %d rooms", n, len(w.set.All()))
		}
		w.put("/v1/rooms/"+id+"/agent-status", a, obj{"state": "waiting"}).ok(200) // takes no space
	})
	t.Run("space again", func(t *testing.T) {
		w := over(t, openStore(t, store.Options{Dir: dir, MinFree: 1}), nil)
		w.post("/v1/rooms/"+id, env).ok(200)
		w.post("/v1/rooms", genesis).ok(201)
		if n := len(w.records(id, nil)); n != 3 {
			t.Errorf("%d records", n)
		}
	})
}

// An envelope that was seen on its way to the disk, and never came there, does not
// get the record that took its place.
func TestLostPlace(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	lost := envelopeOf(t, w.event(a, room.Message, say("lost"), w.headOf(id), nil))
	won := w.event(a, room.Message, say("won"), w.headOf(id), nil)
	w.post("/v1/rooms/"+id, won).ok(200)
	r := w.replica(id)
	for seq, want := range map[int64]adp.Code{2: adp.Internal, 3: adp.Internal} {
		if err := w.h.Accepted(t.Context(), r, lost, seq); adp.CodeOf(err) != want {
			t.Errorf("seq %d: %v", seq, err)
		}
	}
	if err := w.h.Accepted(t.Context(), r, envelopeOf(t, won), 2); adp.CodeOf(err) != adp.NonceNotGreater {
		t.Error(err)
	}
}

// An archive that could not be stored is tried again.
func TestArchiveRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, e *ended) {
		_, id := w.open(obj{"end_time": w.now() + 2*minute})
		w.spoil(id)
		after(2 * time.Minute)
		if w.replica(id).Row().Archived || e.of(id) != 0 {
			t.Fatal("the commit did not fail")
		}
		after(30 * time.Second)
		if !w.replica(id).Row().Archived || e.of(id) != 1 {
			t.Errorf("archived %v, told %d times", w.replica(id).Row().Archived, e.of(id))
		}
		w.get("/v1/rooms/"+id+"/archive", nil).ok(200)
	})
}
