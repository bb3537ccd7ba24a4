package host_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
)

// onDisk is a host as it runs: on a disk, each answer behind an fsync.
func onDisk(b *testing.B) *world {
	return over(b, openStore(b, store.Options{Dir: filepath.Join(b.TempDir(), "data"), MinFree: 1}), realClock)
}

// work divides b.N writes among n goroutines, in equal shares.
func work(b *testing.B, n int, write func(i, k int)) {
	b.Helper()
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range n {
		wg.Go(func() {
			for k := range share(b, n, i) {
				write(i, k)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

func share(b *testing.B, n, i int) int { return (b.N + n - 1 - i) / n }

// BenchmarkWrite64 is 64 agents that each talk in a room of their own: messages of
// about 1 KB on the head. Signing by the client is part of it, since each message
// rests on the one before.
func BenchmarkWrite64(b *testing.B) {
	w := onDisk(b)
	const agents = 64
	var all [agents]*agent
	var heads [agents]at
	for i := range all {
		var id string
		all[i], id = w.open(nil)
		heads[i] = w.headOf(id)
	}
	text := say(strings.Repeat("x", 400))
	work(b, agents, func(i, _ int) {
		v := w.on(heads[i], all[i], room.Message, text, nil).ok(200)
		heads[i] = at{heads[i].room, num(v.Get("seq")), v.Get("hash").Text()}
	})
}

// BenchmarkWriteOneRoomSignals is 64 agents that send signals into one room, signed
// before.
func BenchmarkWriteOneRoomSignals(b *testing.B) {
	w := onDisk(b)
	const agents = 64
	_, id := w.open(obj{"types": []any{typeDecl(nil)}})
	all := make([]*agent, agents)
	for i := range all {
		all[i] = w.member(id, "observer")
	}
	head := w.headOf(id)
	envs := make([][][]byte, agents)
	for i, a := range all {
		for range share(b, agents, i) {
			envs[i] = append(envs[i], w.event(a, "a.b", obj{"text": strings.Repeat("x", 400)}, head, nil))
		}
	}
	work(b, agents, func(i, k int) {
		w.post("/v1/rooms/"+id, envs[i][k]).ok(200)
	})
}
