package daemon

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// A daemon that holds many rooms starts soon, finds them all in its index, and holds
// few of them in memory. WITAN_SCALE=full takes as many as the project promises.
func TestStartWithManyRooms(t *testing.T) {
	rooms, limit := 1000, 10*time.Second
	if os.Getenv("WITAN_SCALE") == "full" {
		rooms = 20_000
	}
	data := t.TempDir()
	fill(t, filepath.Join(data, "store"), rooms)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, began := heap(), time.Now()
	d := start(t, setup{data: data})
	took := time.Since(began)
	held := heap() - before
	t.Logf("%d rooms: ready after %.2f s, %d MiB of heap", rooms, took.Seconds(), held>>20)
	for try := 1; try < 4 && took > limit; try++ { // the best counts: a busy machine makes each of them slow
		port := d.port()
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(data, indexFolder)); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		d = start(t, setup{data: data, port: port})
		took = time.Since(began)
	}
	if took > limit {
		t.Errorf("the start took %v", took)
	}
	if held > 300<<20 {
		t.Errorf("%d MiB of heap are in use after the start", held>>20)
	}
	for _, i := range []int{0, rooms / 2, rooms - 1} {
		var found []map[string]any
		d.call("GET", fmt.Sprintf("/v1/index/rooms?host=https://h%d.example", i), nil, &found)
		if len(found) != 1 || found[0]["records"] != 5.0 {
			t.Errorf("room %d in the index: %v", i, found)
		}
		var recs []json.RawMessage
		if status, _, _ := d.call("GET", fmt.Sprintf("/m/h%d.example/v1/rooms/%s/events", i, manyRoom), nil, &recs); status != 200 || len(recs) != 5 {
			t.Errorf("room %d: %d, %d records", i, status, len(recs))
		}
	}
}

const manyRoom = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

// fill makes a store with one room of five records from each of many hosts.
func fill(t *testing.T, dir string, rooms int) {
	t.Helper()
	st, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	set, err := replica.Open(st)
	if err != nil {
		t.Fatal(err)
	}
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	at := time.Now().UnixMilli() - 60_000
	var recs []*adp.Record
	base, pre := adp.Draft{}, ""
	add := func(typ string, payload any) {
		at++
		d := base
		d.Protocol, d.Type, d.CreatedAt, d.Nonce, d.Payload = adp.Protocol, typ, at, at, payload
		e, err := adp.Sign(key, d)
		if err != nil {
			t.Fatal(err)
		}
		rec := adp.NewRecord(e, manyRoom, int64(len(recs)+1), pre, at)
		recs, pre = append(recs, rec), rec.Hash
		base = adp.Draft{RoomID: manyRoom, BaseSeq: rec.Seq, BaseHash: rec.Hash}
	}
	add(room.Create, map[string]any{"topic": "One of many", "visibility": "public", "start_time": at, "end_time": at + 3_600_000})
	for range 4 {
		add(room.Message, map[string]any{"content_type": "text/plain", "content": "Each claim rests on a record."})
	}
	var landed sync.WaitGroup
	done := func(err error) {
		if err != nil {
			t.Error(err)
		}
		landed.Done()
	}
	for i := range rooms {
		_, ch, err := room.New(manyRoom).Judge(recs[0], room.Context{Chain: &room.MemoryChain{}})
		if err != nil {
			t.Fatal(err)
		}
		landed.Add(len(recs))
		r, err := set.Create(fmt.Sprintf("https://h%d.example", i), recs[0], ch, replica.Row{State: replica.Following}, nil, done)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Take(func(turn *replica.Turn) error {
			for _, rec := range recs[1:] {
				_, ch, err := turn.State.Judge(rec, room.Context{Chain: turn})
				if err != nil {
					return err
				}
				if err := turn.Append(rec, ch, nil, done); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			landed.Wait()
		}
	}
	landed.Wait()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
