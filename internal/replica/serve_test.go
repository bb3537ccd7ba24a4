package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

const eventsURL = testOrigin + "/v1/rooms/" + testRoom + "/events"

func get(t *testing.T, r *Replica, query string, wait bool) (*httptest.ResponseRecorder, error) {
	t.Helper()
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, eventsURL+query, nil)
	return w, r.ServeEvents(w, req, eventsURL, wait)
}

func TestServeEvents(t *testing.T) {
	s := begin(t, nil).upTo(13)
	r := keep(t, openSet(t, memory(t)), s)
	for _, c := range []struct {
		query       string
		first, last int64 // none when last is 0
		link        string
	}{
		{"", 1, 13, ""},
		{"?after_seq=3&limit=4", 4, 7, "after_seq=7&limit=4"},
		{"?after_seq=9&limit=4", 10, 13, ""},
		{"?after_seq=8&limit=4", 9, 12, "after_seq=12&limit=4"},
		{"?after_seq=13", 0, 0, ""},
		{"?after_seq=9007199254740991", 0, 0, ""},
		{"?limit=1", 1, 1, "after_seq=1&limit=1"},
		{"?limit=100000", 1, 13, ""},
		{"?wait=5&after_seq=12", 13, 13, ""},
		{"?unknown=1", 1, 13, ""},
	} {
		w, err := get(t, r, c.query, true)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		var recs []json.RawMessage
		if err := json.Unmarshal(w.Body.Bytes(), &recs); err != nil {
			t.Fatalf("%s: %v in %s", c.query, err, w.Body)
		}
		want := 0
		if c.last > 0 {
			want = int(c.last - c.first + 1)
		}
		if len(recs) != want {
			t.Errorf("%s: %d records", c.query, len(recs))
		}
		for i, raw := range recs {
			if !bytes.Equal(raw, s.recs[c.first-1+int64(i)].JSON()) {
				t.Errorf("%s: place %d: %s", c.query, i, raw)
			}
		}
		link := ""
		if c.link != "" {
			link = "<" + eventsURL + "?" + c.link + `>; rel="next"`
		}
		if got := w.Header().Get("Link"); got != link {
			t.Errorf("%s: Link %q, want %q", c.query, got, link)
		}
	}
	for _, q := range []string{"?limit=0", "?limit=-1", "?limit=x", "?limit=", "?after_seq=-1", "?after_seq=1.5", "?after_seq=9007199254740992", "?after_seq=1&after_seq=2", "?cursor=%00nonsense", "?cursor=", "?wait=-1", "?wait=x", "?a=%zz"} {
		if w, err := get(t, r, q, true); adp.CodeOf(err) != adp.InvalidRequest || w.Body.Len() > 0 {
			t.Errorf("%s: %v, %s", q, err, w.Body)
		}
	}
	if _, err := get(t, r, "?wait=1", false); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("wait in a room that is not public: %v", err)
	}
	if _, err := get(t, r, "?wait=0", false); err != nil {
		t.Errorf("wait=0: %v", err)
	}
}

// Links lead through the whole room, also where bytes end a page.
func TestServeEventsPages(t *testing.T) {
	s := begin(t, nil).upTo(40)
	r := keep(t, openSet(t, memory(t)), s)
	query, seen := "?limit=7", 0
	for query != "" {
		w, err := get(t, r, query, false)
		if err != nil {
			t.Fatal(err)
		}
		var recs []json.RawMessage
		if err := json.Unmarshal(w.Body.Bytes(), &recs); err != nil {
			t.Fatal(err)
		}
		for _, raw := range recs {
			if !bytes.Equal(raw, s.recs[seen].JSON()) {
				t.Fatalf("place %d: %s", seen, raw)
			}
			seen++
		}
		_, query, _ = strings.Cut(w.Header().Get("Link"), eventsURL)
		query, _, _ = strings.Cut(query, ">")
	}
	if seen != 40 {
		t.Errorf("%d records", seen)
	}
}

// The long poll answers with the record as soon as it is committed.
func TestLongPollAnswersAtOnce(t *testing.T) {
	s := begin(t, nil).upTo(3)
	r := create(t, openSet(t, memory(t)), s)
	got := make(chan string, 1)
	go func() {
		w, err := get(t, r, "?after_seq=1&wait=25", true)
		got <- fmt.Sprintf("%s%v", w.Body, err)
	}()
	wait(t, feed(t, r, s, 1, 2), 1)
	if body := <-got; body != "["+string(s.recs[1].JSON())+"]<nil>" {
		t.Errorf("body %s", body)
	}
}

// bare is a replica without a store, for what only waits.
func bare() *Replica { return newReplica(&Set{}, 1, Row{Origin: testOrigin, RoomID: testRoom}) }

func TestLongPollGivesUp(t *testing.T) {
	for query, want := range map[string]time.Duration{"?wait=3": 3 * time.Second, "?wait=25": 25 * time.Second, "?wait=9000000": 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w, err := get(t, bare(), query, true)
			if err != nil || w.Body.String() != "[]" || time.Since(start) != want {
				t.Errorf("%s: %s, %v after %v", query, w.Body, err, time.Since(start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // the reader goes
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		bare().await(ctx, 5, maxWait*time.Second)
		if time.Since(start) != time.Second {
			t.Errorf("after %v", time.Since(start))
		}
	})
}

func TestFollowBeatsAndWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bare()
		ctx, cancel := context.WithCancel(t.Context())
		beats, checks, others := 0, 0, 0
		other := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- r.Follow(ctx, 0, Follower{
				Send:      func([][]byte) error { return errors.New("nothing to send") },
				Heartbeat: func() error { beats++; return nil },
				Check:     func() bool { checks++; return true },
				Other:     func() (<-chan struct{}, error) { others++; return other, nil },
			})
		}()
		<-time.After(heartbeat*2 + time.Second) // the bubble's clock, not ours
		synctest.Wait()
		if beats != 2 || checks != 1 {
			t.Errorf("%d beats, %d checks", beats, checks)
		}
		before, closed := others, other
		other = make(chan struct{})
		close(closed)
		synctest.Wait()
		if others != before+1 {
			t.Errorf("Other was asked %d times", others-before)
		}
		r.Wake()
		synctest.Wait()
		if checks != 2 {
			t.Errorf("%d checks after time changed the room", checks)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	bad := errors.New("gone")
	for name, f := range map[string]Follower{
		"heartbeat": {Check: func() bool { return true }, Heartbeat: func() error { return bad }},
		"other":     {Check: func() bool { return true }, Other: func() (<-chan struct{}, error) { return nil, bad }},
	} {
		synctest.Test(t, func(t *testing.T) {
			if err := bare().Follow(t.Context(), 0, f); !errors.Is(err, bad) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		if err := bare().Follow(t.Context(), 0, Follower{Check: func() bool { return false }}); err != nil {
			t.Error(err)
		}
	})
}

// A follower gets every record once, in order, from where it asked.
func TestFollowGapless(t *testing.T) {
	const n = 400
	s, st := begin(t, nil).upTo(n), memory(t)
	r := create(t, openSet(t, st), s)
	wait(t, feed(t, r, s, 1, 50), 49)
	stop := errors.New("all there")
	var followers []chan error
	for _, after := range []int64{0, 10, 49, 50} {
		done := make(chan error, 1)
		followers = append(followers, done)
		go func() {
			next := after
			done <- r.Follow(t.Context(), after, Follower{Check: func() bool { return true }, Heartbeat: func() error { return nil }, Send: func(recs [][]byte) error {
				for _, raw := range recs {
					if !bytes.Equal(raw, s.recs[next].JSON()) {
						return fmt.Errorf("behind %d, at %d: %s", after, next, raw)
					}
					if next++; next == n {
						return stop
					}
				}
				return nil
			}})
		}()
	}
	for from := 50; from < n; from += 25 {
		wait(t, feed(t, r, s, from, from+25), 25)
	}
	for _, done := range followers {
		if err := <-done; !errors.Is(err, stop) {
			t.Error(err)
		}
	}
}

// A reader that was slow when it lost its right to read gets what took the
// right away, and nothing that came behind it.
func TestFollowEndsWithTheRight(t *testing.T) {
	for name, end := range map[string]func(*story){
		"removed": func(s *story) { s.add(alice, room.Remove, obj{"member": id(bob)}) },
		"left":    func(s *story) { s.add(bob, room.Leave, obj{}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, nil)
			s.add(bob, room.Join, obj{"role": "observer"})
			s.add(alice, room.Message, say("one"))
			s.add(alice, room.Message, say("two"))
			end(s)
			last := len(s.recs)
			s.upTo(last + 5)
			r := create(t, openSet(t, memory(t)), s)
			wait(t, feed(t, r, s, 1, 3), 2)
			var got [][]byte
			sending, resume := make(chan struct{}, 8), make(chan struct{})
			done := make(chan error, 1)
			go func() {
				done <- r.Follow(t.Context(), 2, Follower{
					Send: func(recs [][]byte) error { got = append(got, recs...); sending <- struct{}{}; <-resume; return nil },
					Check: func() bool {
						var member bool
						err := r.View(context.Background(), func(s *room.State) { member = s.IsMember(id(bob)) })
						return err == nil && member
					},
					Heartbeat: func() error { return nil },
				})
			}()
			<-sending
			wait(t, feed(t, r, s, 3, len(s.recs)), len(s.recs)-3)
			close(resume)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if len(got) != last-2 {
				t.Fatalf("%d records, the last is %s", len(got), got[len(got)-1])
			}
			for i, raw := range got {
				if !bytes.Equal(raw, s.recs[i+2].JSON()) {
					t.Errorf("place %d: %s", i, raw)
				}
			}
		})
	}
}

// The close is sent, then the stream ends.
func TestFollowEndsWithTheRoom(t *testing.T) {
	s := begin(t, nil).upTo(3)
	s.add(alice, room.Close, obj{})
	r := create(t, openSet(t, memory(t)), s)
	var seqs int
	done, ready := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		done <- r.Follow(t.Context(), 1, Follower{
			Send:      func(recs [][]byte) error { seqs += len(recs); return nil },
			Heartbeat: func() error { return nil },
			Check: func() bool {
				open := true
				err := r.View(context.Background(), func(s *room.State) { open = s.StatusAt(s.Clock) == room.Active })
				select {
				case ready <- struct{}{}: // it has seen an open room: one that has ended is not followed at all
				default:
				}
				return err == nil && open
			},
		})
	}()
	<-ready
	wait(t, feed(t, r, s, 1, 4), 3)
	if err := <-done; err != nil || seqs != 3 {
		t.Errorf("%d records, %v", seqs, err)
	}
}
