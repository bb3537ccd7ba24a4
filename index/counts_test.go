package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp/room"
)

// most is a facet as naive counts it, cut as an answer is.
func most(of map[string]int64) (list []Count) {
	for value, n := range of {
		list = append(list, Count{value, n})
	}
	slices.SortFunc(list, compareCounts)
	return list[:min(len(list), MaxFacet)]
}

// Counts that are kept, and brought up to date over several chunks, are those of a naive
// scan: while rooms come, change and go, words are forgotten and their numbers given
// away, and time passes, or is set back.
func TestKeptCountsAreExact(t *testing.T) {
	const rooms = 5 * chunkLen
	rnd := rand.New(rand.NewPCG(1, 2))
	x, c := newIndex(start)
	all := naive{}
	queries := []string{"", "status=active", "host=https://host3.example", "status=ended&language=en", "joinable=true", "tag=tag7", "language=de", "host=https://host3.example", "creator=" + agent(2), "types=poll.create",
		fmt.Sprint("since=", start+5), "verdict=forked", "host=https://nowhere.example"}
	era := 0 // words of one era are not those of another
	change := func(n int) {
		id := fmt.Sprintf("r%04d", n)
		d := doc(id, func(d *Doc) {
			d.Origin = fmt.Sprintf("https://host%d.example", n%(MaxFacet+10))
			d.URL = d.Origin + "/v1/rooms/" + d.RoomID
			d.Language = []string{"", "en", "en-GB", "de", fmt.Sprint("x", era)}[rnd.IntN(5)]
			d.Creator = agent(rnd.IntN(4))
			d.Tags = nil
			for range rnd.IntN(7) {
				if tag := fmt.Sprintf("tag%d", rnd.IntN(MaxFacet+30)+era); !slices.Contains(d.Tags, tag) {
					d.Tags = append(d.Tags, tag)
				}
			}
			d.Types = [][]string{nil, {"poll.create"}, {"poll.create", fmt.Sprint("x.e", era)}}[rnd.IntN(3)]
			d.Titles = d.Types
			d.StartTime, d.LastActivity = c.ms+rnd.Int64N(200)-100, c.ms+rnd.Int64N(20)-10
			d.EndTime = d.StartTime + 1 + rnd.Int64N(300)
			d.Closed, d.Cancelled, d.Hidden = rnd.IntN(9) == 0, rnd.IntN(9) == 0, rnd.IntN(9) == 0
			d.Verdict = []string{"verified", "forked"}[rnd.IntN(2)]
			d.Visibility = []string{room.Public, room.Restricted}[rnd.IntN(2)]
		})
		if delete(all, d.URL); rnd.IntN(8) == 0 {
			x.Remove(d.Origin, d.RoomID)
			return
		}
		x.Put(d)
		if all[d.URL] = d; d.Hidden {
			all[d.URL] = Doc{Origin: d.Origin, RoomID: d.RoomID, URL: d.URL, Visibility: d.Visibility, Verdict: d.Verdict, State: d.State, Attested: d.Attested, Hidden: true}
		}
	}
	for n := range rooms {
		change(n)
	}
	lists := [][]string{facetNames, {facetTag}, {facetLanguage, facetHost}, {facetStatus}}
	var asked []int // what is asked again and again for a while
	for step := range 600 {
		if step%40 == 0 {
			asked = []int{rnd.IntN(len(queries)), rnd.IntN(len(queries)), 0}
		}
		switch rnd.IntN(8) {
		case 0:
			c.ms += rnd.Int64N(40)
		case 1:
			c.ms -= rnd.Int64N(15)
		case 2:
			if step%10 == 0 { // all words are forgotten, and their numbers free for others
				era += 100
				c.ms += reuseAfter + 1
				for n := range rooms {
					change(n)
				}
				c.ms += reuseAfter + 1
			}
		}
		for range rnd.IntN(30) {
			change(rnd.IntN(rooms))
		}
		if step%20 == 10 { // a host is forgotten, and comes back under another number
			for n := 3; n < rooms; n += MaxFacet + 10 {
				if d, ok := all[fmt.Sprintf("https://host3.example/v1/rooms/r%04d", n)]; ok {
					x.Remove(d.Origin, d.RoomID)
					delete(all, d.URL)
				}
			}
			change(3)
		}
		q, err := url.ParseQuery(queries[asked[rnd.IntN(len(asked))]])
		if err != nil {
			t.Fatal(err)
		}
		names := lists[step/40%len(lists)]
		ask := url.Values{"limit": {"1"}, "facets": {strings.Join(names, ",")}}
		for name, v := range q {
			ask[name] = v
		}
		page, err := x.Rooms(context.Background(), ask)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Facets) != len(names) {
			t.Fatalf("%v: %d facets", ask, len(page.Facets))
		}
		for _, name := range names {
			if got, want := page.Facets[name], most(all.facet(name, q, c.ms)); !slices.Equal(got, want) {
				t.Fatalf("step %d, %v: facet %s\n got %v\nwant %v", step, ask, name, got, want)
			}
		}
		if n := len(x.counted.of); n > maxCounted {
			t.Fatalf("%d counts are kept", n)
		}
	}
}

// Who does not wait for a count leaves one that goes on right.
func TestCountsGivenUp(t *testing.T) {
	x, _ := newIndex(start)
	for n := range 3 * chunkLen {
		x.Put(doc(fmt.Sprint("r", n), nil))
	}
	f, err := parseRooms(url.Values{"facets": {"status"}}, testCursors)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.counts(ctx, f, start); err == nil {
		t.Error("it was counted all the same")
	}
	got, err := x.counts(context.Background(), f, start)
	if want := []Count{{"active", 3 * chunkLen}}; err != nil || !slices.Equal(got[facetStatus], want) {
		t.Errorf("%v, %v", got, err)
	}
}

// kept is how many snapshots and counts are held.
func (x *Index) kept() (views, counts int) {
	x.held.mu.Lock()
	defer x.held.mu.Unlock()
	x.counted.mu.Lock()
	defer x.counted.mu.Unlock()
	return len(x.held.list), len(x.counted.of)
}

// What is kept for a while is let go of although nobody asks any more.
func TestTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Options{Cursors: testCursors, Own: ownOrigin, Now: func() int64 { return time.Now().UnixMilli() }})
		x.Put(doc("a", nil))
		x.Put(doc("b", nil))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- x.Run(ctx) }()
		if _, err := x.Rooms(ctx, url.Values{"limit": {"1"}, "facets": {"tag"}}); err != nil {
			t.Fatal(err)
		}
		if views, counts := x.kept(); views != 1 || counts != 1 {
			t.Fatalf("%d snapshots, %d counts", views, counts)
		}
		time.Sleep(snapshotAge*time.Millisecond + 2*tidyEvery) // in the bubble: its clock alone moves
		synctest.Wait()
		if views, counts := x.kept(); views != 0 || counts != 0 {
			t.Errorf("%d snapshots, %d counts", views, counts)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
