package mirror

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

const day = int64(86_400_000)

// aged is a story whose i-th record is so many days old.
func aged(t testing.TB, id string, n int, days func(i int) float64) *story {
	t.Helper()
	now := time.Now().UnixMilli()
	at := func(i int) int64 { return now - int64(days(i)*float64(day)) }
	s := newStory(t, id, map[string]any{"start_time": at(0) - 1000, "end_time": now + 3_600_000})
	s.recs, s.head = nil, adp.Record{}
	s.at = at(0) - 1
	s.add(creator, "room.create", map[string]any{"topic": "Aged " + id, "visibility": "public", "start_time": at(0) - 1000, "end_time": now + 3_600_000})
	for i := 1; i < n; i++ {
		s.at = max(s.at, at(i)-1)
		s.say(creator, fmt.Sprintf("number %d", i))
	}
	return s
}

func TestRetention(t *testing.T) {
	const size = 40
	steady := func(i int) float64 { return max(0.01, float64(size-1-i)-0.5) } // one a day until now
	pend := func(*replica.Replica) bool { return true }
	for name, c := range map[string]struct {
		bounds  Retention
		pending func(*replica.Replica) bool
		to      map[string]int64 // what is dropped of each room
		rule    string
		waits   int64
	}{
		"none":               {Retention{}, nil, nil, "", 0},
		"age":                {Retention{Age: 240 * time.Hour}, nil, map[string]int64{"a": 29, "b": 29}, "age", 0},
		"count":              {Retention{Count: 15}, nil, map[string]int64{"a": 25, "b": 25}, "count", 0},
		"everything":         {Retention{Age: time.Millisecond}, nil, map[string]int64{"a": 40, "b": 40}, "age", 0},
		"host count":         {Retention{HostCount: 50}, nil, map[string]int64{"a": 30}, "host_count", 0},
		"host count, both":   {Retention{HostCount: 30}, nil, map[string]int64{"a": 40, "b": 10}, "host_count", 0},
		"count, unattested":  {Retention{Count: 15}, pend, map[string]int64{"a": 9, "b": 9}, "count", 2},
		"age within 30 days": {Retention{Age: 240 * time.Hour}, pend, map[string]int64{"a": 9, "b": 9}, "age", 2},
		"host, unattested":   {Retention{HostCount: 50}, pend, map[string]int64{"a": 9, "b": 9}, "host_count", 2},
		"age over 30 days":   {Retention{Age: 35 * 24 * time.Hour}, pend, map[string]int64{"a": 4, "b": 4}, "age", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHost(t)
			a := aged(t, "a", size, steady)
			b := aged(t, "b", size, func(i int) float64 { return steady(i) - 0.001 }) // the younger one
			h.put(a, b)
			g := start(t, memory(t), func(o *Options) {
				o.Retention, o.Pending = func(string) Retention { return c.bounds }, c.pending
			}).follow(h)
			g.holds(h, a)
			g.holds(h, b)
			plan, err := g.m.RetainNow(t.Context(), false)
			if err != nil || plan.Done || plan.Pending != c.waits || len(plan.Rooms) != len(c.to) {
				t.Fatalf("%+v, %v", plan, err)
			}
			if row := g.row(h, "a"); row.Dropped != 0 {
				t.Fatal("a dry run drops")
			}
			for _, d := range plan.Rooms {
				if d.From != 1 || d.To != c.to[d.RoomID] || d.Records != d.To || d.Rule != c.rule || d.Bytes == 0 {
					t.Errorf("%+v, want up to %d by %s", d, c.to[d.RoomID], c.rule)
				}
			}
			if err := g.m.Retain(t.Context(), time.Now().UnixMilli()); err != nil {
				t.Fatal(err)
			}
			for _, s := range []*story{a, b} {
				if got := g.row(h, s.id); got.Dropped != c.to[s.id] || got.Seq != size {
					t.Errorf("%s: dropped up to %d, want %d", s.id, got.Dropped, c.to[s.id])
				}
				to := c.to[s.id]
				if resp, body := g.get(h, "/v1/rooms/"+s.id+"/events"); (resp.StatusCode == 410) != (to > 0) || to > 0 && !strings.Contains(body, fmt.Sprintf(`"first_seq":%d`, to+1)) {
					t.Errorf("events of %s: %d %.200s", s.id, resp.StatusCode, body)
				}
				if resp, _ := g.get(h, fmt.Sprintf("/v1/rooms/%s/events?after_seq=%d", s.id, to)); resp.StatusCode != 200 {
					t.Errorf("the events of %s that are kept: %d", s.id, resp.StatusCode)
				}
				r, _ := g.set.Get(h.origin(), s.id)
				if p, err := r.Inclusion(1, size); err != nil || p.LeafHash != s.recs[0].Hash {
					t.Errorf("proof of seq 1 of %s: %v", s.id, err)
				}
			}
			if again, err := g.m.RetainNow(t.Context(), false); err != nil || len(again.Rooms) != 0 {
				t.Errorf("a second run would drop %+v, %v", again.Rooms, err)
			}
			// the rooms go on
			a.say(creator, "after")
			h.put(a)
			until(t, "the next record", func() bool { return g.row(h, "a").Seq == size+1 })
			if row := g.row(h, "a"); row.EffectiveVerdict() != replica.Verified || row.State != replica.Following {
				t.Errorf("%+v", row)
			}
		})
	}
}

func TestRetentionByBytes(t *testing.T) {
	h := newFakeHost(t)
	a, b := talk(t, "a", 30), talk(t, "b", 30)
	h.put(a, b)
	bounds := Retention{}
	g := start(t, memory(t), func(o *Options) { o.Retention = func(string) Retention { return bounds } }).follow(h)
	g.holds(h, a)
	g.holds(h, b)
	whole := g.row(h, "a").Bytes
	bounds = Retention{Bytes: whole / 2}
	if err := g.m.Retain(t.Context(), time.Now().UnixMilli()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		row := g.row(h, id)
		if row.Bytes > whole/2 || row.Bytes < whole/2-2000 || row.Dropped < 10 || row.Dropped > 20 {
			t.Errorf("%s: %d bytes of %d are left, dropped up to %d", id, row.Bytes, whole, row.Dropped)
		}
	}
	bounds = Retention{HostBytes: whole / 2}
	if err := g.m.Retain(t.Context(), time.Now().UnixMilli()); err != nil {
		t.Fatal(err)
	}
	left := g.row(h, "a").Bytes + g.row(h, "b").Bytes
	if left > whole/2 || left < whole/2-4000 {
		t.Errorf("%d bytes of %d are left at the host", left, 2*whole)
	}
}

// What retention drops is free on the disk, as du tells it.
func TestRetentionFreesTheDisk(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(store.Options{Dir: dir, LogFile: 1 << 20, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	du := func() (n int64) {
		_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
			if err == nil {
				n += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return nil
		})
		return n
	}
	h := newFakeHost(t)
	s := newStory(t, "room", nil)
	for i := range 1200 { // 9 MiB that do not compress
		noise := make([]byte, 3800)
		for j := range noise {
			noise[j] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[rand.N(64)]
		}
		s.say(creator, fmt.Sprint(i)+string(bytes.Repeat(noise, 2)))
	}
	h.put(s)
	g := start(t, st, func(o *Options) { o.Retention = func(string) Retention { return Retention{Count: 100} } }).follow(h)
	g.holds(h, s)
	before := du()
	report, err := g.m.RetainNow(context.Background(), true)
	if err != nil || report.Records != 1101 || report.Bytes < 8<<20 {
		t.Fatalf("%d records, %d bytes, %v", report.Records, report.Bytes, err)
	}
	after := du()
	t.Logf("%d KiB before, %d KiB after %d KiB were dropped", before>>10, after>>10, report.Bytes>>10)
	if before-after < report.Bytes*3/4 {
		t.Errorf("%d KiB before, %d KiB after %d KiB were dropped", before>>10, after>>10, report.Bytes>>10)
	}
	r, _ := g.set.Get(h.origin(), "room")
	for _, seq := range []int64{1, 500, 1101, 1102, 1201} {
		if p, err := r.Inclusion(seq, 1201); err != nil || p.LeafHash != s.recs[seq-1].Hash {
			t.Errorf("proof of seq %d: %v", seq, err)
		}
	}
}
