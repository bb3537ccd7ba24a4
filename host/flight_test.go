package host_test

import (
	"runtime"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// hold keeps all commits waiting until the function that it answers is called.
func (w *world) hold() (release func()) {
	w.t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	var b store.Batch
	b.Check(func(func([]byte) ([]byte, bool, error)) error {
		close(held)
		<-free
		return nil
	})
	done := make(chan error, 1)
	w.st.Submit(&b, func(err error) { done <- err })
	<-held
	return func() {
		close(free)
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

// launch posts an envelope and returns once it is in flight: judged, and not yet on
// the disk.
func (w *world) launch(t *testing.T, id string, env []byte) (landed <-chan answer) {
	t.Helper()
	hash, r := envelopeOf(t, env).Hash, w.replica(id)
	c := make(chan answer, 1)
	go func() { c <- w.post("/v1/rooms/"+id, env) }()
	for {
		if _, ok := r.SeqOf(hash); ok {
			return c
		}
		select {
		case a := <-c:
			t.Fatalf("it was answered before it could be stored: %d %s", a.status, a.body)
		default:
			runtime.Gosched()
		}
	}
}

// Readers see what is on the disk, and writers what is on its way there.
func TestInFlight(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"visibility": "restricted"})
	_, other := w.open(nil)
	path := "/v1/rooms/" + id
	a := newAgent(t)
	q := w.ask(id, a, obj{"role": "speaker"}).ok(201).Get("request")
	rid := q.Get("id").Text()
	head := w.headOf(id)
	review := w.event(c, room.Review, obj{"request": q, "decision": "approve", "role": "speaker", "reason": "fine"}, head, nil)
	join := w.event(a, room.Join, obj{"role": "speaker", "request_id": rid}, head, nil)
	elsewhere := w.event(a, room.Join, obj{"role": "speaker"}, w.headOf(other), obj{"nonce": envelopeOf(t, join).Nonce})
	token := w.token(c)
	release := w.hold()
	reviewed := w.launch(t, id, review)
	joined := w.launch(t, id, join)
	// a nonce in flight is used, in every room
	if got := w.post("/v1/rooms/"+other, elsewhere).refused(409, adp.NonceNotGreater); got.data().Get("record").Exists() {
		t.Errorf("got %s", got.body)
	}
	if row := w.replica(id).Row(); row.Seq != 1 {
		t.Errorf("seq %d is shown before it is stored", row.Seq)
	}
	// the same envelope again waits for its record, and a reader for what it may read
	read := make(chan answer, 1)
	go func() { read <- w.send("GET", path+"/events?after_seq=1", token, nil) }()
	again := make(chan answer, 1)
	go func() { again <- w.post(path, review) }()
	release()
	rec := (<-reviewed).ok(200)
	(<-joined).ok(200)
	(<-again).replayed(rec)
	if v := (<-read).ok(200); v.Len() != 2 {
		t.Errorf("a reader got half of it: %s", v.Raw())
	}
	// the join took nothing from the review that was in front of it
	v := w.send("GET", path+"/join-requests/"+rid, token, nil).ok(200)
	if !v.Get("status").Is("approved") || !v.Get("reviewed_by").Is(string(c.id)) || !v.Get("review_reason").Is("fine") || !v.Get("approved_role").Is("speaker") {
		t.Errorf("of the review is left: %s", v.Raw())
	}
	w.records(id, c)
}
