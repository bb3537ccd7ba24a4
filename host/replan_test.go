package host_test

import (
	"bytes"
	"context"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/replica"
)

// replanned is a room whose end was moved, and whose writer is at planning it: a record
// behind that one is still on its way to the disk, so that the writer waits.
type replanned struct {
	head    at
	creator *agent
	release func()          // lets the store go on
	leave   func()          // the writer goes
	behind  <-chan answer   // to the record behind
	done    <-chan struct{} // the writer was answered
}

// replanning tests rooms whose ends are moved to two minutes from now.
func replanning(t *testing.T, test func(t *testing.T, w *world, e *ended, move func() *replanned)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &ended{}
		var meanwhile atomic.Pointer[func()] // between the commit of the new end and the plan
		w := newWorld(t, func(o *host.Options) {
			o.Now, o.Ended, o.Limits.RoomMinMS = func() int64 { return time.Now().UnixMilli() }, e.tell, 1
			o.Changed = func(*replica.Replica) {
				if do := meanwhile.Swap(nil); do != nil {
					(*do)()
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- w.h.Run(ctx) }()
		test(t, w, e, func() *replanned {
			creator, id := w.open(obj{"types": []any{typeDecl(nil)}})
			speaker := w.member(id, "speaker")
			update := w.event(creator, room.Update, obj{"end_time": w.now() + 2*minute}, w.headOf(id), nil)
			p := &replanned{creator: creator}
			do := func() {
				p.head = w.headOf(id)
				signal := w.event(speaker, "a.b", obj{}, p.head, nil)
				p.release = w.hold()
				p.behind = w.launch(t, id, signal)
			}
			ctx, leave := context.WithCancel(t.Context())
			p.leave = leave
			done := make(chan struct{})
			p.done = done
			meanwhile.Store(&do)
			go func() {
				defer close(done)
				w.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", origin+"/v1/rooms/"+id, bytes.NewReader(update)))
			}()
			synctest.Wait()
			return p
		})
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// The writer who moves an end may be gone before it is planned.
func TestWriterOfAnEndLeaves(t *testing.T) {
	replanning(t, func(t *testing.T, w *world, e *ended, move func() *replanned) {
		p := move()
		p.leave()
		synctest.Wait()
		p.release()
		(<-p.behind).ok(200)
		<-p.done
		after(2 * time.Minute)
		if !w.replica(p.head.room).Row().Archived || e.of(p.head.room) != 1 {
			t.Errorf("archived %v, told %d times", w.replica(p.head.room).Row().Archived, e.of(p.head.room))
		}
	})
}

// A room that is closed while the plan for its end is under way is finished at once.
func TestClosedWhileTheEndMoves(t *testing.T) {
	replanning(t, func(t *testing.T, w *world, e *ended, move func() *replanned) {
		for range 20 { // the two may plan in any order
			p := move()
			closed := w.launch(t, p.head.room, w.event(p.creator, room.Close, obj{}, p.head, nil))
			p.release()
			(<-p.behind).ok(200)
			(<-closed).ok(200)
			<-p.done
			p.leave()
			synctest.Wait()
			if !w.replica(p.head.room).Row().Archived || e.of(p.head.room) != 1 {
				t.Errorf("archived %v, told %d times", w.replica(p.head.room).Row().Archived, e.of(p.head.room))
			}
		}
	})
}
